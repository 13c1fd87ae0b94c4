package zlimit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// throttleAny is a throttle for which the store names no reason.
func throttleAny(context.Context, string, bool) error {
	time.Sleep(5 * time.Millisecond)
	return &store.Error{Op: "call", Unavailable: true, Throttled: true, Err: errors.New("slow down")}
}

// of makes a fault one of the items of an entity.
func of(entity string, fault func(context.Context, string, bool) error) *func(context.Context, string, bool) error {
	of := func(ctx context.Context, pk string, write bool) error {
		if !strings.Contains(pk, "BUCKET#"+entity+"#") {
			return nil
		}
		return fault(ctx, pk, write)
	}
	return &of
}

// In TestWaitsUnderThrottles, the store throttles each call of one bucket, and no other process writes it. Waiting requests that are charged to
// it follow the failure policy at the end of their time at the latest: they are not contended, and do not return the end of a context that
// is not theirs. The other buckets of the requests are answered.
func TestWaitsUnderThrottles(t *testing.T) {
	child := zlimit.Request{Entity: "child", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
	alone := zlimit.Request{Entity: "alone", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
	calls := map[string]func(ctx context.Context, l *zlimit.RateLimiter, longest time.Duration) (degraded bool, err error){
		"wait of a child": func(ctx context.Context, l *zlimit.RateLimiter, longest time.Duration) (bool, error) {
			lease, err := l.Wait(ctx, child, zlimit.MaxWait(longest))
			return err == nil && lease.Degraded(), err
		},
		"reserve": func(ctx context.Context, l *zlimit.RateLimiter, longest time.Duration) (bool, error) {
			_, err := l.Reserve(ctx, child, zlimit.MaxWait(longest))
			return err == nil, err
		},
		"several requests": func(ctx context.Context, l *zlimit.RateLimiter, longest time.Duration) (bool, error) {
			leases, err := l.AcquireAll(ctx, []zlimit.Request{alone, child}, zlimit.MaxWait(longest))
			return err == nil && leases.Of(0).Degraded() && leases.Of(1).Degraded(), err
		},
		"a wait for one bucket": func(ctx context.Context, l *zlimit.RateLimiter, longest time.Duration) (bool, error) {
			lease, err := l.Wait(ctx, zlimit.Request{Entity: "parent", Resource: "api", Consume: child.Consume}, zlimit.MaxWait(longest))
			return err == nil && lease.Degraded(), err
		},
	}
	for name, call := range calls {
		for reason, fault := range map[string]func(context.Context, string, bool) error{"of the key": throttleOf(store.OfKey), "unnamed": throttleAny} {
			for _, policy := range []zlimit.FailurePolicy{zlimit.PolicyAllow, zlimit.PolicyBlock} {
				t.Run(name+", "+reason+", "+policy.String(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						d := &distant{Store: store.Of(newMemory(t))}
						l := newLimiter(t, zlimit.StoreOn(d), zlimit.WithFailurePolicy(policy))
						setSystem(t, l, zlimit.PerDay("rpd", 10_000_000))
						create(t, l, zlimit.Entity{ID: "parent"})
						create(t, l, zlimit.Entity{ID: "child", ParentID: "parent", Cascade: true})
						for range 20 {
							acquire(t, l, child)
							acquire(t, l, alone)
						}
						d.fault.Store(of("parent", fault))
						for _, longest := range []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second} {
							var wg sync.WaitGroup
							for range 40 {
								wg.Go(func() {
									began := time.Now()
									degraded, err := call(context.Background(), l, longest)
									if over := time.Since(began) - longest; over > 30*time.Millisecond {
										t.Errorf("%v: returns %v later", longest, over)
									}
									if policy == zlimit.PolicyAllow {
										if err != nil || !degraded {
											t.Errorf("%v: degraded %t, %v, want to be admitted uncounted", longest, degraded, err)
										}
									} else if !errors.As(err, new(*zlimit.UnavailableError)) {
										t.Errorf("%v: %v, want an outage", longest, err)
									}
								})
								time.Sleep(7 * time.Millisecond)
							}
							wg.Wait()
						}
						d.fault.Store(nil)
						closeLimiters(t, l)
					})
				})
			}
		}
	}
}

