package cli

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/buckets"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestTop watches two buckets of which one is used between the looks.
func TestTop(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	now := time.Date(2026, 2, 20, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	l := check.Call(zlimit.Open(t.Context(), dsn, zlimit.WithClock(clock))).Must(t, "zlimit.Open()")
	defer l.Close()
	limits := []zlimit.Limit{zlimit.PerDay("rpd", 1000)}
	ask := func(entity string, n int64) {
		t.Helper()
		if _, err := l.Acquire(t.Context(), zlimit.Request{Entity: entity, Resource: "gpt", Consume: zlimit.Amounts{"rpd": n}}); err != nil {
			t.Fatalf("Acquire() = %v", err)
		}
	}
	check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), zlimit.Level{Resource: "gpt"}, zlimit.Config{Limits: limits}))
	ask("acme", 100)
	ask("bolt", 200)
	run := func(live bool, args ...string) string {
		t.Helper()
		sh := &shell.Shell{Now: clock, Live: live}
		sh.Sleep = func(_ context.Context, d time.Duration) error {
			ask("bolt", 30)
			now = now.Add(d)
			return nil
		}
		return output(t, sh, append([]string{"top", "--store", dsn, "--interval", "10s"}, args...)...)
	}
	const want = `2026-02-20 12:00:00  2 buckets, resource gpt; this look: 2 calls, 0.0 read units
entity  resource  limit  available  capacity  left        consumed/s  shards
acme    gpt       rpd          900     1,000  █████████░           -       1
bolt    gpt       rpd          800     1,000  ████████░░           -       1
2026-02-20 12:00:10  2 buckets, resource gpt; this look: 2 calls, 0.0 read units
entity  resource  limit  available  capacity  left        consumed/s  shards
bolt    gpt       rpd          770     1,000  ████████░░         3.0       1
acme    gpt       rpd          900     1,000  █████████░         0.0       1
`
	if got := run(false, "gpt", "--count", "2"); got != want {
		t.Errorf("top prints\n%swant\n%s", got, want)
	}
	got := run(true, "--count", "2", "--max", "1")
	if strings.Count(got, show.HideCursor) != 1 || !strings.HasSuffix(got, show.ShowCursor) || strings.Count(got, "\x1b[5A") != 1 ||
		!strings.Contains(got, "every resource with limits of its own") || !strings.Contains(got, "and 1 more limits") {
		t.Errorf("top on a terminal prints %q", got)
	}
	for _, line := range strings.Split(got, "\n") {
		if text := strings.TrimSuffix(line[strings.LastIndexByte(line, 'A')+1:], show.ClearLine); utf8.RuneCountInString(text) > 80+len(show.HideCursor) {
			t.Errorf("a line on a terminal of 80 columns is %q", line)
		}
	}
	if got := run(true, "gpt", "--count", "9"); !strings.Contains(got, "trend    shards"+show.ClearLine) || !strings.Contains(got, "  ▁▁▁▁▁▁▁       1"+show.ClearLine) ||
		!strings.Contains(got, "  ███████       1"+show.ClearLine) || strings.Contains(got, "…") {
		t.Errorf("top on a terminal shows no trend: %q", got)
	}
	if lines := strings.Split(run(false, "gpt", "--count", "1", "--sort", "left"), "\n"); !strings.HasPrefix(lines[2], "bolt") {
		t.Errorf("top --sort left prints %q", lines)
	}
	first := run(false, "gpt", "--count", "1", "-o", "json")
	if strings.Count(first, `"consumed":null,"consumed_per_second":null`) != 2 {
		t.Errorf("the first look of top is %s", first)
	}
	if lines := strings.Split(run(false, "gpt", "--count", "1", "--with-children"), "\n"); !strings.HasSuffix(lines[2], "   -           -       1") {
		t.Errorf("the first look of top --with-children is %q", lines)
	}
	var look buckets.TopLook
	if err := json.Unmarshal([]byte(strings.Split(run(false, "gpt", "--count", "2", "-o", "json"), "\n")[1]), &look); err != nil {
		t.Fatalf("json.Unmarshal() = %v", err)
	}
	if r := look.Rows[0]; r.Entity != "bolt" || *r.PerSecond != 3 || r.Consumed.String() != "30" || look.Buckets != 2 {
		t.Errorf("top tells %+v", look)
	}
}

// In TestTopSortsByPartLeft, there are an exhausted parent, a child with most of its tokens, and others between. The part of the capacity
// decides, and no number of tokens.
func TestTopSortsByPartLeft(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	l := check.Call(zlimit.Open(t.Context(), dsn)).Must(t, "zlimit.Open()")
	defer l.Close()
	for _, e := range []struct {
		entity          string
		capacity, taken int64
	}{{"child", 1_000_000, 10}, {"full", 1_000_000_000, 1}, {"parent", 100, 100}, {"small", 4, 3}, {"large", 10_000, 9000}} {
		limits := []zlimit.Limit{{Name: "rpd", Capacity: e.capacity, RefillAmount: 1, RefillPeriod: 1000 * time.Hour}}
		if err := l.Limits.Set(t.Context(), zlimit.Level{Entity: e.entity, Resource: "gpt"}, zlimit.Config{Limits: limits}); err != nil {
			t.Fatalf("Limits.Set() = %v", err)
		}
		if _, err := l.Acquire(t.Context(), zlimit.Request{Entity: e.entity, Resource: "gpt", Consume: zlimit.Amounts{"rpd": e.taken}}); err != nil {
			t.Fatalf("Acquire() = %v", err)
		}
	}
	got := command(t, "", "top", "gpt", "--store", dsn, "--count", "1", "--sort", "left")
	var order []string
	for _, line := range strings.Split(strings.TrimSpace(got.stdout), "\n")[2:] {
		order = append(order, strings.Fields(line)[0])
	}
	if want := "parent large small child full"; strings.Join(order, " ") != want {
		t.Errorf("top --sort left has %v, want %s\n%s%s", order, want, got.stdout, got.stderr)
	}
}

func TestTopInput(t *testing.T) {
	for want, args := range map[string][]string{
		"top: --interval 1ms must be from 500ms to 1h": {"--interval", "1ms"},
		"top: --max 0 must be at least 1":              {"--max", "0"},
		"top: --count -1 must not be negative":         {"--count", "-1"},
		`top: one argument too many, "b"`:              {"a", "b"},
		`invalid resource "a b"`:                       {"a b", "--count", "1"},
	} {
		got := command(t, "", append([]string{"top", "--store", "memory:"}, args...)...)
		if got.code != shell.ExitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("top %v: code %d, %q, want %q", args, got.code, got.stderr, want)
		}
	}
}
