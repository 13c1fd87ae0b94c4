package emit

import (
	. "github.com/dave/jennifer/jen"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

// builders writes a function per record that returns the key of an item, for those who look at a table themselves.
func builders(f *file, s *schema.Schema) {
	f.doc("A Key is the primary key of an item of the table. The functions that return one are for work on a table without a " +
		"[RateLimiter]: looking at items, reading exports, writing policies about leading keys. They take names that are valid, and " +
		"namespaces by their ids, which [NamespaceService.Get] returns. docs/schema.md says what the items hold.")
	f.Type().Id("Key").Struct(List(Id("PK"), Id("SK")).String())
	for _, r := range s.Records {
		builder(f, r)
	}
}

func builder(f *file, r *schema.Record) {
	name := r.KeyType()
	f.doc(name + " returns the key of " + article(noun(r)) + " item: " + sentence(lower(r.Doc)) + "\n\n\tPK = " + r.PK.Text + "\n\tSK = " + r.SK.Text)
	f.Func().Id(name).Add(parameters(len("func  Key {")+len(name), fieldParams(r.KeyFields())...)).Id("Key").Block(
		Return(Id("Key").Add(primaryKey(r, param))),
	)
}
