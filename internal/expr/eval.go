package expr

import "fmt"

// Holds reports whether the condition holds for an item, nil for one that does not exist.
func (b Bound) Holds(item Item) bool {
	return b.Template == nil || holdAll(b.where, b.Values, item)
}

func holdAll(tests []test, values []Value, item Item) bool {
	for i := range tests {
		if !tests[i].holds(values, item) {
			return false
		}
	}
	return true
}

func (t *test) holds(values []Value, item Item) bool {
	switch t.kind {
	case condAll:
		return holdAll(t.args, values, item)
	case condAny:
		for i := range t.args {
			if t.args[i].holds(values, item) {
				return true
			}
		}
		return false
	default: // on an attribute
	}
	v, ok := item.Lookup(t.attr)
	switch t.kind {
	case condExists:
		return ok
	case condAbsent:
		return !ok
	case condEQ:
		return ok && v.Equal(values[t.slot])
	default: // a comparison
	}
	order, comparable := v.compare(values[t.slot])
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

// Apply returns the item after the update; the item passed stays as it is. It does not ask the condition. An operand of
// a wrong type, or arithmetic on an attribute that does not exist, is an error, as it is in DynamoDB.
func (b Bound) Apply(item Item) (Item, error) {
	next := item.Clone()
	if b.Template == nil {
		return next, nil
	}
	for i := range b.update {
		s := &b.update[i]
		if s.kind == actRemove {
			next.Remove(s.attr)
			continue
		}
		old, exists := item.Lookup(s.attr)
		v, err := s.result(old, exists, b.Values[s.slot])
		if err != nil {
			return nil, fmt.Errorf("attribute %q: %w", s.attr, err)
		}
		if v.kind == KindNone {
			next.Remove(s.attr)
		} else {
			next.Set(s.attr, v)
		}
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
	case actPlus:
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
