// Package demo shows limits at work: keys with a limit each, and traffic that meets it, in virtual time. It runs on the store
// in memory alone.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/virtual"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Config says what a demo draws its traffic from, and where it shows it.
type Config struct {
	Seed   uint64        // of the traffic
	Length time.Duration // of the traffic: whole seconds, from MinLength to MaxLength

	Stdout  io.Writer
	JSON    bool                                       // print the report alone, as JSON
	Live    bool                                       // Stdout is a terminal that can be redrawn
	Colored bool                                       // in colors, where Live
	Sleep   func(context.Context, time.Duration) error // between two frames, where Live
}

// Bounds of the length of a demo, and its default.
const (
	MinLength     = time.Second
	MaxLength     = time.Hour
	DefaultLength = 2 * time.Minute
	DefaultSeed   = 1
)

// CheckLength returns the rule that a length breaks, "" where it is valid.
func CheckLength(length time.Duration) string {
	if length < MinLength || length > MaxLength || length%time.Second != 0 {
		return "must be whole seconds, from 1s to 1h"
	}
	return ""
}

var startTime = time.Date(2026, time.January, 5, 9, 0, 0, 0, time.UTC)

// replicaCount is how many limiters share the store of the demo.
const replicaCount = 3

// Run runs the demo, shows it, and fails if a limit was exceeded.
func Run(ctx context.Context, c Config) (err error) {
	run, err := open(ctx, c.Seed, c.Length)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.close()) }()
	watch := func(context.Context, *stage) error { return nil }
	switch {
	case c.JSON:
	case c.Live:
		screen := newScreen(&c)
		defer func() { err = errors.Join(err, screen.close()) }()
		watch = screen.draw
	default:
		p := &show.Page{}
		run.intro(p)
		if err := c.write(p); err != nil {
			return err
		}
		watch = func(_ context.Context, r *stage) error { return c.plainProgress(r) }
	}
	if err := run.play(ctx, watch); err != nil {
		return err
	}
	report := run.report()
	if err := c.print(report); err != nil {
		return err
	}
	if report.Proof.Exceeded {
		return errors.New("a limit was exceeded")
	}
	return nil
}

// print writes the report, as JSON or for people.
func (c *Config) print(report *Report) error {
	p := &show.Page{}
	if !c.JSON {
		report.text(p)
	} else if err := json.NewEncoder(p).Encode(report); err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	return c.write(p)
}

