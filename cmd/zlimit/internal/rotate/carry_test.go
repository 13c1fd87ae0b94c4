package rotate

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
)

// shards returns into how many items the bucket of an entity for the resource pay is split, and how many there are.
func (w *world) shards(l *zlimit.RateLimiter, entity string) (count int64, items int) {
	w.t.Helper()
	for number := range 32 {
		key := layout.BucketKey{NS: w.id(l), Entity: entity, Resource: "pay", Shard: number}.Key()
		found := check.Call(w.s.Read(w.t.Context(), []store.Key{key}, true)).Must(w.t, "Read()")
		if found[0] == nil {
			continue
		}
		it := check.Call(layout.DecodeBucket(found[0])).Must(w.t, "DecodeBucket()")
		count, items = max(count, it.ShardCount), items+1
	}
	return count, items
}

// split splits each shard of the bucket of an entity for the resource pay in two.
func (w *world) split(l *zlimit.RateLimiter, entity string) {
	w.t.Helper()
	count, _ := w.shards(l, entity)
	for number := range max(int(count), 1) {
		key := layout.BucketKey{NS: w.id(l), Entity: entity, Resource: "pay", Shard: number}
		items := check.Call(w.s.Read(w.t.Context(), []store.Key{key.Key()}, true)).Must(w.t, "Read()")
		it, state, err := layout.ReadBucket(items[0])
		check.Fatal(w.t, "ReadBucket()", err)
		writes := check.Call(key.Split(&state, nil, it.Lineage())).Must(w.t, "Split()")
		check.Call(w.s.Transact(w.t.Context(), writes)).Must(w.t, "Transact()")
	}
}

// TestRotateSplit rotates an entity whose bucket is split, with a grant. The bucket of the new one has the same shards, and what a twin has
// that is not rotated, also after the grant has ended.
func TestRotateSplit(t *testing.T) {
	w := inMemory(t)
	l := w.limiter(w.s)
	defer l.Close()
	for _, e := range []string{"acme", "twin"} {
		check.Fatal(t, "Set()", l.Limits.Set(t.Context(), at(e, "pay"), parsed(t, "t=100000/d", "q=5000/day@UTC")))
		_, err := l.Acquire(t.Context(), zlimit.Request{Entity: e, Resource: "pay", Consume: zlimit.Amounts{"t": 4500, "q": 1501}})
		check.Fatal(t, "Acquire()", err)
		w.split(l, e)
		w.split(l, e)
		check.Call(l.Limits.TopUp(t.Context(), zlimit.TopUpRequest{
			Entity: e, Resource: "pay", Amounts: zlimit.Amounts{"q": 900}, Until: w.now.Add(time.Hour),
		})).Must(t, "TopUp()")
	}
	count, items := w.shards(l, "acme")
	if count != 4 || items != 4 {
		t.Fatalf("the bucket has %d of %d shards, want 4", items, count)
	}
	check.Call(rotate(t.Context(), w.limiter(w.s), "acme", "acme-2", func(string) {})).Must(t, "Run()")
	if c, n := w.shards(l, "acme-2"); c != count || n != items {
		t.Errorf("the new bucket has %d of %d shards, want %d of %d", n, c, items, count)
	}
	for range 2 {
		for _, e := range []string{"acme-2", "twin"} {
			_, err := l.Acquire(t.Context(), zlimit.Request{Entity: e, Resource: "pay", Consume: zlimit.Amounts{"t": 3000, "q": 4000}})
			check.Fatal(t, "Acquire()", err)
			check.Call(l.Limits.TopUp(t.Context(), zlimit.TopUpRequest{
				Entity: e, Resource: "pay", Amounts: zlimit.Amounts{"q": 4000}, Until: w.now.Add(time.Hour),
			})).Must(t, "TopUp()")
		}
		if diff := cmp.Diff(w.left("twin", "pay"), w.left("acme-2", "pay")); diff != "" {
			t.Errorf("left (-without a rotation +with it):\n%s", diff)
		}
	}
	w.now = w.now.Add(2 * time.Hour)
	if diff := cmp.Diff(w.left("twin", "pay"), w.left("acme-2", "pay")); diff != "" {
		t.Errorf("left after the grant (-without a rotation +with it):\n%s", diff)
	}
}

