package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A guard that refuses calls for lack of knowledge must not be the only way to that knowledge. In the tests here, a fresh process makes one
// kind of call and nothing else, and gets an answer of the store.

// newFresh returns a limiter with a client of its own for a table, as a process that has just begun, and the network between them.
func newFresh(t *testing.T, table string, opts ...zlimit.Option) (*zlimit.RateLimiter, *enginetest.Faults) {
	t.Helper()
	engine := enginetest.Start(t)
	faults := enginetest.NewFaults(engine.Transport())
	s := zlimit.StoreOn(dynamo.New(engine.Client(faults.Attach), table, layout.Table, withoutStream))
	return newLimiter(t, s, opts...), faults
}

// In TestFreshProcessTakesSlots, processes ask for a slot of each term first, and for nothing else.
func TestFreshProcessTakesSlots(t *testing.T) {
	t.Parallel()
	engine := enginetest.Start(t)
	table := engine.Table(t)
	admin, _ := newFresh(t, table)
	terms := []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second}
	for _, term := range terms {
		limits := []zlimit.Limit{zlimit.Slots("slots", 100, zlimit.Term(term))}
		setLimits(t, admin, zlimit.Level{Resource: term.String()}, limits...)
	}
	for _, term := range terms {
		for name, call := range map[string]func(context.Context, *zlimit.RateLimiter, zlimit.Request) (*zlimit.Lease, error){
			"acquire": func(ctx context.Context, l *zlimit.RateLimiter, r zlimit.Request) (*zlimit.Lease, error) {
				return l.Acquire(ctx, r)
			},
			"wait": func(ctx context.Context, l *zlimit.RateLimiter, r zlimit.Request) (*zlimit.Lease, error) {
				return l.Wait(ctx, r, zlimit.MaxWait(time.Minute))
			},
			"together": func(ctx context.Context, l *zlimit.RateLimiter, r zlimit.Request) (*zlimit.Lease, error) {
				other := r
				other.Entity = "another"
				leases, err := l.AcquireAll(ctx, []zlimit.Request{r, other})
				if err != nil {
					return nil, err
				}
				return leases.Of(0), nil
			},
			"allowed": func(ctx context.Context, l *zlimit.RateLimiter, r zlimit.Request) (*zlimit.Lease, error) {
				r.OnUnavailable = zlimit.PolicyAllow
				return l.Acquire(ctx, r)
			},
			"bounded": func(ctx context.Context, l *zlimit.RateLimiter, r zlimit.Request) (*zlimit.Lease, error) {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				return l.Acquire(ctx, r)
			},
		} {
			t.Run(fmt.Sprint(term, " ", name), func(t *testing.T) {
				t.Parallel()
				l, faults := newFresh(t, table)
				faults.Reset()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				r := zlimit.Request{Entity: "worker", Resource: term.String(), Consume: zlimit.Amounts{"slots": 1}}
				lease, err := call(ctx, l, r)
				for tries := 0; (errors.Is(err, zlimit.ErrClock) || err == nil && lease.Degraded()) && tries < 10; tries++ { // on a busy machine replies take long
					time.Sleep(time.Second)
					lease, err = call(ctx, l, r)
				}
				if err != nil || lease.Degraded() || lease.Fence() == 0 {
					t.Fatalf("the first request for a slot of %v = %v, %v after %d reads, want a lease", term, lease, err, faults.Calls("GetItem"))
				}
				check.Error(t, "Commit()", lease.Commit(t.Context()))
			})
		}
	}
}

// In TestClockOfSlowReplies, replies take too long for slots of a short term. The error names the clock once, and does not call it an
// outage of the store.
func TestClockOfSlowReplies(t *testing.T) {
	t.Parallel()
	engine := enginetest.Start(t)
	table := engine.Table(t)
	admin, _ := newFresh(t, table)
	limits := []zlimit.Limit{zlimit.Slots("slots", 1, zlimit.Term(time.Second))}
	setLimits(t, admin, zlimit.Level{Resource: "gpt-4"}, limits...)
	l, faults := newFresh(t, table)
	faults.Inject(enginetest.Fault{Kind: enginetest.Slow, Operation: "GetItem", Delay: 300 * time.Millisecond, Times: 1000})
	for _, policy := range []zlimit.FailurePolicy{zlimit.PolicyBlock, zlimit.PolicyAllow} {
		r := oneSlot
		r.OnUnavailable = policy
		lease, err := l.Acquire(t.Context(), r)
		if lease != nil || !errors.Is(err, zlimit.ErrClock) || errors.As(err, new(*zlimit.UnavailableError)) {
			t.Fatalf("under policy %v, slots with a clock that is not known = %v, %v, want ErrClock", policy, lease, err)
		}
		if text := err.Error(); strings.Count(text, "clock of the store") != 1 || strings.Contains(text, "\n") {
			t.Errorf("the error is %q, want it to name the clock once", text)
		}
	}
	most := int((4 * time.Second) / (300 * time.Millisecond))
	if calls := faults.Calls("GetItem"); calls > most {
		t.Errorf("the store was asked for the time %d times, want at most %d", calls, most)
	}
}
