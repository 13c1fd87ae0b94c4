package zlimit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestStaleLimits swallows the reads of limits for 30 s, and serves writes. Requests are counted by the last limits, and except for the
// first of each bucket they do not wait. When the reads are back, so are the limits that were changed meanwhile.
func TestStaleLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faulttest.Log{}
		items := newMemory(t)
		d := &distant{Store: store.Of(items)}
		var mu sync.Mutex
		stale := map[string]int{}
		l := newLimiter(t, zlimit.StoreOn(d), zlimit.WithConfigTTL(5*time.Second), zlimit.WithLogger(log.Logger()),
			zlimit.WithObserver(func(_ context.Context, e zlimit.Event) {
				if e.Kind == zlimit.EventConfig && e.Operation == "stale limits" {
					mu.Lock()
					defer mu.Unlock()
					if stale[e.Entity]++; e.Duration < 5*time.Second || e.Result != zlimit.ResultUnavailable {
						t.Errorf("an event of stale limits is %+v", e)
					}
				}
			}))
		other := newLimiter(t, items)
		setSystem(t, other, zlimit.PerDay("rpd", 1_000_000))
		names := []string{"team", "child"}
		create(t, other, zlimit.Entity{ID: "team"})
		create(t, other, zlimit.Entity{ID: "child", ParentID: "team", Cascade: true})
		r := zlimit.Request{Entity: "child", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
		acquire(t, l, r)
		fault := func(ctx context.Context, pk string, write bool) error {
			if !write && strings.Contains(pk, "/ENTITY#") {
				return unanswered(ctx, pk, write)
			}
			return nil
		}
		d.fault.Store(&fault)
		before := d.calls.Load()
		time.Sleep(5 * time.Second)
		var waited time.Duration
		for i := range 1000 {
			began := time.Now()
			if acquire(t, l, r).Degraded() {
				t.Fatal("a request is not counted")
			}
			if took := time.Since(began) - 5*time.Millisecond; i > 0 && took > 0 {
				waited += took
			}
			time.Sleep(25 * time.Millisecond)
		}
		if waited > 0 {
			t.Errorf("requests wait %v for limits", waited)
		}
		if reads := d.calls.Load() - before - 2*1000; reads > 2*35 {
			t.Errorf("%d reads of limits in 30 s", reads)
		}
		if stats := l.Stats(); stats.Config.Stale < 2000 || stats.Config.StaleSeconds < 30 || stats.Outages > 0 {
			t.Errorf("Stats() = %+v", stats)
		}
		for _, name := range names {
			if stale[name] != 1 {
				t.Errorf("%d events of %s, want 1", stale[name], name)
			}
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 {
			t.Errorf("%d lines:\n%s", lines, log)
		}
		setSystem(t, other, zlimit.PerDay("rpd", 500))
		d.fault.Store(nil)
		for range 2 {
			time.Sleep(2 * time.Second)
			acquire(t, l, r)
		}
		time.Sleep(time.Second)
		if got := acquire(t, l, r).Statuses()[0].Limit.Capacity; got != 500 {
			t.Errorf("the limit is %d when limits are read again, want 500", got)
		}
	})
}

// In TestLateReadsOfLevels, the reads of limits of an entity and of its parent take longer than a request has. What they return serves
// the next requests, which neither wait nor read again.
func TestLateReadsOfLevels(t *testing.T) {
	const slow, ttl = 400 * time.Millisecond, 20 * time.Second
	for name, opts := range map[string][]zlimit.Option{
		"allow": {zlimit.WithFailurePolicy(zlimit.PolicyAllow)},
		"block": {zlimit.WithDecisionTimeout(300 * time.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				items := newMemory(t)
				d := &distant{Store: store.Of(items)}
				l, other := newLimiter(t, zlimit.StoreOn(d), append(opts, zlimit.WithConfigTTL(ttl))...), newLimiter(t, items)
				setSystem(t, other, zlimit.PerDay("rpd", 1_000_000))
				for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "child", ParentID: "team", Cascade: true}} {
					create(t, other, e)
				}
				var reads atomic.Int64
				fault := func(_ context.Context, pk string, write bool) error {
					if !write && strings.Contains(pk, "/ENTITY#") {
						reads.Add(1)
						time.Sleep(slow)
					}
					return nil
				}
				r := zlimit.Request{Entity: "child", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
				// serves makes the requests after those that had to wait.
				serves := func(when string, least int64) {
					t.Helper()
					time.Sleep(3 * slow) // for the last one that was begun
					before := reads.Load()
					if before < least {
						t.Errorf("%s: %d reads of limits, want %d at least", when, before, least)
					}
					for range 20 {
						began := time.Now()
						if acquire(t, l, r).Degraded() {
							t.Errorf("%s: a request is not counted", when)
						}
						if took := time.Since(began); took > 4*5*time.Millisecond {
							t.Errorf("%s: a request takes %v", when, took)
						}
						time.Sleep(ttl / 40)
					}
					if again := reads.Load() - before; again > 0 {
						t.Errorf("%s: limits are read %d times again", when, again)
					}
					reads.Store(0)
				}
				d.fault.Store(&fault)
				for i := range 2 { // under Block the second one reads the levels of the parent
					lease, err := l.Acquire(t.Context(), r)
					if degraded := err == nil && lease.Degraded(); i == 0 && !degraded && !errors.As(err, new(*zlimit.UnavailableError)) {
						t.Errorf("the first Acquire() = %v, want the policy to decide", err)
					}
					time.Sleep(slow)
				}
				serves("first use", 2)
				time.Sleep(ttl)
				if acquire(t, l, r).Degraded() {
					t.Error("a request with stale limits is not counted")
				}
				serves("limits that were due", 2)
			})
		})
	}
}
