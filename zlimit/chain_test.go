package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// putEntity puts an entity that cascades to a parent.
func putEntity(tb testing.TB, l *zlimit.RateLimiter, id, parent string) {
	tb.Helper()
	e := layout.Entity{Key: layout.EntityKey{NS: l.NS(), Entity: id}, Name: id, Parent: parent, Cascade: parent != ""}
	put(tb, l, e.Key.Key(), e.Encode())
}

// putChain puts entities, each of which cascades to the one before it.
func putChain(tb testing.TB, l *zlimit.RateLimiter, ids ...string) {
	tb.Helper()
	parent := ""
	for _, id := range ids {
		putEntity(tb, l, id, parent)
		parent = id
	}
}

// newFamily returns a limiter on which key-1 cascades to team, and team to org: 100, 150 and 1000 tokens a day.
func newFamily(t *testing.T, s zlimit.Store, opts ...zlimit.Option) *zlimit.RateLimiter {
	t.Helper()
	ctx := context.Background()
	l := newLimiter(t, s, opts...)
	putChain(t, l, "org", "team", "key-1")
	putEntity(t, l, "key-2", "team")
	setSystem(t, l, zlimit.PerDay("tpd", 100), zlimit.PerDay("rpd", 50))
	err := errors.Join(
		l.Limits.Set(ctx, zlimit.Level{Entity: "team", Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tpd", 150)}}),
		l.Limits.Set(ctx, zlimit.Level{Entity: "org"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tpd", 1000)}}),
	)
	check.Fatal(t, "Limits.Set() and Limits.Set()", err)
	enginetest.CatchUp()
	return l
}

func TestCascade(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l := newFamily(t, s, zlimit.WithClock(c.now))
		for range 2 { // cold, and warm
			acquire(t, l, ask(zlimit.Amounts{"tpd": 40, "rpd": 1}))
		}
		checkLimit(t, l, "key-1", "tpd", 20_000, 80_000)
		checkLimit(t, l, "key-1", "rpd", 48_000, 2000)
		checkLimit(t, l, "team", "tpd", 70_000, 80_000)
		checkLimit(t, l, "org", "tpd", 920_000, 80_000)

		lease := acquire(t, l, ask(zlimit.Amounts{"tpd": 10}))
		if err := errors.Join(lease.Consume(ctx, zlimit.Amounts{"tpd": 5}), lease.Adjust(zlimit.Amounts{"tpd": 7}), lease.Commit(ctx)); err != nil {
			t.Fatalf("Consume() and Adjust() and Commit() = %v", err)
		}
		checkLimit(t, l, "key-1", "tpd", -2000, 102_000)
		checkLimit(t, l, "team", "tpd", 48_000, 102_000)
		checkLimit(t, l, "org", "tpd", 898_000, 102_000)

		other := ask(zlimit.Amounts{"tpd": 48})
		other.Entity = "key-2"
		check.Fatal(t, "Rollback()", acquire(t, l, other).Rollback(ctx))
		checkLimit(t, l, "key-2", "tpd", 100_000, 0)
		checkLimit(t, l, "team", "tpd", 48_000, 102_000)
		checkLimit(t, l, "org", "tpd", 898_000, 102_000)
	})
}

// TestCascadeRejected lets a parent, a child, or both fall short. What was taken of the others comes back exactly (I4),
// and the error names every level, the strictest limit first.
func TestCascadeRejected(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newFamily(t, s, zlimit.WithClock(c.now))
		acquire(t, l, ask(zlimit.Amounts{"tpd": 90}))
		other := ask(zlimit.Amounts{"tpd": 61, "rpd": 1}) // of 100 of its own, and 60 of the team's
		other.Entity = "key-2"
		for range 2 { // unknown to the process, and known
			e := reject(t, l, other)
			if v := e.Violations(); len(v) != 1 || v[0].Entity != "team" || v[0].Available != 60 || e.Statuses[0] != v[0] || len(e.Statuses) != 4 {
				t.Errorf("Statuses = %v, want four, first and alone exceeded the team's", e.Statuses)
			}
			if e.RetryAfter() != 576*time.Second { // one token of 150 a day
				t.Errorf("RetryAfter() = %v, want 9m36s", e.RetryAfter())
			}
			checkLimit(t, l, "team", "tpd", 60_000, 90_000)
			checkLimit(t, l, "org", "tpd", 910_000, 90_000)
			if len(storedShards(t, l, "key-2")) > 0 { // it was charged before the team's rejection was known
				checkLimit(t, l, "key-2", "tpd", 100_000, 0)
				checkLimit(t, l, "key-2", "rpd", 50_000, 0)
			}
		}
		e := reject(t, l, ask(zlimit.Amounts{"tpd": 11}))
		if v := e.Violations(); len(v) != 1 || v[0].Entity != "key-1" {
			t.Errorf("Violations() = %v, want the child's", v)
		}
		checkLimit(t, l, "team", "tpd", 60_000, 90_000)
		checkLimit(t, l, "org", "tpd", 910_000, 90_000)

		if wait, err := l.TimeUntil(context.Background(), other); err != nil || wait != 576*time.Second {
			t.Errorf("TimeUntil() = %v, %v, want 9m36s", wait, err)
		}
		other.Consume = zlimit.Amounts{"tpd": 100}
		c.sleep(24 * time.Hour)
		acquire(t, l, other)
	})
}

