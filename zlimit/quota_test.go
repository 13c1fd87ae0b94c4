package zlimit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// setQuota gives a resource a quota of 10 tokens a day in a zone, beside a limit that refills, and returns when it resets.
// The clock shows noon.
func setQuota(tb testing.TB, l *zlimit.RateLimiter, c *clock, zone string) time.Time {
	tb.Helper()
	place := check.Call(time.LoadLocation(zone)).Must(tb, "time.LoadLocation()")
	now := c.now().In(place)
	c.sleep(time.Date(now.Year(), now.Month(), now.Day()+1, 12, 0, 0, 0, place).Sub(now))
	setSystem(tb, l, zlimit.Daily("tokens", 10, zone), zlimit.PerMinute("rpm", 60))
	return time.Date(now.Year(), now.Month(), now.Day()+2, 0, 0, 0, 0, place).UTC()
}

// TestQuota uses up a quota, which refills at midnight in its zone and not before. All processes report the same time.
func TestQuota(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		midnight := setQuota(t, l, c, "America/New_York")
		other := newLimiter(t, s, zlimit.WithClock(c.now))
		acquire(t, l, ask(zlimit.Amounts{"tokens": 4, "rpm": 1}))
		acquire(t, other, ask(zlimit.Amounts{"tokens": 6}))
		expect := func(l *zlimit.RateLimiter, amount, left int64) {
			t.Helper()
			e := reject(t, l, ask(zlimit.Amounts{"tokens": amount, "rpm": 1}))
			status, _ := e.Statuses.Limit("tokens")
			if !status.ResetsAt.Equal(midnight) || status.RetryAfter != midnight.Sub(c.now()) || status.Available != left || !status.Possible() {
				t.Errorf("status %+v at %v, want a reset at %v", status, c.now(), midnight)
			}
			if rpm, _ := e.Statuses.Limit("rpm"); !rpm.ResetsAt.IsZero() {
				t.Errorf("rpm resets at %v", rpm.ResetsAt)
			}
		}
		expect(l, 1, 0)
		c.sleep(midnight.Sub(c.now()) - time.Millisecond)
		expect(l, 1, 0)
		expect(other, 10, 0)
		c.sleep(time.Millisecond)
		acquire(t, other, ask(zlimit.Amounts{"tokens": 7}))
		midnight = midnight.Add(24 * time.Hour)
		expect(l, 4, 3)
		acquire(t, l, ask(zlimit.Amounts{"tokens": 3}))
		c.sleep(72 * time.Hour) // however many days have passed
		midnight = midnight.Add(72 * time.Hour)
		acquire(t, l, ask(zlimit.Amounts{"tokens": 10}))
		expect(l, 1, 0)
	})
}

// TestQuotaOfLeases corrects leases in the period in which they took, and in a later one.
func TestQuotaOfLeases(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx, c := context.Background(), newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		midnight := setQuota(t, l, c, "Europe/Berlin")
		early, late, more := acquire(t, l, ask(zlimit.Amounts{"tokens": 2})), acquire(t, l, ask(zlimit.Amounts{"tokens": 3})), acquire(t, l, ask(zlimit.Amounts{"tokens": 1}))
		check.Fatal(t, "Rollback()", early.Rollback(ctx))
		if got := available(t, l, "tokens"); got != 6 {
			t.Errorf("after tokens are given back %d are there, want 6", got)
		}
		c.sleep(midnight.Sub(c.now()))
		acquire(t, l, ask(zlimit.Amounts{"tokens": 4}))
		if err := errors.Join(late.Rollback(ctx), more.Adjust(zlimit.Amounts{"tokens": 5}), more.Commit(ctx)); err != nil {
			t.Fatalf("Rollback() and Adjust() and Commit() = %v", err)
		}
		got := limit(t, l, "tokens")
		if got.Tokens != 1000 {
			t.Errorf("in the next period %d millitokens are left: want the 10 less 4 and 5 that were taken in it", got.Tokens)
		}
		if got.Consumed != 10_000 {
			t.Errorf("%d millitokens are counted, want the 1 and 4 and 5 that were used", got.Consumed)
		}
	})
}

