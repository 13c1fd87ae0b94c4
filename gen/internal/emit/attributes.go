package emit

import (
	. "github.com/dave/jennifer/jen"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

// attributes writes the names of attributes in items. Hand-written code has no others.
func attributes(f *file, s *schema.Schema) {
	for _, r := range s.Records {
		if len(r.Attributes) == 0 {
			continue
		}
		f.doc("The attributes of " + article(noun(r)) + " item.")
		f.Const().DefsFunc(func(g *Group) {
			for _, a := range r.Attributes {
				g.Id(r.AttributeName(a)).Op("=").Lit(a.Name)
			}
		})
	}
	for _, m := range s.Members {
		f.doc("The attributes of a member of the family " + m.Pattern + ".")
		f.Var().DefsFunc(func(g *Group) {
			for _, a := range m.Fields {
				g.Id(m.AttributeName(a)).Op("=").Add(path(schema.Ref{Name: a.Name, Family: m}))
			}
		})
	}
}
