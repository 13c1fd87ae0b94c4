package zlimit_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestWaitsCountOtherProcesses empties a child that a process remembers as full: when the parent rejects, the wait is that
// of the child.
func TestWaitsCountOtherProcesses(t *testing.T) {
	c := newClock()
	s := newMemory(t)
	l := newLimiter(t, s, zlimit.WithClock(c.now))
	other := newLimiter(t, s, zlimit.WithClock(c.now))
	putEntity(t, l, "key-1", "team")
	limits := func(entity string, limit zlimit.Limit) {
		setLimits(t, l, zlimit.Level{Entity: entity, Resource: "gpt-4"}, limit)
	}
	limits("key-1", zlimit.PerDay("rpd", 10))
	limits("team", zlimit.PerMinute("rpd", 10))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
	c.sleep(time.Minute)
	acquire(t, other, ask(zlimit.Amounts{"rpd": 8}))
	acquire(t, other, zlimit.Request{Entity: "team", Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": 2}})
	c.sleep(time.Second)
	e := reject(t, l, ask(zlimit.Amounts{"rpd": 5}))
	if e.RetryAfter() < 8*time.Hour {
		t.Errorf("RetryAfter() = %v, want the hours in which the child refills", e.RetryAfter())
	}
	c.sleep(e.RetryAfter())
	acquire(t, l, ask(zlimit.Amounts{"rpd": 5}))
}

// In TestRejectionsNameALimit, time goes on with every look at the clock, so that a token flows in between any two steps of a
// request. A request that is rejected nevertheless names a limit that falls short, and a time to wait for.
func TestRejectionsNameALimit(t *testing.T) {
	for _, cached := range []time.Duration{0, 250 * time.Millisecond} {
		c := newClock()
		clock := func() time.Time {
			c.sleep(time.Millisecond)
			return c.now()
		}
		l := newLimiter(t, newMemory(t), zlimit.WithClock(clock), zlimit.WithFreshness(0), zlimit.WithRejectionCache(cached))
		setSystem(t, l, zlimit.PerSecond("rps", 20))
		admitted, rejected := 0, 0
		for range 500 {
			_, err := l.Acquire(t.Context(), ask(zlimit.Amounts{"rps": 1}))
			if err == nil {
				admitted++
				continue
			}
			var e *zlimit.ExceededError
			if !errors.As(err, &e) {
				t.Fatalf("Acquire() = %v, want an ExceededError", err)
			}
			rejected++
			if len(e.Violations()) == 0 || e.RetryAfter() <= 0 {
				t.Fatalf("rejection cache %v: %v with %+v, want a limit that falls short", cached, e, e.Statuses)
			}
		}
		if admitted < 21 || rejected == 0 {
			t.Errorf("rejection cache %v: admitted %d, rejected %d, want some after the first 20", cached, admitted, rejected)
		}
	}
}

// In TestRejectionsSurviveOutages, the parent rejects, and an outage prevents the refund to the child. The request is rejected
// under every policy.
func TestRejectionsSurviveOutages(t *testing.T) {
	outage := &store.Error{Op: "UpdateItem", Unavailable: true, Err: errors.New("no route")}
	h := hook(newMemory(t))
	l := newLimiter(t, zlimit.StoreOn(h), zlimit.WithClock(newClock().now), zlimit.WithFailurePolicy(zlimit.PolicyAllow))
	putEntity(t, l, "key-1", "team")
	setSystem(t, l, zlimit.PerDay("rpd", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
	other := newLimiter(t, zlimit.StoreOn(h.Store), zlimit.WithClock(l.Clock()))
	acquire(t, other, zlimit.Request{Entity: "team", Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": 90}})
	var calls atomic.Int64
	h.set(func(...store.Write) error {
		if calls.Add(1) > 2 { // the child is taken from, the parent falls short
			return outage
		}
		return nil
	})
	e := reject(t, l, ask(zlimit.Amounts{"rpd": 20}))
	if v := e.Violations(); len(v) != 1 || v[0].Entity != "team" {
		t.Errorf("Violations() = %v, want the parent's", v)
	}
	if err := l.Close(); err != nil { // until then the tokens may still be given back
		t.Fatalf("Close() = %v", err)
	}
	if got := l.Stats(); got.Unreturned != 1 || got.Degraded != 0 {
		t.Errorf("Stats() = %+v, want one unreturned and none degraded", got)
	}
}

// TestThrottledReadsAdmitNothing throttles every call on an exhausted bucket: it rejects under every policy.
func TestThrottledReadsAdmitNothing(t *testing.T) {
	c := newClock()
	h := &throttledReads{hooked: hook(newMemory(t))}
	l := newLimiter(t, zlimit.StoreOn(h), zlimit.WithClock(c.now), zlimit.WithFailurePolicy(zlimit.PolicyAllow))
	setSystem(t, l, zlimit.PerDay("rpd", 10))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 10}))
	h.on.Store(true)
	for range 100 {
		c.sleep(time.Second) // beyond what a rejection from memory allows
		if _, err := l.Acquire(t.Context(), ask(zlimit.Amounts{"rpd": 1})); !errors.As(err, new(*zlimit.ExceededError)) {
			t.Fatalf("Acquire() = %v, want an ExceededError", err)
		}
	}
}

// whileThrottled throttles all calls of a store for a time.
func (r *throttledReads) whileThrottled(d time.Duration) {
	r.set(times(1<<30, errThrottled))
	r.on.Store(true)
	time.AfterFunc(d, func() {
		r.on.Store(false)
		r.set(times(0, nil))
	})
}

// TestThrottledRequestsWaitForTheirProof throttles a process whose exhausted bucket others drain. What flowed in since it
// looked last is theirs, which it cannot know. It looks until the store answers, and rejects under every policy. When
// something is given back, it admits.
func TestThrottledRequestsWaitForTheirProof(t *testing.T) {
	for name, cold := range map[string]bool{"known": false, "never seen": true} {
		for _, cache := range []time.Duration{0, 250 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				items := newMemory(t)
				r := &throttledReads{hooked: hook(items), buckets: true}
				l := newLimiter(t, zlimit.StoreOn(r), zlimit.WithFailurePolicy(zlimit.PolicyAllow), zlimit.WithRejectionCache(cache))
				setSystem(t, l, zlimit.PerMinute("rpm", 60))
				other := newLimiter(t, items)
				lease := acquire(t, other, ask(zlimit.Amounts{"rpm": 59}))
				if !cold {
					acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
					reject(t, l, ask(zlimit.Amounts{"rpm": 1}))
				} else {
					acquire(t, other, ask(zlimit.Amounts{"rpm": 1}))
					acquire(t, l, zlimit.Request{Entity: "another", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
				}
				time.Sleep(2 * time.Second)
				acquire(t, other, ask(zlimit.Amounts{"rpm": 2}))
				r.whileThrottled(300 * time.Millisecond)
				var all sync.WaitGroup
				for range 10 {
					all.Go(func() {
						if e := reject(t, l, ask(zlimit.Amounts{"rpm": 1})); len(e.Violations()) != 1 || e.RetryAfter() <= 0 || e.RetryAfter() > time.Second {
							t.Errorf("%s: rejected by %v, retry after %v", name, e.Violations(), e.RetryAfter())
						}
					})
				}
				all.Wait()
				check.Fatal(t, "Rollback()", lease.Rollback(t.Context()))
				time.Sleep(time.Minute)
				acquire(t, l, ask(zlimit.Amounts{"rpm": 30}))
			})
		}
	}
}

// TestThrottledBucketsWithRoom throttles writes of a bucket that has room: the failure policy decides.
func TestThrottledBucketsWithRoom(t *testing.T) {
	for _, limit := range []int64{600, 600_000} {
		c := newClock()
		h := hook(newMemory(t))
		l := newLimiter(t, zlimit.StoreOn(h), zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerMinute("rpm", limit))
		acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
		h.set(times(1<<30, errThrottled))
		for range 20 {
			c.sleep(100 * time.Millisecond)
			for amount, policy := range map[int64]zlimit.FailurePolicy{1: zlimit.PolicyAllow, 500: zlimit.PolicyBlock} {
				r := ask(zlimit.Amounts{"rpm": amount})
				r.OnUnavailable = policy
				lease, err := l.Acquire(t.Context(), r)
				admitted := err == nil && lease.Degraded()
				if admitted != (policy == zlimit.PolicyAllow) || err != nil && !errors.As(err, new(*zlimit.UnavailableError)) {
					t.Fatalf("Acquire() = %v, %v under %v", lease, err, policy)
				}
			}
		}
	}
}

// In TestRejectionsShareALook, many goroutines of a process ask at the same time for a bucket that others have exhausted. They
// share the read that proves it.
func TestRejectionsShareALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowReads{hooked: hook(newMemory(t)), meanwhile: func() { time.Sleep(5 * time.Millisecond) }}
		l := newLimiter(t, zlimit.StoreOn(slow), zlimit.WithRejectionCache(0), zlimit.WithoutCoalescing())
		setSystem(t, l, zlimit.PerDay("rpd", 10))
		acquire(t, l, ask(zlimit.Amounts{"rpd": 10}))
		before := slow.reads.Load()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { reject(t, l, ask(zlimit.Amounts{"rpd": 1})) })
		}
		all.Wait()
		if reads := slow.reads.Load() - before; reads > 3 {
			t.Errorf("100 rejections at once read %d times", reads)
		}
	})
}

