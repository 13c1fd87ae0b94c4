package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/edge/rpc"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

type option func(*rpc.Interceptor)

func ask(tokens int64) zlimit.Request {
	return zlimit.Request{Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"rpm": tokens}}
}

func acquire(t *testing.T, l *zlimit.RateLimiter) *zlimit.Lease {
	t.Helper()
	return check.Call(l.Acquire(t.Context(), ask(1))).Must(t, "Acquire()")
}

// left returns what is left of the limit of four.
func left(t *testing.T, l *zlimit.RateLimiter) int64 {
	t.Helper()
	statuses, err := l.Available(context.Background(), zlimit.AvailableQuery{Entity: "alice", Resource: "api"})
	check.Fatal(t, "Available()", err)
	return statuses[0].Available
}

func TestClassify(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
	_, exceeded := limiter.Acquire(t.Context(), ask(5))
	_, invalid := limiter.Acquire(t.Context(), zlimit.Request{Entity: "a b"})
	for _, test := range []struct {
		err  error
		code rpc.Code
		text string
	}{
		{exceeded, rpc.ResourceExhausted, "quota exceeded"},
		{invalid, rpc.InvalidArgument, "the entity must hold only ASCII letters, digits and _.-:@/+|=~%"},
		{fmt.Errorf("%w: secret", zlimit.ErrNoLimits), rpc.PermissionDenied, "no quota"},
		{&zlimit.UnavailableError{Op: "acquire", Err: errors.New("secret")}, rpc.Unavailable, "the limits are temporarily unavailable"},
		{&zlimit.UnavailableError{Op: "acquire", Err: context.DeadlineExceeded}, rpc.Unavailable, "the limits are temporarily unavailable"},
		{zlimit.ErrContended, rpc.Unavailable, "the limits are temporarily unavailable"},
		{zlimit.ErrClosed, rpc.Unavailable, "the limits are temporarily unavailable"},
		{context.Canceled, rpc.Canceled, "the call was canceled"},
		{context.DeadlineExceeded, rpc.DeadlineExceeded, "the deadline of the call has passed"},
		{errors.New("secret"), rpc.Internal, "the call could not be limited"},
		{fmt.Errorf("secret: %w", exceeded), rpc.ResourceExhausted, "quota exceeded"},
	} {
		code, text := rpc.Classify(test.err)
		if code != test.code || text != test.text || strings.Contains(text, "alice") {
			t.Errorf("Classify(%v) = %d, %q, want %d, %q", test.err, code, text, test.code, test.text)
		}
	}
}

func TestViolationsAndPushback(t *testing.T) {
	limiter, clock := zlimittest.New(t, zlimit.PerMinute("rpm", 4), zlimit.PerDay("rpd", 1000))
	for range 4 {
		check.Fatal(t, "Commit()", acquire(t, limiter).Commit(t.Context()))
	}
	clock.Advance(time.Millisecond)
	var exceeded *zlimit.ExceededError
	if _, err := limiter.Acquire(t.Context(), ask(2)); !errors.As(err, &exceeded) {
		t.Fatalf("Acquire() = %v", err)
	}
	want := []rpc.Violation{{Subject: "resource:api", Description: "2 requested, 0 of 4 available", QuotaMetric: "rpm", QuotaID: "api/rpm", QuotaValue: 4}}
	compare.Equal(t, "Violations()", want, rpc.Violations(exceeded))
	if got := rpc.Pushback(exceeded); got != "29999" {
		t.Errorf("Pushback() = %s, want 29999", got)
	}
	clock.Advance(29_998 * time.Millisecond)
	if _, err := limiter.Acquire(t.Context(), ask(2)); err == nil {
		t.Error("there is room before the pushback is over")
	}
	clock.Advance(time.Millisecond)
	lease := check.Call(limiter.Acquire(t.Context(), ask(2))).Must(t, "Acquire() after the pushback")
	_ = lease.Commit(t.Context())
	if _, err := limiter.Acquire(t.Context(), ask(5)); !errors.As(err, &exceeded) || rpc.Pushback(exceeded) != "-1" {
		t.Errorf("Pushback() of what never fits = %v", err)
	}
	exceeded = &zlimit.ExceededError{Statuses: zlimit.Statuses{{Limit: zlimit.PerMinute("rpm", 4), Available: -7, Requested: 1, Exceeded: true, RetryAfter: 1500 * time.Microsecond}}}
	if got := rpc.Violations(exceeded)[0].Description; got != "1 requested, 0 of 4 available" {
		t.Errorf("a violation in debt is %q", got)
	}
	if got := rpc.Pushback(exceeded); got != "2" {
		t.Errorf("Pushback() of a millisecond and a half = %s, want 2", got)
	}
}

