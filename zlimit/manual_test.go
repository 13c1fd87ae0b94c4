package zlimit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// reset resets the bucket of the requests of [ask].
func reset(tb testing.TB, l *zlimit.RateLimiter, r zlimit.ResetRequest) zlimit.BucketChange {
	tb.Helper()
	r.Entity, r.Resource = "key-1", "gpt-4"
	got, err := l.Limits.Reset(context.Background(), r)
	if err != nil {
		tb.Fatalf("Reset(%+v) = %v", r, err)
	}
	return got
}

// TestReset makes an exhausted bucket full: for another process, too, which knows it as exhausted. A lease from before is counted and not
// given back, and one from after is given back.
func TestReset(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerDay("rpd", 100), zlimit.PerDay("tpd", 1000))
		before := acquire(t, other, ask(zlimit.Amounts{"rpd": 100, "tpd": 600}))
		reject(t, other, ask(zlimit.Amounts{"rpd": 1}))
		got := reset(t, l, zlimit.ResetRequest{Limits: []string{"rpd"}})
		want := zlimit.LimitChange{Limit: "rpd", Added: 100 * zlimit.Token, Before: 0, After: 100 * zlimit.Token}
		if got.Shards != 1 || got.Repeated || len(got.Limits) != 1 || got.Limits[0] != want {
			t.Errorf("Reset() = %+v", got)
		}
		if rpd, tpd := available(t, other, "rpd"), available(t, other, "tpd"); rpd != 100 || tpd != 400 {
			t.Errorf("%d rpd and %d tpd are available, want 100 and 400", rpd, tpd)
		}
		after := acquire(t, other, ask(zlimit.Amounts{"rpd": 70, "tpd": 100}))
		check.Fatal(t, "Rollback()", before.Rollback(t.Context()))
		if rpd, tpd := available(t, l, "rpd"), available(t, l, "tpd"); rpd != 30 || tpd != 900 {
			t.Errorf("after the old lease was rolled back, %d rpd and %d tpd are available, want 30 and 900", rpd, tpd)
		}
		if rpd, tpd := consumed(t, l, "key-1", "rpd"), consumed(t, l, "key-1", "tpd"); rpd != 70 || tpd != 100 {
			t.Errorf("%d rpd and %d tpd are counted, want 70 and 100", rpd, tpd)
		}
		check.Fatal(t, "Rollback()", after.Rollback(t.Context()))
		if rpd := available(t, l, "rpd"); rpd != 100 {
			t.Errorf("%d rpd are available, want 100", rpd)
		}
	})
}

// TestResetForgivesDebt resets all limits of a bucket that is in debt, and then charges a lease from before.
func TestResetForgivesDebt(t *testing.T) {
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerDay("rpd", 100), zlimit.PerDay("tpd", 1000))
	first, second := acquire(t, l, ask(zlimit.Amounts{"rpd": 1, "tpd": 1})), acquire(t, l, ask(zlimit.Amounts{"rpd": 1, "tpd": 1}))
	settle := func(lease *zlimit.Lease, more int64) {
		t.Helper()
		check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"tpd": more}), lease.Commit(t.Context())))
	}
	settle(first, 5000)
	reject(t, l, ask(zlimit.Amounts{"tpd": 1}))
	got := reset(t, l, zlimit.ResetRequest{})
	if len(got.Limits) != 2 || got.Limits[1].Before != -4002*zlimit.Token || got.Limits[1].After != 1000*zlimit.Token {
		t.Errorf("Reset() = %+v", got)
	}
	if rpd, tpd := available(t, l, "rpd"), available(t, l, "tpd"); rpd != 100 || tpd != 1000 {
		t.Errorf("%d rpd and %d tpd are available, want all", rpd, tpd)
	}
	settle(second, 300)
	if tpd := available(t, l, "tpd"); tpd != 700 {
		t.Errorf("%d tpd are available after a charge, want 700", tpd)
	}
}

