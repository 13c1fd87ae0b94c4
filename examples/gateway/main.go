// Command gateway stands between the teams of an organization and several providers of language models. README.md beside
// it says what it does, and how to try it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	_ "github.com/zlimit/zlimit-go/zlimit/sqlite" // for -store sqlite:PATH
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// run serves until the context ends.
func run(ctx context.Context, args []string, env func(string) string, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "localhost:8080", "`address` to serve on")
	store := flags.String("store", "memory:", "`data source name` of the limits")
	policy := zlimit.Allow
	flags.TextVar(&policy, "on-unavailable", policy, "`policy` while the store is unavailable, block or allow")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	limiter, err := open(ctx, *store, zlimit.WithFailurePolicy(policy), zlimit.WithLogger(logger))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, limiter.Close()) }()
	g, err := newGateway(limiter, providers(env), logger) //nolint:contextcheck // its handlers have the context of each request
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	return g.serve(ctx, listener)
}

// serve serves until the context ends, and until requests under way are answered and settled.
func (g *gateway) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: g, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(ctx), g.models.Wait(ctx))
}
