// Command zlimit keeps rate limits that many processes share: it sets them, asks them, replays traces against them, and
// shows in a demo what they do. `zlimit --help` lists its commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/zlimit/zlimit-go/internal/cli"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)
}
