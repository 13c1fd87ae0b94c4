package stream_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
	"github.com/zlimit/zlimit-go/internal/stream/leases"
	"github.com/zlimit/zlimit-go/internal/table"
)

// brief starts a consumer that is killed after a time: it writes nothing any more.
func (w *testbed) brief(name string, life time.Duration) {
	m, change := w.mortal(name, 0, false)
	c := w.start(name, change)
	time.Sleep(life)
	m.mu.Lock()
	m.dead = true
	m.mu.Unlock()
	c.cancel()
	<-c.done
}

// In TestBriefLives, consumers are killed before a term ends, one after the other. The second or third one after the owner of the
// partition takes it over, and each change is applied.
func TestBriefLives(t *testing.T) {
	for _, life := range []time.Duration{12 * time.Second, 15 * time.Second, 24 * time.Second, 29 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := embedded(t)
			began := time.Now()
			for i := range 100 {
				w.put("", "item")
				w.brief(fmt.Sprint("life ", i), life)
			}
			claims := w.count(stream.Claimed)
			if least := int(time.Since(began)/(2*time.Minute)) + 1; claims < least {
				t.Errorf("lives of %v: the partition was claimed %d times, want %d at least", life, claims, least)
			}
			c := w.start("last", nil)
			time.Sleep(time.Minute)
			c.stop(t)
			w.audit()
		})
	}
}

// In TestBriefLivesBesideAnOwner, consumers come and go while one has the partition. None takes it over.
func TestBriefLivesBesideAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		owner := w.start("owner", nil)
		time.Sleep(time.Second)
		for i := range 200 {
			w.put("", "item")
			w.brief(fmt.Sprint("life ", i), time.Duration(11+i%19)*time.Second)
			if n := len(owner.Status().Partitions); n != 1 {
				t.Fatalf("the owner has %d partitions after %d lives beside it", n, i+1)
			}
		}
		owner.stop(t)
		if claims := w.count(stream.Claimed); claims != 1 {
			t.Errorf("the partition was claimed %d times, want once", claims)
		}
		w.audit()
	})
}

// TestOldTestimony starts a consumer where another one saw the lease stand still for an hour, perhaps long ago, when it had been written
// as often. It waits for a third of the term itself.
func TestOldTestimony(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		w.brief("first", time.Second)
		_, saved, err := leases.In(table.New(w.store, table.Options{Timeout: time.Minute})).Save(t.Context(), stream.Lease{
			Partition: "@witness", Owner: "witness", Beats: 1, Position: store.Sequence(fmt.Sprintf("log=%d+3600000", w.lease("log").Beats)),
		})
		if err != nil || !saved {
			t.Fatalf("Save() = %t, %v", saved, err)
		}
		c := w.start("next", nil)
		time.Sleep(9 * time.Second)
		if claims := w.count(stream.Claimed); claims != 1 {
			t.Errorf("the partition is claimed by what others saw alone")
		}
		time.Sleep(2 * time.Second)
		if claims := w.count(stream.Claimed); claims != 2 {
			t.Errorf("the partition was claimed %d times within a third of the term, want twice", claims)
		}
		c.stop(t)
	})
}

// TestUnheldPartitions looks at the status of a consumer that stands by while the owner is gone.
func TestUnheldPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		w.brief("first", time.Second)
		c := w.start("next", nil)
		time.Sleep(12 * time.Second)
		if p := c.Status().Partitions; len(p) != 0 {
			t.Errorf("Status() = %+v when a living owner may not have written yet", p)
		}
		time.Sleep(13 * time.Second)
		if p := c.Status().Partitions; len(p) != 1 || !p[0].Unheld || p[0].Lag < 20*time.Second || p[0].Lag > 26*time.Second {
			t.Errorf("Status() = %+v, want a partition that nobody has, behind by its silence", p)
		}
		time.Sleep(10 * time.Second)
		if p := c.Status().Partitions; len(p) != 1 || p[0].Unheld || p[0].Lag > 2*time.Second {
			t.Errorf("Status() = %+v once the partition is taken over", p)
		}
		c.stop(t)
	})
}

// TestWaitsForALease starts a consumer after the owner of the partition was killed. It reports once whose lease it waits for, and until
// when; it has the partition by then.
func TestWaitsForALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		w.brief("first", time.Second)
		began := time.Now()
		c := w.start("next", nil)
		time.Sleep(25 * time.Second)
		if n := w.count(stream.Waiting); n != 1 {
			t.Fatalf("waiting is reported %d times in 25 s, want once", n)
		}
		w.mu.Lock()
		at := slices.IndexFunc(w.events, func(e stream.Event) bool { return e.Kind == stream.Waiting })
		e := w.events[at]
		w.mu.Unlock()
		if e.From != "first" || e.Partition != "log" || e.Until.Before(began) || e.Until.After(began.Add(31*time.Second)) {
			t.Errorf("reported %+v, want the lease of first on log, until half a minute after %v", e, began)
		}
		time.Sleep(time.Until(e.Until) + 11*time.Second) // and a look
		if p := c.Status().Partitions; len(p) != 1 || p[0].Unheld {
			t.Errorf("Status() = %+v when the lease is over", p)
		}
		c.stop(t)
	})
}

// TestLeavingLate stops a consumer whose work goes on past its grace. What it cannot write any more is not reported: nothing tries it
// again.
func TestLeavingLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		first := w.start("first", nil)
		time.Sleep(time.Second)
		c := w.start("next", func(c *stream.Config) {
			c.Apply = func(ctx context.Context, _ []store.Change) []error { <-ctx.Done(); return nil }
		})
		time.Sleep(time.Second) // it has said that it waits
		first.stop(t)
		w.put("", "item")
		time.Sleep(time.Minute)
		c.stop(t)
		if n := w.count(stream.Trouble); n > 0 {
			t.Errorf("%d calls are reported that are not tried again", n)
		}
	})
}
