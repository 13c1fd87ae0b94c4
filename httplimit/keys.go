package httplimit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Key finds the entity that a request is charged to.
type Key func(*http.Request) (entity string, err error)

// A KeyError is of a request without a key, or with a key that breaks a rule. It does not hold the key, which
// may be secret.
type KeyError struct {
	Source string // the place of the key, such as "header X-API-Key"
	Reason string // the rule that it breaks
	// Challenge is what WWW-Authenticate asks for, such as Bearer; "" stands for ApiKey. A status 401 must name a scheme.
	Challenge string

	address bool // of the connection or from a proxy, which no client can send: the status is 400
}

// Error returns the place where the key was looked for, and the mistake.
func (e *KeyError) Error() string { return "httplimit: the " + e.rule() }

// rule says what is wrong, without the name of the package.
func (e *KeyError) rule() string { return "key in the " + e.Source + " " + e.Reason }

// longestKey is the most bytes of a key that are looked at. Entities have at most 256 bytes; bearer tokens, which are
// hashed, may be longer.
const (
	longestKey    = 256
	longestBearer = 8192
	longestField  = 2 * longestBearer // of the field that holds the token, with the scheme and spaces
)

// Requests returns a request function for limits of requests: each takes one of a limit of a resource, from the entity that
// a key finds.
func Requests(resource, limit string, key Key) func(*http.Request) (zlimit.Request, error) {
	if key == nil {
		panic("httplimit: the key function is nil")
	}
	var one zlimit.Consumption = consumeOne(limit) // made once, since it is allocated
	return func(r *http.Request) (zlimit.Request, error) {
		entity, err := key(r)
		return zlimit.Request{Entity: entity, Resource: resource, Consume: one}, err
	}
}

// consumeOne is the consumption of one token of a limit.
type consumeOne string

// AppendAmounts implements [zlimit.Consumption].
func (limit consumeOne) AppendAmounts(to []zlimit.Amount) []zlimit.Amount {
	return append(to, zlimit.Amount{Limit: string(limit), Tokens: 1})
}

// ByHeader finds the entity in a header field, as it is. Use it for a field that a trusted party has set, such as the
// gateway before this server, since a client can send any value. A value that is no name of an entity is refused; a key
// of your own can return the [zlimit.Name] of it. A field that is missing, repeated, or not of 1 to 256 bytes is a
// [*KeyError].
func ByHeader(name string) Key {
	name = http.CanonicalHeaderKey(name)
	source, challenge := "header "+name, "ApiKey"
	if validToken(name) {
		challenge += ` header="` + name + `"`
	}
	return func(r *http.Request) (string, error) {
		return single(source, challenge, r.Header[name], longestKey)
	}
}

// single returns the only value.
func single(source, challenge string, values []string, longest int) (string, error) {
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", &KeyError{source, "is missing", challenge, false}
	case len(values) > 1:
		return "", &KeyError{source, "is there " + strconv.Itoa(len(values)) + " times", challenge, false}
	case len(values[0]) > longest:
		return "", &KeyError{source, fmt.Sprintf("has %d bytes; it must have at most %d", len(values[0]), longest), challenge, false}
	}
	return values[0], nil
}

// ByBearer finds the entity in the token of the field Authorization: Bearer. The token is a secret. The entity is
// therefore the HMAC-SHA-256 of the token with a key of the server, in base64 for URLs, behind "bearer-". A reader of
// the table learns no token.
//
// ByBearer panics when the key has less than 16 bytes. Another key makes other entities. A token that is missing, has
// more than 8192 bytes, or has spaces in it, is a [*KeyError]. ByBearer does not check whether the token is valid: the
// code that checks it must read the same token out of the field.
func ByBearer(key []byte) Key {
	if len(key) < 16 {
		panic(fmt.Sprintf("httplimit: the key of bearer tokens has %d bytes; it must have at least 16", len(key)))
	}
	key = append([]byte(nil), key...)
	const source, challenge = "header Authorization", "Bearer"
	return func(r *http.Request) (string, error) {
		value, err := single(source, challenge, r.Header["Authorization"], longestField)
		if err != nil {
			return "", err
		}
		scheme, token, _ := strings.Cut(value, " ")
		token = strings.Trim(token, " ")
		switch {
		case !strings.EqualFold(scheme, "Bearer"), token == "", strings.ContainsAny(token, " \t"):
			return "", &KeyError{source, "is no bearer token", challenge, false}
		case len(token) > longestBearer:
			return "", &KeyError{source, fmt.Sprintf("has %d bytes; it must have at most %d", len(token), longestBearer), challenge, false}
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(token))
		return "bearer-" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), nil
	}
}

