package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// A Template is an operation with its clauses picked and its attribute names resolved. It is immutable and safe for
// concurrent use.
type Template struct {
	shape        string // of the calls that it serves
	where        []test
	update       []step
	placeholders int
	takes        []kinds // what each placeholder takes
	takesNumbers bool    // each one takes a number

	attributes []string // that the template names, each once
	changes    []string // the names that the update may change
	length     int      // of these names together, bytes
	lengths    uint64   // bit n: one of them has n bytes; n is capped at 63

	seen   atomic.Pointer[arrangement]
	unlike atomic.Uint32 // items that were not arranged as the one seen

	condition string
	updates   string
	names     map[string]string
	members   func() string
}

// test is a condition on resolved attributes.
type test struct {
	kind        conditionKind
	attr        attribute // not of condAll and condAny
	placeholder int
	args        []test
}

// step is an action on a resolved attribute.
type step struct {
	kind        actionKind
	attr        attribute
	placeholder int
	from        attribute // of actGather: the other attribute
}

// An attribute is an index in the attributes of a template.
type attribute int

// An arrangement is where items of some forms have the attributes of a template. The items of a store that one template is evaluated on
// mostly have the same forms.
type arrangement struct {
	forms  *Forms
	places []int // of each attribute of the template, -1 for those that the items do not have
}

// relearn is how many items in turn are searched before a template learns the arrangement of another one.
const relearn = 16

// arrange returns the places of the attributes in an item of some forms, nil if they are not known; nil for an item that is to be searched.
func (t *Template) arrange(item Item, forms *Forms) *arrangement {
	seen := t.seen.Load()
	if seen != nil && (forms == seen.forms || seen.forms.Fit(item)) {
		return seen
	}
	if t.unlike.Add(1)%relearn != 1 {
		return nil
	}
	if forms == nil {
		forms = FormsOf(item)
	}
	seen = &arrangement{forms, forms.places(t.attributes)}
	t.seen.Store(seen)
	return seen
}

// Condition returns the text of the condition, "" when there is none. Placeholders are positional: #0 is a key of
// Names, :0 the first of the bound values.
func (t *Template) Condition() string { return t.condition }

// Update returns the text of the update, "" when there is none.
func (t *Template) Update() string { return t.updates }

// Names returns the attribute names by placeholder. The map is shared and must not be changed.
func (t *Template) Names() map[string]string { return t.names }

// Members returns the template as members of the JSON object of a request to DynamoDB, without the braces. These are
// ConditionExpression, UpdateExpression and ExpressionAttributeNames, each only when present. The text is made at the
// first call.
func (t *Template) Members() string { return t.members() }

// Changes returns the names of the attributes that the update may change, each once. The slice is shared and must not be
// changed.
func (t *Template) Changes() []string { return t.changes }

// ChangedLength returns the length of the names of [Template.Changes] together, in bytes.
func (t *Template) ChangedLength() int { return t.length }

// ChangedLengths returns a bit for the length of each of these names: bit n for n bytes, and bit 63 for more.
func (t *Template) ChangedLengths() uint64 { return t.lengths }

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
	t := &Template{placeholders: op.Placeholders}
	t.add(op.Where, op.Update, "", 0)
	for _, p := range picks {
		if p.clause < 0 || p.clause >= len(op.Clauses) {
			return nil, fmt.Errorf("expr: %s has no clause %d", op.Name, p.clause)
		}
		c := &op.Clauses[p.clause]
		t.add(c.Where, c.Update, p.member, t.placeholders)
		t.placeholders += c.Placeholders
	}
	for _, s := range t.update {
		name := t.attributes[s.attr]
		if slices.Contains(t.changes, name) {
			return nil, fmt.Errorf("expr: %s changes attribute %q twice", op.Name, name)
		}
		t.changes = append(t.changes, name)
		t.length += len(name)
		t.lengths |= 1 << min(len(name), 63)
	}
	if err := t.infer(); err != nil {
		return nil, fmt.Errorf("expr: %s %w", op.Name, err)
	}
	t.render()
	return t, nil
}

