package page

import (
	"fmt"
	"html/template"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

// drawUsage draws the sum of the month by group, with budget and forecast, and below it each day.
func drawUsage(q *usageQuery, b *ledger.Month, small bool) template.HTML {
	n, label := q.Days(), func(v float64) string { return axisAmount(q.Limit, v) }
	upper := chart{left: 52, right: 1306, top: 30, bottom: 252, slots: n, width: 1320, height: 420}
	lower := chart{left: 52, right: 1306, top: 296, bottom: 394, slots: n}
	if small {
		upper = chart{left: 44, right: 332, top: 30, bottom: 228, slots: n, width: 340, height: 380}
		lower = chart{left: 44, right: 332, top: 270, bottom: 354, slots: n}
	}
	until := min(q.Passed(), float64(n))
	xs := []float64{0}
	for day := 1; float64(day) < until; day++ {
		xs = append(xs, float64(day))
	}
	xs = append(xs, until)
	spent := b.Spent()
	upper.axis(max(spent, b.Budget, b.Likely)*1.04, 3, label)
	upper.text(upper.left, 16, "", "", "Sum of the month")
	low := make([]float64, len(xs))
	var stacked [][]float64
	for _, g := range b.Groups[:min(len(b.Groups), len(colours)-1)] {
		stacked = append(stacked, g.Days)
	}
	classes := append(slices.Clone(colours[:len(stacked)]), "E")
	stacked = append(stacked, b.Others(len(stacked)))
	for i, amounts := range stacked {
		high := slices.Clone(low)
		at := 0.0
		for j := 1; j < len(xs); j++ {
			at += max(amounts[b.Before+j-1], 0)
			high[j] += at
		}
		upper.area(classes[i]+" soft", xs, low, high)
		low = high
	}
	upper.line("sum", xs, low)
	drawForecast(&upper, q, b, until, spent, small)
	// Each day.
	days := b.Total[b.Before:]
	lower.high = max(slices.Max(days), b.Budget/float64(n)) * 1.08
	if lower.high == 0 {
		lower.high = 1
	}
	lower.text(lower.left, lower.top-18, "", "", map[bool]string{true: "Each day; dotted is an even pace", false: "Each day"}[b.Budget > 0])
	low = make([]float64, n)
	for i, amounts := range stacked {
		high := slices.Clone(low)
		for j := range high {
			high[j] += max(amounts[b.Before+j], 0)
		}
		lower.bars(classes[i], low, high)
		low = high
	}
	if b.Budget > 0 {
		y := lower.y(b.Budget / float64(n))
		lower.write(`<path class="pace" d="M%.0f %.1fH%.0f"/>`, lower.left, y, lower.right)
		lower.text(lower.left-8, y+4, "end", "", label(b.Budget/float64(n)))
	}
	lower.write(`<path class="grid" d="M%.0f %.0fH%.0f"/>`, lower.left, lower.bottom, lower.right)
	today := -1
	if q.Present() {
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
	return upper.svg(fmt.Sprintf("%s in %s, by day and in sum, with budget and forecast", limitTitle(q.Limit), q.MonthName()))
}

func drawForecast(c *chart, q *usageQuery, b *ledger.Month, until, spent float64, small bool) {
	if b.Budget > 0 {
		y := c.y(b.Budget)
		c.write(`<path class="bud" d="M%.0f %.1fH%.0f"/>`, c.left, y, c.right)
		c.text(c.left+6, y-7, "", "ink", "budget "+amount(q.Limit, b.Budget))
	}
	if len(b.Path) == 0 {
		return
	}
	fine := ""
	if b.Budget == 0 || b.Likely <= b.Budget {
		fine = " fine"
	}
	xs, ys := []float64{until}, []float64{spent}
	low, high := []float64{spent}, []float64{spent}
	for i, at := range b.Path {
		xs = append(xs, min(float64(int(until)+i+1), float64(q.Days())))
		ys = append(ys, at)
		low, high = append(low, max(at-b.Spread[i], spent)), append(high, min(at+b.Spread[i], c.high))
	}
	c.area("cone"+fine, xs, low, high)
	c.line("fc"+fine, xs, ys)
	if used := b.Forecast.UsedUp; !used.IsZero() && b.Budget > 0 && b.Available > 0 {
		x, y := c.x(used.Sub(q.From).Hours()/24), c.y(b.Budget)
		c.write(`<circle class="red" cx="%.1f" cy="%.1f" r="4.5"/>`, x, y)
		text := "used up on " + used.In(q.Zone).Format("2 Jan") + ", about " + used.In(q.Zone).Round(time.Hour).Format("15:04")
		if small {
			text = "used up " + used.In(q.Zone).Format("2 Jan")
		}
		if x > (c.left+c.right)/2 {
			c.text(x-10, y-7, "end", "red", text)
		} else {
			c.text(x+10, y+18, "", "red", text)
		}
	}
}
