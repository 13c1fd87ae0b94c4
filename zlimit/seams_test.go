package zlimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A hooked store asks a hook before each call that writes; an error of the hook takes the place of the call.
type hooked struct {
	store.Store
	hook   atomic.Pointer[func(writes ...store.Write) error]
	reads  atomic.Int64
	writes atomic.Int64
}

func hook(s Store) *hooked { return &hooked{Store: s.impl} }

func (h *hooked) set(f func(writes ...store.Write) error) { h.hook.Store(&f) }

func (h *hooked) ask(writes ...store.Write) error {
	h.writes.Add(1)
	if f := h.hook.Load(); f != nil {
		return (*f)(writes...)
	}
	return nil
}

func (h *hooked) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if err := h.ask(w); err != nil {
		return store.Result{}, err
	}
	return h.Store.Write(ctx, w)
}

func (h *hooked) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	if err := h.ask(writes...); err != nil {
		return nil, err
	}
	return h.Store.Transact(ctx, writes)
}

func (h *hooked) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	h.reads.Add(1)
	return h.Store.Read(ctx, keys, consistent)
}

// times returns a hook that returns an error so many times.
func times(n int64, err error) func(...store.Write) error {
	var calls atomic.Int64
	return func(...store.Write) error {
		if calls.Add(1) <= n {
			return err
		}
		return nil
	}
}

// TestRejectionsBringInLine changes limits of a bucket that rejects: the change takes effect by the first request that
// meets it, at the cost of one write, and the wait that is told is the wait that there is.
func TestRejectionsBringInLine(t *testing.T) {
	own := func(r Request, limits ...Limit) Request {
		r.Limits = limits
		return r
	}
	child := Request{Entity: "key-1", Resource: "gpt-4", Consume: Amounts{"rpm": 60}}
	for name, test := range map[string]struct {
		before []Limit
		take   int64
		owe    int64
		after  func(t *testing.T, l *RateLimiter)
		ask    Request
	}{
		"a raised rate": {
			before: []Limit{PerMinute("rpm", 60)}, take: 60, ask: child,
			after: func(t *testing.T, l *RateLimiter) { setSystem(t, l, PerSecond("rpm", 60)) },
		},
		"a lowered rate": {
			before: []Limit{PerSecond("rpm", 60)}, take: 60, ask: child,
			after: func(t *testing.T, l *RateLimiter) { setSystem(t, l, PerMinute("rpm", 60)) },
		},
		"a raised burst": {
			before: []Limit{PerSecond("rpm", 10)}, take: 10, ask: ask(Amounts{"rpm": 500}),
			after: func(t *testing.T, l *RateLimiter) { setSystem(t, l, PerSecond("rpm", 1000)) },
		},
		"a bucket in debt": {
			before: []Limit{PerMinute("rpm", 60)}, take: 60, owe: 300, ask: child,
			after: func(t *testing.T, l *RateLimiter) { setSystem(t, l, PerSecond("rpm", 60)) },
		},
		"a parent's limit": {
			before: []Limit{PerMinute("rpm", 60)}, take: 60, ask: child,
			after: func(t *testing.T, l *RateLimiter) {
				putEntity(t, l, "key-1", "team")
				l.Limits.Invalidate()
				setSystem(t, l, PerSecond("rpm", 60))
			},
		},
		"limits of the request": {
			before: []Limit{PerMinute("rpm", 60)}, take: 60, ask: own(child, PerSecond("rpm", 60)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			h := hook(newMemory(t))
			l := newLimiter(t, Store{impl: h}, WithClock(c.now), WithFreshness(0), WithRejectionCache(0))
			setSystem(t, l, test.before...)
			lease := acquire(t, l, ask(Amounts{"rpm": test.take}))
			if err := errors.Join(lease.Adjust(Amounts{"rpm": test.owe}), lease.Commit(t.Context())); err != nil {
				t.Fatal(err)
			}
			if test.after != nil {
				test.after(t, l)
			}
			c.sleep(100 * time.Millisecond)
			wait := reject(t, l, test.ask).RetryAfter()
			writes := h.writes.Load()
			if again := reject(t, l, test.ask).RetryAfter(); again != wait || h.writes.Load() != writes {
				t.Errorf("a second rejection tells %v after %d more writes, want %v after none", again, h.writes.Load()-writes, wait)
			}
			if told, err := l.TimeUntil(t.Context(), test.ask); err != nil || told != wait {
				t.Errorf("TimeUntil() = %v, %v, want %v", told, err, wait)
			}
			c.sleep(wait - time.Millisecond)
			reject(t, l, test.ask)
			c.sleep(time.Millisecond)
			acquire(t, l, test.ask)
		})
	}
}

