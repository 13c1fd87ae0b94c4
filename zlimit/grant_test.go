package zlimit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// grant adds tokens of one limit to the bucket of the requests of [ask], until a time, or without an end.
func grant(tb testing.TB, l *zlimit.RateLimiter, limit string, amount int64, until time.Time) (zlimit.BucketChange, error) {
	tb.Helper()
	return l.Limits.TopUp(tb.Context(), zlimit.TopUpRequest{
		Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{limit: amount}, Until: until, OperationID: "for-" + limit,
	})
}

// ungranted fails where an item of the usual bucket notes a grant.
func ungranted(tb testing.TB, l *zlimit.RateLimiter) {
	tb.Helper()
	for _, s := range shardsOf(tb, l) {
		for _, held := range s.Limits {
			if held.Granted() != 0 || held.Until() != 0 {
				tb.Errorf("the item notes a grant: %+v", held)
			}
		}
	}
}

// TestGrant grants tokens beyond the capacity of a limit that refills. Another process takes them until the grant ends. What is left of them
// is gone then, and the item notes nothing of it any more.
func TestGrant(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerDay("rpd", 864))
		acquire(t, other, ask(zlimit.Amounts{"rpd": 4}))
		until := c.now().Add(48 * time.Hour)
		for _, repeated := range []bool{false, true} {
			got, err := grant(t, l, "rpd", 1000, until)
			want := zlimit.LimitChange{Limit: "rpd", Added: 1000 * zlimit.Token, Before: 860 * zlimit.Token, After: 1860 * zlimit.Token, Until: until}
			if err != nil || got.Repeated != repeated || len(got.Limits) != 1 || got.Limits[0] != want {
				t.Errorf("TopUp() = %+v, %v", got, err)
			}
		}
		if s := status(t, other, "rpd"); s.Available != 1860 || s.Granted != 1000 || !s.GrantEnds.Equal(until) {
			t.Errorf("status %+v", s)
		}
		if s, _ := reject(t, other, ask(zlimit.Amounts{"rpd": 1861})).Statuses.Limit("rpd"); !s.Possible() || s.RetryAfter != 100*time.Second {
			t.Errorf("status %+v, want a wait of 100 s", s)
		}
		if s, _ := reject(t, other, ask(zlimit.Amounts{"rpd": 1865})).Statuses.Limit("rpd"); s.Possible() {
			t.Errorf("status %+v, want one that is not possible", s)
		}
		lease := acquire(t, other, ask(zlimit.Amounts{"rpd": 1200}))
		c.sleep(24 * time.Hour) // 864 flow in
		if has := available(t, other, "rpd"); has != 1524 {
			t.Errorf("%d are available, want 1524", has)
		}
		c.sleep(24*time.Hour - time.Millisecond)
		if has := available(t, other, "rpd"); has != 1864 {
			t.Errorf("%d are available before the grant ends, want 1864", has)
		}
		acquire(t, other, ask(zlimit.Amounts{"rpd": 1}))
		c.sleep(time.Millisecond)
		if has := available(t, other, "rpd"); has != 864 {
			t.Errorf("%d are available when the grant ends, want 864", has)
		}
		reject(t, other, ask(zlimit.Amounts{"rpd": 865}))
		acquire(t, other, ask(zlimit.Amounts{"rpd": 4}))
		ungranted(t, l)
		check.Fatal(t, "Rollback()", lease.Rollback(t.Context()))
		if has := available(t, l, "rpd"); has != 864 {
			t.Errorf("%d are available after a lease of the grant was rolled back, want 864", has)
		}
	})
}

