package aggregator

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A garden is a bucket of 100 rpm and 10,001 tpm, and an aggregator that tends it. A limiter has just taken 60 and
// 1,000 from it.
type garden struct {
	*testing.T
	*Aggregator
	now   time.Time
	shard layout.BucketKey // the whole bucket
	log   bytes.Buffer

	batches Batch // the sum of what the observer was notified of
}

func newGarden(t *testing.T, s zlimit.Store, opts ...Option) *garden {
	t.Helper()
	return newGardenOf(t, s, nil, opts...)
}

// newGardenOf is newGarden with options of the limiter.
func newGardenOf(t *testing.T, s zlimit.Store, limiter []zlimit.Option, opts ...Option) *garden {
	t.Helper()
	g := &garden{T: t, now: noon}
	clock := func() time.Time { return g.now }
	l := check.Call(zlimit.New(t.Context(), s, append(limiter, zlimit.WithSetup(), zlimit.WithClock(clock))...)).Must(t, "zlimit.New()")
	t.Cleanup(func() { check.Error(t, "Close()", l.Close()) })
	limits := []zlimit.Limit{zlimit.PerMinute("rpm", 100), zlimit.PerMinute("tpm", 10_001)}
	check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), zlimit.Level{}, zlimit.Config{Limits: limits}))
	if _, err := l.Acquire(t.Context(), zlimit.Request{Entity: "e", Resource: "r", Consume: zlimit.Amounts{"rpm": 60, "tpm": 1000}}); err != nil {
		t.Fatalf("Acquire() = %v", err)
	}
	logger := slog.New(slog.NewTextHandler(&g.log, nil))
	observer := WithObserver(func(b Batch) {
		g.batches.Refills += b.Refills
		g.batches.Splits += b.Splits
		g.batches.Merges += b.Merges
	})
	g.Aggregator = newAggregator(t, s, append([]Option{WithClock(clock), WithLogger(logger), observer}, opts...)...)
	enginetest.CatchUp()
	q := store.Query{Index: "GSI3", PK: "", Prefix: "BUCKET#"}
	for _, ns := range namespaces(t, g.table.Store()) {
		q.PK = ns + "/ENTITY#e"
		if page, err := g.table.Store().Query(t.Context(), q); err != nil {
			t.Fatalf("Query() = %v", err)
		} else if len(page.Items) > 0 {
			g.shard = layout.BucketKey{NS: ns, Entity: "e", Resource: "r"}
		}
	}
	return g
}

// namespaces returns the ids of the namespaces.
func namespaces(t *testing.T, s store.Store) (ids []string) {
	t.Helper()
	page := check.Call(s.Query(t.Context(), store.Query{PK: "_/SYSTEM#", Prefix: "#NSID#", Consistent: true})).Must(t, "Query()")
	for _, it := range page.Items {
		ids = append(ids, it.Get("namespace_id").Text())
	}
	return ids
}

// number returns a shard of the bucket, and item its item.
func (g *garden) number(n int) layout.BucketKey {
	s := g.shard
	s.Shard = n
	return s
}

func (g *garden) item(n int) expr.Item {
	g.Helper()
	items := check.Call(g.table.Store().Read(context.Background(), []store.Key{g.number(n).Key()}, true)).Must(g, "Read()")
	return items[0]
}

// state returns the state of a shard, nil when there is none.
func (g *garden) state(n int) *bucket.State {
	g.Helper()
	it := g.item(n)
	if it == nil {
		return nil
	}
	s := check.Call(layout.ReadState(it)).Must(g, "layout.ReadState()")
	return &s
}

// tokens returns the balance of a limit, in all shards together.
func (g *garden) tokens(limit string) (sum int64) {
	g.Helper()
	for n := range 4 {
		if it := g.item(n); it != nil {
			tokens, ok := it.Get("b_" + limit + "_tk").Int()
			if !ok {
				g.Fatalf("shard %d has no %s", n, limit)
			}
			sum += tokens
		}
	}
	return sum
}

// set changes an attribute of a shard, and returns the change.
func (g *garden) set(n int, attribute string, v int64) store.Change {
	g.Helper()
	return g.setTo(n, attribute, expr.N(v))
}

