package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// askAs is ask for a request with an ID.
func askAs(id string, consume zlimit.Consumption) zlimit.Request {
	r := ask(consume)
	r.ID = id
	return r
}

// setFamily stores limits for an entity with two parents, the nearer of which has less.
func setFamily(t *testing.T, l *zlimit.RateLimiter) {
	t.Helper()
	putChain(t, l, "org", "team", "key-1")
	setSystem(t, l, zlimit.PerDay("tpd", 400), zlimit.PerDay("rpd", 50))
	config := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tpd", 300), zlimit.PerDay("rpd", 50)}}
	check.Fatal(t, "Limits.Set()", l.Limits.Set(context.Background(), zlimit.Level{Entity: "team", Resource: "gpt-4"}, config))
}

// countedOf returns the consumption of an entity and of its parents, in tokens.
func countedOf(t *testing.T, l *zlimit.RateLimiter, limit string) (counted [3]int64) {
	t.Helper()
	for i, entity := range []string{"key-1", "team", "org"} {
		counted[i] = consumed(t, l, entity, limit)
	}
	return counted
}

// TestRepeatedRequests repeats requests with an ID, by the same process and by another one. They are charged once, and their leases are of
// the same tokens.
func TestRepeatedRequests(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setFamily(t, l)
		amounts := zlimit.Amounts{"tpd": 100, "rpd": 1}
		first := acquire(t, l, askAs("job-1", amounts))
		if first.Repeated() {
			t.Error("Repeated() of the first lease = true")
		}
		statuses := first.Statuses()
		if s, ok := statuses.Limit("tpd"); !ok || s.Available != 300 || s.Requested != 100 {
			t.Errorf("Statuses() = %v, want tpd with 300 left", statuses)
		}
		for i, by := range []*zlimit.RateLimiter{l, other, l} {
			again := acquire(t, by, askAs("job-1", amounts))
			if got := again.Consumed(); !again.Repeated() || !cmp.Equal(got, amounts) || again.Degraded() || len(again.Statuses()) > 0 {
				t.Errorf("%d: the lease is repeated: %t, of %v, want one of %v", i, again.Repeated(), got, amounts)
			}
		}
		for _, order := range []listed{{{"tpd", 100}, {"rpd", 1}}, {{"rpd", 1}, {"tpd", 100}}} {
			if _, err := other.Acquire(ctx, askAs("job-1", order)); err != nil {
				t.Errorf("Acquire() with the amounts in the order %v = %v", order, err)
			}
		}
		if got := countedOf(t, other, "tpd"); got != [3]int64{100, 100, 100} {
			t.Errorf("tpd counts %v, want 100 of each", got)
		}
		if got := l.Stats().Admitted + other.Stats().Admitted; got != 1 {
			t.Errorf("%d requests are admitted, want 1", got)
		}
		for name, change := range map[string]func(r *zlimit.Request){
			"amounts":    func(r *zlimit.Request) { r.Consume = zlimit.Amounts{"tpd": 101, "rpd": 1} },
			"limit":      func(r *zlimit.Request) { r.Consume = zlimit.Amounts{"tpd": 100} },
			"resource":   func(r *zlimit.Request) { r.Resource = "gpt-5" },
			"priority":   func(r *zlimit.Request) { r.Priority = "batch" },
			"own limits": func(r *zlimit.Request) { r.Limits = []zlimit.Limit{zlimit.PerDay("tpd", 200), zlimit.PerDay("rpd", 2)} },
		} {
			r := askAs("job-1", amounts)
			change(&r)
			var reused *zlimit.ReusedIDError
			if _, err := other.Acquire(ctx, r); !errors.As(err, &reused) || !errors.Is(err, zlimit.ErrReusedID) || *reused != (zlimit.ReusedIDError{Entity: "key-1", ID: "job-1"}) {
				t.Errorf("Acquire() with the ID and another %s = %v, want a ReusedIDError", name, err)
			}
		}
		r := askAs("job-1", amounts)
		if r.Entity = "team"; acquire(t, other, r).Repeated() {
			t.Error("the request of another entity with the same ID is a repeated one")
		}
		c.sleep(24*time.Hour - time.Second)
		if !acquire(t, other, askAs("job-1", amounts)).Repeated() {
			t.Error("the request is not remembered for a day")
		}
	})
}

// recordOf returns the key of the record of a request with an ID, and the record.
func recordOf(t *testing.T, l *zlimit.RateLimiter, id string) (store.Key, layout.Request) {
	t.Helper()
	key := layout.RequestKey{NS: l.NS(), Entity: "key-1", Request: id}.Key()
	item := stored(t, l, key)
	if item == nil {
		t.Fatalf("%s has no record", id)
	}
	record := check.Call(layout.DecodeRequest(item)).Must(t, "layout.DecodeRequest()")
	return key, record
}

