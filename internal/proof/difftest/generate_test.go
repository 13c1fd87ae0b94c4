package difftest

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Names allowed by DynamoDB that expressions spell with placeholders alone, beside plain ones. Members of families
// look like parts of paths, of placeholders and of each other.
var (
	plain    = []string{"n", "m", "state", "x.y", "a-b", "my_attr", "size", "#0", ":0", "žluť"}
	families = [][2]string{{"b_", "_tk"}, {"b_", "_cp"}, {"l_", "_cp"}, {"", ""}}
	members  = []string{"rpm", "my_limit", "a-b", "v1.5", "tk", "_", "b_rpm_tk"}
	// tags holds sets alone, and DELETE takes from it alone: AWS refuses a DELETE from another type, the engine does not.
	tags = expr.Attr("tags")
)

var numbers = []string{
	"0", "1", "-1", "5", "10", "-10", "1000", "60000", "1700000000000",
	"9223372036854775807", "-9223372036854775808", "9223372036854775808",
	"0.1", "-2.5", "1E+30", "1E-30", "12345678901234567890123456789012345678", "-0.12345678901234567890123456789012345678",
}

// number draws numbers that meet at every bound: small ones, the ends of int64, and those of 38 digits.
func number(t *rapid.T) expr.Value {
	return check.Call(expr.ParseNumber(rapid.SampledFrom(numbers).Draw(t, "number"))).Must(t, "expr.ParseNumber()")
}

func text(t *rapid.T) expr.Value {
	return expr.S(rapid.SampledFrom([]string{"", "a", "b", "ab", "B", "10", "9", "ž", "\U0001F40E", "\uFFFD"}).Draw(t, "string"))
}

func set(t *rapid.T) expr.Value {
	return expr.Strings(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "ž"}), 1, 4).Draw(t, "set")...)
}

// value draws a value of any kind.
func value(t *rapid.T, depth int) expr.Value {
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0, 1, 2, 3:
		return number(t)
	case 4, 5:
		return text(t)
	case 6:
		return expr.Bool(rapid.Bool().Draw(t, "bool"))
	case 7:
		return set(t)
	case 8:
		if depth > 0 {
			list := make([]expr.Value, rapid.IntRange(0, 2).Draw(t, "length"))
			for i := range list {
				list[i] = value(t, depth-1)
			}
			return expr.List(list...)
		}
		return expr.Null()
	default:
		if depth > 0 {
			var m expr.Item
			for range rapid.IntRange(0, 2).Draw(t, "size") {
				m.Set(rapid.SampledFrom(plain).Draw(t, "name"), value(t, depth-1))
			}
			return expr.Map(m)
		}
		return expr.Null()
	}
}

// path draws a path; of a family only where there is a member to complete it.
func path(t *rapid.T, member bool) expr.Path {
	if member && rapid.Bool().Draw(t, "family") {
		f := rapid.SampledFrom(families).Draw(t, "path")
		return expr.Of(f[0], f[1])
	}
	return expr.Attr(rapid.SampledFrom(plain).Draw(t, "path"))
}

// A part is conditions and actions that share slots, and a generator for the value of each slot.
type part struct {
	where  []expr.Condition
	update []expr.Action
	values []expr.Value
}

// slot adds a slot with a value, or returns an earlier slot with an equal one.
func (p *part) slot(v expr.Value) int {
	for i := range p.values {
		if p.values[i].Equal(v) {
			return i
		}
	}
	p.values = append(p.values, v)
	return len(p.values) - 1
}

func (p *part) condition(t *rapid.T, member bool, depth int) expr.Condition {
	compare := []func(expr.Path, int) expr.Condition{expr.LT, expr.LE, expr.GT, expr.GE}
	switch rapid.IntRange(0, 9).Draw(t, "condition") {
	case 0, 1:
		return expr.Exists(path(t, member))
	case 2, 3:
		return expr.Absent(path(t, member))
	case 4:
		return expr.EQ(path(t, member), p.slot(value(t, 2)))
	case 5:
		return rapid.SampledFrom(compare).Draw(t, "comparison")(path(t, member), p.slot(text(t)))
	case 6:
		if depth > 0 {
			args := make([]expr.Condition, rapid.IntRange(1, 3).Draw(t, "args"))
			for i := range args {
				args[i] = p.condition(t, member, depth-1)
			}
			return rapid.SampledFrom([]func(...expr.Condition) expr.Condition{expr.All, expr.Any}).Draw(t, "join")(args...)
		}
	case 7:
		return rapid.SampledFrom([]expr.Condition{expr.Exists(expr.Attr(store.PK)), expr.Absent(expr.Attr(store.SK)), expr.Exists(tags)}).Draw(t, "key")
	}
	return rapid.SampledFrom(compare).Draw(t, "comparison")(path(t, member), p.slot(number(t)))
}

