package usage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/zlimit"
)

// AggregateCommand returns the command aggregate.
func AggregateCommand(sh *shell.Shell) *cobra.Command {
	var health string
	var skip bool
	var poll time.Duration
	var all bool
	var name string
	cmd := &cobra.Command{
		Use:   "aggregate",
		Short: "Sum up usage from the changes of a table, until interrupted",
		Long: `Aggregate reads the changes of a table and sums them up into snapshots of usage,
for all namespaces. It runs until it gets an interrupt or SIGTERM; then it
finishes what is under way and ends with exit code 0.

Run as many as you like: they share the work, and one takes over what another
leaves behind. What happens is logged to the standard error as lines of JSON.

On DynamoDB it reads the changes once a minute, since each batch of changes
costs writes; --poll says otherwise. Usage of hours is behind by that time. Days
and months get an hour some 15 to 20 minutes after its end. With --all-windows
they are as new as hours, and cost more writes.

A process that ends without notice is replaced after half a minute. With a
lasting --name, such as that of a pod of a StatefulSet, the next process goes
on immediately. No two may have one at a time.

With --health it answers GET /healthz with its progress: status 200, or 503 when
it cannot go on.`,
		Example: `  zlimit aggregate --store 'dynamodb:limits?region=eu-central-1' --health :8080
  zlimit aggregate --store sqlite:limits.db`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkAddress(health); err != nil {
				return err
			}
			if poll < 0 {
				return shell.Usagef("aggregate: invalid --poll %v: must not be negative", poll)
			}
			dsn, err := sh.Lasting()
			if err != nil {
				return err
			}
			s, err := zlimit.OpenStore(cmd.Context(), dsn)
			if err != nil {
				return sh.Advise(err, dsn)
			}
			logger := slog.New(slog.NewJSONHandler(sh.Stderr, nil))
			opts := []aggregator.Option{aggregator.WithLogger(logger), aggregator.WithPoll(poll)}
			if skip {
				opts = append(opts, aggregator.WithSkipping())
			}
			if all {
				opts = append(opts, aggregator.WithoutRollUp())
			}
			if name != "" {
				opts = append(opts, aggregator.WithName(name))
			}
			worker, err := aggregator.New(s, opts...)
			if err == nil {
				err = runAnswering(cmd.Context(), worker, health, logger)
			}
			return errors.Join(sh.Advise(err, dsn), s.Close())
		},
	}
	cmd.Flags().StringVar(&health, "health", "", "`address` to answer health checks at, such as :8080")
	cmd.Flags().DurationVar(&poll, "poll", 0, "`pause` once all changes are read, such as 10s\n(default 1m on DynamoDB, 1s elsewhere)")
	cmd.Flags().StringVar(&name, "name", "", "`name` of this process, which no other one has\n(default one that is made at random)")
	cmd.Flags().BoolVar(&all, "all-windows", false, "write days and months with every batch, not hourly")
	cmd.Flags().BoolVar(&skip, "skip", false, "log changes that are permanently rejected, and continue")
	return cmd
}

// checkAddress returns an error for an address that nothing can listen at.
func checkAddress(address string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return shell.Usagef("aggregate: invalid --health %q: must be HOST:PORT or :PORT, such as :8080", address)
	}
	return nil
}

// runAnswering runs an aggregator, and answers health checks at an address, if there is one, meanwhile.
func runAnswering(ctx context.Context, worker *aggregator.Aggregator, health string, logger *slog.Logger) error {
	if health == "" {
		return worker.Run(ctx)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", health)
	if err != nil {
		return fmt.Errorf("answer health checks: %w", err)
	}
	logger.Info("zlimit: answers health checks", "address", listener.Addr().String())
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", worker)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until it is closed
	}()
	err = worker.Run(ctx)
	_ = server.Close()
	<-done
	return err
}
