package cli

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/zlimit"
)

func (a *app) setupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "setup",
		Short: "Create the table, and register the namespace",
		Long: `Setup creates the table of a DynamoDB store, or the file of an SQLite store, and
registers the namespace. It changes nothing that is there: run it as often as
you like. A store other than DynamoDB sets itself up when it is first used.`,
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

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  takes(),
		RunE: func(*cobra.Command, []string) error {
			type version struct {
				Version  string `json:"version"`
				Revision string `json:"revision,omitempty"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}
			v := version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			if build, ok := debug.ReadBuildInfo(); ok {
				if build.Main.Version != "" {
					v.Version = build.Main.Version
				}
				for _, s := range build.Settings {
					if s.Key == "vcs.revision" {
						v.Revision = s.Value
					}
				}
			}
			return a.print(v, func(p *page) { p.linef("zlimit %s %s %s", v.Version, v.Go, v.Platform) })
		},
	}
}
