package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A gate holds the writes of buckets up until it is opened, and counts calls.
type gate struct {
	store.Store
	shut          atomic.Pointer[chan struct{}]
	next          atomic.Pointer[func() *store.Error] // is done before the next write, which comes back with its error
	writes, reads atomic.Int64
}

// close shuts the gate, and returns the function that opens it.
func (g *gate) close() (open func()) {
	shut := make(chan struct{})
	g.shut.Store(&shut)
	return func() {
		g.shut.Store(nil)
		close(shut)
	}
}

func (g *gate) pass() {
	if shut := g.shut.Load(); shut != nil {
		<-*shut
	}
}

func (g *gate) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if _, ok := layout.ParseBucketKey(w.Key); !ok || faulttest.EntersIndex(w) {
		return g.Store.Write(ctx, w)
	}
	g.writes.Add(1)
	var failed *store.Error
	if next := g.next.Swap(nil); next != nil {
		failed = (*next)()
	}
	g.pass()
	result, err := g.Store.Write(ctx, w)
	if failed != nil {
		return store.Result{}, failed
	}
	return result, err
}

func (g *gate) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	g.reads.Add(1)
	return g.Store.Read(ctx, keys, consistent)
}

// waitingFor returns how many callers wait to share a write of an entity's bucket.
func waitingFor(l *zlimit.RateLimiter, entity string) func() int {
	return l.Engine().Memory.Bucket(entity, "gpt-4").Waiting
}

// together runs callers at the same time: the first one's write is held up until all others wait for it, and
// meanwhile is done.
func together(g *gate, waiting func() int, callers int, call func(caller int), meanwhile func()) {
	open := g.close()
	before := g.writes.Load()
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() { call(i) })
		for i == 0 && g.writes.Load() == before {
			runtime.Gosched()
		}
	}
	for waiting() < callers-1 {
		runtime.Gosched()
	}
	if meanwhile != nil {
		meanwhile()
	}
	g.writes.Store(0)
	g.reads.Store(0)
	open()
	group.Wait()
}

// newCoalescing returns a limiter that shares writes, and knows the usual bucket of 100 tokens a day, of which one is
// taken.
func newCoalescing(t *testing.T) (*zlimit.RateLimiter, *gate, *witness) {
	t.Helper()
	w := newWitness(store.Of(newMemory(t)))
	g := &gate{Store: w}
	l := newLimiter(t, zlimit.StoreOn(g), zlimit.WithClock(newClock().now), zlimit.WithCoalescing(), zlimit.WithCallTimeout(time.Minute))
	setSystem(t, l, zlimit.PerDay("rpd", 100), zlimit.PerDay("tpd", 1000))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
	t.Cleanup(func() { check.Error(t, "verdict()", w.verdict()) })
	return l, g, w
}

// TestCoalescing sends 50 requests while a write is under way: they share one, and so do their commits.
func TestCoalescing(t *testing.T) {
	l, g, w := newCoalescing(t)
	leases := make([]*zlimit.Lease, 51)
	together(g, waitingFor(l, "key-1"), 51, func(i int) {
		leases[i] = acquire(t, l, ask(zlimit.Amounts{"rpd": 1, "tpd": int64(i % 3)}))
	}, nil)
	if writes, reads := g.writes.Load(), g.reads.Load(); writes != 1 || reads != 0 {
		t.Errorf("%d writes and %d reads for 50 requests, want 1 and 0", writes, reads)
	}
	if r, p := w.counted("key-1", "rpd"), w.counted("key-1", "tpd"); r != 52 || p != 51 {
		t.Errorf("the bucket counts %v and %v, want 52 and 51", r, p)
	}
	together(g, waitingFor(l, "key-1"), 51, func(i int) {
		if err := errors.Join(leases[i].Adjust(zlimit.Amounts{"tpd": int64(i%3 + 1)}), leases[i].Commit(context.Background())); err != nil {
			t.Errorf("Adjust() and Commit() = %v", err)
		}
	}, nil)
	if writes := g.writes.Load(); writes != 1 {
		t.Errorf("%d writes for 50 commits, want 1", writes)
	}
	if got := w.counted("key-1", "tpd"); got != 153 {
		t.Errorf("the bucket counts %v, want 153", got)
	}
}

