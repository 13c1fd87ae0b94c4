package emit

import (
	"slices"
	"strings"

	. "github.com/dave/jennifer/jen"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

// keys writes a key type per record, and the queries.
func keys(f *file, s *schema.Schema) {
	for _, r := range s.Records {
		keyType(f, r)
		f.doc("Key returns the primary key.")
		f.Func().Params(receiver(r)).Id("Key").Params().Qual(storePkg, "Key").Block(
			Return(Qual(storePkg, "Key").Add(primaryKey(r.PK, r.SK, ofKey))),
		)
		for _, e := range r.Entries {
			entry(f, r, e)
		}
		parser(f, r)
	}
	for _, q := range s.Queries {
		query(f, s, q)
	}
}

func keyType(f *file, r *schema.Record) {
	f.doc(r.KeyType() + " addresses " + article(noun(r)) + " item: " + sentence(lower(r.Doc)) + "\n\n" +
		"\tPK = " + r.PK.Text + "\n\tSK = " + r.SK.Text)
	list := []member{}
	for _, field := range r.KeyFields() {
		list = append(list, member{schema.Exported(field.Name), fieldType(field), field.Doc})
	}
	f.Type().Id(r.KeyType()).StructFunc(func(g *Group) { members(g, list...) })
}

// noun returns the name of a record for use in prose.
func noun(r *schema.Record) string { return strings.ReplaceAll(r.Name, "_", " ") }

func receiver(r *schema.Record) *Statement {
	if len(r.KeyFields()) == 0 {
		return Id(r.KeyType())
	}
	return Id("k").Id(r.KeyType())
}

func fieldType(f *schema.Field) *Statement {
	if f.Int {
		return Int()
	}
	return String()
}

// primaryKey writes the two strings of a key, in one line when they are short.
func primaryKey(pkForm, skForm *schema.Template, ref func(*schema.Field) *Statement) *Statement {
	pk, sk := concat(pkForm, ref), concat(skForm, ref)
	multi := width(pk)+width(sk) > 60
	return Custom(Options{Open: "{", Close: "}", Separator: ",", Multi: multi}, field("PK", pk), field("SK", sk))
}

// ofKey refers to a field of the receiver of a key's method.
func ofKey(f *schema.Field) *Statement { return Id("k").Dot(schema.Exported(f.Name)) }

// param refers to a field that is a parameter.
func param(f *schema.Field) *Statement { return Id(schema.Unexported(f.Name)) }

// concat writes the expression of a key string, with a line for every eight parts.
func concat(t *schema.Template, ref func(*schema.Field) *Statement) *Statement {
	expression := &Statement{}
	for i, p := range t.Parts {
		if i > 0 {
			expression.Op("+")
		}
		if i > 0 && i%8 == 0 {
			expression.Line()
		}
		expression.Add(part(p, ref))
	}
	return expression
}

func part(p schema.Part, ref func(*schema.Field) *Statement) *Statement {
	switch {
	case p.Field == nil:
		return Lit(p.Literal)
	case p.Field.Int:
		return Qual("strconv", "Itoa").Call(ref(p.Field))
	default:
		return ref(p.Field)
	}
}

func entry(f *file, r *schema.Record, e *schema.Entry) {
	name := e.Index.Method()
	doc := name + " returns the key in index " + e.Index.Name + "."
	var params []Code
	ref := ofKey
	if e.When != nil {
		doc += " An item whose " + schema.Unexported(e.When.Go) + " is empty is not in the index."
		params = append(params, Id(schema.Unexported(e.When.Go)).String())
		ref = func(f *schema.Field) *Statement {
			if f.Name == e.When.Go {
				return param(f)
			}
			return ofKey(f)
		}
	}
	doc += later(e)
	pk, sk := e.PK, e.SK
	if e.Index.Local {
		f.doc(doc + "\n\n\t" + e.Index.SK + " = " + sk.Text)
		f.Func().Params(receiver(r)).Id(name).Params(params...).String().Block(Return(concat(sk, ref)))
		return
	}
	f.doc(doc + "\n\n\t" + e.Index.PK + " = " + pk.Text + "\n\t" + e.Index.SK + " = " + sk.Text)
	f.Func().Params(receiver(r)).Id(name).Params(params...).Params(List(Id("pk"), Id("sk")).String()).Block(
		Return(concat(pk, ref), concat(sk, ref)),
	)
}

// later says which items are in an index, and when they enter it; "" if all are.
func later(e *schema.Entry) string {
	if e.Later == "" {
		return ""
	}
	return " Which items are in the index: " + sentence(lower(e.Later))
}

// parser writes the function that takes a key apart.
func parser(f *file, r *schema.Record) {
	f.doc(r.ParseFunc() + " returns the fields of a key; false when it is not that of " + article(noun(r)) + " item.")
	signature := f.Func().Id(r.ParseFunc()).Params(Id("key").Qual(storePkg, "Key")).Params(Id(r.KeyType()), Bool())
	if len(r.KeyFields()) == 0 {
		signature.Block(Return(Id(r.KeyType()).Values(), Id("key").Op("==").Id(r.KeyType()).Values().Dot("Key").Call()))
		return
	}
	signature.BlockFunc(func(g *Group) {
		var reads, checks []Code
		for _, half := range []struct {
			template     *schema.Template
			name, reader string
		}{{r.PK, "PK", "pk"}, {r.SK, "SK", "sk"}} {
			if len(half.template.Fields()) == 0 {
				checks = append(checks, Id("key").Dot(half.name).Op("==").Add(concat(half.template, ofKey)))
				continue
			}
			g.Id(half.reader).Op(":=").Id("readKey").Call(Id("key").Dot(half.name), Lit(half.template.Prefix()))
			reads = append(reads, readFields(half.template, half.reader)...)
			checks = append(checks, Id(half.reader).Dot("done").Call())
		}
		g.Id("k").Op(":=").Id(r.KeyType()).Add(fields(reads...))
		g.Return(Id("k"), Add(checks[0]).Op("&&").Add(checks[1]))
	})
}

// readFields writes the struct fields that read a key string from left to right.
func readFields(t *schema.Template, reader string) []Code {
	var reads []Code
	for i, p := range t.Parts {
		if p.Field == nil {
			continue
		}
		until := ""
		if i+1 < len(t.Parts) {
			until = t.Parts[i+1].Literal
		}
		method, args := "text", []Code{Lit(until)}
		if p.Field.Int {
			method = "number"
		}
		for _, c := range p.Field.Forbid {
			args = append(args, LitRune(c))
		}
		reads = append(reads, field(schema.Exported(p.Field.Name), Id(reader).Dot(method).Call(args...)))
	}
	return reads
}

func query(f *file, s *schema.Schema, q *schema.Query) {
	pk, sk := q.Keys()
	doc := q.Func() + " asks for " + sentence(lower(queryDoc(s, q)))
	switch names := fieldNames(q.Narrow); len(names) {
	case 0:
	case 1:
		doc += " It is narrowed by " + names[0] + " unless that is empty."
	default:
		last := len(names) - 1
		doc += " It is narrowed by " + strings.Join(names[:last], ", ") + " and " + names[last] + ", up to the first that is empty."
	}
	index, pkName, skName := "", "PK", "SK"
	if q.Entry != nil {
		index, skName = q.Entry.Index.Name, q.Entry.Index.SK
		pkName = q.Entry.Index.PK
	}
	prefix, prefixText := queryPrefix(q, pk, sk)
	f.doc(doc + "\n\n\t" + pkName + " = " + pk.Text + prefixDoc(skName, prefixText))
	parts := []Code{}
	if index != "" {
		parts = append(parts, field("Index", Lit(index)))
	}
	parts = append(parts, field("PK", concat(pk, param)))
	if prefix != nil {
		parts = append(parts, field("Prefix", prefix))
	}
	params := fieldParams(append(pk.Fields(), q.Narrow...))
	f.Func().Id(q.Func()).Add(parameters(len("func  store.Query {")+len(q.Func()), params...)).Qual(storePkg, "Query").Block(
		Return(Qual(storePkg, "Query").Add(queryFields(parts))),
	)
}

func queryFields(parts []Code) *Statement {
	if len(parts) == 1 {
		return Values(parts...)
	}
	return fields(parts...)
}

func prefixDoc(skName, text string) string {
	if text == "" {
		return ""
	}
	return "\n\t" + skName + " = " + text + "…"
}

// queryPrefix returns the expression of the sort key's prefix, nil for none, and its form. Fields of the partition key are
// known, and are part of it.
func queryPrefix(q *schema.Query, pk, sk *schema.Template) (expression *Statement, form string) {
	if q.Whole {
		return nil, ""
	}
	known := append(pk.Fields(), q.Narrow...)
	parts := sk.Parts
	if end := slices.IndexFunc(parts, func(p schema.Part) bool { return p.Field != nil && !slices.Contains(known, p.Field) }); end >= 0 {
		parts = parts[:end]
	}
	for _, p := range parts {
		if p.Field == nil {
			form += p.Literal
		} else {
			form += "{" + p.Field.Name + "}"
		}
	}
	switch {
	case form == "":
		return nil, ""
	case len(q.Narrow) == 0:
		return concat(&schema.Template{Parts: parts}, param), form
	}
	var args []Code // literal text and fields take turns
	if parts[0].Field != nil {
		args = append(args, Lit(""))
	}
	for _, p := range parts {
		args = append(args, part(p, param))
	}
	return Id("keyPrefix").Call(args...), form
}

func fieldParams(fields []*schema.Field) []member {
	params := make([]member, len(fields))
	for i, f := range fields {
		params[i] = member{name: schema.Unexported(f.Name), typ: fieldType(f)}
	}
	return params
}

func fieldNames(fields []*schema.Field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = schema.Unexported(f.Name)
	}
	return names
}
