package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestObserver checks that an observer is notified of a day in the life of a limiter, in its order.
func TestObserver(t *testing.T) {
	var mu sync.Mutex
	var told []string
	observe := func(_ context.Context, e zlimit.Event) {
		mu.Lock()
		defer mu.Unlock()
		line := fmt.Sprintf("%v %s %s %s", e.Kind, e.Operation, e.Entity, e.Result)
		if e.Kind == zlimit.EventDecision && e.Result != zlimit.ResultDegraded {
			line += fmt.Sprintf(" %s %d statuses", e.Limit, len(e.Statuses))
		}
		if e.Kind == zlimit.EventDecision || e.Kind == zlimit.EventSettle {
			line += fmt.Sprint(" ", e.Amounts)
		}
		if e.Time.IsZero() || e.Kind != zlimit.EventConfig && e.Duration <= 0 {
			t.Errorf("%s: time %v, duration %v", line, e.Time, e.Duration)
		}
		told = append(told, line)
	}
	h := hook(newMemory(t))
	c := newClock()
	other := newLimiter(t, zlimit.StoreOn(h.Store), zlimit.WithClock(c.now))
	setSystem(t, other, zlimit.PerDay("rpd", 10))
	l := newLimiter(t, zlimit.StoreOn(h), zlimit.WithClock(c.now), zlimit.WithObserver(observe), zlimit.WithFailurePolicy(zlimit.PolicyAllow))
	told = nil
	lease := acquire(t, l, ask(zlimit.Amounts{"rpd": 4}))
	if err := errors.Join(lease.Consume(t.Context(), zlimit.Amounts{"rpd": 2}), lease.Adjust(zlimit.Amounts{"rpd": -1}), lease.Commit(t.Context())); err != nil {
		t.Fatalf("Consume() and Adjust() and Commit() = %v", err)
	}
	reject(t, l, ask(zlimit.Amounts{"rpd": 6}))
	setSystem(t, other, zlimit.PerDay("rpd", 20))
	c.sleep(time.Hour)
	check.Fatal(t, "Rollback()", acquire(t, l, ask(zlimit.Amounts{"rpd": 1})).Rollback(t.Context()))
	h.set(times(100, &store.Error{Op: "UpdateItem", Unavailable: true, Err: errors.New("gone")}))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
	want := []string{
		"store read  ok", "store write  ok", "decision acquire key-1 ok  1 statuses [{rpd 4}]",
		"store write  ok", "decision consume key-1 ok  1 statuses [{rpd 2}]",
		"store write  ok", "settle commit key-1 ok [{rpd -1}]",
		"decision acquire key-1 rejected rpd 1 statuses [{rpd 6}]",
		"config read limits  ok", "decision acquire key-1 ok  1 statuses [{rpd 1}]", "settle rollback key-1 ok [{rpd -1}]",
		"store write  unavailable", "decision acquire key-1 degraded [{rpd 1}]",
	}
	for _, line := range told { // in this order, among other calls of the store
		if len(want) > 0 && line == want[0] {
			want = slices.Delete(want, 0, 1)
		}
	}
	if len(want) > 0 {
		t.Errorf("not told: %q, of\n%s", want[0], strings.Join(told, "\n"))
	}
}
