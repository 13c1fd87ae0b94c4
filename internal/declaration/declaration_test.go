package declaration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/declaration"
	"github.com/zlimit/zlimit-go/internal/document"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

func TestErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"{}", "1:1: the declaration has neither system nor resources nor entities"},
		{"namespace: a", "1:1: the declaration has neither system nor resources nor entities"},
		{"namespace: ''\nsystem: {on_unavailable: block}", "1:12: namespace is empty"},
		{"namespace: ~\nsystem: {on_unavailable: block}", "1:12: namespace is empty"},
		{"namespace: [a]\nsystem: {on_unavailable: block}", "1:12: namespace is not a text"},
		{"namespace: _\nsystem: {on_unavailable: block}", `1:12: namespace "_" is reserved`},
		{"namespace: 'a#b'\nsystem: {on_unavailable: block}", `1:12: namespace "a#b" must not hold #`},
		{"namespace: " + strings.Repeat("n", 65) + "\nsystem: {on_unavailable: block}", "must have at most 64 bytes"},
		{"system: {}", "1:9: system is empty"},
		{"system: {limits: {}}", "1:18: system: limits is empty"},
		{"system: {on_unavailable: inherit}", `1:26: system: on_unavailable is "inherit", want block or allow`},
		{"system: {audit_retention_days: 0}", "1:32: system: audit_retention_days 0 must be from 1 to 36500"},
		{"system: {audit_retention_days: 36501}", "must be from 1 to 36500"},
		{"system: {audit_retention_days: 7d}", "must be a whole number"},
		{"system: {limit: {}}", "1:10: system has an unknown key limit"},
		{"entities: {}", "1:11: entities is empty"},
		{"entities: {'#': {limits: {rpm: {rate: 1/s}}}}", `1:12: entity "#" must hold only ASCII letters`},
		{"entities: {a: {}}", "1:12: entity a has neither limits nor on_unavailable nor cascade nor resources"},
		{"entities: {a: {resources: {}}}", "1:27: entity a: resources is empty"},
		{"entities: {a: {resources: {gpt: {}}}}", "1:28: entity a: resource gpt has neither limits nor on_unavailable"},
		{"resources: {gpt: {doc: x}}", "1:13: resource gpt has neither limits nor on_unavailable"},
		{"resources: {gpt: {within: [a]}}", "1:27: resource gpt: within is not a text"},
		{"resources: {gpt: {within: 'a#'}}", `1:27: resource "a#" must hold only ASCII letters`},
		{"resources: {gpt: {within: _default_}}", `1:27: resource "_default_" is reserved`},
		{"resources: {gpt: {within: gpt}}", "1:27: resource gpt: within makes a circle, or a chain of more than three resources: gpt within gpt"},
		{"resources: {b: {within: c}, a: {within: b}, c: {within: a}}", "1:41: resource a: within makes a circle, or a chain of more than three resources: a within b within c within a"},
		{"resources: {a: {within: b}, b: {within: c}, c: {within: d}}", "1:25: resource a: within makes a circle, or a chain of more than three resources: a within b within c within d"},
		{"entities: {a: {resources: {gpt: {within: b, on_unavailable: block}}}}", "entity a: resource gpt has an unknown key within"},
		{"resources: {gpt: {on_unavailable: never}}", `1:35: resource gpt: on_unavailable is "never", want block or allow`},
		{"resources: {gpt: {on_unavailable: [block]}}", "1:35: resource gpt: on_unavailable is not a text"},
		{"resources: {gpt: {cascade: true}}", `1:28: resource gpt: cascade is "true", want always, never or inherit`},
		{"system: {cascade: never}", "system has an unknown key cascade"},
		{"entities: {a: {on_unavailable: Allow}}", `1:32: entity a: on_unavailable is "Allow", want block or allow`},
		{"entities: {a: {resources: {gpt: {on_unavailable: ''}}}}", `1:50: entity a: resource gpt: on_unavailable is "", want block or allow`},
		{"entities: {a: {audit_retention_days: 7}}", "1:16: entity a has an unknown key audit_retention_days"},
		{"entities: {a: {resources: {_default_: {limits: {rpm: {rate: 1/s}}}}}}", `1:28: resource "_default_" is reserved`},
		{"entities: {a: {resources: {gpt: {doc: x, limits: {rpm: {rate: 1/s}}}}}}", "1:34: entity a: resource gpt has an unknown key doc"},
		{"entities: {a: {limits: {rpm: {rate: 1/s}}}, a: {limits: {rpm: {rate: 1/s}}}}", "1:45: entities has a twice; the first is in line 1"},
		{"entities: {a: {limits: {rpm: {rate: 1}}}}", `1:37: entity a: limit rpm: rate: "1": must be CAPACITY[:REFILL]/PERIOD`},
	} {
		_, err := declaration.Load("limits.yaml", []byte(c.text))
		var all document.Errors
		if !errors.As(err, &all) || len(all) != 1 || !strings.Contains(err.Error(), "limits.yaml:") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Load(%q) = %v, want one error with %q", c.text, err, c.want)
		}
	}
}