// ByClientIP finds the entity in the address of the client. Proxies are trusted by their addresses. The entity is the
// last address in X-Forwarded-For that is not of a trusted proxy. Without trusted proxies it is the address of the
// connection, and the field is not looked at, since any client can send it.
//
// An IPv6 address stands for its network of 64 bits, which one client has to itself. The entity is written without
// brackets and zones, such as 192.0.2.7. That of a network has all of its digits, such as 2001:0db8:0000:0000::. An
// address that cannot be read is a [*KeyError]; addresses before it in the field are not trusted. Empty elements are
// skipped, as RFC 9110 asks. Where no element has an address, the proxy asks for itself.
//
// [ClientIP] has the settings for other proxies and networks.
func ByClientIP(trusted ...netip.Prefix) Key { return ClientIP{Trusted: trusted}.Key() }

// A ClientIP says how the address of a client is found, and how much of it stands for one client.
type ClientIP struct {
	// Trusted are the addresses of proxies.
	Trusted []netip.Prefix
	// Unix trusts what connects by a unix socket, as a proxy on the same machine does.
	Unix bool
	// Forwarded reads the field Forwarded of RFC 7239, in place of X-Forwarded-For. One of them is read, since a client can
	// send the one that its proxy does not set.
	Forwarded bool
	// IPv6Bits is the size of the network that an IPv6 address stands for, from 1 to 128; 0 stands for 64.
	IPv6Bits int
}

// Key returns the key of [ByClientIP] with these settings. It panics for IPv6Bits out of range.
func (c ClientIP) Key() Key {
	c.Trusted = slices.Clone(c.Trusted)
	if c.IPv6Bits == 0 {
		c.IPv6Bits = 64
	}
	if c.IPv6Bits < 1 || c.IPv6Bits > 128 {
		panic(fmt.Sprintf("httplimit: IPv6Bits is %d; it must be from 1 to 128", c.IPv6Bits))
	}
	return c.entity
}

func (c ClientIP) entity(r *http.Request) (string, error) {
	remote, err := parseAddress(r.RemoteAddr)
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	unix := err != nil && c.Unix && local != nil && local.Network() == "unix"
	switch {
	case unix: // a proxy without an address
	case err != nil:
		return "", &KeyError{Source: "address of the connection", Reason: "cannot be read", address: true}
	case !c.trusts(remote):
		return c.entityOf(remote), nil
	}
	name := "X-Forwarded-For"
	if c.Forwarded {
		name = "Forwarded"
	}
	hops := strings.Split(strings.Join(r.Header[name], ","), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		hop := strings.TrimSpace(hops[i])
		if hop == "" { // lists of fields may have empty elements, which say nothing
			continue
		}
		if c.Forwarded {
			hop = forwardedFor(hop)
		}
		address, err := parseAddress(hop)
		if err != nil {
			return "", &KeyError{Source: "header " + name, Reason: "cannot be read", address: true}
		}
		remote = address
		if !c.trusts(address) {
			break
		}
	}
	if !remote.IsValid() {
		return "", &KeyError{Source: "header " + name, Reason: "is missing", address: true}
	}
	return c.entityOf(remote), nil
}

func (c ClientIP) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(c.Trusted, func(p netip.Prefix) bool { return p.Contains(a) })
}

// forwardedFor returns the parameter "for" of an element of Forwarded, "" for one without it or with several. A node is
// a token or a quoted string, and has neither commas nor semicolons. An element cut inside a quoted string of another
// parameter has a quote without its partner, or an escaped quote, and cannot be read.
func forwardedFor(element string) (node string) {
	if strings.Contains(element, `\`) {
		return ""
	}
	for pair := range strings.SplitSeq(element, ";") {
		name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok || strings.Count(value, `"`)%2 != 0 || node != "" && strings.EqualFold(name, "for") {
			return ""
		}
		if strings.EqualFold(name, "for") {
			node = strings.Trim(value, `"`)
		}
	}
	return node
}

// parseAddress reads an address with or without a port.
func parseAddress(text string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return a.Unmap().WithZone(""), nil
	}
	p, err := netip.ParseAddrPort(text)
	return p.Addr().Unmap().WithZone(""), err
}

// entityOf writes an address as an entity. Entities start with a letter or digit, so an address that begins with colons
// is written with its zeros.
func (c ClientIP) entityOf(a netip.Addr) string {
	if a.Is4() {
		return a.String()
	}
	network := netip.PrefixFrom(a, c.IPv6Bits).Masked().Addr()
	if c.IPv6Bits > 64 {
		return network.StringExpanded()
	}
	return network.StringExpanded()[:19] + "::"
}

// validToken reports whether a text is one of RFC 9110, as names of fields are.
func validToken(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}
