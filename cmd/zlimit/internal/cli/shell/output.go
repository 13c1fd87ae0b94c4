package shell

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

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

// ListFlag lets a command that prints a list take CSV too.
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
	Title   string   // a line above the table; "" for none
	None    string   // what stands in place of a table without rows
	Below   []string // as in a [Stream]
}

// Print writes the listing in the chosen form.
func (l *Listing[T]) Print(sh *Shell) error {
	if sh.Output.JSON {
		return sh.Print(l.Value, nil)
	}
	s := Stream[T]{Columns: Fixed(l.Columns...), Title: l.Title, None: l.None, Below: l.Below}
	return s.Print(sh, Remembered(l.Rows))
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

// Width returns the columns of the terminal, as the environment says; 80 by default.
func (sh *Shell) Width() int {
	if n, err := strconv.Atoi(sh.Env("COLUMNS")); err == nil && n > 0 {
		return n
	}
	return defaultWidth
}

const defaultWidth = 80

// Folded returns a text as lines of the terminal's width, and as one line where the output is no terminal.
func (sh *Shell) Folded(text string) []string {
	if !sh.Live {
		return []string{text}
	}
	return show.Fold(text, sh.Width())
}
