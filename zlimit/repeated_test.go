package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A readCount is a store of partitions that counts what is read of it.
type readCount struct {
	partitioned
	calls    atomic.Int64
	entities atomic.Int64 // items that are stored for an entity, there or not
	others   atomic.Int64
	down     atomic.Bool
}

var errRepeatedDown = &store.Error{Unavailable: true, Err: errors.New("down")}

func (s *readCount) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	if s.down.Load() {
		return nil, errRepeatedDown
	}
	s.calls.Add(1)
	for _, k := range keys {
		if strings.Contains(k.PK, "/ENTITY#") {
			s.entities.Add(1)
		} else {
			s.others.Add(1)
		}
	}
	return s.Store.Read(ctx, keys, consistent)
}

func (s *readCount) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if s.down.Load() {
		return store.Result{}, errRepeatedDown
	}
	return s.Store.Write(ctx, w)
}

// A crew is several processes on one table, each of which has met buckets whose items repeat the limits of their entities.
type crew struct {
	*testing.T
	*clock
	store *readCount
	admin *zlimit.RateLimiter // changes limits, and takes nothing
	all   []*zlimit.RateLimiter
}

// newCrew returns processes whose clocks are ahead of that of the crew, or behind.
func newCrew(t *testing.T, skews ...time.Duration) *crew {
	t.Helper()
	c := &crew{T: t, clock: newClock(), store: &readCount{partitioned: partitioned{store.Of(newMemory(t))}}}
	c.admin = newLimiter(t, zlimit.StoreOn(c.store), zlimit.WithClock(c.now))
	setSystem(t, c.admin, zlimit.PerMinute("rpm", 600))
	for _, skew := range skews {
		c.all = append(c.all, newLimiter(t, zlimit.StoreOn(c.store), zlimit.WithClock(func() time.Time { return c.now().Add(skew) })))
	}
	for i := range 2 { // the item of the first bucket is read with its limits, and shows that this would not have been needed
		for _, l := range c.all {
			c.use(l, fmt.Sprint("warm-", i))
		}
	}
	return c
}

