package schema

import (
	"go/types"
	"strings"

	"github.com/zlimit/zlimit-go/internal/document"
)

// fieldTypes has the types of fields that hold an attribute of a type. Imported types hold attributes of no other type.
var fieldTypes = map[Type]types.Type{
	S:    types.Typ[types.String],
	N:    types.Typ[types.Int64],
	BOOL: types.Typ[types.Bool],
}

// CheckImported reports families whose types of members are missing in the declaring package. It also reports
// attributes without a field or methods in such a type. The generated code would not compile. The file is that of the
// schema.
func (s *Schema) CheckImported(file string, pkg *types.Package) error {
	r := document.New(file)
	for _, m := range s.Members {
		from, name, imported := strings.Cut(m.GoType(), ".")
		if !imported {
			continue
		}
		typ, ok := pkg.Scope().Lookup(name).(*types.TypeName)
		if !ok || from != pkg.Name() || !typ.Exported() {
			r.Errorf(m.Pos, "package %s has no type %s", pkg.Name(), m.GoType())
			continue
		}
		if !hasField(typ, "Name", types.Typ[types.String]) {
			r.Errorf(m.Pos, "type %s has no field Name of type string", m.GoType())
		}
		for _, a := range m.Fields {
			checkHeld(r, m, typ, a)
		}
	}
	return r.Err()
}

// checkHeld reports an attribute that an imported type has no field or methods for.
func checkHeld(r *document.Reader, m *Members, typ *types.TypeName, a *Attribute) {
	name, held := Exported(a.Go), fieldTypes[a.Type]
	switch {
	case held == nil:
		r.Errorf(a.Pos, "attribute %s is of type %s, which imported types such as %s do not hold", a.Name, a.Type, m.GoType())
	case a.Method:
		text := types.NewTuple(types.NewParam(0, nil, "", held))
		if !hasMethod(typ, name, nil, text) || !hasMethod(typ, "Set"+name, text, nil) {
			r.Errorf(a.Pos, "attribute %s: type %s has no methods %s() %s and Set%s(%s)", a.Name, m.GoType(), name, held, name, held)
		}
	case !hasField(typ, name, held):
		r.Errorf(a.Pos, "attribute %s: type %s has no field %s of type %s", a.Name, m.GoType(), name, held)
	}
}

// member returns the field or method of a name, nil for none.
func member(typ *types.TypeName, name string) types.Object {
	object, _, _ := types.LookupFieldOrMethod(types.NewPointer(typ.Type()), true, typ.Pkg(), name)
	return object
}

func hasField(typ *types.TypeName, name string, of types.Type) bool {
	field, ok := member(typ, name).(*types.Var)
	return ok && types.Identical(field.Type(), of)
}

func hasMethod(typ *types.TypeName, name string, params, results *types.Tuple) bool {
	method, ok := member(typ, name).(*types.Func)
	return ok && types.Identical(method.Type(), types.NewSignatureType(nil, nil, nil, params, results, false))
}