// TestConflictsAreLostRaces has plain writes meet a transaction: they are tried again.
func TestConflictsAreLostRaces(t *testing.T) {
	conflict := fmt.Errorf("UpdateItem: %w", store.ErrConflict)
	for _, opts := range [][]Option{nil, {WithCoalescing()}} {
		h := hook(newMemory(t))
		l := newLimiter(t, Store{impl: h}, append(opts, WithClock(newClock().now))...)
		setSystem(t, l, PerDay("rpd", 100))
		h.set(times(3, conflict))
		lease := acquire(t, l, ask(Amounts{"rpd": 10}))
		h.set(times(3, conflict))
		if err := errors.Join(lease.Adjust(Amounts{"rpd": 5}), lease.Commit(t.Context())); err != nil {
			t.Errorf("Commit() = %v", err)
		}
		h.set(times(3, conflict))
		if err := acquire(t, l, ask(Amounts{"rpd": 7})).Rollback(t.Context()); err != nil {
			t.Errorf("Rollback() = %v", err)
		}
		h.set(times(1000, conflict))
		if _, err := l.Acquire(t.Context(), ask(Amounts{"rpd": 1})); !errors.Is(err, ErrContended) {
			t.Errorf("Acquire() among endless conflicts = %v, want ErrContended", err)
		}
		h.set(times(0, nil))
		if got := available(t, l, "rpd"); got != 85 {
			t.Errorf("%d are left, want 85", got)
		}
	}
}

// TestMergedShardsDoNotCount has another process merge the shards of a bucket: their images count no more.
func TestMergedShardsDoNotCount(t *testing.T) {
	c := newClock()
	s := Store{impl: partitioned{newMemory(t).impl}}
	l := newLimiter(t, s, WithClock(c.now), WithRejectionCache(0))
	setSystem(t, l, PerDay("rpd", 100))
	acquire(t, l, ask(Amounts{"rpd": 1}))
	divide(t, l)
	acquire(t, l, ask(Amounts{"rpd": 90})) // of both shards
	available(t, l, "rpd")                 // both are known
	other := newLimiter(t, s, WithClock(c.now))
	if err := joinAt(t.Context(), other, "key-1", shardsOf(t, l)[0]); err != nil {
		t.Fatal(err)
	}
	acquire(t, other, ask(Amounts{"rpd": 9}))
	for range 3 {
		e := reject(t, l, ask(Amounts{"rpd": 5}))
		if e.RetryAfter() < time.Hour || len(e.Violations()) != 1 || e.Statuses[0].Available != 0 {
			t.Errorf("rejected by %v, retry after %v; want one violation with nothing available", e.Statuses, e.RetryAfter())
		}
	}
}