// In TestWaitersWhenABucketGoesAway, the store throttles each call of the one bucket. Requests that wait for it by then are decided by the policy
// after a second, as later ones are at once. The few that are tried all the same are not.
func TestWaitersWhenABucketGoesAway(t *testing.T) {
	for _, longest := range []time.Duration{0, time.Minute} {
		t.Run(longest.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &distant{Store: store.Of(newMemory(t))}
				l := newLimiter(t, zlimit.StoreOn(d))
				setSystem(t, l, zlimit.PerDay("rpd", 10_000_000))
				acquire(t, l, zlimit.Request{Entity: "e", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}})
				d.fault.Store(of("e", throttleAny))
				began := time.Now()
				var wg sync.WaitGroup
				for range 40 { // all of them before the bucket counts as away
					wg.Go(func() {
						var err error
						if request := (zlimit.Request{Entity: "e", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}); longest > 0 {
							_, err = l.Wait(context.Background(), request, zlimit.MaxWait(longest))
						} else {
							_, err = l.Acquire(context.Background(), request)
						}
						if took := time.Since(began); took > 1100*time.Millisecond || !errors.As(err, new(*zlimit.UnavailableError)) {
							t.Errorf("%v after %v, want an outage within a second", err, took)
						}
					})
					time.Sleep(20 * time.Millisecond)
				}
				wg.Wait()
				d.fault.Store(nil)
				closeLimiters(t, l)
			})
		})
	}
}

// TestThrottlesWithoutCoalescing throttles reads and writes of a bucket. A limiter that shares no writes waits for nothing: the policy decides
// after the first throttle of each kind of call.
func TestThrottlesWithoutCoalescing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &distant{Store: store.Of(newMemory(t))}
		l := newLimiter(t, zlimit.StoreOn(d), zlimit.WithoutCoalescing())
		setSystem(t, l, zlimit.PerDay("rpd", 10_000_000))
		request := zlimit.Request{Entity: "e", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
		acquire(t, l, request)
		d.fault.Store(of("e", throttleAny))
		for range 20 {
			began := time.Now()
			_, err := l.Acquire(context.Background(), request)
			if took := time.Since(began); took > 30*time.Millisecond || !errors.As(err, new(*zlimit.UnavailableError)) {
				t.Errorf("Acquire() = %v after %v, want an outage after a few calls", err, took)
			}
			time.Sleep(30 * time.Millisecond)
		}
		d.fault.Store(nil)
		closeLimiters(t, l)
	})
}

// In TestSettlementsUnderAThrottle, the store throttles the calls of a bucket for longer than settling lasts, and answers each only after a
// while. A throttle proves that nothing was written. So no outcome is unknown, and each lease can be committed once the store serves the bucket.
func TestSettlementsUnderAThrottle(t *testing.T) {
	for reason, fault := range map[string]func(context.Context, string, bool) error{"of the key": throttleOf(store.OfKey), "unnamed": throttleAny} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &distant{Store: store.Of(newMemory(t))}
				l := newLimiter(t, zlimit.StoreOn(d))
				setSystem(t, l, zlimit.PerDay("rpd", 1000))
				leases := make([]*zlimit.Lease, 100)
				for i := range leases {
					leases[i] = acquire(t, l, zlimit.Request{Entity: "e", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}})
					check.Fatal(t, "Adjust()", leases[i].Adjust(zlimit.Amounts{"rpd": 2}))
				}
				d.fault.Store(of("e", func(ctx context.Context, pk string, write bool) error {
					time.Sleep(250 * time.Millisecond)
					return fault(ctx, pk, write)
				}))
				var wg sync.WaitGroup
				for _, lease := range leases {
					wg.Go(func() {
						began := time.Now()
						err := lease.Commit(context.Background())
						var unavailable *zlimit.UnavailableError
						if took := time.Since(began); !errors.As(err, &unavailable) || unavailable.Unknown || took > 5*time.Second {
							t.Errorf("Commit() = %v after %v, want an outage in which nothing was written, within 5s", err, took)
						}
					})
					time.Sleep(37 * time.Millisecond)
				}
				wg.Wait()
				d.fault.Store(nil)
				for _, lease := range leases {
					check.Error(t, "another Commit()", lease.Commit(context.Background()))
				}
				left, err := l.Available(t.Context(), zlimit.AvailableQuery{Entity: "e", Resource: "api"})
				if err != nil || left[0].Available < 700 || left[0].Available > 701 {
					t.Errorf("Available() = %v, %v, want 700: 2 more for each of 100 leases", left, err)
				}
				closeLimiters(t, l)
			})
		})
	}
}

