package sqlite

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// TestLogAndItemTogether lets the write of an item fail once its change is logged. Neither is kept.
func TestLogAndItemTogether(t *testing.T) {
	s := check.Call(OpenMemory(store.Table{})).Must(t, "OpenMemory()")
	defer s.Close()
	ctx := t.Context()
	check.Fatal(t, "Setup()", s.Setup(ctx))
	check.Fatal(t, "StartStream()", s.StartStream(ctx))
	c := <-s.writer
	err := c.run(ctx, "CREATE TRIGGER broken BEFORE INSERT ON items BEGIN SELECT RAISE(ABORT, 'broken'); END")
	s.writer <- c
	check.Fatal(t, "run()", err)
	w := store.Write{Kind: store.Put, Key: store.Key{PK: "p", SK: "s"}, Item: expr.Item{{Name: "n", Value: expr.N(1)}}}
	if _, err := s.Write(ctx, w); err == nil {
		t.Fatal("Write() = nil, want the error of the trigger")
	}
	if page, err := s.Changes(ctx, partition, store.Position{}, 10); err != nil || len(page.Changes) > 0 {
		t.Errorf("Changes() = %v, %v; want none", page.Changes, err)
	}
}
