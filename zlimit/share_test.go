package zlimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// as returns a request of a priority.
func as(priority string, consume zlimit.Amounts) zlimit.Request {
	r := ask(consume)
	r.Priority = priority
	return r
}

// shared stores a limit of 100 tokens a minute of which a tenth is guaranteed to a priority, with a floor of 20 % beside it.
func shared(t *testing.T, l *zlimit.RateLimiter) zlimit.Limit {
	t.Helper()
	limit := zlimit.PerMinute("rpm", 100).Share("batch", 10).Floor("batch", 20)
	setLimits(t, l, zlimit.Level{Resource: "gpt-4"}, limit)
	return limit
}

// standing returns what is available of the limit of shared, in the whole bucket.
func standing(t *testing.T, l *zlimit.RateLimiter) int64 {
	t.Helper()
	statuses, err := l.Available(t.Context(), zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
	if err != nil || len(statuses) != 1 || statuses[0].Limit.Name != "rpm" || statuses[0].Limit.Capacity != 100 {
		t.Fatalf("statuses are %+v, %v", statuses, err)
	}
	return statuses[0].Available
}

// TestShare takes of a guaranteed share and of the rest. A lease gives back where its tokens are from, and the limit is reported as a
// whole.
func TestShare(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		limit := shared(t, l)
		if limit.Floors != "batch=20+10" {
			t.Fatalf("floors are %q", limit.Floors)
		}
		if got, err := newLimiter(t, s).Limits.Get(ctx, zlimit.Level{Resource: "gpt-4"}); err != nil || len(got.Limits) != 1 || got.Limits[0] != limit {
			t.Fatalf("stored are %+v, %v", got, err)
		}
		refused := func(r zlimit.Request, available, kept, share int64, wait time.Duration) {
			t.Helper()
			_, err := l.Acquire(ctx, r)
			var exceeded *zlimit.ExceededError
			if !errors.As(err, &exceeded) {
				t.Fatalf("%+v: %v, want a rejection", r, err)
			}
			v := exceeded.Violations()
			if len(v) != 1 || v[0].Available != available || v[0].Kept != kept || v[0].Share != share || v[0].RetryAfter != wait || v[0].Limit != limit {
				t.Errorf("%+v: %+v, want %d available, %d kept, a share of %d, a wait of %v", r, v, available, kept, share, wait)
			}
		}
		acquire(t, l, as("", zlimit.Amounts{"rpm": 90}))
		refused(as("", zlimit.Amounts{"rpm": 1}), 10, 10, 0, 667*time.Millisecond) // 90 a minute flow into the rest
		low := acquire(t, l, as("batch", zlimit.Amounts{"rpm": 8}))
		refused(as("batch", zlimit.Amounts{"rpm": 3}), 2, 0, 2, 6*time.Second)
		if got := standing(t, l); got != 2 {
			t.Errorf("%d available, want 2", got)
		}
		if status, _ := low.Statuses().Limit("rpm"); status.Requested != 8 || status.Available != 2 || status.Limit != limit {
			t.Errorf("the lease is told %+v", status)
		}
		check.Fatal(t, "Adjust() and Commit()", errors.Join(low.Adjust(zlimit.Amounts{"rpm": -5}), low.Commit(ctx)))
		refused(as("", zlimit.Amounts{"rpm": 1}), 7, 7, 0, 667*time.Millisecond)
		over := acquire(t, l, as("batch", zlimit.Amounts{"rpm": 7}))
		if err := errors.Join(over.Adjust(zlimit.Amounts{"rpm": 5}), over.Commit(ctx)); err != nil { // a debt of the share
			t.Fatalf("Adjust() and Commit() = %v", err)
		}
		c.sleep(10 * time.Second)
		acquire(t, l, as("", zlimit.Amounts{"rpm": 15}))
		refused(as("batch", zlimit.Amounts{"rpm": 1}), -4, 0, -4, 12667*time.Millisecond) // the rest has 0, and needs 19
		c.sleep(50 * time.Second)
		acquire(t, l, as("batch", zlimit.Amounts{"rpm": 40})) // of the rest, which has 75 and keeps 18
		refused(as("batch", zlimit.Amounts{"rpm": 20}), 40, 23, 5, 2*time.Second)
		back := acquire(t, l, as("batch", zlimit.Amounts{"rpm": 17}))
		check.Fatal(t, "Rollback()", back.Rollback(ctx))
		refused(as("batch", zlimit.Amounts{"rpm": 20}), 40, 23, 5, 2*time.Second)
		refused(as("batch", zlimit.Amounts{"rpm": 73}), 40, 28, 5, zlimit.Never) // 72 of a full one

		for b, err := range l.Usage.Buckets(ctx, "gpt-4") {
			if err != nil || len(b.Statuses) != 1 || b.Statuses[0].Limit.Capacity != 100 || b.Statuses[0].Available != 40 || len(b.Consumed) != 1 || b.Consumed["rpm"] != 160_000 {
				t.Errorf("the bucket is %+v, %v", b, err)
			}
		}
		if body, err := json.Marshal(limit); err != nil || !strings.Contains(string(body), `"floors":"batch=20+10"`) || limit.String() != "rpm=100/min floors batch=20+10" {
			t.Errorf("%s, %v, %s", body, err, limit)
		}
		_, err := l.Acquire(ctx, as("batch", zlimit.Amounts{"rpm/batch": 1}))
		if !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("a part of a limit is asked by its name: %v", err)
		}
		_, err = l.Acquire(ctx, as("batch", zlimit.Amounts{"tpm": 1}))
		if err == nil || strings.Contains(err.Error(), "rpm/") {
			t.Errorf("an unknown limit: %v", err)
		}
		if _, err := l.Limits.Reset(ctx, zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4", Limits: []string{"rpm"}}); err != nil {
			t.Fatalf("Limits.Reset() = %v", err)
		}
		if got := standing(t, l); got != 100 {
			t.Errorf("%d available after a reset, want 100", got)
		}
	})
}

