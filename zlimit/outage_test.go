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
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A distant store takes 5 ms for a call. A fault may take the place of calls.
type distant struct {
	store.Store
	fault atomic.Pointer[func(ctx context.Context, pk string, write bool) error] // returns nil for a call that is done
	calls atomic.Int64
	open  atomic.Int64 // calls under way
	most  atomic.Int64 // of them at once
}

func (d *distant) pass(ctx context.Context, pk string, write bool) error {
	d.calls.Add(1)
	for n := d.open.Add(1); ; {
		most := d.most.Load()
		if n <= most || d.most.CompareAndSwap(most, n) {
			break
		}
	}
	defer d.open.Add(-1)
	if f := d.fault.Load(); f != nil {
		if err := (*f)(ctx, pk, write); err != nil {
			return err
		}
	}
	time.Sleep(5 * time.Millisecond)
	return nil
}

// eventualKey is the key of the contexts of reads that need not be consistent.
type eventualKey struct{}

func (d *distant) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	var pks []string
	for _, key := range keys {
		pks = append(pks, key.PK)
	}
	if !consistent {
		ctx = context.WithValue(ctx, eventualKey{}, true)
	}
	if err := d.pass(ctx, strings.Join(pks, " "), false); err != nil {
		return nil, err
	}
	return d.Store.Read(ctx, keys, consistent)
}

func (d *distant) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if err := d.pass(ctx, w.Key.PK, true); err != nil {
		return store.Result{}, err
	}
	return d.Store.Write(ctx, w)
}

func (d *distant) Ping(ctx context.Context) error {
	if err := d.pass(ctx, "ping", false); err != nil {
		return err
	}
	return d.Store.Ping(ctx)
}

func (d *distant) Partitioned() bool { return true }

// The faults of a store that is away.
func unanswered(ctx context.Context, _ string, write bool) error {
	<-ctx.Done()
	return &store.Error{Op: "call", Unavailable: true, Unknown: write, Err: ctx.Err()}
}

func refusedCall(context.Context, string, bool) error {
	time.Sleep(time.Millisecond)
	return &store.Error{Op: "call", Unavailable: true, Err: errors.New("connection refused")}
}

func serverError(_ context.Context, _ string, write bool) error {
	time.Sleep(5 * time.Millisecond)
	return &store.Error{Op: "call", Unavailable: true, Unknown: write, Err: errors.New("internal server error")}
}

func throttleOf(limit store.Limit) func(context.Context, string, bool) error {
	return func(_ context.Context, _ string, write bool) error {
		time.Sleep(5 * time.Millisecond)
		return &store.Error{
			Op: "call", Unavailable: true, Throttled: true, Throttles: []store.Throttle{{Limit: limit, Write: write}}, Err: errors.New("slow down"),
		}
	}
}

// A requestEnd is what came of a request of a load.
type requestEnd struct {
	entity   string
	at, took time.Duration
	counted  bool
	err      error
}

// A load is requests of many entities, one after the other at a rate.
type load struct {
	limiter *zlimit.RateLimiter
	began   time.Time
	rate    int
	names   int // of entities
	mu      sync.Mutex
	done    []requestEnd
	all     sync.WaitGroup
}

func (l *load) run(d time.Duration) {
	for i := range int(d.Seconds() * float64(l.rate)) {
		l.all.Go(func() {
			r := zlimit.Request{Entity: fmt.Sprintf("e%d", i%l.names), Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
			began := time.Now()
			lease, err := l.limiter.Acquire(context.Background(), r)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.done = append(l.done, requestEnd{r.Entity, began.Sub(l.began), time.Since(began), err == nil && !lease.Degraded(), err})
		})
		time.Sleep(time.Second / time.Duration(l.rate))
	}
}

// outageRates returns rates in requests a second. The highest has four in five of all requests, and runs every night.
func outageRates() []int { return soak.Pick([]int{50, 400}, []int{50, 400, 2000}) }

// inOutage runs a load of 2 s, one of 10 s with a fault, and another of 10 s after it. Its limits are stored, and read
// again every 5 s.
func inOutage(
	t *testing.T, rate, names int, fault func(context.Context, string, bool) error, policy zlimit.FailurePolicy,
	expect func(l *load, d *distant, calls [3]int64, log *faulttest.Log), opts ...zlimit.Option,
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := &faulttest.Log{}
		d := &distant{Store: store.Of(newMemory(t))}
		opts = append(opts, zlimit.WithFailurePolicy(policy), zlimit.WithConfigTTL(5*time.Second), zlimit.WithLogger(log.Logger()))
		limiter := newLimiter(t, zlimit.StoreOn(d), opts...)
		setSystem(t, limiter, zlimit.PerDay("rpd", 1_000_000))
		l := &load{limiter: limiter, rate: rate, names: names}
		l.run(time.Duration(names) * time.Second / time.Duration(rate))
		l.all.Wait()
		l.done, l.began = nil, time.Now()
		var calls [3]int64
		for i := range calls {
			d.fault.Store(nil)
			if i == 1 {
				d.fault.Store(&fault)
			}
			before := d.calls.Load()
			l.run([]time.Duration{2 * time.Second, 10 * time.Second, 10 * time.Second}[i])
			calls[i] = d.calls.Load() - before
		}
		l.all.Wait()
		expect(l, d, calls, log)
	})
}

