package aggregator

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A history is a random past of some buckets. It has the changes of their items as a stream reports them, and what
// was consumed in truth, summed up as it happened.
type history struct {
	t       *rapid.T
	now     time.Time
	pauses  []time.Duration                       // between changes
	n       int                                   // changes so far
	items   map[layout.BucketKey]map[string]int64 // what the items that are there have counted of each limit
	streams [2][]store.Change                     // partitions; all changes of an item are in one
	sums    map[string]map[string]map[string]int64
}

// limitNames are those of a history, and what children took of one of them, as the table calls it.
var limitNames = []string{"rpm", "tpm", "my_limit_tc", "children#rpm"}

func newHistory(t *rapid.T) *history {
	pauses := []time.Duration{0, time.Millisecond, time.Second, 20 * time.Minute, 7 * time.Hour, 20 * 24 * time.Hour, -2 * time.Second}
	return &history{t: t, now: noon, pauses: pauses, items: map[layout.BucketKey]map[string]int64{}, sums: map[string]map[string]map[string]int64{}}
}

// tell appends a change of an item to the stream.
func (h *history) report(s layout.BucketKey, before, after map[string]int64) {
	h.n++
	c := store.Change{Key: keyOf(s), Sequence: sequence(h.n), At: h.now.Truncate(time.Second)}
	if before != nil {
		c.Old = item(s, before)
	}
	if after != nil {
		c.New = item(s, after)
		h.items[s] = after
	} else {
		delete(h.items, s)
	}
	partition := (len(s.Entity) + s.Shard) % len(h.streams)
	h.streams[partition] = append(h.streams[partition], c)
}

// consume notes what one write takes of a bucket.
func (h *history) consume(b layout.BucketKey, amounts map[string]int64) {
	consumed := false
	for _, n := range amounts {
		consumed = consumed || n != 0
	}
	if !consumed {
		return
	}
	if h.sums[b.Entity] == nil {
		h.sums[b.Entity] = map[string]map[string]int64{}
	}
	for _, layout := range []string{"2006-01-02T15:00:00Z", "2006-01-02", "2006-01"} {
		id := b.Resource + "#" + h.now.UTC().Format(layout)
		sum := h.sums[b.Entity][id]
		if sum == nil {
			sum = map[string]int64{}
			h.sums[b.Entity][id] = sum
		}
		sum["total_events"]++
		for limit, n := range amounts {
			if n != 0 || amounts["children#"+limit] != 0 {
				sum[limit] += n
			}
		}
	}
}

// want returns the figures that the snapshots of an entity must have.
func (h *history) want(entity string) map[string]figures {
	want := map[string]figures{}
	for id, sum := range h.sums[entity] {
		want[id] = figures{}
		for name, n := range sum {
			if n == 0 && strings.HasPrefix(name, "children#") {
				continue // which may or may not be written
			}
			want[id][name] = strconv.FormatInt(n, 10)
			if name != "total_events" {
				want[id][name] = expr.Decimal(n, 3).Number()
			}
		}
	}
	return want
}

// amounts draws what one write takes, or gives back.
func (h *history) amounts(limits []string) map[string]int64 {
	amounts := map[string]int64{}
	for _, limit := range limits {
		amounts[limit] = rapid.OneOf(rapid.Int64Range(0, 5000), rapid.Int64Range(-3000, 100), rapid.Just(int64(0))).Draw(h.t, limit)
	}
	return amounts
}

