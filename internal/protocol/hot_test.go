package protocol

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// TestRefundsToFullShards gives tokens back to a shard of four, which is full. The tokens go to another shard with
// room, by one write. Where no shard has room, the shard counts them by one write, if as much flows in within the age
// of a rejection from memory. For that age it takes no other look. A slow limit looks at all shards, and loses
// nothing that others have taken since.
func TestRefundsToFullShards(t *testing.T) {
	const day, second = 86_400_000, 1000
	for _, test := range []struct {
		name         string
		period       int64
		rest         time.Duration // before the first refund
		taken        int64         // by another process, at the end of the rest
		reads        int           // items read for the first refund
		writes       int           // of it
		again        int           // items read for the second refund; -1 for any number
		transactions int           // of both
		left         int64
	}{
		{"another has room", day, 0, 0, 0, 1, 0, 0, 1200},
		{"no shard has room", second, 10 * time.Second, 0, 2, 1, 0, 0, 4000},
		{"no shard has room, slow", day, 48 * time.Hour, 0, 4, 1, -1, 0, 4000},
		{"others took, slow", day, 48 * time.Hour, 500, 4, 1, -1, 0, 3700},
	} {
		g, limits := newGauge(t), fixedLimits{}
		own := perDay("", map[string]int64{"rpm": 4000})
		own.Config.Params[0].RefillPeriod = test.period
		limits.set("hot", own)
		e := newProcess(t, g, limits)
		e.core.options.RejectionAge = 250 * time.Millisecond
		first, second := takeFrom(t, e, "hot", map[string]int64{"rpm": 100}), takeFrom(t, e, "hot", map[string]int64{"rpm": 100})
		takeFrom(t, e, "hot", map[string]int64{"rpm": 3800})
		split(t, e, "hot", 0)
		split(t, e, "hot", 0)
		split(t, e, "hot", 1)
		b := e.Memory.Bucket("hot", "model")
		if test.rest == 0 { // the first shard is full, the others are empty
			fill := correction{bucket: b, limits: own, shard: b.shard(0), amounts: amountsOf(map[string]int64{"rpm": -1000})}
			if _, err := e.settler.settleOnShard(t.Context(), &fill, b.shard(0), fill.amounts, nil, tolerance{}); err != nil {
				t.Fatalf("settleOnShard() = %v", err)
			}
		}
		g.now.Add(test.rest.Milliseconds())
		if test.taken > 0 {
			other := newProcess(t, g, limits)
			takeFrom(t, other, "hot", map[string]int64{"rpm": test.taken})
		}
		reads, writes, transactions := 0, 0, 0
		g.onRead(func(keys []store.Key, after bool) {
			if !after {
				reads += len(keys)
			}
		})
		g.onWrite(func(w []store.Write) error {
			if len(w) > 1 {
				transactions++
			}
			writes++
			return nil
		})
		giveAllBack(t, e, first)
		if reads != test.reads || writes != test.writes {
			t.Errorf("%s: %d items read and %d writes for the first refund, want %d and %d", test.name, reads, writes, test.reads, test.writes)
		}
		reads = 0
		giveAllBack(t, e, second)
		if test.again >= 0 && reads != test.again || transactions != test.transactions {
			t.Errorf("%s: %d items read for the second refund, want %d; %d transactions, want %d", test.name, reads, test.again, transactions, test.transactions)
		}
		if got := available(t, g, limits, "hot", "rpm"); got != test.left {
			t.Errorf("%s: %d available, want %d", test.name, got, test.left)
		}
		used := 3800 + test.taken
		if test.rest == 0 {
			used -= 1000
		}
		if got := usedOf(t, e, b); got != used {
			t.Errorf("%s: %d tokens are counted, want %d", test.name, got, used)
		}
	}
}

// TestRefundToAnotherLife gives tokens back to a full shard. The only shard with room started the limit again, so
// the tokens are not of its life. It does not get them by itself.
func TestRefundToAnotherLife(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		g, limits := newGauge(t), fixedLimits{}
		own := perDay("", map[string]int64{"rpm": 2000})
		limits.set("hot", own)
		e := newProcess(t, g, limits)
		r := takeFrom(t, e, "hot", map[string]int64{"rpm": 2000})
		split(t, e, "hot", 0)
		b := e.Memory.Bucket("hot", "model")
		for number := range 2 {
			i := check.Call(e.items.readShard(t.Context(), b.shard(number))).Must(t, "readShard()")
			changed := *i
			changed.Limits = slices.Clone(i.Limits)
			if number == 1 && restarted {
				for at := range changed.Limits {
					changed.Limits[at].Life++
				}
			}
			b.shard(number).image.Store(&changed)
		}
		c := r.levels[0].returns(nil)[0]
		amounts := amountsOf(map[string]int64{"rpm": -100})
		if to, _ := e.settler.passOn(&c, b.shard(0), amounts); (to != nil) == restarted {
			t.Errorf("restarted %v: passOn() finds a shard: %v", restarted, to != nil)
		}
	}
}

