package zlimit_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
	"github.com/zlimit/zlimit-go/internal/stream/leases"
	"github.com/zlimit/zlimit-go/internal/table"
	"github.com/zlimit/zlimit-go/zlimit"
)

var updateDocs = flag.Bool("update", false, "rewrite docs/costs.md from what is measured")

// costsFile is the table of costs, which TestCosts measures.
const costsFile = "../docs/costs.md"

const costsHead = `# What calls cost

Measured on a DynamoDB engine with ` + "`ReturnConsumedCapacity=INDEXES`" + ` by ` + "`go test ./zlimit -run Costs`" + `, which fails when a
figure changes; ` + "`-update`" + ` rewrites this page. Items are below 1 KB. One write unit is added for each failed
condition: AWS charges it like a write, although its replies do not report it. A write unit costs five times as much as
a read unit. [What it costs](dynamodb.md#what-it-costs) has the prices in money.

A rejection reads every bucket of the request that was not seen recently: the child, each parent, each shard. The
reported wait is right unless other requests take tokens meanwhile. A rejection from recent figures costs nothing.
Shards are read together: a bucket of n shards costs n + 1 read units, since the request's own shard is read first.

`

const costsOfUsage = `## Usage, for each acquire

Computed, not measured: an aggregator writes the hour of a bucket once per batch that changes it, and three more times
at the end of the hour. Writes cost 0.625 USD a million, reads 0.125: half a unit per batch, one per hour. Requests
arrive at random times, and a batch holds all changes of its time. By default that is a minute on DynamoDB. A new
snapshot of an hour or a day costs one unit more, a new snapshot of a month two.

| Requests a second, of one bucket | Write units, 1 s | USD a million, 1 s | Write units, 10 s | USD a million, 10 s | Write units, 60 s | USD a million, 60 s |
|---|---|---|---|---|---|---|
`

// perRequest returns how many intervals of so many seconds have requests, for each request; they come at random times.
func perRequest(rate, seconds float64) float64 {
	return (1 - math.Exp(-rate*seconds)) / (rate * seconds)
}

// costed returns a limiter that uses a clock. No call of a busy machine is late for it, in whose place it would make another.
func costed(t *testing.T, s zlimit.Store, c *clock, opts ...zlimit.Option) *zlimit.RateLimiter {
	t.Helper()
	return newLimiter(t, s, append(opts, zlimit.WithClock(c.now), zlimit.WithCallTimeout(time.Minute))...)
}

