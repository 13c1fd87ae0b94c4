package server

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/zlimit/zlimit-go/server/internal/auth"
)

// checkPorts returns the first rule that the addresses of the ports break. It looks up the names of ports on this machine, and no hosts.
func (c *Config) checkPorts() error {
	var hosts [2]string
	var ports [2]int
	for i, address := range [][2]string{{"grpc", c.GRPC}, {"http", c.HTTP}} {
		host, port, err := net.SplitHostPort(address[1])
		if err != nil {
			return fmt.Errorf("%s: must be HOST:PORT, got %q", address[0], address[1])
		}
		hosts[i] = host
		if ports[i], err = net.LookupPort("tcp", port); err != nil { //nolint:noctx // it asks no server
			return fmt.Errorf("%s: must have a port from 0 to 65535, got %q", address[0], address[1])
		}
		if !auth.IsLoopback(host) && !c.authenticates() {
			return fmt.Errorf("%s: must be an address of the loopback without callers and tls.client_ca, got %q: anybody could use the limits", address[0], address[1])
		}
	}
	if ports[0] == ports[1] && ports[0] != 0 && overlap(hosts[0], hosts[1]) {
		return fmt.Errorf("http: must have another port than grpc, got %q beside %q", c.HTTP, c.GRPC)
	}
	return nil
}

// overlap reports whether two hosts have an address in common. Of names, only localhost is known to have one.
func overlap(a, b string) bool {
	x, known := addressOf(a)
	y, ok := addressOf(b)
	if !known || !ok {
		return a == b
	}
	covers := func(all, one netip.Addr) bool { return all.IsUnspecified() && (all.Is6() || one.Is4()) }
	return x == y || covers(x, y) || covers(y, x)
}

// addressOf returns the address that a host listens on: the unspecified one without a host.
func addressOf(host string) (netip.Addr, bool) {
	switch host {
	case "":
		return netip.IPv6Unspecified(), true
	case "localhost":
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), true
	}
	address, err := netip.ParseAddr(host)
	return address.Unmap(), err == nil
}
