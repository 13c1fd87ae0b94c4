package buckets

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

func resetCommand(sh *shell.Shell) *cobra.Command {
	var r zlimit.ResetRequest
	var yes bool
	cmd := &cobra.Command{
		Use:   "reset {ENTITY RESOURCE | --resource R | --entity E} [--yes]",
		Short: "Refill a bucket, or all buckets of a resource or an entity",
		Long: `Reset fills a bucket, as if nothing was ever taken from it, for all its
limits or for those that --limit names. It forgives debts. Every process admits
by the full bucket immediately. What open leases give back later is not added.

With --resource it resets all buckets of the resource, and with --entity those
of an entity. It counts them, shows the cost, asks, and resets one after
another. With --yes it neither counts nor asks. It skips buckets without the
limits that --limit names.

With --operation, of several resets with one ID one is done for each bucket: a
reset that may have failed can be repeated, and one of many buckets goes on. An
audit event for each bucket says who did it.`,
		Example: `  zlimit bucket reset acme gpt
  zlimit bucket reset acme gpt --limit tpd --operation ticket-17
  zlimit bucket reset --resource gpt --limit tpd --operation ticket-18 --yes`,
		Args: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("resource") && !cmd.Flags().Changed("entity") {
				return shell.Takes("ENTITY", "RESOURCE")(cmd, args)
			}
			if len(args) > 0 {
				return shell.Usagef("bucket reset: --resource and --entity exclude ENTITY and RESOURCE, such as %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := shell.NotEmpty(cmd, "resource", "entity", "operation"); err != nil {
				return err
			}
			given := cmd.Flags().Changed
			if given("resource") || given("entity") {
				if given("resource") && given("entity") {
					return shell.Usagef("bucket reset: --resource excludes --entity: one bucket is named by ENTITY RESOURCE")
				}
				return resetAll(cmd.Context(), sh, r, yes)
			}
			if yes {
				return shell.Usagef("bucket reset: --yes is for --resource and --entity: one bucket is reset without a question")
			}
			r.Entity, r.Resource = args[0], args[1]
			charged := ""
			reset := func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.BucketChange, error) {
				if err := rotation.CheckBucket(ctx, l, r.Entity); err != nil {
					return zlimit.BucketChange{}, err
				}
				made, err := l.Limits.Reset(ctx, r)
				if err == nil && made.Shards == 0 {
					charged = chargedTo(ctx, l, r.Entity, r.Resource)
				}
				return made, err
			}
			check := func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.BucketChange, error) {
				all := r
				all.Limits = nil // which an empty store does not have
				return l.Limits.Reset(ctx, all)
			}
			err := change(cmd.Context(), sh, changed{Entity: r.Entity, Resource: r.Resource}, check, reset)
			if err == nil && charged != "" {
				sh.Note("note: " + r.Entity + "/" + r.Resource + " has no bucket" + charged)
			}
			return err
		},
	}
	cmd.Flags().StringArrayVar(&r.Limits, "limit", nil, "`NAME` of a limit; repeatable; all of them by default")
	cmd.Flags().StringVar(&r.OperationID, "operation", "", "`ID` under which it is done only once")
	cmd.Flags().StringVar(&r.Resource, "resource", "", "all buckets of a `resource`")
	cmd.Flags().StringVar(&r.Entity, "entity", "", "all buckets of an `entity`")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// A resetMany is the result of a reset of many buckets.
type resetMany struct {
	Entity   string `json:"entity,omitempty"`
	Resource string `json:"resource,omitempty"`
	zlimit.ResetReport
}

// resetAll prints what a reset of many buckets costs, asks, and resets them.
func resetAll(ctx context.Context, sh *shell.Shell, r zlimit.ResetRequest, yes bool) error {
	check := func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.ResetReport, error) {
		return l.Limits.ResetAll(ctx, r, nil)
	}
	dsn, err := shell.Prepare(ctx, sh, check)
	if err != nil {
		return err
	}
	if _, err := shell.Perform(ctx, sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (struct{}, error) {
		return struct{}{}, rotation.CheckBucket(ctx, l, r.Entity)
	}); err != nil {
		return err
	}
	about, scan := "resource "+r.Resource, sh.ScanCost(ctx)
	if r.Resource == "" {
		about, scan = "entity "+r.Entity, ""
	}
	what := "all limits"
	if len(r.Limits) > 0 {
		what = strings.Join(r.Limits, ", ")
	}
	p := &show.Page{}
	p.Linef("all buckets of %s are made full, %s: what was taken of them is forgiven", about, what)
	if scan != "" {
		p.Linef("%s", scan)
	}
	buckets, cost := resetCostText(ctx, sh, r, !yes)
	p.Linef("%s", cost)
	if err := sh.ToPeople(p); err != nil {
		return err
	}
	if err := sh.Confirm("Reset "+buckets+"?", yes); err != nil {
		return err
	}
	progress := sh.ProgressLine()
	defer progress.End()
	report, err := shell.Perform(ctx, sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.ResetReport, error) {
		return l.Limits.ResetAll(ctx, r, func(done zlimit.ResetReport) {
			progress.Show(show.Counted(done.Buckets, "bucket") + " reset")
		})
	})
	if err != nil {
		return shell.Unfinished(err, resetSoFar(report))
	}
	return sh.Print(resetMany{r.Entity, r.Resource, report}, func(p *show.Page) {
		p.Linef("%s, operation %s: %s reset", about, report.OperationID, show.Counted(report.Buckets, "bucket"))
		if report.Repeated > 0 {
			p.Linef("%s of them by an earlier call with that ID", show.Grouped(int64(report.Repeated)))
		}
		if report.Skipped > 0 {
			p.Linef("%s skipped, without the limits asked for", show.Counted(report.Skipped, "bucket"))
		}
	})
}

