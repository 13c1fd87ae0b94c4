package schema

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/document"
)

func (l *loader) query(p document.Pair) {
	what := "query " + p.Key
	q := &Query{Pos: p.Pos, Name: p.Key}
	l.name(p.Pos, "query", p.Key)
	var index *yaml.Node
	var narrow []*yaml.Node
	l.Object(p.Value, p.Pos, what, document.Keys{
		"doc": func(n *yaml.Node) { q.Doc = l.Doc(n, what) },
		"record": func(n *yaml.Node) {
			name := l.Text(n, what+": record")
			if q.Record = l.records[name]; q.Record == nil {
				l.Errorf(document.At(document.Follow(n)), "%s: unknown record %q", what, name)
			}
		},
		"index":  func(n *yaml.Node) { index = document.Follow(n) },
		"narrow": func(n *yaml.Node) { narrow = l.List(n, what+": narrow") },
		"whole":  func(n *yaml.Node) { q.Whole = l.Bool(n, what+": whole") },
	}, "doc", "record")
	if q.Record == nil {
		return
	}
	if index != nil {
		name := l.Text(index, what+": index")
		i := slices.IndexFunc(q.Record.Entries, func(e *Entry) bool { return e.Index.Name == name })
		if i < 0 {
			l.Errorf(document.At(index), "%s: record %s is not in an index %q", what, q.Record.Name, name)
			return
		}
		q.Entry = q.Record.Entries[i]
	}
	pk, sk := q.Keys()
	if len(sk.Fields()) == 0 && !q.Whole {
		l.Errorf(p.Pos, "%s asks for one item alone; say whole: true for everything beside it", what)
	}
	if q.Whole && len(narrow) > 0 {
		l.Errorf(document.At(narrow[0]), "%s: the whole partition is not narrowed", what)
	}
	unknown := slices.DeleteFunc(sk.Fields(), func(f *Field) bool { return slices.Contains(pk.Fields(), f) })
	for i, n := range narrow {
		name := l.Text(n, what+": narrow")
		if i >= len(unknown) || unknown[i].Name != name {
			l.Errorf(document.At(n), "%s: %q is not the next field of sort key %q", what, name, sk.Text)
			continue
		}
		if unknown[i].Int {
			l.Errorf(document.At(n), "%s: field %s is an int, which has no empty value", what, name)
		}
		q.Narrow = append(q.Narrow, unknown[i])
	}
	l.schema.Queries = append(l.schema.Queries, q)
}

// scope has the meanings of the names in the terms of an operation, or of one of its clauses.
type scope struct {
	*loader
	what    string
	records []*Record
	members *Members // of the clause's family; nil where the clause has none
	args    []*Arg   // of the operation or of the clause: each sees its own alone
	used    map[*Arg]Ref
}

func (l *loader) operation(p document.Pair) {
	what := "operation " + p.Key
	op := &Operation{Pos: p.Pos, Name: p.Key}
	l.name(p.Pos, "operation", p.Key)
	var records, where, do, clauses *yaml.Node
	l.Object(p.Value, p.Pos, what, document.Keys{
		"doc":     func(n *yaml.Node) { op.Doc = l.Doc(n, what) },
		"record":  func(n *yaml.Node) { records = document.Follow(n) },
		"write":   func(n *yaml.Node) { op.Write = l.Choice(n, what+": write", "update", "put", "delete", "check") },
		"args":    func(n *yaml.Node) { op.Args = l.args(n, what) },
		"where":   func(n *yaml.Node) { where = n },
		"do":      func(n *yaml.Node) { do = n },
		"clauses": func(n *yaml.Node) { clauses = n },
	}, "doc", "record", "write")
	if records == nil {
		return
	}
	if op.Records = l.subjects(op, records, what); len(op.Records) == 0 {
		return
	}
	s := &scope{loader: l, what: what, records: op.Records, used: map[*Arg]Ref{}}
	s.args = op.Args
	op.Where = s.where(where)
	op.Actions = s.actions(do, op)
	l.checkEntries(op, what, op.Actions)
	if clauses != nil {
		for _, p := range l.Pairs(clauses, what+": clauses") {
			if c := l.clause(s, op, p); c != nil {
				op.Clauses = append(op.Clauses, c)
			}
		}
	}
	s.finish(op.Args)
	l.checkStamp(op, what)
	l.checkEffect(op, what, says(where) || op.asks(), says(do) || op.does())
	l.schema.Operations = append(l.schema.Operations, op)
}