// awayFrom and awayUntil are when the fault of inOutage begins and ends.
const awayFrom, awayUntil = 2 * time.Second, 12 * time.Second

// TestOutage breaks the whole store in several ways. After a second the policy decides immediately, the calls are few, and 2 s after the
// end all is as before.
func TestOutage(t *testing.T) {
	for name, fault := range map[string]func(context.Context, string, bool) error{
		"silent": unanswered, "refused": refusedCall, "server errors": serverError, "throttles of the table": throttleOf(store.OfTable),
	} {
		for _, rate := range outageRates() {
			for _, policy := range []zlimit.FailurePolicy{zlimit.PolicyAllow, zlimit.PolicyBlock} {
				t.Run(fmt.Sprintf("%s, %d, %v", name, rate, policy), func(t *testing.T) {
					inOutage(t, rate, 200, fault, policy, func(l *load, _ *distant, calls [3]int64, log *faulttest.Log) {
						var slow, failed, wrong, late int
						var longest time.Duration
						for _, r := range l.done {
							switch {
							case r.at > awayFrom+time.Second && r.at < awayUntil && (r.took > 0 || r.counted):
								slow, longest = slow+1, max(longest, r.took)
							case r.at > awayUntil+2*time.Second && !r.counted:
								late++
							}
							if r.took > 250*time.Millisecond && policy == zlimit.PolicyAllow {
								wrong++
							}
							if r.err != nil && (policy == zlimit.PolicyAllow || !errors.As(r.err, new(*zlimit.UnavailableError))) {
								failed++
							}
						}
						if slow > 0 || failed > 0 || wrong > 0 || late > 0 {
							t.Errorf("%d of %d decisions wait in the outage, up to %v; %d fail, %d take too long, %d are not counted after it", slow, len(l.done), longest, failed, wrong, late)
						}
						if most := int64(330); calls[1] > most {
							t.Errorf("%d calls in the outage, want %d at most", calls[1], most)
						}
						if usual := 5 * calls[0]; calls[2] > usual*5/4 {
							t.Errorf("%d calls after the outage, %d are usual", calls[2], usual)
						}
						if lines := strings.Count(log.String(), "\n"); lines > 10 || log.Count("unavailable;") != 1 || log.Count("the store answers again") != 1 {
							t.Errorf("%d lines:\n%s", lines, log)
						}
						if stats := l.limiter.Stats(); stats.Outages != 1 || stats.Outage {
							t.Errorf("Stats() = %+v, want one outage that is over", stats)
						}
					})
				})
			}
		}
	}
}

