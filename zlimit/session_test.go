package zlimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// sessions are the limits of the tests: 10 tokens for five hours, beside a limit that refills.
func sessions() []zlimit.Limit {
	return []zlimit.Limit{zlimit.Session("tokens", 10, 5*time.Hour), zlimit.PerMinute("rpm", 60)}
}

// TestSession opens sessions by requests, and by no others. All processes report the same end, at which the quota is
// full.
func TestSession(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, sessions()...)
		acquire(t, l, ask(zlimit.Amounts{"rpm": 1})) // makes the bucket, and begins no session
		c.sleep(3 * time.Hour)
		e := reject(t, other, ask(zlimit.Amounts{"tokens": 11}))
		if status, _ := e.Statuses.Limit("tokens"); !status.ResetsAt.IsZero() || status.Available != 10 || status.RetryAfter != zlimit.Never || status.Possible() || status.Limit != sessions()[0] {
			t.Errorf("without a session: %+v", status)
		}
		c.sleep(3 * time.Hour)
		acquire(t, other, ask(zlimit.Amounts{"tokens": 4, "rpm": 1}))
		end := c.now().Add(5 * time.Hour).UTC()
		acquire(t, l, ask(zlimit.Amounts{"tokens": 6}))
		expect := func(l *zlimit.RateLimiter, amount, left int64) {
			t.Helper()
			status, _ := reject(t, l, ask(zlimit.Amounts{"tokens": amount, "rpm": 1})).Statuses.Limit("tokens")
			if !status.ResetsAt.Equal(end) || status.RetryAfter != end.Sub(c.now()) || status.Available != left || !status.Possible() {
				t.Errorf("status %+v at %v, want a session until %v", status, c.now(), end)
			}
		}
		expect(l, 1, 0)
		c.sleep(5*time.Hour - time.Millisecond)
		expect(other, 10, 0)
		c.sleep(time.Millisecond)
		if got := available(t, l, "tokens"); got != 10 {
			t.Errorf("after the session %d are there, want 10", got)
		}
		c.sleep(time.Hour) // without a request there is no session
		acquire(t, other, ask(zlimit.Amounts{"tokens": 7}))
		end = c.now().Add(5 * time.Hour).UTC()
		expect(l, 4, 3)
	})
}

// TestSessionOfLeases corrects leases in the session in which they took, in a later one, and if none is open.
func TestSessionOfLeases(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx, c := context.Background(), newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, sessions()...)
		take := func(n int64) *zlimit.Lease { return acquire(t, l, ask(zlimit.Amounts{"tokens": n})) }
		early, late, more, last := take(2), take(3), take(1), take(2)
		check.Fatal(t, "Rollback()", early.Rollback(ctx))
		if got := available(t, l, "tokens"); got != 4 {
			t.Errorf("after tokens are given back %d are there, want 4", got)
		}
		c.sleep(5 * time.Hour)
		check.Fatal(t, "Rollback()", late.Rollback(ctx))
		if got := available(t, l, "tokens"); got != 10 {
			t.Errorf("given back where no session is open: %d are there, want 10", got)
		}
		c.sleep(time.Hour)
		if err := errors.Join(more.Adjust(zlimit.Amounts{"tokens": 5}), more.Commit(ctx)); err != nil { // which begins a session
			t.Fatalf("Adjust() and Commit() = %v", err)
		}
		c.sleep(time.Hour)
		check.Fatal(t, "Rollback()", last.Rollback(ctx))
		status, _ := reject(t, l, ask(zlimit.Amounts{"tokens": 7})).Statuses.Limit("tokens")
		if status.Available != 5 || status.RetryAfter != 4*time.Hour {
			t.Errorf("status %+v, want 5 for 4 hours: the 5 that the lease used more are of the session that they began", status)
		}
		if got := limit(t, l, "tokens").Consumed; got != 6000 {
			t.Errorf("%d millitokens are counted, want the 6 that were used", got)
		}
	})
}

