package sqlite

import (
	"fmt"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// TestExpire stores items that expire and items that do not, and calls Expire until it has been through all of them.
func TestExpire(t *testing.T) {
	s, err := OpenMemory(store.Table{TTL: "ttl"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	if err := s.Setup(ctx); err != nil {
		t.Fatal(err)
	}
	var keys []store.Key
	for i := range int64(100) {
		k := store.Key{PK: fmt.Sprint(i), SK: "#"}
		keys = append(keys, k)
		item := expr.Item{{Name: "n", Value: expr.N(i)}}
		if i%4 > 0 { // a quarter is kept for ever
			item.Set("ttl", expr.N(1000+i))
		}
		if _, err := s.Write(ctx, store.Write{Kind: store.Put, Key: k, Item: item}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second round finds nothing more to delete
		for range 100/sweep + 2 {
			if err := s.Expire(ctx, 1050); err != nil {
				t.Fatal(err)
			}
		}
		items, err := s.Read(ctx, keys, true)
		if err != nil {
			t.Fatal(err)
		}
		for i, item := range items {
			if want := i%4 == 0 || i > 50; (item != nil) != want {
				t.Errorf("item %d is there: %v, want %v", i, item != nil, want)
			}
		}
	}
}
