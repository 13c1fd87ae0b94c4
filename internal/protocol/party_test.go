package protocol

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A contest is a bucket of an entity "e" that one process is watched to take from, and another one writes.
type contest struct {
	*gauge
	limits       fixedLimits
	e, other     *Engine
	draws        atomic.Int64 // numbers that the process has drawn, one by one
	writes       int          // plain writes of the process
	transactions int
}

// inContest runs a test with a bucket of some shards, which are full.
func inContest(t *testing.T, shards int, limit bucket.Params, test func(t *testing.T, c *contest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &contest{gauge: newGauge(t), limits: fixedLimits{}}
		c.limits.set("e", &Limits{Epoch: 1 << 40, Config: bucket.Config{Params: []bucket.Params{limit}}})
		c.e = newProcessBy(t, c.gauge, c.limits, func(n int) int { return int(c.draws.Add(1)) % n })
		c.other = newProcess(t, c.gauge, c.limits)
		giveAllBack(t, c.other, takeFrom(t, c.other, "e", map[string]int64{"rpm": 1}))
		for n := 1; n < shards; n *= 2 {
			for s := range n {
				split(t, c.other, "e", s)
			}
		}
		check.Fatal(t, "readStale()", c.e.looks.readStale(t.Context(), []level{c.level(t, 1)}, c.e.looks.seenSince(c.e.NextEpoch())))
		c.onWrite(func(writes []store.Write) error {
			if len(writes) > 1 {
				c.transactions++
			} else {
				c.writes++
			}
			return nil
		})
		test(t, c)
	})
}

func (c *contest) level(t *testing.T, tokens int64) level {
	t.Helper()
	levels, err := c.e.families.alone(t.Context(), &Request{Entity: "e", Resource: "model", Amounts: amountsOf(map[string]int64{"rpm": tokens})}, c.e.NextEpoch())
	check.Fatal(t, "alone()", err)
	return levels[0]
}

// leave makes the other process take until each shard is left with the given tokens.
func (c *contest) leave(t *testing.T, tokens ...int64) {
	t.Helper()
	b := c.other.Memory.Bucket("e", "model")
	for number, left := range tokens {
		s := b.shard(number)
		i := check.Call(c.other.items.readShard(t.Context(), s)).Must(t, "readShard()")
		at := slices.IndexFunc(i.Limits, func(l bucket.Limit) bool { return l.Name == "rpm" })
		has := i.Available(&i.Limits[at], c.now.Load())
		l := level{bucket: b, limits: c.limits["e"].Load(), demand: bucket.Demand{Amounts: []bucket.Amount{{Limit: "rpm", Tokens: has - left*millis}}}}
		if l.demand.Amounts[0].Tokens <= 0 {
			continue
		}
		if err := c.other.taker.takeFromShard(t.Context(), &party{level: &l, lot: lotOf(number), to: new(levelReceipt)}, s); err != nil {
			t.Fatalf("shard %d cannot be left with %d: %v", number, left, err)
		}
	}
}

// strain makes the store throttle a look of the process, and waits until the pause has ended.
func (c *contest) strain() {
	c.e.Memory.Bucket("e", "model").pace.throttle(c.e.core.sinceStart(), noChance)
	time.Sleep(ofLooks.least)
}

// share takes for callers who share writes, and returns what became of each.
func (c *contest) share(t *testing.T, tokens ...int64) (errs []error, receipts []levelReceipt) {
	t.Helper()
	receipts = make([]levelReceipt, len(tokens))
	waiters := make([]*waiter[*claim], len(tokens))
	for i, n := range tokens {
		l := c.level(t, n)
		waiters[i] = &waiter[*claim]{job: &claim{&l, &receipts[i], place{whole: true}}, done: make(chan error, 1)}
	}
	v, err := c.e.aligner.viewInLine(t.Context(), waiters[0].job.level, c.e.looks.seenSince(c.e.NextEpoch())) // the shards as they are
	if err != nil || len(v.stale) > 0 {
		t.Fatalf("%d shards cannot be read: %v", len(v.stale), err)
	}
	c.writes, c.transactions = 0, 0
	c.e.taker.writeTogether(t.Context(), &waiters[0].job.level.bucket.queue, waiters)
	for _, w := range waiters {
		errs = append(errs, <-w.done)
	}
	return errs, receipts
}

