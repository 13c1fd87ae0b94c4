package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

// A budgetRow is what a group spent, and the part of its budget.
type budgetRow struct {
	*ledger.Group
	Colour, Name, URL string
	Spent, Held       float64
	Was, Change       float64 // in the month before, and since
	Used, HeldAt      float64 // parts of the budget, without and with what is held
	HatchAt, Hatch    float64 // of what is held
	Refused           int64   // in 24 hours
	Outlook           ledger.Outlook
	Ends              string
	rank              int
}

func (b *usageBody) rows(held map[string]float64) {
	others, all := 0.0, b.Others(len(colours)-1)
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
	if rest := b.In(all); rest > 0.002*b.Spent() {
		b.Key = append(b.Key, keyItem{"E", "others"})
		if left := rest - others; left > 0.5*rest && b.Entity != "" {
			g, name := ledger.Group{Entity: b.Entity, Days: all}, "others"
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
func (b *usageBody) row(g *ledger.Group, colour, name string, held float64) budgetRow {
	f := g.Forecast
	row := budgetRow{
		Group: g, Colour: colour, Name: name, URL: entityURL(g.Entity, oneResource(b.Resource)), Spent: b.In(g.Days), Held: held, Was: b.SameDays(g.Days), Refused: b.refused[g.Entity],
	}
	row.Change = row.Spent/row.Was - 1
	row.Outlook = b.book.Outlook(f, g.Days)
	row.rank = map[ledger.Outlook]int{ledger.OutlookUsedUp: 0, ledger.OutlookEndsEarly: 1, ledger.OutlookTooEarly: 2, ledger.OutlookLasts: 2, ledger.OutlookNone: 3}[row.Outlook]
	if f == nil {
		return row
	}
	row.Used = min(max(1-float64(f.Available)/float64(max(f.Capacity, 1)), 0), 1)
	row.Hatch = min(held/float64(max(f.Capacity, 1)), row.Used)
	if row.HeldAt, row.HatchAt = row.Used-row.Hatch, row.Used-row.Hatch; row.Hatch > 0 && row.Hatch < 0.01 {
		row.HatchAt, row.Hatch = row.Used-0.01, 0.01 // which can be seen
	}
	if row.Outlook == ledger.OutlookEndsEarly {
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
