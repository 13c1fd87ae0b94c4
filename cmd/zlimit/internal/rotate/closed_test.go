package rotate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A former process asks for entities as one that has their switches of before in memory.
type former struct {
	t *testing.T
	l *zlimit.RateLimiter
}

func (f former) ask(entity, resource string, n int64) error {
	_, err := f.l.Acquire(f.t.Context(), zlimit.Request{Entity: entity, Resource: resource, Consume: zlimit.Amounts{"t": n}})
	return err
}

// TestClosedNew rotates while another process has it in memory that the new ID is not suspended, since it was asked for it before. That process
// asks for the new ID at one of the steps, and is refused. In the end, the new ID has what the old one has left.
func TestClosedNew(t *testing.T) {
	for _, step := range []string{stageCopying, stageClosing, stageJoining, stageOpening, "carrying over used"} {
		w := inMemory(t)
		l := w.limiter(w.s)
		p := former{t, w.limiter(w.s)}
		for _, resource := range []string{"used", "unused"} {
			check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), at("acme", resource), parsed(t, "t=1000/month@UTC")))
		}
		for _, e := range []zlimit.Entity{{ID: "org"}, {ID: "acme", ParentID: "org", Cascade: true}} {
			check.Call(l.Entities.Create(t.Context(), e)).Must(t, "Entities.Create()")
		}
		check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), at("org", ""), parsed(t, "t=5000/month@UTC")))
		check.Fatal(t, "Acquire()", p.ask("acme", "used", 400))
		if err := p.ask("acme-2", "other", 1); !errors.Is(err, zlimit.ErrNoLimits) {
			t.Fatalf("a request of the new ID before the rotation = %v, want ErrNoLimits", err)
		}
		asked := false
		check.Call(rotate(t.Context(), l, "acme", "acme-2", func(now string) {
			if now != step {
				return
			}
			asked = true
			for _, resource := range []string{"used", "unused"} {
				if err := p.ask("acme-2", resource, 100); !errors.Is(err, zlimit.ErrDisabled) && !errors.Is(err, zlimit.ErrNoLimits) {
					t.Errorf("at %q, a request of the new ID for %s = %v, want an error", step, resource, err)
				}
			}
		})).Must(t, "Run()")
		if !asked {
			t.Errorf("the rotation has no step %q", step)
		}
		if got := w.left("org", "used")["t"]; got != 4600 {
			t.Errorf("asked at %q: the parent has %d, want 4600", step, got)
		}
		for resource, want := range map[string]int64{"used": 600, "unused": 1000} {
			if got := w.left("acme-2", resource)["t"]; got != want {
				t.Errorf("asked at %q: the new ID has %d of %s, want %d", step, got, resource, want)
			}
		}
		check.Fatal(t, "Close()", l.Close())
		check.Fatal(t, "Close()", p.l.Close())
	}
}

// TestClosedOld rotates while another process has it in memory that the old ID is served. That process asks for resources of which the old ID
// has used nothing: with limits of the entity, with limits of the resource, and with wider limits. It is refused, also after the rotation.
func TestClosedOld(t *testing.T) {
	w := inMemory(t)
	l := w.limiter(w.s)
	defer l.Close()
	p := former{t, w.limiter(w.s)}
	defer p.l.Close()
	set := func(v zlimit.Level) {
		check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), v, parsed(t, "t=1000/month@UTC")))
	}
	set(at("acme", "used"))
	set(at("acme", "of-entity"))
	set(at("", "of-resource"))
	set(at("", "wide"))
	check.Fatal(t, "Resources.Put()", l.Resources.Put(t.Context(), zlimit.Resource{ID: "narrow", Within: "wide"}))
	check.Fatal(t, "Acquire()", p.ask("acme", "used", 400))
	check.Call(rotate(t.Context(), l, "acme", "acme-2", func(string) {})).Must(t, "Run()")
	for _, resource := range []string{"used", "of-entity", "of-resource", "wide"} {
		if err := p.ask("acme", resource, 1); !errors.Is(err, zlimit.ErrDisabled) {
			t.Errorf("after the rotation, a request of the old ID for %s = %v, want ErrDisabled", resource, err)
		}
	}
	if err := p.ask("acme", "narrow", 1); err == nil {
		t.Error("after the rotation, a request of the old ID for a resource within a wider one is admitted")
	}
	w.now = w.now.Add(2 * time.Second) // a process that was refused checks once a second
	for _, resource := range []string{"of-entity", "of-resource", "wide"} {
		check.Error(t, "Acquire() of the new ID for "+resource, p.ask("acme-2", resource, 1000))
	}
	check.Error(t, "Acquire() of the new ID", p.ask("acme-2", "used", 600))
}

