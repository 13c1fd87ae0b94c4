package cli

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestPlotBars draws the days of five entities: with colors on a terminal, with patterns under NO_COLOR and elsewhere, within 80 columns.
func TestPlotBars(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.db")
	s := check.Call(zlimit.SQLite(path)).Must(t, "zlimit.SQLite()")
	defer s.Close()
	l := check.Call(zlimit.New(t.Context(), s)).Must(t, "zlimit.New()")
	defer l.Close()
	ns := check.Call(l.Namespaces.Get(t.Context(), zlimit.DefaultNamespace)).Must(t, "Namespaces.Get()")
	for e, entity := range []string{"acme", "bolt", "cyan", "dune", "echo"} {
		for day := range 4 {
			tokens := int64((5 - e) * (day + 1) * 1000)
			if day == 2 {
				tokens = 1 // nearly nothing
			}
			delta := layout.UsageDelta{
				NS: ns.ID, Entity: entity, Resource: "gpt", Window: "daily", Start: time.Date(2026, 2, 24+day, 0, 0, 0, 0, time.UTC), Events: 1,
				Consumed: []bucket.Amount{{Limit: "tpd", Tokens: 1000 * tokens}},
			}
			write, err := delta.Write()
			if err == nil {
				_, err = store.Of(s).Write(t.Context(), write)
			}
			check.Fatal(t, "Write()", err)
		}
	}
	plot := func(live bool, env map[string]string) string {
		t.Helper()
		sh, _ := onTerminal(env)
		sh.Live = live
		return output(t, sh, "usage", "plot", "--resource", "gpt", "--from", "2026-02-24", "--to", "2026-03-01", "--store", "sqlite:"+path)
	}
	const want = `daily usage of resource gpt

tpd: 105,005, at most 60,000 in a window, that of 2026-02-27
█ acme  ▓ bolt  ▒ cyan  ░ 2 others
02-24 │█████▓▓▓▓▓▒▒▒░░░                                                  15,000
02-25 │███████████▓▓▓▓▓▓▓▓▒▒▒▒▒▒▒░░░░░░                                  30,000
02-26 │▏                                                                      5
02-27 │█████████████████████▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░░░░  60,000
02-28 │                                                                       0
`
	piped := plot(false, nil)
	if piped != want {
		t.Errorf("usage plot prints\n%swant\n%s", piped, want)
	}
	if got := plot(true, map[string]string{"NO_COLOR": "1"}); got != piped {
		t.Errorf("usage plot with NO_COLOR prints\n%s", got)
	}
	colored := plot(true, nil)
	plain := regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(colored, "")
	if all := strings.NewReplacer("▓", "█", "▒", "█", "░", "█").Replace(piped); plain != all {
		t.Errorf("usage plot on a terminal prints\n%swant\n%s", plain, all)
	}
	for _, color := range []string{"36", "33", "35", show.Faint} {
		if n := strings.Count(colored, "\x1b["+color+"m"); n != 4 { // of the legend and three bars
			t.Errorf("usage plot on a terminal has color %s %d times, want 4", color, n)
		}
	}
	for line := range strings.SplitSeq(plain, "\n") {
		if utf8.RuneCountInString(line) > 80 {
			t.Errorf("a line of usage plot is %q", line)
		}
	}
}

// TestSpark draws the trend of values: the highest is full, and only the last ones count.
func TestSpark(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   string
	}{
		{nil, ""},
		{[]float64{0, 0}, "▁▁"},
		{[]float64{0, 1, 2, 3, 4, 8}, "▁▂▃▄▅█"},
		{[]float64{100, 1, 1, 1, 1, 1, 2}, "▅▅▅▅▅█"},
	} {
		if got := show.Spark(test.values, 6); got != test.want {
			t.Errorf("Spark(%s) = %q, want %q", fmt.Sprint(test.values), got, test.want)
		}
	}
}
