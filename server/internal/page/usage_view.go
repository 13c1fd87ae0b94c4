package page

import (
	"cmp"
	"fmt"
	"html/template"
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

func sqrt(v float64) float64 { return math.Sqrt(max(v, 0)) }

// usageHead says whether the budget lasts, and who is the cause.
func usageHead(v *view, q *usageQuery, b *ledger) {
	spent := sum(b.total[b.offset:])
	v.Lead = usageCause(q, b)
	v.Head.say("", "%s: %s", q.month(), amount(q.limit, spent))
	if q.entity == "" && everyoneHead(v, q, b) {
		return
	}
	if b.budget == 0 {
		if !isMoney(q.limit) {
			v.Head.say("", " %s", q.limit)
		}
		switch {
		case q.resource == everyone:
			v.Head.say("", " of all resources")
		case q.present():
			v.Head.say("", " so far, and no budget of a month for it")
		}
		return
	}
	v.Head.say("", " of %s. ", amount(q.limit, b.budget))
	f := &b.forecast
	switch b.outlook(q, f, b.total) {
	case outlookUsedUp:
		v.Head.say("no", "The budget is used up")
		v.Head.say("", " until %s", b.ends.In(q.zone).Format("2 January"))
	case outlookTooEarly:
		v.Head.say("", "It is too early for a forecast")
	case outlookEndsEarly:
		v.Head.say("no", "At this pace the budget ends on %s", f.UsedUp.In(q.zone).Format("2 January"))
		v.Head.say("", ", %s early", span(b.ends.Sub(f.UsedUp)))
	default:
		v.Head.say("", "At this pace it lasts the month")
	}
}

// everyoneHead says of several budgets how the worst of them end. It returns false if there is none.
func everyoneHead(v *view, q *usageQuery, b *ledger) bool {
	budgets := map[outlook][]*group{}
	n := 0
	for i := range b.groups {
		if g := &b.groups[i]; g.forecast != nil {
			of := b.outlook(q, g.forecast, g.days)
			budgets[of] = append(budgets[of], g)
			n++
		}
	}
	if n == 0 {
		return false
	}
	if b.budget > 0 {
		v.Head.say("", " of %s in %s. ", amount(q.limit, b.budget), plural(n, "budget"))
	} else {
		v.Head.say("", " so far, with %s. ", plural(n, "budget"))
	}
	used, ends := budgets[outlookUsedUp], budgets[outlookEndsEarly]
	slices.SortStableFunc(ends, func(a, b *group) int { return a.forecast.UsedUp.Compare(b.forecast.UsedUp) })
	switch {
	case len(used) == 1:
		v.Head.say("no", "The budget of %s is used up", named(used[0].entity))
	case len(used) > 1:
		v.Head.say("no", "%d are used up", len(used))
	case len(ends) == 1:
		v.Head.say("no", "The budget of %s ends on %s", named(ends[0].entity), ends[0].forecast.UsedUp.In(q.zone).Format("2 January"))
	case len(ends) > 1:
		v.Head.say("no", "%d end early", len(ends))
		v.Head.say("", ", %s first, on %s", named(ends[0].entity), ends[0].forecast.UsedUp.In(q.zone).Format("2 January"))
	case len(budgets[outlookTooEarly]) > 0:
		v.Head.say("", "It is too early for a forecast")
	case n == 1:
		v.Head.say("", "It lasts the month")
	default:
		v.Head.say("", "All last the month")
	}
	return true
}

// usageCause names the group that spends more than a month ago, and what would make the budget last.
func usageCause(q *usageQuery, b *ledger) template.HTML {
	type grown struct {
		g        *group
		by, part float64
	}
	var worst grown
	up := 0.0
	for i := range b.groups {
		g := &b.groups[i]
		was := b.before(q, g)
		is := sum(g.days[b.offset:])
		if d := is - was; d > 0 && was > 0 {
			up += d
			if d > worst.by {
				worst = grown{g, d, d / was}
			}
		}
	}
	month := q.from.AddDate(0, 0, -1).Format("January")
	var text template.HTML
	switch {
	case worst.g == nil || worst.part < 0.05:
		text = lead("No one spends much more than in the same days of %s.", month)
	case worst.by > 0.8*up:
		text = lead("<b>%s</b> alone is the cause: %s more than in the same days of %s.", named(worst.g.entity), percent(worst.part), month)
	default:
		text = lead("<b>%s</b> grows most: %s more than in the same days of %s.", named(worst.g.entity), percent(worst.part), month)
	}
	over := b.likely - b.budget
	rest := float64(q.days()) - q.passed()
	if q.entity == "" || b.budget == 0 || b.early || over <= 0 || b.available <= 0 || rest < 0.2 || worst.g == nil {
		if q.entity != "" && b.budget > 0 && !b.early && b.available > 0 && over < 0 && q.present() {
			text += lead(" About %s of the budget will be left.", amount(q.limit, -over))
		}
		return text
	}
	today := b.offset + int(q.passed())
	rate := sum(worst.g.days[max(today-7, 0):today]) / 7
	if may := rate - over/rest; may > 0 {
		return text + lead(" The budget lasts if %s stays below %s a day, or with %s more.", named(worst.g.entity), amount(q.limit, rounded(may)), amount(q.limit, rounded(over)))
	}
	return text + lead(" The budget lasts with %s more.", amount(q.limit, rounded(over)))
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
	whole := int(q.passed())
	was := sum(g.days[:min(whole, b.offset)])
	if whole < b.offset {
		was += g.days[whole] * (q.passed() - float64(whole))
	}
	return was
}

func usageFacts(body *usageBody, q *usageQuery, b *ledger, held map[string]float64) {
	spent := sum(b.total[b.offset:])
	first := fact{Name: fmt.Sprintf("Spent, %s", plural(int64(q.passed()+0.999), "day")), Value: amount(q.limit, spent), Note: "no budget of a month"}
	if !isMoney(q.limit) {
		first.Name = fmt.Sprintf("Used, %s", plural(int64(q.passed()+0.999), "day"))
	}
	if b.budget > 0 {
		first.Note = percent(spent/b.budget) + " of the budget"
	}
	body.Facts = append(body.Facts, first)
	if !q.present() {
		was := sum(b.total[:b.offset])
		note := "nothing to compare"
		if was > 0 {
			note = signedPercent(spent/was-1) + " in this month"
		}
		body.Facts = append(body.Facts, fact{Name: "The month before", Value: amount(q.limit, was), Note: note},
			fact{Name: "Even pace", Value: amount(q.limit, spent/float64(q.days())), Note: "a day"})
		return
	}
	all := 0.0
	for _, n := range held {
		all += n
	}
	refused := int64(0)
	for _, g := range b.groups {
		refused += g.refused
	}
	forecast := fact{Name: "Forecast for the month", Value: "too early", Note: fmt.Sprintf("needs %d days of usage", leastForecast)}
	if !b.early {
		forecast.Value, forecast.Note = amount(q.limit, b.likely), amount(q.limit, b.atEnd[0])+" to "+amount(q.limit, b.atEnd[1])
		if b.budget > 0 && b.likely > b.budget {
			forecast.Class = "red"
		}
	}
	today := fact{Name: "Today so far", Value: amount(q.limit, b.total[b.offset+int(q.passed())]), Note: "no even pace without a budget"}
	if b.budget > 0 {
		today.Note = "even pace " + amount(q.limit, b.budget/float64(q.days())) + " a day"
	}
	turned := fact{Name: "Refused by it, 24 hours", Value: grouped(refused), Note: "calls, as processes report"}
	if refused > 0 {
		turned.Class = "red"
	}
	if isMoney(q.limit) {
		turned.Name = "Refused for money, 24 h"
	}
	body.Facts = append(body.Facts, fact{Name: "Held by calls under way", Value: amount(q.limit, all), Note: "not settled yet"}, forecast, today, turned)
}

func usageRows(body *usageBody, q *usageQuery, b *ledger, held map[string]float64) {
	others := float64(0)
	for i := range b.groups {
		g := &b.groups[i]
		row := budgetRow{Colour: "E", Name: named(g.entity), URL: entityURL(g.entity, oneResource(q.resource))}
		if q.entity == "" {
			row.URL = q.url("/usage", g.entity)
		}
		if i < len(colours)-1 {
			row.Colour = colours[i]
			body.Key = append(body.Key, keyItem{row.Colour, row.Name})
		} else {
			others += sum(g.days[b.offset:])
		}
		fillRow(&row, q, b, g, held[g.entity])
		body.Rows = append(body.Rows, row)
	}
	if rest := sum(b.others.days[b.offset:]); rest > 0.002*sum(b.total[b.offset:]) {
		body.Key = append(body.Key, keyItem{"E", "others"})
		if left := rest - others; left > 0.5*rest && q.entity != "" {
			g := group{entity: q.entity, days: b.others.days}
			row := budgetRow{Colour: "E", Name: "others", URL: entityURL(q.entity, oneResource(q.resource))}
			if len(b.groups) == 0 { // it has no children
				row.Name = named(q.entity)
				if b.budget > 0 {
					g.forecast = &b.forecast
				}
			}
			fillRow(&row, q, b, &g, held[""])
			row.rank = 4
			body.Rows = append(body.Rows, row)
		}
	}
	body.Left = b.left
	slices.SortStableFunc(body.Rows, func(a, b budgetRow) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.spent, a.spent)) })
}

