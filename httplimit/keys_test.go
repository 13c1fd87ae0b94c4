package httplimit_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/httplimit"
)

func TestKeys(t *testing.T) {
	header := httplimit.ByHeader("x-api-key")
	bearer := httplimit.ByBearer([]byte("0123456789abcdef"))
	alone := httplimit.ByClientIP()
	proxied := httplimit.ByClientIP(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48"))
	for _, test := range []struct {
		name   string
		key    httplimit.Key
		remote string
		header http.Header
		want   string // or the error
	}{
		{"a header", header, "", http.Header{"X-Api-Key": {"alice"}}, "alice"},
		{"an empty header", header, "", http.Header{"X-Api-Key": {""}}, "httplimit: the key in the header X-Api-Key is missing"},
		{"two headers", header, "", http.Header{"X-Api-Key": {"alice", "bob"}}, "httplimit: the key in the header X-Api-Key is there 2 times"},
		{"a header of a thousand bytes", header, "", http.Header{"X-Api-Key": {strings.Repeat("k", 1000)}}, "httplimit: the key in the header X-Api-Key has 1000 bytes; it must have at most 256"},
		{"a bearer token", bearer, "", http.Header{"Authorization": {"Bearer secret"}}, "bearer-WfpqTczEQaLOs9VjKWJ2oKIpPZJ9KU1pXMoMo8NVazU"},
		{"a bearer token in small letters", bearer, "", http.Header{"Authorization": {"bearer  secret "}}, "bearer-WfpqTczEQaLOs9VjKWJ2oKIpPZJ9KU1pXMoMo8NVazU"},
		{"basic authentication", bearer, "", http.Header{"Authorization": {"Basic c2VjcmV0"}}, "httplimit: the key in the header Authorization is no bearer token"},
		{"no token", bearer, "", http.Header{"Authorization": {"Bearer "}}, "httplimit: the key in the header Authorization is no bearer token"},
		{"a long token", bearer, "", http.Header{"Authorization": {"Bearer " + strings.Repeat("x", 8193)}}, "httplimit: the key in the header Authorization has 8193 bytes; it must have at most 8192"},
		{"a field that is long", bearer, "", http.Header{"Authorization": {"Bearer " + strings.Repeat(" ", 17000)}}, "httplimit: the key in the header Authorization has 17007 bytes; it must have at most 16384"},
		{"a token with spaces in it", bearer, "", http.Header{"Authorization": {"Bearer secret x"}}, "httplimit: the key in the header Authorization is no bearer token"},
		{"two tokens", bearer, "", http.Header{"Authorization": {"Bearer secret, Bearer x"}}, "httplimit: the key in the header Authorization is no bearer token"},
		{"an address", alone, "192.0.2.7:1234", nil, "192.0.2.7"},
		{"an address that claims another", alone, "192.0.2.7:1234", http.Header{"X-Forwarded-For": {"198.51.100.1"}}, "192.0.2.7"},
		{"an IPv6 address", alone, "[2001:db8::1:2:3:4]:80", nil, "2001:0db8:0000:0000::"},
		{"an IPv6 address with a zone", alone, "[fe80::1%eth0]:80", nil, "fe80:0000:0000:0000::"},
		{"an IPv4 address in IPv6", alone, "[::ffff:192.0.2.7]:80", nil, "192.0.2.7"},
		{"no address", alone, "@", nil, "httplimit: the key in the address of the connection cannot be read"},
		{"behind a proxy", proxied, "10.0.0.1:80", http.Header{"X-Forwarded-For": {"198.51.100.1"}}, "198.51.100.1"},
		{"behind two, one in another field", proxied, "10.0.0.1:80", http.Header{"X-Forwarded-For": {"6.6.6.6, 198.51.100.1", "10.2.2.2"}}, "198.51.100.1"},
		{"a client that lies", proxied, "10.0.0.1:80", http.Header{"X-Forwarded-For": {"6.6.6.6, 10.9.9.9, 198.51.100.1"}}, "198.51.100.1"},
		{"a client that is no proxy and lies", proxied, "192.0.2.7:80", http.Header{"X-Forwarded-For": {"6.6.6.6"}}, "192.0.2.7"},
		{"a proxy that asks for itself", proxied, "10.0.0.1:80", nil, "10.0.0.1"},
		{"proxies alone", proxied, "10.0.0.1:80", http.Header{"X-Forwarded-For": {"10.1.1.1, 10.2.2.2"}}, "10.1.1.1"},
		{"a proxy of IPv6 with a port", proxied, "[2001:db8:ffff::1]:80", http.Header{"X-Forwarded-For": {"[2001:db8:1:2:3::4]:99"}}, "2001:0db8:0001:0002::"},
		{"empty elements", proxied, "10.0.0.1:80", http.Header{"X-Forwarded-For": {"6.6.6.6, , 198.51.100.1,", "", " , 10.2.2.2 ,"}}, "198.51.100.1"},
		{"empty elements alone", proxied, "10.0.0.1:80", http.Header{"X-Forwarded-For": {"", ", ,"}}, "10.0.0.1"},
		{"an address that cannot be read", proxied, "10.0.0.1:80", http.Header{"X-Forwarded-For": {"6.6.6.6, unknown"}}, "httplimit: the key in the header X-Forwarded-For cannot be read"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.RemoteAddr, r.Header = test.remote, test.header
		got, err := test.key(r)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: key = %s, want %s", test.name, got, test.want)
		}
	}
}

// TestTheLongestBearerToken counts the token alone, without its scheme.
func TestTheLongestBearerToken(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+strings.Repeat("x", 8192))
	if _, err := httplimit.ByBearer([]byte("0123456789abcdef"))(r); err != nil {
		t.Errorf("the key of a token of 8192 bytes: %v", err)
	}
}

