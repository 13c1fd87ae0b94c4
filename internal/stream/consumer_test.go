package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
	"github.com/zlimit/zlimit-go/internal/stream/leases"
	"github.com/zlimit/zlimit-go/internal/table"
)

func expectTold(t *testing.T, what string, w *testbed, want ...int64) {
	t.Helper()
	compare.Equal(t, fmt.Sprintf("%s: changes delivered", what), want, w.reported())
}

// TestConsume applies changes as they come, in batches, and goes on where it stopped.
func TestConsume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		for range 25 {
			w.put("", "item")
		}
		largest := 0
		c := w.start("a", func(c *stream.Config) {
			c.Batch = 10
			note := c.Apply
			c.Apply = func(ctx context.Context, changes []store.Change) []error {
				largest = max(largest, len(changes))
				return note(ctx, changes)
			}
		})
		time.Sleep(time.Second)
		expectTold(t, "what was there", w, upTo(1, 25)...)
		if largest != 10 {
			t.Errorf("the largest batch has %d changes, want 10", largest)
		}
		w.put("", "item")
		w.put("", "other")
		time.Sleep(1100 * time.Millisecond)
		expectTold(t, "what was put then", w, 26, 27)
		c.stop(t)
		w.put("", "item")
		d := w.start("b", nil)
		time.Sleep(time.Second)
		expectTold(t, "what was put while nobody ran", w, 28)
		d.stop(t)
	})
}

// TestWants reads over changes that are not wanted, however many, and notes the position behind them.
func TestWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		for range 300 {
			w.put("", "other")
		}
		w.put("", "item")
		w.put("", "other")
		c := w.start("a", func(c *stream.Config) {
			c.Batch = 10
			c.Wants = func(c *store.Change) bool { return c.Key.PK == "item" }
		})
		time.Sleep(time.Second)
		expectTold(t, "what is wanted", w, 301)
		c.stop(t)
		d := w.start("b", nil)
		time.Sleep(time.Second)
		expectTold(t, "what was put while nobody ran", w)
		d.stop(t)
	})
}

// TestStopsWhileReading stops a consumer that reads many changes which are not wanted, page by page.
func TestStopsWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		for range 100 {
			w.put("", "other")
		}
		slow, change := w.mortal("a", 0, false)
		slow.delay = func() time.Duration { return time.Second }
		c := w.start("a", func(c *stream.Config) {
			change(c)
			c.Batch, c.Term = 10, time.Hour
			c.Wants = func(*store.Change) bool { return false }
		})
		time.Sleep(5500 * time.Millisecond) // four calls come before the first page
		began := time.Now()
		c.stop(t)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the consumer took %v to stop, want the calls that were under way", took)
		}
	})
}

// TestCheckpoints writes the position every third of the term, whether there is much to do or nothing, and nothing more.
func TestCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		m, config := w.mortal("a", 0, false)
		var saves atomic.Int64
		m.Leases = counting{m.Leases, &saves}
		c := w.start("a", config)
		for range 60 {
			w.put("", "item")
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if busy := saves.Load(); busy < 8 || busy > 10 { // a turn to list the partitions, a lease and a claim
			t.Errorf("a busy minute took %d writes, want 9", busy)
		}
		if got := w.lease("log").Position; got == "" {
			t.Error("the position was not written")
		}
		w.reported()
		saves.Store(0)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if idle := saves.Load(); idle < 60 || idle > 63 { // one or two turns to list the partitions
			t.Errorf("ten idle minutes took %d writes, want 62", idle)
		}
		expectTold(t, "idle", w)
		c.stop(t)
	})
}

type counting struct {
	stream.Leases
	saves *atomic.Int64
}

func (c counting) Save(ctx context.Context, next stream.Lease) (stream.Lease, bool, error) {
	c.saves.Add(1)
	return c.Leases.Save(ctx, next)
}

// TestCrash kills a consumer at each of its calls in turn, before the call and after it. Another one goes on, and finds
// what was not written applied once more.
func TestCrash(t *testing.T) {
	for _, late := range []bool{false, true} {
		for killAt := 1; killAt <= 60; killAt++ {
			synctest.Test(t, func(t *testing.T) {
				w := embedded(t)
				m, config := w.mortal("a", killAt, late)
				a := w.start("a", config)
				m.uponDeath(a.cancel)
				b := w.start("b", nil)
				for range 40 {
					w.put("", "x")
					w.put("", "y")
					time.Sleep(700 * time.Millisecond)
				}
				time.Sleep(2 * time.Minute)
				<-a.done
				w.audit()
				if t.Failed() {
					t.Fatalf("killed at call %d, late: %t", killAt, late)
				}
				b.stop(t)
				if l := w.lease("log"); l.Owner != "" || l.Position == "" {
					t.Errorf("lease after all = %+v, want a free one with a position", l)
				}
			})
		}
	}
}

