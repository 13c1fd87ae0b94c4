package expr

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// base is the item that conditions and updates are tried on.
func base() Item {
	return Item{{"n", N(5)}, {"s", S("b")}, {"set", Strings("a", "b")}, {"flag", Bool(true)}, {"null", Null()}}
}

func TestHolds(t *testing.T) {
	n, s, none := Attr("n"), Attr("s"), Attr("none")
	for _, test := range []struct {
		name  string
		where []Condition
		value Value
		want  bool
	}{
		{"equal", []Condition{EQ(n, 0)}, N(5), true},
		{"equal in another type", []Condition{EQ(n, 0)}, S("5"), false},
		{"equal to nothing", []Condition{EQ(none, 0)}, N(0), false},
		{"equal set", []Condition{EQ(Attr("set"), 0)}, Strings("b", "a"), true},
		{"equal null", []Condition{EQ(Attr("null"), 0)}, Null(), true},
		{"less", []Condition{LT(n, 0)}, N(6), true},
		{"not less", []Condition{LT(n, 0)}, N(5), false},
		{"at most", []Condition{LE(n, 0)}, N(5), true},
		{"greater", []Condition{GT(n, 0)}, N(4), true},
		{"not greater", []Condition{GT(n, 0)}, N(5), false},
		{"at least", []Condition{GE(n, 0)}, N(5), true},
		{"not at least", []Condition{GE(n, 0)}, N(6), false},
		{"strings in the order of their bytes", []Condition{GT(s, 0)}, S("B"), true},
		{"numbers and strings have no order", []Condition{Any(LT(n, 0), GE(n, 0))}, S("5"), false},
		{"nothing has no order", []Condition{Any(LT(none, 0), GE(none, 0))}, N(0), false},
		{"all", []Condition{All(EQ(n, 0), Exists(s)), Absent(none)}, N(5), true},
		{"one of all fails", []Condition{EQ(n, 0), Absent(s)}, N(5), false},
		{"any", []Condition{Any(Absent(n), Absent(s), EQ(n, 0))}, N(5), true},
		{"none of any", []Condition{Any(Absent(n), Exists(none), EQ(n, 0))}, N(6), false},
	} {
		b := bind(t, (&Operation{Placeholders: 1, Where: test.where, Update: []Action{Set(Attr("x"), 0)}}).Call(test.value))
		if got := b.Holds(base()); got != test.want {
			t.Errorf("%s: Holds = %t", test.name, got)
		}
	}
	absent := bind(t, (&Operation{Where: []Condition{Absent(n)}}).Call())
	if !absent.Holds(nil) || absent.Holds(base()) {
		t.Error("an attribute is absent from an item that does not exist")
	}
	if !(Bound{}).Holds(nil) {
		t.Error("the zero Bound asks for something")
	}
}

