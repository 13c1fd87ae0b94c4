package page

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// TestAmounts writes amounts in few characters, and never rounds to what they are not.
func TestAmounts(t *testing.T) {
	for _, test := range []struct {
		limit string
		n     float64
		want  string
	}{
		{"rpm", 0, "0"},
		{"rpm", 9999, "9,999"},
		{"rpm", 42_400, "42k"},
		{"tpm", 999_600, "1M"},
		{"tpm", 1_540_000, "1.5M"},
		{"tpm", -1200, "−1,200"},
		{"usd", 0, "$0"},
		{"usd", 38.2e9, "$38.20"},
		{"usd", 1e6, "< $0.01"},
		{"usd", 23_480e9, "$23,480"},
		{"usd", 2.5e15, "$2.5M"},
		{"usd", -1_480e9, "−$1,480"},
	} {
		if got := amount(test.limit, test.n); got != test.want {
			t.Errorf("amount(%s, %v) = %q, want %q", test.limit, test.n, got, test.want)
		}
	}
	for part, want := range map[float64]string{0: "0 %", 0.0004: "< 0.1 %", 0.034: "3.4 %", 0.94: "94 %", 9.18: "918 %"} {
		if got := percent(part); got != want {
			t.Errorf("percent(%v) = %q, want %q", part, got, want)
		}
	}
	for _, test := range []struct {
		limit zlimit.Limit
		want  string
	}{
		{zlimit.PerMinute("tpm", 400_000), "400k a minute"},
		{zlimit.PerMinute("tpm", 100, zlimit.Burst(500)), "100 a minute, up to 500"},
		{zlimit.USD("usd", 8000, zlimit.PerMonth), "$8,000 a month, UTC"},
		{zlimit.Daily("rpd", 50, "Europe/Berlin"), "50 a day, Europe/Berlin"},
		{zlimit.Weekly("rpw", 50, "UTC"), "50 a week, UTC"},
		{zlimit.Slots("slots", 20), "20 at a time"},
		{zlimit.Session("s", 5, 5*time.Hour), "5 a session of 5 hours"},
		{zlimit.Prepaid("p", 5), "5, prepaid"},
	} {
		if got := limitText(&test.limit); got != test.want {
			t.Errorf("limitText(%v) = %q, want %q", test.limit, got, test.want)
		}
	}
}

// TestRecent counts refusals of a minute, who waits, and what is held.
func TestRecent(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	r := NewRecent(func() time.Time { return now })
	see := func(e zlimit.Event) { r.Observe(context.Background(), e) }
	decide := func(result zlimit.Result, lease uint64, wait time.Duration) {
		see(zlimit.Event{
			Kind: zlimit.EventDecision, Entity: "alice", Resource: "gpt", Result: result, Lease: lease, Wait: wait, Limit: "tpm", LimitEntity: "acme",
			Amounts: []zlimit.Amount{{Limit: "tpm", Tokens: 70}},
		})
	}
	for range 3 {
		decide(zlimit.ResultRejected, 0, 0)
	}
	now = now.Add(30 * time.Second)
	decide(zlimit.ResultRejected, 0, 0)
	decide(zlimit.ResultOK, 7, 0)
	decide(zlimit.ResultOK, 8, 12*time.Second)
	p := r.pulse("gpt")
	if len(p.Refusals) != 1 || p.Refusals[0].N != 4 || p.RefusedMinute != 4 || p.Decided != 6 {
		t.Errorf("refusals are %+v of %d, want 4 of 6", p.Refusals, p.Decided)
	}
	if p.Waits.N != 1 || p.Waits.Longest != 12*time.Second || p.Waiting["alice"].N != 1 {
		t.Errorf("%+v wait, want alice for 12 s", p.Waiting)
	}
	if len(p.Open) != 2 || p.Open[0].amounts[0].Tokens != 70 {
		t.Errorf("%+v is held, want two leases", p.Open)
	}
	see(zlimit.Event{Kind: zlimit.EventSettle, Lease: 7})
	now = now.Add(31 * time.Second)
	if p = r.pulse("gpt"); len(p.Open) != 1 || p.Refusals[0].N != 1 || p.Waits.N != 0 {
		t.Errorf("half a minute later there are %d leases, %+v and %d who wait", len(p.Open), p.Refusals, p.Waits.N)
	}
	if p = r.pulse("other"); len(p.Refusals)+len(p.Open) > 0 {
		t.Errorf("another resource has %+v", p)
	}
	now = now.Add(heldFor)
	if p = r.pulse("gpt"); len(p.Open) != 0 || len(p.Refusals) != 0 || p.Decided != 0 {
		t.Errorf("ten minutes later there is %+v", p)
	}
}

