package show

import (
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Column is one property of the elements of a list.
type Column[T any] struct {
	Name  string         // in CSV; in a table its underscores are spaces
	Right bool           // it is aligned to the right
	Plain func(T) string // for programs
	Shown func(T) string // for people
	File  bool           // it is in CSV alone
	Bare  bool           // it has no title where it goes below its row
}

// Same is a column of CSV alone in which every row has the same text.
func Same[T any](name, text string) Column[T] {
	c := Text(name, func(T) string { return text })
	c.File = true
	return c
}

// Title returns the name of the column for people.
func (c Column[T]) Title() string { return strings.ReplaceAll(c.Name, "_", " ") }

// Text is a column of names and similar texts.
func Text[T any](name string, of func(T) string) Column[T] {
	return Column[T]{Name: name, Plain: of, Shown: of}
}

// Instant is a column of times, in the form that is given for people.
func Instant[T any](name string, form func(time.Time) string, of func(T) time.Time) Column[T] {
	return Column[T]{
		Name:  name,
		Plain: func(t T) string { return of(t).UTC().Format(time.RFC3339) },
		Shown: func(t T) string { return form(of(t)) },
	}
}

// Number is a column of whole numbers.
func Number[T any](name string, of func(T) int64) Column[T] {
	return Column[T]{
		Name: name, Right: true,
		Plain: func(t T) string { return strconv.FormatInt(of(t), 10) },
		Shown: func(t T) string { return Grouped(of(t)) },
	}
}

// Limited is a column of what limits have: tokens, or dollars where a limit is in money, see [Exact] and [Quantified].
func Limited[T any](name string, limit func(T) string, of func(T) zlimit.Quantity) Column[T] {
	return Column[T]{
		Name: name, Right: true,
		Plain: func(t T) string { return Exact(limit(t), of(t)) },
		Shown: func(t T) string { return Quantified(limit(t), of(t)) },
	}
}

// Where leaves cells empty if there is nothing to show.
func (c Column[T]) Where(there func(T) bool) Column[T] {
	when := func(cell func(T) string) func(T) string {
		return func(t T) string {
			if !there(t) {
				return ""
			}
			return cell(t)
		}
	}
	c.Plain, c.Shown = when(c.Plain), when(c.Shown)
	return c
}
