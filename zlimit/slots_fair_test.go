package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A shift is the callers of a process that take slots one after another.
type shift struct {
	callers int
	slots   int64 // of each request
	hold    time.Duration
	maxWait time.Duration // 0 for Acquire
	entity  string        // "" for the usual one
}

// work runs the callers for a time, and counts the admissions and the rejections.
func (c *shift) work(ctx context.Context, l *zlimit.RateLimiter, d time.Duration, atWork *atomic.Int64, most int64) (admitted, refused int64, err error) {
	var wg sync.WaitGroup
	var yes, no atomic.Int64
	var failure atomic.Pointer[error]
	until := time.Now().Add(d)
	request := ask(zlimit.Amounts{"slots": c.slots})
	if c.entity != "" {
		request.Entity = c.entity
	}
	for range c.callers {
		wg.Go(func() {
			for time.Now().Before(until) {
				lease, err := l.Wait(ctx, request, zlimit.MaxWait(c.maxWait))
				switch {
				case errors.As(err, new(*zlimit.ExceededError)):
					no.Add(1)
					if c.maxWait == 0 {
						time.Sleep(c.hold / 10)
					}
					continue
				case err != nil:
					failure.Store(&err)
					return
				}
				if n := atWork.Add(c.slots); n > most {
					err := fmt.Errorf("%d slots are held at once, of %d", n, most)
					failure.Store(&err)
				}
				yes.Add(1)
				time.Sleep(c.hold)
				atWork.Add(-c.slots)
				if err := lease.Commit(ctx); err != nil {
					failure.Store(&err)
					return
				}
			}
		})
	}
	wg.Wait()
	if e := failure.Load(); e != nil {
		err = *e
	}
	return yes.Load(), no.Load(), err
}

// In TestSlotsAreSharedAmongProcesses, processes have callers that always wait. Each of them has at least half of its part, slots are never
// exceeded, and no time is lost: the admissions differ from those of one process by a tenth at most.
func TestSlotsAreSharedAmongProcesses(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		slots  int64
		late   time.Duration
		shifts []shift
	}{
		{2, ms, []shift{{8, 1, 50 * ms, 10 * time.Second, ""}, {8, 1, 50 * ms, 10 * time.Second, ""}, {8, 1, 50 * ms, 10 * time.Second, ""}}},
		{2, 20 * ms, []shift{{8, 1, 50 * ms, 10 * time.Second, ""}, {8, 1, 50 * ms, 10 * time.Second, ""}, {8, 1, 50 * ms, 10 * time.Second, ""}}},
		{2, 5 * ms, []shift{{4, 1, time.Second, 20 * time.Second, ""}, {4, 1, time.Second, 20 * time.Second, ""}}},
		{4, 60 * ms, []shift{{10, 1, 200 * ms, 20 * time.Second, ""}, {10, 1, 200 * ms, 20 * time.Second, ""}}},
		{20, 5 * ms, []shift{{10, 1, 100 * ms, 5 * time.Second, ""}, {10, 1, 100 * ms, 5 * time.Second, ""}, {40, 1, 100 * ms, 5 * time.Second, ""}}},
		{1, 5 * ms, []shift{{1, 1, 50 * ms, time.Minute, ""}, {20, 1, 50 * ms, time.Minute, ""}}},
		{2, 5 * ms, []shift{
			{3, 1, 100 * ms, time.Minute, ""},
			{3, 1, 100 * ms, time.Minute, ""},
			{3, 1, 100 * ms, time.Minute, ""},
			{3, 1, 100 * ms, time.Minute, ""},
			{3, 1, 100 * ms, time.Minute, ""},
			{3, 1, 100 * ms, time.Minute, ""},
		}},
	} {
		t.Run(fmt.Sprintf("%d slots, %d processes, %v", test.slots, len(test.shifts), test.late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := hook(newMemory(t))
				s.late = test.late
				limiters := make([]*zlimit.RateLimiter, len(test.shifts))
				for i := range limiters {
					limiters[i] = newLimiter(t, zlimit.StoreOn(s))
				}
				slots(t, limiters[0], test.slots)
				const lasts = 60 * time.Second
				admitted, total, errs := make([]int64, len(limiters)), int64(0), make([]error, len(limiters))
				s.writes.Store(0)
				var atWork atomic.Int64
				var wg sync.WaitGroup
				for i := range limiters {
					wg.Go(func() {
						admitted[i], _, errs[i] = test.shifts[i].work(t.Context(), limiters[i], lasts, &atWork, test.slots)
					})
				}
				wg.Wait()
				check.Fatal(t, "work()", errors.Join(errs...))
				for _, n := range admitted {
					total += n
				}
				for i, n := range admitted {
					if n < total/int64(2*len(admitted)) {
						t.Errorf("process %d had %d of %d admissions, less than half of its part: %v", i, n, total, admitted)
					}
				}
				hold := test.shifts[0].hold + 2*test.late // and the writes that give back and take
				if most := test.slots * int64(lasts/hold); total < most*8/10 {
					t.Errorf("%d admissions, want at least 8 of 10 of the %d of one process", total, most)
				}
				t.Logf("%v of %d, %.2f writes each", admitted, total, float64(s.writes.Load())/float64(total))
				closeLimiters(t, limiters...)
			})
		})
	}
}

