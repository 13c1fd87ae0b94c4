// Package facade works out how a package looks without contexts. It finds the types with methods that take a context,
// and the counterpart of each method. It is a pure function of the package.
package facade

import (
	"cmp"
	"fmt"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/gen/internal/source"
)

// A Facade is a package without contexts, file by file. Its files have the same names as in the core.
type Facade struct {
	Core  *types.Package
	Files []*File
}

// A File is what mirrors the declarations of one file of the core.
type File struct {
	Name  string // without .go
	Types []*Type
	Funcs []*Func // functions of the package
}

// A Type mirrors a type of the core that has a method with a context. All other types are shared with the core.
type Type struct {
	Named    *types.Named // in the core
	Doc      string
	Receiver string // name of the receiver of its methods
	Services []Service
	Methods  []*Func
}

// Name returns the name of a type, which is the same in the core.
func (t *Type) Name() string { return t.Named.Obj().Name() }

// A Service is a field that points to another mirrored type.
type Service struct {
	Name string
	Doc  string
	Type *Type
}

// A Func mirrors a function or a method of the core.
type Func struct {
	Name    string // in the core
	Doc     string
	Context bool // the core takes a context, as its first parameter
	Params  []Param
	Wraps   *Type        // the core returns a pointer to it, and an error; without a context the pointer alone
	Element types.Type   // the core returns an iterator that yields it, and an error
	Results *types.Tuple // the other results
}

// A Param is a parameter besides the context.
type Param struct {
	Name     string
	Type     types.Type // in the core
	Variadic bool
	Callback *Type // Type is a function that takes a context and a pointer to this
}

// An analysis is a facade in the making.
type analysis struct {
	*source.Package
	docs  map[token.Pos]string // of the name that is declared there
	types map[*types.TypeName]*Type
	funcs map[string]bool // functions that are mirrored
	errs  Errors
}

// Of returns the facade of a package, or [Errors] with everything that has no counterpart.
func Of(p *source.Package) (*Facade, error) {
	a := &analysis{Package: p, docs: docs(p.Files), types: map[*types.TypeName]*Type{}, funcs: map[string]bool{}}
	f := &Facade{Core: p.Types}
	for _, object := range a.find() {
		switch object := object.(type) {
		case *types.TypeName:
			t := a.types[object]
			a.fill(t)
			file := f.file(a.file(object))
			file.Types = append(file.Types, t)
		case *types.Func:
			if mirrored := a.mirror(object, "", nil); mirrored != nil {
				file := f.file(a.file(object))
				file.Funcs = append(file.Funcs, mirrored)
			}
		}
	}
	if len(a.errs) > 0 {
		return nil, a.errs.sorted()
	}
	return f, nil
}

// find returns the types and functions that are mirrored, in the order of the source, and notes them.
func (a *analysis) find() (found []types.Object) {
	for _, name := range a.Types.Scope().Names() {
		object := a.Types.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		switch object := object.(type) {
		case *types.TypeName:
			if named, ok := object.Type().(*types.Named); ok && !object.IsAlias() && hasContext(named) {
				a.types[object] = &Type{Named: named}
				found = append(found, object)
			}
		case *types.Func:
			if takesContext(object.Signature()) && !returnsContext(object.Signature()) {
				a.funcs[name] = true
				found = append(found, object)
			}
		}
	}
	slices.SortFunc(found, a.bySource)
	return found
}

// file returns the file of a name, which is added when it is not there yet.
func (f *Facade) file(name string) *File {
	i := slices.IndexFunc(f.Files, func(file *File) bool { return file.Name == name })
	if i < 0 {
		i = len(f.Files)
		f.Files = append(f.Files, &File{Name: name})
	}
	return f.Files[i]
}

func (a *analysis) file(object types.Object) string {
	return strings.TrimSuffix(filepath.Base(a.Fset.Position(object.Pos()).Filename), ".go")
}

