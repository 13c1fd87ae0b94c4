package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestWhoIsRejected, a process reports rejections. One command shows whose they were, and another why, beside changes of limits.
func TestWhoIsRejected(t *testing.T) {
	l := newReported(t, 12, 0)
	l.set(t, zlimit.Level{Resource: "gpt"}, zlimit.PerDay("rpd", 1000))
	l.pass(2 * time.Hour)
	l.set(t, zlimit.Level{Resource: "gpt"}, zlimit.PerDay("rpd", 2))
	l.pass(3 * time.Minute)
	l.use(t, "acme", "gpt", "rpd", 1, 1, 1, 1, 1)
	l.use(t, "bolt", "gpt", "rpd", 1, 1, 1)
	l.close(t, 4*time.Minute)
	const top = `2026-02-20 14:07:00  rejections of all resources in 10m0s; this look: 2 calls, 0.0 read units
entity  resource  limit  of  rejected  share
acme    gpt       rpd               3   75 %  ████████░░
bolt    gpt       rpd               1   25 %  ███░░░░░░░
all: 4 rejections in 1 report
`
	if got := l.output(t, false, "top", "--rejected", "--count", "1"); got != top {
		t.Errorf("top --rejected prints\n%swant\n%s", got, top)
	}
	if got := l.output(t, false, "top", "other", "--rejected", "--count", "1", "-o", "json"); !strings.Contains(got, `"rejected":{`) || strings.Contains(got, "acme") {
		t.Errorf("top --rejected of another resource prints %s", got)
	}
	const explained = `acme was refused at 2026-02-20 14:03 by limit rpd: 3 times in that minute. The limit was 2/d (resource gpt), set by olga at 2026-02-20 14:00:00, as now.

acme, resource gpt, from 2026-02-20 13:53:00 to 2026-02-20 14:13:00 UTC
time                 kind      subject       what                             by
2026-02-20 12:00:00  limits    resource gpt  limits_set: rpd=1000/d           olga
2026-02-20 14:00:00  limits    resource gpt  limits_set: rpd=1000/d → 2/d     olga
2026-02-20 14:03     rejected  entity acme   3 requests of acme by limit rpd
2026-02-20 14:03     -----                   the time in question

now:
limit  available  capacity  refill
rpd            0         2     2/d
note: no consumption is counted in these hours
`
	if got := l.output(t, false, "explain", "acme", "gpt", "--at", "2026-02-20T14:03"); got != explained {
		t.Errorf("explain prints\n%swant\n%s", got, explained)
	}
	if got := l.output(t, false, "explain", "acme", "gpt", "--at", "14:03"); got != explained {
		t.Errorf("explain of today's 14:03 prints\n%swant\n%s", got, explained)
	}
	if got := l.output(t, false, "explain", "acme", "gpt", "--at", "2026-02-20T13:00"); !strings.Contains(got, "2026-02-20 12:00:00  limits  resource gpt  limits_set: rpd=1000/d") || strings.Contains(got, "rejected  ") {
		t.Errorf("explain an hour before prints\n%s", got)
	}
}

// TestExplainAnswers lowers a limit of a parent for 15 seconds, in which it refuses a child. The answer has both values of the limit and
// names the child, whichever of the two is asked about. The cause is above the effect.
func TestExplainAnswers(t *testing.T) {
	l := newReported(t, 9, 30)
	l.create(t, zlimit.Entity{ID: "team"}, zlimit.Entity{ID: "alice", ParentID: "team", Cascade: true}, zlimit.Entity{ID: "quiet"})
	set := func(minute, second int, n int64) {
		t.Helper()
		l.at(9, minute, second)
		l.set(t, zlimit.Level{Entity: "team", Resource: "gpt"}, zlimit.PerMinute("rpm", n))
	}
	set(30, 0, 100)
	set(40, 2, 3)
	l.set(t, zlimit.Level{Resource: "gpt"}, zlimit.PerMinute("rpm", 1000))
	l.pass(8 * time.Second)
	l.use(t, "alice", "gpt", "rpm", 1, 1, 1, 1, 1)
	set(40, 17, 100)
	l.close(t, 5*time.Minute)
	run := func(want int, args ...string) string {
		t.Helper()
		got := l.run(t, append([]string{"explain"}, args...)...)
		if got.code != want {
			t.Fatalf("explain %v: code %d, %s", args, got.code, got.stderr)
		}
		return got.stdout + got.stderr
	}
	const limit = "The limit was 3/min (entity team, resource gpt) from 09:40:02 to 09:40:17, set by olga, and 100/min (entity team, resource gpt) before and after, as now.\n"
	const nearest = "is reported at 2026-02-20 09:38:53. The nearest was at 2026-02-20 09:40: limit rpm of team refused alice 2 times in that minute. " + limit
	for _, c := range []struct{ entity, at, want string }{
		{"alice", "09:40", "alice was refused at 2026-02-20 09:40 by limit rpm of team: 2 times in that minute. " + limit},
		{"team", "09:40", "alice was refused at 2026-02-20 09:40 by limit rpm of team: 2 times in that minute. " + limit},
		{"alice", "09:38:53", "No refusal of alice for gpt " + nearest},
		{"quiet", "09:40", "No refusal of quiet for gpt is reported from 2026-02-20 09:30:00 to 2026-02-20 09:50:00.\n"},
	} {
		if got := run(shell.ExitOK, c.entity, "gpt", "--at", c.at); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s at %s: explain prints\n%swant\n%s", c.entity, c.at, got, c.want)
		}
	}
	got := run(shell.ExitOK, "alice", "gpt", "--at", "09:40")
	effect := strings.Index(got, "2 requests of alice by limit rpm")
	for _, cause := range []string{"rpm=100/min → 3/min", "rpm=3/min → 100/min"} {
		if at := strings.Index(got, cause); at < 0 || at > effect {
			t.Errorf("%q is not above the rejections:\n%s", cause, got)
		}
	}
	if got := run(shell.ExitOK, "alice", "gpt", "--at", "09:40", "-o", "json"); !strings.Contains(got, `"entity":"alice","limit":"rpm","count":2`) || !strings.Contains(got, `"answer":"alice was refused`) {
		t.Errorf("explain as JSON prints %s", got)
	}
	if got := run(shell.ExitOK, "alice", "gpt", "--at", "09:00"); !strings.Contains(got, "with zlimit.WithRejectionReports in Go, and zlimitd with dashboard: true") {
		t.Errorf("explain of a time without reports prints\n%s", got)
	}
	if got := run(shell.ExitOK, "alise", "gpt", "--at", "09:40"); !strings.Contains(got, "nothing is known of entity alise") {
		t.Errorf("explain of an unknown entity prints %s", got)
	}
	if got := run(shell.ExitUsage, "alice", "gpt", "--at", "24:40"); !strings.Contains(got, "such as 15:04") {
		t.Errorf("explain at 24:40 prints %s", got)
	}
}
