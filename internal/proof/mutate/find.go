package main

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// A mutant is one term of a condition, which is made always true.
type mutant struct {
	name       string
	start, end int // of the term in the source
}

// find returns the terms of the operations in generated source: the elements of their Where lists.
func find(file string, source []byte) (mutants []mutant, err error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, source, 0)
	if err != nil {
		return nil, err
	}
	text := func(n ast.Node) string {
		return string(source[fset.Position(n.Pos()).Offset:fset.Position(n.End()).Offset])
	}
	var visit func(list *ast.CompositeLit, path string)
	visit = func(list *ast.CompositeLit, path string) {
		var where *ast.CompositeLit
		for _, element := range list.Elts {
			pair, ok := element.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			value, composite := pair.Value.(*ast.CompositeLit)
			switch key := text(pair.Key); {
			case key == "Name":
				path = strings.TrimPrefix(path+" "+strings.Trim(text(pair.Value), `"`), " ")
			case key == "Where" && composite:
				where = value
			case composite:
				visit(value, path)
			}
		}
		if where == nil {
			return
		}
		for _, term := range where.Elts {
			mutants = append(mutants, mutant{
				name:  path + ": " + strings.NewReplacer("expr.", "", `"`, "", "Attr", "", "Of", "").Replace(strings.Join(strings.Fields(text(term)), " ")),
				start: fset.Position(term.Pos()).Offset,
				end:   fset.Position(term.End()).Offset,
			})
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		list, ok := n.(*ast.CompositeLit)
		if ok && text(list.Type) == "expr.Operation" {
			visit(list, "")
			return false
		}
		return true
	})
	if len(mutants) == 0 {
		return nil, errors.New("no conditions found in " + file)
	}
	return mutants, nil
}