func (g *garden) setTo(n int, attribute string, v expr.Value) store.Change {
	g.Helper()
	c := store.Change{Key: g.number(n).Key(), Old: g.item(n), At: g.now.Truncate(time.Second)}
	op := expr.Operation{Placeholders: 1, Update: []expr.Action{expr.Set(expr.Attr(attribute), 0)}}
	bound := check.Call(op.Call(v).Bind()).Must(g, "Bind()")
	if _, err := g.table.Store().Write(context.Background(), store.Write{Key: c.Key, Expr: bound}); err != nil {
		g.Fatalf("Write() = %v", err)
	}
	c.New = g.item(n)
	return c
}

// seen applies changes, in the order given, as those that come next in the stream.
func (g *garden) seen(changes ...store.Change) {
	g.Helper()
	for i := range changes {
		changes[i].Sequence = sequence(int(g.now.UnixMilli()) + i)
	}
	mustApply(g, g.Aggregator, changes...)
}

// shards returns the counts of the shards that are there, by number.
func (g *garden) shards() map[int]int {
	g.Helper()
	counts := map[int]int{}
	for n := range 8 {
		if s := g.state(n); s != nil {
			counts[n] = s.Shards
		}
	}
	return counts
}

// want compares the counts of the shards.
func (g *garden) want(when string, want ...int) {
	g.Helper()
	got := g.shards()
	ok := len(got) == len(want)/2
	for i := 0; i < len(want); i += 2 {
		ok = ok && got[want[i]] == want[i+1]
	}
	if !ok {
		g.Errorf("%s the shards are %v, want %v", when, got, want)
	}
}

// TestRefill refills a bucket that has less than the batch took.
func TestRefill(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		g := newGarden(t, s)
		created := store.Change{Key: g.shard.Key(), New: g.item(0), At: g.now}
		g.now = g.now.Add(6 * time.Second)
		g.seen(created)
		if rpm, tpm := g.tokens("rpm"), g.tokens("tpm"); rpm != 50_000 || tpm != 10_001_000 {
			t.Errorf("after 6 s there are %d rpm and %d tpm, want 50000 and 10001000", rpm, tpm)
		}
		if at := g.state(0).RefilledAt; at != g.now.UnixMilli() {
			t.Errorf("the bucket was refilled at %d, want %d", at, g.now.UnixMilli())
		}
		if expires := g.state(0).ExpiresAt; expires <= noon.Add(time.Minute).Unix() {
			t.Errorf("the bucket expires at %d, before it would be full", expires)
		}
		g.now = g.now.Add(6 * time.Second)
		g.seen(created) // is not the present any more
		if rpm := g.tokens("rpm"); rpm != 50_000 {
			t.Errorf("a late batch leaves %d rpm, want 50000", rpm)
		}
		little := g.set(0, "b_rpm_tc", 61_000)
		g.now = g.now.Add(6 * time.Second)
		g.seen(little)
		if rpm := g.tokens("rpm"); rpm != 50_000 {
			t.Errorf("a batch that took little leaves %d rpm, want 50000", rpm)
		}
		much := g.set(0, "b_rpm_tc", 161_000)
		g.now = g.now.Add(maxBatchAge + time.Second)
		g.seen(much)
		if rpm := g.tokens("rpm"); rpm != 50_000 {
			t.Errorf("an old batch leaves %d rpm, want 50000", rpm)
		}
		if g.batches.Refills != 1 {
			t.Errorf("the observer was reported of %d refills, want 1", g.batches.Refills)
		}
		a := newAggregator(t, s, WithClock(func() time.Time { return g.now }), WithoutTending())
		much = g.set(0, "b_rpm_tc", 961_000)
		mustApply(t, a, much)
		if rpm := g.tokens("rpm"); rpm != 50_000 {
			t.Errorf("an aggregator that does not tend leaves %d rpm, want 50000", rpm)
		}
	})
}

// An indexed store may be one of partitions, and throttles the first writes that enter a bucket into an index.
type indexed struct {
	store.Store
	partitions         bool
	throttled, entries int
}

func (s *indexed) Partitioned() bool { return s.partitions }

func (s *indexed) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if _, ok := layout.ParseBucketKey(w.Key); !ok || !faulttest.EntersIndex(w) {
		return s.Store.Write(ctx, w)
	}
	if s.entries++; s.entries <= s.throttled {
		return store.Result{}, &store.Error{Throttled: true, Unavailable: true}
	}
	return s.Store.Write(ctx, w)
}