// TestResetOfShards resets a bucket of several items. All of them become full, and the other limit has as much as before.
func TestResetOfShards(t *testing.T) {
	c := newClock()
	s := zlimit.StoreOn(partitioned{store.Of(newMemory(t))})
	l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerDay("rpd", 100), zlimit.PerHour("tph", 3600))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1, "tph": 1}))
	split(t, l)
	lease := acquire(t, other, ask(zlimit.Amounts{"rpd": 90, "tph": 3000}))
	c.sleep(10 * time.Minute) // one shard is full meanwhile, and the other is not: what it cannot hold belongs to the other
	rest := available(t, other, "tph")
	got := reset(t, l, zlimit.ResetRequest{Limits: []string{"rpd"}})
	if got.Shards != 2 || got.Limits[0].After != 100*zlimit.Token {
		t.Errorf("Reset() = %+v", got)
	}
	if rpd, tph := available(t, other, "rpd"), available(t, other, "tph"); rpd != 100 || tph != rest {
		t.Errorf("%d rpd and %d tph are available, want 100 and %d", rpd, tph, rest)
	}
	acquire(t, other, ask(zlimit.Amounts{"rpd": 95}))
	check.Fatal(t, "Rollback()", lease.Rollback(t.Context()))
	if rpd := available(t, l, "rpd"); rpd != 5 {
		t.Errorf("%d rpd are available after the old lease was rolled back, want 5", rpd)
	}
	if rpd := consumed(t, l, "key-1", "rpd"); rpd != 96 {
		t.Errorf("%d rpd are counted, want 96", rpd)
	}
}

// TestResetOnce loses the reply of a reset, its request, and both several times. The bucket is reset once, also by calls that repeat the
// operation after tokens were taken. Another operation with the ID is refused.
func TestResetOnce(t *testing.T) {
	for _, fault := range []enginetest.Fault{
		{Kind: enginetest.LostReply, Times: 1}, {Kind: enginetest.LostReply, Times: 4}, {Kind: enginetest.LostRequest, Times: 4}, {Kind: enginetest.Conflict, Times: 1},
	} {
		c := newClock()
		s, faults := newTable(t)
		l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithCallTimeout(time.Second))
		setSystem(t, l, zlimit.PerDay("rpd", 100))
		acquire(t, l, ask(zlimit.Amounts{"rpd": 100}))
		fault.Operation = "TransactWriteItems"
		faults.Inject(fault)
		r := zlimit.ResetRequest{OperationID: "ticket-17"}
		first := reset(t, l, r)
		if repeated := fault.Kind == enginetest.LostReply && fault.Times > 1; first.Repeated != repeated || first.Limits[0].Added != 100*zlimit.Token {
			t.Errorf("%+v: Reset() = %+v", fault, first)
		}
		acquire(t, l, ask(zlimit.Amounts{"rpd": 60}))
		again := reset(t, l, r)
		if first.Repeated = true; !again.Repeated || !slices.Equal(again.Limits, first.Limits) || again.Shards != first.Shards {
			t.Errorf("%+v: repeated, Reset() = %+v, want %+v", fault, again, first)
		}
		if rpd := available(t, l, "rpd"); rpd != 40 {
			t.Errorf("%+v: %d rpd are available, want 40", fault, rpd)
		}
		_, err := l.Limits.Reset(t.Context(), zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4", OperationID: "ticket-17", Limits: []string{"rpd"}})
		if invalid(err).Field != "operation id" {
			t.Errorf("%+v: another operation with the ID = %v", fault, err)
		}
		if events := count(actions(t, l, "key-1"), zlimit.ActionBucketReset); events != 1 {
			t.Errorf("%+v: %d events record the reset, want one", fault, events)
		}
	}
}