// TestTakeOver measures how long a partition stays alone after a crash, and after a stop.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		m, config := w.mortal("a", 0, false)
		a := w.start("a", config)
		time.Sleep(time.Second)
		b := w.start("b", nil)
		time.Sleep(time.Minute)
		if owner := w.lease("log").Owner; owner != "a" {
			t.Fatalf("owner = %q, want a", owner)
		}
		m.mu.Lock()
		m.dead = true
		m.mu.Unlock()
		crash := time.Now()
		a.cancel()
		for w.lease("log").Owner != "b" {
			time.Sleep(100 * time.Millisecond)
		}
		if got := time.Since(crash); got < 20*time.Second || got > 41*time.Second {
			t.Errorf("the other took over after %v, want a term, and a look more at most", got)
		}
		<-a.done

		c := w.start("c", nil)
		time.Sleep(time.Second)
		stop := time.Now()
		b.stop(t)
		if owner := w.lease("log").Owner; owner != "" {
			t.Errorf("owner after a stop = %q, want none", owner)
		}
		for w.lease("log").Owner != "c" {
			time.Sleep(100 * time.Millisecond)
		}
		if got := time.Since(stop); got > 11*time.Second {
			t.Errorf("the other took over %v after a stop, want the next look, within 10s", got)
		}
		c.stop(t)
	})
}

// TestFailures lets some changes fail some times. The others are applied, the position stays before the first
// failure, and only failed ones come again.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		for range 6 {
			w.put("", "item")
		}
		failures := map[int64]int{3: 2, 5: 4}
		broken := errors.New("broken")
		c := w.start("a", func(c *stream.Config) {
			note := c.Apply
			c.Apply = func(ctx context.Context, changes []store.Change) []error {
				errs := make([]error, len(changes))
				for i := range changes {
					if n, _ := changes[i].New.Get("n").Int(); failures[n] > 0 {
						failures[n]--
						errs[i] = broken
						continue
					}
					note(ctx, changes[i:i+1])
				}
				return errs
			}
		})
		synctest.Wait()
		expectTold(t, "at first", w, 1, 2, 4, 6)
		status := c.Status()
		if p := status.Partitions[0]; p.Failing != sequence(3) || p.Position != sequence(2) || !errors.Is(p.Err, broken) || p.Stuck || !status.Healthy() {
			t.Errorf("progress = %+v, want change 3 failing after 2", p)
		}
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		expectTold(t, "the second time", w)
		time.Sleep(450 * time.Millisecond)
		synctest.Wait()
		expectTold(t, "the third time", w, 3)
		if p := c.Status().Partitions[0]; p.Failing != sequence(5) || p.Position != sequence(3) {
			t.Errorf("progress = %+v, want change 5 failing after 3", p)
		}
		time.Sleep(2 * time.Second)
		expectTold(t, "the fifth time", w, 5)
		if p := c.Status().Partitions[0]; p.Failing != "" || p.Err != nil || p.Position < sequence(6) || p.Applied != 6 {
			t.Errorf("progress = %+v, want all six applied", p)
		}
		c.stop(t)
	})
}

func sequence(n int) store.Sequence {
	text := slices.Repeat([]byte{'0'}, 40)
	for i := 39; n > 0; i, n = i-1, n/10 {
		text[i] = byte('0' + n%10)
	}
	return store.Sequence(text)
}

// In TestPoison, a change never succeeds. It is skipped, or the partition is stuck.
func TestPoison(t *testing.T) {
	for _, skip := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := embedded(t)
			for range 3 {
				w.put("", "item")
			}
			poison := func(c *stream.Config) {
				note := c.Apply
				c.Apply = func(ctx context.Context, changes []store.Change) []error {
					if n, _ := changes[0].New.Get("n").Int(); n == 2 {
						return slices.Repeat([]error{errors.New("poison")}, len(changes))
					}
					note(ctx, changes[:1])
					errs := slices.Repeat([]error{errors.New("one at a time")}, len(changes))
					errs[0] = nil
					return errs
				}
				if skip {
					c.Skip = func(c store.Change, err error) bool { return err.Error() == "poison" && c.Sequence == sequence(2) }
				}
			}
			c := w.start("a", poison)
			time.Sleep(40 * time.Second)
			expectTold(t, "until the poison", w, 1)
			if status := c.Status(); status.Partitions[0].Stuck || !status.Healthy() {
				t.Errorf("status before the eighth failure = %+v, want it healthy", status)
			}
			time.Sleep(time.Hour)
			status := c.Status()
			if skip {
				expectTold(t, "after the poison", w, 3)
				if p := status.Partitions[0]; p.Skipped != 1 || !status.Healthy() || w.count(stream.Skipped) != 1 {
					t.Errorf("status = %+v, want one change skipped", status)
				}
				c.stop(t)
				return
			}
			expectTold(t, "after the poison", w)
			if p := status.Partitions[0]; !p.Stuck || p.Position != sequence(1) || p.Failing != sequence(2) || status.Healthy() || p.Lag < time.Hour {
				t.Errorf("status = %+v, want it stuck at change 2", status)
			}
			if n := w.count(stream.Stuck); n < 55 || n > 65 {
				t.Errorf("it was reported %d times in an hour, want once a minute", n)
			}
			if l := w.lease("log"); l.Owner != "a" || l.Position != sequence(1) {
				t.Errorf("lease = %+v, want it kept at change 1", l)
			}
			c.stop(t)
		})
	}
}

