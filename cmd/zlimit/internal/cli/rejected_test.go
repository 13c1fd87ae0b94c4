package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestWhoIsRejected, a process reports rejections. One command shows whose they were, and another why, beside changes of limits.
func TestWhoIsRejected(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	now := time.Date(2026, 2, 20, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	l, err := zlimit.Open(t.Context(), dsn, zlimit.WithClock(clock), zlimit.WithPrincipal("olga"), zlimit.WithRejectionReports(zlimit.RejectionReports{}))
	if err != nil {
		t.Fatal(err)
	}
	set := func(n int64) {
		t.Helper()
		if err := l.Limits.Set(t.Context(), zlimit.Level{Resource: "gpt"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", n)}}); err != nil {
			t.Fatal(err)
		}
	}
	set(1000)
	now = now.Add(2 * time.Hour)
	set(2)
	now = now.Add(3 * time.Minute)
	for entity, n := range map[string]int{"acme": 5, "bolt": 3} {
		for range n {
			_, _ = l.Acquire(t.Context(), zlimit.Request{Entity: entity, Resource: "gpt", Consume: zlimit.Amounts{"rpd": 1}})
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		sh := &shell.Shell{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Env: func(string) string { return "" }, Now: clock}
		if code := Run(t.Context(), sh, append(args, "--store", dsn)); code != shell.ExitOK {
			t.Fatalf("%v: code %d, %s", args, code, &errs)
		}
		return out.String()
	}
	now = now.Add(4 * time.Minute)
	const top = `2026-02-20 14:07:00  rejections of all resources in 10m0s; this look: 2 calls, 0.0 read units
entity  resource  limit  of  rejected  share
acme    gpt       rpd               3   75 %  ████████░░
bolt    gpt       rpd               1   25 %  ███░░░░░░░
all: 4 rejections in 1 report
`
	if got := run("top", "--rejected", "--count", "1"); got != top {
		t.Errorf("top --rejected prints\n%swant\n%s", got, top)
	}
	if got := run("top", "other", "--rejected", "--count", "1", "-o", "json"); !strings.Contains(got, `"rejected":{`) || strings.Contains(got, "acme") {
		t.Errorf("top --rejected of another resource prints %s", got)
	}
	const explained = `acme, resource gpt, from 2026-02-20 13:53:00 to 2026-02-20 14:13:00 UTC
time                 kind      subject       what                          by
2026-02-20 12:00:00  limits    resource gpt  limits_set: rpd=1000/d        olga
2026-02-20 14:00:00  limits    resource gpt  limits_set: rpd=1000/d → 2/d  olga
2026-02-20 14:03:00  rejected  entity acme   3 requests by limit rpd
2026-02-20 14:03:00  -----                   the time in question

now:
limit  available  capacity  refill
rpd            0         2     2/d
note: no consumption is counted in these hours
`
	if got := run("explain", "acme", "gpt", "--at", "2026-02-20T14:03"); got != explained {
		t.Errorf("explain prints\n%swant\n%s", got, explained)
	}
	if got := run("explain", "acme", "gpt", "--at", "2026-02-20T13:00"); !strings.Contains(got, "2026-02-20 12:00:00  limits  resource gpt  limits_set: rpd=1000/d") || strings.Contains(got, "rejected  ") {
		t.Errorf("explain an hour before prints\n%s", got)
	}
}
