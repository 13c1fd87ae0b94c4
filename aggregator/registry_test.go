package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// doomed lets a limiter consume in a namespace that is then deleted, and returns a limiter of the same table, the
// namespace, and the changes.
func doomed(t *testing.T, s zlimit.Store) (l *zlimit.RateLimiter, ns zlimit.Namespace, changes []store.Change) {
	t.Helper()
	ctx := t.Context()
	stream := store.Of(s).(store.Streamer)
	check.Fatal(t, "StartStream()", stream.StartStream(ctx))
	l = check.Call(zlimit.New(ctx, s, zlimit.WithSetup())).Must(t, "zlimit.New()")
	scope, err := l.Namespace(ctx, "doomed", zlimit.WithSetup())
	check.Fatal(t, "Namespace()", err)
	t.Cleanup(func() { check.Error(t, "Close()", errors.Join(scope.Close(), l.Close())) })
	for range 3 {
		lease := check.Call(scope.Acquire(ctx, zlimit.Request{
			Entity: "alice", Resource: "search", Consume: zlimit.Amounts{"calls": 1}, Limits: []zlimit.Limit{zlimit.PerMinute("calls", 10)},
		})).Must(t, "Acquire()")
		check.Fatal(t, "Commit()", lease.Commit(ctx))
	}
	if ns, err = l.Namespaces.Delete(ctx, "doomed"); err != nil {
		t.Fatalf("Namespaces.Delete() = %v", err)
	}
	return l, ns, readAll(t, stream)
}

// itemsOf returns the keys of the items of a namespace: of a store without scans, those that the index has.
func itemsOf(t *testing.T, s zlimit.Store, id string) (keys []string) {
	t.Helper()
	enginetest.CatchUp()
	query, scan := layout.QueryNamespaceItems(id), store.Scan{Prefix: id + "/", Consistent: true}
	scanner, scans := store.Of(s).(store.Scanner)
	for {
		var page store.Page
		var err error
		if scans {
			page, err = scanner.Scan(t.Context(), scan)
		} else {
			page, err = store.Of(s).Query(t.Context(), query)
		}
		check.Fatal(t, "Scan() or Query()", err)
		for _, it := range page.Items {
			k := store.KeyOf(it)
			keys = append(keys, k.PK+" "+k.SK)
		}
		if query.Continue, scan.Continue = page.Next, page.Next; page.Next == nil {
			return keys
		}
	}
}

// TestChangesBehindAPurge applies the changes of a namespace once it is purged: nothing comes back under its ID.
func TestChangesBehindAPurge(t *testing.T) {
	forEachStream(t, func(t *testing.T, s zlimit.Store) {
		ctx := t.Context()
		l, ns, changes := doomed(t, s)
		a := newAggregator(t, s)
		mustApply(t, a, changes...)
		if got := itemsOf(t, s, ns.ID); len(got) != 1+3 {
			t.Errorf("a deleted namespace, which may be recovered, has %q, want the bucket and three snapshots", got)
		}
		check.Fatal(t, "Purge()", l.Namespaces.Purge(ctx, ns.ID, nil))
		if got := itemsOf(t, s, ns.ID); len(got) != 0 {
			t.Errorf("the purge has left %q", got)
		}
		for range 2 {
			mustApply(t, a, changes...)
			if got := itemsOf(t, s, ns.ID); len(got) != 0 {
				t.Errorf("after the purge there are %q", got)
			}
		}
		if err := l.Namespaces.Purge(ctx, ns.ID, nil); !errors.Is(err, zlimit.ErrNamespaceNotFound) {
			t.Errorf("Purge() again = %v, want ErrNamespaceNotFound", err)
		}
	})
}

// TestPurgeAmidABatch purges a namespace while its snapshots are written, before or after each of them; the reply of one is
// lost.
func TestPurgeAmidABatch(t *testing.T) {
	for at := 1; at <= 3; at++ {
		for _, late := range []bool{false, true} {
			s := newMemory(t)
			l, ns, changes := doomed(t, s)
			a := newAggregator(t, s, WithConcurrency(1), WithoutTending())
			purge := func() {
				check.Error(t, "Purge()", l.Namespaces.Purge(context.Background(), ns.ID, nil))
			}
			inject(a, func(n int) (bool, error) {
				switch {
				case n == at && !late:
					purge()
				case n == at+1 && late:
					purge()
				case n == 3 && late:
					return true, errLost
				}
				return false, nil
			})
			mustApply(t, a, changes...)
			if got := itemsOf(t, s, ns.ID); len(got) != 0 {
				t.Errorf("a purge at write %d, late %t, leaves %q", at, late, got)
			}
		}
	}
}

