package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
)

// open returns what a constructor returns, closed with the test.
func open(t testing.TB) func(*sqlite.Store, error) *sqlite.Store {
	return func(s *sqlite.Store, err error) *sqlite.Store {
		t.Helper()
		check.Fatal(t, "opening a store", err)
		t.Cleanup(func() { check.Error(t, "Close()", s.Close()) })
		return s
	}
}

func TestMemory(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t)(sqlite.OpenMemory(storetest.Table)) })
}

func TestFile(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		return open(t)(sqlite.Open(filepath.Join(t.TempDir(), "items.db"), storetest.Table))
	})
}

func TestStream(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		storetest.RunStream(t, func(t *testing.T) store.Store { return open(t)(sqlite.OpenMemory(storetest.Table)) })
	})
	t.Run("file", func(t *testing.T) {
		storetest.RunStream(t, func(t *testing.T) store.Store {
			return open(t)(sqlite.Open(filepath.Join(t.TempDir(), "items.db"), storetest.Table))
		})
	})
}

func TestExpire(t *testing.T) {
	storetest.RunExpire(t, func(t *testing.T) store.Store { return open(t)(sqlite.OpenMemory(storetest.Table)) })
}
