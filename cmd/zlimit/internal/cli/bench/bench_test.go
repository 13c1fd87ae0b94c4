package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A throttled store answers reads, and throttles every other write for one of two reasons.
type throttled struct {
	store.Store
	writes int
}

func (s *throttled) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if s.writes++; s.writes%2 == 0 {
		e := &store.Error{Op: "UpdateItem", Unavailable: true, Throttled: true, Err: fmt.Errorf("too fast")}
		if s.writes%4 == 0 {
			e.Throttles = []store.Throttle{{Limit: store.OfKey, Write: true, Reason: "TableWriteKeyRangeThroughputExceeded"}}
		}
		return store.Result{}, e
	}
	return s.Store.Write(ctx, w)
}

func TestBenchTellsThrottles(t *testing.T) {
	memory := check.Call(zlimit.Memory()).Must(t, "zlimit.Memory()")
	calls := &meter{}
	calls.reset()
	s := &throttled{Store: store.Of(memory)}
	l, err := zlimit.New(t.Context(), store.NewHandle(s, false), zlimit.WithSetup(), zlimit.WithObserver(calls.observe))
	check.Fatal(t, "zlimit.New()", err)
	b := &load{keys: 1, concurrency: 1, cost: 1, rate: 400, duration: time.Second, resource: "r", limit: zlimit.PerSecond("t", 1000)}
	tally, _ := b.run(t.Context(), l, time.Now, func(time.Duration, int64, int64) {})
	r := b.report("memory:", tally, calls, time.Second, 0)
	reasons := r.Throttles["TableWriteKeyRangeThroughputExceeded"] + r.Throttles["no reason given"]
	if r.Throttles["TableWriteKeyRangeThroughputExceeded"] == 0 || r.Throttles["no reason given"] == 0 || reasons != int64(s.writes/2) {
		t.Errorf("throttles = %v, of %d writes", r.Throttles, s.writes)
	}
	if r.Calls["write"] != int64(s.writes) || r.Requests != 400 || r.Results["admitted"]+r.Results["unavailable"] != 400 {
		t.Errorf("the report is %+v, of %d writes", r, s.writes)
	}
	p := &show.Page{}
	r.print(p)
	if !strings.Contains(p.String(), "TableWriteKeyRangeThroughputExceeded ") {
		t.Errorf("the page does not tell why:\n%s", p)
	}
}
