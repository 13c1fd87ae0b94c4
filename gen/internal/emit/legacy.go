package emit

import (
	"fmt"
	"strings"

	. "github.com/dave/jennifer/jen"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

const legacyFile = "spec/legacy.yaml"

// Legacy returns the outputs of the records of older layouts by their path in the module. They are keys and items, as
// those of the schema, in files of their own.
func Legacy(s *schema.Schema) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, output := range []struct {
		name string
		emit func(*file, *schema.Schema)
	}{
		{"legacy_keys_gen.go", keys},
		{"legacy_items_gen.go", legacyItems},
		{"legacy_records_gen_test.go", legacyTests},
	} {
		f := newFile(layoutPkg, legacyFile)
		output.emit(f, s)
		path := strings.TrimPrefix(layoutPkg, module+"/") + "/" + output.name
		text, err := f.render()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		files[path] = text
	}
	return files, nil
}

// legacyItems writes the items, each with a method that reports what a reader loses.
func legacyItems(f *file, s *schema.Schema) {
	records(f, s, func(*schema.Record) bool { return true })
	families(f, s)
	for _, r := range s.Records {
		f.doc("Unknown returns the attributes that legacy.yaml does not know, including attributes of indexes.")
		f.Func().Params(Id("it").Op("*").Id(r.ItemType())).Id("Unknown").Params().Qual(exprPkg, "Item").Block(
			Return(Id("it").Dot("unknown")),
		)
	}
}

// legacyTests adds the records to the tables of the schema's records.
func legacyTests(f *file, s *schema.Schema) {
	keys, items := kinds(s)
	f.Line()
	f.Func().Id("init").Params().Block(
		Id("keyKinds").Op("=").Id("append").Custom(Options{Open: "(keyKinds,", Close: ")", Separator: ",", Multi: true}, keys...),
		Id("itemKinds").Op("=").Id("append").Custom(Options{Open: "(itemKinds,", Close: ")", Separator: ",", Multi: true}, items...),
	)
}
