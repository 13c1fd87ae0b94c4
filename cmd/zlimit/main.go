// Command zlimit keeps rate limits that many processes share. It sets limits, asks them, replays traces against them,
// and shows their effect in a demo. `zlimit --help` lists its commands.
//
// Under the name bootstrap it is the program of an AWS Lambda function that aggregates; docs/aggregator.md has more.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli"
)

func main() { os.Exit(run()) }

func run() int {
	if inLambda() {
		return cli.Lambda(context.Background(), os.Stderr, os.Getenv)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)
}

// inLambda reports whether the process is the program of a Lambda function. It checks the name of the program, or
// the environment in a container image, where the name may be another. A function of another program may run commands.
func inLambda() bool {
	return filepath.Base(os.Args[0]) == "bootstrap" || os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" && len(os.Args) == 1
}
