package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
)

// In TestParentsFirst, shards split and end. A child waits for its parent, and not for an unknown one.
func TestParentsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sharded(t)
		w.shards.Open("a", "long gone")
		w.shards.Open("b", "a")
		w.shards.Open("c", "a")
		w.put("a", "x")
		w.put("a", "y")
		w.put("b", "x")
		w.put("c", "y")
		c := w.start("one", nil)
		time.Sleep(time.Minute)
		expectTold(t, "while the parent is open", w, 1, 2)
		w.shards.Close("a")
		time.Sleep(1100 * time.Millisecond) // not a look at the leases later
		if got := len(w.reported()); got != 2 {
			t.Errorf("%d changes of the children once the parent has ended, want 2", got)
		}
		if l := w.lease(w.shards.Partition("a")); !l.Finished || l.Owner != "" || l.ExpiresAt.Before(time.Now().Add(46*time.Hour)) {
			t.Errorf("lease of the parent = %+v, want it finished, and kept for two days", l)
		}
		c.stop(t)
		d := w.start("two", nil)
		time.Sleep(time.Minute)
		expectTold(t, "a second consumer", w)
		d.stop(t)
	})
}

// In TestGap, the stream forgets changes, and shards, before they were read.
func TestGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sharded(t)
		w.shards.Open("a", "")
		w.put("a", "x")
		c := w.start("one", nil)
		time.Sleep(time.Second)
		c.stop(t)
		expectTold(t, "before the gap", w, 1)
		for range 4 {
			w.put("a", "x")
		}
		w.shards.Trim("a", 3)
		c = w.start("two", nil)
		time.Sleep(time.Second)
		expectTold(t, "after the gap", w, 4, 5)
		if p := c.Status().Partitions[0]; p.Gaps != 1 || w.count(stream.Gap) != 1 {
			t.Errorf("progress = %+v, want one gap reported", p)
		}
		c.stop(t)

		w.shards.Open("b", "a")
		w.put("b", "x")
		w.shards.Forget("a")
		c = w.start("three", nil)
		time.Sleep(time.Minute)
		expectTold(t, "after a shard that was forgotten", w, 6)
		if w.count(stream.Gap) != 2 {
			t.Errorf("%d gaps reported, want the forgotten shard, too", w.count(stream.Gap))
		}
		if l := w.lease(w.shards.Partition("a")); !l.Finished {
			t.Errorf("lease of the forgotten shard = %+v, want it finished", l)
		}
		c.stop(t)
	})
}

// TestGapIsNoted notes from when to when changes were lost, before the partition is read on. While that fails nothing is read.
func TestGapIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sharded(t)
		w.shards.Open("a", "")
		w.put("a", "x")
		var begun int
		c := w.start("one", func(c *stream.Config) {
			c.Begin = func(_ context.Context, partitions []store.Partition) error {
				if begun++; begun == 1 {
					return errors.New("not now")
				}
				if len(partitions) != 1 {
					t.Errorf("Begin() with %d partitions, want 1", len(partitions))
				}
				return nil
			}
		})
		time.Sleep(time.Minute)
		read := time.Now()
		c.stop(t)
		expectTold(t, "before the gap", w, 1)
		if begun != 2 {
			t.Errorf("Begin() was called %d times, want again after a failure, and not once there are leases", begun)
		}
		time.Sleep(time.Hour)
		for range 4 {
			w.put("a", "x")
		}
		w.shards.Trim("a", 3)
		time.Sleep(time.Hour)
		type span struct{ from, to time.Time }
		var lost []span
		failing := true
		c = w.start("two", func(c *stream.Config) {
			c.Begin = func(context.Context, []store.Partition) error {
				t.Error("Begin() of a stream that was read")
				return nil
			}
			c.Lose = func(_ context.Context, partition string, from, to time.Time) error {
				if partition != w.shards.Partition("a") {
					t.Errorf("Lose() of %q", partition)
				}
				if failing {
					return errors.New("not now")
				}
				lost = append(lost, span{from, to})
				return nil
			}
		})
		time.Sleep(time.Minute)
		expectTold(t, "while the gap is not noted", w)
		failing = false
		time.Sleep(3 * time.Minute)
		expectTold(t, "after the gap", w, 4, 5)
		if len(lost) != 1 || lost[0].from.After(read) || lost[0].from.Before(read.Add(-time.Minute)) || lost[0].to.Before(read.Add(time.Hour-time.Second)) || lost[0].to.After(read.Add(time.Hour)) {
			t.Errorf("lost = %v, want one gap, from the end of the first consumer at %v up to the first change after it", lost, read)
		}
		c.stop(t)
	})
}

