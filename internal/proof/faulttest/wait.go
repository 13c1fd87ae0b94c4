package faulttest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// CheckWaits checks that the calls of an integration wait for their tokens. The limit is one a minute, and each call
// waits a minute at most. The first one need not wait, the second one waits a minute, and one that comes meanwhile is
// refused.
func CheckWaits(t *testing.T, clock *zlimittest.Clock, call func() error) {
	t.Helper()
	if err := call(); err != nil {
		t.Fatalf("the first call: %v", err)
	}
	waited := make(chan error)
	go func() { waited <- call() }()
	for deadline := time.Now().Add(10 * time.Second); clock.Sleeping() == 0; {
		select {
		case err := <-waited:
			t.Fatalf("the second call does not wait: %v", err)
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the second call does not sleep")
		}
	}
	if err := call(); !errors.As(err, new(*zlimit.ExceededError)) {
		t.Errorf("a call that would wait for two minutes: %v", err)
	}
	clock.Advance(time.Minute)
	if err := <-waited; err != nil {
		t.Errorf("a call that has waited: %v", err)
	}
}

// CheckLeavers checks a server whose calls wait, after [CheckWaits]: a call whose client leaves gives its tokens back, and one whose
// deadline comes before its turn is refused immediately, where the protocol sends deadlines. The next call gets what both left.
func CheckLeavers(t *testing.T, limiter *zlimit.RateLimiter, clock *zlimittest.Clock, sendsDeadlines bool, call func(ctx context.Context) error) {
	t.Helper()
	until := func(text string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(text)
			}
		}
	}
	before := limiter.Stats()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	gone := make(chan error)
	go func() { gone <- call(ctx) }()
	until("the call of a client that leaves does not sleep", func() bool { return clock.Sleeping() > 0 })
	leave()
	if err := <-gone; err == nil || errors.As(err, new(*zlimit.ExceededError)) {
		t.Errorf("a call whose client leaves = %v", err)
	}
	until("the server does not hear that its client leaves", func() bool { return limiter.Stats().Abandoned > before.Abandoned })
	if sendsDeadlines {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := call(ctx); !errors.As(err, new(*zlimit.ExceededError)) {
			t.Errorf("a call with a deadline before its turn = %v, want a rejection", err)
		}
		if ctx.Err() != nil {
			t.Error("a call with a deadline before its turn waits for it")
		}
	}
	clock.Advance(time.Minute)
	if err := call(t.Context()); err != nil { // which has the place
		t.Errorf("the next call = %v", err)
	}
	if stats := limiter.Stats(); stats.Abandoned != before.Abandoned+1 || stats.Waited != before.Waited {
		t.Errorf("%d more gave up, and %d more have waited, want 1 and 0", stats.Abandoned-before.Abandoned, stats.Waited-before.Waited)
	}
}
