package emit

import (
	"slices"

	. "github.com/dave/jennifer/jen"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

// builders writes the functions that make keys and parse them, for readers of exported tables.
func builders(f *file, s *schema.Schema) {
	f.doc("A Key is the primary key of an item of the table, or its key in an index. The functions that return or take one are for " +
		"work on a table without a [RateLimiter]: looking at items, reading exports, writing policies about leading keys. They take " +
		"names that are valid, and namespaces by their ids, which [NamespaceService.Get] returns. An item of an export is of the " +
		"kind whose parser returns true. docs/schema.md says what the items hold.")
	f.Type().Id("Key").Struct(List(Id("PK"), Id("SK")).String())
	for _, r := range s.Records {
		if r.Internal {
			continue
		}
		key := Id("Key").Add(primaryKey(r.PK, r.SK, param))
		builder(f, r.KeyType(), fieldParams(r.KeyFields()), key,
			"the key of "+article(noun(r))+" item: "+sentence(lower(r.Doc))+"\n\n\tPK = "+r.PK.Text+"\n\tSK = "+r.SK.Text)
		publicParser(f, r)
		for _, e := range r.Entries {
			if !e.Index.Internal {
				indexBuilder(f, r, e)
			}
		}
	}
}

func builder(f *file, name string, params []member, key Code, returns string) {
	f.doc(name + " returns " + returns)
	f.Func().Id(name).Add(parameters(len("func  Key {")+len(name), params...)).Id("Key").Block(Return(key))
}

func indexBuilder(f *file, r *schema.Record, e *schema.Entry) {
	returns := "the key of " + article(noun(r)) + " item in index " + e.Index.Name + "."
	params := slices.DeleteFunc(r.KeyFields(), func(of *schema.Field) bool {
		return !slices.Contains(e.PK.Fields(), of) && !slices.Contains(e.SK.Fields(), of)
	})
	for _, of := range slices.Concat(e.PK.Fields(), e.SK.Fields()) { // one of them may be that of when
		if !slices.Contains(params, of) {
			params = append(params, of)
			returns += " An item without " + article(of.Name) + " is not in the index."
		}
	}
	returns += later(e)
	pk, sk := e.Index.PK, e.Index.SK
	if e.Index.Local {
		pk = "PK"
	}
	builder(f, r.IndexKeyFunc(e.Index), fieldParams(params),
		Id("Key").Add(primaryKey(e.PK, e.SK, param)), returns+"\n\n\t"+pk+" = "+e.PK.Text+"\n\t"+sk+" = "+e.SK.Text)
}

// publicParser writes the function that takes a key apart, by the parser of package layout.
func publicParser(f *file, r *schema.Record) {
	name := r.ParseFunc()
	results := fieldParams(r.KeyFields())
	key := Qual(storePkg, "Key").Call(Id("key"))
	parse := Qual(layoutPkg, name).Call(key)
	if len(results) == 0 {
		f.doc(name + " reports whether a key is that of " + article(noun(r)) + " item.")
		f.Func().Id(name).Params(Id("key").Id("Key")).Bool().Block(
			List(Id("_"), Id("ok")).Op(":=").Add(parse),
			Return(Id("ok")),
		)
		return
	}
	f.doc(name + " returns what [" + r.KeyType() + "] makes a key of; ok is false when the key is not that of " + article(noun(r)) + " item.")
	var values []Code
	for _, of := range r.KeyFields() {
		values = append(values, Id("k").Dot(schema.Exported(of.Name)))
	}
	f.Func().Id(name).Params(Id("key").Id("Key")).Add(parameters(len("func (key Key)  {")+len(name), append(results, member{name: "ok", typ: Bool()})...)).Block(
		List(Id("k"), Id("ok")).Op(":=").Add(parse),
		Return(append(values, Id("ok"))...),
	)
}