// In TestWrongResults, a function returns nonsense. Nothing counts as applied.
func TestWrongResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		w.put("", "item")
		w.put("", "item")
		c := w.start("a", func(c *stream.Config) {
			c.Apply = func(context.Context, []store.Change) []error { return make([]error, 1) }
		})
		time.Sleep(time.Minute)
		if p := c.Status().Partitions[0]; p.Applied != 0 || p.Position != "" || p.Err == nil {
			t.Errorf("progress = %+v, want nothing applied", p)
		}
		c.stop(t)
	})
}

// TestStop stops a consumer in the middle of a batch: it finishes the batch, or what it has of it when grace ends.
func TestStop(t *testing.T) {
	for _, test := range []struct {
		name string
		take time.Duration
		want store.Sequence
	}{
		{"a batch that ends in time", 15 * time.Second, sequence(6)}, // the writes of leases are changes, too
		{"a batch that takes too long", 25 * time.Second, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := embedded(t)
			for range 3 {
				w.put("", "item")
			}
			c := w.start("a", func(c *stream.Config) {
				c.Apply = func(ctx context.Context, changes []store.Change) []error {
					select {
					case <-time.After(test.take):
						return nil
					case <-ctx.Done():
						return slices.Repeat([]error{ctx.Err()}, len(changes))
					}
				}
			})
			time.Sleep(time.Second)
			start := time.Now()
			c.stop(t)
			if got, want := time.Since(start), min(test.take-time.Second, 20*time.Second); got != want {
				t.Errorf("%s: Run returned after %v, want %v", test.name, got, want)
			}
			if l := w.lease("log"); l.Owner != "" || l.Position != test.want {
				t.Errorf("%s: lease = %+v, want a free one at %q", test.name, l, test.want)
			}
		})
	}
}

// In TestSlowBatch, a batch takes longer than many terms. The lease is kept.
func TestSlowBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		w.put("", "item")
		c := w.start("a", func(c *stream.Config) {
			note := c.Apply
			c.Apply = func(ctx context.Context, changes []store.Change) []error {
				time.Sleep(10 * time.Minute)
				return note(ctx, changes)
			}
		})
		d := w.start("b", nil)
		time.Sleep(11 * time.Minute)
		expectTold(t, "once", w, 1)
		c.stop(t)
		d.stop(t)
	})
}

func TestNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sharded(t)
		w.shards.View = ""
		c := w.start("a", nil)
		if err := <-c.done; !errors.Is(err, store.ErrNoStream) {
			t.Errorf("Run() = %v, want %v", err, store.ErrNoStream)
		}
	})
}

// In TestOutage, a store fails for a while.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		m, config := w.mortal("a", 0, false)
		c := w.start("a", config)
		time.Sleep(time.Minute)
		for _, dead := range []bool{true, false} {
			m.mu.Lock()
			m.dead = dead
			m.mu.Unlock()
			w.put("", "item")
			time.Sleep(5 * time.Minute)
			status := c.Status()
			if status.Healthy() == dead {
				t.Errorf("status = %+v while the store fails: %t", status, dead)
			}
		}
		expectTold(t, "after the outage", w, 1, 2)
		if w.count(stream.Lost) != 1 {
			t.Errorf("the lease was lost %d times, want once", w.count(stream.Lost))
		}
		c.stop(t)
	})
}

// A forgetful way to the leases loses the reply of some writes.
type forgetful struct {
	stream.Leases
	forget func(next stream.Lease, saved bool) bool
}

var errLostReply = errors.New("lost reply")

func (f forgetful) Save(ctx context.Context, next stream.Lease) (stream.Lease, bool, error) {
	found, saved, err := f.Leases.Save(ctx, next)
	if f.forget(next, saved) {
		return stream.Lease{}, false, errLostReply
	}
	return found, saved, err
}

