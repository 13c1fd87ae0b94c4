package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/door"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/wait"
	"github.com/zlimit/zlimit-go/zlimit"
)

// inBubble runs the command with a virtual clock.
func inBubble(t *testing.T, args ...string) (result string, stderr string, code int) {
	synctest.Test(t, func(t *testing.T) {
		var out, errs bytes.Buffer
		a := &app{
			stdin: strings.NewReader(""), stdout: &out, stderr: &errs, env: func(string) string { return "" },
			now: time.Now, sleep: wait.For,
		}
		code = a.run(t.Context(), args)
		result, stderr = out.String(), errs.String()
	})
	return result, stderr, code
}

// TestBench runs a load in virtual time, in which every answer comes at once.
func TestBench(t *testing.T) {
	got, progress, code := inBubble(t, "bench", "--store", "memory:", "--rate", "50", "--duration", "30s", "--keys", "1", "--limit", "t=100:10/s")
	if want := "1 keys, skew 0, 16 at once, 50/s, for 30.0 s\n"; code != exitOK || !strings.HasPrefix(got, want) {
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
	var r benchReport
	if err := json.Unmarshal([]byte(got), &r); err != nil || code != exitOK {
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

func TestBenchInput(t *testing.T) {
	for want, args := range map[string]string{
		"bench: --keys 0 must be from 1 to 100000":         "--keys 0",
		"bench: --concurrency 2000 must be from 1 to 1024": "--concurrency 2000",
		"bench: --rate -1 must be from 0 to 100000":        "--rate -1",
		"bench: --cost 11 must be from 1 to 10":            "--cost 11 --limit t=10/s",
		"bench: --duration 100ms must be from 1s to 1h":    "--duration 100ms",
		"bench: --skew 6 must be from 0 to 5":              "--skew 6",
		`limit "x": must be NAME=CAPACITY[:REFILL]/PERIOD`: "--limit x",
		`invalid resource "a b"`:                           "--resource a\u00a0b",
	} {
		got := command(t, "", append([]string{"bench", "--store", "memory:"}, strings.Split(args, " ")...)...)
		if got.code != exitUsage || !strings.HasPrefix(got.stderr, "zlimit: "+strings.SplitN(want, `"a`, 2)[0]) {
			t.Errorf("bench %s: code %d, %q, want %q", args, got.code, got.stderr, want)
		}
	}
}

// A throttled store answers reads, and throttles every other write for one of two reasons.
type throttled struct {
	store.Store
	writes int
}

func (s *throttled) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if s.writes++; s.writes%2 == 0 {
		e := &store.Error{Op: "UpdateItem", Unavailable: true, Throttled: true, Err: fmt.Errorf("too fast")}
		if s.writes%4 == 0 {
			e.Throttles = []store.Throttle{{Limit: store.OfKey, Write: true, Reason: "TableWriteKeyRangeThroughputExceeded"}}
		}
		return store.Result{}, e
	}
	return s.Store.Write(ctx, w)
}

func TestBenchTellsThrottles(t *testing.T) {
	memory, err := zlimit.Memory()
	if err != nil {
		t.Fatal(err)
	}
	calls := &benchCalls{}
	calls.reset()
	s := &throttled{Store: memory.Internal()}
	l, err := zlimit.New(t.Context(), door.Store(s).(zlimit.Store), zlimit.WithSetup(), zlimit.WithObserver(calls.observe))
	if err != nil {
		t.Fatal(err)
	}
	b := &benchLoad{keys: 1, concurrency: 1, cost: 1, rate: 400, duration: time.Second, resource: "r", limit: zlimit.PerSecond("t", 1000)}
	tally, _ := b.run(t.Context(), l, time.Now, func(time.Duration, int64, int64) {})
	r := b.report("memory:", tally, calls, time.Second, 0)
	reasons := r.Throttles["TableWriteKeyRangeThroughputExceeded"] + r.Throttles["no reason told"]
	if r.Throttles["TableWriteKeyRangeThroughputExceeded"] == 0 || r.Throttles["no reason told"] == 0 || reasons != int64(s.writes/2) {
		t.Errorf("throttles = %v, of %d writes", r.Throttles, s.writes)
	}
	if r.Calls["write"] != int64(s.writes) || r.Requests != 400 || r.Results["admitted"]+r.Results["unavailable"] != 400 {
		t.Errorf("the report is %+v, of %d writes", r, s.writes)
	}
	p := &page{}
	r.print(p)
	if !strings.Contains(p.String(), "TableWriteKeyRangeThroughputExceeded ") {
		t.Errorf("the page does not tell why:\n%s", p)
	}
}

// TestHistogram holds quantiles to those of a sorted list, and steps to all that was counted.
func TestHistogram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Int64Range(0, int64(20*time.Second)), 1, 200).Draw(t, "durations")
		var h histogram
		for _, d := range all {
			h.add(time.Duration(d))
		}
		slices.Sort(all)
		for _, part := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
			rank := max(int(part*float64(len(all))+0.5), 1)
			exact, got := time.Duration(all[rank-1]), h.quantile(part)
			if got < exact-time.Microsecond || got > exact+exact/cellsPerOctave+time.Microsecond {
				t.Fatalf("quantile(%v) = %v, want %v and at most an eighth more", part, got, exact)
			}
		}
		n := int64(0)
		for _, s := range h.shown() {
			n += s.Count
		}
		if n != h.count || h.min != time.Duration(all[0]) || h.max != time.Duration(all[len(all)-1]) {
			t.Fatalf("the steps hold %d of %d, from %v to %v", n, h.count, h.min, h.max)
		}
	})
}

// TestSkew: keys are drawn as often as Zipf's law says.
func TestSkew(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for skew, want := range map[float64]float64{0: 0.1, 1: 0.3414} {
		p := newKeyPicker(10, skew)
		first := 0
		for range 100_000 {
			if p.draw(random) == "bench-00000" {
				first++
			}
		}
		if got := float64(first) / 100_000; math.Abs(got-want) > 0.01 {
			t.Errorf("with skew %v the first of 10 keys is drawn in %v of all, want %v", skew, got, want)
		}
	}
}
