package protocol

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	inmemory "github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/internal/table"
)

// A gauge is a store of tests. It splits buckets, and has hooks.
type gauge struct {
	*inmemory.Store
	now   atomic.Int64                                       // of the processes, epoch milliseconds
	write atomic.Pointer[func(writes []store.Write) error]   // before a write; its error takes the place of the call
	read  atomic.Pointer[func(keys []store.Key, after bool)] // before and after a read, while the reply is on its way
	blind atomic.Pointer[error]                              // what becomes of each read; nil for a reply
}

func newGauge(t *testing.T) *gauge {
	t.Helper()
	s := check.Call(inmemory.New(layout.Table)).Must(t, "inmemory.New()")
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	g := &gauge{Store: s}
	g.now.Store(1_700_000_000_000)
	return g
}

func (*gauge) Partitioned() bool { return true }

func (g *gauge) onWrite(f func(writes []store.Write) error)  { g.write.Store(&f) }
func (g *gauge) onRead(f func(keys []store.Key, after bool)) { g.read.Store(&f) }
func (g *gauge) Close() error                                { return nil }

func (g *gauge) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if f := g.write.Load(); f != nil {
		if err := (*f)([]store.Write{w}); err != nil {
			return store.Result{}, err
		}
	}
	return g.Store.Write(ctx, w)
}

func (g *gauge) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	if f := g.write.Load(); f != nil {
		if err := (*f)(writes); err != nil {
			return nil, err
		}
	}
	return g.Store.Transact(ctx, writes)
}

func (g *gauge) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	if err := g.blind.Load(); err != nil {
		return nil, *err
	}
	f := g.read.Load()
	if f != nil {
		(*f)(keys, false)
	}
	items, err := g.Store.Read(ctx, keys, consistent)
	if f != nil {
		(*f)(keys, true)
	}
	return items, err
}

// fixedLimits is a source of limits that tests change, by entity.
type fixedLimits map[string]*atomic.Pointer[Limits]

func (f fixedLimits) For(_ context.Context, b *Bucket) (*Limits, error) {
	return f[b.Entity].Load(), nil
}

func (f fixedLimits) After(_ context.Context, b *Bucket, _ int64) (*Limits, error) {
	return f[b.Entity].Load(), nil
}

// perDay returns limits of an entity, in tokens.
func perDay(parent string, tokens map[string]int64) *Limits {
	l := &Limits{Lineage: layout.Lineage{Cascade: parent != "", Parent: parent}, Epoch: 1 << 40}
	for _, name := range []string{"rpm", "tpm"} {
		if n := tokens[name] * millis; n > 0 {
			l.Config.Params = append(l.Config.Params, bucket.Params{Name: name, Capacity: n, RefillAmount: n, RefillPeriod: 86_400_000})
		}
	}
	return l
}

// set stores the limits of an entity.
func (f fixedLimits) set(entity string, l *Limits) {
	if f[entity] == nil {
		f[entity] = new(atomic.Pointer[Limits])
	}
	f[entity].Store(l)
}

// newProcess returns an engine on a store, as one process has it.
func newProcess(t *testing.T, g *gauge, limits fixedLimits) *Engine {
	t.Helper()
	return newProcessBy(t, g, limits, noChance)
}

// newProcessBy returns an engine that draws from a source of random numbers.
func newProcessBy(t *testing.T, g *gauge, limits fixedLimits, intN func(int) int) *Engine {
	t.Helper()
	e := New(Options{
		Table: table.New(g, table.Options{Timeout: time.Minute, IntN: intN}), Source: limits,
		Namespace: func() string { return "ns" }, Now: func() time.Time { return time.UnixMilli(g.now.Load()) },
		Freshness: func([]bucket.Params) int64 { return 1000 }, MaxShards: 32, WritesAtOnce: 8, Buckets: 100,
		MaxLead: 10 * time.Second, SettleLimit: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Resized: func(context.Context, string, string, int) {},
	})
	t.Cleanup(e.Close)
	return e
}

