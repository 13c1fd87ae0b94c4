// Package demo is a company with two months of history and calls under way, in memory: for `zlimitd dashboard -demo`, and for tests of the
// page. All names and figures are made up.
package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
	"github.com/zlimit/zlimit-go/zlimit/recent"
)

// Options say what a company has.
type Options struct {
	// Now is the time at which the demo begins; zero is the present.
	Now time.Time
	// Days of history, up to 60. 0 has none, and one bucket.
	Days int
	// Still makes a demo without calls under way, with a clock that stands still; for pictures.
	Still bool
	// Buckets adds that many entities with a bucket each.
	Buckets int
}

// A Demo is a running company. Close stops it.
type Demo struct {
	Limiter *zlimit.RateLimiter
	Recent  *recent.Observer

	clock      clock
	aggregator *aggregator.Aggregator
	changed    time.Time // of the last change
	store      zlimit.Store
	stop       context.CancelFunc
	wg         sync.WaitGroup
	err        error // the first one of the play, which stops it
	company    company
	begins     time.Time
	held       []*zlimit.Lease
	open       *leasetoken.Held
	rng        *rand.Rand
}

// Leases are what clients hold of a resource.
func (d *Demo) Leases(resource string) []leasetoken.HeldLease { return d.open.Of("", resource) }

// Now is the clock of the demo.
func (d *Demo) Now() time.Time { return d.clock.Now() }

// A clock stands during the history, and goes on from its end.
type clock struct{ at, since atomic.Pointer[time.Time] }

func (c *clock) Now() time.Time {
	if since := c.since.Load(); since != nil {
		return c.at.Load().Add(time.Since(*since))
	}
	return *c.at.Load()
}

func (c *clock) set(at time.Time) { c.at.Store(&at) }

func (c *clock) goOn() {
	now := time.Now()
	c.since.Store(&now)
}

// Resource is the one that most of the company's calls are for.
const Resource = "gpt-5"

// Start begins a demo.
func Start(ctx context.Context, o Options) (*Demo, error) {
	if o.Now.IsZero() {
		o.Now = time.Now().UTC()
	}
	ctx, stop := context.WithCancel(ctx)
	d := &Demo{stop: stop, begins: o.Now, rng: rand.New(rand.NewPCG(7, 11))} //nolint:gosec // made-up figures
	d.clock.set(o.Now.AddDate(0, 0, -o.Days).Truncate(time.Hour))
	if err := d.begin(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("demo: %w", err), d.Close()) //nolint:contextcheck // what was begun is given back, whatever the context is
	}
	return d, nil
}

func (d *Demo) begin(ctx context.Context, o Options) error {
	// Usage follows the time of each change, so the history needs a store whose clock is the demo's.
	var err error
	if d.store, err = zlimit.MemoryAt(d.clock.Now); err != nil {
		return err
	}
	d.Recent, d.open = recent.New(d.clock.Now), leasetoken.NewHeld(d.clock.Now)
	d.Limiter, err = zlimit.New(ctx, d.store, zlimit.WithClock(d.clock.Now), zlimit.WithObserver(d.Recent.Observe),
		zlimit.WithRejectionReports(zlimit.RejectionReports{}), zlimit.WithRejectionCache(0), zlimit.WithFreshness(0))
	if err != nil {
		return err
	}
	a, err := aggregator.New(d.store, aggregator.WithPoll(2*time.Millisecond), aggregator.WithClock(d.clock.Now), aggregator.WithoutTending())
	if err != nil {
		return err
	}
	d.aggregator = a
	d.wg.Go(func() {
		if err := a.Run(ctx); err != nil && ctx.Err() == nil {
			slog.Error("demo: sum up usage", "error", err)
		}
	})
	for len(a.Status().Partitions) == 0 {
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	if err := yaml.Unmarshal(text, &d.company); err != nil {
		return err
	}
	d.found(ctx)
	if o.Days > 0 {
		d.history(ctx, o.Days)
	}
	for i := range o.Buckets {
		r := zlimit.Request{Entity: fmt.Sprintf("customer-%05d", i), Resource: Resource, Consume: zlimit.Amounts{"rpm": 1 + int64(i%300), "tpm": 40 * int64(i%5000)}}
		d.play(func() error { return ignored(d.Limiter.Acquire(ctx, r)) })
	}
	if o.Days > 0 {
		d.lastMinutes(ctx)
	} else {
		d.clock.set(o.Now)
		d.spend(ctx, "support", zlimit.Amounts{"rpm": 12, "tpm": 9_000})
	}
	d.changed = o.Now.Add(-time.Second)
	d.counted(ctx)
	if d.err == nil && !o.Still {
		d.clock.goOn()
		d.wg.Go(func() { d.traffic(ctx) })
	}
	return d.err
}

// play makes a step of the play, unless an earlier one has failed.
func (d *Demo) play(step func() error) {
	if d.err == nil {
		d.err = step()
	}
}

// ignored is the error of a call whose value is not needed.
func ignored[T any](_ T, err error) error { return err }

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Close ends the company.
func (d *Demo) Close() error {
	d.stop()
	var err error
	for _, lease := range d.held {
		err = errors.Join(err, lease.Rollback(context.Background()))
	}
	d.wg.Wait()
	if d.Limiter != nil {
		err = errors.Join(err, d.Limiter.Close())
	}
	return errors.Join(err, d.store.Close())
}