// TestGrantRepeated repeats a grant with other ends, and when it ends. It is one operation, with the end of the first call. Another one with
// the ID is refused, as is a first call whose end is past, which writes nothing.
func TestGrantRepeated(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerDay("until", 10), zlimit.PerDay("v", 10))
		topUp := func(id string, until time.Time, amounts zlimit.Amounts) (zlimit.BucketChange, error) {
			return l.Limits.TopUp(t.Context(), zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: amounts, Until: until, OperationID: id})
		}
		refused := func(id string, until time.Time, amounts zlimit.Amounts) {
			t.Helper()
			if made, err := topUp(id, until, amounts); invalid(err).Field != "operation id" {
				t.Errorf("TopUp() of %v until %v = %+v, %v, want an error of the ID", amounts, until, made, err)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, id := range []string{"weekend", ""} { // the latter without a call
			r := zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"v": 5}, Until: c.now(), OperationID: id}
			var invalid *zlimit.ValidationError
			if _, err := l.Limits.TopUp(ended, r); !errors.As(err, &invalid) || !strings.Contains(invalid.Reason, "later than now") {
				t.Errorf("TopUp() until now, under %q: %v", id, err)
			}
			cancel()
		}
		amounts, end := zlimit.Amounts{"until": 5, "v": 6}, c.now().Add(24*time.Hour)
		for i, until := range []time.Time{end, end.Add(time.Hour), {}, c.now().Add(-time.Hour), end} {
			if i == 4 {
				c.sleep(25 * time.Hour)
			}
			got, err := topUp("weekend", until, amounts)
			if err != nil || got.Repeated != (i > 0) || len(got.Limits) != 2 || !got.Limits[1].Until.Equal(end) || got.Limits[1].After != 16*zlimit.Token {
				t.Errorf("call %d: TopUp() = %+v, %v", i, got, err)
			}
		}
		if has := available(t, l, "v"); has != 10 {
			t.Errorf("%d are available after the grant, want 10", has)
		}
		refused("weekend", end, zlimit.Amounts{"v": 6})
		refused("weekend", end, zlimit.Amounts{"until": 5, "v": 7})
		for _, until := range []time.Time{{}, c.now().Add(time.Hour)} {
			if got, err := topUp("filled", until, amounts); err != nil || got.Repeated == until.IsZero() || !got.Limits[0].Until.IsZero() {
				t.Errorf("without an end, then until %v, TopUp() = %+v, %v", until, got, err)
			}
		}
		refused("filled", time.Time{}, zlimit.Amounts{"v": 6}) // where "until" is a limit, and no end
		if _, err := l.Limits.Reset(t.Context(), zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4", OperationID: "weekend"}); err == nil {
			t.Error("a reset with the ID of a grant is done")
		}
		if events := count(actions(t, l, "key-1"), zlimit.ActionBucketToppedUp); events != 2 {
			t.Errorf("%d events record top-ups, want two", events)
		}
	})
}

// TestGrantOfQuotas grants tokens of quotas for two days, and for a period. What is left of the former goes along at midnight, and what is
// left of the latter does not.
func TestGrantOfQuotas(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.Daily("runs", 100, "UTC"), zlimit.Daily("images", 100, "UTC"))
		acquire(t, other, ask(zlimit.Amounts{"runs": 90, "images": 90}))
		until := c.now().Truncate(24*time.Hour).AddDate(0, 0, 2).Add(time.Hour)
		for limit, until := range map[string]time.Time{"runs": until, "images": {}} {
			if _, err := grant(t, l, limit, 50, until); err != nil {
				t.Fatalf("grant() = %v", err)
			}
		}
		c.sleep(time.Second)                                             // what a rejection from memory lasts at most
		acquire(t, other, ask(zlimit.Amounts{"runs": 20, "images": 20})) // 10 of each grant
		c.sleep(status(t, other, "runs").ResetsAt.Sub(c.now()))
		if runs, images := status(t, other, "runs"), status(t, other, "images"); runs.Available != 140 || images.Available != 100 || runs.Granted != 40 || images.Granted != 0 {
			t.Errorf("after midnight %+v and %+v, want 140 and 100", runs, images)
		}
		acquire(t, l, ask(zlimit.Amounts{"runs": 135}))
		c.sleep(24 * time.Hour)
		if runs := available(t, other, "runs"); runs != 105 {
			t.Errorf("%d runs a day later, want 105", runs)
		}
		acquire(t, other, ask(zlimit.Amounts{"runs": 1, "images": 1}))
		c.sleep(time.Hour)
		if runs := available(t, l, "runs"); runs != 100 {
			t.Errorf("%d runs after the end of the grant, want 100", runs)
		}
		acquire(t, l, ask(zlimit.Amounts{"runs": 1, "images": 1}))
		ungranted(t, l)
	})
}

