package auth

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

var start = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func clock() time.Time { return start }

func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func callers(t *testing.T) *Callers {
	t.Helper()
	all, err := New([]Caller{
		{Name: "gateway", KeySHA256: hashOf("key-of-the-gateway"), Roles: []string{"acquire"}, Namespaces: []string{"prod", "test"}, Entities: []string{"team-a/*", "bob"}},
		{Name: "gateway", KeySHA256: hashOf("next-key-of-the-gateway"), Roles: []string{"acquire"}},
		{Name: "ops", KeySHA256: strings.ToUpper(hashOf("key-of-ops")), Roles: []string{"admin"}},
		{Name: "late", KeySHA256: hashOf("expired"), Roles: []string{"read"}, Expires: start},
		{Name: "in-time", KeySHA256: hashOf("not yet"), Roles: []string{"read"}, Expires: start.Add(time.Second)},
		{Name: "envoy", Certificate: "spiffe://prod/envoy", Roles: []string{"acquire", "read"}},
		{Name: "dns", Certificate: "edge.internal", Roles: []string{"read"}},
	}, "default", clock)
	check.Fatal(t, "New()", err)
	return all
}

func TestByAuthorization(t *testing.T) {
	all := callers(t)
	for _, c := range []struct {
		name   string
		fields []string
		want   string
		err    error
	}{
		{"a key", []string{"Bearer key-of-the-gateway"}, "gateway", nil},
		{"a second key of the caller", []string{"Bearer next-key-of-the-gateway"}, "gateway", nil},
		{"the scheme in other letters", []string{"bearer  key-of-ops"}, "ops", nil},
		{"a key before its end", []string{"Bearer not yet"}, "in-time", nil},
		{"an expired key", []string{"Bearer expired"}, "", ErrWrongKey},
		{"no field", nil, "", ErrNoKey},
		{"no key", []string{"Bearer "}, "", ErrNoKey},
		{"a wrong key", []string{"Bearer key-of-the-gatewaz"}, "", ErrWrongKey},
		{"the beginning of a key", []string{"Bearer key-of-the-gatewa"}, "", ErrWrongKey},
		{"more than a key", []string{"Bearer key-of-the-gateway "}, "", ErrWrongKey},
		{"the hash of a key", []string{"Bearer " + hashOf("key-of-the-gateway")}, "", ErrWrongKey},
		{"another scheme", []string{"Basic key-of-the-gateway"}, "", ErrWrongKey},
		{"a key alone", []string{"key-of-the-gateway"}, "", ErrWrongKey},
		{"two fields", []string{"Bearer key-of-the-gateway", "Bearer key-of-ops"}, "", ErrWrongKey},
		{"a long key", []string{"Bearer " + strings.Repeat("k", 1<<20)}, "", ErrWrongKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := all.ByAuthorization(c.fields)
			if !errors.Is(err, c.err) || p != nil && p.Name != c.want {
				t.Errorf("ByAuthorization = %v, %v, want %q, %v", p, err, c.want, c.err)
			}
			if err != nil && len(c.fields) > 0 && strings.Contains(err.Error(), "gateway") {
				t.Errorf("the error %v has the key", err)
			}
		})
	}
}

func certificate(uris []string, names ...string) *tls.ConnectionState {
	leaf := &x509.Certificate{DNSNames: names}
	for _, text := range uris {
		uri, _ := url.Parse(text)
		leaf.URIs = append(leaf.URIs, uri)
	}
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
}

func TestByRequest(t *testing.T) {
	all := callers(t)
	unverified := certificate([]string{"spiffe://prod/envoy"})
	unverified.VerifiedChains = nil
	for _, c := range []struct {
		name   string
		tls    *tls.ConnectionState
		header string
		want   string
		err    error
	}{
		{"a URI", certificate([]string{"spiffe://prod/envoy"}), "", "envoy", nil},
		{"a DNS name", certificate(nil, "other", "edge.internal"), "", "dns", nil},
		{"another identity", certificate([]string{"spiffe://prod/envoy2"}), "", "", ErrWrongKey},
		{"a URI as a DNS name", certificate([]string{"edge.internal"}), "", "dns", nil},
		{"a certificate that nobody verified", unverified, "", "", ErrNoKey},
		{"no TLS", nil, "", "", ErrNoKey},
		{"a certificate and a key", certificate([]string{"spiffe://prod/envoy"}), "Bearer key-of-ops", "ops", nil},
		{"a certificate and a wrong key", certificate([]string{"spiffe://prod/envoy"}), "Bearer wrong", "", ErrWrongKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &http.Request{Header: http.Header{}, TLS: c.tls}
			if c.header != "" {
				r.Header.Set("Authorization", c.header)
			}
			p, err := all.ByRequest(r)
			if !errors.Is(err, c.err) || p != nil && p.Name != c.want {
				t.Errorf("ByRequest = %v, %v, want %q, %v", p, err, c.want, c.err)
			}
		})
	}
}

