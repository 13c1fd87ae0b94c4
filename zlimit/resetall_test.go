package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestResetAll resets the buckets of a resource, and those of an entity, among others. Interrupted in the middle, it goes on with the same
// operation ID, and resets no bucket twice.
func TestResetAll(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithNamespace("walk"), zlimit.WithSetup())
		setSystem(t, l, zlimit.PerDay("rpd", 100), zlimit.PerDay("tpd", 1000))
		setLimits(t, l, zlimit.Level{Entity: "own"}, zlimit.PerDay("tpd", 1000))
		take := func() {
			for _, entity := range []string{"a", "b", "c"} {
				for _, resource := range []string{"x", "y"} {
					acquire(t, l, zlimit.Request{Entity: entity, Resource: resource, Consume: zlimit.Amounts{"rpd": 40, "tpd": 10}})
				}
			}
			acquire(t, l, zlimit.Request{Entity: "own", Resource: "x", Consume: zlimit.Amounts{"tpd": 10}})
		}
		left := func(entity, resource, limit string) int64 {
			statuses := check.Call(l.Available(t.Context(), zlimit.AvailableQuery{Entity: entity, Resource: resource})).Must(t, "Available()")
			status, _ := statuses.Limit(limit)
			return status.Available
		}
		take()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		walk := zlimit.ResetRequest{Resource: "x", Limits: []string{"rpd"}, OperationID: "ticket-1"}
		first, _ := l.Limits.ResetAll(ctx, walk, func(zlimit.ResetReport) { cancel() })
		if first.Buckets+first.Skipped == 0 {
			t.Fatalf("ResetAll() = %+v before it was interrupted", first)
		}
		calls := 0
		report, err := l.Limits.ResetAll(t.Context(), walk, func(zlimit.ResetReport) { calls++ })
		if err != nil || report.OperationID != "ticket-1" || report.Buckets != 3 || report.Repeated < first.Buckets || report.Skipped != 1 || calls != 4 {
			t.Errorf("ResetAll() = %+v, %v, with %d calls of progress, after %+v", report, err, calls, first)
		}
		for _, entity := range []string{"a", "b", "c"} {
			if x, tpd, y := left(entity, "x", "rpd"), left(entity, "x", "tpd"), left(entity, "y", "rpd"); x != 100 || tpd != 990 || y != 60 {
				t.Errorf("%s has %d and %d of x, %d of y, want 100, 990 and 60", entity, x, tpd, y)
			}
			if resets := count(actions(t, l, entity), zlimit.ActionBucketReset); resets != 1 {
				t.Errorf("the bucket of %s was reset %d times, want once", entity, resets)
			}
		}
		report, err = l.Limits.ResetAll(t.Context(), zlimit.ResetRequest{Entity: "a"}, nil)
		if err != nil || report.Buckets != 2 || report.Repeated != 0 || report.OperationID == "" || left("a", "y", "rpd") != 100 || left("a", "x", "tpd") != 1000 || left("b", "y", "rpd") != 60 {
			t.Errorf("ResetAll() of an entity = %+v, %v", report, err)
		}
		for _, r := range []zlimit.ResetRequest{{Resource: "x", Limits: []string{"typo"}}, {}, {Resource: "x", OperationID: "a b"}, {Resource: "a#"}} {
			if report, err := l.Limits.ResetAll(t.Context(), r, nil); !errors.As(err, new(*zlimit.ValidationError)) || report.Buckets != 0 {
				t.Errorf("ResetAll(%+v) = %+v, %v, want a ValidationError", r, report, err)
			}
		}
		report, err = l.Limits.ResetAll(t.Context(), zlimit.ResetRequest{Resource: "none"}, nil)
		if err != nil || report.Buckets != 0 || !strings.HasPrefix(report.OperationID, "0") {
			t.Errorf("ResetAll() of nothing = %+v, %v", report, err)
		}
	})
}

func ExampleLimitService_ResetAll() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	day := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("reports", 10)}}
	if err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "billing"}, day); err != nil {
		panic(err)
	}
	for _, entity := range []string{"alice", "bob"} {
		_, err := limiter.Acquire(ctx, zlimit.Request{Entity: entity, Resource: "billing", Consume: zlimit.Amounts{"reports": 10}})
		if err != nil {
			panic(err)
		}
	}
	request := zlimit.ResetRequest{Resource: "billing", OperationID: "ticket-17"}
	for range 2 { // the second call finds that the first has done it
		report, err := limiter.Limits.ResetAll(ctx, request, nil)
		fmt.Println(report.Buckets, "buckets are full, of which an earlier call has reset", report.Repeated, err)
	}
	// Output:
	// 2 buckets are full, of which an earlier call has reset 0 <nil>
	// 2 buckets are full, of which an earlier call has reset 2 <nil>
}
