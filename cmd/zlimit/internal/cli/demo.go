package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/zlimit"
)

func (a *app) demoCommand() *cobra.Command {
	var seed uint64
	length := 2 * time.Minute
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show in a few seconds what limits do to LLM traffic",
		Long: `Demo lets four API keys, one of them abusive, call a language model through
three replicas of a gateway that share one store in memory. Every request is
admitted by an estimate of its tokens, and settled by what it really took. Two
minutes of traffic pass in a few seconds, and come out the same for one --seed.

In the end the record of what was admitted is audited against the limits,
without asking the limiter.`,
		Example: `  zlimit demo
  zlimit demo --seed 7 --duration 10m`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("store") && a.store != memoryDSN {
				return usagef("demo: --store %s: the demo writes limits of its own, and runs on memory: alone", a.store)
			}
			if length < time.Second || length > time.Hour || length%time.Second != 0 {
				return usagef("demo: --duration %v: must be whole seconds, from 1s to 1h", length)
			}
			return a.demo(cmd.Context(), seed, length)
		},
	}
	cmd.Flags().Uint64Var(&seed, "seed", 1, "`number` that the traffic is drawn from")
	cmd.Flags().DurationVar(&length, "duration", length, "`duration` of the traffic")
	return cmd
}

// demoStart is the time at which the clock of the demo starts.
var demoStart = time.Date(2026, time.January, 5, 9, 0, 0, 0, time.UTC)

// patience bounds a call of the store in a replay. Its clock is virtual, so that a machine that is busy, or asleep for
// a while, is no outage.
const patience = time.Minute

// replicaCount is how many limiters share the store of the demo.
const replicaCount = 3

// demo runs the demo, shows it, and fails when a limit was exceeded.
func (a *app) demo(ctx context.Context, seed uint64, length time.Duration) (err error) {
	run, err := openDemo(ctx, seed, length)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.close()) }()
	watch := func(context.Context, *demoRun) error { return nil }
	switch {
	case a.output.json:
	case a.live:
		screen := newScreen(a, length)
		defer func() { err = errors.Join(err, screen.close()) }()
		watch = screen.draw
	default:
		p := &page{}
		run.intro(p)
		if err := a.write(p); err != nil {
			return err
		}
		watch = a.plainProgress
	}
	if err := run.play(ctx, watch); err != nil {
		return err
	}
	report := run.report()
	if err := a.print(report, report.text); err != nil {
		return err
	}
	if report.Proof.Exceeded {
		return errors.New("a limit was exceeded")
	}
	return nil
}

// A demoRun is the stage of the demo: a store, limiters on it, and who uses them.
type demoRun struct {
	seed     uint64
	length   time.Duration
	elapsed  time.Duration
	clock    virtualClock
	store    zlimit.Store
	limiters []*zlimit.RateLimiter
	observer *zlimit.RateLimiter // the last of them: shows what is left, and takes nothing
	lanes    []*lane
}

