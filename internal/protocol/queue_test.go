package protocol

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// itemsFor returns what a queue asks: how many writes of callers by themselves may be under way at once.
func itemsFor(writesAtOnce int) *items {
	return &items{
		table: table.New(nil, table.Options{IntN: noChance}), options: Options{WritesAtOnce: writesAtOnce}, started: time.Now(),
	}
}

// busyBucket returns a bucket that other processes write often.
func busyBucket() *Bucket {
	b := newBucket("ns", "hot", "model")
	b.shard(0).traffic.tally = tally{known: true, others: 1000, span: 1000}
	return b
}

// TestPlaces has requests join a queue in any order, as those do that begin anew: they are served in the order in which
// they came.
func TestPlaces(t *testing.T) {
	it := itemsFor(8)
	for range 100 {
		q := newQueue(busyBucket(), false)
		q.serving = true
		order := rand.Perm(20)
		for _, began := range order {
			if got := q.join(it, &waiter{queue: &q, level: &level{began: int64(began)}}); got != toWait {
				t.Fatalf("join() = %d while others are served, want %d", got, toWait)
			}
		}
		var served []int
		for _, w := range q.claim() {
			served = append(served, int(w.began()))
		}
		if want := slices.Sorted(slices.Values(order)); !slices.Equal(served, want) {
			t.Fatalf("%v are served as %v", order, served)
		}
	}
}

// TestOwnWrites lets callers begin and end writes of their own, and others wait.
func TestOwnWrites(t *testing.T) {
	q, it := newQueue(busyBucket(), false), itemsFor(3)
	for range 3 {
		if !q.begin(it) {
			t.Fatal("begin() = false, want three writes at once")
		}
	}
	if q.begin(it) {
		t.Error("begin() of a fourth write = true")
	}
	wait := func(callers int) {
		t.Helper()
		for range callers {
			if got := q.join(it, &waiter{queue: &q, level: new(level)}); got != toWait {
				t.Fatalf("join() = %d, want %d", got, toWait)
			}
		}
	}
	wait(2)
	if !q.end() || q.begin(it) {
		t.Error("who ends a write does not serve those who wait, before anybody else begins")
	}
	if got := q.claim(); len(got) != 2 {
		t.Errorf("claim() = %d callers, want 2", len(got))
	}
	wait(crowd)
	if q.end() {
		t.Error("end() = true while others are served")
	}
	if got := q.claim(); len(got) != crowd || !q.crowded {
		t.Errorf("claim() = %d callers, want a crowd of %d", len(got), crowd)
	}
	if q.end() || len(q.claim()) > 0 || q.serving || q.alone != 0 {
		t.Errorf("the queue is not idle: %d alone, serving %t", q.alone, q.serving)
	}
	if !q.begin(it) || q.begin(it) {
		t.Error("after a crowd there is one write at once")
	}
}

// TestPaceOfWrites throttles a write of a queue: callers then wait for the next one together, though no write is under way,
// and the first of them serves the others. Once the pause is over, callers write by themselves again, one at a time.
func TestPaceOfWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, it := newQueue(busyBucket(), false), itemsFor(3)
		if !q.begin(it) || q.end() {
			t.Fatal("the first caller does not write by itself")
		}
		q.ended(it, &store.Error{Throttled: true, Unavailable: true, Throttles: []store.Throttle{{Limit: store.OfKey, Write: true}}})
		for i, want := range []place{toServe, toWait, toWait} {
			if got := q.join(it, &waiter{queue: &q, level: new(level)}); got != want {
				t.Errorf("join() of caller %d = %d, want %d", i, got, want)
			}
		}
		rest := q.pace.rest(it)
		if rest < ofWrites.least/2 || rest > 3*ofWrites.least/2 {
			t.Errorf("the pause is %v, want about %v", rest, ofWrites.least)
		}
		time.Sleep(rest)
		if got := len(q.claim()); got != 3 {
			t.Errorf("%d callers share the next write, want 3", got)
		}
		if q.ended(it, errShort); q.pace.isClosed(it) {
			t.Error("a rejection from memory makes others wait")
		}
		q.ended(it, nil)
		if len(q.claim()) > 0 || q.begin(it) {
			t.Error("a caller writes within a pause after a write that was done")
		}
		time.Sleep(q.pace.rest(it))
		if !q.begin(it) || q.begin(it) {
			t.Error("after a throttle there is one write at once")
		}
		q.end()
		time.Sleep(10 * ofWrites.fade)
		for i := range 3 {
			if !q.begin(it) {
				t.Errorf("long after a throttle caller %d does not write by itself", i)
			}
		}
	})
}

// TestOtherErrorsKeepThePace has writes fail otherwise than by throttles of their key: nobody waits for that.
func TestOtherErrorsKeepThePace(t *testing.T) {
	it := itemsFor(3)
	throttled := &store.Error{Throttled: true, Unavailable: true, Throttles: []store.Throttle{{Limit: store.OfKey, Write: true}}}
	q := newQueue(newBucket("ns", "seldom", "model"), false)
	if q.ended(it, throttled); q.triesAgain(throttled) || q.pace.isClosed(it) {
		t.Error("requests of a bucket that is used seldom wait for a throttled key")
	}
	q = newQueue(newBucket("ns", "seldom", "model"), true)
	if q.ended(it, throttled); !q.triesAgain(throttled) || !q.pace.isClosed(it) {
		t.Error("corrections of a bucket that is used seldom do not wait for a throttled key")
	}
	q = newQueue(busyBucket(), false)
	for _, err := range []error{
		nil, errShort, context.DeadlineExceeded,
		&store.Error{Unavailable: true, Unknown: true},
		&store.Error{Throttled: true, Unavailable: true, Throttles: []store.Throttle{{Limit: store.OfKey}}},
		&store.Error{Throttled: true, Unavailable: true, Throttles: []store.Throttle{{Limit: store.OfKey, Write: true, Index: true}}},
		&store.Error{Throttled: true, Unavailable: true, Throttles: []store.Throttle{{Limit: store.OfAccount, Write: true}}},
	} {
		if q.ended(it, err); q.triesAgain(err) || q.pace.isClosed(it) {
			t.Errorf("%v slows the writes of the key down", err)
		}
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
