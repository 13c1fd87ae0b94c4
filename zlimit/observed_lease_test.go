package zlimit_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestEventsJoinByLease takes leases in one process and settles them there, or by their tokens in another one. The settlement has the ID of the
// decision, and no two leases share one.
func TestEventsJoinByLease(t *testing.T) {
	ctx, s := t.Context(), newMemory(t)
	var mu sync.Mutex
	events := map[zlimit.EventKind][]zlimit.Event{}
	observe := zlimit.WithObserver(func(_ context.Context, e zlimit.Event) {
		mu.Lock()
		defer mu.Unlock()
		events[e.Kind] = append(events[e.Kind], e)
	})
	first, second := newLimiter(t, s, observe), newLimiter(t, s, observe)
	ask := func(id string) zlimit.Request {
		return zlimit.Request{
			Entity: "acme", Resource: "gpt", Consume: zlimit.Amounts{"rpm": 3}, Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 100)}, ID: id,
		}
	}
	settlements := map[string]func(*zlimit.Lease) error{
		"commit": func(le *zlimit.Lease) error {
			if err := le.Adjust(zlimit.Amounts{"rpm": -1}); err != nil {
				return err
			}
			return le.Commit(ctx)
		},
		"rollback": func(le *zlimit.Lease) error { return le.Rollback(ctx) },
		"settle": func(le *zlimit.Lease) error {
			token, err := le.Token(time.Hour)
			if err != nil {
				return err
			}
			return second.Settle(ctx, token, zlimit.Amounts{"rpm": 1})
		},
	}
	seen := map[string]bool{}
	for _, request := range []string{"", "", "job"} {
		for operation, settle := range settlements {
			id := request
			if id != "" {
				id += "-" + operation
			}
			clear(events)
			lease, err := first.Acquire(ctx, ask(id))
			if err == nil {
				err = settle(lease)
			}
			check.Fatal(t, "Acquire()", err)
			decided, settled := events[zlimit.EventDecision], events[zlimit.EventSettle]
			if len(decided) != 1 || len(settled) != 1 || settled[0].Operation != operation {
				t.Fatalf("%s of %q reports %+v and %+v, want a decision and a settlement", operation, id, decided, settled)
			}
			if a, b := decided[0].LeaseID, settled[0].LeaseID; a != b || len(a) != 32 || seen[a] {
				t.Errorf("%s of %q: the decision has lease %q, and the settlement %q; want one that no other has", operation, id, a, b)
			}
			seen[decided[0].LeaseID] = true
		}
	}
}