// In TestSharesThatFill, a process knows a share as empty, to which another one gives back. Its next requests take of
// the share all the same. They do so alone and together, by an old stamp and by a new one, and the others keep their
// part.
func TestSharesThatFill(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		for _, limit := range []zlimit.Limit{zlimit.PerDay("rpd", 100), zlimit.PerHour("rpd", 100)} {
			for _, pause := range []time.Duration{0, 10 * time.Second} {
				c := newClock()
				entity := fmt.Sprint(limit.RefillPeriod, "-", pause.Seconds())
				request := func(priority string, n int64) zlimit.Request {
					r := as(priority, zlimit.Amounts{"rpd": n})
					r.Entity = entity
					return r
				}
				l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
				setSystem(t, l, limit.Share("batch", 10))
				other.Limits.InvalidateAll()
				acquire(t, other, request("batch", 1))
				before := acquire(t, other, request("batch", 8))
				acquire(t, l, request("", 1))
				check.Fatal(t, "Rollback()", before.Rollback(t.Context()))
				c.sleep(pause)
				acquire(t, l, request("batch", 4))
				if _, err := l.AcquireAll(t.Context(), []zlimit.Request{request("batch", 2), request("batch", 3)}); err != nil {
					t.Errorf("%s: %v", entity, err)
				}
				if _, err := l.Acquire(t.Context(), request("", 89)); err != nil {
					t.Errorf("%s: %v; want the rest untouched", entity, err)
				}
			}
		}
	})
}