// TestClosedAnywhere rotates an ID whose limits hold for any resource. It waits until no process has it in memory that the old ID is served. What such a
// process uses meanwhile, of a resource that was not used before, is charged to the new ID.
func TestClosedAnywhere(t *testing.T) {
	for _, wide := range []zlimit.Level{at("acme", ""), {}} {
		w := inMemory(t)
		l := w.limiter(w.s)
		p := former{t, w.limiter(w.s)}
		check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), wide, parsed(t, "t=1000/month@UTC")))
		check.Fatal(t, "Acquire()", p.ask("acme", "used", 400))
		var said []string
		waited := time.Duration(0)
		check.Call(Run(t.Context(), l, "acme", "acme-2", func(now string) { said = append(said, now) }, time.Now,
			func(_ context.Context, d time.Duration) error {
				check.Error(t, "Acquire() of the old ID during the wait", p.ask("acme", "any", 300))
				waited += d
				w.now = w.now.Add(d)
				return nil
			})).Must(t, "Run()")
		if waited != keptFor || !strings.Contains(fmt.Sprint(said), stepWaiting) {
			t.Errorf("limits at %v: the rotation waits %v, and says %q", wide, waited, said)
		}
		for _, resource := range []string{"used", "any", "another"} {
			if err := p.ask("acme", resource, 1); !errors.Is(err, zlimit.ErrDisabled) {
				t.Errorf("limits at %v: a request of the old ID for %s = %v, want ErrDisabled", wide, resource, err)
			}
		}
		if got := w.left("acme-2", "any")["t"]; got != 700 {
			t.Errorf("limits at %v: the new ID has %d left of what the old one used meanwhile, want 700", wide, got)
		}
		check.Fatal(t, "Close()", l.Close())
		check.Fatal(t, "Close()", p.l.Close())
	}
}

// TestOpenLeases settles leases of the old ID after the rotation. Their estimates are charged to the new ID, and what they use less or more
// changes the buckets of the old ID alone.
func TestOpenLeases(t *testing.T) {
	w := inMemory(t)
	l := w.limiter(w.s)
	defer l.Close()
	p := w.limiter(w.s)
	defer p.Close()
	check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), at("acme", "pay"), parsed(t, "t=1000/month@UTC")))
	var leases []*zlimit.Lease
	for range 3 {
		lease, err := p.Acquire(t.Context(), zlimit.Request{Entity: "acme", Resource: "pay", Consume: zlimit.Amounts{"t": 100}})
		check.Fatal(t, "Acquire()", err)
		leases = append(leases, lease)
	}
	check.Call(rotate(t.Context(), l, "acme", "acme-2", func(string) {})).Must(t, "Run()")
	check.Error(t, "Rollback()", leases[0].Rollback(t.Context()))
	check.Error(t, "Adjust()", leases[1].Adjust(zlimit.Amounts{"t": 50}))
	check.Error(t, "Commit()", leases[1].Commit(t.Context()))
	check.Error(t, "Commit()", leases[2].Commit(t.Context()))
	if got := w.left("acme-2", "pay")["t"]; got != 700 {
		t.Errorf("the new ID has %d, want the 700 of the estimates", got)
	}
	if err := (former{t, p}).ask("acme", "pay", 1); !errors.Is(err, zlimit.ErrDisabled) {
		t.Errorf("a request of the old ID = %v, want ErrDisabled", err)
	}
	looks := check.Call(p.Entities.Get(t.Context(), "acme")).Must(t, "Entities.Get()")
	for b, err := range p.Entities.Buckets(t.Context(), looks.ID) {
		check.Fatal(t, "Entities.Buckets()", err)
		if got := b.Statuses[0].Available; got != 750 {
			t.Errorf("the old ID has %d, want 750: its leases settle with it", got)
		}
	}
}