// TestRejectionsFromMemory rejects again and again. Within the time of WithRejectionCache it costs no call, the wait is
// right, and what this process returns or changes counts at once.
func TestRejectionsFromMemory(t *testing.T) {
	c := newClock()
	h := hook(newMemory(t))
	l := newLimiter(t, zlimit.StoreOn(h), zlimit.WithClock(c.now), zlimit.WithFreshness(0))
	setSystem(t, l, zlimit.PerSecond("rps", 10))
	lease := acquire(t, l, ask(zlimit.Amounts{"rps": 10}))
	calls := func() int64 { return h.reads.Load() + h.writes.Load() }
	before := calls()
	for range 20 {
		e := reject(t, l, ask(zlimit.Amounts{"rps": 9}))
		if until := 900*time.Millisecond - c.now().Sub(newClock().now()); e.RetryAfter() != until {
			t.Errorf("RetryAfter() = %v, want %v", e.RetryAfter(), until)
		}
		c.sleep(10 * time.Millisecond)
	}
	if got := calls() - before; got != 0 {
		t.Errorf("20 rejections made %d calls, want none", got)
	}
	check.Fatal(t, "Rollback()", lease.Rollback(t.Context()))
	acquire(t, l, ask(zlimit.Amounts{"rps": 9}))
	reject(t, l, ask(zlimit.Amounts{"rps": 9}))
	setSystem(t, l, zlimit.PerSecond("rps", 10, zlimit.Burst(1000)))
	if e := reject(t, l, ask(zlimit.Amounts{"rps": 500})); !e.Possible() {
		t.Errorf("rejected by %v, want the limits as they are now", e.Statuses)
	}
	off := newLimiter(t, zlimit.StoreOn(h), zlimit.WithClock(c.now), zlimit.WithRejectionCache(0))
	reject(t, off, ask(zlimit.Amounts{"rps": 500}))
	before = calls()
	reject(t, off, ask(zlimit.Amounts{"rps": 500}))
	if calls() == before {
		t.Error("a rejection without the cache asked nobody")
	}
}

