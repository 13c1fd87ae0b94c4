package rls

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestWrongFiles(t *testing.T) {
	limited := func(text string) string {
		return "domain: d\ndescriptors:\n- key: k\n  value: v\n  rate_limit: {" + text + "}\n"
	}
	for _, test := range []struct{ text, want string }{
		{"", "f.yaml: the file is empty"},
		{"'", "f.yaml: yaml: found unexpected end of stream"},
		{"descriptors: []", "f.yaml: domain must not be empty"},
		{"domain: d\ndescriptor: []", "line 2: field descriptor not found"},
		{"domain: d\ndescriptors: [{value: v}]", "f.yaml: d: key of descriptor 1 must not be empty"},
		{"domain: d\ndescriptors: [{key: a, value: b}, {key: a, value: b}]", `f.yaml: d: key "a" with value "b" is given twice`},
		{"domain: d\ndescriptors: [a]", "line 2: cannot unmarshal"},
		{"domain: d\n---\ndomain: e", "f.yaml: must have one document"},
		{limited("unit: fortnight, requests_per_unit: 1"), `f.yaml: d|k=v: unit must be second, minute, hour, day, week, month or year, got "fortnight"`},
		{limited("unit: unknown, requests_per_unit: 1"), `got "unknown"`},
		{limited("unlimited: true, unit: day"), `f.yaml: d|k=v: unit must be left out of an unlimited rate_limit, got "day"`},
		{limited("unit: day, requests_per_unit: -1"), "line 5: cannot unmarshal"},
		{limited("unit: day, requests_per_unit: 1, name: n, replaces: [{name: n}]"), `replaces must name other limits, got "n"`},
		{limited("unit: day, requests_per_unit: 1, replaces: [{name: ''}]"), `replaces must name other limits, got ""`},
		{"domain: d\ndescriptors: [{key: k, value: v, share_threshold: true}]", "f.yaml: d|k=v: share_threshold needs a value with *"},
	} {
		c := Config{Files: []File{{Name: "f.yaml", Text: []byte(test.text)}}}
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Check of %q = %v, want %q", test.text, err, test.want)
		}
	}
}

func TestWrongConfigs(t *testing.T) {
	file := func(domain string) File {
		return File{Name: domain + ".yaml", Text: []byte("domain: d\ndescriptors: [{key: " + domain + ", rate_limit: {unit: day, requests_per_unit: 1}}]")}
	}
	rule := Rule{Domain: "d", Keys: []string{"k"}, Entity: "{k}", Resource: "r", Consume: map[string]Amount{"rpm": {Hits: true}}}
	changed := func(change func(*Rule)) Config {
		r := rule
		change(&r)
		return Config{Rules: []Rule{r}}
	}
	for _, test := range []struct {
		config Config
		want   string
	}{
		{Config{Files: []File{file("a"), file("b")}}, `b.yaml: domain "d" is in a.yaml already: set merge_domains to have it in both`},
		{Config{NearLimit: 2}, "near_limit must be from 0 to 1, got 2"},
		{Config{Domains: map[string]Domain{"x": {}}}, `domains: "x" has no file and no rule`},
		{Config{Files: []File{file("a")}, Domains: map[string]Domain{"d": {Windows: "rolling"}}}, `domain "d": windows must be aligned or bucket, got "rolling"`},
		{Config{Files: []File{file("a")}, Domains: map[string]Domain{"d": {Lease: time.Millisecond}}}, `domain "d": lease must be from 1s to 168h0m0s, got 1ms`},
		{changed(func(r *Rule) { r.Domain = "" }), "rules[0]: domain must not be empty"},
		{changed(func(r *Rule) { r.Keys = nil }), "rules[0]: keys must be from 1 to 32, got 0"},
		{changed(func(r *Rule) { r.Consume = nil }), "rules[0]: consume must name a limit at least"},
		{changed(func(r *Rule) { r.Entity = "{x}" }), `rules[0]: entity must have keys of the rule in braces, got "{x}"`},
		{changed(func(r *Rule) { r.Entity = "{k" }), `rules[0]: entity must have keys of the rule in braces, got "{k"`},
		{changed(func(r *Rule) { r.Resource = "" }), "rules[0]: resource must not be empty"},
	} {
		if err := test.config.Check(); err == nil || err.Error() != test.want {
			t.Errorf("Check = %v, want %q", err, test.want)
		}
	}
	check.Error(t, "Check()", (&Config{MergeDomains: true, Files: []File{file("a"), file("b")}}).Check())
}

func TestAmounts(t *testing.T) {
	var amounts map[string]Amount
	if err := yaml.Unmarshal([]byte("{a: hits, b: 3}"), &amounts); err != nil || amounts["a"] != (Amount{Hits: true}) || amounts["b"] != (Amount{Fixed: 3}) {
		t.Errorf("amounts = %v, %v", amounts, err)
	}
	for _, text := range []string{"{a: hit}", "{a: -1}", "{a: 1.5}"} {
		if err := yaml.Unmarshal([]byte(text), &amounts); err == nil || !strings.Contains(err.Error(), "amount must be") {
			t.Errorf("amounts of %s = %v, want an error", text, err)
		}
	}
}

// TestNames gives each descriptor a name of its own, and known values their own names.
func TestNames(t *testing.T) {
	if got := entityOf([]string{"ann@example.com"}); got != "ann@example.com" {
		t.Errorf("entity of one value = %q", got)
	}
	seen := map[string][]string{}
	for _, values := range [][]string{{"a", "b"}, {"a|b", ""}, {"a", "|b"}, {"a%7Cb", ""}, {"", "a"}, {"a", ""}, {"a%00", ""}, {strings.Repeat("x", 300), "a"}, {strings.Repeat("x", 300), "b"}} {
		name := entityOf(values)
		if other := seen[name]; other != nil {
			t.Errorf("entityOf(%q) = %q, as of %q", values, name, other)
		}
		if len(name) > 256 || zlimit.Name(name) == "" {
			t.Errorf("entityOf(%q) = %q", values, name)
		}
		seen[name] = values
	}
	if a, b := (path{"d"}).with("k", "v=w").resource(), (path{"d"}).with("k=v", "w").resource(); a == b {
		t.Errorf("two paths have the resource %q", a)
	}
}

func TestWarnings(t *testing.T) {
	open := Config{Files: []File{{Name: "d.yaml", Text: []byte("domain: d\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]")}}}
	if got := open.Warnings(); len(got) != 1 || !strings.Contains(got[0], `domain "d": every limit hangs on a value`) {
		t.Errorf("Warnings = %q", got)
	}
	if got := shopConfig().Warnings(); !slices.Equal(got, nil) {
		t.Errorf("Warnings of a file with a fixed limit = %q", got)
	}
}