// daily is a limit that nothing flows into while a test runs; quick is one into which 2 tokens flow in a millisecond, slow one into which 4 flow
// in a second.
var (
	slow  = bucket.Params{Name: "rpm", Capacity: 80 * millis, RefillAmount: 4 * millis, RefillPeriod: 1000}
	daily = bucket.Params{Name: "rpm", Capacity: 80 * millis, RefillAmount: 1, RefillPeriod: 86_400_000}
	quick = bucket.Params{Name: "rpm", Capacity: 800 * millis, RefillAmount: 2000 * millis, RefillPeriod: 1000}
)

// In TestBatchTakesWhatShardsHave, callers share writes of a strained bucket, whose shards have tokens for some of them.
// Each shard that is drawn serves the callers who fit, in their order, by a plain write. The others fall short:
// immediately if shards are proven short, and by a view of all shards if one of the callers asks for much.
func TestBatchTakesWhatShardsHave(t *testing.T) {
	for _, test := range []struct {
		name         string
		left         []int64
		asked        []int64
		served       []bool
		writes       int
		transactions int
	}{
		{"whole bucket", []int64{3}, []int64{1, 1, 1, 1, 1}, []bool{true, true, true, false, false}, 1, 0},
		{"whole bucket, one that does not fit", []int64{4}, []int64{2, 3, 2, 1}, []bool{true, false, true, false}, 1, 0},
		{"two shards", []int64{3, 2}, []int64{1, 1, 1, 1, 1, 1, 1, 1}, []bool{true, true, true, true, true, false, false, false}, 2, 0},
		{"one of two shards", []int64{0, 2}, []int64{1, 1, 1}, []bool{true, true, false}, 1, 0},
		{"none", []int64{0, 0}, []int64{1, 1, 1}, []bool{false, false, false}, 0, 0},
		{"four shards, two of which decide", []int64{2, 2, 2, 2}, []int64{1, 1, 1, 1, 1, 1, 1}, []bool{true, true, true, true, true, true, false}, 3, 0},
		{"a full shard beside one that is not", []int64{40, 10}, []int64{1}, []bool{true}, 1, 0},
		{"one that only both shards together have", []int64{20, 15}, []int64{30}, []bool{true}, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			inContest(t, len(test.left), daily, func(t *testing.T, c *contest) {
				c.leave(t, test.left...)
				c.strain()
				errs, receipts := c.share(t, test.asked...)
				for i, err := range errs {
					switch {
					case test.served[i] && err != nil:
						t.Errorf("caller %d of %d: %v", i, test.asked[i], err)
					case test.served[i]:
						if total, _ := receipts[i].total(); bucket.Of(total, "rpm") != test.asked[i]*millis {
							t.Errorf("caller %d has taken %v, want %d tokens", i, total, test.asked[i])
						}
					case !errors.Is(err, errShort):
						t.Errorf("caller %d of %d: %v, want it to fall short", i, test.asked[i], err)
					}
				}
				if c.writes != test.writes || c.transactions != test.transactions {
					t.Errorf("%d writes and %d transactions, want %d and %d", c.writes, c.transactions, test.writes, test.transactions)
				}
			})
		})
	}
}

