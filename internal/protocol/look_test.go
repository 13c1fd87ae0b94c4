package protocol

import "testing"

// TestLookBeginsAtAllOrNone has a look begin at shards one of which is read by another look: it begins at none of them, and then,
// when that one has ended, at all.
func TestLookBeginsAtAllOrNone(t *testing.T) {
	b := newBucket("ns", "hot", "model")
	shards := []*shard{b.shard(0), b.shard(1), b.shard(2)}
	first, second := &look{}, &look{}
	if under := first.begin(shards[1:2]); under != nil {
		t.Fatalf("begin() = %p of a shard that is not read", under)
	}
	if under := second.begin(shards); under != first {
		t.Errorf("begin() = %p, want %p, which is under way", under, first)
	}
	for i, want := range []*look{nil, first, nil} {
		if got := shards[i].looking.Load(); got != want {
			t.Errorf("shard %d is read by %p, want %p", i, got, want)
		}
	}
	shards[1].looking.Store(nil)
	if under := second.begin(shards); under != nil {
		t.Errorf("begin() = %p after that look", under)
	}
	for i, s := range shards {
		if s.looking.Load() != second {
			t.Errorf("shard %d is not read", i)
		}
	}
}
