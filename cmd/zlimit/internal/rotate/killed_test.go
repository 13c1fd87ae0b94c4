package rotate

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A change is what somebody does while a rotation is interrupted.
type change struct {
	name   string
	limits []string // of the resource models of the old entity; nil for the limits as they are
	hand   func(w *world, l *zlimit.RateLimiter, entity string)
	of     string // the resource that is changed manually
	toNew  bool   // manually, on the new entity
}

var changes = []change{
	{name: "raise", limits: []string{"usd=400/month@UTC"}},
	{name: "lower", limits: []string{"usd=210/month@UTC"}},
	{name: "lower below what is used", limits: []string{"usd=15/month@UTC"}},
	{name: "add", limits: []string{"usd=200/month@UTC", "rpm=60/min", "tpd=50/day@UTC"}},
	{name: "remove", limits: []string{"tpd=50/day@UTC"}},
	{name: "delete", limits: []string{}},
	{name: "change the period", limits: []string{"usd=200/week@UTC"}},
	{name: "change the zone", limits: []string{"usd=200/month@Europe/Berlin"}},
	{name: "carry", limits: []string{"usd=200/month@UTC carry 50"}},
	{name: "make it prepaid", limits: []string{"usd=300/never"}},
	{name: "make it a shadow", limits: []string{"usd=100/month@UTC shadow"}},
	{name: "top up", hand: topUp, of: "models"},
	{name: "top up with an end", hand: topUpUntil, of: "gpt"},
	{name: "reset", hand: reset, of: "models"},
	{name: "top up the new one", hand: topUp, of: "models", toNew: true},
	{name: "reset the new one", hand: reset, of: "models", toNew: true},
	{name: "use the new one", hand: use, of: "models", toNew: true},
}

func topUp(w *world, l *zlimit.RateLimiter, entity string) {
	w.manual(l.Limits.TopUp(w.t.Context(), zlimit.TopUpRequest{Entity: entity, Resource: "models", Amounts: zlimit.Amounts{"usd": 70_000_000_000}}))
}

func topUpUntil(w *world, l *zlimit.RateLimiter, entity string) {
	until := w.now.Add(20 * 24 * time.Hour)
	w.manual(l.Limits.TopUp(w.t.Context(), zlimit.TopUpRequest{Entity: entity, Resource: "gpt", Amounts: zlimit.Amounts{"credit": 1000}, Until: until}))
}

func reset(w *world, l *zlimit.RateLimiter, entity string) {
	w.manual(l.Limits.Reset(w.t.Context(), zlimit.ResetRequest{Entity: entity, Resource: "models"}))
}

func use(w *world, l *zlimit.RateLimiter, entity string) {
	served := w.serves(l, entity, "models")
	_, err := l.Acquire(w.t.Context(), zlimit.Request{Entity: entity, Resource: "models", Consume: zlimit.Amounts{"usd": 5_000_000_000}})
	if (err == nil) != served {
		w.t.Errorf("a request of %s, whose bucket serves: %t = %v", entity, served, err)
	}
}

// manual takes the result of a manual change, which a bucket without the limit refuses.
func (w *world) manual(_ zlimit.BucketChange, err error) {
	if err != nil && !errors.As(err, new(*zlimit.ValidationError)) {
		w.t.Errorf("a manual change = %v", err)
	}
}

// serves reports whether the bucket of an entity for a resource is there, and serves requests.
func (w *world) serves(l *zlimit.RateLimiter, entity, resource string) bool {
	w.t.Helper()
	key := layout.BucketKey{NS: w.id(l), Entity: entity, Resource: resource}.Key()
	items := check.Call(w.s.Read(w.t.Context(), []store.Key{key}, true)).Must(w.t, "Read()")
	return items[0] != nil && !items[0].Get(layout.AttrBucketDisabled).True()
}

// tenants makes a tenant with a budget in use of a wider resource, which was topped up, and a twin of it.
func (w *world) tenants(l *zlimit.RateLimiter) {
	w.t.Helper()
	for _, e := range []string{"acme", "twin"} {
		check.Fatal(w.t, "Set()", l.Limits.Set(w.t.Context(), at(e, "models"), parsed(w.t, "usd=200/month@UTC")))
		check.Fatal(w.t, "Set()", l.Limits.Set(w.t.Context(), at(e, "gpt"), parsed(w.t, "tpd=100/day@UTC", "credit=50/never")))
	}
	check.Fatal(w.t, "Resources.Put()", l.Resources.Put(w.t.Context(), zlimit.Resource{ID: "gpt", Within: "models"}))
	for _, e := range []string{"acme", "twin"} {
		check.Call(l.Acquire(w.t.Context(), zlimit.Request{
			Entity: e, Resource: "gpt", Consume: zlimit.Amounts{"usd": 27_500_000_000, "tpd": 10, "credit": 5},
		})).Must(w.t, "Acquire()")
		_, err := l.Limits.TopUp(w.t.Context(), zlimit.TopUpRequest{Entity: e, Resource: "models", Amounts: zlimit.Amounts{"usd": 30_000_000_000}})
		check.Fatal(w.t, "TopUp()", err)
	}
}

