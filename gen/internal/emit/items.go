package emit

import (
	"slices"
	"strings"

	. "github.com/dave/jennifer/jen"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

// items writes the records whose key begins with a field, and that other programs read: what namespaces hold for users.
func items(f *file, s *schema.Schema) {
	records(f, s, func(r *schema.Record) bool { return r.PK.Prefix() == "" && !r.Internal })
}

// internalItems writes the records of namespaces that only this module reads.
func internalItems(f *file, s *schema.Schema) {
	records(f, s, func(r *schema.Record) bool { return r.PK.Prefix() == "" && r.Internal })
}

// tableItems writes the records whose key always begins with the same text: those that the table holds once.
func tableItems(f *file, s *schema.Schema) {
	records(f, s, func(r *schema.Record) bool { return r.PK.Prefix() != "" })
}

// records writes a struct per record, with its encoder and decoder, of those that belong into a file.
func records(f *file, s *schema.Schema, belongs func(*schema.Record) bool) {
	for _, r := range s.Records {
		if !belongs(r) {
			continue
		}
		itemType(f, r)
		encoder(f, r)
		decoder(f, r)
		if r.RefusedVar() != "" {
			refused(f, r)
		}
		if r.ReservesFunc() != "" {
			reserves(f, s, r)
		}
	}
}

// refused writes the list of the attributes by which an item is refused.
func refused(f *file, r *schema.Record) {
	var list []Code
	for _, x := range r.Refused {
		values := []Code{field("name", Lit(x.Name)), field("feature", Op("&").Id(x.Refuse.Var()))}
		if x.Prefix != "" {
			values = append([]Code{field("prefix", Lit(x.Prefix))}, values...)
		}
		if len(x.Unless) > 0 {
			values = append(values, field("unless", Index().String().Values(literals(x.Unless)...)))
		}
		list = append(list, Values(values...))
	}
	f.doc(r.RefusedVar() + " has the attributes of other programs by which " + article(noun(r)) + " item is refused.")
	f.Var().Id(r.RefusedVar()).Op("=").Id("refusals").Add(fields(list...))
}

func features(f *file, s *schema.Schema) {
	if len(s.Features) == 0 {
		return
	}
	f.doc("Features of other programs that this one does not obey.")
	f.Var().DefsFunc(func(g *Group) {
		for _, x := range s.Features {
			for _, line := range wrap(lower(x.Doc), "", lineWidth-8) {
				g.Comment(line)
			}
			g.Id(x.Var()).Op("=").Id("Feature").Values(
				field("Name", Lit(strings.ReplaceAll(x.Name, "_", " "))), field("Since", Lit(x.Since)))
		}
	})
}

// families writes the features of other programs, and the types and functions of the families of attributes.
func families(f *file, s *schema.Schema) {
	features(f, s)
	for _, m := range s.Members {
		if !strings.Contains(m.GoType(), ".") {
			memberType(f, m)
		}
		memberEncoder(f, m)
		memberDecoder(f, m)
	}
}

func goType(t schema.Type) *Statement {
	switch t {
	case schema.S:
		return String()
	case schema.N:
		return Int64()
	case schema.BOOL:
		return Bool()
	case schema.SS:
		return Index().String()
	case schema.L:
		return Index().Qual(exprPkg, "Value")
	case schema.Any:
		return Qual(exprPkg, "Value")
	default: // schema.M
		return Qual(exprPkg, "Item")
	}
}

// makers are the functions that make values.
var makers = map[schema.Type]string{
	schema.S: "S", schema.N: "N", schema.BOOL: "Bool", schema.SS: "Strings", schema.L: "List", schema.M: "Map",
}

// value returns the expression of a value of a type, with a scale if it is a number that has one.
func value(t schema.Type, scale int, x *Statement) *Statement {
	switch {
	case scale > 0:
		return Qual(exprPkg, "Decimal").Call(x, Lit(scale))
	case t == schema.Any:
		return x
	case t == schema.SS, t == schema.L:
		return Qual(exprPkg, makers[t]).Call(Add(x).Op("..."))
	default:
		return Qual(exprPkg, makers[t]).Call(x)
	}
}

// isZero returns the condition that a value is empty.
func isZero(t schema.Type, x *Statement) *Statement { return compareZero(t, x, "==", "!") }

// isSet returns the condition that a value is not empty.
func isSet(t schema.Type, x *Statement) *Statement { return compareZero(t, x, "!=", "") }

func compareZero(t schema.Type, x *Statement, operator, sign string) *Statement {
	switch t {
	case schema.S:
		return Add(x).Op(operator).Lit("")
	case schema.N:
		return Add(x).Op(operator).Lit(0)
	case schema.BOOL:
		if sign == "" {
			return x
		}
		return Op(sign).Add(x)
	case schema.Any:
		return Add(x).Dot("Kind").Call().Op(operator).Qual(exprPkg, "KindNone")
	default:
		return Len(x).Op(operator).Lit(0)
	}
}

func memberGo(m *schema.Members) *Statement {
	if pkg, name, imported := strings.Cut(m.GoType(), "."); imported {
		return Qual(internalPkg(pkg), name)
	}
	return Id(m.Type)
}

// own returns the attributes that stand for themselves.
func own(r *schema.Record) []*schema.Attribute {
	var attributes []*schema.Attribute
	for _, a := range r.Attributes {
		if a.From == nil {
			attributes = append(attributes, a)
		}
	}
	return attributes
}

func itemType(f *file, r *schema.Record) {
	list := []member{}
	for _, a := range own(r) {
		list = append(list, member{schema.Exported(a.Go), goType(a.Type), a.Name + ": " + a.Doc})
	}
	for _, x := range r.Refused {
		if x.Noted {
			list = append(list, member{schema.Exported(x.Go), Bool(), x.Name + ": " + x.Doc})
		}
	}
	for _, family := range r.Families {
		list = append(list, member{
			schema.Exported(family.Name), Index().Add(memberGo(family.Members)), family.Pattern + ", sorted by name",
		})
	}
	f.doc(r.ItemType() + " is " + article(noun(r)) + " item. " + sentence(r.Doc))
	f.Type().Id(r.ItemType()).StructFunc(func(g *Group) {
		g.Id("Key").Id(r.KeyType())
		g.Line()
		if len(list) > 0 {
			members(g, list...)
			g.Line()
		}
		members(g, member{"unknown", Qual(exprPkg, "Item"), "attributes that the schema does not know, kept as they are"})
	})
}

func article(noun string) string {
	if strings.ContainsRune("aeio", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

func attribute(name, v Code) *Statement {
	return Qual(exprPkg, "Attribute").Values(field("Name", name), field("Value", v))
}

// extend writes the call that appends attributes to the item.
func extend(attributes ...Code) *Statement {
	if len(attributes) == 1 {
		return Append(Id("item"), attributes[0])
	}
	return Id("append").Custom(Options{Open: "(item,", Close: ")", Separator: ",", Multi: true}, attributes...)
}

// stored returns the attributes that are written at all.
func stored(attributes []*schema.Attribute) []*schema.Attribute {
	return slices.DeleteFunc(slices.Clone(attributes), func(a *schema.Attribute) bool { return a.Empty == schema.Never })
}

// written returns the literal of an attribute with the value x. For an optional one it returns the statement that
// appends the attribute unless x is empty.
func written(a *schema.Attribute, name, x *Statement) (code Code, optional bool) {
	switch a.Empty {
	case schema.Omit:
		return If(isSet(a.Type, x)).Block(
			Id("item").Op("=").Add(extend(attribute(name, value(a.Type, a.Scale, x)))),
		), true
	case schema.Null:
		return attribute(name, Id("orNull").Call(isZero(a.Type, x), value(a.Type, a.Scale, x))), false
	default:
		return attribute(name, value(a.Type, a.Scale, x)), false
	}
}

// source returns the expression that an attribute of an item gets its value from.
func source(a *schema.Attribute) *Statement {
	switch {
	case a.From == nil:
		return Id("it").Dot(schema.Exported(a.Go))
	case a.From.Int:
		return Int64().Call(Id("it").Dot("Key").Dot(schema.Exported(a.From.Name)))
	default:
		return Id("it").Dot("Key").Dot(schema.Exported(a.From.Name))
	}
}

// indexKey writes the statement that computes the key of an index entry, and returns the key's attributes. The names
// of the variables start with prefix.
func indexKey(g *Group, e *schema.Entry, prefix string) []Code {
	var args []Code
	if e.When != nil {
		args = append(args, source(e.When))
	}
	call := Id("it").Dot("Key").Dot(e.Index.Method()).Call(args...)
	if e.Index.Local {
		return []Code{attribute(Lit(e.Index.SK), Qual(exprPkg, "S").Call(call))}
	}
	pk, sk := prefix+"PK", prefix+"SK"
	if prefix == "" {
		pk, sk = "pk", "sk"
	}
	g.List(Id(pk), Id(sk)).Op(":=").Add(call)
	return []Code{
		attribute(Lit(e.Index.PK), Qual(exprPkg, "S").Call(Id(pk))),
		attribute(Lit(e.Index.SK), Qual(exprPkg, "S").Call(Id(sk))),
	}
}

func encoder(f *file, r *schema.Record) {
	f.doc("Encode returns the attributes of the item except its primary key.")
	f.Func().Params(Id("it").Op("*").Id(r.ItemType())).Id("Encode").Params().Qual(exprPkg, "Item").BlockFunc(func(g *Group) {
		var always, sometimes []Code
		capacity := 0
		for _, a := range stored(r.Attributes) {
			literal, optional := written(a, Lit(a.Name), source(a))
			if optional {
				sometimes = append(sometimes, literal)
				capacity++
			} else {
				always = append(always, literal)
			}
		}
		for _, e := range r.Entries {
			if e.When == nil {
				always = append(always, indexKey(g, e, e.Index.Variable())...)
				continue
			}
			sometimes = append(sometimes, If(isSet(schema.S, source(e.When))).BlockFunc(func(g *Group) {
				literals := indexKey(g, e, "")
				g.Id("item").Op("=").Add(extend(literals...))
			}))
			capacity += len(e.Attributes())
		}
		size := Len(Id("it").Dot("unknown"))
		for i, family := range slices.Backward(r.Families) {
			plus := Op("+")
			if i%4 == 3 { // as many as there is room for on a line
				plus = plus.Line()
			}
			size = times(len(stored(family.Fields)), Id("it").Dot(schema.Exported(family.Name))).Add(plus).Add(size)
		}
		if n := len(always) + capacity; n > 0 {
			size = Lit(n).Op("+").Add(size)
		}
		g.Id("item").Op(":=").Make(Qual(exprPkg, "Item"), Lit(0), size)
		if len(always) > 0 {
			g.Id("item").Op("=").Add(extend(always...))
		}
		for _, s := range sometimes {
			g.Add(s)
		}
		for _, family := range r.Families {
			list := Id("it").Dot(schema.Exported(family.Name))
			g.For(Id("i").Op(":=").Range().Add(list)).Block(
				Id("item").Op("=").Id(family.AppendFunc()).Call(Id("item"), Op("&").Add(list).Index(Id("i"))),
			)
		}
		g.Return(Append(Id("item"), Id("it").Dot("unknown").Op("...")))
	})
}

// times writes n times the length of a list.
func times(n int, list *Statement) *Statement {
	if n == 1 {
		return Len(list)
	}
	return Lit(n).Op("*").Len(list)
}

// readers are the decoder's methods.
var readers = map[schema.Type]string{
	schema.S:    "text",
	schema.N:    "number",
	schema.BOOL: "flag",
	schema.SS:   "set",
	schema.L:    "list",
	schema.M:    "fields",
	schema.Any:  "value",
}

func notNull() *Statement {
	return Id("a").Dot("Value").Dot("Kind").Call().Op("!=").Qual(exprPkg, "KindNull")
}

func reading(a *schema.Attribute) *Statement {
	reader := readers[a.Type]
	if a.Wrap {
		reader = "wrapped"
	}
	if a.Clamp {
		reader = "clamped"
	}
	if a.Scale > 0 {
		return Id("d").Dot("decimal").Call(Id("a"), Lit(a.Scale))
	}
	return Id("d").Dot(reader).Call(Id("a"))
}

// read writes the statements that read an attribute of a record.
func read(a *schema.Attribute, target *Statement) []Code {
	assign := target.Op("=").Add(reading(a))
	switch a.Empty {
	case schema.Required:
		return []Code{assign, Id("d").Dot("found").Op("++")}
	case schema.Null:
		return []Code{If(notNull()).Block(assign)}
	default:
		return []Code{assign}
	}
}

func required(attributes []*schema.Attribute) []string {
	var names []string
	for _, a := range attributes {
		if a.Empty == schema.Required {
			names = append(names, a.Name)
		}
	}
	return names
}

func literals(texts []string) []Code {
	codes := make([]Code, len(texts))
	for i, t := range texts {
		codes[i] = Lit(t)
	}
	return codes
}

func decoder(f *file, r *schema.Record) {
	itemMemberDecoder(f, r)
	completeFunc(f, r)
	f.doc(r.DecodeFunc() + " returns " + article(noun(r)) + " item, key included. Its errors name the attribute or the member that is wrong.")
	f.Func().Id(r.DecodeFunc()).Params(Id("item").Qual(exprPkg, "Item")).Params(Id(r.ItemType()), Error()).BlockFunc(func(g *Group) {
		g.Var().Id("key").Qual(storePkg, "Key")
		if len(r.Families) == 1 || len(r.Families) > 0 && always(r.Families[0].Fields) > 1 {
			g.Id("it").Op(":=").Id(r.ItemType()).Values(roomField(r))
		} else {
			g.Var().Id("it").Id(r.ItemType())
		}
		g.Id("d").Op(":=").Id("decoder").Values(field("record", Lit(noun(r))))
		if r.Nested != "" {
			g.Id("item").Op("=").Id("lift").Call(Id("item"), Lit(r.Nested))
		}
		g.For(Id("i").Op(":=").Range().Id("item")).BlockFunc(func(g *Group) {
			g.Id("a").Op(":=").Op("&").Id("item").Index(Id("i"))
			switch prefixed := prefixed(r); len(prefixed) { // first, since most attributes are theirs
			case 0:
			case 1:
				g.If(decodeMember(prefixed[0])).Block(Continue())
			default:
				g.If(Id(r.MemberFunc()).Call(Op("&").Id("d"), Op("&").Id("it"), Id("a"))).Block(Continue())
			}
			g.Switch(Id("a").Dot("Name")).BlockFunc(func(g *Group) { attributeCases(g, r) })
		})
		completeness(g, r)
		for _, family := range r.Families {
			g.Qual("slices", "SortFunc").Call(
				Id("it").Dot(schema.Exported(family.Name)),
				Func().Params(List(Id("a"), Id("b")).Add(memberGo(family.Members))).Int().Block(
					Return(Qual("strings", "Compare").Call(Id("a").Dot("Name"), Id("b").Dot("Name"))),
				),
			)
		}
		g.Var().Id("ok").Bool()
		g.If(
			List(Id("it").Dot("Key"), Id("ok")).Op("=").Id(r.ParseFunc()).Call(Id("key")),
			Op("!").Id("ok"),
		).Block(Id("d").Dot("misplaced").Call(Id("key")))
		if r.RefusedVar() != "" {
			g.Return(Id("it"), Id("d").Dot("outcome").Call(Id("key")))
			return
		}
		g.Return(Id("it"), Id("d").Dot("failure").Call(Id("key")))
	})
}

// prefixed returns the families of a record whose attributes have a prefix.
func prefixed(r *schema.Record) []*schema.Family {
	return slices.DeleteFunc(slices.Clone(r.Families), func(f *schema.Family) bool { return f.Prefix == "" })
}

// itemMemberDecoder writes the function that tries several families of a record in turn.
func itemMemberDecoder(f *file, r *schema.Record) {
	families := prefixed(r)
	if len(families) < 2 {
		return
	}
	f.doc(r.MemberFunc() + " reads an attribute into the member of the item that it belongs to. It reports whether there is one.")
	f.Func().Id(r.MemberFunc()).Params(
		Id("d").Op("*").Id("decoder"), Id("it").Op("*").Id(r.ItemType()), Id("a").Op("*").Qual(exprPkg, "Attribute"),
	).Bool().BlockFunc(func(g *Group) {
		of := func(family *schema.Family) *Statement {
			return Id(family.DecodeFunc()).Call(Id("d"), Op("&").Id("it").Dot(schema.Exported(family.Name)), Id("a"))
		}
		terms := of(families[0])
		for _, family := range families[1:] {
			terms = terms.Op("||").Line().Add(of(family))
		}
		g.Return(terms)
	})
}

// roomField writes the field of an item literal that makes room for members: members of the first family with several attributes each.
func roomField(r *schema.Record) *Statement {
	others := 2 + always(r.Attributes) // PK, SK
	for _, e := range r.Entries {
		if e.When == nil {
			others += len(e.Attributes())
		}
	}
	family := r.Families[0]
	return field(schema.Exported(family.Name),
		Id("room").Types(memberGo(family.Members)).Call(Len(Id("item")).Op("-").Lit(others), Lit(max(1, always(family.Fields)))))
}

// always returns how many of some attributes every item has.
func always(attributes []*schema.Attribute) (n int) {
	for _, a := range stored(attributes) {
		if a.Empty != schema.Omit {
			n++
		}
	}
	return n
}

// attributeCases writes the switch over the attribute names of an item.
func attributeCases(g *Group, r *schema.Record) {
	g.Case(Qual(storePkg, "PK")).Block(Id("key").Dot("PK").Op("=").Id("d").Dot("text").Call(Id("a")))
	g.Case(Qual(storePkg, "SK")).Block(Id("key").Dot("SK").Op("=").Id("d").Dot("text").Call(Id("a")))
	for _, a := range own(r) {
		g.Case(Lit(a.Name)).Block(read(a, Id("it").Dot(schema.Exported(a.Go)))...)
	}
	var derived []string
	for _, a := range r.Attributes {
		if a.From != nil {
			derived = append(derived, a.Name)
		}
	}
	if derived = append(derived, r.IndexAttributes()...); len(derived) > 0 {
		g.Case(wrapped(literals(derived))...).Comment("// follow from the key")
	}
	keep := Id("it").Dot("unknown").Op("=").Append(Id("it").Dot("unknown"), Op("*").Id("a"))
	if r.RefusedVar() != "" {
		keep = Id("d").Dot("refuse").Call(Id(r.RefusedVar()), Id("a")).Line().Add(keep)
	}
	for _, x := range r.Refused {
		if x.Noted {
			g.Case(Lit(x.Name)).Block(Id("it").Dot(schema.Exported(x.Go)).Op("=").True(), keep.Clone())
		}
	}
	for _, family := range r.Families {
		if family.Prefix == "" {
			g.Default().Block(If(
				Id(r.ReservesFunc()).Call(Id("a").Dot("Name")).Op("||").Op("!").Add(decodeMember(family)),
			).Block(keep))
			return
		}
	}
	g.Default().Block(keep)
}

// decodeMember writes the call that reports whether an attribute is one of a family.
func decodeMember(family *schema.Family) *Statement {
	return Id(family.DecodeFunc()).Call(Op("&").Id("d"), Op("&").Id("it").Dot(schema.Exported(family.Name)), Id("a"))
}

// completeness writes the check for missing required attributes.
func completeness(g *Group, r *schema.Record) {
	total, checks := requirements(r)
	switch {
	case len(checks) > 1:
		checks = []Code{Id(r.CompleteFunc()).Call(Op("&").Id("d"), Id("item"), Op("&").Id("it"))}
		fallthrough
	case len(checks) == 1:
		g.If(Id("d").Dot("found").Op("<").Add(total)).Block(checks...)
	}
}

// completeFunc writes the function that finds what an item lacks, where several checks do.
func completeFunc(f *file, r *schema.Record) {
	_, checks := requirements(r)
	if len(checks) < 2 {
		return
	}
	f.doc(r.CompleteFunc() + " notes what " + article(noun(r)) + " item lacks.")
	f.Func().Id(r.CompleteFunc()).Params(
		Id("d").Op("*").Id("decoder"), Id("item").Qual(exprPkg, "Item"), Id("it").Op("*").Id(r.ItemType()),
	).Block(checks...)
}

// requirements returns how many required attributes an item has, and the checks of them all.
func requirements(r *schema.Record) (total *Statement, checks []Code) {
	count := func(terms ...Code) {
		if total == nil {
			total = Add(terms...)
		} else {
			total.Op("+").Add(terms...)
		}
	}
	if names := required(own(r)); len(names) > 0 {
		count(Lit(len(names)))
		checks = append(checks, Id("d").Dot("needs").Call(append([]Code{Id("item")}, literals(names)...)...))
	}
	for _, family := range r.Families {
		names := required(family.Fields)
		if len(names) == 0 {
			continue
		}
		list := Id("it").Dot(schema.Exported(family.Name))
		count(times(len(names), list))
		if !family.PerAttr {
			continue // the one field is what makes a member
		}
		args := []Code{Id("item"), Lit(family.Var.Name), Lit(family.Prefix), Id("m").Dot("Name")}
		for _, name := range names {
			args = append(args, Lit("_"+name))
		}
		checks = append(checks, For(List(Id("_"), Id("m")).Op(":=").Range().Add(list)).Block(
			Id("d").Dot("needsFields").Call(args...),
		))
	}
	return total, checks
}

// reserves writes the function that reports reserved names of members.
func reserves(f *file, s *schema.Schema, r *schema.Record) {
	var names []string
	for _, a := range r.Attributes {
		names = append(names, a.Name)
	}
	if !slices.Contains(names, s.TTL) {
		names = append(names, s.TTL)
	}
	names = append(names, s.KeyAttributes()...)
	f.doc(r.ReservesFunc() + " reports whether a name means something else in " + article(noun(r)) +
		" item, so that no member can be called so.")
	f.Func().Id(r.ReservesFunc()).Params(Id("name").String()).Bool().Block(
		Switch(Id("name")).Block(
			Case(wrapped(literals(names))...).Block(Return(True())),
			Default().Block(Return(False())),
		),
	)
}

// wrapped breaks a list of expressions into lines.
func wrapped(codes []Code) []Code {
	out := make([]Code, len(codes))
	column := 16
	for i, c := range codes {
		w := width(c) + len(", ")
		if column+w > lineWidth && i > 0 {
			out[i] = Line().Add(c)
			column = 16
		} else {
			out[i] = c
		}
		column += w
	}
	return out
}
