package zlimit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestExceededError(t *testing.T) {
	e := &zlimit.ExceededError{zlimit.Statuses{
		{Entity: "key-1", Resource: "gpt-4", Limit: zlimit.PerMinute("rpm", 10), Available: 9, Requested: 1},
		{Entity: "key-1", Resource: "gpt-4", Limit: zlimit.PerMinute("tpm", 1000), Available: -20, Requested: 100, Exceeded: true, RetryAfter: 7201 * time.Millisecond},
	}}
	const text = "zlimit: rate limit exceeded: key-1/gpt-4 tpm (requested 100, available -20 of 1000), retry after 7.201s"
	if e.Error() != text {
		t.Errorf("Error() = %q, want %q", e.Error(), text)
	}
	if e.RetryAfterHeader() != "8" {
		t.Errorf("RetryAfterHeader() = %q, want 8", e.RetryAfterHeader())
	}
	got := check.Call(json.Marshal(e)).Must(t, "json.Marshal()")
	want := strings.Join(strings.Fields(`{
		"error":"rate_limit_exceeded","possible":true,"retry_after_seconds":7.201,"limits":[
		{"entity":"key-1","resource":"gpt-4","limit":"rpm","capacity":10,"refill_amount":10,"refill_period_seconds":60,
		"available":9,"requested":1,"exceeded":false,"retry_after_seconds":0},
		{"entity":"key-1","resource":"gpt-4","limit":"tpm","capacity":1000,"refill_amount":1000,"refill_period_seconds":60,
		"available":-20,"requested":100,"exceeded":true,"retry_after_seconds":7.201}]}`), "")
	if string(got) != want {
		t.Errorf("MarshalJSON() = %s, want %s", got, want)
	}

	e.Statuses[1].Requested = 2000
	if e.Possible() || e.RetryAfter() != zlimit.Never || e.RetryAfterHeader() != "" || !strings.Contains(e.Error(), "can never succeed") {
		t.Errorf("Possible() = %v, RetryAfter() = %v, RetryAfterHeader() = %q, Error() = %q, want never", e.Possible(), e.RetryAfter(), e.RetryAfterHeader(), e.Error())
	}
}

func TestFailurePoliciesAsText(t *testing.T) {
	for _, policy := range []zlimit.FailurePolicy{zlimit.PolicyInherit, zlimit.PolicyBlock, zlimit.PolicyAllow} {
		text := check.Call(policy.MarshalText()).Must(t, "MarshalText()")
		got := zlimit.FailurePolicy(3)
		if err := got.UnmarshalText(text); err != nil || got != policy {
			t.Errorf("UnmarshalText(%s) = %v, and the policy is %v", text, err, got)
		}
	}

	var invalid *zlimit.ValidationError
	if text, err := zlimit.FailurePolicy(3).MarshalText(); !errors.As(err, &invalid) {
		t.Errorf("MarshalText() = %s, %v, want a ValidationError", text, err)
	}
	for _, name := range []string{"", "Allow", "FailurePolicy(3)"} {
		got := zlimit.PolicyBlock
		if err := got.UnmarshalText([]byte(name)); !errors.As(err, &invalid) || got != zlimit.PolicyBlock {
			t.Errorf("UnmarshalText(%q) = %v, and the policy is %v, want a ValidationError", name, err, got)
		}
	}
}

func TestStatsAsJSON(t *testing.T) {
	got, err := json.Marshal(zlimit.Stats{
		Admitted: 1, Rejected: 2, Degraded: 3, Unavailable: 4, Waiting: 16, Waited: 17, Abandoned: 18, LostRaces: 5, UnknownOutcomes: 6, UnknownSettled: 15,
		Unreturned: 7, StampsFixed: 8, SlotsHeld: 19, SlotsTaken: 20, SlotsLost: 21, Foreseen: 22, Outages: 13, Outage: true,
		Config: zlimit.CacheStats{Hits: 9, Misses: 10, Stale: 11, Entries: 12, StaleSeconds: 14.5},
	})
	const want = `{"admitted":1,"rejected":2,"degraded":3,"unavailable":4,"waiting":16,"waited":17,"abandoned":18,"lost_races":5,"unknown_outcomes":6,"unknown_settled":15,` +
		`"unreturned":7,"stamps_fixed":8,"slots_held":19,"slots_taken":20,"slots_lost":21,"foreseen":22,"outages":13,"outage":true,` +
		`"config":{"hits":9,"misses":10,"stale":11,"entries":12,"stale_seconds":14.5}}`
	if err != nil || string(got) != want {
		t.Errorf("Marshal() = %s, %v, want %s", got, err, want)
	}
}

// In TestSpreadRetryAfter, rejections report times after the edge of a quota. Each caller gets its own time, always the
// same. It is at most a minute after the edge, and at most a hundredth of the period. Times of other limits are
// reported as they are.
func TestSpreadRetryAfter(t *testing.T) {
	edge := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	of := func(entity string, l zlimit.Limit, resets time.Time, wait time.Duration) *zlimit.ExceededError {
		return &zlimit.ExceededError{Statuses: zlimit.Statuses{
			{Entity: entity, Limit: zlimit.PerMinute("rpm", 10), Requested: 1, Exceeded: true, RetryAfter: time.Second},
			{Entity: entity, Limit: l, Requested: 1, Exceeded: true, ResetsAt: resets, RetryAfter: wait},
		}}
	}
	for _, test := range []struct {
		limit  zlimit.Limit
		within time.Duration
	}{
		{zlimit.Monthly("m", 10, "UTC"), time.Minute},
		{zlimit.Cron("c", 10, "*/10 * * * *", "UTC"), 6 * time.Second},
		{zlimit.Session("s", 10, 5*time.Hour), time.Minute},
	} {
		told, late := map[time.Duration]bool{}, time.Duration(0)
		for i := range 1000 {
			wait := time.Hour + time.Duration(i/10)*time.Millisecond
			e := of(fmt.Sprint("e", i%10), test.limit, edge, wait)
			spread := e.SpreadRetryAfter() - wait
			if spread < 0 || spread >= test.within || e.SpreadRetryAfter()-wait != spread || e.RetryAfter() != wait {
				t.Fatalf("%s: told %v later than %v, then %v", test.limit.Name, spread, wait, e.SpreadRetryAfter()-wait)
			}
			told[spread], late = true, max(late, spread)
			seconds, _ := strconv.Atoi(e.RetryAfterHeader())
			if least := wait + spread; time.Duration(seconds)*time.Second < least || time.Duration(seconds-1)*time.Second >= least {
				t.Fatalf("RetryAfterHeader() = %q for %v", e.RetryAfterHeader(), least)
			}
		}
		if len(told) < 500 || late < test.within*9/10 {
			t.Errorf("%s: 1000 callers come at %d times, the last one %v late", test.limit.Name, len(told), late)
		}
	}
	for _, e := range []*zlimit.ExceededError{
		of("e", zlimit.PerHour("rph", 10), time.Time{}, time.Hour),
		of("e", zlimit.Monthly("m", 10, "UTC"), edge, time.Millisecond), // the other limit waits longer
		of("e", zlimit.Monthly("m", 10, "UTC"), edge, zlimit.Never),
		{},
	} {
		if e.SpreadRetryAfter() != e.RetryAfter() {
			t.Errorf("%v: SpreadRetryAfter() = %v, RetryAfter() = %v", e, e.SpreadRetryAfter(), e.RetryAfter())
		}
	}
}
