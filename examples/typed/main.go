// Command typed answers chats over HTTP, within limits that it declares in llm/limits.yaml. Misspelling one of them, or
// consuming a limit of another model, does not compile.
//
//	go run ./examples/typed -store sqlite:limits.db &
//	curl -i -H 'X-API-Key: alice' -d 'Why is the sky blue?' localhost:8080
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/examples/typed/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	_ "github.com/zlimit/zlimit-go/zlimit/dynamo" // for -store dynamodb:TABLE
	_ "github.com/zlimit/zlimit-go/zlimit/sqlite" // for -store sqlite:PATH
)

func main() {
	dsn := flag.String("store", "memory:", "where the limits are kept")
	addr := flag.String("addr", "localhost:8080", "where to listen")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	if err := run(context.Background(), *dsn, listener); err != nil {
		log.Fatal(err)
	}
}

// run serves until it is interrupted, or the context ends.
func run(ctx context.Context, dsn string, listener net.Listener) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	limiter, err := zlimit.Open(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, limiter.Close()) }()
	if err := declare(ctx, limiter); err != nil {
		return err
	}
	server := &http.Server{Handler: &chat{limiter, parrot}, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // work under way is lost, and its tokens come back with the refill
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// declare brings the stored limits in line with limits.yaml, except for those that an operator has set.
func declare(ctx context.Context, limiter *zlimit.RateLimiter) error {
	applied, err := limiter.Limits.Apply(ctx, llm.Declared()...)
	for _, resource := range applied.Set {
		log.Printf("the limits of %s are as declared now", resource)
	}
	for _, resource := range applied.Kept {
		log.Printf("the limits of %s are not as declared: an operator has set others", resource)
	}
	return err
}

// A model answers a prompt, and returns how many tokens that took.
type model func(ctx context.Context, prompt string) (answer string, tokens int64, err error)

// parrot stands in for a model that costs money.
func parrot(_ context.Context, prompt string) (string, int64, error) {
	return prompt + "!", 2 * estimate(prompt), nil
}

// chat is the handler: the API key of the request is who consumes.
type chat struct {
	limiter *zlimit.RateLimiter
	model   model
}

func (c *chat) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	prompt, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := c.answer(r.Context(), r.Header.Get("X-API-Key"), string(prompt))
	var exceeded *zlimit.ExceededError
	var invalid *zlimit.ValidationError
	switch {
	case err == nil:
		_, _ = io.WriteString(w, answer+"\n") // the client has gone
	case errors.As(err, &exceeded):
		if wait := exceeded.RetryAfterHeader(); wait != "" {
			w.Header().Set("Retry-After", wait)
		}
		http.Error(w, err.Error(), http.StatusTooManyRequests)
	case errors.As(err, &invalid):
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// answer asks the model for an answer, and settles the real usage.
func (c *chat) answer(ctx context.Context, key, prompt string) (answer string, err error) {
	guess := estimate(prompt)
	request := zlimit.Request{Entity: key, Consume: llm.GPT4o{RPM: 1, TPM: guess}}
	err = c.limiter.Do(ctx, request, func(ctx context.Context, lease *zlimit.Lease) error {
		text, tokens, err := c.model(ctx, prompt)
		if err != nil {
			return err
		}
		answer = text
		return lease.Adjust(llm.GPT4o{TPM: tokens - guess})
	})
	return answer, err
}

// estimate returns about how many tokens a text has.
func estimate(text string) int64 { return int64(len(strings.Fields(text))) + 1 }
