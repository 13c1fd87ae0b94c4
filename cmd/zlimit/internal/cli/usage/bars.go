package usage

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

const (
	maxBars   = 31 // windows that are drawn as bars: the days of a month
	barsWidth = 79 // columns of a line with a bar
)

// patterns and colors belong to the heaviest entities, the heaviest first. The last one is of all others.
var (
	patterns = [...]string{"█", "▓", "▒", "░"}
	colors   = [...]string{"36", "33", "35", show.Faint}
)

// A series is a part of each bar.
type series struct {
	name     string
	consumed []zlimit.Quantity
}

// parts returns the heaviest entities of a curve, and the sum of the others.
func (c *curve) parts() (parts []series) {
	for entity, consumed := range c.entities {
		parts = append(parts, series{entity, consumed})
	}
	if len(parts) == 0 {
		return []series{{c.title(), c.Consumed}}
	}
	sum := func(s series) (total zlimit.Quantity) {
		for _, q := range s.consumed {
			total += q
		}
		return total
	}
	slices.SortFunc(parts, func(a, b series) int { return cmp.Or(cmp.Compare(sum(b), sum(a)), strings.Compare(a.name, b.name)) })
	if len(parts) <= len(patterns) {
		return parts
	}
	named := len(patterns) - 1
	others := series{show.Counted(len(parts)-named, "other"), make([]zlimit.Quantity, len(c.Consumed))}
	for _, s := range parts[named:] {
		for i, q := range s.consumed {
			others.consumed[i] += q
		}
	}
	return append(parts[:named:named], others)
}

// bars writes a bar for each window, as wide as its part of the highest one. A bar has a part for each of the heaviest entities.
func (p *plot) bars(to *show.Page, c *curve) {
	parts, label := c.parts(), p.label()
	if len(parts) > 1 {
		legend := make([]string, len(parts))
		for i, s := range parts {
			legend[i] = p.part(i, 1) + " " + show.Printable(s.name)
		}
		to.Linef("%s", show.Raw(strings.Join(legend, "  ")))
	}
	amounts, widest := make([]string, len(c.Consumed)), 0
	for i, q := range c.Consumed {
		amounts[i] = show.Quantified(c.Name, q)
		widest = max(widest, utf8.RuneCountInString(amounts[i]))
	}
	room := barsWidth - utf8.RuneCountInString(label(0)) - widest - 4
	highest := slices.Max(c.Consumed).Float64()
	for i, amount := range amounts {
		var bar strings.Builder
		drawn, sum := 0, zlimit.Quantity(0)
		for at, s := range parts {
			sum += s.consumed[i]
			end := 0
			if highest > 0 {
				end = min(room, int(math.Round(sum.Float64()/highest*float64(room))))
			}
			if n := end - drawn; n > 0 {
				bar.WriteString(p.part(at, n))
				drawn = end
			}
		}
		if drawn == 0 && c.Consumed[i] > 0 {
			bar.WriteString("▏")
			drawn = 1
		}
		space := strings.Repeat(" ", room-drawn+2+widest-utf8.RuneCountInString(amount))
		to.Linef("%s │%s%s%s", label(i), show.Raw(bar.String()), show.Raw(space), amount)
	}
}

// part returns some columns of a bar's part.
func (p *plot) part(at, width int) string {
	if p.colored {
		return "\x1b[" + colors[at] + "m" + strings.Repeat(patterns[0], width) + "\x1b[0m"
	}
	return strings.Repeat(patterns[at], width)
}
