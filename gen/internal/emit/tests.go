package emit

import (
	. "github.com/dave/jennifer/jen"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

// tests writes the tables for the tests that hold for every record and every operation: records_test.go has them.
func tests(f *file, s *schema.Schema) {
	f.doc("forbidden has the characters besides # that fields of keys do not have.")
	f.Var().Id("forbidden").Op("=").Map(String()).String().Add(forbidden(s))

	f.doc("readOnly has the fields of items and members that are never written.")
	f.Var().Id("readOnly").Op("=").Map(String()).Bool().Add(readOnly(s))

	keys, items := kinds(s)
	f.Line()
	f.Var().Id("keyKinds").Op("=").Index().Id("keyKind").Add(fields(keys...))
	f.Line()
	f.Var().Id("itemKinds").Op("=").Index().Id("itemKind").Add(fields(items...))

	var calls []Code
	for _, op := range s.Operations {
		calls = append(calls, operationCalls(op)...)
	}
	f.doc("calls has a call of every operation, and one with each clause.")
	f.Var().Id("calls").Op("=").Index().Id("operationCall").Add(fields(calls...))
}

// kinds writes the elements of the tables of all records: of their keys, and of their items.
func kinds(s *schema.Schema) (keys, items []Code) {
	for _, r := range s.Records {
		keys = append(keys, Id("keysOf").Call(Lit(noun(r)), Id(r.ParseFunc())))
		items = append(items, Id("itemsOf").Call(Lit(noun(r)), Id(r.DecodeFunc()),
			Func().Params(Id("it").Op("*").Id(r.ItemType())).Qual(storePkg, "Key").Block(
				Return(Id("it").Dot("Key").Dot("Key").Call()))))
	}
	return keys, items
}

func forbidden(s *schema.Schema) *Statement {
	var pairs []Code
	for _, field := range s.Fields {
		if field.Forbid != "" {
			pairs = append(pairs, Lit(schema.Exported(field.Name)).Op(":").Lit(field.Forbid))
		}
	}
	return Values(pairs...)
}

func readOnly(s *schema.Schema) *Statement {
	var pairs []Code
	seen := map[string]bool{}
	note := func(attributes []*schema.Attribute) {
		for _, a := range attributes {
			if name := schema.Exported(a.Go); a.Empty == schema.Never && !seen[name] {
				seen[name] = true
				pairs = append(pairs, Lit(name).Op(":").True())
			}
		}
	}
	for _, r := range s.Records {
		note(r.Attributes)
		for _, x := range r.Refused {
			if name := schema.Exported(x.Go); x.Noted && !seen[name] {
				seen[name] = true
				pairs = append(pairs, Lit(name).Op(":").True())
			}
		}
	}
	for _, m := range s.Members {
		note(m.Fields)
	}
	return Values(pairs...)
}

// operationCalls writes a call of an operation by itself, and one with each of its clauses.
func operationCalls(op *schema.Operation) []Code {
	name := op.Func()
	result := func() *Statement { return Func().Params().Params(Qual(exprPkg, "Bound"), Error()) }
	call := func() *Statement { return Id(name).Call(samples(op)...) }
	switch {
	case len(op.Clauses) > 0:
	case len(op.Args) == 0 && !op.Keys:
		return []Code{Values(Lit(name), Id(name))}
	default:
		return []Code{Values(Lit(name), result().Block(Return(call())))}
	}
	calls := []Code{Values(Lit(name), result().Block(Return(call().Dot("Bind").Call())))}
	for _, c := range op.Clauses {
		method := c.Method()
		var args []Code
		if c.Family != nil {
			args = append(args, Lit("m"))
		}
		for _, a := range c.Args {
			args = append(args, sample(a.Type))
		}
		calls = append(calls, Values(Lit(name+" "+method), result().Block(
			Id("c").Op(":=").Add(call()),
			Id("c").Dot(method).Call(args...),
			Return(Id("c").Dot("Bind").Call()),
		)))
	}
	return calls
}

// samples returns arguments for an operation's function.
func samples(op *schema.Operation) []Code {
	var args []Code
	if op.Keys {
		args = append(args, Id(op.Records[0].KeyType()).Values())
	}
	for _, a := range op.Args {
		args = append(args, sample(a.Type))
	}
	return args
}

func sample(t schema.Type) *Statement {
	switch t {
	case schema.S:
		return Lit("x")
	case schema.N:
		return Lit(1)
	case schema.BOOL:
		return True()
	case schema.SS:
		return Index().String().Values(Lit("x"))
	case schema.Any:
		return Qual(exprPkg, "Bool").Call(True())
	default: // schema.L, schema.M
		return goType(t).Values()
	}
}
