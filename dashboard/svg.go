package dashboard

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
)

// Widths and places are attributes of SVG: the content security policy forbids inline styles.

// sparkline returns the points of a line in a box of 120 by 26, from zero up.
func sparkline(values []float64) string {
	top := 0.0
	for _, v := range values {
		top = max(top, v)
	}
	if len(values) < 2 || top == 0 {
		return ""
	}
	var b strings.Builder
	for i, v := range values {
		fmt.Fprintf(&b, "%.0f,%.1f ", 120*float64(i)/float64(len(values)-1), 24-21*v/top)
	}
	return strings.TrimSuffix(b.String(), " ")
}

// A chart is drawn twice, wide and small; a style sheet shows one of them.
type chart struct {
	b                        strings.Builder
	width, height            float64
	left, right, top, bottom float64 // of the plot
	high                     float64 // the value at the top
	slots                    int     // along the bottom
	small                    bool
}

type charts struct{ Wide, Small template.HTML }

// drawTwice draws a chart in two sizes. The label says what it shows to who cannot see it.
func drawTwice(label string, wide, small *chart, draw func(*chart)) charts {
	svg := func(c *chart) template.HTML {
		draw(c)
		return template.HTML(fmt.Sprintf(`<svg class="chart" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">%s</svg>`, //nolint:gosec // names were escaped by text
			c.width, c.height, template.HTMLEscapeString(label), c.b.String()))
	}
	small.small = true
	return charts{svg(wide), svg(small)}
}

func (c *chart) x(slot float64) float64 {
	return c.left + (c.right-c.left)*slot/float64(max(c.slots, 1))
}

func (c *chart) y(value float64) float64 { return c.bottom - (c.bottom-c.top)*value/c.high }

func (c *chart) write(format string, args ...any) { fmt.Fprintf(&c.b, format, args...) }

// text writes escaped text at a place.
func (c *chart) text(x, y float64, anchor, class, text string) {
	c.write(`<text x="%.1f" y="%.1f"`, x, y)
	if anchor != "" {
		c.write(` text-anchor="%s"`, anchor)
	}
	if class != "" {
		c.write(` class="%s"`, class)
	}
	c.write(`>%s</text>`, template.HTMLEscapeString(text))
}

// axis draws the lines of round values, and returns the value at the top.
func (c *chart) axis(most float64, steps int, label func(float64) string) {
	step := roundUp(most / float64(steps))
	for range 20 { // amounts are whole numbers, or cents: two lines never have one label
		if label(step) != label(0) && label(2*step) != label(step) {
			break
		}
		step = roundUp(step * 1.01)
	}
	n := int(math.Ceil(most/step - 1e-9))
	c.high = step * float64(max(n, 1))
	for i := range max(n, 1) + 1 {
		value := step * float64(i)
		c.write(`<path class="grid" d="M%.0f %.1fH%.0f"/>`, c.left, c.y(value), c.right)
		c.text(c.left-8, c.y(value)+4, "end", "", label(value))
	}
}

// roundUp returns the next of 1, 2, 2.5, 5 and 10 times a power of ten.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if v <= m*power*(1+1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// area draws what is between two courses, of points at the slots.
func (c *chart) area(class string, xs, low, high []float64) {
	c.path(class, xs, high)
	for i := len(xs) - 1; i >= 0; i-- {
		c.write("L%.1f %.1f", c.x(xs[i]), c.y(low[i]))
	}
	c.write(`Z"/>`)
}

// path begins a path, which its caller closes.
func (c *chart) path(class string, xs, ys []float64) {
	c.write(`<path class="%s" d="M`, class)
	for i := range xs {
		if i > 0 {
			c.write("L")
		}
		c.write("%.1f %.1f", c.x(xs[i]), c.y(ys[i]))
	}
}

func (c *chart) line(class string, xs, ys []float64) {
	c.path(class, xs, ys)
	c.write(`"/>`)
}

// stacked calls a function for each class with its amounts on top of those before it, from low to high.
func stacked(classes []string, amounts [][]float64, draw func(class string, low, high []float64)) {
	low := make([]float64, len(amounts[0]))
	for i, of := range amounts {
		high := slices.Clone(low)
		for j := range of {
			high[j] += max(of[j], 0)
		}
		draw(classes[i], low, high)
		low = high
	}
}

// bars draws one class of stacked bars: from low to high at each slot.
func (c *chart) bars(class string, low, high []float64) {
	width := (c.right - c.left) / float64(max(c.slots, 1))
	gap := width * 0.32
	if width < 4 {
		gap = 0.4
	}
	path := ""
	for i := range low {
		if high[i] > low[i] {
			path += fmt.Sprintf("M%.1f %.1fh%.1fV%.1fh-%.1fz", c.x(float64(i))+gap/2, c.y(high[i]), width-gap, c.y(low[i]), width-gap)
		}
	}
	if path != "" {
		c.write(`<path class="%s" d="%s"/>`, class, path)
	}
}
