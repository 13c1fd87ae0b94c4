// Package buckets has the commands that ask buckets: acquire, available, bucket and top.
package buckets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/budgets"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// AcquireCommand returns the command acquire.
func AcquireCommand(sh *shell.Shell) *cobra.Command {
	var consume, limits []string
	var policy, priority string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "acquire ENTITY RESOURCE --consume NAME=N ...",
		Short: "Consume tokens from all limits or from none",
		Long: `Acquire consumes tokens of a resource on behalf of an entity, of all the limits
that it names or of none. It exits with 0 when the request is admitted, and with
3 when it is rejected. The result then says of each limit how long to wait.

The limits are those that are stored for the entity and the resource. --limit
replaces them for this request; it is written NAME=CAPACITY[:REFILL]/PERIOD, as
explained by zlimit limits --help.

With --wait the request waits so long for tokens that are not there yet, in one
queue with all other waiting requests. If it would have to wait longer, it is
rejected immediately, with the exact time. An interrupt gives back what it took.

With --priority the request leaves to others what limits keep by their floors.

While the store is unavailable the request fails, unless --on-unavailable allow
admits it uncounted.`,
		Example: `  zlimit acquire acme gpt --consume rpm=1 --consume tpm=1500
  zlimit acquire 10.0.0.7 login --consume tries=1 --limit tries=5/min
  zlimit acquire acme gpt --consume rpm=1 && call-the-model
  zlimit acquire acme gpt --consume rpm=1 --wait 30s && call-the-model`,
		Args: shell.Takes("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := zlimit.Request{Entity: args[0], Resource: args[1], Priority: priority}
			var err error
			if len(consume) == 0 {
				return shell.Usagef("acquire: --consume NAME=N is missing; see %s --help", cmd.CommandPath())
			}
			if r.Consume, err = shell.ParseAmounts("consume", consume); err != nil {
				return err
			}
			if r.Limits, err = shell.ParseLimits(limits); err != nil {
				return err
			}
			if r.OnUnavailable, err = zlimit.ParseFailurePolicy(policy); err != nil {
				return err
			}
			switch {
			case wait < 0:
				return shell.Usagef("acquire: --wait %v: must not be negative", wait)
			case wait%time.Millisecond != 0:
				return shell.Usagef("acquire: --wait %v: must be whole milliseconds", wait)
			}
			return acquire(cmd.Context(), sh, r, waitFlag{wait, cmd.Flags().Changed("wait")})
		},
	}
	cmd.Flags().StringArrayVar(&consume, "consume", nil, "`NAME=N`, tokens to consume of a limit; repeatable")
	cmd.Flags().StringArrayVar(&limits, "limit", nil, "`LIMIT` in place of the stored ones; repeatable")
	cmd.Flags().StringVar(&policy, "on-unavailable", zlimit.PolicyInherit.String(),
		"outage `policy`: block, allow")
	cmd.Flags().StringVar(&priority, "priority", "", "`name` that limits may have a floor for")
	cmd.Flags().DurationVar(&wait, "wait", 0, "longest `time` to wait for the tokens, such as 30s")
	return cmd
}

type admission struct {
	Admitted bool           `json:"admitted"`
	Degraded bool           `json:"degraded"` // uncounted, during an outage
	Consumed zlimit.Amounts `json:"consumed"`

	WaitedSeconds *json.Number `json:"waited_seconds,omitempty"` // with --wait
}

type rejection struct {
	Admitted          bool            `json:"admitted"`
	Possible          bool            `json:"possible"`
	NeedsTopUp        bool            `json:"needs_top_up,omitempty"`
	RetryAfterSeconds *json.Number    `json:"retry_after_seconds"` // null for never
	RefusedBy         []refusal       `json:"refused_by"`          // the strictest first
	Limits            zlimit.Statuses `json:"limits"`

	budgets.Remarks
}

// A refusal is a limit that refuses a request, and whose it is.
type refusal struct {
	Limit    string `json:"limit"`
	Entity   string `json:"entity"`
	Resource string `json:"resource"`
	Level    string `json:"level"`          // of the entity: entity, parent, parent2 and so on
	Wider    int    `json:"wider,omitzero"` // as a status has it
}

func refusedBy(e *zlimit.ExceededError) (by []refusal) {
	for _, s := range e.Violations() {
		by = append(by, refusal{s.Limit.Name, s.Entity, s.Resource, s.Level(), s.Wider})
	}
	return by
}

// String names the limit and whose it is.
func (r refusal) String() string {
	text := fmt.Sprintf("%s of %s", r.Limit, r.Entity)
	if r.Wider > 0 {
		text += " for " + r.Resource
	}
	if r.Level == "entity" {
		return text
	}
	return text + ", its " + r.Level
}

// A waitFlag is the longest wait of a request, and whether the caller gave one.
type waitFlag struct {
	longest time.Duration
	given   bool
}

// A granted request has its lease, and the time that it waited.
type granted struct {
	lease  *zlimit.Lease
	waited time.Duration
}