// TestCascadeFaults loses the reply of one of the writes. The other one is given back, and the caller hears of an
// outage whose outcome is unknown.
func TestCascadeFaults(t *testing.T) {
	for hit := range 3 {
		t.Run(fmt.Sprintf("write %d", hit), func(t *testing.T) {
			s, faults := newTable(t)
			l := newFamily(t, s, zlimit.WithClock(newClock().now))
			for range 2 {
				acquire(t, l, ask(zlimit.Amounts{"tpd": 10}))
			}
			faults.Inject(enginetest.Fault{Kind: enginetest.LostReply, Operation: "UpdateItem", Skip: hit, Times: 1})
			var outage *zlimit.UnavailableError
			if _, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"tpd": 10})); !errors.As(err, &outage) || !outage.Unknown {
				t.Errorf("Acquire() = %v, want an UnavailableError with an unknown outcome", err)
			}
			var charged int64
			for _, entity := range []string{"key-1", "team", "org"} {
				consumed := storedLimit(t, l, entity, "tpd").Consumed
				charged += consumed - 20_000
			}
			if charged != 10_000 { // of the write whose reply was lost
				t.Errorf("%d are charged beyond the two admissions, want 10000", charged)
			}
		})
	}
}

// TestCascadeCosts measures a known child and parent: one round trip, that is two calls side by side, of a write unit each.
func TestCascadeCosts(t *testing.T) {
	s, faults := newTable(t)
	l := newFamily(t, s, zlimit.WithClock(newClock().now))
	request := ask(zlimit.Amounts{"tpd": 1})
	request.Entity = "team" // and org
	for range 2 {
		acquire(t, l, request)
	}
	faults.Reset()
	gate := make(chan struct{})
	faults.Inject(enginetest.Fault{Kind: enginetest.Slow, Until: gate})
	done := make(chan error)
	go func() {
		_, err := l.Acquire(context.Background(), request)
		done <- err
	}()
	for deadline := time.Now().Add(5 * time.Second); faults.Calls("UpdateItem") < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("the second write waits for the first")
			break
		}
	}
	close(gate)
	check.Fatal(t, "Acquire()", <-done)
	if got := faults.Capacity(""); faults.Calls("") != 2 || got.Write != 2 || got.Read != 0 {
		t.Errorf("%d calls cost %+v, want 2 calls and 2 write units", faults.Calls(""), got)
	}
}