// In TestWaitsDoNotAwaitRefunds, a child falls short after its parent was charged, and the parent's refund takes long. No caller waits for it:
// neither one whose time is over, nor one that gives up.
func TestWaitsDoNotAwaitRefunds(t *testing.T) {
	for _, gives := range []string{"time over", "cancel"} {
		t.Run(gives, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &distant{Store: store.Of(newMemory(t))}
				l, other := newLimiter(t, zlimit.StoreOn(d)), newLimiter(t, zlimit.StoreOn(d))
				create(t, l, zlimit.Entity{ID: "parent"})
				create(t, l, zlimit.Entity{ID: "child", ParentID: "parent", Cascade: true})
				setLimits(t, l, zlimit.Level{Entity: "parent"}, zlimit.PerDay("rpd", 1_000_000))
				setLimits(t, l, zlimit.Level{Entity: "child"}, zlimit.PerDay("rpd", 100))
				child := zlimit.Request{Entity: "child", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
				for range 30 {
					acquire(t, l, child)
				}
				child.Consume = zlimit.Amounts{"rpd": 70}
				acquire(t, other, child)
				var writes atomic.Int32
				d.fault.Store(of("parent", func(_ context.Context, _ string, write bool) error {
					if write {
						if writes.Add(1) > 1 { // the refund
							time.Sleep(1500 * time.Millisecond)
						}
					}
					return nil
				}))
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				longest := 200 * time.Millisecond
				if gives == "cancel" {
					longest = time.Minute
					time.AfterFunc(200*time.Millisecond, cancel)
				}
				began := time.Now()
				_, err := l.Wait(ctx, child, zlimit.MaxWait(longest))
				if took := time.Since(began); err == nil || took > 240*time.Millisecond {
					t.Errorf("Wait() = %v after %v, want an error after 200ms", err, took)
				}
				if writes.Load() < 2 {
					t.Error("the parent is not given back its tokens")
				}
				closeLimiters(t, l, other)
				d.fault.Store(nil)
				last := newLimiter(t, zlimit.StoreOn(d))
				left, err := last.Available(t.Context(), zlimit.AvailableQuery{Entity: "parent", Resource: "api"})
				if err != nil || left[0].Available < 999_900 {
					t.Errorf("Available() = %v, %v, want 999,900: the refund is written all the same", left, err)
				}
				closeLimiters(t, last)
			})
		})
	}
}

// TestCloseUnderAThrottle closes a limiter while the store throttles the key of a bucket, and requests of all kinds wait for it. Its
// settlements are retried for their time, and Close waits for ten seconds at most.
func TestCloseUnderAThrottle(t *testing.T) {
	for _, slow := range []time.Duration{200 * time.Millisecond, 1900 * time.Millisecond} {
		t.Run(slow.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &distant{Store: store.Of(newMemory(t))}
				l := newLimiter(t, zlimit.StoreOn(d))
				setSystem(t, l, zlimit.PerSecond("rpd", 10, zlimit.Burst(100)), zlimit.Slots("slots", 5, zlimit.Term(6*time.Second)))
				request := func(entity string, limit string, n int64) zlimit.Request {
					return zlimit.Request{Entity: entity, Resource: "api", Consume: zlimit.Amounts{limit: n}}
				}
				acquire(t, l, request("e", "rpd", 100))
				acquire(t, l, request("e", "slots", 2))
				var wg sync.WaitGroup
				for range 10 {
					wg.Go(func() { _, _ = l.Wait(context.Background(), request("e", "rpd", 10), zlimit.MaxWait(time.Minute)) })
				}
				time.Sleep(500 * time.Millisecond)
				throttle := throttleOf(store.OfKey)
				d.fault.Store(of("e", func(ctx context.Context, pk string, write bool) error {
					select {
					case <-time.After(slow):
						return throttle(ctx, pk, write)
					case <-ctx.Done():
						return ctx.Err()
					}
				}))
				for range 10 {
					wg.Go(func() { _, _ = l.Wait(context.Background(), request("e", "rpd", 10), zlimit.MaxWait(time.Minute)) })
					wg.Go(func() { _, _ = l.Acquire(context.Background(), request("e", "rpd", 1)) })
					wg.Go(func() {
						_, _ = l.AcquireAll(context.Background(), []zlimit.Request{request("e", "rpd", 10), request("w", "rpd", 1)}, zlimit.MaxWait(time.Minute))
					})
					wg.Go(func() { _, _ = l.Wait(context.Background(), request("e", "slots", 5), zlimit.MaxWait(time.Minute)) })
					time.Sleep(20 * time.Millisecond)
				}
				time.Sleep(3 * time.Second)
				began := time.Now()
				closeLimiters(t, l)
				closed := time.Since(began)
				wg.Wait()
				if all := time.Since(began); closed > 10*time.Second || all > 11*time.Second {
					t.Errorf("Close() takes %v, and requests return after %v", closed, all)
				}
			})
		})
	}
}
