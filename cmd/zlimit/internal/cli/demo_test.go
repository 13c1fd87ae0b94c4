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
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/demo"
)

// TestDemoIsDeterministic runs the demo often: which replica is first differs from run to run, the result does not.
func TestDemoIsDeterministic(t *testing.T) {
	first := command(t, "", "demo", "--seed", "3", "-o", "json")
	if first.code != shell.ExitOK {
		t.Fatalf("demo: code %d, stderr %s", first.code, first.stderr)
	}
	for range 5 {
		if again := command(t, "", "demo", "--seed", "3", "-o", "json"); again != first {
			t.Fatalf("a second run: code %d, %s\n%s\nthe first:\n%s", again.code, again.stderr, again.stdout, first.stdout)
		}
	}
	if other := command(t, "", "demo", "--seed", "4", "-o", "json"); other == first {
		t.Error("seeds 3 and 4 draw the same traffic")
	}
}

// TestDemoShowsWhatLimitsAreFor asks of several seeds what the demo promises: the abusive key is held at its limit, and
// the others hardly notice.
func TestDemoShowsWhatLimitsAreFor(t *testing.T) {
	for _, seed := range []string{"1", "2", "3", "4", "5"} {
		got := command(t, "", "demo", "--seed", seed, "-o", "json")
		var report demo.Report
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != shell.ExitOK {
			t.Fatalf("demo --seed %s: code %d, stderr %s, %v", seed, got.code, got.stderr, err)
		}
		keys := map[string]demo.Key{}
		for _, k := range report.Keys {
			keys[k.Key] = k
			if k.Requests != k.Admitted+k.Rejected || k.Failed > k.Admitted || k.TokensUsed > k.TokensEstimated {
				t.Errorf("seed %s, %s: the figures do not add up: %+v", seed, k.Key, k)
			}
			if len(k.Audit) != 2 {
				t.Errorf("seed %s, %s: %d limits audited, want 2", seed, k.Key, len(k.Audit))
			}
		}
		if web := keys["web-chat"]; web.Rejected > 0 {
			t.Errorf("seed %s: web-chat was rejected %d times", seed, web.Rejected)
		}
		if eval := keys["nightly-eval"]; eval.Rejected == 0 || eval.LongestRetryAfter == 0 {
			t.Errorf("seed %s: nightly-eval was never told to wait", seed)
		}
		// In two minutes its 120 requests a minute let through 120 + 240, and those that were given back.
		s := keys["scraper"]
		if s.Admitted < 355 || s.Admitted > 360+s.Failed || s.Rejected < 1000 {
			t.Errorf("seed %s: scraper: %d admitted, %d given back, %d rejected", seed, s.Admitted, s.Failed, s.Rejected)
		}
		if p := report.Proof; p.Exceeded || p.Excess > 0 || p.Excess < -1 {
			t.Errorf("seed %s: proof = %+v, want an excess that is no breach and close to one", seed, p)
		}
	}
}

// escapes are control sequences of terminals.
var escapes = regexp.MustCompile("\x1b\\[[?0-9]*[A-Za-z]")

func TestDemoOnATerminal(t *testing.T) {
	for _, test := range []struct {
		name string
		env  map[string]string
		args []string
		most time.Duration // that it may take to show
		want int           // frames
	}{
		{"in color", nil, []string{"demo"}, 4 * time.Second, 120},
		{"without color", map[string]string{"NO_COLOR": "1"}, []string{"demo", "--duration", "10s"}, time.Second, 10},
		{"long", nil, []string{"demo", "--duration", "10m"}, 4 * time.Second, 600},
	} {
		t.Run(test.name, func(t *testing.T) {
			sh, slept := onTerminal(test.env)
			screen := output(t, sh, test.args...)
			if *slept == 0 || *slept > test.most {
				t.Errorf("waited for %v, want some time up to %v", *slept, test.most)
			}
			if frames := strings.Count(screen, "left of the tightest limit"); frames != test.want {
				t.Errorf("%d frames, want %d", frames, test.want)
			}
			if strings.Count(screen, show.HideCursor) != 1 || !strings.HasSuffix(screen, show.ShowCursor) {
				t.Error("the cursor is not given back in the end")
			}
			if colored := strings.Contains(screen, "\x1b["+show.Red+"m"); colored != (test.env["NO_COLOR"] == "") {
				t.Errorf("colored = %v", colored)
			}
			for line := range strings.Lines(escapes.ReplaceAllString(screen, "")) {
				if width := len([]rune(strings.TrimSuffix(line, "\n"))); width > 80 {
					t.Errorf("%d columns: %s", width, line)
				}
			}
			// The report is that of a run without a terminal.
			plain := command(t, "", test.args...).stdout
			_, report, found := strings.Cut(plain, "\nkey ")
			if !found || !strings.Contains(screen, "\nkey "+report) {
				t.Errorf("the terminal does not show the report:\n%s", report)
			}
		})
	}
}

func TestDemoFitsEightyColumns(t *testing.T) {
	got := command(t, "", "demo", "--duration", "10m")
	for line := range strings.Lines(got.stdout) {
		if width := len([]rune(strings.TrimSuffix(line, "\n"))); width > 80 {
			t.Errorf("%d columns: %s", width, line)
		}
	}
}

// TestInterrupted cancels commands on their way: they fail with one line, and a terminal gets its cursor back.
func TestInterrupted(t *testing.T) {
	sh, _ := onTerminal(nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	frames := 0
	sh.Sleep = func(ctx context.Context, _ time.Duration) error {
		if frames++; frames == 5 {
			cancel()
		}
		return ctx.Err()
	}
	got := execute(ctx, sh, "demo")
	if got.code != shell.ExitInterrupted || got.stderr != "zlimit: interrupted\n" {
		t.Errorf("demo: code %d, stderr %q; want code 1 and one line", got.code, got.stderr)
	}
	if frames != 5 || !strings.HasSuffix(got.stdout, show.ShowCursor) {
		t.Errorf("demo: %d frames, and the output ends in %q", frames, got.stdout[max(0, len(got.stdout)-20):])
	}

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	code := Main(cancelled, []string{"simulate", "--trace", "-", "--limit", "a=1/s", "--cost", "a=1"},
		strings.NewReader("TIMESTAMP\n2024-01-01 00:00:00\n"), &stdout, &stderr, func(string) string { return "" })
	if code != shell.ExitInterrupted || stderr.String() != "zlimit: interrupted\n" {
		t.Errorf("simulate: code %d, stderr %q; want code 1 and one line", code, stderr.String())
	}
}