// TestRefundsFillShards gives tokens back to a shard of two that has room for a part of them. The other one is full. The shard is filled,
// and no part of its room is left, however fast the limit flows in. What flows in follows from the limits of the item, and not from the
// ones that the process knows.
func TestRefundsFillShards(t *testing.T) {
	const day, second = 86_400_000, 1000
	for _, test := range []struct {
		period, known int64 // of the limit of the item, and of the one that the process knows
		room          int64 // of the shard
	}{
		{second, second, 100}, {second, second, 0}, {day, second, 100}, {day, second, 0},
	} {
		g, limits := newGauge(t), fixedLimits{}
		own := perDay("", map[string]int64{"rpm": 2000})
		own.Config.Params[0].RefillPeriod = test.period
		limits.set("hot", own)
		e := newProcess(t, g, limits)
		e.core.options.RejectionAge = 250 * time.Millisecond
		takeFrom(t, e, "hot", map[string]int64{"rpm": 1000})
		split(t, e, "hot", 0)
		b := e.Memory.Bucket("hot", "model")
		others := *own
		others.Config.Params = slices.Clone(own.Config.Params)
		others.Config.Params[0].RefillPeriod = test.known
		give := func(number int, tokens int64) correction {
			return correction{bucket: b, limits: &others, shard: b.shard(number), amounts: amountsOf(map[string]int64{"rpm": -tokens})}
		}
		for number, room := range []int64{test.room, 0} {
			i := check.Call(e.items.readShard(t.Context(), b.shard(number))).Must(t, "readShard()")
			c := give(number, 1000-room-i.Limits[0].Tokens/millis)
			if _, err := e.settler.settleOnShard(t.Context(), &c, c.shard, c.amounts, nil, tolerance{}); err != nil {
				t.Fatalf("settleOnShard() = %v", err)
			}
		}
		transactions := 0
		g.onWrite(func(w []store.Write) error {
			if len(w) > 1 {
				transactions++
			}
			return nil
		})
		c := give(0, 200)
		if _, err := e.settler.settleAnywhere(t.Context(), &c, c.shard, c.amounts, nil); err != nil {
			t.Fatalf("settleAnywhere() = %v", err)
		}
		if got := available(t, g, limits, "hot", "rpm"); got != 2000 {
			t.Errorf("%+v: %d available, want all 2000", test, got)
		}
		if isFast := test.period == second; isFast && transactions > 0 && test.room == 0 {
			t.Errorf("%+v: %d transactions", test, transactions)
		}
		c = give(0, 200)
		if e.settler.isFull(t.Context(), &c, c.shard, c.amounts) && test.period == day {
			t.Errorf("%+v: a shard whose limits flow in slowly only counts what is given back", test)
		}
	}
}

// In TestFullByLimitsOfBefore, another process makes a fast limit slow. The images of the first process are old, and it reads the shards
// before it leaves out what is given back. By the limit that it finds, that does not flow in again.
func TestFullByLimitsOfBefore(t *testing.T) {
	const day, second = 86_400_000, 1000
	for _, period := range []int64{second, day} {
		g, limits := newGauge(t), fixedLimits{}
		own := perDay("", map[string]int64{"rpm": 2000})
		own.Config.Params[0].RefillPeriod = second
		limits.set("hot", own)
		e := newProcess(t, g, limits)
		e.core.options.RejectionAge = 250 * time.Millisecond
		r := takeFrom(t, e, "hot", map[string]int64{"rpm": 100})
		split(t, e, "hot", 0)
		g.now.Add(10_000)
		c := r.levels[0].returns(nil)[0]
		if !e.settler.isFull(t.Context(), &c, c.shard, c.amounts) {
			t.Fatal("no shard is full after ten seconds")
		}
		changed := *own
		changed.Epoch++
		changed.Config.Params = slices.Clone(own.Config.Params)
		changed.Config.Params[0].RefillPeriod = period
		other := newProcess(t, g, fixedLimits{})
		other.core.options.Source.(fixedLimits).set("hot", &changed)
		giveAllBack(t, other, takeFrom(t, other, "hot", map[string]int64{"rpm": 1}))
		g.now.Add(1000)
		if full := e.settler.isFull(t.Context(), &c, c.shard, c.amounts); full != (period == second) {
			t.Errorf("a limit of 2,000 in %d ms: isFull() = %v", period, full)
		}
	}
}

