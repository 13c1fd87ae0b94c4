package protocol

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// itemsFor returns what a queue asks: how many writes of callers by themselves may be under way at the same time.
func coreFor(writesAtOnce int) *core {
	store := table.New(nil, table.Options{IntN: noChance, Timeout: time.Second})
	return &core{table: store, writes: store.Sharing(), options: Options{WritesAtOnce: writesAtOnce}, started: time.Now()}
}

// busyBucket returns a bucket that other processes write often.
func busyBucket() *Bucket {
	b := newBucket("ns", "hot", "model")
	b.shard(0).traffic.tally = tally{known: true, others: 1000, span: 1000}
	return b
}

// claimOf returns a waiter for what is taken of a level.
func claimOf(l *level) *waiter[*claim] { return &waiter[*claim]{job: &claim{level: l}} }

// begins reports whether a caller has a write of its own.
func begins(q *queue[*claim], c *core) bool {
	_, ok := q.begin(c)
	return ok
}

// In TestPlaces, requests join a queue in any order, as retried requests do. They are served in the order in which they came.
func TestPlaces(t *testing.T) {
	c := coreFor(1)
	for range 100 {
		q := newQueue[*claim](busyBucket(), false)
		q.served = true
		order := rand.Perm(20)
		for _, began := range order {
			if got, _ := q.join(c, claimOf(&level{began: int64(began)})); got != toWatch {
				t.Fatalf("join() = %d while others are served, want %d", got, toWatch)
			}
		}
		var served []int
		for _, w := range q.claim(c, 0) {
			served = append(served, int(w.job.came()))
		}
		if want := slices.Sorted(slices.Values(order)); !slices.Equal(served, want) {
			t.Fatalf("%v are served as %v", order, served)
		}
	}
}

// TestOwnWrites lets callers begin and end writes of their own, and others wait.
func TestOwnWrites(t *testing.T) {
	q, c := newQueue[*claim](busyBucket(), false), coreFor(3)
	for range 3 {
		if !begins(&q, c) {
			t.Fatal("begin() = false, want three writes at once")
		}
	}
	if begins(&q, c) {
		t.Error("begin() of a fourth write = true")
	}
	wait := func(callers int) {
		t.Helper()
		for range callers {
			if got, _ := q.join(c, claimOf(new(level))); got != toWatch {
				t.Fatalf("join() = %d, want %d", got, toWatch)
			}
		}
	}
	wait(2)
	if !q.end(c, 0) || begins(&q, c) {
		t.Error("who ends a write does not serve those who wait, before anybody else begins")
	}
	if got := q.claim(c, 0); len(got) != 2 {
		t.Errorf("claim() = %d callers, want 2", len(got))
	}
	wait(crowdCallers)
	if q.end(c, 0) {
		t.Error("end() = true while others are served")
	}
	if got := q.claim(c, 0); len(got) != crowdCallers || !q.crowded {
		t.Errorf("claim() = %d callers, want a crowd of %d", len(got), crowdCallers)
	}
	if q.end(c, 0) || len(q.claim(c, 0)) > 0 || q.served || q.alone != 0 {
		t.Errorf("the queue is not idle: %d alone, served %t", q.alone, q.served)
	}
	if !begins(&q, c) || begins(&q, c) {
		t.Error("after a crowd there is one write at once")
	}
}

