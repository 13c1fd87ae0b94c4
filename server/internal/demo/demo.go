// Package demo is a company with two months of history and calls under way, in memory: for `zlimitd dashboard -demo`, and for tests of
// the page. All names and figures are made up.
package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/server/internal/page"
	"github.com/zlimit/zlimit-go/server/internal/token"
	"github.com/zlimit/zlimit-go/zlimit"
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
	Recent  *page.Recent

	clock      clock
	aggregator *aggregator.Aggregator
	changed    time.Time // of the last change
	store      zlimit.Store
	stop       context.CancelFunc
	wg         sync.WaitGroup
	deeds      []deed // that are still to come
	held       []*zlimit.Lease
	open       *token.Open
	rng        *rand.Rand
}

// Leases are what clients hold of a resource.
func (d *Demo) Leases(resource string) []token.OpenLease { return d.open.Of("", resource) }

// Now is the clock of the demo.
func (d *Demo) Now() time.Time { return d.clock.Now() }

// A clock stands during the history, and goes on from its end.
type clock struct {
	mu    sync.Mutex
	at    time.Time
	since time.Time // when it went on; zero while it stands
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return c.at
	}
	return c.at.Add(time.Since(c.since))
}

func (c *clock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

func (c *clock) goOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = time.Now()
}

// Resource is the one that most of the company's calls are for.
const Resource = "gpt-5"

// A team is who makes calls.
type team struct {
	name, parent string
	limits       []zlimit.Limit // its own level; nil for that of the resource
	month, last  float64        // dollars of this month up to the beginning of the demo, and of the whole last one
	perDollar    float64        // tokens
}

func teams() []team {
	own := func(rpm, tpm, budget int64) []zlimit.Limit {
		return []zlimit.Limit{
			zlimit.PerMinute("rpm", rpm), zlimit.PerMinute("tpm", tpm), zlimit.USD("usd", budget, zlimit.PerMonth), zlimit.Slots("slots", 20),
		}
	}
	return []team{
		{name: "search", parent: "acme", limits: own(600, 400_000, 8000), month: 7860, last: 6480, perDollar: 126_000},
		{name: "copilot", parent: "acme", limits: own(600, 400_000, 8000), month: 6310, last: 6290, perDollar: 140_000},
		{name: "support", parent: "acme", limits: own(600, 400_000, 5000), month: 4380, last: 4910, perDollar: 180_000},
		{name: "evals", parent: "acme", limits: own(300, 250_000, 3000), month: 2999.9, last: 1520, perDollar: 110_000},
		{name: "labs", parent: "acme", month: 1930, last: 2040, perDollar: 120_000},
	}
}

// Start begins a demo.
func Start(ctx context.Context, o Options) (*Demo, error) {
	if o.Now.IsZero() {
		o.Now = time.Now().UTC()
	}
	ctx, stop := context.WithCancel(ctx)
	d := &Demo{stop: stop, rng: rand.New(rand.NewPCG(7, 11))} //nolint:gosec // made-up figures
	d.clock.set(o.Now.AddDate(0, 0, -o.Days).Truncate(time.Hour))
	if err := d.begin(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("demo: %w", err), d.Close()) //nolint:contextcheck // what was begun is given back, whatever the context is
	}
	return d, nil
}

func (d *Demo) begin(ctx context.Context, o Options) error {
	// Usage follows the time of each change, so the history needs a store whose clock is the demo's.
	s, err := memory.New(layout.Table, memory.Clock(d.clock.Now))
	if err != nil {
		return err
	}
	d.store = store.NewHandle(s, true)
	if err := s.Setup(ctx); err != nil {
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
	d.Recent, d.open = page.NewRecent(d.clock.Now), token.NewOpen(d.clock.Now)
	d.Limiter, err = zlimit.New(ctx, d.store, zlimit.WithClock(d.clock.Now), zlimit.WithObserver(d.Recent.Observe),
		zlimit.WithRejectionReports(zlimit.RejectionReports{}), zlimit.WithRejectionCache(0), zlimit.WithFreshness(0))
	if err != nil {
		return err
	}
	for _, do := range []func(context.Context, Options) error{d.found, d.plan, d.history, d.many, d.lastMinutes} {
		if err := do(ctx, o); err != nil {
			return err
		}
	}
	if !o.Still {
		d.clock.goOn()
		d.wg.Go(func() { d.traffic(ctx) })
	}
	d.changed = o.Now.Add(-time.Second)
	return d.counted(ctx)
}

// found makes the entities and their limits.
func (d *Demo) found(ctx context.Context, _ Options) error {
	ctx = zlimit.ContextWithPrincipal(ctx, "setup")
	entities := []zlimit.Entity{{ID: "acme", Name: "Acme"}, {ID: "northwind", Name: "Northwind"}}
	levels := []zlimit.Stored{
		level("", Resource, zlimit.PerMinute("rpm", 600), zlimit.PerMinute("tpm", 400_000), zlimit.Slots("slots", 20)),
		level("acme", Resource, zlimit.PerMinute("rpm", 3000), zlimit.PerMinute("tpm", 1_500_000), zlimit.USD("usd", 25_000, zlimit.PerMonth)),
		level("northwind", Resource, zlimit.PerMinute("rpm", 1000), zlimit.PerMinute("tpm", 600_000)),
		level("ingest", Resource, zlimit.PerMinute("rpm", 300), zlimit.PerMinute("tpm", 250_000), zlimit.Slots("slots", 10),
			zlimit.PerMinute("tpm-next", 120_000).Shadow()),
		level("nightly-eval", Resource, zlimit.PerMinute("rpm", 600), zlimit.PerMinute("tpm", 400_000), zlimit.Daily("usd", 60*dollar, "UTC")),
		level("trial-8841", Resource, zlimit.PerMinute("rpm", 60), zlimit.PerMinute("tpm", 40_000)),
		level("", "embed-3", zlimit.PerMinute("rpm", 2000), zlimit.PerMinute("tpm", 5_000_000)),
	}
	for _, t := range teams() {
		entities = append(entities, zlimit.Entity{ID: t.name, ParentID: t.parent, Cascade: true})
		if t.limits != nil {
			levels = append(levels, level(t.name, Resource, t.limits...))
		}
	}
	entities = append(entities,
		zlimit.Entity{ID: "nightly-eval", ParentID: "evals"}, zlimit.Entity{ID: "ingest", ParentID: "northwind", Cascade: true}, zlimit.Entity{ID: "trial-8841"})
	for _, e := range entities {
		if _, err := d.Limiter.Entities.Create(ctx, e); err != nil {
			return err
		}
	}
	for _, l := range levels {
		if err := d.Limiter.Limits.Set(ctx, l.Level, l.Config); err != nil {
			return err
		}
	}
	return nil
}

func level(entity, resource string, limits ...zlimit.Limit) zlimit.Stored {
	return zlimit.Stored{Level: zlimit.Level{Entity: entity, Resource: resource}, Config: zlimit.Config{Limits: limits}}
}

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