// TestCoalescedRejections sends more requests than the bucket has room for. Those that fit are admitted in one write,
// and the others are rejected without a call of their own, each with its own status.
func TestCoalescedRejections(t *testing.T) {
	l, g, w := newCoalescing(t)
	acquire(t, l, ask(zlimit.Amounts{"rpd": 69})) // 30 are left
	var admitted, rejected atomic.Int64
	together(g, waitingFor(l, "key-1"), 61, func(int) {
		_, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"rpd": 1}))
		var exceeded *zlimit.ExceededError
		switch {
		case err == nil:
			admitted.Add(1)
		case errors.As(err, &exceeded):
			rejected.Add(1)
			if s, _ := exceeded.Statuses.Limit("rpd"); s.Requested != 1 || s.Available != 0 || !s.Exceeded {
				t.Errorf("status %+v, want one requested of none", s)
			}
		default:
			t.Errorf("Acquire() = %v", err)
		}
	}, nil)
	if admitted.Load() != 30 || rejected.Load() != 31 || w.counted("key-1", "rpd") != 100 {
		t.Errorf("%d admitted and %d rejected, want 30 and 31", admitted.Load(), rejected.Load())
	}
	if calls := g.writes.Load() + g.reads.Load(); calls > 3 {
		t.Errorf("%d calls for 60 requests, want the refused write or read, that of those that fit, and a read at most", calls)
	}
}

// In TestCoalescedRejectionsAfterOthers, another process takes nearly all that a batch was last seen to have. The batch
// learns that from its refused write, and not by a call for each of its callers.
func TestCoalescedRejectionsAfterOthers(t *testing.T) {
	l, g, w := newCoalescing(t)
	other := newLimiter(t, zlimit.StoreOn(w), zlimit.WithClock(newClock().now))
	var admitted, rejected atomic.Int64
	together(g, waitingFor(l, "key-1"), 61, func(int) {
		_, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"rpd": 1}))
		switch {
		case err == nil:
			admitted.Add(1)
		case errors.As(err, new(*zlimit.ExceededError)):
			rejected.Add(1)
		default:
			t.Errorf("Acquire() = %v", err)
		}
	}, func() { acquire(t, other, ask(zlimit.Amounts{"rpd": 89})) }) // 10 of 99 are left
	if admitted.Load() != 10 || rejected.Load() != 51 || w.counted("key-1", "rpd") != 100 {
		t.Errorf("%d admitted and %d rejected, want 10 and 51", admitted.Load(), rejected.Load())
	}
	if calls := g.writes.Load() + g.reads.Load(); calls > 4 {
		t.Errorf("%d calls for 61 requests, want the two refused writes, that of those that fit, and a read at most", calls)
	}
}

// TestCoalescedCancellation lets callers give up, some while they wait and some while their write is under way. What
// was taken for them comes back, and no other caller waits for that.
func TestCoalescedCancellation(t *testing.T) {
	l, g, w := newCoalescing(t)
	early, quit := context.WithCancel(context.Background())
	late, leave := context.WithCancel(context.Background())
	var gone [3]sync.WaitGroup // by kind of caller: those that stay, that leave early, and late
	for kind := range gone {
		gone[kind].Add(5)
	}
	contexts := []context.Context{context.Background(), early, late}
	together(g, waitingFor(l, "key-1"), 16, func(i int) { // 0 goes ahead; of 1 to 15 five each
		ctx := contexts[i%3]
		_, err := l.Acquire(ctx, ask(zlimit.Amounts{"rpd": 1}))
		if want := ctx.Err(); !errors.Is(err, want) {
			t.Errorf("Acquire() = %v, want %v", err, want)
		}
		if i > 0 {
			gone[i%3].Done()
		}
	}, func() {
		quit()
		gone[1].Wait()
		giveBack := func() *store.Error {
			gone[0].Wait()
			return nil
		}
		next := func() *store.Error {
			leave()
			gone[2].Wait()
			g.next.Store(&giveBack)
			return nil
		}
		g.next.Store(&next)
	})
	l.Engine().Quiesce()
	if got := w.counted("key-1", "rpd"); got != 7 {
		t.Errorf("the bucket counts %v, want 7: one before, one ahead, five that stayed", got)
	}
}