func (c *Config) write(p *show.Page) error {
	if _, err := c.Stdout.Write(p.Bytes()); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// A stage holds the parts of the demo: a store, limiters on it, and their users.
type stage struct {
	seed     uint64
	length   time.Duration
	elapsed  time.Duration
	clock    virtual.Clock
	store    zlimit.Store
	limiters []*zlimit.RateLimiter
	observer *zlimit.RateLimiter // the last limiter: shows balances, and takes nothing
	lanes    []*lane
}

func open(ctx context.Context, seed uint64, length time.Duration) (*stage, error) {
	run := &stage{seed: seed, length: length}
	run.clock.Set(startTime)
	var err error
	run.store, err = zlimit.Memory()
	if err != nil {
		return nil, err
	}
	if err := run.open(ctx); err != nil {
		return nil, errors.Join(err, run.close())
	}
	return run, nil
}

// open makes limiters on the store, configures it, and brings in the personas.
func (r *stage) open(ctx context.Context) error {
	for range replicaCount + 1 {
		// With a freshness of 0 the limiter is exact, and the number of admissions does not depend on the order of
		// arrival.
		l, err := zlimit.New(ctx, r.store,
			zlimit.WithClock(r.clock.Now(nil)), zlimit.WithFreshness(0), zlimit.WithRejectionCache(0), zlimit.WithCallTimeout(virtual.CallTimeout))
		if err != nil {
			return err
		}
		r.limiters = append(r.limiters, l)
	}
	r.observer = r.limiters[replicaCount]
	if err := r.observer.Limits.Set(ctx, zlimit.Level{Resource: resource}, zlimit.Config{Limits: limits()}); err != nil {
		return err
	}
	for i, p := range personas() {
		r.lanes = append(r.lanes, newLane(p, r.seed, uint64(i), r.limiters[:replicaCount]))
		if p.limits == nil {
			continue
		}
		if err := r.observer.Limits.Set(ctx, zlimit.Level{Entity: p.key, Resource: resource}, zlimit.Config{Limits: p.limits}); err != nil {
			return err
		}
	}
	return nil
}

func (r *stage) close() error {
	var all []error
	for _, l := range r.limiters {
		all = append(all, l.Close())
	}
	return errors.Join(append(all, r.store.Close())...)
}

// play lets the traffic pass, all lanes side by side within a tick, and then waits for the last calls to end. It shows
// itself to watch once a second of its own time.
func (r *stage) play(ctx context.Context, watch func(context.Context, *stage) error) error {
	for {
		over := r.elapsed >= r.length
		now := startTime.Add(r.elapsed)
		r.clock.Set(now)
		group, laneCtx := errgroup.WithContext(ctx)
		for _, l := range r.lanes {
			group.Go(func() error { return l.step(laneCtx, now, r.elapsed, over) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		if over && r.inFlight() == 0 {
			return nil
		}
		r.elapsed += tick
		if r.elapsed%time.Second == 0 && !over {
			if err := watch(ctx, r); err != nil {
				return err
			}
		}
	}
}

func (r *stage) inFlight() int {
	n := 0
	for _, l := range r.lanes {
		n += len(l.inFlight)
	}
	return n
}

func (r *stage) total() tally {
	var t tally
	for _, l := range r.lanes {
		t.Requests += l.tally.Requests
		t.Admitted += l.tally.Admitted
		t.Rejected += l.tally.Rejected
	}
	return t
}

func (r *stage) intro(p *show.Page) {
	p.Linef("zlimit demo: %d API keys call a model through %d replicas that share one store", len(r.lanes), replicaCount)
	p.Linef("")
	p.Linef("Each key may make 120 requests and use 60,000 tokens a minute. A request takes")
	p.Linef("its estimate before the call and settles the real cost after it.")
	p.Linef("")
	for _, l := range r.lanes {
		p.Linef("  %-13s %s", l.key, l.story)
	}
	p.Linef("")
}

// plainEvery is how often a demo that is not on a terminal says how far it is, in its own time.
const plainEvery = 30 * time.Second

func (c *Config) plainProgress(r *stage) error {
	if r.elapsed%plainEvery != 0 && r.elapsed != r.length {
		return nil
	}
	t := r.total()
	p := &show.Page{}
	p.Linef("%s  %7s requests  %7s admitted  %7s rejected  %4d in flight",
		clock(r.elapsed), show.Grouped(int64(t.Requests)), show.Grouped(int64(t.Admitted)), show.Grouped(int64(t.Rejected)), r.inFlight())
	return c.write(p)
}

// clock returns a time since the start as minutes and seconds.
func clock(d time.Duration) string {
	return fmt.Sprintf("%2d:%02d", int(d/time.Minute), int(d%time.Minute/time.Second))
}

// A Report is the result of the demo.
type Report struct {
	Seed     uint64  `json:"seed"`
	Seconds  float64 `json:"seconds"` // of traffic
	Replicas int     `json:"replicas"`
	Keys     []Key   `json:"keys"`
	Proof    proof   `json:"proof"`
}

// A Key is what became of the requests of one key.
type Key struct {
	Key               string    `json:"key"`
	Requests          int       `json:"requests"`
	Admitted          int       `json:"admitted"`
	Rejected          int       `json:"rejected"`
	Failed            int       `json:"failed"`
	TokensEstimated   int64     `json:"tokens_estimated"`
	TokensUsed        int64     `json:"tokens_used"`
	LongestRetryAfter float64   `json:"longest_retry_after_seconds"`
	Audit             []audited `json:"audit"`
}

// A audited is the interval in which a key came closest to one of its limits.
type audited struct {
	Limit     string  `json:"limit"`
	Capacity  int64   `json:"capacity"`
	Intervals int64   `json:"intervals"`
	From      float64 `json:"from_seconds"`
	To        float64 `json:"to_seconds"`
	Spent     int64   `json:"spent"`
	Allowed   float64 `json:"allowed"`
	Excess    float64 `json:"excess"` // spent less allowed

	limit zlimit.Limit
}

type proof struct {
	Intervals int64   `json:"intervals"`
	Excess    float64 `json:"excess"` // the highest of all
	Exceeded  bool    `json:"exceeded"`
}

// report sums the run up, and audits its records.
func (r *stage) report() *Report {
	report := &Report{Seed: r.seed, Seconds: r.length.Seconds(), Replicas: replicaCount}
	first := true
	for _, l := range r.lanes {
		t := l.tally
		key := Key{
			Key: l.key, Requests: t.Requests, Admitted: t.Admitted, Rejected: t.Rejected, Failed: t.Failed,
			TokensEstimated: t.Estimated, TokensUsed: t.Used, LongestRetryAfter: t.Longest.Seconds(),
		}
		for _, limit := range l.limits {
			f := audit(limit, l.record[limit.Name])
			if f.intervals == 0 {
				continue
			}
			excess := inTokens(f.excess, limit)
			key.Audit = append(key.Audit, audited{
				Limit: limit.Name, Capacity: limit.Capacity, Intervals: f.intervals,
				From:  time.UnixMilli(f.from).Sub(startTime).Seconds(),
				To:    time.UnixMilli(f.to).Sub(startTime).Seconds(),
				Spent: f.spent, Allowed: float64(f.spent) - excess, Excess: excess,
				limit: limit,
			})
			report.Proof.Intervals += f.intervals
			report.Proof.Exceeded = report.Proof.Exceeded || f.excess > 0
			if first || excess > report.Proof.Excess {
				report.Proof.Excess, first = excess, false
			}
		}
		report.Keys = append(report.Keys, key)
	}
	return report
}

func (r *Report) text(p *show.Page) {
	p.Linef("")
	var rows [][]string
	for _, k := range append(slices.Clone(r.Keys), r.total()) {
		wait := ""
		if k.Rejected > 0 {
			wait = show.Brief(time.Duration(k.LongestRetryAfter * float64(time.Second)))
		}
		rows = append(rows, []string{
			k.Key, show.Grouped(int64(k.Requests)), show.Grouped(int64(k.Admitted)), show.Grouped(int64(k.Rejected)),
			show.Grouped(k.TokensEstimated), show.Grouped(k.TokensUsed), wait,
		})
	}
	p.Table([]string{"key", "requests>", "admitted>", "rejected>", "estimated>", "used>", "longest wait>"}, rows)
	p.Linef("")
	p.Linef("Was a limit exceeded? The record of admissions and settlements is compared with")
	p.Linef("what a limit allows in any interval: its capacity and what flows in meanwhile.")
	p.Linef("Below is how close each came; an excess above 0 would be a breach.")
	p.Linef("")
	rows = nil
	for _, k := range r.Keys {
		for _, c := range k.Audit {
			rows = append(rows, []string{
				k.Key, c.limit.String(), fmt.Sprintf("%.1f s", c.To-c.From),
				show.Grouped(c.Spent), show.Decimal(c.Allowed), show.Decimal(c.Excess),
			})
		}
	}
	p.Table([]string{"key", "limit", "closest in>", "spent>", "allowed>", "excess>"}, rows)
	p.Linef("")
	verdict := "No limit was exceeded."
	if r.Proof.Exceeded {
		verdict = "A LIMIT WAS EXCEEDED."
	}
	p.Linef("%s Highest excess of %s intervals: %s tokens.", verdict, show.Grouped(r.Proof.Intervals), show.Decimal(r.Proof.Excess))
}

func (r *Report) total() Key {
	sum := Key{Key: "total"}
	for _, k := range r.Keys {
		sum.Requests += k.Requests
		sum.Admitted += k.Admitted
		sum.Rejected += k.Rejected
		sum.Failed += k.Failed
		sum.TokensEstimated += k.TokensEstimated
		sum.TokensUsed += k.TokensUsed
		sum.LongestRetryAfter = max(sum.LongestRetryAfter, k.LongestRetryAfter)
	}
	return sum
}
