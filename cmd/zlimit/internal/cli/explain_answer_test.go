package cli

import (
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
	l := newReported(t, 9, 30)
	switched := func(second int, at zlimit.Level, turn func(zlimit.Level) error) {
		t.Helper()
		l.at(9, 41, second)
		check.Fatal(t, "Limits.Disable() or Limits.LeaveSwitch()", turn(at))
	}
	off := func(at zlimit.Level) error { _, err := l.Limits.Disable(t.Context(), at, nil); return err }
	leave := func(at zlimit.Level) error { _, err := l.Limits.LeaveSwitch(t.Context(), at, nil); return err }
	l.create(t, zlimit.Entity{ID: "team"}, zlimit.Entity{ID: "key", ParentID: "team", Cascade: true}, zlimit.Entity{ID: "brief"})
	l.set(t, zlimit.Level{Resource: "models"}, zlimit.PerMinute("tokens", 5))
	l.set(t, zlimit.Level{Resource: "narrow"}, zlimit.PerMinute("rpm", 100))
	check.Fatal(t, "Resources.Put()", l.Resources.Put(t.Context(), zlimit.Resource{ID: "narrow", Within: "models"}))
	l.set(t, zlimit.Level{Resource: "offers"}, zlimit.PerMinute("rpm", 100))
	l.set(t, zlimit.Level{Resource: "small"}, zlimit.PerMinute("rpm", 3))
	budget := check.Call(shell.ParseLimits([]string{"usd=5/month@Europe/Berlin"})).Must(t, "shell.ParseLimits()")
	l.set(t, zlimit.Level{Resource: "paid"}, budget...)
	l.pass(10 * time.Minute)
	l.use(t, "nar", "narrow", "tokens", 4, 4)
	l.use(t, "bud", "paid", "usd", 4_000_000_000, 4_000_000_000)
	l.use(t, "big", "small", "rpm", 10, 10)
	switched(5, zlimit.Level{Entity: "team"}, off)
	switched(5, zlimit.Level{Resource: "offers"}, off)
	switched(10, zlimit.Level{Entity: "brief"}, off)
	switched(22, zlimit.Level{Entity: "brief"}, leave)
	l.pass(time.Minute)
	l.close(t, 10*time.Minute)
	top := l.output(t, false, "top", "--rejected", "--within", "1h", "--count", "1")
	for _, row := range []string{"nar     narrow    tokens for models ", "big     small     rpm, too large for it "} {
		if !strings.Contains(top, "\n"+row) {
			t.Errorf("top --rejected has no row %q:\n%s", row, top)
		}
	}
	if early := l.output(t, false, "top", "--rejected", "--within", "1m", "--count", "1"); !strings.Contains(early, "a minute after the first one") || !strings.Contains(early, "dashboard: true") {
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
		out := l.output(t, false, "explain", c.entity, c.resource, "--at", c.at)
		if answer, _, _ := strings.Cut(out, "\n"); answer != c.want {
			t.Errorf("explain %s %s --at %s:\n%s\nwant\n%s", c.entity, c.resource, c.at, answer, c.want)
		}
		if unknown := strings.Contains(out, "nothing is known of entity new:"); unknown != (c.entity == "new") {
			t.Errorf("explain %s %s notes that nothing is known of the entity: %t", c.entity, c.resource, unknown)
		}
	}
}