func acquire(ctx context.Context, sh *shell.Shell, r zlimit.Request, wait waitFlag) error {
	var remarks budgets.Remarks
	var exceeded *zlimit.ExceededError
	got, err := shell.Do(ctx, sh, func(ctx context.Context, l *zlimit.RateLimiter) (got granted, err error) {
		if wait.given {
			got, err = waitFor(ctx, sh, l, r, wait.longest)
		} else {
			got.lease, err = l.Acquire(ctx, r)
		}
		if errors.As(err, &exceeded) {
			remarks = budgets.RemarksOf(ctx, l, exceeded.Statuses, sh.Now())
		}
		return got, err
	}, zlimit.WithFailurePolicy(r.OnUnavailable)) // for an outage that is there already
	switch {
	case errors.As(err, &exceeded):
		return errors.Join(reject(sh, exceeded, remarks, wait), shell.ErrRejected)
	case err != nil:
		return err
	}
	return admit(sh, got, wait)
}

func reject(sh *shell.Shell, e *zlimit.ExceededError, remarks budgets.Remarks, wait waitFlag) error {
	rejected := rejection{Possible: e.Possible(), NeedsTopUp: e.NeedsTopUp(), Limits: e.Statuses, RefusedBy: refusedBy(e), Remarks: remarks}
	after := e.RetryAfter()
	if after < zlimit.Never {
		seconds := grammar.Seconds(after)
		rejected.RetryAfterSeconds = &seconds
	}
	return sh.Print(rejected, func(p *show.Page) {
		switch {
		case !rejected.Possible:
			p.Linef("rejected by %v: more than the limit holds, it can never succeed", rejected.RefusedBy[0])
		case rejected.NeedsTopUp:
			by := e.Violations()[0]
			missing := show.Amount(by.Limit.Name, by.Requested+by.Kept-by.Available)
			p.Linef("rejected by %v: not enough until it is topped up, by at least %s", rejected.RefusedBy[0], missing)
		case wait.given:
			p.Linef("rejected by %v: the wait would be %v, until %s", rejected.RefusedBy[0], after, instant(sh.Now().Add(after)))
		default:
			p.Linef("rejected by %v, retry after %s", rejected.RefusedBy[0], show.Brief(after))
		}
		remarks.Print(p, e.Statuses, true)
	})
}

func admit(sh *shell.Shell, got granted, wait waitFlag) error {
	lease := got.lease
	rejected := admission{Admitted: true, Degraded: lease.Degraded(), Consumed: lease.Consumed()}
	if wait.given {
		seconds := grammar.Seconds(got.waited)
		rejected.WaitedSeconds = &seconds
	}
	return sh.Print(rejected, func(p *show.Page) {
		after := ""
		if got.waited > 0 {
			after = " after " + show.Brief(got.waited)
		}
		if rejected.Degraded {
			p.Linef("admitted%s uncounted, the store is unavailable", after)
			return
		}
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(rejected.Consumed)) {
			parts = append(parts, name+"="+show.Amount(name, rejected.Consumed[name]))
		}
		p.Linef("admitted%s, consumed %s", after, strings.Join(parts, " "))
	})
}

// waitFor takes the tokens of a request, and sleeps until they are there. On a terminal it first names the limit that
// it waits for.
func waitFor(ctx context.Context, sh *shell.Shell, l *zlimit.RateLimiter, r zlimit.Request, longest time.Duration) (granted, error) {
	start := sh.Now()
	reservation, err := l.Reserve(ctx, r, zlimit.MaxWait(longest))
	var exceeded *zlimit.ExceededError
	if errors.As(err, &exceeded) && exceeded.RetryAfter() <= longest { // nothing can be reserved of a quota that is used up
		noteWait(sh, refusedBy(exceeded), start.Add(exceeded.RetryAfter()))
		lease, err := l.Wait(ctx, r, zlimit.MaxWait(max(longest-sh.Now().Sub(start), 0)))
		return granted{lease, sh.Now().Sub(start)}, err
	}
	if err != nil {
		return granted{}, err
	}
	due := reservation.Due()
	if !due.After(sh.Now()) {
		lease, err := reservation.Wait(ctx)
		return granted{lease: lease}, err
	}
	if sh.Watch {
		noteWait(sh, queueOf(ctx, l, r), due)
	}
	lease, err := reservation.Wait(ctx)
	return granted{lease, sh.Now().Sub(start)}, err
}

// queueOf returns the limit with the longest queue of those that a request asks for. It returns none when the bucket
// cannot be read. The wait goes on all the same.
func queueOf(ctx context.Context, l *zlimit.RateLimiter, r zlimit.Request) (by []refusal) {
	q := zlimit.AvailableQuery{Entity: r.Entity, Resource: r.Resource, Limits: r.Limits, Parents: true}
	statuses, _ := l.Available(ctx, q)
	asked := r.Consume.AppendAmounts(nil)
	longest := time.Duration(0)
	for _, s := range statuses {
		asks := slices.ContainsFunc(asked, func(a zlimit.Amount) bool { return a.Limit == s.Limit.Name && a.Tokens > 0 })
		if asks && s.Queue > longest {
			longest, by = s.Queue, []refusal{{s.Limit.Name, s.Entity, s.Resource, s.Level(), s.Wider}}
		}
	}
	return by
}

