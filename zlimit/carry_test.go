package zlimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// at sets a clock to a time of 2027 in UTC.
func (c *clock) at(month time.Month, day int) {
	c.sleep(time.Date(2027, month, day, 0, 0, 0, 0, time.UTC).Sub(c.now()))
}

// TestCarry spends a budget of 25 a month that carries up to 50, month by month.
func TestCarry(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx, c := context.Background(), newClock()
		c.at(time.January, 10)
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.Monthly("usd", 25, "UTC").CarryOver(50), zlimit.PerMinute("rpm", 60))
		expect := func(l *zlimit.RateLimiter, left, carried int64) {
			t.Helper()
			statuses := check.Call(l.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})).Must(t, "Available()")
			usd, _ := statuses.Limit("usd")
			if usd.Available != left || usd.Carried != carried {
				t.Errorf("on %s %d are there, of which %d were carried, want %d and %d", c.now().Format("2 Jan"), usd.Available, usd.Carried, left, carried)
			}
		}
		expect(l, 25, 0)
		lease := acquire(t, l, ask(zlimit.Amounts{"usd": 15, "rpm": 1}))
		expect(l, 10, 0)
		c.at(time.February, 1)
		expect(other, 35, 10)
		acquire(t, other, ask(zlimit.Amounts{"usd": 30}))
		expect(l, 5, 10)
		if err := lease.Rollback(ctx); err != nil { // of January
			t.Fatalf("Rollback() = %v", err)
		}
		expect(other, 5, 10)
		c.at(time.March, 2)
		expect(l, 30, 5)
		c.at(time.June, 30)
		expect(l, 75, 50) // at most
		e := reject(t, l, ask(zlimit.Amounts{"usd": 76}))
		if e.Possible() {
			t.Errorf("more than the limit ever holds is possible: %v", e)
		}
		acquire(t, l, ask(zlimit.Amounts{"usd": 60}))
		if at, ok := e.Statuses[0].UsedUp(c.now()); ok {
			t.Errorf("nothing was used, and %v is when it is used up", at)
		}
		e = reject(t, other, ask(zlimit.Amounts{"usd": 65})) // a third month has it
		if want := time.Date(2027, time.August, 1, 0, 0, 0, 0, time.UTC).Sub(c.now()); !e.Possible() || e.RetryAfter() != want {
			t.Errorf("rejected by %v, retry after %v, want %v", e, e.RetryAfter(), want)
		}
		usd, _ := e.Statuses.Limit("usd")
		if at, ok := usd.UsedUp(c.now()); ok || at.After(usd.ResetsAt) { // 60 in 30 days, 15 left for a day
			t.Errorf("UsedUp() = %v, %v", at, ok)
		}
		c.at(time.July, 1)
		debt := acquire(t, l, ask(zlimit.Amounts{"usd": 40}))
		check.Fatal(t, "Adjust() and Commit()", errors.Join(debt.Adjust(zlimit.Amounts{"usd": 10}), debt.Commit(ctx)))
		expect(other, -10, 15)
		c.at(time.August, 1)
		expect(other, 25, 0) // a debt is forgiven
		if item := shardsOf(t, l)[0]; item.ExpiresAt != 0 && time.Unix(item.ExpiresAt, 0).Year() < 9999 {
			t.Errorf("the bucket expires at %v", time.Unix(item.ExpiresAt, 0))
		}
	})
}

// TestCarryManual grants and resets a budget that carries.
func TestCarryManual(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx, c := context.Background(), newClock()
		c.at(time.January, 10)
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.Monthly("usd", 25, "UTC").CarryOver(50))
		topUp := func(amount int64, until time.Time) {
			t.Helper()
			if _, err := l.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"usd": amount}, Until: until}); err != nil {
				t.Fatalf("Limits.TopUp() = %v", err)
			}
		}
		expect := func(want int64) {
			t.Helper()
			if got := available(t, l, "usd"); got != want {
				t.Errorf("on %s %d are there, want %d", c.now().Format("2 Jan"), got, want)
			}
		}
		acquire(t, l, ask(zlimit.Amounts{"usd": 5}))
		topUp(10, time.Time{}) // a part of January
		expect(30)
		c.at(time.February, 1)
		expect(55)
		acquire(t, l, ask(zlimit.Amounts{"usd": 50}))
		topUp(20, c.now().Add(24*time.Hour)) // which is over before the edge
		acquire(t, l, ask(zlimit.Amounts{"usd": 12}))
		c.sleep(25 * time.Hour)
		expect(5)
		topUp(20, time.Date(2027, time.March, 5, 0, 0, 0, 0, time.UTC)) // which goes along
		acquire(t, l, ask(zlimit.Amounts{"usd": 2}))
		c.at(time.March, 1)
		expect(25 + 3 + 20)
		c.at(time.March, 5)
		expect(28)
		if _, err := l.Limits.Reset(ctx, zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4"}); err != nil {
			t.Fatalf("Limits.Reset() = %v", err)
		}
		expect(25)
		c.at(time.April, 1)
		expect(50)
	})
}

