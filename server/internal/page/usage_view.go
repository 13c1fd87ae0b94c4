package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

func add(to, values []float64) {
	for i := range values {
		to[i] += values[i]
	}
}

// verdicts are how several budgets end.
type verdicts struct {
	N, TooEarly int
	UsedUp      []*group
	EndEarly    []*group // the first one first
}

func (b *ledger) verdicts(q *usageQuery) (v verdicts) {
	for i := range b.Groups {
		g := &b.Groups[i]
		v.N += btoi(g.Forecast != nil)
		switch b.outlook(q, g.Forecast, g.days) {
		case outlookUsedUp:
			v.UsedUp = append(v.UsedUp, g)
		case outlookEndsEarly:
			v.EndEarly = append(v.EndEarly, g)
		case outlookTooEarly:
			v.TooEarly++
		case outlookLasts:
		}
	}
	slices.SortStableFunc(v.EndEarly, func(a, b *group) int { return a.Forecast.UsedUp.Compare(b.Forecast.UsedUp) })
	return v
}

// A usageCause is the group that spends more than a month ago, and what would make the budget last.
type usageCause struct {
	Group      *group
	by, Part   float64 // more than before, and as a part of it
	Alone      bool
	Over, Left float64 // what the budget lacks, or has left
	May        float64 // what the group may spend a day
}

func (b *ledger) cause(q *usageQuery) (c usageCause) {
	up := 0.0
	for i := range b.Groups {
		g := &b.Groups[i]
		was := b.before(q, g)
		if d := sum(g.days[b.offset:]) - was; d > 0 && was > 0 {
			if up += d; d > c.by {
				c.Group, c.by, c.Part = g, d, d/was
			}
		}
	}
	c.Alone = c.by > 0.8*up
	over, rest := b.Likely-b.Budget, float64(q.Days())-q.Passed()
	if q.Entity == "" || b.Budget == 0 || b.Early || b.Available <= 0 {
		return c
	}
	switch today := b.offset + int(q.Passed()); {
	case over < 0 && q.Present():
		c.Left = -over
	case over > 0 && rest >= 0.2 && c.Group != nil:
		c.Over = rounded(over)
		c.May = rounded(sum(c.Group.days[max(today-7, 0):today])/7 - over/rest)
	}
	return c
}

// rounded keeps two digits: a forecast has no more.
func rounded(v float64) float64 {
	if v <= 0 {
		return 0
	}
	power := math.Pow(10, math.Floor(math.Log10(v))-1)
	return math.Round(v/power) * power
}

// before is what a group spent in the same days of the month before.
func (b *ledger) before(q *usageQuery, g *group) float64 {
	whole := int(q.Passed())
	was := sum(g.days[:min(whole, b.offset)])
	if whole < b.offset {
		was += g.days[whole] * (q.Passed() - float64(whole))
	}
	return was
}

// A budgetRow is what a group spent, and the part of its budget.
type budgetRow struct {
	*group
	Colour, Name, URL string
	Spent, Held       float64
	Was, Change       float64 // in the month before, and since
	Used, HeldAt      float64 // parts of the budget, without and with what is held
	HatchAt, Hatch    float64 // of what is held
	Outlook           outlook
	Ends              string
	rank              int
}

func (b *usageBody) rows(held map[string]float64) {
	others := float64(0)
	for i := range b.Groups {
		g := &b.Groups[i]
		row := b.row(g, "E", named(g.Entity), held[g.Entity])
		if b.Entity == "" {
			row.URL = b.url("/usage", g.Entity)
		}
		if i < len(colours)-1 {
			row.Colour = colours[i]
			b.Key = append(b.Key, keyItem{row.Colour, row.Name})
		} else {
			others += row.Spent
		}
		b.Rows = append(b.Rows, row)
	}
	if rest := sum(b.others.days[b.offset:]); rest > 0.002*b.Spent() {
		b.Key = append(b.Key, keyItem{"E", "others"})
		if left := rest - others; left > 0.5*rest && b.Entity != "" {
			g, name := group{Entity: b.Entity, days: b.others.days}, "others"
			if len(b.Groups) == 0 { // it has no children
				name = named(b.Entity)
				if b.Budget > 0 {
					g.Forecast = &b.Forecast
				}
			}
			row := b.row(&g, "E", name, held[""])
			row.rank = 4
			b.Rows = append(b.Rows, row)
		}
	}
	slices.SortStableFunc(b.Rows, func(a, b budgetRow) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.Spent, a.Spent)) })
}

// row makes the row of a group.
func (b *usageBody) row(g *group, colour, name string, held float64) budgetRow {
	f := g.Forecast
	row := budgetRow{group: g, Colour: colour, Name: name, URL: entityURL(g.Entity, oneResource(b.Resource)), Spent: sum(g.days[b.offset:]), Held: held, Was: b.before(b.usageQuery, g)}
	row.Change = row.Spent/row.Was - 1
	row.Outlook = b.outlook(b.usageQuery, f, g.days)
	row.rank = map[outlook]int{outlookUsedUp: 0, outlookEndsEarly: 1, outlookTooEarly: 2, outlookLasts: 2, "": 3}[row.Outlook]
	if f == nil {
		return row
	}
	row.Used = min(max(1-float64(f.Available)/float64(max(f.Capacity, 1)), 0), 1)
	row.Hatch = min(held/float64(max(f.Capacity, 1)), row.Used)
	if row.HeldAt, row.HatchAt = row.Used-row.Hatch, row.Used-row.Hatch; row.Hatch > 0 && row.Hatch < 0.01 {
		row.HatchAt, row.Hatch = row.Used-0.01, 0.01 // which can be seen
	}
	if row.Outlook == outlookEndsEarly {
		row.Ends = moment(f.UsedUp, b.Now, b.Zone)
		if hour := f.UsedUp.In(b.Zone).Round(time.Hour); !sameDay(hour, b.Now.In(b.Zone)) {
			row.Ends = hour.Format("2 Jan, 15:04")
		}
	}
	return row
}

func sameDay(a, b time.Time) bool { return a.YearDay() == b.YearDay() && a.Year() == b.Year() }

func pct(part float64) string { return fmt.Sprintf("%.1f%%", 100*part) }

func limitTitle(name string) string {
	if isMoney(name) {
		return "Spent"
	}
	return name
}
