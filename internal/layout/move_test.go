package layout

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// In TestMoveAsks, another program writes a record, or the item of a bucket, after it was read to move an entity.
func TestMoveAsks(t *testing.T) {
	const now = 1_700_000_000_000
	entity := Entity{Key: EntityKey{NS: "ns", Entity: "e"}, Name: "e", CreatedAt: "2026-01-02T15:04:05Z", Generation: 3}
	record := func(change func(*Entity)) expr.Item {
		e := entity
		if change != nil {
			change(&e)
		}
		return e.Key.Key().Join(e.Encode())
	}
	bucket := func(attributes ...expr.Attribute) expr.Item {
		return itemAt(BucketKey{NS: "ns", Entity: "e", Resource: "r"}, now, 40_000, attributes...)
	}
	pgen := func(n int64) expr.Attribute { return expr.Attribute{Name: "pgen", Value: expr.N(n)} }
	pinc := func(s string) expr.Attribute { return expr.Attribute{Name: "pinc", Value: expr.S(s)} }
	move := MoveEntity(3, 4, 1)
	move.Since(entity.CreatedAt)
	move.Alone()
	undated := MoveEntity(0, 1, 1)
	undated.Alone()
	add := AddChild(1)
	add.Unmoved(3)
	own := Mark(now)
	own.Own(true, 4, "a")
	inherit := Mark(now)
	inherit.Inherit(true, 4, "a", "b")
	charge := Mark(now)
	charge.Charge(true, 0)
	hold := check.Call(HoldEntity(3)).Must(t, "HoldEntity()")
	bind := func(b expr.Bound, err error) expr.Bound {
		check.Fatal(t, "binding a write", err)
		return b
	}
	for _, test := range []struct {
		name  string
		write expr.Bound
		item  expr.Item
		holds bool
	}{
		{"move", bind(move.Bind()), record(nil), true},
		{"move of no record", bind(move.Bind()), nil, false},
		{"move of no record, which had no time of creation", bind(undated.Bind()), nil, false},
		{"move after another one", bind(move.Bind()), record(func(e *Entity) { e.Generation = 4 }), false},
		{"move of a record created again", bind(move.Bind()), record(func(e *Entity) { e.CreatedAt = "2026-01-02T15:04:06Z" }), false},
		{"new parent", bind(add.Bind()), record(nil), true},
		{"new parent that was moved", bind(add.Bind()), record(func(e *Entity) { e.Generation = 4 }), false},
		{"entity above", hold, record(nil), true},
		{"entity above that is gone", hold, nil, false},
		{"entity above that was moved", hold, record(func(e *Entity) { e.Generation = 4 }), false},
		{"entity above that was never moved", hold, record(func(e *Entity) { e.Generation = 0 }), true},
		{"mark", bind(own.Bind()), bucket(), true},
		{"mark again", bind(own.Bind()), bucket(pgen(4), pinc("a")), true},
		{"mark after a later move", bind(own.Bind()), bucket(pgen(5), pinc("a")), false},
		{"mark of a bucket of a former entity", bind(inherit.Bind()), bucket(pgen(5), pinc("b")), true},
		{"mark of a bucket that another one has marked", bind(inherit.Bind()), bucket(pgen(5), pinc("a")), false},
		{"mark of a bucket of an entity that was never moved", bind(charge.Bind()), bucket(), true},
		{"mark of a bucket that another program has marked before any move", bind(charge.Bind()), bucket(pgen(0), pinc("a")), true},
		{"mark of a bucket that tells of a move", bind(charge.Bind()), bucket(pgen(1), pinc("a")), false},
	} {
		if got := test.write.Holds(test.item); got != test.holds {
			t.Errorf("%s: the write holds: %t, want %t", test.name, got, test.holds)
		}
	}
}
