package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A lateStore answers each call after a time. It may answer some writes with an error instead.
type lateStore struct {
	store.Store
	late   time.Duration
	writes atomic.Int64
	fails  func(write int64) error // nil for no errors
}

func (s *lateStore) Partitioned() bool { return true }

func (s *lateStore) wait(ctx context.Context) error {
	select {
	case <-time.After(s.late):
		return nil
	case <-ctx.Done():
		return &store.Error{Op: "call", Unavailable: true, Unknown: true, Err: ctx.Err()}
	}
}

func (s *lateStore) Read(ctx context.Context, keys []store.Key, consistent bool) (items []expr.Item, err error) {
	if err := s.wait(ctx); err != nil {
		return nil, ctx.Err()
	}
	return s.Store.Read(ctx, keys, consistent)
}

func (s *lateStore) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if n := s.writes.Add(1); s.fails != nil {
		if err := s.fails(n); err != nil {
			time.Sleep(s.late)
			return store.Result{}, err
		}
	}
	if err := s.wait(ctx); err != nil {
		return store.Result{}, err
	}
	return s.Store.Write(ctx, w)
}

// In TestMaxWaitBoundsTheCall, processes wait for an exhausted limit, on a store that answers late. Lost races, reads and throttles count:
// no call takes longer than MaxWait and a few round trips. A call that loses all of its races is contended, and meets no outage.
func TestMaxWaitBoundsTheCall(t *testing.T) {
	const maxWait = 500 * time.Millisecond
	throttle := func(write int64) error { // of the key, now and then
		if write%3 != 0 {
			return nil
		}
		return &store.Error{Op: "write", Unavailable: true, Throttled: true, Throttles: []store.Throttle{{Limit: store.OfKey, Write: true}}, Err: errors.New("throttled")}
	}
	kinds := []struct {
		name   string
		limits []zlimit.Limit
		fails  func(int64) error
		hold   time.Duration
	}{
		{"tokens", []zlimit.Limit{zlimit.PerSecond("rpm", 50, zlimit.Burst(10))}, nil, 0},
		{"throttled tokens", []zlimit.Limit{zlimit.PerSecond("rpm", 50, zlimit.Burst(10))}, throttle, 0},
		{"two limits", []zlimit.Limit{zlimit.PerSecond("rpm", 50, zlimit.Burst(10)), zlimit.PerMinute("roomy", 6_000_000)}, nil, 0},
		{"quota", []zlimit.Limit{zlimit.Daily("rpm", 20, "UTC")}, nil, 0},
		{"floor", []zlimit.Limit{zlimit.PerSecond("rpm", 50, zlimit.Burst(10)).Floor("batch", 20)}, nil, 0},
		{"slots", []zlimit.Limit{zlimit.Slots("rpm", 3)}, nil, 100 * time.Millisecond},
		{"throttled slots", []zlimit.Limit{zlimit.Slots("rpm", 3)}, throttle, 100 * time.Millisecond},
	}
	var contended atomic.Int64
	for _, kind := range kinds {
		for _, late := range soak.Pick([]time.Duration{1, 20, 100}, []time.Duration{1, 5, 20, 60, 100}) {
			for _, processes := range soak.Pick([]int{2, 10}, []int{1, 2, 4, 10, 20}) {
				late := late * time.Millisecond
				t.Run(fmt.Sprintf("%s, %v, %d processes", kind.name, late, processes), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						time.Sleep(24*time.Hour - 2*time.Second) // before the quota resets
						s := &lateStore{Store: store.Of(newMemory(t)), late: late}
						limiters := make([]*zlimit.RateLimiter, processes)
						for i := range limiters {
							limiters[i] = newLimiter(t, zlimit.StoreOn(s))
						}
						setSystem(t, limiters[0], kind.limits...)
						s.fails = kind.fails
						var longest, admitted, refused, other atomic.Int64
						var last atomic.Pointer[error]
						var wg sync.WaitGroup
						amounts := zlimit.Amounts{}
						for _, l := range kind.limits {
							amounts[l.Name] = 1
						}
						request := ask(amounts)
						request.Priority = "batch"
						for range 400 / processes { // fifty a second
							for _, l := range limiters {
								wg.Go(func() {
									began := time.Now()
									lease, err := l.Wait(t.Context(), request, zlimit.MaxWait(maxWait))
									took := int64(time.Since(began))
									for at := longest.Load(); took > at && !longest.CompareAndSwap(at, took); at = longest.Load() {
									}
									switch {
									case err == nil:
										admitted.Add(1)
										time.Sleep(kind.hold)
										_ = lease.Commit(t.Context())
									case errors.As(err, new(*zlimit.ExceededError)):
										refused.Add(1)
									default:
										if errors.Is(err, zlimit.ErrContended) {
											contended.Add(1)
										} else if kind.fails == nil {
											t.Errorf("Wait() = %v, want tokens, a rejection, or ErrContended", err)
										}
										other.Add(1)
										last.Store(&err)
									}
								})
								time.Sleep(20 * time.Millisecond)
							}
						}
						wg.Wait()
						closeLimiters(t, limiters...)
						t.Logf("longest %v; %d admitted, %d refused, %d others; %d writes", time.Duration(longest.Load()), admitted.Load(), refused.Load(), other.Load(), s.writes.Load())
						if e := last.Load(); e != nil {
							t.Logf("%v", *e)
						}
						trips := time.Duration(5)
						if kind.fails != nil { // a throttled write is repeated after a pause, and so takes longer than most
							trips = 10
						}
						if most := maxWait + trips*late + 25*time.Millisecond; time.Duration(longest.Load()) > most {
							t.Errorf("a call took %v, want at most %v", time.Duration(longest.Load()), most)
						}
					})
				})
			}
		}
	}
	if contended.Load() == 0 {
		t.Error("no call lost all of its races")
	}
}

