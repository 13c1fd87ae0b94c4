package envoylimit

import (
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestEnvoyWarnings finds what Envoy lets pass without a word.
func TestEnvoyWarnings(t *testing.T) {
	const filter = `
http_filters:
- typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
    domain: d
    timeout: 0.5s
    failure_mode_deny: true
`
	route := func(limits string) string {
		return "route:\n  typed_per_filter_config:\n    f:\n      \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute\n      rate_limits:\n" + limits
	}
	const (
		user   = "      - {actions: [{request_headers: {header_name: x, descriptor_key: user}}]}\n"
		all    = "      - {actions: [{generic_key: {descriptor_value: all}}]}\n"
		amount = "      - {actions: [{generic_key: {descriptor_value: all}}], hits_addend: {format: '%DYNAMIC_METADATA(a:b)%'}}\n"
	)
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", filter + route(user+all), nil},
		{"the filter's timeout", strings.Replace(filter, "0.5s", "0.02s", 1), []string{"envoy.yaml:6: timeout is 20ms"}},
		{"no timeout", strings.Replace(filter, "timeout: 0.5s", "stage: 0", 1), []string{"envoy.yaml:4: timeout is 20ms"}},
		{"failures pass", strings.Replace(filter, "deny: true", "deny: false", 1), []string{"envoy.yaml:4: failure_mode_deny is not true"}},
		{"another domain", strings.Replace(filter, "domain: d", "domain: e", 1), []string{`envoy.yaml:5: domain "e" has no limits here`}},
		{"headers alone", route(user), []string{"envoy.yaml:6: each descriptor hangs on something"}},
		{"a header that may miss", route(strings.Replace(user, "user}", "user, skip_if_absent: true}", 1)), nil},
		{"amounts alone", route(amount), []string{"envoy.yaml:6: each descriptor has a hits_addend of the request"}},
		{"an amount beside all calls", route(amount + all), nil},
		{"negative hits", route(all + strings.Replace(amount, "'}", "', is_negative_hits: true}", 1)), []string{"envoy.yaml:7: the server refuses is_negative_hits"}},
		{"an addend in a route", "route:\n  rate_limits:\n" + all + amount, []string{"envoy.yaml:4: Envoy ignores hits_addend in the rate_limits of a route"}},
		{"the end of a stream alone", route(strings.Replace(user, "- {", "- {apply_on_stream_done: true, ", 1)), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &Config{Files: []File{{Name: "a.limits.yaml", Text: []byte("domain: d\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 2}}]")}}}
			got := check.Call(c.EnvoyWarnings(File{Name: "envoy.yaml", Text: []byte(test.text)})).Must(t, "EnvoyWarnings()")
			if len(got) != len(test.want) {
				t.Fatalf("EnvoyWarnings = %q, want %q", got, test.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], test.want[i]) {
					t.Errorf("warning %d = %s, want %s", i, got[i], test.want[i])
				}
			}
		})
	}
	if _, err := new(Config).EnvoyWarnings(File{Name: "envoy.yaml", Text: []byte("'")}); err == nil || !strings.HasPrefix(err.Error(), "envoy.yaml: yaml: ") {
		t.Errorf("EnvoyWarnings of no YAML = %v", err)
	}
	if _, err := (&Config{NearLimit: 2}).EnvoyWarnings(File{}); err == nil {
		t.Error("EnvoyWarnings of a config that does not pass = nil, want an error")
	}
}
