package zlimit_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

func TestLeaseStatuses(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 60), zlimit.PerMinute("tpm", 1000))
	for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "alice", ParentID: "team", Cascade: true}} {
		if _, err := limiter.Entities.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := limiter.Limits.SetEntity(t.Context(), "team", "api", []zlimit.Limit{zlimit.PerMinute("rpm", 100)}); err != nil {
		t.Fatal(err)
	}
	request := zlimit.Request{Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"rpm": 1, "tpm": 30}}
	for n := int64(1); n <= 3; n++ {
		lease, err := limiter.Acquire(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		want := zlimit.Statuses{
			{Entity: "alice", Resource: "api", Limit: zlimit.PerMinute("rpm", 60), Available: 60 - n, Requested: 1},
			{Entity: "alice", Resource: "api", Limit: zlimit.PerMinute("tpm", 1000), Available: 1000 - 30*n, Requested: 30},
			{Entity: "team", Resource: "api", Limit: zlimit.PerMinute("rpm", 100), Available: 100 - n, Requested: 1},
		}
		if diff := cmp.Diff(want, lease.Statuses()); diff != "" {
			t.Errorf("Statuses() of request %d (-want +got):\n%s", n, diff)
		}
		if err := lease.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := new(zlimit.Lease).Statuses(); got != nil {
		t.Errorf("Statuses() of the zero value = %v, want none", got)
	}
}
