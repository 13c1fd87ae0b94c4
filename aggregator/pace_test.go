package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A crowded is a store whose index takes so many new snapshots of hours a second. A write takes 5 ms, a read 100.
type crowded struct {
	store.Store
	rate float64

	mu        sync.Mutex
	room      float64
	at        time.Time
	throttled int
	failed    int      // conditions of snapshots of hours
	done      []string // snapshots of hours that were written
}

func (*crowded) Partitioned() bool { return true }

func (c *crowded) Write(ctx context.Context, w store.Write) (store.Result, error) {
	time.Sleep(5 * time.Millisecond)
	if err := ctx.Err(); err != nil {
		return store.Result{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found, err := c.Store.Read(ctx, []store.Key{w.Key}, true)
	if err != nil {
		return store.Result{}, err
	}
	isHour := strings.Contains(w.Key.SK, "T")
	if found[0] == nil && isHour {
		now := time.Now()
		c.room = min(c.room+c.rate*now.Sub(c.at).Seconds(), max(c.rate, 1))
		c.at = now
		if c.room < 1 {
			c.throttled++
			return store.Result{}, &store.Error{Op: "UpdateItem", Unavailable: true, Throttled: true, Err: errors.New("full"), Throttles: []store.Throttle{
				{Limit: store.OfKey, Index: true, Write: true, Reason: "IndexWriteKeyRangeThroughputExceeded"},
			}}
		}
		c.room--
	}
	r, err := c.Store.Write(ctx, w)
	if err == nil && !r.Applied && isHour {
		c.failed++
	}
	if isHour {
		c.done = append(c.done, w.Key.PK)
	}
	return r, err
}

func (c *crowded) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	time.Sleep(100 * time.Millisecond)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.Store.Read(ctx, keys, consistent)
}

// inCrowd runs a test of an aggregator in a bubble, on an index that takes so many new snapshots a second.
func inCrowd(t *testing.T, rate float64, test func(t *testing.T, a *Aggregator, s *crowded)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &crowded{Store: store.Of(newMemory(t)), rate: rate, room: rate, at: time.Now()}
		a := check.Call(New(newMemory(t), WithoutTending())).Must(t, "New()")
		a.table = a.tableOf(s)
		test(t, a, s)
	})
}

// crowd returns a change of each of so many buckets: the first of the hour, or one that follows it.
func crowd(from, to int, first bool) (changes []store.Change) {
	began := noon.Truncate(time.Hour)
	for i := from; i < to; i++ {
		k := shard(0)
		k.Entity = fmt.Sprintf("e%04d", i)
		refilled, n := began.Add(-time.Minute), int64(1)
		if !first {
			refilled, n = began.Add(time.Minute), 2
		}
		c := store.Change{Key: keyOf(k), Sequence: sequence(10_000*int(n) + i), At: noon, New: item(k, map[string]int64{"rpm": 1000 * n})}
		for _, attribute := range item(k, map[string]int64{"rpm": 1000 * (n - 1)}) {
			if attribute.Name == "rf" {
				attribute.Value = expr.N(refilled.UnixMilli())
			}
			c.Old = append(c.Old, attribute)
		}
		changes = append(changes, c)
	}
	return changes
}

// wantCounted compares the hour of each of so many buckets with what was consumed.
func wantCounted(t *testing.T, a *Aggregator, buckets int, want string) {
	t.Helper()
	for i := range buckets {
		if got := snapshotsOf(t, a, fmt.Sprintf("e%04d", i))["r#2026-03-31T12:00:00Z"]["rpm"]; got != want {
			t.Fatalf("bucket %d has %q in its hour, want %s", i, got, want)
		}
	}
}

