package quota

import (
	"context"
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// steps are the distances by which random programs move the clock: within the
// window, to the nanosecond around its edges, and backwards.
var steps = []time.Duration{
	0, 1, time.Second, 7 * time.Second, 30 * time.Second, time.Minute - 1, time.Minute, time.Minute + 1,
	time.Hour, 24*time.Hour - 1, 24 * time.Hour, -1, -time.Second, -20 * time.Second,
}

// program is a random program that runs on a limiter and on the naive model.
type program struct {
	ctx    context.Context
	now    time.Time
	open   func(c Config) (*Limiter, error)
	l      *Limiter
	model  *naive
	held   []*heldReservation
	models []string
	keys   []string
}

type heldReservation struct {
	res   Reservation
	naive naiveReservation
}

func drawQuota(t *rapid.T) ModelQuota {
	limit := rapid.Int64Range(0, 6)
	tokens := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 60))
	return ModelQuota{
		MaxRPM: limit.Draw(t, "rpm"), MaxTPM: tokens.Draw(t, "tpm"), MaxRPD: 2 * limit.Draw(t, "rpd"),
		MaxInputTPM: tokens.Draw(t, "itpm"), MaxOutputTPM: tokens.Draw(t, "otpm"), MaxTPD: 3 * tokens.Draw(t, "tpd"),
	}
}

func (p *program) drawRequest(t *rapid.T) Request {
	return Request{
		Model:  rapid.SampledFrom(p.models).Draw(t, "model"),
		Key:    rapid.SampledFrom(p.keys).Draw(t, "key"),
		Input:  rapid.IntRange(0, 25).Draw(t, "input"),
		Output: rapid.IntRange(0, 25).Draw(t, "output"),
	}
}

func newProgram(t *rapid.T, open func(c Config) (*Limiter, error)) *program {
	p := &program{
		ctx:    context.Background(),
		now:    time.Date(2026, 2, 20, 14, 32, 1, 123456789, time.UTC),
		models: []string{"gpt-4o", "claude-opus-4", "gemini-2.5-pro"},
		keys:   []string{"", "alice", "bob"},
	}
	clock := func() time.Time { return p.now }
	p.model = newNaive(clock)
	c := Config{Clock: clock, Quotas: map[string]ModelQuota{}, KeyQuotas: map[string]ModelQuota{}, DefaultKeyQuota: drawQuota(t)}
	p.model.fallbacks[ScopeKey] = c.DefaultKeyQuota
	for _, m := range p.models[:2] { // the third is unlimited
		c.Quotas[m] = drawQuota(t)
		p.model.quotas[ScopeModel][m] = c.Quotas[m]
	}
	c.KeyQuotas["alice"] = drawQuota(t)
	p.model.quotas[ScopeKey]["alice"] = c.KeyQuotas["alice"]
	var err error
	if p.l, err = open(c); err != nil {
		t.Fatalf("open = %v", err)
	}
	return p
}

