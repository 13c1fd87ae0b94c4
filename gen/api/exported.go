package main

import (
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// unnamed are the names that the compiler gives to results without one.
var unnamed = regexp.MustCompile(`#rv\d+ `)

// exported returns the exports of a package, in the form of the files in Go's own api directory, plus the names of
// parameters.
func exported(pkg *types.Package) (symbols []string) {
	show := func(t types.Type) string {
		text := types.TypeString(t, func(other *types.Package) string {
			if other == pkg {
				return ""
			}
			return other.Name()
		})
		return unnamed.ReplaceAllString(text, "")
	}
	for _, name := range pkg.Scope().Names() {
		object := pkg.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		switch object := object.(type) {
		case *types.Const:
			symbols = append(symbols, "const "+name+" "+show(object.Type())+" = "+object.Val().String()) // long strings cut short
		case *types.Var:
			symbols = append(symbols, "var "+name+" "+show(object.Type()))
		case *types.Func:
			symbols = append(symbols, "func "+name+strings.TrimPrefix(show(object.Type()), "func"))
		case *types.TypeName:
			symbols = append(symbols, declared(object, show)...)
		}
	}
	return symbols
}

func declared(object *types.TypeName, show func(types.Type) string) []string {
	head := "type " + show(object.Type())
	kind := show(object.Type().Underlying())
	if object.IsAlias() {
		head = "type " + object.Name() + " = " + show(types.Unalias(object.Type()))
	}
	var symbols []string
	switch t := object.Type().Underlying().(type) {
	case *types.Struct:
		kind = "struct"
		for field := range t.Fields() {
			if field.Exported() {
				symbols = append(symbols, head+" struct, "+field.Name()+" "+show(field.Type()))
			}
		}
	case *types.Interface:
		kind = "interface"
		for method := range t.Methods() {
			if method.Exported() {
				symbols = append(symbols, head+" interface, "+method.Name()+strings.TrimPrefix(show(method.Type()), "func"))
			} else {
				kind = "interface with unexported methods"
			}
		}
	}
	if object.IsAlias() {
		symbols = append(symbols, head)
	} else {
		symbols = append(symbols, head+" "+kind)
	}
	if types.IsInterface(object.Type()) || object.IsAlias() && !isInternal(object.Type()) { // whose methods stand with the other name
		return symbols
	}
	value := types.NewMethodSet(object.Type())
	all := types.NewMethodSet(types.NewPointer(object.Type()))
	for i := range all.Len() {
		method := all.At(i).Obj()
		if !method.Exported() {
			continue
		}
		receiver := "*"
		if value.Lookup(method.Pkg(), method.Name()) != nil {
			receiver = ""
		}
		symbols = append(symbols,
			"method ("+receiver+object.Name()+") "+method.Name()+strings.TrimPrefix(show(method.Type()), "func"))
	}
	return symbols
}

// isInternal reports whether a type is declared in an internal package, which the list does not have.
func isInternal(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Pkg() != nil && slices.Contains(strings.Split(named.Obj().Pkg().Path(), "/"), "internal")
}
