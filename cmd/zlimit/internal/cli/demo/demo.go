// Package demo has the command demo.
package demo

import (
	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/demo"
)

// Command returns the command demo.
func Command(sh *shell.Shell) *cobra.Command {
	var seed uint64
	length := demo.DefaultLength
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show in a few seconds what limits do to LLM traffic",
		Long: `Demo lets four API keys, one of them abusive, call a language model through
three replicas of a gateway that share one store in memory. Every request is
admitted by an estimate of its tokens, and settled by what it really took. Two
minutes of traffic pass in a few seconds, and come out the same for one --seed.

In the end the record of what was admitted is audited against the limits,
without asking the limiter.`,
		Example: `  zlimit demo
  zlimit demo --seed 7 --duration 10m`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("store") && sh.Store != shell.MemoryDSN {
				return shell.Usagef("demo: --store %s: the demo writes limits of its own, and runs on memory: alone", sh.Store)
			}
			if rule := demo.CheckLength(length); rule != "" {
				return shell.Usagef("demo: --duration %v: %s", length, rule)
			}
			return demo.Run(cmd.Context(), demo.Config{
				Seed: seed, Length: length,
				Stdout: sh.Stdout, JSON: sh.Output.JSON, Live: sh.Live, Colored: sh.Env("NO_COLOR") == "", Sleep: sh.Sleep,
			})
		},
	}
	cmd.Flags().Uint64Var(&seed, "seed", demo.DefaultSeed, "`number` that the traffic is drawn from")
	cmd.Flags().DurationVar(&length, "duration", length, "`duration` of the traffic")
	return cmd
}
