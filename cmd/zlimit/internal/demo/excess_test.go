package demo

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestAudit(t *testing.T) {
	limit := zlimit.Limit{Name: "a", Capacity: 10, RefillAmount: 2, RefillPeriod: time.Second}
	const per = 1000 // of an excess of one token
	for _, test := range []struct {
		name   string
		events []event
		want   finding
	}{
		{
			"nothing happened", nil, finding{},
		},
		{
			"nothing was admitted", []event{{at: 1, tokens: -3}}, finding{},
		},
		{
			"one admission",
			[]event{{500, 4, true}},
			finding{intervals: 1, from: 500, to: 500, spent: 4, excess: -6 * per},
		},
		{
			"a burst of all there is, and the refill of two seconds",
			[]event{{0, 10, true}, {2000, 4, true}},
			finding{intervals: 3, from: 0, to: 0, spent: 10, excess: 0},
		},
		{
			"one token too many after an idle time",
			[]event{{0, 1, true}, {60_000, 10, true}, {60_000, 1, true}},
			finding{intervals: 6, from: 60_000, to: 60_000, spent: 11, excess: 1 * per},
		},
		{
			"one millisecond too early",
			[]event{{0, 10, true}, {499, 1, true}},
			finding{intervals: 3, from: 0, to: 499, spent: 11, excess: 2},
		},
		{
			"what is given back may be spent again",
			[]event{{0, 10, true}, {0, -5, false}, {0, 5, true}},
			finding{intervals: 4, from: 0, to: 0, spent: 10, excess: 0},
		},
		{
			"what is given back does not hide what was spent before",
			[]event{{0, 12, true}, {0, -5, false}, {0, 1, true}},
			finding{intervals: 4, from: 0, to: 0, spent: 12, excess: 2 * per},
		},
		{
			"a debt is nobody's admission, but counts for the next one",
			[]event{{0, 5, true}, {0, 20, false}, {0, 1, true}},
			finding{intervals: 4, from: 0, to: 0, spent: 26, excess: 16 * per},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			compare.Equal(t, "audit", test.want, audit(limit, test.events), cmp.AllowUnexported(finding{}))
		})
	}
}

// TestAuditComparesAllIntervals holds the one pass against a comparison of every interval.
func TestAuditComparesAllIntervals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := zlimit.Limit{
			Capacity:     rapid.Int64Range(1, 50).Draw(t, "capacity"),
			RefillAmount: rapid.Int64Range(1, 50).Draw(t, "refill"),
			RefillPeriod: time.Duration(rapid.IntRange(1, 2000).Draw(t, "period")) * time.Millisecond,
		}
		var events []event
		at := rapid.Int64Range(-1000, 1e12).Draw(t, "start")
		for range rapid.IntRange(0, 30).Draw(t, "events") {
			at += rapid.Int64Range(0, 800).Draw(t, "pause")
			e := event{at: at, tokens: rapid.Int64Range(0, 60).Draw(t, "tokens"), admission: true}
			if rapid.IntRange(0, 2).Draw(t, "settles") == 0 {
				e.tokens, e.admission = e.tokens-30, false
			}
			events = append(events, e)
		}
		period := limit.RefillPeriod.Milliseconds()
		intervals, highest := int64(0), int64(0)
		for i := range events {
			spent := int64(0)
			for _, e := range events[i:] {
				spent += e.tokens
				if !e.admission {
					continue
				}
				allowed := limit.Capacity*period + (e.at-events[i].at)*limit.RefillAmount
				if excess := spent*period - allowed; intervals == 0 || excess > highest {
					highest = excess
				}
				intervals++
			}
		}
		got := audit(limit, events)
		if got.intervals != intervals || got.excess != highest {
			t.Fatalf("audit: %d intervals, excess %d; one by one: %d, %d", got.intervals, got.excess, intervals, highest)
		}
		if intervals == 0 {
			return
		}
		if allowed := limit.Capacity*period + (got.to-got.from)*limit.RefillAmount; got.spent*period-allowed != got.excess {
			t.Fatalf("audit = %+v, whose figures do not add up", got)
		}
	})
}