// TestParentGainsALimit adds a limit to a parent while a lease is open: the lease gives back what it took, and no more.
func TestParentGainsALimit(t *testing.T) {
	for name, settle := range map[string]func(*Lease) error{
		"roll back": func(lease *Lease) error { return lease.Rollback(context.Background()) },
		"release": func(lease *Lease) error {
			return errors.Join(lease.Release(Amounts{"rpd": 20, "tpd": 20}), lease.Commit(context.Background()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			s := newMemory(t)
			l := newLimiter(t, s, WithClock(c.now))
			putEntity(t, l, "key-1", "team")
			setSystem(t, l, PerDay("rpd", 100), PerDay("tpd", 100))
			limitsOfTeam := func(limits ...Limit) {
				if err := l.Limits.SetEntity(t.Context(), "team", "gpt-4", limits); err != nil {
					t.Fatal(err)
				}
			}
			limitsOfTeam(PerDay("rpd", 100))
			lease := acquire(t, l, ask(Amounts{"rpd": 20, "tpd": 20}))
			limitsOfTeam(PerDay("rpd", 100), PerDay("tpd", 100))
			acquire(t, l, Request{Entity: "team", Resource: "gpt-4", Consume: Amounts{"tpd": 50}})
			if err := settle(lease); err != nil {
				t.Fatal(err)
			}
			if tokens, consumed := left(t, l, "team", "tpd"); tokens != 50_000 || consumed != 50_000 {
				t.Errorf("the parent has %d and counts %d, want 50000 each", tokens, consumed)
			}
			if tokens, _ := left(t, l, "team", "rpd"); tokens != 100_000 {
				t.Errorf("the parent has %d of rpd, want 100000", tokens)
			}
		})
	}
}

// TestFullShardsKeepRefill takes half of a divided bucket from one shard, and waits: the refill that the other one cannot
// hold is not lost.
func TestFullShardsKeepRefill(t *testing.T) {
	c := newClock()
	l := newLimiter(t, Store{impl: partitioned{newMemory(t).impl}}, WithClock(c.now), WithFreshness(0))
	setSystem(t, l, PerSecond("rpm", 1000, Burst(10_000)))
	acquire(t, l, ask(Amounts{"rpm": 1}))
	divide(t, l)
	c.sleep(time.Minute)
	acquire(t, l, ask(Amounts{"rpm": 4900}))
	c.sleep(4 * time.Second)
	if got := available(t, l, "rpm"); got < 9099 || got > 9100 {
		t.Errorf("%d are available, want 9100", got)
	}
	reject(t, l, ask(Amounts{"rpm": 9101}))
	acquire(t, l, ask(Amounts{"rpm": 9098})) // each shard rounds down
	reject(t, l, ask(Amounts{"rpm": 3}))
}

// TestWaitsCountOtherProcesses empties a child that a process remembers as full: when the parent rejects, the wait is that
// of the child.
func TestWaitsCountOtherProcesses(t *testing.T) {
	c := newClock()
	s := newMemory(t)
	l := newLimiter(t, s, WithClock(c.now))
	other := newLimiter(t, s, WithClock(c.now))
	putEntity(t, l, "key-1", "team")
	limits := func(entity string, limit Limit) {
		if err := l.Limits.SetEntity(t.Context(), entity, "gpt-4", []Limit{limit}); err != nil {
			t.Fatal(err)
		}
	}
	limits("key-1", PerDay("rpd", 10))
	limits("team", PerMinute("rpd", 10))
	acquire(t, l, ask(Amounts{"rpd": 1}))
	c.sleep(time.Minute)
	acquire(t, other, ask(Amounts{"rpd": 8}))
	acquire(t, other, Request{Entity: "team", Resource: "gpt-4", Consume: Amounts{"rpd": 2}})
	c.sleep(time.Second)
	e := reject(t, l, ask(Amounts{"rpd": 5}))
	if e.RetryAfter() < 8*time.Hour {
		t.Errorf("RetryAfter() = %v, want the hours in which the child refills", e.RetryAfter())
	}
	c.sleep(e.RetryAfter())
	acquire(t, l, ask(Amounts{"rpd": 5}))
}

// TestParentLosesALimit takes a limit away from a parent while the process remembers it, and while a request is on its way.
func TestParentLosesALimit(t *testing.T) {
	c := newClock()
	s := newMemory(t)
	h := hook(s)
	l := newLimiter(t, Store{impl: h}, WithClock(c.now))
	other := newLimiter(t, s, WithClock(c.now))
	putEntity(t, l, "key-1", "team")
	setSystem(t, l, PerDay("rpd", 100), PerDay("tpd", 100))
	acquire(t, l, ask(Amounts{"rpd": 1, "tpd": 1}))
	for _, limits := range [][]Limit{{PerDay("rpd", 50)}, {PerDay("tpd", 50)}, {PerDay("x", 50)}} {
		c.sleep(2 * time.Second)
		if err := other.Limits.SetEntity(t.Context(), "team", "gpt-4", limits); err != nil {
			t.Fatal(err)
		}
		acquire(t, other, Request{Entity: "team", Resource: "gpt-4", Consume: Amounts{limits[0].Name: 1}})
		acquire(t, l, ask(Amounts{"rpd": 1, "tpd": 1}))
	}
	if err := other.Limits.DeleteEntity(t.Context(), "team", "gpt-4"); err != nil {
		t.Fatal(err)
	}
	c.sleep(2 * time.Second)
	acquire(t, l, ask(Amounts{"rpd": 1, "tpd": 1}))
	if got := available(t, l, "rpd"); got != 95 {
		t.Errorf("%d are left, want 95", got)
	}
}

// TestRejectionsSurviveOutages has the parent reject, and an outage keep the child from being given back: the request is
// rejected under every policy.
func TestRejectionsSurviveOutages(t *testing.T) {
	outage := &store.Error{Op: "UpdateItem", Unavailable: true, Err: errors.New("no route")}
	h := hook(newMemory(t))
	l := newLimiter(t, Store{impl: h}, WithClock(newClock().now), WithFailurePolicy(Allow))
	putEntity(t, l, "key-1", "team")
	setSystem(t, l, PerDay("rpd", 100))
	acquire(t, l, ask(Amounts{"rpd": 1}))
	other := newLimiter(t, Store{impl: h.Store}, WithClock(l.options.clock))
	acquire(t, other, Request{Entity: "team", Resource: "gpt-4", Consume: Amounts{"rpd": 90}})
	var calls atomic.Int64
	h.set(func(...store.Write) error {
		if calls.Add(1) > 2 { // the child is taken from, the parent falls short
			return outage
		}
		return nil
	})
	e := reject(t, l, ask(Amounts{"rpd": 20}))
	if v := e.Violations(); len(v) != 1 || v[0].Entity != "team" {
		t.Errorf("Violations() = %v, want the parent's", v)
	}
	if got := l.Stats(); got.Unreturned != 1 || got.Degraded != 0 {
		t.Errorf("Stats() = %+v, want one unreturned and none degraded", got)
	}
}

// TestThrottledReadsAdmitNothing throttles every call on an exhausted bucket: it rejects under every policy.
func TestThrottledReadsAdmitNothing(t *testing.T) {
	c := newClock()
	h := &throttledReads{hooked: hook(newMemory(t))}
	l := newLimiter(t, Store{impl: h}, WithClock(c.now), WithFailurePolicy(Allow))
	setSystem(t, l, PerDay("rpd", 10))
	acquire(t, l, ask(Amounts{"rpd": 10}))
	h.on.Store(true)
	for range 100 {
		c.sleep(time.Second) // beyond what a rejection from memory allows
		if _, err := l.Acquire(t.Context(), ask(Amounts{"rpd": 1})); !errors.As(err, new(*ExceededError)) {
			t.Fatalf("Acquire() = %v, want an ExceededError", err)
		}
	}
}

// A throttledReads is a store that is asked to read too often.
type throttledReads struct {
	*hooked
	on atomic.Bool
}

func (r *throttledReads) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	if r.on.Load() {
		return nil, &store.Error{Op: "BatchGetItem", Unavailable: true, Throttled: true, Err: errors.New("slow down")}
	}
	return r.hooked.Read(ctx, keys, consistent)
}

