// Package bench has the command bench, which measures a store under load.
package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Command returns the command bench.
func Command(sh *shell.Shell) *cobra.Command {
	b := load{}
	var limit, cost string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a store under a bounded load",
		Long: `Bench asks a store of your own for requests, from one process and within bounds.
It measures their times, their costs and their throttles. Its entities are
bench-00000 and so on, of the resource zlimit-bench; their limit comes with the
requests, so that it changes no stored limit. Their buckets expire by
themselves.

Requests come at --rate, and a latency counts from the time at which its request
was due. With --rate 0 each of the --concurrency workers asks again as soon as
it has its answer. A request on DynamoDB costs about one write unit, and four
for a new key; --rate times --duration bounds what the whole costs.

Units are those that the table reports. It reports none for conditions that
failed, which it charges as well.`,
		Example: `  zlimit bench --store 'dynamodb:limits?region=eu-central-1' --rate 200
  zlimit bench --keys 1000 --skew 1.1 --concurrency 64 --rate 0 --duration 30s
  zlimit bench --keys 1 --limit rps=100/s -o json`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if b.limit, err = shell.ParseLimit(limit); err != nil {
				return err
			}
			if b.cost, err = grammar.ParseAmount(b.limit.Name, cost, 0); err != nil {
				return shell.Usagef("bench: --cost %v", err)
			}
			if err := b.validate(); err != nil {
				return err
			}
			dsn, err := sh.DSN()
			if err != nil {
				return err
			}
			return bench(cmd.Context(), sh, dsn, &b)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&b.keys, "keys", 100, "`number` of entities")
	flags.Float64Var(&b.skew, "skew", 0, "`exponent` of Zipf's law for the keys; 0: all alike")
	flags.IntVar(&b.concurrency, "concurrency", 16, "`number` of concurrent requests at most")
	flags.IntVar(&b.rate, "rate", 100, "`number` of requests per second; 0 for as many as\ncome back")
	flags.StringVar(&cost, "cost", "1", "`N` tokens or dollars of a request")
	flags.DurationVar(&b.duration, "duration", 10*time.Second, "`time` to go on for, 1s to 1h")
	flags.StringVar(&b.resource, "resource", "zlimit-bench", "`resource` to ask for")
	flags.StringVar(&limit, "limit", "tokens=1000000/s", "`LIMIT` of each entity")
	flags.Uint64Var(&b.seed, "seed", 1, "`number` that the keys are drawn with")
	return cmd
}

// A Report is the result of a benchmark.
type Report struct {
	Store       string           `json:"store"`
	Keys        int              `json:"keys"`
	Skew        float64          `json:"skew"`
	Concurrency int              `json:"concurrency"`
	Rate        int              `json:"rate"`
	Cost        int64            `json:"cost"`
	Seconds     float64          `json:"seconds"`
	Requests    int64            `json:"requests"`
	Results     map[string]int64 `json:"results"`
	Admitted    float64          `json:"admitted_per_second"`
	Late        int64            `json:"late"`
	Latency     struct {
		Min   float64 `json:"min_ms"`
		P50   float64 `json:"p50_ms"`
		P90   float64 `json:"p90_ms"`
		P99   float64 `json:"p99_ms"`
		P999  float64 `json:"p999_ms"`
		Max   float64 `json:"max_ms"`
		Steps []step  `json:"histogram"`
	} `json:"latency"`
	Calls            map[string]int64 `json:"calls"`
	Failed           map[string]int64 `json:"failed_calls"`
	WritesPerAcquire float64          `json:"writes_per_acquire"`
	ReadUnits        float64          `json:"read_units"`
	WriteUnits       float64          `json:"write_units"`
	Throttles        map[string]int64 `json:"throttles"`
	LostRaces        uint64           `json:"lost_races"`
}