func (a *analysis) bySource(x, y types.Object) int {
	if by := strings.Compare(a.file(x), a.file(y)); by != 0 {
		return by
	}
	return int(x.Pos() - y.Pos())
}

// hasContext reports whether an exported method of a type that is no interface takes a context.
func hasContext(named *types.Named) bool {
	return !types.IsInterface(named) && slices.ContainsFunc(methods(named), func(m *types.Func) bool {
		return takesContext(m.Signature())
	})
}

// methods returns the exported methods of a type and of pointers to it.
func methods(named *types.Named) (exported []*types.Func) {
	set := types.NewMethodSet(types.NewPointer(named))
	for i := range set.Len() {
		if m := set.At(i).Obj().(*types.Func); m.Exported() {
			exported = append(exported, m)
		}
	}
	return exported
}

// fill works out the fields and methods of a type.
func (a *analysis) fill(t *Type) {
	object := t.Named.Obj()
	t.Doc = a.doc(object, object.Name())
	if t.Named.TypeParams().Len() > 0 {
		a.fail(object, object.Name(), "has type parameters")
		return
	}
	if fields, ok := t.Named.Underlying().(*types.Struct); ok {
		for field := range fields.Fields() {
			if !field.Exported() {
				continue
			}
			name := object.Name() + "." + field.Name()
			service := a.pointee(field.Type())
			if service == nil {
				a.fail(field, name, "is a field, but no pointer to a type whose methods take contexts")
				continue
			}
			t.Services = append(t.Services, Service{field.Name(), a.doc(field, name), service})
		}
	}
	all := methods(t.Named)
	slices.SortFunc(all, func(x, y *types.Func) int {
		own := a.file(object) // comes first
		if here, there := a.file(x) == own, a.file(y) == own; here != there {
			if here {
				return -1
			}
			return 1
		}
		return a.bySource(x, y)
	})
	t.Receiver = receiver(t.Named)
	names := map[string]bool{}
	for _, m := range all {
		names[m.Name()] = true
	}
	for _, m := range all {
		if base, ok := strings.CutSuffix(m.Name(), Iterator); ok && names[base] {
			a.fail(m, object.Name()+"."+m.Name(), "has the name of an iterator, beside %s", base)
		}
		if mirrored := a.mirror(m, object.Name()+".", t); mirrored != nil {
			t.Methods = append(t.Methods, mirrored)
		}
	}
}

// receiver returns the name of the receiver of a type's first method that has one.
func receiver(named *types.Named) string {
	for m := range named.Methods() {
		if name := m.Signature().Recv().Name(); name != "" && name != "_" {
			return name
		}
	}
	return strings.ToLower(named.Obj().Name()[:1])
}

// mirror works out what becomes of a function, or of a method of t; nil when it has no counterpart.
func (a *analysis) mirror(object *types.Func, prefix string, t *Type) *Func {
	signature, name := object.Signature(), prefix+object.Name()
	before := len(a.errs)
	f := &Func{Name: object.Name(), Doc: a.doc(object, name)}
	if signature.TypeParams().Len() > 0 {
		a.fail(object, name, "has type parameters")
	}
	for i := range signature.Params().Len() {
		v := signature.Params().At(i)
		if isContext(types.Unalias(v.Type())) && i == 0 {
			f.Context = true
			if !isContext(v.Type()) {
				a.fail(object, name, "parameter 1 has no counterpart without contexts: %s", a.show(v.Type()))
			}
			continue
		}
		p := Param{Name: v.Name(), Type: v.Type(), Variadic: signature.Variadic() && i == signature.Params().Len()-1}
		what := fmt.Sprintf("parameter %d", i+1)
		if a.concerns(p.Type) {
			p.Callback = a.callback(p.Type)
		}
		switch {
		case p.Callback == nil && a.concerns(p.Type):
			a.fail(object, name, "%s has no counterpart without contexts: %s", what, a.show(p.Type))
		case a.unwritable(p.Type) != "":
			a.fail(object, name, "%s has no counterpart: %s", what, a.unwritable(p.Type))
		case p.Name == "" || p.Name == "_":
			a.fail(object, name, "%s has no name", what)
		case taken(p.Name, a.Types.Name()) || t != nil && p.Name == t.Receiver:
			a.fail(object, name, "%s: the facade has another use for the name %s", what, p.Name)
		}
		f.Params = append(f.Params, p)
	}
	a.results(f, object, name)
	if len(a.errs) > before {
		return nil
	}
	return f
}

