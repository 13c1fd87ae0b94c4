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

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// AcquireCommand returns the command acquire.
func AcquireCommand(sh *shell.Shell) *cobra.Command {
	var consume, limits []string
	var policy string
	cmd := &cobra.Command{
		Use:   "acquire ENTITY RESOURCE --consume NAME=N ...",
		Short: "Consume tokens, of all limits or of none",
		Long: `Acquire consumes tokens of a resource on behalf of an entity, of all the limits
that it names or of none. It exits with 0 when the request is admitted, and with
3 when it is rejected; the result then says of each limit how long to wait.

The limits are those that are stored for the entity and the resource. --limit
replaces them for this request; it is written NAME=CAPACITY[:REFILL]/PERIOD, as
explained by zlimit limits --help.

While the store is unavailable the request fails, unless --on-unavailable allow
admits it uncounted.`,
		Example: `  zlimit acquire acme gpt --consume rpm=1 --consume tpm=1500
  zlimit acquire 10.0.0.7 login --consume tries=1 --limit tries=5/min
  zlimit acquire acme gpt --consume rpm=1 && call-the-model`,
		Args: shell.Takes("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := zlimit.Request{Entity: args[0], Resource: args[1]}
			var err error
			if len(consume) == 0 {
				return shell.Usagef("acquire: --consume NAME=N is missing; see %s --help", cmd.CommandPath())
			}
			if r.Consume, err = shell.ParseAmounts(consume); err != nil {
				return err
			}
			if r.Limits, err = shell.ParseLimits(limits); err != nil {
				return err
			}
			if r.OnUnavailable, err = zlimit.ParseFailurePolicy(policy); err != nil {
				return err
			}
			return acquire(cmd.Context(), sh, r)
		},
	}
	cmd.Flags().StringArrayVar(&consume, "consume", nil, "`NAME=N`, tokens to consume of a limit; repeatable")
	cmd.Flags().StringArrayVar(&limits, "limit", nil, "`LIMIT` in place of the stored ones; repeatable")
	cmd.Flags().StringVar(&policy, "on-unavailable", zlimit.PolicyInherit.String(),
		"outage `policy`: block, allow")
	return cmd
}

// An admission is the result of a request that was admitted.
type admission struct {
	Admitted bool           `json:"admitted"`
	Degraded bool           `json:"degraded"` // uncounted, during an outage
	Consumed zlimit.Amounts `json:"consumed"`
}

// A rejection is the result of a request that was not.
type rejection struct {
	Admitted          bool            `json:"admitted"`
	Possible          bool            `json:"possible"`
	RetryAfterSeconds *json.Number    `json:"retry_after_seconds"` // null for never
	RefusedBy         []refusal       `json:"refused_by"`          // the strictest first
	Limits            zlimit.Statuses `json:"limits"`
}

// A refusal is a limit that refuses a request, and whose it is.
type refusal struct {
	Limit    string `json:"limit"`
	Entity   string `json:"entity"`
	Resource string `json:"resource"`
	Level    string `json:"level"` // of the entity: entity, parent, parent2 and so on
}

// refusedBy returns the limits that refuse a request.
func refusedBy(e *zlimit.ExceededError) (by []refusal) {
	for _, s := range e.Violations() {
		by = append(by, refusal{s.Limit.Name, s.Entity, s.Resource, s.Level()})
	}
	return by
}

// String names the limit and whose it is.
func (r refusal) String() string {
	if r.Level == "entity" {
		return fmt.Sprintf("%s of %s", r.Limit, r.Entity)
	}
	return fmt.Sprintf("%s of %s, its %s", r.Limit, r.Entity, r.Level)
}

func acquire(ctx context.Context, sh *shell.Shell, r zlimit.Request) error {
	lease, err := shell.Do(ctx, sh, func(ctx context.Context, l *zlimit.RateLimiter) (*zlimit.Lease, error) {
		return l.Acquire(ctx, r)
	}, zlimit.WithFailurePolicy(r.OnUnavailable)) // for an outage that is there already
	var exceeded *zlimit.ExceededError
	switch {
	case errors.As(err, &exceeded):
		e := exceeded
		told := rejection{Possible: e.Possible(), Limits: e.Statuses, RefusedBy: refusedBy(e)}
		if wait := e.RetryAfter(); wait < zlimit.Never {
			seconds := grammar.Seconds(wait)
			told.RetryAfterSeconds = &seconds
		}
		err := sh.Print(told, func(p *show.Page) {
			if e.Possible() {
				p.Linef("rejected by %v, retry after %s", told.RefusedBy[0], show.Brief(e.RetryAfter()))
			} else {
				p.Linef("rejected by %v: more than the limit holds, it can never succeed", told.RefusedBy[0])
			}
			p.Statuses(e.Statuses, true)
		})
		return errors.Join(err, shell.ErrRejected)
	case err != nil:
		return err
	}
	return sh.Print(admission{true, lease.Degraded(), lease.Consumed()}, func(p *show.Page) {
		if lease.Degraded() {
			p.Linef("admitted uncounted, the store is unavailable")
			return
		}
		var parts []string
		consumed := lease.Consumed()
		for _, name := range slices.Sorted(maps.Keys(consumed)) {
			parts = append(parts, fmt.Sprintf("%s=%d", name, consumed[name]))
		}
		p.Linef("admitted, consumed %s", strings.Join(parts, " "))
	})
}

// An availability is what is left of the limits of an entity, and of the parents that it cascades to.
type availability struct {
	Entity   string          `json:"entity"`
	Resource string          `json:"resource"`
	Source   zlimit.Source   `json:"source"` // request for limits of the command line
	Limits   zlimit.Statuses `json:"limits"`
	Least    []least         `json:"least"` // of each limit
}

// A least is the level that has least of a limit, which is the first to refuse.
type least struct {
	refusal
	Available int64 `json:"available"`
}

// leastOf returns the level that has least of each limit, the entity before its parents.
func leastOf(statuses zlimit.Statuses) (all []least) {
	for _, s := range statuses {
		found := least{refusal{s.Limit.Name, s.Entity, s.Resource, s.Level()}, s.Available}
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
		Long: `Available shows what is left of each limit of an entity and a resource, as the
store has it now, and the level that the limits come from. It shows the parents
that the entity cascades to, too, and which of them has less than the entity
itself: that is the one to refuse. It consumes nothing.`,
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
				return available(ctx, l, q)
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

// available looks at what is left.
func available(ctx context.Context, l *zlimit.RateLimiter, q zlimit.AvailableQuery) (found availability, err error) {
	found = availability{Entity: q.Entity, Resource: q.Resource, Source: "request"}
	if found.Limits, err = l.Available(ctx, q); err != nil {
		return found, err
	}
	found.Least = leastOf(found.Limits)
	if len(q.Limits) > 0 {
		return found, nil
	}
	resolved, err := l.Limits.Resolve(ctx, q.Entity, q.Resource)
	found.Source = resolved.Source
	return found, err
}

// write writes what is left for people.
func (a *availability) write(p *show.Page) {
	p.Linef("%s/%s, limits of the level %s", a.Entity, a.Resource, a.Source)
	p.Statuses(a.Limits, false)
	for _, l := range a.Least {
		if l.Level != "entity" {
			p.Linef("more than %s is refused by %v", show.Grouped(max(l.Available, 0)), l.refusal)
		}
	}
}