func TestApply(t *testing.T) {
	n, s, set, none := Attr("n"), Attr("s"), Attr("set"), Attr("none")
	for _, test := range []struct {
		name   string
		action Action
		value  Value
		attr   string
		want   Value // of the attribute; the zero Value when it is gone
		fails  bool
	}{
		{"set", Set(n, 0), S("x"), "n", S("x"), false},
		{"set something new", Set(none, 0), N(1), "none", N(1), false},
		{"default of something", Default(n, 0), N(1), "n", N(5), false},
		{"default of nothing", Default(none, 0), N(1), "none", N(1), false},
		{"plus", Plus(n, 0), N(3), "n", N(8), false},
		{"minus", Minus(n, 0), N(8), "n", N(-3), false},
		{"plus to nothing", Plus(none, 0), N(1), "none", Value{}, true},
		{"plus to a string", Plus(s, 0), N(1), "s", Value{}, true},
		{"gather", Gather(n, n), N(5), "n", N(10), false},
		{"gather from nothing", Gather(n, none), N(5), "n", Value{}, true},
		{"gather from a string", Gather(n, s), N(5), "n", Value{}, true},
		{"gather to nothing", Gather(none, n), N(5), "none", Value{}, true},
		{"remove", Remove(n), N(0), "n", Value{}, false},
		{"remove nothing", Remove(none), N(0), "none", Value{}, false},
		{"add", Add(n, 0), N(-7), "n", N(-2), false},
		{"add to nothing", Add(none, 0), N(-7), "none", N(-7), false},
		{"add to a string", Add(s, 0), N(1), "s", Value{}, true},
		{"add to a set", Add(set, 0), Strings("c", "a"), "set", Strings("a", "b", "c"), false},
		{"add a set to nothing", Add(none, 0), Strings("c"), "none", Strings("c"), false},
		{"add a number to a set", Add(set, 0), N(1), "set", Value{}, true},
		{"delete", Delete(set, 0), Strings("a", "x"), "set", Strings("b"), false},
		{"delete the last", Delete(set, 0), Strings("a", "b"), "set", Value{}, false},
		{"delete from nothing", Delete(none, 0), Strings("a"), "none", Value{}, false},
		{"delete from a number", Delete(n, 0), Strings("a"), "n", Value{}, true},
		{"a sum of too many digits", Add(Attr("n"), 0), mustParse(t, "1E+40"), "n", Value{}, true},
	} {
		op := &Operation{Placeholders: 1, Update: []Action{test.action}}
		if test.action.kind == actRemove || test.action.kind == actGather {
			op.Where = []Condition{EQ(Attr("n"), 0)} // so that the placeholder has a use
		}
		b := bind(t, op.Call(test.value))
		before := base()
		got, err := b.Apply(before)
		if (err != nil) != test.fails {
			t.Errorf("%s: Apply = %v, %v", test.name, got, err)
			continue
		}
		if !before.Equal(base()) {
			t.Errorf("%s: Apply changed the item that it was given to %v", test.name, before)
		}
		if err != nil {
			if !errors.Is(err, errOperand) && !errors.Is(err, ErrNumber) {
				t.Errorf("%s: Apply = %v", test.name, err)
			}
			continue
		}
		want := base()
		want.Remove(test.attr)
		if test.want.Kind() != KindNone {
			want.Set(test.attr, test.want)
		}
		on := b.On(before, FormsOf(before))
		next, forms, err := on.ApplyIn(nil)
		alike := len(want) == len(before) && test.want.Kind() == before.Get(test.attr).Kind()
		if err != nil || forms != nil && !forms.Fit(next) || alike && forms != FormsOf(before) {
			t.Errorf("%s: ApplyIn = %v, %v, %v", test.name, next, forms, err)
		}
		if diff := cmp.Diff(want.String(), got.String()); diff != "" || !got.Equal(want) {
			t.Errorf("%s: item (-want +got):\n%s", test.name, diff)
		}
	}
	if got, err := (Bound{}).Apply(base()); err != nil || !got.Equal(base()) {
		t.Errorf("the zero Bound makes %v, %v", got, err)
	}
}

// TestForms: items that are alike have the same forms, unless many others came between them.
func TestForms(t *testing.T) {
	first := FormsOf(base())
	if again := FormsOf(base()); again != first {
		t.Error("the forms of items that are alike differ")
	}
	other := base()
	other[0].Value = Null()
	for _, item := range []Item{other, base()[1:], append(base(), Attribute{"x", N(1)}), nil} {
		if first.Fit(item) || FormsOf(item) == first {
			t.Errorf("%v has the forms of %v", item, base())
		}
	}
	for i := range maxForms {
		FormsOf(Item{{strconv.Itoa(i), N(0)}})
	}
	if again := FormsOf(base()); again == first || !again.Fit(base()) {
		t.Error("forms are kept forever")
	}
}

