package expr

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// An Operation is a conditional write as data: a part for every call, and clauses to pick. It is declared once,
// as a package variable, and must not be changed or copied afterwards; its methods are safe for concurrent use.
type Operation struct {
	Name         string
	Placeholders int         // values that every call binds, before the values of its clauses
	Where        []Condition // all must hold
	Update       []Action
	Clauses      []Clause

	compiling sync.Mutex
	templates atomic.Pointer[map[string]*Template] // by shape; replaced, never changed
	last      atomic.Pointer[Template]             // of the last call; the next one probably has it, too
}

// A Clause is a part of an operation that a call may pick, once for the item or once for each member of a family.
type Clause struct {
	Name         string
	Placeholders int // values that each pick binds
	Where        []Condition
	Update       []Action
}

// A Path names a top-level attribute, or with Member set the attribute of a family that belongs to the picked member.
type Path struct {
	Prefix, Suffix string
	Member         bool
}

// Attr returns the path of the attribute called name.
func Attr(name string) Path { return Path{Prefix: name} }

// Of returns the path of the attribute prefix + member + suffix.
func Of(prefix, suffix string) Path { return Path{Prefix: prefix, Suffix: suffix, Member: true} }

// Name returns the name of the attribute, of a member where the path is one of members.
func (p Path) Name(member string) string {
	if p.Member {
		return p.Prefix + member + p.Suffix
	}
	return p.Prefix
}

// Cut returns the member whose attribute has a name; false if the path is not that of such an attribute.
func (p Path) Cut(name string) (member string, ok bool) {
	if rest, isOf := strings.CutPrefix(name, p.Prefix); isOf && p.Member {
		member, ok = strings.CutSuffix(rest, p.Suffix)
	}
	return member, ok && member != ""
}

type conditionKind uint8

const (
	condEQ conditionKind = iota
	condLT
	condLE
	condGT
	condGE
	condExists
	condAbsent
	condAll
	condAny
)

// A Condition is something that must hold for the item before the write. A comparison with a missing attribute, or
// one of another type, does not hold.
type Condition struct {
	kind        conditionKind
	path        Path
	placeholder int
	args        []Condition
}

// EQ holds when the attribute equals the value of the placeholder.
func EQ(p Path, placeholder int) Condition { return Condition{condEQ, p, placeholder, nil} }

// LT holds when the attribute is less than the value of the placeholder.
func LT(p Path, placeholder int) Condition { return Condition{condLT, p, placeholder, nil} }

// LE holds when the attribute is at most the value of the placeholder.
func LE(p Path, placeholder int) Condition { return Condition{condLE, p, placeholder, nil} }

// GT holds when the attribute is greater than the value of the placeholder.
func GT(p Path, placeholder int) Condition { return Condition{condGT, p, placeholder, nil} }

// GE holds when the attribute is at least the value of the placeholder.
func GE(p Path, placeholder int) Condition { return Condition{condGE, p, placeholder, nil} }

// Exists holds when the item has the attribute.
func Exists(p Path) Condition { return Condition{kind: condExists, path: p} }

// Absent holds when the item does not have the attribute, or there is no item.
func Absent(p Path) Condition { return Condition{kind: condAbsent, path: p} }

// All holds when every argument does.
func All(args ...Condition) Condition { return Condition{kind: condAll, args: args} }

// Any holds when at least one argument does.
func Any(args ...Condition) Condition { return Condition{kind: condAny, args: args} }

type actionKind uint8

const (
	actSet actionKind = iota
	actDefault
	actPlus
	actMinus
	actGather
	actRemove
	actAdd
	actDelete
)

// isSum reports whether an action on numbers adds the value of its placeholder, or takes it away.
func (k actionKind) isSum() bool { return k == actAdd || k == actPlus || k == actMinus }

// An Action is one change of an item. Every action of a write sees the item as it was before the write.
type Action struct {
	kind        actionKind
	path        Path
	placeholder int
	from        Path // of actGather: the other attribute
}

// Set makes the attribute the value of the placeholder.
func Set(p Path, placeholder int) Action { return Action{actSet, p, placeholder, Path{}} }

// Default makes the attribute the value of the placeholder if the item does not have it.
func Default(p Path, placeholder int) Action { return Action{actDefault, p, placeholder, Path{}} }

// Plus adds the number of the placeholder to an attribute that exists.
func Plus(p Path, placeholder int) Action { return Action{actPlus, p, placeholder, Path{}} }

// Minus subtracts the number of the placeholder from an attribute that exists.
func Minus(p Path, placeholder int) Action { return Action{actMinus, p, placeholder, Path{}} }

// Gather adds the number in another attribute, as it was before the write, to an attribute. Both exist.
func Gather(p, from Path) Action { return Action{kind: actGather, path: p, from: from} }

// Remove removes the attribute.
func Remove(p Path) Action { return Action{kind: actRemove, path: p} }

