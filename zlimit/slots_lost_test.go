package zlimit_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// What becomes of the writes of a lossyStore.
const (
	arrives   int32 = iota
	loseReply       // the write is applied, and no one hears of it
	loseCall        // no one knows that it never arrived
	refuses         // it provably does not arrive
)

// A lossyStore loses writes and their replies.
type lossyStore struct {
	store.Store
	fate  atomic.Int32
	takes time.Duration // how long a write with that fate does
}

func (s *lossyStore) Write(ctx context.Context, w store.Write) (store.Result, error) {
	fate := s.fate.Load()
	if fate == arrives {
		return s.Store.Write(ctx, w)
	}
	time.Sleep(s.takes)
	if fate == loseReply {
		if _, err := s.Store.Write(ctx, w); err != nil {
			return store.Result{}, err
		}
	}
	return store.Result{}, &store.Error{Op: "write", Unavailable: true, Unknown: fate != refuses, Err: errors.New("connection reset")}
}

// TestSlotsGivenBackUnheard gives slots back, and no one hears whether they are: alone, and beside tokens. They are free within two terms,
// though their process goes on and holds others, and there are never more of them.
func TestSlotsGivenBackUnheard(t *testing.T) {
	for fate, name := range map[int32]string{loseReply: "the reply is lost", loseCall: "the call is lost"} {
		for settling, consume := range map[string]zlimit.Amounts{"alone": {"slots": 1}, "beside tokens": {"slots": 1, "rpd": 2}} {
			t.Run(name+", "+settling, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &lossyStore{Store: store.Of(newMemory(t))}
					l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithConfigTTL(time.Hour), zlimit.WithRejectionCache(0))
					slots(t, l, 3, zlimit.PerDay("rpd", 1000))
					kept, first := acquire(t, l, ask(consume)), acquire(t, l, ask(consume))
					s.fate.Store(fate)
					if err := first.Rollback(t.Context()); err == nil {
						t.Error("nobody says that it is not known whether the slot is given back")
					}
					s.fate.Store(arrives)
					time.Sleep(25 * time.Second)
					second, third := acquire(t, l, ask(consume)), acquire(t, l, ask(consume))
					reject(t, l, oneSlot)
					if isLost(kept) || second.Fence() <= first.Fence() || third.Fence() <= second.Fence() {
						t.Errorf("the other lease is lost: %t; fencing numbers are %d, %d and %d", isLost(kept), first.Fence(), second.Fence(), third.Fence())
					}
					for _, lease := range []*zlimit.Lease{kept, second, third} {
						check.Error(t, "Rollback()", lease.Rollback(t.Context()))
					}
					time.Sleep(25 * time.Second)
					if statuses := statuses(t, l); statuses[1].Available != 3 {
						t.Errorf("free are %+v", statuses)
					}
					closeLimiters(t, l)
				})
			})
		}
	}
}

// In TestSlotsRefusedToComeBack, a store refuses what gives slots back along with tokens. The lease is open, and a second try gives back
// both, once.
func TestSlotsRefusedToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &lossyStore{Store: store.Of(newMemory(t))}
		l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithConfigTTL(time.Hour), zlimit.WithRejectionCache(0))
		slots(t, l, 1, zlimit.PerDay("rpd", 1000))
		lease := acquire(t, l, ask(zlimit.Amounts{"slots": 1, "rpd": 2}))
		s.fate.Store(refuses)
		if err := lease.Rollback(t.Context()); err == nil {
			t.Error("Rollback() does not tell of the outage")
		}
		s.fate.Store(arrives)
		time.Sleep(35 * time.Second)
		reject(t, l, oneSlot)
		if isLost(lease) {
			t.Error("the lease is lost")
		}
		check.Fatal(t, "Rollback()", lease.Rollback(t.Context()))
		if statuses := statuses(t, l); statuses[0].Available != 1000 || statuses[1].Available != 1 {
			t.Errorf("there are %+v", statuses)
		}
		closeLimiters(t, l)
	})
}

// TestSlotsThatCloseCannotGiveBack closes a limiter whose store is away. Its leases are lost, and nothing waits for their slots any more.
func TestSlotsThatCloseCannotGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := newMemory(t)
		s := &lossyStore{Store: store.Of(kept)}
		l, other := newLimiter(t, zlimit.StoreOn(s), zlimit.WithConfigTTL(time.Hour)), newLimiter(t, kept, zlimit.WithRejectionCache(0))
		slots(t, l, 2, zlimit.PerDay("rpd", 1000))
		alone, beside := acquire(t, l, oneSlot), acquire(t, l, ask(zlimit.Amounts{"slots": 1, "rpd": 1}))
		lost := []<-chan struct{}{alone.Lost(), beside.Lost()}
		s.fate.Store(refuses)
		_ = l.Close() // which may say so
		for _, c := range lost {
			select {
			case <-c:
			default:
				t.Error("a lease is not lost")
			}
		}
		synctest.Wait() // a goroutine that waits for them fails the bubble
		reject(t, other, oneSlot)
		time.Sleep(21 * time.Second)
		for range 2 {
			acquire(t, other, oneSlot)
		}
		closeLimiters(t, other)
	})
}

// TestSlotsThatNobodyGivesBack closes a limiter while a lease is committed, which fails then: nothing waits any more for the slots to be
// lost or given back.
func TestSlotsThatNobodyGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &lossyStore{Store: store.Of(newMemory(t)), takes: 3 * time.Second}
		l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithConfigTTL(time.Hour), zlimit.WithCallTimeout(10*time.Second))
		slots(t, l, 1, zlimit.Slots("others", 1, zlimit.Term(10*time.Second)))
		lease := acquire(t, l, ask(zlimit.Amounts{"slots": 1, "others": 1}))
		_ = lease.Lost() // of two slots, for which goroutines wait
		s.fate.Store(refuses)
		committed := make(chan error)
		go func() { committed <- lease.Commit(context.Background()) }()
		time.Sleep(time.Second)
		_ = l.Close()
		if err := <-committed; err == nil {
			t.Error("Commit() does not tell of the outage")
		}
		time.Sleep(time.Minute) // the bubble fails where goroutines wait on
	})
}

// In TestSlotsThatDoCannotGiveBack, the store refuses what Do gives back. No one has the lease any more, and the slot is free again, though its
// process keeps renewing others.
func TestSlotsThatDoCannotGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &lossyStore{Store: store.Of(newMemory(t))}
		l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithConfigTTL(time.Hour), zlimit.WithRejectionCache(0))
		slots(t, l, 3, zlimit.PerDay("rpd", 1000))
		kept := acquire(t, l, ask(zlimit.Amounts{"slots": 1}))
		err := l.Do(t.Context(), ask(zlimit.Amounts{"slots": 1}), func(context.Context, *zlimit.Lease) error {
			s.fate.Store(refuses)
			return nil
		})
		if !errors.As(err, new(*zlimit.UnavailableError)) {
			t.Errorf("Do() = %v, want an outage", err)
		}
		s.fate.Store(arrives)
		time.Sleep(2*time.Minute + 30*time.Second)
		if stats := l.Stats(); stats.SlotsHeld != 1 || stats.SlotsLost != 0 {
			t.Errorf("%d slots are held and %d are lost, want that of the other lease alone", stats.SlotsHeld, stats.SlotsLost)
		}
		acquire(t, l, ask(zlimit.Amounts{"slots": 1}))
		acquire(t, l, ask(zlimit.Amounts{"slots": 1}))
		check.Error(t, "Commit()", kept.Commit(t.Context()))
		closeLimiters(t, l)
	})
}
