package cli

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A past is a limiter of olga on a store in a file, at times that a test sets, and commands that look at the store later.
type past struct {
	*zlimit.RateLimiter

	dsn string
	now time.Time
}

// newPast returns a past that begins at an hour of 20 February 2026.
func newPast(t *testing.T, hour, minute int, opts ...zlimit.Option) *past {
	t.Helper()
	p := &past{dsn: "sqlite:" + filepath.Join(t.TempDir(), "limits.db")}
	p.at(hour, minute, 0)
	l, err := zlimit.Open(t.Context(), p.dsn, append([]zlimit.Option{zlimit.WithClock(p.clock), zlimit.WithPrincipal("olga")}, opts...)...)
	check.Fatal(t, "zlimit.Open()", err)
	p.RateLimiter = l
	return p
}

// newReported returns a past whose rejections are reported.
func newReported(t *testing.T, hour, minute int) *past {
	t.Helper()
	return newPast(t, hour, minute, zlimit.WithRejectionReports(zlimit.RejectionReports{}))
}

func (p *past) clock() time.Time { return p.now }

// at sets the time of that day.
func (p *past) at(hour, minute, second int) {
	p.now = time.Date(2026, 2, 20, hour, minute, second, 0, time.UTC)
}

// pass lets time pass.
func (p *past) pass(d time.Duration) { p.now = p.now.Add(d) }

// set stores the limits of a level.
func (p *past) set(t *testing.T, at zlimit.Level, limits ...zlimit.Limit) {
	t.Helper()
	check.Fatal(t, "Limits.Set()", p.Limits.Set(t.Context(), at, zlimit.Config{Limits: limits}))
}

// create creates entities.
func (p *past) create(t *testing.T, entities ...zlimit.Entity) {
	t.Helper()
	for _, e := range entities {
		check.Call(p.Entities.Create(t.Context(), e)).Must(t, "Entities.Create()")
	}
}

// use makes requests for tokens of a limit, of which some may be rejected.
func (p *past) use(t *testing.T, entity, resource, limit string, amounts ...int64) {
	t.Helper()
	for _, n := range amounts {
		_, _ = p.Acquire(t.Context(), zlimit.Request{Entity: entity, Resource: resource, Consume: zlimit.Amounts{limit: n}})
	}
}

// close closes the limiter, which reports its rejections, and lets time pass.
func (p *past) close(t *testing.T, then time.Duration) {
	t.Helper()
	check.Fatal(t, "Close()", p.Close())
	p.pass(then)
}

// run runs a command on the store.
func (p *past) run(t *testing.T, args ...string) run {
	t.Helper()
	return execute(t.Context(), &shell.Shell{Now: p.clock}, append(args, "--store", p.dsn)...)
}

// output returns what a command prints that succeeds, on a terminal or elsewhere.
func (p *past) output(t *testing.T, live bool, args ...string) string {
	t.Helper()
	return output(t, &shell.Shell{Now: p.clock, Live: live}, append(args, "--store", p.dsn)...)
}