// TestGrantOfShards grants tokens to a bucket of two items, which have them together.
func TestGrantOfShards(t *testing.T) {
	c := newClock()
	s := zlimit.StoreOn(partitioned{store.Of(newMemory(t))})
	l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.Daily("runs", 101, "UTC"))
	acquire(t, l, ask(zlimit.Amounts{"runs": 1}))
	split(t, l)
	got, err := grant(t, l, "runs", 51, c.now().Add(time.Hour))
	if err != nil || got.Shards != 2 || got.Limits[0].After != 151*zlimit.Token {
		t.Errorf("TopUp() = %+v, %v", got, err)
	}
	acquire(t, other, ask(zlimit.Amounts{"runs": 120}))
	if s := status(t, other, "runs"); s.Available != 31 || s.Granted != 51 {
		t.Errorf("status %+v, want 31", s)
	}
	reject(t, l, ask(zlimit.Amounts{"runs": 32}))
	acquire(t, l, ask(zlimit.Amounts{"runs": 31}))
}

// TestGrantMakesBuckets grants tokens to an entity that has made no request, and adds to its grant. Its bucket stays until the grant ends.
func TestGrantMakesBuckets(t *testing.T) {
	c, s := newClock(), newMemory(t)
	l := newLimiter(t, s, zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerMinute("rpm", 60), zlimit.Session("tokens", 10, 5*time.Hour))
	until := c.now().Add(30 * 24 * time.Hour)
	for i, want := range []int64{90, 120} {
		got, err := l.Limits.TopUp(t.Context(), zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"rpm": 30, "tokens": 5}, Until: until})
		rpm := slices.IndexFunc(got.Limits, func(l zlimit.LimitChange) bool { return l.Limit == "rpm" })
		if err != nil || got.Shards != 1 || rpm < 0 || got.Limits[rpm].After != zlimit.Quantity(want)*zlimit.Token {
			t.Errorf("TopUp() no. %d = %+v, %v", i, got, err)
		}
	}
	if expires := shardsOf(t, l)[0].ExpiresAt; expires < until.Unix() {
		t.Errorf("the item expires at %d, before the end of the grant, %d", expires, until.Unix())
	}
	acquire(t, l, ask(zlimit.Amounts{"rpm": 120, "tokens": 20}))
}

// TestGrantRefuses covers grants that cannot end as they are to. The error names the end that they can have.
func TestGrantRefuses(t *testing.T) {
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.Daily("runs", 100, "UTC"), zlimit.Session("tokens", 10, 5*time.Hour), zlimit.PerDay("rpd", 5), zlimit.Daily("images", 5, "UTC"))
	acquire(t, l, ask(zlimit.Amounts{"runs": 1}))
	until := c.now().Add(time.Hour)
	for limit, until := range map[string]time.Time{"runs": until, "images": {}} {
		if _, err := grant(t, l, limit, 1, until); err != nil {
			t.Fatalf("grant() = %v", err)
		}
	}
	for _, test := range []struct {
		limit  string
		amount int64
		until  time.Time
		field  string
		reason string
	}{
		{"rpd", 5, c.now(), "until", "must be later than now, 2"},
		{"rpd", 5, time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), "until", "must be before the year 10000"},
		{"runs", 5, until.Add(time.Hour), "until", "must be " + until.Format(time.RFC3339) + ", at which the present grant of the limit runs ends"},
		{"runs", 5, time.Time{}, "until", "must be " + until.Format(time.RFC3339) + ", at which the present grant of the limit runs ends"},
		{"images", 5, until, "until", "must not be given: what is granted of the limit images ends with its period"},
		{"tokens", 5, time.Time{}, "until", "must be given: no session of the limit tokens is open"},
		{"rpd", 9_223_372_036_854_775, until, "amounts[rpd]", "is too much beside what is there"},
	} {
		_, err := l.Limits.TopUp(t.Context(), zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{test.limit: test.amount}, Until: test.until})
		if invalid(err).Field != test.field || !strings.HasPrefix(invalid(err).Reason, test.reason) {
			t.Errorf("TopUp() of %+v = %v", test, err)
		}
	}
	if s := status(t, l, "rpd"); s.Granted != 0 || s.Available != 5 {
		t.Errorf("status %+v", s)
	}
}
