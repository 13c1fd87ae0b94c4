package envoylimit

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
		{"domain: d\n---\ndomain: e", "f.yaml: line 2: there is a second document: it belongs in a file of its own"},
		{"domain: d\n---\n'", "f.yaml: yaml: line 3: found unexpected end of stream"},
		{limited("unit: fortnight, requests_per_unit: 1"), `f.yaml: d|k=v: unit must be second, minute, hour, day, week, month or year, got "fortnight"`},
		{limited("unit: unknown, requests_per_unit: 1"), `got "unknown"`},
		{limited("unlimited: true, unit: day"), `f.yaml: d|k=v: unit must be left out of an unlimited rate_limit, got "day"`},
		{limited("unit: day, requests_per_unit: -1"), `f.yaml: d|k=v: requests_per_unit must be a whole number from 0 to 4294967295, got "-1"`},
		{limited("unit: day, requests_per_unit: 1.5"), `f.yaml: d|k=v: requests_per_unit must be a whole number from 0 to 4294967295, got "1.5"`},
		{limited("unit: day, requests_per_unit: 0.5"), `f.yaml: d|k=v: requests_per_unit must be a whole number from 0 to 4294967295, got "0.5"`},
		{limited("unit: day, requests_per_unit: 1e3"), `f.yaml: d|k=v: requests_per_unit must be a whole number from 0 to 4294967295, got "1e3"`},
		{limited("unit: day, requests_per_unit: null"), `f.yaml: d|k=v: requests_per_unit must be a whole number from 0 to 4294967295, got "null"`},
		{limited("unit: day, requests_per_unit: "), `f.yaml: d|k=v: requests_per_unit must be a whole number from 0 to 4294967295, got ""`},
		{limited("unit: day, requests_per_unit: ''"), `f.yaml: d|k=v: requests_per_unit must be a whole number from 0 to 4294967295, got ""`},
		{limited("unit: day, requests_per_unit: '5'"), `f.yaml: d|k=v: requests_per_unit must be a whole number from 0 to 4294967295, got "5"`},
		{limited("unit: day, requests_per_unit: 4294967296"), `f.yaml: d|k=v: requests_per_unit must be a whole number from 0 to 4294967295, got "4294967296"`},
		{limited("unit: day, requests_per_unit: true"), `f.yaml: d|k=v: requests_per_unit must be a whole number from 0 to 4294967295, got "true"`},
		{limited("unit: day, requests_per_unit: [1]"), `f.yaml: d|k=v: requests_per_unit must be a whole number from 0 to 4294967295, got ""`},
		{limited("unit: day"), "f.yaml: d|k=v: requests_per_unit must be given: 0 rejects everything"},
		{limited("unlimited: true, requests_per_unit: 1.5"), `whole number from 0 to 4294967295, got "1.5"`},
		{limited("unit: day, requests_per_unit: 1, name: n, replaces: [{name: n}]"), `replaces must name other limits, got "n"`},
		{limited("unit: day, requests_per_unit: 1, replaces: [{name: ''}]"), `replaces must name other limits, got ""`},
		{"domain: d\ndescriptors: [{key: k, value: !!binary Kv8=, rate_limit: {unit: day, requests_per_unit: 1}}]", "value: error parsing regexp: invalid UTF-8"},
		{"domain: d\ndescriptors: [{key: k, value: v, share_threshold: true}]", "f.yaml: d|k=v: share_threshold needs a value with *"},
	} {
		c := Config{Files: []File{{Name: "f.yaml", Text: []byte(test.text)}}}
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Check of %q = %v, want %q", test.text, err, test.want)
		}
	}
}

// TestRequestsPerUnit reads whole numbers as YAML has them, and leaves the number of an unlimited limit out.
func TestRequestsPerUnit(t *testing.T) {
	for text, want := range map[string]limit{
		"unit: day, requests_per_unit: 0":                             {},
		"unit: day, requests_per_unit: 1_000":                         {perUnit: 1000},
		"unit: day, requests_per_unit: 4294967295":                    {perUnit: math.MaxUint32},
		"unit: day, name: &n 7, requests_per_unit: *n":                {perUnit: 7},
		"<<: {requests_per_unit: 8}, unit: day, replaces: []":         {perUnit: 8},
		"unlimited: true":                                             {unlimited: true},
		"<<: {requests_per_unit: 8}, unit: day, requests_per_unit: 9": {perUnit: 9},
	} {
		c := Config{Files: []File{{Name: "f.yaml", Text: []byte("domain: d\ndescriptors: [{key: k, rate_limit: {" + text + "}}]")}}}
		table := check.Call(c.table()).Must(t, "table()")
		if got := table.domains["d"].root.children["k"].limit; got.perUnit != want.perUnit || got.unlimited != want.unlimited {
			t.Errorf("%s = %d of %+v, want %d", text, got.perUnit, got, want.perUnit)
		}
	}
}