// TestReturnsOfForgottenBuckets gives a lease back whose bucket the limiter has forgotten meanwhile, and seen again. What
// came back counts in the next rejection, though that one is from memory.
func TestReturnsOfForgottenBuckets(t *testing.T) {
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now), zlimit.WithTuning(zlimit.Tuning{CacheSize: 1}), zlimit.WithRejectionCache(time.Hour))
	setSystem(t, l, zlimit.PerDay("rpd", 100))
	lease := acquire(t, l, ask(zlimit.Amounts{"rpd": 40}))
	for i := range 100 { // which do not all fit
		acquire(t, l, zlimit.Request{Entity: fmt.Sprint("other-", i), Resource: "gpt-4", Consume: zlimit.Amounts{"rpd": 1}})
	}
	acquire(t, l, ask(zlimit.Amounts{"rpd": 60}))
	reject(t, l, ask(zlimit.Amounts{"rpd": 30}))
	check.Fatal(t, "Rollback()", lease.Rollback(t.Context()))
	if s, _ := reject(t, l, ask(zlimit.Amounts{"rpd": 41})).Statuses.Limit("rpd"); s.Available != 40 {
		t.Errorf("%d are left by the rejection, want the 40 that came back", s.Available)
	}
	acquire(t, l, ask(zlimit.Amounts{"rpd": 40}))
}