// TestRefillLists refills a bucket three times that is not in the index of its resource. The first entry is throttled, the second
// refill makes it again, and the third one has nothing to enter.
func TestRefillLists(t *testing.T) {
	for partitions, want := range map[bool]int{true: 2, false: 0} {
		g := newGarden(t, newMemory(t))
		unlisted := slices.DeleteFunc(slices.Clone(g.item(0)), func(a expr.Attribute) bool { return a.Name == "GSI2PK" || a.Name == "GSI2SK" })
		if _, err := g.table.Store().Write(t.Context(), store.Write{Kind: store.Put, Key: g.shard.Key(), Item: unlisted}); err != nil {
			t.Fatalf("Write() = %v", err)
		}
		index := &indexed{Store: g.table.Store(), partitions: partitions, throttled: 1}
		g.table = g.tableOf(index)
		for refills := range 3 {
			g.now = g.now.Add(10 * time.Second)
			g.seen(g.set(0, "b_rpm_tc", int64(161_000+100_000*refills)))
			if got := g.batches.Refills; got != refills+1 {
				t.Fatalf("%d refills, want %d", got, refills+1)
			}
			if got := layout.IsListed(g.item(0)); got != (partitions && refills > 0) {
				t.Errorf("after refill %d the bucket is in the index: %t", refills+1, got)
			}
		}
		if index.entries != want {
			t.Errorf("the index was entered %d times, want %d", index.entries, want)
		}
		if g.log.Len() > 0 {
			t.Errorf("log = %s, want nothing", g.log.String())
		}
	}
}

// TestRefillOfALongBatch leaves a bucket alone that has less than a long batch took of it, and more than is taken soon.
func TestRefillOfALongBatch(t *testing.T) {
	for _, test := range []struct {
		took    time.Duration
		refills int
	}{{50 * time.Second, 0}, {14 * time.Second, 1}} { // it has 40 of the 61 that were taken
		g := newGarden(t, newMemory(t))
		created := store.Change{Key: g.shard.Key(), New: g.item(0), At: g.now}
		g.now = g.now.Add(test.took)
		g.seen(created, g.set(0, "b_rpm_tc", 61_000))
		if g.batches.Refills != test.refills {
			t.Errorf("after a batch of %v there were %d refills, want %d", test.took, g.batches.Refills, test.refills)
		}
	}
}

// In TestRefillOfAMixedFleet, a bucket of 100 is idle and full for five minutes. Then a client takes 80 that neither refills
// nor leaves a note, and a batch later 10 more. The aggregator does not hand the idle time out again, and refills what flows
// in from then on.
func TestRefillOfAMixedFleet(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		g := newGarden(t, s)
		g.set(0, "b_rpm_tk", 100_000)
		take := func(tokens int64) store.Change {
			l := g.state(0).Limits[0]
			before := g.item(0)
			g.set(0, "b_rpm_tk", l.Tokens-tokens)
			change := g.set(0, "b_rpm_tc", l.Consumed+tokens)
			change.Old = before
			return change
		}
		g.now = g.now.Add(5 * time.Minute)
		g.seen(take(80_000))
		if rpm := g.tokens("rpm"); rpm != 20_000 {
			t.Errorf("after 80 of 100 were taken there are %d rpm, want 20000", rpm)
		}
		g.now = g.now.Add(6 * time.Second)
		g.seen(take(19_000)) // refilled since the first batch: by the note
		if rpm := g.tokens("rpm"); rpm != 11_000 {
			t.Errorf("6 s later 19 were taken, and there are %d rpm, want 1000 and the 10000 that flowed in", rpm)
		}
		g.now = g.now.Add(5 * time.Minute)
		g.seen(take(10_000))
		if rpm := g.tokens("rpm"); rpm != 90_000 {
			t.Errorf("after 10 were taken of the full bucket there are %d rpm, want 90000", rpm)
		}
	})
}

