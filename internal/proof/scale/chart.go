package scale

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// A Chart is lines over one axis.
type Chart struct {
	File, Title, Y string
	X              []string // the labels of the points, "" for none
	Least          float64  // of the upper end of the axis
	Lines          []Line
}

// A Line is one line of a chart. Points that are no number are left out.
type Line struct {
	Name   string
	Color  int
	Dashed bool // as it was before
	Points []float64
}

var colors = []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#999999"}

// SVG returns the chart as an image.
func (c *Chart) SVG() string {
	const width, height, left, right, top, bottom = 760, 300, 70, 150, 36, 40
	most := c.Least
	for _, l := range c.Lines {
		for _, y := range l.Points {
			if !math.IsNaN(y) {
				most = max(most, y)
			}
		}
	}
	step := stepOf(most)
	most = max(step, math.Ceil(most/step)*step)
	x := func(i int) float64 {
		return left + float64(i)*(width-left-right)/float64(max(len(c.X)-1, 1))
	}
	y := func(v float64) float64 { return height - bottom - v/most*(height-top-bottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/><text x="%d" y="20" font-size="14">%s</text>`+"\n", width, height, left, html.EscapeString(c.Title))
	for v := 0.0; v <= most+step/2; v += step {
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, width-right, y(v), y(v), left-6, y(v)+4, number(v))
	}
	for i, label := range c.X {
		if label != "" {
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(i), height-bottom+18, html.EscapeString(label))
		}
	}
	for i, l := range c.Lines {
		var path strings.Builder
		command := "M"
		for at, v := range l.Points {
			if math.IsNaN(v) {
				command = "M"
				continue
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", command, x(at), y(v))
			command = "L"
		}
		dash, name := "", l.Name
		if l.Dashed {
			dash, name = ` stroke-dasharray="5 4"`, l.Name+", before"
		}
		color := colors[l.Color%len(colors)]
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.8"%s/>`+"\n", path.String(), color, dash)
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="%s" stroke-width="1.8"%s/><text x="%d" y="%d">%s</text>`+"\n",
			width-right+8, width-right+30, top+18*i, top+18*i, color, dash, width-right+36, top+18*i+4, html.EscapeString(name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// stepOf returns the distance of the lines behind a chart: 1, 2 or 5 times a power of ten, for up to six lines.
func stepOf(most float64) float64 {
	if most <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(most/6)))
	for _, step := range []float64{1, 2, 5, 10} {
		if most/(step*unit) <= 6 {
			return step * unit
		}
	}
	return 10 * unit
}

// number returns a label of an axis.
func number(v float64) string {
	if v == math.Trunc(v) {
		return whole(v)
	}
	return fmt.Sprintf("%.2g", v)
}