// TestRecentIsBounded does not grow with a flood of names.
func TestRecentIsBounded(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	r := NewRecent(func() time.Time { return now })
	for i := range 3 * mostOpen / 2 {
		name := fmt.Sprint("entity-", i)
		r.Observe(context.Background(), zlimit.Event{Kind: zlimit.EventDecision, Entity: name, Resource: "gpt", Result: zlimit.ResultRejected, Limit: "rpm"})
		r.Observe(context.Background(), zlimit.Event{Kind: zlimit.EventDecision, Entity: name, Resource: "gpt", Result: zlimit.ResultOK, Lease: uint64(i + 1), Wait: time.Hour})
	}
	if len(r.refused) > mostRefusals || len(r.waiting) > mostWaiters || len(r.open) > mostOpen {
		t.Errorf("there are %d refusals, %d waiters and %d leases", len(r.refused), len(r.waiting), len(r.open))
	}
}

// TestReplay covers an hour that does not fit, and one that the burst saves.
func TestReplay(t *testing.T) {
	from := time.Date(2026, time.March, 1, 22, 0, 0, 0, time.UTC)
	per := zlimit.PerHour("tpm", 100)
	r := replayed([]float64{200, 101, 50, 0, 300}, from, &per)
	if r.hours != 4 || r.over != 2 || r.refused != 1+100 || r.worst != 1.5 || !r.worstAt.Equal(from.Add(4*time.Hour)) {
		t.Errorf("replayed() = %+v, want 1 and 100 refused", r)
	}
	day := zlimit.Daily("tpm", 100, "UTC")
	r = replayed([]float64{80, 30, 90, 20}, from, &day) // the third hour begins a day
	if r.over != 2 || r.refused != 10+10 {
		t.Errorf("replayed() = %+v, want 10 refused on each day", r)
	}
}

// TestLocal leads nowhere but to this page.
func TestLocal(t *testing.T) {
	for to, want := range map[string]string{
		"/usage?month=2026-11": "/usage?month=2026-11", "": "/", "//elsewhere.example": "/", "https://elsewhere.example/": "/", `/\elsewhere.example`: "/", "usage": "/",
		"/signin?token=x": "/", "javascript:alert(1)": "/",
	} {
		if got := local(to); got != want {
			t.Errorf("local(%q) = %q, want %q", to, got, want)
		}
	}
}

// TestChangeOf takes nothing for granted that another program may have written.
func TestChangeOf(t *testing.T) {
	limit := func(capacity int64) map[string]any {
		return map[string]any{"name": "tpm", "capacity": capacity, "refill_amount": capacity, "refill_period_seconds": int64(60)}
	}
	for _, test := range []struct {
		event zlimit.AuditEvent
		want  string
	}{
		{zlimit.AuditEvent{Entity: "a", Action: zlimit.ActionLimitsSet, Principal: "dana", Details: map[string]any{"limits": []any{limit(500)}, "before": map[string]any{"limits": []any{limit(400)}}}}, "a tpm 400 → 500 a minute by dana"},
		{zlimit.AuditEvent{Entity: "a", Action: zlimit.ActionLimitsSet, Details: map[string]any{"disabled": true}}, "a disabled by no one known"},
		{zlimit.AuditEvent{Entity: "a", Action: zlimit.ActionLimitsSet, Details: map[string]any{"disabled": "bypass"}}, "a bypassed by no one known"},
		{zlimit.AuditEvent{Entity: zlimit.AuditResource("gpt"), Action: zlimit.ActionLimitsDeleted}, "resource gpt has no limits of its own now by no one known"},
		{zlimit.AuditEvent{Entity: zlimit.AuditSystem, Action: zlimit.ActionLimitsSet, Details: map[string]any{"limits": "none", "before": 7}}, "the system stored again by no one known"},
		{zlimit.AuditEvent{Entity: "a", Action: "tidied_up"}, "a tidied up by no one known"},
		{zlimit.AuditEvent{Entity: "a", Action: zlimit.ActionBucketToppedUp, Details: map[string]any{"before": map[string]any{"tpm": int64(1)}, "after": map[string]any{"tpm": int64(9), "x": nil}}}, "a topped up: tpm 1 → 9 by no one known"},
		{zlimit.AuditEvent{Entity: "a", Action: zlimit.ActionEntityMoved, Details: map[string]any{"parent_id": nil}}, "a has no parent now by no one known"},
	} {
		c := changeOf(&test.event)
		if got := c.Subject + " " + c.What + " by " + c.Who; got != test.want {
			t.Errorf("changeOf() = %q, want %q", got, test.want)
		}
	}
}

// TestHangingStore answers those who wait for the same reading when their time is over, and asks the store once more for none of them.
func TestHangingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &page{Options: Options{Now: time.Now}}
		p.feed = newFeed(p)
		asked := 0
		var readers sync.WaitGroup
		began := time.Now()
		for i := range 50 {
			patience := readTimeout
			if i%2 == 1 {
				patience = time.Second
				synctest.Wait() // until another one reads
			}
			readers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, _, err := once(ctx, &p.feed, "buckets", time.Second, func(ctx context.Context) (int, error) {
					asked++
					<-ctx.Done()
					return 0, ctx.Err()
				})
				if took := time.Since(began); err == nil || took > patience {
					t.Errorf("a reading = %v after %v, want an error within %v", err, took, patience)
				}
			})
		}
		readers.Wait()
		if asked != 1 {
			t.Errorf("the store was asked %d times, want once", asked)
		}
	})
}
