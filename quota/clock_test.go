package quota_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/quota"
)

// limiters are the ways to keep windows, for what holds on all of them.
func limiters(t *testing.T, test func(t *testing.T, open func(c quota.Config) *quota.Limiter)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		test(t, func(c quota.Config) *quota.Limiter { return newLimiter(t, c) })
	})
	t.Run("sqlite", func(t *testing.T) {
		test(t, func(c quota.Config) *quota.Limiter {
			c.Backend, c.FilePath = quota.BackendSQLite, filepath.Join(t.TempDir(), "quota.db")
			l := newLimiter(t, c)
			t.Cleanup(func() {
				check.Error(t, "Close", l.Close())
			})
			return l
		})
	})
}

// TestAClockSetBackShutsForOneWindow: what was recorded before the clock was set
// back counts for one more window, and not until the clock has caught up.
func TestAClockSetBackShutsForOneWindow(t *testing.T) {
	limiters(t, func(t *testing.T, open func(c quota.Config) *quota.Limiter) {
		for name, c := range map[string]struct {
			q    quota.ModelQuota
			want time.Duration
		}{
			"the minute": {quota.ModelQuota{MaxRPM: 1}, time.Minute},
			"the day":    {quota.ModelQuota{MaxRPD: 1}, 24 * time.Hour},
		} {
			t.Run(name, func(t *testing.T) {
				ctx, clk := t.Context(), newClock()
				l := open(quota.Config{Clock: clk.Now, Quotas: map[string]quota.ModelQuota{"m": c.q}, DefaultKeyQuota: c.q})
				r := quota.Request{Model: "m", Key: "k", Input: 10}
				if _, err := l.Reserve(ctx, r); err != nil {
					t.Fatalf("Reserve() = %v", err)
				}
				clk.advance(-365 * 24 * time.Hour)
				var denied *quota.ExceededError
				if err := l.Check(ctx, r); !errors.As(err, &denied) {
					t.Errorf("Check after the clock was set back = %v, want refused", err)
				}
				if d, err := l.TimeUntil(ctx, r); err != nil || d != c.want {
					t.Errorf("TimeUntil after the clock was set back = %v, %v, want %v", d, err, c.want)
				}
				clk.advance(c.want - 1)
				if err := l.Check(ctx, r); !errors.As(err, &denied) {
					t.Errorf("Check 1ns before the window is over = %v, want refused", err)
				}
				clk.advance(1)
				check.Error(t, "Check when the window is over", l.Check(ctx, r))
			})
		}
	})
}

// TestAReservationOutlivesAClockSetBack: settling and cancelling find what was
// reserved before the clock was set back.
func TestAReservationOutlivesAClockSetBack(t *testing.T) {
	limiters(t, func(t *testing.T, open func(c quota.Config) *quota.Limiter) {
		ctx, clk := t.Context(), newClock()
		l := open(quota.Config{Clock: clk.Now, Quotas: map[string]quota.ModelQuota{"m": {MaxTPM: 1000, MaxTPD: 1000, MaxRPM: 10}}})
		var held [2]quota.Reservation
		for i := range held {
			var err error
			if held[i], err = l.Reserve(ctx, quota.Request{Model: "m", Input: 100}); err != nil {
				t.Fatalf("Reserve() = %v", err)
			}
		}
		clk.advance(-time.Hour)
		check.Fatal(t, "Check()", l.Check(ctx, quota.Request{Model: "m"}))
		check.Fatal(t, "Settle() and Cancel()", errors.Join(held[0].Settle(ctx, 30, 0), held[1].Cancel(ctx)))
		st, err := l.Stats(ctx, "m")
		if err != nil || st.TPM != 30 || st.TPD != 30 || st.RPM != 1 || st.RPD != 1 {
			t.Errorf("Stats = %+v, %v, want the 30 tokens of the one request that was settled", st, err)
		}
	})
}
