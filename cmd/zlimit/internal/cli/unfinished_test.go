package cli

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An impatient writer interrupts a command once it shows progress.
type impatient struct {
	text      bytes.Buffer
	interrupt context.CancelFunc
}

func (w *impatient) Write(p []byte) (int, error) {
	if regexp.MustCompile(`[1-9]\d* buckets? `).Match(p) {
		w.interrupt()
	}
	return w.text.Write(p)
}

// TestInterruptedCommandSaysHowToGoOn interrupts commands over many buckets. They say how many are done, and the command that they
// name finishes the rest.
func TestInterruptedCommandSaysHowToGoOn(t *testing.T) {
	const buckets = 60
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	l := check.Call(zlimit.Open(t.Context(), dsn)).Must(t, "zlimit.Open()")
	for i := range buckets {
		r := zlimit.Request{
			Entity: fmt.Sprint("key-", i), Resource: "gpt", Consume: zlimit.Amounts{"rpd": 1}, Limits: []zlimit.Limit{zlimit.PerDay("rpd", 10)},
		}
		if _, err := l.Acquire(t.Context(), r); err != nil {
			t.Fatalf("Acquire() = %v", err)
		}
	}
	check.Fatal(t, "Close()", l.Close())
	for _, test := range []struct {
		command, said, finished string
	}{
		{
			"bucket reset --resource gpt --yes", `zlimit: interrupted; (\d+) buckets? reset; the same command with (--operation \S+) goes on$`,
			`: 60 buckets reset\n(\d+) of them by an earlier call`,
		},
		{"limits disable --resource gpt", `zlimit: interrupted; (\d+) buckets? marked; running it again goes on$`, `(60) buckets marked`},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		errs := &impatient{interrupt: interrupt}
		began, looks := time.Now(), &atomic.Int64{}
		sh := &shell.Shell{
			Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: errs, Env: noEnv, Watch: true,
			Now: func() time.Time { return began.Add(time.Duration(looks.Add(1)) * 50 * time.Millisecond) },
		}
		args := append(strings.Fields(test.command), "--store", dsn)
		if code := Run(ctx, sh, args); code != shell.ExitInterrupted {
			t.Fatalf("%s: code %d, %s", test.command, code, &errs.text)
		}
		lines := strings.Split(strings.TrimSpace(errs.text.String()), "\n")
		said := regexp.MustCompile(test.said).FindStringSubmatch(lines[len(lines)-1])
		if said == nil {
			t.Fatalf("%s says %q, want %s", test.command, lines[len(lines)-1], test.said)
		}
		if len(said) > 2 {
			args = append(args, strings.Fields(said[2])...)
		}
		again := command(t, "", args...)
		finished := regexp.MustCompile(test.finished).FindStringSubmatch(again.stdout)
		if again.code != shell.ExitOK || finished == nil {
			t.Fatalf("%s, again: code %d, %s%s", test.command, again.code, again.stdout, again.stderr)
		}
		done, _ := strconv.Atoi(said[1])
		if repeated, _ := strconv.Atoi(finished[1]); done == 0 || repeated < done {
			t.Errorf("%s has done %d by the interrupt, and %d by the report of the next run", test.command, done, repeated)
		}
	}
}