// TestRotateServedMeanwhile lets the old entity serve requests again while a rotation is interrupted. The next run suspends it, says so, and
// carries over what was used meanwhile. A bucket of the new entity that has served requests keeps what it has.
func TestRotateServedMeanwhile(t *testing.T) {
	for _, stage := range []string{stageJoining, stageOpening} {
		w := inMemory(t)
		l := w.limiter(w.s)
		check.Fatal(t, "Set()", l.Limits.Set(t.Context(), at("acme", "pay"), parsed(t, "t=1000/day@UTC")))
		ask := func(entity string, n int64) error {
			_, err := l.Acquire(t.Context(), zlimit.Request{Entity: entity, Resource: "pay", Consume: zlimit.Amounts{"t": n}})
			return err
		}
		check.Fatal(t, "Acquire()", ask("acme", 100))
		ctx, stop := context.WithCancel(t.Context())
		_, err := rotate(ctx, w.limiter(w.s), "acme", "acme-2", func(now string) {
			if now == stage {
				stop()
			}
		})
		if stop(); err == nil {
			t.Fatalf("a run that is stopped at %s = nil", stage)
		}
		check.Call(l.Limits.Enable(t.Context(), at("acme", ""), nil)).Must(t, "Enable()")
		w.now = w.now.Add(2 * time.Second)
		check.Fatal(t, "Acquire()", ask("acme", 30))
		done := check.Call(rotate(t.Context(), w.limiter(w.s), "acme", "acme-2", func(string) {})).Must(t, "Run()")
		if want := "acme was served during the rotation, and is suspended again"; len(done.Notes) == 0 || done.Notes[0] != want {
			t.Errorf("stopped at %s: the notes are %q, want %q", stage, done.Notes, want)
		}
		if got := w.left("acme-2", "pay")["t"]; got != 870 {
			t.Errorf("stopped at %s: the new entity has %d left, want 870", stage, got)
		}
		if err := ask("acme", 1); err == nil {
			t.Errorf("stopped at %s: the old entity is served after the rotation", stage)
		}
		check.Fatal(t, "Close()", l.Close())
	}
}

// TestRotateRaisedBudget rotates a tenant whose budget was raised in its running period. It is known of the new ID, and of the one after it, what
// the period began with.
func TestRotateRaisedBudget(t *testing.T) {
	w := inMemory(t)
	l := w.limiter(w.s)
	defer l.Close()
	for _, limit := range []string{"usd=200/month@UTC", "usd=400/month@UTC"} {
		check.Fatal(t, "Set()", l.Limits.Set(t.Context(), at("acme", "pay"), parsed(t, limit)))
		w.now = w.now.Add(time.Minute)
		_, err := l.Acquire(t.Context(), zlimit.Request{Entity: "acme", Resource: "pay", Consume: zlimit.Amounts{"usd": 25_000_000_000}})
		check.Fatal(t, "Acquire()", err)
		w.now = w.now.Add(time.Minute)
	}
	for _, ids := range [][2]string{{"acme", "acme-2"}, {"acme-2", "acme-3"}} {
		check.Call(rotate(t.Context(), w.limiter(w.s), ids[0], ids[1], func(string) {})).Must(t, "Run()")
		w.now = w.now.Add(time.Minute)
		statuses := check.Call(l.Available(t.Context(), zlimit.AvailableQuery{Entity: ids[1], Resource: "pay"})).Must(t, "Available()")
		r, raised, err := hindsight.Raised(t.Context(), l, &statuses[0], w.now)
		if want := (hindsight.Raise{Least: 200_000_000_000, Most: 200_000_000_000}); err != nil || !raised || r != want {
			t.Errorf("Raised() of %s = %+v, %t, %v, want %+v", ids[1], r, raised, err, want)
		}
	}
}