// TestStoresThatComeBack takes the store away for ten seconds and for minutes. Two seconds after its return at the latest all requests
// are counted, and in the first of them calls are at most twice the steady ones. The log has a line a minute, besides the lines about
// the beginning and the end.
func TestStoresThatComeBack(t *testing.T) {
	for name, fault := range map[string]func(context.Context, string, bool) error{
		"silent": unanswered, "refused": refusedCall, "server errors": serverError,
	} {
		for _, away := range []time.Duration{10 * time.Second, soak.Pick(90*time.Second, 10*time.Minute)} {
			for _, policy := range []zlimit.FailurePolicy{zlimit.PolicyAllow, zlimit.PolicyBlock} {
				t.Run(fmt.Sprintf("%s for %v, %v", name, away, policy), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						log := &faulttest.Log{}
						d := &distant{Store: store.Of(newMemory(t))}
						limiter := newLimiter(t, zlimit.StoreOn(d), zlimit.WithFailurePolicy(policy), zlimit.WithLogger(log.Logger()))
						setSystem(t, limiter, zlimit.PerDay("rpd", 1_000_000))
						l := &load{limiter: limiter, rate: 50, names: 25}
						callsIn := func(run time.Duration) int64 {
							before := d.calls.Load()
							l.run(run)
							return d.calls.Load() - before
						}
						l.run(2 * time.Second)
						steady := callsIn(time.Second)
						d.fault.Store(&fault)
						l.run(away)
						d.fault.Store(nil)
						l.mu.Lock()
						l.began, l.done = time.Now(), nil
						l.mu.Unlock()
						burst := callsIn(time.Second)
						l.run(3 * time.Second)
						l.all.Wait()
						first, last := time.Duration(-1), time.Duration(0)
						for _, r := range l.done { // in the order of their ends
							if r.counted && first < 0 {
								first = r.at + r.took
							}
							if !r.counted && r.at >= 0 {
								last = max(last, r.at)
							}
						}
						if first < 0 || first > 2*time.Second || last > 2*time.Second {
							t.Errorf("the first request is counted after %v, and the last one that is not comes after %v", first, last)
						}
						if burst > 2*steady {
							t.Errorf("%d calls in the first second, %d are usual", burst, steady)
						}
						if lines := strings.Count(log.String(), "\n"); lines > 3+int(away/time.Minute) {
							t.Errorf("%d lines in %v:\n%s", lines, away, log)
						}
						if stats := limiter.Stats(); stats.Outages != 1 || stats.Outage {
							t.Errorf("Stats() = %+v, want one outage that is over", stats)
						}
					})
				})
			}
		}
	}
}

// TestABusyBucketWhileAway asks for one bucket, whose requests wait for unanswered writes of others. One call of a
// crowded bucket is under way at a time, so the outage takes longer to be known: 1.4 s at most in 50 runs. No request waits after two.
func TestABusyBucketWhileAway(t *testing.T) {
	for _, policy := range []zlimit.FailurePolicy{zlimit.PolicyAllow, zlimit.PolicyBlock} {
		inOutage(t, 1000, 1, unanswered, policy, func(l *load, _ *distant, _ [3]int64, _ *faulttest.Log) {
			slow := 0
			for _, r := range l.done {
				if r.at > awayFrom+2*time.Second && r.at < awayUntil && r.took > 0 {
					slow++
				}
			}
			if slow > 0 {
				t.Errorf("%v: %d of %d decisions wait", policy, slow, len(l.done))
			}
		})
	}
}

