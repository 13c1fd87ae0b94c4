// Package auth says who calls a server, and what the caller may do. A caller is known by a key in the field Authorization, or by the
// identity of a client certificate. Keys are stored as hashes: a file of keys does not open a server.
package auth

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A Role allows a group of calls. The value of a caller's roles is the sum of them.
type Role uint8

// The roles.
const (
	Acquire Role = 1 << iota // acquire, settle, roll back and extend leases; see what is left of the limits of a request
	Read                     // see limits, usage and events
	Admin                    // change limits, entities and buckets; a caller with it has Read, too
)

var roleNames = map[string]Role{"acquire": Acquire, "read": Read, "admin": Admin | Read}

// String returns the name of a single role, such as "acquire".
func (r Role) String() string {
	for name, role := range roleNames {
		if r == role || r == Admin && name == "admin" {
			return name
		}
	}
	return "none"
}

// Errors of callers.
var (
	// ErrNoKey says that a caller sent neither a key nor a certificate.
	ErrNoKey = errors.New("auth: no key")
	// ErrWrongKey says that no caller has the key or the identity of the certificate, or that the key has expired. It does not say
	// which of these.
	ErrWrongKey = errors.New("auth: wrong key")
)

// A Caller is who may call, as the configuration of a server has it.
type Caller struct {
	// Name is the principal of audit events, and the owner of leases. Several keys may have one name, such as during a rotation:
	// each settles the leases of the others.
	Name string `json:"name" yaml:"name"`
	// KeySHA256 is the SHA-256 hash of the caller's key in 64 hexadecimal digits. Either it or Certificate is set.
	KeySHA256 string `json:"key_sha256,omitempty" yaml:"key_sha256,omitempty"`
	// Certificate is a URI, such as a SPIFFE ID, or a DNS name that a client certificate has as an alternative name of its subject.
	Certificate string `json:"certificate,omitempty" yaml:"certificate,omitempty"`
	// Roles are of "acquire", "read" and "admin".
	Roles []string `json:"roles" yaml:"roles"`
	// Namespaces are those that the caller may use. A request that names none is for the first one.
	Namespaces []string `json:"namespaces,omitempty" yaml:"namespaces,omitempty"`
	// Entities are patterns of names, such as "team-a/*": a star stands for any text. Without patterns all entities are allowed. A
	// caller with patterns may not see or change what concerns all entities, such as the limits of a resource.
	Entities []string `json:"entities,omitempty" yaml:"entities,omitempty"`
	// Expires is when the key stops to be accepted; the zero time for a key without an end.
	Expires time.Time `json:"expires,omitzero" yaml:"expires,omitempty"`
}

// A Principal is a caller that was recognized. It is safe for concurrent use.
type Principal struct {
	Name       string
	roles      Role
	namespaces []string
	entities   []string
	expires    time.Time
}

// May reports whether the principal has a role.
func (p *Principal) May(role Role) bool { return p.roles&role == role }

// MayAny reports whether the principal has one of some roles.
func (p *Principal) MayAny(roles Role) bool { return p.roles&roles != 0 }

// Namespace returns the namespace of a request that names one, or "" for none. It returns false for one that the principal may not
// use.
func (p *Principal) Namespace(named string) (string, bool) {
	if named == "" {
		return p.namespaces[0], true
	}
	if !slices.Contains(p.namespaces, named) {
		return "", false
	}
	return named, true
}

// MayEntity reports whether the principal may name an entity.
func (p *Principal) MayEntity(entity string) bool {
	return len(p.entities) == 0 || slices.ContainsFunc(p.entities, func(pattern string) bool { return Matches(pattern, entity) })
}

// MayAll reports whether the principal may see and change what concerns all entities.
func (p *Principal) MayAll() bool { return len(p.entities) == 0 }

// Matches reports whether a pattern matches a name as a whole. A star stands for any text.
func Matches(pattern, name string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	name, ok := strings.CutPrefix(name, head)
	if !star || !ok {
		return ok && name == ""
	}
	parts := strings.Split(rest, "*")
	last := len(parts) - 1
	for _, part := range parts[:last] {
		at := strings.Index(name, part)
		if at < 0 {
			return false
		}
		name = name[at+len(part):]
	}
	return strings.HasSuffix(name, parts[last])
}

// Callers recognizes callers. It is safe for concurrent use.
type Callers struct {
	byKey         map[[sha256.Size]byte]*Principal
	byCertificate map[string]*Principal
	anyone        *Principal
	now           func() time.Time
}

// Anyone returns callers of a server without keys: everyone is the principal "anyone", with all roles in some namespaces. It is for a
// server that listens on the loopback alone.
func Anyone(namespaces ...string) *Callers {
	return &Callers{anyone: &Principal{Name: "anyone", roles: Acquire | Read | Admin, namespaces: namespaces}, now: time.Now}
}

