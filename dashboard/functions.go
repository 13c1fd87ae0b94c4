package dashboard

import (
	"html/template"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
	"github.com/zlimit/zlimit-go/zlimit/recent"
)

// functions are what templates call beside fields and methods. Numbers may be of any type.
func (p *page) functions() template.FuncMap {
	return template.FuncMap{
		"amount":   func(limit string, n any) string { return amount(limit, number(n)) },
		"aSecond":  aSecond,
		"grouped":  func(n any) string { return grouped(int64(number(n))) },
		"plural":   func(n any, words string) string { return plural(int64(number(n)), words) },
		"clock":    func(t time.Time) string { return t.UTC().Format(time.TimeOnly) },
		"day":      func(t time.Time) string { return t.UTC().Format("2 January") },
		"ago":      func(t time.Time) string { return span(p.Now().Sub(t).Round(time.Second)) },
		"moment":   func(t time.Time) string { return moment(t, p.Now(), time.UTC) },
		"momentIn": func(t time.Time, l zlimit.Limit) string { return moment(t, p.Now(), zoneOf(&l)) },
		"after":    func(d time.Duration) string { return moment(p.Now().Add(d), p.Now(), time.UTC) },
		"cell":     func(st *zlimit.Status) cell { return statusCell(st, p.Now()) },
		"named":    named, "titled": titled, "whose": whose, "lower": strings.ToLower,
		"pct": pct, "percent": percent, "signed": signedPercent, "span": span, "moreThan": moreThan, "sparkline": sparkline,
		"entity": entityURL, "level": editURL, "resource": resourceName, "source": sourceText, "limitTitle": limitTitle, "times": refusedTimes, "changed": changeOf,
		"left": leftOf, "asked": func(c *recent.Cause) string { return amount(c.Limit, float64(max(c.Requested, 1))) },
		"isMoney": isMoney, "share": shareOf,
		"limit":      func(l zlimit.Limit) string { return limitText(&l) },
		"limitName":  func(l zlimit.Limit) string { return limitName(&l) },
		"isBudget":   func(l zlimit.Limit) bool { return isBudget(&l) },
		"isPrepaid":  func(l zlimit.Limit) bool { return isPrepaid(&l) },
		"levelOf":    func(entity, resource string) string { return editURL(zlimit.Level{Entity: entity, Resource: resource}) },
		"min":        func(a, b int) int { return min(a, b) },
		"mostEvents": func() int { return hindsight.Most },
		"add":        func(a, b int) int { return a + b },
		"configTTL":  func() time.Duration { return p.ConfigTTL },
		"dict": func(pairs ...any) map[string]any {
			all := map[string]any{}
			for i := 0; i+1 < len(pairs); i += 2 {
				all[pairs[i].(string)] = pairs[i+1]
			}
			return all
		},
		"render":    p.execute,
		"say":       p.say,
		"whole":     whole,
		"backwards": func() []reach { return backwards },
		"around":    func() []reach { return around },
	}
}

// number is a number of a template.
func number(n any) float64 {
	v := reflect.ValueOf(n)
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}

var word = regexp.MustCompile(`<[^>]*>|[^ <]+`)

// whole keeps names such as gpt-4o on one line, unless they are too long for a line. Tags stay as they are.
func whole(text template.HTML) template.HTML {
	const longest = 24
	return template.HTML(word.ReplaceAllStringFunc(strings.ReplaceAll(string(text), " %", "\u00a0%"), func(w string) string { //nolint:gosec // it was escaped
		if len(w) > longest || w[0] == '<' || !strings.ContainsAny(w, "-/") {
			return w
		}
		return `<span class="whole">` + w + `</span>`
	}))
}
