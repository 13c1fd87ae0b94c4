package namespaces

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// SetupCommand returns the command setup.
func SetupCommand(sh *shell.Shell) *cobra.Command {
	var settings zlimit.TableSettings
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Create the table, and register the namespace",
		Long: `Setup creates the table of a DynamoDB store, or the file of an SQLite store, and
registers the namespace. It changes nothing that is there, except to turn on the
expiry and the stream of a table: run it as often as you like. A store other
than DynamoDB sets itself up when it is first used, with the namespace
"default"; another namespace has to be registered.

The flags are settings of a new table. They leave a table that exists as it is.
With --mixed-fleet an existing table must have been made so, since DynamoDB
cannot change what an index holds.`,
		Example: `  zlimit setup --store 'dynamodb:limits?region=eu-central-1'
  zlimit setup --store dynamodb:limits --deletion-protection
  zlimit setup --store dynamodb:limits --namespace staging`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dsn, err := sh.Lasting()
			if err != nil {
				return err
			}
			type result struct {
				Store     string `json:"store"`
				Namespace string `json:"namespace"`
			}
			done, err := shell.Do(cmd.Context(), sh, func(context.Context, *zlimit.RateLimiter) (result, error) {
				return result{dsn, sh.Namespace}, nil
			}, zlimit.WithSetup(), zlimit.WithTable(settings), zlimit.WithLogger(slog.New(slog.NewTextHandler(sh.Stderr, nil))))
			if err != nil {
				return err
			}
			return sh.Print(done, func(p *show.Page) { p.Linef("%s is ready, with namespace %s", dsn, sh.Namespace) })
		},
	}
	flags := cmd.Flags()
	flags.Int64Var(&settings.WarmReadUnits, "warm-read-units", 0, "initial reads a second (default 12000)")
	flags.Int64Var(&settings.WarmWriteUnits, "warm-write-units", 0, "initial writes a second (default 4000)")
	flags.Int64Var(&settings.MaxReadUnits, "max-read-units", 0, "ceiling of reads a second (default none)")
	flags.Int64Var(&settings.MaxWriteUnits, "max-write-units", 0, "ceiling of writes a second (default none)")
	flags.BoolVar(&settings.MixedFleet, "mixed-fleet", false, "a table that zae-limiter uses as well")
	flags.BoolVar(&settings.DeletionProtection, "deletion-protection", false, "DynamoDB refuses to delete the table")
	return cmd
}
