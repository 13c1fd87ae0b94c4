package schema

import (
	"cmp"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/document"
)

// initialisms are words that Go writes in capitals.
var initialisms = []string{"api", "arn", "id", "ns", "pk", "sk", "ttl", "ulid", "url", "wcu"}

// Exported returns the Go form of a snake-case name, exported: window_key is WindowKey, event_id is EventID.
func Exported(name string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(name, "_") {
		singular := strings.TrimSuffix(word, "s")
		switch {
		case slices.Contains(initialisms, word):
			b.WriteString(strings.ToUpper(word))
		case slices.Contains(initialisms, singular):
			b.WriteString(strings.ToUpper(singular) + "s")
		default:
			b.WriteString(capital(word))
		}
	}
	return b.String()
}

// Unexported returns the Go form of a snake-case name, not exported: window_key is windowKey, id is id.
func Unexported(name string) string {
	first, rest, _ := strings.Cut(name, "_")
	return first + Exported(rest)
}

// KeyType returns the name of the type of a record's keys.
func (r *Record) KeyType() string { return Exported(r.Name) + "Key" }

// ParseFunc returns the name of the function that parses a record's keys.
func (r *Record) ParseFunc() string { return "Parse" + Exported(r.Name) + "Key" }

// IndexKeyFunc returns the name of the public function that returns the key of a record in an index.
func (r *Record) IndexKeyFunc(x *Index) string { return Exported(r.Name) + capital(x.Name) + "Key" }

// ItemType returns the name of the type of a record's items.
func (r *Record) ItemType() string { return Exported(r.Name) }

// RefusedVar returns the name of the list of a record's refused attributes, "" for a record without any.
func (r *Record) RefusedVar() string {
	if len(r.Refused) == 0 {
		return ""
	}
	return "refusedIn" + Exported(r.Name)
}

// Var returns the name of the variable that describes the feature.
func (f *Feature) Var() string { return "Feature" + Exported(f.Name) }

// DecodeFunc returns the name of the function that decodes a record's items.
func (r *Record) DecodeFunc() string { return "Decode" + Exported(r.Name) }

// MemberFunc returns the name of the function that reads an attribute of any family of a record.
func (r *Record) MemberFunc() string { return "decode" + Exported(r.Name) + "Member" }

// CompleteFunc returns the name of the function that finds what an item of a record lacks.
func (r *Record) CompleteFunc() string { return "complete" + Exported(r.Name) }

// ReservesFunc returns the name of the function that reports reserved names of members of a family without a prefix; ""
// where every name will do.
func (r *Record) ReservesFunc() string {
	for _, f := range r.Families {
		if f.Prefix == "" {
			return Exported(r.Name) + "Reserves"
		}
	}
	return ""
}

// Method returns the name of the method of keys that returns the keys of an index.
func (x *Index) Method() string {
	if x.Go != "" {
		return Exported(x.Go) + "Index"
	}
	return capital(x.Name)
}

// Variable returns how the names of the variables begin that hold a key of the index.
func (x *Index) Variable() string {
	if x.Go != "" {
		return Unexported(x.Go)
	}
	return strings.ToLower(x.Name)
}

// Noun returns a name for a member that may precede others: bucketLimit, configLimit.
func (m *Members) Noun() string {
	pkg, name, imported := strings.Cut(m.Type, ".")
	if !imported {
		return strings.ToLower(m.Type[:1]) + m.Type[1:]
	}
	return pkg + name
}

// GoType returns the Go type of a member.
func (m *Members) GoType() string { return cmp.Or(m.Held, m.Type) }

// AppendFunc returns the name of the function that encodes a member.
func (m *Members) AppendFunc() string { return "append" + capital(m.Noun()) }

// DecodeFunc returns the name of the function that decodes an attribute of a member.
func (m *Members) DecodeFunc() string { return "decode" + capital(m.Noun()) }

// AttributeName returns the Go name of the name of an attribute of a record's items.
func (r *Record) AttributeName(a *Attribute) string {
	return "Attr" + Exported(r.Name) + Exported(a.Go)
}

// AttributeName returns the Go name of the path of an attribute of members.
func (m *Members) AttributeName(a *Attribute) string {
	return "Attr" + capital(m.Noun()) + Exported(a.Go)
}