// TestBalance lets consumers come and go: each has its share, and all partitions are read.
func TestBalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sharded(t)
		for i := range 6 {
			w.shards.Open(fmt.Sprint("shard", i), "")
		}
		held := func(consumers ...*running) (counts []int) {
			for _, c := range consumers {
				counts = append(counts, len(c.Status().Partitions))
			}
			return counts
		}
		expect := func(what string, got []int, want ...int) {
			t.Helper()
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: partitions = %v, want %v", what, got, want)
			}
		}
		a := w.start("a", nil)
		time.Sleep(time.Second)
		expect("one consumer", held(a), 6)
		b := w.start("b", nil)
		time.Sleep(time.Minute)
		expect("two consumers", held(a, b), 3, 3)
		c := w.start("c", nil)
		time.Sleep(time.Minute)
		expect("three consumers", held(a, b, c), 2, 2, 2)
		b.stop(t)
		time.Sleep(time.Minute)
		expect("one less", held(a, c), 3, 3)
		if n := w.count(stream.Lost); n > 0 {
			t.Errorf("%d leases were lost, want them given back", n)
		}
		for i := range 6 {
			w.put(fmt.Sprint("shard", i), fmt.Sprint("item", i))
		}
		time.Sleep(2 * time.Second)
		w.audit()
		a.stop(t)
		c.stop(t)
	})
}

// TestNamedAgain stops a consumer in good order, which had to wait for its share, and starts it again under its name.
// It waits for its share as it did the first time.
func TestNamedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sharded(t)
		for i := range 6 {
			w.shards.Open(fmt.Sprint("shard", i), "")
		}
		a := w.start("a", nil)
		time.Sleep(time.Second)
		for start := range 3 {
			b := w.start("b", nil)
			time.Sleep(time.Minute)
			if of := [2]int{len(a.Status().Partitions), len(b.Status().Partitions)}; of != [2]int{3, 3} {
				t.Errorf("start %d: partitions = %v, want 3 each", start+1, of)
			}
			b.stop(t)
			time.Sleep(time.Minute)
		}
		a.stop(t)
	})
}

// TestUnreadableLease spoils the lease of one partition. The others are read, also by a consumer that comes later. The
// partition itself is read once the record is deleted.
func TestUnreadableLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sharded(t)
		for i := range 2 {
			w.shards.Open(fmt.Sprint("shard", i), "")
		}
		spoilt := layout.StreamLeaseKey{Partition: w.shards.Partition("shard0")}.Key()
		put := store.Write{Kind: store.Put, Key: spoilt, Item: expr.Item{{Name: "beats", Value: expr.S("many")}}}
		if _, err := w.store.Write(t.Context(), put); err != nil {
			t.Fatalf("Write() = %v", err)
		}
		w.put("shard0", "held up")
		w.put("shard1", "free")
		for range 2 {
			c := w.start("a", nil)
			time.Sleep(time.Minute)
			if s := c.Status(); len(s.Partitions) != 1 || !s.Healthy() {
				t.Errorf("Status() = %+v, want one partition, and healthy", s)
			}
			c.stop(t)
		}
		expectTold(t, "with a lease that cannot be read", w, 2)
		if w.count(stream.Unreadable) == 0 {
			t.Error("nothing tells of the lease that cannot be read")
		}
		check.Fatal(t, "Delete()", w.store.Delete(t.Context(), []store.Key{spoilt}))
		c := w.start("a", nil)
		time.Sleep(7 * time.Minute) // until the partitions are listed again
		expectTold(t, "without it", w, 1)
		c.stop(t)
	})
}