func TestWrongConfigs(t *testing.T) {
	file := func(domain string) File {
		return File{Name: domain + ".yaml", Text: []byte("domain: d\ndescriptors: [{key: " + domain + ", rate_limit: {unit: day, requests_per_unit: 1}}]")}
	}
	rule := Rule{Domain: "d", Keys: []string{"k"}, Entity: "{k}", Resource: "r", Consume: map[string]string{"rpm": "hits"}}
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
		{Config{NearLimit: math.NaN()}, "near_limit must be from 0 to 1, got NaN"},
		{Config{NearLimit: 2}, "near_limit must be from 0 to 1, got 2"},
		{Config{Domains: map[string]Domain{"x": {}}}, `domains: "x" has no file and no rule`},
		{Config{Files: []File{file("a")}, Domains: map[string]Domain{"d": {Windows: "rolling"}}}, `domain "d": windows must be aligned or bucket, got "rolling"`},
		{Config{Files: []File{file("a")}, Domains: map[string]Domain{"d": {Lease: time.Millisecond}}}, `domain "d": lease must be from 1s to 168h0m0s, got 1ms`},
		{changed(func(r *Rule) { r.Domain = "" }), "rules[0]: domain must not be empty"},
		{changed(func(r *Rule) { r.Keys = nil }), "rules[0]: keys must be from 1 to 32, got 0"},
		{changed(func(r *Rule) { r.Consume = nil }), "rules[0]: consume must name a limit at least"},
		{changed(func(r *Rule) { r.Consume = map[string]string{"rpm": "hit"} }), `rules[0]: consume[rpm] must be "hits" or a number of tokens from 0, got "hit"`},
		{changed(func(r *Rule) { r.Consume = map[string]string{"rpm": "-1"} }), `rules[0]: consume[rpm] must be "hits" or a number of tokens from 0, got "-1"`},
		{changed(func(r *Rule) { r.Consume = map[string]string{"rpm": "1.5"} }), `rules[0]: consume[rpm] must be "hits" or a number of tokens from 0, got "1.5"`},
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

// TestLoad reads a config with the files that it names, and finds what is wrong with either.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		check.Fatal(t, "os.WriteFile()", os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("b.limits.yaml", shop)
	write("a.limits.yaml", "domain: a\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]")
	rules := "rules: [{domain: llm, keys: [user], entity: '{user}', resource: gpt, consume: {tokens: hits, requests: 1_000}}]\n"
	c := check.Call(Load(write("good.yaml", "files: ['*.limits.yaml']\ndomains: {a: {on_unavailable: allow}}\n"+rules))).Must(t, "Load()")
	if len(c.Files) != 2 || c.Files[0].Name != filepath.Join(dir, "a.limits.yaml") || c.Domains["a"].OnUnavailable != zlimit.PolicyAllow {
		t.Errorf("Load() = %+v", c)
	}
	r := check.Call(c.Rules[0].compile()).Must(t, "compile()")
	if got := r.amounts(7); got["tokens"] != 7 || got["requests"] != 1000 {
		t.Errorf("amounts of 7 hits = %v, want 7 tokens and 1000 requests", got)
	}
	empty := check.Call(Load(write("empty.yaml", ""))).Must(t, "Load()")
	if len(empty.Files) != 0 {
		t.Errorf("Load() of an empty file = %+v", empty)
	}
	for _, test := range []struct{ text, want string }{
		{"file: [x]", "bad.yaml: yaml: unmarshal errors:\n  line 1: field file not found in type envoylimit.Config"},
		{"files: [none.yaml]", `bad.yaml: files: no file matches "` + filepath.Join(dir, "none.yaml") + `"`},
		{"files: ['[']", "bad.yaml: files: syntax error in pattern"},
		{"headers: true\n---\nshadow_mode: true", "bad.yaml: line 2: there is a second document"},
		{"---\n---\nshadow_mode: true", "bad.yaml: line 2: there is a second document"},
		{"near_limit: 2", "bad.yaml: near_limit must be from 0 to 1, got 2"},
	} {
		if _, err := Load(write("bad.yaml", test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Load() of %q = %v, want %q", test.text, err, test.want)
		}
	}
	if _, err := Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load() of no file = %v", err)
	}
}
