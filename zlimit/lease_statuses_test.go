package zlimit_test

import (
	"fmt"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

func TestLeaseStatuses(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 60), zlimit.PerMinute("tpm", 1000))
	for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "alice", ParentID: "team", Cascade: true}} {
		create(t, limiter, e)
	}
	setLimits(t, limiter, zlimit.Level{Entity: "team", Resource: "api"}, zlimit.PerMinute("rpm", 100))
	request := zlimit.Request{Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"rpm": 1, "tpm": 30}}
	for n := int64(1); n <= 3; n++ {
		lease := acquire(t, limiter, request)
		want := zlimit.Statuses{
			{Entity: "alice", Resource: "api", Limit: zlimit.PerMinute("rpm", 60), Available: 60 - n, Requested: 1},
			{Entity: "alice", Resource: "api", Limit: zlimit.PerMinute("tpm", 1000), Available: 1000 - 30*n, Requested: 30},
			{Entity: "team", Resource: "api", Ancestor: 1, Limit: zlimit.PerMinute("rpm", 100), Available: 100 - n, Requested: 1},
		}
		compare.Equal(t, fmt.Sprintf("Statuses() of request %d", n), want, lease.Statuses())
		check.Fatal(t, "Commit()", lease.Commit(t.Context()))
	}
	if got := new(zlimit.Lease).Statuses(); got != nil {
		t.Errorf("Statuses() of the zero value = %v, want none", got)
	}
}

// TestLeaseStatusesCostNothing asks a lease on three levels for what is left, while the table does not answer.
func TestLeaseStatusesCostNothing(t *testing.T) {
	s, faults := newTable(t)
	l := newFamily(t, s, zlimit.WithClock(newClock().now))
	lease := acquire(t, l, ask(zlimit.Amounts{"tpd": 10}))
	faults.Reset()
	faults.Inject(enginetest.Fault{Kind: enginetest.Refused})
	var got []string
	for _, status := range lease.Statuses() {
		if status.Limit.Name == "tpd" {
			got = append(got, fmt.Sprint(status.Entity, " ", status.Available))
		}
	}
	compare.Equal(t, "Statuses()", []string{"key-1 90", "team 140", "org 990"}, got)
	if n := faults.Calls(""); n != 0 {
		t.Errorf("Statuses() makes %d calls, want none", n)
	}
}