// An occupancy knows who applies changes of which partition.
type occupancy struct {
	mu   sync.Mutex
	busy map[string]string // partition: consumer
}

func (o *occupancy) enter(t *testing.T, consumer, partition string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if other, ok := o.busy[partition]; ok {
		t.Errorf("%s and %s apply changes of %s at the same time", consumer, other, partition)
	}
	o.busy[partition] = consumer
}

func (o *occupancy) leave(partition string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.busy, partition)
}

// In TestPrograms, consumers with skewed clocks and slow, lossy ways to the store compete for shards that split and
// end. Some are killed, some are stopped, and new ones come. Every change is applied, for each item in order, and no
// two consumers apply changes of one partition at the same time.
func TestPrograms(t *testing.T) {
	programs := soak.Pick[uint64](12, 40)
	if testing.Short() {
		programs = 4
	}
	for seed := range programs {
		synctest.Test(t, func(t *testing.T) { program(t, seed) })
		if t.Failed() {
			t.Fatalf("program %d", seed)
		}
	}
}

func program(t *testing.T, seed uint64) {
	w := sharded(t)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	occupied := &occupancy{busy: map[string]string{}}
	shardOf := map[string]string{}
	items := []string{"u", "v", "w", "x", "y", "z"}
	w.shards.Open("0", "")
	for _, item := range items {
		shardOf[item] = "0"
	}
	started := 0
	begin := func() *running {
		started++
		name := nameOf(started)
		killAt := 0
		if draw(2) == 0 {
			killAt = 1 + draw(150)
		}
		m, config := w.mortal(name, killAt, draw(2) == 0)
		m.delay = func() time.Duration {
			if draw(40) == 0 {
				return time.Duration(draw(40)) * time.Second
			}
			return time.Duration(draw(50)) * time.Millisecond
		}
		skew := time.Duration(draw(7200)-3600) * time.Second
		c := w.start(name, func(c *stream.Config) {
			config(c)
			c.Batch = 1 + draw(20)
			c.Now = func() time.Time { return time.Now().Add(skew) }
			apply := c.Apply
			c.Apply = func(ctx context.Context, changes []store.Change) []error {
				n, _ := changes[0].New.Get("n").Int()
				partition := w.partitionOf(n)
				occupied.enter(t, name, partition)
				defer occupied.leave(partition)
				if draw(3) == 0 { // slow, and gives up when it must
					select {
					case <-time.After(time.Duration(draw(60)) * time.Second):
					case <-ctx.Done():
						return failAll(changes, ctx.Err())
					}
				}
				errs := failAll(changes, nil)
				for i := range changes {
					if i == 0 && draw(10) == 0 {
						return failAll(changes, errDead)
					}
					copy(errs[i:], apply(ctx, changes[i:i+1]))
				}
				return errs
			}
		})
		m.uponDeath(c.cancel)
		return c
	}
	consumers := []*running{begin(), begin(), begin()}
	shards := 1
	for range 60 {
		switch draw(12) {
		case 0: // a shard ends, and hands its items over to one or two
			parent := shardOf[items[draw(len(items))]]
			children := []string{fmt.Sprint(shards), fmt.Sprint(shards + draw(2))}
			shards += 2
			w.shards.Open(children[0], parent)
			if children[1] != children[0] {
				w.shards.Open(children[1], parent)
			}
			w.shards.Close(parent)
			for i, item := range items {
				if shardOf[item] == parent {
					shardOf[item] = children[i%2]
				}
			}
		case 1:
			i := draw(len(consumers))
			consumers[i].stop(t)
			consumers[i] = begin()
		default:
			for range draw(30) {
				item := items[draw(len(items))]
				w.put(shardOf[item], item)
			}
		}
		time.Sleep(time.Duration(draw(5000)) * time.Millisecond)
	}
	last := w.start("last", nil)
	time.Sleep(10 * time.Minute)
	for _, c := range consumers {
		c.stop(t)
	}
	time.Sleep(10 * time.Minute)
	last.stop(t)
	w.audit()
}

func failAll(changes []store.Change, err error) []error {
	errs := make([]error, len(changes))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (w *testbed) partitionOf(n int64) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.partition[n]
}