// TestPoliciesBesideTypes: the generator of types takes the policies of a file that operators apply as well, and needs
// limits beside them.
func TestPoliciesBesideTypes(t *testing.T) {
	d, err := declaration.LoadForGo("limits.yaml", []byte("resources: {gpt: {limits: {rpm: 1/s}, on_unavailable: allow}}"))
	if err != nil || d.Resources[0].OnUnavailable != "allow" || len(d.Resources[0].Limits) != 1 {
		t.Errorf("LoadForGo() of limits and a policy = %+v, %v", d, err)
	}
	_, err = declaration.LoadForGo("limits.yaml", []byte("resources: {gpt: {on_unavailable: allow}}"))
	if want := "limits.yaml:1:13: resource gpt has no limits"; err == nil || err.Error() != want {
		t.Errorf("LoadForGo() of a policy alone = %v, want %s", err, want)
	}
}

// draw draws a declaration.
func draw(t *rapid.T) *declaration.Declaration {
	name := func(label string) string {
		return rapid.SampledFrom([]string{"gpt-4o", "yes", "null", "on", "e1", "a:b", "n", "True", "x.y"}).Draw(t, label)
	}
	limits := func(label string, least int) []*declaration.Limit {
		var all []*declaration.Limit
		seen := map[string]bool{}
		for range rapid.IntRange(least, 3).Draw(t, label+" limits") {
			l := &declaration.Limit{Limit: grammar.Limit{
				Name:         rapid.SampledFrom([]string{"rpm", "tpm", "y", "no", "null"}).Draw(t, label+" limit"),
				RefillAmount: rapid.Int64Range(1, 1_000_000).Draw(t, label+" refill"),
				RefillPeriod: time.Duration(rapid.SampledFrom([]int{1, 60, 90, 3600, 5400, 86400, 90061}).Draw(t, label+" period")) * time.Second,
				Capacity:     rapid.Int64Range(1, 1_000_000).Draw(t, label+" capacity"),
				Mode:         rapid.SampledFrom([]string{"", grammar.Soft, grammar.Shadow}).Draw(t, label+" mode"),
			}}
			if !seen[l.Name] {
				seen[l.Name] = true
				all = append(all, l)
			}
		}
		return all
	}
	policy := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label+" policy") }
	resources := func(label string) []*declaration.Resource {
		var all []*declaration.Resource
		seen := map[string]bool{}
		for i := range rapid.IntRange(0, 3).Draw(t, label+" resources") {
			r := &declaration.Resource{Name: name(label + " resource"), Limits: limits(fmt.Sprint(label, i), 0)}
			if r.OnUnavailable = policy(label, "block", "allow"); len(r.Limits) > 0 {
				r.OnUnavailable = policy(label, "", "block", "allow")
			}
			if len(r.Limits) > 0 {
				r.Cascade = policy(label+" cascade", "", "always", "never", "inherit")
			}
			if within := rapid.SampledFrom([]string{"-", "", "", "y", "12", "~"}).Draw(t, label+" within"); label == "" && within != "-" {
				r.Within = &declaration.Wider{Name: within}
			}
			if !seen[r.Name] {
				seen[r.Name] = true
				all = append(all, r)
			}
		}
		return all
	}
	d := &declaration.Declaration{Namespace: rapid.SampledFrom([]string{"", "default", "~", "007", "a: b", " "}).Draw(t, "namespace")}
	if rapid.Bool().Draw(t, "system") {
		d.System = &declaration.System{
			Limits: limits("system", 0), OnUnavailable: policy("system", "", "block", "allow"),
			RetentionDays: rapid.Int64Range(1, 36500).Draw(t, "days"),
		}
	}
	d.Resources = resources("")
	for i, id := range []string{"acme", "1:30", "0x1F", "12", "~"}[:rapid.IntRange(0, 4).Draw(t, "entities")] {
		e := &declaration.Entity{ID: id, Limits: limits(id, 0), OnUnavailable: policy(id, "", "block", "allow"), Cascade: policy(id+" cascade", "", "", "always", "never"), Resources: resources(id)}
		if len(e.Limits)+len(e.Resources)+len(e.OnUnavailable)+len(e.Cascade) > 0 && i < 4 {
			d.Entities = append(d.Entities, e)
		}
	}
	if d.System == nil && d.Resources == nil && d.Entities == nil {
		d.System = &declaration.System{OnUnavailable: "block"}
	}
	return d
}