// takeFrom takes tokens of limits.
func takeFrom(t *testing.T, e *Engine, entity string, tokens map[string]int64) *Receipt {
	t.Helper()
	r := new(Receipt)
	if err := e.Take(t.Context(), &Request{Entity: entity, Resource: "model", Amounts: amountsOf(tokens)}, r); err != nil {
		t.Fatalf("Take(%s, %v) = %v", entity, tokens, err)
	}
	return r
}

func amountsOf(tokens map[string]int64) (amounts []bucket.Amount) {
	for _, name := range []string{"rpm", "tpm"} {
		if n, ok := tokens[name]; ok {
			amounts = append(amounts, bucket.Amount{Limit: name, Tokens: n * millis})
		}
	}
	return amounts
}

// giveAllBack gives back what was taken.
func giveAllBack(t *testing.T, e *Engine, r *Receipt) {
	t.Helper()
	s := r.Return()
	check.Fatal(t, "Settle()", e.Settle(t.Context(), &s))
}

// available returns what the table has of a limit, in tokens.
func available(t *testing.T, g *gauge, limits fixedLimits, entity, limit string) int64 {
	t.Helper()
	levels, err := newProcess(t, g, limits).Status(t.Context(), &Request{Entity: entity, Resource: "model"}, false)
	check.Fatal(t, "Status()", err)
	for _, s := range levels[0].Statuses {
		if s.Name == limit {
			return s.Available / millis
		}
	}
	t.Fatalf("%s has no limit %s", entity, limit)
	return 0
}

// split splits a shard as the process last saw it.
func split(t *testing.T, e *Engine, entity string, shard int) {
	t.Helper()
	s := e.Memory.Bucket(entity, "model").shard(shard)
	i, err := e.items.readShard(t.Context(), s)
	if err == nil {
		err = e.resizer.split(t.Context(), layout.Lineage{}, s, i)
	}
	check.Fatal(t, "readShard()", err)
}

// unite merges two shards.
func unite(t *testing.T, e *Engine, entity string, low, high int) {
	t.Helper()
	b := e.Memory.Bucket(entity, "model")
	check.Fatal(t, "merge()", e.resizer.merge(t.Context(), b.shard(low), b.shard(high)))
}

// TestReturnAfterSplit takes from an unsplit bucket, which is then split twice, and gives everything back: the shards have
// room for it together.
func TestReturnAfterSplit(t *testing.T) {
	for _, leases := range []int64{1, 20} {
		g, limits := newGauge(t), fixedLimits{}
		limits.set("hot", perDay("", map[string]int64{"rpm": 2000}))
		e := newProcess(t, g, limits)
		receipts := make([]*Receipt, leases)
		for i := range receipts {
			receipts[i] = takeFrom(t, e, "hot", map[string]int64{"rpm": 2000 / leases})
		}
		split(t, e, "hot", 0)
		split(t, e, "hot", 0)
		for _, r := range receipts {
			giveAllBack(t, e, r)
		}
		if got := available(t, g, limits, "hot", "rpm"); got != 2000 {
			t.Errorf("%d leases of 2,000 tokens in all, given back after two splits: %d available, want 2,000", leases, got)
		}
	}
}

