package cli

import (
	"context"
	"encoding/csv"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// fillWindows writes consumption of every window of some months: that of a window is its number.
func fillWindows(t *testing.T, path string) {
	t.Helper()
	s := check.Call(zlimit.SQLite(path)).Must(t, "zlimit.SQLite()")
	defer s.Close()
	l := check.Call(zlimit.New(t.Context(), s)).Must(t, "zlimit.New()")
	defer l.Close()
	ns := check.Call(l.Namespaces.Get(t.Context(), zlimit.DefaultNamespace)).Must(t, "Namespaces.Get()")
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, w := range []zlimit.Window{zlimit.WindowHourly, zlimit.WindowDaily, zlimit.WindowMonthly} {
		n := int64(0)
		for start := begin; start.Before(historyNow); start = w.End(start) {
			n++
			delta := layout.UsageDelta{
				NS: ns.ID, Entity: "acme", Resource: "gpt", Window: string(w), Start: start, Events: 1, Consumed: []bucket.Amount{{Limit: "rpm", Tokens: 1000 * n}},
			}
			write, err := delta.Write()
			if err == nil {
				_, err = store.Of(s).Write(t.Context(), write)
			}
			check.Fatal(t, "Write()", err)
		}
	}
}

// sumOf runs a command of usage, and returns what it adds up to, or the text of its refusal.
func sumOf(t rapid.TB, db, command string, w zlimit.Window, from, to string) (sum float64, refusal string) {
	form := "csv"
	if command == "plot" {
		form = "json"
	}
	got := execute(
		context.Background(), &shell.Shell{Now: func() time.Time { return historyNow }},
		"usage", command, "--store", "sqlite:"+db, "--entity", "acme", "--resource", "gpt", "--window", string(w), "--from", from, "--to", to, "-o", form,
	)
	if got.code == shell.ExitUsage {
		return 0, got.stderr
	}
	if got.code != shell.ExitOK {
		t.Fatalf("usage %s from %s to %s: exit code %d, %s", command, from, to, got.code, got.stderr)
	}
	if command == "plot" {
		for _, number := range regexp.MustCompile(`"consumed":\[([0-9,]*)\]`).FindAllStringSubmatch(got.stdout, -1) {
			for text := range strings.SplitSeq(number[1], ",") {
				n, _ := strconv.ParseFloat(text, 64)
				sum += n
			}
		}
		return sum, ""
	}
	rows := check.Call(csv.NewReader(strings.NewReader(got.stdout)).ReadAll()).Must(t, "ReadAll()")
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	name := map[string]string{"list": "rpm", "summary": "total"}[command]
	for _, row := range rows[1:] {
		n := check.Call(strconv.ParseFloat(row[column[name]], 64)).Must(t, "strconv.ParseFloat()")
		sum += n
	}
	return sum, ""
}

// TestRangesAddUp splits a range of time anywhere, in any zone. Each command of usage says the same of a range. It takes a bound where a
// window begins, and the two parts are then the whole. It refuses any other, and both bounds that it proposes are taken. The usual form
// draws one command for each range.
func TestRangesAddUp(t *testing.T) {
	db := filepath.Join(t.TempDir(), "limits.db")
	fillWindows(t, db)
	zones := []string{"UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kolkata", "Asia/Kathmandu", "Pacific/Apia"}
	proposed := regexp.MustCompile(`begins at (\S+) and ends at ([^\s;]+)`)
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.SampledFrom([]zlimit.Window{zlimit.WindowHourly, zlimit.WindowDaily, zlimit.WindowMonthly}).Draw(t, "window")
		zone, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Skip(err)
		}
		first, last := "2026-01", "2026-03"
		grid := rapid.SampledFrom([]time.Duration{24 * time.Hour, time.Hour, 30 * time.Minute, time.Second}).Draw(t, "grid")
		midnight := time.Date(2026, 1, 2, 0, 0, 0, 0, zone)
		at := midnight.Add(grid * time.Duration(rapid.Int64Range(0, int64(56*24*time.Hour/grid)).Draw(t, "at")))
		if day := rapid.IntRange(0, 2).Draw(t, "day"); day == 1 {
			at = time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, zone)
		} else if day == 2 {
			at = time.Date(2026, 2, 1, 0, 0, 0, 0, zone)
		}
		commands := []string{"list", "summary", "plot"}
		if !soak.Runs() {
			commands = []string{rapid.SampledFrom(commands).Draw(t, "command")}
		}
		bounds := []string{at.Format(time.RFC3339)}
		whole, refusal := sumOf(t, db, "summary", w, first, last)
		if refusal != "" {
			t.Fatalf("sumOf() = %v", refusal)
		}
		if _, refusal := sumOf(t, db, "summary", w, first, bounds[0]); refusal != "" {
			if w.Start(at).Equal(at) {
				t.Fatalf("--to %s is refused, and a window begins there: %s", bounds[0], refusal)
			}
			found := proposed.FindStringSubmatch(refusal)
			if found == nil {
				t.Fatalf("the refusal proposes no bounds: %s", refusal)
			}
			if _, refusal := sumOf(t, db, "plot", w, bounds[0], last); refusal == "" {
				t.Fatalf("--from %s is taken, and --to is not", bounds[0])
			}
			bounds = found[1:]
		}
		for _, bound := range bounds {
			want, parts := map[string]float64{}, map[string]float64{}
			for _, command := range commands {
				want[command] = whole
				for _, r := range [][2]string{{first, bound}, {bound, last}} {
					if start, ok := shell.ParseMoment(bound, historyNow); ok && (start.Equal(mustMoment(first)) || start.Equal(mustMoment(last))) {
						parts[command] = whole // of which one part is empty
						continue
					}
					sum, refusal := sumOf(t, db, command, w, r[0], r[1])
					if refusal != "" {
						t.Fatalf("usage %s --window %s from %s to %s is refused: %s", command, w, r[0], r[1], refusal)
					}
					parts[command] += sum
				}
			}
			if diff := cmp.Diff(want, parts); diff != "" {
				t.Fatalf("the parts before and after %s, of %s windows, are not the whole (-want +got):\n%s", bound, w, diff)
			}
		}
	})
}

func mustMoment(text string) time.Time {
	at, _ := shell.ParseMoment(text, historyNow)
	return at
}
