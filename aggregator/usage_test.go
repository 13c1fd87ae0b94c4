package aggregator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// busy returns n changes of shard 0 within a minute, each of which takes 1 of one limit and 2.5 of the other.
func busy(n int) []store.Change {
	changes := make([]store.Change, n)
	for i := range int64(n) {
		changes[i] = change(int(i)+1, noon.Add(time.Duration(i)*time.Second/2),
			map[string]int64{"rpm": i * 1000, "tpm": i * 2500}, map[string]int64{"rpm": (i + 1) * 1000, "tpm": (i + 1) * 2500})
	}
	return changes
}

// figuresOf returns what snapshots of one hour, its day and its month are when they are the same.
func figuresOf(f figures) map[string]figures {
	return map[string]figures{"r#2026-03-31T12:00:00Z": f, "r#2026-03-31": f, "r#2026-03": f}
}

// TestUsageCosts counts the calls and the write units of a batch that writes all three snapshots.
func TestUsageCosts(t *testing.T) {
	s, _, faults := newTable(t)
	a := newAggregator(t, s, WithoutRollUp())
	changes := busy(200)
	for _, batch := range []struct {
		name         string
		changes      []store.Change
		calls        int
		table, index float64
	}{
		{"the first batch creates three items in two indexes, those that expire in one, and reads the registry", changes[:100], 4, 3, 4},
		{"a batch of 100 changes with two limits", changes[100:], 3, 3, 0},
		{"a batch that has been counted reads the registry as well", changes[100:], 4, 3, 0},
	} {
		faults.Reset()
		mustApply(t, a, batch.changes...)
		used := faults.Capacity("")
		index := 0.0
		for _, units := range used.Indexes {
			index += units.Write
		}
		failed := 0.0 // charged all the same, but the reply does not say
		if used.Table.Write == 0 {
			failed = 3
		}
		if calls := faults.Calls(""); calls != batch.calls || used.Table.Write+failed != batch.table || index != batch.index {
			t.Errorf("%s: %d calls, %v + %v write units, want %d, %v + %v",
				batch.name, calls, used.Table.Write+failed, index, batch.calls, batch.table, batch.index)
		}
	}
	want := figuresOf(figures{"rpm": "200", "tpm": "500", "total_events": "200"})
	compare.Equal(t, "snapshots", want, snapshotsOf(t, a, "e"))
}

// TestSeveralShards counts the changes of all shards of a bucket with one write of each snapshot, which stays small.
func TestSeveralShards(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		a := newAggregator(t, s, WithoutRollUp())
		f := inject(a, nil)
		var changes []store.Change
		for i := range 64 {
			c := change(i+1, noon, nil, nil)
			c.Key = keyOf(shard(i % 32))
			c.Old, c.New = item(shard(i%32), map[string]int64{"rpm": int64(i)}), item(shard(i%32), map[string]int64{"rpm": int64(i) + 500})
			changes = append(changes, c)
		}
		mustApply(t, a, changes...)
		if f.writes != 3 {
			t.Errorf("apply() made %d writes, want 3", f.writes)
		}
		mustApply(t, a, changes[10:40]...)
		want := figuresOf(figures{"rpm": "32", "total_events": "64"})
		compare.Equal(t, "snapshots", want, snapshotsOf(t, a, "e"))
	})
}

// TestRemainder applies overlapping batches. Changes in a snapshot are left out, and the rest is counted.
func TestRemainder(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		a := newAggregator(t, s, WithoutRollUp())
		f := inject(a, nil)
		changes := busy(20)
		mustApply(t, a, changes[:8]...)
		mustApply(t, a, changes[:13]...)
		mustApply(t, a, changes[5:9]...)
		mustApply(t, a, slices.Concat(changes[10:], changes[10:])...)
		if want := 3 + 6 + 3 + 6; f.writes != want {
			t.Errorf("apply() made %d writes, want %d", f.writes, want)
		}
		want := figuresOf(figures{"rpm": "20", "tpm": "50", "total_events": "20"})
		compare.Equal(t, "snapshots", want, snapshotsOf(t, a, "e"))
	})
}

// TestLaterStream counts the changes of a stream that came after another one, and begins with lower sequences.
func TestLaterStream(t *testing.T) {
	a := newAggregator(t, newMemory(t))
	var streams [2][]store.Change
	for i, name := range []string{"2026-03-01T12:00:00.000", "2026-03-31T12:00:00.000"} {
		streams[i] = busy(10)[5*i:][:5]
		for j := range streams[i] {
			streams[i][j].Stream, streams[i][j].Sequence = name, sequence(100-50*i+j)
		}
		mustApply(t, a, streams[i]...)
	}
	mustApply(t, a, streams[1]...)
	mustApply(t, a, streams[0]...)
	want := figuresOf(figures{"rpm": "10", "tpm": "25", "total_events": "10"})
	compare.Equal(t, "snapshots", want, snapshotsOf(t, a, "e"))
}