// results works out the results of a function.
func (a *analysis) results(f *Func, object *types.Func, name string) {
	results := slices.Collect(object.Signature().Results().Variables())
	if f.Context && len(results) == 1 {
		if f.Element = a.element(results[0].Type()); f.Element != nil {
			if !strings.HasPrefix(f.Doc, f.Name+" yields ") {
				a.fail(object, name, "returns an iterator, so its doc must begin with %q", f.Name+" yields")
			}
			return
		}
	}
	if f.Context && len(results) == 2 && isError(results[1].Type()) {
		if f.Wraps = a.pointee(results[0].Type()); f.Wraps != nil {
			return
		}
	}
	if !f.Context && len(results) == 1 {
		if f.Wraps = a.pointee(results[0].Type()); f.Wraps != nil {
			return
		}
	}
	for i, v := range results {
		why := a.unwritable(v.Type())
		switch {
		case a.concerns(v.Type()), why == "" && f.Context && iterates(v.Type()):
			a.fail(object, name, "result %d has no counterpart without contexts: %s", i+1, a.show(v.Type()))
		case why != "":
			a.fail(object, name, "result %d has no counterpart: %s", i+1, why)
		case taken(v.Name(), a.Types.Name()) && v.Name() != "err":
			a.fail(object, name, "result %d: the facade has another use for the name %s", i+1, v.Name())
		}
	}
	f.Results = object.Signature().Results()
}

// callback returns the type whose pointer a callback takes, after a context. It returns nil for a function of another
// form, or one whose result has to be mirrored.
func (a *analysis) callback(t types.Type) *Type {
	signature, ok := t.(*types.Signature)
	if !ok || signature.Params().Len() != 2 || signature.Variadic() || a.concerns(signature.Results()) {
		return nil
	}
	if !isContext(signature.Params().At(0).Type()) {
		return nil
	}
	return a.pointee(signature.Params().At(1).Type())
}

// element returns the type that an iterator yields beside an error; nil when it yields no error, or when the type
// has to be mirrored.
func (a *analysis) element(t types.Type) types.Type {
	if !isIterator(t) {
		return nil
	}
	args := t.(*types.Named).TypeArgs()
	if args.Len() != 2 || !isError(args.At(1)) || a.concerns(args.At(0)) || a.unwritable(args.At(0)) != "" {
		return nil
	}
	return args.At(0)
}

// pointee returns the mirrored type that t points to; nil when there is none.
func (a *analysis) pointee(t types.Type) *Type {
	pointer, ok := t.(*types.Pointer)
	if !ok {
		return nil
	}
	named, ok := pointer.Elem().(*types.Named)
	if !ok {
		return nil
	}
	return a.types[named.Obj()]
}

// concerns reports whether a context or a mirrored type is part of a type.
func (a *analysis) concerns(t types.Type) bool {
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		if isContext(t) || a.types[t.Obj()] != nil {
			return true
		}
		return slices.ContainsFunc(slices.Collect(t.TypeArgs().Types()), a.concerns)
	case *types.Map:
		return a.concerns(t.Key()) || a.concerns(t.Elem())
	case interface{ Elem() types.Type }: // a pointer, a slice, an array or a channel
		return a.concerns(t.Elem())
	case *types.Signature:
		return a.concerns(t.Params()) || a.concerns(t.Results())
	case *types.Tuple:
		return slices.ContainsFunc(slices.Collect(t.Variables()), func(v *types.Var) bool { return a.concerns(v.Type()) })
	case *types.Struct:
		return slices.ContainsFunc(slices.Collect(t.Fields()), func(v *types.Var) bool { return a.concerns(v.Type()) })
	case *types.Interface:
		return slices.ContainsFunc(slices.Collect(t.Methods()), func(m *types.Func) bool { return a.concerns(m.Type()) })
	default: // a basic type, or a type parameter
		return false
	}
}

