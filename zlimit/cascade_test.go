package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestCascadePolicies, levels say whether the parent is charged. The first one that says it decides, also in another process, whose
// limits are in memory for a minute. Leases give back to what they charged, and the buckets copy the decision.
func TestCascadePolicies(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx, c := context.Background(), newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		newChains(t, l, []string{"one", "key-1"})
		resource, entity, pair := zlimit.Level{Resource: "gpt-4"}, zlimit.Level{Entity: "key-1"}, zlimit.Level{Entity: "key-1", Resource: "gpt-4"}
		own, parent := int64(0), int64(0)
		for step, test := range []struct {
			at      zlimit.Level
			policy  zlimit.CascadePolicy
			charges bool
		}{
			{resource, zlimit.CascadeInherit, true},
			{resource, zlimit.CascadeNever, false},
			{entity, zlimit.CascadeAlways, true},
			{pair, zlimit.CascadeNever, false},
			{resource, zlimit.CascadeAlways, false},
			{pair, zlimit.CascadeInherit, true},
			{entity, zlimit.CascadeNever, false},
			{entity, zlimit.CascadeInherit, true},
			{resource, zlimit.CascadeInherit, true},
		} {
			before := acquire(t, other, ask(zlimit.Amounts{"rpd": 10}))
			charged := used(t, l, "one")[0] - parent
			err := l.Limits.Update(ctx, test.at, func(config *zlimit.Config) error {
				config.Cascade = test.policy
				return nil
			})
			if test.at == resource {
				err = errors.Join(err, l.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4", Cascade: test.policy}))
			}
			check.Fatal(t, "Limits.Update()", err)
			c.sleep(1)
			acquire(t, other, ask(zlimit.Amounts{"rpd": 3}))
			acquire(t, l, ask(zlimit.Amounts{"rpd": 4}))
			check.Fatal(t, "Adjust() and Commit()", errors.Join(before.Adjust(zlimit.Amounts{"rpd": -4}), before.Commit(ctx)))
			own += 13
			if parent += charged * 6 / 10; test.charges {
				parent += 7
			}
			if got, want := fmt.Sprint(used(t, l, "key-1", "one")), fmt.Sprint([]int64{own, parent}); got != want {
				t.Errorf("step %d, %v %q: consumed are %s, want %s", step, test.at, test.policy, got, want)
			}
			if found, _, err := layout.ReadBucket(item(t, l)); err != nil || found.Cascade != test.charges || found.Parent != "one" {
				t.Errorf("step %d: the bucket copies %+v, %v", step, found.Lineage(), err)
			}
			available, err := l.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4", Parents: true})
			if err != nil || (len(available) == 2) != test.charges {
				t.Errorf("step %d: Available() = %+v, %v", step, available, err)
			}
		}
		if oldest := (versioned{t, store.Of(s)}).read()[1]; oldest != "0.16.0" {
			t.Errorf("the table asks for clients from %s on", oldest)
		}
	})
}

// In TestCascadeAlways, a resource charges the parents of entities that do not cascade, also without limits of its own, and the parents of
// those parents.
func TestCascadeAlways(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	parent := ""
	for _, id := range []string{"top", "middle", "key-1"} {
		create(t, l, zlimit.Entity{ID: id, ParentID: parent})
		parent = id
	}
	setSystem(t, l, zlimit.PerDay("rpd", 20))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
	check.Fatal(t, "Resources.Put()", l.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4", Cascade: zlimit.CascadeAlways}))
	check.Fatal(t, "Limits.Update()", l.Limits.Update(ctx, zlimit.Level{Entity: "middle"}, func(c *zlimit.Config) error {
		c.Cascade = zlimit.CascadeNever
		return nil
	}))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 2}))
	if got := fmt.Sprint(used(t, l, "key-1", "middle", "top")); got != "[3 2 0]" {
		t.Errorf("consumed are %s", got)
	}
	found, err := l.Limits.Resolve(ctx, "key-1", "gpt-4")
	if err != nil || found.Cascade != zlimit.CascadeAlways || found.Source != zlimit.SourceSystem {
		t.Errorf("Resolve() = %+v, %v", found, err)
	}
}

