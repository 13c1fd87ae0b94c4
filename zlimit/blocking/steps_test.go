package blocking

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// slow returns a list that waits before each element, as a store does: with a context made of its own.
func slow(waits ...time.Duration) func(context.Context) iter.Seq2[int, error] {
	return func(ctx context.Context) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i, wait := range waits {
				call, cancel := context.WithTimeout(ctx, time.Hour)
				select {
				case <-time.After(wait):
				case <-call.Done():
				}
				err := call.Err()
				cancel()
				if !yield(i, err) || err != nil {
					return
				}
			}
		}
	}
}

func TestSteps(t *testing.T) {
	const timeout = callTimeout(time.Second)
	almost, longer := time.Duration(timeout)-1, time.Duration(timeout)+1
	tests := []struct {
		name    string
		timeout callTimeout
		waits   []time.Duration
		body    time.Duration // what the loop spends on each element
		want    int           // elements
		ok      bool
	}{
		{"a list may take longer than a step", timeout, []time.Duration{almost, almost, almost}, 0, 3, true},
		{"the time of the body does not count", timeout, []time.Duration{almost, almost}, time.Hour, 2, true},
		{"the first step takes too long", timeout, []time.Duration{longer, 0}, 0, 0, false},
		{"a later step takes too long", timeout, []time.Duration{0, almost, longer, 0}, time.Minute, 2, false},
		{"no timeout", 0, []time.Duration{time.Minute, time.Minute}, 0, 2, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, last := 0, error(nil)
				for _, err := range steps(test.timeout, slow(test.waits...)) {
					if last = err; err == nil {
						got++
					}
					time.Sleep(test.body)
				}
				if got != test.want || (last == nil) != test.ok {
					t.Errorf("steps yields %d elements and ends with %v, want %d", got, last, test.want)
				}
				if last != nil && (!errors.Is(last, context.DeadlineExceeded) || errors.Is(last, context.Canceled)) {
					t.Errorf("steps ends with %v, want the deadline's error", last)
				}
			})
		})
	}
}

func TestCollect(t *testing.T) {
	got, err := collect(slow(0, 0)(t.Context()))
	if err != nil || !slices.Equal(got, []int{0, 1}) {
		t.Errorf("collect() = %v, %v; want 0 and 1", got, err)
	}
	failed := errors.New("failed")
	got, err = collect(func(yield func(int, error) bool) { _ = yield(0, nil) && yield(0, failed) })
	if got != nil || !errors.Is(err, failed) {
		t.Errorf("collect() of a list that fails = %v, %v; want the error alone", got, err)
	}
}

// TestStepsEnd looks for what a loop leaves behind: the bubble waits for goroutines, and the context must have ended.
func TestStepsEnd(t *testing.T) {
	for name, leave := range map[string]func(iter.Seq2[int, error]){
		"to the end": func(list iter.Seq2[int, error]) {
			for range list {
			}
		},
		"break": func(list iter.Seq2[int, error]) {
			for range list {
				break
			}
		},
		"panic": func(list iter.Seq2[int, error]) {
			defer func() { _ = recover() }()
			for range list {
				panic("in the body")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ended func() error
				leave(steps(callTimeout(time.Second), func(ctx context.Context) iter.Seq2[int, error] {
					ended = ctx.Err
					return slow(0, 0)(ctx)
				}))
				if ended() == nil {
					t.Error("the context goes on after the loop")
				}
			})
		})
	}
}

// TestStepContext makes contexts of one whose deadline moves.
func TestStepContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := newStepContext()
		child, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		gone, leave := context.WithCancel(ctx)
		leave()
		if ctx.Err() != nil || child.Err() != nil {
			t.Fatalf("the contexts have ended: %v, %v", ctx.Err(), child.Err())
		}
		ctx.expire()
		<-child.Done()
		for name, err := range map[string]error{
			"the context": ctx.Err(), "one made of it": child.Err(), "its cause": context.Cause(child),
		} {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s ends with %v, want the deadline's error", name, err)
			}
		}
		if err := gone.Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("a context that was cancelled before ends with %v", err)
		}
	})
}
