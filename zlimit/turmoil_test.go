package zlimit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A turmoil is what happens to a bucket while processes use it: its shards are split and merged at random, and its
// capacity changes. It is never full, so that no capacity takes tokens from it.
type turmoil struct {
	l      *zlimit.RateLimiter
	limit  zlimit.Limit // as it was, and is in the end
	random *rand.Rand

	splits, merges, changes int
	gone                    int64 // what merged shards had counted, millitokens
}

// How often things happen.
const (
	resizeEvery = 10 * time.Millisecond
	changeEvery = 300 * time.Millisecond
	turmoilTTL  = 200 * time.Millisecond // for which processes remember limits
)

// run goes on until it is stopped.
func (u *turmoil) run(ctx context.Context, stop <-chan struct{}) error {
	changed := time.Now()
	for {
		select {
		case <-stop:
			return u.change(ctx, u.limit.Capacity)
		case <-time.After(resizeEvery):
		}
		if time.Since(changed) > changeEvery {
			changed = time.Now()
			if err := u.change(ctx, u.limit.Capacity+(u.random.Int64N(3)-1)*100_000); err != nil {
				return err
			}
		}
		if err := u.resize(ctx); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

func (u *turmoil) change(ctx context.Context, capacity int64) error {
	limit := u.limit
	limit.Capacity = capacity
	u.changes++
	return u.l.Limits.Set(ctx, zlimit.Level{Entity: "steady", Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{limit}})
}

// resize splits a shard, or merges it with its sibling.
func (u *turmoil) resize(ctx context.Context) error {
	shards, err := shardsIn(ctx, u.l.Calls(), u.l.NS(), "steady")
	if err != nil {
		return err
	}
	s := shards[u.random.IntN(len(shards))]
	if u.random.IntN(2) == 0 && s.Count() < zlimit.MaxShards {
		done, err := splitAt(ctx, u.l, "steady", s)
		if done {
			u.splits++
		}
		return err
	}
	s.Shard, _ = bucket.Sibling(s.Shard, s.Count())
	gone, done, err := mergeNow(ctx, u.l, "steady", s)
	if done {
		u.merges++
		for _, l := range gone.Limits {
			if l.Name == u.limit.Name {
				u.gone += l.Consumed
			}
		}
	}
	return err
}

// TestTurmoil runs several processes on buckets as TestHistories does. Meanwhile the shards of one are split and
// merged all the time, and its capacity changes. Processes are killed in the middle of their calls, and followed by
// others. In the end the balance is exact to the millitoken: the first balance plus the refill, less the consumption
// counted by the items. Without killed processes, the count equals the consumption of all callers. Each caller can
// then take what the bucket reports (I1, I2, I7, I8, I9).
func TestTurmoil(t *testing.T) {
	t.Parallel() // its processes wait more than they compute
	t.Run("memory", func(t *testing.T) { testTurmoil(t, newMemory(t), "", false) })
	for _, kills := range []bool{false, true} {
		name := map[bool]string{true: ", processes are killed"}[kills]
		t.Run("file"+name, func(t *testing.T) {
			dsn := newFile(t)
			testTurmoil(t, openStore(t, dsn), dsn, kills)
		})
		if !soak.Runs() {
			continue // TestHistories has processes that split on the engine
		}
		t.Run("dynamodb"+name, func(t *testing.T) {
			dsn := newDSN(t)
			testTurmoil(t, openStore(t, dsn), dsn, kills)
		})
	}
}

// testTurmoil runs processes on a store, within this one if there is no name by which another one could open it.
func testTurmoil(t *testing.T, s zlimit.Store, dsn string, kills bool) {
	ctx := t.Context()
	l := newLimiter(t, zlimit.StoreOn(partitioned{store.Of(s)}), append(patient(), zlimit.WithTuning(zlimit.Tuning{BucketTTL: -1}), zlimit.WithConfigTTL(turmoilTTL))...)
	storeHistory(t, l)
	steady := zlimit.PerSecond("rpm", 200, zlimit.Burst(2_000_000))
	setLimits(t, l, zlimit.Level{Entity: "steady", Resource: "gpt-4"}, steady)
	began := time.Now()
	created := began.UnixMilli()
	l.SetClock(func() time.Time { return time.UnixMilli(created) })
	most := zlimit.Request{Entity: "steady", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1_999_500}}
	acquire(t, l, most)
	l.SetClock(time.Now)
	h := &history{memory: l.RejectionCache(), acts: []act{{Deed: took, Entity: "steady", Amounts: zlimit.Amounts{"rpm": 1_999_500}, From: created * 1000, To: created * 1000}}}

	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			rounds := []int{soak.Pick(2, 5)}
			if kills && i%2 == 1 {
				rounds = []int{5, 2}
			}
			for j, n := range rounds {
				tr := &traffic{DSN: dsn, Seed: uint64(i + 100*j), Coalesce: i == 1, Each: i == 2, Exact: i > 1, Goroutines: 8, Asks: 6, Rounds: n, Splits: true, TTL: turmoilTTL}
				if j < len(rounds)-1 {
					tr.Killed = 900*time.Millisecond + time.Duration(i)*150*time.Millisecond
				}
				var acts []act
				var err error
				if dsn == "" {
					acts, err = tr.drive(ctx, s)
				} else {
					acts, err = observe(tr)
				}
				check.Error(t, "the traffic of a process", err)
				mu.Lock()
				h.acts = append(h.acts, acts...)
				mu.Unlock()
			}
		})
	}
	u := &turmoil{l: l, limit: steady, random: rand.New(rand.NewPCG(1, 2))} //nolint:gosec // choices of a test
	stop, stopped := make(chan struct{}), make(chan error)
	go func() { stopped <- u.run(ctx, stop) }()
	group.Wait()
	close(stop)
	check.Fatal(t, "run()", <-stopped)
	most.Consume = zlimit.Amounts{"rpm": 1_999_999}
	reject(t, l, most) // brings the items in line
	items := storedShards(t, l, "steady")
	_, consumed, _ := total(items, "rpm")
	t.Logf("%d splits, %d merges, %d changes, %d shards; the items counted %d, and %d before they were merged", u.splits, u.merges, u.changes, len(items), consumed, u.gone)
	if u.splits == 0 || u.merges == 0 || u.changes < 3 {
		t.Error("there was no turmoil")
	}
	if slices.ContainsFunc(h.acts, func(a act) bool { return a.Deed == merged }) || kills && time.Since(began) > 10*time.Second {
		t.Log("processes merged shards, or may have before they were killed: what those counted is not known")
		return
	}
	items[0].Limits[slices.IndexFunc(items[0].Limits, func(l bucket.Limit) bool { return l.Name == "rpm" })].Consumed += u.gone
	b := &ledger{steady, created, (consumed + u.gone) / zlimit.Millis, 2 * (u.splits + u.merges)}
	errs := []error{b.unbalanced(items)}
	if !kills {
		errs = append(errs, h.miscounted("steady", &steady, items))
		for entity, of := range historyLimits {
			if entity != "steady" {
				errs = append(errs, h.overAdmitted(entity, &of[0], l.FreshnessOf(of), len(storedShards(t, l, entity))))
			}
		}
	}
	check.Error(t, "the check of all buckets", errors.Join(errs...))
	exact := newLimiter(t, zlimit.StoreOn(partitioned{store.Of(s)}), append(patient(), zlimit.WithRejectionCache(0), zlimit.WithTuning(zlimit.Tuning{BucketTTL: -1}))...)
	statuses := check.Call(exact.Available(ctx, zlimit.AvailableQuery{Entity: "steady", Resource: "gpt-4"})).Must(t, "Available()")
	if left := statuses[0].Available; left > 0 {
		acquire(t, exact, zlimit.Request{Entity: "steady", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": left}})
	}
}