// TestRequestsAreForgotten decides a request again whose record has expired, after 24 hours and an hour at most. Leases of its first call
// are settled by themselves.
func TestRequestsAreForgotten(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerDay("tpd", 10_000))
		began := c.now()
		first := acquire(t, l, askAs("job-1", zlimit.Amounts{"tpd": 100}))
		key, record := recordOf(t, l, "job-1")
		if lasts := time.Unix(record.ExpiresAt, 0).Sub(began); lasts < 24*time.Hour || lasts > 25*time.Hour {
			t.Errorf("the request is remembered for %v, want 24 to 25 hours", lasts)
		}
		c.sleep(25 * time.Hour)
		if err := l.Calls().Delete(ctx, []store.Key{key}); err != nil { // as the store does with what has expired
			t.Fatalf("Delete() = %v", err)
		}
		before := available(t, l, "tpd")
		second := acquire(t, other, askAs("job-1", zlimit.Amounts{"tpd": 100}))
		if took := before - available(t, l, "tpd"); second.Repeated() || took != 100 {
			t.Errorf("the request after the end of its record is repeated: %t, and takes %d, want 100", second.Repeated(), took)
		}
		if again := acquire(t, l, askAs("job-1", zlimit.Amounts{"tpd": 100})); !again.Repeated() {
			t.Error("the request is not remembered after its second call")
		}
		before = available(t, l, "tpd")
		if err := errors.Join(first.Adjust(zlimit.Amounts{"tpd": 50}), first.Commit(ctx), second.Adjust(zlimit.Amounts{"tpd": 20}), second.Commit(ctx)); err != nil {
			t.Errorf("the settlements of both calls = %v", err)
		}
		if took := before - available(t, l, "tpd"); took != 70 {
			t.Errorf("the settlements of both calls take %d, want 50 and 20", took)
		}
	})
}

// TestRequestsOutliveTheirEntity repeats a request after its entity was deleted, and was created again. It takes nothing of the new buckets,
// and gives nothing to them.
func TestRequestsOutliveTheirEntity(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerDay("tpd", 1000))
		create(t, l, zlimit.Entity{ID: "key-1"})
		acquire(t, l, askAs("job-1", zlimit.Amounts{"tpd": 100}))
		check.Fatal(t, "Entities.Delete()", l.Entities.Delete(ctx, "key-1"))
		create(t, l, zlimit.Entity{ID: "key-1"})
		acquire(t, l, ask(zlimit.Amounts{"tpd": 30}))
		again := acquire(t, other, askAs("job-1", zlimit.Amounts{"tpd": 100}))
		if got := available(t, l, "tpd"); !again.Repeated() || got != 970 {
			t.Errorf("the request is repeated: %t, and leaves %d, want a repeated one that leaves 970", again.Repeated(), got)
		}
		if _, err := other.Acquire(ctx, askAs("job-1", zlimit.Amounts{"tpd": 5})); !errors.As(err, new(*zlimit.ReusedIDError)) {
			t.Errorf("Acquire() with the ID and another amount = %v, want a ReusedIDError", err)
		}
		check.Error(t, "Rollback()", again.Rollback(ctx))
		if got := available(t, l, "tpd"); got != 970 {
			t.Errorf("after the rollback %d are left, want 970", got)
		}
	})
}

// TestRejectionsAreNotRemembered decides again when a rejected request is repeated.
func TestRejectionsAreNotRemembered(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setFamily(t, l)
		acquire(t, l, ask(zlimit.Amounts{"tpd": 250}))
		var exceeded *zlimit.ExceededError
		_, err := l.Acquire(ctx, askAs("job-1", zlimit.Amounts{"tpd": 100}))
		if !errors.As(err, &exceeded) || exceeded.Violations()[0].Entity != "team" || exceeded.RetryAfter() <= 0 {
			t.Fatalf("Acquire() = %v, want a rejection by team", err)
		}
		if got := countedOf(t, l, "tpd"); got != [3]int64{250, 250, 250} {
			t.Errorf("tpd counts %v after a rejection, want 250 of each", got)
		}
		c.sleep(exceeded.RetryAfter())
		if acquire(t, l, askAs("job-1", zlimit.Amounts{"tpd": 100})).Repeated() {
			t.Error("the request that was rejected before is a repeated one")
		}
		if got := countedOf(t, l, "tpd"); got != [3]int64{350, 350, 350} {
			t.Errorf("tpd counts %v, want 350 of each", got)
		}
	})
}

