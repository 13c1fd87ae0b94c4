package stream_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
)

// lag returns the lag of the only partition.
func lag(t *testing.T, c *running) time.Duration {
	t.Helper()
	status := c.Status()
	if len(status.Partitions) != 1 {
		t.Fatalf("status = %+v, want one partition", status)
	}
	return status.Partitions[0].Lag
}

// TestLagIsTheAgeOfTheOldestChange lets consumers take over a partition whose first change cannot be applied.
func TestLagIsTheAgeOfTheOldestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		w.put("", "item")
		fails := func(c *stream.Config) {
			c.Apply = func(_ context.Context, changes []store.Change) []error {
				return slices.Repeat([]error{errors.New("poison")}, len(changes))
			}
		}
		start := time.Now()
		for _, name := range []string{"a", "b", "c"} {
			c := w.start(name, fails)
			time.Sleep(time.Hour)
			w.put("", "item") // a younger one
			if got, want := lag(t, c), time.Since(start); got < want-time.Second || got > want {
				t.Errorf("%s: lag %v, want %v", name, got, want)
			}
			c.stop(t)
		}
		c := w.start("d", nil)
		time.Sleep(time.Minute)
		if got := lag(t, c); got > 2*time.Second {
			t.Errorf("lag %v once all is applied, want none", got)
		}
		c.stop(t)
	})
}

// TestLagOfABacklog starts a consumer late, whose work takes its time: the lag goes down with the backlog.
func TestLagOfABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		for range 3 {
			w.put("", "item")
			time.Sleep(time.Hour)
		}
		c := w.start("a", func(c *stream.Config) {
			c.Batch = 1
			c.Apply = func(context.Context, []store.Change) []error { time.Sleep(10 * time.Second); return nil }
		})
		for i, want := range []time.Duration{3 * time.Hour, 2 * time.Hour, time.Hour, 0} {
			time.Sleep(5 * time.Second)
			if got := lag(t, c); got < want || got > want+time.Minute {
				t.Errorf("with %d changes applied, lag %v; want %v", i, got, want)
			}
			time.Sleep(5 * time.Second)
		}
		c.stop(t)
	})
}

// In TestLagOfAPartitionThatCannotBeRead, consumers claim a partition and never get to read it. Nothing was applied
// since the one before them wrote the lease.
func TestLagOfAPartitionThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := embedded(t)
		m, config := w.mortal("a", 0, false)
		before := w.start("a", config)
		time.Sleep(time.Minute)
		watcher := w.start("b", func(c *stream.Config) { c.Source = unreadable{w.source} })
		time.Sleep(time.Minute)
		m.mu.Lock()
		m.dead = true
		m.mu.Unlock()
		gone := time.Now()
		before.cancel()
		time.Sleep(time.Minute)
		if got, want := lag(t, watcher), time.Since(gone); got < want-10*time.Second { // a look at the leases is as old as that
			t.Errorf("lag %v, want about %v or more", got, want)
		}
		watcher.stop(t)
		<-before.done
	})
}

// An unreadable stream has partitions, and fails to report their changes.
type unreadable struct{ store.Streamer }

func (unreadable) Changes(context.Context, string, store.Position, int) (store.ChangePage, error) {
	return store.ChangePage{}, errors.New("no answer")
}