// TestInflowIsShared uses a limit of 1,000/s up, of which others have three quarters of all writes. A request then counts on the part of its
// process in what has flowed in since the last image, as long as a rejection may be based on that, and is rejected without a call. It counts
// on all of it where no other process writes, where hardly any request falls short, where it is not small, and where it waits.
func TestInflowIsShared(t *testing.T) {
	for _, test := range []struct {
		name         string
		others, mine float64 // writes a second
		short        float64 // requests a second
		age, rest    time.Duration
		asks         int64 // beyond the part of the process for 0 and less
		wait         time.Duration
		admitted     bool
		calls        int
	}{
		{"its part", 300, 100, 100, 250 * time.Millisecond, 100 * time.Millisecond, 0, 0, true, 1},
		{"more than its part", 300, 100, 100, 250 * time.Millisecond, 100 * time.Millisecond, -1, 0, false, 0},
		{"few writes, its part", 30, 10, 10, 250 * time.Millisecond, 100 * time.Millisecond, 0, 0, true, 1},
		{"few writes, more than its part", 30, 10, 10, 250 * time.Millisecond, 100 * time.Millisecond, -1, 0, false, 0},
		{"it writes nothing", 300, 0, 10, 250 * time.Millisecond, 100 * time.Millisecond, 90, 0, false, 0},
		{"no others", 0, 100, 100, 250 * time.Millisecond, 100 * time.Millisecond, 90, 0, true, 1},
		{"few fall short", 300, 100, 10, 250 * time.Millisecond, 100 * time.Millisecond, 90, 0, true, 1},
		{"the image is too old", 300, 100, 100, 250 * time.Millisecond, 250 * time.Millisecond, 90, 0, true, 1},
		{"no rejection from memory", 300, 100, 100, 0, 100 * time.Millisecond, 90, 0, true, 1},
		{"not small", 300, 100, 100, 250 * time.Millisecond, 200 * time.Millisecond, 130, 0, true, 1},
		{"it waits", 300, 100, 100, 250 * time.Millisecond, 100 * time.Millisecond, 90, time.Minute, true, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, limits := newGauge(t), hotLimits(1000)
			e := newProcess(t, g, limits)
			e.core.options.RejectionAge = test.age
			takeFrom(t, e, "hot", map[string]int64{"rpm": 1000})
			s := e.Memory.Bucket("hot", "model").shard(0)
			s.traffic.tally = tally{known: true, count: 1, at: g.now.Load(), writes: s.image.Load().Writes() / millis, others: test.others, mine: test.mine, short: test.short, span: 1000}
			s.traffic.fell.Store(test.short >= minShort)
			g.now.Add(test.rest.Milliseconds())
			if last := s.image.Load(); test.asks <= 0 { // a token flows in in a millisecond
				part := s.traffic.rationedAt(last, g.now.Load(), false) - last.askedAt
				if part == 0 || part == test.rest.Milliseconds() {
					t.Fatalf("the part is %d of %v", part, test.rest)
				}
				test.asks = part - test.asks
			}
			calls := 0
			g.onRead(func(_ []store.Key, after bool) {
				if !after {
					calls++
				}
			})
			g.onWrite(func([]store.Write) error {
				calls++
				return nil
			})
			r := Request{Entity: "hot", Resource: "model", Amounts: amountsOf(map[string]int64{"rpm": test.asks}), Wait: test.wait}
			err := e.Take(t.Context(), &r, new(Receipt))
			var rejected *RejectedError
			if admitted := err == nil; admitted != test.admitted || !admitted && !errors.As(err, &rejected) {
				t.Errorf("Take() = %v, admitted should be %v", err, test.admitted)
			}
			if calls != test.calls {
				t.Errorf("%d calls, want %d", calls, test.calls)
			}
			if rejected != nil {
				if s := rejected.Levels[0].Statuses[0]; !s.Short || s.Wait <= 0 || s.Available >= s.Requested {
					t.Errorf("the rejection tells %+v", s)
				}
			}
		})
	}
}

