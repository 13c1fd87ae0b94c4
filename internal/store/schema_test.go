package store

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

var table = Table{
	Indexes: []Index{
		{Name: "ByOwner", PK: "owner", SK: "since"},
		{Name: "ByKind", PK: "kind", SK: "rank", KeysOnly: true},
		{Name: "ByDate", PK: PK, SK: "date", Local: true},
	},
	TTL: "ttl",
}

func schema(tb testing.TB) *Schema { return check.Call(NewSchema(table)).Must(tb, "NewSchema()") }

var key = Key{"p", "s"}

// attributes draws changes of an item that stay valid.
func attributes(t *rapid.T, item expr.Item) expr.Item {
	item = item.Clone()
	for range rapid.IntRange(0, 4).Draw(t, "steps") {
		name := rapid.SampledFrom([]string{"n", "m", "owner", "since", "kind", "date"}).Draw(t, "name")
		if rapid.Bool().Draw(t, "set") {
			item.Set(name, expr.S(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "value")))
		} else {
			item.Remove(name)
		}
	}
	return item
}

// indexKeys returns the keys of an item in all indexes.
func indexKeys(item expr.Item) (keys []string) {
	for _, x := range table.Indexes {
		if x.PK != PK {
			keys = append(keys, item.Get(x.PK).String())
		}
		keys = append(keys, item.Get(x.SK).String())
	}
	return keys
}

// TestMoves compares Moves with the keys of the indexes that it stands for.
func TestMoves(t *testing.T) {
	s := schema(t)
	rapid.Check(t, func(t *rapid.T) {
		old := attributes(t, key.Join(nil))
		next := attributes(t, old)
		if !s.Moves(old, next) && !slices.Equal(indexKeys(old), indexKeys(next)) {
			t.Errorf("Moves(%v, %v) = false", old, next)
		}
	})
	old := key.Join(expr.Item{{Name: "n", Value: expr.N(1)}, {Name: "owner", Value: expr.S("o")}, {Name: "m", Value: expr.N(2)}})
	next := old.Clone()
	next.Set("n", expr.N(5))
	next.Remove("m")
	next.Set("new", expr.N(1))
	if s.Moves(old, next) {
		t.Errorf("Moves(%v, %v): the path of an acquire takes the slow way", old, next)
	}
}

func TestNewSchemaRefusesTwoIndexesOfOneName(t *testing.T) {
	if _, err := NewSchema(Table{Indexes: []Index{{Name: "a", PK: "p", SK: "s"}, {Name: "a", PK: "q", SK: "s"}}}); err == nil {
		t.Error("NewSchema took two indexes of one name")
	}
}

func TestIndexed(t *testing.T) {
	s := schema(t)
	for _, name := range []string{"owner", "since", "kind", "rank", "date"} {
		if !s.Indexed(name) {
			t.Errorf("Indexed(%q) = false", name)
		}
	}
	for _, name := range []string{PK, SK, "", "n", "count", strings.Repeat("x", 64), strings.Repeat("x", 127)} {
		if s.Indexed(name) {
			t.Errorf("Indexed(%q) = true", name)
		}
	}
	long := strings.Repeat("k", 100)
	if s, err := NewSchema(Table{Indexes: []Index{{Name: "a", PK: long, SK: "s"}}}); err != nil || !s.Indexed(long) {
		t.Errorf("Indexed of a long name = false, %v", err)
	}
}

// TestPlanChecksWhatItMust compares the quick checks of an update with those of the whole item that it makes.
func TestPlanChecksWhatItMust(t *testing.T) {
	s := schema(t)
	values := []expr.Value{
		expr.S("b"), expr.S("a"), expr.S("c"), expr.S("d"), expr.N(7), expr.S(""), expr.Bool(true), expr.Null(), expr.Strings("x"),
		expr.List(expr.N(1)), expr.List(expr.Strings()), expr.Map(expr.Item{{Name: "m", Value: expr.Strings()}}),
	}
	paths := []string{"n", "m", "", "owner", "since", "date", PK, SK}
	refused, moved := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		old := attributes(t, key.Join(nil))
		if rapid.Bool().Draw(t, "missing") {
			old = nil
		}
		op := &expr.Operation{Name: "op"}
		var operands []expr.Value
		for range rapid.IntRange(1, 3).Draw(t, "actions") {
			path := expr.Attr(rapid.SampledFrom(paths).Draw(t, "path"))
			if rapid.IntRange(0, 3).Draw(t, "action") == 0 {
				op.Update = append(op.Update, expr.Remove(path))
				continue
			}
			op.Update = append(op.Update, expr.Set(path, len(operands)))
			operands = append(operands, rapid.SampledFrom(values).Draw(t, "value"))
		}
		op.Placeholders = len(operands)
		b, err := op.Call(operands...).Bind()
		if err != nil {
			return // two actions on one attribute
		}
		base := old
		if base == nil {
			base = key.Join(nil)
		}
		next := check.Call(b.Apply(base)).Must(t, "Apply()")
		valid := s.checkItem(next) == nil && KeyOf(next) == key
		p, err := s.Plan(&Write{Key: key, Expr: b}, old, nil, nil)
		stays := slices.Equal(indexKeys(old), indexKeys(next))
		right := p.Applied && p.Next.Equal(next) && (p.Moves || stays)
		if (err == nil) != valid || valid && !right {
			t.Fatalf("Plan of %s %v on %v = %+v, %v; it makes %v", b.Update(), operands, old, p, err, next)
		}
		if !valid {
			refused++
		}
		if p.Moves {
			moved++
		}
	})
	if !testing.Short() && (refused == 0 || moved == 0) { // a short run makes few
		t.Errorf("%d updates were refused and %d moved an item; want some of both", refused, moved)
	}
}
