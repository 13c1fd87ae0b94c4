package emit

import (
	. "github.com/dave/jennifer/jen"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

func memberType(f *file, m *schema.Members) {
	f.doc(m.Type + " is a member of the family " + m.Pattern + ". " + sentence(m.Doc))
	list := []member{{"Name", String(), m.Var.Doc}}
	for _, a := range m.Fields {
		list = append(list, member{schema.Exported(a.Go), goType(a.Type), a.Name + ": " + a.Doc})
	}
	f.Type().Id(m.Type).StructFunc(func(g *Group) { members(g, list...) })
}

// memberEncoder writes the function that appends the attributes of a member.
func memberEncoder(f *file, m *schema.Members) {
	f.doc(m.AppendFunc() + " appends the attributes of a " + m.Var.Name + " to an item.")
	f.Func().Id(m.AppendFunc()).Params(
		Id("item").Qual(exprPkg, "Item"), Id("m").Op("*").Add(memberGo(m)),
	).Qual(exprPkg, "Item").BlockFunc(func(g *Group) {
		name := Id("m").Dot("Name")
		if m.Prefix != "" {
			name = Lit(m.Prefix).Op("+").Add(name)
		}
		if m.PerAttr {
			g.Id("prefix").Op(":=").Add(name).Op("+").Lit("_")
		}
		var always, sometimes []Code
		for _, a := range stored(m.Fields) {
			name := name
			if m.PerAttr {
				name = Id("prefix").Op("+").Lit(a.Name)
			}
			value := Id("m").Dot(schema.Exported(a.Go))
			if a.Method {
				value = value.Call()
			}
			literal, optional := written(a, name, value)
			if optional {
				sometimes = append(sometimes, literal)
			} else {
				always = append(always, literal)
			}
		}
		if len(sometimes) == 0 {
			g.Return(extend(always...))
			return
		}
		if len(always) > 0 {
			g.Id("item").Op("=").Add(extend(always...))
		}
		for _, s := range sometimes {
			g.Add(s)
		}
		g.Return(Id("item"))
	})
}

// memberDecoder writes two functions: one reads an attribute of a member, and one finds the member.
func memberDecoder(f *file, m *schema.Members) {
	f.doc(m.DecodeFunc() + " reads an attribute into the " + m.Var.Name + " that it belongs to. It reports whether there is one.")
	f.Func().Id(m.DecodeFunc()).Params(
		Id("d").Op("*").Id("decoder"), Id("members").Op("*").Index().Add(memberGo(m)), Id("a").Op("*").Qual(exprPkg, "Attribute"),
	).Bool().BlockFunc(func(g *Group) {
		find := func(name *Statement) *Statement { return Id(m.FindFunc()).Call(Id("members"), name) }
		if !m.PerAttr {
			a := m.Fields[0]
			name := Id("a").Dot("Name")
			mismatch := Id("a").Dot("Value").Dot("Kind").Call().Op("!=").Qual(exprPkg, kindName(a.Type))
			if m.Prefix != "" {
				g.List(Id("name"), Id("ok")).Op(":=").Qual("strings", "CutPrefix").Call(Id("a").Dot("Name"), Lit(m.Prefix))
				name = Id("name")
				mismatch = Op("!").Id("ok").Op("||").Id("name").Op("==").Lit("").Op("||").Add(mismatch)
			}
			g.If(mismatch).Block(Return(False()))
			for _, c := range readMember(a, find(name)) {
				g.Add(c)
			}
			g.Return(True())
			return
		}
		rest := Id("a").Dot("Name")
		if m.Prefix != "" {
			g.List(Id("rest"), Id("ok")).Op(":=").Qual("strings", "CutPrefix").Call(rest, Lit(m.Prefix))
			g.If(Op("!").Id("ok")).Block(Return(False()))
			rest = Id("rest")
		}
		g.List(Id("name"), Id("field")).Op(":=").Id("cutMember").Call(rest)
		g.Switch(Id("field")).BlockFunc(func(g *Group) {
			for _, a := range m.Fields {
				g.Case(Lit(a.Name)).Block(readMember(a, find(Id("name")))...)
			}
			g.Default().Block(Return(False()))
		})
		g.Return(True())
	})
	f.doc(m.FindFunc() + " returns the " + m.Var.Name + " of a name, which is added when it is not there yet. " +
		"The last one is tried first, since the attributes of one tend to follow each other.")
	f.Func().Id(m.FindFunc()).Params(
		Id("members").Op("*").Index().Add(memberGo(m)), Id("name").String(),
	).Op("*").Add(memberGo(m)).Block(
		Id("list").Op(":=").Op("*").Id("members"),
		For(Id("i").Op(":=").Len(Id("list")).Op("-").Lit(1), Id("i").Op(">=").Lit(0), Id("i").Op("--")).Block(
			If(Id("list").Index(Id("i")).Dot("Name").Op("==").Id("name")).Block(Return(Op("&").Id("list").Index(Id("i")))),
		),
		Op("*").Id("members").Op("=").Append(Id("list"), memberGo(m).Values(field("Name", Id("name")))),
		Return(Op("&").Parens(Op("*").Id("members")).Index(Len(Id("list")))),
	)
}

// readMember writes the statements that read an attribute of a member. An attribute that is NULL makes a member, too.
func readMember(a *schema.Attribute, find *Statement) []Code {
	if a.Empty == schema.Null {
		return []Code{If(Id("m").Op(":=").Add(find), notNull()).Block(
			Id("m").Dot(schema.Exported(a.Go)).Op("=").Add(reading(a)),
		)}
	}
	if a.Method {
		return []Code{find.Dot("Set" + schema.Exported(a.Go)).Call(reading(a))}
	}
	return read(a, find.Dot(schema.Exported(a.Go)))
}

func kindName(t schema.Type) string {
	switch t {
	case schema.BOOL:
		return "KindBool"
	default:
		return "Kind" + string(t)
	}
}