// TestRoomThatOthersTake asks for a child of a parent that is used up. Tokens flow in whenever the child is charged or gets its tokens back,
// and another process takes them before each write of the parent. The request is rejected in its second round, and gives back all that it
// has charged.
func TestRoomThatOthersTake(t *testing.T) {
	g, limits := newGauge(t), fixedLimits{}
	team := perDay("", map[string]int64{"rpm": 1000})
	team.Config.Params[0].RefillPeriod = 1000
	limits.set("team", team)
	limits.set("key-1", perDay("team", map[string]int64{"rpm": 1_000_000}))
	e, other := newProcess(t, g, limits), newProcess(t, g, limits)
	e.core.options.RejectionAge = 250 * time.Millisecond
	takeFrom(t, e, "key-1", map[string]int64{"rpm": 1})
	takeFrom(t, e, "team", map[string]int64{"rpm": 999})
	g.now.Add(5)
	var busy atomic.Bool
	var charged atomic.Int64 // writes of the child
	g.onWrite(func(w []store.Write) error {
		switch {
		case !strings.Contains(w[0].Key.PK, "team"):
			charged.Add(1)
			g.now.Add(5)
		case busy.CompareAndSwap(false, true):
			defer busy.Store(false)
			if n := available(t, g, limits, "team", "rpm"); n > 0 {
				takeFrom(t, other, "team", map[string]int64{"rpm": n})
			}
		}
		return nil
	})
	err := e.Take(t.Context(), &Request{Entity: "key-1", Resource: "model", Amounts: amountsOf(map[string]int64{"rpm": 3})}, new(Receipt))
	var rejected *RejectedError
	if !errors.As(err, &rejected) {
		t.Fatalf("Take() = %v, want a rejection", err)
	}
	if s := rejected.Levels[1].Statuses[0]; !s.Short || s.Wait <= 0 || s.Wait > 3 {
		t.Errorf("the rejection tells %+v of the parent", s)
	}
	if n := charged.Load(); n > 4 {
		t.Errorf("the child is written %d times, want two charges that are given back", n)
	}
	g.onWrite(func([]store.Write) error { return nil })
	if got := available(t, g, limits, "key-1", "rpm"); got != 999_999 {
		t.Errorf("the child has %d tokens, want 999,999", got)
	}
}

// usedOf returns the tokens that the shards of a bucket count as used of its first limit.
func usedOf(t *testing.T, e *Engine, b *Bucket) (sum int64) {
	t.Helper()
	b.walk((*shard).last, func(s *shard, _ *image) {
		i := check.Call(e.items.readShard(t.Context(), s)).Must(t, "readShard()")
		if i.exists {
			sum += i.Limits[0].Consumed / millis
		}
	})
	return sum
}

// In TestThrottledGather, a request falls short in each of two shards, and the store throttles the transaction over both, without a reason.
// If others write the bucket often, that is no outage: the shards reject the request, which is small beside them. Otherwise the failure
// policy decides.
func TestThrottledGather(t *testing.T) {
	for _, others := range []float64{0, 1000} { // writes a second
		g, limits := newGauge(t), fixedLimits{}
		limits.set("hot", perDay("", map[string]int64{"rpm": 2000}))
		e := newProcess(t, g, limits)
		takeFrom(t, e, "hot", map[string]int64{"rpm": 1980})
		split(t, e, "hot", 0)
		b := e.Memory.Bucket("hot", "model")
		g.onWrite(func(w []store.Write) error {
			if len(w) == 1 {
				return nil
			}
			for number := range 2 {
				b.shard(number).traffic.tally = tally{known: true, others: others, span: 1000}
			}
			return &store.Error{Op: "transact", Throttled: true, Unavailable: true, Err: context.DeadlineExceeded}
		})
		err := e.Take(t.Context(), &Request{Entity: "hot", Resource: "model", Amounts: amountsOf(map[string]int64{"rpm": 15})}, new(Receipt))
		if rejected := errors.As(err, new(*RejectedError)); rejected != (others > 0) || err == nil {
			t.Errorf("%v writes a second of others: Take() = %v", others, err)
		}
	}
}

// hotLimits are limits of an entity "hot", of which a thousand tokens flow in within a period.
func hotLimits(period int64) fixedLimits {
	own := perDay("", map[string]int64{"rpm": 1000})
	own.Config.Params[0].RefillPeriod = period
	limits := fixedLimits{}
	limits.set("hot", own)
	return limits
}