// TestShareCosts counts the writes of requests of a share: one each, and another where another process has taken meanwhile what the last image
// shows.
func TestShareCosts(t *testing.T) {
	memory := newMemory(t)
	g := &gate{Store: store.Of(memory)}
	c := newClock()
	l := newLimiter(t, zlimit.StoreOn(g), zlimit.WithClock(c.now), zlimit.WithRejectionCache(time.Second))
	shared(t, l)
	other := newLimiter(t, memory, zlimit.WithClock(c.now))
	acquire(t, l, as("", zlimit.Amounts{"rpm": 1}))
	costs := func(what string, writes, reads int64, act func()) {
		t.Helper()
		g.writes.Store(0)
		g.reads.Store(0)
		act()
		if w, r := g.writes.Load(), g.reads.Load(); w != writes || r != reads {
			t.Errorf("%s: %d writes and %d reads, want %d and %d", what, w, r, writes, reads)
		}
	}
	five := as("batch", zlimit.Amounts{"rpm": 5})
	costs("of the share", 1, 0, func() { acquire(t, l, five) })
	acquire(t, other, five)
	costs("of the rest, after another process took the share", 2, 0, func() { acquire(t, l, five) })
	costs("of the rest", 1, 0, func() { acquire(t, l, five) })
	acquire(t, other, as("", zlimit.Amounts{"rpm": 70}))
	costs("of nothing, after another process took the rest", 1, 0, func() {
		if _, err := l.Acquire(t.Context(), five); !errors.As(err, new(*zlimit.ExceededError)) {
			t.Errorf("Acquire() = %v, want a rejection", err)
		}
	})
	costs("of nothing", 0, 0, func() {
		if _, err := l.Acquire(t.Context(), five); !errors.As(err, new(*zlimit.ExceededError)) {
			t.Errorf("Acquire() = %v, want a rejection", err)
		}
	})
}

// In TestSharedWritesOfShares, callers of two priorities share writes. Each takes of its own part, and gives back to it.
func TestSharedWritesOfShares(t *testing.T) {
	l, g, _ := newCoalescing(t)
	limit := zlimit.PerDay("rpd", 100).Share("batch", 20)
	setSystem(t, l, limit, zlimit.PerDay("tpd", 1000))
	l.Limits.InvalidateAll()
	acquire(t, l, as("batch", zlimit.Amounts{"rpd": 1})) // brings the bucket in line, whose share begins empty
	if _, err := l.Limits.Reset(t.Context(), zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4"}); err != nil {
		t.Fatalf("Limits.Reset() = %v", err)
	}
	leases, errs := make([]*zlimit.Lease, 31), make([]error, 31)
	together(g, waitingFor(l, "key-1"), 31, func(i int) {
		priority := ""
		if i%3 == 0 {
			priority = "batch"
		}
		leases[i], errs[i] = l.Acquire(context.Background(), as(priority, zlimit.Amounts{"rpd": 3}))
	}, nil)
	admitted := int64(0)
	for i, err := range errs {
		switch {
		case err == nil:
			admitted++
		case !errors.As(err, new(*zlimit.ExceededError)):
			t.Errorf("request %d: %v", i, err)
		}
	}
	// 20 callers have no priority and take 60 of the rest. Eleven have one: six take 18 of the share, and five 15 of the rest.
	if admitted != 31 {
		t.Errorf("%d are admitted, want 31", admitted)
	}
	left := func(name string) int64 {
		for _, b := range shardsOf(t, l) {
			for _, limit := range b.Limits {
				if limit.Name == name {
					return limit.Tokens / 1000
				}
			}
		}
		t.Fatalf("no limit %s", name)
		return 0
	}
	if rest, share := left("rpd"), left("rpd/batch"); rest != 80-75 || share != 20-18 {
		t.Errorf("the rest has %d and the share %d, want 5 and 2", rest, share)
	}
	for _, lease := range leases {
		if lease != nil {
			check.Error(t, "Rollback()", lease.Rollback(t.Context()))
		}
	}
	if rest, share := left("rpd"), left("rpd/batch"); rest != 80 || share != 20 {
		t.Errorf("the rest has %d and the share %d after all is given back, want 80 and 20", rest, share)
	}
}

