package zlimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestPrepaid spends a prepaid limit, which nothing but top-ups fills again, however much later. Its bucket never expires.
func TestPrepaid(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx, c := context.Background(), newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.Prepaid("credit", 5), zlimit.PerMinute("rpm", 60))
		topUp := func(id string, tokens int64, until time.Time) (zlimit.BucketChange, error) {
			return l.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"credit": tokens}, OperationID: id, Until: until})
		}
		expect := func(want int64) {
			t.Helper()
			if got := available(t, other, "credit"); got != want {
				t.Errorf("%d are there, want %d", got, want)
			}
		}
		if _, err := topUp("before-the-first", 20, time.Time{}); err != nil {
			t.Fatalf("topUp() = %v", err)
		}
		expect(25)
		lease := acquire(t, l, ask(zlimit.Amounts{"credit": 12, "rpm": 1}))
		acquire(t, other, ask(zlimit.Amounts{"credit": 10}))
		c.sleep(5 * 365 * 24 * time.Hour)
		e := reject(t, l, ask(zlimit.Amounts{"credit": 4}))
		status, _ := e.Statuses.Limit("credit")
		if status.Available != 3 || !status.ResetsAt.IsZero() || e.RetryAfter() != zlimit.Never || !e.Possible() || !e.NeedsTopUp() || !strings.HasSuffix(e.Error(), ", not enough until a top-up") {
			t.Errorf("status %+v of %v", status, e)
		}
		for range 2 { // once
			change, err := topUp("invoice", 7, time.Time{})
			if err != nil || change.Limits[0].Before.Tokens() != 3 || change.Limits[0].After.Tokens() != 10 {
				t.Fatalf("TopUp() = %+v, %v", change, err)
			}
		}
		if _, err := topUp("ends", 7, c.now().Add(time.Hour)); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("a top-up that ends beside one for good: %v", err)
		}
		expect(10)
		c.sleep(time.Second)
		check.Fatal(t, "Release()", lease.Release(zlimit.Amounts{"credit": 2}))
		check.Fatal(t, "Commit()", lease.Commit(ctx))
		expect(12)
		acquire(t, l, ask(zlimit.Amounts{"credit": 12}))
		if _, err := l.Limits.Reset(ctx, zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4", Limits: []string{"credit"}}); err != nil {
			t.Fatalf("Limits.Reset() = %v", err)
		}
		expect(5)
		acquire(t, l, ask(zlimit.Amounts{"credit": 1}))
		if item := shardsOf(t, l)[0]; item.ExpiresAt != 0 && time.Unix(item.ExpiresAt, 0).Year() < 9999 {
			t.Errorf("the bucket expires at %v", time.Unix(item.ExpiresAt, 0))
		}
	})
}

// TestPrepaidGrantThatEnds grants a prepaid limit tokens for an hour.
func TestPrepaidGrantThatEnds(t *testing.T) {
	ctx, c := context.Background(), newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.Prepaid("credit", 5))
	acquire(t, l, ask(zlimit.Amounts{"credit": 1}))
	request := zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"credit": 20}, Until: c.now().Add(time.Hour)}
	if _, err := l.Limits.TopUp(ctx, request); err != nil {
		t.Fatalf("Limits.TopUp() = %v", err)
	}
	acquire(t, l, ask(zlimit.Amounts{"credit": 22}))
	c.sleep(2 * time.Hour)
	if got := available(t, l, "credit"); got != 2 {
		t.Errorf("%d are left after the grant, want 2", got)
	}
}

// TestPrepaidForms reads and writes prepaid limits.
func TestPrepaidForms(t *testing.T) {
	limit := zlimit.USD("usd", 5, zlimit.Prepaid)
	if got := limit.String(); got != "usd=5/never" {
		t.Errorf("String() = %s", got)
	}
	var read zlimit.Limit
	if err := read.UnmarshalText([]byte("usd=5/never")); err != nil || read != limit {
		t.Errorf("UnmarshalText() = %+v, %v", read, err)
	}
	text, err := json.Marshal(limit)
	if want := `{"name":"usd","capacity":5000000000,"prepaid":true}`; err != nil || string(text) != want {
		t.Errorf("MarshalJSON() = %s, %v, want %s", text, err, want)
	}
	read = zlimit.Limit{}
	if err := json.Unmarshal(text, &read); err != nil || read != limit {
		t.Errorf("UnmarshalJSON() = %+v, %v", read, err)
	}
	for _, bad := range []string{"usd=5:1/never", "usd=0/never", "usd=5/Never"} {
		if err := read.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%s is read as %v", bad, read)
		}
	}
	bad := `{"name":"usd","capacity":5,"prepaid":true,"session_seconds":5}`
	if err := json.Unmarshal([]byte(bad), &read); err == nil {
		t.Errorf("%s is read as %v", bad, read)
	}
}

// TestNeedsTopUp rejects requests by prepaid limits. Each succeeds after a top-up, unless another limit can never have as much.
func TestNeedsTopUp(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.Prepaid("credit", 5), zlimit.Prepaid("runs", 5).Floor("batch", 50), zlimit.PerMinute("rpm", 60))
	acquire(t, l, ask(zlimit.Amounts{"credit": 3, "runs": 1}))
	for _, test := range []struct {
		name          string
		amounts       zlimit.Amounts
		priority      string
		possible, pay bool
	}{
		{"more than is left", zlimit.Amounts{"credit": 3}, "", true, true},
		{"more than it began with", zlimit.Amounts{"credit": 7}, "", true, true},
		{"more than a floor leaves", zlimit.Amounts{"runs": 3}, "batch", true, true},
		{"too early for another limit", zlimit.Amounts{"credit": 3, "rpm": 60}, "", true, true},
		{"too much for another limit", zlimit.Amounts{"credit": 3, "rpm": 61}, "", false, false},
	} {
		request := ask(test.amounts)
		request.Priority = test.priority
		e := reject(t, l, request)
		if e.Possible() != test.possible || e.NeedsTopUp() != test.pay || e.RetryAfter() != zlimit.Never || e.RetryAfterHeader() != "" {
			t.Errorf("%s: Possible() = %v, NeedsTopUp() = %v, RetryAfter() = %v: %v", test.name, e.Possible(), e.NeedsTopUp(), e.RetryAfter(), e)
		}
		if wait, err := l.TimeUntil(ctx, request); wait != zlimit.Never || !errors.As(err, &e) || e.NeedsTopUp() != test.pay {
			t.Errorf("%s: TimeUntil() = %v, %v", test.name, wait, err)
		}
		if _, err := l.Wait(ctx, request, zlimit.MaxWait(time.Hour)); !errors.As(err, &e) || e.NeedsTopUp() != test.pay {
			t.Errorf("%s: Wait() = %v", test.name, err)
		}
		body, err := json.Marshal(e)
		if err != nil || strings.Contains(string(body), `"needs_top_up":true`) != test.pay || !strings.Contains(string(body), `"retry_after_seconds":null,`) {
			t.Errorf("%s: JSON %s, %v", test.name, body, err)
		}
	}
	if _, err := l.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"credit": 5}}); err != nil {
		t.Fatalf("Limits.TopUp() = %v", err)
	}
	acquire(t, l, ask(zlimit.Amounts{"credit": 7}))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 60}))
	if e := reject(t, l, ask(zlimit.Amounts{"rpm": 30})); e.NeedsTopUp() || e.RetryAfter() > time.Minute {
		t.Errorf("NeedsTopUp() = %v, RetryAfter() = %v of a limit that refills", e.NeedsTopUp(), e.RetryAfter())
	}
}