// TestRefillKeepsTheLifetime refills the bucket of a limiter with a lifetime of its own: it expires as if the limiter had
// refilled it.
func TestRefillKeepsTheLifetime(t *testing.T) {
	for _, times := range []int{1, 7, 60} {
		g := newGardenOf(t, newMemory(t), []zlimit.Option{zlimit.WithTuning(zlimit.Tuning{BucketTTL: times})})
		created := store.Change{Key: g.shard.Key(), New: g.item(0), At: g.now}
		g.now = g.now.Add(6 * time.Second)
		g.seen(created)
		want := g.now.Add(time.Duration(times)*time.Minute).Unix() + 1
		if got := g.state(0).ExpiresAt; got != want || g.batches.Refills != 1 {
			t.Errorf("a lifetime of %d minutes: after %d refills the bucket expires at %d, want %d", times, g.batches.Refills, got, want)
		}
	}
}

// partitioned returns a store that has hot keys.
func partitioned(t *testing.T) zlimit.Store {
	t.Helper()
	s, _, _ := newTable(t)
	return s
}

// TestSplitAndMerge splits a bucket with too many writes, up to the allowed number of shards, and merges it again.
// Tokens are conserved.
func TestSplitAndMerge(t *testing.T) {
	g := newGarden(t, partitioned(t), WithMaxShards(4))
	before := g.tokens("tpm")
	g.set(0, "b_wcu_tk", scarceUnits-1000)
	pressed := g.set(0, "rf", g.now.UnixMilli())
	g.seen(pressed)
	g.want("pressed,", 0, 2, 1, 2)
	if after, refill := g.tokens("tpm"), int64(10_001_000/60_000); after != before+refill {
		t.Errorf("a split leaves %d tpm, want %d and the refill of a millisecond, %d", after, before, refill)
	}
	g.seen(pressed) // is not so any more, except what it reports
	g.want("when the batch comes again,", 0, 2, 1, 2)
	g.set(1, "b_wcu_tk", 0)
	g.seen(g.set(1, "rf", g.now.UnixMilli()))
	g.want("pressed again,", 0, 2, 1, 4, 3, 4)
	g.set(3, "b_wcu_tk", 0)
	g.seen(g.set(3, "rf", g.now.UnixMilli()))
	g.want("pressed at the most,", 0, 2, 1, 4, 3, 4)

	first := g.set(3, "b_tpm_tc", 1)
	first.At = g.now
	g.now = g.now.Add(20 * time.Second)
	short := g.set(3, "b_tpm_tc", 2)
	short.At = first.At.Add(9 * time.Second)
	g.seen(first, short)
	g.want("calm for too short,", 0, 2, 1, 4, 3, 4)
	short.At = g.now
	before = g.tokens("rpm")
	g.seen(first, short)
	g.want("calm,", 0, 2, 1, 2)
	refill := int64(100_000 / 2 / 3)
	if after := g.tokens("rpm"); after < before || after > before+refill {
		t.Errorf("a merge makes %d rpm of %d and the refill, at most %d", after, before, refill)
	}
	first, g.now = g.set(0, "b_tpm_tc", 1), g.now.Add(20*time.Second)
	g.seen(first, g.set(0, "b_tpm_tc", 2))
	g.want("calm again,", 0, 1)
	if b := g.batches; b.Splits != 2 || b.Merges != 2 || b.Refills != 0 {
		t.Errorf("the observer was reported of %d splits, %d merges and %d refills, want 2, 2 and 0", b.Splits, b.Merges, b.Refills)
	}
}

// TestLostShard takes over the share of a shard that was deleted, without its tokens.
func TestLostShard(t *testing.T) {
	g := newGarden(t, partitioned(t))
	g.set(0, "b_wcu_tk", 0)
	g.seen(g.set(0, "rf", g.now.UnixMilli()))
	g.want("pressed,", 0, 2, 1, 2)
	g.now = g.now.Add(3 * time.Second)
	lost := store.Change{Key: g.number(1).Key(), Old: g.item(1), At: g.now}
	g.seen(lost)
	g.want("while the shard is there,", 0, 2, 1, 2)
	kept, _ := g.item(0).Get("b_rpm_tk").Int()
	check.Fatal(t, "Delete()", g.table.Store().Delete(t.Context(), []store.Key{lost.Key}))
	sound := g.table.Store()
	g.table = g.tableOf(&restored{sound, lost})
	g.seen(lost)
	g.want("when somebody brings the shard back meanwhile,", 0, 2, 1, 2)
	g.table = g.tableOf(sound)
	check.Fatal(t, "Delete()", g.table.Store().Delete(t.Context(), []store.Key{lost.Key}))
	g.seen(lost)
	g.want("without the shard,", 0, 1)
	if got, want := g.tokens("rpm"), kept+100_000/2/20; got != want {
		t.Errorf("the origin has %d rpm, want what it had with its own refill, %d", got, want)
	}
	g.seen(lost)
	g.want("when the batch comes again,", 0, 1)
	low := store.Change{Key: g.shard.Key(), Old: g.item(0), At: g.now}
	check.Fatal(t, "Delete()", g.table.Store().Delete(t.Context(), []store.Key{low.Key}))
	g.seen(low)
	g.want("without the bucket")
}

