package cli

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/zlimit"
)

// output is the form of a result. Its zero value is the table.
type output struct{ json, csv bool }

// String returns the name of the form.
func (o *output) String() string {
	switch {
	case o.json:
		return "json"
	case o.csv:
		return "csv"
	default:
		return "table"
	}
}

// Set takes the name of the form. CSV is for lists.
func (o *output) Set(name string) error {
	if name != "table" && name != "json" {
		return errors.New("must be table or json")
	}
	*o = output{json: name == "json"}
	return nil
}

// Type returns what the flag takes.
func (o *output) Type() string { return "form" }

// listOutput is the form of a list.
type listOutput struct{ *output }

// Set takes the name of the form.
func (o listOutput) Set(name string) error {
	if name == "csv" {
		*o.output = output{csv: true}
		return nil
	}
	if o.output.Set(name) != nil {
		return errors.New("must be table, json or csv")
	}
	return nil
}

// listFlag has a command that prints a list take CSV too.
func (a *app) listFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(listOutput{&a.output}, "output", "o", "`form` of the result: table, json, csv")
}

// print writes a result in the chosen form: a value as JSON, or text.
func (a *app) print(value any, text func(*page)) error {
	p := &page{}
	if a.output.json {
		encoder := json.NewEncoder(p)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(value); err != nil {
			return fmt.Errorf("encode the result: %w", err)
		}
	} else {
		text(p)
	}
	return a.write(p)
}

// A column is what a list shows of each of its elements.
type column[T any] struct {
	name  string         // in CSV; in a table its underscores are spaces
	right bool           // it is aligned to the right
	plain func(T) string // for programs
	shown func(T) string // for people
}

// title returns the name of the column for people.
func (c column[T]) title() string { return strings.ReplaceAll(c.name, "_", " ") }

// text is a column of names and the like.
func text[T any](name string, of func(T) string) column[T] { return column[T]{name, false, of, of} }

// instant is a column of times, in the form that is given for people.
func instant[T any](name string, form func(time.Time) string, of func(T) time.Time) column[T] {
	return column[T]{
		name, false,
		func(t T) string { return of(t).UTC().Format(time.RFC3339) },
		func(t T) string { return form(of(t)) },
	}
}

// number is a column of whole numbers.
func number[T any](name string, of func(T) int64) column[T] {
	return column[T]{
		name, true,
		func(t T) string { return strconv.FormatInt(of(t), 10) },
		func(t T) string { return grouped(of(t)) },
	}
}

// quantity is a column of tokens.
func quantity[T any](name string, of func(T) zlimit.Quantity) column[T] {
	return column[T]{
		name, true,
		func(t T) string { return of(t).String() },
		func(t T) string { return groupedTokens(of(t)) },
	}
}

// where leaves cells empty where there is nothing to show.
func (c column[T]) where(there func(T) bool) column[T] {
	when := func(cell func(T) string) func(T) string {
		return func(t T) string {
			if !there(t) {
				return ""
			}
			return cell(t)
		}
	}
	c.plain, c.shown = when(c.plain), when(c.shown)
	return c
}

// A listing is a result of many things alike.
type listing[T any] struct {
	value   any // as JSON
	rows    []T
	columns []column[T]
	title   string // a line above the table; "" for none
	none    string // what stands in place of a table without rows
}

// print writes the listing in the chosen form.
func (l *listing[T]) print(a *app) error {
	if a.output.csv {
		return l.printCSV(a)
	}
	return a.print(l.value, func(p *page) {
		if len(l.rows) == 0 {
			p.linef("%s", l.none)
			return
		}
		if l.title != "" {
			p.linef("%s", l.title)
		}
		var header []string
		for _, c := range l.columns {
			name := c.title()
			if c.right {
				name += ">"
			}
			header = append(header, name)
		}
		p.table(header, l.cells(func(c column[T], row T) string { return c.shown(row) }))
	})
}

func (l *listing[T]) printCSV(a *app) error {
	var header []string
	for _, c := range l.columns {
		header = append(header, c.name)
	}
	p := &page{}
	rows := l.cells(func(c column[T], row T) string { return c.plain(row) })
	if err := csv.NewWriter(p).WriteAll(append([][]string{header}, rows...)); err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	return a.write(p)
}

func (l *listing[T]) cells(of func(column[T], T) string) [][]string {
	rows := make([][]string, len(l.rows))
	for i, row := range l.rows {
		for _, c := range l.columns {
			rows[i] = append(rows[i], of(c, row))
		}
	}
	return rows
}