// TestOwnLimitsShareWrites has requests with limits of their own come at once: they share writes as stored limits do.
func TestOwnLimitsShareWrites(t *testing.T) {
	const callers = 41
	g := &gate{Store: newMemory(t).impl}
	l := newLimiter(t, Store{impl: g}, WithClock(newClock().now), WithCoalescing())
	setSystem(t, l, PerDay("other", 1))
	r := func() Request {
		r := ask(Amounts{"rpd": 1})
		r.Limits = []Limit{PerDay("rpd", 100)}
		return r
	}
	acquire(t, l, r())
	together(g, waitingFor(l, "key-1"), callers, func(int) { acquire(t, l, r()) }, nil)
	if got := g.writes.Load(); got != 1 {
		t.Errorf("%d writes for the requests that waited, want 1", got)
	}
}

// TestLongWaits asks for what takes longer than a duration can tell.
func TestLongWaits(t *testing.T) {
	l := newLimiter(t, newMemory(t), WithClock(newClock().now))
	r := ask(Amounts{"rpd": 1})
	r.Limits = []Limit{{Name: "rpd", Capacity: maxTokens, RefillAmount: 1, RefillPeriod: 240 * time.Hour}}
	r.Consume = Amounts{"rpd": maxTokens}
	acquire(t, l, r)
	e := reject(t, l, r)
	if !e.Possible() || e.RetryAfter() < 200*365*24*time.Hour {
		t.Errorf("RetryAfter() = %v, possible %v, want the longest duration", e.RetryAfter(), e.Possible())
	}
}