// restored is a store on which a deleted item comes back before a transaction.
type restored struct {
	store.Store
	lost store.Change
}

func (r *restored) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	if _, err := r.Write(ctx, store.Write{Kind: store.Put, Key: r.lost.Key, Item: r.lost.Old}); err != nil {
		return nil, err
	}
	return r.Store.Transact(ctx, writes)
}

// TestTendingFails applies what it can, and reports the rest to the operator.
func TestTendingFails(t *testing.T) {
	g := newGarden(t, newMemory(t))
	g.now = g.now.Add(6 * time.Second)
	inject(g.Aggregator, func(n int) (bool, error) {
		if n > 3 {
			return false, errDown
		}
		return false, nil
	})
	g.seen(store.Change{Key: g.shard.Key(), New: g.item(0), At: g.now})
	if !strings.Contains(g.log.String(), "what=refill") || !strings.Contains(g.log.String(), errDown.Error()) {
		t.Errorf("log = %s, want the refill that failed", g.log.String())
	}
}

// TestSplitBusy splits a shard that is busy, before its write units run short. The stream has whole seconds, so that
// only the seconds between the first and the last one count. The numbers of writes lie around busyUnits of package
// bucket, 600.
func TestSplitBusy(t *testing.T) {
	for _, test := range []struct {
		name      string
		perSecond []int // writes
		want      bool
	}{
		{"two seconds, of which each may be cut short", []int{900, 900}, false},
		{"a second of 700 between two others", []int{10, 700, 10}, true},
		{"a second of 500 between two others", []int{900, 500, 900}, false},
		{"500 and 800", []int{1, 500, 800, 1}, true},
	} {
		s := &shift{first: noon}
		whole := &bucket.State{}
		for second, writes := range test.perSecond {
			for range writes {
				s.count(noon.Add(time.Duration(second)*time.Second), whole, whole)
			}
		}
		if got := s.isBusy(); got != test.want {
			t.Errorf("%s: isBusy() = %v, want %v", test.name, got, test.want)
		}
		half := &bucket.State{Shards: 2}
		s.count(s.last, whole, half)
		if s.isBusy() || s.writes != 1 {
			t.Errorf("%s: after a split isBusy() = %v, by %d writes", test.name, s.isBusy(), s.writes)
		}
	}
	g := newGarden(t, partitioned(t))
	change := g.set(0, "rf", g.now.UnixMilli())
	var changes []store.Change
	for second, writes := range []int{1, 700, 1} {
		for range writes {
			c := change
			c.At = g.now.Add(time.Duration(second) * time.Second)
			changes = append(changes, c)
		}
	}
	g.now = g.now.Add(3 * time.Second)
	g.seen(changes...)
	g.want("written 700 times in a second,", 0, 2, 1, 2)
}

// TestBusyQuotaThatCarries asks what a busy item needs, with and without a quota that carries. Such an item is not split.
func TestBusyQuotaThatCarries(t *testing.T) {
	g := newGarden(t, partitioned(t))
	for carry, want := range map[int64]string{0: split, 1: nothing} {
		state := &bucket.State{Limits: []bucket.Limit{{Name: "usd", Rare: &bucket.Rare{Carry: carry}}}}
		s := &shift{first: noon, state: state}
		for second, writes := range []int{1, 700, 1} {
			for range writes {
				s.count(noon.Add(time.Duration(second)*time.Second), state, state)
			}
		}
		if got := g.tender.need(s, g.now.UnixMilli()); got != want {
			t.Errorf("a busy item with a quota that carries %d needs %q, want %q", carry, got, want)
		}
	}
}
