package envoylimit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// An envoyFile is a config of Envoy, as far as it asks a server.
type envoyFile struct {
	name     string
	warnings []string
	domains  map[string]*yaml.Node
}

// EnvoyWarnings returns what Envoy would let pass without a word, by the text of a config of Envoy, each with its line. It also says which
// domains of that config have no limits. The service's config must pass [Config.Check]. Text that is no YAML is an error.
func (c *Config) EnvoyWarnings(of File) ([]string, error) {
	t, err := c.table()
	if err != nil {
		return nil, err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(of.Text, &root); err != nil {
		return nil, fmt.Errorf("%s: %w", of.Name, err)
	}
	f := &envoyFile{name: of.Name, domains: map[string]*yaml.Node{}}
	f.walk(&root, false)
	for _, name := range slices.Sorted(maps.Keys(f.domains)) {
		if t.domains[name] == nil {
			f.warn(f.domains[name], "domain %q has no limits here: every request of it passes", name)
		}
	}
	return f.warnings, nil
}

func (f *envoyFile) warn(at *yaml.Node, format string, args ...any) {
	f.warnings = append(f.warnings, fmt.Sprintf("%s:%d: %s", f.name, at.Line, fmt.Sprintf(format, args...)))
}

// field returns the value of a key, nil if a mapping has none.
func field(n *yaml.Node, key string) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// text returns the scalar of a key, "" if there is none.
func text(n *yaml.Node, key string) string {
	if v := field(n, key); v != nil {
		return v.Value
	}
	return ""
}

// walk looks at a node and all below it. In the config of a filter for a route, addends work.
func (f *envoyFile) walk(n *yaml.Node, addends bool) {
	if n.Kind == yaml.AliasNode { // it was looked at where it is defined
		return
	}
	if n.Kind == yaml.MappingNode {
		kind := text(n, "@type")
		switch {
		case strings.HasSuffix(kind, "filters.http.ratelimit.v3.RateLimit"):
			f.filter(n)
			f.domain(n)
		case strings.HasSuffix(kind, "filters.http.ratelimit.v3.RateLimitPerRoute"):
			f.domain(n)
			addends = true
		}
		if limits := field(n, "rate_limits"); limits != nil && limits.Kind == yaml.SequenceNode {
			f.limits(limits, addends)
		}
	}
	for _, child := range n.Content {
		f.walk(child, addends)
	}
}

func (f *envoyFile) domain(n *yaml.Node) {
	if d := field(n, "domain"); d != nil && f.domains[d.Value] == nil {
		f.domains[d.Value] = d
	}
}

// leastTimeout is the timeout of the filter below which a store in a network answers too late now and then.
const leastTimeout = 50 * time.Millisecond

// filter looks at the filter itself.
func (f *envoyFile) filter(n *yaml.Node) {
	timeout := 20 * time.Millisecond
	at := field(n, "timeout")
	if at != nil {
		if d, err := time.ParseDuration(at.Value); err == nil {
			timeout = d
		}
	} else {
		at = n
	}
	if timeout < leastTimeout {
		f.warn(at, "timeout is %v, 20ms by default: a call that takes longer passes, or fails with failure_mode_deny, and its charge stands; set 0.5s", timeout)
	}
	if text(n, "failure_mode_deny") != "true" {
		f.warn(n, "failure_mode_deny is not true: every request passes while the server does not answer")
	}
}

// limits looks at the descriptors of a route.
func (f *envoyFile) limits(limits *yaml.Node, addends bool) {
	asks, sure, free := 0, false, true
	for _, l := range limits.Content {
		addend := field(l, "hits_addend")
		if addend != nil && !addends {
			f.warn(addend, "Envoy ignores hits_addend in the rate_limits of a route: put them into typed_per_filter_config as RateLimitPerRoute")
		}
		if text(addend, "is_negative_hits") == "true" {
			f.warn(addend, "the server refuses is_negative_hits: Envoy would send it for refused requests, too; settle by a lease")
		}
		if text(l, "apply_on_stream_done") == "true" {
			continue
		}
		asks++
		if missing := mayMiss(l); !missing {
			sure = true
			free = free && text(addend, "format") != ""
		}
	}
	switch {
	case asks > 0 && !sure:
		f.warn(limits, "each descriptor hangs on something that a request may lack. Envoy drops it then, and does not ask if none is left: add one with a generic_key")
	case asks > 0 && free:
		f.warn(limits, "each descriptor has a hits_addend of the request. Envoy drops it if that is no number, or above 1,000,000,000: add one without")
	}
}

// mayMiss reports whether a descriptor has an action that a request may have no value for.
func mayMiss(limit *yaml.Node) bool {
	actions := field(limit, "actions")
	if actions == nil {
		return false
	}
	for _, a := range actions.Content {
		for _, kind := range []string{"request_headers", "query_parameters", "metadata", "dynamic_metadata", "header_value_match", "query_parameter_value_match"} {
			at := field(a, kind)
			if at != nil && text(at, "skip_if_absent") != "true" && text(at, "default_value") == "" {
				return true
			}
		}
	}
	return false
}
