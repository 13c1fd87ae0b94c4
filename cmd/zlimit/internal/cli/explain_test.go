package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestExplainEveryLevel lowers a limit at each place that a request is charged to. Explain shows every change with the level
// that it is of, and none of other levels. On a terminal no line is wider than that.
func TestExplainEveryLevel(t *testing.T) {
	l := newPast(t, 12, 0, zlimit.WithPrincipal("arn:aws:sts::123456789012:assumed-role/operators/olga"))
	set := func(at zlimit.Level, n int64) {
		t.Helper()
		l.set(t, at, zlimit.PerDay("rpd", n))
	}
	l.create(t, zlimit.Entity{ID: "holding"}, zlimit.Entity{ID: "acme", ParentID: "holding", Cascade: true},
		zlimit.Entity{ID: "key-1", ParentID: "acme", Cascade: true})
	set(zlimit.Level{Resource: "models"}, 1000)
	set(zlimit.Level{Resource: "large"}, 1000)
	check.Fatal(t, "Resources.Put()", l.Resources.Put(t.Context(), zlimit.Resource{ID: "large", Within: "models"}))
	set(zlimit.Level{Resource: "gpt-4o"}, 1000)
	check.Fatal(t, "Resources.Put()", l.Resources.Put(t.Context(), zlimit.Resource{ID: "gpt-4o", Within: "large"}))
	l.pass(2 * time.Hour)
	lowered := []zlimit.Level{
		{Entity: "key-1", Resource: "gpt-4o"},
		{Entity: "key-1"},
		{Entity: "key-1", Resource: "large"},
		{Entity: "acme", Resource: "gpt-4o"},
		{Entity: "holding", Resource: "models"},
		{Entity: "holding"},
		{Resource: "gpt-4o"},
		{Resource: "large"},
		{Resource: "models"},
		{},
	}
	for i, at := range lowered {
		set(at, int64(20+i))
	}
	for _, other := range []zlimit.Level{{Entity: "key-2"}, {Entity: "acme", Resource: "voice"}, {Resource: "voice"}} {
		set(other, 5)
	}
	_, err := l.Acquire(t.Context(), zlimit.Request{Entity: "key-1", Resource: "gpt-4o", Consume: zlimit.Amounts{"rpd": 1}})
	check.Fatal(t, "Acquire()", err)
	l.close(t, time.Minute)

	explain := []string{"explain", "key-1", "gpt-4o", "--at", "2026-02-20T14:01"}
	wide, narrow := l.output(t, false, explain...), l.output(t, true, explain...)
	for i, at := range lowered {
		text := " " + at.String() + " "
		limit := zlimit.PerDay("rpd", int64(20+i)).String()
		_, after, _ := strings.Cut(limit, "=")
		found := false
		for line := range strings.Lines(wide) {
			found = found || strings.HasPrefix(line, "2026-02-20 14:00:00  limits") && strings.Contains(line, text) && strings.Contains(line, after+" ")
		}
		if !found {
			t.Errorf("no line has the change of %v to %s:\n%s", at, after, wide)
		}
	}
	for _, other := range []string{"key-2", "voice", "$RESOURCE", "$SYSTEM", zlimit.DefaultResource} {
		if strings.Contains(wide, other) {
			t.Errorf("%q is shown:\n%s", other, wide)
		}
	}
	for line := range strings.Lines(narrow) {
		if n := columns(line); n > 80 {
			t.Errorf("a line on a terminal has %d columns: %s", n, line)
		}
	}
	for _, part := range []string{"rpd=1000/d → 28/d", "arn:aws:sts::123456789012:assumed-role/operators/olga", "the time in question"} {
		if !strings.Contains(strings.Join(strings.Fields(narrow), " "), part) {
			t.Errorf("%q is missing on a terminal:\n%s", part, narrow)
		}
	}
}

// TestForecastOnATerminal shows a forecast with long names: no line is wider than the terminal, and nothing is cut off.
func TestForecastOnATerminal(t *testing.T) {
	l := newPast(t, 12, 0)
	parsed := check.Call(shell.ParseLimits([]string{"tokens-per-month=1000000/month@UTC"})).Must(t, "shell.ParseLimits()")
	l.set(t, zlimit.Level{Resource: "gpt-4o"}, parsed...)
	l.close(t, 0)
	for _, live := range []bool{false, true} {
		out := l.output(t, live, "usage", "forecast", "--entity", "international-business", "--resource", "gpt-4o")
		if widest := columns(out); (widest <= 80) != live {
			t.Errorf("on a terminal: %t, the widest line has %d columns:\n%s", live, widest, out)
		}
		for _, part := range []string{"earliest", "per day", "2026-03-01 00:00", "1,000,000"} {
			if !strings.Contains(out, part) {
				t.Errorf("on a terminal: %t, %q is missing:\n%s", live, part, out)
			}
		}
	}
}
