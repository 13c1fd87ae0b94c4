package simulate

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A window of usage is replayed as at most maxSpread requests, one for each event, and as more if one of them would have more than
// a part of what a limit holds: the requests that it stands for are smaller.
const (
	maxSpread     = 60
	maxParts      = 3600
	capacityParts = 4
)

// readUsage reads what zlimit usage list prints as CSV. A window becomes requests that are spread evenly over it. What children of an
// entity consumed is left out where the file has it apart, since it is in their own rows. A file of several entities without it may repeat
// requests: requests of children are in the row of their parent too.
func readUsage(name string, r io.Reader, limits []zlimit.Limit, now time.Time) (t *trace, repeats bool, err error) {
	u := &usageReader{name: name, now: now, csv: csv.NewReader(bufio.NewReader(r)), trace: &trace{name: name, width: len(limits), total: make([]int64, len(limits))}}
	u.csv.ReuseRecord = true
	if err := u.header(limits); err != nil {
		return nil, false, err
	}
	for {
		record, err := u.csv.Read()
		var parse *csv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			several := slices.ContainsFunc(u.trace.rows, func(r row) bool { return r.key != u.trace.rows[0].key })
			return u.ordered(), several && slices.Contains(u.children, -1), nil
		case errors.As(err, &parse):
			return nil, false, shell.Usagef("%s:%d: is no CSV: %v", name, parse.StartLine, parse.Err)
		case err != nil:
			return nil, false, shell.Usagef("%s: cannot be read: %v", name, err)
		}
		if err := u.add(record, limits); err != nil {
			return nil, false, err
		}
	}
}

type usageReader struct {
	name  string
	now   time.Time
	csv   *csv.Reader
	trace *trace

	start, window, entity, events int
	columns, children             []int // of the limits; -1 where the file has none
}

func (u *usageReader) header(limits []zlimit.Limit) error {
	names, err := u.csv.Read()
	if err != nil {
		return shell.Usagef("%s:1: is no usage: the first line must name the columns, as zlimit usage list -o csv does", u.name)
	}
	names = slices.Clone(names)
	index := func(name string) (int, error) {
		at := slices.Index(names, name)
		if at < 0 {
			return at, shell.Usagef("%s:1: no column %q; the columns are %s", u.name, name, strings.Join(names, ", "))
		}
		return at, nil
	}
	for name, at := range map[string]*int{"start": &u.start, "window": &u.window, "entity": &u.entity, "events": &u.events} {
		if *at, err = index(name); err != nil {
			return err
		}
	}
	for _, l := range limits {
		at, err := index(l.Name)
		if err != nil {
			return err
		}
		u.columns, u.children = append(u.columns, at), append(u.children, slices.Index(names, l.Name+"_from_children"))
	}
	return nil
}

// add adds the requests of a row.
func (u *usageReader) add(record []string, limits []zlimit.Limit) error {
	line, _ := u.csv.FieldPos(0)
	start, err := time.Parse(time.RFC3339, record[u.start])
	if err != nil {
		return shell.Usagef("%s:%d: start %q must be a time such as 2026-03-01T15:00:00Z", u.name, line, record[u.start])
	}
	window, err := zlimit.ParseWindow(record[u.window])
	if err != nil {
		return shell.Usagef("%s:%d: window %q must be hourly, daily or monthly", u.name, line, record[u.window])
	}
	events, err := strconv.ParseInt(record[u.events], 10, 64)
	if err != nil {
		return shell.Usagef("%s:%d: events %q must be a number", u.name, line, record[u.events])
	}
	entity := strings.TrimPrefix(record[u.entity], "'") // which disarms a formula
	if entity == "" {
		return shell.Usagef("%s:%d: entity must not be empty", u.name, line)
	}
	amounts := make([]int64, len(limits))
	for i, l := range limits {
		if amounts[i], err = u.amount(line, l.Name, record, u.columns[i]); err != nil {
			return err
		}
		if u.children[i] >= 0 {
			of, err := u.amount(line, l.Name, record, u.children[i])
			if err != nil {
				return err
			}
			amounts[i] -= of
		}
		amounts[i] = max(amounts[i], 0) // more was given back than taken
	}
	if slices.Max(amounts) == 0 {
		return nil
	}
	n := min(max(events, 1), maxSpread)
	for i, l := range limits {
		if most := max(l.Capacity/capacityParts, 1); amounts[i]/most >= n {
			n = min(amounts[i]/most+1, maxParts)
		}
	}
	end := window.End(start)
	if start.Before(u.now) && u.now.Before(end) {
		end = u.now // nothing is consumed later
	}
	length := end.Sub(start)
	for k := range n {
		at := start.Add(time.Duration(float64(length) * (float64(k) + 0.5) / float64(n)))
		u.trace.rows = append(u.trace.rows, row{at: at.UnixMilli(), line: line, key: strings.Clone(entity)})
		for i, all := range amounts {
			part := all*(k+1)/n - all*k/n
			if all > (1<<62)/maxParts { // whose product has no room
				part = all / n
			}
			u.trace.costs = append(u.trace.costs, part)
			u.trace.total[i] += part
		}
	}
	return nil
}

// billionths is the number of decimal places of a dollar that amounts have. Usage has thousandths of them.
const billionths = 9

// amount returns the amount in a field, in tokens or billionths of a dollar, rounded down; 0 for an empty one.
func (u *usageReader) amount(line int, limit string, record []string, field int) (int64, error) {
	text := strings.TrimPrefix(strings.TrimPrefix(record[field], "'"), "-") // given back is the same for children and own
	switch whole, fraction, _ := strings.Cut(text, "."); {
	case limit != grammar.Money:
		text = whole
	case len(fraction) > billionths:
		text = text[:len(text)-len(fraction)+billionths]
	}
	if text == "" {
		return 0, nil
	}
	n, err := grammar.ParseAmount(limit, text, 0)
	if err != nil {
		return 0, shell.Usagef("%s:%d: %s %q must be an amount", u.name, line, limit, record[field])
	}
	if strings.Contains(record[field], "-") {
		n = -n
	}
	return n, nil
}

// ordered returns the trace with its requests in the order of time.
func (u *usageReader) ordered() *trace {
	t := u.trace
	order := make([]int, len(t.rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.rows[a].at, t.rows[b].at) })
	sorted := &trace{name: t.name, width: t.width, total: t.total}
	for _, i := range order {
		sorted.rows = append(sorted.rows, t.rows[i])
		sorted.costs = append(sorted.costs, t.cost(i)...)
	}
	return sorted
}
