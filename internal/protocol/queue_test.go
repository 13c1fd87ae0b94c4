package protocol

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPlaces has requests join a queue in any order, as those do that begin anew: they are served in the order in which
// they came.
func TestPlaces(t *testing.T) {
	for range 100 {
		q := writeQueue{serving: true}
		order := rand.Perm(20)
		for _, began := range order {
			if !q.join(&waiter{queue: &q, level: &level{began: int64(began)}}, 8) {
				t.Fatal("join() = false while others are served")
			}
		}
		var served []int
		for _, w := range q.takeWaiting() {
			served = append(served, int(w.began()))
		}
		if want := slices.Sorted(slices.Values(order)); !slices.Equal(served, want) {
			t.Fatalf("%v are served as %v", order, served)
		}
	}
}

// TestOwnWrites lets callers begin and end writes of their own, and others wait.
func TestOwnWrites(t *testing.T) {
	var q writeQueue
	for range 3 {
		if !q.begin(3) {
			t.Fatal("begin() = false, want three writes at once")
		}
	}
	if q.begin(3) {
		t.Error("begin() of a fourth write = true")
	}
	wait := func(callers int) {
		t.Helper()
		for range callers {
			if !q.join(&waiter{queue: &q, level: new(level)}, 3) {
				t.Fatal("join() = false")
			}
		}
	}
	wait(2)
	if got := q.end(); len(got) != 2 || q.begin(3) {
		t.Errorf("end() serves %d, want 2, and nobody else begins meanwhile", len(got))
	}
	wait(crowd)
	if got := q.end(); got != nil {
		t.Errorf("end() serves %d while others are served", len(got))
	}
	if got := q.takeWaiting(); len(got) != crowd || !q.crowded {
		t.Errorf("takeWaiting() = %d callers, want a crowd of %d", len(got), crowd)
	}
	if q.end(); q.takeWaiting() != nil || q.serving || q.alone != 0 {
		t.Errorf("the queue is not idle: %+v", &q)
	}
	if !q.begin(3) || q.begin(3) {
		t.Error("after a crowd there is one write at once")
	}
}

// TestNarrow has other processes come first before each write of a batch, and leave room for all but two of those that try.
// After three writes it ends, though more would fit: whoever came meanwhile is not to wait for ever.
func TestNarrow(t *testing.T) {
	all := make([]*waiter, 20)
	for i := range all {
		all[i] = new(waiter)
	}
	for _, test := range []struct {
		name               string
		room               int // for so many it is enough, whoever comes first
		leaves             int // that fit less each time
		writes, last, shut int
		err                error
	}{
		{"all fit", 20, 2, 1, 20, 0, nil},
		{"the first that fit", 18, 2, 2, 18, 2, nil},
		{"another process comes first once", 16, 2, 3, 16, 4, nil},
		{"another process comes first each time", 2, 2, 3, 16, 4, errShort},
		{"none fit", 2, 20, 1, 20, 0, errShort},
		{"one is left", 0, 19, 2, 1, 19, errShort},
	} {
		writes := 0
		last, short, err := narrow(all, func(w []*waiter) error {
			writes++
			if len(w) > test.room {
				return errShort
			}
			return nil
		}, func(w []*waiter) (fit, rest []*waiter) {
			return w[:len(w)-test.leaves], w[len(w)-test.leaves:]
		})
		if writes != test.writes || len(last) != test.last || len(short) != test.shut || !errors.Is(err, test.err) {
			t.Errorf("%s: %d writes, the last for %d, %d left out, %v; want %d, %d, %d, %v",
				test.name, writes, len(last), len(short), err, test.writes, test.last, test.shut, test.err)
		}
		if !slices.Equal(last, all[:test.last]) {
			t.Errorf("%s: the last write is not for those that came first", test.name)
		}
	}
}