// TestCloseWithRefunds closes the limiter while tokens of callers that gave up wait to be given back in one write.
// The tokens come back, since closing waits for them.
func TestCloseWithRefunds(t *testing.T) {
	l, g, w := newCoalescing(t)
	late, leave := context.WithCancel(context.Background())
	var gone, closing sync.WaitGroup
	gone.Add(10)
	waiting := waitingFor(l, "key-1")
	together(g, waiting, 11, func(i int) { // 0 goes ahead, the others give up
		if i == 0 {
			acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
			return
		}
		if _, err := l.Acquire(late, ask(zlimit.Amounts{"rpd": 1})); !errors.Is(err, context.Canceled) {
			t.Errorf("Acquire() = %v, want %v", err, context.Canceled)
		}
		gone.Done()
	}, func() {
		giveBack := func() *store.Error { // of the first of them, while the others wait for it
			for waiting() < 9 {
				runtime.Gosched()
			}
			closing.Go(func() { check.Error(t, "Close()", l.Close()) })
			for l.Engine().Begin() {
				l.Engine().End()
				runtime.Gosched()
			}
			return nil
		}
		next := func() *store.Error {
			leave()
			gone.Wait()
			g.next.Store(&giveBack)
			return nil
		}
		g.next.Store(&next)
	})
	l.Engine().Quiesce()
	closing.Wait()
	if got := w.counted("key-1", "rpd"); got != 2 {
		t.Errorf("the bucket counts %v, want 2: one before, one ahead", got)
	}
	if got := l.Stats().Unreturned; got != 0 {
		t.Errorf("Stats().Unreturned = %d, want 0", got)
	}
}

// TestCoalescedFailures loses the reply of a shared write: all callers hear that the outcome is unknown.
func TestCoalescedFailures(t *testing.T) {
	l, g, w := newCoalescing(t)
	var unknown atomic.Int64
	together(g, waitingFor(l, "key-1"), 11, func(int) {
		_, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"rpd": 1}))
		var outage *zlimit.UnavailableError
		if errors.As(err, &outage) && outage.Unknown {
			unknown.Add(1)
		} else if err != nil {
			t.Errorf("Acquire() = %v, want an UnavailableError with an unknown outcome", err)
		}
	}, func() {
		next := func() *store.Error { return &store.Error{Op: "write", Unavailable: true, Unknown: true, Err: errLost} }
		g.next.Store(&next)
	})
	if unknown.Load() != 10 || w.counted("key-1", "rpd") != 12 || l.Stats().UnknownOutcomes != 1 {
		t.Errorf("%d unknown of %d writes, and the bucket counts %v, want 10 of one, and 12",
			unknown.Load(), l.Stats().UnknownOutcomes, w.counted("key-1", "rpd"))
	}
}