func TestRights(t *testing.T) {
	all := callers(t)
	gateway, _ := all.ByKey("key-of-the-gateway")
	ops, _ := all.ByKey("key-of-ops")
	for _, c := range []struct {
		name string
		got  bool
		want bool
	}{
		{"acquire of a gateway", gateway.May(Acquire), true},
		{"read of a gateway", gateway.May(Read), false},
		{"admin of a gateway", gateway.May(Admin), false},
		{"acquire of operators", ops.May(Acquire), false},
		{"read of operators", ops.May(Read), true},
		{"admin of operators", ops.May(Admin), true},
		{"a key of the team", gateway.MayEntity("team-a/7"), true},
		{"the team", gateway.MayEntity("team-a"), false},
		{"bob", gateway.MayEntity("bob"), true},
		{"bobby", gateway.MayEntity("bobby"), false},
		{"no entity", gateway.MayEntity(""), false},
		{"all entities of a gateway", gateway.MayAll(), false},
		{"all entities of operators", ops.MayAll(), true},
		{"any entity of operators", ops.MayEntity("x"), true},
	} {
		if c.got != c.want {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
	for _, c := range []struct {
		p     *Principal
		named string
		want  string
		ok    bool
	}{
		{gateway, "", "prod", true},
		{gateway, "test", "test", true},
		{gateway, "default", "", false},
		{gateway, "pro", "", false},
		{ops, "", "default", true},
		{ops, "default", "default", true},
		{ops, "prod", "", false},
	} {
		if got, ok := c.p.Namespace(c.named); got != c.want || ok != c.ok {
			t.Errorf("%s: Namespace(%q) = %q, %v, want %q, %v", c.p.Name, c.named, got, ok, c.want, c.ok)
		}
	}
}

func TestAnyone(t *testing.T) {
	all := Anyone("default")
	p, err := all.ByRequest(&http.Request{Header: http.Header{"Authorization": {"Bearer x"}}})
	if err != nil || !p.May(Acquire) || !p.May(Admin) || !p.MayAll() || !all.Open() {
		t.Errorf("ByRequest = %+v, %v, want all roles", p, err)
	}
	if callers(t).Open() {
		t.Error("Open of callers with keys = true, want false")
	}
}

func TestNewRefuses(t *testing.T) {
	good := Caller{Name: "a", KeySHA256: hashOf("a"), Roles: []string{"read"}}
	with := func(change func(*Caller)) []Caller {
		c := good
		change(&c)
		return []Caller{good, c}
	}
	for _, c := range []struct {
		name    string
		callers []Caller
		want    string
	}{
		{"no name", with(func(c *Caller) { c.Name = "" }), `callers[1] name ""`},
		{"a long name", with(func(c *Caller) { c.Name = strings.Repeat("a", 129) }), `callers[1] name "aaa`},
		{"a line break in a name", with(func(c *Caller) { c.Name = "a\nb" }), `callers[1] name "a\nb"`},
		{"no roles", with(func(c *Caller) { c.Roles = nil }), `callers[1] roles ""`},
		{"another role", with(func(c *Caller) { c.Roles = []string{"read", "root"} }), `callers[1] roles "root"`},
		{"an empty pattern", with(func(c *Caller) { c.Entities = []string{""} }), `callers[1] entities ""`},
		{"neither key nor certificate", with(func(c *Caller) { c.KeySHA256 = "" }), `callers[1] key_sha256 ""`},
		{"both", with(func(c *Caller) { c.Certificate = "x" }), `callers[1] key_sha256 "`},
		{"a key that is not hashed", with(func(c *Caller) { c.KeySHA256 = "zlk_secret" }), `callers[1] key_sha256 "`},
		{"a short hash", with(func(c *Caller) { c.KeySHA256 = c.KeySHA256[2:] }), `callers[1] key_sha256 "`},
		{"a key twice", with(func(*Caller) {}), `callers[1] key_sha256 "`},
		{"a certificate twice", []Caller{{Name: "a", Certificate: "x", Roles: []string{"read"}}, {Name: "b", Certificate: "x", Roles: []string{"read"}}}, `callers[1] certificate "x"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := New(c.callers, "default", clock); err == nil || !strings.HasPrefix(err.Error(), "auth: invalid "+c.want) {
				t.Errorf("New = %v, want an error of %s", err, c.want)
			}
		})
	}
}

func TestRoleNames(t *testing.T) {
	for role, want := range map[Role]string{Acquire: "acquire", Read: "read", Admin: "admin", 0: "none"} {
		if got := role.String(); got != want {
			t.Errorf("Role(%d).String() = %q, want %q", role, got, want)
		}
	}
}

// FuzzMatches compares patterns with those of package path, for which a star stands for any text without a slash.
func FuzzMatches(f *testing.F) {
	for _, pattern := range []string{"*", "a*", "*a", "a*b*c", "**", "a", "*a*"} {
		f.Add(pattern, "abc")
		f.Add(pattern, "a")
		f.Add(pattern, "aXbXbc")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if strings.ContainsAny(pattern, `?[]\/`) || strings.Contains(name, "/") || len(pattern) > 30 || strings.ToValidUTF8(pattern+name, "") != pattern+name {
			return
		}
		want, err := path.Match(pattern, name)
		if err != nil {
			return
		}
		if got := Matches(pattern, name); got != want {
			t.Errorf("Matches(%q, %q) = %v, want %v", pattern, name, got, want)
		}
	})
}

// FuzzAuthorization holds that no field but one with a key is let in.
func FuzzAuthorization(f *testing.F) {
	const key = "a key of a caller"
	hash := hashOf(key)
	all := check.Call(New([]Caller{{Name: "a", KeySHA256: hash, Roles: []string{"read"}}}, "default", clock)).Must(f, "New()")
	f.Add("Bearer " + key)
	f.Add("Bearer")
	f.Fuzz(func(t *testing.T, field string) {
		p, err := all.ByAuthorization([]string{field})
		if (p == nil) == (err == nil) || p != nil && !strings.HasSuffix(field, key) {
			t.Errorf("ByAuthorization(%q) = %v, %v", field, p, err)
		}
	})
}