// In TestBeyondDoNotWait, others come first for a part of what six callers share. Those who fall short of the image that came back are rejected
// before the next write for the others is sent.
func TestBeyondDoNotWait(t *testing.T) {
	inContest(t, 1, daily, func(t *testing.T, c *contest) {
		waiters, receipts := make([]*waiter[*claim], 6), make([]levelReceipt, 6)
		for i := range waiters {
			l := c.level(t, 1)
			waiters[i] = &waiter[*claim]{job: &claim{level: &l, to: &receipts[i]}, done: make(chan error, 1)}
		}
		decided := func() (n int) {
			for _, w := range waiters {
				n += len(w.done)
			}
			return n
		}
		b := waiters[0].job.level.bucket
		b.shard(0).traffic.fellShort(100)
		first, taking := true, false
		c.onWrite(func([]store.Write) error {
			switch {
			case taking: // the other process
			case first:
				first, taking = false, true
				c.leave(t, 3)
				taking = false
			case decided() == 0:
				t.Error("those who fall short wait for the write of the others")
			}
			return nil
		})
		c.e.taker.writeTogether(t.Context(), &b.queue, waiters)
		admitted := 0
		for i, w := range waiters {
			switch err := <-w.done; {
			case err == nil:
				admitted++
			case !errors.Is(err, errShort):
				t.Errorf("caller %d: %v, want it to fall short", i, err)
			}
		}
		if admitted != 3 {
			t.Errorf("%d callers are admitted, want 3", admitted)
		}
	})
}

// In TestAbandonedCallers, others come first for the tokens of a shared write, whose callers give up meanwhile: the first one, or all. The next
// write takes for those that still wait, and there is none without them.
func TestAbandonedCallers(t *testing.T) {
	for _, gone := range []int{1, 3} {
		inContest(t, 1, daily, func(t *testing.T, c *contest) {
			waiters, receipts := make([]*waiter[*claim], 3), make([]levelReceipt, 3)
			for i := range waiters {
				l := c.level(t, 1)
				waiters[i] = &waiter[*claim]{job: &claim{level: &l, to: &receipts[i]}, claimed: true, done: make(chan error, 1)}
			}
			q, writes, taking := &waiters[0].job.level.bucket.queue, 0, false
			c.onWrite(func([]store.Write) error {
				if taking { // the other process
					return nil
				}
				if writes++; writes == 1 {
					for _, w := range waiters[:gone] {
						if !q.leave(w) {
							t.Error("a caller cannot give up")
						}
					}
					taking = true
					c.leave(t, 1)
					taking = false
				}
				return nil
			})
			c.e.taker.writeTogether(t.Context(), q, waiters)
			if want := []int{1: 2, 3: 1}[gone]; writes != want {
				t.Errorf("%d of 3 have given up: %d writes, want %d", gone, writes, want)
			}
			for i := range receipts {
				if total, _ := receipts[i].total(); (bucket.Of(total, "rpm") > 0) != (i == gone) {
					t.Errorf("%d of 3 have given up: caller %d has taken %v", gone, i, total)
				}
			}
		})
	}
}

// In TestAbandonedTransactions, others come first for what two shards have together, and the caller gives up meanwhile. No further transaction is
// tried.
func TestAbandonedTransactions(t *testing.T) {
	inContest(t, 2, daily, func(t *testing.T, c *contest) {
		c.leave(t, 20, 15)
		var receipt levelReceipt
		l := c.level(t, 30)
		w := &waiter[*claim]{job: &claim{&l, &receipt, place{whole: true}}, claimed: true, done: make(chan error, 1)}
		l.bucket.uneven.Store(c.now.Load()) // the shards are not leveled first
		q, transactions, taking := &l.bucket.queue, 0, false
		c.onWrite(func(writes []store.Write) error {
			if taking || len(writes) == 1 {
				return nil
			}
			if transactions++; transactions == 1 {
				if !q.leave(w) {
					t.Error("the caller cannot give up")
				}
				taking = true
				c.leave(t, 17, 14)
				taking = false
			}
			return nil
		})
		c.e.taker.writeTogether(t.Context(), q, []*waiter[*claim]{w})
		if total, _ := receipt.total(); transactions != 1 || len(total) > 0 {
			t.Errorf("%d transactions have taken %v, want one that takes nothing", transactions, total)
		}
	})
}