// TestChallenge finds the scheme in refusals for lack of a key. An address is none that a client can send, so that a status
// 401 would ask for nothing.
func TestChallenge(t *testing.T) {
	for name, test := range map[string]struct {
		key    httplimit.Key
		status int
		want   string
	}{
		"bearer":  {httplimit.ByBearer([]byte("0123456789abcdef")), 401, "Bearer"},
		"header":  {httplimit.ByHeader("X-API-Key"), 401, `ApiKey header="X-Api-Key"`},
		"address": {httplimit.ByClientIP(), 400, ""},
	} {
		r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
		r.RemoteAddr = "@"
		_, err := test.key(r)
		httplimit.Refuse(w, r, err)
		if got := w.Header().Get("WWW-Authenticate"); w.Code != test.status || got != test.want {
			t.Errorf("%s: %v is answered by %d with WWW-Authenticate %q, want %d with %q", name, err, w.Code, got, test.status, test.want)
		}
	}
}

// TestClientIP finds addresses behind proxies that speak by a unix socket, or set Forwarded, and in networks of other sizes.
func TestClientIP(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	unix := &net.UnixAddr{Name: "/run/s", Net: "unix"}
	forwarded := httplimit.ClientIP{Trusted: proxies, Forwarded: true}
	const unreadable = "httplimit: the key in the header Forwarded cannot be read"
	for _, test := range []struct {
		name   string
		ip     httplimit.ClientIP
		remote string
		local  net.Addr
		header http.Header
		want   string // or the error
	}{
		{"a unix socket", httplimit.ClientIP{Unix: true}, "@", unix, http.Header{"X-Forwarded-For": {"6.6.6.6, 198.51.100.1"}}, "198.51.100.1"},
		{"a unix socket without a client", httplimit.ClientIP{Unix: true}, "@", unix, nil, "httplimit: the key in the header X-Forwarded-For is missing"},
		{"a unix socket that is not trusted", httplimit.ClientIP{}, "@", unix, http.Header{"X-Forwarded-For": {"198.51.100.1"}}, "httplimit: the key in the address of the connection cannot be read"},
		{"no address, and no unix socket", httplimit.ClientIP{Unix: true}, "@", nil, http.Header{"X-Forwarded-For": {"198.51.100.1"}}, "httplimit: the key in the address of the connection cannot be read"},
		{"an address, where unix sockets are trusted", httplimit.ClientIP{Unix: true}, "192.0.2.7:80", nil, http.Header{"X-Forwarded-For": {"198.51.100.1"}}, "192.0.2.7"},
		{"Forwarded", forwarded, "10.0.0.1:80", nil, http.Header{"Forwarded": {`for=6.6.6.6, For="198.51.100.1:4711";proto=https;by=10.0.0.1`}, "X-Forwarded-For": {"6.6.6.6"}}, "198.51.100.1"},
		{"Forwarded, of IPv6, through two", forwarded, "10.0.0.1:80", nil, http.Header{"Forwarded": {`for="[2001:db8:1:2:3::4]:99"`, "for=10.2.2.2"}}, "2001:0db8:0001:0002::"},
		{"Forwarded by one that is not trusted", forwarded, "192.0.2.7:80", nil, http.Header{"Forwarded": {"for=198.51.100.1"}}, "192.0.2.7"},
		{"Forwarded for unknown", forwarded, "10.0.0.1:80", nil, http.Header{"Forwarded": {"for=6.6.6.6, for=unknown"}}, unreadable},
		{"Forwarded without an address", forwarded, "10.0.0.1:80", nil, http.Header{"Forwarded": {"for=6.6.6.6, proto=https"}}, unreadable},
		{"Forwarded for two", forwarded, "10.0.0.1:80", nil, http.Header{"Forwarded": {"for=6.6.6.6;for=198.51.100.1"}}, unreadable},
		{"Forwarded with a comma in quotes", forwarded, "10.0.0.1:80", nil, http.Header{"Forwarded": {`for=198.51.100.1;host="a, for=6.6.6.6;x="`}}, unreadable},
		{"Forwarded with a comma and an escape in quotes", forwarded, "10.0.0.1:80", nil, http.Header{"Forwarded": {`for=198.51.100.1;host="a, for=6.6.6.6;x=\"y"`}}, unreadable},
		{"no Forwarded", forwarded, "10.0.0.1:80", nil, http.Header{"X-Forwarded-For": {"6.6.6.6"}}, "10.0.0.1"},
		{"48 bits", httplimit.ClientIP{IPv6Bits: 48}, "[2001:db8:1:2:3::4]:80", nil, nil, "2001:0db8:0001:0000::"},
		{"128 bits", httplimit.ClientIP{IPv6Bits: 128}, "[2001:db8:1:2:3::4]:80", nil, nil, "2001:0db8:0001:0002:0003:0000:0000:0004"},
		{"IPv4", httplimit.ClientIP{IPv6Bits: 1}, "192.0.2.7:80", nil, nil, "192.0.2.7"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		if test.local != nil {
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, test.local))
		}
		r.RemoteAddr, r.Header = test.remote, test.header
		got, err := test.ip.Key()(r)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: key = %s, want %s", test.name, got, test.want)
		}
	}
}