// TestActionsSeeTheItemBefore: no action of an update sees the result of another.
func TestActionsSeeTheItemBefore(t *testing.T) {
	b := bind(t, (&Operation{Placeholders: 2, Update: []Action{Remove(Attr("n")), Set(Attr("s"), 0), Add(Attr("m"), 1)}}).Call(S("x"), N(1)))
	got, err := b.Apply(base())
	want := base()
	want.Remove("n")
	want.Set("s", S("x"))
	want.Set("m", N(1))
	if err != nil || !got.Equal(want) {
		t.Errorf("Apply = %v, %v; want %v", got, err, want)
	}
}

// TestArrangements evaluates one template on items that have its attributes in other places, or lack some, often enough for each
// arrangement to be learnt.
func TestArrangements(t *testing.T) {
	op := &Operation{
		Placeholders: 2,
		Where:        []Condition{GE(Attr("n"), 0), Absent(Attr("gone"))},
		Update:       []Action{Add(Attr("n"), 1), Remove(Attr("null")), Set(Attr("s"), 1), Remove(Attr("flag"))},
	}
	b := bind(t, op.Call(N(5), N(-1)))
	rest := Item{{"n", N(4)}, {"s", N(-1)}, {"set", Strings("a", "b")}}
	for turn := range relearn * len(base()) {
		cut := turn % len(base())
		item := slices.Concat(base()[cut:], base()[:cut])
		for i := range item {
			item[i].Name = strings.Clone(item[i].Name) // the same name, but not in the same place of memory
		}
		if !b.Holds(item) {
			t.Errorf("Holds(%v) = false", item)
		}
		if got, err := b.Apply(item); err != nil || !got.Equal(rest) {
			t.Errorf("Apply(%v) = %v, %v; want %v", item, got, err, rest)
		}
		if b.Holds(append(Item{{"gone", N(1)}}, item...)) {
			t.Error("an attribute is absent that came into the first place")
		}
		if short := item[:2]; b.Holds(short) != (short.Get("n").Kind() == KindN) {
			t.Errorf("Holds(%v) = %t", short, b.Holds(short))
		}
	}
}

// TestEvaluationAllocatesTheItemAlone counts allocations on a bucket of two limits.
func TestEvaluationAllocatesTheItemAlone(t *testing.T) {
	op := advance()
	c := op.Call(N(1), N(2))
	item := Item{{"rf", N(1)}}
	for _, limit := range []string{"rpm", "tpm"} {
		c.Pick(refill, limit, N(10), N(3), N(4))
		item.Set("b_"+limit+"_tk", N(5))
		item.Set("b_"+limit+"_tc", N(0))
	}
	b := bind(t, c)
	if got := testing.AllocsPerRun(100, func() {
		if !b.Holds(item) {
			t.Error("Holds = false")
		}
	}); got != 0 {
		t.Errorf("Holds allocates %v times, want 0", got)
	}
	if got := testing.AllocsPerRun(100, func() {
		if _, err := b.Apply(item); err != nil {
			t.Errorf("Apply() = %v", err)
		}
	}); got != 1 {
		t.Errorf("Apply allocates %v times, want 1", got)
	}
}

func mustParse(t *testing.T, text string) Value {
	t.Helper()
	return check.Call(ParseNumber(text)).Must(t, "ParseNumber()")
}

func TestItem(t *testing.T) {
	it := base()
	if v, ok := it.Lookup("none"); ok || v.Kind() != KindNone {
		t.Errorf("Lookup of nothing = %v, %t", v, ok)
	}
	same := Item{}
	for i := len(it) - 1; i >= 0; i-- {
		same.Set(it[i].Name, it[i].Value)
	}
	if !it.Equal(same) {
		t.Error("the order of attributes counts")
	}
	if it.Equal(it[1:]) || it[1:].Equal(it) || it.Equal(nil) || (Item{}).Equal(nil) || !Item(nil).Equal(nil) {
		t.Error("items of different attributes are equal, or an empty item and none")
	}
	same.Set("n", N(6))
	if it.Equal(same) {
		t.Error("values do not count")
	}
	if got, want := base().String(), `{flag: true, n: 5, null: null, s: "b", set: {"a", "b"}}`; got != want {
		t.Errorf("String() = %s, want %s", got, want)
	}
}
