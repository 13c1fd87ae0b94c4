package recent

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// TestRecent counts refusals of a minute, and who waits, of each resource by itself.
func TestRecent(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	r := New(func() time.Time { return now })
	see := func(e zlimit.Event) { r.Observe(context.Background(), e) }
	decide := func(result zlimit.Result, lease uint64, wait time.Duration) {
		see(zlimit.Event{
			Kind: zlimit.EventDecision, Entity: "alice", Resource: "gpt", Result: result, Lease: lease, Wait: wait, Limit: "tpm", LimitEntity: "acme",
			Amounts: []zlimit.Amount{{Limit: "tpm", Tokens: 70}},
		})
	}
	for range 3 {
		decide(zlimit.ResultRejected, 0, 0)
	}
	now = now.Add(30 * time.Second)
	decide(zlimit.ResultRejected, 0, 0)
	decide(zlimit.ResultOK, 7, 0)
	decide(zlimit.ResultOK, 8, 12*time.Second)
	p := r.Of("gpt")
	if len(p.Refusals) != 1 || p.Refusals[0].N != 4 || p.RefusedMinute != 4 || p.Decided != 6 {
		t.Errorf("refusals are %+v of %d, want 4 of 6", p.Refusals, p.Decided)
	}
	if p.Waits.N != 1 || p.Waits.Longest != 12*time.Second || p.Waiting["alice"].N != 1 {
		t.Errorf("%+v wait, want alice for 12 s", p.Waiting)
	}
	see(zlimit.Event{Kind: zlimit.EventStore, Duration: time.Second})
	if p = r.Of("other"); len(p.Refusals) > 0 || p.Decided != 0 || p.RefusedMinute != 0 || p.PerSecond != 0 || slices.Max(p.Refused) != 0 || slices.Max(p.Waiters) != 0 {
		t.Errorf("another resource has %+v", p)
	}
	if !p.Calls || p.Slowest != time.Second {
		t.Errorf("the store's slowest call took %v, want a second for every resource", p.Slowest)
	}
	now = now.Add(31 * time.Second)
	if p = r.Of("gpt"); p.Refusals[0].N != 1 || p.Waits.N != 0 {
		t.Errorf("half a minute later there are %+v and %d who wait", p.Refusals, p.Waits.N)
	}
	now = now.Add(10 * time.Minute)
	if p = r.Of("gpt"); len(p.Refusals) != 0 || p.Decided != 0 {
		t.Errorf("ten minutes later there is %+v", p)
	}
}

// TestRecentIsBounded does not grow with a flood of names.
func TestRecentIsBounded(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	r := New(func() time.Time { return now })
	for i := range 3 * mostRefusals / 2 {
		name := fmt.Sprint("entity-", i)
		r.Observe(context.Background(), zlimit.Event{Kind: zlimit.EventDecision, Entity: name, Resource: "gpt", Result: zlimit.ResultRejected, Limit: "rpm"})
		r.Observe(context.Background(), zlimit.Event{Kind: zlimit.EventDecision, Entity: name, Resource: "gpt", Result: zlimit.ResultOK, Lease: uint64(i + 1), Wait: time.Hour})
	}
	if len(r.refused) > mostRefusals || r.waiting > mostWaiters || r.waiting != len(r.resources["gpt"].waiting) {
		t.Errorf("there are %d refusals and %d waiters", len(r.refused), r.waiting)
	}
	for i := range 2 * mostResources {
		r.Observe(context.Background(), zlimit.Event{Kind: zlimit.EventDecision, Resource: fmt.Sprint("resource-", i), Result: zlimit.ResultOK})
	}
	if len(r.resources) > mostResources {
		t.Errorf("there are %d resources", len(r.resources))
	}
	now = now.Add(2 * time.Hour) // nobody waits any more
	r.Observe(context.Background(), zlimit.Event{Kind: zlimit.EventDecision, Entity: "late", Resource: "resource-1", Result: zlimit.ResultOK, Wait: time.Second})
	if p := r.Of("resource-1"); p.Waits.N != 1 {
		t.Errorf("%d wait after a flood, want one", p.Waits.N)
	}
}