// bench runs a load and prints what came of it. An interrupt ends the load early.
func bench(ctx context.Context, sh *shell.Shell, dsn string, b *load) error {
	calls := &meter{}
	calls.reset()
	if err := sh.CheckFile(dsn); err != nil {
		return err
	}
	check := zlimit.Request{Entity: "bench", Resource: b.resource, Consume: zlimit.Amounts{b.limit.Name: b.cost}, Limits: []zlimit.Limit{b.limit}}
	if err := shell.Rehearse(ctx, sh, func(ctx context.Context, l *zlimit.RateLimiter) (*zlimit.Lease, error) { return l.Acquire(ctx, check) }); err != nil {
		return err
	}
	progress := sh.ProgressLine()
	report, err := shell.Perform(context.WithoutCancel(ctx), sh, dsn, func(_ context.Context, l *zlimit.RateLimiter) (*Report, error) {
		defer progress.End()
		calls.reset() // of what opening the store took
		tally, took := b.run(ctx, l, sh.Now, func(elapsed time.Duration, admitted, others int64) {
			progress.Show(fmt.Sprintf("%v of %v: %s admitted, %s not", elapsed.Round(time.Second), b.duration, show.Grouped(admitted), show.Grouped(others)))
		})
		return b.report(dsn, tally, calls, took, l.Stats().LostRaces), nil
	}, zlimit.WithObserver(calls.observe))
	if err != nil {
		return err
	}
	if report.Requests == 0 {
		return errors.New("no request was answered")
	}
	return sh.Print(report, report.print)
}

// report sums up what came of a load.
func (b *load) report(dsn string, t *tally, calls *meter, took time.Duration, lost uint64) *Report {
	calls.mu.Lock()
	defer calls.mu.Unlock()
	r := &Report{
		Store: dsn, Keys: b.keys, Skew: b.skew, Concurrency: b.concurrency, Rate: b.rate, Cost: b.cost, Seconds: took.Seconds(),
		Requests: t.latency.count, Results: map[string]int64{}, Late: t.late, Calls: calls.calls, Failed: calls.failed,
		ReadUnits: calls.read, WriteUnits: calls.write, Throttles: calls.throttles, LostRaces: lost,
	}
	for result, n := range t.results {
		name := string(result)
		if result == zlimit.ResultOK {
			name = "admitted"
		}
		r.Results[name] = n
	}
	if took > 0 {
		r.Admitted = float64(r.Results["admitted"]) / took.Seconds()
	}
	if r.Requests > 0 {
		r.WritesPerAcquire = float64(calls.calls["write"]+calls.calls["transact"]) / float64(r.Requests)
	}
	ms := func(d time.Duration) float64 { return float64(d.Round(time.Microsecond)) / float64(time.Millisecond) }
	h := &t.latency
	r.Latency.Min, r.Latency.Max = ms(h.min), ms(h.max)
	r.Latency.P50, r.Latency.P90 = ms(h.quantile(0.5)), ms(h.quantile(0.9))
	r.Latency.P99, r.Latency.P999 = ms(h.quantile(0.99)), ms(h.quantile(0.999))
	r.Latency.Steps = h.shown()
	return r
}

func (r *Report) print(p *show.Page) {
	pace := "as many as come back"
	if r.Rate > 0 {
		pace = show.Grouped(int64(r.Rate)) + "/s"
	}
	p.Linef("%s keys, skew %g, %s concurrent, %s, for %.1f s", show.Grouped(int64(r.Keys)), r.Skew, show.Grouped(int64(r.Concurrency)), pace, r.Seconds)
	p.Linef("requests            %s: %s", show.Grouped(r.Requests), byName(r.Results))
	p.Linef("admitted a second   %s", show.Decimal(r.Admitted))
	if r.Late > 0 {
		p.Linef("late                %s began more than 100 ms after their time: raise --concurrency", show.Grouped(r.Late))
	}
	l := &r.Latency
	p.Linef("latency, ms         min %.3f, p50 %.3f, p90 %.3f, p99 %.3f, p99.9 %.3f, max %.3f", l.Min, l.P50, l.P90, l.P99, l.P999, l.Max)
	for _, s := range l.Steps {
		p.Linef("  %-16s  %-30s %s", fmt.Sprintf("up to %g ms", s.UpTo), show.Bar(float64(s.Count)/float64(r.Requests), 30, "█", "·"), show.Grouped(s.Count))
	}
	p.Linef("calls of the store  %s", byName(r.Calls))
	if len(r.Failed) > 0 {
		p.Linef("failed calls        %s", byName(r.Failed))
	}
	p.Linef("writes per acquire  %.3f, of which races lost: %s", r.WritesPerAcquire, show.Grouped(int64(r.LostRaces)))
	p.Linef("units               read %s, write %s", show.Decimal(r.ReadUnits), show.Decimal(r.WriteUnits))
	throttles := "none"
	if len(r.Throttles) > 0 {
		throttles = byName(r.Throttles)
	}
	p.Linef("throttles           %s", throttles)
}