// TestGreatDebts goes into debt beyond 64 bits: the bucket stays readable, and rejects.
func TestGreatDebts(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		l := newLimiter(t, s, WithClock(newClock().now))
		setSystem(t, l, PerDay("rpd", 10))
		for range 3 {
			lease := acquire(t, l, ask(Amounts{"rpd": 0}))
			if err := errors.Join(lease.Adjust(Amounts{"rpd": maxTokens}), lease.Commit(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		fresh := newLimiter(t, s, WithClock(l.options.clock))
		if e := reject(t, fresh, ask(Amounts{"rpd": 1})); e.Statuses[0].Available > -maxTokens/2 {
			t.Errorf("Available = %d, want a great debt", e.Statuses[0].Available)
		}
	})
}

// TestForgottenNamesLeaveTheItem names another limit with each request: those that are full leave the item.
func TestForgottenNamesLeaveTheItem(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		c := newClock()
		l := newLimiter(t, s, WithClock(c.now), WithConfigTTL(time.Hour))
		for i := range 120 {
			r := ask(Amounts{fmt.Sprintf("limit-of-a-long-and-telling-name-%d", i): 1})
			r.Limits = []Limit{PerSecond(r.Consume.AppendAmounts(nil)[0].Limit, 10)}
			acquire(t, l, r)
			c.sleep(2 * time.Second)
		}
		if got := len(shardsOf(t, l)[0].Limits); got > 12 {
			t.Errorf("the item has %d limits, want a few", got)
		}
	})
}

// TestGatherKeepsLaterLimits takes from several shards by limits that another process has changed: the change stays.
func TestGatherKeepsLaterLimits(t *testing.T) {
	c := newClock()
	s := Store{impl: partitioned{newMemory(t).impl}}
	l := newLimiter(t, s, WithClock(c.now))
	other := newLimiter(t, s, WithClock(c.now))
	setSystem(t, l, PerDay("rpd", 100))
	acquire(t, l, ask(Amounts{"rpd": 1}))
	divide(t, l)
	available(t, l, "rpd")
	c.sleep(time.Second / 2)
	setSystem(t, other, PerDay("rpd", 200))
	acquire(t, other, ask(Amounts{"rpd": 80})) // of both shards
	acquire(t, other, ask(Amounts{"rpd": 1}))
	acquire(t, l, ask(Amounts{"rpd": 10}))
	if _, err := l.Acquire(t.Context(), ask(Amounts{"rpd": 15})); err != nil && !errors.As(err, new(*ExceededError)) {
		t.Fatal(err)
	}
	if _, _, capacity := total(shardsOf(t, l), "rpd"); capacity != 200_000 {
		t.Errorf("the shards have a capacity of %d, want the 200000 of the later limits", capacity)
	}
}

