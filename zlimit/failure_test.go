package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestFaultsOfTheNetwork injects faults into the write of a known bucket. It compares the sent request, the item and
// the caller's answer (I10, unknown outcomes).
func TestFaultsOfTheNetwork(t *testing.T) {
	t.Parallel()
	if enginetest.IsMean() {
		t.Skip("it counts every call, and what becomes of it")
	}
	for _, test := range []struct {
		fault    enginetest.Kind
		times    int   // calls hit
		sent     int   // attempts that the transport saw
		charged  int64 // tokens
		outage   bool  // follows the failure policy
		unknown  bool  // counts as charged
		admitted bool
	}{
		{fault: enginetest.ThroughputExceeded, times: 1, sent: 2, charged: 1, admitted: true},
		{fault: enginetest.Throttled, times: 2, sent: 3, charged: 1, admitted: true},
		{fault: enginetest.Refused, times: 2, sent: 3, charged: 1, admitted: true},
		{fault: enginetest.DialReset, times: 1, sent: 2, charged: 1, admitted: true},
		{fault: enginetest.Throttled, sent: 3, outage: true},
		{fault: enginetest.Refused, sent: 3, outage: true},
		{fault: enginetest.InternalError, times: 1, sent: 1, outage: true, unknown: true},
		{fault: enginetest.LostRequest, times: 1, sent: 1, outage: true, unknown: true},
		{fault: enginetest.LostReply, times: 1, sent: 1, charged: 1, outage: true, unknown: true},
		{fault: enginetest.ResetReply, times: 1, sent: 1, charged: 1, outage: true, unknown: true},
		{fault: enginetest.TruncatedReply, times: 1, sent: 1, charged: 1, outage: true, unknown: true},
		{fault: enginetest.Hang, times: 1, sent: 1, charged: 1, outage: true, unknown: true},
		{fault: enginetest.AccessDenied, sent: 1},
		{fault: enginetest.ResourceNotFound, sent: 1},
	} {
		for _, policy := range []zlimit.FailurePolicy{zlimit.PolicyBlock, zlimit.PolicyAllow} {
			name := string(test.fault) + ", " + policy.String()
			if test.times > 0 {
				name += ", transient"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel() // it waits for what is tried again
				s, faults := newTable(t)
				c := newClock()
				l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithFailurePolicy(policy), zlimit.WithCallTimeout(500*time.Millisecond), zlimit.WithDecisionTimeout(time.Minute))
				setSystem(t, l, zlimit.PerMinute("rpm", 100))
				acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))

				faults.Reset()
				faults.Inject(enginetest.Fault{Kind: test.fault, Operation: "UpdateItem", Times: test.times})
				lease, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"rpm": 1}))
				faults.Clear()

				var outage *zlimit.UnavailableError
				switch {
				case test.admitted:
					if err != nil || lease.Degraded() {
						t.Errorf("Acquire() = %v, want a lease that is counted", err)
					}
				case test.outage && policy == zlimit.PolicyAllow:
					if err != nil || !lease.Degraded() {
						t.Fatalf("Acquire() = %v, want a degraded lease", err)
					}
					if err := errors.Join(lease.Adjust(zlimit.Amounts{"rpm": 5}), lease.Commit(context.Background())); err != nil {
						t.Errorf("settling a degraded lease = %v", err)
					}
				case test.outage:
					if !errors.As(err, &outage) || outage.Unknown != test.unknown {
						t.Errorf("Acquire() = %v, want an UnavailableError with Unknown = %v", err, test.unknown)
					}
				case err == nil || errors.As(err, &outage):
					t.Errorf("Acquire() = %v, want an error that is no outage", err)
				}
				if got := faults.Calls("UpdateItem"); got != test.sent {
					t.Errorf("%d attempts, want %d", got, test.sent)
				}
				if got := limit(t, l, "rpm"); got.Consumed != 1000+test.charged*1000 {
					t.Errorf("the item counts %d, want %d", got.Consumed, 1000+test.charged*1000)
				}
				if stats := l.Stats(); (stats.UnknownOutcomes == 1) != test.unknown {
					t.Errorf("Stats() = %+v, want an unknown outcome: %v", stats, test.unknown)
				}
				// What counts as charged is seen by the next request.
				if got := 98 - test.charged; available(t, l, "rpm")-1 != got {
					t.Errorf("rpm has %d, want %d", available(t, l, "rpm"), got+1)
				}
			})
		}
	}
}

