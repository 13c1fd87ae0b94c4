package rotate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

var noon = time.Date(2026, 3, 31, 12, 30, 0, 0, time.UTC)

// A world is a namespace in a store.
type world struct {
	t         *testing.T
	s         store.Store
	namespace string
	now       time.Time
	options   []zlimit.Option
}

func (w *world) limiter(s store.Store) *zlimit.RateLimiter {
	w.t.Helper()
	options := append([]zlimit.Option{
		zlimit.WithNamespace(w.namespace), zlimit.WithSetup(), zlimit.WithClock(func() time.Time { return w.now }), zlimit.WithPrincipal("olga"),
	}, w.options...)
	return check.Call(zlimit.New(w.t.Context(), store.NewHandle(s, false), options...)).Must(w.t, "zlimit.New()")
}

// rotate runs a rotation that does not wait.
func rotate(ctx context.Context, l *zlimit.RateLimiter, from, to string, report func(string)) (*Rotation, error) {
	return Run(ctx, l, from, to, report, time.Now, func(context.Context, time.Duration) error { return nil })
}

func at(entity, resource string) zlimit.Level {
	return zlimit.Level{Entity: entity, Resource: resource}
}

func parsed(t *testing.T, texts ...string) zlimit.Config {
	t.Helper()
	var c zlimit.Config
	for _, text := range texts {
		var l zlimit.Limit
		check.Fatal(t, "UnmarshalText()", l.UnmarshalText([]byte(text)))
		c.Limits = append(c.Limits, l)
	}
	return c
}

// fill makes a tenant with a parent, a child, nested resources, budgets in use, a debt, a grant, and every switch.
func (w *world) fill() {
	w.t.Helper()
	ctx, l := w.t.Context(), w.limiter(w.s)
	defer l.Close()
	for _, e := range []zlimit.Entity{
		{ID: "org"},
		{ID: "acme", Name: "Acme", ParentID: "org", Cascade: true, Metadata: map[string]string{"plan": "gold"}},
		{ID: "key-1", ParentID: "acme", Cascade: true},
	} {
		check.Call(l.Entities.Create(ctx, e)).Must(w.t, "Entities.Create()")
	}
	set := func(v zlimit.Level, limits ...string) {
		w.t.Helper()
		check.Fatal(w.t, "Limits.Set()", l.Limits.Set(ctx, v, parsed(w.t, limits...)))
	}
	set(at("", "models"), "usd=100/month@UTC", "tpd=1000000/day@UTC")
	for _, resource := range []string{"gpt", "bypassed", "banned", "beta", "closed"} {
		set(at("", resource), "tpd=1000/day@UTC")
	}
	check.Fatal(w.t, "Resources.Put()", l.Resources.Put(ctx, zlimit.Resource{ID: "gpt", Within: "models"}))
	set(at("org", ""), "tpd=5000000/day@UTC")
	set(at("acme", ""), "tpd=2000/day@UTC", "rpm=60/min")
	set(at("acme", "gpt"), "tpd=500/day@UTC", "credit=50/never")
	set(at("acme", "models"), "usd=100/month@UTC", "tpd=1000000/day@UTC")
	set(at("acme", "banned"), "tpd=300/day@UTC")
	use := func(entity, resource string, amounts zlimit.Amounts, limits ...zlimit.Limit) {
		w.t.Helper()
		_, err := l.Acquire(ctx, zlimit.Request{Entity: entity, Resource: resource, Consume: amounts, Limits: limits})
		check.Fatal(w.t, "Acquire()", err)
	}
	use("acme", "gpt", zlimit.Amounts{"tpd": 300, "credit": 20})
	use("key-1", "gpt", zlimit.Amounts{"tpd": 40})
	use("acme", "models", zlimit.Amounts{"usd": 2_500_000_000})
	use("acme", "beta", zlimit.Amounts{"tpd": 10})
	use("acme", "closed", zlimit.Amounts{"tpd": 70})
	use("acme", "bypassed", zlimit.Amounts{"tpd": 70})
	use("acme", "banned", zlimit.Amounts{"tpd": 70})
	use("acme", "given", zlimit.Amounts{"rpd": 4}, zlimit.PerDay("rpd", 9))
	lease, err := l.Acquire(ctx, zlimit.Request{Entity: "acme", Resource: "debt", Consume: zlimit.Amounts{"tpd": 1000}})
	check.Fatal(w.t, "Acquire()", err)
	check.Fatal(w.t, "Adjust()", lease.Adjust(zlimit.Amounts{"tpd": 4000}))
	check.Fatal(w.t, "Commit()", lease.Commit(ctx))
	check.Call(l.Limits.TopUp(ctx, zlimit.TopUpRequest{
		Entity: "acme", Resource: "models", Amounts: zlimit.Amounts{"usd": 50_000_000_000}, Until: w.now.Add(time.Hour),
	})).Must(w.t, "Limits.TopUp()")
	_, err = l.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "acme", Resource: "gpt", Amounts: zlimit.Amounts{"credit": 1000}})
	check.Fatal(w.t, "Limits.TopUp()", err)
	for v, turn := range map[zlimit.Level]func(context.Context, zlimit.Level, func(zlimit.SwitchReport)) (zlimit.SwitchReport, error){
		at("acme", "bypassed"): l.Limits.Bypass, at("acme", "banned"): l.Limits.Disable, at("acme", "beta"): l.Limits.Enable,
		at("", "beta"): l.Limits.Disable, at("", "closed"): l.Limits.Disable,
	} {
		check.Call(turn(ctx, v, nil)).Must(w.t, "turn()")
	}
}

