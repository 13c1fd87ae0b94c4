package cli

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

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

// text is a column of names and the like.
func text[T any](name string, of func(T) string) column[T] { return column[T]{name, false, of, of} }

// number is a column of whole numbers.
func number[T any](name string, of func(T) int64) column[T] {
	return column[T]{
		name, true,
		func(t T) string { return strconv.FormatInt(of(t), 10) },
		func(t T) string { return grouped(of(t)) },
	}
}

// quantity is a column of quantities, empty where there is none.
func quantity[T any](name string, of func(T) (zlimit.Quantity, bool)) column[T] {
	cell := func(format func(zlimit.Quantity) string) func(T) string {
		return func(t T) string {
			if q, ok := of(t); ok {
				return format(q)
			}
			return ""
		}
	}
	return column[T]{name, true, cell(zlimit.Quantity.String), cell(groupedTokens)}
}

// printList writes a list in the chosen form: a value as JSON, or its elements as rows. A table without rows is a line that
// says so.
func printList[T any](a *app, value any, list []T, columns []column[T], none string) error {
	rows := make([][]string, len(list))
	for i, element := range list {
		for _, c := range columns {
			cell := c.shown
			if a.output.csv {
				cell = c.plain
			}
			rows[i] = append(rows[i], cell(element))
		}
	}
	if a.output.csv {
		var header []string
		for _, c := range columns {
			header = append(header, c.name)
		}
		p := &page{}
		if err := csv.NewWriter(p).WriteAll(append([][]string{header}, rows...)); err != nil {
			return fmt.Errorf("encode the result: %w", err)
		}
		return a.write(p)
	}
	return a.print(value, func(p *page) {
		if len(rows) == 0 {
			p.linef("%s", none)
			return
		}
		var header []string
		for _, c := range columns {
			name := strings.ReplaceAll(c.name, "_", " ")
			if c.right {
				name += ">"
			}
			header = append(header, name)
		}
		p.table(header, rows)
	})
}