// In TestReturnToRefilledShard, the refill fills the shard that was taken from while its sibling is empty, with and without the notes
// of a mixed fleet. What is given back goes to the sibling.
func TestReturnToRefilledShard(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		g, limits := newGauge(t), fixedLimits{}
		own := perDay("", map[string]int64{"rpm": 2000})
		own.Config.Mixed = mixed
		limits.set("hot", own)
		e := newProcess(t, g, limits)
		e.core.options.Mixed = mixed
		r := takeFrom(t, e, "hot", map[string]int64{"rpm": 1000})
		takeFrom(t, e, "hot", map[string]int64{"rpm": 1000})
		split(t, e, "hot", 0)
		s := e.Memory.Bucket("hot", "model").shard(0)
		fill := correction{bucket: r.levels[0].bucket, limits: r.levels[0].limits, shard: s, amounts: amountsOf(map[string]int64{"rpm": -1000})}
		if _, err := e.settler.settleOnShard(t.Context(), &fill, s, fill.amounts, nil, tolerance{}); err != nil { // shard 0 is full, shard 1 is empty
			t.Fatalf("settleOnShard() = %v", err)
		}
		giveAllBack(t, e, r)
		if got := available(t, g, limits, "hot", "rpm"); got != 2000 {
			t.Errorf("mixed fleet %v: %d available, want 2,000", mixed, got)
		}
	}
}

// TestSettleDebtOfBusyShards charges more to a split bucket that is used up, where the store takes no transaction: other writers are
// always first, or it throttles them. The debt is that of one shard then, and is not lost.
func TestSettleDebtOfBusyShards(t *testing.T) {
	for name, refusal := range map[string]*store.Error{
		"races":     {Op: "transact", Err: store.ErrConflict},
		"throttles": {Op: "transact", Throttled: true, Unavailable: true, Err: context.DeadlineExceeded},
	} {
		for _, more := range []int64{50, 900} { // small beside a shard, and not
			synctest.Test(t, func(t *testing.T) {
				g, limits := newGauge(t), fixedLimits{}
				limits.set("hot", perDay("", map[string]int64{"rpm": 2000}))
				e := newProcess(t, g, limits)
				r := takeFrom(t, e, "hot", map[string]int64{"rpm": 1000})
				takeFrom(t, e, "hot", map[string]int64{"rpm": 1000})
				split(t, e, "hot", 0)
				transactions := 0
				g.onWrite(func(writes []store.Write) error {
					if len(writes) < 2 {
						return nil
					}
					transactions++
					return refusal
				})
				s := r.Correct(amountsOf(map[string]int64{"rpm": more}))
				if err := e.Settle(t.Context(), &s); err != nil {
					t.Errorf("%s: %d more: %v", name, more, err)
				}
				if got := available(t, g, limits, "hot", "rpm"); got != -more {
					t.Errorf("%s: %d available, want %d", name, got, -more)
				}
				if transactions == 0 || more == 50 && transactions > 3 {
					t.Errorf("%s: %d transactions were tried for %d more", name, transactions, more)
				}
			})
		}
	}
}

// TestSettleThrottledRefund gives back to a shard without room, so that others get the tokens. The store throttles the transaction at
// first, and names no reason, as it does for transactions. It is tried again.
func TestSettleThrottledRefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, limits := newGauge(t), fixedLimits{}
		limits.set("hot", perDay("", map[string]int64{"rpm": 2000}))
		e := newProcess(t, g, limits)
		r := takeFrom(t, e, "hot", map[string]int64{"rpm": 1500})
		split(t, e, "hot", 0)
		throttles := 2
		g.onWrite(func(writes []store.Write) error {
			if len(writes) < 2 || throttles == 0 {
				return nil
			}
			throttles--
			return &store.Error{Op: "transact", Throttled: true, Unavailable: true, Err: context.DeadlineExceeded}
		})
		giveAllBack(t, e, r)
		if got := available(t, g, limits, "hot", "rpm"); got != 2000 || throttles > 0 {
			t.Errorf("%d available, want 2,000; %d throttles are left", got, throttles)
		}
	})
}

