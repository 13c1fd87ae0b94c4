package store

import (
	"errors"

	"github.com/zlimit/zlimit-go/internal/expr"
)

// A Plan is the result of a write on an item.
type Plan struct {
	// Applied reports whether the condition holds. Nothing else is set when it does not.
	Applied bool
	// Next is the item afterwards, with its key, for an Update or a Put.
	Next expr.Item
	// Moves reports whether Next may differ from the item in an attribute that an index is keyed by.
	Moves bool
}

// Plan evaluates a valid write on the stored item, nil for none. It returns an error for a write that DynamoDB does not
// take on this item; [CheckSize] is left to the caller. The next item lies in the memory of another item, as far as that
// suffices.
func (s *Schema) Plan(w *Write, old, space expr.Item) (Plan, error) {
	on := w.Expr.On(old)
	if !on.Holds() {
		return Plan{}, nil
	}
	p := Plan{Applied: true}
	switch w.Kind {
	case Update:
		if old == nil {
			on = w.Expr.On(w.Key.Join(nil))
		}
		var err error
		if p.Next, err = on.ApplyIn(space); err != nil {
			return Plan{}, err
		}
		if s.harmless(w.Expr) {
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

// harmless reports whether an update can neither make a valid item invalid nor move it in an index. Most updates can do
// neither, and need no look at the whole item.
func (s *Schema) harmless(b expr.Bound) bool {
	for _, name := range b.Changes() {
		if name == "" || s.lengths&(1<<min(len(name), 63)) != 0 && (isKey(name) || s.keys[name]) {
			return false
		}
	}
	for i := range b.Values {
		switch b.Values[i].Kind() {
		case expr.KindL, expr.KindM: // may hold invalid values
			return false
		default: // Bind has refused an empty set
		}
	}
	return true
}
