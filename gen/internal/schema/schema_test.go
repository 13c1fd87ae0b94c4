package schema

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
)

func TestGoNames(t *testing.T) {
	for _, c := range []struct{ name, exported, unexported string }{
		{"limit", "Limit", "limit"},
		{"window_key", "WindowKey", "windowKey"},
		{"event_id", "EventID", "eventID"},
		{"id", "ID", "id"},
		{"ids", "IDs", "ids"},
		{"namespace_ids", "NamespaceIDs", "namespaceIDs"},
		{"ns", "NS", "ns"},
		{"ttl_of_ns", "TTLOfNS", "ttlOfNS"},
		{"a_1_b", "A1B", "a1B"},
	} {
		if got := Exported(c.name); got != c.exported {
			t.Errorf("Exported(%q) = %q, want %q", c.name, got, c.exported)
		}
		if got := Unexported(c.name); got != c.unexported {
			t.Errorf("Unexported(%q) = %q, want %q", c.name, got, c.unexported)
		}
	}
}

const termSchema = `
version: 1.0.0
client_min_version: 1.0.0
ttl: ttl
fields:
  id: { type: string, doc: id }
  limit: { type: string, doc: limit name }
records:
  thing:
    doc: A thing.
    pk: "{id}"
    sk: "#"
    attributes:
      a: { type: N, doc: a number }
      b: { type: N, doc: a number }
      c: { type: SS, empty: omit, doc: a set }
    families:
      limits:
        pattern: "l_{limit}_{field}"
        type: LimitOf
        doc: A limit.
        fields:
          a: { type: S, doc: a text }
operations:
  act:
    doc: Acts.
    record: thing
    write: update
    args: { x: a number }
    where: [%q, a > $x]
    do: [remove b]
  change:
    doc: Changes.
    record: thing
    write: update
    args: { x: a value }
    where: []
    do: [%q]
  pick:
    doc: Picks.
    record: thing
    write: update
    clauses:
      one: { doc: One., family: limits, args: { s: a text }, where: [a = $s, b absent] }
      two: { doc: Two., do: [remove a] }
`

// load reads a schema with one condition and one action of interest.
func load(condition, action string) (*Schema, error) {
	return Load("schema.yaml", fmt.Appendf(nil, termSchema, condition, action))
}

func TestTerms(t *testing.T) {
	t.Run("conditions", func(t *testing.T) {
		for text, want := range map[string]string{
			"a = $x":                              "a = $x",
			"a=$x":                                "a = $x",
			" a  <=  $x ":                         "a <= $x",
			"a exists and b absent":               "a exists and b absent",
			"a exists or b exists and c exists":   "a exists or b exists and c exists",
			"(a exists or b exists) and c exists": "(a exists or b exists) and c exists",
			"(a exists and b exists) or c exists": "a exists and b exists or c exists",
			"((a < $x))":                          "a < $x",
			"PK exists and (a >= $x or (b > $x and a < $x))": "PK exists and (a >= $x or b > $x and a < $x)",
		} {
			s, err := load(text, "set a = $x")
			if err != nil {
				t.Errorf("%q: %v", text, err)
				continue
			}
			if got := s.Operations[0].Where[0].String(); got != want {
				t.Errorf("%q reads as %q, want %q", text, got, want)
			}
		}
	})
	t.Run("actions", func(t *testing.T) {
		for text, want := range map[string]string{
			"set a = $x":                   "set a = $x",
			"set a = a + $x":               "set a = a + $x",
			"set  a=a-$x":                  "set a = a - $x",
			"set a = if_not_exists(a, $x)": "set a = if_not_exists(a, $x)",
			"add a $x":                     "add a $x",
			"add c $x":                     "add c $x",
			"delete c $x":                  "delete c $x",
		} {
			s, err := load("a exists", text)
			if err != nil {
				t.Errorf("%q: %v", text, err)
				continue
			}
			if got := s.Operations[1].Actions[0].String(); got != want {
				t.Errorf("%q reads as %q, want %q", text, got, want)
			}
		}
	})
	t.Run("a name in a clause is that of the family first, then of the record", func(t *testing.T) {
		s := check.Call(load("a exists", "set a = $x")).Must(t, "load()")
		clauses := s.Operations[2].Clauses
		var got []string
		for _, r := range []Ref{clauses[0].Where[0].Attr, clauses[0].Where[1].Attr, clauses[1].Actions[0].Attr} {
			got = append(got, fmt.Sprintf("%s %s %t", r.Name, r.Type, r.Family != nil))
		}
		compare.Equal(t, "references", []string{"a S true", "b N false", "a N false"}, got)
	})
}