// In TestLateMissing, a read is answered before the first request creates the item, and its reply arrives after that. The process
// knows that there is an item, and gives back to it.
func TestLateMissing(t *testing.T) {
	g, limits := newGauge(t), fixedLimits{}
	limits.set("key", perDay("", map[string]int64{"rpm": 1000}))
	e := newProcess(t, g, limits)
	if err := e.Memory.Observe(e.Memory.Bucket("key", "model"), nil); err != nil { // as read together with the limits
		t.Fatalf("Memory.Observe() = %v", err)
	}
	var r *Receipt
	g.onRead(func(_ []store.Key, after bool) {
		if after && r == nil {
			r = new(Receipt)
			*r = *takeFrom(t, e, "key", map[string]int64{"rpm": 900})
		}
	})
	if _, err := e.Status(t.Context(), &Request{Entity: "key", Resource: "model"}, false); err != nil {
		t.Fatalf("Status() = %v", err)
	}
	giveAllBack(t, e, r)
	if got := available(t, g, limits, "key", "rpm"); got != 1000 {
		t.Errorf("%d available, want 1,000", got)
	}
}

// TestSettleBySlowRead settles a lease of a bucket that the process has forgotten. Its read of the bucket takes longer than a stamp
// may be ahead, and meanwhile another process has moved the stamp. The settlement leaves it there.
func TestSettleBySlowRead(t *testing.T) {
	for name, amount := range map[string]int64{"less": -100, "more": 100} {
		g, limits := newGauge(t), fixedLimits{}
		limits.set("key", perDay("", map[string]int64{"rpm": 1000}))
		e, other := newProcess(t, g, limits), newProcess(t, g, limits)
		r := takeFrom(t, e, "key", map[string]int64{"rpm": 500})
		e.Memory.Bucket("key", "model").shard(0).image.Store(nil)
		once := false
		g.onRead(func(_ []store.Key, after bool) {
			if !after && !once {
				once = true
				g.now.Add(11_000)
				takeFrom(t, other, "key", map[string]int64{"rpm": 1})
			}
		})
		s := r.Correct(amountsOf(map[string]int64{"rpm": amount}))
		check.Fatal(t, "Settle()", e.Settle(t.Context(), &s))
		if n := e.StampsFixed.Load(); n != 0 || !once {
			t.Errorf("charged %s: %d refill stamps were set back by a process with the same clock, want none; read slowly: %t", name, n, once)
		}
	}
}

// In TestMissingBeforeSplit, a process saw a shard missing after a merge. The bucket is split again, and a batch read that is torn by
// the next merge finds the shard missing once more. It is not lost: the request is admitted.
func TestMissingBeforeSplit(t *testing.T) {
	g, limits := newGauge(t), fixedLimits{}
	limits.set("hot", perDay("", map[string]int64{"rpm": 1000}))
	other, e := newProcess(t, g, limits), newProcess(t, g, limits)
	takeFrom(t, other, "hot", map[string]int64{"rpm": 2})
	split(t, other, "hot", 0)
	b := e.Memory.Bucket("hot", "model")
	if _, err := e.items.readShards(t.Context(), []*shard{b.shard(0), b.shard(1)}); err != nil {
		t.Fatalf("readShards() = %v", err)
	}
	unite(t, other, "hot", 0, 1)
	if _, err := e.items.readShards(t.Context(), []*shard{b.shard(0), b.shard(1)}); err != nil {
		t.Fatalf("readShards() = %v", err)
	}
	missing := b.shard(1).image.Load()
	if missing.exists {
		t.Fatal("the merged shard exists")
	}
	split(t, other, "hot", 0)
	if _, err := e.items.readShard(t.Context(), b.shard(0)); err != nil {
		t.Fatalf("readShard() = %v", err)
	}
	b.shard(1).image.Store(missing)
	torn := &torn{gauge: g, meanwhile: func() { unite(t, other, "hot", 0, 1) }}
	e.core.table = table.New(torn, table.Options{Timeout: time.Minute, IntN: noChance})
	if err := e.Take(t.Context(), &Request{Entity: "hot", Resource: "model", Amounts: amountsOf(map[string]int64{"rpm": 700})}, new(Receipt)); err != nil {
		t.Errorf("Take() = %v of a bucket with 998 tokens", err)
	}
	if !torn.done.Load() {
		t.Error("no read was torn")
	}
}