// kinds is a set of [Kind].
type kinds uint16

const (
	ordered  = 1<<KindN | 1<<KindS
	addable  = 1<<KindN | 1<<KindSS
	anything = 1<<KindS | 1<<KindN | 1<<KindBool | 1<<KindNull | 1<<KindSS | 1<<KindL | 1<<KindM
)

// infer finds the kinds of value that each placeholder takes. DynamoDB refuses an operand of another kind for every item,
// and a value that no expression uses.
func (t *Template) infer() error {
	t.takes = make([]kinds, t.placeholders)
	use := func(placeholder int, k kinds) error {
		if placeholder < 0 || placeholder >= t.placeholders {
			return fmt.Errorf("has no placeholder %d", placeholder)
		}
		if t.takes[placeholder] == 0 {
			t.takes[placeholder] = anything
		}
		if t.takes[placeholder] &= k; t.takes[placeholder] == 0 {
			return fmt.Errorf("has uses of placeholder %d that no value suits", placeholder)
		}
		return nil
	}
	if err := inferTests(t.where, use); err != nil {
		return err
	}
	for _, s := range t.update {
		k := kinds(anything)
		switch s.kind {
		case actRemove, actGather:
			continue
		case actPlus, actMinus:
			k = 1 << KindN
		case actAdd:
			k = addable
		case actDelete:
			k = 1 << KindSS
		default: // a value to set
		}
		if err := use(s.placeholder, k); err != nil {
			return err
		}
	}
	if i := slices.Index(t.takes, 0); i >= 0 {
		return fmt.Errorf("does not use placeholder %d", i)
	}
	t.takesNumbers = !slices.ContainsFunc(t.takes, func(k kinds) bool { return k&(1<<KindN) == 0 })
	return nil
}