// resetSoFar says how many buckets an unfinished reset has reset, and how to go on; "" for none.
func resetSoFar(r zlimit.ResetReport) string {
	if r.Buckets == 0 {
		return ""
	}
	return fmt.Sprintf("%s reset; the same command with --operation %s goes on", show.Counted(r.Buckets, "bucket"), r.OperationID)
}

func topUpCommand(sh *shell.Shell) *cobra.Command {
	var r zlimit.TopUpRequest
	var add []string
	var until string
	cmd := &cobra.Command{
		Use:   "top-up ENTITY RESOURCE --add NAME=N ...",
		Short: "Add tokens to a bucket",
		Long: `Top-up adds tokens to limits of a bucket. It pays debts first, and reports
what it has added. Every process uses it immediately.

Tokens beyond the capacity end --until a time, such as 2026-03-01T15:04, which
is in UTC, or 2026-03-01T15:04:05+01:00, or a while from now on, such as 36h or
2d. Without --until, tokens of a quota end with its period, and a limit that
refills gets no more than its capacity.

With --operation, of several top-ups with one ID one is done: a top-up that may
have failed can be repeated, and ends when the first one said. An audit event
says who did it.`,
		Example: `  zlimit bucket top-up acme gpt --add tpd=50k --operation ticket-18
  zlimit bucket top-up acme gpt --add tpd=1M --until 2d`,
		Args: shell.Takes("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(add) == 0 {
				return shell.Usagef("bucket top-up: --add NAME=N is missing; see %s --help", cmd.CommandPath())
			}
			if err := shell.NotEmpty(cmd, "until", "operation"); err != nil {
				return err
			}
			r.Entity, r.Resource = args[0], args[1]
			if r.Amounts, err = shell.ParseAmounts("add", add); err != nil {
				return err
			}
			if until != "" {
				if r.Until, err = shell.ParseEnd("until", until, time.Now()); err != nil {
					return err
				}
			}
			topUp := func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.BucketChange, error) {
				if err := rotation.CheckBucket(ctx, l, r.Entity); err != nil {
					return zlimit.BucketChange{}, err
				}
				return l.Limits.TopUp(ctx, r)
			}
			check := func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.BucketChange, error) {
				made, err := l.Limits.TopUp(ctx, r)
				var invalid *zlimit.ValidationError
				if errors.As(err, &invalid) && (invalid.Field == "amounts" || invalid.Field == "until" && r.OperationID != "") { // an empty store has neither
					return made, nil
				}
				return made, err
			}
			return change(cmd.Context(), sh, changed{Entity: r.Entity, Resource: r.Resource, asked: r.Amounts}, check, topUp)
		},
	}
	cmd.Flags().StringArrayVar(&add, "add", nil, "`NAME=N`, tokens to add to a limit; repeatable")
	cmd.Flags().StringVar(&until, "until", "", "`END` of the tokens beyond the capacity, such as 36h")
	cmd.Flags().StringVar(&r.OperationID, "operation", "", "`ID` under which it is done only once")
	return cmd
}

// A changed bucket is the result of a manual operation.
type changed struct {
	Entity   string `json:"entity"`
	Resource string `json:"resource"`
	zlimit.BucketChange

	asked zlimit.Amounts // of a top-up
}

// change checks a manual operation, does it, and prints the new bucket. check is an operation that fails for invalid input before
// anything is written.
func change(ctx context.Context, sh *shell.Shell, made changed, check, do shell.Operation[zlimit.BucketChange]) error {
	dsn, err := shell.Prepare(ctx, sh, check)
	if err != nil {
		return err
	}
	if made.BucketChange, err = shell.Perform(ctx, sh, dsn, do); err != nil {
		return err
	}
	return sh.Print(made, func(p *show.Page) {
		for _, l := range made.Limits {
			end := ""
			if !l.Until.IsZero() {
				end = ", until " + shell.FormatMoment(l.Until)
			}
			before, after := textOf(l.Limit, l.Before), textOf(l.Limit, l.After)
			p.Linef("%s/%s %s: %s before, %s now%s%s", made.Entity, made.Resource, l.Limit, before, after, end, made.room(l))
		}
		switch {
		case made.Repeated:
			p.Linef("operation %s was done before", made.OperationID)
		case made.Shards == 0:
			p.Linef("%s/%s has no bucket yet, which counts as full", made.Entity, made.Resource)
		}
	})
}

// room says how much of a top-up found room, "" for all of it.
func (c *changed) room(l zlimit.LimitChange) string {
	asked, is := c.asked[l.Limit]
	if !is || l.Added >= zlimit.Quantity(asked)*zlimit.Token {
		return ""
	}
	return fmt.Sprintf(", %s of %s added: there is no more room", textOf(l.Limit, l.Added), show.Amount(l.Limit, asked))
}

// textOf returns what a limit has, in tokens or in money.
func textOf(limit string, q zlimit.Quantity) string {
	if limit == grammar.Money {
		return show.Amount(limit, q.Tokens())
	}
	return q.String()
}
