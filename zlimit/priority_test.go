package zlimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestPriority, requests of two priorities ask for a stored limit with a floor for one of them. They ask for a quota of a parent, too, with
// another floor.
func TestPriority(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		limit := zlimit.PerMinute("rpm", 100).Floor("batch", 20)
		setLimits(t, l, zlimit.Level{Resource: "gpt-4"}, limit)
		got, err := l.Limits.Get(ctx, zlimit.Level{Resource: "gpt-4"})
		if err != nil || len(got.Limits) != 1 || got.Limits[0] != limit {
			t.Fatalf("stored are %+v, %v", got, err)
		}
		request := func(entity, priority string, rpm int64) zlimit.Request {
			return zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": rpm}, Priority: priority}
		}
		refused := func(r zlimit.Request, at zlimit.Status) {
			t.Helper()
			_, err := l.Acquire(ctx, r)
			var exceeded *zlimit.ExceededError
			if !errors.As(err, &exceeded) {
				t.Fatalf("%+v: %v, want a rejection", r, err)
			}
			v := exceeded.Violations()
			if len(v) != 1 || v[0].Entity != at.Entity || v[0].Available != at.Available || v[0].Kept != at.Kept || v[0].RetryAfter != at.RetryAfter {
				t.Fatalf("%+v: %+v, want %+v", r, v, at)
			}
			if text := ", 20 kept for other priorities)"; at.Kept == 20 && !strings.Contains(err.Error(), text) {
				t.Errorf("%q says nothing of %q", err, text)
			}
			if body, err := json.Marshal(v[0]); err != nil || at.Kept == 20 && !strings.Contains(string(body), `"kept":20`) {
				t.Errorf("%s, %v", body, err)
			}
		}
		acquire(t, l, request("key-1", "batch", 70))
		refused(request("key-1", "batch", 11), zlimit.Status{Entity: "key-1", Available: 30, Kept: 20, RetryAfter: 600 * time.Millisecond})
		refused(request("key-1", "batch", 81), zlimit.Status{Entity: "key-1", Available: 30, Kept: 20, RetryAfter: zlimit.Never})
		lease := acquire(t, l, request("key-1", "batch", 10))
		if err := lease.Consume(ctx, zlimit.Amounts{"rpm": 1}); !errors.As(err, new(*zlimit.ExceededError)) {
			t.Errorf("a lease consumes below its floor: %v", err)
		}
		c.sleep(600 * time.Millisecond)
		acquire(t, l, request("key-1", "batch", 1))
		acquire(t, l, request("key-1", "interactive", 15)) // of which no limit says anything
		acquire(t, l, request("key-1", "", 5))
		refused(request("key-1", "", 1), zlimit.Status{Entity: "key-1", Available: 0, RetryAfter: 600 * time.Millisecond})

		team := zlimit.Config{Limits: []zlimit.Limit{zlimit.Daily("rpm", 10, "UTC").Floor("batch", 50)}}
		create(t, l, zlimit.Entity{ID: "team"})
		create(t, l, zlimit.Entity{ID: "key-2", ParentID: "team", Cascade: true})
		check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{Entity: "team"}, team))
		acquire(t, l, request("key-2", "batch", 5))
		midnight := c.now().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(c.now())
		refused(request("key-2", "batch", 1), zlimit.Status{Entity: "team", Available: 5, Kept: 5, RetryAfter: midnight})
		acquire(t, l, request("key-2", "", 5))
	})
}

func TestBadPriority(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	r := ask(zlimit.Amounts{"rpm": 1})
	r.Priority = "no such name"
	if _, err := l.Acquire(t.Context(), r); invalid(err).Field != "priority" {
		t.Errorf("a priority with spaces: %v", err)
	}
	for _, limit := range []zlimit.Limit{
		zlimit.PerMinute("rpm", 1).Floor("", 20), zlimit.PerMinute("rpm", 1).Floor("batch", 0), zlimit.PerMinute("rpm", 1).Floor("batch", 100),
		zlimit.PerMinute("rpm", 1).Floor("batch", 20).Floor("batch", 30),
	} {
		err := l.Limits.Set(t.Context(), zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{limit}})
		if bad := invalid(err); !strings.HasSuffix(bad.Field, "[rpm] floors") || bad.Value != limit.Floors {
			t.Errorf("%q: %v", limit.Floors, err)
		}
	}
}

