package protocol

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// newOwing returns a process that has tried to take 50 tokens of a child with 100, whose parent has 10. The store throttles what
// the child is given back, until throttles is set to false.
func newOwing(t *testing.T) (e *Engine, g *gauge, limits fixedLimits, throttles *atomic.Bool) {
	t.Helper()
	g, limits, throttles = newGauge(t), fixedLimits{}, new(atomic.Bool)
	limits.set("child", perDay("team", map[string]int64{"rpm": 100}))
	limits.set("team", perDay("", map[string]int64{"rpm": 100}))
	e = newProcess(t, g, limits)
	takeFrom(t, e, "team", map[string]int64{"rpm": 90})
	alone := fixedLimits{}
	alone.set("child", perDay("", map[string]int64{"rpm": 100}))
	takeFrom(t, newProcess(t, g, alone), "child", map[string]int64{"rpm": 1})
	if _, err := e.items.readShard(t.Context(), e.Memory.Bucket("child", "model").shard(0)); err != nil {
		t.Fatalf("readShard() = %v", err)
	}
	var taken atomic.Bool
	throttles.Store(true)
	e.Memory.Bucket("team", "model").shard(0).image.Store(nil) // nothing is foreseen
	g.onWrite(func(writes []store.Write) error {
		if strings.Contains(writes[0].Key.PK, "child") && taken.Swap(true) && throttles.Load() {
			return &store.Error{Op: "UpdateItem", Unavailable: true, Throttled: true, Throttles: []store.Throttle{{Limit: store.OfTable, Write: true}}}
		}
		return nil
	})
	return e, g, limits, throttles
}

// rejected returns where the child stands by the rejection of a request for 50 tokens.
func rejected(t *testing.T, e *Engine) LevelStatus {
	t.Helper()
	err := e.Take(t.Context(), &Request{Entity: "child", Resource: "model", Amounts: amountsOf(map[string]int64{"rpm": 50})}, new(Receipt))
	var r *RejectedError
	if !errors.As(err, &r) {
		t.Fatalf("Take() = %v, want a rejection", err)
	}
	return r.Levels[0]
}

// In TestCompensationIsMadeUp, the store throttles what a rejected request gives back to a child. The rejection does not name
// the child, and the child has its tokens back when the store takes writes again.
func TestCompensationIsMadeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, g, limits, throttles := newOwing(t)
		if s := rejected(t, e).Statuses[0]; s.Wait != 0 || s.Available != 99*millis {
			t.Errorf("the rejection tells %+v of the child, which has 99 less what is to be given back", s)
		}
		if got := available(t, g, limits, "child", "rpm"); got != 49 {
			t.Fatalf("the child has %d, want 49 while its write is throttled", got)
		}
		time.Sleep(time.Minute)
		throttles.Store(false)
		e.Quiesce()
		if got := available(t, g, limits, "child", "rpm"); got != 99 {
			t.Errorf("the child has %d after the throttles, want 99", got)
		}
		if got := e.Unreturned.Load(); got != 0 {
			t.Errorf("%d unreturned, want 0", got)
		}
	})
}

// TestNextRequestGivesBack asks for more than the child has while something is to be given back to it: that comes first.
func TestNextRequestGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, g, limits, throttles := newOwing(t)
		rejected(t, e)
		throttles.Store(false)
		limits.set("child", perDay("", map[string]int64{"rpm": 100})) // without its parent
		before := time.Now()
		takeFrom(t, e, "child", map[string]int64{"rpm": 90})
		if waited := time.Since(before); waited >= leastRest {
			t.Errorf("the request waited %v", waited)
		}
		e.Quiesce()
		if got := available(t, g, limits, "child", "rpm"); got != 9 {
			t.Errorf("the child has %d, want 9", got)
		}
	})
}

// TestCloseGivesUp closes an engine while the store still throttles what a request has to give back. That takes the settle limit
// at most, and is counted.
func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, _, _ := newOwing(t)
		rejected(t, e)
		before := time.Now()
		e.Close()
		if waited := time.Since(before); waited > e.core.options.SettleLimit {
			t.Errorf("Close() took %v", waited)
		}
		if got := e.Unreturned.Load(); got != 1 {
			t.Errorf("%d unreturned, want 1", got)
		}
	})
}
