package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/zlimit"
)

func (a *app) setupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "setup",
		Short: "Create the table, and register the namespace",
		Long: `Setup creates the table of a DynamoDB store, or the file of an SQLite store, and
registers the namespace. It changes nothing that is there: run it as often as
you like. A store other than DynamoDB sets itself up when it is first used, with
the namespace "default"; another namespace has to be registered.`,
		Example: `  zlimit setup --store 'dynamodb:limits?region=eu-central-1'
  zlimit setup --store dynamodb:limits --namespace staging`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dsn, err := a.lasting()
			if err != nil {
				return err
			}
			type result struct {
				Store     string `json:"store"`
				Namespace string `json:"namespace"`
			}
			done, err := on(cmd.Context(), a, dsn, func(context.Context, *zlimit.RateLimiter) (result, error) {
				return result{dsn, a.namespace}, nil
			}, zlimit.WithSetup())
			if err != nil {
				return err
			}
			return a.print(done, func(p *page) { p.linef("%s is ready, with namespace %s", dsn, a.namespace) })
		},
	}
}