// chars is what the fields of random templates are made of; it has separators, digits and letters.
const chars = "#/|01a"

func randomTemplate(t *rapid.T, label string) *Template {
	fields := rapid.Custom(func(t *rapid.T) *Field {
		forbid := ""
		for _, c := range chars[1:] {
			if rapid.IntRange(0, 3).Draw(t, "forbid") == 0 {
				forbid += string(c)
			}
		}
		if forbid == chars[1:] {
			forbid = ""
		}
		if rapid.Bool().Draw(t, "int") {
			return &Field{Int: true}
		}
		return &Field{Forbid: forbid}
	})
	parts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Part {
		if rapid.Bool().Draw(t, "literal") {
			return Part{Literal: rapid.StringOfN(rapid.RuneFrom([]rune(chars)), 1, 2, -1).Draw(t, "text")}
		}
		return Part{Field: fields.Draw(t, "field")}
	}), 1, 4)
	return &Template{Parts: parts.Draw(t, label)}
}

// randomKey returns a string of a template's form.
func randomKey(t *rapid.T, template *Template) string {
	var b strings.Builder
	for _, p := range template.Parts {
		if p.Field == nil {
			b.WriteString(p.Literal)
			continue
		}
		var allowed []rune
		for _, c := range chars {
			if p.Field.allows(c) {
				allowed = append(allowed, c)
			}
		}
		b.WriteString(rapid.StringOfN(rapid.RuneFrom(allowed), 1, 3, -1).Draw(t, "value"))
	}
	return b.String()
}

// matches reports whether a string is of a template's form, by trying every way to divide it.
func matches(t *Template, text string) bool {
	var match func(parts []Part, text string) bool
	match = func(parts []Part, text string) bool {
		if len(parts) == 0 {
			return text == ""
		}
		if p := parts[0]; p.Field == nil {
			return strings.HasPrefix(text, p.Literal) && match(parts[1:], text[len(p.Literal):])
		}
		for i, c := range text {
			if !parts[0].Field.allows(c) {
				return false
			}
			if match(parts[1:], text[i+len(string(c)):]) {
				return true
			}
		}
		return false
	}
	return match(t.Parts, text)
}

// TestOverlaps compares overlaps with all strings up to a length that is enough for two short templates.
func TestOverlaps(t *testing.T) {
	t.Run("a string of both forms means that they overlap", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			a, b := randomTemplate(t, "a"), randomTemplate(t, "b")
			key := randomKey(t, a)
			if matches(b, key) && (!a.overlaps(b) || !b.overlaps(a)) {
				t.Fatalf("%q is of both forms, and they do not overlap", key)
			}
		})
	})
	t.Run("forms that overlap have a string in common", func(t *testing.T) {
		var all []string
		level := []string{""}
		for range 6 {
			var next []string
			for _, prefix := range level {
				for _, c := range "#/01" {
					next = append(next, prefix+string(c))
				}
			}
			all, level = append(all, next...), next
		}
		text, number, strict := &Field{}, &Field{Int: true}, &Field{Forbid: "/0"}
		var templates []*Template
		pieces := []Part{{Literal: "#"}, {Literal: "/0"}, {Field: text}, {Field: number}, {Field: strict}}
		for _, x := range pieces {
			templates = append(templates, &Template{Parts: []Part{x}})
			for _, y := range pieces {
				templates = append(templates, &Template{Parts: []Part{x, y}}, &Template{Parts: []Part{x, {Literal: "#"}, y}})
			}
		}
		for _, a := range templates {
			for _, b := range templates {
				want := slices.ContainsFunc(all, func(s string) bool { return matches(a, s) && matches(b, s) })
				if got := a.overlaps(b); got != want {
					t.Errorf("overlaps(%v, %v) = %t, want %t", a.symbols(), b.symbols(), got, want)
				}
			}
		}
	})
}
