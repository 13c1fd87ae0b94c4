package expr

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
)

// advance is an operation of the sort that the schema has: a part for the item, and clauses for each limit.
func advance() *Operation {
	tk, tc, rf := Of("b_", "_tk"), Of("b_", "_tc"), Attr("rf")
	return &Operation{
		Name:         "advance",
		Placeholders: 2,
		Where:        []Condition{EQ(rf, 0), Any(Absent(Attr("ttl")), GT(Attr("ttl"), 0))},
		Update:       []Action{Set(rf, 1)},
		Clauses: []Clause{
			{Name: "refill", Placeholders: 3, Where: []Condition{LE(tk, 0), GE(tk, 1)}, Update: []Action{Add(tk, 2), Add(tc, 1)}},
			{Name: "fill", Placeholders: 1, Update: []Action{Set(tk, 0)}},
			{Name: "remove", Update: []Action{Remove(tk), Remove(tc)}},
		},
	}
}

const (
	refill = iota
	fill
	remove
)

func bind(t *testing.T, c *Call) Bound {
	t.Helper()
	return check.Call(c.Bind()).Must(t, "Bind()")
}

func TestText(t *testing.T) {
	a, b, c := Exists(Attr("a")), Absent(Attr("b")), EQ(Attr("c"), 0)
	pick := advance().Call(N(1), N(2))
	pick.Pick(refill, "rpm", N(3), N(4), N(5))
	pick.Pick(fill, "my_limit-v1.5", N(6))
	pick.Pick(remove, "old")
	for _, test := range []struct {
		name              string
		call              *Call
		condition, update string
		names             map[string]string
	}{
		{
			"clauses for members, with positional placeholders", pick,
			"#0 = :0 AND (attribute_not_exists(#1) OR #1 > :0) AND #2 <= :2 AND #2 >= :3",
			"SET #0 = :1, #3 = :5 REMOVE #4, #5 ADD #2 :4, #6 :3",
			map[string]string{
				"#0": "rf", "#1": "ttl", "#2": "b_rpm_tk", "#3": "b_my_limit-v1.5_tk",
				"#4": "b_old_tk", "#5": "b_old_tc", "#6": "b_rpm_tc",
			},
		},
		{
			"every action",
			(&Operation{Placeholders: 2, Update: []Action{
				Delete(Attr("g"), 1), Add(Attr("f"), 0), Remove(Attr("e")), Minus(Attr("d"), 0), Plus(Attr("c"), 0), Default(Attr("b"), 0), Set(Attr("a"), 0), Gather(Attr("h"), Attr("a")),
			}}).Call(N(1), Strings("x")),
			"",
			"SET #0 = #0 - :0, #1 = #1 + :0, #2 = if_not_exists(#2, :0), #3 = :0, #4 = #4 + #3 REMOVE #5 ADD #6 :0 DELETE #7 :1",
			map[string]string{"#0": "d", "#1": "c", "#2": "b", "#3": "a", "#4": "h", "#5": "e", "#6": "f", "#7": "g"},
		},
		{
			"every condition",
			(&Operation{Placeholders: 1, Where: []Condition{
				EQ(Attr("a"), 0), LT(Attr("a"), 0), LE(Attr("a"), 0), GT(Attr("a"), 0), GE(Attr("a"), 0), Exists(Attr("a")), Absent(Attr("a")),
			}}).Call(N(1)),
			"#0 = :0 AND #0 < :0 AND #0 <= :0 AND #0 > :0 AND #0 >= :0 AND attribute_exists(#0) AND attribute_not_exists(#0)",
			"",
			map[string]string{"#0": "a"},
		},
		{
			"no redundant parentheses, which DynamoDB refuses",
			(&Operation{Placeholders: 1, Where: []Condition{All(All(a), Any(b)), Any(Any(a, All(b, All(c))), Any(c))}}).Call(N(1)),
			"attribute_exists(#0) AND attribute_not_exists(#1) AND (attribute_exists(#0) OR (attribute_not_exists(#1) AND #2 = :0) OR #2 = :0)",
			"",
			map[string]string{"#0": "a", "#1": "b", "#2": "c"},
		},
		{
			"one alternative alone",
			(&Operation{Placeholders: 1, Where: []Condition{Any(a, c)}}).Call(N(1)),
			"attribute_exists(#0) OR #1 = :0",
			"",
			map[string]string{"#0": "a", "#1": "c"},
		},
		{"nothing", (&Operation{}).Call(), "", "", nil},
	} {
		b := bind(t, test.call)
		if got := b.Condition(); got != test.condition {
			t.Errorf("%s: Condition() =\n%s\nwant\n%s", test.name, got, test.condition)
		}
		if got := b.Update(); got != test.update {
			t.Errorf("%s: Update() =\n%s\nwant\n%s", test.name, got, test.update)
		}
		if got := slices.Sorted(slices.Values(b.Changes())); !slices.Equal(got, changed(test.update, test.names)) {
			t.Errorf("%s: Changes() = %q, want those of %q in %q", test.name, got, test.update, test.names)
		}
		compare.Equal(t, fmt.Sprintf("%s: Names()", test.name), test.names, b.Names())
	}
}