// A torn store reads the second of several items after something has happened since it read the first, once.
type torn struct {
	*gauge
	meanwhile func()
	done      atomic.Bool
}

func (s *torn) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	if len(keys) < 2 || !s.done.CompareAndSwap(false, true) {
		return s.gauge.Read(ctx, keys, consistent)
	}
	first, err := s.gauge.Read(ctx, keys[:1], consistent)
	if err != nil {
		return nil, err
	}
	s.meanwhile()
	rest, err := s.gauge.Read(ctx, keys[1:], consistent)
	return append(first, rest...), err
}

// TestReturnToFormerLimit removes a limit under a lease and adds it again. The process of the lease does it, or
// another one while the first one uses an image from before. All of the new limit is taken. Tokens given back by
// the lease are part of the forgotten balance, and tokens charged to it count. No time passes.
func TestReturnToFormerLimit(t *testing.T) {
	for name, sameProcess := range map[string]bool{"by the same process": true, "by another process": false} {
		t.Run(name, func(t *testing.T) {
			g, limits, others := newGauge(t), fixedLimits{}, fixedLimits{}
			both := perDay("", map[string]int64{"rpm": 100, "tpm": 1000})
			limits.set("key", both)
			others.set("key", both)
			e := newProcess(t, g, limits)
			other := newProcess(t, g, others)
			if sameProcess {
				other, others = e, limits
			}
			r := takeFrom(t, e, "key", map[string]int64{"rpm": 3, "tpm": 800})
			others.set("key", perDay("", map[string]int64{"rpm": 100}))
			takeFrom(t, other, "key", map[string]int64{"rpm": 1})
			others.set("key", both)
			takeFrom(t, other, "key", map[string]int64{"rpm": 1, "tpm": 1000})
			giveAllBack(t, e, r)
			if rpm, tpm := available(t, g, limits, "key", "rpm"), available(t, g, limits, "key", "tpm"); rpm != 98 || tpm != 0 {
				t.Errorf("rpm has %d and tpm %d, want 98 and 0", rpm, tpm)
			}
			s := r.Correct(amountsOf(map[string]int64{"tpm": 5}))
			check.Fatal(t, "Settle()", e.Settle(t.Context(), &s))
			if got := available(t, g, limits, "key", "tpm"); got != -5 {
				t.Errorf("tpm has %d after a charge, want -5", got)
			}
		})
	}
}

// TestReturnToFormerBucket deletes a bucket under two leases, which share a write when they give back, and one of the new bucket
// with them. Two processes do that in the same millisecond.
func TestReturnToFormerBucket(t *testing.T) {
	for name, at := range map[string]struct{ split, remembers bool }{
		"unsplit": {}, "split": {split: true}, "an image from before": {remembers: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, limits := newGauge(t), fixedLimits{}
			limits.set("key", perDay("", map[string]int64{"rpm": 100}))
			e, other := newProcess(t, g, limits), newProcess(t, g, limits)
			other.core.salt++ // tests draw no random numbers
			first := takeFrom(t, e, "key", map[string]int64{"rpm": 60})
			second := takeFrom(t, e, "key", map[string]int64{"rpm": 40})
			key := e.Memory.Bucket("key", "model").shard(0).key
			if _, err := g.Store.Write(t.Context(), store.Write{Kind: store.Delete, Key: key, Expr: expr.Bound{}}); err != nil {
				t.Fatalf("Store.Write() = %v", err)
			}
			third := takeFrom(t, other, "key", map[string]int64{"rpm": 70})
			takeFrom(t, other, "key", map[string]int64{"rpm": 30})
			if at.split {
				split(t, other, "key", 0)
			}
			if !at.remembers {
				e.Memory.Forget("key", "model")
			}
			check.Fatal(t, "Add()", first.Add(third))
			giveAllBack(t, e, second)
			giveAllBack(t, e, first)
			if got := available(t, g, limits, "key", "rpm"); got != 70 {
				t.Errorf("%d available, want the 70 of the new bucket", got)
			}
		})
	}
}

