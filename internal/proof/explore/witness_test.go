package explore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// stateOf returns a shard that has so much of 10 tokens, of which one flows in per second, and has counted so much.
func stateOf(shard, shards int, at, tokens, consumed int64) *bucket.State {
	return &bucket.State{
		Shard: shard, Shards: shards, RefilledAt: at,
		Limits: []bucket.Limit{{Name: "rpm", Capacity: 10_000, RefillAmount: 1000, RefillPeriod: 1000, Tokens: tokens, Consumed: consumed}},
	}
}

// TestDigestOfWrites holds that a write has one digest, whichever goroutine compiled its template.
func TestDigestOfWrites(t *testing.T) {
	write := func(attribute string, value int64) uint64 {
		op := expr.Operation{Name: "set", Placeholders: 1, Update: []expr.Action{expr.Set(expr.Attr(attribute), 0)}}
		bound := check.Call(op.Call(expr.N(value)).Bind()).Must(t, "Bind()")
		return digestWrite(&store.Write{Kind: store.Update, Key: store.Key{PK: "p", SK: "s"}, Expr: bound})
	}
	if first, second := write("tk", 1), write("tk", 1); first != second {
		t.Error("two templates that say the same make two digests")
	}
	if write("tk", 1) == write("tk", 2) || write("tk", 1) == write("tc", 1) {
		t.Error("two writes of different values or attributes have one digest")
	}
}

func TestWitness(t *testing.T) {
	for _, c := range []struct {
		name, want string
		old        []*bucket.State
		next       []*bucket.State
	}{
		{"a write takes what it counts", "", []*bucket.State{stateOf(0, 1, 0, 5000, 5000)}, []*bucket.State{stateOf(0, 1, 1000, 4000, 7000)}},
		{"a write returns up to the capacity", "", []*bucket.State{stateOf(0, 1, 0, 9000, 5000)}, []*bucket.State{stateOf(0, 1, 0, 10_000, 2000)}},
		{"a write takes more than it counts", "balance", []*bucket.State{stateOf(0, 1, 0, 5000, 5000)}, []*bucket.State{stateOf(0, 1, 1000, 3000, 7000)}},
		{"a write loses the refill", "balance", []*bucket.State{stateOf(0, 1, 0, 5000, 5000)}, []*bucket.State{stateOf(0, 1, 1000, 3000, 7000)}},
		{"a write passes the capacity", "balance", []*bucket.State{stateOf(0, 1, 0, 9000, 5000)}, []*bucket.State{stateOf(0, 1, 0, 12_000, 2000)}},
		{"a stamp goes back", "stamp", []*bucket.State{stateOf(0, 1, 1000, 5000, 5000)}, []*bucket.State{stateOf(0, 1, 0, 5000, 5000)}},
		{"a new bucket is full", "", []*bucket.State{nil}, []*bucket.State{stateOf(0, 1, 0, 9000, 1000)}},
		{"a new bucket is not full", "new bucket", []*bucket.State{nil}, []*bucket.State{stateOf(0, 1, 0, 8000, 1000)}},
		{
			"a split keeps the sum", "",
			[]*bucket.State{stateOf(0, 1, 0, 5001, 5000), nil},
			[]*bucket.State{stateOf(0, 2, 0, 2501, 5000), stateOf(1, 2, 0, 2500, 0)},
		},
		{
			"a split mints", "resize",
			[]*bucket.State{stateOf(0, 1, 0, 5000, 5000), nil},
			[]*bucket.State{stateOf(0, 2, 0, 5000, 5000), stateOf(1, 2, 0, 5000, 0)},
		},
		{
			"a merge keeps the sum", "",
			[]*bucket.State{stateOf(0, 2, 0, 2000, 5000), stateOf(1, 2, 0, 500, 0)},
			[]*bucket.State{stateOf(0, 1, 0, 2500, 5000), nil},
		},
		{
			"a merge loses a shard", "resize",
			[]*bucket.State{stateOf(0, 2, 0, 2000, 5000), stateOf(1, 2, 0, 500, 0)},
			[]*bucket.State{stateOf(0, 1, 0, 2000, 5000), nil},
		},
		{
			"what is given back finds room in all shards", "",
			[]*bucket.State{stateOf(0, 2, 0, 4000, 5000), stateOf(1, 2, 0, 1000, 0)},
			[]*bucket.State{stateOf(0, 2, 0, 5000, 4000), stateOf(1, 2, 0, 3000, -2000)},
		},
		{
			"what is given back is more than one shard can hold, and lost", "lost",
			[]*bucket.State{stateOf(0, 2, 0, 4000, 5000), stateOf(1, 2, 0, 1000, 0)},
			[]*bucket.State{stateOf(0, 2, 0, 5000, 2000), stateOf(1, 2, 0, 1000, 0)},
		},
		{
			"refill that a full shard cannot hold is no loss", "",
			[]*bucket.State{stateOf(0, 2, 0, 5000, 5000), stateOf(1, 2, 0, 1000, 0)},
			[]*bucket.State{stateOf(0, 2, 2000, 5000, 5000), stateOf(1, 2, 2000, 2000, 0)},
		},
		{
			"shards get more together than one of them lost", "minted",
			[]*bucket.State{stateOf(0, 2, 0, 4000, 5000), stateOf(1, 2, 0, 1000, 0)},
			[]*bucket.State{stateOf(0, 2, 0, 3000, 5000), stateOf(1, 2, 0, 3000, 0)},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWitness(&Program{})
				w.shards["c"] = map[int]*bucket.State{}
				var changes []change
				for i := range c.old {
					if c.old[i] != nil {
						w.shards["c"][i] = c.old[i]
					}
					changes = append(changes, change{"c", i, c.old[i], c.next[i]})
				}
				if c.old[0] != nil {
					at, p := account{"c", "rpm"}, paramsOf(&c.old[0].Limits[0])
					w.ideals[at] = &ideal{limit: p, at: c.old[0].RefilledAt}
					w.ideals[at].tokens, _ = w.sum(at, &p, c.old[0].RefilledAt)
				}
				for i, next := range c.next {
					w.shards["c"][i] = next
					if next == nil {
						delete(w.shards["c"], i)
					}
				}
				w.judge(nil, changes)
				w.compare(c.next[0].RefilledAt)
				got := ""
				if w.wrong != nil {
					got = w.wrong.Rule
				}
				if got != c.want {
					t.Errorf("broken rule = %q (%+v), want %q", got, w.wrong, c.want)
				}
			})
		})
	}
}

func TestIdeal(t *testing.T) {
	i := ideal{tokens: 0, limit: bucket.Params{Capacity: 10_000, RefillAmount: 3000, RefillPeriod: 7000}}
	for _, c := range []struct{ tokens, want int64 }{{0, 0}, {1, 3}, {3, 7}, {3000, 7000}, {10_000, 23_334}} {
		if got := i.wait(0, c.tokens); got != c.want {
			t.Errorf("wait for %d = %d ms, want %d", c.tokens, got, c.want)
		}
	}
	i.take(time.Hour.Milliseconds(), 4000)
	if i.tokens != 6000 {
		t.Errorf("after an hour and a take of 4000 there are %d, want 6000", i.tokens)
	}
}
