package zlimit_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// newSharing returns a limiter with options that knows the usual bucket of 100 tokens a day, of which one is taken.
func newSharing(t *testing.T, opts ...zlimit.Option) (l, other *zlimit.RateLimiter, g *gate) {
	t.Helper()
	s, c := newMemory(t), newClock()
	g = &gate{Store: store.Of(s)}
	l = newLimiter(t, zlimit.StoreOn(g), append(opts, zlimit.WithClock(c.now), zlimit.WithCallTimeout(time.Minute))...) // no write is late while the gate is closed
	other = newLimiter(t, s, zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerDay("rpd", 100))
	acquire(t, l, ask(zlimit.Amounts{"rpd": 1}))
	return l, other, g
}

// Arrivals are requests that come one after the other, none of which is answered before the gate opens.
type arrivals struct {
	t       *testing.T
	l       *zlimit.RateLimiter
	g       *gate
	open    func()
	writes  int64
	group   sync.WaitGroup
	outcome []*error
}

func newArrivals(t *testing.T, l *zlimit.RateLimiter, g *gate) *arrivals {
	return &arrivals{t: t, l: l, g: g, open: g.close(), writes: g.writes.Load()}
}

// come sends a request of so many tokens, and returns when that has sent its write, or waits to share one.
func (c *arrivals) come(tokens int64) {
	before := c.underWay()
	outcome := new(error)
	c.outcome = append(c.outcome, outcome)
	c.group.Go(func() {
		_, *outcome = c.l.Acquire(context.Background(), ask(zlimit.Amounts{"rpd": tokens}))
	})
	for c.underWay() == before {
		runtime.Gosched()
	}
}

func (c *arrivals) underWay() int {
	return int(c.g.writes.Load()-c.writes) + waitingFor(c.l, "key-1")()
}

// end opens the gate, and returns which requests were admitted, and the number of writes.
func (c *arrivals) end() (admitted []bool, writes int) {
	c.open()
	c.group.Wait()
	for at, outcome := range c.outcome {
		err := *outcome
		if err != nil && !errors.As(err, new(*zlimit.ExceededError)) {
			c.t.Errorf("request %d: Acquire() = %v", at, err)
		}
		admitted = append(admitted, err == nil)
	}
	return admitted, int(c.g.writes.Load() - c.writes)
}

// TestSharing sends 50 requests at the same time. By default eight have writes of their own and the others share
// one; the options share all but the first, and none. After a crowd one write at a time is enough, until it has
// gone.
func TestSharing(t *testing.T) {
	for _, test := range []struct {
		name  string
		opts  []zlimit.Option
		alone int
	}{
		{"by default", nil, 8},
		{"early", []zlimit.Option{zlimit.WithCoalescing()}, 1},
		{"never", []zlimit.Option{zlimit.WithoutCoalescing()}, 50},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, _, g := newSharing(t, test.opts...)
			c := newArrivals(t, l, g)
			for range 50 {
				c.come(1)
			}
			if got := waitingFor(l, "key-1")(); got != 50-test.alone {
				t.Errorf("%d requests wait, want %d", got, 50-test.alone)
			}
			if _, writes := c.end(); writes != min(test.alone+1, 50) {
				t.Errorf("%d writes, want %d alone and one that is shared", writes, test.alone)
			}
			if test.alone == 50 {
				return
			}
			for round, waits := range []int{6, min(7-test.alone, 6)} { // of a crowd that has gone, and when that is known
				c := newArrivals(t, l, g)
				for range 7 {
					c.come(1)
				}
				if got := waitingFor(l, "key-1")(); got != max(waits, 0) && test.alone > 1 {
					t.Errorf("round %d after the crowd: %d of 7 requests wait, want %d", round, got, max(waits, 0))
				}
				c.end()
			}
			if got := available(t, l, "rpd"); got != 100-1-50-14 {
				t.Errorf("%d are left, want 35", got)
			}
		})
	}
}

// TestMemorySharesNothing checks that there is no queue if a write is done immediately.
func TestMemorySharesNothing(t *testing.T) {
	for want, opts := range map[int][]zlimit.Option{0: nil, 1: {zlimit.WithCoalescing()}} {
		if got := newLimiter(t, newMemory(t), opts...).WritesAtOnce(); got != want {
			t.Errorf("writes at once = %d, want %d", got, want)
		}
	}
}

// TestLargeRequestsAreNotPassed lets a large request wait before small ones that fit and ones that do not.
func TestLargeRequestsAreNotPassed(t *testing.T) {
	l, _, g := newSharing(t, zlimit.WithCoalescing())
	acquire(t, l, ask(zlimit.Amounts{"rpd": 48})) // 51 are left
	c := newArrivals(t, l, g)
	for _, tokens := range []int64{1, 40, 3, 9, 2, 9, 5} {
		c.come(tokens)
	}
	admitted, writes := c.end()
	for at, want := range []bool{true, true, true, false, true, false, true} {
		if admitted[at] != want {
			t.Errorf("request %d: admitted %v, want %v", at, admitted[at], want)
		}
	}
	if writes > 3 {
		t.Errorf("%d writes, want the one ahead, and two at most", writes)
	}
	if got := available(t, l, "rpd"); got != 0 {
		t.Errorf("%d are left, want none", got)
	}
}

// TestBatchesThatDoNotFit lets another process come first before each write of a batch. After two more writes the
// requests are decided by what the last one showed.
func TestBatchesThatDoNotFit(t *testing.T) {
	l, other, g := newSharing(t, zlimit.WithCoalescing())
	c := newArrivals(t, l, g)
	for range 41 { // 99 are left, of which 98 when they write
		c.come(2)
	}
	var steals atomic.Int64
	takes := []int64{37, 20, 40} // 61, 41 and 1 are left when 80, 60 and 40 are asked for
	var steal func() *store.Error
	steal = func() *store.Error {
		if at := int(steals.Add(1)) - 1; at < len(takes) {
			acquire(t, other, ask(zlimit.Amounts{"rpd": takes[at]}))
			g.next.Store(&steal)
		}
		return nil
	}
	g.next.Store(&steal)
	admitted, writes := c.end()
	for at, ok := range admitted {
		if ok != (at == 0) {
			t.Errorf("request %d: admitted %v, want the first one alone", at, ok)
		}
	}
	if writes != 4 || steals.Load() != 3 {
		t.Errorf("%d writes, and another process came first %d times, want the one ahead and three, and 3 times", writes, steals.Load())
	}
}
