package zlimit_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// closing returns a limiter in memory with work under way behind it, and the outcome of a Close that waits for that work. It
// lets prepare use the limiter before.
func closing(t *testing.T, prepare func(*zlimit.RateLimiter)) (l *zlimit.RateLimiter, closed <-chan error) {
	t.Helper()
	memory, err := zlimit.Memory()
	check.Fatal(t, "zlimit.Memory()", err)
	if l, err = zlimit.New(t.Context(), memory); err != nil {
		t.Fatalf("zlimit.New() = %v", err)
	}
	prepare(l)
	if !l.Engine().Begin() {
		t.Fatal("an open engine begins nothing")
	}
	outcome := make(chan error, 1)
	go func() { outcome <- errors.Join(l.Close(), memory.Close()) }()
	synctest.Wait()
	return l, outcome
}

// TestCloseWaitsForTheBackground closes a limiter while work is under way behind it (I12).
func TestCloseWaitsForTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, closed := closing(t, func(*zlimit.RateLimiter) {})
		select {
		case <-closed:
			t.Error("Close() returns before the work ends")
		default:
		}
		if l.Engine().Begin() {
			t.Error("a closed engine begins more")
		}
		l.Engine().End()
		check.Error(t, "Close()", <-closed)
	})
}

// TestLimitsAreReadWhileClosing reads limits while the limiter waits for work in the background, which may need them to settle,
// and not when all is done.
func TestLimitsAreReadWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, closed := closing(t, func(l *zlimit.RateLimiter) { setSystem(t, l, zlimit.PerDay("rpd", 100)) })
		if err := l.ReadLimits(t.Context(), "key-1", "gpt-4"); err != nil {
			t.Errorf("while the limiter is being closed limits are not read: %v", err)
		}
		l.Engine().End()
		check.Error(t, "Close()", <-closed)
		if err := l.ReadLimits(t.Context(), "key-2", "gpt-4"); !errors.Is(err, zlimit.ErrClosed) {
			t.Errorf("reading limits of a closed limiter = %v, want %v", err, zlimit.ErrClosed)
		}
	})
}