// TestLaggingReadsKeepLaterLimits has eventual reads of limits lag behind: a process whose item was changed already by
// another does not undo the change.
func TestLaggingReadsKeepLaterLimits(t *testing.T) {
	c := newClock()
	lag := &lagged{Store: newMemory(t).impl, items: map[store.Key]expr.Item{}}
	l := newLimiter(t, Store{impl: lag}, WithClock(c.now))
	other := newLimiter(t, Store{impl: lag.Store}, WithClock(c.now))
	setSystem(t, other, PerDay("rpd", 100))
	acquire(t, l, ask(Amounts{"rpd": 1}))
	lag.freeze()
	setSystem(t, other, PerDay("rpd", 200))
	acquire(t, other, ask(Amounts{"rpd": 1}))
	c.sleep(59 * time.Second)
	acquire(t, l, ask(Amounts{"rpd": 1}))
	if got := limit(t, other, "rpd").Capacity; got != 200_000 {
		t.Errorf("the bucket has a capacity of %d, want 200000", got)
	}
}

// A lagged store answers eventual reads, once it is frozen, by what the reads before found.
type lagged struct {
	store.Store
	mu     sync.Mutex
	frozen bool
	items  map[store.Key]expr.Item
}

func (s *lagged) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = true
}

func (s *lagged) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items, err := s.Store.Read(ctx, keys, consistent)
	for i, key := range keys {
		if old, ok := s.items[key]; ok && s.frozen && !consistent {
			items[i] = old
		} else if err == nil && !s.frozen {
			s.items[key] = items[i]
		}
	}
	return items, err
}

// TestClockAheadStopsNobody lets a process whose clock is a day ahead write a bucket: the others set the stamp back, and go
// on as if nothing had happened but for at most one capacity.
func TestClockAheadStopsNobody(t *testing.T) {
	c := newClock()
	s := newMemory(t)
	l := newLimiter(t, s, WithClock(c.now))
	setSystem(t, l, PerMinute("rpm", 60))
	acquire(t, l, ask(Amounts{"rpm": 60}))
	ahead := newLimiter(t, s, WithClock(func() time.Time { return c.now().Add(24 * time.Hour) }))
	acquire(t, ahead, ask(Amounts{"rpm": 60}))
	c.sleep(time.Second)
	if wait := reject(t, l, ask(Amounts{"rpm": 2})).RetryAfter(); wait > 2*time.Second {
		t.Errorf("RetryAfter() = %v, want at most two seconds", wait)
	}
	c.sleep(2 * time.Second)
	acquire(t, l, ask(Amounts{"rpm": 2}))
	if got := l.Stats().StampsFixed; got != 1 {
		t.Errorf("%d stamps were set back, want 1", got)
	}
}

// TestSecondAcquireOfNewBucketsReadsNothing creates a child and a parent, and takes from them again.
func TestSecondAcquireOfNewBucketsReadsNothing(t *testing.T) {
	h := hook(newMemory(t))
	l := newLimiter(t, Store{impl: h}, WithClock(newClock().now))
	putEntity(t, l, "key-1", "team")
	setSystem(t, l, PerDay("rpd", 100))
	acquire(t, l, ask(Amounts{"rpd": 1}))
	reads := h.reads.Load()
	acquire(t, l, ask(Amounts{"rpd": 1}))
	if got := h.reads.Load() - reads; got != 0 {
		t.Errorf("%d reads, want none", got)
	}
}

