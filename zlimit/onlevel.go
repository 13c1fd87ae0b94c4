package zlimit

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// OnLevel returns an observer that warns before a limit is reached. It calls f when at least a share of the limit's
// capacity, such as 0.8, is used. This process calls f once for each bucket in each refill period of the limit, or period of a quota.
//
// The observer makes no call of the store. It uses the limiter's view of a bucket after a request, also after a
// rejected one that finds the limit used up. It reports all limits of that name, of any resource.
//
// The observer remembers the last 65,536 buckets that it reported. When a period has more of them, it may report one
// again. OnLevel panics when the limit is empty, the share is not above 0 and at most 1, or f is nil.
func OnLevel(limit string, share float64, f func(context.Context, Status)) Observer {
	switch {
	case limit == "":
		panic("zlimit: OnLevel: the limit must not be empty")
	case !(share > 0 && share <= 1): // which NaN is not either
		panic(fmt.Sprintf("zlimit: OnLevel: the share is %v; it must be above 0 and at most 1", share))
	case f == nil:
		panic("zlimit: OnLevel: the function must not be nil")
	}
	told := &toldBuckets{until: map[bucketName]time.Time{}}
	return func(ctx context.Context, e Event) {
		for _, s := range e.Statuses {
			if s.Limit.Name == limit && s.used() >= share && told.once(bucketName{s.Entity, s.Resource}, e.Time, s.periodEnd(e.Time)) {
				f(ctx, s)
			}
		}
	}
}

// used returns the share of the capacity that is not available; above 1 in debt.
func (s *Status) used() float64 {
	capacity := s.Now().Capacity
	if capacity <= 0 {
		return math.Inf(1)
	}
	return float64(capacity-s.Available) / float64(capacity)
}

type bucketName struct{ entity, resource string }

// maxTold bounds the buckets that are remembered.
const maxTold = 1 << 16

// toldBuckets remembers until when no observer is called for a bucket again.
type toldBuckets struct {
	mu    sync.Mutex
	until map[bucketName]time.Time
}

// periodEnd returns until when a limit is reported once: the end of a quota's period, or one refill period.
func (s *Status) periodEnd(now time.Time) time.Time {
	if !s.ResetsAt.IsZero() {
		return s.ResetsAt
	}
	return now.Add(s.Limit.RefillPeriod)
}

// once reports whether to report a bucket, and remembers it until a time.
func (t *toldBuckets) once(b bucketName, now, end time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until, ok := t.until[b]; ok && now.Before(until) {
		return false
	}
	if len(t.until) >= maxTold {
		t.forget(now)
	}
	t.until[b] = end
	return true
}

// forget drops buckets whose period is over, and if these are too few, half of the rest.
func (t *toldBuckets) forget(now time.Time) {
	for b, until := range t.until {
		if !now.Before(until) {
			delete(t.until, b)
		}
	}
	for b := range t.until {
		if len(t.until) <= maxTold/2 {
			return
		}
		delete(t.until, b)
	}
}
