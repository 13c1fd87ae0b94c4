package quota_test

import (
	"context"
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/quota"
	_ "github.com/zlimit/zlimit-go/quota/quotasqlite"
)

// steps are the distances by which random programs move the clock: within the
// window, to the nanosecond around its edges, and backwards.
var steps = []time.Duration{
	0, 1, time.Second, 7 * time.Second, 30 * time.Second, time.Minute - 1, time.Minute, time.Minute + 1,
	time.Hour, 24*time.Hour - 1, 24 * time.Hour, -1, -time.Second, -20 * time.Second,
}

// program is a random program that runs on a limiter and on the naive model.
type program struct {
	ctx    context.Context //nolint:containedctx // of one run
	now    time.Time
	l      *quota.Limiter
	model  *naive
	held   []*heldReservation
	models []string
	keys   []string
	steps  []time.Duration
}

type heldReservation struct {
	res   quota.Reservation
	naive naiveReservation
}

func drawQuota(t *rapid.T) quota.ModelQuota {
	limit := rapid.Int64Range(0, 6)
	tokens := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 60))
	return quota.ModelQuota{
		MaxRPM: limit.Draw(t, "rpm"), MaxTPM: tokens.Draw(t, "tpm"), MaxRPD: 2 * limit.Draw(t, "rpd"),
		MaxInputTPM: tokens.Draw(t, "itpm"), MaxOutputTPM: tokens.Draw(t, "otpm"), MaxTPD: 3 * tokens.Draw(t, "tpd"),
	}
}

func (p *program) drawRequest(t *rapid.T) quota.Request {
	return quota.Request{
		Model:  rapid.SampledFrom(p.models).Draw(t, "model"),
		Key:    rapid.SampledFrom(p.keys).Draw(t, "key"),
		Input:  rapid.IntRange(0, 25).Draw(t, "input"),
		Output: rapid.IntRange(0, 25).Draw(t, "output"),
	}
}

func newProgram(t *rapid.T, open func(c quota.Config) (*quota.Limiter, error)) *program {
	p := &program{
		ctx:    context.Background(),
		now:    time.Date(2026, 2, 20, 14, 32, 1, 123456789, time.UTC),
		models: []string{"gpt-4o", "claude-opus-4", "gemini-2.5-pro"},
		keys:   []string{"", "alice", "bob"},
		steps:  steps,
	}
	clock := func() time.Time { return p.now }
	p.model = newNaive(clock)
	c := quota.Config{Clock: clock, Quotas: map[string]quota.ModelQuota{}, KeyQuotas: map[string]quota.ModelQuota{}, DefaultKeyQuota: drawQuota(t)}
	p.model.fallbacks[quota.ScopeKey] = c.DefaultKeyQuota
	for _, m := range p.models[:2] { // the third is unlimited
		c.Quotas[m] = drawQuota(t)
		p.model.quotas[quota.ScopeModel][m] = c.Quotas[m]
	}
	c.KeyQuotas["alice"] = drawQuota(t)
	p.model.quotas[quota.ScopeKey]["alice"] = c.KeyQuotas["alice"]
	var err error
	if p.l, err = open(c); err != nil {
		t.Fatalf("open = %v", err)
	}
	return p
}

func (p *program) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"pass time": func(t *rapid.T) {
			p.now = p.now.Add(rapid.SampledFrom(p.steps).Draw(t, "step"))
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
			check.Fatal(t, "Cancel()", h.res.Cancel(p.ctx))
			p.model.cancel(h.naive)
		},
		"time until": func(t *rapid.T) { p.timeUntil(t, p.drawRequest(t)) },
		"set quota": func(t *rapid.T) {
			q, m := drawQuota(t), rapid.SampledFrom(p.models).Draw(t, "model")
			check.Fatal(t, "SetQuota", p.l.SetQuota(p.ctx, m, q))
			p.model.quotas[quota.ScopeModel][m] = q
		},
		"set key quota": func(t *rapid.T) {
			q := drawQuota(t)
			check.Fatal(t, "SetKeyQuota", p.l.SetKeyQuota(p.ctx, "bob", q))
			p.model.quotas[quota.ScopeKey]["bob"] = q
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

func (p *program) sameAnswer(t *rapid.T, call string, r quota.Request, err error) {
	want := p.model.check(r)
	if err == nil {
		if !want {
			t.Fatalf("%s(%+v) = nil, want a refusal", call, r)
		}
		return
	}
	if !errors.As(err, new(*quota.ExceededError)) || want {
		t.Fatalf("%s(%+v) = %v, want admitted: %v", call, r, err, want)
	}
}

// timeUntil checks that the model admits the request at the instant given, and
// not a nanosecond earlier.
func (p *program) timeUntil(t *rapid.T, r quota.Request) {
	d, err := p.l.TimeUntil(p.ctx, r)
	if denied, ok := errors.AsType[*quota.ExceededError](err); ok && denied.Impossible {
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
		if diff := cmp.Diff(p.model.stats(quota.ScopeModel, m), got); diff != "" || err != nil {
			t.Fatalf("Stats(%q) = %v, differs (-want +got):\n%s", m, err, diff)
		}
	}
	for _, k := range p.keys[1:] {
		got, err := p.l.KeyStats(p.ctx, k)
		if diff := cmp.Diff(p.model.stats(quota.ScopeKey, k), got); diff != "" || err != nil {
			t.Fatalf("KeyStats(%q) = %v, differs (-want +got):\n%s", k, err, diff)
		}
	}
}

func TestRandomProgramsMatchNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newProgram(t, func(c quota.Config) (*quota.Limiter, error) { return quota.NewWithConfig(context.Background(), c) })
		actions := p.actions()
		actions["reset"] = func(t *rapid.T) {
			m := rapid.SampledFrom(p.models).Draw(t, "model")
			if err := p.l.Reset(p.ctx, m); err != nil {
				t.Fatalf("Reset(%q) = %v, want nil", m, err)
			}
			p.model.reset(quota.ScopeModel, m)
		}
		t.Repeat(actions)
	})
}

