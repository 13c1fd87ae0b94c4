package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A slotProcess is a process with a limiter of its own, on a network of its own to a store that all of them share.
type slotProcess struct {
	store.Store
	fleet   *slotFleet
	limiter *zlimit.RateLimiter
	skew    time.Duration // of its clock
	dead    atomic.Bool   // it was killed: nothing of it reaches the store any more
	cut     atomic.Bool   // from the network
	open    atomic.Bool   // its limiter is, and its calls may fail from now on
}

// A slotFleet are processes that hold slots, in virtual time, and an outside observer that counts who is at work.
type slotFleet struct {
	tb    testing.TB
	store store.Store
	slots int64
	term  time.Duration
	lost  float64        // of replies, and as many of calls, and of those that come late
	ask   zlimit.Request // of its processes
	delay time.Duration  // of a message, at most

	late sync.WaitGroup // calls that no one waits for

	mu       sync.Mutex // guards what follows
	random   *rand.Rand
	working  map[*zlimit.Lease]*slotProcess
	over     int // admissions beyond the slots
	admitted int
	failed   int
}

func newSlotFleet(tb testing.TB, seed uint64, n int64) *slotFleet {
	s := check.Call(memory.New(layout.Table)).Must(tb, "memory.New()")
	return &slotFleet{
		tb: tb, store: s, slots: n, term: 10 * time.Second, ask: oneSlot, random: rand.New(rand.NewPCG(seed, 1)), working: map[*zlimit.Lease]*slotProcess{},
	}
}

func (f *slotFleet) float() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.Float64()
}

// between returns a random time.
func (f *slotFleet) between(least, most time.Duration) time.Duration {
	return least + time.Duration(f.float()*float64(most-least))
}

// start starts a process.
func (f *slotFleet) start(skew time.Duration) *slotProcess {
	p := &slotProcess{Store: f.store, fleet: f, skew: skew}
	var err error
	p.limiter, err = zlimit.New(context.Background(), zlimit.StoreOn(p), zlimit.WithSetup(), zlimit.WithListing(false), zlimit.WithRejectionCache(0),
		zlimit.WithCallTimeout(2*time.Second), zlimit.WithConfigTTL(time.Hour), zlimit.WithClock(func() time.Time { return time.Now().Add(p.skew) }))
	check.Fatal(f.tb, "zlimit.New()", err)
	p.open.Store(true)
	return p
}

// end ends a process in good order.
func (p *slotProcess) end() { check.Error(p.fleet.tb, "Close()", p.limiter.Close()) }

