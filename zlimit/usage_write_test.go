package zlimit

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// TestCountUsage adds changes to a snapshot that contains none of them, some, or all.
func TestCountUsage(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		l := newLimiter(t, s)
		at := func(n int) store.Sequence { return store.SequenceOf(fmt.Sprint(n)) }
		for _, c := range []struct {
			name        string
			changes     []layout.ShardChanges
			applied     bool
			wantCounted map[int]store.Sequence
		}{
			{"the first changes", []layout.ShardChanges{{Shard: 0, First: at(1), Last: at(5)}}, true, map[int]store.Sequence{0: at(5)}},
			{"the next changes", []layout.ShardChanges{{Shard: 0, First: at(6), Last: at(9)}}, true, map[int]store.Sequence{0: at(9)}},
			{"the last change again", []layout.ShardChanges{{Shard: 0, First: at(9), Last: at(9)}}, false, map[int]store.Sequence{0: at(9)}},
			{"some of both", []layout.ShardChanges{{Shard: 0, First: at(8), Last: at(12)}}, false, map[int]store.Sequence{0: at(9)}},
			{
				"new ones of one shard, and old ones of another",
				[]layout.ShardChanges{{Shard: 0, First: at(5), Last: at(6)}, {Shard: 31, First: at(2), Last: at(2)}},
				false,
				map[int]store.Sequence{0: at(9)},
			},
			{
				"new ones of two shards",
				[]layout.ShardChanges{{Shard: 0, First: at(10), Last: at(100)}, {Shard: 31, First: at(2), Last: at(2)}},
				true,
				map[int]store.Sequence{0: at(100), 31: at(2)},
			},
		} {
			delta := layout.UsageDelta{
				NS: l.ns, Entity: "e", Resource: "r", Window: string(Daily),
				Start: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Events: 1,
				Consumed: []bucket.Amount{{Limit: "rpm", Tokens: 1500}}, Shards: c.changes,
			}
			w, err := delta.Write()
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.impl.Write(context.Background(), w)
			if err != nil || r.Applied != c.applied {
				t.Errorf("%s: applied %t, %v; want %t", c.name, r.Applied, err, c.applied)
			}
			if diff := cmp.Diff(c.wantCounted, layout.CountedChanges(r.Item)); diff != "" {
				t.Errorf("%s: counted (-want +got):\n%s", c.name, diff)
			}
		}
		for snapshot, err := range l.Usage.Snapshots(context.Background(), UsageQuery{Entity: "e", Resource: "r", Window: Daily}) {
			if err != nil {
				t.Fatal(err)
			}
			if snapshot.Consumed["rpm"] != 4500 || snapshot.Events != 3 {
				t.Errorf("the snapshot has %v rpm in %d changes, want 4.5 in 3", snapshot.Consumed["rpm"], snapshot.Events)
			}
		}
	})
}
