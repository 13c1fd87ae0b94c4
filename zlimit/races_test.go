package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestConflictsAreLostRaces, plain writes meet a transaction. They are tried again.
func TestConflictsAreLostRaces(t *testing.T) {
	t.Parallel()
	conflict := fmt.Errorf("UpdateItem: %w", store.ErrConflict)
	for name, opts := range map[string][]zlimit.Option{"by default": nil, "shared writes": {zlimit.WithCoalescing()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := hook(newMemory(t))
			l := newLimiter(t, zlimit.StoreOn(h), append(opts, zlimit.WithClock(newClock().now))...)
			setSystem(t, l, zlimit.PerDay("rpd", 100))
			h.set(times(3, conflict))
			lease := acquire(t, l, ask(zlimit.Amounts{"rpd": 10}))
			h.set(times(3, conflict))
			check.Error(t, "Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rpd": 5}), lease.Commit(t.Context())))
			h.set(times(3, conflict))
			check.Error(t, "Rollback()", acquire(t, l, ask(zlimit.Amounts{"rpd": 7})).Rollback(t.Context()))
			h.set(times(1000, conflict))
			if _, err := l.Acquire(t.Context(), ask(zlimit.Amounts{"rpd": 1})); !errors.Is(err, zlimit.ErrContended) {
				t.Errorf("Acquire() among endless conflicts = %v, want ErrContended", err)
			}
			h.set(times(0, nil))
			if got := available(t, l, "rpd"); got != 85 {
				t.Errorf("%d are left, want 85", got)
			}
		})
	}
}

// In TestOwnLimitsShareWrites, requests with limits of their own come at the same time. They share writes as stored
// limits do.
func TestOwnLimitsShareWrites(t *testing.T) {
	const callers = 41
	g := &gate{Store: store.Of(newMemory(t))}
	l := newLimiter(t, zlimit.StoreOn(g), zlimit.WithClock(newClock().now), zlimit.WithCoalescing())
	setSystem(t, l, zlimit.PerDay("other", 1))
	r := func() zlimit.Request {
		r := ask(zlimit.Amounts{"rpd": 1})
		r.Limits = []zlimit.Limit{zlimit.PerDay("rpd", 100)}
		return r
	}
	acquire(t, l, r())
	together(g, waitingFor(l, "key-1"), callers, func(int) { acquire(t, l, r()) }, nil)
	if got := g.writes.Load(); got != 1 {
		t.Errorf("%d writes for the requests that waited, want 1", got)
	}
}

// TestUnknownSettlementsAreWrittenOnce loses the reply of a commit for one level, and throttles that for the other: the
// next commit writes the second alone.
func TestUnknownSettlementsAreWrittenOnce(t *testing.T) {
	for op, settle := range map[string]func(*zlimit.Lease) error{
		"commit":    func(lease *zlimit.Lease) error { return lease.Commit(context.Background()) },
		"roll back": func(lease *zlimit.Lease) error { return lease.Rollback(context.Background()) },
	} {
		h := hook(newMemory(t))
		l := newLimiter(t, zlimit.StoreOn(h), zlimit.WithClock(newClock().now))
		putEntity(t, l, "key-1", "team")
		setSystem(t, l, zlimit.PerDay("rpd", 100))
		lease := acquire(t, l, ask(zlimit.Amounts{"rpd": 10}))
		check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{"rpd": 5}))
		var calls atomic.Int64
		h.set(func(...store.Write) error {
			return &store.Error{Op: "UpdateItem", Unavailable: true, Unknown: calls.Add(1) == 1, Err: errors.New("no reply")}
		})
		var outage *zlimit.UnavailableError
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
		if err := settle(lease); !errors.Is(err, zlimit.ErrLeaseClosed) {
			t.Errorf("%s of a closed lease = %v", op, err)
		}
	}
}
