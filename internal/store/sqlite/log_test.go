package sqlite_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
)

func TestLog(t *testing.T) {
	storetest.RunLog(t, func(t *testing.T, c *storetest.Clock) store.Store {
		return open(t)(sqlite.OpenMemory(storetest.Table, sqlite.Clock(c.Now)))
	})
}

func startStream(t *testing.T, s *sqlite.Store) {
	t.Helper()
	check.Fatal(t, "StartStream()", s.StartStream(t.Context()))
}

// count makes n changes of one item.
func count(t *testing.T, s *sqlite.Store, n int) {
	t.Helper()
	for range n {
		if _, err := s.Write(t.Context(), countUp(t)); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
}

// changes reads one page.
func changes(t *testing.T, s *sqlite.Store, after store.Sequence) store.ChangePage {
	t.Helper()
	page, err := s.Changes(t.Context(), "log", store.Position{After: after}, 1<<30)
	if err != nil {
		t.Fatalf("Changes(%q) = %v", after, err)
	}
	return page
}

// TestEveryProcessLogs starts the stream with one store while others have the file open and have written to it.
func TestEveryProcessLogs(t *testing.T) {
	writer, path := ready(t)
	count(t, writer, 1)
	reader := open(t)(sqlite.Open(path, storetest.Table))
	startStream(t, reader)
	count(t, writer, 1)
	if _, err := writer.Transact(t.Context(), []store.Write{countUp(t)}); err != nil {
		t.Fatalf("Transact() = %v", err)
	}
	check.Fatal(t, "Delete()", writer.Delete(t.Context(), []store.Key{bucketKey}))
	if got := len(changes(t, reader, "").Changes); got != 3 {
		t.Errorf("the log has %d changes, want 3", got)
	}
}

// TestPageOfLargeItems ends a page by its size.
func TestPageOfLargeItems(t *testing.T) {
	s := open(t)(sqlite.Open(filepath.Join(t.TempDir(), "items.db"), storetest.Table))
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	startStream(t, s)
	for i := range 8 {
		item := storetest.Item("n", i, "text", strings.Repeat("x", 300_000))
		if _, err := s.Write(t.Context(), store.Write{Kind: store.Put, Key: bucketKey, Item: item}); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
	read := 0
	var after store.Sequence
	for pages := 1; read < 8; pages++ {
		page := changes(t, s, after)
		if n := len(page.Changes); n == 0 || n > 4 || pages > 8 {
			t.Fatalf("page %d has %d changes", pages, n)
		}
		read, after = read+len(page.Changes), page.Next.After
	}
	if after != store.SequenceOf("8") {
		t.Errorf("the pages end at %s, want the 8th change", after)
	}
}
