package zlimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestThrottledBucket, each call of the one busy bucket of a program is throttled. The failure policy decides within a second, or within ten if
// the store says that the key is used too often. From then on requests wait for nothing and make few calls. Another bucket is not concerned,
// and requests are counted again once the store answers.
func TestThrottledBucket(t *testing.T) {
	unnamed := func(context.Context, string, bool) error {
		time.Sleep(5 * time.Millisecond)
		return &store.Error{Op: "call", Unavailable: true, Throttled: true, Err: errors.New("slow down")}
	}
	for _, test := range []struct {
		name   string
		fault  func(context.Context, string, bool) error
		policy zlimit.FailurePolicy
		rate   int
		first  time.Duration // longest wait
		after  time.Duration // from then on there is none
	}{
		{"seldom", unnamed, zlimit.PolicyAllow, 5, 1250 * time.Millisecond, 1250 * time.Millisecond},
		{"often", unnamed, zlimit.PolicyAllow, 400, 1250 * time.Millisecond, 1250 * time.Millisecond},
		{"of the key", throttleOf(store.OfKey), zlimit.PolicyAllow, 50, 10250 * time.Millisecond, 10250 * time.Millisecond},
		{"of the table", throttleOf(store.OfTable), zlimit.PolicyAllow, 50, 10 * time.Millisecond, 10 * time.Millisecond},
		{"blocked", unnamed, zlimit.PolicyBlock, 50, time.Minute, 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &distant{Store: store.Of(newMemory(t))}
				l := newLimiter(t, zlimit.StoreOn(d), zlimit.WithFailurePolicy(test.policy))
				setSystem(t, l, zlimit.PerDay("rpd", 10_000_000))
				other := zlimit.Request{Entity: "other", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
				acquire(t, l, other)
				warm := &load{limiter: l, began: time.Now(), rate: test.rate, names: 1}
				warm.run(3 * time.Second)
				warm.all.Wait()
				busy := layout.BucketKey{NS: l.NS(), Entity: "e0", Resource: "api"}.Key().PK
				busy = strings.TrimRight(busy, "0") // of all shards
				fault := func(ctx context.Context, pk string, write bool) error {
					if !strings.Contains(pk, busy) {
						return nil
					}
					return test.fault(ctx, pk, write)
				}
				d.fault.Store(&fault)
				run := &load{limiter: l, began: time.Now(), rate: test.rate, names: 1}
				go run.run(20 * time.Second)
				time.Sleep(15 * time.Second)
				calls := d.calls.Load()
				if lease := acquire(t, l, other); lease.Degraded() {
					t.Error("a request of another bucket is not counted")
				}
				time.Sleep(5 * time.Second)
				calls = d.calls.Load() - calls
				run.all.Wait()
				late, longest := 0, time.Duration(0)
				for _, e := range run.done {
					if e.counted || (e.err != nil) != (test.policy == zlimit.PolicyBlock) {
						t.Fatalf("after %v: counted %t, %v", e.at, e.counted, e.err)
					}
					if longest = max(longest, e.took); e.took > test.first {
						t.Fatalf("a request waits %v, want at most %v", e.took, test.first)
					}
					if e.at > test.after && e.took > 10*time.Millisecond {
						late++
					}
				}
				if test.name == "of the key" && longest < 9*time.Second { // thousands of processes may share it
					t.Errorf("the policy decides after %v", longest)
				}
				if most := len(run.done) / 5; test.policy == zlimit.PolicyAllow && late > 0 || late > most {
					t.Errorf("%d of %d requests wait later than %v after the first", late, len(run.done), test.after)
				}
				if test.first > 10*time.Millisecond && calls > 40 {
					t.Errorf("%d calls in five seconds, want few", calls)
				}
				d.fault.Store(nil)
				time.Sleep(3100 * time.Millisecond) // a request that is tried may still wait for the pace
				before := l.Stats().Degraded
				again := &load{limiter: l, began: time.Now(), rate: 10, names: 1}
				again.run(1200 * time.Millisecond) // which ends before a pause would end the stall
				again.all.Wait()
				counted := 0
				for _, e := range again.done[len(again.done)/2:] {
					if e.counted {
						counted++
					}
				}
				if want := len(again.done) - len(again.done)/2; counted < want {
					t.Errorf("%d of the last %d requests are counted after the outage (%d degraded)", counted, want, l.Stats().Degraded-before)
				}
				closeLimiters(t, l)
			})
		})
	}
}

// TestThrottledBucketRejects throttles each call of a bucket that is used up. What is known to be rejected still is. When the store answers
// again, and another process has reset the bucket, a request is admitted within seconds, also the first one after a pause.
func TestThrottledBucketRejects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := newMemory(t)
		d := &distant{Store: store.Of(memory)}
		l := newLimiter(t, zlimit.StoreOn(d), zlimit.WithFailurePolicy(zlimit.PolicyAllow))
		setSystem(t, l, zlimit.PerDay("rpd", 40))
		run := &load{limiter: l, began: time.Now(), rate: 50, names: 1}
		run.run(3 * time.Second)
		run.all.Wait()
		fault := func(context.Context, string, bool) error {
			time.Sleep(5 * time.Millisecond)
			return &store.Error{Op: "call", Unavailable: true, Throttled: true, Err: errors.New("slow down")}
		}
		d.fault.Store(&fault)
		run.done = nil
		run.run(10 * time.Second)
		run.all.Wait()
		for _, e := range run.done {
			if !errors.As(e.err, new(*zlimit.ExceededError)) || e.took > 10*time.Millisecond {
				t.Fatalf("Acquire() = %v after %v, want a rejection from memory", e.err, e.took)
			}
		}
		operator := newLimiter(t, zlimit.StoreOn(store.Of(memory)))
		request := zlimit.Request{Entity: "e0", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
		reset := func() {
			if _, err := operator.Limits.Reset(t.Context(), zlimit.ResetRequest{Entity: "e0", Resource: "api"}); err != nil {
				t.Fatalf("Reset() = %v", err)
			}
		}
		for calls := d.calls.Load(); d.calls.Load() == calls; time.Sleep(20 * time.Millisecond) { // up to a throttle
			if _, err := l.Acquire(t.Context(), request); err == nil {
				t.Fatal("a request of a used-up bucket is admitted")
			}
		}
		d.fault.Store(nil)
		reset()
		ended, err := time.Now(), errors.New("none yet")
		for ; err != nil && time.Since(ended) < time.Minute; time.Sleep(20 * time.Millisecond) {
			_, err = l.Acquire(t.Context(), request)
		}
		if took := time.Since(ended); took > 3600*time.Millisecond { // half a second, and the longest pause of looks
			t.Errorf("requests are admitted again %v after the throttles", took)
		}

		acquire(t, l, zlimit.Request{Entity: "e0", Resource: "api", Consume: zlimit.Amounts{"rpd": 39}})
		d.fault.Store(&fault)
		for range 2 {
			if _, err := l.Acquire(t.Context(), request); err == nil {
				t.Error("a request of a used-up bucket is admitted")
			}
			time.Sleep(1500 * time.Millisecond)
		}
		d.fault.Store(nil)
		time.Sleep(6 * time.Second)
		reset()
		if lease := acquire(t, l, request); lease.Degraded() {
			t.Error("the first request after a pause is not counted")
		}
		closeLimiters(t, l, operator)
	})
}