// TestSessionOfShards begins sessions of a split bucket: on all shards at once, at the same time, from whichever process the request comes.
func TestSessionOfShards(t *testing.T) {
	c := newClock()
	s := zlimit.StoreOn(partitioned{store.Of(newMemory(t))})
	l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
	setSystem(t, l, sessions()...)
	first := acquire(t, l, ask(zlimit.Amounts{"tokens": 1, "rpm": 1}))
	split(t, l)
	split(t, l)
	together := func(since int64) {
		t.Helper()
		for _, state := range storedShards(t, l, "key-1") {
			if got := state.Limits[1]; got.Name != "tokens" || got.Since() != since || got.Applied() != since {
				t.Errorf("shard %d is in the session of %d, want that of %d", state.Shard, got.Since(), since)
			}
		}
	}
	together(c.now().UnixMilli())
	for range 3 {
		if got := available(t, l, "tokens"); got != 9 {
			t.Errorf("%d are there, want 9", got)
		}
		c.sleep(5*time.Hour + time.Minute)
		since := c.now().UnixMilli()
		lease := acquire(t, other, ask(zlimit.Amounts{"tokens": 6, "rpm": 1}))
		together(since)
		acquire(t, l, ask(zlimit.Amounts{"tokens": 4}))
		status, _ := reject(t, l, ask(zlimit.Amounts{"tokens": 1})).Statuses.Limit("tokens")
		if status.RetryAfter != 5*time.Hour {
			t.Errorf("status %+v", status)
		}
		check.Fatal(t, "Rollback()", lease.Rollback(t.Context()))
		if got := available(t, other, "tokens"); got != 6 {
			t.Errorf("%d are there after a lease was rolled back, want 6", got)
		}
		if got := reset(t, l, zlimit.ResetRequest{Limits: []string{"tokens"}}); got.Limits[0].After != 10*zlimit.Token {
			t.Errorf("Reset() = %+v", got)
		}
		together(0)
		c.sleep(time.Second)
		acquire(t, l, ask(zlimit.Amounts{"tokens": 1}))
		together(c.now().UnixMilli())
	}
	c.sleep(6 * time.Hour)
	check.Fatal(t, "Adjust() and Commit()", errors.Join(first.Adjust(zlimit.Amounts{"tokens": 4}), first.Commit(t.Context())))
	together(c.now().UnixMilli()) // by what a lease used more
	if got := available(t, other, "tokens"); got != 6 {
		t.Errorf("%d are there after a lease used 4 more, want 6", got)
	}
}

// In TestSessionChanges, a limit becomes a session quota, with other lengths and amounts, and another limit again.
func TestSessionChanges(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerMinute("tokens", 20))
		acquire(t, l, ask(zlimit.Amounts{"tokens": 5}))
		c.sleep(time.Second)
		setSystem(t, l, zlimit.Session("tokens", 10, time.Hour))
		if got := available(t, l, "tokens"); got != 10 {
			t.Errorf("as a session quota %d are there, want 10", got)
		}
		acquire(t, l, ask(zlimit.Amounts{"tokens": 4}))
		setSystem(t, l, zlimit.Session("tokens", 8, 2*time.Hour))
		if status, _ := reject(t, l, ask(zlimit.Amounts{"tokens": 7})).Statuses.Limit("tokens"); status.Available != 6 || status.RetryAfter != 2*time.Hour {
			t.Errorf("with another length %+v", status)
		}
		c.sleep(2 * time.Hour)
		setSystem(t, l, zlimit.Session("tokens", 12, 2*time.Hour)) // while none is open
		acquire(t, l, ask(zlimit.Amounts{"tokens": 12}))
		setSystem(t, l, zlimit.PerMinute("tokens", 20))
		reject(t, l, ask(zlimit.Amounts{"tokens": 1}))
		c.sleep(31 * time.Second)
		acquire(t, l, ask(zlimit.Amounts{"tokens": 10}))
		got := limit(t, l, "tokens")
		if got.Session() != 0 || got.Since() != 0 || got.Applied() != 0 || got.RefillAmount != 20_000 {
			t.Errorf("as a limit that refills it is %+v", got)
		}
		setSystem(t, l, zlimit.Daily("tokens", 5, "UTC"))
		if status, _ := reject(t, l, ask(zlimit.Amounts{"tokens": 1})).Statuses.Limit("tokens"); status.Limit.Session != 0 || status.Available != 0 || status.ResetsAt.IsZero() {
			t.Errorf("as a daily quota it is %+v", status)
		}
	})
}

