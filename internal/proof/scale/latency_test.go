package scale

import (
	"testing"
	"time"
)

// In TestContests, processes contend for a limit that they use up. The limit is used in full and never exceeded, each process gets at least
// half of its share, and few requests cost a write that fails. Callers wait no longer than they may, and for a round trip or two.
func TestContests(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for seconds: the runs that are not short have it")
	}
	for _, test := range []struct {
		mode, kind string
		load       float64
		processes  int
		trip       time.Duration
		writes     float64 // a request, at most
		least      float64 // admissions of a process, as a part of the mean
	}{
		{"Acquire", "one limit", 2, 10, 20 * time.Millisecond, 1, 0.5},
		{"Acquire", "one limit", 2, 1, 20 * time.Millisecond, 0.55, 1},       // requests count on what those before them leave
		{"Acquire", "one limit", 10, 2, time.Millisecond, 0.3, 0.8},          // parts become alike
		{"Acquire", "one limit", 10, 10, 20 * time.Millisecond, 0.27, 0.5},   // parts hold at a low rate of writes, and shrink with those that fail
		{"Acquire", "a parent", 10, 3, 20 * time.Millisecond, 0.4, 0.5},      // no child is charged in vain
		{"Acquire", "a split bucket", 2, 1, 20 * time.Millisecond, 0.55, 1},  // requests under way count in all shards
		{"Acquire", "a split bucket", 10, 1, time.Millisecond, 0.12, 1},      // no transaction collects what shards have left
		{"Acquire", "a split bucket", 10, 1, 60 * time.Millisecond, 0.15, 1}, // shards are written side by side
		{"Acquire", "a split bucket", 2, 6, 20 * time.Millisecond, 1.1, 0.5}, // shards give credit
		{"Acquire", "a split bucket", 10, 3, 20 * time.Millisecond, 0.25, 0.5},
		{"Wait", "one limit", 2, 3, 5 * time.Millisecond, 1.1, 0.5},
		{"Wait", "a split bucket", 2, 6, 20 * time.Millisecond, 1.1, 0.5},
	} {
		c := contestCase(test.mode, test.kind, test.load, test.processes, test.trip)
		o := run(t, &c.Load, c.Params).Contest
		if o.Over > 0 || o.failures() > 0 || o.used() < 0.98 || o.refusedMore() > 0.01 {
			t.Errorf("%s: %+v, want all that the limit allows and no more", c.Label, *o)
		}
		if o.Writes > test.writes || o.least(test.processes) < test.least {
			t.Errorf("%s: %v writes a request, and %.2f of the mean for one process; want at most %v and at least %v", c.Label, o.Writes,
				o.least(test.processes), test.writes, test.least)
		}
		if o.Late > 3 || test.mode == "Acquire" && (o.P50 > 1.5 || o.P99 > 5) {
			t.Errorf("%s: %v and %v round trips, %v later than a caller may wait", c.Label, o.P50, o.P99, o.Late)
		}
	}
}

// In TestContestsOfNearlyFullBucket, processes far away request as much as flows in. Each guesses whether the limit has been full, and the
// refill of the requests that guess wrong is not lost.
func TestContestsOfNearlyFullBucket(t *testing.T) {
	for _, test := range []struct {
		kind         string
		load         float64
		processes    int
		trip         time.Duration
		used, writes float64 // of what the limit allows, at least; a request, at most
	}{
		{"one limit", 1, 1, 100 * time.Millisecond, 0.95, 0.8}, // requests that share a write take when they came
		{"one limit", 1, 10, 60 * time.Millisecond, 0.98, 1.5},
		{"one limit", 1, 10, 100 * time.Millisecond, 0.93, 1.7},
		{"one limit", 0.5, 6, 100 * time.Millisecond, 0.98, 1.8},
		{"two limits", 1, 6, 60 * time.Millisecond, 0.96, 1.7}, // the full limit makes no write fail
		{"two limits", 2, 6, 100 * time.Millisecond, 0.98, 1.4},
	} {
		c := contestCase("Acquire", test.kind, test.load, test.processes, test.trip)
		o := run(t, &c.Load, c.Params).Contest
		if o.Over > 0 || o.failures() > 0 || o.used() < test.used || o.Writes > test.writes || o.P50 > 2.4 {
			t.Errorf("%s: %+v, want %v of what the limit allows and no more, at most %v writes a request, and about two round trips", c.Label, *o,
				test.used, test.writes)
		}
	}
}

// In TestContestOfSplitBucket, processes far away use up a bucket of two shards. Fresh images of both reject most callers from memory, and
// at most one in a thousand loses races until the wait is over.
func TestContestOfSplitBucket(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for seconds: the runs that are not short have it")
	}
	c := contestCase("Wait", "a split bucket", 10, 6, 60*time.Millisecond)
	if o := run(t, &c.Load, c.Params).Contest; o.Over > 0 || o.failures() > o.Offered/1000 || o.used() < 0.98 || o.P50 > 1.5 {
		t.Errorf("%s: %+v, want all that the limit allows, hardly a failure, and rejections from memory", c.Label, *o)
	}
}
