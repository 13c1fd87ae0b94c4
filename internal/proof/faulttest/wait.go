package faulttest

import (
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