// In TestFloodsOfShares, two priorities ask of a limit of 1,000/s, also in eight shards. A tenth is guaranteed to the low
// priority, whose floor is a fifth of the rest. Whatever the other asks, the low priority gets its share in every tenth of
// a second. The high priority gets as much, by as many writes, as without a flood of low requests. All together get no
// more than the limit.
func TestFloodsOfShares(t *testing.T) {
	for _, splits := range []int{0, 3} {
		rest := splits // what shards may keep from the low ones for a while: each has a part of a token
		type outcome struct {
			high, low, writes int // admitted; the writes of a high request that 99 of 100 do not exceed
			least             int // of the low ones in a tenth of a second
		}
		seconds := soak.Pick(1, 3)
		flood := func(t *testing.T, high, low int) (o outcome) { // requests a millisecond
			c := newClock()
			g := &gate{Store: store.Of(newMemory(t))}
			l := newLimiter(t, zlimit.StoreOn(g), zlimit.WithClock(c.now))
			setSystem(t, l, zlimit.PerSecond("rpm", 1000).Floor("low", 20).Share("low", 10))
			acquire(t, l, as("low", zlimit.Amounts{"rpm": 1}))
			for range splits {
				split(t, l)
			}
			acquire(t, l, as("", zlimit.Amounts{"rpm": 800})) // the bursts
			for range 98 / 7 {
				acquire(t, l, as("low", zlimit.Amounts{"rpm": 7}))
			}
			var writes []int
			o.least = 1 << 30
			window := 0
			for at := range seconds * 1000 {
				for range low {
					if _, err := l.Acquire(t.Context(), as("low", zlimit.Amounts{"rpm": 1})); err == nil {
						o.low++
						window++
					}
				}
				for i := range high {
					if at%10 >= 3 && i > 0 {
						break
					}
					before := g.writes.Load()
					if _, err := l.Acquire(t.Context(), as("", zlimit.Amounts{"rpm": 1})); err == nil {
						o.high++
					}
					writes = append(writes, int(g.writes.Load()-before))
				}
				if c.sleep(time.Millisecond); at%100 == 99 {
					o.least = min(o.least, window)
					window = 0
				}
			}
			if len(writes) > 0 {
				slices.Sort(writes)
				o.writes = writes[len(writes)*99/100]
			}
			if most := 1000*seconds + 1000 - 800 - 98 - 1 + 20; o.high+o.low > most {
				t.Errorf("%d are admitted, more than %d", o.high+o.low, most)
			}
			return o
		}
		t.Run(strconv.Itoa(1<<splits)+" shards", func(t *testing.T) {
			alone, both, calm := flood(t, 3, 0), flood(t, 3, 2), flood(t, 1, 2) // 1,600 and 1,000 a second of high priority
			if both.least < 9-rest || calm.least < 9-rest {
				t.Errorf("the low ones get %d and %d in a tenth of a second, want 10", both.least, calm.least)
			}
			if want := seconds * 100; both.low < want-2-rest {
				t.Errorf("%d of low priority are admitted beside a flood, want %d", both.low, want)
			}
			if both.high < alone.high-40 || both.writes > alone.writes {
				t.Errorf("with a flood of low priority %d of high priority are admitted by up to %d writes, without it %d by %d", both.high, both.writes, alone.high, alone.writes)
			}
		})
	}
}