// TestManyChildren runs the children of one parent at the same time: exactly the parent's capacity is admitted, and no
// child keeps what the parent refused.
func TestManyChildren(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s, zlimit.WithClock(newClock().now))
		setSystem(t, l, zlimit.PerDay("tpd", 10))
		putEntity(t, l, "org", "")
		setLimits(t, l, zlimit.Level{Entity: "org", Resource: "gpt-4"}, zlimit.PerDay("tpd", 300))
		const children = 100
		for i := range children {
			putEntity(t, l, fmt.Sprintf("key-%d", i), "org")
		}
		enginetest.CatchUp()
		var admitted [children]atomic.Int64
		try := func(i int) {
			_, err := l.Acquire(ctx, zlimit.Request{Entity: fmt.Sprintf("key-%d", i), Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": 1}})
			switch {
			case err == nil:
				admitted[i].Add(1)
			case !errors.As(err, new(*zlimit.ExceededError)):
				t.Errorf("Acquire() = %v", err)
			}
		}
		var group sync.WaitGroup
		for range 32 {
			group.Go(func() {
				for range 20 {
					try(rand.IntN(children))
				}
			})
		}
		group.Wait()
		for i := range 4 * children { // what was on its way to a child that had no room may have kept others out
			try(i % children)
		}
		total := int64(0)
		for i := range admitted {
			n := admitted[i].Load()
			total += n
			if entity := fmt.Sprintf("key-%d", i); len(storedShards(t, l, entity)) > 0 {
				if consumed := storedLimit(t, l, entity, "tpd").Consumed; consumed != n*1000 {
					t.Errorf("%s counts %d, want %d", entity, consumed, n*1000)
				}
			}
		}
		if total != 300 {
			t.Errorf("admitted %d, want 300", total)
		}
		checkLimit(t, l, "org", "tpd", 0, 300_000)
	})
}

// TestChildrenAtOnce lets each of 1,000 children of one parent ask once, all at the same time. As many are admitted as
// the parent has tokens, and the others keep what they had (I4).
func TestChildrenAtOnce(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		children := soak.Pick[int64](100, 1000)
		ctx, most := context.Background(), children/3
		l := newLimiter(t, s, zlimit.WithClock(newClock().now), zlimit.WithCallTimeout(time.Minute))
		setSystem(t, l, zlimit.PerDay("tpd", 10))
		putEntity(t, l, "org", "")
		setLimits(t, l, zlimit.Level{Entity: "org", Resource: "gpt-4"}, zlimit.PerDay("tpd", most))
		name := func(i int64) string { return fmt.Sprintf("key-%d", i) }
		for i := range children {
			putEntity(t, l, name(i), "org")
		}
		enginetest.CatchUp()
		admitted := make([]bool, children)
		start := make(chan struct{})
		var group sync.WaitGroup
		for i := range children {
			group.Go(func() {
				<-start
				_, err := l.Acquire(ctx, zlimit.Request{Entity: name(i), Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": 1}})
				if admitted[i] = err == nil; err != nil && !errors.As(err, new(*zlimit.ExceededError)) {
					t.Errorf("Acquire() = %v", err)
				}
			})
		}
		close(start)
		group.Wait()
		var got int64
		for i := range children {
			taken := int64(0)
			if admitted[i] {
				taken = 1
			}
			got += taken
			items := check.Call(l.Table().Read(ctx, layout.BucketKey{NS: l.NS(), Entity: name(i), Resource: "gpt-4"}.Key())).Must(t, "Read()")
			if admitted[i] || items[0] != nil { // some refusals create nothing
				checkLimit(t, l, name(i), "tpd", (10-taken)*zlimit.Millis, taken*zlimit.Millis)
			}
		}
		if got != most {
			t.Errorf("admitted %d, want %d", got, most)
		}
		checkLimit(t, l, "org", "tpd", 0, most*zlimit.Millis)
	})
}

// TestChainsEnd follows parents that go in a circle, which no public call makes.
func TestChainsEnd(t *testing.T) {
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerDay("tpd", 100))
	putEntity(t, l, "key-1", "key-2")
	putEntity(t, l, "key-2", "key-1")
	r := ask(zlimit.Amounts{"tpd": 1})
	if _, err := l.Acquire(context.Background(), r); err == nil || !strings.Contains(err.Error(), "ancestors") {
		t.Errorf("Acquire() = %v, want an error about the ancestors", err)
	}
}