// A view is all of a namespace that a rotation is about.
type view struct {
	Balances map[string]int64
	Levels   map[string][]string
	Switches map[zlimit.Level]zlimit.Switch
	Parents  map[string]string
	Metadata map[string]string
	To       string // the successor of the old entity
}

// see looks at a namespace, with resources enabled for a moment to see their balances.
func (w *world) see() view {
	w.t.Helper()
	ctx, l := w.t.Context(), w.limiter(w.s)
	defer l.Close()
	v := view{map[string]int64{}, map[string][]string{}, map[zlimit.Level]zlimit.Switch{}, map[string]string{}, nil, ""}
	for _, id := range []string{"org", "acme-2", "key-1"} {
		e := check.Call(l.Entities.Get(ctx, id)).Must(w.t, "Entities.Get()")
		if v.Parents[id] = e.ParentID; e.Cascade {
			v.Parents[id] += ", charged"
		}
		if id == "acme-2" {
			delete(e.Metadata, ChargesKey) // which the runs report
			delete(e.Metadata, TimesKey)
			v.Metadata = e.Metadata
			v.Parents[id] += ", " + e.Name
		}
		for b, err := range l.Entities.Buckets(ctx, id) {
			check.Fatal(w.t, "Entities.Get()", err)
			for _, s := range b.Statuses {
				v.Balances[fmt.Sprint(id, " ", b.Resource, " ", s.Limit.Name)] = s.Available
			}
		}
	}
	old := check.Call(l.Entities.Get(ctx, "acme")).Must(w.t, "Entities.Get()")
	v.To = old.Metadata[ToKey]
	for stored, err := range l.Limits.List(ctx, zlimit.LevelQuery{}) {
		check.Fatal(w.t, "Entities.Get()", err)
		if stored.Level.Entity == "" && stored.Level.Resource != "closed" {
			continue
		}
		if stored.Switch != "" {
			v.Switches[stored.Level] = stored.Switch
		}
		for _, limit := range stored.Config.Limits {
			v.Levels[stored.Level.String()] = append(v.Levels[stored.Level.String()], limit.String())
		}
		slices.Sort(v.Levels[stored.Level.String()])
	}
	for _, resource := range []string{"gpt", "models", "beta", "closed", "debt", "given", "bypassed", "banned"} {
		_, err := l.Acquire(ctx, zlimit.Request{
			Entity: "acme", Resource: resource, Consume: zlimit.Amounts{"tpd": 0}, Limits: []zlimit.Limit{zlimit.PerDay("tpd", 1000)},
		})
		if !errors.Is(err, zlimit.ErrDisabled) {
			w.t.Errorf("a request of the old entity for %s = %v, want ErrDisabled", resource, err)
		}
	}
	return v
}

