package shell

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Stream is a list of things alike of which there may be very many: it is printed as it is read. JSON needs no more
// than that. A table needs the widths of its columns first, and CSV the columns where they depend on the rows. A list
// of more than heldRows is therefore read twice.
type Stream[T any] struct {
	Head    any                                    // the fields before the list in JSON, a struct
	Key     string                                 // the field of the list
	Columns func(limits []string) []show.Column[T] // given the limits that the rows have; a table leaves out the columns of files
	Limits  func(row T) iter.Seq[string]           // of a row; nil where the columns do not depend on them
	Title   string                                 // a line above the table; "" for none
	None    string                                 // what stands in place of a table without rows
	Below   []string                               // columns that go below their row on a terminal that is too narrow, the first ones first
}

// Fixed are the columns of a list that do not depend on its rows.
func Fixed[T any](columns ...show.Column[T]) func([]string) []show.Column[T] {
	return func([]string) []show.Column[T] { return columns }
}

const (
	heldRows = 1000     // rows in memory
	flushAt  = 64 << 10 // bytes of output in memory
)

// A RowsOf reads a list.
type RowsOf[T any] func(context.Context, *zlimit.RateLimiter) iter.Seq2[T, error]

// List prints a list of the store. As Look does for one thing, it finds input that breaks a rule first, and
// creates no file.
func List[T any](ctx context.Context, sh *Shell, rows RowsOf[T], s *Stream[T]) error {
	first := func(ctx context.Context, l *zlimit.RateLimiter) (struct{}, error) {
		for _, err := range rows(ctx, l) {
			return struct{}{}, err
		}
		return struct{}{}, nil
	}
	dsn, err := Prepare(ctx, sh, first)
	if err != nil {
		return err
	}
	_, err = Perform(ctx, sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (struct{}, error) {
		return struct{}{}, s.Print(sh, rows(ctx, l))
	})
	return err
}

// Print writes the list in the chosen form. The rows may be read twice.
func (s *Stream[T]) Print(sh *Shell, rows iter.Seq2[T, error]) error {
	p := &show.Page{}
	var err error
	switch {
	case sh.Output.JSON:
		err = s.printJSON(sh, p, rows)
	case sh.Output.CSV && s.Limits == nil:
		err = s.printCSV(sh, p, s.Columns(nil), rows)
	default:
		var m measured[T]
		if m, err = s.measure(sh.Output.CSV, rows); err != nil {
			return err
		}
		if m.count <= heldRows {
			rows = Remembered(m.rows)
		}
		if sh.Output.CSV {
			err = s.printCSV(sh, p, m.columns, rows)
		} else {
			err = s.printTable(sh, p, &m, rows)
		}
	}
	if err != nil {
		return err
	}
	return sh.Write(p)
}

// Table adds rows that are in memory to a page as a table, folded as [Stream.Print] folds it.
func (s *Stream[T]) Table(sh *Shell, p *show.Page, rows []T) error {
	m, err := s.measure(false, Remembered(rows))
	if err != nil {
		return err
	}
	return s.printTable(sh, p, &m, Remembered(rows))
}

