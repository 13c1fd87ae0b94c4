package schema

import (
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/document"
)

// term is the text of a condition or an action, being parsed.
//
//	condition = conjunction { "or" conjunction }
//	conjunction = test { "and" test }
//	test = "(" condition ")" | name ( "exists" | "absent" | comparator arg )
//	comparator = "=" | "<" | "<=" | ">" | ">="
//	action = "set" name "=" value | "add" name arg | "delete" name arg | "remove" name
//	value = arg | name ( "+" | "-" ) arg | name "+" name | "if_not_exists" "(" name "," arg ")"
//
// A name is that of an attribute; an arg is $ and the name of an argument.
type term struct {
	scope *scope
	start document.Pos
	text  string
	words []word // those ahead; never empty, since the last one is the end
}

// word is a name, an argument or a sign in a term.
type word struct {
	text   string // "" at the end
	offset int
}

var wordForm = regexp.MustCompile(`\$?[A-Za-z_][A-Za-z0-9_]*|<=|>=|\S`)

// newTerm splits the text of a scalar into words. Words of a text in one line have their own column.
func newTerm(s *scope, n *yaml.Node) *term {
	t := &term{scope: s, start: document.At(n), text: n.Value}
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		t.start.Column++
	}
	for _, span := range wordForm.FindAllStringIndex(n.Value, -1) {
		t.words = append(t.words, word{n.Value[span[0]:span[1]], span[0]})
	}
	t.words = append(t.words, word{"", len(n.Value)})
	return t
}

func (t *term) pos(k word) document.Pos {
	return document.Pos{Line: t.start.Line, Column: t.start.Column + k.offset}
}

// take returns the next word, and goes past it when it is not the end.
func (t *term) take() word {
	k := t.words[0]
	if len(t.words) > 1 {
		t.words = t.words[1:]
	}
	return k
}

// accept goes past the next word if it is the one given.
func (t *term) accept(text string) bool {
	if t.words[0].text != text {
		return false
	}
	t.take()
	return true
}

// errSyntax stops the parsing of a term; the error has been reported.
type errSyntax struct{}

func (t *term) fail(k word, want string) {
	got := "the end"
	if k.text != "" {
		got = fmt.Sprintf("%q", k.text)
	}
	t.scope.Errorf(t.pos(k), "%s: %q: want %s, got %s", t.scope.what, t.text, want, got)
	panic(errSyntax{})
}

func (t *term) expect(text string) {
	if k := t.words[0]; !t.accept(text) {
		t.fail(k, fmt.Sprintf("%q", text))
	}
}

// parse runs a parser over the whole term and reports whether it came to its end.
func (t *term) parse(parser func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, syntax := r.(errSyntax); !syntax {
				panic(r)
			}
		}
	}()
	parser()
	if k := t.words[0]; k.text != "" {
		t.fail(k, "the end")
	}
	return true
}

var nameForm = regexp.MustCompile(`^[A-Za-z_]`)

func (t *term) name() Ref {
	k := t.take()
	if !nameForm.MatchString(k.text) {
		t.fail(k, "the name of an attribute")
	}
	return t.scope.ref(t.pos(k), k.text)
}

// arg reads an argument for use with an attribute.
func (t *term) arg(attr Ref) *Arg {
	k := t.take()
	if len(k.text) < 2 || k.text[0] != '$' {
		t.fail(k, "an argument such as $x")
	}
	return t.scope.arg(t.pos(k), k.text[1:], attr)
}

func (t *term) condition() *Condition   { return t.joined("or", t.conjunction) }
func (t *term) conjunction() *Condition { return t.joined("and", t.test) }

func (t *term) joined(op string, part func() *Condition) *Condition {
	c := &Condition{Op: op, Args: []*Condition{part()}}
	for t.accept(op) {
		c.Args = append(c.Args, part())
	}
	if len(c.Args) == 1 {
		return c.Args[0]
	}
	return c
}

func (t *term) test() *Condition {
	if t.accept("(") {
		c := t.condition()
		t.expect(")")
		return c
	}
	c := &Condition{Attr: t.name()}
	k := t.take()
	c.Op = k.text
	switch k.text {
	case "exists", "absent":
	case "=":
		c.Arg = t.arg(c.Attr)
	case "<", "<=", ">", ">=":
		t.scope.demand(c.Attr, "is compared with "+k.text, S, N)
		c.Arg = t.arg(c.Attr)
	default:
		t.fail(k, "exists, absent or a comparison")
	}
	return c
}

func (t *term) action() *Action {
	k := t.take()
	switch k.text {
	case "set":
		a := &Action{Attr: t.name()}
		t.expect("=")
		t.value(a)
		return a
	case "add":
		a := &Action{Op: "add", Attr: t.name()}
		t.scope.demand(a.Attr, "is added to", N, SS)
		a.Arg = t.arg(a.Attr)
		return a
	case "delete":
		a := &Action{Op: "delete", Attr: t.name()}
		t.scope.demand(a.Attr, "has elements deleted", SS)
		a.Arg = t.arg(a.Attr)
		return a
	case "remove":
		return &Action{Op: "remove", Attr: t.name()}
	default:
		t.fail(k, "set, add, delete, remove or keys")
		return nil
	}
}

// value reads the right side of a set. The attribute itself may occur in it, and a number may be added to it.
func (t *term) value(a *Action) {
	k := t.words[0]
	switch {
	case k.text == "if_not_exists":
		t.take()
		a.Op = "default"
		t.expect("(")
		t.itself(a)
		t.expect(",")
		a.Arg = t.arg(a.Attr)
		t.expect(")")
	case nameForm.MatchString(k.text):
		t.itself(a)
		switch sign := t.take(); sign.text {
		case "+":
			a.Op = "plus"
		case "-":
			a.Op = "minus"
		default:
			t.fail(sign, "+ or -")
		}
		t.scope.demand(a.Attr, "is calculated with", N)
		if a.Op == "plus" && nameForm.MatchString(t.words[0].text) {
			a.Op, a.From = "gather", t.name()
			t.scope.demand(a.From, "is calculated with", N)
			return
		}
		a.Arg = t.arg(a.Attr)
	default:
		a.Op = "set"
		a.Arg = t.arg(a.Attr)
	}
}

func (t *term) itself(a *Action) {
	if k := t.take(); k.text != a.Attr.Name {
		t.fail(k, a.Attr.Name)
	}
}