// TestResetRefuses covers resets that cannot be done, and one of a bucket that does not exist. None of them changes a bucket.
func TestResetRefuses(t *testing.T) {
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerDay("rpd", 100), zlimit.Slots("slots", 2))
	for _, test := range []struct {
		field string
		r     zlimit.ResetRequest
	}{
		{"entity", zlimit.ResetRequest{Resource: "gpt-4"}},
		{"resource", zlimit.ResetRequest{Entity: "key-1"}},
		{"limits[0]", zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4", Limits: []string{"a b"}}},
		{"limits[1]", zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4", Limits: []string{"rpd", "rpd"}}},
		{"operation id", zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4", OperationID: "a#b"}},
		{"limits", zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4", Limits: []string{"tpd"}}},
	} {
		_, err := l.Limits.Reset(t.Context(), test.r)
		if invalid(err).Field != test.field {
			t.Errorf("Reset(%+v) = %v, want an error of %s", test.r, err, test.field)
		}
	}
	_, err := l.Limits.Reset(t.Context(), zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4", Limits: []string{"slots"}})
	_, of := grant(t, l, "slots", 1, time.Time{})
	for field, err := range map[string]error{"limits": err, "amounts": of} {
		if invalid(err).Field != field || !strings.Contains(invalid(err).Reason, "neither reset nor topped up") {
			t.Errorf("of slots: %v", err)
		}
	}
	got := reset(t, l, zlimit.ResetRequest{OperationID: "early"})
	if got.Shards != 0 || len(got.Limits) != 1 || got.Limits[0].Added != 0 || got.Limits[0].After != 100*zlimit.Token {
		t.Errorf("of no bucket, Reset() = %+v", got)
	}
	acquire(t, l, ask(zlimit.Amounts{"rpd": 10}))
	if got = reset(t, l, zlimit.ResetRequest{OperationID: "early"}); !got.Repeated || available(t, l, "rpd") != 90 {
		t.Errorf("repeated, Reset() = %+v", got)
	}
}

// TestResetOfOthers resets four kinds of buckets: disabled ones, those with limits of requests, those with changed
// stored limits, and those with limits of another program.
func TestResetOfOthers(t *testing.T) {
	c := newClock()
	s := newMemory(t)
	l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
	pair := zlimit.Level{Entity: "key-1", Resource: "gpt-4"}
	own := ask(zlimit.Amounts{"own": 7})
	own.Limits = []zlimit.Limit{zlimit.PerDay("own", 10)}
	acquire(t, l, own)
	if got := reset(t, l, zlimit.ResetRequest{}); len(got.Limits) != 1 || got.Limits[0].Added != 7*zlimit.Token {
		t.Errorf("of limits of requests, Reset() = %+v", got)
	}
	own.Consume = zlimit.Amounts{"own": 10}
	acquire(t, l, own)

	setSystem(t, l, zlimit.PerDay("rpd", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 100}))
	setSystem(t, l, zlimit.PerDay("rpd", 500))
	reset(t, l, zlimit.ResetRequest{Limits: []string{"rpd"}})
	acquire(t, l, ask(zlimit.Amounts{"rpd": 500}))

	if _, err := l.Limits.Disable(t.Context(), pair, nil); err != nil {
		t.Fatalf("Limits.Disable() = %v", err)
	}
	reset(t, l, zlimit.ResetRequest{})
	refuse(t, l, ask(zlimit.Amounts{"rpd": 1}))
	if state, err := layout.ReadState(item(t, l)); err != nil || state.ExpiresAt != 0 {
		t.Errorf("the disabled item is %+v, %v", state, err)
	}
	if _, err := l.Limits.LeaveSwitch(t.Context(), pair, nil); err != nil {
		t.Fatalf("Limits.LeaveSwitch() = %v", err)
	}
	c.sleep(2 * time.Second)
	acquire(t, l, ask(zlimit.Amounts{"rpd": 500}))

	// A limit of another program has no life to ask for. What the other process has planned before the reset is not given back.
	key := keyOfBucket(l)
	put(t, l, key, slices.DeleteFunc(slices.Clone(stored(t, l, key)), func(a expr.Attribute) bool { return a.Name == "i_rpd" }))
	reset(t, l, zlimit.ResetRequest{})
	put(t, l, key, slices.DeleteFunc(slices.Clone(stored(t, l, key)), func(a expr.Attribute) bool { return a.Name == "i_rpd" }))
	lease := acquire(t, other, ask(zlimit.Amounts{"rpd": 200}))
	reset(t, l, zlimit.ResetRequest{})
	acquire(t, l, ask(zlimit.Amounts{"rpd": 400}))
	check.Fatal(t, "Rollback()", lease.Rollback(t.Context()))
	if rpd := available(t, l, "rpd"); rpd != 100 {
		t.Errorf("%d rpd are available, want 100", rpd)
	}
}

// TestResetTells checks that an observer and the audit events report a reset, and one that fails.
func TestResetTells(t *testing.T) {
	var seen []zlimit.Event
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now), zlimit.WithPrincipal("ann"), zlimit.WithObserver(func(_ context.Context, e zlimit.Event) {
		if e.Kind == zlimit.EventManual {
			seen = append(seen, e)
		}
	}))
	setSystem(t, l, zlimit.PerDay("rpd", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 70}))
	reset(t, l, zlimit.ResetRequest{OperationID: "ticket-17"})
	if _, err := l.Limits.Reset(t.Context(), zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4", Limits: []string{"none"}}); err == nil {
		t.Fatal("a limit that does not exist is reset")
	}
	if len(seen) != 2 || seen[0].Operation != "reset" || seen[0].Entity != "key-1" || seen[0].Amounts[0] != (zlimit.Amount{Limit: "rpd", Tokens: 70}) || seen[1].Result != zlimit.ResultInvalid {
		t.Errorf("the observer sees %+v", seen)
	}
	all := events(t, l, "key-1", zlimit.AuditQuery{})
	last := all[len(all)-1]
	before, _ := last.Details["before"].(map[string]any)
	after, _ := last.Details["after"].(map[string]any)
	if last.Principal != "ann" || last.Resource != "gpt-4" || last.Details["operation"] != "ticket-17" || before["rpd"] != int64(30) || after["rpd"] != int64(100) {
		t.Errorf("the event is %+v", last)
	}
}