// In TestRejectedByShares, tokens flow in during each call, which another process takes immediately. No view shows all shards exhausted,
// and yet a request is rejected. The reported wait is enough when the other process goes away.
func TestRejectedByShares(t *testing.T) {
	for _, test := range []struct {
		shards   int
		strained bool
	}{{1, true}, {2, true}, {4, true}, {2, false}, {4, false}} {
		shards := test.shards
		inContest(t, shards, quick, func(t *testing.T, c *contest) {
			if test.strained {
				c.strain()
			}
			left := make([]int64, shards)
			c.leave(t, left...)
			contested := true
			flow := func(on bool) {
				if !contested {
					return
				}
				contested = false
				c.now.Add(10)
				if on {
					c.leave(t, left...)
				}
				contested = true
			}
			c.onRead(func(_ []store.Key, after bool) { flow(!after) })
			c.onWrite(func([]store.Write) error {
				flow(true)
				return nil
			})
			request := &Request{Entity: "e", Resource: "model", Amounts: amountsOf(map[string]int64{"rpm": 5})}
			for range 20 {
				var rejected *RejectedError
				if err := c.e.Take(t.Context(), request, new(Receipt)); !errors.As(err, &rejected) {
					t.Fatalf("%d shards: %v, want a rejection", shards, err)
				}
				s := rejected.Levels[0].Statuses[0]
				if s.Wait <= 0 || s.Wait == bucket.Never || s.Available >= s.Requested {
					t.Fatalf("%d shards: rejected by %+v", shards, s)
				}
				contested = false
				c.now.Add(s.Wait)
				if err := c.e.Take(t.Context(), request, new(Receipt)); err != nil {
					t.Fatalf("%d shards: %v, though the reported wait of %d ms is over", shards, err, s.Wait)
				}
				contested = true
			}
		})
	}
}

// In TestThrottledBatch, the store throttles the write for the callers of a strained bucket whose demands fit. The others fall short
// immediately.
func TestThrottledBatch(t *testing.T) {
	throttled := &store.Error{Throttled: true, Unavailable: true, Throttles: []store.Throttle{{Limit: store.OfKey, Write: true}}}
	inContest(t, 1, daily, func(t *testing.T, c *contest) {
		c.leave(t, 3)
		c.strain()
		c.onWrite(func([]store.Write) error { return throttled })
		errs, _ := c.share(t, 1, 1, 1, 1, 1)
		for i, err := range errs {
			if isThrottled := i < 3; IsThrottled(err) != isThrottled || errors.Is(err, errShort) == isThrottled {
				t.Errorf("caller %d: %v", i, err)
			}
		}
	})
}

// In TestThrottleOfAnExhaustedBucket, the store throttles the writes of a bucket forever. If others write it and it has few tokens, that is no
// outage, by which a failure policy would admit the request. The store names the key as its reason.
func TestThrottleOfAnExhaustedBucket(t *testing.T) {
	byKey := []store.Throttle{{Limit: store.OfKey, Write: true}}
	for _, test := range []struct {
		left      int64
		busy      bool
		reasons   []store.Throttle
		contended bool
	}{{3, true, byKey, true}, {70, true, byKey, false}, {3, false, byKey, false}, {3, true, nil, false}} {
		inContest(t, 1, daily, func(t *testing.T, c *contest) {
			c.leave(t, test.left)
			first := c.e.Memory.Bucket("e", "model").shard(0)
			if _, err := c.e.items.readShard(t.Context(), first); err != nil {
				t.Fatalf("readShard() = %v", err)
			}
			if test.busy {
				first.traffic.tally = tally{known: true, count: 1, at: c.now.Load(), writes: first.image.Load().Writes() / millis, others: 1000, span: 1000}
			}
			c.onWrite(func([]store.Write) error {
				return &store.Error{Throttled: true, Unavailable: true, Throttles: test.reasons}
			})
			l := c.level(t, 1)
			err := c.e.taker.takePatiently(t.Context(), &l, new(levelReceipt))
			if errors.Is(err, ErrContended) != test.contended || IsThrottled(err) == test.contended {
				t.Errorf("%d tokens left, written by others %t, reasons %v: %v, want it contended %t", test.left, test.busy, test.reasons, err, test.contended)
			}
		})
	}
}

