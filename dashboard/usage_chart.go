package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

// drawUsage draws the sum of the month by group, with budget and forecast, and below it each day.
func drawUsage(q *usageQuery, b *ledger.Month) charts {
	wide := &chart{left: 52, right: 1306, top: 30, bottom: 252, slots: q.Days(), width: 1320, height: 420}
	small := &chart{left: 44, right: 332, top: 30, bottom: 228, slots: q.Days(), width: 340, height: 380}
	label := fmt.Sprintf("%s in %s, by day and in sum, with budget and forecast", limitTitle(q.Limit), q.MonthName())
	return drawTwice(label, wide, small, func(c *chart) {
		var days [][]float64 // by group, and of the others
		for _, g := range b.Groups[:min(len(b.Groups), len(colours)-1)] {
			days = append(days, g.Days[b.Before:])
		}
		classes := append(slices.Clone(colours[:len(days)]), "E")
		days = append(days, b.Others(len(days))[b.Before:])
		drawSums(c, q, b, classes, days)
		lower := &chart{left: c.left, right: c.right, top: 296, bottom: 394, slots: c.slots}
		if c.small {
			lower.top, lower.bottom = 270, 354
		}
		drawDays(lower, q, b, classes, days)
		c.b.WriteString(lower.b.String())
	})
}

// drawSums draws the sum of the month up to each day.
func drawSums(c *chart, q *usageQuery, b *ledger.Month, classes []string, days [][]float64) {
	until, spent := min(q.Passed(), float64(q.Days())), b.Spent()
	xs := []float64{0}
	for day := 1; float64(day) < until; day++ {
		xs = append(xs, float64(day))
	}
	xs = append(xs, until)
	c.axis(max(spent, b.Budget, b.Likely)*1.04, 3, func(v float64) string { return axisAmount(q.Limit, v) })
	c.text(c.left, 16, "", "", "Sum of the month")
	sums := make([][]float64, len(days))
	for i, of := range days {
		sums[i] = make([]float64, len(xs))
		for j := 1; j < len(xs); j++ {
			sums[i][j] = sums[i][j-1] + max(of[j-1], 0)
		}
	}
	var total []float64
	stacked(classes, sums, func(class string, low, high []float64) {
		c.area(class+" soft", xs, low, high)
		total = high
	})
	c.line("sum", xs, total)
	drawForecast(c, q, b, until, spent)
}

// drawDays draws what was spent on each day.
func drawDays(c *chart, q *usageQuery, b *ledger.Month, classes []string, days [][]float64) {
	n := float64(q.Days())
	c.high = cmp.Or(max(slices.Max(b.Total[b.Before:]), b.Budget/n)*1.08, 1)
	c.text(c.left, c.top-18, "", "", map[bool]string{true: "Each day; dotted is an even pace", false: "Each day"}[b.Budget > 0])
	stacked(classes, days, c.bars)
	if b.Budget > 0 {
		y := c.y(b.Budget / n)
		c.write(`<path class="pace" d="M%.0f %.1fH%.0f"/>`, c.left, y, c.right)
		c.text(c.left-8, y+4, "end", "", axisAmount(q.Limit, b.Budget/n))
	}
	c.write(`<path class="grid" d="M%.0f %.0fH%.0f"/>`, c.left, c.bottom, c.right)
	today := -1
	if q.Present() {
		today = int(q.Passed())
	}
	for day := 0; day < q.Days(); day += 7 {
		if today < 0 || day+2 < today || day > today+2 {
			c.text(c.x(float64(day)+0.5), c.bottom+18, "middle", "", fmt.Sprint(day+1))
		}
	}
	if today >= 0 {
		c.text(min(c.x(float64(today)+0.5), c.right-16), c.bottom+18, "middle", "ink", "today")
	}
}

func drawForecast(c *chart, q *usageQuery, b *ledger.Month, until, spent float64) {
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
		if c.small {
			text = "used up " + used.In(q.Zone).Format("2 Jan")
		}
		if x > (c.left+c.right)/2 {
			c.text(x-10, y-7, "end", "red", text)
		} else {
			c.text(x+10, y+18, "", "red", text)
		}
	}
}