func openDemo(ctx context.Context, seed uint64, length time.Duration) (*demoRun, error) {
	run := &demoRun{seed: seed, length: length}
	run.clock.set(demoStart)
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
func (r *demoRun) open(ctx context.Context) error {
	for range replicaCount + 1 {
		// With a freshness of 0 the limiter is exact, and what is admitted does not hang on who comes first.
		l, err := zlimit.New(ctx, r.store,
			zlimit.WithClock(r.clock.now(nil)), zlimit.WithFreshness(0), zlimit.WithRejectionCache(0), zlimit.WithCallTimeout(patience))
		if err != nil {
			return err
		}
		r.limiters = append(r.limiters, l)
	}
	r.observer = r.limiters[replicaCount]
	if err := r.observer.Limits.SetResource(ctx, demoResource, demoLimits()); err != nil {
		return err
	}
	for i, p := range personas() {
		r.lanes = append(r.lanes, newLane(p, r.seed, uint64(i), r.limiters[:replicaCount]))
		if p.limits == nil {
			continue
		}
		if err := r.observer.Limits.SetEntity(ctx, p.key, demoResource, p.limits); err != nil {
			return err
		}
	}
	return nil
}

func (r *demoRun) close() error {
	var all []error
	for _, l := range r.limiters {
		all = append(all, l.Close())
	}
	return errors.Join(append(all, r.store.Close())...)
}

// play lets the traffic pass, all lanes side by side within a tick, and then waits for the last calls to end. It shows
// itself to watch once a second of its own time.
func (r *demoRun) play(ctx context.Context, watch func(context.Context, *demoRun) error) error {
	for {
		over := r.elapsed >= r.length
		now := demoStart.Add(r.elapsed)
		r.clock.set(now)
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

func (r *demoRun) inFlight() int {
	n := 0
	for _, l := range r.lanes {
		n += len(l.inFlight)
	}
	return n
}

// total returns the sum of all tallies.
func (r *demoRun) total() tally {
	var t tally
	for _, l := range r.lanes {
		t.Requests += l.tally.Requests
		t.Admitted += l.tally.Admitted
		t.Rejected += l.tally.Rejected
	}
	return t
}

// intro says what is about to be seen.
func (r *demoRun) intro(p *page) {
	p.linef("zlimit demo: %d API keys call a model through %d replicas that share one store", len(r.lanes), replicaCount)
	p.linef("")
	p.linef("Each key may make 120 requests and use 60,000 tokens a minute. A request takes")
	p.linef("its estimate before the call and settles the real cost after it.")
	p.linef("")
	for _, l := range r.lanes {
		p.linef("  %-13s %s", l.key, l.story)
	}
	p.linef("")
}

// plainEvery is how often a demo that is not on a terminal says how far it is, in its own time.
const plainEvery = 30 * time.Second

func (a *app) plainProgress(_ context.Context, r *demoRun) error {
	if r.elapsed%plainEvery != 0 && r.elapsed != r.length {
		return nil
	}
	t := r.total()
	p := &page{}
	p.linef("%s  %7s requests  %7s admitted  %7s rejected  %4d in flight",
		clock(r.elapsed), grouped(int64(t.Requests)), grouped(int64(t.Admitted)), grouped(int64(t.Rejected)), r.inFlight())
	return a.write(p)
}

// clock returns a time since the start as minutes and seconds.
func clock(d time.Duration) string {
	return fmt.Sprintf("%2d:%02d", int(d/time.Minute), int(d%time.Minute/time.Second))
}

// A demoReport is the result of the demo.
type demoReport struct {
	Seed     uint64    `json:"seed"`
	Seconds  float64   `json:"seconds"` // of traffic
	Replicas int       `json:"replicas"`
	Keys     []demoKey `json:"keys"`
	Proof    demoProof `json:"proof"`
}

type demoKey struct {
	Key               string      `json:"key"`
	Requests          int         `json:"requests"`
	Admitted          int         `json:"admitted"`
	Rejected          int         `json:"rejected"`
	Failed            int         `json:"failed"`
	TokensEstimated   int64       `json:"tokens_estimated"`
	TokensUsed        int64       `json:"tokens_used"`
	LongestRetryAfter float64     `json:"longest_retry_after_seconds"`
	Audit             []demoAudit `json:"audit"`
}

// A demoAudit is the interval in which a key came closest to one of its limits.
type demoAudit struct {
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

type demoProof struct {
	Intervals int64   `json:"intervals"`
	Excess    float64 `json:"excess"` // the highest of all
	Exceeded  bool    `json:"exceeded"`
}

// report sums the run up, and audits its records.
func (r *demoRun) report() *demoReport {
	report := &demoReport{Seed: r.seed, Seconds: r.length.Seconds(), Replicas: replicaCount}
	first := true
	for _, l := range r.lanes {
		t := l.tally
		key := demoKey{
			Key: l.key, Requests: t.Requests, Admitted: t.Admitted, Rejected: t.Rejected, Failed: t.Failed,
			TokensEstimated: t.Estimated, TokensUsed: t.Used, LongestRetryAfter: t.Longest.Seconds(),
		}
		for _, limit := range l.limits {
			f := audit(limit, l.record[limit.Name])
			if f.intervals == 0 {
				continue
			}
			excess := inTokens(f.excess, limit)
			key.Audit = append(key.Audit, demoAudit{
				Limit: limit.Name, Capacity: limit.Capacity, Intervals: f.intervals,
				From:  time.UnixMilli(f.from).Sub(demoStart).Seconds(),
				To:    time.UnixMilli(f.to).Sub(demoStart).Seconds(),
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

func (r *demoReport) text(p *page) {
	p.linef("")
	var rows [][]string
	for _, k := range append(slices.Clone(r.Keys), r.total()) {
		wait := ""
		if k.Rejected > 0 {
			wait = brief(time.Duration(k.LongestRetryAfter * float64(time.Second)))
		}
		rows = append(rows, []string{
			k.Key, grouped(int64(k.Requests)), grouped(int64(k.Admitted)), grouped(int64(k.Rejected)),
			grouped(k.TokensEstimated), grouped(k.TokensUsed), wait,
		})
	}
	p.table([]string{"key", "requests>", "admitted>", "rejected>", "estimated>", "used>", "longest wait>"}, rows)
	p.linef("")
	p.linef("Was a limit exceeded? The record of admissions and settlements is compared with")
	p.linef("what a limit allows in any interval: its capacity and what flows in meanwhile.")
	p.linef("Below is how close each came; an excess above 0 would be a breach.")
	p.linef("")
	rows = nil
	for _, k := range r.Keys {
		for _, c := range k.Audit {
			rows = append(rows, []string{
				k.Key, c.limit.String(), fmt.Sprintf("%.1f s", c.To-c.From),
				grouped(c.Spent), decimal(c.Allowed), decimal(c.Excess),
			})
		}
	}
	p.table([]string{"key", "limit", "closest in>", "spent>", "allowed>", "excess>"}, rows)
	p.linef("")
	verdict := "No limit was exceeded."
	if r.Proof.Exceeded {
		verdict = "A LIMIT WAS EXCEEDED."
	}
	p.linef("%s Highest excess of %s intervals: %s tokens.", verdict, grouped(r.Proof.Intervals), decimal(r.Proof.Excess))
}

// total returns the sums of all keys.
func (r *demoReport) total() demoKey {
	sum := demoKey{Key: "total"}
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