// use takes one token of the bucket of an entity.
func (c *crew) use(l *zlimit.RateLimiter, entity string) *zlimit.Lease {
	c.Helper()
	lease := acquire(c.T, l, zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
	l.Engine().Quiesce()
	return lease
}

// capacity returns the capacity that a process uses.
func (c *crew) capacity(l *zlimit.RateLimiter, entity string) int64 {
	c.Helper()
	found := check.Call(l.Limits.Resolve(c.Context(), entity, "gpt-4")).Must(c, "Limits.Resolve()")
	l.Engine().Quiesce()
	return found.Limits[0].Capacity
}

// charged returns the capacity that a request used.
func charged(lease *zlimit.Lease) int64 { return lease.Statuses()[0].Limit.Capacity }

// set changes what the admin has stored for an entity.
func (c *crew) set(entity string, capacity int64) {
	c.Helper()
	at, limits := zlimit.Level{Entity: entity, Resource: "gpt-4"}, []zlimit.Limit{zlimit.PerMinute("rpm", capacity)}
	check.Fatal(c, "Limits.Set()", c.admin.Limits.Set(c.Context(), at, zlimit.Config{Limits: limits}))
}

// In TestFleetReadsLimitsOnce, twenty processes meet one bucket within the time of their limits. One of them reads what is stored for the
// entity, and each of the others the item of the bucket.
func TestFleetReadsLimitsOnce(t *testing.T) {
	c := newCrew(t, make([]time.Duration, 20)...)
	calls, entities, others := c.store.calls.Load(), c.store.entities.Load(), c.store.others.Load()
	for _, l := range c.all {
		c.sleep(1500 * time.Millisecond)
		c.use(l, "key-1")
	}
	if got := c.store.entities.Load() - entities; got != 3 {
		t.Errorf("20 processes read %d items of the entity, want 3", got)
	}
	if got := c.store.others.Load() - others; got != 20 {
		t.Errorf("20 processes read %d other items, want the bucket once each", got)
	}
	if got := c.store.calls.Load() - calls; got != 20 {
		t.Errorf("20 processes make %d reads, want one each", got)
	}
}

// TestOneProcessReadsAtOnce checks that a process alone reads the limits and the item of a bucket in one call, whether the bucket is new or
// known.
func TestOneProcessReadsAtOnce(t *testing.T) {
	c := newCrew(t, 0)
	for round := range 3 {
		before := c.store.calls.Load()
		for i := range 10 {
			c.use(c.all[0], fmt.Sprint("key-", i))
		}
		if got := c.store.calls.Load() - before; got != 10 {
			t.Errorf("round %d: %d reads for ten buckets, want 10", round, got)
		}
		c.sleep(2 * time.Minute)
	}
}

// In TestNamesThatAreUsedOnce, a fleet meets each of its buckets once after a while in which they repeated limits. Reads come in one call
// again.
func TestNamesThatAreUsedOnce(t *testing.T) {
	c := newCrew(t, 0, 0, 0)
	for i := range 20 {
		c.use(c.all[1], fmt.Sprint("new-", i))
	}
	before := c.store.calls.Load()
	for i := range 10 {
		c.use(c.all[1], fmt.Sprint("newer-", i))
	}
	if got := c.store.calls.Load() - before; got != 10 {
		t.Errorf("%d reads for ten new buckets, want 10", got)
	}
}

// TestLimitsOfTheItem compares two views of an entity: the item of its bucket, and the store. Both have the limits of
// both levels, the failure policy, and the parent.
func TestLimitsOfTheItem(t *testing.T) {
	cases := map[string]func(t *testing.T, l *zlimit.RateLimiter){
		"nothing": func(*testing.T, *zlimit.RateLimiter) {},
		"of the resource": func(t *testing.T, l *zlimit.RateLimiter) {
			limits := []zlimit.Limit{zlimit.PerMinute("rpm", 60), {Name: "tpm", Capacity: 7, RefillAmount: 3, RefillPeriod: 5 * time.Second}}
			at := zlimit.Level{Entity: "key-1", Resource: "gpt-4"}
			check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), at, zlimit.Config{Limits: limits, OnUnavailable: zlimit.PolicyAllow}))
		},
		"default, and a parent": func(t *testing.T, l *zlimit.RateLimiter) {
			create(t, l, zlimit.Entity{ID: "p"})
			create(t, l, zlimit.Entity{ID: "key-1", ParentID: "p", Cascade: true})
			limits := []zlimit.Limit{zlimit.PerMinute("rpm", 50)}
			setLimits(t, l, zlimit.Level{Entity: "key-1"}, limits...)
		},
		"a policy alone": func(t *testing.T, l *zlimit.RateLimiter) {
			at := zlimit.Level{Entity: "key-1", Resource: "gpt-4"}
			check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), at, zlimit.Config{OnUnavailable: zlimit.PolicyAllow}))
		},
	}
	every := everyLimit()
	rpm := slices.IndexFunc(every, func(l zlimit.Limit) bool { return l.Name == "rpm" })
	for _, limit := range slices.Delete(slices.Clone(every), rpm, rpm+1) { // all of them together are too large to be repeated
		cases["limits with each field, "+limit.Name] = func(t *testing.T, l *zlimit.RateLimiter) {
			at := zlimit.Level{Entity: "key-1", Resource: "gpt-4"}
			setLimits(t, l, at, every[rpm], limit)
		}
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCrew(t, 0, 0)
			prepare(t, c.admin)
			c.use(c.all[0], "key-1")
			before := c.store.entities.Load()
			c.use(c.all[1], "key-1")
			if got := c.store.entities.Load() - before; got != 0 {
				t.Fatalf("the second process reads %d items of entities", got)
			}
			got := check.Call(c.all[1].Limits.Resolve(t.Context(), "key-1", "gpt-4")).Must(t, "Limits.Resolve()")
			want := check.Call(c.admin.Limits.Resolve(t.Context(), "key-1", "gpt-4")).Must(t, "Limits.Resolve()")
			if !slices.Equal(got.Limits, want.Limits) || got.Source != want.Source || got.OnUnavailable != want.OnUnavailable {
				t.Errorf("by the item %+v holds, stored is %+v", got, want)
			}
			if name == "default, and a parent" {
				if got := len(collect(t, "Buckets()", c.admin.Entities.Buckets(t.Context(), "p"))); got != 1 {
					t.Errorf("the parent has %d buckets, want 1", got)
				}
				parent := layout.BucketKey{NS: c.admin.NS(), Entity: "p", Resource: "gpt-4"}
				items := check.Call(c.store.Store.Read(t.Context(), []store.Key{parent.Key()}, true)).Must(t, "Store.Read()")
				state, err := layout.ReadState(items[0])
				if err != nil || state.Limits[0].Consumed != 2000 {
					t.Errorf("the parent was charged %+v, %v, want both requests", state.Limits, err)
				}
			}
			c.store.down.Store(true)
			lease, err := c.all[1].Acquire(t.Context(), zlimit.Request{Entity: "key-1", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
			if admitted := err == nil && lease.Degraded(); admitted != (want.OnUnavailable == zlimit.PolicyAllow) {
				t.Errorf("in an outage Acquire() = %v, want the policy %v", err, want.OnUnavailable)
			}
		})
	}
}

