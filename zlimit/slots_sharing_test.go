package zlimit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A distantStore takes a while for each write.
type distantStore struct{ countedStore }

func (s *distantStore) Write(ctx context.Context, w store.Write) (store.Result, error) {
	time.Sleep(10 * time.Millisecond)
	return s.countedStore.Write(ctx, w)
}

// TestSlotsShareWrites has many callers of a process ask for slots at once, alone and beside tokens, and give them back: they share writes.
// As many as fit are admitted, each with a fencing number of its own.
func TestSlotsShareWrites(t *testing.T) {
	for name, consume := range map[string]zlimit.Amounts{"alone": {"slots": 1}, "beside tokens": {"slots": 1, "rpd": 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &distantStore{countedStore{Store: store.Of(newMemory(t))}}
				l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithConfigTTL(time.Hour))
				slots(t, l, 40, zlimit.PerDay("rpd", 1000))
				if err := acquire(t, l, ask(consume)).Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				before := s.writes.Load()
				leases := askAtOnce(t, l, ask(consume), 60)
				if writes := s.writes.Load() - before; len(leases) != 40 || writes > 15 {
					t.Errorf("%d of 60 callers have one of 40 slots, by %d writes", len(leases), writes)
				}
				fences := map[int64]bool{}
				for _, lease := range leases {
					fences[lease.Fence()] = true
				}
				if len(fences) != len(leases) {
					t.Errorf("%d leases have %d fencing numbers", len(leases), len(fences))
				}
				before = s.writes.Load()
				var group sync.WaitGroup
				for _, lease := range leases {
					group.Go(func() {
						if err := lease.Rollback(context.Background()); err != nil {
							t.Error(err)
						}
					})
				}
				group.Wait()
				if writes := s.writes.Load() - before; writes > 10 {
					t.Errorf("%d writes give back %d leases", writes, len(leases))
				}
				statuses := availableSlots(t, l)
				free, _ := statuses.Limit("slots")
				if tokens, _ := statuses.Limit("rpd"); free.Available != 40 || tokens.Available != 1000 {
					t.Errorf("free are %d slots and %d tokens", free.Available, tokens.Available)
				}
				if got := l.Stats().LostRaces; got > 5 {
					t.Errorf("%d races are lost among callers of one process", got)
				}
				closeLimiters(t, l)
			})
		})
	}
}

// askAtOnce has a number of callers ask at once, and returns what they have. The others are rejected.
func askAtOnce(t *testing.T, l *zlimit.RateLimiter, r zlimit.Request, callers int) (leases []*zlimit.Lease) {
	t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			lease, err := l.Acquire(context.Background(), r)
			if err != nil && !errors.As(err, new(*zlimit.ExceededError)) {
				t.Error(err)
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
