package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a store without a table, closed with the test.
func open(tb testing.TB, options ...memory.Option) *memory.Store {
	tb.Helper()
	s := check.Call(memory.New(storetest.Table, options...)).Must(tb, "memory.New()")
	tb.Cleanup(func() {
		check.Error(tb, "Close()", s.Close())
	})
	return s
}

func TestStore(t *testing.T) { storetest.Run(t, func(t *testing.T) store.Store { return open(t) }) }

func TestStream(t *testing.T) {
	storetest.RunStream(t, func(t *testing.T) store.Store { return open(t) })
}

func TestLog(t *testing.T) {
	storetest.RunLog(t, func(t *testing.T, c *storetest.Clock) store.Store { return open(t, memory.Clock(c.Now)) })
}

func TestExpire(t *testing.T) {
	storetest.RunExpire(t, func(t *testing.T) store.Store { return open(t) })
}
