package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestUnknownBookingsWait loses the reply to the write of a caller that waits. Where outages allow requests, it sleeps until the queue in
// front of it has gone, and its lease is degraded. It is never admitted immediately.
func TestUnknownBookingsWait(t *testing.T) {
	for _, policy := range []zlimit.FailurePolicy{zlimit.PolicyAllow, zlimit.PolicyBlock} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, s := faulttest.New(t, []zlimit.Limit{{Name: "rpm", Capacity: 10, RefillAmount: 10, RefillPeriod: time.Second}}, zlimit.WithFailurePolicy(policy))
				r := zlimit.Request{Entity: "acme", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 10}}
				acquire(t, l, r)
				start := time.Now()
				s.Break(faulttest.Lost)
				lease, err := l.Wait(t.Context(), r, zlimit.MaxWait(time.Minute))
				waited := time.Since(start)
				var outage *zlimit.UnavailableError
				switch {
				case policy == zlimit.PolicyBlock:
					if !errors.As(err, &outage) || !outage.Unknown || outage.Op != zlimit.OpWait {
						t.Errorf("Wait() = %v", err)
					}
				case err != nil || !lease.Degraded() || waited < time.Second:
					t.Errorf("Wait() = %v after %v", err, waited)
				}
			})
		})
	}
}

// In TestUnknownBookingsInSilence, the store is silent from the write of a caller that waits. It cannot report how long the queue is. The
// caller sleeps for as long as it may, and no longer. No limit rejects it.
func TestUnknownBookingsInSilence(t *testing.T) {
	for _, test := range []struct{ maxWait, deadline time.Duration }{
		{maxWait: 3 * time.Second},
		{maxWait: 12 * time.Second},
		{maxWait: time.Minute},
		{deadline: 5 * time.Second},
		{maxWait: 12 * time.Second, deadline: 5 * time.Second},
	} {
		t.Run(fmt.Sprintf("%v of %v", test.maxWait, test.deadline), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := zlimit.Limit{Name: "rpm", Capacity: 1, RefillAmount: 1, RefillPeriod: 2 * time.Second}
				l, s := faulttest.New(t, []zlimit.Limit{limit}, zlimit.WithFailurePolicy(zlimit.PolicyAllow))
				r := zlimit.Request{Entity: "acme", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}}
				acquire(t, l, r)
				s.Break(faulttest.Hang)
				var opts []zlimit.WaitOption
				longest := test.maxWait
				if longest > 0 {
					opts = append(opts, zlimit.MaxWait(longest))
				}
				ctx, start := t.Context(), time.Now()
				if test.deadline > 0 {
					longest = test.deadline
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
					defer cancel()
				}
				lease, err := l.Wait(ctx, r, opts...)
				waited := time.Since(start)
				switch ended := test.deadline > 0 && errors.Is(err, context.DeadlineExceeded); {
				case waited < longest-time.Millisecond || waited > longest:
					t.Errorf("Wait() = %v after %v", err, waited)
				case err != nil && !ended || err == nil && !lease.Degraded():
					t.Errorf("Wait() = %v, and the lease is not degraded", err)
				}
				s.Break(nil)
			})
		})
	}
}

// TestUnknownReservationInSilence waits for a reservation whose write is unknown, with less time than the reservation
// needs. The caller's time ends, and no limit refuses.
func TestUnknownReservationInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := faulttest.New(t, faulttest.Never(), zlimit.WithFailurePolicy(zlimit.PolicyAllow))
		s.Break(faulttest.Hang)
		defer s.Break(nil)
		r, err := l.Reserve(t.Context(), zlimit.Request{Entity: "acme", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}}, zlimit.MaxWait(time.Minute))
		check.Fatal(t, "Reserve()", err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait() = %v", err)
		}
	})
}