// TestPaceOfWrites throttles a write of a queue. Callers then wait for the next one together, though no write is
// under way, and the first of them serves the others. After the pause, callers write by themselves again, one at a
// time.
func TestPaceOfWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, c := newQueue[*claim](busyBucket(), false), coreFor(3)
		if !begins(&q, c) || q.end(c, 0) {
			t.Fatal("the first caller does not write by itself")
		}
		q.ended(c, &store.Error{Throttled: true, Unavailable: true, Throttles: []store.Throttle{{Limit: store.OfKey, Write: true}}}, false)
		for i, want := range []role{toServe, toWatch, toWatch} {
			if got, _ := q.join(c, claimOf(new(level))); got != want {
				t.Errorf("join() of caller %d = %d, want %d", i, got, want)
			}
		}
		rest := q.pace.rest(c)
		if rest < ofWrites.least/2 || rest > 3*ofWrites.least/2 {
			t.Errorf("the pause is %v, want about %v", rest, ofWrites.least)
		}
		time.Sleep(rest)
		if got := len(q.claim(c, 0)); got != 3 {
			t.Errorf("%d callers share the next write, want 3", got)
		}
		if q.ended(c, errShort, false); q.pace.isClosed(c) {
			t.Error("a rejection from memory makes others wait")
		}
		q.ended(c, nil, false)
		if len(q.claim(c, 0)) > 0 || begins(&q, c) {
			t.Error("a caller writes within a pause after a write that was done")
		}
		time.Sleep(q.pace.rest(c))
		if !begins(&q, c) || begins(&q, c) {
			t.Error("after a throttle there is one write at once")
		}
		q.end(c, 0)
		time.Sleep(10 * ofWrites.fade)
		for i := range 3 {
			if !begins(&q, c) {
				t.Errorf("long after a throttle caller %d does not write by itself", i)
			}
		}
	})
}

// In TestOtherErrorsKeepThePace, writes fail otherwise than by throttles of their key. No request waits for that.
func TestOtherErrorsKeepThePace(t *testing.T) {
	c := coreFor(3)
	throttled := &store.Error{Throttled: true, Unavailable: true, Throttles: []store.Throttle{{Limit: store.OfKey, Write: true}}}
	q := newQueue[*claim](newBucket("ns", "seldom", "model"), false)
	if q.ended(c, throttled, false); q.triesAgain(c, throttled, false) || q.pace.isClosed(c) {
		t.Error("requests of a bucket that is used seldom wait for a throttled key")
	}
	if waiting := newQueue[*claim](newBucket("ns", "seldom", "model"), false); !waiting.triesAgain(c, throttled, true) {
		t.Error("callers with the time to wait fail by a throttled key")
	} else if waiting.ended(c, throttled, true); !waiting.pace.isClosed(c) {
		t.Error("callers with the time to wait keep no pace")
	}
	q.bucket.pace.throttle(c.sinceStart(), noChance)
	if q.ended(c, throttled, false); !q.triesAgain(c, throttled, false) || !q.pace.isClosed(c) {
		t.Error("requests do not wait for a throttled key whose reads are throttled, too")
	}
	settling := newQueue[*payment](newBucket("ns", "seldom", "model"), true)
	if settling.ended(c, throttled, false); !settling.triesAgain(c, throttled, false) || !settling.pace.isClosed(c) {
		t.Error("corrections of a bucket that is used seldom do not wait for a throttled key")
	}
	q = newQueue[*claim](busyBucket(), false)
	for _, err := range []error{
		nil, errShort, context.DeadlineExceeded,
		&store.Error{Unavailable: true, Unknown: true},
		&store.Error{Throttled: true, Unavailable: true, Throttles: []store.Throttle{{Limit: store.OfKey}}},
		&store.Error{Throttled: true, Unavailable: true, Throttles: []store.Throttle{{Limit: store.OfKey, Write: true, Index: true}}},
		&store.Error{Throttled: true, Unavailable: true, Throttles: []store.Throttle{{Limit: store.OfAccount, Write: true}}},
	} {
		if q.ended(c, err, false); q.triesAgain(c, err, false) || q.pace.isClosed(c) {
			t.Errorf("%v slows the writes of the key down", err)
		}
	}
}