// TestFormat writes a declaration, and reads it back unchanged. The text also fits the JSON Schema.
func TestFormat(t *testing.T) {
	schema := resolve(t)
	rapid.Check(t, func(t *rapid.T) {
		want := draw(t)
		text := check.Call(declaration.Format(want)).Must(t, "declaration.Format()")
		got, err := declaration.Load("limits.yaml", text)
		if err != nil {
			t.Fatalf("Load() of\n%s\n= %v", text, err)
		}
		ignore := cmp.Options{
			cmpopts.EquateEmpty(), cmpopts.IgnoreFields(declaration.Declaration{}, "File", "NamespacePos"),
			cmpopts.IgnoreFields(declaration.System{}, "Pos"), cmpopts.IgnoreFields(declaration.Entity{}, "Pos"),
			cmpopts.IgnoreFields(declaration.Resource{}, "Pos", "Go"), cmpopts.IgnoreFields(declaration.Wider{}, "Pos"),
			cmpopts.IgnoreFields(declaration.Limit{}, "Pos", "Go", "Unit"),
		}
		if diff := cmp.Diff(want, got, ignore); diff != "" {
			t.Fatalf("Load() of what Format() wrote differs (-want +got):\n%s\n%s", diff, text)
		}
		if err := validate(schema, text); err != nil {
			t.Fatalf("the schema refuses\n%s%v", text, err)
		}
	})
}

func resolve(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	text := check.Call(declaration.JSONSchema()).Must(t, "declaration.JSONSchema()")
	var schema jsonschema.Schema
	check.Fatal(t, "json.Unmarshal()", json.Unmarshal(text, &schema))
	return check.Call(schema.Resolve(nil)).Must(t, "Resolve()")
}

// validate holds a document against the schema, its values as an editor sees them.
func validate(schema *jsonschema.Resolved, text []byte) error {
	var document any
	if err := yaml.Unmarshal(text, &document); err != nil {
		return err
	}
	return schema.Validate(named(document))
}

// named returns a value whose mappings have texts as keys.
func named(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = named(value)
		}
		return v
	case map[any]any:
		m := map[string]any{}
		for key, value := range v {
			m[fmt.Sprint(key)] = named(value)
		}
		return m
	case int:
		return float64(v)
	default:
		return v
	}
}