// travel sends a call to the store and back. The reply may be lost, and so may the call, which may also come late, when no one waits for it
// any more.
func (p *slotProcess) travel(ctx context.Context, call func() error, late func()) error {
	f := p.fleet
	gone := func(unknown bool) error {
		return &store.Error{Op: "call", Unavailable: true, Unknown: unknown, Err: errors.New("connection reset")}
	}
	if !p.open.Load() {
		return call()
	}
	time.Sleep(f.between(0, f.delay))
	if p.dead.Load() || p.cut.Load() {
		return gone(false)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.float() < f.lost {
		if f.float() < 0.5 {
			f.late.Go(func() {
				time.Sleep(f.between(0, 3*f.term))
				late()
			})
		}
		return gone(true)
	}
	err := call()
	time.Sleep(f.between(0, f.delay))
	if p.dead.Load() || p.cut.Load() || f.float() < f.lost {
		return gone(true)
	}
	return err
}

func (p *slotProcess) Write(ctx context.Context, w store.Write) (r store.Result, err error) {
	err = p.travel(ctx, func() (err error) {
		r, err = p.Store.Write(ctx, w)
		return err
	}, func() { _, _ = p.Store.Write(context.WithoutCancel(ctx), w) })
	return r, err
}

func (p *slotProcess) Read(ctx context.Context, keys []store.Key, consistent bool) (items []expr.Item, err error) {
	err = p.travel(ctx, func() (err error) {
		items, err = p.Store.Read(ctx, keys, consistent)
		return err
	}, func() {})
	if failed, ok := errors.AsType[*store.Error](err); ok {
		failed.Unknown = false
	}
	return items, err
}

// acquire takes slots, and counts those at work.
func (p *slotProcess) acquire() *zlimit.Lease {
	f := p.fleet
	lease, err := p.limiter.Acquire(context.Background(), f.ask)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || p.dead.Load() {
		f.failed++
		return nil
	}
	f.admitted++
	f.working[lease] = p
	at := int64(0)
	for lease, of := range f.working {
		if of.dead.Load() || isLost(lease) {
			delete(f.working, lease)
			continue
		}
		at++
	}
	if at > f.slots {
		f.over++
	}
	return lease
}

// release ends the work of a lease.
func (p *slotProcess) release(lease *zlimit.Lease) {
	p.fleet.mu.Lock()
	delete(p.fleet.working, lease)
	p.fleet.mu.Unlock()
	if p.fleet.float() < 0.5 {
		_ = lease.Rollback(context.Background()) // the tokens go back by the same write
		return
	}
	_ = lease.Commit(context.Background()) // a reply may be lost
}

// work takes slots and gives them back, until a time.
func (p *slotProcess) work(until time.Time) {
	f := p.fleet
	for time.Now().Before(until) && !p.dead.Load() {
		time.Sleep(f.between(f.term/20, f.term/2))
		lease := p.acquire()
		if lease == nil {
			continue
		}
		select {
		case <-lease.Lost():
		case <-time.After(f.between(0, f.term)):
		}
		if f.float() < 0.9 { // else it is forgotten until the process ends
			p.release(lease)
		} else {
			select {
			case <-lease.Lost():
			case <-time.After(f.between(0, 6*f.term)):
			}
			p.release(lease)
		}
	}
}

// In TestSlotsOfAFleet, processes take slots and give them back, alone or beside tokens. Their clocks differ, their
// networks lose calls and replies, and some processes are killed or cut off. An outside observer never sees more at
// work than there are slots.
func TestSlotsOfAFleet(t *testing.T) {
	seeds := soak.Pick[uint64](12, 40) // of every combination of what fails
	admitted, failed := 0, 0
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := runSlotFleet(t, seed, 0.095)
				if f.over > 0 {
					t.Errorf("%d of %d admissions are beyond the %d slots", f.over, f.admitted, f.slots)
				}
				admitted, failed = admitted+f.admitted, failed+f.failed
			})
		})
	}
	t.Logf("%d admitted, %d not", admitted, failed)
	if admitted < 50*int(seeds) || failed < int(seeds) {
		t.Errorf("%d admitted, %d not: the processes hardly compete", admitted, failed)
	}
}

// runSlotFleet runs processes whose clocks are off by up to a part of the term.
func runSlotFleet(t *testing.T, seed uint64, skew float64) *slotFleet {
	f := newSlotFleet(t, seed, int64(1+seed%4))
	setup := f.start(0)
	slots(t, setup.limiter, f.slots, zlimit.PerDay("rpd", 1_000_000))
	setup.end()
	if seed%2 == 1 {
		f.ask = ask(zlimit.Amounts{"slots": 1, "rpd": 3})
	}
	f.lost, f.delay = []float64{0, 0.05, 0.2}[seed%3], []time.Duration{20 * time.Millisecond, f.term / 10}[seed/3%2]
	until := time.Now().Add(40 * f.term)
	var group sync.WaitGroup
	for i := range 5 {
		group.Go(func() {
			for time.Now().Before(until) {
				sign := []float64{1, -1, 0, 0.5, -0.5}[i]
				p := f.start(time.Duration(sign * skew * float64(f.term)))
				ends := time.Now().Add(f.between(3*f.term, 30*f.term))
				var workers sync.WaitGroup
				for range 2 {
					workers.Go(func() { p.work(minTime(ends.Add(f.term), until)) })
				}
				if f.float() < 0.5 {
					time.Sleep(f.between(0, 3*f.term))
					p.cut.Store(true)
					time.Sleep(f.between(0, 4*f.term))
					p.cut.Store(false)
				}
				time.Sleep(time.Until(minTime(ends, until)))
				p.dead.Store(f.float() < 0.7)
				workers.Wait()
				p.end()
			}
		})
	}
	group.Wait()
	f.late.Wait()
	return f
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
