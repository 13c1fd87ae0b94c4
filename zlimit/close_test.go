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
