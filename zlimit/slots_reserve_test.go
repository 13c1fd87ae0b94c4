package zlimit_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestReserveWithSlots reserves a slot beside tokens that flow in later. The slot is held from the reservation on, over many terms, and is
// given back with the lease, or by a cancel. Reserve does not wait for slots.
func TestReserveWithSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newMemory(t), zlimit.WithRejectionCache(0))
		slots(t, l, 1, zlimit.PerMinute("rpm", 1, zlimit.Burst(1)))
		job := ask(zlimit.Amounts{"slots": 1, "rpm": 1})
		free := func(slots int64) {
			t.Helper()
			statuses, err := l.Available(t.Context(), zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
			if s, _ := statuses.Limit("slots"); err != nil || s.Available != slots {
				t.Errorf("%d slots are free, %v, want %d", s.Available, err, slots)
			}
		}
		start := time.Now()
		acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
		reservation := check.Call(l.Reserve(t.Context(), job, zlimit.MaxWait(time.Hour))).Must(t, "Reserve()")
		free(0)
		if due := reservation.Due().Sub(start); due != time.Minute {
			t.Errorf("due after %v, want a minute", due)
		}
		_, err := l.Reserve(t.Context(), job, zlimit.MaxWait(time.Hour))
		var exceeded *zlimit.ExceededError
		if !errors.As(err, &exceeded) {
			t.Errorf("Reserve() = %v, want a refusal", err)
		} else if status, _ := exceeded.Statuses.Limit("slots"); !status.Exceeded {
			t.Errorf("Reserve() = %v, want a refusal by the slots", err)
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("Reserve waited %v for a slot", waited)
		}
		lease, err := reservation.Wait(t.Context()) // which is six terms
		if err != nil || time.Since(start) != time.Minute || isLost(lease) || lease.Fence() == 0 {
			t.Fatalf("Wait() = %v after %v, lost %t, fence %d", err, time.Since(start), isLost(lease), lease.Fence())
		}
		free(0)
		check.Fatal(t, "Commit()", lease.Commit(t.Context()))
		free(1)
		if reservation, err = l.Reserve(t.Context(), job, zlimit.MaxWait(time.Hour)); err != nil {
			t.Fatalf("Reserve() = %v", err)
		}
		free(0)
		check.Fatal(t, "Cancel()", reservation.Cancel(t.Context()))
		free(1)
		counts(t, l, 0, 2, 0)
		if again, err := l.Reserve(t.Context(), job, zlimit.MaxWait(time.Hour)); err != nil || again.Due().Sub(start) != 2*time.Minute {
			t.Errorf("after a cancel it is due after %v, %v, want two minutes", again.Due().Sub(start), err)
		} else if err := again.Cancel(t.Context()); err != nil {
			t.Fatalf("Cancel() = %v", err)
		}
	})
}
