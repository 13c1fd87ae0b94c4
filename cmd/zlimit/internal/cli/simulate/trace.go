package simulate

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/grammar"
)

const timeColumn = "TIMESTAMP"

// A trace is a record of requests, in the order of its file.
type trace struct {
	name  string // of the file
	width int    // costs per row
	rows  []row
	costs []int64 // of all rows, one after the other: tokens, or billionths of a dollar
	total []int64 // costs of all rows together
}

// Columns of a trace other than its time and its costs; "" for none.
type columns struct {
	key     string // whose request it is
	parent  string // of the key
	latency string // seconds until the request is settled
}

// A row is one request.
type row struct {
	at      int64 // epoch milliseconds
	line    int   // in the file
	key     string
	parent  string
	latency time.Duration
}

// cost returns the consumption of a row, in the order of the trace's costs.
func (t *trace) cost(row int) []int64 { return t.costs[row*t.width : (row+1)*t.width] }

// readTrace reads all of a CSV file whose first line names the columns, including TIMESTAMP and the columns of the costs. An
// error names the line and the rule that it breaks. Time may go back from row to row, as it does in logs of many writers.
func readTrace(name string, r io.Reader, costs []cost, more columns) (*trace, error) {
	buffered := bufio.NewReader(r)
	if mark, err := buffered.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = buffered.Discard(3)
	}
	t := &traceReader{name: name, csv: csv.NewReader(buffered), costs: costs, more: more}
	t.csv.ReuseRecord = true
	t.csv.TrimLeadingSpace = true
	if err := t.header(); err != nil {
		return nil, err
	}
	into := &trace{name: name, width: len(costs), total: make([]int64, len(costs))}
	for {
		at, err := t.next(into)
		switch {
		case errors.Is(err, io.EOF):
			return into, nil
		case err != nil:
			return nil, err
		}
		line, _ := t.csv.FieldPos(t.time)
		next := row{at: at, line: line}
		if err := t.fill(&next); err != nil {
			return nil, err
		}
		into.rows = append(into.rows, next)
	}
}

type traceReader struct {
	name    string
	csv     *csv.Reader
	costs   []cost
	more    columns
	columns []string
	time    int // the index of the time
	key     int // of the other columns, if there are any
	parent  int
	latency int
	indexes [][]int // the indexes of the columns of each cost
	record  []string
}

// failf returns an error about a field of the current row.
func (t *traceReader) failf(field int, format string, args ...any) error {
	line, _ := t.csv.FieldPos(field)
	return shell.Usagef("%s:%d: %s %q %s", t.name, line, t.columns[field], t.record[field], fmt.Sprintf(format, args...))
}

func (t *traceReader) header() error {
	record, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return shell.Usagef("%s:1: the trace is empty; its first line must name the columns", t.name)
	}
	if err != nil {
		return t.unreadable(err)
	}
	for _, column := range record {
		t.columns = append(t.columns, strings.TrimSpace(column))
	}
	if t.time, err = t.index(timeColumn); err != nil {
		return err
	}
	for column, index := range map[string]*int{t.more.key: &t.key, t.more.parent: &t.parent, t.more.latency: &t.latency} {
		if column == "" {
			continue
		}
		if *index, err = t.index(column); err != nil {
			return err
		}
	}
	for _, c := range t.costs {
		var indexes []int
		for _, column := range c.columns {
			index, err := t.index(column)
			if err != nil {
				return err
			}
			indexes = append(indexes, index)
		}
		t.indexes = append(t.indexes, indexes)
	}
	return nil
}

func (t *traceReader) index(column string) (int, error) {
	index := slices.Index(t.columns, column)
	if index < 0 {
		return 0, shell.Usagef("%s:1: no column %q; the columns are %s", t.name, column, strings.Join(t.columns, ", "))
	}
	if slices.Contains(t.columns[index+1:], column) {
		return 0, shell.Usagef("%s:1: column %q is given twice", t.name, column)
	}
	return index, nil
}

// fill reads the other columns of a row.
func (t *traceReader) fill(r *row) error {
	if t.more.key != "" {
		r.key = strings.Clone(strings.TrimSpace(t.record[t.key]))
		if r.key == "" {
			return t.failf(t.key, "must name whose request it is")
		}
	}
	if t.more.parent != "" {
		r.parent = strings.Clone(strings.TrimSpace(t.record[t.parent]))
	}
	if t.more.latency != "" {
		seconds, err := strconv.ParseFloat(strings.TrimSpace(t.record[t.latency]), 64)
		if err != nil || !(seconds >= 0 && seconds <= maxLatency) {
			return t.failf(t.latency, "must be a number of seconds from 0 to %d", maxLatency)
		}
		r.latency = time.Duration(seconds * float64(time.Second))
	}
	return nil
}

const maxLatency = 86_400

// next reads a row, appends its costs to the trace's, and returns its time.
func (t *traceReader) next(into *trace) (at int64, err error) {
	if t.record, err = t.csv.Read(); err != nil {
		return 0, t.unreadable(err)
	}
	when, ok := parseTime(t.record[t.time])
	if !ok {
		return 0, t.failf(t.time, "must be a time such as 2023-11-16 18:15:46.68 (UTC) or 2023-11-16T18:15:46Z")
	}
	for i, c := range t.costs {
		sum := c.fixed
		for _, index := range t.indexes[i] {
			n, err := c.value(t.record[index])
			if err != nil {
				line, _ := t.csv.FieldPos(index)
				return 0, shell.Usagef("%s:%d: %s %v", t.name, line, t.columns[index], err)
			}
			if sum += n; sum > shell.MaxTokens {
				return 0, t.failf(index, "makes the cost %v more than %s", c, grammar.FormatAmount(c.limit, shell.MaxTokens))
			}
		}
		if into.total[i] > math.MaxInt64-sum {
			line, _ := t.csv.FieldPos(t.time)
			return 0, shell.Usagef("%s:%d: the cost %v of all rows is more than %s", t.name, line, c, grammar.FormatAmount(c.limit, math.MaxInt64))
		}
		into.total[i] += sum
		into.costs = append(into.costs, sum)
	}
	return when.UnixMilli(), nil
}

// unreadable returns an error of the file or of its form; io.EOF as it is.
func (t *traceReader) unreadable(err error) error {
	var parse *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, csv.ErrFieldCount) && errors.As(err, &parse):
		return shell.Usagef("%s:%d: the line has another number of fields than the header, %d", t.name, parse.StartLine, len(t.columns))
	case errors.As(err, &parse):
		return shell.Usagef("%s:%d: is no CSV: %v", t.name, parse.StartLine, parse.Err)
	default:
		return shell.Usagef("%s: cannot be read: %v", t.name, err)
	}
}

// timeForms are the forms of times: with and without a zone, UTC if there is none. All take a fraction of seconds.
var timeForms = []string{
	time.DateTime,
	time.RFC3339,
	"2006-01-02T15:04:05",
	"2006-01-02 15:04:05Z07:00",
}

func parseTime(text string) (time.Time, bool) {
	text = strings.TrimSpace(text)
	for _, form := range timeForms {
		if t, err := time.Parse(form, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}