// TestColdFaults lets the first read of a bucket fail.
func TestColdFaults(t *testing.T) {
	s, faults := newTable(t)
	l := newLimiter(t, s)
	if err := l.Limits.Set(context.Background(), zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 100)}, OnUnavailable: zlimit.PolicyAllow}); err != nil {
		t.Fatalf("Limits.Set() = %v", err)
	}
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1})) // sees the stored policy
	other := ask(zlimit.Amounts{"rpm": 1})
	other.Entity = "key-2"
	faults.Inject(enginetest.Fault{Kind: enginetest.InternalError})
	if lease := acquire(t, l, other); !lease.Degraded() {
		t.Error("the stored policy was forgotten in the outage")
	}
	other.OnUnavailable = zlimit.PolicyBlock
	var outage *zlimit.UnavailableError
	if _, err := l.Acquire(context.Background(), other); !errors.As(err, &outage) || outage.Unknown {
		t.Errorf("Acquire() = %v, want an UnavailableError without a write", err)
	}
	if got := l.Stats(); got.Degraded != 1 || got.Unavailable != 1 {
		t.Errorf("Stats() = %+v, want one degraded and one unavailable", got)
	}
}

// TestCancelledContext never admits, whatever the policy (I10).
func TestCancelledContext(t *testing.T) {
	s, faults := newTable(t)
	l := newLimiter(t, s, zlimit.WithFailurePolicy(zlimit.PolicyAllow), zlimit.WithDecisionTimeout(time.Minute), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerMinute("rpm", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	faults.Reset()
	if _, err := l.Acquire(ctx, ask(zlimit.Amounts{"rpm": 1})); !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire() of a cancelled context = %v, want context.Canceled", err)
	}
	if got := faults.Calls(""); got != 0 {
		t.Errorf("a cancelled context made %d calls", got)
	}

	ctx, cancel = context.WithCancel(context.Background())
	faults.Inject(enginetest.Fault{Kind: enginetest.Hang, Operation: "UpdateItem", Times: 1})
	ended := make(chan error, 1)
	go func() {
		_, err := l.Acquire(ctx, ask(zlimit.Amounts{"rpm": 1}))
		ended <- err
	}()
	for range 1000 { // cancelled before it has a connection, it would certainly not be sent
		if _, consumed, _ := total(shardsOf(t, l), "rpm"); consumed == 2000 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire() cancelled on its way = %v, want context.Canceled", err)
	}
	refused := enginetest.IsMean() // perhaps: then nothing is unknown
	for range 1000 {               // the caller is gone before its call
		if l.Stats().UnknownOutcomes > 0 || refused {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if got := l.Stats(); got.UnknownOutcomes > 1 || got.UnknownOutcomes == 0 && !refused || got.Degraded != 0 {
		t.Errorf("Stats() = %+v, want one unknown outcome and none degraded", got)
	}
}

// TestFailingSettleOfParts settles a lease that several shards gave, and fails at each of them in turn: what was done is not
// done again (I5).
func TestFailingSettleOfParts(t *testing.T) {
	ctx := context.Background()
	for name, settle := range map[string]func(*zlimit.Lease) error{
		"roll back": func(lease *zlimit.Lease) error { return lease.Rollback(ctx) },
		"commit":    func(lease *zlimit.Lease) error { return lease.Commit(ctx) },
	} {
		for at := range 4 {
			network := &flaky{Store: partitioned{store.Of(newMemory(t))}}
			l := newLimiter(t, zlimit.StoreOn(network), zlimit.WithClock(newClock().now))
			setSystem(t, l, zlimit.PerDay("tpd", 400))
			acquire(t, l, ask(zlimit.Amounts{"tpd": 1}))
			split(t, l)
			split(t, l)
			lease := acquire(t, l, ask(zlimit.Amounts{"tpd": 390}))
			check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{"tpd": -390}))
			network.add(slices.Insert(make([]fault, 3), at, throttled)...)
			var outage *zlimit.UnavailableError
			if err := settle(lease); !errors.As(err, &outage) || outage.Unknown {
				t.Errorf("%s, fault %d = %v, want an UnavailableError without a write", name, at, err)
			}
			if err := settle(lease); err != nil {
				t.Errorf("%s again, fault %d = %v", name, at, err)
			}
			if tokens, consumed, _ := total(shardsOf(t, l), "tpd"); tokens != 399_000 || consumed != 1000 {
				t.Errorf("%s, fault %d: the shards have %d and count %d, want 399000 and 1000", name, at, tokens, consumed)
			}
		}
	}
}

// TestFailingSettle keeps a lease open that provably was not settled, and never returns what was consumed (I5).
func TestFailingSettle(t *testing.T) {
	t.Parallel() // it waits for what is tried again
	s, faults := newTable(t)
	l := newLimiter(t, s, zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerMinute("tpm", 1000))
	ctx := context.Background()
	var outage *zlimit.UnavailableError

	lease := acquire(t, l, ask(zlimit.Amounts{"tpm": 100}))
	check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{"tpm": 50}))
	faults.Inject(enginetest.Fault{Kind: enginetest.Throttled})
	if err := lease.Commit(ctx); !errors.As(err, &outage) || outage.Unknown {
		t.Fatalf("Commit() = %v, want an UnavailableError without a write", err)
	}
	faults.Clear()
	if got := limit(t, l, "tpm").Consumed; got != 100_000 {
		t.Errorf("the item counts %d after the failed commit, want 100000", got)
	}
	check.Error(t, "Commit() again", lease.Commit(ctx))
	if got := limit(t, l, "tpm").Consumed; got != 150_000 {
		t.Errorf("the item counts %d after the commit, want 150000", got)
	}

	lease = acquire(t, l, ask(zlimit.Amounts{"tpm": 100}))
	faults.Inject(enginetest.Fault{Kind: enginetest.LostReply, Times: 1})
	if err := lease.Rollback(ctx); !errors.As(err, &outage) || !outage.Unknown {
		t.Errorf("Rollback() = %v, want an UnavailableError with an unknown outcome", err)
	}
	if err := lease.Rollback(ctx); !errors.Is(err, zlimit.ErrLeaseClosed) {
		t.Errorf("Rollback() again = %v, want ErrLeaseClosed: it may have happened", err)
	}
	if got := limit(t, l, "tpm").Consumed; got != 150_000 {
		t.Errorf("the item counts %d, want 150000", got)
	}
}