// changed returns the attributes whose placeholders are in the text of an update, sorted.
func changed(update string, names map[string]string) (changed []string) {
	for placeholder, name := range names {
		if slices.ContainsFunc(strings.FieldsFunc(update, func(r rune) bool { return strings.ContainsRune(" ,()", r) }),
			func(word string) bool { return word == placeholder }) {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return changed
}

func TestPlaceholder(t *testing.T) {
	for i, want := range map[int]string{0: ":0", 63: ":63", 64: ":64", 1000: ":1000"} {
		if got := Placeholder(i); got != want {
			t.Errorf("Placeholder(%d) = %q, want %q", i, got, want)
		}
	}
}

func TestBindErrors(t *testing.T) {
	n := Attr("n")
	good := advance()
	picked := func(clause int, member string, values ...Value) *Call {
		c := good.Call(N(1), N(2))
		c.Pick(clause, member, values...)
		return c
	}
	twice := picked(refill, "rpm", N(1), N(2), N(3))
	twice.Pick(fill, "rpm", N(4))
	for _, test := range []struct {
		name string
		call *Call
		want string
	}{
		{"too few values", good.Call(N(1)), "expr: advance takes 2 values, got 1"},
		{"too many values", good.Call(N(1), N(2), N(3)), "expr: advance takes 2 values, got 3"},
		{"too few values of a clause", picked(refill, "rpm", N(1)), "expr: advance takes 5 values, got 3"},
		{"a clause that does not exist", picked(3, "rpm"), "expr: advance has no clause 3"},
		{"one attribute changed twice", twice, `expr: advance changes attribute "b_rpm_tk" twice`},
		{"one member picked twice", func() *Call { c := picked(remove, "rpm"); c.Pick(remove, "rpm"); return c }(), `expr: advance changes attribute "b_rpm_tk" twice`},
		{"a placeholder that does not exist", (&Operation{Name: "op", Placeholders: 1, Update: []Action{Set(n, 1)}}).Call(N(1)), "expr: op has no placeholder 1"},
		{"a placeholder that nothing uses", (&Operation{Name: "op", Placeholders: 2, Update: []Action{Set(n, 0)}}).Call(N(1), N(2)), "expr: op does not use placeholder 1"},
		{"a placeholder of two natures", (&Operation{Name: "op", Placeholders: 1, Update: []Action{Delete(n, 0), Plus(Attr("m"), 0)}}).Call(N(1)), "expr: op has uses of placeholder 0 that no value suits"},
		{"an empty alternative", (&Operation{Name: "op", Where: []Condition{Any()}}).Call(), "expr: op has an empty All or Any"},
		{"no value", (&Operation{Name: "op", Placeholders: 1, Update: []Action{Set(n, 0)}}).Call(Value{}), "expr: op cannot take a value of kind none in placeholder 0"},
		{"an empty set", (&Operation{Name: "op", Placeholders: 1, Update: []Action{Set(n, 0)}}).Call(Strings()), "expr: op cannot take an empty set in placeholder 0"},
		{"a string to add", (&Operation{Name: "op", Placeholders: 1, Update: []Action{Add(n, 0)}}).Call(S("1")), "expr: op cannot take a value of kind S in placeholder 0"},
		{"a set to add with plus", (&Operation{Name: "op", Placeholders: 1, Update: []Action{Plus(n, 0)}}).Call(Strings("1")), "expr: op cannot take a value of kind SS in placeholder 0"},
		{"a number to delete", (&Operation{Name: "op", Placeholders: 1, Update: []Action{Delete(n, 0)}}).Call(N(1)), "expr: op cannot take a value of kind N in placeholder 0"},
		{"a boolean to order by", (&Operation{Name: "op", Placeholders: 1, Where: []Condition{LT(n, 0)}}).Call(Bool(true)), "expr: op cannot take a value of kind BOOL in placeholder 0"},
	} {
		for range 2 { // the second time from the cache, where there is a template
			if _, err := test.call.Bind(); err == nil || err.Error() != test.want {
				t.Errorf("%s: Bind() = %v, want %q", test.name, err, test.want)
			}
		}
	}
}

func TestTemplatesAreKept(t *testing.T) {
	op := advance()
	call := func(member string, v int64) Bound {
		c := op.Call(N(v), N(v))
		c.Pick(fill, member, N(v))
		return bind(t, c)
	}
	first := call("a", 1)
	if again := call("a", 2); again.Template != first.Template {
		t.Error("two calls of one shape have two templates")
	} else if again.Values[0].Equal(first.Values[0]) {
		t.Error("two calls share their values")
	}
	if other := call("b", 1); other.Template == first.Template {
		t.Error("two members share a template")
	}
	if other := bind(t, op.Call(N(1), N(2))); other.Template == first.Template {
		t.Error("two choices of clauses share a template")
	}
	// Shapes that would be one if names and clauses ran into each other.
	one := op.Call(N(1), N(2))
	one.Pick(remove, "a")
	one.Pick(remove, "b")
	two := op.Call(N(1), N(2))
	two.Pick(remove, "a\x02b")
	if bind(t, one).Template == bind(t, two).Template {
		t.Error("two picks and one share a template")
	}
	for i := range 3 * maxTemplates {
		call("member"+strings.Repeat("x", i%7)+Placeholder(i), 1)
		if n := len(*op.templates.Load()); n > maxTemplates+1 {
			t.Fatalf("%d templates kept", n)
		}
	}
}

func TestBindIsSafeForConcurrentUse(t *testing.T) {
	op := advance()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 200 {
				c := op.Call(N(1), N(2))
				c.Pick(fill, Placeholder((i+j)%50), N(3))
				b, err := c.Bind()
				if want := "b_" + Placeholder((i+j)%50) + "_tk"; err != nil || b.Names()["#2"] != want {
					t.Errorf("Bind() = %v, %v; want %s", b.Names(), err, want)
					return
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkBind is what a call costs before it reaches the store.
func BenchmarkBind(b *testing.B) {
	op := advance()
	b.ReportAllocs()
	for b.Loop() {
		c := op.Call(N(1700000000000), N(1700000001000))
		c.Pick(refill, "rpm", N(3), N(4), N(5))
		c.Pick(refill, "tpm", N(3), N(4), N(5))
		if _, err := c.Bind(); err != nil {
			b.Fatalf("Bind() = %v", err)
		}
	}
}
