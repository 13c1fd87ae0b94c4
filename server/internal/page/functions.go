package page

import (
	"html/template"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// functions are what templates call beside fields.
var functions = template.FuncMap{
	"named":     named,
	"amount":    amount,
	"grouped":   grouped,
	"pct":       pct,
	"percent":   percent,
	"plural":    plural[int64],
	"sparkline": sparkline,
	"span":      span,
	"clock":     func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"day":       func(t time.Time) string { return t.UTC().Format("2 January") },
	"lower":     strings.ToLower,
	"titled":    titled,
	"entity":    entityURL,
	"level":     editURL,
	"limit":     func(l zlimit.Limit) string { return limitText(&l) },
	"whole":     whole,
	"text":      func(l zlimit.Limit) string { return l.String() },
	"dict": func(pairs ...any) map[string]any {
		all := map[string]any{}
		for i := 0; i+1 < len(pairs); i += 2 {
			all[pairs[i].(string)] = pairs[i+1]
		}
		return all
	},
	"nav": func() []tab { return navigation },
	"current": func(screen, url string) bool {
		first, _, _ := strings.Cut(screen, "/")
		switch url {
		case "/":
			return screen == "now"
		case "/entities":
			return first == "entities" || first == "entity" || first == "why"
		default:
			return "/"+first == url
		}
	},
}

// whole writes a text in which no line breaks within a name such as gpt-4o, unless it is too long for a line.
func whole(text string) template.HTML {
	const longest = 24
	var b strings.Builder
	text = strings.ReplaceAll(text, " %", "\u00a0%")
	for i, word := range strings.Split(text, " ") {
		if i > 0 {
			b.WriteByte(' ')
		}
		if escaped := template.HTMLEscapeString(word); len(word) <= longest && strings.ContainsAny(word, "-/") {
			b.WriteString(`<span class="whole">` + escaped + `</span>`)
		} else {
			b.WriteString(escaped)
		}
	}
	return template.HTML(b.String()) //nolint:gosec // words were escaped
}

var navigation = []tab{
	{Text: "Now", URL: "/"},
	{Text: "Usage", URL: "/usage"},
	{Text: "Top", URL: "/top"},
	{Text: "Entities", URL: "/entities"},
	{Text: "Limits", URL: "/limits"},
	{Text: "What if", URL: "/whatif"},
	{Text: "Audit", URL: "/audit"},
}