var rotated = view{
	Balances: map[string]int64{
		"acme-2 gpt tpd": 160, "acme-2 gpt credit": 1030, "acme-2 models usd": 147_500_000_000, "acme-2 models tpd": 999_660,
		"acme-2 beta tpd": 1990, "acme-2 beta rpm": 60, "acme-2 closed tpd": 1930, "acme-2 closed rpm": 60, "acme-2 debt tpd": -3000,
		"acme-2 debt rpm": 60, "acme-2 given rpd": 5, "acme-2 banned tpd": 230, "acme-2 bypassed tpd": 1930, "acme-2 bypassed rpm": 60,
		"key-1 gpt tpd": 960, "key-1 models usd": 100_000_000_000, "key-1 models tpd": 999_960,
	},
	Levels: map[string][]string{
		"resource closed":              {"tpd=1000/day@UTC"},
		"entity org":                   {"tpd=5000000/day@UTC"},
		"entity acme":                  {"rpm=60/min", "tpd=2000/day@UTC"},
		"entity acme-2":                {"rpm=60/min", "tpd=2000/day@UTC"},
		"entity acme, resource gpt":    {"credit=50/never", "tpd=500/day@UTC"},
		"entity acme-2, resource gpt":  {"credit=50/never", "tpd=500/day@UTC"},
		"entity acme, resource models": {"tpd=1000000/day@UTC", "usd=100/month@UTC"}, "entity acme-2, resource models": {"tpd=1000000/day@UTC", "usd=100/month@UTC"},
		"entity acme, resource banned": {"tpd=300/day@UTC"}, "entity acme-2, resource banned": {"tpd=300/day@UTC"},
	},
	Switches: map[zlimit.Level]zlimit.Switch{
		at("", "closed"): "disabled", at("acme", ""): "disabled", at("acme", "bypassed"): "disabled", at("acme", "banned"): "disabled",
		at("acme", "beta"): "disabled", at("acme-2", "bypassed"): "bypass", at("acme-2", "banned"): "disabled", at("acme-2", "beta"): "enabled",
	},
	Parents:  map[string]string{"org": "", "acme-2": "org, charged, Acme", "key-1": "acme-2, charged"},
	Metadata: map[string]string{"plan": "gold", FromKey: "acme"},
	To:       "acme-2",
}

// stores are those of a rotation. Each call opens a namespace of its own.
func stores(t *testing.T) map[string]func(t *testing.T) *world {
	t.Helper()
	engine := enginetest.Start(t)
	table := store.Of(dynamo.New(engine.Client(), engine.Table(t)))
	n := 0
	return map[string]func(t *testing.T) *world{
		"memory": func(t *testing.T) *world {
			s := check.Call(memory.New(layout.Table)).Must(t, "memory.New()")
			return &world{t, s, zlimit.DefaultNamespace, noon, nil}
		},
		"sqlite": func(t *testing.T) *world {
			s := check.Call(sqlite.Open(filepath.Join(t.TempDir(), "limits.db"), layout.Table)).Must(t, "sqlite.Open()")
			t.Cleanup(func() { _ = s.Close() })
			return &world{t, s, zlimit.DefaultNamespace, noon, nil}
		},
		"engine": func(t *testing.T) *world {
			n++
			return &world{t, table, fmt.Sprint("run-", n), noon, nil}
		},
	}
}

// TestRotate rotates in each store: without an interrupt, and with a process that is killed at a call, before it or after it. The next run
// goes on, and comes to the same end. Another one changes nothing.
func TestRotate(t *testing.T) {
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			step := map[string]int{"memory": 1, "sqlite": soak.Pick(17, 1), "engine": soak.Pick(97, 1)}[name]
			calls := rotateTwice(t, open(t), 0, "")
			if calls < 50 {
				t.Fatalf("a rotation made %d calls", calls)
			}
			for last := 1; last <= calls; last += step {
				for _, how := range []faulttest.Crash{faulttest.Before, faulttest.After} {
					if rotateTwice(t, open(t), last, how); t.Failed() {
						t.Fatalf("killed at call %d of %d, %s", last, calls, how)
					}
				}
			}
		})
	}
}