// TestLeasesOfForgottenBuckets lets a lease consume more of a bucket that the limiter has forgotten meanwhile. The two parts are
// of one bucket, which is corrected once.
func TestLeasesOfForgottenBuckets(t *testing.T) {
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now), zlimit.WithTuning(zlimit.Tuning{CacheSize: 1}))
	setSystem(t, l, zlimit.PerDay("rpd", 100))
	for name, correction := range map[string]int64{"down": -50, "up": 10} {
		request := zlimit.Request{Entity: "key-1", Resource: name, Consume: zlimit.Amounts{"rpd": 40}}
		lease := acquire(t, l, request)
		for i := range 100 { // which do not all fit
			acquire(t, l, zlimit.Request{Entity: fmt.Sprint("other-", i), Resource: name, Consume: zlimit.Amounts{"rpd": 1}})
		}
		check.Fatal(t, "Consume()", lease.Consume(t.Context(), zlimit.Amounts{"rpd": 30}))
		if n := len(lease.Statuses()); n != 1 {
			t.Errorf("%s: Statuses() has %d, want one of the one limit", name, n)
		}
		check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rpd": correction}), lease.Commit(t.Context())))
		statuses := check.Call(l.Available(t.Context(), zlimit.AvailableQuery{Entity: "key-1", Resource: name})).Must(t, "Available()")
		if s, _ := statuses.Limit("rpd"); s.Available != 30-correction {
			t.Errorf("%s: %d are left, want %d", name, s.Available, 30-correction)
		}
	}
}

// TestDeletedBucketsRejectNothing empties the bucket of an entity, and deletes the entity. Requests find a full bucket then, and
// are rejected by nothing that is remembered.
func TestDeletedBucketsRejectNothing(t *testing.T) {
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now), zlimit.WithRejectionCache(time.Hour))
	setSystem(t, l, zlimit.PerDay("rpd", 10))
	putEntity(t, l, "key-1", "")
	acquire(t, l, ask(zlimit.Amounts{"rpd": 10}))
	reject(t, l, ask(zlimit.Amounts{"rpd": 1}))
	check.Fatal(t, "Entities.Delete()", l.Entities.Delete(t.Context(), "key-1"))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 10}))
}

// In TestSlowReadsAreOld, a read takes longer than a rejection from memory may be old. What another process gave back while its
// reply was under way counts for the next request.
func TestSlowReadsAreOld(t *testing.T) {
	c := newClock()
	slow := &slowReads{hooked: hook(newMemory(t))}
	l := newLimiter(t, zlimit.StoreOn(slow), zlimit.WithClock(c.now))
	other := newLimiter(t, zlimit.StoreOn(slow.hooked), zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerDay("rpd", 10))
	lease := acquire(t, other, ask(zlimit.Amounts{"rpd": 5}))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 5}))
	c.sleep(time.Second)
	slow.meanwhile = func() {
		slow.meanwhile = nil
		check.Error(t, "Rollback()", lease.Rollback(t.Context()))
		c.sleep(l.RejectionCache())
	}
	reject(t, l, ask(zlimit.Amounts{"rpd": 1}))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
}

// TestLaggingReadsRejectNothing lets eventual reads show an empty bucket that others have filled again. A process that
// meets it for the first time does not reject by that.
func TestLaggingReadsRejectNothing(t *testing.T) {
	c := newClock()
	lag := &lagged{Store: store.Of(newMemory(t)), items: map[store.Key]expr.Item{}}
	first := newLimiter(t, zlimit.StoreOn(lag), zlimit.WithClock(c.now))
	setSystem(t, first, zlimit.PerDay("rpd", 10))
	lease := acquire(t, first, ask(zlimit.Amounts{"rpd": 10}))
	reject(t, newLimiter(t, zlimit.StoreOn(lag), zlimit.WithClock(c.now)), ask(zlimit.Amounts{"rpd": 1}))
	lag.freeze()
	check.Fatal(t, "Rollback()", lease.Rollback(t.Context()))
	acquire(t, newLimiter(t, zlimit.StoreOn(lag), zlimit.WithClock(c.now)), ask(zlimit.Amounts{"rpd": 1}))
}

// TestOutagesKeepRejections changes the limits of an empty bucket, and lets every write fail. By the limits as they are
// now the request is rejected, under every policy.
func TestOutagesKeepRejections(t *testing.T) {
	outage := &store.Error{Op: "UpdateItem", Unavailable: true, Err: errors.New("no route")}
	for _, opts := range [][]zlimit.Option{nil, {zlimit.WithCoalescing()}} {
		h := hook(newMemory(t))
		l := newLimiter(t, zlimit.StoreOn(h), append(opts, zlimit.WithClock(newClock().now), zlimit.WithFailurePolicy(zlimit.PolicyAllow))...)
		setSystem(t, l, zlimit.PerDay("rpd", 10))
		acquire(t, l, ask(zlimit.Amounts{"rpd": 10}))
		setSystem(t, l, zlimit.PerDay("rpd", 20))
		h.set(times(1000, outage))
		if e := reject(t, l, ask(zlimit.Amounts{"rpd": 1})); e.Statuses[0].Limit.Capacity != 20 {
			t.Errorf("rejected by %v, want the limits as they are now", e.Statuses)
		}
	}
}