func fillRow(row *budgetRow, q *usageQuery, b *ledger, g *group, held float64) {
	row.spent = sum(g.days[b.offset:])
	row.Spent = amount(q.limit, row.spent)
	if held > 0 {
		row.NotSettled = amount(q.limit, held)
	}
	row.Refused = g.refused
	row.Change = "–"
	if was := b.before(q, g); was > 0 {
		row.Change = signedPercent(row.spent/was - 1)
	}
	f := g.forecast
	row.Share, row.LastsTill, row.Tag, row.TagClass, row.rank = "no budget of its own", "–", "no budget", "off", 3
	if q.resource == everyone {
		row.Share, row.Tag = "budgets are of one resource", "all resources"
	}
	if f == nil {
		return
	}
	capacity := float64(max(f.Capacity, 1))
	part := min(max(1-float64(f.Available)/capacity, 0), 1)
	row.Share = percent(part) + " of " + amount(q.limit, capacity)
	hatch := min(held/capacity, part)
	row.Width, row.HeldX, row.Held = pct(part-hatch), pct(part-hatch), pct(hatch)
	if hatch > 0 && hatch < 0.01 {
		row.HeldX, row.Held = pct(part-0.01), "1%"
	}
	row.Tick = pct(min(q.passed()/float64(q.days()), 0.995))
	switch b.outlook(q, f, g.days) {
	case outlookUsedUp:
		row.LastsTill, row.Tag, row.TagClass, row.rank = "full "+f.ResetsAt.In(q.zone).Format("2 Jan"), "used up", "no", 0
	case outlookTooEarly:
		row.LastsTill, row.Tag, row.TagClass, row.rank = "too early to say", "too early", "off", 2
	case outlookEndsEarly:
		row.LastsTill, row.Tag, row.TagClass, row.rank = moment(f.UsedUp, q.now, q.zone), "ends early", "no", 1
		if hour := f.UsedUp.In(q.zone).Round(time.Hour); !sameDay(hour, q.now.In(q.zone)) {
			row.LastsTill = hour.Format("2 Jan, 15:04")
		}
	default:
		row.LastsTill, row.Tag, row.TagClass, row.rank = "the month", "on pace", "", 2
	}
}

func sameDay(a, b time.Time) bool { return a.YearDay() == b.YearDay() && a.Year() == b.Year() }

func pct(part float64) string { return fmt.Sprintf("%.1f%%", 100*part) }

func limitTitle(name string) string {
	if isMoney(name) {
		return "Spent"
	}
	return name
}