// TestStoredQuotas stores quotas at each level, reads them back, and reports them.
func TestStoredQuotas(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		limits := []zlimit.Limit{
			zlimit.Cron("calls", 5, "0 8,20 * * 1-5; 30 12 * * *", "Asia/Tokyo"), zlimit.PerMinute("rpm", 60), zlimit.Weekly("tokens", 7, "Asia/Tokyo"),
		}
		for _, at := range []zlimit.Level{{}, {Resource: "gpt-4"}, {Entity: "key-1"}, {Entity: "key-1", Resource: "gpt-4"}} {
			setLimits(t, l, at, limits...)
			if got, err := newLimiter(t, s).Limits.Get(ctx, at); err != nil || !cmp.Equal(got.Limits, limits) {
				t.Errorf("%v: %v, %v, want %v", at, got.Limits, err, limits)
			}
		}
		acquire(t, l, ask(zlimit.Amounts{"tokens": 7, "calls": 1}))
		again := newLimiter(t, s) // which reads what the item of the bucket repeats, where it does
		reject(t, again, ask(zlimit.Amounts{"tokens": 1}))
		found, err := again.Limits.Resolve(ctx, "key-1", "gpt-4")
		if err != nil || !cmp.Equal(found.Limits, limits) {
			t.Errorf("Resolve() = %v, %v", found, err)
		}
	})
}

// TestQuotaInput refuses what is no quota before any call.
func TestQuotaInput(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	set := func(limits ...zlimit.Limit) error {
		return l.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: limits})
	}
	refill, period := zlimit.Daily("a", 1, "UTC"), zlimit.Daily("a", 1, "UTC")
	refill.RefillAmount, period.RefillPeriod = 5, time.Hour
	own := ask(zlimit.Amounts{"a": 1})
	own.Limits = []zlimit.Limit{zlimit.Daily("a", 1, "UTC")}
	_, err := l.Acquire(ctx, own)
	_, asked := l.Available(ctx, zlimit.AvailableQuery{Entity: own.Entity, Resource: own.Resource, Limits: own.Limits})
	for _, test := range []struct {
		err         error
		field, rule string
	}{
		{set(zlimit.Daily("a", 0, "UTC")), "limits[a] capacity", "must be from 1"},
		{set(refill), "limits[a] refill amount", "must be 0 for a quota"},
		{set(period), "limits[a] refill period", "must be 0 for a quota"},
		{set(zlimit.Monthly("a", 1, "")), "limits[a] zone", `must be a name of the IANA database`},
		{set(zlimit.Monthly("a", 1, "Europe/Bonn")), "limits[a] zone", `is not known`},
		{set(zlimit.Limit{Name: "a", Capacity: 1, RefillAmount: 1, RefillPeriod: time.Second, Zone: "UTC"}), "limits[a] zone", "is for quotas"},
		{set(zlimit.Cron("a", 1, "0 0 30 2 *", "UTC")), "limits[a] resets", "never begins"},
		{set(zlimit.Cron("a", 1, "0 0 0 * * *", "UTC")), "limits[a] resets", "must have the five fields"},
		{set(zlimit.Daily("a", 1, "UTC"), zlimit.Daily("b", 1, "Asia/Tokyo")), "limits[b] zone", "must be the zone of the other limits of the level, UTC"},
		{err, "limits[a]", "is a quota, which must be stored"},
		{asked, "limits[a]", "is a quota, which must be stored"},
	} {
		var invalid *zlimit.ValidationError
		if !errors.As(test.err, &invalid) || invalid.Field != test.field || !strings.Contains(invalid.Reason, test.rule) {
			t.Errorf("error %v, want one of %s: %s", test.err, test.field, test.rule)
		}
	}
}

// In TestQuotasOfOthers, a bucket is as zae-limiter 0.17 writes it: its limits share their times, and its next edge is
// past. The first write crosses it. From then on each limit has its own times.
func TestQuotasOfOthers(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		midnight := setQuota(t, l, c, "America/New_York")
		acquire(t, l, ask(zlimit.Amounts{"tokens": 4, "rpm": 1}))
		shared := item(t, l).Clone()
		for _, name := range []string{"b_tokens_rsched", "i_tokens", "i_rpm", "kc"} {
			shared.Remove(name)
		}
		shared.Set("rsched", expr.S("1m0h0"))
		shared.Set("b_rpm_rsched", expr.S("-"))
		shared.Set("b_tokens_ra", expr.N(0))
		shared.Set("b_tokens_gc", expr.N(1))
		put(t, l, keyOfBucket(l), shared)
		for _, test := range []struct {
			sleep  time.Duration
			amount int64
			left   int64
		}{{0, 1, 5000}, {midnight.Sub(c.now()), 7, 3000}} {
			c.sleep(test.sleep)
			l = newLimiter(t, s, zlimit.WithClock(c.now))
			acquire(t, l, ask(zlimit.Amounts{"tokens": test.amount}))
			if got := limit(t, l, "tokens"); got.Tokens != test.left || got.ResetTimes() != "1m0h0" {
				t.Errorf("%d millitokens at times %q, want %d", got.Tokens, got.ResetTimes(), test.left)
			}
			if _, ok := item(t, l).Lookup("rsched"); ok {
				t.Error("the limits still share their times")
			}
		}
		state, err := layout.ReadState(item(t, l))
		if want := midnight.Add(24 * time.Hour).UnixMilli(); err != nil || state.ValidUntil != want {
			t.Errorf("the bucket is valid until %d, %v, want %d", state.ValidUntil, err, want)
		}
	})
}

