package recent_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/recent"
)

// TestCauses adds up what this process saw and what others reported, by the limit that refuses.
func TestCauses(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	of := func(entity, limit string) recent.Refusal {
		return recent.Refusal{Entity: entity, Resource: "gpt", LimitEntity: "acme", Limit: limit}
	}
	seen := []recent.Refused{{Refusal: of("ann", "tpm"), N: 3, Last: now, RetryAfter: 20 * time.Second, Requested: 70}, {Refusal: of("ben", "usd"), N: 1, Requested: 5}}
	reported := zlimit.Rejections{Heaviest: []zlimit.Rejection{
		{Entity: "ann", Resource: "gpt", LimitEntity: "acme", Limit: "tpm", Count: 2}, // fewer than were seen here
		{Entity: "cat", Resource: "gpt", LimitEntity: "acme", Limit: "tpm", Count: 4},
		{Entity: "ben", Resource: "gpt", LimitEntity: "acme", Limit: "usd", Count: 2},
	}}
	all := recent.Refusals(seen, reported)
	var got []string
	for _, r := range all {
		got = append(got, fmt.Sprint(r.Entity, " ", r.Limit, " ", r.N, " ", r.Requested))
	}
	compare.Equal(t, "refusals", []string{"cat tpm 4 0", "ann tpm 3 70", "ben usd 2 5"}, got)
	resets := now.Add(time.Hour)
	causes, total := recent.Causes(all, func(_, limit string) *zlimit.Status {
		if limit == "usd" {
			return &zlimit.Status{Limit: zlimit.Monthly("usd", 100, "UTC"), Available: 4, ResetsAt: resets}
		}
		return nil
	}, now)
	if total != 9 || len(causes) != 2 || causes[0].Limit != "tpm" || causes[0].N != 7 || causes[0].Status != nil || !causes[0].At.IsZero() {
		t.Errorf("of %d refusals the causes are %+v", total, causes)
	}
	if c := causes[1]; c.N != 2 || c.Part != 2.0/9 || !c.At.Equal(resets) || c.Never() {
		t.Errorf("the second cause is %+v", c)
	}
}

// TestRoomAt covers each way in which a limit has room again.
func TestRoomAt(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	resets := now.Add(time.Hour)
	month, minute := zlimit.Monthly("usd", 100, "UTC"), zlimit.PerMinute("tpm", 100)
	for name, c := range map[string]struct {
		status *zlimit.Status
		of     recent.Refused
		want   time.Time
	}{
		"unknown":                {nil, recent.Refused{Last: now, RetryAfter: time.Minute}, time.Time{}},
		"a budget without room":  {&zlimit.Status{Limit: month, Available: 4, ResetsAt: resets}, recent.Refused{Requested: 5}, resets},
		"a budget with room":     {&zlimit.Status{Limit: month, Available: 5, ResetsAt: resets}, recent.Refused{Requested: 5}, time.Time{}},
		"tokens that will come":  {&zlimit.Status{Limit: minute}, recent.Refused{Last: now.Add(-time.Second), RetryAfter: 10 * time.Second}, now.Add(9 * time.Second)},
		"tokens that have come":  {&zlimit.Status{Limit: minute}, recent.Refused{Last: now.Add(-time.Minute), RetryAfter: 10 * time.Second}, time.Time{}},
		"tokens within seconds":  {&zlimit.Status{Limit: minute}, recent.Refused{Last: now, RetryAfter: 3 * time.Second}, time.Time{}},
		"what can never fit":     {&zlimit.Status{Limit: minute}, recent.Refused{Last: now, RetryAfter: zlimit.Never}, time.Time{}},
		"a debt that others pay": {&zlimit.Status{Limit: minute, Queue: 7 * time.Second}, recent.Refused{}, now.Add(7 * time.Second)},
	} {
		if got := recent.RoomAt(c.status, &c.of, now); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Who is refused now, by which limit, and until when.
func Example() {
	ctx := context.Background()
	now := time.Date(2026, time.March, 31, 23, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	seen := recent.New(clock)
	limiter, err := zlimit.Open(ctx, "memory:", zlimit.WithClock(clock), zlimit.WithObserver(seen.Observe))
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	_ = limiter.Limits.Set(ctx, zlimit.Level{Resource: "gpt"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.Monthly("calls", 1, "UTC")}})
	for range 3 {
		_, _ = limiter.Acquire(ctx, zlimit.Request{Entity: "acme", Resource: "gpt", Consume: zlimit.Amounts{"calls": 1}})
	}
	pulse := seen.Of("gpt")
	fmt.Println(pulse.RefusedMinute, "of", pulse.Decided, "refused,", pulse.Waits.N, "wait")
	statuses, err := limiter.Available(ctx, zlimit.AvailableQuery{Entity: "acme", Resource: "gpt"})
	if err != nil {
		panic(err)
	}
	causes, _ := recent.Causes(pulse.Refusals, func(_, limit string) *zlimit.Status {
		s, _ := statuses.Limit(limit)
		return &s
	}, now)
	for _, c := range causes {
		fmt.Println(c.Limit, "of", c.LimitEntity, "refused", c.N, "until", c.At.Format(time.DateTime))
	}
	// Output:
	// 2 of 3 refused, 0 wait
	// calls of acme refused 2 until 2026-04-01 00:00:00
}