// TestRejectionsFromMemory rejects again and again: within the time of WithRejectionCache it costs no call, the wait is
// right, and what this process returns or changes counts at once.
func TestRejectionsFromMemory(t *testing.T) {
	c := newClock()
	h := hook(newMemory(t))
	l := newLimiter(t, Store{impl: h}, WithClock(c.now), WithFreshness(0))
	setSystem(t, l, PerSecond("rps", 10))
	lease := acquire(t, l, ask(Amounts{"rps": 10}))
	calls := func() int64 { return h.reads.Load() + h.writes.Load() }
	before := calls()
	for range 20 {
		e := reject(t, l, ask(Amounts{"rps": 9}))
		if until := 900*time.Millisecond - c.now().Sub(newClock().now()); e.RetryAfter() != until {
			t.Errorf("RetryAfter() = %v, want %v", e.RetryAfter(), until)
		}
		c.sleep(10 * time.Millisecond)
	}
	if got := calls() - before; got != 0 {
		t.Errorf("20 rejections made %d calls, want none", got)
	}
	if err := lease.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	acquire(t, l, ask(Amounts{"rps": 9}))
	reject(t, l, ask(Amounts{"rps": 9}))
	setSystem(t, l, PerSecond("rps", 10, Burst(1000)))
	if e := reject(t, l, ask(Amounts{"rps": 500})); !e.Possible() {
		t.Errorf("rejected by %v, want the limits as they are now", e.Statuses)
	}
	off := newLimiter(t, Store{impl: h}, WithClock(c.now), WithRejectionCache(0))
	reject(t, off, ask(Amounts{"rps": 500}))
	before = calls()
	reject(t, off, ask(Amounts{"rps": 500}))
	if calls() == before {
		t.Error("a rejection without the cache asked nobody")
	}
}

// TestDividedBucketIsDeleted has another process delete a divided bucket whose shards are to be made even.
func TestDividedBucketIsDeleted(t *testing.T) {
	c := newClock()
	s := Store{impl: partitioned{newMemory(t).impl}}
	l := newLimiter(t, s, WithClock(c.now))
	other := newLimiter(t, s, WithClock(c.now))
	putEntity(t, l, "key-1", "")
	setSystem(t, l, PerSecond("rpm", 1000, Burst(10_000)), PerDay("rpd", 10))
	acquire(t, l, ask(Amounts{"rpm": 1}))
	divide(t, l)
	c.sleep(time.Minute)
	available(t, l, "rpm") // both shards are known to be full
	if err := other.Entities.Delete(t.Context(), "key-1"); err != nil {
		t.Fatal(err)
	}
	acquire(t, l, ask(Amounts{"rpm": 4900}))
	if got := available(t, l, "rpm"); got != 5100 {
		t.Errorf("%d are available, want 5100", got)
	}
}

// TestCorrectionsOfDividedBuckets gives back of one limit what its shard has no room for, together with a debt of another.
func TestCorrectionsOfDividedBuckets(t *testing.T) {
	c := newClock()
	l := newLimiter(t, Store{impl: partitioned{newMemory(t).impl}}, WithClock(c.now))
	setSystem(t, l, PerDay("rpd", 100), PerDay("tpd", 100))
	lease := acquire(t, l, ask(Amounts{"rpd": 1, "tpd": 80}))
	divide(t, l) // 10 of tpd for each
	if err := errors.Join(lease.Adjust(Amounts{"rpd": 150, "tpd": -80}), lease.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	if rpd, tpd := available(t, l, "rpd"), available(t, l, "tpd"); rpd != -51 || tpd != 100 {
		t.Errorf("%d of rpd and %d of tpd are available, want -51 and 100", rpd, tpd)
	}
}

// TestUnknownSettlementsAreWrittenOnce loses the reply of a commit for one level, and throttles that for the other: the
// next commit writes the second alone.
func TestUnknownSettlementsAreWrittenOnce(t *testing.T) {
	for op, settle := range map[string]func(*Lease) error{
		"commit":    func(lease *Lease) error { return lease.Commit(context.Background()) },
		"roll back": func(lease *Lease) error { return lease.Rollback(context.Background()) },
	} {
		h := hook(newMemory(t))
		l := newLimiter(t, Store{impl: h}, WithClock(newClock().now))
		putEntity(t, l, "key-1", "team")
		setSystem(t, l, PerDay("rpd", 100))
		lease := acquire(t, l, ask(Amounts{"rpd": 10}))
		if err := lease.Adjust(Amounts{"rpd": 5}); err != nil {
			t.Fatal(err)
		}
		var calls atomic.Int64
		h.set(func(...store.Write) error {
			return &store.Error{Op: "UpdateItem", Unavailable: true, Unknown: calls.Add(1) == 1, Err: errors.New("no reply")}
		})
		var outage *UnavailableError
		if err := settle(lease); !errors.As(err, &outage) || !outage.Unknown {
			t.Fatalf("%s = %v, want an unknown outcome", op, err)
		}
		h.set(times(0, nil))
		writes := h.writes.Load()
		if err := settle(lease); err != nil {
			t.Fatalf("%s again = %v", op, err)
		}
		if n := h.writes.Load() - writes; n != 1 {
			t.Errorf("%s again makes %d writes, want 1", op, n)
		}
		if err := settle(lease); !errors.Is(err, ErrLeaseClosed) {
			t.Errorf("%s of a closed lease = %v", op, err)
		}
	}
}

// A behind store has not heard of any item yet when it is not asked for consistency.
type behind struct{ store.Store }

func (b behind) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	if !consistent {
		return make([]expr.Item, len(keys)), nil
	}
	return b.Store.Read(ctx, keys, consistent)
}

