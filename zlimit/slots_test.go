package zlimit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// slots configures slots for the resource of ask, beside other limits.
func slots(t *testing.T, l *zlimit.RateLimiter, n int64, more ...zlimit.Limit) {
	t.Helper()
	limits := slices.Concat(more, []zlimit.Limit{zlimit.Slots("slots", n, zlimit.Term(10*time.Second))})
	setLimits(t, l, zlimit.Level{Resource: "gpt-4"}, limits...)
}

// oneSlot asks for a slot.
var oneSlot = ask(zlimit.Amounts{"slots": 1})

func isLost(lease *zlimit.Lease) bool {
	select {
	case <-lease.Lost():
		return true
	default:
		return false
	}
}

// TestSlots takes slots and gives them back.
func TestSlots(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s, zlimit.WithRejectionCache(0))
		slots(t, l, 2)
		first, second := acquire(t, l, oneSlot), acquire(t, l, oneSlot)
		if first.Fence() <= 0 || second.Fence() <= first.Fence() {
			t.Errorf("fencing numbers are %d and %d", first.Fence(), second.Fence())
		}
		reject(t, l, oneSlot)
		status, _ := second.Statuses().Limit("slots")
		if status.Available != 0 || status.Requested != 1 || status.Limit != zlimit.Slots("slots", 2, zlimit.Term(10*time.Second)) {
			t.Errorf("status = %+v", status)
		}
		check.Fatal(t, "Commit()", first.Commit(t.Context()))
		third := acquire(t, l, oneSlot)
		if third.Fence() <= second.Fence() {
			t.Errorf("fencing numbers are %d and then %d", second.Fence(), third.Fence())
		}
		reject(t, l, oneSlot)
		check.Fatal(t, "Rollback()", second.Rollback(t.Context()))
		if isLost(first) || isLost(second) || isLost(third) {
			t.Error("a lease is lost")
		}
		other := newLimiter(t, s)
		held := acquire(t, other, oneSlot)
		reject(t, l, oneSlot)
		check.Fatal(t, "Close()", other.Close())
		if !isLost(held) {
			t.Error("the limiter was closed, and its lease is not lost")
		}
		acquire(t, l, oneSlot)
	})
}

// TestSlotsGoOn checks that a process holds a slot for many terms, while another slot is taken and given back.
func TestSlotsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory(t)
		l := newLimiter(t, s)
		slots(t, l, 2)
		lease := acquire(t, l, oneSlot)
		for range 50 {
			time.Sleep(7 * time.Second)
			if isLost(lease) {
				t.Fatal("the lease is lost")
			}
			second := acquire(t, l, oneSlot)
			reject(t, l, oneSlot)
			check.Fatal(t, "Commit()", second.Commit(context.WithoutCancel(t.Context())))
		}
		check.Fatal(t, "Commit()", lease.Commit(t.Context()))
		check.Fatal(t, "Close()", l.Close())
	})
}

// In TestSlotsWait, callers of two processes wait for slots. Callers of one process get them in the order in which they came.
func TestSlotsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory(t)
		l, other := newLimiter(t, s), newLimiter(t, s)
		slots(t, l, 1)
		lease := acquire(t, l, oneSlot)
		began := time.Now()
		if _, err := l.Wait(t.Context(), oneSlot, zlimit.MaxWait(3*time.Second)); !errors.As(err, new(*zlimit.ExceededError)) || time.Since(began) != 3*time.Second {
			t.Errorf("Wait() = %v after %v, want that the limit is exceeded after 3s", err, time.Since(began))
		}
		order := make(chan int, 8)
		for i := range 4 {
			go func() {
				lease, err := l.Wait(context.Background(), oneSlot, zlimit.MaxWait(time.Hour))
				if err != nil {
					t.Errorf("Wait() = %v", err)
					return
				}
				order <- i
				time.Sleep(time.Second)
				check.Error(t, "Commit()", lease.Commit(context.Background()))
			}()
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		if got := l.Stats().Waiting; got != 4 {
			t.Errorf("%d are waiting", got)
		}
		time.Sleep(25 * time.Second)
		began = time.Now()
		check.Fatal(t, "Commit()", lease.Commit(t.Context()))
		for i := range 4 {
			if got := <-order; got != i {
				t.Errorf("caller %d comes in place of %d", got, i)
			}
		}
		if took := time.Since(began); took > 3500*time.Millisecond {
			t.Errorf("the last one has its slot after %v", took)
		}
		elsewhere, err := other.Wait(t.Context(), oneSlot, zlimit.MaxWait(time.Minute))
		if err != nil || time.Since(began) > 6*time.Second {
			t.Errorf("another process waits until %v, %v", time.Since(began), err)
		}
		if got := l.Stats(); got.Waiting != 0 || got.Waited != 4 {
			t.Errorf("stats = %+v", got)
		}
		canceled, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began = time.Now()
		if _, err := l.Wait(canceled, oneSlot, zlimit.MaxWait(time.Minute)); err == nil || time.Since(began) > 2*time.Second {
			t.Errorf("Wait() = %v after %v", err, time.Since(began))
		}
		check.Fatal(t, "Commit()", elsewhere.Commit(t.Context()))
		closeLimiters(t, l, other)
	})
}

