// Command gateway stands between the teams of an organization and several providers of language models. README.md
// beside it explains its use.
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

	"github.com/zlimit/zlimit-go/otelzlimit"
	"github.com/zlimit/zlimit-go/zlimit"
	_ "github.com/zlimit/zlimit-go/zlimit/dynamo" // for -store dynamodb:TABLE
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
	operate := flags.String("operate", "localhost:8081", "`address` to serve /metrics and /ready on, apart from the tenants")
	store := flags.String("store", "memory:", "`data source name` of the limits")
	keys := flags.String("keys", "", "`file` of virtual keys; the public ones of the example without")
	drain := flags.Duration("drain", 0, "`time` to serve on after a signal, while /ready says no")
	newFor := flags.String("new-key", "", "print a new key for a `team` and its entry in the file of keys, and end")
	policy := zlimit.PolicyAllow
	flags.TextVar(&policy, "on-unavailable", policy, "`policy` while the store is unavailable, block or allow")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	if *newFor != "" {
		secret, entry, err := newKey(*newFor)
		_, _ = fmt.Fprintf(stderr, "%s\n%s\n", secret, entry)
		return err
	}
	ring, err := newKeyring(demoKeys)
	if *keys != "" {
		ring, err = readKeyring(*keys)
	}
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	meters, metrics, err := newMetrics()
	if err != nil {
		return err
	}
	observer, err := otelzlimit.New(meters)
	if err != nil {
		return err
	}
	limiter, err := open(ctx, *store, zlimit.WithFailurePolicy(policy), zlimit.WithLogger(logger), zlimit.WithObserver(observer))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, limiter.Close()) }()
	g, err := newGateway(limiter, ring, providers(env), meters, metrics, logger)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	operators, err := new(net.ListenConfig).Listen(ctx, "tcp", *operate)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	return g.serve(ctx, listener, operators, *drain)
}

// serve serves until the context ends, and until requests under way are answered and settled. Meanwhile it reports
// itself as not ready, so a load balancer sends no more; drain is the length of that time.
func (g *gateway) serve(ctx context.Context, listener, operators net.Listener, drain time.Duration) error {
	server := &http.Server{Handler: g, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	beside := &http.Server{Handler: g.operators, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	defer beside.Close() //nolint:errcheck // nothing is under way that anyone waits for
	failed := make(chan error, 2)
	go func() { failed <- server.Serve(listener) }()
	go func() { failed <- beside.Serve(operators) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	g.draining.Store(true)
	select {
	case err := <-failed:
		return err
	case <-time.After(drain):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	err := server.Shutdown(ctx)
	for _, transport := range g.models {
		err = errors.Join(err, transport.Wait(ctx))
	}
	return err
}