// TestFullHour begins more snapshots than their index takes for a minute. All are written in one batch, about as fast as the index
// takes them, and few of the writes are throttled.
func TestFullHour(t *testing.T) {
	inCrowd(t, 50, func(t *testing.T, a *Aggregator, s *crowded) {
		const buckets = 3000
		began := time.Now()
		mustApply(t, a, crowd(0, buckets, true)...)
		if took := time.Since(began).Seconds(); took > 1.3*buckets/50 {
			t.Errorf("%d snapshots took %.0f s, at 50 a second", buckets, took)
		}
		if s.throttled > buckets/20 || s.failed > 0 {
			t.Errorf("%d throttled writes and %d failed ones for %d snapshots", s.throttled, s.failed, buckets)
		}
		wantCounted(t, a, buckets, "1")
	})
}

// TestNoPaceWithoutThrottles begins snapshots whose index takes all of them: eight at a time, without a pause.
func TestNoPaceWithoutThrottles(t *testing.T) {
	inCrowd(t, 1e6, func(t *testing.T, a *Aggregator, s *crowded) {
		a.options.sleep = func(_ context.Context, d time.Duration) error { return fmt.Errorf("a pause of %v", d) }
		a.table = a.tableOf(s)
		began := time.Now()
		mustApply(t, a, crowd(0, 800, true)...)
		if took, want := time.Since(began), 3*100*5*time.Millisecond+100*time.Millisecond; took > want {
			t.Errorf("800 snapshots took %v, want %v", took, want)
		}
	})
}

// TestPaceEnds fills an index, and begins snapshots long after that: without a pause again.
func TestPaceEnds(t *testing.T) {
	inCrowd(t, 50, func(t *testing.T, a *Aggregator, s *crowded) {
		mustApply(t, a, crowd(0, 200, true)...)
		if s.throttled == 0 {
			t.Fatal("nothing was throttled")
		}
		time.Sleep(10 * time.Minute)
		s.mu.Lock()
		s.rate, s.room = 1e6, 1e6
		s.mu.Unlock()
		began := time.Now()
		mustApply(t, a, crowd(200, 1000, true)...)
		if took := time.Since(began); took > 3*100*5*time.Millisecond+200*time.Millisecond {
			t.Errorf("800 snapshots took %v", took)
		}
	})
}

// In TestExistingSnapshotsGoFirst, a batch begins many snapshots of a full index, and adds to others. The others are written
// immediately, wherever they are in the batch.
func TestExistingSnapshotsGoFirst(t *testing.T) {
	inCrowd(t, 1e6, func(t *testing.T, a *Aggregator, s *crowded) {
		mustApply(t, a, crowd(0, 100, true)...)
		s.mu.Lock()
		s.rate, s.room, s.done = 20, 0, nil
		s.mu.Unlock()
		mustApply(t, a, crowd(100, 150, true)...) // finds the pace
		s.mu.Lock()
		s.done = nil
		s.mu.Unlock()
		began := time.Now()
		finished := make(chan struct{})
		go func() {
			defer close(finished)
			mustApply(t, a, slices.Concat(crowd(150, 450, true), crowd(0, 100, false))...)
		}()
		time.Sleep(time.Second)
		s.mu.Lock()
		early := len(slices.DeleteFunc(slices.Clone(s.done), func(pk string) bool { return pk >= "n/ENTITY#e0100" }))
		s.mu.Unlock()
		if early != 100 {
			t.Errorf("%d of 100 snapshots that exist were written within a second", early)
		}
		<-finished
		if took := time.Since(began); took < 10*time.Second {
			t.Errorf("300 snapshots began within %v, at 20 a second", took)
		}
		wantCounted(t, a, 100, "2")
	})
}