// TestCosts measures the calls and capacity units of each path, and compares them with docs/costs.md.
func TestCosts(t *testing.T) {
	t.Parallel() // it waits more than it computes
	if enginetest.IsMean() {
		t.Skip("it counts every call, and what becomes of it")
	}
	s, faults := newTable(t)
	c := newClock()
	l := costed(t, s, c, zlimit.WithListing(true), zlimit.WithConfigTTL(time.Hour)) // limits are not read again meanwhile
	setSystem(t, l, zlimit.PerMinute("rpm", 100), zlimit.PerMinute("tpm", 10_000))
	ctx := context.Background()
	var page strings.Builder
	page.WriteString(costsHead)
	section := func(title string) {
		fmt.Fprintf(&page, "## %s\n\n| | Calls | Write units | of them indexes | Read units |\n|---|---|---|---|---|\n", title)
	}
	measure := func(name string, by *zlimit.RateLimiter, path func() error) {
		t.Helper()
		lost := by.Stats().LostRaces
		faults.Reset()
		if err := path(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		by.Engine().Quiesce() // what it does in the background counts as well
		used := faults.Capacity("")
		indexes := 0.0
		for _, index := range used.Indexes {
			indexes += index.Write
		}
		failed := float64(by.Stats().LostRaces - lost)
		fmt.Fprintf(&page, "| %s | %d | %v | %v | %v |\n", name, faults.Calls(""), used.Write+failed, indexes, used.Read)
	}
	request := ask(zlimit.Amounts{"rpm": 1, "tpm": 100})
	take := func(l *zlimit.RateLimiter, r zlimit.Request) func() error {
		return func() error {
			_, err := l.Acquire(ctx, r)
			return err
		}
	}
	refuse := func(l *zlimit.RateLimiter, r zlimit.Request) func() error {
		return func() error {
			if _, err := l.Acquire(ctx, r); !errors.As(err, new(*zlimit.ExceededError)) {
				return fmt.Errorf("Acquire() = %w, want an ExceededError", err)
			}
			return nil
		}
	}
	corrected := func(r zlimit.Request, more int64) *zlimit.Lease {
		lease := acquire(t, l, r)
		check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{"tpm": more}))
		return lease
	}

	section("Acquire")
	other := costed(t, s, c, zlimit.WithListing(true), zlimit.WithConfigTTL(time.Hour))
	measure("first use of a bucket that does not exist", other, take(other, request))
	another := zlimit.Request{Entity: "key-2", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}}
	acquire(t, other, zlimit.Request{Entity: "key-3", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
	other.Engine().Quiesce()
	measure("the same, for a third bucket within ten seconds", other, take(other, another))
	c.sleep(45 * time.Second) // it is seldom used, as far as is known
	measure("first use of a bucket by a process", l, take(l, request))
	measure("a known bucket", l, take(l, request))
	c.sleep(4 * time.Second)
	measure("a known bucket, with its refill", l, take(l, request))
	measure("the first refill of such a bucket", other, take(other, another))
	for _, entity := range []string{"key-4", "key-5", "key-6"} {
		acquire(t, other, zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 100}})
	}
	other.Engine().Quiesce()
	measure("the first rejection of such a bucket", other, refuse(other, zlimit.Request{Entity: "key-6", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}}))
	overdrawn := acquire(t, other, zlimit.Request{Entity: "key-7", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 100}})
	check.Fatal(t, "Adjust()", overdrawn.Adjust(zlimit.Amounts{"rpm": 10}))
	measure("a commit that leaves such a bucket in debt", other, func() error { return overdrawn.Commit(ctx) })
	c.sleep(4 * time.Second)
	acquire(t, other, request)
	measure("a known bucket whose stamp another process moved", l, take(l, request))
	c.sleep(10 * time.Second)
	acquire(t, other, request)
	measure("a known bucket that other processes use as well, as its images show", l, take(l, request))
	acquire(t, other, ask(zlimit.Amounts{"rpm": available(t, l, "rpm")}))
	measure("rejected, against the last image", l, refuse(l, request))
	measure("rejected by recent figures, see `WithRejectionCache`", l, refuse(l, request))
	c.sleep(300 * time.Millisecond)
	measure("rejected, as predicted by an older image", l, refuse(l, request))
	quotaAt := c.now().Truncate(5 * time.Minute).Add(5 * time.Minute)
	quota := zlimit.Request{Entity: "key-8", Resource: "quota", Consume: zlimit.Amounts{"tokens": 1}}
	setLimits(t, l, zlimit.Level{Resource: "quota"}, zlimit.Cron("tokens", 2, "*/5 * * * *", "UTC"))
	acquire(t, l, quota)
	l.Engine().Quiesce()
	measure("a known bucket with a quota, within its period", l, take(l, quota))
	measure("rejected by a quota that is used up", l, refuse(l, quota))
	c.sleep(quotaAt.Sub(c.now()))
	measure("the first request after a quota resets", l, take(l, quota))
	carryAt := c.now().Truncate(5 * time.Minute).Add(5 * time.Minute)
	carries := zlimit.Request{Entity: "key-8", Resource: "carry", Consume: zlimit.Amounts{"tokens": 1}}
	setLimits(t, l, zlimit.Level{Resource: "carry"}, zlimit.Cron("tokens", 3, "*/5 * * * *", "UTC").CarryOver(2))
	acquire(t, l, carries)
	l.Engine().Quiesce()
	measure("a known bucket whose quota carries what is left, within its period", l, take(l, carries))
	c.sleep(carryAt.Sub(c.now()))
	measure("the first request after such a quota resets", l, take(l, carries))
	window := zlimit.Request{Entity: "key-9", Resource: "window", Consume: zlimit.Amounts{"rpm": 1}}
	setLimits(t, l, zlimit.Level{Resource: "window"}, zlimit.PerMinute("rpm", 60).When("*/2 * * * *", "x2"))
	c.sleep(c.now().Truncate(2 * time.Minute).Add(2*time.Minute + 58*time.Second).Sub(c.now()))
	acquire(t, l, window)
	l.Engine().Quiesce()
	measure("a known bucket with windows, within one", l, take(l, window))
	c.sleep(2 * time.Second)
	measure("the first request after a window has ended", l, take(l, window))
	session := zlimit.Request{Entity: "key-10", Resource: "session", Consume: zlimit.Amounts{"tokens": 1}}
	setLimits(t, l, zlimit.Level{Resource: "session"}, zlimit.Session("tokens", 2, 30*time.Second))
	acquire(t, l, session)
	l.Engine().Quiesce()
	measure("a known bucket with a session quota, within a session", l, take(l, session))
	measure("rejected by a session quota that is used up", l, refuse(l, session))
	c.sleep(31 * time.Second)
	measure("a request that begins a session", l, take(l, session))
	measure("bad input", l, func() error {
		if _, err := l.Acquire(ctx, ask(zlimit.Amounts{"rpm": -1})); !errors.As(err, new(*zlimit.ValidationError)) {
			return err
		}
		return nil
	})

	page.WriteString("\n")
	section("A limit that several processes use up")
	busy := zlimit.Request{Entity: "key-11", Resource: "busy", Consume: zlimit.Amounts{"rps": 1}}
	burst := zlimit.Limit{Name: "rps", Capacity: 10, RefillAmount: 20, RefillPeriod: time.Second}
	setLimits(t, l, zlimit.Level{Resource: "busy"}, burst)
	const token = 50 * time.Millisecond // in which one flows in
	acquire(t, l, busy)
	for range 5 { // so that the process knows of others
		acquire(t, other, busy)
		c.sleep(2 * token)
	}
	acquire(t, l, zlimit.Request{Entity: "key-11", Resource: "busy", Consume: zlimit.Amounts{"rps": 10}})
	l.Engine().Quiesce()
	c.sleep(token + token/5) // a full limit may lose what flows in during a call
	acquire(t, other, busy)
	other.Engine().Quiesce()
	c.sleep(token)
	measure("admitted, since a token has flowed in: another process took one since the last image", l, take(l, busy))
	c.sleep(token)
	acquire(t, other, busy)
	measure("rejected: another process took the token that flowed in", l, refuse(l, busy))
	measure("rejected before the next one flows in", l, refuse(l, busy))
	for range 8 {
		check.Fatal(t, "refuse()", refuse(l, busy)())
	}
	c.sleep(token)
	measure("rejected since it is beyond the part of the process, of which many requests are rejected", l, refuse(l, busy))
	c.sleep(2 * token)
	measure("admitted by that part", l, take(l, busy))
	c.sleep(15 * token)
	acquire(t, other, zlimit.Request{Entity: "key-11", Resource: "busy", Consume: zlimit.Amounts{"rps": 10}})
	measure("rejected, if most requests of the process were, and its last image is too old", l, refuse(l, busy))

	page.WriteString("\n")
	section("Requests with an ID")
	c.sleep(time.Minute)
	remembered := zlimit.Request{ID: "job-1", Entity: "key-12", Resource: "gpt-4", Consume: zlimit.Amounts{"tpm": 100}}
	measure("a bucket seen for the first time", l, take(l, remembered))
	remembered.ID = "job-2"
	measure("a known bucket", l, take(l, remembered))
	measure("the same again", l, take(l, remembered))
	measure("the same again, by another process", other, take(other, remembered))
	remembered.ID, remembered.Consume = "job-3", zlimit.Amounts{"tpm": 100_000}
	measure("rejected", l, refuse(l, remembered))
	remembered.ID, remembered.Consume = "job-4", zlimit.Amounts{"tpm": 100}
	withID := acquire(t, l, remembered)
	measure("commit with nothing to correct, or roll back: as `Settle`", l, func() error { return withID.Commit(ctx) })

	page.WriteString("\n")
	section("Settle and query")
	c.sleep(time.Minute)
	lease := acquire(t, l, request)
	measure("commit with nothing to correct", l, func() error { return lease.Commit(ctx) })
	lease = corrected(request, 50)
	measure("commit", l, func() error { return lease.Commit(ctx) })
	lease = acquire(t, l, request)
	measure("roll back", l, func() error { return lease.Rollback(ctx) })
	for _, test := range []struct {
		what   string
		actual int64
		opts   []zlimit.SettleOption
	}{
		{"`Settle` of a token with nothing to correct", 100, nil},
		{"`Settle` of less", 50, nil},
		{"`Settle` of more, or with `SettleExactly`", 150, nil},
		{"`Settle` with `SettleTrusted`", 50, []zlimit.SettleOption{zlimit.SettleTrusted()}},
	} {
		token := tokenOf(t, acquire(t, l, zlimit.Request{Entity: "key-1", Resource: "gpt-4", Consume: zlimit.Amounts{"tpm": 100}}))
		settle := func() error { return l.Settle(ctx, token, zlimit.Amounts{"tpm": test.actual}, test.opts...) }
		measure(test.what, l, settle)
		if test.actual == 50 && test.opts == nil {
			measure("the same again", l, settle)
		}
	}
	measure("`Available`, `TimeUntil`", l, func() error {
		_, err := l.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
		return err
	})
	measure("`Resolve`, from memory", l, func() error { _, err := l.Limits.Resolve(ctx, "key-1", "gpt-4"); return err })

	page.WriteString("\n")
	section("Wait")
	queued := zlimit.Request{Entity: "worker", Resource: "backend", Consume: zlimit.Amounts{"calls": 1}}
	setLimits(t, l, zlimit.Level{Resource: "backend"}, zlimit.PerMinute("calls", 1))
	acquire(t, l, queued)
	var reservation *zlimit.Reservation
	book := func(longest time.Duration) func() error {
		return func() (err error) {
			reservation, err = l.Reserve(ctx, queued, zlimit.MaxWait(longest))
			return err
		}
	}
	measure("the first debt of a bucket that was created within ten seconds", l, book(time.Hour))
	measure("a caller waits: `Reserve`, or `Wait` until its tokens are available", l, book(time.Hour))
	measure("a caller gives up, or `Cancel`", l, func() error { return reservation.Cancel(ctx) })
	measure("the wait would be longer than `MaxWait`", l, func() error {
		if err := book(time.Second)(); !errors.As(err, new(*zlimit.ExceededError)) {
			return fmt.Errorf("Reserve() = %w, want an ExceededError", err)
		}
		return nil
	})

	page.WriteString("\n")
	section("Slots")
	holder := costed(t, s, c, zlimit.WithListing(false), zlimit.WithNamespace("holder"), zlimit.WithConfigTTL(1000*time.Hour))
	setSystem(t, holder, zlimit.Slots("slots", 3, zlimit.Term(time.Hour)), zlimit.PerMinute("rpm", 1000))
	slot := ask(zlimit.Amounts{"slots": 1})
	var held []*zlimit.Lease
	hold := func(r zlimit.Request) func() error {
		return func() error {
			lease, err := holder.Acquire(ctx, r)
			held = append(held, lease)
			return err
		}
	}
	measure("first use of a bucket that does not exist", holder, hold(slot))
	measure("take a slot of a known bucket", holder, hold(slot))
	both := ask(zlimit.Amounts{"slots": 1, "rpm": 1})
	measure("the same with tokens, in one write", holder, hold(both))
	measure("rejected from memory", holder, refuse(holder, slot))
	c.sleep(time.Second)
	measure("rejected otherwise", holder, refuse(holder, slot))
	measure("release a slot", holder, func() error { return held[0].Commit(ctx) })
	c.sleep(time.Hour)
	measure("the first process in a term that takes a slot", holder, hold(slot))
	check.Fatal(t, "Commit()", held[len(held)-1].Commit(ctx))
	beside := acquire(t, holder, both)
	measure("release a slot and return tokens: `Rollback`, or `Commit` of less", holder, func() error { return beside.Rollback(ctx) })
	elsewhere := both
	elsewhere.Entity = "key-2"
	measure("first use, with tokens", holder, hold(elsewhere))
	costOfWanted(t, &page)

	page.WriteString("\n")
	section("Soft and shadow limits")
	modes := costed(t, s, c, zlimit.WithListing(false), zlimit.WithNamespace("modes"), zlimit.WithConfigTTL(1000*time.Hour))
	setSystem(t, modes, zlimit.PerDay("soft", 10).Soft(), zlimit.PerDay("shadow", 10).Shadow(), zlimit.PerDay("rpd", 10))
	acquire(t, modes, ask(zlimit.Amounts{"soft": 1, "shadow": 1}))
	measure("a request within them", modes, take(modes, ask(zlimit.Amounts{"soft": 9, "shadow": 9})))
	measure("beyond a soft limit", modes, take(modes, ask(zlimit.Amounts{"soft": 9})))
	measure("beyond a shadow limit, if the bucket was seen recently", modes, take(modes, ask(zlimit.Amounts{"shadow": 9})))
	c.sleep(time.Second)
	measure("beyond it otherwise", modes, take(modes, ask(zlimit.Amounts{"shadow": 9})))
	if _, err := modes.Limits.Bypass(ctx, zlimit.Level{Entity: "key-1"}, nil); err != nil {
		t.Fatalf("Limits.Bypass() = %v", err)
	}
	acquire(t, modes, ask(zlimit.Amounts{"rpd": 99}))
	measure("a request under a bypass", modes, take(modes, ask(zlimit.Amounts{"rpd": 99})))

	page.WriteString("\n")
	section("A child and its parent")
	family := newFamily(t, s, zlimit.WithClock(c.now), zlimit.WithListing(true), zlimit.WithNamespace("family"))
	child := zlimit.Request{Entity: "team", Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": 1}}
	measure("first use, neither bucket exists", family, take(family, child))
	acquire(t, family, child)
	measure("both known: one round trip", family, take(family, child))
	acquire(t, family, zlimit.Request{Entity: "key-2", Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": 90}})
	acquire(t, family, ask(zlimit.Amounts{"tpd": 1}))
	c.sleep(time.Second)
	measure("a parent rejects, as predicted by its last image", family, refuse(family, ask(zlimit.Amounts{"tpd": 99})))
	lease = acquire(t, family, child)
	measure("roll back", family, func() error { return lease.Rollback(ctx) })
	peer := costed(t, s, c, zlimit.WithListing(true), zlimit.WithNamespace("family"))
	setLimits(t, family, zlimit.Level{Resource: "busy"}, zlimit.PerSecond("rps", 100))
	setLimits(t, family, zlimit.Level{Entity: "squad", Resource: "busy"}, burst)
	putEntity(t, family, "squad", "")
	putEntity(t, family, "member", "squad")
	busy = zlimit.Request{Entity: "member", Resource: "busy", Consume: zlimit.Amounts{"rps": 1}}
	for range 20 { // so that each process knows of the other
		acquire(t, family, busy)
		acquire(t, peer, busy)
		c.sleep(2 * token)
	}
	acquire(t, peer, zlimit.Request{Entity: "member", Resource: "busy", Consume: zlimit.Amounts{"rps": 10}})
	peer.Engine().Quiesce()
	for range 8 {
		check.Fatal(t, "refuse()", refuse(family, busy)())
	}
	family.Engine().Quiesce()
	c.sleep(2 * token)
	measure("a parent that several processes use up: two round trips", family, take(family, busy))
	acquire(t, peer, busy)
	c.sleep(token)
	acquire(t, peer, busy)
	peer.Engine().Quiesce()
	measure("the same, rejected by the parent", family, refuse(family, busy))

	page.WriteString("\n")
	section("A resource within a wider one")
	wider := costed(t, s, c, zlimit.WithListing(true), zlimit.WithNamespace("wider"))
	for id, limits := range map[string][]zlimit.Limit{"gpt-4": {zlimit.PerMinute("rpm", 100), zlimit.PerMinute("tpm", 10_000)}, "models": {zlimit.PerDay("rpm", 110)}} {
		setLimits(t, wider, zlimit.Level{Resource: id}, limits...)
	}
	versioned{t, store.Of(s)}.write(zlimit.SchemaVersion, zlimit.ClientMinVersion, "") // windows have raised it
	measure("`Resources.Put`, the first one of a process, of two resources", wider, func() error {
		return wider.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4", Within: "models"})
	})
	enginetest.CatchUp()
	fresh := costed(t, s, c, zlimit.WithListing(true), zlimit.WithNamespace("wider"))
	measure("first use, neither bucket exists", fresh, take(fresh, request))
	acquire(t, fresh, request)
	measure("both known: one round trip", fresh, take(fresh, request))
	acquire(t, fresh, ask(zlimit.Amounts{"rpm": 97}))
	c.sleep(time.Second)
	wide := ask(zlimit.Amounts{"rpm": 99})
	measure("the wider one rejects, as predicted by its last image", fresh, refuse(fresh, wide))
	measure("the same again, within the time of `WithRejectionCache`", fresh, refuse(fresh, wide))

	page.WriteString("\n")
	section("Several requests together")
	together := costed(t, s, c, zlimit.WithListing(true), zlimit.WithNamespace("together"))
	setLimits(t, together, zlimit.Level{Resource: "models"}, zlimit.PerDay("rpm", 110))
	setSystem(t, together, zlimit.PerMinute("rpm", 100))
	steps := make([]zlimit.Request, 3)
	for i, resource := range []string{"gpt-4", "gpt-3", "search"} {
		steps[i] = zlimit.Request{Entity: "key-1", Resource: resource, Consume: zlimit.Amounts{"rpm": 1}}
		if i < 2 {
			check.Fatal(t, "Resources.Put()", together.Resources.Put(ctx, zlimit.Resource{ID: resource, Within: "models"}))
		}
	}
	enginetest.CatchUp()
	var all *zlimit.Leases
	takeAll := func() (err error) {
		all, err = together.AcquireAll(ctx, steps)
		return err
	}
	for range 2 {
		check.Fatal(t, "takeAll()", takeAll())
	}
	together.Engine().Quiesce()
	measure("`AcquireAll` of two resources within a third and of one more, all four buckets known: one round trip", together, takeAll)
	measure("commit of what was taken", together, func() error { return all.Commit(ctx) })
	check.Fatal(t, "takeAll()", takeAll())
	measure("roll back: the shared bucket by each of two leases", together, func() error { return all.Rollback(ctx) })
	steps[0].Consume, steps[1].Consume = zlimit.Amounts{"rpm": 60}, zlimit.Amounts{"rpm": 60}
	measure("the shared bucket rejects the sum, within the time of `WithRejectionCache`", together, func() error {
		if err := takeAll(); !errors.As(err, new(*zlimit.ExceededError)) {
			return fmt.Errorf("AcquireAll() = %w, want it rejected", err)
		}
		return nil
	})

	page.WriteString("\n")
	section("A bucket of several shards")
	sharded := costed(t, s, c, zlimit.WithNamespace("sharded"))
	setSystem(t, sharded, zlimit.PerDay("tpm", 1000))
	acquire(t, sharded, ask(zlimit.Amounts{"tpm": 1}))
	enterIndex(t, sharded, shardKey(sharded, "key-1", 0))
	whole := shardsOf(t, sharded)[0]
	low, high := shardKey(sharded, "key-1", 0).Key(), shardKey(sharded, "key-1", 1).Key()
	measure("split a shard in two", sharded, func() error {
		_, err := splitAt(ctx, sharded, "key-1", whole)
		_, readErr := sharded.Table().Read(ctx, low)
		return errors.Join(err, readErr)
	})
	for range 20 { // until both shards are known
		acquire(t, sharded, ask(zlimit.Amounts{"tpm": 1}))
	}
	measure("one of two shards has enough", sharded, take(sharded, ask(zlimit.Amounts{"tpm": 1})))
	c.sleep(time.Second)
	measure("two shards have enough together", sharded, take(sharded, ask(zlimit.Amounts{"tpm": 900})))
	measure("`Available` of two shards", sharded, func() error {
		_, err := sharded.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
		return err
	})
	exact := costed(t, s, c, zlimit.WithNamespace("sharded"), zlimit.WithRejectionCache(0))
	for _, by := range []*zlimit.RateLimiter{sharded, exact} {
		check.Fatal(t, "refuse()", refuse(by, ask(zlimit.Amounts{"tpm": 500}))()) // both shards are known then
	}
	c.sleep(time.Second)
	measure("rejected by two shards", sharded, refuse(sharded, ask(zlimit.Amounts{"tpm": 500})))
	measure("rejected by two shards, with `WithRejectionCache(0)`", exact, refuse(exact, ask(zlimit.Amounts{"tpm": 500})))
	sitting := zlimit.Request{Entity: "sitting", Resource: "gpt-4", Consume: zlimit.Amounts{"tokens": 1}}
	setLimits(t, sharded, zlimit.Level{Entity: "sitting"}, zlimit.Session("tokens", 900, 30*time.Second))
	acquire(t, sharded, sitting)
	sharded.Engine().Quiesce()
	splitBucket(t, sharded, "sitting")
	for range 20 {
		acquire(t, sharded, sitting)
	}
	c.sleep(31 * time.Second)
	measure("a request that begins a session of two shards", sharded, take(sharded, sitting))
	half := shardsOf(t, sharded)[0]
	measure("merge two shards", sharded, func() error {
		err := mergeAt(ctx, sharded, "key-1", half)
		_, readErr := sharded.Table().Read(ctx, low, high)
		return errors.Join(err, readErr)
	})

	page.WriteString("\n")
	section("Manual changes")
	manual := costed(t, s, c, zlimit.WithNamespace("manual"))
	setSystem(t, manual, zlimit.PerDay("tpm", 1000))
	acquire(t, manual, ask(zlimit.Amounts{"tpm": 1}))
	resets := func(id string) func() error {
		return func() error {
			_, err := manual.Limits.Reset(ctx, zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4", OperationID: id})
			return err
		}
	}
	measure("`Reset` of a bucket", manual, resets("first"))
	measure("the same again, with the same operation ID", manual, resets("first"))
	split(t, manual)
	measure("`Reset` of a bucket of two shards", manual, resets("second"))
	measure("`TopUp` of a bucket of two shards", manual, func() error {
		_, err := manual.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"tpm": 5}})
		return err
	})

	measure("`ResetAll` of a resource of one bucket, of two shards", manual, func() error {
		_, err := manual.Limits.ResetAll(ctx, zlimit.ResetRequest{Resource: "gpt-4"}, nil)
		return err
	})
	measure("`Audit.All` of the namespace, of five events", manual, func() error { return endOf(manual.Audit.All(ctx, zlimit.AuditQuery{})) })

	page.WriteString("\n")
	section("A disabled bucket")
	switched := costed(t, s, c, zlimit.WithNamespace("switched"), zlimit.WithConfigTTL(time.Hour))
	served := costed(t, s, c, zlimit.WithNamespace("switched"), zlimit.WithConfigTTL(time.Hour))
	setSystem(t, switched, zlimit.PerDay("tpm", 1000))
	pair := zlimit.Level{Entity: "key-1", Resource: "gpt-4"}
	tpm := ask(zlimit.Amounts{"tpm": 1})
	disabled := func(l *zlimit.RateLimiter, r zlimit.Request) func() error {
		return func() error {
			if _, err := l.Acquire(ctx, r); !errors.Is(err, zlimit.ErrDisabled) {
				return fmt.Errorf("Acquire() = %w, want ErrDisabled", err)
			}
			return nil
		}
	}
	turn := func(to func(context.Context, zlimit.Level, func(zlimit.SwitchReport)) (zlimit.SwitchReport, error)) func() error {
		return func() error {
			_, err := to(ctx, pair, nil)
			return err
		}
	}
	acquire(t, switched, tpm)
	acquire(t, served, tpm)
	measure("`Disable` of an entity for a resource", switched, turn(switched.Limits.Disable))
	measure("the first rejected request of a process that knows the bucket", served, disabled(served, tpm))
	measure("the next one, within a second", served, disabled(served, tpm))
	c.sleep(time.Second)
	measure("the first one of each second after it", served, disabled(served, tpm))
	measure("the next one", served, disabled(served, tpm))
	unaware := costed(t, s, c, zlimit.WithNamespace("switched"), zlimit.WithConfigTTL(time.Hour))
	measure("the first rejected request of a process that does not know the bucket", unaware, disabled(unaware, tpm))
	measure("the next one of it, within a second", unaware, disabled(unaware, tpm))
	measure("`Enable` of it", switched, turn(switched.Limits.Enable))
	c.sleep(time.Second)
	measure("the first request that is served", served, take(served, tpm))
	measure("the next one, served", served, take(served, tpm))

	if _, err := switched.Limits.Disable(ctx, zlimit.Level{Entity: "key-2"}, nil); err != nil {
		t.Fatalf("Limits.Disable() = %v", err)
	}
	nobody := tpm
	nobody.Entity = "key-2"
	measure("the first rejected request of a disabled entity without buckets", served, disabled(served, nobody))
	measure("the next one of such an entity, within a second", served, disabled(served, nobody))
	c.sleep(time.Second)
	measure("the first one of each second after it, of such an entity", served, disabled(served, nobody))

	page.WriteString("\n")
	section("Usage and capacity")
	past := costed(t, s, c, zlimit.WithNamespace("past"))
	year := time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)
	for at := year; at.Before(year.AddDate(0, 0, 31)); at = at.Add(time.Hour) { // all of January
		for _, w := range []zlimit.Window{zlimit.WindowHourly, zlimit.WindowDaily, zlimit.WindowMonthly} {
			if at.Equal(w.Start(at)) {
				record(t, past, usage("key-1", "gpt-4", w, at, 12_345))
			}
		}
	}
	for i := range 100 {
		r := ask(zlimit.Amounts{"rpm": 1})
		r.Entity, r.Limits = fmt.Sprint("key-", i), []zlimit.Limit{zlimit.PerMinute("rpm", 10)}
		acquire(t, past, r)
		enterIndex(t, past, shardKey(past, r.Entity, 0))
		if i != 1 {
			record(t, past, usage(r.Entity, "gpt-4", zlimit.WindowDaily, year, 12_345))
		}
	}
	look := func(entity string, w zlimit.Window, to time.Time) func() error {
		return func() error {
			return endOf(past.Usage.Snapshots(ctx, zlimit.UsageQuery{Entity: entity, Resource: "gpt-4", Window: w, From: year, To: to}))
		}
	}
	measure("`Snapshots` of an entity, a day of 24 hours", past, look("key-1", zlimit.WindowHourly, year.AddDate(0, 0, 1)))
	measure("`Snapshots` of an entity, 31 days", past, look("key-1", zlimit.WindowDaily, year.AddDate(0, 1, 0)))
	measure("`Snapshots` of an entity, 12 months", past, look("key-1", zlimit.WindowMonthly, year.AddDate(1, 0, 0)))
	measure("`Snapshots` of an entity, all days", past, look("key-1", zlimit.WindowDaily, time.Time{}))
	measure("`Snapshots` of a resource, a day of 100 entities", past, look("", zlimit.WindowDaily, year.AddDate(0, 0, 1)))
	measure("`Capacity` of 100 entities", past, func() error { _, err := past.Usage.Capacity(ctx, "gpt-4"); return err })

	page.WriteString("\n")
	section("A consumer of the change stream")
	consumers := leases.In(table.New(store.Of(s), table.Options{Timeout: time.Minute}))
	const partition = "2026-03-01T12:00:00.000/shardId-00000001772366400000-4f9e2a6c"
	save := func(beats int64) func() error {
		return func() error {
			_, _, err := consumers.Save(ctx, stream.Lease{
				Partition: partition, Owner: "host-7f3b", Position: store.Sequence(strings.Repeat("1", 40)), Beats: beats,
			})
			return err
		}
	}
	measure("create the lease of a new partition", l, save(1))
	measure("claim it, and renew it with the position, every 10 s", l, save(2))
	for i := range 20 {
		if _, _, err := consumers.Save(ctx, stream.Lease{Partition: fmt.Sprint(partition, i), Owner: "host-7f3b", Beats: 1}); err != nil {
			t.Fatalf("Save() = %v", err)
		}
	}
	measure("check 21 leases, every 10 s", l, func() error { _, err := consumers.List(ctx, ""); return err })

	page.WriteString("\n" + costsOfUsage)
	for _, rate := range []float64{0.01, 0.1, 1, 10, 100} { // requests a second
		fmt.Fprintf(&page, "| %v ", rate)
		for _, batch := range []float64{1, 10, 60} { // seconds
			batches, hours := perRequest(rate, batch), perRequest(rate, 3600)
			units, reads := batches+3*hours, batches/2+hours
			fmt.Fprintf(&page, "| %.3f | %.3f ", units, units*0.625+reads*0.125)
		}
		page.WriteString("|\n")
	}

	if *updateDocs {
		check.Fatal(t, "os.WriteFile()", os.WriteFile(costsFile, []byte(page.String()), 0o600))
	}
	documented := check.Call(os.ReadFile(costsFile)).Must(t, "os.ReadFile()")
	if diff := cmp.Diff(string(documented), page.String()); diff != "" {
		t.Errorf("costs (-documented +measured):\n%s", diff)
	}
}