// In TestLostRepliesOfWaits, some writes are never answered, on a store that answers the others soon. A caller whose context lasts gets no error
// of a context: the failure policy decides.
func TestLostRepliesOfWaits(t *testing.T) {
	for _, policy := range []zlimit.FailurePolicy{zlimit.PolicyAllow, zlimit.PolicyBlock} {
		for _, maxWait := range []time.Duration{200 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprint(policy, maxWait), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { waitsWithLostReplies(t, policy, maxWait) })
			})
		}
	}
}

func waitsWithLostReplies(t *testing.T, policy zlimit.FailurePolicy, maxWait time.Duration) {
	d := &distant{Store: store.Of(newMemory(t))}
	l := newLimiter(t, zlimit.StoreOn(d), zlimit.WithFailurePolicy(policy))
	setSystem(t, l, zlimit.PerSecond("rpd", 200))
	request := zlimit.Request{Entity: "e0", Resource: "api", Consume: zlimit.Amounts{"rpd": 3}}
	acquire(t, l, request)
	writes := atomic.Int64{}
	fault := func(ctx context.Context, _ string, write bool) error {
		if !write || writes.Add(1)%11 != 0 {
			return nil
		}
		<-ctx.Done()
		return &store.Error{Op: "call", Unknown: true, Err: ctx.Err()}
	}
	d.fault.Store(&fault)
	var callers sync.WaitGroup
	outages := atomic.Int64{}
	for range 8 {
		callers.Go(func() {
			for began := time.Now(); time.Since(began) < 20*time.Second; {
				lease, err := l.Wait(context.Background(), request, zlimit.MaxWait(maxWait))
				outage := new(*zlimit.UnavailableError)
				switch {
				case err == nil && lease.Degraded(), policy == zlimit.PolicyBlock && errors.As(err, outage):
					outages.Add(1)
				case err != nil && !errors.As(err, new(*zlimit.ExceededError)) && !errors.Is(err, zlimit.ErrContended):
					t.Errorf("Wait() = %v", err)
				}
				if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
					t.Errorf("Wait() = %v, want no error of a context", err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	callers.Wait()
	if outages.Load() == 0 {
		t.Error("no request met an outage")
	}
	d.fault.Store(nil)
	closeLimiters(t, l)
}

// underFault runs a test with a request of a child and its parent, under a policy that admits in an outage. Both have been admitted once, and a
// fault decides on each of their calls from then on.
func underFault(
	t *testing.T, fault func(ctx context.Context, pk string, _ bool) error, test func(t *testing.T, l *zlimit.RateLimiter, request zlimit.Request),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &distant{Store: store.Of(newMemory(t))}
		l := newLimiter(t, zlimit.StoreOn(d), zlimit.WithFailurePolicy(zlimit.PolicyAllow))
		setSystem(t, l, zlimit.PerDay("rpd", 200))
		for _, e := range []zlimit.Entity{{ID: "parent"}, {ID: "child", ParentID: "parent", Cascade: true}} {
			create(t, l, e)
		}
		request := zlimit.Request{Entity: "child", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
		acquire(t, l, request)
		d.fault.Store(&fault)
		test(t, l, request)
		d.fault.Store(nil)
		closeLimiters(t, l)
	})
}

// TestCancelledBesideOutage cancels a request of two levels, one of which meets an outage. The error is the context's, and no policy admits.
func TestCancelledBesideOutage(t *testing.T) {
	underFault(t, func(ctx context.Context, pk string, _ bool) error {
		<-ctx.Done()
		if strings.Contains(pk, "child") {
			return &store.Error{Op: "call", Unavailable: true, Err: errors.New("not sent")}
		}
		return ctx.Err()
	}, func(t *testing.T, l *zlimit.RateLimiter, request zlimit.Request) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := l.Acquire(ctx, request)
		if outage := new(*zlimit.UnavailableError); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, outage) {
			t.Errorf("Acquire() = %v (%T), want the error of the context", err, err)
		}
	})
}

// In TestRefusalBesideOutage, the store refuses a call of one level for good, while that of another has no known outcome. That is no outage, and
// no policy admits.
func TestRefusalBesideOutage(t *testing.T) {
	denied := errors.New("access denied")
	underFault(t, func(_ context.Context, pk string, _ bool) error {
		if strings.Contains(pk, "child") {
			return &store.Error{Op: "call", Unavailable: true, Unknown: true, Err: errors.New("internal server error")}
		}
		return &store.Error{Op: "call", Err: denied}
	}, func(t *testing.T, l *zlimit.RateLimiter, request zlimit.Request) {
		_, err := l.Acquire(t.Context(), request)
		if outage := new(*zlimit.UnavailableError); !errors.Is(err, denied) || errors.As(err, outage) {
			t.Errorf("Acquire() = %v (%T), want the refusal", err, err)
		}
	})
}