// TestRepeatedRequestsSettleOnce settles leases of one request in several processes. The first settlement holds.
func TestRepeatedRequestsSettleOnce(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerDay("tpd", 100_000))
		commit := func(correction int64) func(*zlimit.Lease) error {
			return func(le *zlimit.Lease) error {
				return errors.Join(le.Adjust(zlimit.Amounts{"tpd": correction}), le.Commit(ctx))
			}
		}
		rollback := func(le *zlimit.Lease) error { return le.Rollback(ctx) }
		handOn := func(actual int64) func(*zlimit.Lease) error {
			return func(le *zlimit.Lease) error {
				return other.Settle(ctx, tokenOf(t, le), zlimit.Amounts{"tpd": actual})
			}
		}
		for i, test := range []struct {
			first, second func(*zlimit.Lease) error
			differs       bool
			want          int64
		}{
			{commit(-60), commit(-60), false, 40},
			{commit(-60), commit(-50), true, 40},
			{commit(30), commit(30), false, 130},
			{commit(0), commit(-60), true, 100},
			{rollback, rollback, false, 0},
			{rollback, commit(0), true, 0},
			{commit(0), rollback, true, 100},
			{handOn(70), commit(-30), false, 70},
			{commit(-30), handOn(70), false, 70},
			{commit(-30), handOn(71), true, 70},
		} {
			before := available(t, l, "tpd")
			id := fmt.Sprintf("job-%d", i)
			leases := []*zlimit.Lease{acquire(t, l, askAs(id, zlimit.Amounts{"tpd": 100})), acquire(t, other, askAs(id, zlimit.Amounts{"tpd": 100}))}
			first, second := leases[i%2], leases[1-i%2]
			if err := test.first(first); err != nil {
				t.Errorf("%d: the first settlement = %v", i, err)
			}
			if err := test.second(second); errors.Is(err, zlimit.ErrSettled) != test.differs || err != nil != test.differs {
				t.Errorf("%d: the second settlement = %v, want ErrSettled: %t", i, err, test.differs)
			}
			for _, lease := range leases {
				if err := lease.Commit(ctx); !errors.Is(err, zlimit.ErrLeaseClosed) {
					t.Errorf("%d: Commit() of a settled lease = %v, want ErrLeaseClosed", i, err)
				}
			}
			if got := before - available(t, l, "tpd"); got != test.want {
				t.Errorf("%d: %d are taken, want %d", i, got, test.want)
			}
		}
	})
}

// In TestRepeatedRequestsAtOnce, several processes make one request at the same time, which leaves nothing. None is rejected.
func TestRepeatedRequestsAtOnce(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		var processes []*zlimit.RateLimiter
		for range 4 {
			processes = append(processes, newLimiter(t, s, zlimit.WithClock(c.now)))
		}
		setSystem(t, processes[0], zlimit.PerDay("tpd", 100))
		for round := range 6 {
			id := fmt.Sprintf("job-%d", round)
			var mu sync.Mutex
			var group sync.WaitGroup
			fresh := 0
			for i := range 8 {
				group.Go(func() {
					lease, err := processes[i%4].Acquire(context.Background(), askAs(id, zlimit.Amounts{"tpd": 100}))
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Errorf("round %d: Acquire() = %v", round, err)
					} else if !lease.Repeated() {
						fresh++
					}
				})
			}
			group.Wait()
			if got := available(t, processes[0], "tpd"); fresh != 1 || got != 0 {
				t.Errorf("round %d: %d leases are new, and %d tokens are left, want 1 and 0", round, fresh, got)
			}
			c.sleep(24 * time.Hour)
		}
	})
}

// A meeting is a store whose first transactions begin together.
type meeting struct {
	store.Store
	absent atomic.Int64
	all    chan struct{} // closed when none is absent
}

