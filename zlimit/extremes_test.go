package zlimit_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestLongWaits asks for what takes longer than a duration can hold.
func TestLongWaits(t *testing.T) {
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
	r := ask(zlimit.Amounts{"rpd": 1})
	r.Limits = []zlimit.Limit{{Name: "rpd", Capacity: zlimit.MaxTokens, RefillAmount: 1, RefillPeriod: 240 * time.Hour}}
	r.Consume = zlimit.Amounts{"rpd": zlimit.MaxTokens}
	acquire(t, l, r)
	e := reject(t, l, r)
	if wait := e.RetryAfter(); !e.Possible() || wait < 200*365*24*time.Hour || wait+time.Second < wait || wait == zlimit.Never || e.RetryAfterHeader() == "" {
		t.Errorf("RetryAfter() = %v, possible %v, want the longest that can be rounded up, and is not Never", wait, e.Possible())
	}
}

// TestGreatDebts goes into debt beyond 64 bits: the bucket stays readable, and rejects.
func TestGreatDebts(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s, zlimit.WithClock(newClock().now))
		setSystem(t, l, zlimit.PerDay("rpd", 10))
		for range 3 {
			lease := acquire(t, l, ask(zlimit.Amounts{"rpd": 0}))
			if err := errors.Join(lease.Adjust(zlimit.Amounts{"rpd": zlimit.MaxTokens}), lease.Commit(t.Context())); err != nil {
				t.Fatalf("Adjust() and Commit() = %v", err)
			}
		}
		fresh := newLimiter(t, s, zlimit.WithClock(l.Clock()))
		if e := reject(t, fresh, ask(zlimit.Amounts{"rpd": 1})); e.Statuses[0].Available > -zlimit.MaxTokens/2 {
			t.Errorf("Available = %d, want a great debt", e.Statuses[0].Available)
		}
	})
}

// TestClockAheadStopsNobody lets a process whose clock is a day ahead write a bucket. The others set the stamp back,
// and go on as if nothing had happened except at most one capacity.
func TestClockAheadStopsNobody(t *testing.T) {
	c := newClock()
	s := newMemory(t)
	l := newLimiter(t, s, zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerMinute("rpm", 60))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 60}))
	ahead := newLimiter(t, s, zlimit.WithClock(func() time.Time { return c.now().Add(24 * time.Hour) }))
	acquire(t, ahead, ask(zlimit.Amounts{"rpm": 60}))
	c.sleep(time.Second)
	if wait := reject(t, l, ask(zlimit.Amounts{"rpm": 2})).RetryAfter(); wait > 2*time.Second {
		t.Errorf("RetryAfter() = %v, want at most two seconds", wait)
	}
	c.sleep(2 * time.Second)
	acquire(t, l, ask(zlimit.Amounts{"rpm": 2}))
	if got := l.Stats().StampsFixed; got != 1 {
		t.Errorf("%d stamps were set back, want 1", got)
	}
}

// TestSlowSettlement lets half a minute pass, and others write, between the start of a settlement and its read of the bucket.
// The stamp of that time is none of a clock that is ahead.
func TestSlowSettlement(t *testing.T) {
	c := newClock()
	s := newMemory(t)
	other := newLimiter(t, s, zlimit.WithClock(c.now))
	setSystem(t, other, zlimit.PerMinute("rpm", 60))
	var passing atomic.Int64 // readings of the clock until then
	l := newLimiter(t, s, zlimit.WithClock(func() time.Time {
		now := c.now()
		if passing.Add(-1) == 0 {
			c.sleep(30 * time.Second)
			acquire(t, other, ask(zlimit.Amounts{"rpm": 50}))
		}
		return now
	}))
	for reading := range int64(3) {
		lease := acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
		c.sleep(time.Minute)
		l.Engine().Memory.Forget("key-1", "gpt-4")
		passing.Store(reading + 1)
		check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rpm": 5}), lease.Commit(t.Context())))
	}
	if got := l.Stats().StampsFixed; got != 0 {
		t.Errorf("%d stamps were set back, want none", got)
	}
}
