package buckets

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

func resetCommand(sh *shell.Shell) *cobra.Command {
	var r zlimit.ResetRequest
	cmd := &cobra.Command{
		Use:   "reset ENTITY RESOURCE",
		Short: "Make a bucket full again",
		Long: `Reset makes a bucket full again, as if nothing was ever taken of it, for all its
limits or for those that --limit names. It forgives debts. Every process admits
by the full bucket at once. What open leases give back later is not added.

With --operation, of several resets with one ID one is done: a reset that may
have failed can be repeated. An audit event tells who did it.`,
		Example: `  zlimit bucket reset acme gpt
  zlimit bucket reset acme gpt --limit tpd --operation ticket-17`,
		Args: shell.Takes("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Entity, r.Resource = args[0], args[1]
			reset := func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.BucketChange, error) {
				return l.Limits.Reset(ctx, r)
			}
			check := func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.BucketChange, error) {
				all := r
				all.Limits = nil // which an empty store does not have
				return l.Limits.Reset(ctx, all)
			}
			return change(cmd.Context(), sh, check, reset)
		},
	}
	cmd.Flags().StringArrayVar(&r.Limits, "limit", nil, "`NAME` of a limit; repeatable; all of them by default")
	cmd.Flags().StringVar(&r.OperationID, "operation", "", "`ID`, such as that of a ticket, under which it is done once")
	return cmd
}

func topUpCommand(sh *shell.Shell) *cobra.Command {
	var r zlimit.TopUpRequest
	var add []string
	var until string
	cmd := &cobra.Command{
		Use:   "top-up ENTITY RESOURCE --add NAME=N ...",
		Short: "Add tokens to a bucket",
		Long: `Top-up adds tokens to limits of a bucket. It pays debts first, and tells what it
has added. Every process admits by it at once.

Tokens beyond the capacity end --until a time, such as 2026-03-01T15:04, which
is in UTC, or 2026-03-01T15:04:05+01:00, or a while from now on, such as 36h or
2d. Without --until, those of a quota end with its period, and a limit that
refills gets no more than its capacity.

With --operation, of several top-ups with one ID one is done: a top-up that may
have failed can be repeated. An audit event tells who did it.`,
		Example: `  zlimit bucket top-up acme gpt --add tpd=50k --operation ticket-18
  zlimit bucket top-up acme gpt --add tpd=1M --until 2d`,
		Args: shell.Takes("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(add) == 0 {
				return shell.Usagef("bucket top-up: --add NAME=N is missing; see %s --help", cmd.CommandPath())
			}
			r.Entity, r.Resource = args[0], args[1]
			if r.Amounts, err = shell.ParseAmounts(add); err != nil {
				return err
			}
			if until != "" {
				if r.Until, err = shell.ParseEnd("until", until, time.Now()); err != nil {
					return err
				}
			}
			topUp := func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.BucketChange, error) {
				return l.Limits.TopUp(ctx, r)
			}
			check := func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.BucketChange, error) {
				made, err := l.Limits.TopUp(ctx, r)
				var invalid *zlimit.ValidationError
				if errors.As(err, &invalid) && invalid.Field == "amounts" { // an empty store has none
					return made, nil
				}
				return made, err
			}
			return change(cmd.Context(), sh, check, topUp)
		},
	}
	cmd.Flags().StringArrayVar(&add, "add", nil, "`NAME=N`, tokens to add to a limit; repeatable")
	cmd.Flags().StringVar(&until, "until", "", "`END` of what the capacity does not hold: a time, or a while from now on")
	cmd.Flags().StringVar(&r.OperationID, "operation", "", "`ID`, such as that of a ticket, under which it is done once")
	return cmd
}

// change checks an operation by hand, does it, and prints the new bucket. The input breaks no rule, as far as another
// one tells.
func change(ctx context.Context, sh *shell.Shell, check, do shell.Operation[zlimit.BucketChange]) error {
	dsn, err := sh.Lasting()
	if err != nil {
		return err
	}
	if err := shell.Prepare(ctx, sh, dsn, check); err != nil {
		return err
	}
	made, err := shell.Perform(ctx, sh, dsn, do)
	if err != nil {
		return err
	}
	return sh.Print(made, func(p *show.Page) {
		for _, l := range made.Limits {
			end := ""
			if !l.Until.IsZero() {
				end = ", until " + shell.FormatMoment(l.Until)
			}
			if l.Limit == grammar.Money {
				p.Linef("%s: %s before, %s now%s", l.Limit, show.Amount(l.Limit, l.Before.Tokens()), show.Amount(l.Limit, l.After.Tokens()), end)
				continue
			}
			p.Linef("%s: %v before, %v now%s", l.Limit, l.Before, l.After, end)
		}
		switch {
		case made.Repeated:
			p.Linef("operation %s was done before", made.OperationID)
		case made.Shards == 0:
			p.Linef("there is no bucket yet, which counts as full")
		}
	})
}