// TestCarryChanges changes the zone of a budget that carries, what it carries, and whether it does.
func TestCarryChanges(t *testing.T) {
	c := newClock()
	c.at(time.January, 10)
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now), zlimit.WithConfigTTL(0))
	expect := func(want int64) {
		t.Helper()
		if got := available(t, l, "usd"); got != want {
			t.Errorf("on %s %d are there, want %d", c.now().Format("2 Jan"), got, want)
		}
	}
	setSystem(t, l, zlimit.Monthly("usd", 25, "UTC"))
	acquire(t, l, ask(zlimit.Amounts{"usd": 5}))
	setSystem(t, l, zlimit.Monthly("usd", 25, "UTC").CarryOver(50)) // in the same period
	c.at(time.February, 1)
	expect(45)
	acquire(t, l, ask(zlimit.Amounts{"usd": 1}))
	setSystem(t, l, zlimit.Monthly("usd", 25, "America/New_York").CarryOver(50)) // whose February begins later
	c.sleep(time.Hour)
	acquire(t, l, ask(zlimit.Amounts{"usd": 1}))
	expect(43)
	c.sleep(4 * time.Hour)
	expect(25 + 43)
	c.at(time.February, 10)
	setSystem(t, l, zlimit.Monthly("usd", 25, "America/New_York").CarryOver(10)) // cuts what was carried
	expect(35)
	setSystem(t, l, zlimit.Monthly("usd", 25, "America/New_York"))
	expect(25)
}

// In TestCarryOfShards, a bucket is split before its budget carries. Its shards carry nothing, and merge. It is not split again.
func TestCarryOfShards(t *testing.T) {
	c := newClock()
	c.at(time.January, 10)
	s := zlimit.StoreOn(partitioned{store.Of(newMemory(t))})
	l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithConfigTTL(0))
	setSystem(t, l, zlimit.Monthly("usd", 26, "UTC"))
	acquire(t, l, ask(zlimit.Amounts{"usd": 2}))
	split(t, l)
	setSystem(t, l, zlimit.Monthly("usd", 26, "UTC").CarryOver(50))
	acquire(t, l, ask(zlimit.Amounts{"usd": 2}))
	c.at(time.February, 1)
	if got := available(t, l, "usd"); got != 26 {
		t.Errorf("shards have %d, want 26", got)
	}
	e := reject(t, l, ask(zlimit.Amounts{"usd": 27}))
	if e.Possible() {
		t.Errorf("a split bucket never has so much: %v", e.RetryAfter())
	}
	acquire(t, l, ask(zlimit.Amounts{"usd": 20}))
	check.Fatal(t, "mergeShard()", mergeShard(t.Context(), l, shardsOf(t, l)[0]))
	if got := len(shardsOf(t, l)); got != 1 {
		t.Fatalf("%d shards after a merge", got)
	}
	c.at(time.March, 1)
	if got := available(t, l, "usd"); got != 32 {
		t.Errorf("the merged bucket has %d, want 32", got)
	}
	acquire(t, l, ask(zlimit.Amounts{"usd": 1}))
	state := shardsOf(t, l)[0]
	if writes, err := shardKey(l, "key-1", 0).Split(state, nil, layout.Lineage{}); len(writes) > 0 || err != nil {
		t.Errorf("Split() = %d writes, %v, want none for a bucket whose budget carries", len(writes), err)
	}
}

// TestCarryIsNotSplit writes a bucket whose budget carries more often than a key can bear. It stays whole.
func TestCarryIsNotSplit(t *testing.T) {
	forEachPartition(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithoutCoalescing())
		setSystem(t, l, zlimit.Monthly("usd", 4001, "UTC").CarryOver(1))
		acquire(t, l, ask(zlimit.Amounts{"usd": 1}))
		var group sync.WaitGroup
		for range 16 {
			group.Go(func() {
				for range 100 {
					if _, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"usd": 1})); err != nil {
						t.Errorf("Acquire() = %v", err)
					}
				}
			})
		}
		group.Wait()
		l.Engine().Quiesce()
		states := shardsOf(t, l)
		if tokens, _, _ := total(states, "usd"); len(states) != 1 || tokens != 2400_000 || !states[0].Pressed(c.now().UnixMilli()) {
			t.Errorf("%d shards have %d millitokens, want one pressed one with 2400000", len(states), tokens)
		}
	})
}