func (p *part) action(t *rapid.T, member bool) expr.Action {
	switch rapid.IntRange(0, 12).Draw(t, "action") {
	case 0:
		return expr.Set(path(t, member), p.slot(value(t, 2)))
	case 1:
		return expr.Default(path(t, member), p.slot(value(t, 2)))
	case 2:
		return expr.Plus(path(t, member), p.slot(number(t)))
	case 3:
		return expr.Minus(path(t, member), p.slot(number(t)))
	case 4:
		return expr.Remove(path(t, member))
	case 5:
		return expr.Add(path(t, member), p.slot(set(t)))
	case 6:
		return expr.Delete(tags, p.slot(set(t)))
	case 7:
		return rapid.SampledFrom([]func(expr.Path, int) expr.Action{expr.Set, expr.Default, expr.Add}).Draw(t, "tags")(tags, p.slot(set(t)))
	case 8: // keys of an index: strings that are not empty, or the write is refused
		return expr.Set(expr.Attr(rapid.SampledFrom([]string{"owner", "since", "date"}).Draw(t, "key")), p.slot(value(t, 0)))
	case 9:
		return expr.Gather(path(t, member), path(t, member))
	default:
		return expr.Add(path(t, member), p.slot(number(t)))
	}
}

// fill draws the conditions and actions of a part.
func (p *part) fill(t *rapid.T, member bool, conditions, least, most int) {
	for range rapid.IntRange(-conditions, conditions).Draw(t, "conditions") { // often none: most of them fail
		p.where = append(p.where, p.condition(t, member, 2))
	}
	for range rapid.IntRange(least, most).Draw(t, "actions") {
		p.update = append(p.update, p.action(t, member))
	}
}

// bound draws an operation with clauses and picks some of them, for members or none. It returns false when they do not
// make a template, as when two actions meet on one attribute.
func bound(t *rapid.T, update bool) (expr.Bound, bool) {
	least, most := 0, 0
	if update {
		least, most = 1, 3
	}
	var main part
	main.fill(t, false, 2, least, most)
	op := &expr.Operation{Name: "drawn", Placeholders: len(main.values), Where: main.where, Update: main.update}
	call := op.Call(main.values...)
	for i := range rapid.IntRange(0, 2).Draw(t, "clauses") {
		var p part
		p.fill(t, true, 2, 0, most)
		op.Clauses = append(op.Clauses, expr.Clause{Name: fmt.Sprint(i), Placeholders: len(p.values), Where: p.where, Update: p.update})
		for range rapid.IntRange(0, 2).Draw(t, "picks") {
			call.Pick(i, rapid.SampledFrom(members).Draw(t, "member"), p.values...)
		}
	}
	b, err := call.Bind()
	return b, err == nil
}

// write draws a write to the item with key k.
func write(t *rapid.T, k store.Key) (store.Write, bool) {
	w := store.Write{Key: k, Kind: rapid.SampledFrom([]store.Kind{
		store.Update, store.Update, store.Update, store.Update, store.Put, store.Delete, store.Check,
	}).Draw(t, "write")}
	var ok bool
	if w.Expr, ok = bound(t, w.Kind == store.Update); !ok {
		return w, false
	}
	if w.Kind == store.Put {
		for range rapid.IntRange(0, 5).Draw(t, "attributes") {
			w.Item.Set(rapid.SampledFrom(plain).Draw(t, "name"), value(t, 2))
		}
		for range rapid.IntRange(0, 3).Draw(t, "family attributes") {
			f := rapid.SampledFrom(families).Draw(t, "family")
			w.Item.Set(f[0]+rapid.SampledFrom(members).Draw(t, "member")+f[1], number(t))
		}
		if rapid.Bool().Draw(t, "tagged") {
			w.Item.Set("tags", set(t))
		}
	}
	return w, w.Validate() == nil
}
