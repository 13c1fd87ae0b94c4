// Package show writes results for people: tables, numbers, limits, and the control sequences of terminals. It reads and
// asks nothing.
package show

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Page is text that is written in one call. Its zero value is empty.
type Page struct{ bytes.Buffer }

// Raw is text that a page writes as it is: control sequences of this command's own, and drawings of several lines.
type Raw string

// Linef writes a line. Strings among the arguments are made [Printable].
func (p *Page) Linef(format string, args ...any) {
	safe := make([]any, len(args))
	for i, arg := range args {
		safe[i] = arg
		if text, ok := arg.(string); ok {
			safe[i] = Printable(text)
		}
	}
	p.WriteString(fmt.Sprintf(format, safe...) + "\n")
}

// Table writes rows below a header, as wide as their cells. A column is aligned to the right where its header ends in
// ">", which is not shown.
func (p *Page) Table(header []string, rows [][]string) {
	header = slices.Clone(header)
	right := make([]bool, len(header))
	width := make([]int, len(header))
	for i, h := range header {
		header[i], right[i] = strings.CutSuffix(h, ">")
	}
	all := [][]string{header}
	for _, row := range rows {
		safe := make([]string, len(row))
		for i, cell := range row {
			safe[i] = Printable(cell)
		}
		all = append(all, safe)
	}
	for _, row := range all {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range all {
		cells := make([]CellOf, len(row))
		for i, cell := range row {
			cells[i] = CellOf{cell, width[i], right[i]}
		}
		p.Row(cells)
	}
}

// A CellOf is a cell of a table whose column has a width, and may be aligned to the right.
type CellOf struct {
	Text  string
	Width int
	Right bool
}

// Row writes one row of a table.
func (p *Page) Row(cells []CellOf) {
	var line strings.Builder
	for _, c := range cells {
		c.Text = Printable(c.Text)
		space := strings.Repeat(" ", max(0, c.Width-utf8.RuneCountInString(c.Text)))
		if c.Right {
			line.WriteString(space + c.Text + "  ")
		} else {
			line.WriteString(c.Text + space + "  ")
		}
	}
	p.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}

// Grouped returns a number with commas between groups of three digits.
func Grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// GroupedTokens returns tokens with commas between groups of three digits before the point.
func GroupedTokens(q zlimit.Quantity) string {
	whole, fraction, _ := strings.Cut(q.String(), ".")
	n, _ := strconv.ParseInt(whole, 10, 64) // digits with a sign
	text := Grouped(n)
	if n == 0 {
		text = whole // it may be -0
	}
	if fraction != "" {
		text += "." + fraction
	}
	return text
}

// Decimal returns a number with one place.
func Decimal(f float64) string {
	tenths := int64(math.Round(math.Abs(f) * 10))
	sign := ""
	if f < 0 && tenths > 0 {
		sign = "-"
	}
	return fmt.Sprintf("%s%s.%d", sign, Grouped(tenths/10), tenths%10)
}

// Percent returns part of a whole as a percentage, rounded down to a tenth; "" when there is no whole.
func Percent(part, whole int64) string {
	if whole == 0 {
		return ""
	}
	tenths := int64(float64(part) / float64(whole) * 1000)
	return fmt.Sprintf("%d.%d %%", tenths/10, tenths%10)
}

// Brief returns a wait as people read it: milliseconds below a second, tenths of seconds below a minute, whole seconds
// above, always rounded up.
func Brief(d time.Duration) string {
	unit := time.Second
	switch {
	case d < time.Second:
		unit = time.Millisecond
	case d < time.Minute:
		unit = 100 * time.Millisecond
	}
	if rest := d % unit; rest > 0 && d <= 1<<63-1-unit {
		d += unit - rest
	}
	return d.String()
}

// Counted returns a number of things.
func Counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return Grouped(int64(n)) + " " + thing + "s"
}