func (p *program) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"pass time": func(t *rapid.T) {
			p.now = p.now.Add(rapid.SampledFrom(steps).Draw(t, "step"))
		},
		"can send": func(t *rapid.T) {
			r := p.drawRequest(t)
			r.Key, r.Output = "", 0
			got, err := p.l.CanSend(p.ctx, r.Model, r.Input)
			if want := p.model.check(r); err != nil || got != want {
				t.Fatalf("CanSend(%q, %d) = %v, %v, want %v", r.Model, r.Input, got, err, want)
			}
		},
		"check": func(t *rapid.T) {
			r := p.drawRequest(t)
			p.sameAnswer(t, "Check", r, p.l.Check(p.ctx, r))
		},
		"record": func(t *rapid.T) {
			r := p.drawRequest(t)
			if err := p.l.Record(p.ctx, r); err != nil {
				t.Fatalf("Record(%+v) = %v, want nil", r, err)
			}
			p.model.record(r)
		},
		"reserve": func(t *rapid.T) {
			r := p.drawRequest(t)
			h := &heldReservation{}
			var err error
			h.res, err = p.l.Reserve(p.ctx, r)
			p.sameAnswer(t, "Reserve", r, err)
			if err == nil {
				h.naive = p.model.record(r)
				p.held = append(p.held, h)
			}
		},
		"settle": func(t *rapid.T) {
			h := p.takeHeld(t)
			in, out := rapid.IntRange(0, 40).Draw(t, "in"), rapid.IntRange(0, 40).Draw(t, "out")
			if err := h.res.Settle(p.ctx, in, out); err != nil {
				t.Fatalf("Settle(%d, %d) = %v, want nil", in, out, err)
			}
			p.model.settle(h.naive, int64(in), int64(out))
		},
		"cancel": func(t *rapid.T) {
			h := p.takeHeld(t)
			if err := h.res.Cancel(p.ctx); err != nil {
				t.Fatalf("Cancel() = %v, want nil", err)
			}
			p.model.cancel(h.naive)
		},
		"time until": func(t *rapid.T) { p.timeUntil(t, p.drawRequest(t)) },
		"set quota": func(t *rapid.T) {
			q, m := drawQuota(t), rapid.SampledFrom(p.models).Draw(t, "model")
			if err := p.l.SetQuota(p.ctx, m, q); err != nil {
				t.Fatalf("SetQuota = %v, want nil", err)
			}
			p.model.quotas[ScopeModel][m] = q
		},
		"set key quota": func(t *rapid.T) {
			q := drawQuota(t)
			if err := p.l.SetKeyQuota(p.ctx, "bob", q); err != nil {
				t.Fatalf("SetKeyQuota = %v, want nil", err)
			}
			p.model.quotas[ScopeKey]["bob"] = q
		},
		"": p.sameStats,
	}
}

// takeHeld draws a reservation that is still open.
func (p *program) takeHeld(t *rapid.T) *heldReservation {
	if len(p.held) == 0 {
		t.Skip("nothing reserved")
	}
	i := rapid.IntRange(0, len(p.held)-1).Draw(t, "held")
	h := p.held[i]
	p.held = append(p.held[:i], p.held[i+1:]...)
	return h
}

func (p *program) sameAnswer(t *rapid.T, call string, r Request, err error) {
	want := p.model.check(r)
	if err == nil {
		if !want {
			t.Fatalf("%s(%+v) = nil, want a refusal", call, r)
		}
		return
	}
	var denied *ExceededError
	if !errors.As(err, &denied) || want {
		t.Fatalf("%s(%+v) = %v, want admitted: %v", call, r, err, want)
	}
}

// timeUntil checks that the model admits the request at the instant given, and
// not a nanosecond earlier.
func (p *program) timeUntil(t *rapid.T, r Request) {
	d, err := p.l.TimeUntil(p.ctx, r)
	var denied *ExceededError
	if errors.As(err, &denied) && denied.Impossible {
		if p.model.clone(func() time.Time { return p.now.Add(1000 * time.Hour) }).check(r) {
			t.Fatalf("TimeUntil(%+v) = %v, but the request passes when all has aged out", r, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("TimeUntil(%+v) = %v, want a duration", r, err)
	}
	at := func(d time.Duration) bool {
		return p.model.clone(func() time.Time { return p.now.Add(d) }).check(r)
	}
	if !at(d) || d > 0 && at(d-1) {
		t.Fatalf("TimeUntil(%+v) = %v: admitted then %v, admitted 1ns before %v, want true and false", r, d, at(d), at(d-1))
	}
}

func (p *program) sameStats(t *rapid.T) {
	for _, m := range p.models {
		got, err := p.l.Stats(p.ctx, m)
		if diff := cmp.Diff(p.model.stats(ScopeModel, m), got); diff != "" || err != nil {
			t.Fatalf("Stats(%q) = %v, differs (-want +got):\n%s", m, err, diff)
		}
	}
	for _, k := range p.keys[1:] {
		got, err := p.l.KeyStats(p.ctx, k)
		if diff := cmp.Diff(p.model.stats(ScopeKey, k), got); diff != "" || err != nil {
			t.Fatalf("KeyStats(%q) = %v, differs (-want +got):\n%s", k, err, diff)
		}
	}
}

func TestRandomProgramsMatchNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newProgram(t, func(c Config) (*Limiter, error) { return NewWithConfig(context.Background(), c) })
		actions := p.actions()
		actions["reset"] = func(t *rapid.T) {
			m := rapid.SampledFrom(p.models).Draw(t, "model")
			if err := p.l.Reset(p.ctx, m); err != nil {
				t.Fatalf("Reset(%q) = %v, want nil", m, err)
			}
			p.model.reset(ScopeModel, m)
		}
		t.Repeat(actions)
	})
}