// TestWhatAnOutageStopped lets requests fail at each of their steps.
func TestWhatAnOutageStopped(t *testing.T) {
	t.Parallel()
	r := ask(zlimit.Amounts{"tpm": 10})
	errWork := errors.New("the work failed")
	fail := func(faults *enginetest.Faults) { faults.Inject(enginetest.Fault{Kind: enginetest.Throttled}) }
	for _, test := range []struct {
		name string
		op   string
		work func(context.Context, *zlimit.Lease, *enginetest.Faults) error // nil where it must not be called
	}{
		{"admitting", zlimit.OpAcquire, nil},
		{"taking more", zlimit.OpConsume, func(ctx context.Context, lease *zlimit.Lease, faults *enginetest.Faults) error {
			fail(faults)
			defer faults.Clear()
			return lease.Consume(ctx, zlimit.Amounts{"tpm": 1})
		}},
		{"committing", zlimit.OpCommit, func(_ context.Context, lease *zlimit.Lease, faults *enginetest.Faults) error {
			fail(faults)
			return lease.Adjust(zlimit.Amounts{"tpm": 5})
		}},
		{"rolling back", zlimit.OpRollback, func(_ context.Context, _ *zlimit.Lease, faults *enginetest.Faults) error {
			fail(faults)
			return errWork
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // it waits for what is tried again
			s, faults := newTable(t)
			l := newLimiter(t, s, zlimit.WithClock(newClock().now))
			setSystem(t, l, zlimit.PerMinute("tpm", 1000))
			acquire(t, l, r)
			called := false
			if test.work == nil {
				fail(faults)
			}
			err := l.Do(context.Background(), r, func(ctx context.Context, lease *zlimit.Lease) error {
				called = true
				return test.work(ctx, lease, faults)
			})
			faults.Clear()
			var outage *zlimit.UnavailableError
			if !errors.As(err, &outage) || outage.Op != test.op {
				t.Errorf("Do() = %v, want an UnavailableError of %q", err, test.op)
			}
			if called != (test.work != nil) {
				t.Errorf("the function was called: %v", called)
			}
		})
	}
}

