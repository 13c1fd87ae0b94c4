package zlimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestCosts measures the calls and capacity units of each path of DESIGN.md on the engine.
func TestCosts(t *testing.T) {
	type cost struct {
		calls                   int
		write, read, indexWrite float64
	}
	s, faults := newTable(t)
	c := newClock()
	l := newLimiter(t, s, WithClock(c.now))
	setSystem(t, l, PerMinute("rpm", 100), PerMinute("tpm", 10_000))
	ctx := context.Background()
	measure := func(name string, want cost, path func() error) {
		t.Helper()
		faults.Reset()
		if err := path(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		used := faults.Capacity("")
		got := cost{calls: faults.Calls(""), write: used.Table.Write, read: used.Read}
		for _, index := range used.Indexes {
			got.indexWrite += index.Write
		}
		if got.calls != want.calls || got.write != want.write || got.indexWrite != want.indexWrite || got.read > want.read {
			t.Errorf("%s costs %+v, want %+v", name, got, want)
		}
	}
	request := ask(Amounts{"rpm": 1, "tpm": 100})
	take := func(l *RateLimiter, r Request) func() error {
		return func() error {
			_, err := l.Acquire(ctx, r)
			return err
		}
	}
	refuse := func(l *RateLimiter, r Request) func() error {
		return func() error {
			var exceeded *ExceededError
			if _, err := l.Acquire(ctx, r); !errors.As(err, &exceeded) {
				return fmt.Errorf("Acquire() = %w, want an ExceededError", err)
			}
			return nil
		}
	}

	measure("first use of a new bucket", cost{calls: 2, write: 1, indexWrite: 3, read: 3}, take(newLimiter(t, s, WithClock(c.now)), request))
	measure("first use of a bucket by a process", cost{calls: 2, write: 1, read: 3}, take(l, request))
	measure("spend", cost{calls: 1, write: 1}, take(l, request))
	c.sleep(10 * time.Second)
	measure("advance", cost{calls: 1, write: 1}, take(l, request))

	lease := acquire(t, l, request)
	measure("settle with nothing to correct", cost{}, func() error { return lease.Commit(ctx) })
	lease = acquire(t, l, request)
	if err := lease.Adjust(Amounts{"tpm": 50}); err != nil {
		t.Fatal(err)
	}
	measure("settle", cost{calls: 1, write: 1}, func() error { return lease.Commit(ctx) })
	lease = acquire(t, l, request)
	measure("roll back", cost{calls: 1, write: 1}, func() error { return lease.Rollback(ctx) })

	other := newLimiter(t, s, WithClock(c.now))
	acquire(t, other, request)
	c.sleep(10 * time.Second)
	acquire(t, other, request)
	// AWS charges a failed condition like a write, but an error says nothing of capacity: each of the two paths below
	// costs one write unit more than the replies tell.
	measure("another process moved the stamp", cost{calls: 2, write: 1}, take(l, request))

	acquire(t, other, ask(Amounts{"rpm": available(t, l, "rpm")}))
	measure("rejected unexpectedly", cost{calls: 1}, refuse(l, request))
	measure("rejected as foretold", cost{calls: 1, read: 1}, refuse(l, request))
	measure("a bucket's status", cost{calls: 1, read: 1}, func() error { _, err := l.Available(ctx, "key-1", "gpt-4"); return err })
	measure("limits from memory", cost{}, func() error { _, err := l.Limits.Resolve(ctx, "key-1", "gpt-4"); return err })
	measure("bad input", cost{}, func() error {
		var invalid *ValidationError
		if _, err := l.Acquire(ctx, ask(Amounts{"rpm": -1})); !errors.As(err, &invalid) {
			return err
		}
		return nil
	})
}

// TestItemsOfManyLimits creates, advances and reconfigures a bucket of the most limits with the longest names: the
// expressions stay within DynamoDB's bounds.
func TestItemsOfManyLimits(t *testing.T) {
	s, _ := newTable(t)
	c := newClock()
	l := newLimiter(t, s, WithClock(c.now))
	var limits []Limit
	consume := Amounts{}
	for i := range maxLimits {
		name := fmt.Sprintf("l%02d-%s", i, strings.Repeat("x", 60))
		limits = append(limits, PerMinute(name, 1000))
		consume[name] = 1
	}
	setSystem(t, l, limits...)
	acquire(t, l, ask(consume))
	c.sleep(10 * time.Second)
	acquire(t, l, ask(consume))
	for i := range limits {
		limits[i].Capacity++
	}
	setSystem(t, l, limits...)
	acquire(t, l, ask(consume))
	if got := limit(t, l, limits[0].Name); got.Consumed != 3000 || got.Capacity != 1001_000 {
		t.Errorf("%s = %+v, want 3000 consumed of 1001000", limits[0].Name, got)
	}
}
