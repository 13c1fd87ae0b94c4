package protocol

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	memorystore "github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/internal/table"
)

// In TestLookBeginsAtAllOrNone, a look begins while another look reads one of its shards. It begins at no shard, and at all of them
// when the other look has ended.
func TestLookBeginsAtAllOrNone(t *testing.T) {
	b := newBucket("ns", "hot", "model")
	shards := []*shard{b.shard(0), b.shard(1), b.shard(2)}
	calls := table.New(nil, table.Options{Timeout: time.Second}).Sharing()
	first, second, w := calls.Shared(), calls.Shared(), calls.Sharer()
	if under := beginLook(&w, first, shards[1:2]); under != nil {
		t.Fatalf("begin() = %p of a shard that is not read", under)
	}
	if under := beginLook(&w, second, shards); under != first {
		t.Errorf("begin() = %p, want %p, which is under way", under, first)
	}
	for i, want := range []*table.Shared{nil, first, nil} {
		if got := shards[i].looking.Load(); got != want {
			t.Errorf("shard %d is read by %p, want %p", i, got, want)
		}
	}
	shards[1].looking.Store(nil)
	if under := beginLook(&w, second, shards); under != nil {
		t.Errorf("begin() = %p after that look", under)
	}
	for i, s := range shards {
		if s.looking.Load() != second {
			t.Errorf("shard %d is not read", i)
		}
	}
}

// In TestLookThatBeginsAtNoneEnds, a look begins at shards the last of which is read by another look. Another goroutine finds it at
// the first one meanwhile, and waits for it. The look must end, though it began at none.
func TestLookThatBeginsAtNoneEnds(t *testing.T) {
	s := check.Call(memorystore.New(layout.Table)).Must(t, "memorystore.New()")
	calls := table.New(struct{ store.Store }{s}, table.Options{Timeout: time.Minute, Gate: store.NewGate(256, nil), IntN: noChance})
	e := New(Options{Table: calls, Now: time.Now, Buckets: 10})
	defer e.Close()
	const most = 500 // so that it takes a while to get to the last one
	b := newBucket("ns", "hot", "model")
	shards := make([]*shard, most)
	for i := range shards {
		shards[i] = b.shard(i)
	}
	under := e.looks.sharing.Shared()
	under.End()
	shards[most-1].looking.Store(under)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var group sync.WaitGroup
	defer group.Wait()
	var found atomic.Bool
	group.Go(func() {
		for !found.Load() && ctx.Err() == nil {
			w := e.looks.sharing.Sharer()
			if own, err := e.looks.lookAt(ctx, shards, &w); own || err != nil {
				t.Errorf("lookAt() = %t, %v", own, err)
				return
			}
		}
	})
	var seen *table.Shared
	for seen == nil && ctx.Err() == nil {
		seen = shards[0].looking.Load()
	}
	found.Store(true)
	if seen == nil {
		t.Fatal("the look was not found at the first shard")
	}
	w := e.looks.sharing.Sharer()
	if _, err := w.Await(ctx, seen); err != nil {
		t.Errorf("Await() = %v of a look that began at none", err)
	}
}