// TestStrainedBucketIsBroughtInLine raises a limit of a strained, exhausted bucket. A request that finds its shard short by the old limit
// is admitted by the new one.
func TestStrainedBucketIsBroughtInLine(t *testing.T) {
	for _, left := range [][]int64{{0}, {0, 0}} {
		inContest(t, len(left), daily, func(t *testing.T, c *contest) {
			raiseUnderStrain(t, c, left)
		})
	}
}

// raiseUnderStrain raises the rate of a strained bucket whose shards have no tokens, and takes from it a second later.
func raiseUnderStrain(t *testing.T, c *contest, left []int64) {
	t.Helper()
	c.leave(t, left...)
	raised := daily
	raised.RefillAmount, raised.RefillPeriod = 80*millis, 1000
	c.limits.set("e", &Limits{Epoch: 1 << 41, Config: bucket.Config{Params: []bucket.Params{raised}}})
	c.strain()
	request := &Request{Entity: "e", Resource: "model", Amounts: amountsOf(map[string]int64{"rpm": 1})}
	if err := c.e.Take(t.Context(), request, new(Receipt)); !errors.As(err, new(*RejectedError)) {
		t.Fatalf("%v, want a rejection", err)
	}
	c.now.Add(1000)
	if err := c.e.Take(t.Context(), request, new(Receipt)); err != nil {
		t.Errorf("%d shards, a second after the rate was raised: %v", len(left), err)
	}
}

// TestSplitLooksFirst splits a shard that another process has probably written since it was seen: the process reads it first, and needs
// one transaction.
func TestSplitLooksFirst(t *testing.T) {
	inContest(t, 1, daily, func(t *testing.T, c *contest) {
		s := c.e.Memory.Bucket("e", "model").shard(0)
		old := s.image.Load()
		c.now.Add(10)
		c.leave(t, 30)
		c.now.Add(10)
		s.traffic.tally = tally{known: true, others: 1000, span: 1000, at: c.now.Load() - 10}
		c.transactions = 0
		check.Fatal(t, "split()", c.e.resizer.split(context.Background(), c.limits["e"].Load().Lineage, s, old))
		if s.count() != 2 || c.transactions != 1 {
			t.Errorf("%d shards after %d transactions, want 2 after 1", s.count(), c.transactions)
		}
	})
}

// TestPaceAfterSplit splits a bucket whose writes are throttled: the next one begins sooner, and the bucket stays strained.
func TestPaceAfterSplit(t *testing.T) {
	inContest(t, 1, daily, func(t *testing.T, c *contest) {
		b := c.e.Memory.Bucket("e", "model")
		for range 4 {
			b.queue.pace.throttle(c.e.core.sinceStart(), noChance)
			time.Sleep(b.queue.pace.rest(&c.e.core))
		}
		b.queue.pace.throttle(c.e.core.sinceStart(), noChance)
		before := b.queue.pace.rest(&c.e.core)
		split(t, c.e, "e", 0)
		if after := b.queue.pace.rest(&c.e.core); after != before/2 {
			t.Errorf("the next write begins in %v, and before the bucket was split in %v", after, before)
		}
		for range 5 {
			b.queue.pace.ease(c.e.core.sinceStart(), 2)
		}
		if !c.e.core.isStrained(b) {
			t.Error("a bucket that was split again and again is not strained any more")
		}
	})
}

