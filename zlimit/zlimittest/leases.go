package zlimittest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/zlimit"
)

// grace is how long a test waits in its end for leases that other goroutines are about to settle.
const grace = time.Second

// CheckLeases returns the option of a limiter that fails a test with open leases: at its end, some are neither
// committed nor rolled back. Records on such a lease are lost, and a failure gave nothing back. The test says where
// each of them was acquired. It waits up to a second for those that other goroutines are about to settle.
//
// Limiters of [New] have the option. A test that makes its limiter itself gives it to [zlimit.Open] or [zlimit.New]. Leases of
// requests that were admitted uncounted, in an outage, are not checked, nor is anything once the test has failed.
func CheckLeases(tb testing.TB) zlimit.Option {
	tb.Helper()
	l := newLedger()
	l.checkAfter(tb)
	return zlimit.WithHooks(hooks.Limiter{Leases: l})
}

// IgnoreLeases turns the check of [CheckLeases] off for a limiter of [New], whose leases the test drops on purpose. An admission
// that needs no correction and is never given back may be dropped. A benchmark calls it too, since the check allocates.
func IgnoreLeases(limiter *zlimit.RateLimiter) {
	if l, ok := ledgers.Load(limiter); ok {
		l.(*ledger).ignored.Store(true)
	}
}

// ledgers holds the ledger of each limiter of New, while its test runs.
var ledgers sync.Map

// A ledger has the open leases, with the places where they were acquired.
type ledger struct {
	ignored atomic.Bool
	mu      sync.Mutex
	changed *sync.Cond
	open    map[any]string
}

func newLedger() *ledger {
	l := &ledger{open: map[any]string{}}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// checkAfter checks the leases when the test ends.
func (l *ledger) checkAfter(tb testing.TB) {
	tb.Cleanup(func() {
		tb.Helper()
		if l.ignored.Load() || tb.Failed() {
			return
		}
		for _, lease := range l.left(grace) {
			tb.Errorf("zlimittest: a lease is neither committed nor rolled back: %s", lease)
		}
	})
}

// Opened implements [hooks.LeaseWatcher].
func (l *ledger) Opened(lease any, entity, resource string) {
	if l.ignored.Load() {
		return
	}
	text := fmt.Sprintf("entity %q, resource %q, acquired at %s", entity, resource, caller())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[lease] = text
}

// Settled implements [hooks.LeaseWatcher].
func (l *ledger) Settled(lease any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, lease)
	l.changed.Broadcast()
}

// left returns the leases that are open after so long, in the order of their texts.
func (l *ledger) left(after time.Duration) []string {
	expired := false
	timer := time.AfterFunc(after, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		expired = true
		l.changed.Broadcast()
	})
	defer timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.open) > 0 && !expired {
		l.changed.Wait()
	}
	var left []string
	for _, text := range l.open {
		left = append(left, text)
	}
	slices.Sort(left)
	return left
}

// module is the path with which the packages of this module begin.
const module = "github.com/zlimit/zlimit-go/zlimit"

// caller returns the file and line that called the limiter.
func caller() string {
	var space [32]uintptr
	frames := runtime.CallersFrames(space[:runtime.Callers(2, space[:])])
	for {
		frame, more := frames.Next()
		of := strings.TrimPrefix(frame.Function, module)
		inside := len(of) < len(frame.Function) && (of[0] == '.' || strings.HasPrefix(of, "/blocking.") || strings.HasPrefix(of, "/zlimittest."))
		if !inside || !more {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
	}
}
