package page

import (
	"fmt"
	"html/template"
	"slices"
	"time"
)

// drawUsage draws the sum of the month by group, with budget and forecast, and below it each day.
func drawUsage(q *usageQuery, b *ledger, small bool) template.HTML {
	n, label := q.days(), func(v float64) string { return axisAmount(q.limit, v) }
	width, height := 1320.0, 420.0
	upper := chart{left: 52, right: 1306, top: 30, bottom: 252, slots: n}
	lower := chart{left: 52, right: 1306, top: 296, bottom: 394, slots: n}
	if small {
		width, height = 340, 380
		upper = chart{left: 44, right: 332, top: 30, bottom: 228, slots: n}
		lower = chart{left: 44, right: 332, top: 270, bottom: 354, slots: n}
	}
	until := min(q.passed(), float64(n))
	xs := []float64{0}
	for day := 1; float64(day) < until; day++ {
		xs = append(xs, float64(day))
	}
	xs = append(xs, until)
	spent := sum(b.total[b.offset:])
	upper.axis(max(spent, b.budget, b.likely)*1.04, 3, label)
	upper.text(upper.left, 16, "", "", "Sum of the month")
	low := make([]float64, len(xs))
	stacked := append([]group{}, b.groups[:min(len(b.groups), len(colours)-1)]...)
	classes := append(slices.Clone(colours[:len(stacked)]), "E")
	stacked = append(stacked, b.others)
	for i, g := range stacked {
		high := slices.Clone(low)
		at := 0.0
		for j := 1; j < len(xs); j++ {
			at += max(g.days[b.offset+j-1], 0)
			high[j] += at
		}
		upper.area(classes[i]+" soft", xs, low, high)
		low = high
	}
	upper.line("sum", xs, low)
	drawForecast(&upper, q, b, until, spent, small)
	// Each day.
	days := b.total[b.offset:]
	lower.high = max(slices.Max(days), b.budget/float64(n)) * 1.08
	if lower.high == 0 {
		lower.high = 1
	}
	lower.text(lower.left, lower.top-18, "", "", map[bool]string{true: "Each day; dotted is an even pace", false: "Each day"}[b.budget > 0])
	low = make([]float64, n)
	for i, g := range stacked {
		high := slices.Clone(low)
		for j := range high {
			high[j] += max(g.days[b.offset+j], 0)
		}
		lower.bars(classes[i], low, high)
		low = high
	}
	if b.budget > 0 {
		y := lower.y(b.budget / float64(n))
		lower.write(`<path class="pace" d="M%.0f %.1fH%.0f"/>`, lower.left, y, lower.right)
		lower.text(lower.left-8, y+4, "end", "", label(b.budget/float64(n)))
	}
	lower.write(`<path class="grid" d="M%.0f %.0fH%.0f"/>`, lower.left, lower.bottom, lower.right)
	today := -1
	if q.present() {
		today = int(until)
	}
	for day := 0; day < n; day += 7 {
		if today < 0 || day+2 < today || day > today+2 {
			lower.text(lower.x(float64(day)+0.5), lower.bottom+18, "middle", "", fmt.Sprint(day+1))
		}
	}
	if today >= 0 {
		lower.text(min(lower.x(float64(today)+0.5), lower.right-16), lower.bottom+18, "middle", "ink", "today")
	}
	upper.b.WriteString(lower.b.String())
	return upper.svg(width, height, fmt.Sprintf("%s in %s, by day and in sum, with budget and forecast", limitTitle(q.limit), q.month()))
}

func drawForecast(c *chart, q *usageQuery, b *ledger, until, spent float64, small bool) {
	if b.budget > 0 {
		y := c.y(b.budget)
		c.write(`<path class="bud" d="M%.0f %.1fH%.0f"/>`, c.left, y, c.right)
		c.text(c.left+6, y-7, "", "ink", "budget "+amount(q.limit, b.budget))
	}
	if len(b.path) == 0 {
		return
	}
	fine := ""
	if b.budget == 0 || b.likely <= b.budget {
		fine = " fine"
	}
	xs, ys := []float64{until}, []float64{spent}
	low, high := []float64{spent}, []float64{spent}
	for i, at := range b.path {
		xs = append(xs, min(float64(int(until)+i+1), float64(q.days())))
		ys = append(ys, at)
		low, high = append(low, max(at-b.spread[i], spent)), append(high, min(at+b.spread[i], c.high))
	}
	c.area("cone"+fine, xs, low, high)
	c.line("fc"+fine, xs, ys)
	if used := b.forecast.UsedUp; !used.IsZero() && b.budget > 0 && b.available > 0 {
		x, y := c.x(used.Sub(q.from).Hours()/24), c.y(b.budget)
		c.write(`<circle class="red" cx="%.1f" cy="%.1f" r="4.5"/>`, x, y)
		text := "used up on " + used.In(q.zone).Format("2 Jan") + ", about " + used.In(q.zone).Round(time.Hour).Format("15:04")
		if small {
			text = "used up " + used.In(q.zone).Format("2 Jan")
		}
		if x > (c.left+c.right)/2 {
			c.text(x-10, y-7, "end", "red", text)
		} else {
			c.text(x+10, y+18, "", "red", text)
		}
	}
}