// TestConcurrentAggregators lets several aggregators do the same work at the same time.
func TestConcurrentAggregators(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		changes := busy(60)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				a := newAggregator(t, s)
				for batch := range slices.Chunk(changes, 3+2*i) {
					if errs := a.apply(context.Background(), batch); errs != nil {
						t.Errorf("apply() = %v", errors.Join(errs...))
					}
				}
			})
		}
		wg.Wait()
		want := figuresOf(figures{"rpm": "60", "tpm": "150", "total_events": "60"})
		compare.Equal(t, "snapshots", want, snapshotsOf(t, newAggregator(t, s), "e"))
	})
}

// TestFailedWrite reports the changes of the snapshot that could not be written, and no other.
func TestFailedWrite(t *testing.T) {
	a := newAggregator(t, newMemory(t), WithConcurrency(1))
	of := func(entity string, n int) store.Change {
		s := shard(0)
		s.Entity = entity
		return store.Change{Key: keyOf(s), Sequence: sequence(n), At: noon, New: item(s, map[string]int64{"rpm": 1000})}
	}
	other := of("other", 2)
	other.Key.SK = "#META"
	changes := []store.Change{of("a", 1), other, of("b", 3), {Key: keyOf(shard(0)), Sequence: sequence(4), Old: item(shard(0), nil)}, of("c", 5)}
	f := inject(a, func(n int) (bool, error) {
		if n == 5 { // the day of b
			return false, errDown
		}
		return false, nil
	})
	errs := a.apply(context.Background(), changes)
	for i, want := range []error{nil, nil, errDown, nil, nil} {
		if !errors.Is(errs[i], want) {
			t.Errorf("apply()[%d] = %v, want %v", i, errs[i], want)
		}
	}
	if !strings.Contains(errs[2].Error(), "#USAGE#r#2026-03-31:") {
		t.Errorf("apply()[2] = %v, want the key of the snapshot in it", errs[2])
	}
	f.fault = nil
	mustApply(t, a, changes[2:]...)
	for _, entity := range []string{"a", "b", "c"} {
		want := figuresOf(figures{"rpm": "1", "total_events": "1"})
		compare.Equal(t, fmt.Sprintf("snapshots of %s", entity), want, snapshotsOf(t, a, entity))
	}
}

// TestUnknownOutcome writes again what was not answered, whether it was done or not.
func TestUnknownOutcome(t *testing.T) {
	a := newAggregator(t, newMemory(t), WithConcurrency(1))
	f := inject(a, func(n int) (bool, error) {
		if n%3 != 0 {
			return n%2 == 0, errLost
		}
		return false, nil
	})
	mustApply(t, a, busy(10)...)
	want := figuresOf(figures{"rpm": "10", "tpm": "25", "total_events": "10"})
	compare.Equal(t, "snapshots", want, snapshotsOf(t, a, "e"))
	f.writes, f.fault = 0, func(int) (bool, error) { return false, errLost }
	if errs := a.apply(context.Background(), busy(1)); !errors.Is(errs[0], errLost.Err) || f.writes != 3*maxWriteTries {
		t.Errorf("apply() = %v after %d writes, want %v after %d", errs, f.writes, errLost, 3*maxWriteTries)
	}
}

// TestLostRepliesOnTheNetwork loses replies of the engine.
func TestLostRepliesOnTheNetwork(t *testing.T) {
	s, _, faults := newTable(t)
	a := newAggregator(t, s)
	faults.Inject(enginetest.Fault{Operation: "UpdateItem", Kind: enginetest.LostReply, Times: 3})
	mustApply(t, a, busy(10)...)
	if n := faults.Injected(enginetest.LostReply); n != 3 {
		t.Fatalf("%d replies were lost, want 3", n)
	}
	want := figuresOf(figures{"rpm": "10", "tpm": "25", "total_events": "10"})
	compare.Equal(t, "snapshots", want, snapshotsOf(t, a, "e"))
}

func TestApplyAfterItsTime(t *testing.T) {
	a := newAggregator(t, newMemory(t))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for i, err := range a.apply(ctx, busy(2)) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("apply()[%d] = %v, want %v", i, err, context.Canceled)
		}
	}
}