// In TestWaitForQuota, callers wait for a quota that is used up. They ask once more when it resets. The error of callers
// that come too late reports the next reset.
func TestWaitForQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newMemory(t))
		setSystem(t, l, zlimit.Daily("tokens", 10, "UTC"), zlimit.PerMinute("rpm", 60))
		time.Sleep(23 * time.Hour)
		acquire(t, l, ask(zlimit.Amounts{"tokens": 10}))
		one := ask(zlimit.Amounts{"tokens": 1})
		midnight := time.Now().Add(time.Hour)
		for name, call := range map[string]func() error{
			"a wait that is too short": func() error {
				_, err := l.Wait(t.Context(), one, zlimit.MaxWait(time.Hour-time.Millisecond))
				return err
			},
			"a reservation": func() error {
				_, err := l.Reserve(t.Context(), one, zlimit.MaxWait(2*time.Hour))
				return err
			},
		} {
			var e *zlimit.ExceededError
			if err := call(); !errors.As(err, &e) || e.RetryAfter() != time.Hour || !time.Now().Before(midnight) {
				t.Errorf("%s: %v", name, err)
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := l.Wait(gone, one, zlimit.MaxWait(2*time.Hour)); !errors.Is(err, context.Canceled) {
				t.Errorf("Wait() of one that gives up = %v", err)
			}
		})
		var admitted, refused atomic.Int64
		for range 15 {
			group.Go(func() {
				_, err := l.Wait(t.Context(), one, zlimit.MaxWait(2*time.Hour))
				var e *zlimit.ExceededError
				switch after := time.Since(midnight); {
				case after <= 0 || after >= time.Second: // the part of a second that the entity has is not 0
					t.Errorf("a caller hears %v after midnight: %v", after, err)
				case err == nil:
					admitted.Add(1)
				case errors.As(err, &e) && e.RetryAfter() == 24*time.Hour-after:
					refused.Add(1)
				default:
					t.Errorf("Wait() = %v", err)
				}
			})
		}
		synctest.Wait()
		if s := l.Stats(); s.Waiting != 16 {
			t.Errorf("%d wait, want 16", s.Waiting)
		}
		cancel()
		group.Wait()
		if s := l.Stats(); admitted.Load() != 10 || refused.Load() != 5 || s.Waiting != 0 || s.Waited != 10 || s.Abandoned != 1 || s.Rejected != 7 {
			t.Errorf("%d were admitted and %d refused; %+v", admitted.Load(), refused.Load(), s)
		}
	})
}

// In TestNoWaitPastAnEdge, a request asks for a token of a quota, and for one that flows in after the quota resets. The
// request takes of the later period alone.
func TestNoWaitPastAnEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newMemory(t))
		setSystem(t, l, zlimit.Daily("tokens", 10, "UTC"), zlimit.PerMinute("rpm", 3, zlimit.Burst(1)))
		time.Sleep(24*time.Hour - 10*time.Second)
		midnight := time.Now().Add(10 * time.Second)
		r := ask(zlimit.Amounts{"tokens": 1, "rpm": 1})
		acquire(t, l, r)
		var e *zlimit.ExceededError
		if _, err := l.Reserve(t.Context(), r, zlimit.MaxWait(time.Minute)); !errors.As(err, &e) || e.RetryAfter() != 20*time.Second {
			t.Errorf("Reserve() = %v, want a rejection for 20 s", err)
		}
		if _, err := l.Wait(t.Context(), r, zlimit.MaxWait(15*time.Second)); !errors.As(err, &e) || time.Now().After(midnight) {
			t.Errorf("Wait() = %v, want a rejection at once", err)
		}
		if left := available(t, l, "tokens"); left != 9 {
			t.Errorf("%d of the quota are left before midnight, want 9", left)
		}
		if _, err := l.Wait(t.Context(), r, zlimit.MaxWait(time.Minute)); err != nil || time.Since(midnight) != 10*time.Second {
			t.Errorf("Wait() ends %v after midnight: %v", time.Since(midnight), err)
		}
		if left := available(t, l, "tokens"); left != 9 {
			t.Errorf("%d of the quota are left after midnight, want 9", left)
		}
	})
}