// TestChangesBindInTime changes the limits of an entity again and again, beside processes whose clocks differ by as much as they may.
// Each request follows limits that were stored within the time for which a process remembers limits. The processes learn from the item
// most of the time.
func TestChangesBindInTime(t *testing.T) {
	const ttl = time.Minute
	reads, requests := int64(0), 0
	for seed := range soak.Pick[uint64](15, 40) {
		random := rand.New(rand.NewPCG(seed, 25))
		skews := make([]time.Duration, 8)
		for i := range skews {
			skews[i] = time.Duration(random.IntN(10_001)-5000) * time.Millisecond
		}
		c := newCrew(t, skews...)
		type change struct {
			at       time.Time
			capacity int64
		}
		changes := []change{{c.now(), 600}}
		before := c.store.entities.Load()
		for range 200 {
			c.sleep(time.Duration(random.IntN(5000)) * time.Millisecond)
			if random.IntN(20) == 0 {
				capacity := int64(1000 + len(changes))
				c.set("key-1", capacity)
				changes = append(changes, change{c.now(), capacity})
				continue
			}
			got := charged(c.use(c.all[random.IntN(len(c.all))], "key-1"))
			requests++
			for i := len(changes) - 1; ; i-- {
				if changes[i].capacity == got {
					break
				}
				if c.now().Sub(changes[i].at) > ttl {
					t.Fatalf("seed %d: a process goes by a capacity of %d, %v after it was changed", seed, got, c.now().Sub(changes[i].at))
				}
			}
		}
		reads += c.store.entities.Load() - before
	}
	if most := int64(requests) * 2; reads > most {
		t.Errorf("%d items of the entity are read for %d requests, which is no sharing", reads, requests)
	}
}

// In TestClocksDoNotProlongLimits, a process learns limits from an item that one with a clock ahead of its own has written. They were changed
// meanwhile, and bind a minute after the change.
func TestClocksDoNotProlongLimits(t *testing.T) {
	c := newCrew(t, 5*time.Second, -5*time.Second)
	c.use(c.all[0], "key-1")
	c.sleep(time.Millisecond)
	c.set("key-1", 77)
	c.sleep(20 * time.Second)
	if got := charged(c.use(c.all[1], "key-1")); got != 600 {
		t.Fatalf("a process does not go by the item: by a capacity of %d", got)
	}
	c.sleep(40 * time.Second)
	if got := charged(c.use(c.all[1], "key-1")); got != 77 {
		t.Errorf("a minute after the change a process goes by a capacity of %d, want 77", got)
	}
}

// In TestTheOldestReadCounts, a process remembers what is stored for an entity longer than the limits of one of its resources. The item of
// the bucket does not say that all was read with these.
func TestTheOldestReadCounts(t *testing.T) {
	c := newCrew(t, 0, 0)
	other := zlimit.Request{Entity: "key-1", Resource: "other", Consume: zlimit.Amounts{"rpm": 1}}
	acquire(t, c.all[0], other)
	at, limits := zlimit.Level{Entity: "key-1"}, []zlimit.Limit{zlimit.PerMinute("rpm", 77)}
	setLimits(t, c.admin, at, limits...)
	c.sleep(40 * time.Second)
	c.use(c.all[0], "key-1")
	c.sleep(20 * time.Second)
	if got := charged(c.use(c.all[1], "key-1")); got != 77 {
		t.Errorf("a minute after the change a process goes by a capacity of %d, want 77", got)
	}
}

// In TestWhatWasReadLaterStays, a process that knows a level as it is now meets an item that repeats the level as it was.
func TestWhatWasReadLaterStays(t *testing.T) {
	c := newCrew(t, 0, 0)
	c.use(c.all[0], "key-1")
	at, limits := zlimit.Level{Entity: "key-1"}, []zlimit.Limit{zlimit.PerMinute("rpm", 77)}
	setLimits(t, c.admin, at, limits...)
	c.sleep(10 * time.Second)
	acquire(t, c.all[1], zlimit.Request{Entity: "key-1", Resource: "other", Consume: zlimit.Amounts{"rpm": 1}})
	if got := charged(c.use(c.all[1], "key-1")); got != 77 {
		t.Errorf("a process goes by a capacity of %d, want 77, which it has read before", got)
	}
}

