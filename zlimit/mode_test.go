package zlimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestSoftLimit takes of a soft limit beyond its tokens. It is in debt, which refill pays, and refuses nothing, while a hard limit beside
// it does.
func TestSoftLimit(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx, c := context.Background(), newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerMinute("tpm", 600).Soft(), zlimit.PerMinute("rpm", 4))
		for i, by := range []*zlimit.RateLimiter{l, other, l} {
			lease := acquire(t, by, ask(zlimit.Amounts{"tpm": 400, "rpm": 1}))
			if s, ok := lease.Statuses().Limit("tpm"); !ok || s.Available != int64(600-400*(i+1)) || s.Exceeded || s.Foreseen || s.Limit.Mode != zlimit.ModeSoft {
				t.Errorf("the status is %+v", s)
			}
		}
		if s := status(t, l, "tpm"); s.Available != -600 || s.Queue != 0 || s.RetryAfter != 0 || !s.Possible() {
			t.Errorf("Available() = %+v", s)
		}
		// No one waits for it, also not for more than it can hold.
		lease := check.Call(l.Wait(ctx, ask(zlimit.Amounts{"tpm": 1000, "rpm": 1}), zlimit.MaxWait(time.Second))).Must(t, "Wait()")
		check.Fatal(t, "Rollback()", lease.Rollback(ctx))
		if wait, err := l.TimeUntil(ctx, ask(zlimit.Amounts{"tpm": 10_000})); wait != 0 || err != nil {
			t.Errorf("TimeUntil() = %v, %v", wait, err)
		}
		acquire(t, l, ask(zlimit.Amounts{"tpm": 1, "rpm": 1}))
		if e := reject(t, other, ask(zlimit.Amounts{"tpm": 1, "rpm": 1})); e.Statuses[0].Limit.Name != "rpm" {
			t.Errorf("Acquire() = %v, want rpm to refuse it", e)
		}
		c.sleep(2 * time.Minute)
		if s := status(t, l, "tpm"); s.Available != 599 {
			t.Errorf("Available() = %+v after two minutes", s)
		}
	})
}

// TestSoftBeyondStamp spends of a soft limit when the stamp in the item is over: the write renews it.
func TestSoftBeyondStamp(t *testing.T) {
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerMinute("tpm", 600).Soft())
	for range 5 {
		acquire(t, l, ask(zlimit.Amounts{"tpm": 5000}))
		state := check.Call(layout.ReadState(item(t, l))).Must(t, "layout.ReadState()")
		if until := state.Limits[0].SoftUntil() - c.now().UnixMilli(); until <= 0 || until > time.Minute.Milliseconds() {
			t.Errorf("the item takes the limit for soft for %d ms", until)
		}
		c.sleep(70 * time.Second)
	}
}

// TestHardened makes a soft limit refuse requests again. A process with the former config in memory uses it until it expires at most. It
// stops once another process has written the bucket.
func TestHardened(t *testing.T) {
	c := newClock()
	for _, mode := range []func(zlimit.Limit) zlimit.Limit{zlimit.Limit.Soft, zlimit.Limit.Shadow} {
		s := newMemory(t)
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, mode(zlimit.PerMinute("rpm", 10)))
		acquire(t, other, ask(zlimit.Amounts{"rpm": 10}))
		acquire(t, other, ask(zlimit.Amounts{"rpm": 10}))
		setSystem(t, l, zlimit.PerMinute("rpm", 10))
		reject(t, l, ask(zlimit.Amounts{"rpm": 1}))
		reject(t, other, ask(zlimit.Amounts{"rpm": 1}))
		state, err := layout.ReadState(item(t, l))
		if err != nil || state.Limits[0].SoftUntil() != 0 || state.Limits[0].Shade() != 0 || state.Limits[0].Refusals() != 0 {
			t.Errorf("the item is %+v, %v", state.Limits[0].Rare, err)
		}
	}
}