// TestRotateAtOnce rotates by two processes at the same time. They do it together, and what they charge is charged once.
func TestRotateAtOnce(t *testing.T) {
	for range soak.Pick(100, 3000) {
		s := check.Call(memory.New(layout.Table)).Must(t, "memory.New()")
		w := &world{t, s, zlimit.DefaultNamespace, noon, nil}
		w.fill()
		var runs sync.WaitGroup
		for range 2 {
			l := w.limiter(slow{s})
			runs.Go(func() {
				_, err := rotate(t.Context(), l, "acme", "acme-2", func(string) {})
				check.Error(t, "Run()", err)
				_ = l.Close()
			})
		}
		runs.Wait()
		l := w.limiter(s)
		done := check.Call(rotate(t.Context(), l, "acme", "acme-2", func(string) {})).Must(w.t, "Run()")
		w.reports(done)
		check.Fatal(w.t, "Close()", l.Close())
		if w.check(); t.Failed() {
			return
		}
	}
}

// TestOneSuccessor rotates to another ID after a rotation that is done, or that was killed at a call. The other one is refused before any
// write, unless the first one has written nothing.
func TestOneSuccessor(t *testing.T) {
	for last := 0; last <= 60; last++ {
		for _, how := range []faulttest.Crash{faulttest.Before, faulttest.After} {
			s := check.Call(memory.New(layout.Table)).Must(t, "memory.New()")
			w := &world{t, s, zlimit.DefaultNamespace, noon, nil}
			w.fill()
			m := faulttest.NewMortal(s)
			dying := w.limiter(m)
			m.Kill(last, how)
			_, _ = rotate(t.Context(), dying, "acme", "acme-2", func(string) {})
			_ = dying.Close()
			l := w.limiter(s)
			old := check.Call(l.Entities.Get(t.Context(), "acme")).Must(w.t, "Entities.Get()")
			_, err := l.Entities.Get(t.Context(), "acme-2")
			if begun := err == nil; begun && old.Metadata[ToKey] != "acme-2" {
				t.Fatalf("killed at call %d: the new entity exists, and the metadata of the old one is %v", last, old.Metadata)
			}
			if old.Metadata[ToKey] == "" {
				continue
			}
			_, err = rotate(t.Context(), l, "acme", "acme-9", func(string) {})
			var invalid *zlimit.ValidationError
			if !errors.As(err, &invalid) || !strings.Contains(invalid.Reason, "acme-2") {
				t.Fatalf("killed at call %d: a rotation to another ID = %v, want one that names acme-2", last, err)
			}
			if _, err := l.Entities.Get(t.Context(), "acme-9"); !errors.Is(err, zlimit.ErrEntityNotFound) {
				t.Fatalf("killed at call %d: the other ID = %v, want ErrEntityNotFound", last, err)
			}
			check.Fatal(w.t, "Close()", l.Close())
		}
	}
}

// TestTwoSuccessorsAtOnce rotates to two IDs at the same time, with and without a record of the old entity. One wins.
func TestTwoSuccessorsAtOnce(t *testing.T) {
	for i := range soak.Pick(100, 3000) {
		s := check.Call(memory.New(layout.Table)).Must(t, "memory.New()")
		w := &world{t, s, zlimit.DefaultNamespace, noon, nil}
		w.fill()
		from := "acme"
		if i%2 == 1 {
			l := w.limiter(s)
			from = "unrecorded"
			check.Fatal(w.t, "Limits.Set()", l.Limits.Set(t.Context(), at(from, ""), parsed(t, "tpd=10/day@UTC")))
			check.Fatal(w.t, "Close()", l.Close())
		}
		var runs sync.WaitGroup
		var failed [2]error
		for n := range failed {
			l := w.limiter(slow{s})
			runs.Go(func() {
				_, failed[n] = rotate(t.Context(), l, from, fmt.Sprint("new-", n), func(string) {})
				_ = l.Close()
			})
		}
		runs.Wait()
		l, made := w.limiter(s), 0
		for n := range failed {
			if _, err := l.Entities.Get(t.Context(), fmt.Sprint("new-", n)); err == nil {
				made++
			}
		}
		check.Fatal(w.t, "Close()", l.Close())
		if (failed[0] == nil) == (failed[1] == nil) || made != 1 {
			t.Fatalf("two rotations at once = %v and %v, and made %d entities", failed[0], failed[1], made)
		}
	}
}

// A slow store lets others run before each call.
type slow struct{ store.Store }

func (s slow) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	runtime.Gosched()
	return s.Store.Read(ctx, keys, consistent)
}

func (s slow) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	runtime.Gosched()
	return s.Store.Transact(ctx, writes)
}

