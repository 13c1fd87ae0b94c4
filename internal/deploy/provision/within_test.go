package provision_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestWithin: files declare which resources lie within wider ones. What they do not say stays as it is stored, also when the level leaves
// the file.
func TestWithin(t *testing.T) {
	ctx := context.Background()
	w := newTestbed(t)
	operator := w.limiter("olga", nil)
	limits := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerSecond("rpm", 1)}}
	if err := errors.Join(operator.Limits.Set(ctx, zlimit.Level{Resource: "models"}, limits), operator.Limits.Set(ctx, zlimit.Level{Entity: "acme", Resource: "all"}, limits),
		operator.Resources.Put(ctx, zlimit.Resource{ID: "b", Within: "models"})); err != nil {
		t.Fatalf("Limits.Set() and Resources.Put() = %v", err)
	}
	p := w.provisioner("deploy", nil)
	step := func(what, text string, want []string, within ...string) {
		t.Helper()
		levels := load(t, text)
		plan, done, err := p.Apply(ctx, levels, nil)
		if err != nil || len(done) != len(want) || !slices.Equal(actions(plan), want) {
			t.Fatalf("%s: %v, %v, want %v", what, actions(plan), err, want)
		}
		var got []string
		for _, r := range check.All(t, "Resources.List()", operator.Resources.List(ctx)) {
			if r.Within != "" {
				got = append(got, r.ID+">"+r.Within)
			}
		}
		if !slices.Equal(got, within) {
			t.Errorf("%s: resources %v, want %v", what, got, within)
		}
		if plan, err := p.Plan(ctx, levels); err != nil || !plan.Empty() {
			t.Errorf("%s: the plan is not empty afterwards: %v, %v", what, actions(plan), err)
		}
	}
	const a, b = "a: { limits: { rpm: 1/s }, within: models }", "b: { limits: { rpm: 2/s } }"
	step("not declared", "resources: { "+b+" }\n", []string{"update resource b"}, "b>models")
	step("declared", "resources: { "+a+", "+b+" }\n", []string{"create resource a"}, "a>models", "b>models")
	step("left out", "resources: { a: { limits: { rpm: 3/s } }, "+b+" }\n", []string{"update resource a"}, "a>models", "b>models")
	step("of both", "resources: { a: { limits: { rpm: 3/s }, within: b }, b: { within: all } }\n", []string{"update resource a", "update resource b"}, "a>b", "b>all")
	before := w.stored()
	if !strings.Contains(before, "  b:\n    within: all\n") {
		t.Errorf("what is stored, as a file:\n%s", before)
	}
	step("as imported", before, []string{"adopt resource models", "adopt entity acme, resource all"}, "a>b", "b>all")

	wrote := false
	strict := w.provisioner("deploy", func(before bool, writes []store.Write) error {
		for _, write := range writes {
			if _, config := levelAt(write.Key); config && !before {
				wrote = true
			}
		}
		return nil
	})
	for text, want := range map[string]string{
		"resources: { models: { within: a } }\n":                                     "models within a within b within all",
		"resources: { all: { within: a } }\n":                                        "a within b within all within a",
		"resources: { a: { within: '' }, b: { within: a }, all: { within: b } }\n":   "",
		"resources: { a: { within: modles } }\n":                                     `invalid within of resource a "modles": has no limits`,
		"resources: { a: { within: modles }, b: { limits: { rpm: 1/s } } }\n":        `"modles": has no limits`,
		"resources: { a: { within: gpt } }\nentities: { x: { limits: { r: 1/s } } }": `"gpt": has no limits`,
	} {
		levels := load(t, text)
		var invalid *zlimit.ValidationError
		_, err := strict.Plan(ctx, levels)
		if want == "" && err != nil || want != "" && (!errors.As(err, &invalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("Plan(%q) = %v, want %s", text, err, want)
		}
		if want == "" {
			continue
		}
		if _, _, err := strict.Apply(ctx, levels, nil); !errors.As(err, &invalid) {
			t.Errorf("Apply(%q) = %v, want %s", text, err, want)
		}
		if _, err := provision.Fresh("new", "", levels); strings.Contains(want, "has no limits") && !errors.As(err, &invalid) {
			t.Errorf("Fresh(%q) = %v, want %s", text, err, want)
		}
		if wrote || w.stored() != before {
			t.Fatalf("%q is refused, and something was written", text)
		}
	}

	step("left the file", "resources: { a: { limits: { rpm: 3/s }, within: '' } }\n",
		[]string{"update resource a", "forget resource b", "delete resource models", "delete entity acme, resource all"}, "b>all")
	if plan, err := p.Plan(ctx, load(t, "resources: { a: { limits: { rpm: 3/s } } }\n")); err != nil || !slices.Equal(plan.Unmanaged, []zlimit.Level{{Resource: "b"}}) {
		t.Errorf("not managed are %v, %v", plan.Unmanaged, err)
	}
	if plan, err := provision.Fresh("new", "", load(t, "resources: { a: { within: b }, b: { limits: { r: 1/s }, within: '' } }\n")); err != nil || plan.Changes[0].After.Config.Within != "b" || plan.Changes[1].After.Config.Within != "" {
		t.Errorf("Fresh() = %+v, %v", plan, err)
	}
}