// each calls f for every row, and writes the page out as it grows.
func (s *Stream[T]) each(sh *Shell, p *show.Page, rows iter.Seq2[T, error], f func(T) error) error {
	for row, err := range rows {
		if err == nil {
			err = f(row)
		}
		if err == nil && p.Len() >= flushAt {
			err = sh.Write(p)
			p.Reset()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Stream[T]) printJSON(sh *Shell, p *show.Page, rows iter.Seq2[T, error]) error {
	head, err := encodeJSON(s.Head)
	if err != nil {
		return err
	}
	p.Write(bytes.TrimSuffix(head, []byte("}")))
	if len(head) > len("{}") {
		p.WriteString(",")
	}
	p.WriteString(strconv.Quote(s.Key) + ":[")
	between := ""
	if err := s.each(sh, p, rows, func(row T) error {
		element, err := encodeJSON(row)
		p.WriteString(between)
		p.Write(element)
		between = ","
		return err
	}); err != nil {
		return err
	}
	p.WriteString("]}\n")
	return nil
}

// encodeJSON returns the JSON of a value, on one line without its end.
func encodeJSON(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

func (s *Stream[T]) printCSV(sh *Shell, p *show.Page, columns []show.Column[T], rows iter.Seq2[T, error]) error {
	w := csv.NewWriter(p)
	line := func(cell func(show.Column[T]) string) error {
		record := make([]string, len(columns))
		for i, c := range columns {
			record[i] = cell(c)
		}
		if err := w.Write(record); err != nil {
			return fmt.Errorf("encode the result: %w", err)
		}
		w.Flush()
		return w.Error()
	}
	if err := line(func(c show.Column[T]) string { return c.Name }); err != nil {
		return err
	}
	return s.each(sh, p, rows, func(row T) error { return line(func(c show.Column[T]) string { return show.Inert(c.Plain(row)) }) })
}

// measured has the columns, widths and first rows of a table, found before it is written.
type measured[T any] struct {
	columns []show.Column[T]
	widths  map[string]int // of the columns, by their names
	count   int
	rows    []T // the first of them, held at most
}

// shown returns the columns of CSV or of a table.
func (s *Stream[T]) shown(csv bool, limits []string) []show.Column[T] {
	columns := s.Columns(limits)
	if csv {
		return columns
	}
	return slices.DeleteFunc(slices.Clone(columns), func(c show.Column[T]) bool { return c.File })
}

func (s *Stream[T]) measure(csv bool, rows iter.Seq2[T, error]) (m measured[T], err error) {
	limits := map[string]bool{}
	m.columns, m.widths = s.shown(csv, nil), map[string]int{}
	for row, err := range rows {
		if err != nil {
			return m, err
		}
		if m.count++; m.count <= heldRows {
			m.rows = append(m.rows, row)
		}
		before := len(limits)
		if s.Limits != nil {
			for name := range s.Limits(row) {
				limits[name] = true
			}
		}
		if len(limits) > before {
			m.columns = s.shown(csv, slices.Sorted(maps.Keys(limits)))
		}
		for _, c := range m.columns {
			m.widths[c.Name] = max(m.widths[c.Name], utf8.RuneCountInString(show.Printable(c.Shown(row))))
		}
	}
	for _, c := range m.columns {
		m.widths[c.Name] = max(m.widths[c.Name], utf8.RuneCountInString(c.Title()))
	}
	return m, nil
}

func (s *Stream[T]) printTable(sh *Shell, p *show.Page, m *measured[T], rows iter.Seq2[T, error]) error {
	if m.count == 0 {
		p.Linef("%s", s.None)
		return nil
	}
	if s.Title != "" {
		p.Linef("%s", s.Title)
	}
	line := func(cell func(show.Column[T]) string) {
		cells := make([]show.CellOf, len(m.columns))
		for i, c := range m.columns {
			cells[i] = show.CellOf{Text: cell(c), Width: m.widths[c.Name], Right: c.Right}
		}
		p.Row(cells)
	}
	below := s.takeBelow(sh, m)
	line(show.Column[T].Title)
	return s.each(sh, p, rows, func(row T) error {
		line(func(c show.Column[T]) string { return c.Shown(row) })
		if len(below) > 0 {
			for _, text := range show.Fold(textBelow(below, row), sh.Width()-len(belowIndent)) {
				p.Linef("%s%s", belowIndent, text)
			}
		}
		return nil
	})
}

// belowIndent is how far the text of columns below their row is indented.
const belowIndent = "    "

// textBelow returns the text of a row's columns that go below it.
func textBelow[T any](below []show.Column[T], row T) string {
	var parts []string
	for _, c := range below {
		text := c.Shown(row)
		switch {
		case text == "":
		case c.Bare:
			parts = append(parts, text)
		default:
			parts = append(parts, c.Title()+" "+text)
		}
	}
	return strings.Join(parts, ", ")
}

// takeBelow takes columns out of a table that go below its rows, as many as make the table as narrow as the terminal. It returns them in
// the order of the table, none where the output is no terminal.
func (s *Stream[T]) takeBelow(sh *Shell, m *measured[T]) (below []show.Column[T]) {
	left := s.Below
	if !sh.Live {
		return nil
	}
	taken := map[string]bool{}
	for m.width(taken) > sh.Width() && len(left) > 0 {
		taken[left[0]], left = true, left[1:]
	}
	all := m.columns
	m.columns = nil
	for _, c := range all {
		if taken[c.Name] {
			below = append(below, c)
		} else {
			m.columns = append(m.columns, c)
		}
	}
	return below
}

// width returns how wide the table is without some of its columns.
func (m *measured[T]) width(without map[string]bool) int {
	const between = len("  ")
	width := -between
	for _, c := range m.columns {
		if !without[c.Name] {
			width += m.widths[c.Name] + between
		}
	}
	return width
}

// Remembered yields rows that are in memory.
func Remembered[T any](rows []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}
