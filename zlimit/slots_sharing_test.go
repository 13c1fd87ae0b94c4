package zlimit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestSlotsShareWrites, many callers of a process ask for slots at the same time, alone and beside tokens, and give them back. They
// share writes. As many as fit are admitted, each with a fencing number of its own.
func TestSlotsShareWrites(t *testing.T) {
	for name, consume := range map[string]zlimit.Amounts{"alone": {"slots": 1}, "beside tokens": {"slots": 1, "rpd": 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := hook(newMemory(t))
				s.late = 10 * time.Millisecond
				l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithConfigTTL(time.Hour))
				slots(t, l, 40, zlimit.PerDay("rpd", 1000))
				check.Fatal(t, "Rollback()", acquire(t, l, ask(consume)).Rollback(t.Context()))
				time.Sleep(time.Second)
				before := s.writes.Load()
				leases := askAtOnce(t, l, ask(consume), 60)
				if writes := s.writes.Load() - before; len(leases) != 40 || writes > 15 {
					t.Errorf("%d of 60 callers have one of 40 slots, by %d writes", len(leases), writes)
				}
				checkFences(t, leases)
				before = s.writes.Load()
				var group sync.WaitGroup
				for _, lease := range leases {
					group.Go(func() { check.Error(t, "Rollback()", lease.Rollback(context.Background())) })
				}
				group.Wait()
				if writes := s.writes.Load() - before; writes > 10 {
					t.Errorf("%d writes give back %d leases", writes, len(leases))
				}
				statuses := statuses(t, l)
				free, _ := statuses.Limit("slots")
				if tokens, _ := statuses.Limit("rpd"); free.Available != 40 || tokens.Available != 1000 {
					t.Errorf("free are %d slots and %d tokens", free.Available, tokens.Available)
				}
				if got := l.Stats().LostRaces; got > 7 { // of eight writes under way at the same time, one wins
					t.Errorf("%d races are lost among callers of one process", got)
				}
				closeLimiters(t, l)
			})
		})
	}
}

// checkFences asks that leases have a fencing number each.
func checkFences(t *testing.T, leases []*zlimit.Lease) {
	t.Helper()
	fences := map[int64]bool{}
	for _, lease := range leases {
		fences[lease.Fence()] = true
	}
	if len(fences) != len(leases) {
		t.Errorf("%d leases have %d fencing numbers", len(leases), len(fences))
	}
}

// In TestSlotsOfRequestsTogether, callers of one slot, of two requests each for slots, and of one request, share writes.
func TestSlotsOfRequestsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hook(newMemory(t))
		s.late = 10 * time.Millisecond
		l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithConfigTTL(time.Hour))
		slots(t, l, 100)
		one := ask(zlimit.Amounts{"slots": 1})
		check.Fatal(t, "Rollback()", acquire(t, l, one).Rollback(t.Context()))
		time.Sleep(time.Second)
		before := s.writes.Load()
		var mu sync.Mutex
		var group sync.WaitGroup
		var leases []*zlimit.Lease
		for i := range 40 {
			group.Go(func() {
				requests := []zlimit.Request{one, one}[:1+i%2]
				all, err := l.AcquireAll(context.Background(), requests)
				if err != nil {
					t.Errorf("AcquireAll() = %v", err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for i := range requests {
					leases = append(leases, all.Of(i))
				}
			})
		}
		group.Wait()
		if writes := s.writes.Load() - before; len(leases) != 60 || writes > 15 {
			t.Errorf("%d leases by %d writes, want 60 by few", len(leases), writes)
		}
		checkFences(t, leases)
		for _, lease := range leases {
			check.Error(t, "Rollback()", lease.Rollback(t.Context()))
		}
		closeLimiters(t, l)
	})
}

// askAtOnce makes a number of requests at the same time, and returns the leases of the admitted ones.
func askAtOnce(t *testing.T, l *zlimit.RateLimiter, r zlimit.Request, callers int) (leases []*zlimit.Lease) {
	t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			lease, err := l.Acquire(context.Background(), r)
			if err != nil && !errors.As(err, new(*zlimit.ExceededError)) {
				t.Errorf("Acquire() = %v", err)
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				leases = append(leases, lease)
			}
		})
	}
	group.Wait()
	return leases
}

// In TestSlotsBesideTokensOfAResizedBucket, processes take slots beside tokens, and give both back, while others split and merge the
// bucket. There are never more at work than slots, and in the end all slots are free and all tokens are back.
func TestSlotsBesideTokensOfAResizedBucket(t *testing.T) {
	s := zlimit.StoreOn(partitioned{store.Of(newMemory(t))})
	resizer := newLimiter(t, s)
	slots(t, resizer, 3, zlimit.PerDay("rpd", 1_000_000))
	both := ask(zlimit.Amounts{"slots": 1, "rpd": 5})
	check.Fatal(t, "Rollback()", acquire(t, resizer, both).Rollback(t.Context()))
	var atWork, admitted atomic.Int64
	var group sync.WaitGroup
	working, stop := context.WithCancel(context.Background())
	for range 3 {
		l := newLimiter(t, s, zlimit.WithRejectionCache(0))
		for range 4 {
			group.Go(func() {
				for range 40 {
					lease, err := l.Wait(context.Background(), both, zlimit.MaxWait(time.Minute))
					if err != nil {
						t.Errorf("Wait() = %v", err)
						return
					}
					if n := atWork.Add(1); n > 3 {
						t.Errorf("%d are at work", n)
					}
					admitted.Add(1)
					time.Sleep(100 * time.Microsecond)
					atWork.Add(-1)
					check.Error(t, "Rollback()", lease.Rollback(context.Background()))
				}
			})
		}
	}
	resized := make(chan struct{})
	go func() {
		defer close(resized)
		for at := 0; working.Err() == nil; at++ {
			do := splitShard
			if at%2 == 1 {
				do = mergeShard
			}
			check.Error(t, "resizeEach()", resizeEach(context.Background(), resizer, resizer.Calls(), do))
			time.Sleep(2 * time.Millisecond)
		}
	}()
	group.Wait()
	stop()
	<-resized
	statuses := statuses(t, resizer)
	free, _ := statuses.Limit("slots")
	if tokens, _ := statuses.Limit("rpd"); admitted.Load() != 480 || free.Available != 3 || tokens.Available != 1_000_000 {
		t.Errorf("%d admitted; free are %d slots and %d tokens", admitted.Load(), free.Available, tokens.Available)
	}
}
