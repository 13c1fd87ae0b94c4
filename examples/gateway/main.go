// Command gateway stands between tenants and a language model, and keeps each of them within its limits: an estimate is
// taken before the model is asked, and settled by what the answer took. It is an example of package zlimit; its model is
// made up.
//
//	go run ./examples/gateway
//	curl -H 'X-Tenant: acme-search' -d '{"model":"small","prompt":"Why is the sky blue?","max_tokens":50}' localhost:8080/v1/chat
//
// With -store sqlite:limits.db or -store dynamodb:limits several of them share the limits. With -summarize it is a batch
// job that goes by the same limits:
//
//	go run ./examples/gateway -store sqlite:limits.db -summarize monday.txt tuesday.txt
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
	"github.com/zlimit/zlimit-go/zlimit/blocking"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// run serves until the context ends, or summarizes files.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "localhost:8080", "`address` to serve on")
	store := flags.String("store", "memory:", "`data source name` of the limits")
	batch := flags.Bool("summarize", false, "summarize the files that are named, and end")
	policy := zlimit.Allow
	flags.Func("on-unavailable", "`policy` while the store is unavailable, block or allow (default allow)",
		func(name string) (err error) {
			policy, err = zlimit.ParseFailurePolicy(name)
			return err
		})
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
	if *batch {
		s := summarizer{limiter: blocking.Wrap(limiter), model: fakeModel, sleep: time.Sleep}
		return s.run(flags.Args(), stdout) //nolint:contextcheck // it knows none
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	return serve(ctx, listener, &gateway{limiter: limiter, model: fakeModel, logger: logger})
}

// serve serves until the context ends, and until requests under way are answered and settled.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return server.Shutdown(ctx)
}
