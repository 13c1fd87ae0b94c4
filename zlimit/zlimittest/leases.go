package zlimittest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/door"
	"github.com/zlimit/zlimit-go/zlimit"
)

// grace is how long a test waits in its end for leases that other goroutines are about to settle.
const grace = time.Second

// CheckLeases makes a test fail that ends while leases of a limiter are neither committed nor rolled back. What was
// recorded on such a lease is lost, and a failure gave nothing back. The test says where each of them was acquired. It
// waits up to a second for those that other goroutines are about to settle.
//
// [New] calls it. A test that makes its limiter itself calls it before the first request, and closes the limiter in a
// cleanup of before. Leases of requests that were admitted uncounted, in an outage, are not checked, nor is anything once
// the test has failed. [IgnoreLeases] turns the check off.
func CheckLeases(tb testing.TB, limiter *zlimit.RateLimiter) {
	tb.Helper()
	l := &ledger{open: map[any]string{}}
	l.changed = sync.NewCond(&l.mu)
	door.WatchLeases(limiter, &door.LeaseWatcher{Opened: l.add, Settled: l.remove})
	ledgers.Store(limiter, l)
	tb.Cleanup(func() {
		tb.Helper()
		if _, checked := ledgers.LoadAndDelete(limiter); !checked || tb.Failed() {
			return
		}
		for _, lease := range l.left(grace) {
			tb.Errorf("zlimittest: a lease is neither committed nor rolled back: %s", lease)
		}
	})
}

// IgnoreLeases turns the check of [CheckLeases] off for a limiter, whose leases the test drops on purpose. An admission
// that needs no correction and is never given back may be dropped. A benchmark calls it too, since the check allocates.
func IgnoreLeases(limiter *zlimit.RateLimiter) {
	ledgers.Delete(limiter)
	door.WatchLeases(limiter, nil)
}

// ledgers are those of the limiters that are checked.
var ledgers sync.Map

// A ledger has the leases that are open, and who acquired what where.
type ledger struct {
	mu      sync.Mutex
	changed *sync.Cond
	open    map[any]string
}

func (l *ledger) add(lease any, entity, resource string) {
	text := fmt.Sprintf("entity %q, resource %q, acquired at %s", entity, resource, caller())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[lease] = text
}

func (l *ledger) remove(lease any) {
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
