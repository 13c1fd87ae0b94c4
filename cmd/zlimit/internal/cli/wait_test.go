package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// An interrupter is a terminal at which somebody presses Ctrl-C as soon as there is something to read.
type interrupter struct {
	bytes.Buffer
	press context.CancelFunc
}

func (i *interrupter) Write(text []byte) (int, error) {
	defer i.press()
	return i.Buffer.Write(text)
}

// In TestInterruptedWait, requests wait at a terminal. Each reports its limit, the owner of the limit, and the time. An
// interrupt gives the taken tokens back.
func TestInterruptedWait(t *testing.T) {
	for _, test := range []struct {
		name, limit, whose string
	}{
		{"a limit", "rpm=1/h", "rpm of key: due in (1h0m0s|59m[0-9]+s)"},
		{"a limit of the parent", "rpm=10/d", "rpm of team, its parent: due in (1h0m0s|59m[0-9]+s)"},
		{"a quota", "rpm=1/month@UTC", "rpm of key: due in [0-9hms.]+"},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := "sqlite:" + t.TempDir() + "/limits.db"
			zlimit := func(text string) run { return command(t, "", append(strings.Fields(text), "--store", store)...) }
			for _, text := range []string{
				"setup", "limits set --system --limit " + test.limit,
				"entity create team", "limits set --entity team --limit rpm=1/h", "entity create key --parent team --cascade",
				"acquire key gpt --consume rpm=1",
			} {
				if strings.HasPrefix(text, "entity create key") && test.name != "a limit of the parent" {
					text = "entity create key"
				}
				if got := zlimit(text); got.code != shell.ExitOK {
					t.Fatalf("zlimit %s: code %d, %s%s", text, got.code, got.stdout, got.stderr)
				}
			}
			before := zlimit("available key gpt -o json")

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var stdout bytes.Buffer
			stderr := &interrupter{press: cancel}
			sh := &shell.Shell{
				Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: stderr, Env: noEnv,
				Now: time.Now, Sleep: wait.For, Watch: true,
			}
			code := Run(ctx, sh, strings.Fields("acquire key gpt --consume rpm=1 --wait 1000h -o json --store "+store))
			want := regexp.MustCompile(`^waiting for ` + test.whose + `, at 20[0-9-]+T[0-9:]+\.[0-9]{3}Z\nzlimit: interrupted\n$`)
			if code != shell.ExitInterrupted || stdout.Len() > 0 || !want.MatchString(stderr.String()) {
				t.Errorf("an interrupted wait: code %d, stdout %q, stderr %q, want %v", code, &stdout, stderr.String(), want)
			}
			if after := zlimit("available key gpt -o json"); tokens(t, after.stdout) != tokens(t, before.stdout) {
				t.Errorf("after the interrupt\n%swant what was left before\n%s", after.stdout, before.stdout)
			}
		})
	}
}

// tokens returns what is left in all limits of a result of available.
func tokens(t *testing.T, result string) (left int64) {
	t.Helper()
	var found struct{ Limits []struct{ Available int64 } }
	if err := json.Unmarshal([]byte(result), &found); err != nil {
		t.Fatalf("%s: %v", result, err)
	}
	for _, l := range found.Limits {
		left += l.Available
	}
	return left
}

// TestWaitEnds checks that a request that waits for tokens is not admitted before they flow in, within 100 ms.
func TestWaitEnds(t *testing.T) {
	store := "sqlite:" + t.TempDir() + "/limits.db"
	acquire := func(args ...string) run {
		return command(t, "", append(strings.Fields("acquire acme gpt --consume calls=20 --limit calls=20:200/s --store "+store), args...)...)
	}
	command(t, "", "setup", "--store", store)
	var taken int64
	start := time.Now()
	for range 3 {
		if got := acquire("--wait", "1m", "-o", "json"); got.code != shell.ExitOK || !strings.Contains(got.stdout, `"waited_seconds":`) {
			t.Fatalf("a request that waits: code %d, %s%s", got.code, got.stdout, got.stderr)
		}
		taken += 20
		if took, least := time.Since(start), time.Duration(taken-20)*5*time.Millisecond*95/100; took < least {
			t.Errorf("%d tokens within %v, want no sooner than %v", taken, took, least)
		}
	}
}