// TestUnreadableItems counts what can be read, reports the rest to the operator, and goes on.
func TestUnreadableItems(t *testing.T) {
	var log bytes.Buffer
	a := newAggregator(t, newMemory(t), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	changes := busy(3)
	changes[1].New.Set("b_rpm_tc", expr.S("many"))
	changes[2].New.Set("b_window_tk", expr.N(1))
	for _, field := range []string{"cp", "ra", "rp", "tc"} {
		changes[2].New.Set("b_window_"+field, expr.N(1))
	}
	mustApply(t, a, changes...)
	want := figuresOf(figures{"rpm": "2", "tpm": "5", "total_events": "2"})
	compare.Equal(t, "snapshots", want, snapshotsOf(t, a, "e"))
	for _, want := range []string{"b_rpm_tc: want N, got S", "limit=window"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log = %s, want %q in it", log.String(), want)
		}
	}
}

// TestForeignSequence meets a snapshot whose sequence is not one.
func TestForeignSequence(t *testing.T) {
	a := newAggregator(t, newMemory(t))
	mustApply(t, a, busy(1)...)
	spoil := expr.Operation{Placeholders: 1, Update: []expr.Action{expr.Set(expr.Attr("seq#0"), 0)}}
	bound := check.Call(spoil.Call(expr.N(1)).Bind()).Must(t, "Bind()")
	key := store.Key{PK: "n/ENTITY#e", SK: "#USAGE#r#2026-03"}
	if _, err := a.table.Store().Write(t.Context(), store.Write{Key: key, Expr: bound}); err != nil {
		t.Fatalf("Write() = %v", err)
	}
	errs := a.apply(context.Background(), busy(2)[1:])
	if len(errs) != 1 || errs[0] == nil || !strings.Contains(errs[0].Error(), "does not say what it contains") {
		t.Errorf("apply() = %v, want an error", errs)
	}
}

func TestRetention(t *testing.T) {
	a := newAggregator(t, newMemory(t), WithRetention(zlimit.WindowHourly, 48*time.Hour), WithRetention(zlimit.WindowDaily, 0))
	mustApply(t, a, busy(1)...)
	for window, want := range map[string]int64{
		"2026-03-31T12:00:00Z": time.Date(2026, 4, 2, 13, 0, 0, 0, time.UTC).Unix(), "2026-03-31": 0, "2026-03": 0,
	} {
		items, err := a.table.Store().Read(t.Context(), []store.Key{{PK: "n/ENTITY#e", SK: "#USAGE#r#" + window}}, true)
		check.Fatal(t, "Read()", err)
		if got, _ := items[0].Get("ttl").Int(); got != want {
			t.Errorf("snapshot %s expires at %d, want %d", window, got, want)
		}
	}
}

func TestInvalidOptions(t *testing.T) {
	for name, opts := range map[string][]Option{
		"a retention that changes may outlive": {WithRetention(zlimit.WindowHourly, 47*time.Hour)},
		"a negative retention":                 {WithRetention(zlimit.WindowHourly, -1)},
		"an unknown window":                    {WithRetention("yearly", 0)},
		"no clock":                             {WithClock(nil)},
		"no logger":                            {WithLogger(nil)},
		"no concurrency":                       {WithConcurrency(0)},
		"shards that are no power of two":      {WithMaxShards(3)},
		"a name with a separator":              {WithName("a#b")},
		"a negative pause":                     {WithPoll(-1)},
		"no changes in a batch":                {WithBatch(0)},
		"no option":                            {nil},
	} {
		if _, err := New(newMemory(t), opts...); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("%s: New() = %v, want a ValidationError", name, err)
		}
	}
	if _, err := New(zlimit.Store{}); err == nil {
		t.Error("New() takes a store that is none")
	}
}

// TestRetentionIsTakenBack keeps snapshots for some time, and then forever: those that are written again stay.
func TestRetentionIsTakenBack(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		expiries := func(a *Aggregator) (times []int64) {
			page, err := a.table.Store().Query(t.Context(), store.Query{PK: "n/ENTITY#e", Prefix: "#USAGE#", Consistent: true})
			check.Fatal(t, "Query()", err)
			for _, it := range page.Items {
				at, _ := it.Get("ttl").Int()
				times = append(times, at)
			}
			return times
		}
		changes := busy(3)
		for i, retention := range []time.Duration{100 * time.Hour, 0, 50 * time.Hour} {
			clock := WithClock(func() time.Time { return noon.Add(time.Hour) })
			a := newAggregator(t, s, clock, WithRetention(zlimit.WindowHourly, retention), WithRetention(zlimit.WindowDaily, retention))
			mustApply(t, a, changes[i])
			want := []int64{0, 0, 0} // the month, the day and the hour
			if retention > 0 {
				want = []int64{0, noon.Truncate(24 * time.Hour).Add(24*time.Hour + retention).Unix(), noon.Truncate(time.Hour).Add(time.Hour + retention).Unix()}
			}
			compare.Equal(t, fmt.Sprintf("times of expiry with a retention of %v", retention), want, expiries(a))
		}
	})
}

