package protocol

import (
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/table"
)

// TestLookBeginsAtAllOrNone has a look begin at shards one of which is read by another look: it begins at none of them, and then,
// when that one has ended, at all.
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