// TestCarryForms reads and writes budgets that carry.
func TestCarryForms(t *testing.T) {
	limit := zlimit.USD("usd", 25, zlimit.PerMonth).CarryOver(50_000_000_000)
	if got := limit.String(); got != "usd=25/month@UTC carry 50" {
		t.Errorf("String() = %s", got)
	}
	text, err := json.Marshal(limit)
	if want := `{"name":"usd","capacity":25000000000,"resets":"0 0 1 * *","zone":"UTC","carry":50000000000}`; err != nil || string(text) != want {
		t.Errorf("MarshalJSON() = %s, %v, want %s", text, err, want)
	}
	for _, form := range []string{`"usd=25/month@UTC carry 50"`, `"usd = 25 / month@UTC  carry  50.0 "`, string(text)} {
		var read zlimit.Limit
		if err := json.Unmarshal([]byte(form), &read); err != nil || read != limit {
			t.Errorf("%s is read as %+v, %v", form, read, err)
		}
	}
	for form, want := range map[string]string{
		`a=5/cron "0 8 * * 1-5"@UTC carry 7 floors batch=20 soft`: `a=5/cron "0 8 * * 1-5"@UTC carry 7 floors batch=20 soft`,
		"budget=$2.50/week@UTC:fri carry $1":                      "budget=2500000000/week@UTC:fri carry 1000000000",
		"a=5/day@UTCT06:00 carry 500":                             "a=5/day@UTCT06:00 carry 500",
	} {
		var read zlimit.Limit
		if err := read.UnmarshalText([]byte(form)); err != nil || read.String() != want {
			t.Errorf("%s is read as %s, %v", form, read, err)
		}
	}
	for form, rule := range map[string]string{
		"a=5/day@UTC carry 501":                             "must be at most 100 times the capacity 5",
		"a=5/day@UTC carry 0":                               "from 1",
		"a=5/day@UTC carry":                                 "carry \"\" must be",
		"a=5/day@UTC carry x":                               "must be a whole number",
		"a=5/min carry 5":                                   "carry is for quotas with reset times",
		"a=5/session:5h carry 5":                            "carry is for quotas with reset times",
		"a=5/never carry 5":                                 "carry is for quotas with reset times",
		`a=5/day@UTC carry 5 when "* 9 * * *" x2`:           "must be 0 for a limit with windows",
		"a=100/day@UTC carry 5 floors batch=20+5":           "must be 0 for a limit with guaranteed shares",
		"a=9000000000000000/day@UTC carry 5000000000000000": "together with the capacity",
	} {
		var read zlimit.Limit
		if err := read.UnmarshalText([]byte(form)); !errors.As(err, new(*zlimit.ValidationError)) || !strings.Contains(err.Error(), rule) {
			t.Errorf("%s: %v, want %s", form, err, rule)
		}
	}
	negative := zlimit.Monthly("a", 5, "UTC").CarryOver(-1)
	if _, err := negative.MarshalText(); err == nil || !strings.Contains(err.Error(), "limit[a] carry") {
		t.Errorf("a negative carry: %v", err)
	}
	session := zlimit.Session("a", 5, time.Hour).CarryOver(1)
	if _, err := session.MarshalText(); err == nil || !strings.Contains(err.Error(), "is for quotas, which have Resets") {
		t.Errorf("a session that carries: %v", err)
	}
}

// TestStoredCarry stores a budget that carries, at each level, and reads it back by the item of a bucket as well.
func TestStoredCarry(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s)
		limits := []zlimit.Limit{zlimit.Monthly("usd", 25, "UTC").CarryOver(50)}
		for _, at := range []zlimit.Level{{}, {Resource: "gpt-4"}, {Entity: "key-1"}, {Entity: "key-1", Resource: "gpt-4"}} {
			setLimits(t, l, at, limits...)
			if got, err := newLimiter(t, s).Limits.Get(ctx, at); err != nil || !cmp.Equal(got.Limits, limits) {
				t.Errorf("%v: %v, %v, want %v", at, got.Limits, err, limits)
			}
		}
		acquire(t, l, ask(zlimit.Amounts{"usd": 7}))
		again := newLimiter(t, s)
		reject(t, again, ask(zlimit.Amounts{"usd": 20}))
		found, err := again.Limits.Resolve(ctx, "key-1", "gpt-4")
		if err != nil || !cmp.Equal(found.Limits, limits) {
			t.Errorf("Resolve() = %v, %v", found, err)
		}
	})
}