func (l *loader) subjects(op *Operation, n *yaml.Node, what string) []*Record {
	names := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		names = l.List(n, what+": record")
		if len(names) == 0 {
			l.Errorf(document.At(n), "%s is about no record", what)
		}
	}
	var records []*Record
	for _, n := range names {
		name := l.Text(n, what+": record")
		r := l.records[name]
		switch {
		case name == "any" && len(names) == 1:
			op.Any = true
			return l.schema.Records
		case n.Kind != yaml.ScalarNode:
		case r == nil:
			l.Errorf(document.At(n), "%s: unknown record %q", what, name)
		case slices.Contains(records, r):
			l.Errorf(document.At(n), "%s names record %s twice", what, name)
		default:
			records = append(records, r)
		}
	}
	return records
}

func (l *loader) clause(outer *scope, op *Operation, p document.Pair) *Clause {
	what := outer.what + ": clause " + p.Key
	c := &Clause{Pos: p.Pos, Name: p.Key}
	l.name(p.Pos, "clause", p.Key)
	s := &scope{loader: l, what: what, records: outer.records, used: map[*Arg]Ref{}}
	var family, where, do *yaml.Node
	l.Object(p.Value, p.Pos, what, document.Keys{
		"doc":    func(n *yaml.Node) { c.Doc = l.Doc(n, what) },
		"family": func(n *yaml.Node) { family = document.Follow(n) },
		"args":   func(n *yaml.Node) { c.Args = l.args(n, what) },
		"where":  func(n *yaml.Node) { where = n },
		"do":     func(n *yaml.Node) { do = n },
	}, "doc")
	if !says(where) && !says(do) {
		l.Errorf(p.Pos, "%s neither asks nor does anything", what)
	}
	if family != nil {
		if c.Family = l.shared(op, family, what); c.Family == nil {
			return nil
		}
		s.members = c.Family.Members
	}
	s.args = c.Args
	c.Where = s.where(where)
	c.Actions = s.actions(do, nil)
	s.finish(c.Args)
	l.checkEntries(op, what, c.Actions)
	for _, a := range c.Actions {
		for _, outer := range op.Actions {
			if a.Attr.same(outer.Attr) {
				l.Errorf(a.Attr.Pos, "%s: the operation acts on attribute %s already", what, a.Attr.Name)
			}
		}
	}
	return c
}

// shared returns a family that all records of an operation have in one form; nil when there is none.
func (l *loader) shared(op *Operation, n *yaml.Node, what string) *Family {
	name := l.Text(n, what+": family")
	var family *Family
	for _, r := range op.Records {
		i := slices.IndexFunc(r.Families, func(f *Family) bool { return f.Name == name })
		if i < 0 {
			l.Errorf(document.At(n), "%s: record %s has no family %q", what, r.Name, name)
			return nil
		}
		if family != nil && family.Members != r.Families[i].Members {
			l.Errorf(document.At(n), "%s: the records do not share family %s", what, name)
			return nil
		}
		family = r.Families[i]
	}
	return family
}

func (l *loader) args(n *yaml.Node, what string) []*Arg {
	var args []*Arg
	for i, p := range l.Pairs(n, what+": args") {
		l.name(p.Pos, "argument", p.Key)
		args = append(args, &Arg{Pos: p.Pos, Name: p.Key, Doc: l.Doc(p.Value, what+": argument "+p.Key), Slot: i})
	}
	return args
}

func (s *scope) where(n *yaml.Node) []*Condition {
	if n == nil {
		return nil
	}
	var conditions []*Condition
	for _, e := range s.List(n, s.what+": where") {
		if e.Kind != yaml.ScalarNode {
			s.Errorf(document.At(e), "%s: a condition is not a text", s.what)
			continue
		}
		t := newTerm(s, e)
		t.parse(func() { conditions = append(conditions, t.condition()) })
	}
	return conditions
}

// actions reads a do list. keys is allowed where op is given.
func (s *scope) actions(n *yaml.Node, op *Operation) []*Action {
	if n == nil {
		return nil
	}
	var actions []*Action
	for _, e := range s.List(n, s.what+": do") {
		switch {
		case e.Kind != yaml.ScalarNode:
			s.Errorf(document.At(e), "%s: an action is not a text", s.what)
		case e.Value == "keys" && op == nil:
			s.Errorf(document.At(e), "%s: keys is for operations, not for clauses", s.what)
		case e.Value == "keys":
			s.keys(document.At(e), op)
		default:
			t := newTerm(s, e)
			var a *Action
			if !t.parse(func() { a = t.action() }) {
				continue
			}
			s.checkTarget(a, actions)
			actions = append(actions, a)
		}
	}
	return actions
}