// TestIndexOfTheNamespace checks that the index of a namespace lists the snapshots that are kept forever. The next write of a
// snapshot whose retention has changed adds it, or removes it. If no scan would find the others, the index lists them as well.
func TestIndexOfTheNamespace(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		changes := busy(5)
		for i, retention := range []time.Duration{100 * time.Hour, 100 * time.Hour, 0, 0, 50 * time.Hour} {
			a := newAggregator(t, s, WithRetention(zlimit.WindowHourly, retention))
			mustApply(t, a, changes[i])
			enginetest.CatchUp()
			page := check.Call(store.Of(s).Query(t.Context(), layout.QueryNamespaceItems("n"))).Must(t, "Query()")
			var got []string
			for _, it := range page.Items {
				got = append(got, strings.TrimPrefix(it.Get(store.SK).Text(), "#USAGE#r#"))
			}
			slices.Sort(got)
			want := []string{"2026-03"}
			if !store.Of(s).Partitioned() {
				want = append(want, "2026-03-31")
			}
			if retention == 0 || !store.Of(s).Partitioned() {
				want = append(want, "2026-03-31T12:00:00Z")
			}
			compare.Equal(t, fmt.Sprintf("in the index with a retention of hours of %v", retention), want, got)
		}
	})
}

// TestHugeTotals counts more than 64 bits hold, within one batch and over several. The table has the exact total. A
// query reports the most that it can, and the snapshots of others.
func TestHugeTotals(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		a := newAggregator(t, s)
		const step = int64(1) << 62
		huge := make([]store.Change, 6)
		for i := range huge {
			n := uint64(i) * uint64(step) // modulo 2^64, as the item counts
			huge[i] = change(i+1, noon, map[string]int64{"tpm": int64(n)}, map[string]int64{"tpm": int64(n + uint64(step))})
		}
		mustApply(t, a, huge[:5]...)
		mustApply(t, a, huge...)
		want := figuresOf(figures{"tpm": "27670116110564327.424", "total_events": "6"}) // 6·2^62 thousandths
		compare.Equal(t, "snapshots", want, snapshotsOf(t, a, "e"))
		other := shard(0)
		other.Entity = "other"
		mustApply(t, a, store.Change{Key: keyOf(other), Sequence: sequence(100), At: noon, New: item(other, map[string]int64{"tpm": 1000})})

		register(t, s)
		l, err := zlimit.New(t.Context(), s, zlimit.WithSetup(), zlimit.WithNamespace("n"), zlimit.WithClock(func() time.Time { return noon }))
		check.Fatal(t, "zlimit.New()", err)
		defer func() { check.Error(t, "Close()", l.Close()) }()
		reported := map[string]zlimit.Quantity{}
		enginetest.CatchUp()
		for snapshot, err := range l.Usage.Snapshots(t.Context(), zlimit.UsageQuery{Resource: "r", Window: zlimit.WindowDaily}) {
			check.Fatal(t, "Snapshots()", err)
			reported[snapshot.Entity] = snapshot.Consumed["tpm"]
		}
		compare.Equal(t, "consumption", map[string]zlimit.Quantity{"e": math.MaxInt64, "other": 1000}, reported)
		sum, err := l.Usage.Summary(t.Context(), zlimit.UsageQuery{Resource: "r", Window: zlimit.WindowDaily})
		if err != nil || sum.Limits[0].Total != math.MaxInt64 {
			t.Errorf("Summary() = %+v, %v; want the most that a total can be", sum, err)
		}
	})
}

// register registers the namespace of ID n under that name.
func register(t *testing.T, s zlimit.Store) {
	t.Helper()
	active := string(zlimit.NamespaceActive)
	forward := layout.Namespace{Key: layout.NamespaceKey{Name: "n"}, ID: "n", Name: "n", Status: active}
	reverse := layout.NamespaceID{Key: layout.NamespaceIDKey{ID: "n"}, ID: "n", Name: "n", Status: active}
	for _, w := range []store.Write{
		{Kind: store.Put, Key: forward.Key.Key(), Item: forward.Encode()},
		{Kind: store.Put, Key: reverse.Key.Key(), Item: reverse.Encode()},
	} {
		if _, err := store.Of(s).Write(t.Context(), w); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
}