// In TestSharesBesideMoves, a lease takes of shares of an entity and of its parent, before and after the entity is moved. It gives back to
// the shares that it took of, beginning with the last. A bypass counts requests of the priority, and takes of no share, nor do its leases
// later. A shadow limit beside it foretells what it would refuse, while the request takes of the share.
func TestSharesBesideMoves(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx, c := context.Background(), newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		newChains(t, l, []string{"one", "key-1"}, []string{"two"})
		setSystem(t, l, zlimit.PerDay("rpd", 100).Floor("batch", 20).Share("batch", 10), zlimit.PerDay("cut", 5).Shadow())
		l.Limits.InvalidateAll()
		expect := func(when, want string) { // the rest, the share, and consumed tokens of either
			t.Helper()
			var got []string
			for _, entity := range []string{"key-1", "one", "two"} {
				state, err := layout.ReadState(stored(t, l, layout.BucketKey{NS: l.NS(), Entity: entity, Resource: "gpt-4"}.Key()))
				check.Fatal(t, "layout.ReadState()", err)
				for _, limit := range state.Limits {
					if strings.HasPrefix(limit.Name, "rpd") {
						got = append(got, fmt.Sprintf("%s %s %d %d", entity, limit.Name, limit.Tokens/1000, limit.Consumed/1000))
					}
				}
			}
			if got := strings.Join(got, ", "); got != want {
				t.Errorf("%s:\n%s, want\n%s", when, got, want)
			}
		}
		lease := acquire(t, l, as("batch", zlimit.Amounts{"rpd": 4}))
		if _, err := l.Entities.SetParent(ctx, "key-1", "two"); err != nil {
			t.Fatalf("Entities.SetParent() = %v", err)
		}
		check.Fatal(t, "Consume()", lease.Consume(ctx, zlimit.Amounts{"rpd": 3}))
		expect("after a move", "key-1 rpd 90 0, key-1 rpd/batch 3 7, one rpd 90 0, one rpd/batch 6 4, two rpd 90 0, two rpd/batch 7 3")
		check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rpd": -5}), lease.Commit(ctx)))
		expect("given back", "key-1 rpd 90 0, key-1 rpd/batch 8 2, one rpd 90 0, one rpd/batch 8 2, two rpd 90 0, two rpd/batch 10 0")

		at := zlimit.Level{Entity: "key-1"}
		before := acquire(t, l, as("batch", zlimit.Amounts{"rpd": 1}))
		if _, err := l.Limits.Bypass(ctx, at, nil); err != nil {
			t.Fatalf("Limits.Bypass() = %v", err)
		}
		var passed []*zlimit.Lease
		for range 3 {
			passed = append(passed, acquire(t, l, as("batch", zlimit.Amounts{"rpd": 9})))
		}
		if status, ok := passed[0].Statuses().Limit("rpd"); !ok || status.Requested != 9 || status.Exceeded {
			t.Errorf("the status of a bypass is %+v", status)
		}
		if err := errors.Join(before.Rollback(ctx), passed[0].Rollback(ctx), passed[1].Adjust(zlimit.Amounts{"rpd": 20}), passed[1].Commit(ctx)); err != nil {
			t.Fatalf("Rollback() and Rollback() and Adjust() and Commit() = %v", err)
		}
		if _, err := l.Limits.LeaveSwitch(ctx, at, nil); err != nil {
			t.Fatalf("Limits.LeaveSwitch() = %v", err)
		}
		check.Fatal(t, "Adjust() and Commit()", errors.Join(passed[2].Adjust(zlimit.Amounts{"rpd": -4}), passed[2].Commit(ctx)))
		// The parent's limits hold: of its share 9 were given back, and 9 and 5 taken of the rest, with 20 more.
		expect("after a bypass", "key-1 rpd 90 34, key-1 rpd/batch 8 2, one rpd 90 0, one rpd/batch 8 2, two rpd 56 34, two rpd/batch 10 0")

		beyond := acquire(t, l, as("batch", zlimit.Amounts{"rpd": 5, "cut": 6}))
		if status, ok := beyond.Statuses().Limit("cut"); !ok || !status.Foreseen {
			t.Errorf("the status of a shadow limit is %+v", status)
		}
		if status, ok := beyond.Statuses().Limit("rpd"); !ok || status.Requested != 5 || status.Available != 93 || status.Foreseen {
			t.Errorf("the status of the limit beside is %+v", status)
		}
		expect("beyond a shadow limit", "key-1 rpd 90 34, key-1 rpd/batch 3 7, one rpd 90 0, one rpd/batch 8 2, two rpd 56 34, two rpd/batch 5 5")
		check.Fatal(t, "Rollback()", beyond.Rollback(ctx))
		expect("rolled back", "key-1 rpd 90 34, key-1 rpd/batch 8 2, one rpd 90 0, one rpd/batch 8 2, two rpd 56 34, two rpd/batch 10 0")
	})
}

