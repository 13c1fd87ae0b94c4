package zlimit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestAcquireAllWaits, several requests wait until all limits have enough: tokens, a quota, and slots that are held. They hold nothing
// meanwhile, and a wait that would be too long is rejected immediately.
func TestAcquireAllWaits(t *testing.T) {
	both := []zlimit.Request{
		{Entity: "key-1", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 5}},
		{Entity: "key-1", Resource: "tool", Consume: zlimit.Amounts{"rpm": 1}},
	}
	for _, test := range []struct {
		name    string
		limit   zlimit.Limit
		maxWait time.Duration
		waits   time.Duration // -1 for an immediate rejection
		spread  time.Duration
	}{
		{"tokens", zlimit.PerSecond("rpm", 10), time.Minute, 500 * time.Millisecond, 110 * time.Millisecond},
		{"tokens that take too long", zlimit.PerSecond("rpm", 10), 400 * time.Millisecond, -1, 0},
		{"a quota", zlimit.Daily("rpm", 10, "UTC"), 2 * time.Hour, time.Hour, 200 * time.Millisecond},
		{"slots", zlimit.Slots("rpm", 10), time.Minute, 2 * time.Second, 1200 * time.Millisecond},
		{"no wait", zlimit.PerSecond("rpm", 10), 0, -1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, zlimit.StoreOn(&lateStore{Store: store.Of(newMemory(t)), late: time.Millisecond}))
				setSystem(t, l, zlimit.PerMinute("rpm", 1000))
				setLimits(t, l, zlimit.Level{Resource: "gpt-4"}, test.limit)
				time.Sleep(23 * time.Hour) // the last hour of a day begins
				first := acquire(t, l, ask(zlimit.Amounts{"rpm": 10}))
				if test.limit.Term > 0 {
					time.AfterFunc(2*time.Second, func() { _ = first.Commit(context.Background()) })
				}
				began := time.Now()
				leases, err := l.AcquireAll(t.Context(), both, zlimit.MaxWait(test.maxWait))
				took := time.Since(began)
				switch {
				case test.waits < 0:
					if !errors.As(err, new(*zlimit.ExceededError)) || took > 10*time.Millisecond {
						t.Errorf("AcquireAll() = %v after %v, want a rejection at once", err, took)
					}
				case err != nil || took < test.waits-time.Millisecond || took > test.waits+test.spread:
					t.Errorf("AcquireAll() = %v after %v, want it to wait %v", err, took, test.waits)
				default:
					check.Error(t, "Rollback()", leases.Rollback(t.Context()))
				}
				statuses, err := l.Available(t.Context(), zlimit.AvailableQuery{Entity: "key-1", Resource: "tool"})
				if err != nil || statuses[0].Available != 1000 {
					t.Errorf("%v are left of the other resource, want all: %v", statuses, err)
				}
				closeLimiters(t, l)
			})
		})
	}
}

// TestMaxWaitBoundsAcquireAll asks for several requests on a store that answers much later than they wait. The call ends a few round trips after
// MaxWait.
func TestMaxWaitBoundsAcquireAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &lateStore{Store: store.Of(newMemory(t)), late: time.Millisecond}
		l := newLimiter(t, zlimit.StoreOn(s))
		setSystem(t, l, zlimit.PerMinute("rpm", 1000))
		requests := []zlimit.Request{
			{Entity: "key-1", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 5}},
			{Entity: "key-1", Resource: "tool", Consume: zlimit.Amounts{"rpm": 1}},
		}
		if _, err := l.AcquireAll(t.Context(), requests); err != nil {
			t.Fatalf("AcquireAll() = %v", err)
		}
		s.late = time.Minute
		began := time.Now()
		_, err := l.AcquireAll(t.Context(), requests, zlimit.MaxWait(300*time.Millisecond))
		if took := time.Since(began); !errors.As(err, new(*zlimit.UnavailableError)) || took < 300*time.Millisecond || took > 350*time.Millisecond {
			t.Errorf("AcquireAll() = %v after %v, want an outage after 300ms", err, took)
		}
		s.late = time.Millisecond
		closeLimiters(t, l)
	})
}

// TestCloseDuringAcquireAll closes a limiter while the writes of several requests that may wait are under way. Close waits for them.
func TestCloseDuringAcquireAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{Store: store.Of(newMemory(t))}
		l := check.Call(zlimit.New(t.Context(), zlimit.StoreOn(g), zlimit.WithSetup())).Must(t, "zlimit.New()")
		setSystem(t, l, zlimit.PerMinute("rpm", 1000))
		acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
		open := g.close()
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := l.AcquireAll(t.Context(), []zlimit.Request{ask(zlimit.Amounts{"rpm": 1})}, zlimit.MaxWait(time.Minute)); err != nil {
				t.Errorf("AcquireAll() = %v", err)
			}
		})
		synctest.Wait()
		closed := false
		group.Go(func() {
			check.Error(t, "Close()", l.Close())
			closed = true
		})
		synctest.Wait()
		if closed {
			t.Error("Close() returns while a write is under way")
		}
		open()
		group.Wait()
	})
}
