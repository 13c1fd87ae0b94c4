package scale

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A FullHour adds two things to a load. Entities are used in the first minute of an hour, once each, and processes sum
// up their usage. The requests begin with the hour.
type FullHour struct {
	Entities, Aggregators int
	Longest               time.Duration // after this time, uncounted changes are left
}

// Usage is what became of the snapshots of a FullHour.
type Usage struct {
	Seconds   float64 `json:"seconds"` // from the beginning of the hour until all changes were counted
	Left      int     `json:"left"`    // changes that were not
	Units     float64 `json:"units"`   // write units of snapshots, of failed conditions and indexes as well, for a change
	Throttled float64 `json:"throttled"`
	Failed    float64 `json:"failed"` // writes whose condition failed
}

// An hour is a FullHour that runs.
type hour struct {
	FullHour
	fleet  *fleet
	begins time.Time
	stop   context.CancelFunc
	ended  sync.WaitGroup
	errs   []error
	before Used
}

// begin starts the aggregators, and waits until the hour begins.
func (h *hour) begin(ctx context.Context) error {
	f := h.fleet
	h.begins = time.Now().Truncate(time.Hour).Add(time.Hour)
	key, state, err := f.bucketOf(ctx, entityOf(0))
	if err != nil {
		return err
	}
	s := newStream(f.table, key, state, h.begins, h.Entities)
	if err := h.earlier(ctx, s); err != nil {
		return err
	}
	const claiming = 3 * time.Minute // until each process has its part of the shards
	time.Sleep(time.Until(h.begins.Add(-claiming)))
	running, stop := context.WithCancel(ctx)
	h.stop, h.errs = stop, make([]error, h.Aggregators)
	for i := range h.Aggregators {
		from := store.NewHandle(&follower{f.table.Client(), s}, false)
		a, err := aggregator.New(from, aggregator.WithName(fmt.Sprint("aggregator-", i)))
		if err != nil {
			return err
		}
		h.ended.Go(func() { h.errs[i] = a.Run(running) })
	}
	time.Sleep(time.Until(h.begins))
	h.before = f.table.Used()
	return nil
}

// earlier puts the snapshots of day and month of each entity, which an earlier hour has begun, at no charge.
func (h *hour) earlier(ctx context.Context, s *Stream) error {
	for i := range h.Entities {
		for _, window := range []zlimit.Window{zlimit.WindowDaily, zlimit.WindowMonthly} {
			d := layout.UsageDelta{
				NS: s.key.NS, Entity: s.bucket(i).Entity, Resource: s.key.Resource, Window: string(window), Start: window.Start(h.begins),
				Events: 1, Kept: layout.Kept{Unlisted: true},
			}
			if window == zlimit.WindowDaily {
				d.ExpiresAt = d.Start.AddDate(0, 0, 401).Unix()
			}
			w, err := d.Write()
			if err == nil {
				_, err = h.fleet.table.items.Write(ctx, w)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// counted returns how many changes are counted: each begins the snapshot of an hour.
func (h *hour) counted() int { return h.fleet.table.Used().since(h.before).Snapshots.Begun }

// finish waits until all changes are counted, and stops the aggregators.
func (h *hour) finish() (*Usage, error) {
	for h.counted() < h.Entities && time.Since(h.begins) < h.Longest {
		time.Sleep(time.Second)
	}
	used := h.fleet.table.Used().since(h.before).Snapshots
	changes := float64(h.Entities)
	u := &Usage{
		Seconds: time.Since(h.begins).Seconds(), Left: h.Entities - h.counted(), Units: used.Units / changes,
		Throttled: float64(used.Throttled) / changes, Failed: float64(used.Failed) / changes,
	}
	h.stop()
	h.ended.Wait()
	return u, errors.Join(h.errs...)
}