// step does one thing to one bucket.
func (h *history) step() {
	h.now = h.now.Add(rapid.SampledFrom(h.pauses).Draw(h.t, "passes"))
	b := layout.BucketKey{NS: "n", Entity: rapid.SampledFrom([]string{"a", "bb"}).Draw(h.t, "entity"), Resource: "r"}
	var shards []layout.BucketKey
	for s := range h.items {
		if s.NS == b.NS && s.Entity == b.Entity && s.Resource == b.Resource {
			shards = append(shards, s)
		}
	}
	if len(shards) == 0 {
		amounts := h.amounts(limitNames)
		start := maps.Clone(amounts)
		if h.n == 0 && rapid.Bool().Draw(h.t, "about to wrap") {
			for limit := range start {
				start[limit] = math.MaxInt64 - 1
			}
			h.items[b] = start // it was there before the stream began
			return
		}
		h.consume(b, amounts)
		h.report(b, nil, start)
		return
	}
	slices.SortFunc(shards, func(a, b layout.BucketKey) int { return a.Shard - b.Shard })
	s := rapid.SampledFrom(shards).Draw(h.t, "shard")
	before := h.items[s]
	switch what := rapid.IntRange(0, 19).Draw(h.t, "what"); {
	case what == 0 && len(shards) < 4: // a split: the new shard has counted nothing
		other := b
		other.Shard = shards[len(shards)-1].Shard + 1
		h.report(s, before, maps.Clone(before))
		h.report(other, nil, map[string]int64{"rpm": 0, "tpm": 0})
	case what == 1 && len(shards) > 1: // a merge: what the shard has counted goes with it
		last := shards[len(shards)-1]
		h.report(shards[0], h.items[shards[0]], maps.Clone(h.items[shards[0]]))
		h.report(last, h.items[last], nil)
	case what == 2 && len(shards) == 1: // expiry
		h.report(s, before, nil)
	case what == 3: // a limit goes
		after := maps.Clone(before)
		delete(after, "tpm")
		h.report(s, before, after)
	default: // consumption, of a limit that may be new
		amounts := h.amounts(limitNames)
		after := maps.Clone(before)
		for limit, n := range amounts {
			after[limit] += n
		}
		h.consume(b, amounts)
		h.report(s, before, after)
	}
}

// A follower reads one partition, and knows up to if it has been applied.
type follower struct {
	changes []store.Change
	done    int
}

// apply applies changes from at on, and notes how far it came. at is not after the first change
// that is not done.
func (f *follower) apply(ctx context.Context, a *Aggregator, from, to int) {
	errs := a.apply(ctx, f.changes[from:to])
	if failed := slices.IndexFunc(errs, func(err error) bool { return err != nil }); failed >= 0 {
		to = from + failed
	}
	f.done = max(f.done, to)
}

// disorder draws what goes wrong on a store: writes fail, lose their replies, or end the process.
func disorder(t *rapid.T) func(n int) (bool, error) {
	faults := rapid.SliceOfN(rapid.IntRange(0, 15), 20, 20).Draw(t, "faults")
	written := rapid.Bool().Draw(t, "written")
	down := false
	return func(n int) (bool, error) {
		if down {
			return false, errDown
		}
		switch faults[n%len(faults)] {
		case 0:
			return false, errDown
		case 1:
			return true, errLost
		case 2:
			return false, errLost
		case 3:
			down = true
			return written, errDown
		default:
			return false, nil
		}
	}
}

// TestHistories cuts random histories into random batches. It applies them late, again, overlapping, partition by
// partition in any order and two at a time, on a store that fails in the middle. The figures are those of the direct
// sum.
func TestHistories(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		if !strings.HasSuffix(t.Name(), "/memory") {
			repeat(t, 4)
		}
		rapid.Check(t, func(t *rapid.T) { checkHistory(t, s) })
	})
}

// repeat makes rapid draw n times in this test, unless its flag says otherwise.
func repeat(t *testing.T, n int) {
	f := flag.Lookup("rapid.checks")
	if before := f.Value.String(); before == f.DefValue {
		check.Fatal(t, "Value.Set()", f.Value.Set(strconv.Itoa(n)))
		t.Cleanup(func() { check.Error(t, "Value.Set()", f.Value.Set(before)) })
	}
}

