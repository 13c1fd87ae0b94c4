// Command demo is zlimit demo on its own. It links the store in memory and nothing of the command, AWS or SQLite, so it
// compiles in a fraction of the time.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/demo"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

func main() { os.Exit(run()) }

func run() int {
	c := demo.Config{
		Stdout: os.Stdout, Sleep: wait.For,
		Live: show.IsTerminal(os.Stdout) && os.Getenv("TERM") != "dumb", Colored: os.Getenv("NO_COLOR") == "",
	}
	flag.Uint64Var(&c.Seed, "seed", demo.DefaultSeed, "`number` that the traffic is drawn from")
	flag.DurationVar(&c.Length, "duration", demo.DefaultLength, "`duration` of the traffic")
	flag.Parse()
	if rule := demo.CheckLength(c.Length); rule != "" {
		fmt.Fprintf(os.Stderr, "demo: -duration %v: %s\n", c.Length, rule)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := demo.Run(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	return 0
}