// In TestRaisedLimitBesideUsedUpParent, the limit of a child is raised, and a request falls short of it and of its parent, whose tokens another
// process took. The child's item has its new limit by then: the request is admitted once the reported wait is over.
func TestRaisedLimitBesideUsedUpParent(t *testing.T) {
	s, c := newMemory(t), newClock()
	l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
	putEntity(t, l, "team", "")
	putEntity(t, l, "key-1", "team")
	putEntity(t, l, "key-2", "team")
	level := zlimit.Level{Entity: "key-1", Resource: "gpt-4"}
	setSystem(t, l, zlimit.PerDay("tpm", 1000))
	setLimits(t, l, zlimit.Level{Entity: "team", Resource: "gpt-4"}, zlimit.PerHour("tpm", 100))
	setLimits(t, l, level, zlimit.PerDay("tpm", 10))
	acquire(t, l, ask(zlimit.Amounts{"tpm": 1}))
	acquire(t, other, zlimit.Request{Entity: "key-2", Resource: "gpt-4", Consume: zlimit.Amounts{"tpm": 99}})
	setLimits(t, l, level, zlimit.PerDay("tpm", 50))
	_, err := l.Acquire(t.Context(), ask(zlimit.Amounts{"tpm": 20}))
	var exceeded *zlimit.ExceededError
	if !errors.As(err, &exceeded) || len(exceeded.Violations()) != 2 {
		t.Fatalf("Acquire() = %v, want both limits to reject it", err)
	}
	c.sleep(exceeded.RetryAfter())
	if _, err := l.Acquire(t.Context(), ask(zlimit.Amounts{"tpm": 20})); err != nil {
		t.Errorf("after the reported wait of %v, Acquire() = %v", exceeded.RetryAfter(), err)
	}
}

// A childCount counts the writes of the bucket of a child, for a store whose calls take a millisecond.
type childCount struct {
	callCount
	child  string
	writes atomic.Int64
}

func (s *childCount) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if strings.Contains(w.Key.PK, "/BUCKET#"+s.child+"#") {
		s.writes.Add(1)
	}
	return s.callCount.Write(ctx, w)
}

// In TestUsedUpParentGoesFirst, two processes compete for the limit of a parent. Each of them writes its child only for requests that the parent
// admits, so that no tokens are given back.
func TestUsedUpParentGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &childCount{callCount: callCount{Store: store.Of(newMemory(t))}, child: "key-1"}
		l, other := newLimiter(t, zlimit.StoreOn(s)), newLimiter(t, zlimit.StoreOn(&s.callCount))
		putEntity(t, l, "team", "")
		putEntity(t, l, "key-1", "team")
		putEntity(t, l, "key-2", "team")
		setSystem(t, l, zlimit.PerMinute("rps", 6_000_000))
		setLimits(t, l, zlimit.Level{Entity: "team", Resource: "gpt-4"}, zlimit.PerSecond("rps", 100, zlimit.Burst(10)))
		try := func(by *zlimit.RateLimiter, child string) (admitted int64) {
			_, err := by.Acquire(t.Context(), zlimit.Request{Entity: child, Resource: "gpt-4", Consume: zlimit.Amounts{"rps": 1}})
			if err != nil && !errors.As(err, new(*zlimit.ExceededError)) {
				t.Errorf("Acquire() = %v", err)
			}
			time.Sleep(2 * time.Millisecond)
			if err != nil {
				return 0
			}
			return 1
		}
		admitted, calls := int64(0), int64(0)
		for i := range 1000 {
			if i == 300 { // from then on each process knows of the other
				admitted, calls = 0, s.writes.Load()
			}
			try(other, "key-2")
			admitted += try(l, "key-1")
		}
		if calls = s.writes.Load() - calls; admitted < 100 || calls != admitted {
			t.Errorf("%d requests are admitted, and the child was written %d times, want as often", admitted, calls)
		}
		closeLimiters(t, l, other)
	})
}