// TestTopUp adds to limits of a bucket, up to their capacity. A lease from before gives back as it would have. The usage stays as it is.
func TestTopUp(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithRejectionCache(0))
		setSystem(t, l, zlimit.PerDay("rpd", 100), zlimit.PerDay("tpd", 1000), zlimit.Daily("budget", 50, "UTC"))
		lease := acquire(t, other, ask(zlimit.Amounts{"rpd": 100, "tpd": 20, "budget": 40}))
		reject(t, other, ask(zlimit.Amounts{"rpd": 1}))
		got, err := l.Limits.TopUp(t.Context(), zlimit.TopUpRequest{
			Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"rpd": 30, "tpd": 500, "budget": 15}, OperationID: "ticket-18",
		})
		want := []zlimit.LimitChange{
			{Limit: "rpd", Added: 30 * zlimit.Token, Before: 0, After: 30 * zlimit.Token},
			{Limit: "tpd", Added: 20 * zlimit.Token, Before: 980 * zlimit.Token, After: 1000 * zlimit.Token},
			{Limit: "budget", Added: 15 * zlimit.Token, Before: 10 * zlimit.Token, After: 25 * zlimit.Token},
		}
		byName := func(a, b zlimit.LimitChange) int { return strings.Compare(a.Limit, b.Limit) }
		slices.SortFunc(want, byName)
		if slices.SortFunc(got.Limits, byName); err != nil || !slices.Equal(got.Limits, want) {
			t.Errorf("TopUp() = %+v, %v", got, err)
		}
		acquire(t, other, ask(zlimit.Amounts{"rpd": 30, "budget": 25}))
		check.Fatal(t, "Rollback()", lease.Rollback(t.Context()))
		if rpd, tpd, budget := available(t, l, "rpd"), available(t, l, "tpd"), available(t, l, "budget"); rpd != 100 || tpd != 1000 || budget != 40 {
			t.Errorf("%d rpd, %d tpd and %d of the budget are available, want 100, 1000 and 40", rpd, tpd, budget)
		}
		if rpd := consumed(t, l, "key-1", "rpd"); rpd != 30 {
			t.Errorf("%d rpd are counted, want 30", rpd)
		}
	})
}

// TestTopUpOfARaisedLimit raises the limit of an entity, and adds tokens before a request has brought its bucket in
// line. All of the tokens are there immediately, above the former capacity too.
func TestTopUpOfARaisedLimit(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerDay("tpd", 1000))
		acquire(t, l, ask(zlimit.Amounts{"tpd": 200}))
		level := zlimit.Level{Entity: "key-1", Resource: "gpt-4"}
		setLimits(t, l, level, zlimit.PerDay("tpd", 1000, zlimit.Burst(1500)))
		got, err := l.Limits.TopUp(t.Context(), zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"tpd": 500}})
		if err != nil || len(got.Limits) != 1 || got.Limits[0].After != 1300*zlimit.Token {
			t.Errorf("TopUp() = %+v, %v", got, err)
		}
		if tpd := available(t, l, "tpd"); tpd != 1300 {
			t.Errorf("%d are available, want 1300", tpd)
		}
		acquire(t, l, ask(zlimit.Amounts{"tpd": 1300}))
	})
}