// TestDecisionTimeout bounds requests whose calls are slow.
func TestDecisionTimeout(t *testing.T) {
	limits := []zlimit.Limit{zlimit.PerDay("rpd", 100)}
	for _, test := range []struct {
		name    string
		opts    []zlimit.Option
		cold    bool          // the request reads first
		slow    time.Duration // each call
		takes   time.Duration
		left    bool // the policy decides
		unknown bool
		charged int64 // in the end
	}{
		{"allow", []zlimit.Option{zlimit.WithFailurePolicy(zlimit.PolicyAllow)}, false, time.Second, 250 * time.Millisecond, true, true, 1},
		{"allow, cold", []zlimit.Option{zlimit.WithFailurePolicy(zlimit.PolicyAllow)}, true, 190 * time.Millisecond, 250 * time.Millisecond, true, true, 1},
		{"allow for longer", []zlimit.Option{zlimit.WithFailurePolicy(zlimit.PolicyAllow), zlimit.WithDecisionTimeout(3 * time.Second)}, false, time.Second, time.Second, false, false, 1},
		{"block", nil, false, time.Second, time.Second, false, false, 1},
		{"block sooner", []zlimit.Option{zlimit.WithDecisionTimeout(300 * time.Millisecond)}, false, time.Second, 300 * time.Millisecond, true, false, 0},
		{"block after two calls", []zlimit.Option{zlimit.WithDecisionTimeout(300 * time.Millisecond)}, true, 190 * time.Millisecond, 300 * time.Millisecond, true, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, s := faulttest.New(t, limits, test.opts...)
				r := zlimit.Request{Entity: "e", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
				before := int64(100)
				if !test.cold {
					acquire(t, l, r)
					before--
				}
				s.Break(faulttest.Slow(test.slow))
				began := time.Now()
				lease, err := l.Acquire(t.Context(), r)
				if took := time.Since(began); took != test.takes {
					t.Errorf("Acquire() takes %v, want %v", took, test.takes)
				}
				var outage *zlimit.UnavailableError
				if left := errors.As(err, &outage) || err == nil && lease.Degraded(); left != test.left || outage != nil && outage.Unknown != test.unknown {
					t.Errorf("Acquire() = %v, want the policy to decide: %t, unknown %t", err, test.left, test.unknown)
				}
				time.Sleep(10 * time.Second)
				s.Break(nil)
				if got := before - faulttest.Left(t, l, "e"); got != test.charged {
					t.Errorf("%d are charged, want %d", got, test.charged)
				}
			})
		})
	}

	t.Run("a caller that leaves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, s := faulttest.New(t, limits, zlimit.WithFailurePolicy(zlimit.PolicyAllow))
			r := zlimit.Request{Entity: "e", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
			acquire(t, l, r)
			s.Break(faulttest.Hang)
			for _, give := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond} {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(give, cancel)
				_, err := l.Acquire(ctx, r)
				if left := errors.Is(err, context.Canceled); left != (give < 250*time.Millisecond) {
					t.Errorf("Acquire() of a caller that leaves after %v = %v", give, err)
				}
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), give)
				_, err = l.Acquire(ctx, r)
				if left := errors.Is(err, context.DeadlineExceeded); left != (give < 250*time.Millisecond) {
					t.Errorf("Acquire() with a deadline of %v = %v", give, err)
				}
				cancel()
			}
			time.Sleep(10 * time.Second)
		})
	})
	if _, err := zlimit.Open(t.Context(), "memory:", zlimit.WithDecisionTimeout(-1)); !errors.As(err, new(*zlimit.ValidationError)) {
		t.Errorf("Open() with a negative decision timeout = %v", err)
	}
}

// TestHotKeyIsNoCaller throttles the key of a bucket for longer than an answer that comes late is waited for. The caller has set no
// deadline, and hears of none: the policy decides when the patience ends.
func TestHotKeyIsNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := faulttest.New(t, []zlimit.Limit{zlimit.PerDay("rpd", 100)}, zlimit.WithFailurePolicy(zlimit.PolicyAllow))
		r := zlimit.Request{Entity: "e", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
		acquire(t, l, r)
		s.Break(func(context.Context, func() error) error {
			return &store.Error{Op: "call", Unavailable: true, Throttled: true, Throttles: []store.Throttle{{Limit: store.OfKey, Write: true}}}
		})
		longest := time.Duration(0)
		for range 20 {
			began := time.Now()
			lease, err := l.Acquire(t.Context(), r)
			if longest = max(longest, time.Since(began)); err != nil || !lease.Degraded() {
				t.Fatalf("Acquire() of a throttled key = %v after %v, want the policy to decide", err, time.Since(began))
			}
		}
		if longest < 6*time.Second {
			t.Errorf("no request waited for longer than %v", longest)
		}
	})
}

// TestSettlingWhileAway commits a lease while requests are refused: it has no policy, and is tried.
func TestSettlingWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := faulttest.New(t, []zlimit.Limit{zlimit.PerDay("rpd", 100)})
		r := zlimit.Request{Entity: "e", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
		lease := acquire(t, l, r)
		check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{"rpd": 9}))
		s.Break(faulttest.Down)
		for range 20 {
			_, _ = l.Acquire(t.Context(), r)
		}
		if before := s.Writes(); !l.Stats().Outage || lease.Commit(t.Context()) == nil || s.Writes() != before+1 {
			t.Errorf("Commit() makes %d writes in an outage, want 1", s.Writes()-before)
		}
		s.Break(nil)
		check.Error(t, "Commit()", lease.Commit(t.Context()))
		if n := l.Stats().UnknownSettled; n != 0 {
			t.Errorf("%d settlements are unknown, and none was sent in vain", n)
		}
		time.Sleep(2 * time.Second)
		lost := acquire(t, l, zlimit.Request{Entity: "other", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}})
		s.Break(faulttest.Lost)
		if err := lost.Rollback(t.Context()); err == nil || l.Stats().UnknownSettled != 1 || l.Stats().UnknownOutcomes != 1 {
			t.Errorf("Rollback() whose reply is lost = %v, %+v; want one settlement that is unknown", err, l.Stats())
		}
		s.Break(nil)
		if acquire(t, l, r); l.Stats().Outage || faulttest.Left(t, l, "e") != 89 {
			t.Errorf("%d are left, want 89", faulttest.Left(t, l, "e"))
		}
	})
}

