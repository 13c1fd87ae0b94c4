package ledger

import (
	"slices"

	"github.com/zlimit/zlimit-go/zlimit"
)

// An Outlook is how a budget ends.
type Outlook string

// The outlooks of budgets. There is none without a budget.
const (
	OutlookNone      Outlook = ""
	OutlookUsedUp    Outlook = "used up"
	OutlookEndsEarly Outlook = "ends early" // before its period does
	OutlookTooEarly  Outlook = "too early"  // for a forecast: fewer than 14 of the last 28 days have usage
	OutlookLasts     Outlook = "on pace"
)

// Outlook says how a budget ends, by its forecast and what was used of it by day. Without a forecast there is none. It makes no call.
func (m *Month) Outlook(f *zlimit.Forecast, days []float64) Outlook {
	switch {
	case f == nil || f.Capacity == 0:
		return OutlookNone
	case f.Available <= f.Capacity/2000:
		return OutlookUsedUp
	case m.tooEarly(days):
		return OutlookTooEarly
	case !f.UsedUp.IsZero():
		return OutlookEndsEarly
	default:
		return OutlookLasts
	}
}

// tooEarly reports whether amounts by day are of too few days for a forecast.
func (m *Month) tooEarly(days []float64) bool {
	today := m.Before + int(m.Query.Passed())
	used := 0
	for _, v := range days[max(today-forecastDays, 0):today] {
		if v > 0 {
			used++
		}
	}
	return used < leastForecast
}

// Verdicts are how the budgets of groups end.
type Verdicts struct {
	N, TooEarly int // budgets, and how many of them it is too early to judge
	UsedUp      []*Group
	EndEarly    []*Group // the first one first
}

// Verdicts says how the budgets of the groups end. It makes no call.
func (m *Month) Verdicts() (v Verdicts) {
	for i := range m.Groups {
		g := &m.Groups[i]
		if g.Forecast != nil {
			v.N++
		}
		switch m.Outlook(g.Forecast, g.Days) {
		case OutlookUsedUp:
			v.UsedUp = append(v.UsedUp, g)
		case OutlookEndsEarly:
			v.EndEarly = append(v.EndEarly, g)
		case OutlookTooEarly:
			v.TooEarly++
		case OutlookLasts, OutlookNone:
		}
	}
	slices.SortStableFunc(v.EndEarly, func(a, b *Group) int { return a.Forecast.UsedUp.Compare(b.Forecast.UsedUp) })
	return v
}

// A Cause is the group that spends more than a month ago, and what would make the budget last.
type Cause struct {
	Group      *Group  // nil for none
	More, Part float64 // than in the same days of the month before, and as a part of that
	Alone      bool    // the others spend about as much as before
	Over, Left float64 // what the budget of the entity lacks at the end of the month, or will have left; rounded
	May        float64 // what the group may spend a day, so that the budget lasts; rounded, 0 where that is not enough
}

// Cause says who spends more than a month ago. It makes no call.
func (m *Month) Cause() (c Cause) {
	q := &m.Query
	up := 0.0
	for i := range m.Groups {
		g := &m.Groups[i]
		was := m.SameDays(g.Days)
		if d := m.In(g.Days) - was; d > 0 && was > 0 {
			if up += d; d > c.More {
				c.Group, c.More, c.Part = g, d, d/was
			}
		}
	}
	c.Alone = c.More > 0.8*up
	over, rest := m.Likely-m.Budget, float64(q.Days())-q.Passed()
	if q.Entity == "" || m.Budget == 0 || m.Early || m.Available <= 0 {
		return c
	}
	switch today := m.Before + int(q.Passed()); {
	case over < 0 && q.Present():
		c.Left = -over
	case over > 0 && rest >= 0.2 && c.Group != nil:
		c.Over = Rounded(over)
		c.May = Rounded(sum(c.Group.Days[max(today-7, 0):today])/7 - over/rest)
	}
	return c
}

// SameDays returns the sum of the month before, of amounts by day, up to the same day as today.
func (m *Month) SameDays(days []float64) float64 {
	passed := m.Query.Passed()
	whole := int(passed)
	was := sum(days[:min(whole, m.Before)])
	if whole < m.Before {
		was += days[whole] * (passed - float64(whole))
	}
	return was
}
