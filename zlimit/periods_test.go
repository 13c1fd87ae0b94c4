package zlimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestTwoSessionsInOneBucket, two processes take of a quota whose session has ended, by images of one stamp. A third quota has no
// session, so that every write is one with a refill. The amount of a session is there once.
func TestTwoSessionsInOneBucket(t *testing.T) {
	for name, first := range map[string]zlimit.Limit{"sessions": zlimit.Session("a", 100, 5*time.Hour), "a refill": zlimit.PerMinute("a", 100)} {
		for _, behind := range []time.Duration{0, 200 * time.Millisecond, 500 * time.Millisecond} {
			t.Run(name+" "+behind.String(), func(t *testing.T) {
				forEachStore(t, func(t *testing.T, s zlimit.Store) {
					c := newClock()
					late := func() time.Time { return c.now().Add(-behind) }
					l, other := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithFreshness(0)), newLimiter(t, s, zlimit.WithClock(late), zlimit.WithFreshness(0))
					setSystem(t, l, first, zlimit.Session("b", 10, time.Hour), zlimit.Session("c", 2, 10*time.Minute))
					acquire(t, l, ask(zlimit.Amounts{"a": 13}))
					acquire(t, l, ask(zlimit.Amounts{"b": 7}))
					c.sleep(2 * time.Hour)
					acquire(t, l, ask(zlimit.Amounts{"a": 5}))
					c.sleep(behind / 2)
					acquire(t, other, ask(zlimit.Amounts{"b": 10}))
					c.sleep(30 * time.Second)
					status, _ := reject(t, l, ask(zlimit.Amounts{"b": 10})).Statuses.Limit("b")
					if status.Available != 0 || status.RetryAfter < 59*time.Minute+29*time.Second || status.RetryAfter > 59*time.Minute+31*time.Second {
						t.Errorf("status %+v, want a session that is used up", status)
					}
				})
			})
		}
	}
}

// TestSessionEndsByItsNewLength makes a session so short that it is over. No one has the old one's tokens, and the next request begins another.
func TestSessionEndsByItsNewLength(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.Session("a", 100, 5*time.Hour))
		acquire(t, l, ask(zlimit.Amounts{"a": 1}))
		c.sleep(time.Minute)
		setSystem(t, l, zlimit.Session("a", 100, 10*time.Second))
		if got := available(t, l, "a"); got != 100 {
			t.Errorf("%d are there after the end of the session, want 100", got)
		}
		acquire(t, l, ask(zlimit.Amounts{"a": 99}))
		status, _ := reject(t, l, ask(zlimit.Amounts{"a": 2})).Statuses.Limit("a")
		if status.Available != 1 || status.RetryAfter != 10*time.Second {
			t.Errorf("status %+v, want 1 left for 10 s", status)
		}
	})
}

// TestQuotaEndsByItsNewTimes moves the times of a quota so that an edge lies between its last request and the next one. The reported
// reset happens, and all report the same one.
func TestQuotaEndsByItsNewTimes(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock() // at noon
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.Daily("a", 100, "UTC"))
		acquire(t, l, ask(zlimit.Amounts{"a": 60}))
		setSystem(t, l, zlimit.Cron("a", 100, "0 15 * * *", "UTC"))
		status, _ := reject(t, l, ask(zlimit.Amounts{"a": 41})).Statuses.Limit("a")
		if status.Available != 40 || status.RetryAfter != 3*time.Hour {
			t.Errorf("status %+v, want 40 left until three o'clock", status)
		}
		c.sleep(3 * time.Hour)
		if got := available(t, l, "a"); got != 100 {
			t.Errorf("at three o'clock there are %d, want 100", got)
		}
		acquire(t, l, ask(zlimit.Amounts{"a": 90}))
		c.sleep(9 * time.Hour)
		if got := available(t, l, "a"); got != 10 {
			t.Errorf("at midnight there are %d, want 10", got)
		}
	})
}

// TestLeasesOverAChangeOfPeriods changes the length of a session and the times of a quota while leases are open. They give back, since
// neither period is over. A lease of a period that was over meanwhile gives back nothing, though the times are the former ones again.
func TestLeasesOverAChangeOfPeriods(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx, c := context.Background(), newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		daily := zlimit.Daily("q", 100, "UTC")
		expect := func(a, q int64) {
			t.Helper()
			if gotA, gotQ := available(t, l, "a"), available(t, l, "q"); gotA != a || gotQ != q {
				t.Errorf("%d and %d are left, want %d and %d", gotA, gotQ, a, q)
			}
		}
		setSystem(t, l, zlimit.Session("a", 100, 5*time.Hour), daily)
		lease, late := acquire(t, l, ask(zlimit.Amounts{"a": 60, "q": 60})), acquire(t, l, ask(zlimit.Amounts{"q": 10}))
		for _, pattern := range []string{"0 6 * * *", "0 13 * * *"} {
			setSystem(t, l, zlimit.Session("a", 100, 4*time.Hour), zlimit.Cron("q", 100, pattern, "UTC"))
			acquire(t, l, ask(zlimit.Amounts{"a": 1, "q": 1}))
		}
		expect(38, 28)
		check.Fatal(t, "Rollback()", lease.Rollback(ctx))
		expect(98, 88)
		c.sleep(time.Hour) // the quota resets at one o'clock
		acquire(t, l, ask(zlimit.Amounts{"q": 50}))
		setSystem(t, l, zlimit.Session("a", 100, 4*time.Hour), daily)
		acquire(t, l, ask(zlimit.Amounts{"q": 1}))
		check.Fatal(t, "Rollback()", late.Rollback(ctx))
		expect(98, 49)
	})
}
