package cli

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
	"unicode/utf8"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A stream is a list of things alike of which there may be very many: it is printed as it is read. JSON needs no more
// than that. A table needs the widths of its columns first, and CSV the columns where they depend on the rows. A list
// of more than held rows is therefore read twice.
type stream[T any] struct {
	head    any                               // the fields before the list in JSON, a struct
	key     string                            // the field of the list
	columns func(limits []string) []column[T] // given the limits that the rows have
	limits  func(row T) iter.Seq[string]      // of a row; nil where the columns do not depend on them
	none    string                            // what stands in place of a table without rows
}

const (
	held    = 1000     // rows in memory
	flushAt = 64 << 10 // bytes of output in memory
)

// A rowsOf reads a list.
type rowsOf[T any] func(context.Context, *zlimit.RateLimiter) iter.Seq2[T, error]

// lookThrough prints a list of a store. As look does for one thing, it finds input that breaks a rule first, and
// creates no file.
func lookThrough[T any](ctx context.Context, a *app, dsn string, rows rowsOf[T], s *stream[T]) error {
	first := func(ctx context.Context, l *zlimit.RateLimiter) (struct{}, error) {
		for _, err := range rows(ctx, l) {
			return struct{}{}, err
		}
		return struct{}{}, nil
	}
	if err := prepare(ctx, a, dsn, first); err != nil {
		return err
	}
	_, err := perform(ctx, a, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (struct{}, error) {
		return struct{}{}, s.print(a, rows(ctx, l))
	})
	return err
}

// print writes the list in the chosen form. The rows may be read twice.
func (s *stream[T]) print(a *app, rows iter.Seq2[T, error]) error {
	p := &page{}
	var err error
	switch {
	case a.output.json:
		err = s.printJSON(a, p, rows)
	case a.output.csv && s.limits == nil:
		err = s.printCSV(a, p, s.columns(nil), rows)
	default:
		var m measured[T]
		if m, err = s.measure(rows); err != nil {
			return err
		}
		if m.count <= held {
			rows = remembered(m.rows)
		}
		if a.output.csv {
			err = s.printCSV(a, p, m.columns, rows)
		} else {
			err = s.printTable(a, p, &m, rows)
		}
	}
	if err != nil {
		return err
	}
	return a.write(p)
}

// each calls f for every row, and writes the page out as it grows.
func (s *stream[T]) each(a *app, p *page, rows iter.Seq2[T, error], f func(T) error) error {
	for row, err := range rows {
		if err == nil {
			err = f(row)
		}
		if err == nil && p.Len() >= flushAt {
			err = a.write(p)
			p.Reset()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stream[T]) printJSON(a *app, p *page, rows iter.Seq2[T, error]) error {
	head, err := encodeJSON(s.head)
	if err != nil {
		return err
	}
	p.Write(bytes.TrimSuffix(head, []byte("}")))
	if len(head) > len("{}") {
		p.WriteString(",")
	}
	p.WriteString(strconv.Quote(s.key) + ":[")
	between := ""
	if err := s.each(a, p, rows, func(row T) error {
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

func (s *stream[T]) printCSV(a *app, p *page, columns []column[T], rows iter.Seq2[T, error]) error {
	w := csv.NewWriter(p)
	line := func(cell func(column[T]) string) error {
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
	if err := line(func(c column[T]) string { return c.name }); err != nil {
		return err
	}
	return s.each(a, p, rows, func(row T) error { return line(func(c column[T]) string { return c.plain(row) }) })
}

// measured is what a table has to know of its rows before it is written.
type measured[T any] struct {
	columns []column[T]
	widths  map[string]int // of the columns, by their names
	count   int
	rows    []T // the first of them, held at most
}

func (s *stream[T]) measure(rows iter.Seq2[T, error]) (m measured[T], err error) {
	limits := map[string]bool{}
	m.columns, m.widths = s.columns(nil), map[string]int{}
	for row, err := range rows {
		if err != nil {
			return m, err
		}
		if m.count++; m.count <= held {
			m.rows = append(m.rows, row)
		}
		before := len(limits)
		if s.limits != nil {
			for name := range s.limits(row) {
				limits[name] = true
			}
		}
		if len(limits) > before {
			m.columns = s.columns(slices.Sorted(maps.Keys(limits)))
		}
		for _, c := range m.columns {
			m.widths[c.name] = max(m.widths[c.name], utf8.RuneCountInString(c.shown(row)))
		}
	}
	for _, c := range m.columns {
		m.widths[c.name] = max(m.widths[c.name], utf8.RuneCountInString(c.title()))
	}
	return m, nil
}

func (s *stream[T]) printTable(a *app, p *page, m *measured[T], rows iter.Seq2[T, error]) error {
	if m.count == 0 {
		p.linef("%s", s.none)
		return nil
	}
	line := func(cell func(column[T]) string) {
		cells := make([]cellOf, len(m.columns))
		for i, c := range m.columns {
			cells[i] = cellOf{cell(c), m.widths[c.name], c.right}
		}
		p.row(cells)
	}
	line(column[T].title)
	return s.each(a, p, rows, func(row T) error {
		line(func(c column[T]) string { return c.shown(row) })
		return nil
	})
}

// remembered yields rows that are in memory.
func remembered[T any](rows []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}