// Add adds the number of the placeholder to the attribute, or the elements of the placeholder to the set. An attribute that the item
// does not have counts as zero, or as empty.
func Add(p Path, placeholder int) Action { return Action{actAdd, p, placeholder, Path{}} }

// Delete takes the elements of the placeholder out of the set; the attribute goes with its last element.
func Delete(p Path, placeholder int) Action { return Action{actDelete, p, placeholder, Path{}} }

// A Call is one use of an operation: its values, the clauses picked, and their values. It is not safe for concurrent
// use, and good for one Bind.
type Call struct {
	op     *Operation
	shape  []byte // of each pick the clause, the member, and a zero
	values []Value
	others bool // some value may be no number

	shapeSpace  [64]byte // enough for the usual call
	valuesSpace [12]Value
}

// A pick is a clause that a call has picked, for a member of its family or for "".
type pick struct {
	clause int
	member string
}

// Call starts a call of the operation with the values of its own placeholders.
func (op *Operation) Call(values ...Value) *Call {
	c := calls.Get().(*Call)
	c.op = op
	c.shape = c.shapeSpace[:0]
	c.values, c.others = c.valuesSpace[:0], false
	c.add(values)
	return c
}

// add adds values of placeholders.
func (c *Call) add(values []Value) {
	for i := range values {
		c.values = append(c.values, values[i])
		c.others = c.others || values[i].kind != KindN
	}
}

// Pick adds a clause, by its index, for a member of its family ("" when the clause has none), with the values of its
// placeholders.
func (c *Call) Pick(clause int, member string, values ...Value) {
	c.shape = append(append(append(c.shape, byte(clause)), member...), 0) // names hold no zero
	c.add(values)
}

// PickNumbers is [Call.Pick] for placeholders of numbers.
func (c *Call) PickNumbers(clause int, member string, numbers ...int64) {
	c.shape = append(append(append(c.shape, byte(clause)), member...), 0)
	for _, n := range numbers {
		c.values = append(c.values, N(n))
	}
}

// picks returns the choices of the shape.
func (c *Call) picks() (picks []pick) {
	for rest := string(c.shape); rest != ""; {
		member, after, _ := strings.Cut(rest[1:], "\x00")
		picks = append(picks, pick{int(rest[0]), member})
		rest = after
	}
	return picks
}

// Bound is a template with the values of one call. The zero Bound neither asks nor changes anything.
type Bound struct {
	*Template
	Values []Value

	numbers bool // all values are
	call    *Call
}

// HasOnlyNumbers reports whether all values are numbers.
func (b *Bound) HasOnlyNumbers() bool { return b.numbers }

// calls are reused: see [Bound.Release].
var calls = sync.Pool{New: func() any { return new(Call) }}

// Release allows a later call to reuse the values, which nothing may look at any more. A Bound need not be released.
func (b *Bound) Release() {
	c := b.call
	b.Values, b.call = nil, nil
	if c == nil {
		return
	}
	clear(c.values) // which may hold large maps
	c.op, c.shape, c.values = nil, nil, nil
	calls.Put(c)
}

// Bind returns the call's template, compiled at the first call of this shape, and the call's values. Its errors are
// programming errors that DynamoDB would refuse. Such errors are too few values, values of a kind without a use, placeholders
// without a use, or two actions on one attribute.
func (c *Call) Bind() (Bound, error) {
	t, err := c.template()
	if err != nil {
		return Bound{}, err
	}
	if err := t.accept(c.values, !c.others); err != nil {
		return Bound{}, fmt.Errorf("expr: %s %w", c.op.Name, err)
	}
	return Bound{t, c.values, !c.others, c}, nil
}

// template returns the template for the clauses picked.
func (c *Call) template() (*Template, error) {
	if t := c.op.last.Load(); t != nil && t.shape == string(c.shape) {
		return t, nil
	}
	if known := c.op.templates.Load(); known != nil {
		if t, ok := (*known)[string(c.shape)]; ok {
			c.op.last.Store(t)
			return t, nil
		}
	}
	t, err := c.op.compile(c.picks())
	if err == nil {
		t.shape = string(c.shape)
		c.op.remember(t)
	}
	return t, err
}

// maxTemplates bounds the templates kept per operation; past it the cache starts afresh.
const maxTemplates = 1024

func (op *Operation) remember(t *Template) {
	op.compiling.Lock()
	defer op.compiling.Unlock()
	next := map[string]*Template{t.shape: t}
	if known := op.templates.Load(); known != nil && len(*known) < maxTemplates {
		for s, k := range *known {
			next[s] = k
		}
		next[t.shape] = t
	}
	op.templates.Store(&next)
}

// errOperand is wrapped by errors about operands of a wrong type, which DynamoDB reports as validation errors.
var errOperand = errors.New("expr: operand of a wrong type")
