package zlimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
	"github.com/zlimit/zlimit-go/internal/stream/leases"
	"github.com/zlimit/zlimit-go/internal/table"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestLeases writes a lease as consumers do: a consumer that has not seen the last write is refused, and notified.
func TestLeases(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		records := leases.In(table.New(store.Of(s), table.Options{Timeout: time.Minute}))
		list := func() []stream.Lease {
			t.Helper()
			return check.Call(records.List(ctx, "")).Must(t, "List()")
		}
		if got := list(); len(got) != 0 {
			t.Errorf("List() of a new table = %v", got)
		}
		const partition = "2026-03-01T12:00:00.000/shardId-00000001"
		const position = store.Sequence("0000000000000000000000000000000000000042")
		claimed := stream.Lease{Partition: partition, Owner: "a", Beats: 1}
		moved := stream.Lease{Partition: partition, Position: position, Owner: "a", Beats: 2}
		taken := stream.Lease{Partition: partition, Position: position, Owner: "b", Beats: 3}
		rewound := stream.Lease{Partition: partition, Owner: "b", Beats: 4}
		expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		finished := stream.Lease{Partition: partition, Position: position, Finished: true, Beats: 5, ExpiresAt: expires}
		for _, step := range []struct {
			name        string
			next, found stream.Lease
			saved       bool
		}{
			{"a write of what is not there", moved, stream.Lease{}, false},
			{"a claim", claimed, claimed, true},
			{"a claim of what is there", stream.Lease{Partition: partition, Owner: "b", Beats: 1}, claimed, false},
			{"a position", moved, moved, true},
			{"the same once more", moved, moved, false},
			{"a claim by another consumer", taken, taken, true},
			{"a write of the first", stream.Lease{Partition: partition, Owner: "a", Beats: 3}, taken, false},
			{"no position", rewound, rewound, true},
			{"the end", finished, finished, true},
		} {
			found, saved, err := records.Save(ctx, step.next)
			if err != nil || saved != step.saved || found != step.found {
				t.Errorf("Save() of %s = %+v, %t, %v; want %+v, %t", step.name, found, saved, err, step.found, step.saved)
			}
		}
		other := stream.Lease{Partition: "@consumer", Owner: "consumer", Beats: 1}
		if _, saved, err := records.Save(ctx, other); !saved || err != nil {
			t.Errorf("Save() = %t, %v", saved, err)
		}
		compare.Equal(t, "List()", []stream.Lease{finished, other}, list())

		if from, err := records.List(ctx, "@consumer"); err != nil || len(from) != 1 || from[0] != other {
			t.Errorf("List() from a consumer on = %v, %v; want it alone", from, err)
		}
		if from, err := records.List(ctx, partition); err != nil || len(from) != 2 {
			t.Errorf("List() from a partition on = %v, %v; want both", from, err)
		}
		// They are of no namespace.
		if got := names(collect(t, "Namespaces()", l.Namespaces.List(ctx))); len(got) != 1 {
			t.Errorf("namespaces = %q, want the default one", got)
		}
		if got := collect(t, "Orphans()", l.Namespaces.Orphans(ctx)); len(got) != 0 {
			t.Errorf("orphans = %v, want none", got)
		}
		check.Error(t, "Delete()", records.Delete(ctx, []string{partition, "none"}))
		compare.Equal(t, "List() after Delete()", []stream.Lease{other}, list())
	})
}

// TestLeasesOfMany lists more leases than a page of the store holds.
func TestLeasesOfMany(t *testing.T) {
	s := newMemory(t)
	newLimiter(t, s)
	records := leases.In(table.New(store.Of(s), table.Options{Timeout: time.Minute}))
	for range 1100 {
		if _, saved, err := records.Save(t.Context(), stream.Lease{Partition: zlimit.NewNamespaceID() + "x", Beats: 1}); !saved || err != nil {
			t.Fatalf("Save() = %t, %v", saved, err)
		}
	}
	all, err := records.List(t.Context(), "")
	if err != nil || len(all) != 1100 {
		t.Errorf("List() = %d leases, %v; want 1100", len(all), err)
	}
}

func TestHolds(t *testing.T) {
	s := newMemory(t)
	records := leases.In(table.New(store.Of(s), table.Options{Timeout: time.Minute}))
	for _, test := range []struct {
		key  store.Key
		want bool
	}{
		{layout.StreamLeaseKey{Partition: "log"}.Key(), true},
		{layout.StreamLeaseKey{Partition: "@consumer"}.Key(), true},
		{layout.VersionKey{}.Key(), false},
		{layout.NamespaceKey{Name: "STREAM"}.Key(), false},
		{layout.SystemConfigKey{NS: "a"}.Key(), false},
		{store.Key{PK: "a/SYSTEM#", SK: "#STREAM#log"}, false},
	} {
		if got := records.Holds(test.key); got != test.want {
			t.Errorf("Holds(%v) = %t, want %t", test.key, got, test.want)
		}
	}
}
