package emit

import (
	"fmt"
	"go/types"

	. "github.com/dave/jennifer/jen"

	"github.com/zlimit/zlimit-go/gen/internal/facade"
)

const blockingPkg = "zlimit/blocking"

// Blocking returns the files of package blocking by their path in the module, which is separated by slashes.
func Blocking(f *facade.Facade) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, source := range f.Files {
		b := &blocking{newFile(module+"/"+blockingPkg, "package "+f.Core.Name()), f.Core}
		b.ImportName(f.Core.Path(), f.Core.Name())
		for _, fn := range source.Funcs {
			b.function(nil, fn)
		}
		for _, t := range source.Types {
			b.mirror(t)
		}
		path := blockingPkg + "/" + source.Name + "_gen.go"
		text, err := b.render()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		files[path] = text
	}
	return files, nil
}

// blocking is a file of package blocking in the making. The hand-written files of the package have callTimeout, whose
// method context returns the context of a call, and defaultTimeout. They also have collect, which returns all elements
// of an iterator, and steps, which bounds the steps of one.
type blocking struct {
	*file
	core *types.Package
}

func (b *blocking) mirror(t *facade.Type) {
	b.doc(t.Doc)
	b.Type().Id(t.Name()).StructFunc(func(g *Group) {
		for _, s := range t.Services {
			g.Comment(comment(s.Doc, 4))
			g.Id(s.Name).Op("*").Id(s.Type.Name())
		}
		if len(t.Services) > 0 {
			g.Line()
		}
		g.Id("core").Add(b.pointer(t))
		g.Id("timeout").Id("callTimeout")
	})
	if len(t.Services) > 0 {
		b.constructor(t)
	}
	for _, m := range t.Methods {
		if m.Element != nil {
			b.slice(t, m)
		}
		b.function(t, m)
	}
}

// constructor writes the function that makes a value of a type with services.
func (b *blocking) constructor(t *facade.Type) {
	b.doc(fmt.Sprintf("new%s returns what mirrors core, with calls that are bounded by timeout.", t.Name()))
	var values []Code
	for _, s := range t.Services {
		values = append(values, field(s.Name, b.wrap(s.Type, Id("core").Dot(s.Name), Id("timeout"))))
	}
	values = append(values, field("core", Id("core")), field("timeout", Id("timeout")))
	b.Func().Id("new"+t.Name()).Params(Id("core").Add(b.pointer(t)), Id("timeout").Id("callTimeout")).
		Op("*").Id(t.Name()).Block(Return(Op("&").Id(t.Name()).Add(fields(values...))))
}

// wrap writes the value that mirrors one of the core.
func (b *blocking) wrap(t *facade.Type, core, timeout Code) *Statement {
	if len(t.Services) > 0 {
		return Id("new"+t.Name()).Call(core, timeout)
	}
	return Op("&").Id(t.Name()).Values(core, timeout)
}

// pointer writes the type of pointers to the mirrored type.
func (b *blocking) pointer(t *facade.Type) *Statement { return Op("*").Qual(b.core.Path(), t.Name()) }

// slice writes the method that returns a list as a whole.
func (b *blocking) slice(t *facade.Type, m *facade.Func) {
	element := b.typ(m.Element)
	b.doc(facade.SliceDoc(t, m))
	b.head(t, m, m.Name, Params(Index().Add(element), Error())).Block(append(
		bounded(timeoutOf(t)),
		Return(Id("collect").Call(b.call(t, m))),
	)...)
}

// function writes a function or a method; of a list the iterator.
func (b *blocking) function(t *facade.Type, m *facade.Func) {
	name, doc := m.Name, m.Doc
	var results *Statement
	var body []Code
	switch {
	case m.Element != nil:
		name, doc = m.Name+facade.Iterator, facade.IteratorDoc(m)
		results = Qual("iter", "Seq2").Types(b.typ(m.Element), Error())
		list := Func().Params(Id("ctx").Qual("context", "Context")).Add(results).Block(Return(b.call(t, m)))
		body = []Code{Return(Id("steps").Call(timeoutOf(t), list))}
	case m.Wraps != nil && !m.Context:
		results = Op("*").Id(m.Wraps.Name())
		body = []Code{Return(b.wrap(m.Wraps, b.call(t, m), timeoutOf(t)))}
	case m.Wraps != nil:
		results = Params(Op("*").Id(m.Wraps.Name()), Error())
		body = append(bounded(timeoutOf(t)),
			List(Id("core"), Err()).Op(":=").Add(b.call(t, m)),
			If(Err().Op("!=").Nil()).Block(Return(Nil(), Err())),
			Return(b.wrap(m.Wraps, Id("core"), timeoutOf(t)), Nil()),
		)
	default:
		results = b.results(m.Results)
		if m.Context {
			body = bounded(timeoutOf(t))
		}
		body = append(body, returned(m.Results, b.call(t, m)))
	}
	b.doc(doc)
	b.head(t, m, name, results).Block(body...)
}

