package server

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/pages"
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
			dir := directory(t, map[string]string{"envoy.yaml": test.text, "a.limits.yaml": limits, "zlimitd.yaml": config})
			c := check.Call(Load(filepath.Join(dir, "zlimitd.yaml"), noEnv)).Must(t, "Load()")
			got := check.Call(c.EnvoyWarnings(filepath.Join(dir, "envoy.yaml"))).Must(t, "EnvoyWarnings()")
			if len(got) != len(test.want) {
				t.Fatalf("EnvoyWarnings = %q, want %q", got, test.want)
			}
			for i := range got {
				if got := strings.TrimPrefix(got[i], dir+"/"); !strings.HasPrefix(got, test.want[i]) {
					t.Errorf("warning %d = %s, want %s", i, got, test.want[i])
				}
			}
		})
	}
}

// TestExampleHasNoWarnings checks the example of docs/envoy.md.
func TestExampleHasNoWarnings(t *testing.T) {
	c := check.Call(Load("examples/envoy/zlimitd.yaml", noEnv)).Must(t, "Load()")
	envoy := check.Call(c.EnvoyWarnings("examples/envoy/envoy.yaml")).Must(t, "EnvoyWarnings()")
	if diff := cmp.Diff([]string(nil), append(c.Warnings(), envoy...)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestClearText warns of keys that cross a network.
func TestClearText(t *testing.T) {
	c := Config{GRPC: "0.0.0.0:8081", HTTP: "127.0.0.1:8080"}
	if got := c.Warnings(); len(got) != 1 || !strings.HasPrefix(got[0], "grpc: keys of callers cross the network in clear text") {
		t.Errorf("Warnings = %q", got)
	}
}

// TestPages reads the files that the pages show.
func TestPages(t *testing.T) {
	read := 0
	for _, name := range []string{"docs/server.md", "docs/envoy.md"} {
		page := check.Call(pages.Read("..", name)).Must(t, "pages.Read()")
		for _, b := range page.Blocks {
			if b.Language != "yaml" || !strings.Contains(b.Text, "ratelimit:") {
				continue
			}
			var c Config
			if err := c.decode([]byte(b.Text)); err != nil {
				t.Errorf("%s: %v", b.At(), err)
			}
			read++
		}
	}
	if read < 3 {
		t.Errorf("%d files were read from the pages", read)
	}
}
