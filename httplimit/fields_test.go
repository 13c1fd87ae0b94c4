package httplimit_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestFieldsTellTheLevel charges a key, its team and their organization, which have a limit of one name. The items have a
// name each, in an order that stays when the team refuses.
func TestFieldsTellTheLevel(t *testing.T) {
	limiter, _ := zlimittest.New(t)
	for _, e := range []zlimit.Entity{{ID: "globex"}, {ID: "team", ParentID: "globex", Cascade: true}, {ID: "alice", ParentID: "team", Cascade: true}} {
		if _, err := limiter.Entities.Ensure(t.Context(), e); err != nil {
			t.Fatalf("Entities.Ensure() = %v", err)
		}
	}
	for entity, capacity := range map[string]int64{"alice": 10, "team": 1, "globex": 10} {
		limits := []zlimit.Limit{zlimit.PerMinute("rpm", capacity), zlimit.PerDay("kb", 1000)}
		if err := limiter.Limits.Set(t.Context(), zlimit.Level{Entity: entity, Resource: "api"}, zlimit.Config{Limits: limits}); err != nil {
			t.Fatalf("Limits.Set() = %v", err)
		}
	}
	h := httplimit.New(limiter, byKey, httplimit.WithQuotaUnit("kb", "kilobytes"))(ok)
	policy := `"kb";q=1000;qu="kilobytes";w=86400, "rpm";q=10;w=60, ` +
		`"parent:kb";q=1000;qu="kilobytes";w=86400, "parent:rpm";q=1;w=60, ` +
		`"parent2:kb";q=1000;qu="kilobytes";w=86400, "parent2:rpm";q=10;w=60`
	for i, want := range []struct {
		status int
		state  string
	}{
		{http.StatusOK, `"kb";r=1000, "rpm";r=9;t=6, "parent:kb";r=1000, "parent:rpm";r=0;t=60, "parent2:kb";r=1000, "parent2:rpm";r=9;t=6`},
		{http.StatusTooManyRequests, `"kb";r=1000, "rpm";r=9, "parent:kb";r=1000, "parent:rpm";r=0;t=60, "parent2:kb";r=1000, "parent2:rpm";r=9`},
	} {
		got := get(t, h, "alice")
		if got.StatusCode != want.status {
			t.Errorf("response %d = %d, want %d", i, got.StatusCode, want.status)
		}
		if diff := cmp.Diff([]string{policy, want.state}, []string{got.Header.Get("RateLimit-Policy"), got.Header.Get("RateLimit")}); diff != "" {
			t.Errorf("fields of response %d (-want +got):\n%s", i, diff)
		}
		if i == 1 {
			var problem httplimit.Problem
			check.Fatal(t, "Decode()", json.NewDecoder(got.Body).Decode(&problem))
			compare.Equal(t, "violated policies", []string{"parent:rpm"}, problem.ViolatedPolicies)
		}
	}
}

// TestUnitOfSlots reports a limit of slots in the unit of the draft.
func TestUnitOfSlots(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.Slots("workers", 3), zlimit.PerMinute("rpm", 10))
	request := func(*http.Request) (zlimit.Request, error) {
		return zlimit.Request{Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"rpm": 1, "workers": 1}}, nil
	}
	for _, test := range []struct {
		opts []httplimit.Option
		want string
	}{
		{nil, `"rpm";q=10;w=60, "workers";q=3;qu="concurrent-requests"`},
		{[]httplimit.Option{httplimit.WithQuotaUnit("workers", "jobs")}, `"rpm";q=10;w=60, "workers";q=3;qu="jobs"`},
	} {
		got := get(t, httplimit.New(limiter, request, test.opts...)(ok), "alice")
		if policy := got.Header.Get("RateLimit-Policy"); policy != test.want || got.StatusCode != http.StatusOK {
			t.Errorf("the response is %s, RateLimit-Policy = %s, want %s", got.Status, policy, test.want)
		}
	}
}