// In TestThrottleShowsWriters, the store throttles a write of a bucket with tokens for many, whose item this process has seen twice. A look
// shows that others write it often, and the request waits for the pace.
func TestThrottleShowsWriters(t *testing.T) {
	throttled := &store.Error{Throttled: true, Unavailable: true, Throttles: []store.Throttle{{Limit: store.OfKey, Write: true}}}
	for _, others := range []int{1, 20} {
		large := bucket.Params{Name: "rpm", Capacity: 5000 * millis, RefillAmount: 1, RefillPeriod: 86_400_000}
		inContest(t, 1, large, func(t *testing.T, c *contest) {
			if _, err := c.e.items.readShard(t.Context(), c.e.Memory.Bucket("e", "model").shard(0)); err != nil {
				t.Fatalf("readShard() = %v", err)
			}
			c.limits.set("e", &Limits{Epoch: 1 << 40, Config: bucket.Config{Params: []bucket.Params{large}, Freshness: 1000}}) // needs no look
			for range others {
				c.now.Add(1)
				takeFrom(t, c.other, "e", map[string]int64{"rpm": 1})
			}
			var met atomic.Bool
			c.onWrite(func([]store.Write) error {
				if met.CompareAndSwap(false, true) {
					return throttled
				}
				return nil
			})
			l := c.level(t, 1)
			if err := c.e.taker.takePatiently(t.Context(), &l, new(levelReceipt)); IsThrottled(err) != (others < minSamples) {
				t.Errorf("beside %d writes of others: %v", others, err)
			}
		})
	}
}

// In TestQuietShards, a shard is written eighty times a second. It is quiet unless as many writes fail, which the key bears as well.
func TestQuietShards(t *testing.T) {
	for _, lost := range []float64{0, 100} {
		inContest(t, 2, daily, func(t *testing.T, c *contest) {
			s := c.e.Memory.Bucket("e", "model").shard(0)
			before := s.image.Load()
			s.rateBase.Store(before)
			after := *before
			after.Limits = slices.Clone(before.Limits)
			for i := range after.Limits {
				if after.Limits[i].Name == bucket.WriteUnits {
					after.Limits[i].Consumed += 800 * millis
				}
			}
			after.seenAt += rateTime.Milliseconds()
			s.traffic.tally = tally{known: true, tries: 200, lost: lost}
			if got := s.isQuiet(&after, after.seenAt); got != (lost == 0) {
				t.Errorf("isQuiet() = %t, where %v of 200 writes failed", got, lost)
			}
		})
	}
}

// In TestUndecidedIsRejected, the context of a request ends before it is decided. If the bucket was short when it was last seen since the request
// came, the request is rejected, also if more has flowed in since, which others take. Otherwise nothing shows that it should be.
func TestUndecidedIsRejected(t *testing.T) {
	for _, test := range []struct {
		name  string
		left  []int64
		seen  int // shards read since the request came
		short bool
	}{
		{"short, whole", []int64{0}, 1, true},
		{"short, split", []int64{1, 0}, 2, true},
		{"room in one shard", []int64{3, 0}, 2, false},
		{"not seen since", []int64{1, 0}, 0, false},
		{"one of two seen since", []int64{1, 0}, 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			limit := bucket.Params{Name: "rpm", Capacity: 10 * millis, RefillAmount: 10 * millis, RefillPeriod: 1000}
			inContest(t, len(test.left), limit, func(t *testing.T, c *contest) {
				c.leave(t, test.left...)
				check.Fatal(t, "readStale()", c.e.looks.readStale(t.Context(), []level{c.level(t, 1)}, c.e.looks.seenSince(c.e.NextEpoch())))
				l := c.level(t, 2)
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				for number := range test.seen {
					_, err := c.e.items.readShard(t.Context(), l.bucket.shard(number))
					check.Fatal(t, "readShard()", err)
				}
				c.now.Add(400) // milliseconds, in which four tokens flow in
				err := c.e.admitter.undecided(ended, context.Canceled, []level{l}, l.began)
				var rejected *RejectedError
				switch errors.As(err, &rejected); {
				case (rejected != nil) != test.short:
					t.Errorf("undecided() = %v, want a rejection: %t", err, test.short)
				case rejected != nil && (!rejected.Levels[0].Statuses[0].Short || rejected.Levels[0].Statuses[0].Wait != 1):
					t.Errorf("the rejection reports %+v, want a short limit and a wait of a millisecond", rejected.Levels[0].Statuses[0])
				}
			})
		})
	}
}
