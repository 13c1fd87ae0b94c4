package facade

import (
	"cmp"
	"fmt"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// An Error is a declaration of the core that has no counterpart in the facade.
type Error struct {
	Pos  token.Position
	Name string // of the declaration, such as Lease.Commit
	Text string
}

// Error returns place, name and reason.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s %s", e.Pos, e.Name, e.Text) }

// Errors are all declarations without a counterpart, in the order of the source.
type Errors []*Error

// Error returns an error per line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(x, y *Error) int {
		return cmp.Or(strings.Compare(x.Pos.Filename, y.Pos.Filename), x.Pos.Offset-y.Pos.Offset)
	})
	return e
}

// fail notes a mistake in a declaration.
func (a *analysis) fail(object types.Object, name, format string, args ...any) {
	a.errs = append(a.errs, &Error{a.Fset.Position(object.Pos()), name, fmt.Sprintf(format, args...)})
}
