package emit

import (
	. "github.com/dave/jennifer/jen"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

func table(f *file, s *schema.Schema) {
	f.doc("Table is the table as stores see it.")
	f.Var().Id("Table").Op("=").Qual(storePkg, "Table").Add(fields(storeTable(s)...))
}

func storeTable(s *schema.Schema) []Code {
	var parts []Code
	if len(s.Indexes) > 0 {
		var indexes []Code
		for _, x := range s.Indexes {
			parts := []Code{field("Name", Lit(x.Name))}
			if x.Local {
				parts = append(parts, field("PK", Qual(storePkg, "PK")))
			} else {
				parts = append(parts, field("PK", Lit(x.PK)))
			}
			parts = append(parts, field("SK", Lit(x.SK)))
			if x.KeysOnly {
				parts = append(parts, field("KeysOnly", True()))
			}
			if x.Mixed {
				parts = append(parts, field("Mixed", True()))
			}
			if x.Local {
				parts = append(parts, field("Local", True()))
			}
			indexes = append(indexes, Values(parts...))
		}
		parts = append(parts, field("Indexes", Index().Qual(storePkg, "Index").Add(fields(indexes...))))
	}
	return append(parts, field("TTL", Lit(s.TTL)))
}