// FindFunc returns the name of the function that returns the member of a name.
func (m *Members) FindFunc() string { return m.Noun() + "Named" }

func capital(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// Func returns the name of the function that starts or binds the operation.
func (op *Operation) Func() string { return Exported(op.Name) }

// Var returns the name of the variable that holds the operation.
func (op *Operation) Var() string { return Unexported(op.Name) + "Operation" }

// Sets returns the name of the variable that lists which clauses set attributes.
func (op *Operation) Sets() string { return Unexported(op.Name) + "Sets" }

// CallType returns the name of the type that collects clauses.
func (op *Operation) CallType() string { return Exported(op.Name) + "Call" }

// ClauseConst returns the name of the index of a clause.
func (op *Operation) ClauseConst(c *Clause) string { return Unexported(op.Name) + Exported(c.Name) }

// Method returns the name of the method that picks a clause.
func (c *Clause) Method() string { return Exported(c.Name) }

// Func returns the name of the function that returns the query.
func (q *Query) Func() string { return "Query" + Exported(q.Name) }

// packageNames are names that the generated files declare for every schema, or import.
var packageNames = []string{"Table", "bucket", "expr", "layout", "slices", "store", "strconv", "strings"}

// primitives are names of the hand-written functions and types that generated code calls.
var primitives = []string{"Feature", "cutMember", "decoder", "keyPrefix", "keyReader", "lift", "orNull", "readKey", "refusal", "refusals", "room"}

// namespace is a set of Go names that must differ.
type namespace struct {
	*loader
	taken map[string]string // by what
}

func (l *loader) namespace() *namespace { return &namespace{l, map[string]string{}} }

// add takes a name, and reports one that cannot be used or is taken by something else.
func (ns *namespace) add(pos document.Pos, name, what string) {
	if other, ok := ns.taken[name]; ok {
		ns.Errorf(pos, "%s: Go name %s is taken by %s", what, name, other)
		return
	}
	ns.taken[name] = what
	ns.checkWord(pos, name, what)
}

func (l *loader) checkWord(pos document.Pos, name, what string) {
	if token.IsKeyword(name) || types.Universe.Lookup(name) != nil || name == "init" {
		l.Errorf(pos, "%s: Go has a meaning for %s", what, name)
	}
}

// checkNames reports names whose Go names are taken.
func (l *loader) checkNames() {
	s := l.schema
	pkg := l.namespace()
	for _, name := range packageNames {
		pkg.taken[name] = "the generated package"
	}
	for _, name := range primitives {
		pkg.taken[name] = "the package"
	}
	for _, f := range s.Features {
		pkg.add(f.Pos, f.Var(), "feature "+f.Name)
	}
	for _, r := range s.Records {
		what := "record " + r.Name
		for _, name := range []string{r.KeyType(), r.ParseFunc(), r.ItemType(), r.DecodeFunc(), r.MemberFunc()} {
			pkg.add(r.Pos, name, what)
		}
		for _, e := range r.Entries {
			pkg.add(e.Pos, r.IndexKeyFunc(e.Index), what+": index "+e.Index.Name)
		}
		for _, a := range r.Attributes {
			pkg.add(a.Pos, r.AttributeName(a), what+": attribute "+a.Name)
		}
		if name := r.ReservesFunc(); name != "" {
			pkg.add(r.Pos, name, what)
		}
		if name := r.RefusedVar(); name != "" {
			pkg.add(r.Pos, name, what)
		}
		l.checkRecordNames(r)
	}
	for _, m := range s.Members {
		what := "type " + m.Type
		if !strings.Contains(m.Type, ".") {
			pkg.add(m.Pos, m.Type, what)
		}
		for _, name := range []string{m.AppendFunc(), m.DecodeFunc(), m.FindFunc()} {
			pkg.add(m.Pos, name, what)
		}
		fields := l.namespace()
		fields.taken["Name"] = "the name of the member"
		for _, a := range m.Fields {
			pkg.add(a.Pos, m.AttributeName(a), what+": attribute "+a.Name)
			fields.add(a.Pos, Exported(a.Go), what+": attribute "+a.Name)
		}
	}
	for _, q := range s.Queries {
		what := "query " + q.Name
		pkg.add(q.Pos, q.Func(), what)
		pk, _ := q.Keys()
		params := l.namespace()
		for _, f := range append(pk.Fields(), q.Narrow...) {
			params.addParam(q.Pos, f.Name, what+": field "+f.Name)
		}
	}
	for _, op := range s.Operations {
		what := "operation " + op.Name
		pkg.add(op.Pos, op.Func(), what)
		pkg.add(op.Pos, op.Var(), what)
		if len(op.Clauses) > 0 {
			pkg.add(op.Pos, op.CallType(), what)
		}
		l.checkOperationNames(op, pkg)
	}
}

func (l *loader) checkRecordNames(r *Record) {
	what := "record " + r.Name
	members := l.namespace() // of the item type
	members.taken["Key"] = "the key"
	members.taken["Encode"] = "the encoder"
	for _, a := range r.Attributes {
		if a.From == nil {
			members.add(a.Pos, Exported(a.Go), what+": attribute "+a.Name)
		}
	}
	for _, x := range r.Refused {
		if x.Noted {
			members.add(x.Pos, Exported(x.Go), what+": attribute "+x.Name)
		}
	}
	for _, f := range r.Families {
		members.add(f.Pos, Exported(f.Name), what+": family "+f.Name)
	}
	parts := l.namespace() // fields and methods of the key type
	parts.taken["Key"] = "the primary key"
	builder := l.namespace() // parameters of the key's builder, and results of its parser
	builder.taken["key"] = "the key"
	builder.taken["k"] = "the fields of the key"
	builder.taken["ok"] = "the last result"
	seen := map[*Field]bool{}
	for _, f := range r.KeyFields() {
		if !seen[f] {
			parts.add(r.PK.Pos, Exported(f.Name), what+": field "+f.Name)
			builder.addParam(r.PK.Pos, f.Name, what+": field "+f.Name)
		}
		seen[f] = true
	}
	variables := l.namespace() // that hold keys of indexes
	for _, e := range r.Entries {
		parts.add(e.Pos, e.Index.Method(), what+": index "+e.Index.Name)
		variables.add(e.Pos, e.Index.Variable(), what+": index "+e.Index.Name)
		if e.When != nil {
			params := l.namespace()
			params.taken["k"] = "the receiver"
			params.taken["pk"] = "the result"
			params.taken["sk"] = "the result"
			params.addParam(e.Pos, e.When.Go, what+": index "+e.Index.Name)
		}
	}
}

func (l *loader) checkOperationNames(op *Operation, pkg *namespace) {
	what := "operation " + op.Name
	params := l.namespace()
	params.taken[op.Var()] = "the operation"
	if op.Keys {
		params.taken["key"] = "the key of the item"
		for _, e := range op.Records[0].Entries {
			params.taken[e.Index.Variable()+"PK"] = "the key in index " + e.Index.Name
			params.taken[e.Index.Variable()+"SK"] = "the key in index " + e.Index.Name
		}
	}
	for _, a := range op.Args {
		params.addParam(a.Pos, a.Name, what+": argument "+a.Name)
	}
	methods := l.namespace() // of a call, and its embedded field
	methods.taken["Call"] = "the call"
	methods.taken["Bind"] = "the end of a call"
	methods.taken["Pick"] = "the choice of a clause"
	for _, c := range op.Clauses {
		what := what + ": clause " + c.Name
		methods.add(c.Pos, c.Method(), what)
		pkg.add(c.Pos, op.ClauseConst(c), what)
		params := l.namespace()
		params.taken["c"] = "the receiver"
		params.taken[op.ClauseConst(c)] = "the clause"
		if c.Family != nil && c.Family.Var != nil {
			name := c.Family.Var.Name
			params.addParam(c.Pos, name, what+": field "+name)
			params.taken[Unexported(name)] = "the name of the member"
		}
		for _, a := range c.Args {
			params.addParam(a.Pos, a.Name, what+": argument "+a.Name)
		}
	}
}

// addParam takes the name of a parameter, and reports one that would hide another name in the body of its function.
func (ns *namespace) addParam(pos document.Pos, name, what string) {
	name = Unexported(name)
	ns.add(pos, name, what)
	if slices.Contains(packageNames, name) || name == "keyPrefix" {
		ns.Errorf(pos, "%s: %s has a meaning in the generated package", what, name)
	}
}