func (b *blocking) head(t *facade.Type, m *facade.Func, name string, results *Statement) *Statement {
	list := make([]member, len(m.Params))
	for i, p := range m.Params {
		list[i] = member{name: p.Name, typ: b.param(p)}
	}
	head := b.Func()
	beside := width(Func().Id(name).Params().Add(results)) - len("()") + len(" {")
	if t != nil {
		head.Params(Id(t.Receiver).Op("*").Id(t.Name()))
		beside += len("( *) ") + len(t.Receiver) + len(t.Name())
	}
	return head.Id(name).Add(parameters(beside, list...)).Add(results)
}

func (b *blocking) param(p facade.Param) *Statement {
	switch {
	case p.Callback != nil:
		return Func().Params(Op("*").Id(p.Callback.Name())).Add(b.results(p.Type.(*types.Signature).Results()))
	case p.Variadic:
		return Op("...").Add(b.typ(p.Type.(*types.Slice).Elem()))
	default:
		return b.typ(p.Type)
	}
}

func (b *blocking) call(t *facade.Type, m *facade.Func) *Statement {
	var args []Code
	if m.Context {
		args = append(args, Id("ctx"))
	}
	for _, p := range m.Params {
		switch {
		case p.Callback != nil:
			args = append(args, b.adapter(t, p))
		case p.Variadic:
			args = append(args, Id(p.Name).Op("..."))
		default:
			args = append(args, Id(p.Name))
		}
	}
	if t == nil {
		return Qual(b.core.Path(), m.Name).Call(args...)
	}
	return Id(t.Receiver).Dot("core").Dot(m.Name).Call(args...)
}

// adapter writes the function that the core calls in place of a callback.
func (b *blocking) adapter(t *facade.Type, p facade.Param) *Statement {
	results := p.Type.(*types.Signature).Results()
	call := Id(p.Name).Call(b.wrap(p.Callback, Id("core"), timeoutOf(t)))
	return Func().Params(Id("_").Qual("context", "Context"), Id("core").Add(b.pointer(p.Callback))).
		Add(b.results(results)).Block(returned(results, call))
}

// returned writes the last statement of a function, a call that has its results.
func returned(results *types.Tuple, call *Statement) *Statement {
	if results.Len() == 0 {
		return call
	}
	return Return(call)
}

// timeoutOf writes what bounds a call of a method of t, or of a function.
func timeoutOf(t *facade.Type) *Statement {
	if t == nil {
		return Id("defaultTimeout")
	}
	return Id(t.Receiver).Dot("timeout")
}

// bounded writes the statements that begin a call with a context.
func bounded(timeout *Statement) []Code {
	return []Code{
		List(Id("ctx"), Id("cancel")).Op(":=").Add(timeout).Dot("context").Call(),
		Defer().Id("cancel").Call(),
	}
}

func (b *blocking) results(list *types.Tuple) *Statement {
	switch {
	case list.Len() == 0:
		return Null()
	case list.Len() == 1 && list.At(0).Name() == "":
		return b.typ(list.At(0).Type())
	default:
		return b.tuple(list, false)
	}
}

// tuple writes parameters or results with their names, if they have some.
func (b *blocking) tuple(list *types.Tuple, variadic bool) *Statement {
	written := make([]member, list.Len())
	for i := range written {
		v := list.At(i)
		written[i] = member{name: v.Name(), typ: b.typ(v.Type())}
		if variadic && i == len(written)-1 {
			written[i].typ = Op("...").Add(b.typ(v.Type().(*types.Slice).Elem()))
		}
	}
	return parameters(0, written...)
}

// typ writes a type of the core's declarations.
func (b *blocking) typ(t types.Type) *Statement {
	switch t := t.(type) {
	case *types.Named:
		return b.named(t.Obj(), t.TypeArgs())
	case *types.Alias:
		return b.named(t.Obj(), t.TypeArgs())
	case *types.Basic:
		return Id(t.Name())
	case *types.Pointer:
		return Op("*").Add(b.typ(t.Elem()))
	case *types.Slice:
		return Index().Add(b.typ(t.Elem()))
	case *types.Array:
		return Index(Lit(int(t.Len()))).Add(b.typ(t.Elem()))
	case *types.Map:
		return Map(b.typ(t.Key())).Add(b.typ(t.Elem()))
	case *types.Chan: // one that is closed as a signal
		return Op("<-").Chan().Struct()
	case *types.Signature:
		return Func().Add(b.tuple(t.Params(), t.Variadic())).Add(b.results(t.Results()))
	default:
		panic(fmt.Sprintf("%T", t))
	}
}

func (b *blocking) named(name *types.TypeName, args *types.TypeList) *Statement {
	s := Id(name.Name())
	if pkg := name.Pkg(); pkg != nil {
		b.ImportName(pkg.Path(), pkg.Name())
		s = Qual(pkg.Path(), name.Name())
	}
	if args.Len() == 0 {
		return s
	}
	list := make([]Code, args.Len())
	for i := range list {
		list[i] = b.typ(args.At(i))
	}
	return s.Types(list...)
}
