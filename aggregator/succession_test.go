package aggregator

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A succession is aggregators of one store, one after another. Each is fed all that it does twice.
type succession struct {
	t       *testing.T
	store   zlimit.Store
	name    string        // of all of them; "" for one of its own each
	term    time.Duration // of leases; 0 for the default
	poll    time.Duration // 0 for the default
	running sync.WaitGroup

	mu   sync.Mutex
	rand *rand.Rand // cuts the batches
}

// newRand returns a source of random numbers whose seed is logged.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// A death is the write of an aggregator, or of its leases, at which it ends; the first is 1, and 0 is none.
type death struct {
	write int
	done  bool // the write is done, but its reply is lost
}

// start runs aggregators, the n-th up to a death, until stop is called, which waits for all and returns how many have died.
func (s *succession) start(end func(n int) death) (stop func() int) {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(s.running.Wait)
	next := func(n int) death {
		s.mu.Lock() // one that died may still draw
		defer s.mu.Unlock()
		return end(n)
	}
	died := 0
	s.running.Go(func() {
		for s.live(ctx, next(died+1)) {
			died++
		}
	})
	return func() int {
		cancel()
		s.running.Wait()
		return died
	}
}

// live runs an aggregator until ctx ends or it dies, and reports whether it died. A dead one may go on for a while, but
// none of its writes arrive.
func (s *succession) live(ctx context.Context, end death) bool {
	a, err := New(s.store, WithName(s.name), WithPoll(s.poll))
	if err != nil {
		s.t.Errorf("New() = %v", err)
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	dead, stopped := make(chan struct{}), make(chan struct{})
	f := inject(a, func(n int) (bool, error) {
		switch {
		case end.write == 0 || n < end.write:
			return false, nil
		case n > end.write:
			return false, errDown
		}
		close(dead)
		cancel()
		return end.done, errDown
	})
	a.consumer.Leases = faultyLeases{a.consumer.Leases, f}
	a.consumer.Apply = s.twice(a.consumer.Apply)
	if s.term > 0 {
		a.consumer.Term = s.term
	}
	s.running.Go(func() {
		defer close(stopped)
		defer cancel()
		check.Error(s.t, "Run()", a.Run(ctx))
	})
	select {
	case <-dead:
	case <-stopped:
	}
	select {
	case <-dead:
		return true
	default:
		return false
	}
}

// twice applies batches in pieces, and then once more in others, together with some that came before.
func (s *succession) twice(apply stream.Apply) stream.Apply {
	var before []store.Change
	return func(ctx context.Context, batch []store.Change) []error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if errs := s.cut(ctx, apply, batch); errs != nil {
			return errs
		}
		from := len(before) - s.rand.IntN(min(len(before), 100)+1)
		before = append(before, batch...)
		if errs := s.cut(ctx, apply, before[from:]); errs != nil {
			return errs[len(errs)-len(batch):]
		}
		return nil
	}
}

// cut applies changes in pieces, up to the first that fails.
func (s *succession) cut(ctx context.Context, apply stream.Apply, changes []store.Change) []error {
	for done := 0; done < len(changes); {
		n := 1 + s.rand.IntN(len(changes)-done)
		if errs := apply(ctx, changes[done:done+n]); errs != nil {
			rest := slices.Repeat([]error{errDown}, len(changes)-done-n)
			return slices.Concat(make([]error, done), errs, rest)
		}
		done += n
	}
	return nil
}

// faultyLeases are leases whose writes go wrong with those of a store.
type faultyLeases struct {
	stream.Leases
	f *faulty
}

func (l faultyLeases) Save(ctx context.Context, next stream.Lease) (found stream.Lease, saved bool, err error) {
	err = l.f.attempt(func() (err error) {
		found, saved, err = l.Leases.Save(ctx, next)
		return err
	})
	if err != nil {
		return stream.Lease{}, false, err
	}
	return found, saved, nil
}