// TestLimitsThatWereJustStored asks for tokens before eventual reads show any limits: that there are none is only told
// when it is so.
func TestLimitsThatWereJustStored(t *testing.T) {
	s := newMemory(t)
	h := hook(Store{impl: behind{s.impl}})
	l := newLimiter(t, Store{impl: h}, WithClock(newClock().now))
	for _, reads := range []int64{2, 0} {
		before := h.reads.Load()
		if _, err := l.Acquire(t.Context(), ask(Amounts{"rpm": 1})); !errors.Is(err, ErrNoLimits) {
			t.Errorf("Acquire() = %v, want ErrNoLimits", err)
		}
		if got := h.reads.Load() - before; got != reads {
			t.Errorf("%d reads tell it, want %d", got, reads)
		}
	}
	setSystem(t, newLimiter(t, s, WithClock(newClock().now)), PerDay("rpm", 10))
	acquire(t, newLimiter(t, Store{impl: behind{s.impl}}, WithClock(newClock().now)), ask(Amounts{"rpm": 1}))
}

// TestTimeUntilBringsInLine changes limits, and asks for the wait alone: it is the wait that there is.
func TestTimeUntilBringsInLine(t *testing.T) {
	c := newClock()
	l := newLimiter(t, newMemory(t), WithClock(c.now), WithFreshness(0))
	setSystem(t, l, PerMinute("rpm", 60))
	acquire(t, l, ask(Amounts{"rpm": 60}))
	setSystem(t, l, PerSecond("rpm", 60))
	c.sleep(100 * time.Millisecond)
	told, err := l.TimeUntil(t.Context(), ask(Amounts{"rpm": 60}))
	if err != nil || told <= 0 {
		t.Fatalf("TimeUntil() = %v, %v, want a wait", told, err)
	}
	c.sleep(told)
	acquire(t, l, ask(Amounts{"rpm": 60}))
}

// TestOwnersThatChanged gives an entity a parent, which a process learns as it finds the item with other limits: the
// parent is charged at once.
func TestOwnersThatChanged(t *testing.T) {
	c := newClock()
	s := newMemory(t)
	l, other := newLimiter(t, s, WithClock(c.now)), newLimiter(t, s, WithClock(c.now))
	putEntity(t, other, "key-1", "")
	setSystem(t, l, PerDay("rpd", 100))
	acquire(t, l, ask(Amounts{"rpd": 1}))
	if err := other.Entities.Delete(t.Context(), "key-1"); err != nil {
		t.Fatal(err)
	}
	putEntity(t, other, "key-1", "team")
	c.sleep(2 * time.Second)
	r := ask(Amounts{"rpd": 2})
	r.Limits = []Limit{PerDay("rpd", 200)}
	acquire(t, newLimiter(t, s, WithClock(c.now)), r)
	acquire(t, l, ask(Amounts{"rpd": 5}))
	if _, consumed := left(t, l, "team", "rpd"); consumed != 7_000 {
		t.Errorf("the parent counts %d, want 7000", consumed)
	}
}