// In TestOldCopiesDoNotReturn, a process writes a bucket long after it read the limits, and after another process has repeated later ones.
// The item keeps the later ones.
func TestOldCopiesDoNotReturn(t *testing.T) {
	c := newCrew(t, 0, 0)
	repeated := func() int64 {
		t.Helper()
		key := layout.BucketKey{NS: c.admin.NS(), Entity: "key-1", Resource: "gpt-4"}.Key()
		items := check.Call(c.store.Store.Read(t.Context(), []store.Key{key}, true)).Must(t, "Store.Read()")
		at, _ := items[0].Get("ck").Int()
		return at
	}
	c.use(c.all[0], "key-1")
	c.sleep(5 * time.Second)
	check.Fatal(t, "ReadLimitsNow()", c.all[1].ReadLimitsNow(t.Context(), "key-1", "gpt-4"))
	c.use(c.all[1], "key-1")
	latest := repeated()
	if want := c.now().UnixMilli(); latest != want {
		t.Fatalf("the item repeats limits of %d, want %d", latest, want)
	}
	c.sleep(20 * time.Second)
	c.use(c.all[0], "key-1")
	if got := repeated(); got != latest {
		t.Errorf("the item repeats limits of %d, want still those of %d", got, latest)
	}
}

// TestWhatIsRefusedIsNotRepeated stores a feature of another program at a level if it does not matter so far: each process has to
// see it.
func TestWhatIsRefusedIsNotRepeated(t *testing.T) {
	c := newCrew(t, 0)
	c.set("key-1", 77)
	setLimits(t, c.admin, zlimit.Level{Entity: "key-1"}, zlimit.PerMinute("rpm", 5))
	key := layout.EntityConfigKey{NS: c.admin.NS(), Entity: "key-1", Resource: zlimit.DefaultResource}.Key()
	mark := expr.Operation{Placeholders: 1, Update: []expr.Action{expr.Set(expr.Attr("l_rpm_rsa"), 0)}}
	bound := check.Call(mark.Call(expr.N(5)).Bind()).Must(t, "Bind()")
	if _, err := c.store.Store.Write(t.Context(), store.Write{Key: key, Expr: bound}); err != nil {
		t.Fatalf("Store.Write() = %v", err)
	}
	c.use(c.all[0], "key-1")
	bucket := layout.BucketKey{NS: c.admin.NS(), Entity: "key-1", Resource: "gpt-4"}.Key()
	items := check.Call(c.store.Store.Read(t.Context(), []store.Key{bucket}, true)).Must(t, "Store.Read()")
	if _, ok := items[0].Lookup("ck"); ok {
		t.Errorf("the item repeats limits: %v", items[0])
	}
}

// TestNothingIsRepeatedWhereReadsAreFree uses a store without a price.
func TestNothingIsRepeatedWhereReadsAreFree(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	setSystem(t, l, zlimit.PerMinute("rpm", 600))
	burst(t, l, 1)
	if _, ok := item(t, l).Lookup("ck"); ok {
		t.Errorf("the item repeats limits: %v", item(t, l))
	}
}

// In TestOwnChangesBindAtOnce, a process changes or forgets limits while the item still repeats the former ones. Its next request reads what is
// stored.
func TestOwnChangesBindAtOnce(t *testing.T) {
	for name, do := range map[string]func(c *crew, l *zlimit.RateLimiter){
		"forgotten": func(c *crew, l *zlimit.RateLimiter) {
			c.set("key-1", 77)
			l.Limits.Invalidate("key-1", "gpt-4")
		},
		"all forgotten": func(c *crew, l *zlimit.RateLimiter) {
			c.set("key-1", 77)
			l.Limits.InvalidateAll()
		},
		"changed, and pushed out of memory": func(c *crew, l *zlimit.RateLimiter) {
			at, limits := zlimit.Level{Entity: "key-1", Resource: "gpt-4"}, []zlimit.Limit{zlimit.PerMinute("rpm", 77)}
			check.Fatal(c, "Limits.Set()", l.Limits.Set(c.Context(), at, zlimit.Config{Limits: limits}))
			l.ForgetLevels()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrew(t, 4*time.Second, -4*time.Second)
			c.use(c.all[0], "key-1")
			c.sleep(time.Second)
			do(c, c.all[1])
			if got := c.capacity(c.all[1], "key-1"); got != 77 {
				t.Errorf("the process goes by a capacity of %d, want 77", got)
			}
		})
	}
}