// In TestCoalescedParents, children, each with a bucket of its own, share the writes of their parent's.
func TestCoalescedParents(t *testing.T) {
	g := &gate{Store: store.Of(newMemory(t))}
	l := newLimiter(t, zlimit.StoreOn(g), zlimit.WithClock(newClock().now), zlimit.WithCoalescing())
	setSystem(t, l, zlimit.PerDay("tpd", 100))
	putEntity(t, l, "team", "")
	request := func(i int) zlimit.Request {
		return zlimit.Request{Entity: fmt.Sprintf("child-%d", i), Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": 3}}
	}
	for i := range 50 {
		putEntity(t, l, request(i).Entity, "team")
		check.Fatal(t, "Rollback()", acquire(t, l, request(i)).Rollback(context.Background()))
	}
	var admitted atomic.Int64
	together(g, waitingFor(l, "team"), 50, func(i int) {
		_, err := l.Acquire(context.Background(), request(i))
		if err == nil {
			admitted.Add(1)
		} else if !errors.As(err, new(*zlimit.ExceededError)) {
			t.Errorf("Acquire() = %v", err)
		}
	}, nil)
	if got := storedLimit(t, l, "team", "tpd"); admitted.Load() != 33 || got.Tokens != 1000 || got.Consumed != 99_000 {
		t.Errorf("%d admitted, and the parent has %d and counts %d, want 33, 1000 and 99000", admitted.Load(), got.Tokens, got.Consumed)
	}
	for i := range 50 {
		if got := storedLimit(t, l, request(i).Entity, "tpd"); got.Tokens+got.Consumed != 100_000 || got.Consumed != 0 && got.Consumed != 3000 {
			t.Errorf("child %d has %d and counts %d", i, got.Tokens, got.Consumed)
		}
	}
}

// TestCoalescingUnderLoad lets goroutines acquire, settle and cancel as they like, on whole and split buckets. A
// witness judges the writes, and in the end the bucket counts what the leases hold.
func TestCoalescingUnderLoad(t *testing.T) {
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
			l, _, w := newCoalescing(t)
			for n := 1; n < shards; n *= 2 {
				split(t, l)
			}
			var held atomic.Int64
			held.Add(1)
			var group sync.WaitGroup
			for range 32 {
				group.Go(func() {
					for range 60 {
						held.Add(visit(t, l))
					}
				})
			}
			group.Wait()
			l.Engine().Quiesce()
			if got := w.counted("key-1", "rpd"); got != float64(held.Load()) {
				t.Errorf("the bucket counts %v, and the leases hold %d", got, held.Load())
			}
			tokens, _, capacity := total(shardsOf(t, l), "rpd")
			if tokens != 100_000-held.Load()*1000 || capacity != 100_000 {
				t.Errorf("the bucket has %d of %d, and the leases hold %d", tokens, capacity, held.Load())
			}
		})
	}
}

// visit acquires, and mostly gives back; it returns what it keeps of rpd.
func visit(t *testing.T, l *zlimit.RateLimiter) int64 {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if rand.IntN(4) == 0 {
		go func() {
			runtime.Gosched()
			cancel()
		}()
	}
	n := rand.Int64N(8)
	lease, err := l.Acquire(ctx, ask(zlimit.Amounts{"rpd": n, "tpd": 1}))
	switch {
	case errors.As(err, new(*zlimit.ExceededError)), errors.Is(err, context.Canceled):
		return 0
	case err != nil:
		t.Errorf("Acquire() = %v", err)
		return 0
	}
	switch rand.IntN(8) {
	case 0:
		return n
	case 1:
		check.Error(t, "Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rpd": 1 - n}), lease.Commit(ctx)))
		return 1
	default:
		check.Error(t, "Rollback()", lease.Rollback(ctx))
		return 0
	}
}

// TestCloseWithRiders closes the limiter while requests wait for a write: they end.
func TestCloseWithRiders(t *testing.T) {
	l, g, _ := newCoalescing(t)
	together(g, waitingFor(l, "key-1"), 11, func(int) {
		if _, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"rpd": 1})); err != nil && !errors.Is(err, zlimit.ErrClosed) {
			t.Errorf("Acquire() = %v, want ErrClosed", err)
		}
	}, func() {
		check.Error(t, "Close()", l.Close())
	})
}

// TestCoalescedChangeOfLimits takes away a limit that some of the callers that share a write ask for: they alone
// notice it.
func TestCoalescedChangeOfLimits(t *testing.T) {
	s := newMemory(t)
	c := newClock()
	g := &gate{Store: store.Of(s)}
	l := newLimiter(t, zlimit.StoreOn(g), zlimit.WithClock(c.now), zlimit.WithCoalescing())
	other := newLimiter(t, s, zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerDay("rpd", 100), zlimit.PerDay("tpd", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
	c.sleep(2 * time.Second)
	together(g, waitingFor(l, "key-1"), 11, func(i int) {
		limit := []string{"rpd", "tpd"}[i%2]
		_, err := l.Acquire(context.Background(), ask(zlimit.Amounts{limit: 1}))
		if gone := errors.As(err, new(*zlimit.ValidationError)); gone != (limit == "tpd") || !gone && err != nil {
			t.Errorf("Acquire() of %s = %v, want an error for tpd alone", limit, err)
		}
	}, func() {
		setSystem(t, other, zlimit.PerDay("rpd", 50))
		acquire(t, other, ask(zlimit.Amounts{"rpd": 1}))
	})
	if got := available(t, other, "rpd"); got != 43 {
		t.Errorf("%d are left, want 43: of 50 one of the other process, one ahead, and five", got)
	}
}