// New returns the callers of a configuration. Callers without namespaces may use the default one alone. Errors name the caller, the
// field and the rule.
func New(callers []Caller, defaultNamespace string, now func() time.Time) (*Callers, error) {
	all := &Callers{byKey: map[[sha256.Size]byte]*Principal{}, byCertificate: map[string]*Principal{}, now: now}
	for i := range callers {
		c := &callers[i]
		refuse := func(field, value, rule string) (*Callers, error) {
			return nil, fmt.Errorf("auth: invalid callers[%d] %s %q: %s", i, field, value, rule)
		}
		p := &Principal{Name: c.Name, namespaces: c.Namespaces, entities: c.Entities, expires: c.Expires}
		if len(p.namespaces) == 0 {
			p.namespaces = []string{defaultNamespace}
		}
		if !callerName.MatchString(c.Name) {
			return refuse("name", c.Name, "must have 1 to 128 printable ASCII characters without spaces")
		}
		for _, name := range c.Roles {
			role, ok := roleNames[name]
			if !ok {
				return refuse("roles", name, "must be acquire, read or admin")
			}
			p.roles |= role
		}
		if p.roles == 0 {
			return refuse("roles", "", "must have at least one of acquire, read and admin")
		}
		for _, pattern := range c.Entities {
			if pattern == "" || len(pattern) > 256 {
				return refuse("entities", pattern, "must have 1 to 256 bytes; leave the list out to allow all entities")
			}
		}
		switch {
		case (c.KeySHA256 == "") == (c.Certificate == ""):
			return refuse("key_sha256", c.KeySHA256, "must be given, or certificate, and not both")
		case c.Certificate != "":
			if all.byCertificate[c.Certificate] != nil {
				return refuse("certificate", c.Certificate, "is of another caller, too")
			}
			all.byCertificate[c.Certificate] = p
		default:
			sum, err := hex.DecodeString(c.KeySHA256)
			if err != nil || len(sum) != sha256.Size {
				return refuse("key_sha256", c.KeySHA256, "must have 64 hexadecimal digits")
			}
			hash := [sha256.Size]byte(sum)
			if all.byKey[hash] != nil {
				return refuse("key_sha256", c.KeySHA256, "is of another caller, too")
			}
			all.byKey[hash] = p
		}
	}
	return all, nil
}

var callerName = regexp.MustCompile(`^[!-~]{1,128}$`)

// IsLoopback reports whether a host, with or without a port, names the loopback. Another name could be a web page's, whose address has
// changed.
func IsLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return host == "localhost" || err == nil && address.IsLoopback()
}

// Open reports whether everyone is admitted.
func (c *Callers) Open() bool { return c.anyone != nil }

// maxKey bounds the key of a caller, in bytes.
const maxKey = 256

// ByKey returns the principal that has a key.
func (c *Callers) ByKey(key string) (*Principal, error) {
	switch {
	case c.anyone != nil:
		return c.anyone, nil
	case key == "":
		return nil, ErrNoKey
	case len(key) > maxKey:
		return nil, ErrWrongKey
	}
	p := c.byKey[sha256.Sum256([]byte(key))] // the hash of a guess says nothing of how near the guess is
	return c.valid(p)
}

func (c *Callers) valid(p *Principal) (*Principal, error) {
	if p == nil || !p.expires.IsZero() && !c.now().Before(p.expires) {
		return nil, ErrWrongKey
	}
	return p, nil
}

// ByTLS returns the principal of a verified client certificate: the first of its URIs and DNS names that is of a caller.
func (c *Callers) ByTLS(state *tls.ConnectionState) (*Principal, error) {
	switch {
	case c.anyone != nil:
		return c.anyone, nil
	case state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0:
		return nil, ErrNoKey
	}
	leaf := state.VerifiedChains[0][0]
	for _, uri := range leaf.URIs {
		if p := c.byCertificate[uri.String()]; p != nil {
			return c.valid(p)
		}
	}
	for _, name := range leaf.DNSNames {
		if p := c.byCertificate[name]; p != nil {
			return c.valid(p)
		}
	}
	return nil, ErrWrongKey
}

// ByRequest returns the principal of a request of HTTP: by the key of its field Authorization, and without that field by its
// certificate.
func (c *Callers) ByRequest(r *http.Request) (*Principal, error) {
	if fields := r.Header.Values("Authorization"); len(fields) > 0 {
		return c.ByAuthorization(fields)
	}
	return c.ByTLS(r.TLS)
}

// ByAuthorization returns the principal of the values of a field Authorization, or of the metadata authorization of gRPC: a single
// one of the scheme Bearer.
func (c *Callers) ByAuthorization(fields []string) (*Principal, error) {
	if c.anyone != nil {
		return c.anyone, nil
	}
	if len(fields) == 0 {
		return nil, ErrNoKey
	}
	scheme, key, ok := strings.Cut(fields[0], " ")
	if len(fields) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") {
		return nil, ErrWrongKey
	}
	return c.ByKey(strings.TrimLeft(key, " "))
}