// tracePath finds the LLM trace: named by ZLIMIT_TRACE, or beside the
// repository.
func tracePath(t testing.TB) string {
	t.Helper()
	path := os.Getenv("ZLIMIT_TRACE")
	if path == "" {
		path = filepath.Join("..", "..", "shared", "data", "llm_conv_trace.csv")
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no LLM trace: %v (set ZLIMIT_TRACE)", err)
	}
	return path
}

type traceCall struct {
	at      time.Time
	in, out int
}

func readTrace(t testing.TB) []traceCall {
	t.Helper()
	f, err := os.Open(tracePath(t))
	if err != nil {
		t.Fatalf("open trace: %v", err)
	}
	defer func() { _ = f.Close() }()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatalf("read trace: %v", err)
	}
	var calls []traceCall
	for _, row := range rows[1:] {
		at, err := time.Parse("2006-01-02 15:04:05.9999999", row[0])
		if err != nil {
			t.Fatalf("trace time: %v", err)
		}
		in, errIn := strconv.Atoi(row[1])
		out, errOut := strconv.Atoi(row[2])
		if err := errors.Join(errIn, errOut); err != nil {
			t.Fatalf("trace tokens: %v", err)
		}
		calls = append(calls, traceCall{at, in, out})
	}
	return calls
}

// TestTraceMatchesNaiveModel replays an hour of production calls under limits
// that refuse a part of them: reserved with a rough estimate, settled with the
// real counts a little later.
func TestTraceMatchesNaiveModel(t *testing.T) {
	calls := readTrace(t)
	for _, q := range []ModelQuota{
		{MaxRPM: 250, MaxTPM: 400_000, MaxRPD: 12_000},
		{MaxInputTPM: 250_000, MaxOutputTPM: 60_000, MaxTPD: 12_000_000},
		{},
	} {
		now := calls[0].at
		clock := func() time.Time { return now }
		l, err := NewWithConfig(t.Context(), Config{Clock: clock, Quotas: map[string]ModelQuota{"conv": q}})
		if err != nil {
			t.Fatalf("NewWithConfig = %v", err)
		}
		model := newNaive(clock)
		model.quotas[ScopeModel]["conv"] = q
		var open []*heldReservation
		var pending []traceCall
		denied := 0
		for i, c := range calls {
			now = c.at
			if len(open) > 20 {
				if err := open[0].res.Settle(t.Context(), pending[0].in, pending[0].out); err != nil {
					t.Fatalf("call %d: Settle = %v", i, err)
				}
				model.settle(open[0].naive, int64(pending[0].in), int64(pending[0].out))
				open, pending = open[1:], pending[1:]
			}
			r := Request{Model: "conv", Input: c.in, Output: 300}
			h := &heldReservation{}
			h.res, err = l.Reserve(t.Context(), r)
			if want := model.check(r); (err == nil) != want {
				t.Fatalf("call %d at %v: Reserve = %v, want admitted: %v", i, now, err, want)
			}
			if err != nil {
				denied++
				continue
			}
			h.naive = model.record(r)
			open, pending = append(open, h), append(pending, c)
			if i%50 == 0 {
				got, err := l.Stats(t.Context(), "conv")
				if diff := cmp.Diff(model.stats(ScopeModel, "conv"), got); diff != "" || err != nil {
					t.Fatalf("call %d: Stats = %v, differs (-want +got):\n%s", i, err, diff)
				}
			}
		}
		if limited := !q.Unlimited(); limited != (denied > 0) {
			t.Errorf("denied = %d of %d under %+v, want some refused: %v", denied, len(calls), q, limited)
		}
		t.Logf("%+v: %d of %d refused", q, denied, len(calls))
	}
}
