package cli

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
)

// envCommand names the variable that makes the test binary run the command.
const envCommand = "ZLIMIT_TEST_COMMAND"

// TestMain runs the tests, or the command where a test has started this program as one.
func TestMain(m *testing.M) {
	if os.Getenv(envCommand) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)
		stop()
		os.Exit(code)
	}
	goleak.VerifyTestMain(enginetest.With(m))
}

// A run is what came of one command.
type run struct {
	code           int
	stdout, stderr string
}

// noEnv is an empty environment.
func noEnv(string) string { return "" }

// command runs a command with what it reads from the standard input, in an empty environment.
func command(t *testing.T, stdin string, args ...string) run {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := Main(t.Context(), args, strings.NewReader(stdin), &stdout, &stderr, noEnv)
	return run{code, stdout.String(), stderr.String()}
}

// execute runs a command in a shell. What the shell does not have is nothing on the standard input, and an empty environment.
func execute(ctx context.Context, sh *shell.Shell, args ...string) run {
	var stdout, stderr bytes.Buffer
	sh.Stdout, sh.Stderr = &stdout, &stderr
	if sh.Stdin == nil {
		sh.Stdin = strings.NewReader("")
	}
	if sh.Env == nil {
		sh.Env = noEnv
	}
	code := Run(ctx, sh, args)
	return run{code, stdout.String(), stderr.String()}
}

// output runs a command in a shell, and returns its standard output. Any other exit code than 0 ends the test.
func output(t *testing.T, sh *shell.Shell, args ...string) string {
	t.Helper()
	got := execute(t.Context(), sh, args...)
	if got.code != shell.ExitOK {
		t.Fatalf("zlimit %s: code %d, %s", strings.Join(args, " "), got.code, got.stderr)
	}
	return got.stdout
}

// onTerminal returns an app whose output goes to a terminal, with colors unless the environment says otherwise. Its
// clock stands still until it sleeps.
func onTerminal(env map[string]string) (*shell.Shell, *time.Duration) {
	slept := new(time.Duration)
	start := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	sh := &shell.Shell{
		Env:  func(name string) string { return env[name] },
		Now:  func() time.Time { return start.Add(*slept) },
		Live: true, Watch: true,
	}
	sh.Sleep = func(ctx context.Context, d time.Duration) error {
		*slept += d
		return ctx.Err()
	}
	return sh, slept
}
