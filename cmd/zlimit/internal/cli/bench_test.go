package cli

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/bench"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// inBubble runs the command with a virtual clock.
func inBubble(t *testing.T, args ...string) (result string, stderr string, code int) {
	synctest.Test(t, func(t *testing.T) {
		var out, errs bytes.Buffer
		sh := &shell.Shell{
			Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Env: noEnv,
			Now: time.Now, Sleep: wait.For,
		}
		code = Run(t.Context(), sh, args)
		result, stderr = out.String(), errs.String()
	})
	return result, stderr, code
}

// TestBench runs a load in virtual time, in which every answer comes immediately.
func TestBench(t *testing.T) {
	got, progress, code := inBubble(t, "bench", "--store", "memory:", "--rate", "50", "--duration", "30s", "--keys", "1", "--limit", "t=100:10/s")
	if want := "1 keys, skew 0, 16 concurrent, 50/s, for 30.0 s\n"; code != shell.ExitOK || !strings.HasPrefix(got, want) {
		t.Errorf("bench: code %d\n%s", code, got)
	}
	if !strings.Contains(got, "requests            1,500: rejected ") || !strings.Contains(got, "  up to 1 ms        ██████████████████████████████ 1,500\n") ||
		!strings.Contains(got, "throttles           none\n") {
		t.Errorf("bench prints\n%s", got)
	}
	if want := "10s of 30s: "; strings.Count(progress, "\n") != 2 || !strings.HasPrefix(progress, want) {
		t.Errorf("progress is %q, want a line every 10 s", progress)
	}
	got, _, code = inBubble(t, "bench", "--store", "memory:", "--rate", "50", "--duration", "30s", "--keys", "1", "--limit", "t=100:10/s", "-o", "json")
	var r bench.Report
	if err := json.Unmarshal([]byte(got), &r); err != nil || code != shell.ExitOK {
		t.Fatalf("bench: code %d, %v\n%s", code, err, got)
	}
	// The bucket holds 100, and 10 flow in per second for 30 s: no benchmark may have more.
	if n := r.Results["admitted"]; r.Requests != 1500 || n > 400 || n < 390 || r.Results["rejected"] != 1500-n || r.Calls["write"] < n {
		t.Errorf("bench counts %+v", r)
	}
	if math.Abs(r.WritesPerAcquire-float64(r.Calls["write"]+r.Calls["transact"])/1500) > 1e-9 {
		t.Errorf("writes per acquire = %v, of %v calls", r.WritesPerAcquire, r.Calls)
	}
}

// TestBenchMoney takes dollars of a limit in money.
func TestBenchMoney(t *testing.T) {
	got, _, code := inBubble(t, "bench", "--store", "memory:", "--rate", "1", "--duration", "10s", "--keys", "1", "--limit", "usd=2/d", "--cost", "0.5", "-o", "json")
	var r bench.Report
	if err := json.Unmarshal([]byte(got), &r); err != nil || code != shell.ExitOK || r.Cost != 500_000_000 || r.Results["admitted"] != 4 {
		t.Errorf("bench: code %d, %v, cost %d, %v; want 4 admitted at 0.5 dollars of 2", code, err, r.Cost, r.Results)
	}
}

func TestBenchInput(t *testing.T) {
	for want, args := range map[string]string{
		"bench: --keys 0 must be from 1 to 100000":         "--keys 0",
		"bench: --concurrency 2000 must be from 1 to 1024": "--concurrency 2000",
		"bench: --rate -1 must be from 0 to 100000":        "--rate -1",
		"bench: --cost 11 must be from 1 to 10":            "--cost 11 --limit t=10/s",
		`bench: --cost "x" must be a whole number`:         "--cost x --limit t=10/s",
		"bench: --cost 2.5 must be from 0.000000001 to 2":  "--cost 2.5 --limit usd=2/s",
		"bench: --duration 100ms must be from 1s to 1h":    "--duration 100ms",
		"bench: --skew 6 must be from 0 to 5":              "--skew 6",
		`limit "x": must be NAME=CAPACITY[:REFILL]/PERIOD`: "--limit x",
		`invalid resource "a b"`:                           "--resource a\u00a0b",
	} {
		got := command(t, "", append([]string{"bench", "--store", "memory:"}, strings.Split(args, " ")...)...)
		if got.code != shell.ExitUsage || !strings.HasPrefix(got.stderr, "zlimit: "+strings.SplitN(want, `"a`, 2)[0]) {
			t.Errorf("bench %s: code %d, %q, want %q", args, got.code, got.stderr, want)
		}
	}
}
