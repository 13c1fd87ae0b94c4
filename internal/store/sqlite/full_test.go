package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// TestFullDisk writes to a file that may not grow any more. A new item is an outage, in which nothing is written. Items that need no
// more room are written on, and new ones once there is room again.
func TestFullDisk(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "full.db"), store.Table{})
	check.Fatal(t, "Open()", err)
	defer s.Close()
	ctx := t.Context()
	check.Fatal(t, "Setup()", s.Setup(ctx))
	put := func(i, n int) error {
		item := expr.Item{{Name: "n", Value: expr.N(int64(n))}, {Name: "text", Value: expr.S(strings.Repeat("x", 1000))}}
		_, err := s.Write(ctx, store.Write{Kind: store.Put, Key: store.Key{PK: fmt.Sprint("p", i), SK: "s"}, Item: item})
		return err
	}
	pragma := func(text string) {
		t.Helper()
		c := <-s.writer
		err := c.run(ctx, "PRAGMA "+text)
		s.writer <- c
		check.Fatal(t, "run()", err)
	}
	check.Fatal(t, "put()", put(0, 0))
	pragma("max_page_count = 1") // that is, what it has
	last := 0
	for ; err == nil && last < 1000; last++ {
		err = put(last+1, 0)
	}
	var failed *store.Error
	if !errors.As(err, &failed) || store.OutcomeOf(err) != store.Unavailable || failed.Unknown || !strings.Contains(err.Error(), "full") {
		t.Fatalf("Write() to a full disk = %v, want an outage in which nothing was written", err)
	}
	if strings.Contains(err.Error(), "rollback") || strings.Contains(err.Error(), "\n") {
		t.Errorf("Write() to a full disk = %v, want one line without the rollback, which SQLite has done already", err)
	}
	check.Error(t, "Write() of an item that needs no more room", put(0, 1))
	if items, err := s.Read(ctx, []store.Key{{PK: fmt.Sprint("p", last), SK: "s"}}, true); err != nil || items[0] != nil {
		t.Errorf("Read() of what was not written = %v, %v", items, err)
	}
	pragma("max_page_count = 1000000")
	check.Error(t, "Write() once there is room", put(last, 0))
}