// In TestLargeRequestsForSlots, a caller waits for most of the slots beside callers for one: of its own process, of another one, or of
// both. They pass it for half a second at most, and it gets its slots in time.
func TestLargeRequestsForSlots(t *testing.T) {
	single, never := shift{4, 1, 50 * time.Millisecond, 20 * time.Second, ""}, shift{4, 1, 50 * time.Millisecond, 0, ""}
	for name, beside := range map[string][2]*shift{
		"none":                      {nil, nil},
		"own process":               {&single, nil},
		"another process":           {nil, &single},
		"both":                      {&single, &single},
		"another, that do not wait": {nil, &never},
		"own, that do not wait":     {&never, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := hook(newMemory(t))
				s.late = 2 * time.Millisecond
				l, other := newLimiter(t, zlimit.StoreOn(s)), newLimiter(t, zlimit.StoreOn(s))
				slots(t, l, 4)
				const lasts = 30 * time.Second
				var atWork atomic.Int64
				var wg sync.WaitGroup
				large := shift{1, 4, 50 * time.Millisecond, 20 * time.Second, ""}
				var got, refused, small [2]int64
				var errs [3]error
				wg.Go(func() { got[0], refused[0], errs[0] = large.work(t.Context(), l, lasts, &atWork, 4) })
				for i, c := range beside {
					if c != nil {
						wg.Go(func() {
							small[i], _, errs[1+i] = c.work(t.Context(), []*zlimit.RateLimiter{l, other}[i], lasts, &atWork, 4)
						})
					}
				}
				wg.Wait()
				check.Fatal(t, "work()", errors.Join(errs[:]...))
				if got[0] < 20 || refused[0] > 0 {
					t.Errorf("in %v the large request was admitted %d times and refused %d times, beside %v small ones; want 20 and 0", lasts, got[0], refused[0], small)
				}
				for i, c := range beside {
					if c != nil && small[i] < 100 && c.maxWait > 0 { // those that do not wait may find no slot free
						t.Errorf("the small requests of process %d were admitted %d times, beside %d large ones", i, small[i], got[0])
					}
				}
				t.Logf("large: %d; small: %v", got[0], small)
				closeLimiters(t, l, other)
			})
		})
	}
}

// In TestSlotsPassTheFirst, a caller waits for three of four slots while two are held for long. Callers for one pass it for half a second.
// After that, their rejection says that the free slots are kept.
func TestSlotsPassTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newMemory(t))
		slots(t, l, 4)
		held := acquire(t, l, ask(zlimit.Amounts{"slots": 2}))
		var wg sync.WaitGroup
		wg.Go(func() {
			lease, err := l.Wait(t.Context(), ask(zlimit.Amounts{"slots": 3}), zlimit.MaxWait(10*time.Second))
			if err != nil {
				t.Errorf("Wait() for three = %v", err)
				return
			}
			_ = lease.Commit(t.Context())
		})
		time.Sleep(100 * time.Millisecond)
		if err := acquire(t, l, oneSlot).Commit(t.Context()); err != nil { // which passes
			t.Errorf("Commit() = %v", err)
		}
		time.Sleep(600 * time.Millisecond)
		refused := reject(t, l, oneSlot)
		status, _ := refused.Statuses.Limit("slots")
		if status.Available != 2 || status.Kept != 3 || !status.Exceeded {
			t.Errorf("status = %+v, want 2 available and 3 kept", status)
		}
		want := "zlimit: rate limit exceeded: key-1/gpt-4 slots (requested 1, available 2 of 4, 3 kept for the first one who waits), retry after 1s"
		if refused.Error() != want {
			t.Errorf("Error() = %q, want %q", refused, want)
		}
		check.Error(t, "Commit()", held.Commit(t.Context()))
		wg.Wait()
		check.Error(t, "Commit()", acquire(t, l, oneSlot).Commit(t.Context()))
		closeLimiters(t, l)
	})
}