// beforeWrites calls a function before each write, with its number from 1, and returns how many there were: except those of the function.
func beforeWrites(g *gauge, do func(write int)) *int {
	writes, busy := new(int), false
	g.onWrite(func([]store.Write) error {
		if !busy {
			*writes++
			busy = true
			do(*writes)
			busy = false
		}
		return nil
	})
	return writes
}

// In TestOneReading, another process takes what has flowed in each time, before the write of this one. The write fails, and rejects the
// request by the time at which it came, though a token flows in meanwhile.
func TestOneReading(t *testing.T) {
	g, limits := newGauge(t), hotLimits(1000)
	e, other := newProcess(t, g, limits), newProcess(t, g, limits)
	takeFrom(t, e, "hot", map[string]int64{"rpm": 1000})
	takeFrom(t, other, "hot", map[string]int64{"rpm": 0})
	g.now.Add(5)
	writes := beforeWrites(g, func(int) {
		takeFrom(t, other, "hot", map[string]int64{"rpm": available(t, g, limits, "hot", "rpm")})
		g.now.Add(5)
	})
	err := e.Take(t.Context(), &Request{Entity: "hot", Resource: "model", Amounts: amountsOf(map[string]int64{"rpm": 1})}, new(Receipt))
	var rejected *RejectedError
	if !errors.As(err, &rejected) || *writes != 1 {
		t.Fatalf("Take() = %v after %d writes, want a rejection after one", err, *writes)
	}
	if s := rejected.Levels[0].Statuses[0]; s.Available < 0 || s.Wait <= 0 {
		t.Errorf("the rejection tells %+v", s)
	}
}

// In TestRequestsUnderWay, requests come while the process decides others that ask for all that a used-up bucket has. They are rejected
// without a call. When the others are decided, what they have left counts again.
func TestRequestsUnderWay(t *testing.T) {
	g, limits := newGauge(t), hotLimits(1000)
	e := newProcess(t, g, limits)
	e.core.options.RejectionAge = 250 * time.Millisecond
	takeFrom(t, e, "hot", map[string]int64{"rpm": 1000})
	s := e.Memory.Bucket("hot", "model").shard(0)
	s.traffic.fellShort(100)
	g.now.Add(100)
	calls := 0
	g.onWrite(func([]store.Write) error {
		calls++
		return nil
	})
	take := func(tokens int64) error {
		r := Request{Entity: "hot", Resource: "model", Amounts: amountsOf(map[string]int64{"rpm": tokens})}
		return e.Take(t.Context(), &r, new(Receipt))
	}
	under := []bucket.Amount{{Limit: "rpm", Tokens: 95 * millis}}
	s.traffic.pending.begins(under)
	var rejected *RejectedError
	if err := take(10); !errors.As(err, &rejected) || calls > 0 {
		t.Fatalf("beside requests for 95 of 100 tokens, Take() of 10 = %v after %d calls, want a rejection without any", err, calls)
	}
	if s := rejected.Levels[0].Statuses[0]; !s.Short || s.Available != 5*millis || s.Wait != 5 {
		t.Errorf("the rejection tells %+v, want 5 tokens and a wait of 5 ms", s)
	}
	more := []bucket.Amount{{Limit: "rpm", Tokens: 300 * millis}} // most of which are not there
	s.traffic.pending.begins(more)
	if err := take(10); !errors.As(err, &rejected) || calls > 0 {
		t.Fatalf("beside requests for 395 of 100 tokens, Take() of 10 = %v after %d calls, want a rejection without any", err, calls)
	}
	if s := rejected.Levels[0].Statuses[0]; !s.Short || s.Available != 0 || s.Wait != 10 {
		t.Errorf("beside requests for more than there is, the rejection tells %+v, want no tokens and a wait of 10 ms", s)
	}
	s.traffic.pending.ends(more)
	if err := take(5); err != nil || calls != 1 {
		t.Errorf("Take() of the other 5 = %v after %d calls, want none and one", err, calls)
	}
	s.traffic.pending.ends(under)
	if err := take(90); err != nil || calls != 2 {
		t.Errorf("after the others were refused, Take() of 90 = %v after %d calls, want none and two", err, calls)
	}
}

