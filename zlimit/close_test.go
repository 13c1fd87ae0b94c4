package zlimit_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/zlimit/zlimit-go/zlimit"
)

// TestCloseWaitsForTheBackground closes a limiter while work is under way behind it (I12).
func TestCloseWaitsForTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := zlimit.Memory()
		if err != nil {
			t.Fatal(err)
		}
		l, err := zlimit.New(t.Context(), memory)
		if err != nil {
			t.Fatal(err)
		}
		if !l.Engine().Begin() {
			t.Fatal("an open engine begins nothing")
		}
		closed := make(chan error, 1)
		go func() { closed <- l.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close() returns before the work ends")
		default:
		}
		if l.Engine().Begin() {
			t.Error("a closed engine begins more")
		}
		l.Engine().End()
		if err := errors.Join(<-closed, memory.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestLimitsAreReadWhileClosing reads limits while the limiter waits for work in the background, which may need them to settle,
// and not when all is done.
func TestLimitsAreReadWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := zlimit.Memory()
		if err != nil {
			t.Fatal(err)
		}
		l, err := zlimit.New(t.Context(), memory)
		if err != nil {
			t.Fatal(err)
		}
		setSystem(t, l, zlimit.PerDay("rpd", 100))
		if !l.Engine().Begin() {
			t.Fatal("an open engine begins nothing")
		}
		closed := make(chan error, 1)
		go func() { closed <- l.Close() }()
		synctest.Wait()
		if err := l.ReadLimits(t.Context(), "key-1", "gpt-4"); err != nil {
			t.Errorf("while the limiter is being closed limits are not read: %v", err)
		}
		l.Engine().End()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if err := l.ReadLimits(t.Context(), "key-2", "gpt-4"); !errors.Is(err, zlimit.ErrClosed) {
			t.Errorf("reading limits of a closed limiter = %v, want %v", err, zlimit.ErrClosed)
		}
		if err := memory.Close(); err != nil {
			t.Error(err)
		}
	})
}