// TestJSONSchema: what the schema can say it says as the loader does.
func TestJSONSchema(t *testing.T) {
	schema := resolve(t)
	for _, text := range []string{
		"resources: {gpt: {limits: {rpm: {rate: 500/min, unit: requests, doc: x, go: RPM}}, doc: x, go: GPT}}",
		"resources: {gpt: {limits: {rpm: {rate: 30_000 / min, burst: 60_000}}}}",
		"resources: {gpt: {limits: {rpm: {rate: 1/90s}}}}",
		"resources: {gpt: {limits: {usd: 2.5/month@UTC, budget: $2.50:$1/h, x: {rate: 5/d, burst: $7}}}}",
		"resources: {gpt: {limits: {tokens: 2M/session:5h, rpm: '60/min when \"* * * * 1\" x2 floors batch=20', x: 5/min floors batch=10}}}",
		"resources: {gpt: {limits: {usd: {rate: 2.5/d, burst: 7.25}}}}",
		"resources: {gpt: {limits: {usd: {rate: 2.5/d, burst: -7.25}}}}",
		"resources: {gpt: {limits: {usd: {rate: 2.5/d, burst: 10000000}}}}",
		"resources: {gpt: {limits: {rpm: {rate: 2/d, burst: 7.25}}}}",
		"resources: {gpt: {limits: {usd: 1./d}}}",
		"resources: {gpt: {limits: {usd: $.5/d}}}",
		"resources: {gpt: {limits: {rpm: 500/min, tpm: 10_000:500/90s, x: 1 : 2 / h}}}",
		"resources: {gpt: {limits: {rpm: 500}}}",
		"resources: {gpt: {limits: {rpm: [500/min]}}}",
		"resources: {gpt: {limits: {4rpm: 500/min}}}",
		"resources: {4gpt: {limits: {rpm: {rate: 1/s}}}}",
		"resources: {'4 gpt': {limits: {rpm: {rate: 1/s}}}}",
		"resources: {gpt: {limits: {rpm: {rate: 1}}}}",
		"resources: {gpt: {limits: {rpm: {rate: -1/s}}}}",
		"resources: {gpt: {limits: {rpm: {rate: 1/s, burst: 0}}}}",
		"resources: {gpt: {limits: {rpm: {rate: 1/s, bust: 1}}}}",
		"resources: {gpt: {limits: {rpm: {burst: 1}}}}",
		"resources: {gpt: {limits: {}}}",
		"resources: {gpt: {}}",
		"resources: {}",
		"resources: {gpt: {doc: x}}",
		"resources: {gpt: {on_unavailable: allow}}",
		"resources: {gpt: {within: models}}",
		"resources: {gpt: {within: ~}}",
		"resources: {gpt: {within: ''}}",
		"resources: {gpt: {within: a#b}}",
		"resources: {gpt: {within: [models]}}",
		"resources: {gpt: {on_unavailable: never}}",
		"entities: {a: {on_unavailable: block}}",
		"entities: {a: {on_unavailable: inherit}}",
		"entities: {a: {resources: {gpt: {on_unavailable: block}}}}",
		"entities: {a: {resources: {gpt: {on_unavailable: 1}}}}",
		"entities: {a: {}}",
		"entities: {a: {limits: {rpm: {rate: 1/s}}}}",
		"entities: {a#b: {limits: {rpm: {rate: 1/s}}}}",
		"system: {}",
		"system: {on_unavailable: never}",
		"system: {audit_retention_days: 36501}",
		"system: {audit_retention_days: 1}",
		"limits: {}",
		"namespace: a",
		"[]",
	} {
		_, want := declaration.Load("limits.yaml", []byte(text))
		if got := validate(schema, []byte(text)); (got == nil) != (want == nil) {
			t.Errorf("%s: the schema says %v, Load() %v", text, got, want)
		}
	}
}

// TestDocs loads the file of docs/limits-file.md, which is the file for its commands.
func TestDocs(t *testing.T) {
	page := check.Call(os.ReadFile("../../docs/limits-file.md")).Must(t, "os.ReadFile()")
	file := check.Call(os.ReadFile("../../docs/testdata/files/limits.yaml")).Must(t, "os.ReadFile()")
	if !strings.Contains(string(page), "```yaml\n"+string(file)+"```\n") {
		t.Error("docs/limits-file.md does not show docs/testdata/files/limits.yaml")
	}
	if _, err := declaration.Load("limits.yaml", file); err != nil {
		t.Errorf("declaration.Load() = %v", err)
	}
	broken := strings.Replace(string(file), "rpm: 500/min", "rpm: 500", 1)
	_, err := declaration.Load("limits.yaml", []byte(broken))
	if err == nil || !strings.Contains(string(page), err.Error()) {
		t.Errorf("docs/limits-file.md does not show the error %v", err)
	}
}
