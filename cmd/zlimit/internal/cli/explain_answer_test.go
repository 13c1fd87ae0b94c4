package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestExplainAnswer asks why requests were rejected by each kind of cause, beside the limit of an entity itself. The first line has the cause,
// where it was set, and who did.
func TestExplainAnswer(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	now := time.Date(2026, 2, 20, 9, 30, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	l, err := zlimit.Open(t.Context(), dsn, zlimit.WithClock(clock), zlimit.WithPrincipal("olga"), zlimit.WithRejectionReports(zlimit.RejectionReports{}))
	check.Fatal(t, "zlimit.Open()", err)
	set := func(resource string, limits ...zlimit.Limit) {
		t.Helper()
		check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), zlimit.Level{Resource: resource}, zlimit.Config{Limits: limits}))
	}
	use := func(entity, resource, limit string, amounts ...int64) {
		t.Helper()
		for _, n := range amounts {
			_, _ = l.Acquire(t.Context(), zlimit.Request{Entity: entity, Resource: resource, Consume: zlimit.Amounts{limit: n}})
		}
	}
	switched := func(second int, at zlimit.Level, turn func(zlimit.Level) error) {
		t.Helper()
		now = time.Date(2026, 2, 20, 9, 41, second, 0, time.UTC)
		check.Fatal(t, "Limits.Disable() or Limits.LeaveSwitch()", turn(at))
	}
	off := func(at zlimit.Level) error { _, err := l.Limits.Disable(t.Context(), at, nil); return err }
	leave := func(at zlimit.Level) error { _, err := l.Limits.LeaveSwitch(t.Context(), at, nil); return err }
	for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "key", ParentID: "team", Cascade: true}, {ID: "brief"}} {
		_, err := l.Entities.Create(t.Context(), e)
		check.Fatal(t, "Entities.Create()", err)
	}
	set("models", zlimit.PerMinute("tokens", 5))
	set("narrow", zlimit.PerMinute("rpm", 100))
	check.Fatal(t, "Resources.Put()", l.Resources.Put(t.Context(), zlimit.Resource{ID: "narrow", Within: "models"}))
	set("offers", zlimit.PerMinute("rpm", 100))
	set("small", zlimit.PerMinute("rpm", 3))
	budget, err := shell.ParseLimits([]string{"usd=5/month@Europe/Berlin"})
	check.Fatal(t, "shell.ParseLimits()", err)
	set("paid", budget...)
	now = now.Add(10 * time.Minute)
	use("nar", "narrow", "tokens", 4, 4)
	use("bud", "paid", "usd", 4_000_000_000, 4_000_000_000)
	use("big", "small", "rpm", 10, 10)
	switched(5, zlimit.Level{Entity: "team"}, off)
	switched(5, zlimit.Level{Resource: "offers"}, off)
	switched(10, zlimit.Level{Entity: "brief"}, off)
	switched(22, zlimit.Level{Entity: "brief"}, leave)
	now = now.Add(time.Minute)
	check.Fatal(t, "Close()", l.Close())
	now = now.Add(10 * time.Minute)
	run := func(args ...string) (stdout, stderr string, code int) {
		var out, errs bytes.Buffer
		sh := &shell.Shell{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Env: func(string) string { return "" }, Now: clock}
		code = Run(t.Context(), sh, append(args, "--store", dsn))
		return out.String(), errs.String(), code
	}
	top, _, _ := run("top", "--rejected", "--within", "1h", "--count", "1")
	for _, row := range []string{"nar     narrow    tokens for models ", "big     small     rpm, too large for it "} {
		if !strings.Contains(top, "\n"+row) {
			t.Errorf("top --rejected has no row %q:\n%s", row, top)
		}
	}
	if early, _, _ := run("top", "--rejected", "--within", "1m", "--count", "1"); !strings.Contains(early, "a minute after the first one") || !strings.Contains(early, "dashboard: true") {
		t.Errorf("top --rejected without reports prints %s", early)
	}
	for _, c := range []struct{ entity, resource, at, want string }{
		{"nar", "narrow", "09:40", "nar was refused at 2026-02-20 09:40 by limit tokens for models: 1 time in that minute. " +
			"The limit was 5/min (resource models), set by olga at 2026-02-20 09:30:00, as now."},
		{"bud", "paid", "09:40", "bud was refused at 2026-02-20 09:40 by limit usd: 1 time in that minute. " +
			"The limit was $5/month@Europe/Berlin (resource paid), set by olga at 2026-02-20 09:30:00, as now."},
		{"big", "small", "09:40", "big was refused at 2026-02-20 09:40 by limit rpm: 2 times in that minute. The limit was 3/min (resource small), " +
			"set by olga at 2026-02-20 09:30:00, as now. The requests asked for more than the limit can hold, so they can never be admitted."},
		{"key", "small", "09:42", "key was disabled for small at 2026-02-20 09:42: every request was rejected. " +
			"The switch was at entity team, set by olga at 2026-02-20 09:41:05."},
		{"key", "small", "09:41", "key was disabled for small at 2026-02-20 09:41, from 09:41:05: requests were rejected then. " +
			"The switch was at entity team, set by olga at 2026-02-20 09:41:05."},
		{"new", "offers", "09:42", "new was disabled for offers at 2026-02-20 09:42: every request was rejected. " +
			"The switch was at resource offers, set by olga at 2026-02-20 09:41:05."},
		{"brief", "small", "09:41", "brief was disabled for small at 2026-02-20 09:41, from 09:41:10 to 09:41:22: requests were rejected then, " +
			"and processes may have rejected some for another minute. " +
			"The switch was at entity brief, set by olga at 2026-02-20 09:41:10, lifted by olga."},
		{"brief", "small", "09:42", "brief was disabled for small until 09:41:22, and a process may reject requests for another minute. " +
			"The switch was at entity brief, set by olga at 2026-02-20 09:41:10, lifted by olga."},
		{"new", "unlimited", "09:42", "No limits of new for unlimited were stored at 2026-02-20 09:42, nor any of what it is charged to: " +
			"a request needs limits of its own, or ends with an error."},
		{"new", "small", "09:42", "No refusal of new for small is reported from 2026-02-20 09:32:00 to 2026-02-20 09:52:00."},
	} {
		out, errs, code := run("explain", c.entity, c.resource, "--at", c.at)
		if answer, _, _ := strings.Cut(out, "\n"); code != shell.ExitOK || answer != c.want {
			t.Errorf("explain %s %s --at %s: code %d, %s\n%s\nwant\n%s", c.entity, c.resource, c.at, code, errs, answer, c.want)
		}
		if unknown := strings.Contains(out, "nothing is known of entity new:"); unknown != (c.entity == "new") {
			t.Errorf("explain %s %s notes that nothing is known of the entity: %t", c.entity, c.resource, unknown)
		}
	}
}
