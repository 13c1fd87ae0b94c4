package protocol

import (
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
