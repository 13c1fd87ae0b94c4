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
	cmd.Flags().StringVar(&policy, "on-unavailable", zlimit.Inherit.String(),
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
	RetryAfterSeconds json.Number     `json:"retry_after_seconds"`
	Limits            zlimit.Statuses `json:"limits"`
}

func acquire(ctx context.Context, sh *shell.Shell, r zlimit.Request) error {
	dsn, err := sh.Lasting()
	if err != nil {
		return err
	}
	lease, err := shell.Do(ctx, sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (*zlimit.Lease, error) {
		return l.Acquire(ctx, r)
	}, zlimit.WithFailurePolicy(r.OnUnavailable)) // for an outage that is there already
	var exceeded *zlimit.ExceededError
	switch {
	case errors.As(err, &exceeded):
		e := exceeded
		err := sh.Print(rejection{false, e.Possible(), grammar.Seconds(e.RetryAfter()), e.Statuses}, func(p *show.Page) {
			if e.Possible() {
				p.Linef("rejected, retry after %s", show.Brief(e.RetryAfter()))
			} else {
				p.Linef("rejected: more than the limit holds, it can never succeed")
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

// AvailableCommand returns the command available.
func AvailableCommand(sh *shell.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "available ENTITY RESOURCE",
		Short: "Show what is left of each limit",
		Long: `Available shows what is left of each limit of an entity and a resource, as the
store has it now, and the level that the limits come from. It consumes nothing.`,
		Example: `  zlimit available acme gpt
  zlimit available acme gpt -o json | jq '.limits[] | {limit, available}'`,
		Args: shell.Takes("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dsn, err := sh.Lasting()
			if err != nil {
				return err
			}
			type result struct {
				Entity   string          `json:"entity"`
				Resource string          `json:"resource"`
				Source   zlimit.Source   `json:"source"`
				Limits   zlimit.Statuses `json:"limits"`
			}
			found, err := shell.Look(cmd.Context(), sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (result, error) {
				r := result{Entity: args[0], Resource: args[1]}
				var err error
				if r.Limits, err = l.Available(ctx, r.Entity, r.Resource); err != nil {
					return r, err
				}
				resolved, err := l.Limits.Resolve(ctx, r.Entity, r.Resource)
				r.Source = resolved.Source
				return r, err
			})
			if err != nil {
				return err
			}
			return sh.Print(found, func(p *show.Page) {
				p.Linef("%s/%s, limits of the level %s", found.Entity, found.Resource, found.Source)
				p.Statuses(found.Limits, false)
			})
		},
	}
}