// TestWhatAnItemMayRepeat gives an item other attributes than this version writes: what cannot be read is read from the store.
func TestWhatAnItemMayRepeat(t *testing.T) {
	ahead := newClock().now().Add(time.Minute).UnixMilli()
	for name, set := range map[string]expr.Item{
		"a later version's":      {{Name: "cl", Value: expr.S(`{"resource":{"version":1,"limits":[{"name":"rpm","cp":9,"ra":9,"rp":9,"later":true}]}}`)}},
		"windows of no minute":   {{Name: "cl", Value: expr.S(`{"resource":{"version":1,"limits":[{"name":"rpm","cp":9,"ra":9,"rp":9,"sched":"1h9"}]}}`)}},
		"a limit of nothing":     {{Name: "cl", Value: expr.S(`{"resource":{"version":1,"limits":[{"name":"rpm","cp":0,"ra":9,"rp":9}]}}`)}},
		"an unknown policy":      {{Name: "cl", Value: expr.S(`{"default":{"version":1,"on_unavailable":"wait"}}`)}},
		"no JSON":                {{Name: "cl", Value: expr.S(`{`)}},
		"a time far ahead":       {{Name: "ck", Value: expr.N(ahead)}, {Name: "cl", Value: expr.S(`{"resource":{"version":1,"limits":[{"name":"rpm","cp":9,"ra":9,"rp":9}]}}`)}},
		"a time far in the past": {{Name: "ck", Value: expr.N(0)}, {Name: "cl", Value: expr.S(`{"resource":{"version":1,"limits":[{"name":"rpm","cp":9,"ra":9,"rp":9}]}}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrew(t, 0, 0)
			c.use(c.all[0], "key-1")
			key := layout.BucketKey{NS: c.admin.NS(), Entity: "key-1", Resource: "gpt-4"}.Key()
			items := check.Call(c.store.Store.Read(t.Context(), []store.Key{key}, true)).Must(t, "Store.Read()")
			if _, ok := items[0].Lookup("ck"); !ok {
				t.Fatalf("the item repeats nothing: %v", items[0])
			}
			item := slices.Clone(items[0])
			for _, a := range set {
				item = slices.DeleteFunc(item, func(old expr.Attribute) bool { return old.Name == a.Name })
				item = append(item, a)
			}
			if _, err := c.store.Store.Write(t.Context(), store.Write{Kind: store.Put, Key: key, Item: item}); err != nil {
				t.Fatalf("Store.Write() = %v", err)
			}
			if got := c.capacity(c.all[1], "key-1"); got != 600 {
				t.Errorf("the process goes by a capacity of %d, want 600, which is stored", got)
			}
		})
	}
}

// In TestRepeatingTakesNoMoreUnits, the item of a bucket has nearly filled its write unit. It repeats nothing, so that it stays within.
func TestRepeatingTakesNoMoreUnits(t *testing.T) {
	repeats := map[bool]int{}
	for size := range 20 {
		c := newCrew(t, 0)
		var limits []zlimit.Limit
		consume := zlimit.Amounts{}
		for i := range size%10 + 1 {
			name := fmt.Sprint("limit-", i)
			limits, consume[name] = append(limits, zlimit.PerMinute(name, 600)), 1
		}
		entity := strings.Repeat("e", 20+size*2)
		if size >= 10 {
			setLimits(t, c.admin, zlimit.Level{Entity: entity}, limits...)
		}
		setSystem(t, c.admin, limits...)
		c.all[0].Limits.InvalidateAll()
		key := layout.BucketKey{NS: c.admin.NS(), Entity: entity, Resource: "gpt-4"}.Key()
		units := func() (units int, repeated bool) {
			items := check.Call(c.store.Store.Read(t.Context(), []store.Key{key}, true)).Must(t, "Store.Read()")
			_, repeated = items[0].Lookup("ck")
			bare := slices.DeleteFunc(slices.Clone(items[0]), func(a expr.Attribute) bool { return a.Name == "ck" || a.Name == "cl" })
			return (store.Size(items[0])+1023)/1024 - (store.Size(bare)+1023)/1024, repeated
		}
		for range 2 {
			acquire(t, c.all[0], zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: consume})
			more, repeated := units()
			if repeats[repeated]++; more > 0 {
				t.Errorf("%d limits, %d bytes of id: the item takes %d write units more", len(limits), len(entity), more)
			}
			c.sleep(2 * time.Minute)
		}
	}
	if repeats[true] == 0 || repeats[false] == 0 {
		t.Errorf("of the items %d repeat limits, and %d do not: the sizes show nothing", repeats[true], repeats[false])
	}
}
