package zlimittest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// A recording test keeps its errors and cleanups to itself.
type recording struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (r *recording) Helper()          {}
func (r *recording) Failed() bool     { return len(r.errors) > 0 }
func (r *recording) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recording) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// end runs the cleanups, and returns the errors.
func (r *recording) end() []string {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
	return r.errors
}

func acquire(t *testing.T, l *zlimit.RateLimiter, entity string) *zlimit.Lease {
	t.Helper()
	return check.Call(l.Acquire(context.Background(), ask(entity))).Must(t, "Acquire()")
}

func TestForgottenLeases(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(t *testing.T, r *recording, l *zlimit.RateLimiter)
		want []string // how the errors begin, after what all have
	}{
		"none": {func(*testing.T, *recording, *zlimit.RateLimiter) {}, nil},
		"one that is dropped": {func(t *testing.T, _ *recording, l *zlimit.RateLimiter) {
			acquire(t, l, "alice")
		}, []string{`entity "alice", resource "gpt-4", acquired at `}},
		"several, with corrections": {func(t *testing.T, _ *recording, l *zlimit.RateLimiter) {
			settled := acquire(t, l, "carol")
			for _, entity := range []string{"bob", "alice"} {
				check.Fatal(t, "Adjust()", acquire(t, l, entity).Adjust(zlimit.Amounts{"rpm": 1}))
			}
			check.Fatal(t, "Commit()", settled.Commit(t.Context()))
		}, []string{`entity "alice"`, `entity "bob"`}},
		"one of another namespace": {func(t *testing.T, _ *recording, l *zlimit.RateLimiter) {
			other, err := l.Namespace(t.Context(), "staging", zlimit.WithSetup(), zlimit.WithDefaultLimits(zlimit.PerMinute("rpm", 9)))
			check.Fatal(t, "Namespace()", err)
			t.Cleanup(func() { _ = other.Close() })
			acquire(t, other, "dave")
		}, []string{`entity "dave"`}},
		"committed and rolled back": {func(t *testing.T, _ *recording, l *zlimit.RateLimiter) {
			if err := errors.Join(acquire(t, l, "alice").Commit(t.Context()), acquire(t, l, "alice").Rollback(t.Context())); err != nil {
				t.Fatalf("Commit() and Rollback() = %v", err)
			}
		}, nil},
		"of Do, that ends in each way": {func(t *testing.T, _ *recording, l *zlimit.RateLimiter) {
			wrong := errors.New("wrong")
			for _, end := range []func(context.Context, *zlimit.Lease) error{
				func(context.Context, *zlimit.Lease) error { return nil },
				func(context.Context, *zlimit.Lease) error { return wrong },
				func(context.Context, *zlimit.Lease) error { panic(wrong) },
			} {
				func() {
					defer func() { _ = recover() }()
					if err := l.Do(t.Context(), ask("alice"), end); err != nil && !errors.Is(err, wrong) {
						t.Errorf("Do() = %v", err)
					}
				}()
			}
		}, nil},
		"on purpose": {func(t *testing.T, _ *recording, l *zlimit.RateLimiter) {
			acquire(t, l, "alice")
			zlimittest.IgnoreLeases(l)
			acquire(t, l, "bob")
		}, nil},
		"of a test that fails for another reason": {func(t *testing.T, r *recording, l *zlimit.RateLimiter) {
			acquire(t, l, "alice")
			r.Errorf("zlimittest: a lease is neither committed nor rolled back: other reason")
		}, []string{"other reason"}},
		"settled a moment later": {func(t *testing.T, _ *recording, l *zlimit.RateLimiter) {
			lease := acquire(t, l, "alice")
			go func() {
				time.Sleep(900 * time.Millisecond)
				_ = lease.Commit(context.Background())
			}()
		}, nil},
		"settled too late": {func(t *testing.T, _ *recording, l *zlimit.RateLimiter) {
			lease := acquire(t, l, "alice")
			go func() {
				time.Sleep(1100 * time.Millisecond)
				_ = lease.Commit(context.Background())
			}()
		}, []string{`entity "alice"`}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recording{TB: t}
				limiter, _ := zlimittest.New(r, zlimit.PerMinute("rpm", 9))
				test.do(t, r, limiter)
				got := r.end()
				if len(got) != len(test.want) {
					t.Fatalf("the test ends with %q, want %d errors", got, len(test.want))
				}
				for i, want := range test.want {
					if !strings.HasPrefix(got[i], "zlimittest: a lease is neither committed nor rolled back: "+want) {
						t.Errorf("error %d is %q, want one of %q", i, got[i], want)
					}
				}
				time.Sleep(time.Second) // for those that settle too late
			})
		})
	}
}

// TestForgottenLeasesTellTheirPlace names the line of the test, and not one of the limiter.
func TestForgottenLeasesTellTheirPlace(t *testing.T) {
	r := &recording{TB: t}
	limiter, _ := zlimittest.New(r, zlimit.PerMinute("rpm", 9))
	acquire(t, limiter, "alice")
	if got := r.end(); len(got) != 1 || !strings.Contains(got[0], "leases_test.go:") {
		t.Errorf("the test ends with %q, want the line that acquired", got)
	}
}

// TestLeasesOfOtherLimiters checks a limiter that the test has made itself.
func TestLeasesOfOtherLimiters(t *testing.T) {
	r := &recording{TB: t}
	limiter, err := zlimit.Open(t.Context(), "memory:", zlimit.WithDefaultLimits(zlimit.PerMinute("rpm", 9)), zlimittest.CheckLeases(r))
	check.Fatal(t, "zlimit.Open()", err)
	defer limiter.Close()
	acquire(t, limiter, "alice")
	if got := r.end(); len(got) != 1 || !strings.Contains(got[0], `"alice"`) {
		t.Errorf("the test ends with %q, want the lease of alice", got)
	}
}