func TestSettle(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
	var log bytes.Buffer
	i := rpc.New("test", limiter, []option{func(i *rpc.Interceptor) { i.LogTo(slog.New(slog.NewTextHandler(&log, nil))) }})
	i.Settle(t.Context(), acquire(t, limiter), true)
	if got := left(t, limiter); got != 3 {
		t.Errorf("%d left after a call that was kept, want 3", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	i.Settle(ended, acquire(t, limiter), false)
	if got := left(t, limiter); got != 3 {
		t.Errorf("%d left after a call that was given back when its context had ended, want 3", got)
	}
	own := acquire(t, limiter)
	check.Fatal(t, "Rollback()", own.Rollback(t.Context()))
	i.Settle(t.Context(), own, true)
	if log.Len() > 0 {
		t.Errorf("the log has %s, want nothing of a lease that the handler has settled", &log)
	}
	open := acquire(t, limiter)
	zlimittest.IgnoreLeases(limiter) // it cannot be settled
	check.Fatal(t, "Close()", limiter.Close())
	i.Settle(t.Context(), open, false)
	if !strings.Contains(log.String(), "test: a lease could not be settled") {
		t.Errorf("the log has %q, want a lease that could not be settled", &log)
	}
}

// TestSettleAtEnd ends streams in each order of their ends: the lease is settled once, as the first of them says.
func TestSettleAtEnd(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(end func(keep bool), cancel func())
		left int64
	}{
		"an end":                        {func(end func(bool), _ func()) { end(true) }, 3},
		"an end of what was never sent": {func(end func(bool), _ func()) { end(false) }, 4},
		"two ends":                      {func(end func(bool), _ func()) { end(true); end(false) }, 3},
		"two ends, the other way":       {func(end func(bool), _ func()) { end(false); end(true) }, 4},
		"the context":                   {func(_ func(bool), cancel func()) { cancel() }, 3},
		"the context, and then the end": {func(end func(bool), cancel func()) { cancel(); synctest.Wait(); end(false) }, 3},
		"the end, and then the context": {func(end func(bool), cancel func()) { end(false); cancel() }, 4},
		"many at once": {func(end func(bool), cancel func()) {
			for range 8 {
				go end(true)
			}
			cancel()
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
				i := rpc.New("test", limiter, []option{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				test.do(i.SettleAtEnd(ctx, acquire(t, limiter)), cancel)
				synctest.Wait()
				if got := left(t, limiter); got != test.left {
					t.Errorf("%d left, want %d", got, test.left)
				}
			})
		})
	}
}

func TestRefusal(t *testing.T) {
	var r rpc.Refusal
	if r.Err() != nil {
		t.Errorf("Err() = %v at first, want nil", r.Err())
	}
	refused := errors.New("refused")
	if got := r.Set(refused); !errors.Is(got, refused) || !errors.Is(r.Err(), refused) {
		t.Errorf("Set() = %v, Err() = %v, want the error", got, r.Err())
	}
}

func TestLease(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
	lease := acquire(t, limiter)
	defer func() { _ = lease.Commit(context.Background()) }()
	if rpc.Lease(t.Context()) != nil || rpc.Lease(rpc.WithLease(t.Context(), lease)) != lease {
		t.Error("Lease() is not the one of the context")
	}
}

// TestLeasesThatCannotBeSettled closes a limiter before its leases are settled: one line reports them.
func TestLeasesThatCannotBeSettled(t *testing.T) {
	limiter, _ := faulttest.New(t, faulttest.Never())
	var log bytes.Buffer
	i := rpc.New("pkg", limiter, []option{func(i *rpc.Interceptor) { i.LogTo(slog.New(slog.NewTextHandler(&log, nil))) }})
	var leases []*zlimit.Lease
	for range 3 {
		lease := acquire(t, limiter)
		check.Fatal(t, "Release()", lease.Release(zlimit.Amounts{"rpm": 1}))
		leases = append(leases, lease)
	}
	check.Fatal(t, "Close()", limiter.Close())
	for _, lease := range leases {
		i.Settle(t.Context(), lease, true)
	}
	if n := strings.Count(log.String(), "pkg: a lease could not be settled"); n != 1 {
		t.Errorf("three leases make %d lines:\n%s", n, &log)
	}
}