// TestSessionInput refuses what is no session quota before any call.
func TestSessionInput(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	for _, test := range []struct {
		limit zlimit.Limit
		field string
	}{
		{zlimit.Session("a", 5, 1500*time.Millisecond), "limits[a] session"},
		{zlimit.Session("a", 5, -time.Hour), "limits[a] session"},
		{zlimit.Session("a", 5, 0), "limits[a] session"},
		{zlimit.PerMinute("a", 5, zlimit.Term(time.Second)), "limits[a] term"},
		{zlimit.Limit{Name: "a", Capacity: 5, Session: time.Hour, Term: time.Second}, "limits[a] term"},
		{zlimit.Session("a", 5, 1_000_000_001*time.Second), "limits[a] session"},
		{zlimit.Session("a", 0, time.Hour), "limits[a] capacity"},
		{zlimit.Limit{Name: "a", Capacity: 5, Session: time.Hour, RefillAmount: 1}, "limits[a] refill amount"},
		{zlimit.Limit{Name: "a", Capacity: 5, Session: time.Hour, RefillPeriod: time.Hour}, "limits[a] refill period"},
		{zlimit.Limit{Name: "a", Capacity: 5, Session: time.Hour, Resets: "0 0 * * *", Zone: "UTC"}, "limits[a] resets"},
		{zlimit.Session("a", 5, time.Hour).In("UTC"), "limits[a] zone"},
		{zlimit.Session("a", 5, time.Hour).When("* * * * *", "to 5/h"), "limits[a] windows"},
	} {
		var e *zlimit.ValidationError
		if err := l.Limits.Set(t.Context(), zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{test.limit}}); !errors.As(err, &e) || e.Field != test.field {
			t.Errorf("%+v: %v, want an error of %s", test.limit, err, test.field)
		}
	}
	r := ask(zlimit.Amounts{"a": 1})
	r.Limits = []zlimit.Limit{zlimit.Session("a", 5, time.Hour)}
	var e *zlimit.ValidationError
	if _, err := l.Acquire(t.Context(), r); !errors.As(err, &e) || e.Field != "limits[a]" {
		t.Errorf("a session quota of a request: %v", err)
	}
	for text, want := range map[string]zlimit.Limit{
		"tokens=2M/session:5h":                  zlimit.Session("tokens", 2_000_000, 5*time.Hour),
		`a=5/session:90s when "* * * * 6,7" x2`: zlimit.Session("a", 5, 90*time.Second).When("* * * * 6,7", "x2"),
		"a=5/session:2d floors batch=20":        zlimit.Session("a", 5, 48*time.Hour).Floor("batch", 20),
		"a=5/session:":                          {}, "a=5/session": {}, "a=5/session:1500ms": {}, "a=5:5/session:1h": {},
	} {
		var got zlimit.Limit
		if err := got.UnmarshalText([]byte(text)); got != want || (err == nil) != (want.Name != "") {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
	}
}

// TestWaitsForSessions waits for tokens of a session that is used up: until it ends, and no caller is admitted before.
func TestWaitsForSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newMemory(t))
		setSystem(t, l, zlimit.Session("tokens", 10, time.Minute), zlimit.PerMinute("rpm", 60))
		acquire(t, l, ask(zlimit.Amounts{"tokens": 8}))
		start := time.Now()
		time.Sleep(10 * time.Second)
		if _, err := l.Wait(t.Context(), ask(zlimit.Amounts{"tokens": 5, "rpm": 1}), zlimit.MaxWait(2*time.Minute)); err != nil {
			t.Fatalf("Wait() = %v", err)
		}
		if waited := time.Since(start); waited < time.Minute || waited > time.Minute+2*time.Second {
			t.Errorf("admitted after %v, want the end of the session after a minute", waited)
		}
		if _, err := l.Wait(t.Context(), ask(zlimit.Amounts{"tokens": 11}), zlimit.MaxWait(10*time.Minute)); err == nil {
			t.Error("more than a session has is waited for")
		}
	})
}
