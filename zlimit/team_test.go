package zlimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/price"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestTeamPays, a team has a budget, and keys have no limits. The limit of any level that is charged suffices.
func TestTeamPays(t *testing.T) {
	l := check.Call(zlimit.Open(t.Context(), "memory:")).Must(t, "zlimit.Open()")
	defer l.Close()
	const dollar = int64(price.Dollar)
	err := errors.Join(
		l.Limits.Set(t.Context(), zlimit.Level{Entity: "research", Resource: "models"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.USD("usd", 10, zlimit.PerMonth)}}),
		l.Limits.Set(t.Context(), zlimit.Level{Resource: "gpt-4o"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}),
		l.Resources.Put(t.Context(), zlimit.Resource{ID: "gpt-4o", Within: "models"}),
		l.Resources.Put(t.Context(), zlimit.Resource{ID: "bare", Within: "models"}),
	)
	for _, e := range []zlimit.Entity{{ID: "research"}, {ID: "ann", ParentID: "research", Cascade: true}, {ID: "lab", ParentID: "research", Cascade: true}, {ID: "bob", ParentID: "lab", Cascade: true}, {ID: "solo"}} {
		if err == nil {
			_, err = l.Entities.Create(t.Context(), e)
		}
	}
	check.Fatal(t, "Limits.Set() and Limits.Set() and Resources.Put() and Resources.Put()", err)
	left := func() int64 {
		t.Helper()
		statuses, err := l.Available(t.Context(), zlimit.AvailableQuery{Entity: "research", Resource: "models"})
		check.Fatal(t, "Available()", err)
		s, _ := statuses.Limit("usd")
		return s.Available
	}
	for _, r := range []zlimit.Request{
		{Entity: "ann", Resource: "gpt-4o", Consume: zlimit.Amounts{"usd": dollar, "rpm": 1}}, // the key has a limit of another name
		{Entity: "ann", Resource: "bare", Consume: zlimit.Amounts{"usd": dollar}},             // and none here
		{Entity: "ann", Resource: "models", Consume: zlimit.Amounts{"usd": dollar}},           // the team has it for this resource
		{Entity: "bob", Resource: "models", Consume: zlimit.Amounts{"usd": dollar}},           // the parent has none, and its parent does
	} {
		before := left()
		lease, err := l.Acquire(t.Context(), r)
		if err != nil {
			t.Fatalf("Acquire(%+v) = %v", r, err)
		}
		if got := before - left(); got != dollar {
			t.Errorf("Acquire(%+v) charges the team %d, want %d", r, got, dollar)
		}
		if s, ok := lease.Statuses().Limit("usd"); !ok || s.Entity != "research" {
			t.Errorf("Acquire(%+v) has the statuses %v, want usd of the team", r, lease.Statuses())
		}
		if err := errors.Join(lease.Adjust(zlimit.Amounts{"usd": dollar / 2}), lease.Commit(t.Context())); err != nil {
			t.Errorf("Commit(%+v) = %v", r, err)
		}
		if got := before - left(); got != dollar*3/2 {
			t.Errorf("%+v settles the team at %d, want %d", r, got, dollar*3/2)
		}
	}
	lease, err := l.Acquire(t.Context(), zlimit.Request{Entity: "ann", Resource: "models", Consume: zlimit.Amounts{"usd": dollar}})
	if err == nil {
		err = lease.Rollback(t.Context())
	}
	if err != nil || left() != 4*dollar {
		t.Errorf("a rollback leaves %d, %v, want %d", left(), err, 4*dollar)
	}
	leases, err := l.AcquireAll(t.Context(), []zlimit.Request{
		{Entity: "ann", Resource: "models", Consume: zlimit.Amounts{"usd": dollar}}, {Entity: "bob", Resource: "bare", Consume: zlimit.Amounts{"usd": dollar}},
	})
	check.Fatal(t, "AcquireAll()", err)
	if err := leases.Commit(t.Context()); err != nil || left() != 2*dollar {
		t.Errorf("two at once leave %d, %v, want %d", left(), err, 2*dollar)
	}
	var exceeded *zlimit.ExceededError
	if _, err := l.Acquire(t.Context(), zlimit.Request{Entity: "bob", Resource: "gpt-4o", Consume: zlimit.Amounts{"usd": 3 * dollar}}); !errors.As(err, &exceeded) || exceeded.Violations()[0].Entity != "research" {
		t.Errorf("a request beyond the team's budget = %v", err)
	}
	if statuses, err := l.Available(t.Context(), zlimit.AvailableQuery{Entity: "ann", Resource: "models", Parents: true}); err != nil || len(statuses) != 1 || statuses[0].Entity != "research" {
		t.Errorf("Available() of a key = %v, %v, want the team's limit", statuses, err)
	}

	var invalid *zlimit.ValidationError
	_, err = l.Acquire(t.Context(), zlimit.Request{Entity: "bob", Resource: "gpt-4o", Consume: zlimit.Amounts{"tpm": 1}})
	const asked = "no limit of that name is configured for bob/gpt-4o, bob/models, lab/gpt-4o, lab/models, research/gpt-4o, research/models, which have rpm, usd"
	if !errors.As(err, &invalid) || invalid.Reason != asked {
		t.Errorf("a limit that no level has = %v\nwant %s", err, asked)
	}
	if _, err := l.Acquire(t.Context(), zlimit.Request{Entity: "solo", Resource: "models", Consume: zlimit.Amounts{"usd": 1}}); !errors.Is(err, zlimit.ErrNoLimits) {
		t.Errorf("an entity without parents = %v", err)
	}
	_, err = l.Acquire(t.Context(), zlimit.Request{Entity: "bob", Resource: "other", Consume: zlimit.Amounts{"usd": 1}})
	if !errors.Is(err, zlimit.ErrNoLimits) || !strings.HasSuffix(err.Error(), "asked were bob/other, lab/other, research/other") {
		t.Errorf("a resource that no level has limits for = %v", err)
	}
}

// TestTeamPaysAtOnce asks before the team has limits and right after: a refusal follows what is stored then. The key itself has no bucket,
// so that a request costs the write of the team's alone.
func TestTeamPaysAtOnce(t *testing.T) {
	l := check.Call(zlimit.Open(t.Context(), "memory:")).Must(t, "zlimit.Open()")
	defer l.Close()
	create(t, l, zlimit.Entity{ID: "team"})
	create(t, l, zlimit.Entity{ID: "key", ParentID: "team", Cascade: true})
	ask := func() error {
		_, err := l.Acquire(context.Background(), zlimit.Request{Entity: "key", Resource: "api", Consume: zlimit.Amounts{"rpm": 1}})
		return err
	}
	if err := ask(); !errors.Is(err, zlimit.ErrNoLimits) {
		t.Fatalf("before there are limits = %v", err)
	}
	setLimits(t, l, zlimit.Level{Entity: "team", Resource: "api"}, zlimit.PerMinute("rpm", 60))
	check.Error(t, "as soon as the team has a limit", ask())
	for b, err := range l.Usage.Buckets(t.Context(), "api") {
		if err != nil || b.Entity != "team" {
			t.Errorf("a bucket of %s, %v, want one of the team alone", b.Entity, err)
		}
	}
}