// TestShadowForetells sends the same requests to a shadow limit and to one that refuses. The shadow limit foretells each refusal, counts all of
// them, and admits all requests.
func TestShadowForetells(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx, c := context.Background(), newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		judge := newLimiter(t, newMemory(t), zlimit.WithClock(c.now))
		limit := zlimit.PerMinute("tpm", 600).Floor("batch", 20)
		setSystem(t, l, limit.Shadow(), zlimit.PerHour("rph", 100_000))
		setSystem(t, judge, limit, zlimit.PerHour("rph", 100_000))
		r := rand.New(rand.NewPCG(1, 2))
		refused := int64(0)
		for i := range 300 {
			c.sleep(time.Duration(r.IntN(6000)) * time.Millisecond)
			asked := ask(zlimit.Amounts{"tpm": int64(1 + r.IntN(150)), "rph": 1})
			if r.IntN(3) == 0 {
				asked.Priority = "batch"
			}
			want, err := judge.Acquire(ctx, asked)
			lease := acquire(t, l, asked)
			decided, _ := lease.Statuses().Limit("tpm")
			if err != nil {
				refused++
			}
			if decided.Foreseen != (err != nil) || decided.Refusals != refused || decided.Exceeded {
				t.Fatalf("request %d: the status is %+v, and the limit that refuses says %v; %d refusals", i, decided, err, refused)
			}
			used := lease.Consumed()["tpm"]
			switch r.IntN(4) { // a correction goes where the request went
			case 0:
				more := int64(r.IntN(100)) - 50
				check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{"tpm": max(more, -used)}))
				if want != nil {
					_ = want.Adjust(zlimit.Amounts{"tpm": max(more, -used)})
				}
			case 1:
				check.Fatal(t, "Rollback()", lease.Rollback(ctx))
				if want != nil {
					_ = want.Rollback(ctx)
				}
			}
			if want != nil {
				_ = want.Commit(ctx)
			}
			_ = lease.Commit(ctx)
			is, should := status(t, l, "tpm"), status(t, judge, "tpm")
			if is.Available != should.Available {
				t.Fatalf("request %d: %d are available, and %d of the limit that refuses", i, is.Available, should.Available)
			}
		}
		if refused < 30 || refused > 270 {
			t.Errorf("%d of 300 were refused", refused)
		}
		if got := l.Stats(); got.Foreseen != uint64(refused) || got.Rejected != 0 {
			t.Errorf("Stats() = %+v, want %d foreseen", got, refused)
		}
	})
}

// TestShadowsApart covers two shadow limits, each of which foretells by itself, and a hard one that still refuses.
func TestShadowsApart(t *testing.T) {
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerMinute("a", 10).Shadow(), zlimit.PerMinute("b", 20).Shadow(), zlimit.PerMinute("c", 30))
	for i, want := range []string{"", "a", "a b"} {
		lease := acquire(t, l, ask(zlimit.Amounts{"a": 10, "b": 10, "c": 10}))
		var foreseen []string
		for _, s := range lease.Statuses() {
			if s.Foreseen {
				foreseen = append(foreseen, s.Limit.Name)
			}
		}
		if got := strings.Join(foreseen, " "); got != want {
			t.Errorf("request %d: %s foreseen, want %s", i, got, want)
		}
	}
	for _, s := range reject(t, l, ask(zlimit.Amounts{"a": 10, "b": 10, "c": 10})).Statuses {
		if s.Exceeded != (s.Limit.Name == "c") || s.Foreseen == s.Exceeded || s.Limit.Name != "c" && s.RetryAfter != 0 {
			t.Errorf("the status is %+v", s)
		}
	}
	if s := status(t, l, "a"); s.Refusals != 2 {
		t.Errorf("a would have refused %d, want 2: what is refused anyway does not count", s.Refusals)
	}
}

