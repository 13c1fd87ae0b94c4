package expr

import (
	"fmt"
	"slices"
)

// Holds reports whether the condition holds for an item, nil for one that does not exist.
func (b Bound) Holds(item Item) bool {
	on := b.On(item)
	return on.Holds()
}

// Apply returns the item after the update; see [Evaluation.ApplyIn].
func (b Bound) Apply(item Item) (Item, error) {
	on := b.On(item)
	return on.ApplyIn(nil)
}

// An Evaluation is a bound template on an item, whose attributes are found.
type Evaluation struct {
	bound  *Bound
	item   Item
	places places
}

// On returns the evaluation on an item, nil for one that does not exist. It refers to the bound template and to the item.
func (b *Bound) On(item Item) Evaluation {
	if b.Template == nil {
		return Evaluation{bound: b, item: item}
	}
	return Evaluation{b, item, b.arrange(item)}
}

// Holds is [Bound.Holds].
func (e *Evaluation) Holds() bool {
	return e.bound.Template == nil || holdAll(e.bound.where, e.bound.Values, e.item, &e.places)
}

func holdAll(tests []test, values []Value, item Item, places *places) bool {
	for i := range tests {
		t := &tests[i]
		switch {
		case t.kind == condAny && t.args[0].kind == condAbsent: // mostly of an attribute that the item does not have
			if places.find(t.args[0].attr, item) < 0 {
				continue
			}
		case t.kind == condGE: // as most are, and mostly of two numbers
			if place := places.find(t.attr, item); place < 0 {
				return false
			} else if is, least := &item[place].Value, &values[t.placeholder]; is.isInt() && least.isInt() {
				if is.num < least.num {
					return false
				}
				continue
			}
		}
		if !t.holds(values, item, places) {
			return false
		}
	}
	return true
}

func (t *test) holds(values []Value, item Item, places *places) bool {
	switch t.kind {
	case condAll:
		return holdAll(t.args, values, item, places)
	case condAny:
		for i := range t.args {
			if t.args[i].holds(values, item, places) {
				return true
			}
		}
		return false
	default: // on an attribute
	}
	place := places.find(t.attr, item)
	if place < 0 {
		return t.kind == condAbsent
	}
	switch t.kind {
	case condExists:
		return true
	case condAbsent:
		return false
	case condEQ:
		return item[place].Value.Equal(values[t.placeholder])
	default: // a comparison
	}
	order, comparable := item[place].Value.compare(values[t.placeholder])
	if !comparable {
		return false
	}
	switch t.kind {
	case condLT:
		return order < 0
	case condLE:
		return order <= 0
	case condGT:
		return order > 0
	default: // condGE
		return order >= 0
	}
}

// ApplyIn returns the item after the update; the item passed stays as it is. It does not ask the condition. An operand of
// a wrong type, or arithmetic on an attribute that does not exist, is an error, as it is in DynamoDB. Attributes keep
// their order, and new ones follow in that of the update. The result has the memory of another item, as far as that suffices.
func (e *Evaluation) ApplyIn(space Item) (Item, error) {
	b, item := e.bound, e.item
	next := space[:0]
	next = append(next, item...)
	if b.Template == nil {
		return next, nil
	}
	gone := false
	for i := range b.update {
		s := &b.update[i]
		place := e.places.find(s.attr, item) // as it is in next, up to the removals
		if place >= 0 && s.kind.isSum() && next[place].Value.move(&item[place].Value, &b.Values[s.placeholder], s.kind == actMinus) {
			continue
		}
		v := Value{}
		if s.kind != actRemove {
			var old, operand Value
			if place >= 0 {
				old = item[place].Value
			}
			if s.kind != actGather {
				operand = b.Values[s.placeholder]
			} else if from := e.places.find(s.from, item); from >= 0 {
				operand = item[from].Value
			}
			var err error
			if v, err = s.result(old, place >= 0, operand); err != nil {
				return nil, fmt.Errorf("attribute %q: %w", b.attributes[s.attr], err)
			}
		}
		switch {
		case place >= 0:
			next[place].Value = v
			gone = gone || v.kind == KindNone
		case v.kind != KindNone:
			next = append(next, Attribute{b.attributes[s.attr], v})
		}
	}
	if gone {
		next = slices.DeleteFunc(next, func(a Attribute) bool { return a.Value.kind == KindNone })
	}
	return next, nil
}

// result returns the attribute after the step; the zero Value when it is to go.
func (s *step) result(old Value, exists bool, operand Value) (Value, error) {
	switch s.kind {
	case actDefault:
		if exists {
			return old, nil
		}
		return operand, nil
	case actPlus, actGather:
		return old.plus(operand, 1)
	case actMinus:
		return old.plus(operand, -1)
	case actAdd:
		switch {
		case operand.kind != KindN && operand.kind != KindSS, exists && old.kind != operand.kind:
			return Value{}, fmt.Errorf("%w: ADD of %v to %v", errOperand, operand.kind, old.kind)
		case !exists:
			return operand, nil
		case operand.kind == KindN:
			return old.plus(operand, 1)
		default:
			return old.union(operand), nil
		}
	case actDelete:
		switch {
		case operand.kind != KindSS, exists && old.kind != KindSS:
			return Value{}, fmt.Errorf("%w: DELETE of %v from %v", errOperand, operand.kind, old.kind)
		case !exists:
			return Value{}, nil
		}
		if rest := old.without(operand); len(rest.Elements()) > 0 {
			return rest, nil
		}
		return Value{}, nil
	default: // actSet
		return operand, nil
	}
}
