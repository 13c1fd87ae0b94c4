package zlimit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestTheFirstRequestAfterAnOutage takes the store away for up to four seconds. No request comes for a while after its return. The first
// ones then are decided by the store: what a limiter knows of an outage ends without a request, or with one that tries.
func TestTheFirstRequestAfterAnOutage(t *testing.T) {
	slow := func(ctx context.Context, _ string, write bool) error {
		select {
		case <-time.After(1500 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return &store.Error{Op: "call", Unavailable: true, Unknown: write, Err: ctx.Err()}
		}
	}
	faults := map[string]func(context.Context, string, bool) error{
		"silent": unanswered, "refused": refusedCall, "server errors": serverError, "throttles of the table": throttleOf(store.OfTable), "slow": slow,
	}
	bounded := []zlimit.Option{zlimit.WithDecisionTimeout(300 * time.Millisecond)}
	for _, policy := range []struct {
		name string
		zlimit.FailurePolicy
		opts []zlimit.Option
	}{{"allow", zlimit.PolicyAllow, nil}, {"block", zlimit.PolicyBlock, nil}, {"block for 300ms", zlimit.PolicyBlock, bounded}} {
		for name, fault := range faults {
			for _, patience := range []time.Duration{0, 400 * time.Millisecond} { // of callers; 0 for any
				t.Run(fmt.Sprintf("%s, %s, callers wait %v", policy.name, name, patience), func(t *testing.T) {
					for _, apart := range soak.Pick([]time.Duration{5 * time.Millisecond, 700 * time.Millisecond}, []time.Duration{5 * time.Millisecond, 60 * time.Millisecond, 700 * time.Millisecond}) {
						for _, pause := range soak.Pick([]time.Duration{2 * time.Second, 15 * time.Second}, []time.Duration{2 * time.Second, 3 * time.Second, 15 * time.Second}) {
							for _, away := range []time.Duration{4 * time.Second, 300 * time.Millisecond} { // requests end before silence is noticed
								firstAfter(t, fault, policy.FailurePolicy, patience, apart, away, pause, policy.opts...)
							}
						}
					}
				})
			}
		}
	}
}

// firstAfter makes requests in an outage, so far apart, and three at once a while after it, which have to be counted.
func firstAfter(
	t *testing.T, fault func(context.Context, string, bool) error, policy zlimit.FailurePolicy, patience, apart, away, pause time.Duration, opts ...zlimit.Option,
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := &faulttest.Log{}
		d := &distant{Store: store.Of(newMemory(t))}
		opts := append([]zlimit.Option{zlimit.WithFailurePolicy(policy), zlimit.WithLogger(log.Logger())}, opts...)
		limiter := newLimiter(t, zlimit.StoreOn(d), opts...)
		setSystem(t, limiter, zlimit.PerDay("rpd", 1_000_000))
		var all sync.WaitGroup
		ask := func(entity string, ended func(*zlimit.Lease, error)) {
			all.Go(func() {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if patience > 0 {
					ctx, cancel = context.WithTimeout(ctx, patience)
				}
				defer cancel()
				lease, err := limiter.Acquire(ctx, zlimit.Request{Entity: entity, Resource: "api", Consume: zlimit.Amounts{"rpd": 1}})
				if ended != nil {
					ended(lease, err)
				}
			})
		}
		for _, entity := range []string{"a", "b", "c"} {
			ask(entity, nil)
		}
		all.Wait()
		d.fault.Store(&fault)
		for began, i := time.Now(), 0; time.Since(began) < away; i++ {
			ask([]string{"a", "b", "c"}[i%3], nil)
			time.Sleep(apart)
		}
		time.Sleep(100 * time.Millisecond) // after the last request
		d.fault.Store(nil)
		time.Sleep(pause)
		for _, entity := range []string{"a", "b", "c"} {
			ask(entity, func(lease *zlimit.Lease, err error) {
				if err != nil || lease.Degraded() {
					t.Errorf("requests %v apart, away for %v, a pause of %v: Acquire(%s) = %v, %v, want it counted, Outage %v\n%s",
						apart, away, pause, entity, lease, err, limiter.Stats().Outage, log)
				}
			})
		}
		all.Wait()
	})
}