// keys notes that an operation sets the attributes computed from the key.
func (s *scope) keys(pos document.Pos, op *Operation) {
	if op.Keys {
		s.Errorf(pos, "%s has keys twice", s.what)
	}
	op.Keys = true
	if len(s.records) != 1 {
		s.Errorf(pos, "%s is about several records, which have different keys", s.what)
		return
	}
	if repeated, entries := s.records[0].KeyAttributes(); len(repeated)+len(entries) == 0 {
		s.Errorf(pos, "%s: no attribute of record %s follows from its key", s.what, s.records[0].Name)
	}
}

// checkEntries reports actions on the attributes of an index that the operation's keys set.
func (l *loader) checkEntries(op *Operation, what string, actions []*Action) {
	if !op.Keys || len(op.Records) != 1 {
		return
	}
	_, entries := op.Records[0].KeyAttributes()
	for _, a := range actions {
		i := slices.IndexFunc(entries, func(e *Entry) bool { return slices.Contains(e.Index.Attributes(), a.Attr.Name) })
		if i >= 0 && a.Attr.Family == nil {
			l.Errorf(a.Attr.Pos, "%s: keys sets attribute %s already", what, a.Attr.Name)
		}
	}
}

// checkTarget reports an attribute that must not be changed, or is changed before.
func (s *scope) checkTarget(a *Action, earlier []*Action) {
	if a.Attr.Refused {
		s.Errorf(a.Attr.Pos, "%s: attribute %s is refused, and never written", s.what, a.Attr.Name)
	}
	if a.Attr.Family == nil {
		for _, r := range s.records {
			for _, attribute := range r.Attributes {
				if attribute.Name == a.Attr.Name && attribute.From != nil {
					s.Errorf(a.Attr.Pos, "%s: attribute %s follows from the key; use keys", s.what, a.Attr.Name)
					return
				}
			}
		}
		if a.Attr.Name == "PK" || a.Attr.Name == "SK" {
			s.Errorf(a.Attr.Pos, "%s: the key of an item cannot be changed", s.what)
		}
	}
	for _, other := range earlier {
		if a.Attr.same(other.Attr) {
			s.Errorf(a.Attr.Pos, "%s has two actions on attribute %s", s.what, a.Attr.Name)
		}
	}
}

// same reports whether two references name one attribute of the item, or of one member.
func (r Ref) same(o Ref) bool { return r.Name == o.Name && r.Family == o.Family }

// inIndexBy reports whether an attribute is of the key of an index that the record is in.
func (r *Record) inIndexBy(name string) bool {
	return slices.ContainsFunc(r.Entries, func(e *Entry) bool { return slices.Contains(e.Index.Attributes(), name) })
}

// refused returns a refused attribute of the item, nil for none of that name.
func (r *Record) refused(name string) *Refused {
	if i := slices.IndexFunc(r.Refused, func(x *Refused) bool { return x.Prefix == "" && x.Name == name }); i >= 0 {
		return r.Refused[i]
	}
	return nil
}

// ref finds an attribute. An attribute of the family comes first. Then comes one that all records have in the same
// type, or a key of an index of all records.
func (s *scope) ref(pos document.Pos, name string) Ref {
	if s.members != nil {
		for _, a := range s.members.Fields {
			if a.Name == name {
				return Ref{Pos: pos, Name: name, Type: a.Type, Scale: a.Scale, Null: a.Empty == Null, Family: s.members}
			}
		}
	}
	ref := Ref{Pos: pos, Name: name}
	if name == "PK" || name == "SK" {
		ref.Type = S
		return ref
	}
	for _, r := range s.records {
		if x := r.refused(name); x != nil && (ref.Type == "" || ref.Type == x.Type) {
			ref.Type, ref.Refused = x.Type, true
			continue
		}
		i := slices.IndexFunc(r.Attributes, func(a *Attribute) bool { return a.Name == name })
		switch {
		case i < 0 && r.inIndexBy(name):
			ref.Type = S
			continue
		case i < 0:
			s.Errorf(pos, "%s: record %s has no attribute %q", s.what, r.Name, name)
			return ref
		case ref.Type != "" && ref.Type != r.Attributes[i].Type:
			s.Errorf(pos, "%s: attribute %s is of type %s in one record and %s in record %s",
				s.what, name, ref.Type, r.Attributes[i].Type, r.Name)
			return Ref{Pos: pos, Name: name}
		case ref.Type != "" && ref.Scale != r.Attributes[i].Scale:
			s.Errorf(pos, "%s: attribute %s has another scale in record %s", s.what, name, r.Name)
			return Ref{Pos: pos, Name: name}
		}
		ref.Type, ref.Scale, ref.Null = r.Attributes[i].Type, r.Attributes[i].Scale, r.Attributes[i].Empty == Null
	}
	return ref
}

