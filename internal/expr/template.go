package expr

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Template is an operation with its clauses picked and its attribute names resolved. It is immutable and safe for
// concurrent use.
type Template struct {
	where  []test
	update []step
	slots  int

	condition string
	updates   string
	names     map[string]string
}

// test is a condition on resolved attributes.
type test struct {
	kind conditionKind
	attr string
	slot int
	args []test
}

// step is an action on a resolved attribute.
type step struct {
	kind actionKind
	attr string
	slot int
}

// Condition returns the text of the condition, "" when there is none. Placeholders are positional: #0 is a key of
// Names, :0 the first of the bound values.
func (t *Template) Condition() string { return t.condition }

// Update returns the text of the update, "" when there is none.
func (t *Template) Update() string { return t.updates }

// Names returns the attribute names by placeholder. The map is shared and must not be changed.
func (t *Template) Names() map[string]string { return t.names }

// Placeholder returns the placeholder of the bound value at index i.
func Placeholder(i int) string {
	if i < len(placeholders) {
		return placeholders[i]
	}
	return ":" + strconv.Itoa(i)
}

var placeholders = func() (p [64]string) {
	for i := range p {
		p[i] = ":" + strconv.Itoa(i)
	}
	return p
}()

// compile resolves an operation for the clauses picked and renders its text.
func (op *Operation) compile(picks []pick) (*Template, error) {
	t := &Template{slots: op.Slots}
	t.add(op.Where, op.Update, "", 0)
	for _, p := range picks {
		if p.clause < 0 || p.clause >= len(op.Clauses) {
			return nil, fmt.Errorf("expr: %s has no clause %d", op.Name, p.clause)
		}
		c := &op.Clauses[p.clause]
		t.add(c.Where, c.Update, p.member, t.slots)
		t.slots += c.Slots
	}
	changed := make(map[string]bool, len(t.update))
	for _, s := range t.update {
		if changed[s.attr] {
			return nil, fmt.Errorf("expr: %s changes attribute %q twice", op.Name, s.attr)
		}
		changed[s.attr] = true
	}
	t.render()
	return t, nil
}

func (t *Template) add(where []Condition, update []Action, member string, base int) {
	t.where = append(t.where, resolve(where, member, base)...)
	for _, a := range update {
		t.update = append(t.update, step{a.kind, a.path.name(member), base + a.slot})
	}
}

func resolve(conditions []Condition, member string, base int) []test {
	tests := make([]test, len(conditions))
	for i, c := range conditions {
		tests[i] = test{kind: c.kind, attr: c.path.name(member), slot: base + c.slot, args: resolve(c.args, member, base)}
	}
	return tests
}

// renderer writes expression text and numbers the attribute names as they occur.
type renderer struct {
	strings.Builder
	numbers map[string]string // placeholder by attribute name
	names   map[string]string // attribute name by placeholder
}

func (t *Template) render() {
	r := &renderer{numbers: map[string]string{}, names: map[string]string{}}
	r.conjunction(t.where, " AND ")
	t.condition = r.String()
	r.Reset()
	for _, section := range []struct {
		keyword string
		kinds   []actionKind
	}{
		{"SET", []actionKind{actSet, actDefault, actPlus, actMinus}},
		{"REMOVE", []actionKind{actRemove}},
		{"ADD", []actionKind{actAdd}},
		{"DELETE", []actionKind{actDelete}},
	} {
		r.section(section.keyword, section.kinds, t.update)
	}
	t.updates = r.String()
	if len(r.names) > 0 {
		t.names = r.names
	}
}

func (r *renderer) name(attr string) string {
	p, ok := r.numbers[attr]
	if !ok {
		p = "#" + strconv.Itoa(len(r.numbers))
		r.numbers[attr] = p
		r.names[p] = attr
	}
	return p
}

func (r *renderer) conjunction(tests []test, operator string) {
	for i, t := range tests {
		if i > 0 {
			r.WriteString(operator)
		}
		r.test(t)
	}
}

var comparators = [...]string{condEQ: " = ", condLT: " < ", condLE: " <= ", condGT: " > ", condGE: " >= "}

func (r *renderer) test(t test) {
	switch t.kind {
	case condExists:
		r.WriteString("attribute_exists(" + r.name(t.attr) + ")")
	case condAbsent:
		r.WriteString("attribute_not_exists(" + r.name(t.attr) + ")")
	case condAll, condAny:
		operator := " AND "
		if t.kind == condAny {
			operator = " OR "
		}
		r.WriteString("(")
		r.conjunction(t.args, operator)
		r.WriteString(")")
	default:
		r.WriteString(r.name(t.attr) + comparators[t.kind] + Placeholder(t.slot))
	}
}

func (r *renderer) section(keyword string, kinds []actionKind, steps []step) {
	separator := keyword + " "
	if r.Len() > 0 {
		separator = " " + separator
	}
	for _, s := range steps {
		if !slices.Contains(kinds, s.kind) {
			continue
		}
		r.WriteString(separator)
		separator = ", "
		name, value := r.name(s.attr), Placeholder(s.slot)
		switch s.kind {
		case actSet:
			r.WriteString(name + " = " + value)
		case actDefault:
			r.WriteString(name + " = if_not_exists(" + name + ", " + value + ")")
		case actPlus:
			r.WriteString(name + " = " + name + " + " + value)
		case actMinus:
			r.WriteString(name + " = " + name + " - " + value)
		case actRemove:
			r.WriteString(name)
		case actAdd, actDelete:
			r.WriteString(name + " " + value)
		}
	}
}