// TestStaleLimitsHoldOnInAnOutage makes the table's reads fail when the limits are due to be read again.
func TestStaleLimitsHoldOnInAnOutage(t *testing.T) {
	s, faults := newTable(t)
	c := newClock()
	l := newLimiter(t, s, zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerDay("rpm", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	c.sleep(time.Hour)
	faults.Inject(enginetest.Fault{Kind: enginetest.InternalError, Operation: "BatchGetItem"})
	if lease := acquire(t, l, ask(zlimit.Amounts{"rpm": 1})); lease.Degraded() {
		t.Error("the lease is degraded though the limits are known and the bucket can be written")
	}
	if got := l.Limits.CacheStats().Stale; got != 1 {
		t.Errorf("CacheStats().Stale = %d, want 1", got)
	}
}

func TestMissing(t *testing.T) {
	ctx := context.Background()
	engine := enginetest.Start(t)
	dsn := "dynamodb:" + engine.Table(t) + "?region=us-east-1&endpoint=" + engine.Endpoint()
	if _, err := zlimit.Open(ctx, dsn); !errors.Is(err, zlimit.ErrTableNotFound) {
		t.Errorf("Open() of a missing table = %v, want ErrTableNotFound", err)
	}
	for range 2 { // the second finds all there
		l := check.Call(zlimit.Open(ctx, dsn, zlimit.WithSetup())).Must(t, "Open() with setup")
		check.Error(t, "Ping() and Close()", errors.Join(l.Ping(ctx), l.Close(), l.Close()))
		for name, err := range map[string]error{
			"Ping": l.Ping(ctx),
			"Acquire": func() error {
				_, err := l.Acquire(ctx, ask(zlimit.Amounts{"rpm": 1}))
				return err
			}(),
			"Available": func() error {
				_, err := l.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
				return err
			}(),
			"Limits.Set": l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{OnUnavailable: zlimit.PolicyBlock}),
			"System":     func() error { _, err := l.Limits.Get(ctx, zlimit.Level{}); return err }(),
		} {
			if !errors.Is(err, zlimit.ErrClosed) {
				t.Errorf("%s() of a closed limiter = %v, want ErrClosed", name, err)
			}
		}
	}
	if _, err := zlimit.Open(ctx, dsn, zlimit.WithNamespace("other")); !errors.Is(err, zlimit.ErrNamespaceNotFound) {
		t.Errorf("Open() of a missing namespace = %v, want ErrNamespaceNotFound", err)
	}
}

// TestJoinedFailures checks what several failures are together.
func TestJoinedFailures(t *testing.T) {
	throttle := &store.Error{Op: "write", Unavailable: true, Throttled: true, Err: errLost}
	lost := &store.Error{Op: "write", Unavailable: true, Unknown: true, Err: errLost}
	denied := &store.Error{Op: "write", Err: errLost}
	for _, test := range []struct {
		name            string
		err             error
		outage, unknown bool
	}{
		{"a throttle", throttle, true, false},
		{"a throttle and a lost reply", errors.Join(throttle, errors.Join(nil, fmt.Errorf("deep: %w", lost))), true, true},
		{"a throttle and a denial", errors.Join(throttle, denied), false, false},
		{"something else", errLost, false, false},
	} {
		var outage *zlimit.UnavailableError
		err := zlimit.PublicError("test", test.err)
		if got := errors.As(err, &outage); got != test.outage || got && outage.Unknown != test.unknown {
			t.Errorf("%s: publicError() = %v, want an outage: %v, unknown: %v", test.name, err, test.outage, test.unknown)
		}
	}
}
