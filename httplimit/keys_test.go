package httplimit_test

import (
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

// TestChallenge finds the scheme in refusals for want of a bearer token, and in no others.
func TestChallenge(t *testing.T) {
	for key, want := range map[*httplimit.Key]string{
		new(httplimit.ByBearer([]byte("0123456789abcdef"))): "Bearer",
		new(httplimit.ByHeader("X-API-Key")):                "",
	} {
		r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
		_, err := (*key)(r)
		httplimit.Refuse(w, r, err)
		if got := w.Header().Get("WWW-Authenticate"); w.Code != http.StatusUnauthorized || got != want {
			t.Errorf("%v is answered by %d with WWW-Authenticate %q, want 401 with %q", err, w.Code, got, want)
		}
	}
}