// TestPaceOfEachResource fills the index of one resource: the snapshots of another one begin immediately.
func TestPaceOfEachResource(t *testing.T) {
	var p paces
	full, other := resource{"n", "full"}, resource{"n", "other"}
	p.throttle(full, 0, 0)
	middle := func(n int) int { return n / 2 }
	for i := range 100 {
		wait, err := p.reserve(full, 0, time.Minute, middle)
		if want := time.Duration(i) * 10 * time.Millisecond; (wait-want).Abs() > time.Millisecond || err != nil {
			t.Fatalf("beginning %d waits %v, %v, want %v", i, wait, err, want)
		}
		if wait, err := p.reserve(other, 0, time.Minute, middle); wait != 0 || err != nil {
			t.Fatalf("a beginning of the other resource waits %v, %v", wait, err)
		}
	}
	p.throttle(full, time.Second/2, time.Second/2) // as full as it was
	if rate := p.all[full].at(0); rate != firstRate {
		t.Errorf("the rate is %v after throttles of one second, want %v", rate, firstRate)
	}
	p.throttle(full, time.Second, time.Second)
	if rate := p.all[full].at(time.Second); rate < 0.69*firstRate || rate > 0.75*firstRate {
		t.Errorf("the rate is %v after another throttle", rate)
	}
	for i := range time.Duration(100) {
		p.throttle(full, i*2*time.Second, i*2*time.Second)
	}
	if rate := p.all[full].rate; rate != leastRate {
		t.Errorf("the rate is %v after many, want %v", rate, leastRate)
	}
	if _, err := p.reserve(full, time.Hour, time.Minute, middle); err != nil || p.all[full] != nil {
		t.Errorf("the resource has a pace an hour later, or %v", err)
	}
}

// In TestFullForLong, an index takes nothing for a long time. The batch fails within a minute, and says why.
func TestFullForLong(t *testing.T) {
	inCrowd(t, 0, func(t *testing.T, a *Aggregator, s *crowded) {
		s.room = 0
		for range 2 {
			began := time.Now()
			errs := a.apply(t.Context(), crowd(0, 500, true))
			if len(errs) != 500 || !errors.Is(errs[0], errFull) {
				t.Fatalf("apply() = %d errors, want 500 times %v: %v", len(errs), errFull, errs[0])
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("the batch took %v", took)
			}
		}
		if s.throttled > 1000 {
			t.Errorf("%d throttled writes", s.throttled)
		}
		s.mu.Lock()
		s.rate = 100
		s.mu.Unlock()
		for range 100 {
			if a.apply(t.Context(), crowd(0, 500, true)) == nil {
				break
			}
			time.Sleep(time.Second)
		}
		wantCounted(t, a, 500, "1")
	})
}

// TestNoTimeForTheRest lets the time of a function end before the index takes all: Lambda brings again all from the first change
// that failed. What was applied behind it is not written again.
func TestNoTimeForTheRest(t *testing.T) {
	inCrowd(t, 50, func(t *testing.T, a *Aggregator, s *crowded) {
		s.mu.Lock()
		s.rate = 1e6
		s.mu.Unlock()
		mustApply(t, a, crowd(500, 600, true)...)
		s.mu.Lock()
		s.rate, s.room = 20, 0
		s.mu.Unlock()
		changes := slices.Concat(crowd(0, 500, true), crowd(500, 600, false))
		calls := 0
		for ; len(changes) > 0 && calls < 10; calls++ {
			ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
			var event events.DynamoDBEvent
			check.Fatal(t, "json.Unmarshal()", json.Unmarshal(eventOf(t, changes...), &event))
			response, err := a.handle(ctx, event)
			if err != nil || ctx.Err() != nil {
				t.Fatalf("handle() = %v, %v", err, ctx.Err())
			}
			cancel()
			first := len(changes)
			for _, f := range response.BatchItemFailures {
				first = slices.IndexFunc(changes, func(c store.Change) bool { return c.Sequence == store.SequenceOf(f.ItemIdentifier) })
			}
			changes = changes[first:]
		}
		if calls < 3 || calls > 6 {
			t.Errorf("%d calls of 10 s for 500 snapshots, at 20 a second", calls)
		}
		if s.failed > 8*calls { // those that were under way
			t.Errorf("%d writes of hours that were counted, in %d calls", s.failed, calls)
		}
		wantCounted(t, a, 500, "1")
		if n := len(a.repeats.applied); n != 0 {
			t.Errorf("%d changes are remembered that do not come again", n)
		}
	})
}