// In TestShadowOfAll, callers of several processes take at the same time of a bucket that is divided, of one that is not, and of a
// parent's. What a shadow limit foretells is consistent: it admits no more than a limit that refuses would, and not less while there was
// room.
func TestShadowOfAll(t *testing.T) {
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, s := context.Background(), newMemory(t)
				var processes []*zlimit.RateLimiter
				for range 3 {
					processes = append(processes, newLimiter(t, s))
				}
				setSystem(t, processes[0], zlimit.PerDay("rpm", 100_000).Shadow())
				create(t, processes[0], zlimit.Entity{ID: "team"})
				create(t, processes[0], zlimit.Entity{ID: "key-1", ParentID: "team", Cascade: true})
				check.Fatal(t, "Rollback()", acquire(t, processes[0], ask(zlimit.Amounts{"rpm": 1000})).Rollback(ctx))
				for range shards / 2 {
					splitBucket(t, processes[0], "key-1")
					splitBucket(t, processes[0], "team")
				}
				var group sync.WaitGroup
				var foreseen [2]atomic.Int64
				for i := range 60 {
					group.Go(func() {
						for range 5 {
							lease, err := processes[i%3].Acquire(ctx, ask(zlimit.Amounts{"rpm": 1000}))
							if err != nil {
								t.Errorf("Acquire() = %v", err)
								return
							}
							for _, s := range lease.Statuses() {
								if s.Foreseen {
									foreseen[s.Ancestor].Add(1)
								}
							}
							check.Error(t, "Commit()", lease.Commit(ctx))
						}
					})
				}
				group.Wait()
				for i := range foreseen {
					if got := foreseen[i].Load(); got != 200 {
						t.Errorf("level %d: %d of 300 requests foreseen as refused, want 200", i, got)
					}
				}
				all, err := processes[1].Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4", Parents: true})
				for _, s := range all {
					if err != nil || s.Refusals != 200 || s.Available != 0 {
						t.Errorf("%+v, %v, want 200 refusals and nothing left", s, err)
					}
				}
			})
		})
	}
}

// In TestBypass, requests of an entity, a resource or a pair are only counted. All processes follow the bypass immediately, and the limits
// again when it ends. A lease from the bypass takes nothing of a balance, even if it is settled later.
func TestBypass(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		for _, at := range []zlimit.Level{{Entity: "key-1"}, {Resource: "gpt-4"}, {Entity: "key-1", Resource: "gpt-4"}} {
			ctx, c := context.Background(), newClock()
			l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
			setSystem(t, l, zlimit.PerMinute("rpm", 10))
			acquire(t, other, ask(zlimit.Amounts{"rpm": 4}))
			if report, err := l.Limits.Bypass(ctx, at, nil); err != nil || report.Buckets != 1 {
				t.Fatalf("Bypass(%v) = %+v, %v", at, report, err)
			}
			var leases []*zlimit.Lease
			for i := range 8 {
				by := []*zlimit.RateLimiter{l, other}[i%2]
				leases = append(leases, acquire(t, by, ask(zlimit.Amounts{"rpm": 50})))
				c.sleep(20 * time.Second)
			}
			if found, err := l.Limits.Resolve(ctx, "key-1", "gpt-4"); err != nil || found.BypassedBy != at.Source() {
				t.Errorf("Resolve() = %+v, %v", found, err)
			}
			if s := status(t, other, "rpm"); s.Available != 10 {
				t.Errorf("Available() = %+v", s)
			}
			check.Fatal(t, "Rollback()", leases[0].Rollback(ctx))
			check.Fatal(t, "Adjust()", leases[1].Adjust(zlimit.Amounts{"rpm": 30}))
			if _, err := l.Limits.LeaveSwitch(ctx, at, nil); err != nil {
				t.Fatalf("Limits.LeaveSwitch() = %v", err)
			}
			acquire(t, other, ask(zlimit.Amounts{"rpm": 10}))
			reject(t, other, ask(zlimit.Amounts{"rpm": 1}))
			check.Fatal(t, "Commit()", leases[1].Commit(ctx))
			check.Fatal(t, "Rollback()", leases[2].Rollback(ctx))
			state, err := layout.ReadState(item(t, l))
			if err != nil || state.Bypass() != 0 || state.Limits[0].Consumed != (4+6*50+80-50+10)*1000 || state.Limits[0].Tokens != 0 {
				t.Errorf("the item is %+v, %v", state, err)
			}
			write(t, l, store.Write{Kind: store.Delete, Key: keyOfBucket(l)})
		}
	})
}