// An expiring store deletes what has expired when it is asked to, which ends with an error, or with the caller's context.
type expiring struct {
	*distant
	err error
}

func (e *expiring) Expire(ctx context.Context, _ int64) error {
	if e.err == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return e.err
}

// In TestExpiryThatFails, new buckets come while expired ones cannot be deleted. A caller that leaves meanwhile, and an outage, leave
// that to the next one, and log nothing.
func TestExpiryThatFails(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		told int
	}{
		"a caller that leaves": {nil, 0},
		"an outage":            {&store.Error{Op: "expire", Unavailable: true, Err: errors.New("disk is full")}, 0},
		"a mistake":            {&store.Error{Op: "expire", Err: errors.New("denied")}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			log := &faulttest.Log{}
			s := &expiring{&distant{Store: store.Of(newMemory(t))}, test.err}
			l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithLogger(log.Logger()), zlimit.WithDefaultLimits(zlimit.PerDay("rpd", 100)))
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := l.Acquire(ctx, zlimit.Request{Entity: "e", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}); err != nil {
				t.Errorf("%s: Acquire() = %v", name, err)
			}
			if got := log.Count("expired buckets could not be deleted"); got != test.told {
				t.Errorf("%s: %d lines of log, want %d", name, got, test.told)
			}
		})
	}
}

// TestAStoreThatComesAndGoes takes the store away for three seconds out of six, for two minutes. The first outage and its end are
// reported immediately, the others once a minute and when the limiter is closed.
func TestAStoreThatComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faulttest.Log{}
		d := &distant{Store: store.Of(newMemory(t))}
		limiter := newLimiter(t, zlimit.StoreOn(d), zlimit.WithFailurePolicy(zlimit.PolicyAllow), zlimit.WithLogger(log.Logger()))
		setSystem(t, limiter, zlimit.PerDay("rpd", 1_000_000))
		l := &load{limiter: limiter, rate: 100, names: 10}
		fault := refusedCall
		for range 19 {
			d.fault.Store(&fault)
			l.run(3 * time.Second)
			d.fault.Store(nil)
			l.run(3 * time.Second)
		}
		l.all.Wait()
		if stats := limiter.Stats(); stats.Outages < 19 || stats.Outage {
			t.Fatalf("Stats() = %+v, want 19 outages that are over", stats)
		}
		for range 2 {
			check.Fatal(t, "Close()", limiter.Close())
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) > 8 || !strings.Contains(lines[len(lines)-1], "answers=true") {
			t.Errorf("%d lines, want 4 a minute at most, and the last to say that the store answers:\n%s", len(lines), log)
		}
		if log.Count("is unavailable;") != 1 || log.Count("the store answers again") > 2 {
			t.Errorf("not the first outage alone is told at once:\n%s", log)
		}
	})
}

// In TestScarceBucketOfASilentStore, a bucket is nearly used up when the store falls silent. Its requests wait twice as long as others, and no
// longer: only answers show that other writers come first.
func TestScarceBucketOfASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &distant{Store: store.Of(newMemory(t))}
		l := newLimiter(t, zlimit.StoreOn(d), zlimit.WithFailurePolicy(zlimit.PolicyAllow))
		setSystem(t, l, zlimit.PerDay("rpd", 8))
		request := zlimit.Request{Entity: "e0", Resource: "api", Consume: zlimit.Amounts{"rpd": 1}}
		acquire(t, l, request)
		fault := unanswered
		d.fault.Store(&fault)
		began := time.Now()
		if lease := acquire(t, l, request); !lease.Degraded() {
			t.Error("a request of a silent store is counted")
		}
		if took := time.Since(began); took > 510*time.Millisecond {
			t.Errorf("a request of a nearly used-up bucket waits %v", took)
		}
		d.fault.Store(nil)
		closeLimiters(t, l)
	})
}