// In TestTakesAwaitTheStamp, a request is about to move the refill stamp of a full bucket, when another one of its process comes that relies on
// the stamp as it was. It waits for the new one, so neither condition fails.
func TestTakesAwaitTheStamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, limits := newGauge(t), fixedLimits{}
		own := perDay("", map[string]int64{"rpm": 1000})
		own.Config.Params[0].RefillPeriod = 1000
		limits.set("hot", own)
		e := newProcess(t, g, limits)
		takeFrom(t, e, "hot", map[string]int64{"rpm": 500})
		g.now.Add(700)
		var other sync.WaitGroup
		writes := 0
		g.onWrite(func([]store.Write) error {
			if writes++; writes == 1 {
				other.Go(func() { takeFrom(t, e, "hot", map[string]int64{"rpm": 250}) })
				synctest.Wait()
			}
			return nil
		})
		takeFrom(t, e, "hot", map[string]int64{"rpm": 250})
		other.Wait()
		if writes != 2 {
			t.Errorf("two requests of a full bucket make %d writes, want one each", writes)
		}
	})
}

// In TestJudgedAgain, another process takes by a later clock reading, before the write of this one. As of the time when the request came, the
// limit then falls short. It is judged by the present if at least a quarter of the limit is left.
func TestJudgedAgain(t *testing.T) {
	for taken, writes := range map[int64]int{600: 2, 800: 1} { // of 890
		g, limits := newGauge(t), hotLimits(1000)
		e, other := newProcess(t, g, limits), newProcess(t, g, limits)
		takeFrom(t, e, "hot", map[string]int64{"rpm": 500})
		takeFrom(t, other, "hot", map[string]int64{"rpm": 0})
		g.now.Add(10)
		sent := beforeWrites(g, func(write int) {
			if write == 1 {
				g.now.Add(390)
				takeFrom(t, other, "hot", map[string]int64{"rpm": taken})
			}
		})
		err := e.Take(t.Context(), &Request{Entity: "hot", Resource: "model", Amounts: amountsOf(map[string]int64{"rpm": 1})}, new(Receipt))
		if admitted := err == nil; admitted != (writes == 2) || *sent != writes {
			t.Errorf("another process takes %d: Take() = %v after %d writes, want %d", taken, err, *sent, writes)
		}
	}
}

// In TestShortShards, a request finds a shard short, whose sibling has tokens as last seen. It turns to that one by a write, and reads
// nothing. If another process has taken those tokens, too, the two failed writes reject the request. Nothing is read either.
func TestShortShards(t *testing.T) {
	for _, test := range []struct {
		name   string
		taken  int64 // of the other shard by another process
		writes int
		admits bool
	}{{"the other has tokens", 0, 2, true}, {"the other has none", 480, 2, false}} {
		t.Run(test.name, func(t *testing.T) {
			g, limits := newGauge(t), hotLimits(10_000)
			e, other := newProcess(t, g, limits), newProcess(t, g, limits)
			e.core.options.RejectionAge = 250 * time.Millisecond
			takeFrom(t, e, "hot", map[string]int64{"rpm": 40})
			split(t, e, "hot", 0) // each has 480, and half a token of the millisecond by which its stamp moves
			takeFrom(t, other, "hot", map[string]int64{"rpm": 0})
			take := func(of *Engine, shard int, tokens int64) error {
				b := of.Memory.Bucket("hot", "model")
				l := level{bucket: b, limits: limits["hot"].Load(), demand: bucket.Demand{Amounts: amountsOf(map[string]int64{"rpm": tokens})}}
				l.began, l.at = of.NextEpoch(), g.now.Load()
				return of.taker.takeAnywhere(t.Context(), &party{level: &l, lot: lotOf(shard), to: new(levelReceipt)})
			}
			for shard, tokens := range []int64{480, test.taken} {
				check.Fatal(t, "take()", take(other, shard, tokens))
			}
			reads, writes := 0, 0
			g.onRead(func([]store.Key, bool) { reads++ })
			g.onWrite(func([]store.Write) error {
				writes++
				g.now.Add(300) // longer than an image is recent
				return nil
			})
			err := take(e, 0, 2)
			if test.admits != (err == nil) || err != nil && !errors.Is(err, errShort) {
				t.Errorf("takeAnywhere() = %v, admitted should be %t", err, test.admits)
			}
			if writes != test.writes || reads > 0 {
				t.Errorf("%d writes and %d reads, want %d and none", writes, reads, test.writes)
			}
		})
	}
}