func TestBadShares(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	var invalid *zlimit.ValidationError
	for _, limit := range []zlimit.Limit{
		zlimit.PerMinute("rpm", 100).Share("batch", 0), zlimit.PerMinute("rpm", 100).Share("batch", 100), zlimit.PerMinute("rpm", 100).Share("", 5),
		zlimit.PerMinute("rpm", 100).Share("batch", 20).Share("batch", 30), zlimit.PerMinute("rpm", 100).Share("a", 50).Share("b", 50),
		zlimit.PerMinute("rpm", 10).Share("batch", 5), zlimit.Session("rpm", 100, time.Hour).Share("batch", 5),
		zlimit.PerMinute("rpm", 100).When("* 9-17 * * *", "to 20:").Share("batch", 5),
		zlimit.PerMinute("rpm", 100).Share("batch", 5).Soft(), zlimit.PerMinute("rpm", 100).Shadow().Floor("batch", 20).Share("batch", 5),
	} {
		err := l.Limits.Set(t.Context(), zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{limit}})
		if !errors.As(err, &invalid) || !strings.HasSuffix(invalid.Field, "[rpm] floors") || invalid.Value != limit.Floors {
			t.Errorf("%q: %v", limit.Floors, err)
		}
	}
	r := ask(zlimit.Amounts{"rpm": 1})
	r.Limits = []zlimit.Limit{zlimit.PerMinute("rpm", 100).Share("batch", 5)}
	if _, err := l.Acquire(t.Context(), r); !errors.As(err, &invalid) || invalid.Field != "limits[rpm]" {
		t.Errorf("shares of a request's own limits: %v", err)
	}
	fleet := newLimiter(t, newMemory(t), zlimit.WithMixedFleet())
	err := fleet.Limits.Set(t.Context(), zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 100).Share("batch", 5)}})
	if !errors.As(err, &invalid) || invalid.Field != "limits[rpm]" {
		t.Errorf("shares in a mixed fleet: %v", err)
	}
}

// In TestShareWaits, callers of four processes wait for their share, a tenth of a limit of 20 a second. Others leave nothing of the rest.
// The callers are admitted at the rate of the share.
func TestShareWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seconds, callers = 30, 5 // in each process
		g := &gate{Store: store.Of(newMemory(t))}
		var group sync.WaitGroup
		var admitted atomic.Int64
		start := time.Now()
		end := start.Add(seconds * time.Second)
		for process := range 4 {
			others, l := newLimiter(t, zlimit.StoreOn(g)), newLimiter(t, zlimit.StoreOn(g))
			if process == 0 {
				setSystem(t, l, zlimit.PerSecond("rpm", 20).Floor("batch", 20).Share("batch", 10))
			}
			group.Go(func() {
				for time.Now().Before(end) {
					if _, err := others.Wait(t.Context(), as("", zlimit.Amounts{"rpm": 1}), zlimit.MaxWait(time.Minute)); err != nil {
						t.Errorf("Wait() = %v", err)
						return
					}
				}
			})
			for range callers {
				group.Go(func() {
					for time.Now().Before(end) {
						if _, err := l.Wait(t.Context(), as("batch", zlimit.Amounts{"rpm": 1}), zlimit.MaxWait(time.Minute)); err != nil {
							t.Errorf("Wait() = %v", err)
							return
						}
						if time.Now().Before(end) {
							admitted.Add(1)
						}
					}
				})
			}
		}
		group.Wait()
		if got, want := admitted.Load(), int64(2*seconds); got < want-2 || got > want+20 {
			t.Errorf("%d of the share are admitted in %d seconds, want %d, and a burst", got, seconds, want)
		}
		if calls := g.writes.Load() + g.reads.Load(); calls > 3*20*seconds {
			t.Errorf("%d calls of the store for %d tokens", calls, 20*seconds)
		}
	})
}
