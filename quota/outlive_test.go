package quota_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/quota"
)

// TestWhatHasHappenedIsRecorded: the context of a request that was broken off has
// ended when its reservation is settled or cancelled.
func TestWhatHasHappenedIsRecorded(t *testing.T) {
	limiters(t, func(t *testing.T, open func(c quota.Config) *quota.Limiter) {
		l := open(quota.Config{Quotas: map[string]quota.ModelQuota{"m": {MaxTPD: 1000}}})
		ended, end := context.WithCancel(t.Context())
		var held [2]quota.Reservation
		for i := range held {
			var err error
			if held[i], err = l.Reserve(ended, quota.Request{Model: "m", Input: 500}); err != nil {
				t.Fatalf("Reserve() = %v", err)
			}
		}
		end()
		check.Error(t, "Settle after its context ended", held[0].Settle(ended, 7, 0))
		check.Error(t, "Cancel after its context ended", held[1].Cancel(ended))
		check.Error(t, "RecordUsage after its context ended", l.RecordUsage(ended, "m", 1, 2))
		if st, err := l.Stats(t.Context(), "m"); err != nil || st.TPD != 10 || st.RPD != 2 {
			t.Errorf("Stats = %+v, %v, want 10 tokens of two requests", st, err)
		}
	})
}

// A stuckStore reserves, and never ends anything else before its context does.
type stuckStore struct{ quota.Store }

func (stuckStore) Reserve(context.Context, quota.Charge) (quota.Ticket, error) { return "ticket", nil }

func (stuckStore) Settle(ctx context.Context, _ quota.Ticket, _, _ int64) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestAStuckStoreIsNotWaitedForForever: five seconds after its context has ended
// a settlement gives up, and can be tried again.
func TestAStuckStoreIsNotWaitedForForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := quota.NewWithStore(t.Context(), stuckStore{}, quota.Config{Providers: []quota.Provider{quota.ProviderLocal}})
		check.Fatal(t, "quota.NewWithStore()", err)
		r := check.Call(l.Reserve(t.Context(), quota.Request{Model: "m"})).Must(t, "Reserve()")
		cause := errors.New("the user went away")
		ctx, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Hour, func() { leave(cause) })
		for _, want := range []time.Duration{time.Hour + 5*time.Second, 5 * time.Second} {
			start := time.Now()
			if err := r.Settle(ctx, 1, 1); !errors.Is(err, cause) || time.Since(start) != want {
				t.Errorf("Settle = %v after %v, want the cause after %v", err, time.Since(start), want)
			}
		}
	})
}