// In TestCascadeWithin, a resource that lies within another one does not charge parents. No bucket of a parent is charged for its requests, and
// requests of the wider resource follow its own policy.
func TestCascadeWithin(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newWider(t, s)
		if err := l.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4", Within: "models", Cascade: zlimit.CascadeNever}); err != nil {
			t.Fatalf("Resources.Put() = %v", err)
		}
		acquire(t, l, zlimit.Request{Entity: "key-1", Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": 10}})
		checkStands(t, l, "key-1 gpt-4 tpd: 50 left, 10 used", "key-1 models tpd: 90 left, 10 used", "team gpt-4 tpd: none", "team models tpd: none")
		acquire(t, l, zlimit.Request{Entity: "key-1", Resource: "models", Consume: zlimit.Amounts{"tpd": 10}})
		checkStands(t, l, "key-1 models tpd: 80 left, 20 used", "team models tpd: 140 left, 10 used")
		check.Fatal(t, "Resources.Put()", l.Resources.Put(ctx, zlimit.Resource{ID: "models", Within: "all", Cascade: zlimit.CascadeNever}))
		acquire(t, l, zlimit.Request{Entity: "key-1", Resource: "gpt-3", Consume: zlimit.Amounts{"tpd": 10}})
		checkStands(t, l, "key-1 gpt-3 tpd: 40 left, 10 used", "team models tpd: 130 left, 20 used")
	})
}

// In TestCascadeOfOthers, zae-limiter sets a policy of a level between a read and a write. The write does not lose it, and limits that are
// set later keep it.
func TestCascadeOfOthers(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	at := zlimit.Level{Resource: "gpt-4"}
	setLimits(t, l, at, zlimit.PerDay("rpd", 9))
	key := layout.ResourceConfigKey{NS: l.NS(), Resource: "gpt-4"}.Key()
	for _, value := range []bool{false, true} {
		tries := 0
		check.Fatal(t, "Limits.Update()", l.Limits.Update(ctx, at, func(c *zlimit.Config) error {
			if tries++; tries == 1 {
				mark(t, l, key, expr.Attribute{Name: "cascade", Value: expr.Bool(value)})
			}
			c.Limits = []zlimit.Limit{zlimit.PerDay("rpd", int64(10+tries))}
			return nil
		}))
		want := zlimit.CascadeNever
		if value {
			want = zlimit.CascadeAlways
		}
		if found, err := l.Limits.Get(ctx, at); err != nil || tries != 2 || found.Cascade != want || found.Limits[0].Capacity != 12 {
			t.Errorf("after %d tries Get() = %+v, %v", tries, found, err)
		}
	}
	for _, stored := range []zlimit.CascadePolicy{zlimit.CascadeInherit, zlimit.CascadeNever} { // a deletion asks for it, too
		tries := 0
		err := l.Limits.Update(ctx, at, func(c *zlimit.Config) error {
			c.Cascade = stored
			return nil
		})
		check.Fatal(t, "Limits.Update()", err)
		check.Fatal(t, "Limits.Update()", l.Limits.Update(ctx, at, func(c *zlimit.Config) error {
			if tries++; tries == 1 {
				*c = zlimit.Config{}
				mark(t, l, key, expr.Attribute{Name: "cascade", Value: expr.Bool(true)})
			}
			return nil
		}))
		if found, err := l.Limits.Get(ctx, at); err != nil || tries != 2 || found.Cascade != zlimit.CascadeAlways {
			t.Errorf("after %d tries of a deletion Get() = %+v, %v", tries, found, err)
		}
	}
	if err := errors.Join(l.Limits.Set(ctx, at, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", 5)}}), l.Limits.Delete(ctx, at)); err != nil {
		t.Fatalf("Limits.Set() and Limits.Delete() = %v", err)
	}
	if found, err := l.Limits.Get(ctx, at); err != nil || len(found.Limits) != 0 || found.Cascade != zlimit.CascadeAlways {
		t.Errorf("after Delete() the level is %+v, %v", found, err)
	}
}

// TestCascadeInput checks that policies that no level may have are refused before anything is written.
func TestCascadeInput(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	limits := []zlimit.Limit{zlimit.PerDay("rpd", 9)}
	for _, err := range []error{
		l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: limits, Cascade: zlimit.CascadeNever}),
		l.Limits.Set(ctx, zlimit.Level{Resource: "r"}, zlimit.Config{Limits: limits, Cascade: "sometimes"}),
		l.Resources.Put(ctx, zlimit.Resource{ID: "r", Cascade: "sometimes"}),
	} {
		if invalid(err).Field != "cascade" {
			t.Errorf("error %v, want one about cascade", err)
		}
	}
}