// In TestFloodOfLowPriority, requests of low priority ask for three times a limit of 1,000/s, beside 300/s of high priority. No high one is
// refused, and the low ones get the rest, also of a bucket of eight shards.
func TestFloodOfLowPriority(t *testing.T) {
	for _, splits := range []int{0, 3} {
		t.Run(strconv.Itoa(1<<splits), func(t *testing.T) {
			c := newClock()
			l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now))
			setSystem(t, l, zlimit.PerSecond("rpm", 1000).Floor("low", 20))
			low, high := ask(zlimit.Amounts{"rpm": 1}), ask(zlimit.Amounts{"rpm": 1})
			low.Priority, high.Priority = "low", "high"
			acquire(t, l, high)
			for range splits {
				split(t, l)
			}
			admitted, refused := 0, 0
			seconds := soak.Pick(3, 10)
			for at := range seconds * 1000 {
				for range 3 {
					if _, err := l.Acquire(t.Context(), low); err == nil {
						admitted++
					}
				}
				if at%10 < 3 {
					if _, err := l.Acquire(t.Context(), high); err != nil {
						refused++
					}
				}
				c.sleep(time.Millisecond)
			}
			if refused > 0 {
				t.Errorf("%d requests of high priority are refused", refused)
			}
			if want := 800 + seconds*700; admitted < want-20 || admitted > want+20 {
				t.Errorf("%d of low priority are admitted, want about %d", admitted, want)
			}
			if n := len(shardsOf(t, l)); n != 1<<splits {
				t.Errorf("%d shards, want %d", n, 1<<splits)
			}
		})
	}
}

// In TestLowPriorityWaits, callers of two priorities wait. Callers of low priority hold nothing while they wait, and callers of high
// priority are as late as if the others were not there.
func TestLowPriorityWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newMemory(t))
		limits := []zlimit.Limit{(zlimit.Limit{Name: "rpm", Capacity: 10, RefillAmount: 10, RefillPeriod: time.Second}).Floor("low", 50)}
		low, high := waitFor(2, limits), waitFor(1, limits)
		low.Priority = "low"
		start := time.Now()
		acquire(t, l, waitFor(10, limits))
		done := make(chan time.Duration, 3)
		for range 3 {
			go func() {
				if _, err := l.Wait(t.Context(), low, zlimit.MaxWait(time.Minute)); err != nil {
					t.Errorf("low priority: %v", err)
				}
				done <- time.Since(start)
			}()
		}
		synctest.Wait()
		if s := l.Stats(); s.Waiting != 3 {
			t.Errorf("%d wait, want 3", s.Waiting)
		}
		for i := range 10 {
			if _, err := l.Wait(t.Context(), high, zlimit.MaxWait(time.Minute)); err != nil || time.Since(start) != time.Duration(i+1)*100*time.Millisecond {
				t.Errorf("high priority waited until %v: %v", time.Since(start), err)
			}
		}
		first := <-done
		if first < 1700*time.Millisecond || first > 1900*time.Millisecond { // 2 beside 5
			t.Errorf("the first of low priority is served after %v", first)
		}
		for range 2 {
			<-done
		}
		if last := time.Since(start); last < 2100*time.Millisecond || last > 2500*time.Millisecond {
			t.Errorf("the last of low priority is served after %v", last)
		}
		if s := l.Stats(); s.Waiting != 0 || s.Admitted != 14 {
			t.Errorf("%d admitted, %d wait", s.Admitted, s.Waiting)
		}
		var exceeded *zlimit.ExceededError
		begun := time.Now()
		if _, err := l.Wait(t.Context(), low, zlimit.MaxWait(100*time.Millisecond)); !errors.As(err, &exceeded) || exceeded.RetryAfter() <= 100*time.Millisecond {
			t.Errorf("a wait that is too short: %v", err)
		}
		if _, err := l.Reserve(t.Context(), low, zlimit.MaxWait(time.Minute)); !errors.As(err, &exceeded) {
			t.Errorf("a reservation of low priority: %v", err)
		}
		if time.Since(begun) != 0 {
			t.Errorf("they fail after %v, want at once", time.Since(begun))
		}
	})
}
