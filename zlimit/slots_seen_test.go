package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A slotLog has what an observer was notified of slots, and of the amounts of decisions and settlements.
type slotLog struct {
	mu   sync.Mutex
	told []string
}

func (l *slotLog) observe(_ context.Context, e zlimit.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Kind {
	case zlimit.EventSlots:
		l.told = append(l.told, fmt.Sprintf("%s %s/%s %v", e.Operation, e.Entity, e.Resource, e.Amounts))
	case zlimit.EventSettle:
		l.told = append(l.told, fmt.Sprintf("%s %v", e.Operation, e.Amounts))
	default:
	}
}

// take returns what was reported since the last call.
func (l *slotLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	told := l.told
	l.told = nil
	return told
}

// counts checks the counts of slots: held now, taken, and lost.
func counts(t *testing.T, l *zlimit.RateLimiter, now int64, taken, lost uint64) {
	t.Helper()
	if s := l.Stats(); s.SlotsHeld != now || s.SlotsTaken != taken || s.SlotsLost != lost {
		t.Errorf("slots held are %d, taken %d, lost %d; want %d, %d and %d", s.SlotsHeld, s.SlotsTaken, s.SlotsLost, now, taken, lost)
	}
}

// TestSlotsAreSeen looks at slots where they are reported: counts, events, statuses and buckets. Each slot is taken once, and given back or
// lost once.
func TestSlotsAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log slotLog
		s := &lossyStore{Store: store.Of(newMemory(t))}
		l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithObserver(log.observe), zlimit.WithRejectionCache(0), zlimit.WithConfigTTL(time.Hour))
		slots(t, l, 3, zlimit.PerDay("rpd", 1000))
		told := func(want ...string) {
			t.Helper()
			if got := log.take(); !slices.Equal(got, want) {
				t.Errorf("told %q, want %q", got, want)
			}
		}
		both := ask(zlimit.Amounts{"slots": 2, "rpd": 5})
		first, second := acquire(t, l, both), acquire(t, l, oneSlot)
		told("take slots key-1/gpt-4 [{slots 2}]", "take slots key-1/gpt-4 [{slots 1}]")
		reject(t, l, oneSlot)
		counts(t, l, 3, 3, 0)
		statuses, err := l.Available(t.Context(), zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
		if status, _ := statuses.Limit("slots"); err != nil || status.Held() != 3 || status.Available != 0 {
			t.Errorf("Available() = %+v, %v", status, err)
		}
		if tokens, _ := statuses.Limit("rpd"); tokens.Held() != 0 {
			t.Errorf("%d tokens are held, which none are", tokens.Held())
		}
		for b, err := range l.Usage.Buckets(t.Context(), "gpt-4") {
			if status, _ := b.Statuses.Limit("slots"); err != nil || status.Held() != 3 {
				t.Errorf("a bucket with %+v, %v", status, err)
			}
		}
		check.Fatal(t, "Rollback()", first.Rollback(t.Context()))
		told("give slots back key-1/gpt-4 [{slots 2}]", "rollback [{rpd -5}]")
		check.Fatal(t, "Commit()", second.Commit(t.Context()))
		told("give slots back key-1/gpt-4 [{slots 1}]", "commit []")
		counts(t, l, 0, 3, 0)
		third := acquire(t, l, oneSlot)
		log.take()
		s.fate.Store(loseCall)
		<-third.Lost()
		synctest.Wait()
		told("lose slots key-1/gpt-4 [{slots 1}]")
		counts(t, l, 0, 4, 1)
		s.fate.Store(arrives)
		if err := third.Commit(t.Context()); err != nil { // what is lost is given back nowhere
			t.Fatalf("Commit() = %v", err)
		}
		told("commit []")
		time.Sleep(time.Minute) // the calls that were lost have opened the breaker
		acquire(t, l, oneSlot)
		log.take()
		check.Fatal(t, "Close()", l.Close())
		told("lose slots key-1/gpt-4 [{slots 1}]")
		counts(t, l, 0, 5, 2)
	})
}

// TestSlotsOfARejectedRequestAreSeen rejects a request by its parent: the slot that it took of the entity is reported as given
// back.
func TestSlotsOfARejectedRequestAreSeen(t *testing.T) {
	var log slotLog
	memory := newMemory(t)
	l := newLimiter(t, memory, zlimit.WithRejectionCache(0))
	for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "key-1", ParentID: "team", Cascade: true}} {
		create(t, l, e)
	}
	slots(t, l, 5)
	of := zlimit.Level{Entity: "team", Resource: "gpt-4"}
	setLimits(t, l, of, zlimit.Slots("slots", 1))
	first := acquire(t, l, oneSlot)
	counts(t, l, 2, 2, 0)
	other := newLimiter(t, memory, zlimit.WithObserver(log.observe), zlimit.WithRejectionCache(0))
	if _, err := other.Acquire(t.Context(), oneSlot); !errors.As(err, new(*zlimit.ExceededError)) {
		t.Fatalf("the parent has no slot left: %v", err)
	}
	counts(t, other, 0, 1, 0)
	if got := log.take(); !slices.Equal(got, []string{"take slots key-1/gpt-4 [{slots 1}]", "give slots back key-1/gpt-4 [{slots 1}]"}) {
		t.Errorf("told %q", got)
	}
	check.Fatal(t, "Commit()", first.Commit(t.Context()))
	counts(t, l, 0, 2, 0)
}
