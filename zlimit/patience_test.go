package zlimit_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestSharedCorrectionsEndInTime commits two leases over a store that is slower than one call may be. The second one
// waits for the write of the first, and gives up in the middle of its own, which it must not repeat.
func TestSharedCorrectionsEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, store := faulttest.New(t, []zlimit.Limit{zlimit.PerDay("rpd", 100)}, zlimit.WithCoalescing(), zlimit.WithCallTimeout(time.Minute))
		leases := [2]*zlimit.Lease{}
		for i := range leases {
			leases[i] = acquire(t, limiter, ask(zlimit.Amounts{"rpd": 1}))
			check.Fatal(t, "Adjust()", leases[i].Adjust(zlimit.Amounts{"rpd": 9}))
		}
		store.Break(faulttest.Slow(4 * time.Second))
		began := time.Now()
		first := make(chan error)
		go func() { first <- leases[0].Commit(t.Context()) }()
		synctest.Wait()
		err := leases[1].Commit(t.Context())
		var unavailable *zlimit.UnavailableError
		if took := time.Since(began); !errors.As(err, &unavailable) || !unavailable.Unknown || took != 5*time.Second {
			t.Errorf("Commit() = %v after %v, want an unknown outcome after 5s", err, took)
		}
		if err := leases[1].Commit(t.Context()); !errors.Is(err, zlimit.ErrLeaseClosed) {
			t.Errorf("another Commit() = %v, want ErrLeaseClosed", err)
		}
		check.Error(t, "the first Commit()", <-first)
		time.Sleep(time.Minute)
		store.Break(nil)
		statuses, err := limiter.Available(t.Context(), zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
		if err != nil || statuses[0].Available != 80 {
			t.Errorf("Available() = %v, %v, want 80: each correction once", statuses, err)
		}
	})
}

// TestDueLimitsInABlackHole takes as long as one call may, and before that until the read of the limits is late: the last ones hold
// on then. Later requests do not wait for limits at all.
func TestDueLimitsInABlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, store := faulttest.New(t, []zlimit.Limit{zlimit.PerDay("rpd", 100)})
		acquire(t, limiter, ask(zlimit.Amounts{"rpd": 1}))
		time.Sleep(time.Minute)
		store.Break(faulttest.Hang)
		for _, want := range []time.Duration{2200 * time.Millisecond, 2 * time.Second} {
			began := time.Now()
			_, err := limiter.Acquire(t.Context(), ask(zlimit.Amounts{"rpd": 1}))
			if took := time.Since(began); !errors.As(err, new(*zlimit.UnavailableError)) || took != want {
				t.Errorf("Acquire() = %v after %v, want an outage after %v", err, took, want)
			}
		}
	})
}
