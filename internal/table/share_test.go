package table

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A slow store answers a read in a time of its own.
type slow struct {
	store.Store
	takes time.Duration
}

func (*slow) Partitioned() bool { return true }

func (s *slow) Read(ctx context.Context, _ []store.Key, _ bool) ([]expr.Item, error) {
	select {
	case <-time.After(s.takes):
		return nil, nil
	case <-ctx.Done():
		return nil, &store.Error{Op: "read", Unavailable: true, Err: ctx.Err()}
	}
}

// TestLate checks when calls are late, by how long others took.
func TestLate(t *testing.T) {
	const timeout = 2 * time.Second
	for _, test := range []struct {
		name        string
		took        []time.Duration
		least, most time.Duration
	}{
		{"before the first one", nil, timeout / 10, timeout / 10},
		{"fast ones", []time.Duration{5e6, 7e6, 4e6}, timeout / 10, timeout / 10},
		{"the first one of a store that became slow", []time.Duration{5e6, 5e6, 5e6, 400e6}, 400e6, 600e6},
		{"slow ones, all alike", repeated(300e6, 100), 300e6, 320e6},
		{"very slow ones", repeated(1900e6, 10), timeout / 2, timeout / 2},
		{"fast ones again", append(repeated(500e6, 10), repeated(5e6, 30)...), timeout / 10, timeout / 10},
	} {
		s := New(nil, Options{Timeout: timeout}).Sharing()
		for _, d := range test.took {
			s.Took(d)
		}
		if got := s.Late(); got < test.least || got > test.most {
			t.Errorf("%s: late after %v, want %v to %v", test.name, got, test.least, test.most)
		}
	}
}

func repeated(d time.Duration, times int) []time.Duration {
	all := make([]time.Duration, times)
	for i := range all {
		all[i] = d
	}
	return all
}

// begin begins a read in a goroutine of its own.
func begin(t *Table, w *Sharer) *Shared {
	c := w.Shared()
	w.Begins(c)
	run := *w
	go func() {
		run.Run(context.Background(), c, func(ctx context.Context) error {
			_, err := t.Read(ctx, store.Key{})
			return err
		})
		c.End()
	}()
	return c
}

// TestAwait waits for calls with different ends.
func TestAwait(t *testing.T) {
	const timeout = time.Second
	throttled := &store.Error{Unavailable: true, Throttled: true}
	for _, test := range []struct {
		name      string
		err       error // of the call, after 10ms
		done, own bool
		failure   error
		passes    bool // calls of others, from then on
	}{
		{"a call that succeeds", nil, true, false, nil, false},
		{"an outage of another", &store.Error{Unavailable: true}, false, false, nil, true},
		{"an outage of the caller's own", errSilent, true, true, errSilent, false},
		{"a throttle of another", throttled, true, false, throttled, false},
		{"a refusal of another", store.ErrTableNotFound, true, false, store.ErrTableNotFound, false},
		{"a call whose context ended", context.Canceled, false, false, nil, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := New(nil, Options{Timeout: timeout}).Sharing()
			c, w := s.Shared(), s.Sharer()
			if test.own {
				w.Begins(c)
			}
			other := s.Sharer()
			go func() {
				other.Run(t.Context(), c, func(context.Context) error {
					time.Sleep(10 * time.Millisecond)
					return test.err
				})
				c.End()
			}()
			done, err := w.Await(t.Context(), c)
			if done != test.done || !errors.Is(err, test.failure) || test.failure == nil && err != nil {
				t.Errorf("%s: Await() = %t, %v; want %t, %v", test.name, done, err, test.done, test.failure)
			}
			if got := w.Passes(s.Shared()); got != test.passes {
				t.Errorf("%s: Passes() = %t, want %t", test.name, got, test.passes)
			}
		})
	}
}

// In TestWaitingForSilentCalls, a caller makes calls that are not answered, one after another as they are late. All of them together
// take the call timeout, and the calls that it began last are cut off then.
func TestWaitingForSilentCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = time.Second
		table := New(&slow{takes: time.Hour}, Options{Timeout: timeout})
		w, began, calls := table.Sharing().Sharer(), time.Now(), 0
		var err error
		for err == nil {
			c := begin(table, &w)
			calls++
			_, err = w.Await(t.Context(), c)
		}
		if store.OutcomeOf(err) != store.Unavailable || time.Since(began) != timeout || calls != soonestPart {
			t.Errorf("%v after %v and %d calls, want an outage after %v and %d", err, time.Since(began), calls, timeout, soonestPart)
		}
		synctest.Wait()
		time.Sleep(timeout / soonestPart)
	})
}