// demand reports an attribute that is of none of the types.
func (s *scope) demand(attr Ref, use string, types ...Type) {
	if attr.Type == "" || slices.Contains(types, attr.Type) {
		return
	}
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	s.Errorf(attr.Pos, "%s: attribute %s %s and is of type %s, not %s",
		s.what, attr.Name, use, attr.Type, strings.Join(names, " or "))
}

// arg finds an argument and notes the type that its use gives it.
func (s *scope) arg(pos document.Pos, name string, attr Ref) *Arg {
	for _, a := range s.args {
		if a.Name != name {
			continue
		}
		first, again := s.used[a]
		if again && first.Type != "" && attr.Type != "" && first.Type != attr.Type {
			s.Errorf(pos, "%s: argument %s is of type %s with attribute %s and of type %s with attribute %s",
				s.what, name, first.Type, first.Name, attr.Type, attr.Name)
		}
		if again && first.Type != "" && first.Type == attr.Type && first.Scale != attr.Scale {
			s.Errorf(pos, "%s: argument %s is used with attributes of different scales, %s and %s",
				s.what, name, first.Name, attr.Name)
		}
		if !again {
			s.used[a] = attr
		}
		if again && first.Type != "" && attr.Type != "" && first.Null != attr.Null {
			s.Errorf(pos, "%s: argument %s is NULL where it is empty with one of the attributes %s and %s alone", s.what, name, first.Name, attr.Name)
		}
		a.Type, a.Scale, a.Null = cmp.Or(a.Type, attr.Type), cmp.Or(a.Scale, attr.Scale), attr.Null
		return a
	}
	s.Errorf(pos, "%s: argument %s is not declared", s.what, name)
	return nil
}

// finish reports arguments that no term has used.
func (s *scope) finish(args []*Arg) {
	for _, a := range args {
		if _, ok := s.used[a]; !ok {
			s.Errorf(a.Pos, "%s: argument %s is not used", s.what, a.Name)
		}
	}
}

// says reports whether a list of terms has any, well-formed or not.
func says(list *yaml.Node) bool {
	return list != nil && (document.Follow(list).Kind != yaml.SequenceNode || len(document.Follow(list).Content) > 0)
}

// asks reports whether a clause has a condition.
func (op *Operation) asks() bool {
	return slices.ContainsFunc(op.Clauses, func(c *Clause) bool { return len(c.Where) > 0 })
}

// does reports whether a clause has an action.
func (op *Operation) does() bool {
	return slices.ContainsFunc(op.Clauses, func(c *Clause) bool { return len(c.Actions) > 0 })
}

// checkEffect reports an operation whose kind of write does not go with its effects.
func (l *loader) checkEffect(op *Operation, what string, asks, does bool) {
	switch {
	case op.Write == "":
	case op.Write == "update" && !does:
		l.Errorf(op.Pos, "%s updates nothing: it has no do", what)
	case op.Write != "update" && does:
		l.Errorf(op.Pos, "%s is a %s, which has no do", what, op.Write)
	case op.Write != "update" && !asks:
		l.Errorf(op.Pos, "%s is a %s without a where", what, op.Write)
	}
}

// checkStamp finds out whether an operation moves the stamp of its record. One that depends on a value of the stamp and does not change
// it sets nothing: another write may have depended on the same value.
func (l *loader) checkStamp(op *Operation, what string) {
	if len(op.Records) != 1 || op.Records[0].Stamp == nil {
		return
	}
	stamp := op.Records[0].Stamp.Name
	isStamp := func(r Ref) bool { return r.Family == nil && r.Name == stamp }
	op.Moves = slices.ContainsFunc(op.Actions, func(a *Action) bool { return a.Op == "set" && isStamp(a.Attr) })
	goesBy := slices.ContainsFunc(op.Where, func(c *Condition) bool { return c.Arg != nil && isStamp(c.Attr) })
	if op.Moves || !goesBy {
		return
	}
	for _, c := range op.Clauses {
		if c.Sets() {
			l.Errorf(c.Pos, "%s: clause %s sets or removes attributes unconditionally, in an operation that depends on stamp %s and does not change it", what, c.Name, stamp)
		}
	}
}