// TestItemsOfManyLimits creates, advances and reconfigures a bucket of the most limits with the longest names: the
// expressions stay within DynamoDB's bounds.
func TestItemsOfManyLimits(t *testing.T) {
	s, _ := newTable(t)
	c := newClock()
	l := costed(t, s, c)
	var limits []zlimit.Limit
	consume := zlimit.Amounts{}
	for i := range zlimit.MaxLimits {
		name := fmt.Sprintf("l%02d-%s", i, strings.Repeat("x", 60))
		limits = append(limits, zlimit.PerMinute(name, 1000))
		consume[name] = 1
	}
	setSystem(t, l, limits...)
	acquire(t, l, ask(consume))
	c.sleep(10 * time.Second)
	acquire(t, l, ask(consume))
	for i := range limits {
		limits[i].Capacity++
	}
	setSystem(t, l, limits...)
	acquire(t, l, ask(consume))
	if got := limit(t, l, limits[0].Name); got.Consumed != 3000 || got.Capacity != 1001_000 {
		t.Errorf("%s = %+v, want 3000 consumed of 1001000", limits[0].Name, got)
	}
}

// enterIndex enters a bucket into the index that its creation left out, as its first refill does.
func enterIndex(t *testing.T, l *zlimit.RateLimiter, k layout.BucketKey) {
	t.Helper()
	w := check.Call(k.List()).Must(t, "List()")
	if result, err := l.Table().Write(t.Context(), w); err != nil || !result.Applied {
		t.Fatalf("%v is entered: %t, %v", k, result.Applied, err)
	}
}