func closeLimiters(t *testing.T, limiters ...*zlimit.RateLimiter) {
	t.Helper()
	for _, l := range limiters {
		check.Error(t, "Close()", l.Close())
	}
}

// In TestSlotsBesideTokens, requests take slots and tokens, of an entity and its parent, all or nothing.
func TestSlotsBesideTokens(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s, zlimit.WithRejectionCache(0))
		slots(t, l, 2, zlimit.PerDay("rpm", 10))
		create(t, l, zlimit.Entity{ID: "org"})
		for _, id := range []string{"key-1", "key-2"} {
			create(t, l, zlimit.Entity{ID: id, ParentID: "org", Cascade: true})
		}
		both := zlimit.Request{Entity: "key-1", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 3, "slots": 1}}
		first := acquire(t, l, both)
		other := both
		other.Entity = "key-2"
		second := acquire(t, l, other)
		left := func(entity string, rpm, slots int64) {
			t.Helper()
			statuses := check.Call(l.Available(t.Context(), zlimit.AvailableQuery{Entity: entity, Resource: "gpt-4"})).Must(t, "Available()")
			r, _ := statuses.Limit("rpm")
			s, ok := statuses.Limit("slots")
			if r.Available != rpm || s.Available != slots || !ok {
				t.Errorf("%s has %d requests and %d slots, want %d and %d", entity, r.Available, s.Available, rpm, slots)
			}
		}
		left("key-1", 7, 1)
		left("key-2", 7, 1)
		left("org", 4, 0)
		_, err := l.Acquire(t.Context(), both) // the parent has no slot, and the entity has one
		var exceeded *zlimit.ExceededError
		if !errors.As(err, &exceeded) || len(exceeded.Violations()) != 1 || exceeded.Violations()[0].Entity != "org" || exceeded.Violations()[0].Limit.Name != "slots" {
			t.Fatalf("Acquire() = %v, want that the parent has no slot", err)
		}
		left("key-1", 7, 1)
		left("org", 4, 0)
		if err := first.Adjust(zlimit.Amounts{"slots": -1}); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("Adjust() of slots = %v", err)
		}
		if err := first.Consume(t.Context(), zlimit.Amounts{"slots": 1}); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("Consume() of slots = %v", err)
		}
		check.Fatal(t, "Adjust()", first.Adjust(zlimit.Amounts{"rpm": -1}))
		check.Fatal(t, "Commit()", first.Commit(t.Context()))
		left("key-1", 8, 2)
		left("org", 5, 1)
		check.Fatal(t, "Rollback()", second.Rollback(t.Context()))
		left("key-2", 10, 2)
		left("org", 8, 2)
		large := both
		large.Consume = zlimit.Amounts{"rpm": 9, "slots": 1} // more tokens than the parent has
		if _, err := l.Acquire(t.Context(), large); !errors.As(err, &exceeded) {
			t.Fatalf("Acquire() = %v, want that tokens are short", err)
		}
		left("key-1", 8, 2)
		left("org", 8, 2)
		large.Consume = zlimit.Amounts{"slots": 3}
		if _, err := l.Acquire(t.Context(), large); !errors.As(err, &exceeded) || exceeded.Possible() {
			t.Fatalf("Acquire() = %v, want that it can never succeed", err)
		}
	})
}

