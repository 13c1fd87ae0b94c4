package aggregator

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// TestLimiterToUsage lets a limiter work on each store, with parents, corrections and rollbacks, and a bucket that is
// split in between. The usage from the store's own stream is the consumption of the leases.
func TestLimiterToUsage(t *testing.T) {
	t.Run("memory", func(t *testing.T) { checkLimiterToUsage(t, newMemory(t)) })
	t.Run("file", func(t *testing.T) { checkLimiterToUsage(t, newFile(t)) })
	t.Run("dynamodb", func(t *testing.T) {
		engine := enginetest.Start(t)
		s := dynamo.New(engine.Client(), engine.Table(t), dynamo.WithStreams(engine.Streams()))
		setUp(t, s)
		checkLimiterToUsage(t, s)
	})
}

func checkLimiterToUsage(t *testing.T, s zlimit.Store) {
	ctx := t.Context()
	stream := store.Of(s).(store.Streamer)
	check.Fatal(t, "StartStream()", stream.StartStream(ctx))
	l := check.Call(zlimit.New(ctx, s, zlimit.WithSetup())).Must(t, "zlimit.New()")
	t.Cleanup(func() { check.Error(t, "Close()", l.Close()) })
	limits := []zlimit.Limit{zlimit.PerMinute("rpm", 1000), zlimit.PerMinute("tpm", 99_999)}
	check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: limits}))
	for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "ann", ParentID: "team", Cascade: true}, {ID: "bob", ParentID: "team", Cascade: true}} {
		if _, err := l.Entities.Create(ctx, e); err != nil {
			t.Fatalf("Entities.Create() = %v", err)
		}
	}
	want := map[string]map[string]int64{"ann": {}, "bob": {}, "team": {}}
	work := func() {
		for i := range 20 {
			entity := []string{"ann", "bob"}[i%2]
			lease, err := l.Acquire(ctx, zlimit.Request{Entity: entity, Resource: "model", Consume: zlimit.Amounts{"rpm": 1, "tpm": 100}})
			check.Fatal(t, "Acquire()", err)
			check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{"tpm": rand.Int64N(300) - 80}))
			consumed := lease.Consumed()
			if i%5 == 0 {
				consumed, err = nil, lease.Rollback(ctx)
			} else {
				err = lease.Commit(ctx)
			}
			check.Fatal(t, "Rollback() or Commit()", err)
			for limit, n := range consumed {
				want[entity][limit] += n
				want["team"][limit] += n
			}
		}
	}
	work()
	splitAll(t, s, "team")
	work()

	a := newAggregator(t, s)
	changes := readAll(t, stream)
	for range 2 { // once more than needed
		for batch := range slices.Chunk(changes, 7) {
			mustApply(t, a, batch...)
		}
	}
	for entity, sums := range want {
		got := map[string]int64{}
		q := zlimit.UsageQuery{Entity: entity, Resource: "model", Window: zlimit.WindowMonthly}
		for _, snapshot := range check.All(t, "Usage.Snapshots()", l.Usage.Snapshots(ctx, q)) {
			for limit, q := range snapshot.Consumed {
				got[limit] += int64(q)
			}
		}
		for limit := range sums {
			sums[limit] *= 1000
		}
		if diff := cmp.Diff(sums, got); diff != "" {
			t.Errorf("usage of %s in thousandths (-leases +snapshots):\n%s", entity, diff)
		}
	}
}

// splitAll splits the bucket of an entity, where the store has hot keys.
func splitAll(t *testing.T, s zlimit.Store, entity string) {
	t.Helper()
	if !store.Of(s).Partitioned() {
		return
	}
	ns := namespaces(t, store.Of(s))[0]
	shard := layout.BucketKey{NS: ns, Entity: entity, Resource: "model"}
	items := check.Call(store.Of(s).Read(t.Context(), []store.Key{shard.Key()}, true)).Must(t, "Read()")
	found, state, err := layout.ReadBucket(items[0])
	check.Fatal(t, "layout.ReadBucket()", err)
	writes := check.Call(shard.Split(&state, nil, found.Lineage())).Must(t, "Split()")
	results, err := store.Of(s).Transact(t.Context(), writes)
	for errors.Is(err, store.ErrConflict) { // of a mean engine
		results, err = store.Of(s).Transact(t.Context(), writes)
	}
	if err != nil || !results[0].Applied {
		t.Fatalf("Transact() = %v, %v", results, err)
	}
}

// readAll returns all changes that a stream has.
func readAll(t *testing.T, s store.Streamer) (changes []store.Change) {
	t.Helper()
	partitions := check.Call(s.Partitions(context.Background())).Must(t, "Partitions()")
	for _, p := range partitions {
		var at store.Position
		for quiet := 0; quiet < 3; {
			page := check.Call(s.Changes(context.Background(), p.ID, at, 1000)).Must(t, "Changes()")
			changes = append(changes, page.Changes...)
			if quiet++; len(page.Changes) > 0 {
				quiet = 0
			}
			if at = page.Next; page.End {
				break
			}
		}
	}
	return changes
}