// TestVersionGate gives a table to clients of another version: neither the process nor the function works on it.
func TestVersionGate(t *testing.T) {
	forEachStream(t, func(t *testing.T, s zlimit.Store) {
		ctx := t.Context()
		_, ns, changes := doomed(t, s)
		put := func(record layout.Version) {
			t.Helper()
			w := store.Write{Kind: store.Put, Key: layout.VersionKey{}.Key(), Item: record.Encode()}
			if _, err := store.Of(s).Write(ctx, w); err != nil {
				t.Fatalf("Write() = %v", err)
			}
		}
		event := lambdaEvent(t, changes)
		for _, theirs := range []layout.Version{
			{SchemaVersion: "1.0.0", ClientMinVersion: "1.0.0"},
			{SchemaVersion: zlimit.SchemaVersion, ClientMinVersion: "0.99.0"},
		} {
			put(theirs)
			a := newAggregator(t, s)
			var refused *zlimit.VersionError
			if err := a.Run(ctx); !errors.As(err, &refused) || refused.Schema != theirs.SchemaVersion || refused.ClientMin != theirs.ClientMinVersion {
				t.Errorf("Run() = %v, want a VersionError", err)
			}
			if _, err := Handler(a)(ctx, event); !errors.As(err, &refused) {
				t.Errorf("Handler() = %v, want a VersionError", err)
			}
			if got := itemsOf(t, s, ns.ID); len(got) != 1 {
				t.Errorf("a refused client leaves %q, want the bucket alone", got)
			}
			// The same process works once the table is for it.
			put(layout.Version{SchemaVersion: zlimit.SchemaVersion, ClientMinVersion: zlimit.ClientMinVersion})
			if response, err := Handler(a)(ctx, event); err != nil || len(response.BatchItemFailures) > 0 {
				t.Errorf("Handler() = %+v, %v", response, err)
			}
			// And it notices with the next new snapshot when the table is not any more.
			put(theirs)
			forgetUsage(t, s, ns.ID)
			for range 2 {
				if errs := a.applyAdmitted(ctx, changes); errs == nil || !errors.As(errors.Join(errs...), &refused) {
					t.Errorf("applyAdmitted() = %v, want a VersionError", errs)
				}
			}
			forgetUsage(t, s, ns.ID)
		}
	})
}

// forgetUsage deletes the snapshots of a namespace.
func forgetUsage(t *testing.T, s zlimit.Store, id string) {
	t.Helper()
	for _, k := range itemsOf(t, s, id) {
		pk, sk, _ := strings.Cut(k, " ")
		if !strings.HasPrefix(sk, "#USAGE#") {
			continue
		}
		check.Fatal(t, "Delete()", store.Of(s).Delete(t.Context(), []store.Key{{PK: pk, SK: sk}}))
	}
}

// lambdaEvent returns the event of the bucket's changes.
func lambdaEvent(t *testing.T, changes []store.Change) (event events.DynamoDBEvent) {
	t.Helper()
	var buckets []store.Change
	for _, c := range changes {
		if _, ok := layout.ParseBucketKey(c.Key); ok {
			buckets = append(buckets, c)
		}
	}
	check.Fatal(t, "json.Unmarshal()", json.Unmarshal(eventOf(t, buckets...), &event))
	return event
}

// TestReplayBehindADeletion applies changes of two hours of a day that were counted before their entity was deleted. In their order they
// make the same of each window, however often. Where a newer one comes first, the day contains the older one then. Its hour alone counts
// that once more: it cannot distinguish them from the snapshots of a program that wrote the day and no hour.
func TestReplayBehindADeletion(t *testing.T) {
	for name, test := range map[string]struct {
		replays     [][]int
		hours, days int64
	}{
		"in order":                     {[][]int{{0, 1, 2}}, 3, 3},
		"in order, one by one, twice":  {[][]int{{0}, {1}, {2}, {0}, {1}, {2}}, 3, 3},
		"in any order within a batch":  {[][]int{{2, 0, 1}}, 3, 3},
		"the newest one first":         {[][]int{{2}, {0, 1}}, 3, 1},
		"the newest one alone, thrice": {[][]int{{2}, {2}, {2}}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newMemory(t)
			_, ns, all := doomed(t, s)
			var changes []store.Change
			for _, c := range all {
				if _, ok := layout.ParseBucketKey(c.Key); ok {
					changes = append(changes, c)
				}
			}
			day := time.Now().UTC().Truncate(24 * time.Hour).Add(-24 * time.Hour)
			for i := range changes {
				changes[i].At = day.Add(time.Duration(8+i/2) * time.Hour)
			}
			a := newAggregator(t, s, WithoutTending())
			mustApply(t, a, changes...)
			forgetUsage(t, s, ns.ID)
			for _, replay := range test.replays {
				var some []store.Change
				for _, i := range replay {
					some = append(some, changes[i])
				}
				mustApply(t, a, some...)
			}
			total := map[string]int64{}
			for _, k := range itemsOf(t, s, ns.ID) {
				pk, sk, _ := strings.Cut(k, " ")
				if !strings.HasPrefix(sk, "#USAGE#") {
					continue
				}
				items := check.Call(store.Of(s).Read(t.Context(), []store.Key{{PK: pk, SK: sk}}, true)).Must(t, "Read()")
				u := check.Call(layout.DecodeUsage(items[0])).Must(t, "layout.DecodeUsage()")
				total[u.Window] += u.TotalEvents
			}
			if total["hourly"] != test.hours || total["daily"] != test.days || total["monthly"] != test.days {
				t.Errorf("the windows have %v changes, want %d in hours and %d in the day and the month", total, test.hours, test.days)
			}
		})
	}
}