// TestSlotsChange changes the number of slots and their term while some are held.
func TestSlotsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newMemory(t), zlimit.WithRejectionCache(0))
		slots(t, l, 3)
		first, second := acquire(t, l, oneSlot), acquire(t, l, oneSlot)
		slots(t, l, 1) // fewer than are held
		reject(t, l, oneSlot)
		check.Fatal(t, "Commit()", first.Commit(t.Context()))
		reject(t, l, oneSlot)
		at := zlimit.Level{Resource: "gpt-4"}
		err := l.Limits.Set(t.Context(), at, zlimit.Config{Limits: []zlimit.Limit{zlimit.Slots("slots", 2, zlimit.Term(20*time.Second))}})
		check.Fatal(t, "Limits.Set()", err)
		third := acquire(t, l, oneSlot)
		reject(t, l, oneSlot)
		time.Sleep(time.Minute)
		reject(t, l, oneSlot)
		for _, lease := range []*zlimit.Lease{second, third} {
			if isLost(lease) {
				t.Error("a lease is lost")
			}
			check.Fatal(t, "Commit()", lease.Commit(t.Context()))
		}
		fourth := acquire(t, l, oneSlot)
		time.Sleep(time.Minute)
		if isLost(fourth) || fourth.Fence() <= third.Fence() {
			t.Errorf("lost %t, fencing numbers %d and then %d", isLost(fourth), third.Fence(), fourth.Fence())
		}
		item := item(t, l)
		if term, ok := item.Get("s_slots_tm").Int(); !ok || term != 20_000 {
			t.Errorf("the item has the term %d", term)
		}
		check.Fatal(t, "Commit()", fourth.Commit(t.Context()))
		closeLimiters(t, l)
	})
}

// In TestSlotsOfADeletedBucket, a bucket is deleted manually. The holders of its slots are notified, and fencing numbers go on rising.
func TestSlotsOfADeletedBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := newMemory(t)
		l, other := newLimiter(t, kept, zlimit.WithRejectionCache(0)), newLimiter(t, kept)
		slots(t, l, 1)
		first := acquire(t, l, oneSlot)
		time.Sleep(time.Second)
		check.Fatal(t, "Delete()", l.Calls().Delete(t.Context(), []store.Key{keyOfBucket(l)}))
		second := acquire(t, other, oneSlot)
		if second.Fence() <= first.Fence() {
			t.Errorf("fencing numbers are %d and then %d", first.Fence(), second.Fence())
		}
		time.Sleep(12 * time.Second) // a term, and the time in which processes renew
		if !isLost(first) || isLost(second) {
			t.Errorf("the first is lost: %t, the second: %t", isLost(first), isLost(second))
		}
		check.Error(t, "Commit()", first.Commit(t.Context()))
		reject(t, l, oneSlot)
		closeLimiters(t, l, other)
	})
}

// TestSlotsOfADividedBucket takes slots before a split and after it, and gives them back after a merge. Slots beside tokens are taken of a
// divided bucket.
func TestSlotsOfADividedBucket(t *testing.T) {
	forEachPartition(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithRejectionCache(0))
		slots(t, l, 3, zlimit.PerMinute("rpm", 6000))
		both := ask(zlimit.Amounts{"rpm": 10, "slots": 1})
		first := acquire(t, l, both)
		split(t, l)
		second := acquire(t, l, both)
		split(t, l)
		third := acquire(t, l, both)
		reject(t, l, oneSlot)
		if _, err := l.Acquire(t.Context(), both); !errors.As(err, new(*zlimit.ExceededError)) {
			t.Errorf("Acquire() = %v, want that no slot is free", err)
		}
		check.Fatal(t, "Commit()", second.Commit(t.Context()))
		c.sleep(time.Minute) // shards merge when they are full
		for range 2 {
			check.Fatal(t, "resizeEach()", resizeEach(t.Context(), l, l.Calls(), mergeShard))
		}
		if shards := storedShards(t, l, "key-1"); len(shards) != 1 {
			t.Fatalf("the bucket has %d shards", len(shards))
		}
		if status, _ := statuses(t, l).Limit("slots"); status.Available != 3 { // by the clock all are lost
			t.Errorf("%d slots are free", status.Available)
		}
		for _, lease := range []*zlimit.Lease{first, third} {
			check.Fatal(t, "Rollback()", lease.Rollback(t.Context()))
		}
		item := item(t, l)
		sum := int64(0)
		for _, name := range []string{"s_slots_fr", "s_slots_h0", "s_slots_h1"} {
			n, _ := item.Get(name).Int()
			sum += n
		}
		if free, _ := item.Get("s_slots_fr").Int(); sum != 3 || free != 3 {
			t.Errorf("the item has %v free of %v", free, sum)
		}
	})
}