func checkHistory(t *rapid.T, s zlimit.Store) {
	empty(t, store.Of(s))
	h := newHistory(t)
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		h.step()
	}
	followers := make([]follower, len(h.streams))
	for i := range followers {
		followers[i].changes = h.streams[i]
	}
	for range rapid.IntRange(0, 12).Draw(t, "batches") {
		f := &followers[rapid.IntRange(0, len(followers)-1).Draw(t, "partition")]
		if len(f.changes) == 0 {
			continue
		}
		a := newAggregator(t, s, WithConcurrency(1))
		inject(a, disorder(t))
		from := rapid.IntRange(0, min(f.done, len(f.changes)-1)).Draw(t, "from")
		to := rapid.IntRange(from+1, len(f.changes)).Draw(t, "to")
		if rapid.IntRange(0, 3).Draw(t, "together") > 0 {
			f.apply(context.Background(), a, from, to)
			continue
		}
		other, again := newAggregator(t, s, WithConcurrency(1)), *f
		var wg sync.WaitGroup
		wg.Go(func() { again.apply(context.Background(), other, 0, min(again.done+3, len(again.changes))) })
		f.apply(context.Background(), a, from, to)
		wg.Wait()
		f.done = max(f.done, again.done)
	}
	a := newAggregator(t, s, WithConcurrency(1))
	for i := range followers {
		f := &followers[i]
		if f.apply(context.Background(), a, f.done, len(f.changes)); f.done != len(f.changes) {
			t.Fatalf("partition %d ends at %d of %d", i, f.done, len(f.changes))
		}
	}
	for _, entity := range []string{"a", "bb"} {
		if diff := cmp.Diff(h.want(entity), snapshotsOf(t, a, entity)); diff != "" {
			t.Fatalf("snapshots of %s (-want +got):\n%s", entity, diff)
		}
	}
}

// empty deletes the snapshots of a history, and what is noted of its hours.
func empty(t *rapid.T, s store.Store) {
	partitions := []string{"n/ENTITY#a", "n/ENTITY#bb"}
	for part := range dueParts {
		partitions = append(partitions, layout.QueryDueHours(part).PK)
	}
	for _, pk := range partitions {
		page := check.Call(s.Query(context.Background(), store.Query{PK: pk, Consistent: true})).Must(t, "Query()")
		for _, it := range page.Items {
			check.Fatal(t, "Delete()", s.Delete(context.Background(), []store.Key{store.KeyOf(it)}))
		}
	}
}

// TestCrashes ends the process at each write of a run, before it and after it. Another one takes over from where the
// last batch was done.
func TestCrashes(t *testing.T) {
	changes := busy(12)
	for i := range changes {
		changes[i].At = noon.Add(time.Duration(i) * 20 * time.Minute)
	}
	want := map[string]figures{}
	for crash, crashed := 1, true; crashed; crash++ {
		for _, written := range []bool{false, true} {
			s := newMemory(t)
			a := newAggregator(t, s, WithConcurrency(1))
			crashed = false
			inject(a, func(n int) (bool, error) {
				if n < crash {
					return false, nil
				}
				crashed = true
				return written && n == crash, errDown
			})
			f := follower{changes: changes}
			for f.done < len(changes) && !crashed {
				f.apply(context.Background(), a, f.done, min(f.done+5, len(changes)))
			}
			a = newAggregator(t, s)
			for before := -1; f.done < len(changes); {
				if f.done == before {
					t.Fatalf("a crash at write %d, written %t: the next one is stuck at change %d", crash, written, f.done)
				}
				before = f.done
				f.apply(context.Background(), a, f.done, min(f.done+4, len(changes)))
			}
			got := snapshotsOf(t, a, "e")
			if crash == 1 && !written {
				want = got
				if f := want["r#2026-03"]; f["rpm"] != "12" || f["tpm"] != "30" || f["total_events"] != "12" {
					t.Fatalf("the month is %v", f)
				}
			}
			compare.Equal(t, fmt.Sprintf("a crash at write %d, written %t", crash, written), want, got)
		}
	}
}
