package zlimit_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestCompletenessTo takes the least of the partitions that are to be read, and the zero time while one of them is unknown.
func TestCompletenessTo(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(1_700_000_000+second, 0).UTC() }
	lease := func(partition string, appliedTo time.Time, finished bool) layout.StreamLease {
		l := layout.StreamLease{Key: layout.StreamLeaseKey{Partition: partition}, Owner: "a", Beats: 1, Finished: finished}
		if !appliedTo.IsZero() {
			l.AppliedTo = appliedTo.UnixMilli()
		}
		return l
	}
	for _, test := range []struct {
		name   string
		leases []layout.StreamLease
		want   time.Time
	}{
		{"no aggregator", nil, time.Time{}},
		{"the least of the open partitions", []layout.StreamLease{lease("p1", at(20), false), lease("p2", at(10), false), lease("p3", at(5), true)}, at(10)},
		{"a partition that nobody has read", []layout.StreamLease{lease("p1", at(20), false), lease("p2", time.Time{}, false)}, time.Time{}},
		{"a process that waits", []layout.StreamLease{lease("p1", at(20), false), lease("@idle", time.Time{}, false)}, at(20)},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newMemory(t)
			l := newLimiter(t, s)
			for _, lease := range test.leases {
				if _, err := store.Of(s).Write(t.Context(), store.Write{Kind: store.Put, Key: lease.Key.Key(), Item: lease.Encode()}); err != nil {
					t.Fatalf("Write() = %v", err)
				}
			}
			if got, err := l.Usage.Completeness(t.Context()); err != nil || !got.To.Equal(test.want) {
				t.Errorf("Completeness() = %v, %v, want it to %v", got, err, test.want)
			}
		})
	}
}

// TestResourcesWithUsage covers resources that nothing is stored for, used by entities without a record.
func TestResourcesWithUsage(t *testing.T) {
	s := newMemory(t)
	l := newLimiter(t, s)
	ns := check.Call(l.Namespaces.Get(t.Context(), zlimit.DefaultNamespace)).Must(t, "Namespaces.Get()")
	for _, u := range []layout.UsageDelta{
		{Entity: "a", Resource: "search"}, {Entity: "a", Resource: "gpt"}, {Entity: "b", Resource: "gpt"},
	} {
		u.NS, u.Window, u.Start, u.Events = ns.ID, "monthly", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 1
		w := check.Call(u.Write()).Must(t, "Write()")
		if _, err := store.Of(s).Write(t.Context(), w); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
	got := collect(t, "Usage.Resources()", l.Usage.Resources(context.WithoutCancel(t.Context())))
	if want := []string{"gpt", "search"}; !slices.Equal(got, want) {
		t.Errorf("Resources() = %v, want %v", got, want)
	}
}
