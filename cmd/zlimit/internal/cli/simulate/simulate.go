// Package simulate has the command simulate, which replays a trace against limits.
package simulate

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/virtual"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Command returns the command simulate.
func Command(sh *shell.Shell) *cobra.Command {
	var file, usage, entity, resource string
	var limits, parentLimits, costs, actual []string
	var more columns
	var freshness time.Duration
	cmd := &cobra.Command{
		Use:   "simulate --trace FILE --limit LIMIT --cost NAME=EXPR ...",
		Short: "Replay a trace of requests against limits",
		Long: `Simulate replays a trace on a virtual clock through the limiter itself, and
reports how many requests it admits.

The trace is a CSV file whose first line names its columns. TIMESTAMP is the
time of a request, such as 2023-11-16 18:15:46.68 or 2023-11-16T18:15:46Z. It is
in UTC where it names no zone, and is taken to the millisecond. Rows are
replayed in file order; where time goes back, nothing is refilled until it has
caught up. "-" stands for the standard input.

A limit is written NAME=CAPACITY[:REFILL]/PERIOD, as explained by zlimit limits
--help. Each limit has a cost per request: a column, a number, or a sum of them.
Costs are in tokens, and of a limit named usd in dollars, with up to nine
decimal places. A request that costs more than a limit holds is impossible,
which is not counted as rejected.

Quotas, sessions, prepaid limits, windows and shadow limits are replayed in
memory alone, since they are stored for the run. Slots are not replayed. A month
of requests against a budget is:
--limit "usd=100/month@Europe/Berlin" --cost usd=Dollars.

--usage takes usage in place of a trace, as zlimit usage list --resource R
--window hourly --with-children -o csv prints it. Each entity has a bucket of
its own. What it consumed in a window is replayed as requests that are spread
evenly over the window, each with a small part of what the limits hold; the cost
of a limit is its column. So the result is right for budgets and for limits that
last longer than a window.
Bursts within a window are not in usage: limits of minutes admit too much.
Without --with-children a parent is replayed with what its children consumed.

With --key each value of a column has a bucket of its own, as a user or an API
key has. With --parent another column names the parent of the key, such as its
team, which is charged too and has the --parent-limit. With --actual a request
takes its --cost as an estimate, and is settled with its use, immediately or
after the seconds in the column of --latency.

All input is checked before anything is written. Each run writes a bucket of its
own and nothing else, so that runs on a shared store do not disturb another.
With --entity a run carries on with the bucket of an earlier one. The store is
memory: unless --store names another; ZLIMIT_STORE does not count here, so that
a trace is never written to a table by accident.`,
		Example: `  zlimit simulate --trace trace.csv --limit rpm=300/min --cost rpm=1
  zlimit simulate --usage october.csv --limit tpm=2M/month@UTC
  zlimit simulate --trace trace.csv \
    --limit rpm=300/min --limit tpm=400000:200000/30s --freshness 0 \
    --cost rpm=1 --cost tpm=ContextTokens+GeneratedTokens
  zlimit simulate --trace trace.csv --key User --parent Team \
    --limit tpm=40000/min --parent-limit tpm=200000/min \
    --cost tpm=ContextTokens+4096 --actual tpm=ContextTokens+GeneratedTokens`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			line := sh.ProgressLine()
			s := simulation{progress: func(done, of int) {
				if sh.Watch {
					line.Show(fmt.Sprintf("%s of %s requests replayed", show.Grouped(int64(done)), show.Grouped(int64(of))))
				}
			}}
			s.request.Entity, s.request.Resource = entity, resource
			if !cmd.Flags().Changed("entity") {
				s.request.Entity = "simulate-" + strings.ToLower(rand.Text()[:12])
			}
			opts := []zlimit.Option{
				zlimit.WithClock(s.clock.Now(sh.Now)),
				// The trace may be older than any lifetime of a bucket, which DynamoDB measures on its own clock. A trace may go back.
				zlimit.WithTuning(zlimit.Tuning{BucketTTL: -1, ClockSkew: anySkew}),
				zlimit.WithCallTimeout(virtual.CallTimeout),
			}
			if cmd.Flags().Changed("freshness") {
				if freshness < 0 {
					return shell.Usagef("simulate: --freshness %v: must not be negative", freshness)
				}
				opts = append(opts, zlimit.WithFreshness(freshness))
			}
			if usage != "" {
				switch {
				case file != "":
					return shell.Usagef("simulate: --trace excludes --usage")
				case len(costs) > 0 || len(actual) > 0 || len(parentLimits) > 0 || more != (columns{}):
					return shell.Usagef("simulate: --usage excludes --cost, --actual, --latency, --key, --parent and --parent-limit")
				}
				costs, more.key = ownColumns(limits), "entity"
			}
			if err := s.parse(limits, costs); err != nil {
				return err
			}
			for _, l := range s.request.Limits {
				if l.Term != 0 {
					return shell.Usagef("simulate: %s: slots are not replayed", l.String())
				}
			}
			s.stored = slices.ContainsFunc(s.request.Limits, mustBeStored)
			if s.stored && cmp.Or(sh.Store, shell.MemoryDSN) != shell.MemoryDSN {
				return shell.Usagef("simulate: %s is for the store memory: alone, since it makes stored limits",
					s.request.Limits[slices.IndexFunc(s.request.Limits, mustBeStored)].String())
			}
			if err := s.parseMore(sh, parentLimits, actual, more); err != nil {
				return err
			}
			var err error
			if usage != "" {
				s.trace, err = openFile(sh, usage, "--usage", func(name string, r io.Reader) (*trace, error) {
					t, repeats, err := readUsage(name, r, s.request.Limits, sh.Now())
					if repeats {
						sh.Note("note: " + name + " does not show apart what parents were charged for their children: such requests are replayed twice; list it with --with-children")
					}
					return t, err
				})
			} else {
				s.trace, err = openTrace(sh, file, slices.Concat(s.costs, s.actual), more)
			}
			if err != nil {
				return err
			}
			if err := shell.Rehearse(cmd.Context(), sh, s.check, opts...); err != nil {
				return err
			}
			outcome, err := shell.Perform(cmd.Context(), sh, cmp.Or(sh.Store, shell.MemoryDSN), s.run, opts...)
			line.End()
			if err != nil {
				return err
			}
			return sh.Print(outcome, func(p *show.Page) { outcome.table(p, &s) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "trace", "", "CSV `FILE` to replay, - for the standard input")
	flags.StringVar(&usage, "usage", "", "CSV `FILE` of usage to replay, - for stdin")
	flags.StringArrayVar(&limits, "limit", nil, "`LIMIT` to replay against; repeatable")
	flags.StringArrayVar(&costs, "cost", nil, "`NAME=EXPR`, the cost of a request; one per limit")
	flags.StringVar(&more.key, "key", "", "`column` of keys; each key has its own bucket")
	flags.StringVar(&more.parent, "parent", "", "`column` of the parents of keys")
	flags.StringArrayVar(&parentLimits, "parent-limit", nil, "`LIMIT` of each parent; repeatable")
	flags.StringArrayVar(&actual, "actual", nil, "`NAME=EXPR`, what a request used in the end")
	flags.StringVar(&more.latency, "latency", "", "`column` of seconds until that is known")
	flags.DurationVar(&freshness, "freshness", 0, "`duration` δ of the limiter; 0 is exact\n(default that of the SDK)")
	flags.StringVar(&entity, "entity", "", "`name` of the bucket's entity\n(default simulate-RANDOM)")
	flags.StringVar(&resource, "resource", "trace", "`name` of the bucket's resource")
	return cmd
}

func openTrace(sh *shell.Shell, file string, costs []cost, more columns) (*trace, error) {
	if file == "" {
		return nil, shell.Usagef("simulate: --trace FILE or --usage FILE is missing; see zlimit simulate --help")
	}
	return openFile(sh, file, "--trace", func(name string, r io.Reader) (*trace, error) { return readTrace(name, r, costs, more) })
}

// openFile reads a file, or the standard input.
func openFile(sh *shell.Shell, file, flag string, read func(name string, r io.Reader) (*trace, error)) (*trace, error) {
	if file == "-" {
		return read("standard input", sh.Stdin)
	}
	opened, err := os.Open(file)
	if err != nil {
		return nil, shell.Usagef("simulate: %s: %v", flag, err)
	}
	defer func(c io.ReadCloser) { _ = c.Close() }(opened)
	return read(file, opened)
}

// ownColumns returns costs by which each limit has a column of its name.
func ownColumns(limits []string) (costs []string) {
	for _, text := range limits {
		name, _, _ := strings.Cut(text, "=")
		costs = append(costs, name+"="+name)
	}
	return costs
}

// mustBeStored reports whether a limit cannot be given with a request.
func mustBeStored(l zlimit.Limit) bool {
	return l.Resets != "" || l.Session != 0 || l.Windows != "" || l.Mode != zlimit.ModeEnforced || l.Floors != ""
}

type simulation struct {
	trace    *trace
	request  zlimit.Request // of every row, except its amounts
	costs    []cost         // of the limits, in their order
	stored   bool           // the limits are stored for the run
	actual   []cost         // the real costs to settle; nil where costs are no estimates
	parents  []zlimit.Limit // of each parent
	families *families      // nil where all requests are of one key
	open     settlements    // of estimates
	clock    virtual.Clock
	latest   time.Time // to which the clock was set
	progress func(done, of int)
}

func (s *simulation) parse(limits, costs []string) error {
	var err error
	if s.request.Limits, err = shell.ParseLimits(limits); err != nil {
		return err
	}
	if len(limits) == 0 {
		return shell.Usagef("simulate: --limit NAME=CAPACITY[:REFILL]/PERIOD is missing; see zlimit simulate --help")
	}
	s.costs = make([]cost, len(s.request.Limits))
	for _, text := range costs {
		c, err := parseCost(text)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(s.request.Limits, func(l zlimit.Limit) bool { return l.Name == c.limit })
		switch {
		case i < 0:
			return shell.Usagef("cost %q: no --limit is named %q", text, c.limit)
		case s.costs[i].limit != "":
			return shell.Usagef("cost %q: %s has a cost already", text, c.limit)
		}
		s.costs[i] = c
	}
	for i, l := range s.request.Limits {
		if s.costs[i].limit == "" && !slices.ContainsFunc(s.request.Limits[:i], func(o zlimit.Limit) bool { return o.Name == l.Name }) {
			return shell.Usagef("simulate: limit %s has no cost: give --cost %s=EXPR", l.Name, l.Name)
		}
	}
	return nil
}

// An Outcome is what became of the requests of a trace. Rejected does not count impossible requests.
type Outcome struct {
	Requests        int              `json:"requests"`
	Keys            int              `json:"keys,omitempty"`          // with --key
	KeysRejected    int              `json:"keys_rejected,omitempty"` // of which a request was rejected
	Admitted        int              `json:"admitted"`
	Rejected        int              `json:"rejected"`
	Impossible      int              `json:"impossible"`
	TokensRequested map[string]int64 `json:"tokens_requested"`
	TokensAdmitted  map[string]int64 `json:"tokens_admitted"`
	TokensUsed      map[string]int64 `json:"tokens_used,omitempty"`         // of those admitted, with --actual
	RejectedBy      map[string]int   `json:"rejected_by"`                   // rejections in which the limit fell short, several perhaps
	RejectedAbove   map[string]int   `json:"rejected_by_parents,omitempty"` // the same of limits of parents
	First           *time.Time       `json:"first,omitempty"`
	Last            *time.Time       `json:"last,omitempty"`
}

// check finds out whether the limiter takes such requests at all.
func (s *simulation) check(ctx context.Context, l *zlimit.RateLimiter) (time.Duration, error) {
	r := s.request
	if s.stored { // as the run does in its own store; a rehearsal has one in memory, too
		if err := s.store(ctx, l); err != nil {
			return 0, err
		}
		r.Limits = nil
		r.Consume = zlimit.Amounts{s.request.Limits[0].Name: 0}
		return l.TimeUntil(ctx, r)
	}
	r.Consume = zlimit.Amounts{r.Limits[0].Name: 0}
	return l.TimeUntil(ctx, r)
}

// store stores the limits for the requests of all entities.
func (s *simulation) store(ctx context.Context, l *zlimit.RateLimiter) error {
	return l.Limits.Set(ctx, zlimit.Level{Resource: s.request.Resource}, zlimit.Config{Limits: s.request.Limits})
}

func (s *simulation) run(ctx context.Context, l *zlimit.RateLimiter) (*Outcome, error) {
	out := &Outcome{
		Requests:        len(s.trace.rows),
		TokensRequested: map[string]int64{},
		TokensAdmitted:  map[string]int64{},
		RejectedBy:      map[string]int{},
		RejectedAbove:   map[string]int{},
	}
	if s.actual != nil {
		out.TokensUsed = map[string]int64{}
	}
	r := s.request
	if s.stored {
		if len(s.trace.rows) > 0 {
			s.clock.Set(time.UnixMilli(s.trace.rows[0].at).UTC())
		}
		if err := s.store(ctx, l); err != nil {
			return nil, err
		}
		r.Limits = nil
	}
	r.OnUnavailable = zlimit.PolicyBlock // an uncounted admission would falsify the result
	consume := zlimit.Amounts{}
	r.Consume = consume
	for i, limit := range s.request.Limits {
		consume[limit.Name] = 0
		out.TokensRequested[limit.Name] = s.trace.total[i]
		out.TokensAdmitted[limit.Name] = 0
		out.RejectedBy[limit.Name] = 0
	}
	for n, row := range s.trace.rows {
		s.progress(n, len(s.trace.rows))
		at := time.UnixMilli(row.at).UTC()
		if out.First == nil {
			out.First = &at
		}
		out.Last = &at
		if err := s.settle(ctx, at, out); err != nil {
			return nil, err
		}
		s.advance(at)
		costs := s.trace.cost(n)
		for i, limit := range s.request.Limits {
			consume[limit.Name] = costs[i]
		}
		lease, err := s.acquire(ctx, l, r, &row, out)
		if err == nil && s.actual != nil {
			s.settleLater(lease, at.Add(row.latency), costs[len(s.costs):])
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", s.trace.name, row.line, err)
		}
	}
	if err := s.settle(ctx, time.Unix(math.MaxInt32*100, 0), out); err != nil {
		return nil, err
	}
	s.families.tell(out)
	return out, nil
}

// count takes in how a request of an entity came out.
func (o *Outcome) count(entity string, lease *zlimit.Lease, err error) error {
	var exceeded *zlimit.ExceededError
	switch {
	case err == nil:
		o.Admitted++
		for name, tokens := range lease.Consumed() {
			o.TokensAdmitted[name] += tokens
		}
		return nil
	case !errors.As(err, &exceeded):
		return err
	case !exceeded.Possible():
		o.Impossible++
	default:
		o.Rejected++
		for _, s := range exceeded.Violations() {
			if s.Entity == entity {
				o.RejectedBy[s.Limit.Name]++
			} else {
				o.RejectedAbove[s.Limit.Name]++
			}
		}
	}
	return nil
}

func (o *Outcome) table(p *show.Page, s *simulation) {
	var rows [][]string
	for _, r := range []struct {
		name  string
		count int
	}{
		{"admitted", o.Admitted}, {"rejected", o.Rejected}, {"impossible", o.Impossible}, {"requests", o.Requests},
	} {
		rows = append(rows, []string{r.name, show.Grouped(int64(r.count)), show.Percent(int64(r.count), int64(o.Requests))})
	}
	p.Table([]string{"", "count>", "share>"}, rows)
	p.Linef("")
	rows = nil
	for _, l := range s.request.Limits {
		requested, admitted := o.TokensRequested[l.Name], o.TokensAdmitted[l.Name]
		rows = append(rows, []string{
			l.Name, show.Amount(l.Name, l.Capacity), show.Refill(l), show.Amount(l.Name, requested), show.Amount(l.Name, admitted),
			show.Percent(admitted, requested), show.Grouped(int64(o.RejectedBy[l.Name])),
		})
	}
	p.Table([]string{"limit", "capacity>", "refill>", "requested>", "admitted>", "share>", "rejections>"}, rows)
	o.more(p, s)
	if o.First != nil {
		p.Linef("")
		const form = "2006-01-02 15:04:05.000"
		p.Linef("from %s to %s UTC, bucket %s/%s",
			o.First.Format(form), o.Last.Format(form), s.request.Entity, s.request.Resource)
	}
}

// advance sets the clock to a time of the trace, unless the trace goes back: the clock waits until it has caught up.
func (s *simulation) advance(at time.Time) {
	if at.After(s.latest) {
		s.latest = at
		s.clock.Set(at)
	}
}

// anySkew is a clock skew that no trace exceeds.
const anySkew = 100 * 365 * 24 * time.Hour
