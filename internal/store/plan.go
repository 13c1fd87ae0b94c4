package store

import (
	"errors"
	"slices"

	"github.com/zlimit/zlimit-go/internal/expr"
)

// A Plan is the result of a write on an item.
type Plan struct {
	// Applied reports whether the condition holds. Nothing else is set when it does not.
	Applied bool
	// Next is the item afterwards, with its key, for an Update or a Put.
	Next expr.Item
	// Forms are the forms of Next; nil if they are not known.
	Forms *expr.Forms
	// Moves reports whether Next may differ from the item in an attribute that an index is keyed by.
	Moves bool
}

// Plan evaluates a valid write on the stored item, nil for none, whose forms are nil if they are not known. It returns an error for a write
// that DynamoDB does not take on this item; [CheckSize] is left to the caller. The next item lies in the memory of another item, as far as
// that suffices.
func (s *Schema) Plan(w *Write, old expr.Item, forms *expr.Forms, space expr.Item) (Plan, error) {
	on := w.Expr.On(old, forms)
	if !on.Holds() {
		return Plan{}, nil
	}
	p := Plan{Applied: true}
	switch w.Kind {
	case Update:
		if old == nil {
			on = w.Expr.On(w.Key.Join(nil), nil)
		}
		var err error
		if p.Next, p.Forms, err = on.ApplyIn(space); err != nil {
			return Plan{}, err
		}
		if s.isHarmless(&w.Expr) {
			return p, nil
		}
		if KeyOf(p.Next) != w.Key {
			return Plan{}, errors.New("an update of the primary key")
		}
	case Put:
		p.Next = w.Key.Join(w.Item)
	default: // no item after a Delete, and none of interest after a Check
		return p, nil
	}
	if err := s.checkItem(p.Next); err != nil {
		return Plan{}, err
	}
	p.Moves = s.Moves(old, p.Next)
	return p, nil
}

// isHarmless reports whether an update can neither make a valid item invalid nor move it in an index. Most updates can do
// neither, and need no look at the whole item.
func (s *Schema) isHarmless(b *expr.Bound) bool {
	const noName = 1 << 0
	if b.ChangedLengths()&(s.lengths|noName) != 0 && slices.ContainsFunc(b.Changes(), s.isDelicate) {
		return false
	}
	if b.HasOnlyNumbers() {
		return true
	}
	return !slices.ContainsFunc(b.Values, func(v expr.Value) bool { // which may hold invalid values; Bind has refused an empty set
		return v.Kind() == expr.KindL || v.Kind() == expr.KindM
	})
}

// isDelicate reports whether a change of an attribute may make an item invalid, or move it in an index.
func (s *Schema) isDelicate(name string) bool { return name == "" || isKey(name) || s.keys[name] }