// make makes a change of the old entity or the new one, and of the twin, if it holds for the new one. What is done manually to a bucket of the
// old one, once that of the new one serves requests, does not. Nor does what is done to a bucket of the new one before.
func (w *world) make(c change, l *zlimit.RateLimiter) {
	w.t.Helper()
	if c.hand == nil {
		for _, e := range []string{"acme", "twin"} {
			if level := at(e, "models"); len(c.limits) == 0 {
				check.Fatal(w.t, "Delete()", l.Limits.Delete(w.t.Context(), level))
			} else {
				check.Fatal(w.t, "Set()", l.Limits.Set(w.t.Context(), level, parsed(w.t, c.limits...)))
			}
		}
		return
	}
	to := "acme"
	if c.toNew {
		to = "acme-2"
	}
	holds := w.serves(l, "acme-2", c.of) == c.toNew
	if c.hand(w, l, to); holds {
		c.hand(w, l, "twin")
	}
}

// same compares what the new entity and the twin have left.
func (w *world) same(name string) {
	w.t.Helper()
	for _, resource := range []string{"models", "gpt"} {
		if diff := cmp.Diff(w.left("twin", resource), w.left("acme-2", resource)); diff != "" {
			w.t.Errorf("%s: left of %s (-without a rotation +with it):\n%s", name, resource, diff)
		}
	}
}

// TestRotateChangedAfterKill kills a rotation at each of its calls, and makes a change before the next run. The new entity has what a twin has
// that is not rotated: at the end of the rotation, after another change of its limits, and in the next month.
func TestRotateChangedAfterKill(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 7
	}
	for n, c := range changes {
		for killed, ended := 1+n%step, false; !ended; killed += step {
			name := fmt.Sprintf("%s, killed at call %d", c.name, killed)
			w := inMemory(t)
			l := w.limiter(w.s)
			w.tenants(l)
			m := faulttest.NewMortal(w.s)
			dying := w.limiter(m)
			m.Kill(killed, faulttest.After)
			_, err := rotate(t.Context(), dying, "acme", "acme-2", func(string) {})
			ended = err == nil
			_ = dying.Close()
			if e, err := l.Entities.Get(t.Context(), "acme-2"); ended || err == nil && e.Metadata[StageKey] == "" {
				check.Fatal(t, "Close()", l.Close())
				break
			}
			w.make(c, l)
			again := w.limiter(w.s)
			check.Call(rotate(t.Context(), again, "acme", "acme-2", func(string) {})).Must(t, name+": Run()")
			check.Fatal(t, "Close()", again.Close())
			w.same(name)
			for _, e := range []string{"acme-2", "twin"} {
				check.Fatal(t, "Set()", l.Limits.Set(t.Context(), at(e, "models"), parsed(t, "usd=120/month@UTC")))
			}
			w.same(name + ", and lowered afterwards")
			w.now = w.now.Add(10 * 24 * time.Hour)
			w.same(name + ", and in the next month")
			check.Fatal(t, "Close()", l.Close())
			if t.Failed() {
				return
			}
		}
	}
}

// TestRotateOfAnotherVersion goes on with a rotation at the stage of an earlier version, which had copied limits and charged something. It refuses
// one at a stage that it does not know, and leaves the new entity suspended.
func TestRotateOfAnotherVersion(t *testing.T) {
	for _, stage := range []string{stageFormer, "later"} {
		w := inMemory(t)
		l := w.limiter(w.s)
		w.tenants(l)
		ctx, stop := context.WithCancel(t.Context())
		_, err := rotate(ctx, w.limiter(w.s), "acme", "acme-2", func(now string) {
			if now == stageJoining {
				stop()
			}
		})
		if stop(); err == nil {
			t.Fatal("a run that is stopped = nil")
		}
		e := check.Call(l.Entities.Get(t.Context(), "acme-2")).Must(t, "Get()")
		e.Metadata[StageKey] = stage
		check.Call(l.Entities.Update(t.Context(), e)).Must(t, "Update()")
		check.Fatal(t, "Set()", l.Limits.Set(t.Context(), at("acme-2", "models"), parsed(t, "usd=200/month@UTC")))
		_, err = rotate(t.Context(), w.limiter(w.s), "acme", "acme-2", func(string) {})
		if stage == stageFormer {
			check.Fatal(t, "Run()", err)
			w.same(stage)
			continue
		}
		var invalid *zlimit.ValidationError
		if !errors.As(err, &invalid) || invalid.Value != stage {
			t.Errorf("a rotation at the stage %s = %v, want an error", stage, err)
		}
		if w.serves(l, "acme-2", "models") {
			t.Errorf("the new entity is served at the stage %s", stage)
		}
	}
}