// rotateTwice rotates by a process that may be killed, then by another one, and checks what is there. It returns the calls of the first.
func rotateTwice(t *testing.T, w *world, killed int, how faulttest.Crash) int {
	t.Helper()
	w.t = t
	w.fill()
	m := faulttest.NewMortal(w.s)
	l := w.limiter(w.s)
	dying := check.Call(zlimit.New(t.Context(), store.NewHandle(m, false), zlimit.WithNamespace(w.namespace),
		zlimit.WithClock(func() time.Time { return w.now }), zlimit.WithPrincipal("olga"))).Must(w.t, "zlimit.New()")
	m.Kill(killed, how)
	first, err := rotate(t.Context(), dying, "acme", "acme-2", func(string) {})
	calls := m.Calls()
	_ = dying.Close()
	if killed == 0 {
		check.Fatal(w.t, "Run()", err)
	}
	w.refusesNew(l)
	w.now = w.now.Add(50 * time.Second) // requests a minute flow in meanwhile
	done := check.Call(rotate(t.Context(), l, "acme", "acme-2", func(string) {})).Must(w.t, "Run()")
	if killed == 0 && !done.Repeated {
		t.Errorf("the second run says %+v, want that all was done", done)
	}
	w.reports(done)
	if killed == 0 {
		w.reports(first)
	}
	repeated := check.Call(rotate(t.Context(), l, "acme", "acme-2", func(string) {})).Must(w.t, "Run()")
	w.reports(repeated)
	check.Fatal(w.t, "Close()", l.Close())
	w.check()
	return calls
}

// charges are those of each run that gets to the end.
var charges = []Charge{
	{Resource: "banned", Used: zlimit.Amounts{"tpd": 70}},
	{Resource: "beta", Used: zlimit.Amounts{"tpd": 10}},
	{Resource: "bypassed", Used: zlimit.Amounts{"tpd": 70}},
	{Resource: "closed", Used: zlimit.Amounts{"tpd": 70}},
	{Resource: "debt", Used: zlimit.Amounts{"tpd": 5000}},
	{Resource: "given", Used: zlimit.Amounts{"rpd": 4}},
	{Resource: "gpt", Used: zlimit.Amounts{"tpd": 340}, Granted: zlimit.Amounts{"credit": 980}},
	{Resource: "models", Used: zlimit.Amounts{"tpd": 340}, Granted: zlimit.Amounts{"usd": 47_500_000_000}},
}

// reports checks what a run reports as charged.
func (w *world) reports(r *Rotation) {
	w.t.Helper()
	if diff := cmp.Diff(charges, r.Charges, cmpopts.EquateEmpty()); diff != "" {
		w.t.Errorf("a run reports other charges (-want +got):\n%s", diff)
	}
}

// refusesNew checks that the new entity is refused while its limits are copied and charged, for whatever resource.
func (w *world) refusesNew(l *zlimit.RateLimiter) {
	w.t.Helper()
	e, err := l.Entities.Get(w.t.Context(), "acme-2")
	if stage := e.Metadata[StageKey]; err != nil || stage != stageCopying && stage != stageClosing && stage != stageJoining {
		return
	}
	for _, resource := range []string{"gpt", "models", "beta", "closed", "debt", "given", "bypassed", "banned", "unused"} {
		_, err := l.Acquire(w.t.Context(), zlimit.Request{
			Entity: "acme-2", Resource: resource, Consume: zlimit.Amounts{"tpd": 1}, Limits: []zlimit.Limit{zlimit.PerDay("tpd", 1000)},
		})
		if !errors.Is(err, zlimit.ErrDisabled) {
			w.t.Errorf("at stage %s, a request of the new entity for %s = %v, want ErrDisabled", e.Metadata[StageKey], resource, err)
		}
	}
}

// check checks what is there once the rotation is done.
func (w *world) check() {
	t := w.t
	t.Helper()
	got := w.see()
	parent := got.Balances["org gpt tpd"]
	if used := 5_000_000 - parent; used != 340 {
		t.Errorf("the parent was charged %d tokens, want the 340 of the requests", used)
	}
	for key := range got.Balances {
		if len(key) > 4 && key[:4] == "org " {
			delete(got.Balances, key)
		}
	}
	compare.Equal(t, "after the rotation", rotated, got)
}
