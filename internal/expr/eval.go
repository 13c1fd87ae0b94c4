package expr

import (
	"fmt"
	"slices"
)

// Holds reports whether the condition holds for an item, nil for one that does not exist.
func (b Bound) Holds(item Item) bool {
	on := b.On(item, nil)
	return on.Holds()
}

// Apply returns the item after the update; see [Evaluation.ApplyIn].
func (b Bound) Apply(item Item) (Item, error) {
	on := b.On(item, nil)
	next, _, err := on.ApplyIn(nil)
	return next, err
}

// An Evaluation is a bound template on an item, whose attributes are found.
type Evaluation struct {
	bound *Bound
	item  Item
	seen  *arrangement // of the item; nil for one that is to be searched
}

// On returns the evaluation on an item, nil for one that does not exist. The forms of the item are nil if they are not known. It refers to
// the bound template and to the item.
func (b *Bound) On(item Item, forms *Forms) Evaluation {
	if b.Template == nil {
		return Evaluation{bound: b, item: item}
	}
	return Evaluation{b, item, b.arrange(item, forms)}
}

// find returns the place of an attribute in the item, -1 when the item does not have it.
func (e *Evaluation) find(a attribute) int {
	if e.seen != nil {
		return e.seen.places[a]
	}
	name := e.bound.attributes[a]
	for i := range e.item {
		if e.item[i].Is(name) {
			return i
		}
	}
	return -1
}

// Holds is [Bound.Holds].
func (e *Evaluation) Holds() bool {
	return e.bound.Template == nil || e.holdAll(e.bound.where)
}

func (e *Evaluation) holdAll(tests []test) bool {
	for i := range tests {
		t := &tests[i]
		switch t.kind {
		case condAny: // mostly of an attribute that the item does not have
			if first := &t.args[0]; first.kind == condAbsent && e.find(first.attr) < 0 {
				continue
			}
		case condAbsent:
			if e.find(t.attr) >= 0 {
				return false
			}
			continue
		case condGE: // as most are, and mostly of two numbers
			if place := e.find(t.attr); place < 0 {
				return false
			} else if is, least := &e.item[place].Value, &e.bound.Values[t.placeholder]; is.isInt() && least.isInt() {
				if is.num < least.num {
					return false
				}
				continue
			}
		default: // what is less frequent
		}
		if !e.holds(t) {
			return false
		}
	}
	return true
}

func (e *Evaluation) holds(t *test) bool {
	switch t.kind {
	case condAll:
		return e.holdAll(t.args)
	case condAny:
		for i := range t.args {
			if e.holds(&t.args[i]) {
				return true
			}
		}
		return false
	default: // on an attribute
	}
	item, values := e.item, e.bound.Values
	place := e.find(t.attr)
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
// their order, and new ones follow in that of the update. The result has the memory of another item, as far as that suffices. Its forms are
// nil if they are not known.
func (e *Evaluation) ApplyIn(space Item) (next Item, forms *Forms, err error) {
	b, item := e.bound, e.item
	next = space[:0]
	next = append(next, item...)
	if b.Template == nil {
		return next, nil, nil
	}
	if e.seen != nil {
		forms = e.seen.forms
	}
	gone := false
	for i := range b.update {
		s := &b.update[i]
		place := e.find(s.attr) // as it is in next, up to the removals
		if place >= 0 && s.kind.isSum() && next[place].Value.change(&b.Values[s.placeholder], s.kind == actMinus) {
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
			} else if from := e.find(s.from); from >= 0 {
				operand = item[from].Value
			}
			if v, err = s.result(old, place >= 0, operand); err != nil {
				return nil, nil, fmt.Errorf("attribute %q: %w", b.attributes[s.attr], err)
			}
		}
		if place < 0 && v.kind != KindNone || place >= 0 && v.kind != item[place].Value.kind {
			forms = nil
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
	return next, forms, nil
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