// In TestRoundsOfLateWrites, callers wait behind a late write. The write no longer counts, and the waiting callers are served. Its
// end changes nothing then, nor does the end of a former serving goroutine.
func TestRoundsOfLateWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = 200 * time.Millisecond
		q, c := newQueue[*claim](busyBucket(), false), coreFor(1)
		q.watch = time.AfterFunc(time.Hour, func() {})
		first, _ := q.begin(c)
		if to, _ := q.join(c, claimOf(new(level))); to != toWait {
			t.Fatalf("join() = %d", to)
		}
		time.Sleep(late - time.Millisecond)
		if _, ended := q.endRound(c, late); ended {
			t.Error("a write counts no more before it is late")
		}
		time.Sleep(time.Millisecond)
		second, ended := q.endRound(c, late)
		if !ended || second == first || q.watch != nil {
			t.Fatalf("endRound() = %d, %t after round %d, want a new round", second, ended, first)
		}
		if q.end(c, first) || len(q.claim(c, first)) > 0 || q.alone != 0 || !q.served {
			t.Errorf("the end of a late write changes the queue: %d alone, served %t", q.alone, q.served)
		}
		if got := len(q.claim(c, second)); got != 1 {
			t.Errorf("claim() = %d callers, want 1", got)
		}
		if _, ended := q.endRound(c, late); ended {
			t.Error("a round ends though nobody waits")
		}
		if to, _ := q.join(c, claimOf(new(level))); to != toWatch {
			t.Errorf("join() = %d, want %d", to, toWatch)
		}
		q.watch = time.AfterFunc(time.Hour, func() {})
		q.bucket.pace.throttle(c.sinceStart(), noChance)
		time.Sleep(late)
		if _, ended := q.endRound(c, late); ended {
			t.Error("a write that waits for the pace of looks is taken for late")
		}
		q.bucket.pace.until.Store(0)
		if _, ended := q.endRound(c, late); !ended {
			t.Error("a shared write that is late still counts")
		}
	})
}

// In TestBatchesAreAlike, callers of several kinds wait. One kind is claimed, and the others wait on in their order.
func TestBatchesAreAlike(t *testing.T) {
	b := newBucket("ns", "hot", "model")
	for name, kinds := range map[string][2]claim{
		"limits":           {{level: &level{limits: &Limits{}}}, {level: &level{limits: &Limits{Own: true}}}},
		"a chosen shard":   {{level: &level{limits: &Limits{}}}, {level: &level{limits: &Limits{}}, place: place{shard: b.shard(0)}}},
		"all the shards":   {{level: &level{limits: &Limits{}}}, {level: &level{limits: &Limits{}}, place: place{whole: true}}},
		"different shards": {{level: &level{limits: &Limits{}}, place: place{shard: b.shard(0)}}, {level: &level{limits: &Limits{}}, place: place{shard: b.shard(1)}}},
	} {
		q, c := newQueue[*claim](busyBucket(), false), coreFor(1)
		q.served = true
		for began, kind := range []int{0, 1, 0, 1, 1} {
			of := kinds[kind]
			l := *of.level
			l.began = int64(began)
			of.level, of.place.lot = &l, lot(began) // lots of one shard share a write
			q.join(c, &waiter[*claim]{job: &of})
		}
		for _, want := range [][]int64{{0, 2}, {1, 3, 4}, nil} {
			var got []int64
			for _, w := range q.claim(c, 0) {
				got = append(got, w.job.came())
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: claim() = %v, want %v", name, got, want)
			}
		}
	}
}

// In TestOwnWritesOfASplitBucket, callers begin writes of their own. The shards of a bucket that is used up share the number of them.
func TestOwnWritesOfASplitBucket(t *testing.T) {
	for _, test := range []struct {
		shards, own int
		usedUp      bool
	}{{2, 2, true}, {8, 1, true}, {2, 4, false}, {1, 4, true}} {
		c, b := coreFor(4), newBucket("ns", "hot", "model")
		b.shard(0).image.Store(&image{exists: true, State: bucket.State{Shards: test.shards}})
		if test.usedUp {
			b.shard(0).traffic.fellShort(100)
		}
		q, own := newQueue[*claim](b, false), 0
		for range 20 {
			if _, ok := q.begin(c); ok {
				own++
			}
		}
		if own != test.own {
			t.Errorf("%d shards, used up: %t: %d writes of single callers, want %d", test.shards, test.usedUp, own, test.own)
		}
	}
}