func inferTests(tests []test, use func(int, kinds) error) error {
	for i := range tests {
		var err error
		switch tests[i].kind {
		case condExists, condAbsent:
		case condAll, condAny:
			if len(tests[i].args) == 0 {
				return errors.New("has an empty All or Any")
			}
			err = inferTests(tests[i].args, use)
		case condEQ:
			err = use(tests[i].placeholder, anything)
		default:
			err = use(tests[i].placeholder, ordered)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// accept returns an error for values that DynamoDB would refuse as operands of the template, given whether all of them are numbers.
func (t *Template) accept(values []Value, numbers bool) error {
	if len(values) != t.placeholders {
		return fmt.Errorf("takes %d values, got %d", t.placeholders, len(values))
	}
	if numbers && t.takesNumbers { // the usual case
		return nil
	}
	for i := range values {
		if t.takes[i]&(1<<values[i].kind) == 0 {
			return fmt.Errorf("cannot take a value of kind %v in placeholder %d", values[i].kind, i)
		}
		if values[i].kind == KindSS && len(values[i].Elements()) == 0 {
			return fmt.Errorf("cannot take an empty set in placeholder %d", i)
		}
	}
	return nil
}

func (t *Template) add(where []Condition, update []Action, member string, base int) {
	t.where = append(t.where, t.resolve(where, member, base)...)
	for _, a := range update {
		s := step{kind: a.kind, attr: t.attribute(a.path, member), placeholder: base + a.placeholder}
		if a.kind == actGather {
			s.from = t.attribute(a.from, member)
		}
		t.update = append(t.update, s)
	}
}

func (t *Template) resolve(conditions []Condition, member string, base int) []test {
	tests := make([]test, len(conditions))
	for i, c := range conditions {
		tests[i] = test{kind: c.kind, placeholder: base + c.placeholder, args: t.resolve(c.args, member, base)}
		if c.kind != condAll && c.kind != condAny {
			tests[i].attr = t.attribute(c.path, member)
		}
	}
	return tests
}

// attribute returns the attribute that a path leads to, the same for the same name.
func (t *Template) attribute(p Path, member string) attribute {
	name := p.Name(member)
	i := slices.Index(t.attributes, name)
	if i < 0 {
		i = len(t.attributes)
		t.attributes = append(t.attributes, name)
	}
	return attribute(i)
}

// renderer writes expression text and numbers the attribute names as they occur.
type renderer struct {
	strings.Builder
	attributes []string          // of the template
	numbers    map[string]string // placeholder by attribute name
	names      map[string]string // attribute name by placeholder
}

func (t *Template) render() {
	r := &renderer{attributes: t.attributes, numbers: map[string]string{}, names: map[string]string{}}
	r.tests(t.where, condAll)
	t.condition = r.String()
	r.Reset()
	for _, section := range []struct {
		keyword string
		kinds   []actionKind
	}{
		{"SET", []actionKind{actSet, actDefault, actPlus, actMinus, actGather}},
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
	t.members = sync.OnceValue(t.marshal)
}

// marshal returns the text of [Template.Members].
func (t *Template) marshal() string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // "<=" stays two bytes
	err := encoder.Encode(struct {
		ConditionExpression      string            `json:",omitempty"`
		UpdateExpression         string            `json:",omitempty"`
		ExpressionAttributeNames map[string]string `json:",omitempty"`
	}{t.condition, t.updates, t.names})
	if err != nil {
		panic(err) // strings can be encoded
	}
	return strings.TrimSuffix(strings.TrimPrefix(text.String(), "{"), "}\n")
}

func (r *renderer) name(a attribute) string {
	attr := r.attributes[a]
	p, ok := r.numbers[attr]
	if !ok {
		p = "#" + strconv.Itoa(len(r.numbers))
		r.numbers[attr] = p
		r.names[p] = attr
	}
	return p
}

// tests renders tests joined by a condAll or a condAny. DynamoDB refuses redundant parentheses.
func (r *renderer) tests(tests []test, join conditionKind) {
	list := flatten(nil, tests, join)
	for i, t := range list {
		if i > 0 {
			r.WriteString(operators[join])
		}
		switch group := t.kind == condAll || t.kind == condAny; {
		case group && len(list) > 1:
			r.WriteString("(")
			r.tests(t.args, t.kind)
			r.WriteString(")")
		case group:
			r.tests(t.args, t.kind)
		default:
			r.test(t)
		}
	}
}

// flatten appends tests to list, with the tests of nested groups of the same kind, or of a single test, in their place.
func flatten(list, tests []test, join conditionKind) []test {
	for _, t := range tests {
		if t.kind == join || (t.kind == condAll || t.kind == condAny) && len(t.args) == 1 {
			list = flatten(list, t.args, join)
		} else {
			list = append(list, t)
		}
	}
	return list
}

var operators = map[conditionKind]string{condAll: " AND ", condAny: " OR "}

var comparators = [...]string{condEQ: " = ", condLT: " < ", condLE: " <= ", condGT: " > ", condGE: " >= "}

func (r *renderer) test(t test) {
	switch t.kind {
	case condExists:
		r.WriteString("attribute_exists(" + r.name(t.attr) + ")")
	case condAbsent:
		r.WriteString("attribute_not_exists(" + r.name(t.attr) + ")")
	default:
		r.WriteString(r.name(t.attr) + comparators[t.kind] + Placeholder(t.placeholder))
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
		name, value := r.name(s.attr), Placeholder(s.placeholder)
		switch s.kind {
		case actSet:
			r.WriteString(name + " = " + value)
		case actDefault:
			r.WriteString(name + " = if_not_exists(" + name + ", " + value + ")")
		case actPlus:
			r.WriteString(name + " = " + name + " + " + value)
		case actMinus:
			r.WriteString(name + " = " + name + " - " + value)
		case actGather:
			r.WriteString(name + " = " + name + " + " + r.name(s.from))
		case actRemove:
			r.WriteString(name)
		case actAdd, actDelete:
			r.WriteString(name + " " + value)
		}
	}
}
