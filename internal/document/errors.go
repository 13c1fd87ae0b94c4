package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// An Error is one thing that is wrong with a document.
type Error struct {
	File string
	Pos  Pos
	Text string
	Err  error // what Text is of
}

func (e Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Pos.Line, e.Pos.Column, e.Text)
}

// Unwrap returns the error that was reported.
func (e Error) Unwrap() error { return e.Err }

// Errors is everything that is wrong with a document, in the order of the document.
type Errors []Error

func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// sorted returns the errors in the order of the document, those that several aliases of one node led to once.
func (es Errors) sorted() Errors {
	slices.SortStableFunc(es, func(a, b Error) int {
		return cmp.Or(
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column),
			strings.Compare(a.Text, b.Text),
		)
	})
	return slices.CompactFunc(es, func(a, b Error) bool { return a.Pos == b.Pos && a.Text == b.Text })
}
