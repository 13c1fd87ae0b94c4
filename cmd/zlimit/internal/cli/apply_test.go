package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestApplyPlansAgain waits for another apply, which does some of what is to change. A plan shown before does not
// hold then; a plan without a question is made again.
func TestApplyPlansAgain(t *testing.T) {
	for _, test := range []struct {
		name   string
		saved  bool
		code   int
		stdout string
		stderr string
	}{
		{"a file", false, shell.ExitOK, "+ rpm  2/min\n1 new\napplied to namespace default: 1 new\n", ""},
		{"a saved plan", true, shell.ExitFailure, "", "the plan is out of date"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, dir := t.Context(), t.TempDir()
			dsn := "sqlite:" + filepath.Join(dir, "limits.db")
			l := check.Call(zlimit.Open(ctx, dsn, zlimit.WithSetup())).Must(t, "zlimit.Open()")
			defer func() { _ = l.Close() }()
			write := func(name, text string) string {
				t.Helper()
				path := filepath.Join(dir, name)
				check.Fatal(t, "os.WriteFile()", os.WriteFile(path, []byte(text), 0o600))
				return path
			}
			one := write("one.yaml", "resources: {a: {limits: {rpm: 1/min}}}\n")
			both := write("both.yaml", "resources: {a: {limits: {rpm: 1/min}}, b: {limits: {rpm: 2/min}}}\n")
			args, plan := []string{"-f", both, "--manager", "team", "--yes"}, filepath.Join(dir, "plan")
			if test.saved {
				args = []string{"--plan", plan}
				if r := runIn(t, dsn, nil, "limits", "plan", "-f", both, "--manager", "team", "--out", plan); r.code != shell.ExitDiffers {
					t.Fatalf("plan: %+v", r)
				}
			}
			began, free, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				ended <- l.Managed.Run(ctx, func(context.Context, *zlimit.ManagedRun) error {
					close(began)
					<-free
					return nil
				})
			}()
			<-began
			released := false
			r := runIn(t, dsn, func() {
				if released {
					return
				}
				released = true
				close(free)
				check.Error(t, "the other run", <-ended)
				if r := runIn(t, dsn, nil, "limits", "apply", "-f", one, "--manager", "team", "--yes"); r.code != shell.ExitOK {
					t.Errorf("the other apply: %+v", r)
				}
			}, append([]string{"limits", "apply", "--lock-timeout", "1m"}, args...)...)
			if r.code != test.code || !strings.HasSuffix(r.stdout, test.stdout) || !strings.Contains(r.stderr, test.stderr) {
				t.Errorf("apply = %d\n%s%s\nwant %d, %q and %q", r.code, r.stdout, r.stderr, test.code, test.stdout, test.stderr)
			}
		})
	}
}

// runIn runs a command on a store; slept is what happens while the command waits.
func runIn(t *testing.T, dsn string, slept func(), args ...string) run {
	t.Helper()
	sh := &shell.Shell{
		Now: time.Now,
		Sleep: func(ctx context.Context, _ time.Duration) error {
			if slept != nil {
				slept()
			}
			return ctx.Err()
		},
	}
	return execute(t.Context(), sh, append(args, "--store", dsn)...)
}

// TestApplyShowsProgress applies many levels, on a terminal and into a pipe, by a clock that a look at it moves.
func TestApplyShowsProgress(t *testing.T) {
	for _, test := range []struct {
		name  string
		watch bool
		want  string
	}{
		{"on a terminal", true, `^note: .*\n(\r\d+ of 60 changes` + regexp.QuoteMeta(show.ClearLine) + `)+\r` + regexp.QuoteMeta(show.ClearLine) + `$`},
		{"into a pipe", false, `^note: .*\n(\d+ of 60 changes\n)+$`},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			var file strings.Builder
			file.WriteString("resources:\n")
			for i := range 60 {
				fmt.Fprintf(&file, "  r%02d: {limits: {rpm: 1/min}}\n", i)
			}
			path := filepath.Join(dir, "limits.yaml")
			check.Fatal(t, "os.WriteFile()", os.WriteFile(path, []byte(file.String()), 0o600))
			now, turn := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), sync.Mutex{}
			step := 20 * time.Millisecond
			if !test.watch {
				step = 200 * time.Millisecond
			}
			sh := &shell.Shell{Watch: test.watch}
			sh.Now = func() time.Time {
				turn.Lock()
				defer turn.Unlock()
				now = now.Add(step)
				return now
			}
			got := execute(t.Context(), sh, "limits", "apply", "-f", path, "--yes", "--store", "sqlite:"+filepath.Join(dir, "limits.db"))
			if got.code != shell.ExitOK || !regexp.MustCompile(test.want).MatchString(got.stderr) {
				t.Errorf("apply: code %d, stderr %q, want %s", got.code, got.stderr, test.want)
			}
		})
	}
}

// TestPlanTakesOver plans a file whose limits a program has declared. Nothing is to change, and the plan says whose they were.
func TestPlanTakesOver(t *testing.T) {
	dir := t.TempDir()
	dsn := "sqlite:" + filepath.Join(dir, "limits.db")
	l := check.Call(zlimit.Open(t.Context(), dsn, zlimit.WithSetup())).Must(t, "zlimit.Open()")
	defer func() { _ = l.Close() }()
	if _, err := l.Limits.Apply(t.Context(), zlimit.Declaration{Resource: "a", Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 1)}}); err != nil {
		t.Fatalf("Limits.Apply() = %v", err)
	}
	file := filepath.Join(dir, "limits.yaml")
	check.Fatal(t, "os.WriteFile()", os.WriteFile(file, []byte("resources: {a: {limits: {rpm: 1/min}}}\n"), 0o600))
	const kept = "kept by a program until now, whose Limits.Apply has no effect from then on: resource a\n"
	if r := runIn(t, dsn, nil, "limits", "plan", "-f", file); r.code != shell.ExitOK || !strings.HasSuffix(r.stdout, "1 taken over\n"+kept) {
		t.Errorf("plan: %+v", r)
	}
	if r := runIn(t, dsn, nil, "limits", "apply", "-f", file, "--yes"); r.code != shell.ExitOK || !strings.Contains(r.stdout, kept) {
		t.Errorf("apply: %+v", r)
	}
	if r := runIn(t, dsn, nil, "limits", "plan", "-f", file); r.code != shell.ExitOK || strings.Contains(r.stdout, "program") {
		t.Errorf("plan behind the apply: %+v", r)
	}
	if applied, err := l.Limits.Apply(t.Context(), zlimit.Declaration{Resource: "a", Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 2)}}); err != nil || applied.Manager != "file:limits.yaml" {
		t.Errorf("Apply() = %+v, %v", applied, err)
	}
}