// unwritable says why the facade cannot have a type, that is none of contexts, in a signature; empty where it can.
func (a *analysis) unwritable(t types.Type) string {
	switch t := t.(type) {
	case *types.Named:
		return a.unwritableName(t.Obj(), t.TypeArgs())
	case *types.Alias:
		return a.unwritableName(t.Obj(), t.TypeArgs())
	case *types.Map:
		return cmp.Or(a.unwritable(t.Key()), a.unwritable(t.Elem()))
	case *types.Signature:
		for v := range t.Params().Variables() {
			if why := a.unwritable(v.Type()); why != "" {
				return why
			}
		}
		for v := range t.Results().Variables() {
			if why := a.unwritable(v.Type()); why != "" {
				return why
			}
		}
		return ""
	case *types.Chan:
		if nothing, ok := t.Elem().(*types.Struct); ok && nothing.NumFields() == 0 && t.Dir() == types.RecvOnly {
			return "" // it is closed as a signal, and both variants may wait for that
		}
		return a.show(t) + " is a channel, which outlives the call"
	case interface{ Elem() types.Type }: // a pointer, a slice or an array
		return a.unwritable(t.Elem())
	case *types.Struct, *types.Interface:
		return a.show(t) + " is a type without a name"
	default: // a basic type
		return ""
	}
}

func (a *analysis) unwritableName(name *types.TypeName, args *types.TypeList) string {
	if name.Pkg() != nil && !name.Exported() {
		return name.Name() + " is not exported"
	}
	for arg := range args.Types() {
		if why := a.unwritable(arg); why != "" {
			return why
		}
	}
	return ""
}

// show returns a type as the core writes it, and the type that it stands for.
func (a *analysis) show(t types.Type) string {
	text := types.TypeString(t, types.RelativeTo(a.Types))
	if _, ok := t.(*types.Alias); ok {
		text += ", an alias of " + types.TypeString(types.Unalias(t), types.RelativeTo(a.Types))
	}
	return text
}

// taken reports whether generated functions use a name for something else.
func taken(name, core string) bool {
	return slices.Contains([]string{"cancel", "context", "core", "ctx", "err", "iter", "time", core}, name)
}

// takesContext reports whether a parameter is a context, under any name.
func takesContext(s *types.Signature) bool {
	return slices.ContainsFunc(slices.Collect(s.Params().Variables()), func(v *types.Var) bool { return isContext(types.Unalias(v.Type())) })
}

// returnsContext reports whether a function makes a context, which a caller without contexts has no use for.
func returnsContext(s *types.Signature) bool {
	return slices.ContainsFunc(slices.Collect(s.Results().Variables()), func(v *types.Var) bool { return isContext(types.Unalias(v.Type())) })
}

func isContext(t types.Type) bool { return isNamed(t, "context", "Context") }

func isIterator(t types.Type) bool { return isNamed(t, "iter", "Seq") || isNamed(t, "iter", "Seq2") }

// iterates reports whether a type is a function to range over, under any name. It runs when the call that returned it
// is over.
func iterates(t types.Type) bool {
	f, ok := t.Underlying().(*types.Signature)
	if !ok || f.Params().Len() != 1 || f.Results().Len() != 0 {
		return false
	}
	yield, ok := f.Params().At(0).Type().Underlying().(*types.Signature)
	return ok && yield.Results().Len() == 1 && types.Identical(yield.Results().At(0).Type(), types.Typ[types.Bool])
}

func isNamed(t types.Type, path, name string) bool {
	named, ok := t.(*types.Named)
	return ok && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == path && named.Obj().Name() == name
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }
