package shell

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
)

// Output is the form of a result. Its zero value is the table.
type Output struct{ JSON, CSV bool }

// String returns the name of the form.
func (o *Output) String() string {
	switch {
	case o.JSON:
		return "json"
	case o.CSV:
		return "csv"
	default:
		return "table"
	}
}

// Set takes the name of the form. CSV is for lists.
func (o *Output) Set(name string) error {
	if name != "table" && name != "json" {
		return errors.New("must be table or json")
	}
	*o = Output{JSON: name == "json"}
	return nil
}

// Type returns the kind of value of the flag.
func (o *Output) Type() string { return "form" }

type listOutput struct{ *Output }

// Set takes the name of the form.
func (o listOutput) Set(name string) error {
	if name == "csv" {
		*o.Output = Output{CSV: true}
		return nil
	}
	if o.Output.Set(name) != nil {
		return errors.New("must be table, json or csv")
	}
	return nil
}

// ListFlag has a command that prints a list take CSV too.
func (sh *Shell) ListFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(listOutput{&sh.Output}, "output", "o", "`form` of the result: table, json, csv")
}

// Print writes a result in the chosen form: a value as JSON, or text.
func (sh *Shell) Print(value any, text func(*show.Page)) error {
	p := &show.Page{}
	if sh.Output.JSON {
		encoder := json.NewEncoder(p)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(value); err != nil {
			return fmt.Errorf("encode the result: %w", err)
		}
	} else {
		text(p)
	}
	return sh.Write(p)
}

// A Listing is a result of many things alike.
type Listing[T any] struct {
	Value   any // as JSON
	Rows    []T
	Columns []show.Column[T]
	Title   string // a line above the table; "" for none
	None    string // what stands in place of a table without rows
}

// Print writes the listing in the chosen form.
func (l *Listing[T]) Print(sh *Shell) error {
	if sh.Output.CSV {
		return l.printCSV(sh)
	}
	return sh.Print(l.Value, func(p *show.Page) {
		if len(l.Rows) == 0 {
			p.Linef("%s", l.None)
			return
		}
		if l.Title != "" {
			p.Linef("%s", l.Title)
		}
		var header []string
		for _, c := range l.Columns {
			name := c.Title()
			if c.Right {
				name += ">"
			}
			header = append(header, name)
		}
		p.Table(header, l.cells(func(c show.Column[T], row T) string { return c.Shown(row) }))
	})
}

func (l *Listing[T]) printCSV(sh *Shell) error {
	var header []string
	for _, c := range l.Columns {
		header = append(header, c.Name)
	}
	p := &show.Page{}
	rows := l.cells(func(c show.Column[T], row T) string { return show.Inert(c.Plain(row)) })
	if err := csv.NewWriter(p).WriteAll(append([][]string{header}, rows...)); err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	return sh.Write(p)
}

func (l *Listing[T]) cells(of func(show.Column[T], T) string) [][]string {
	rows := make([][]string, len(l.Rows))
	for i, row := range l.Rows {
		for _, c := range l.Columns {
			rows[i] = append(rows[i], of(c, row))
		}
	}
	return rows
}

// ToPeople writes a page to stdout, or to stderr where stdout is for programs.
func (sh *Shell) ToPeople(p *show.Page) error {
	to := sh.Stdout
	if sh.Output.JSON {
		to = sh.Stderr
	}
	_, err := to.Write(p.Bytes())
	return err
}