// noteWait prints at a terminal which limit a request waits for, the first one, and when its tokens are due.
func noteWait(sh *shell.Shell, by []refusal, due time.Time) {
	if !sh.Watch {
		return
	}
	limit := ""
	if len(by) > 0 {
		limit = fmt.Sprintf(" for %v", by[0])
	}
	sh.Note(fmt.Sprintf("waiting%s: due in %s, at %s", limit, show.Brief(due.Sub(sh.Now())), instant(due)))
}

// instant returns a time to the millisecond, as the limiter counts it.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// An availability is the rest of the limits of an entity, and of the parents that it cascades to.
type availability struct {
	Entity   string          `json:"entity"`
	Resource string          `json:"resource"`
	Source   zlimit.Source   `json:"source"` // request for limits of the command line, "" for none of the entity's own
	Limits   zlimit.Statuses `json:"limits"`
	Least    []least         `json:"least"` // of each limit
	budgets.Remarks
}

// A least is the level with the least of a limit: it would refuse first.
type least struct {
	refusal
	Available int64 `json:"available"`
}

// leastOf returns the level that has least of each limit, the entity before its parents.
func leastOf(statuses zlimit.Statuses) (all []least) {
	for _, s := range statuses {
		found := least{refusal{s.Limit.Name, s.Entity, s.Resource, s.Level(), s.Wider}, s.Available}
		at := slices.IndexFunc(all, func(l least) bool { return l.Limit == s.Limit.Name })
		switch {
		case at < 0:
			all = append(all, found)
		case s.Available < all[at].Available:
			all[at] = found
		}
	}
	return all
}

// AvailableCommand returns the command available.
func AvailableCommand(sh *shell.Shell) *cobra.Command {
	var limits []string
	var parents bool
	cmd := &cobra.Command{
		Use:   "available ENTITY RESOURCE",
		Short: "Show what is left of each limit",
		Long: `Available shows the rest of each limit of an entity and a resource, as the store
has it now. It also shows the level of the limits. It shows the parents that the
entity cascades to, too, and which of them has less than the entity itself: that
is the one to refuse. An entity without limits of its own has those that its
requests are charged to. It consumes nothing.

The capacity of a budget is that of its running period. A budget that was raised
in it is named, with the time from which on the raise holds: the audit log and
usage have what the period began with.`,
		Example: `  zlimit available acme gpt
  zlimit available 10.0.0.7 login --limit tries=5/min
  zlimit available acme gpt -o json | jq '.limits[] | {limit, available}'`,
		Args: shell.Takes("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := zlimit.AvailableQuery{Entity: args[0], Resource: args[1], Parents: parents}
			var err error
			if q.Limits, err = shell.ParseLimits(limits); err != nil {
				return err
			}
			found, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (availability, error) {
				found, err := available(ctx, l, q)
				if err == nil && len(q.Limits) == 0 {
					found.Remarks = budgets.RemarksOf(ctx, l, found.Limits, sh.Now())
				}
				return found, err
			})
			if err != nil {
				return err
			}
			return sh.Print(found, found.write)
		},
	}
	cmd.Flags().StringArrayVar(&limits, "limit", nil, "`LIMIT` in place of the stored ones; repeatable")
	cmd.Flags().BoolVar(&parents, "parents", true, "show the parents, too")
	return cmd
}

func available(ctx context.Context, l *zlimit.RateLimiter, q zlimit.AvailableQuery) (found availability, err error) {
	found = availability{Entity: q.Entity, Resource: q.Resource, Source: "request"}
	if found.Limits, err = l.Available(ctx, q); err != nil {
		return found, rotation.Explain(ctx, l, err)
	}
	found.Least = leastOf(found.Limits)
	if len(q.Limits) > 0 {
		return found, nil
	}
	resolved, err := l.Limits.Resolve(ctx, q.Entity, q.Resource)
	if errors.Is(err, zlimit.ErrNoLimits) { // of the entity for the resource: others are charged
		resolved.Source, err = "", nil
	}
	found.Source = resolved.Source
	return found, err
}

func (a *availability) write(p *show.Page) {
	from := "no limits of its own: others are charged"
	if a.Source != "" {
		from = "limits of the level " + string(a.Source)
	}
	p.Linef("%s/%s, %s", a.Entity, a.Resource, from)
	a.Print(p, a.Limits, false)
	for _, l := range a.Least {
		if l.Level != "entity" {
			p.Linef("more than %s is refused by %v", show.Amount(l.Limit, max(l.Available, 0)), l.refusal)
		}
	}
}