// TestSharedSettlementsOfFormerLives deletes a bucket under many leases that share writes when they settle. What some give back is part
// of the new bucket, and must not pay for what the others took too little.
func TestSharedSettlementsOfFormerLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, limits := newGauge(t), fixedLimits{}
		limits.set("key", perDay("", map[string]int64{"rpm": 10_000, "tpm": 10_000}))
		e := newProcess(t, g, limits)
		receipts := make([]*Receipt, 100)
		for i := range receipts {
			receipts[i] = takeFrom(t, e, "key", map[string]int64{"rpm": 10, "tpm": 10})
		}
		key := e.Memory.Bucket("key", "model").shard(0).key
		if _, err := g.Store.Write(t.Context(), store.Write{Kind: store.Delete, Key: key, Expr: expr.Bound{}}); err != nil {
			t.Fatalf("Store.Write() = %v", err)
		}
		other := newProcess(t, g, limits)
		other.core.salt++ // tests draw no random numbers
		takeFrom(t, other, "key", map[string]int64{"rpm": 1, "tpm": 1})
		corrections := []map[string]int64{{"rpm": 5}, {"rpm": -8}, {"rpm": 1, "tpm": -9}, {"rpm": -9, "tpm": 1}}
		want := map[string]int64{"rpm": 9999, "tpm": 9999}
		var writes atomic.Int64
		g.onWrite(func([]store.Write) error {
			writes.Add(1)
			time.Sleep(time.Millisecond)
			return nil
		})
		var all errgroup.Group
		for i, r := range receipts {
			amounts := corrections[i%len(corrections)]
			for limit, n := range amounts {
				want[limit] -= max(n, 0)
			}
			all.Go(func() error {
				s := r.Correct(amountsOf(amounts))
				return e.Settle(t.Context(), &s)
			})
		}
		check.Error(t, "Wait()", all.Wait())
		if n := writes.Load(); n > 20 {
			t.Errorf("%d writes for %d settlements: they share none", n, len(receipts))
		}
		for limit, n := range want {
			if got := available(t, g, limits, "key", limit); got != n {
				t.Errorf("%s has %d, want %d", limit, got, n)
			}
		}
	})
}

// TestLivesOutliveShards splits a bucket under a lease, takes of the new shard as well, and merges the two. Another
// request adds a limit, and the leases give all back. The list of lives is one for all images.
func TestLivesOutliveShards(t *testing.T) {
	g, limits := newGauge(t), fixedLimits{}
	limits.set("key", perDay("", map[string]int64{"rpm": 100}))
	e := newProcessBy(t, g, limits, func(n int) int { return n - 1 }) // which draws the new shard
	r := takeFrom(t, e, "key", map[string]int64{"rpm": 60})
	lives := r.levels[0].parts[0].lives()
	again := takeFrom(t, e, "key", map[string]int64{"rpm": 1}).levels[0].parts[0].lives()
	if len(lives) == 0 || &lives[0] != &again[0] {
		t.Errorf("lives are %v, then %v in another list", lives, again)
	}
	split(t, e, "key", 0)
	ofNew := takeFrom(t, e, "key", map[string]int64{"rpm": 5})
	if part := ofNew.levels[0].parts[0]; part.shard.Shard != 1 || !slices.Equal(part.lives(), lives) {
		t.Errorf("shard %d has the lives %v, want those of the first one: %v", part.shard.Shard, part.lives(), lives)
	}
	unite(t, e, "key", 0, 1)
	limits.set("key", perDay("", map[string]int64{"rpm": 100, "tpm": 10}))
	takeFrom(t, e, "key", map[string]int64{"tpm": 1})
	giveAllBack(t, e, r)
	giveAllBack(t, e, ofNew)
	if got := available(t, g, limits, "key", "rpm"); got != 99 {
		t.Errorf("%d available, want 99", got)
	}
}