// TestSlotsHeldByOneWrite checks that a process that holds many slots of two limits writes once a term for all of them.
func TestSlotsHeldByOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hook(newMemory(t))
		l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithConfigTTL(time.Hour))
		slots(t, l, 20, zlimit.Slots("others", 9, zlimit.Term(10*time.Second)))
		var leases []*zlimit.Lease
		for range 7 {
			leases = append(leases, acquire(t, l, ask(zlimit.Amounts{"slots": 2, "others": 1})))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		before := s.writes.Load()
		time.Sleep(30 * 10 * time.Second)
		if got := s.writes.Load() - before; got != 30 {
			t.Errorf("%d writes in 30 terms", got)
		}
		for _, lease := range leases {
			if isLost(lease) {
				t.Error("a lease is lost")
			}
		}
		before = s.writes.Load()
		var group sync.WaitGroup
		for _, lease := range leases {
			group.Go(func() { check.Error(t, "Commit()", lease.Commit(context.Background())) })
		}
		group.Wait()
		if got := s.writes.Load() - before; got > 7 {
			t.Errorf("%d writes give back 7 leases", got)
		}
		if statuses := statuses(t, l); statuses[0].Available != 9 || statuses[1].Available != 20 {
			t.Errorf("free are %+v", statuses)
		}
		closeLimiters(t, l)
	})
}

// A clockedStore reports the time, and how exactly.
type clockedStore struct {
	store.Store
	wrong atomic.Int64 // nanoseconds; negative while the time is not known
}

func (s *clockedStore) Offset() (time.Duration, bool) { return 0, s.wrong.Load() >= 0 }

func (s *clockedStore) Bounds() (least, most time.Duration, known bool) {
	wrong := time.Duration(s.wrong.Load())
	return -wrong, wrong, wrong >= 0
}

// In TestSlotsNeedAClock, requests fail if the clock is not known to a tenth of the term, and stays so. Nothing is taken, and no policy
// admits them. What is held goes on until it is lost.
func TestSlotsNeedAClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &clockedStore{Store: store.Of(newMemory(t))}
		l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithConfigTTL(time.Hour))
		slots(t, l, 3)
		for wrong, known := range map[time.Duration]bool{-1: false, 0: true, 900 * time.Millisecond: true, 1100 * time.Millisecond: false} {
			s.wrong.Store(int64(wrong))
			lease, err := l.Acquire(t.Context(), oneSlot)
			if known != (err == nil) || !known && (!errors.Is(err, zlimit.ErrClock) || errors.As(err, new(*zlimit.UnavailableError))) {
				t.Errorf("a clock that may be wrong by %v: Acquire() = %v", wrong, err)
			}
			if err == nil {
				check.Fatal(t, "Commit()", lease.Commit(t.Context()))
			}
		}
		s.wrong.Store(0)
		lease := acquire(t, l, oneSlot)
		s.wrong.Store(-1)
		allowed := oneSlot
		allowed.OnUnavailable = zlimit.PolicyAllow
		if lease, err := l.Acquire(t.Context(), allowed); !errors.Is(err, zlimit.ErrClock) {
			t.Errorf("with PolicyAllow and no clock, Acquire() = %v, %v, want ErrClock: the store is there", lease, err)
		}
		began := time.Now()
		<-lease.Lost()
		if after := time.Since(began); after < 8*time.Second || after > 18*time.Second { // of two terms, the first of which has begun
			t.Errorf("the lease is lost after %v", after)
		}
		closeLimiters(t, l)
	})
}

// A driftingStore reports the time by its replies alone: what is known of it loses exactness while none comes.
type driftingStore struct {
	store.Store
	last  atomic.Pointer[time.Time] // of a reply
	exact time.Duration             // just after one
	drift float64                   // in a second, seconds
}

func (s *driftingStore) Offset() (time.Duration, bool) { return 0, s.last.Load() != nil }

func (s *driftingStore) Bounds() (least, most time.Duration, known bool) {
	last := s.last.Load()
	if last == nil {
		return 0, 0, false
	}
	wrong := s.exact + time.Duration(s.drift*float64(time.Since(*last)))
	return -wrong, wrong, true
}

func (s *driftingStore) replied() {
	now := time.Now()
	s.last.Store(&now)
}

func (s *driftingStore) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	defer s.replied()
	return s.Store.Read(ctx, keys, consistent)
}

func (s *driftingStore) Write(ctx context.Context, w store.Write) (store.Result, error) {
	defer s.replied()
	return s.Store.Write(ctx, w)
}

// TestSlotsAloneGoOn holds a slot in a process that makes no other calls. What it knows of the clock is not exact enough when the slot is due,
// so it asks the store for the time, and the slot is not lost.
func TestSlotsAloneGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &driftingStore{Store: store.Of(newMemory(t)), exact: 900 * time.Millisecond, drift: 0.05}
		l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithConfigTTL(time.Hour))
		slots(t, l, 3)
		lease := acquire(t, l, oneSlot)
		time.Sleep(5 * time.Minute)
		if isLost(lease) {
			t.Error("the lease is lost")
		}
		check.Fatal(t, "Commit()", lease.Commit(t.Context()))
		closeLimiters(t, l)
	})
}