// In TestTheGateIsNotLate, calls wait at a gate for longer than the call timeout. None was sent, and none is late.
func TestTheGateIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, callers = time.Second, 30
		table := New(&slow{takes: timeout / 11}, Options{Timeout: timeout, Gate: store.NewGate(1, nil)})
		var all sync.WaitGroup
		calls := table.Sharing()
		for range callers {
			all.Go(func() {
				w := calls.Sharer()
				if done, err := w.Await(t.Context(), begin(table, &w)); !done || err != nil {
					t.Errorf("Await() = %t, %v", done, err)
				}
			})
		}
		began := time.Now()
		all.Wait()
		if took := time.Since(began); took < 2*timeout {
			t.Errorf("the calls took %v, less than the test wants", took)
		}
	})
}

// A busy store answers a read by throttles, each of them in a time of its own, before it answers it in full.
type busy struct {
	slow
	throttles int
}

func (b *busy) Read(ctx context.Context, keys []store.Key, consistent bool) (items []expr.Item, err error) {
	for range b.throttles {
		if _, err := b.slow.Read(ctx, keys, consistent); err != nil {
			return nil, err
		}
		store.NoteSent(ctx)
	}
	return b.slow.Read(ctx, keys, consistent)
}

// In TestThrottledCallIsNotLate, a store throttles a call for longer than a call may be silent. It answers all the while, and no
// caller makes another. Nor do such calls move the time after which others are late.
func TestThrottledCallIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		table := New(&busy{slow{takes: timeout / 20}, 6}, Options{Timeout: timeout})
		w := table.Sharing().Sharer()
		c := begin(table, &w)
		synctest.Wait()
		other := w.Sharer()
		time.Sleep(timeout / 4)
		if other.Passes(c) {
			t.Error("a call that the store throttles is passed")
		}
		if done, err := w.Await(t.Context(), c); !done || err != nil {
			t.Errorf("Await() = %t, %v; want the call", done, err)
		}
		if got := w.Late(); got > timeout/5 {
			t.Errorf("after a throttled call others are late after %v", got)
		}
	})
}

// In TestLeavingASharedCall, a caller's context ends while a call is held back, or while it is under way.
func TestLeavingASharedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(&slow{takes: time.Second}, Options{Timeout: time.Minute})
		w := table.Sharing().Sharer()
		for name, c := range map[string]*Shared{"held back": w.Shared(), "under way": begin(table, &w)} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if done, err := w.Await(ctx, c); done || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: Await() = %t, %v; want %v", name, done, err, context.DeadlineExceeded)
			}
			cancel()
		}
		time.Sleep(time.Second)
	})
}

// In TestLateCallServesOthers, a call is late, and others begin in its place, none of which is answered. When the first one is, a
// caller that waits for any of them looks again immediately, and once. A late call that fails wakes no caller.
func TestLateCallServesOthers(t *testing.T) {
	for _, failure := range []error{nil, &store.Error{Unavailable: true}} {
		for places := 1; places <= 3; places++ {
			synctest.Test(t, func(t *testing.T) {
				const timeout = 10 * time.Second
				s := New(nil, Options{Timeout: timeout}).Sharing()
				calls := []*Shared{s.Shared()}
				for range places {
					last := calls[len(calls)-1]
					last.Sent()
					time.Sleep(s.Late())
					next, w := s.Shared(), s.Sharer()
					if !w.Passes(last) {
						t.Fatal("a late call is not passed")
					}
					w.Begins(next)
					calls = append(calls, next)
				}
				last, w := calls[places], s.Sharer()
				last.Sent()
				from, after := time.Now(), s.Late()/2
				time.AfterFunc(after, func() {
					calls[0].err = failure
					calls[0].End()
				})
				wait := func() time.Duration {
					if done, err := w.Await(t.Context(), last); done || err != nil {
						t.Errorf("Await() = %t, %v; want false, and no error", done, err)
					}
					return time.Since(from)
				}
				if failure == nil {
					if took := wait(); took != after {
						t.Errorf("%d calls later: the waiter looks again after %v, want %v", places, took, after)
					}
				}
				if took := wait(); took != s.Late() {
					t.Errorf("%d calls later: the waiter waits %v for the call itself, want %v", places, took, s.Late())
				}
			})
		}
	}
}