// TestRandomProgramsSurviveRestarts persists and loads into a new limiter at
// random moments: the answers stay those of the naive model.
func TestRandomProgramsSurviveRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.yaml")
	rapid.Check(t, func(t *rapid.T) {
		var cfg quota.Config
		open := func(c quota.Config) (*quota.Limiter, error) {
			c.FilePath, cfg = path, c
			return quota.NewWithConfig(context.Background(), c)
		}
		p := newProgram(t, open)
		actions := p.actions()
		actions["restart"] = func(t *rapid.T) {
			check.Fatal(t, "Persist", p.l.Persist(p.ctx))
			l := check.Call(open(cfg)).Must(t, "NewWithConfig")
			check.Fatal(t, "Load", l.Load(p.ctx))
			p.l, p.held = l, nil // reservations do not outlive the process
		}
		t.Repeat(actions)
	})
}

// TestRandomProgramsMatchNaiveModelOnSQLite runs the programs on two limiters
// that share a file, taking turns at random.
func TestRandomProgramsMatchNaiveModelOnSQLite(t *testing.T) {
	dir := t.TempDir()
	files := 0
	rapid.Check(t, func(t *rapid.T) {
		files++
		path := filepath.Join(dir, strconv.Itoa(files)+".db")
		var cfg quota.Config
		open := func(c quota.Config) (*quota.Limiter, error) {
			cfg = c
			return quota.NewWithSQLiteConfig(context.Background(), path, c)
		}
		p := newProgram(t, open)
		other, err := open(quota.Config{Providers: []quota.Provider{quota.ProviderLocal}, Clock: cfg.Clock, DefaultKeyQuota: cfg.DefaultKeyQuota})
		if err != nil {
			t.Fatalf("second NewWithSQLiteConfig = %v", err)
		}
		// Looking does not drop rows, so a clock set back sees them again.
		p.steps = slices.DeleteFunc(slices.Clone(steps), func(d time.Duration) bool { return d < 0 })
		first := p.l
		defer func() { check.Fatal(t, "Close", errors.Join(first.Close(), other.Close())) }()
		actions := p.actions()
		actions["switch process"] = func(*rapid.T) {
			if p.l == first {
				p.l = other
			} else {
				p.l = first
			}
		}
		actions["verify"] = func(t *rapid.T) {
			if err := p.l.Load(p.ctx); err != nil {
				t.Fatalf("Load = %v, want nil: the file is whole", err)
			}
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
		check.Fatal(t, "trace tokens", errors.Join(errIn, errOut))
		calls = append(calls, traceCall{at, in, out})
	}
	return calls
}

// TestTraceMatchesNaiveModel replays an hour of production calls under limits
// that refuse a part of them. Calls are reserved with a rough estimate, and
// settled with the real counts a little later.
func TestTraceMatchesNaiveModel(t *testing.T) {
	calls := readTrace(t)
	for _, q := range []quota.ModelQuota{
		{MaxRPM: 250, MaxTPM: 400_000, MaxRPD: 12_000},
		{MaxInputTPM: 250_000, MaxOutputTPM: 60_000, MaxTPD: 12_000_000},
		{},
	} {
		now := calls[0].at
		clock := func() time.Time { return now }
		l, err := quota.NewWithConfig(t.Context(), quota.Config{Clock: clock, Quotas: map[string]quota.ModelQuota{"conv": q}})
		if err != nil {
			t.Fatalf("NewWithConfig = %v", err)
		}
		model := newNaive(clock)
		model.quotas[quota.ScopeModel]["conv"] = q
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
			r := quota.Request{Model: "conv", Input: c.in, Output: 300}
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
				if diff := cmp.Diff(model.stats(quota.ScopeModel, "conv"), got); diff != "" || err != nil {
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
