package zlimit_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestOtherLevelsKeepNoSlots, a caller waits for a slot whose parent lacks something else: the rest of a quota, or a slot of its own. It
// gets the slot once, gives it back, and waits for the other level. Meanwhile it keeps no slots from the callers behind it, and costs no
// writes.
func TestOtherLevelsKeepNoSlots(t *testing.T) {
	for _, test := range []struct {
		name    string
		limit   zlimit.Limit
		maxWait time.Duration
	}{
		{"a quota", zlimit.Daily("of-org", 1, "Etc/GMT+1"), 2 * time.Hour},
		{"slots", zlimit.Slots("of-org", 1), time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := hook(newMemory(t))
				s.late = 2 * time.Millisecond
				l := newLimiter(t, zlimit.StoreOn(s))
				for _, e := range []zlimit.Entity{{ID: "org"}, {ID: "key-1", ParentID: "org", Cascade: true}} {
					create(t, l, e)
				}
				for entity, limit := range map[string]zlimit.Limit{"key-1": zlimit.Slots("slots", 1), "org": test.limit} {
					setLimits(t, l, zlimit.Level{Entity: entity, Resource: "gpt-4"}, limit)
				}
				const lasts = 20 * time.Second
				used := acquire(t, l, ask(zlimit.Amounts{"of-org": 1})) // the quota, or the only slot
				held := acquire(t, l, ask(zlimit.Amounts{"slots": 1}))
				var wg sync.WaitGroup
				defer wg.Wait()
				wg.Go(func() {
					lease, err := l.Wait(t.Context(), ask(zlimit.Amounts{"slots": 1, "of-org": 1}), zlimit.MaxWait(test.maxWait))
					if err != nil {
						t.Errorf("the caller that waits for both: %v", err)
						return
					}
					check.Error(t, "Commit()", lease.Commit(t.Context()))
				})
				time.Sleep(time.Second) // it is the first one of its line, and has been for long
				s.writes.Store(0)
				check.Error(t, "Commit()", held.Commit(t.Context()))
				work := shift{callers: 3, slots: 1, hold: 50 * time.Millisecond, maxWait: 10 * time.Second}
				admitted, refused, err := work.work(t.Context(), l, lasts, new(atomic.Int64), 1)
				if ideal := int64(lasts / (work.hold + 2*time.Millisecond)); admitted < ideal*9/10 || refused > 0 || err != nil {
					t.Errorf("those behind it were admitted %d times and rejected %d times, want nearly %d and 0: %v", admitted, refused, ideal, err)
				}
				if writes := s.writes.Load(); writes > admitted*11/10 {
					t.Errorf("%d writes for %d admissions, want about as many", writes, admitted)
				}
				if test.limit.Term > 0 {
					check.Error(t, "Commit()", used.Commit(t.Context()))
				}
				wg.Wait()
				closeLimiters(t, l)
			})
		})
	}
}

// In TestTwoLevelsOfSlots, two entities have slots of their own below a parent with fewer than both have. Callers need a slot of each
// level. In one process and in two, nearly all slots are at work, and both entities have their part.
func TestTwoLevelsOfSlots(t *testing.T) {
	for processes := range 2 {
		synctest.Test(t, func(t *testing.T) {
			const lasts = 20 * time.Second
			s := hook(newMemory(t))
			s.late = 2 * time.Millisecond
			limiters := []*zlimit.RateLimiter{newLimiter(t, zlimit.StoreOn(s))}
			for range processes {
				limiters = append(limiters, newLimiter(t, zlimit.StoreOn(s)))
			}
			parents := []zlimit.Entity{{ID: "org"}, {ID: "key-1", ParentID: "org", Cascade: true}, {ID: "key-2", ParentID: "org", Cascade: true}}
			for i, e := range parents {
				create(t, limiters[0], e)
				limits := []zlimit.Limit{zlimit.Slots("slots", []int64{3, 2, 2}[i])}
				setLimits(t, limiters[0], zlimit.Level{Entity: e.ID, Resource: "gpt-4"}, limits...)
			}
			work := shift{callers: 5, slots: 1, hold: 50 * time.Millisecond, maxWait: 10 * time.Second}
			var admitted [2]atomic.Int64
			var atWork [2]atomic.Int64
			var wg sync.WaitGroup
			s.writes.Store(0)
			for _, l := range limiters {
				for i := range admitted {
					wg.Go(func() {
						work := work
						work.entity = parents[1+i].ID
						n, refused, err := work.work(t.Context(), l, lasts, &atWork[i], 2)
						if admitted[i].Add(n); refused > 0 || err != nil {
							t.Errorf("%d callers of %s were rejected: %v", refused, work.entity, err)
						}
					})
				}
			}
			wg.Wait()
			total := admitted[0].Load() + admitted[1].Load()
			if ideal := 3 * int64(lasts/(work.hold+4*time.Millisecond)); total < ideal*9/10 {
				t.Errorf("%d admissions of %d processes, want nearly %d", total, len(limiters), ideal)
			}
			for i := range admitted {
				if n := admitted[i].Load(); n < total*4/10 {
					t.Errorf("%s was admitted %d times of %d, want half of them", parents[1+i].ID, n, total)
				}
			}
			if each := float64(s.writes.Load()) / float64(total); each > 5 {
				t.Errorf("%d processes make %.1f writes an admission, want at most 5 for two levels", len(limiters), each)
			}
			closeLimiters(t, limiters...)
		})
	}
}