func (m *meeting) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	if m.absent.Add(-1) == 0 {
		close(m.all)
	}
	select {
	case <-m.all:
		return m.Store.Transact(ctx, writes)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestRepeatedRequestsMeet makes one request in several processes, each of which has found no record of it when the others write. All of
// them would fit.
func TestRepeatedRequestsMeet(t *testing.T) {
	forEachStore(t, func(t *testing.T, base zlimit.Store) {
		for _, shards := range []int{1, 4} {
			const processes = 3
			m := &meeting{Store: store.Of(base), all: make(chan struct{})}
			m.absent.Store(processes)
			c := newClock()
			opts := []zlimit.Option{zlimit.WithClock(c.now), zlimit.WithNamespace(fmt.Sprintf("meet-%d", shards)), zlimit.WithTuning(zlimit.Tuning{MaxShards: 4})}
			first := newLimiter(t, base, opts...)
			prepareOnce(t, first, false, shards)
			before := countedOf(t, first, "tpd")
			var repeated atomic.Int64
			var group sync.WaitGroup
			for range processes {
				l := newLimiter(t, zlimit.StoreOn(m), opts...)
				group.Go(func() {
					lease, err := l.Acquire(context.Background(), askAs("job-1", zlimit.Amounts{"tpd": 20}))
					if err != nil {
						t.Errorf("%d shards: Acquire() = %v", shards, err)
					} else if lease.Repeated() {
						repeated.Add(1)
					}
				})
			}
			group.Wait()
			after := countedOf(t, first, "tpd")
			for i := range after {
				if took := after[i] - before[i]; took != 20 {
					t.Errorf("%d shards: entity %d is charged %d, want 20", shards, i, took)
				}
			}
			if got := repeated.Load(); got != processes-1 {
				t.Errorf("%d shards: %d leases are repeated ones, want %d", shards, got, processes-1)
			}
		}
	})
}

// A lossy store loses the reply to one write: before it is done, or after.
type lossy struct {
	store.Around
	faulttest.Nth // the write

	done bool
}

func newLossy(s store.Store, done bool) *lossy {
	l := &lossy{done: done}
	l.Around = store.Around{Store: s, Call: func(ctx context.Context, c *store.Call, do func(context.Context) error) error {
		if len(c.Writes) == 0 {
			return do(ctx)
		}
		if is, _ := l.Count(); !is {
			return do(ctx)
		}
		if l.done {
			_ = do(ctx)
		}
		return &store.Error{Op: "write", Unavailable: true, Unknown: true, Err: errors.New("no reply")}
	}}
	return l
}

// onceCases are buckets in which requests with an ID are repeated.
var onceCases = []struct {
	name    string
	shards  int
	fresh   bool // nothing was taken before
	request zlimit.Request
}{
	{"new buckets", 1, true, askAs("job-1", zlimit.Amounts{"tpd": 60, "rpd": 1})},
	{"buckets in use", 1, false, askAs("job-1", zlimit.Amounts{"tpd": 60, "rpd": 1})},
	{"one part of four", 4, false, askAs("job-1", zlimit.Amounts{"tpd": 10})},
	{"several parts of four", 4, false, askAs("job-1", zlimit.Amounts{"tpd": 180})},
	{"limits of the request", 1, false, zlimit.Request{
		ID: "job-1", Entity: "key-1", Resource: "gpt-4", Consume: zlimit.Amounts{"own": 5}, Limits: []zlimit.Limit{zlimit.PerDay("own", 10)},
	}},
}

// prepareOnce makes the buckets of a case.
func prepareOnce(t *testing.T, l *zlimit.RateLimiter, fresh bool, shards int) {
	t.Helper()
	setFamily(t, l)
	if fresh {
		return
	}
	acquire(t, l, ask(zlimit.Amounts{"tpd": 10}))
	for n := 1; n < shards; n *= 2 {
		split(t, l)
	}
}

// limitOf returns the first limit that a request names, and its amount.
func limitOf(r zlimit.Request) (string, int64) {
	for _, name := range []string{"tpd", "own"} {
		if tokens := r.Consume.(zlimit.Amounts)[name]; tokens > 0 {
			return name, tokens
		}
	}
	return "", 0
}

// TestRepliesToRequestsAreLost loses the reply to each write of a request with an ID, done or not. The request is repeated until it is
// answered, by the same process or by another one: it is charged once. So is its settlement.
func TestRepliesToRequestsAreLost(t *testing.T) {
	ctx := context.Background()
	forEachStoreAtNight(t, func(t *testing.T, base zlimit.Store) {
		for n, test := range onceCases {
			for m, done := range []bool{false, true} {
				for at := 1; ; at++ {
					s := newLossy(store.Of(base), done)
					c := newClock()
					ns := fmt.Sprintf("lost-%d-%d-%d", n, m, at)
					open := func() *zlimit.RateLimiter {
						return newLimiter(t, zlimit.StoreOn(s), zlimit.WithClock(c.now), zlimit.WithNamespace(ns), zlimit.WithTuning(zlimit.Tuning{MaxShards: 4}))
					}
					l, other := open(), open()
					prepareOnce(t, l, test.fresh, test.shards)
					limit, tokens := limitOf(test.request)
					before := countedOf(t, l, limit)
					s.Await(at)
					lease, err := l.Acquire(ctx, test.request)
					lost := s.Came()
					s.Await(0)
					if err != nil {
						var outage *zlimit.UnavailableError
						if !errors.As(err, &outage) || !outage.Unknown {
							t.Errorf("%s, write %d: Acquire() = %v, want an unknown outcome", test.name, at, err)
						}
					} else if got := lease.Consumed()[limit]; got != tokens {
						t.Errorf("%s, write %d: the lease has %d, want %d", test.name, at, got, tokens)
					}
					var again *zlimit.Lease
					for _, by := range []*zlimit.RateLimiter{l, other} {
						again = acquire(t, by, test.request)
					}
					if !again.Repeated() {
						t.Errorf("%s, write %d: the last request is not a repeated one", test.name, at)
					}
					after := countedOf(t, l, limit)
					for i := range after {
						if took := after[i] - before[i]; took != tokens && (limit != "own" || i == 0 || took != 0) {
							t.Errorf("%s, write %d, done %t: entity %d is charged %v, want %v", test.name, at, done, i, took, tokens)
						}
					}
					if err := again.Rollback(ctx); err != nil {
						t.Errorf("%s, write %d: Rollback() = %v", test.name, at, err)
					}
					if got := countedOf(t, l, limit); got != before {
						t.Errorf("%s, write %d: %v are counted after the rollback, want %v", test.name, at, got, before)
					}
					if !lost {
						break
					}
				}
			}
		}
	})
}

// TestProcessesThatAcquireAreKilled kills a process at each call of a request with an ID. Another process repeats the request: it is charged
// once.
func TestProcessesThatAcquireAreKilled(t *testing.T) {
	forEachStoreAtNight(t, func(t *testing.T, base zlimit.Store) {
		for n, test := range onceCases {
			for _, how := range []faulttest.Crash{faulttest.Before, faulttest.After} {
				for at := 1; ; at++ {
					w := newWitness(store.Of(base))
					m := faulttest.NewMortal(w)
					c := newClock()
					opts := []zlimit.Option{
						zlimit.WithClock(c.now), zlimit.WithNamespace(fmt.Sprintf("killed-%d-%s-%d", n, strings.ReplaceAll(string(how), " ", "-"), at)),
						zlimit.WithTuning(zlimit.Tuning{MaxShards: 4}),
					}
					survivor, victim := newLimiter(t, zlimit.StoreOn(w), opts...), newLimiter(t, zlimit.StoreOn(m), opts...)
					prepareOnce(t, survivor, test.fresh, test.shards)
					limit, tokens := limitOf(test.request)
					before := countedOf(t, survivor, limit)
					m.Kill(at, how)
					_, _ = victim.Acquire(context.Background(), test.request)
					died := m.Died()
					m.Kill(0, "")
					lease := acquire(t, survivor, test.request)
					if got := lease.Consumed()[limit]; got != tokens {
						t.Errorf("%s, call %d: the lease has %d, want %d", test.name, at, got, tokens)
					}
					after := countedOf(t, survivor, limit)
					if took := after[0] - before[0]; took != tokens {
						t.Errorf("%s, call %d, killed %s: %v are charged, want %v", test.name, at, how, took, tokens)
					}
					if err := w.verdict(); err != nil {
						t.Errorf("%s, call %d: %v", test.name, at, err)
					}
					if !died {
						break
					}
				}
			}
		}
	})
}

// TestInvalidIDs gives an ID to requests that cannot have one.
func TestInvalidIDs(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	setSystem(t, l, zlimit.PerDay("tpd", 400), zlimit.Slots("calls", 2))
	r := askAs("job-1", zlimit.Amounts{"tpd": 1})
	lease := acquire(t, l, r)
	_, wait := l.Wait(ctx, r)
	_, reserve := l.Reserve(ctx, r)
	_, together := l.AcquireAll(ctx, []zlimit.Request{r})
	_, slots := l.Acquire(ctx, askAs("job-2", zlimit.Amounts{"calls": 1}))
	_, spaces := l.Acquire(ctx, askAs("job 3", zlimit.Amounts{"tpd": 1}))
	_, long := l.Acquire(ctx, askAs(strings.Repeat("j", 1000), zlimit.Amounts{"tpd": 1}))
	for name, err := range map[string]error{
		"a request that waits": wait, "a reservation": reserve, "requests together": together, "slots": slots, "spaces": spaces, "a long ID": long,
		"more for the lease": lease.Consume(ctx, zlimit.Amounts{"tpd": 1}),
	} {
		if !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("%s: %v, want a ValidationError", name, err)
		}
	}
	if got := available(t, l, "tpd"); got != 399 {
		t.Errorf("tpd has %d, want 399", got)
	}
}
