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

// A muteStore is a store that answers nothing once it is mute.
type muteStore struct {
	store.Around
	mute atomic.Bool
}

func newMute(s store.Store) *muteStore {
	m := &muteStore{}
	m.Around = store.Around{Store: s, Call: func(ctx context.Context, c *store.Call, do func(context.Context) error) error {
		time.Sleep(time.Millisecond)
		if !m.mute.Load() {
			return do(ctx)
		}
		<-ctx.Done()
		return &store.Error{Op: "call", Unavailable: true, Unknown: len(c.Writes) > 0, Err: ctx.Err()}
	}}
	return m
}

// TestCloseReturnsWhatWaits closes a limiter while callers wait. They notice it, and what they and the holders have is given back. A store that
// does not answer has ten seconds for that, and the counts say what was not given back.
func TestCloseReturnsWhatWaits(t *testing.T) {
	const callers = 50
	for _, test := range []struct {
		name  string
		limit zlimit.Limit
		mute  bool
	}{
		{"tokens", zlimit.PerHour("rpm", 10), false},
		{"tokens, no answer", zlimit.PerHour("rpm", 10), true},
		{"slots", zlimit.Slots("rpm", 10), false},
		{"slots, no answer", zlimit.Slots("rpm", 10), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newMute(store.Of(newMemory(t)))
				l, operator := newLimiter(t, zlimit.StoreOn(s)), newLimiter(t, zlimit.StoreOn(s))
				setLimits(t, operator, zlimit.Level{Resource: "gpt-4"}, test.limit)
				for range 10 {
					acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
				}
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						if _, err := l.Wait(t.Context(), ask(zlimit.Amounts{"rpm": 1}), zlimit.MaxWait(100*time.Hour)); !errors.Is(err, zlimit.ErrClosed) {
							t.Errorf("Wait() = %v, want ErrClosed", err)
						}
					})
				}
				time.Sleep(5 * time.Second)
				s.mute.Store(test.mute)
				began := time.Now()
				check.Error(t, "Close()", l.Close())
				wg.Wait()
				took, longest, stats := time.Since(began), 20*time.Millisecond, l.Stats()
				unreturned, left := uint64(0), int64(0)
				switch {
				case test.limit.Term > 0 && test.mute: // they are free again within two terms
					longest = 5 * time.Second
				case test.limit.Term > 0:
					left = 10
				case test.mute:
					longest, unreturned, left = 10*time.Second, callers, -callers
				default:
				}
				if took > longest {
					t.Errorf("Close() takes %v, want at most %v", took, longest)
				}
				if stats.Unreturned != unreturned || stats.SlotsHeld != 0 || stats.Waiting != 0 {
					t.Errorf("%d were not given back, want %d; %d slots are held, and %d wait", stats.Unreturned, unreturned, stats.SlotsHeld, stats.Waiting)
				}
				s.mute.Store(false)
				statuses, err := operator.Available(t.Context(), zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
				if err != nil || statuses[0].Available != left {
					t.Errorf("%v are left, want %d: %v", statuses, left, err)
				}
				closeLimiters(t, operator)
			})
		})
	}
}

// A closedStore is a store that takes its time, and no calls once it is closed.
type closedStore struct {
	*muteStore
	closed atomic.Bool
}

func (s *closedStore) Write(ctx context.Context, w store.Write) (store.Result, error) {
	time.Sleep(5 * time.Millisecond)
	if s.closed.Load() {
		return store.Result{}, &store.Error{Op: "UpdateItem", Err: errors.New("the store is closed")}
	}
	result, err := s.muteStore.Write(ctx, w)
	time.Sleep(5 * time.Millisecond)
	return result, err
}

// TestCloseWhileSlotsMove closes a limiter and its store at each moment while slots are taken, released and handed on. All of them are free
// afterwards.
func TestCloseWhileSlotsMove(t *testing.T) {
	for after := 500 * time.Millisecond; after < 560*time.Millisecond; after += time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			memory := newMemory(t)
			s := &closedStore{muteStore: newMute(store.Of(memory))}
			l, operator := newLimiter(t, zlimit.StoreOn(s)), newLimiter(t, memory)
			slots(t, operator, 5)
			var wg sync.WaitGroup
			for i := range 16 {
				wg.Go(func() {
					for {
						var lease *zlimit.Lease
						var err error
						if i%2 == 0 {
							lease, err = l.Acquire(t.Context(), oneSlot)
						} else {
							lease, err = l.Wait(t.Context(), oneSlot, zlimit.MaxWait(time.Minute))
						}
						switch {
						case err == nil:
							time.Sleep(time.Duration(i) * time.Millisecond)
							err = lease.Commit(t.Context())
						case errors.As(err, new(*zlimit.ExceededError)):
							time.Sleep(7 * time.Millisecond)
							continue
						}
						if err != nil {
							return // the limiter is closed
						}
					}
				})
			}
			time.Sleep(after)
			check.Error(t, "Close()", l.Close())
			s.closed.Store(true)
			wg.Wait()
			statuses, err := operator.Available(t.Context(), zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
			if err != nil || statuses[0].Available != 5 || l.Stats().SlotsHeld != 0 {
				t.Errorf("closed after %v: %v are free, and the process counts %d held: %v", after, statuses, l.Stats().SlotsHeld, err)
			}
			closeLimiters(t, operator)
		})
	}
}

// TestCloseDuringATake closes a limiter and its store while its only request takes a slot, at each moment. The slot is free afterwards.
func TestCloseDuringATake(t *testing.T) {
	for after := time.Duration(0); after < 12*time.Millisecond; after += time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			memory := newMemory(t)
			s := &closedStore{muteStore: newMute(store.Of(memory))}
			l, operator := newLimiter(t, zlimit.StoreOn(s)), newLimiter(t, memory)
			slots(t, operator, 5)
			check.Fatal(t, "Commit()", acquire(t, l, oneSlot).Commit(t.Context()))
			done := make(chan error)
			go func() {
				_, err := l.Acquire(t.Context(), oneSlot)
				done <- err
			}()
			time.Sleep(after)
			check.Error(t, "Close()", l.Close())
			s.closed.Store(true)
			if err := <-done; err != nil && !errors.Is(err, zlimit.ErrClosed) {
				t.Errorf("Acquire() = %v, want a lease or ErrClosed", err)
			}
			statuses, err := operator.Available(t.Context(), zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
			if err != nil || statuses[0].Available != 5 {
				t.Errorf("closed after %v: %v are free: %v", after, statuses, err)
			}
			closeLimiters(t, operator)
		})
	}
}