// TestLostReplies loses the replies of the first lease, the claim, some beats and of the last write: nothing is given up, and
// nothing delivered twice.
func TestLostReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		calls, last := 0, 0
		c := w.start("a", func(c *stream.Config) {
			c.Leases = forgetful{c.Leases, func(next stream.Lease, saved bool) bool {
				if next.Owner == "" && next.Beats > 1 && saved {
					last++
					return last == 1
				}
				calls++
				return calls%3 == 1
			}}
		})
		time.Sleep(31 * time.Second)
		if owner := w.lease("log").Owner; owner != "a" || len(c.Status().Partitions) != 1 {
			t.Errorf("after a claim whose reply was lost the owner is %q, with %d partitions", owner, len(c.Status().Partitions))
		}
		for range 120 {
			w.put("", "item")
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Second)
		expectTold(t, "each once", w, upTo(1, 120)...)
		c.stop(t)
		if w.count(stream.Lost) > 0 || w.count(stream.Released) != 1 {
			t.Errorf("lost %d times, released %d times; want 0, 1", w.count(stream.Lost), w.count(stream.Released))
		}
		if last != 1 {
			t.Errorf("the partition was given back %d times, want once", last)
		}
	})
}

// TestThief takes the lease of a working consumer. The consumer's call is cancelled at the next beat, and what the
// call says then does not count.
func TestThief(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		w.put("", "item")
		var took time.Duration
		c := w.start("a", func(c *stream.Config) {
			c.Apply = func(ctx context.Context, _ []store.Change) []error {
				start := time.Now()
				<-ctx.Done()
				took = time.Since(start)
				return nil
			}
		})
		time.Sleep(time.Second)
		l := w.lease("log")
		l.Owner = "thief"
		l.Beats++
		if _, saved, err := leases.In(table.New(w.store, table.Options{Timeout: time.Minute})).Save(t.Context(), l); !saved || err != nil {
			t.Fatalf("Save() = %t, %v", saved, err)
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if took != 10*time.Second {
			t.Errorf("the call ended after %v, want the next beat, after 10s", took)
		}
		if w.count(stream.Lost) != 1 {
			t.Errorf("the lease was lost %d times, want once", w.count(stream.Lost))
		}
		if got := w.lease("log"); got != l {
			t.Errorf("lease = %+v, want the thief's, %+v", got, l)
		}
		c.stop(t)
	})
}

// TestShortOutage fails the calls of less than a term: the lease is kept.
func TestShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		m, config := w.mortal("a", 0, false)
		c := w.start("a", config)
		time.Sleep(9 * time.Second)
		for _, dead := range []bool{true, false} {
			m.mu.Lock()
			m.dead = dead
			m.mu.Unlock()
			time.Sleep(14 * time.Second) // the beats after 10 s and soon after that fail
		}
		time.Sleep(time.Minute)
		if w.count(stream.Lost) > 0 || w.lease("log").Owner != "a" {
			t.Errorf("the lease was lost %d times in an outage of 14s", w.count(stream.Lost))
		}
		c.stop(t)
	})
}

// TestForgettingWhatIsApplied follows the length of a log. Applied changes are forgotten with the next write of the
// lease. The others stay for the next consumer. Nothing counts as lost.
func TestForgettingWhatIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		length := func() int {
			page := check.Call(w.source.Changes(t.Context(), "log", store.Position{}, 1<<20)).Must(t, "Changes()")
			return len(page.Changes)
		}
		change := func() {
			for range 1000 {
				w.put("", "item")
			}
		}
		fails := false
		c := w.start("a", func(c *stream.Config) {
			apply := c.Apply
			c.Apply = func(ctx context.Context, changes []store.Change) []error {
				if fails {
					return slices.Repeat([]error{errors.New("poison")}, len(changes))
				}
				return apply(ctx, changes)
			}
		})
		for range 3 {
			change()
			time.Sleep(12 * time.Second)
			if n := length(); n > 10 { // leases
				t.Errorf("the log has %d changes when all are applied", n)
			}
		}
		fails = true
		change()
		time.Sleep(time.Hour)
		if n := length(); n < 1000 {
			t.Errorf("the log has %d changes, and 1,000 are not applied", n)
		}
		c.stop(t)
		c = w.start("b", nil)
		change()
		time.Sleep(12 * time.Second)
		c.stop(t)
		w.audit()
		if n, gaps := length(), w.count(stream.Gap); n > 10 || gaps > 0 {
			t.Errorf("the log has %d changes in the end, and %d gaps were reported", n, gaps)
		}
	})
}
