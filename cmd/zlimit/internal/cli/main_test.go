package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/internal/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(enginetest.With(m)) }

// A run is what came of one command.
type run struct {
	code           int
	stdout, stderr string
}

// command runs a command with what it reads from the standard input, in an empty environment.
func command(t *testing.T, stdin string, args ...string) run {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := Main(t.Context(), args, strings.NewReader(stdin), &stdout, &stderr, func(string) string { return "" })
	return run{code, stdout.String(), stderr.String()}
}

// onTerminal returns an app whose output goes to a terminal, with colors unless the environment says otherwise. Its
// clock stands still until it sleeps.
func onTerminal(stdout, stderr *bytes.Buffer, env map[string]string) (*app, *time.Duration) {
	slept := new(time.Duration)
	start := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	a := &app{
		stdin: strings.NewReader(""), stdout: stdout, stderr: stderr,
		env:  func(name string) string { return env[name] },
		now:  func() time.Time { return start.Add(*slept) },
		live: true, watch: true,
	}
	a.sleep = func(ctx context.Context, d time.Duration) error {
		*slept += d
		return ctx.Err()
	}
	return a, slept
}
