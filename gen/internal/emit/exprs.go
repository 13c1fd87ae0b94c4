package emit

import (
	. "github.com/dave/jennifer/jen"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

func exprs(f *file, s *schema.Schema) {
	for _, op := range s.Operations {
		if len(op.Clauses) > 0 {
			clauseConstants(f, op)
		}
		operationVar(f, op)
		if op.Moves {
			setters(f, op)
		}
	}
}

// setters writes which clauses of an operation set or remove attributes, and ask nothing of them.
func setters(f *file, op *schema.Operation) {
	f.doc(op.Sets() + " lists the clauses of " + op.Func() + " that set or remove attributes unconditionally. A write with one of them moves the stamp, since another write may depend on the same one.")
	var sets []Code
	for _, c := range op.Clauses {
		if c.Sets() {
			sets = append(sets, Id(op.ClauseConst(c)).Op(":").True())
		}
	}
	f.Var().Id(op.Sets()).Op("=").Index(Lit(len(op.Clauses))).Bool().Add(fields(sets...))
}

func callers(f *file, s *schema.Schema) {
	for _, op := range s.Operations {
		if len(op.Clauses) > 0 {
			callType(f, op)
			continue
		}
		f.doc(operationDoc(op))
		params := operationParams(op, len("func  (expr.Bound, error) {"))
		f.Func().Id(op.Func()).Add(params).Params(Qual(exprPkg, "Bound"), Error()).BlockFunc(func(g *Group) {
			g.Return(start(g, op).Dot("Bind").Call())
		})
	}
}

func operationDoc(op *schema.Operation) string {
	return op.Func() + " " + sentence(lower(op.Doc)) + argList(op.Args)
}

func clauseConstants(f *file, op *schema.Operation) {
	if len(op.Clauses) == 1 {
		f.doc("The clause of " + op.Func() + ".")
		f.Const().Id(op.ClauseConst(op.Clauses[0])).Op("=").Lit(0)
		return
	}
	f.doc("The clauses of " + op.Func() + ".")
	f.Const().DefsFunc(func(g *Group) {
		for i, c := range op.Clauses {
			if i == 0 {
				g.Id(op.ClauseConst(c)).Op("=").Iota()
			} else {
				g.Id(op.ClauseConst(c))
			}
		}
	})
}

func operationVar(f *file, op *schema.Operation) {
	placeholders := len(op.Args)
	where, update := conditions(8, op.Where), actions(op.Actions)
	if op.Keys {
		repeated, entries := op.Records[0].KeyAttributes()
		set := func(name string) {
			update = append(update, exprCall("Set", exprCall("Attr", Lit(name)), Lit(placeholders)))
			placeholders++
		}
		for _, a := range repeated {
			set(a.Name)
		}
		for _, e := range entries {
			for _, name := range e.Attributes() {
				set(name)
			}
		}
	}
	parts := parts(op.Name, placeholders, where, update, 4)
	if len(op.Clauses) > 0 {
		var clauses []Code
		for _, c := range op.Clauses {
			clauses = append(clauses, Id(op.ClauseConst(c)).Op(":").Add(
				fields(partsOfClause(c)...)))
		}
		parts = append(parts, field("Clauses", Index().Qual(exprPkg, "Clause").Add(fields(clauses...))))
	}
	f.Line()
	f.Var().Id(op.Var()).Op("=").Qual(exprPkg, "Operation").Add(fields(parts...))
}

func partsOfClause(c *schema.Clause) []Code {
	return parts(c.Name, len(c.Args), conditions(16, c.Where), actions(c.Actions), 12)
}

// parts writes the fields that operations and clauses share.
func parts(name string, placeholders int, where, update []Code, indent int) []Code {
	parts := []Code{field("Name", Lit(name))}
	if placeholders > 0 {
		parts = append(parts, field("Placeholders", Lit(placeholders)))
	}
	if len(where) > 0 {
		parts = append(parts, field("Where", Index().Qual(exprPkg, "Condition").Add(values(indent+len("Where:  []expr.Condition{},"), where...))))
	}
	if len(update) > 0 {
		parts = append(parts, field("Update", Index().Qual(exprPkg, "Action").Add(values(indent+len("Update: []expr.Action{},"), update...))))
	}
	return parts
}

func exprCall(name string, args ...Code) *Statement { return Qual(exprPkg, name).Call(args...) }

func path(attr schema.Ref) *Statement {
	if attr.Family == nil {
		return exprCall("Attr", Lit(attr.Name))
	}
	suffix := ""
	if attr.Family.PerAttr {
		suffix = "_" + attr.Name
	}
	return exprCall("Of", Lit(attr.Family.Prefix), Lit(suffix))
}

// comparisons are the constructors of conditions.
var comparisons = map[string]string{
	"=": "EQ", "<": "LT", "<=": "LE", ">": "GT", ">=": "GE", "exists": "Exists", "absent": "Absent", "and": "All", "or": "Any",
}

// conditions writes conditions that start at a column.
func conditions(column int, conditions []*schema.Condition) []Code {
	codes := make([]Code, len(conditions))
	for i, c := range conditions {
		codes[i] = condition(column, c)
	}
	return codes
}

func condition(column int, c *schema.Condition) *Statement {
	constructor := comparisons[c.Op]
	switch {
	case len(c.Args) > 0:
		args := conditions(column+4, c.Args)
		return Qual(exprPkg, constructor).Add(arguments(column+len("expr.All(),"), args...))
	case c.Arg == nil:
		return exprCall(constructor, path(c.Attr))
	default:
		return exprCall(constructor, path(c.Attr), Lit(c.Arg.Slot))
	}
}

// changes are the constructors of actions.
var changes = map[string]string{
	"set": "Set", "default": "Default", "plus": "Plus", "minus": "Minus", "gather": "Gather",
	"remove": "Remove", "add": "Add", "delete": "Delete",
}

func actions(actions []*schema.Action) []Code {
	codes := make([]Code, len(actions))
	for i, a := range actions {
		switch {
		case a.Op == "gather":
			codes[i] = exprCall(changes[a.Op], path(a.Attr), path(a.From))
		case a.Arg == nil:
			codes[i] = exprCall(changes[a.Op], path(a.Attr))
		default:
			codes[i] = exprCall(changes[a.Op], path(a.Attr), Lit(a.Arg.Slot))
		}
	}
	return codes
}

// operationParams writes the parameters of an operation's function, whose line has beside columns of other text.
func operationParams(op *schema.Operation, beside int) *Statement {
	params := argParams(op.Args)
	if op.Keys {
		params = append([]member{{name: "key", typ: Id(op.Records[0].KeyType())}}, params...)
	}
	return parameters(beside+len(op.Func()), params...)
}

func argParams(args []*schema.Arg) []member {
	params := make([]member, len(args))
	for i, a := range args {
		params[i] = member{name: schema.Unexported(a.Name), typ: goType(a.Type)}
	}
	return params
}

func argValues(args []*schema.Arg) []Code {
	values := make([]Code, len(args))
	for i, a := range args {
		x := Id(schema.Unexported(a.Name))
		if values[i] = value(a.Type, a.Scale, x); a.Null {
			values[i] = Id("orNull").Call(isZero(a.Type, x), value(a.Type, a.Scale, x))
		}
	}
	return values
}

// start writes the expression that starts a call of an operation, and the statements before it.
func start(g *Group, op *schema.Operation) *Statement {
	args := argValues(op.Args)
	if op.Keys {
		repeated, entries := op.Records[0].KeyAttributes()
		for _, a := range repeated {
			x := Id("key").Dot(schema.Exported(a.From.Name))
			if a.From.Int {
				x = Int64().Call(x)
			}
			args = append(args, value(a.Type, 0, x))
		}
		for _, e := range entries {
			call := Id("key").Dot(e.Index.Method()).Call()
			if e.Index.Local {
				args = append(args, exprCall("S", call))
				continue
			}
			pk, sk := e.Index.Variable()+"PK", e.Index.Variable()+"SK"
			g.List(Id(pk), Id(sk)).Op(":=").Add(call)
			args = append(args, exprCall("S", Id(pk)), exprCall("S", Id(sk)))
		}
	}
	beside := len("    return {.Call()}.Bind()") + len(op.CallType()) + len(op.Var())
	return Id(op.Var()).Dot("Call").Add(arguments(beside, args...))
}

func callType(f *file, op *schema.Operation) {
	f.doc(op.CallType() + " collects the clauses of a call of " + op.Func() + ". Bind ends it.")
	f.Type().Id(op.CallType()).Struct(Op("*").Qual(exprPkg, "Call"))
	f.doc(operationDoc(op))
	params := operationParams(op, len("func  {")+len(op.CallType()))
	f.Func().Id(op.Func()).Add(params).Id(op.CallType()).BlockFunc(func(g *Group) {
		call := start(g, op)
		g.Return(Id(op.CallType()).Values(call))
	})
	for _, c := range op.Clauses {
		method := c.Method()
		f.doc(method + " " + sentence(lower(c.Doc)) + argList(c.Args))
		params, name := argParams(c.Args), Lit("")
		if c.Family != nil {
			id := schema.Unexported(c.Family.Var.Name)
			name = Id(id)
			params = append([]member{{name: id, typ: String()}}, params...)
		}
		values := append([]Code{Id(op.ClauseConst(c)), name}, argValues(c.Args)...)
		f.Func().Params(Id("c").Id(op.CallType())).Id(method).
			Add(parameters(len("func (c )  {")+len(op.CallType())+len(method), params...)).
			Block(Id("c").Dot("Pick").Add(arguments(len("    c.Pick()"), values...)))
	}
}