// TestTopUpOnce loses the reply of a top-up of a bucket of two items, which is in debt. The tokens are added once.
func TestTopUpOnce(t *testing.T) {
	for _, fault := range []enginetest.Fault{
		{Kind: enginetest.LostReply, Times: 1}, {Kind: enginetest.LostReply, Times: 4}, {Kind: enginetest.LostRequest, Times: 4}, {Kind: enginetest.Conflict, Times: 1},
	} {
		c := newClock()
		s, faults := newTable(t)
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerDay("rpd", 100))
		lease := acquire(t, l, ask(zlimit.Amounts{"rpd": 60}))
		split(t, l)
		check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rpd": 50}), lease.Commit(t.Context())))
		fault.Operation = "TransactWriteItems"
		faults.Inject(fault)
		r := zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"rpd": 25}, OperationID: "ticket-18"}
		for range 2 {
			if got, err := l.Limits.TopUp(t.Context(), r); err != nil || got.Shards != 2 || got.Limits[0].Before != -10*zlimit.Token || got.Limits[0].After != 15*zlimit.Token {
				t.Errorf("%+v: TopUp() = %+v, %v", fault, got, err)
			}
		}
		if rpd := available(t, l, "rpd"); rpd != 15 {
			t.Errorf("%+v: %d rpd are available, want 15", fault, rpd)
		}
		r.Amounts["rpd"]++
		if _, err := l.Limits.TopUp(t.Context(), r); invalid(err).Field != "operation id" {
			t.Errorf("%+v: another top-up with the ID = %v", fault, err)
		}
	}
}

// TestTopUpRefuses covers top-ups that cannot be done.
func TestTopUpRefuses(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	setSystem(t, l, zlimit.PerDay("rpd", 100))
	for _, test := range []struct {
		field   string
		amounts zlimit.Amounts
	}{
		{"amounts", nil}, {"amounts[rpd]", zlimit.Amounts{"rpd": 0}}, {"amounts[a b]", zlimit.Amounts{"a b": 1}}, {"amounts", zlimit.Amounts{"tpd": 1}},
	} {
		_, err := l.Limits.TopUp(t.Context(), zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: test.amounts})
		if invalid(err).Field != test.field {
			t.Errorf("TopUp() of %v = %v, want an error of %s", test.amounts, err, test.field)
		}
	}
}

// In TestOperationsAtOnce, two operators do one operation at the same time. The second operator has seen no record, and
// the record of the first is there when the second writes. The cases are a first try, a late try without balances, and
// a missing bucket, which only the record shows. One of the operators does it, and both get the same answer.
func TestOperationsAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		taken int64 // 0 for no bucket
		lost  int   // tries of the second before
	}{"first try": {60, 0}, "late try": {60, 8}, "no bucket": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, s := newClock(), newMemory(t)
			h := hook(s)
			first, second := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, zlimit.StoreOn(h), zlimit.WithClock(c.now))
			setSystem(t, first, zlimit.PerDay("rpd", 100))
			if test.taken > 0 {
				acquire(t, first, ask(zlimit.Amounts{"rpd": test.taken}))
			}
			r := zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"rpd": 25}, OperationID: "ticket-18"}
			topUp := func(l *zlimit.RateLimiter) zlimit.BucketChange {
				t.Helper()
				return check.Call(l.Limits.TopUp(t.Context(), r)).Must(t, "Limits.TopUp()")
			}
			var before zlimit.BucketChange
			tries := 0
			h.set(func(...store.Write) error {
				switch tries++; {
				case tries <= test.lost:
					return store.ErrConflict
				case tries == test.lost+1:
					before = topUp(first)
				}
				return nil
			})
			got := topUp(second)
			if before.Repeated || !got.Repeated || !slices.Equal(got.Limits, before.Limits) || tries != test.lost+1 {
				t.Errorf("TopUp() at once = %+v and %+v, after %d tries", before, got, tries)
			}
			if want := min(100-test.taken+25, 100); available(t, first, "rpd") != want {
				t.Errorf("%d rpd are available, want %d", available(t, first, "rpd"), want)
			}
			if events := count(actions(t, first, "key-1"), zlimit.ActionBucketToppedUp); events != 1 {
				t.Errorf("%d events record the top-up, want one", events)
			}
		})
	}
}
