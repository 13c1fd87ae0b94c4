package bucket

import (
	"math/big"
	"reflect"
	"slices"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

const waitNow = 1_700_000_000_000

// A queueing is a shard of a bucket, perhaps in debt, with demands some of which wait.
type queueing struct {
	c       Config
	state   State
	demands []*Demand
}

func drawQueueing(t *rapid.T) queueing {
	q := queueing{c: Config{Freshness: 500, ExpiryFactor: rapid.SampledFrom([]int64{0, 1, 7}).Draw(t, "factor")}}
	q.state = State{Shards: rapid.SampledFrom([]int{1, 2, 3}).Draw(t, "shards"), RefilledAt: waitNow - rapid.Int64Range(0, 2000).Draw(t, "age")}
	for _, name := range []string{"rpm", "tpm"}[:rapid.IntRange(1, 2).Draw(t, "limits")] {
		capacity := rapid.Int64Range(1, 100).Draw(t, "capacity")
		p := Params{Name: name, Capacity: capacity, RefillAmount: rapid.Int64Range(1, 100).Draw(t, "refill"), RefillPeriod: rapid.SampledFrom([]int64{7, 1000}).Draw(t, "period"), Floors: drawFloors(t)}
		q.c.Params = append(q.c.Params, p)
		tokens := rapid.Int64Range(-2*capacity, Share(capacity, 0, q.state.Shards)).Draw(t, "tokens")
		q.state.Limits = append(q.state.Limits, Limit{Name: name, Tokens: tokens, Capacity: capacity, RefillAmount: p.RefillAmount, RefillPeriod: p.RefillPeriod})
	}
	q.state.Limits = append(q.state.Limits, Limit{Name: WriteUnits, Tokens: WriteCapacity, Capacity: WriteCapacity, RefillAmount: WriteCapacity, RefillPeriod: 1000})
	if q.c.ExpiryFactor > 0 && !q.state.sharded() {
		q.state.ExpiresAt = seconds(waitNow) + rapid.Int64Range(1, 100).Draw(t, "ttl")
	}
	for range rapid.IntRange(1, 6).Draw(t, "demands") {
		d := &Demand{
			Wait:     rapid.SampledFrom([]int64{0, 10, 1000, 5000}).Draw(t, "wait"),
			Priority: rapid.SampledFrom([]string{"", "low", "lower"}).Draw(t, "priority"),
		}
		for _, p := range q.c.Params {
			d.Amounts = append(d.Amounts, Amount{Limit: p.Name, Tokens: rapid.Int64Range(0, p.Capacity+1).Draw(t, "amount of "+p.Name)})
		}
		q.demands = append(q.demands, d)
	}
	return q
}

func drawFloors(t *rapid.T) Floors {
	return rapid.SampledFrom([]Floors{"", "low=20", "low=33 lower=99", "lower=100"}).Draw(t, "floors")
}

// writtenAlone returns the item after the demands one after another, which of them were admitted, and when those are due.
func (q *queueing) writtenAlone(t *rapid.T) (stored *item, admitted []*Demand, due []int64) {
	state := q.state
	stored = &item{&state}
	for _, d := range q.demands {
		var plan Plan
		if plan.Decide(stored.image(), &q.c, d, waitNow); !plan.Writes() {
			continue
		}
		if !stored.apply(&plan) {
			t.Fatalf("the %v made from the item itself fails on it: %+v", plan.Kind, plan.Steps)
		}
		admitted, due = append(admitted, d), append(due, stored.state.Due(d.Amounts, nil))
	}
	return stored, admitted, due
}

// TestOneWriteAsOneAfterAnother compares one write for several demands with a write for each. It admits the same ones, leaves the same
// item, and reports the same time to each.
func TestOneWriteAsOneAfterAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := drawQueueing(t)
		q.c.Freshness = 0 // a spend leaves the refill to the next write, and the bucket may be full meanwhile
		alone, admitted, due := q.writtenAlone(t)
		var fitting []*Demand
		for i, as := range q.c.Fitting([]*State{&q.state}, q.demands, waitNow) {
			fits := as != nil
			if fits {
				fitting = append(fitting, q.demands[i])
			}
		}
		if !slices.Equal(fitting, admitted) {
			t.Fatalf("%d demands fit, %d are admitted one after another", len(fitting), len(admitted))
		}
		if len(fitting) == 0 {
			return
		}
		whole := check.Call(Join(fitting)).Must(t, "Join()")
		state := q.state
		stored := &item{&state}
		var plan Plan
		if plan.Decide(stored.image(), &q.c, &whole, waitNow); !plan.Writes() || !stored.apply(&plan) {
			t.Fatalf("the %v of all is not written: %+v", plan.Kind, plan.Steps)
		}
		for i := range q.c.Params {
			name := q.c.Params[i].Name
			one, other := stored.state.find(name), alone.state.find(name)
			if stored.state.Available(one, waitNow) != alone.state.Available(other, waitNow) || one.Consumed != other.Consumed {
				t.Fatalf("one write leaves %+v, one after another leave %+v", one, other)
			}
		}
		after := whole.Amounts
		for i, d := range fitting {
			after, _ = Sum(after, Negated(d.Amounts))
			if told := max(stored.state.Due(d.Amounts, after), waitNow); told != max(due[i], waitNow) {
				t.Fatalf("demand %d is told %d by one write, %d alone", i, told, due[i])
			}
		}
		checkFloors(t, &q, &plan, fitting)
	})
}

// checkFloors checks that the write of a plan fails on an item with a slightly lower balance, at which one of the demands
// would not be admitted.
func checkFloors(t *rapid.T, q *queueing, plan *Plan, fitting []*Demand) {
	for i := range q.c.Params {
		with := func(less int) *queueing {
			next := queueing{q.c, q.state, fitting}
			next.state.Limits = slices.Clone(q.state.Limits)
			next.state.Limits[i].Tokens -= int64(less)
			return &next
		}
		const most = 1 << 10
		less := 1 + sort.Search(most, func(less int) bool {
			_, admitted, _ := with(less + 1).writtenAlone(t)
			return len(admitted) < len(fitting)
		})
		if state := with(less).state; less <= most && (&item{&state}).apply(plan) {
			t.Fatalf("written on an item that does not have it: %+v", state.Limits)
		}
	}
}

// In TestNoWaitIsLonger, callers wait on shards. The reported time of a caller is never later than its wait. It is the first millisecond at
// which the refill has paid the debt.
func TestNoWaitIsLonger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := drawQueueing(t)
		state := q.state
		stored := &item{&state}
		for _, d := range q.demands {
			var plan Plan
			plan.Decide(stored.image(), &q.c, d, waitNow)
			if unseen := rapid.Bool().Draw(t, "unseen"); unseen && plan.Writes() {
				plan.SpendUnseen(stored.image(), &q.c, d, waitNow)
			}
			if !plan.Writes() || !stored.apply(&plan) {
				continue
			}
			due := stored.state.Due(d.Amounts, nil)
			if most := max(stored.state.RefilledAt, waitNow) + d.Wait; due > most {
				t.Fatalf("a caller who waits until %d is told %d", most, due)
			}
			paid := func(at int64) bool {
				return !slices.ContainsFunc(d.Amounts, func(a Amount) bool {
					l := stored.state.find(a.Limit)
					return a.Tokens > 0 && stored.state.chain(l, stored.state.RefilledAt, at, 0).of(l.Tokens) < 0
				})
			}
			if due > stored.state.RefilledAt && (!paid(due) || paid(due-1)) {
				t.Fatalf("told %d, which is not the first time at which %+v has paid %v", due, stored.state.Limits, d.Amounts)
			}
			if e := stored.state.ExpiresAt; e > 0 && d.Wait > 0 && e*1000 <= due {
				t.Fatalf("the item expires at %d, before %d", e*1000, due)
			}
		}
	})
}

// In TestGatherWaits, shards give more than they have to a caller that waits: each of them a part, and no deeper than its share.
func TestGatherWaits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Params{Name: "rpm", Capacity: 1000, RefillAmount: 100, RefillPeriod: 1000}
		c, wait := Config{Params: []Params{p}, Freshness: 500}, rapid.Int64Range(1, 5000).Draw(t, "wait")
		n := rapid.SampledFrom([]int{2, 4}).Draw(t, "shards")
		states, total := make([]*State, n), int64(0)
		for i := range states {
			states[i] = &State{Shard: i, Shards: n, RefilledAt: waitNow - 100}
			tokens := rapid.Int64Range(-100, 100).Draw(t, "tokens")
			total += tokens
			states[i].Limits = []Limit{{Name: "rpm", Tokens: tokens, Capacity: 1000, RefillAmount: 100, RefillPeriod: 1000}, {Name: WriteUnits, Capacity: WriteCapacity, RefillAmount: WriteCapacity, RefillPeriod: 1000}}
		}
		d := Demand{Amounts: []Amount{{Limit: "rpm", Tokens: rapid.Int64Range(1, 1000).Draw(t, "amount")}}, Wait: wait}
		depth := Refill(0, wait, 100, 1000)
		parts, ok := c.Gather(states, &d, false, waitNow)
		if covered := total+(view{&c, states, waitNow}).whole(&p).balance-total >= d.Amounts[0].Tokens-depth; ok && !covered {
			t.Fatalf("%d of %d are given, with a depth of %d", d.Amounts[0].Tokens, total, depth)
		}
		if !ok {
			return
		}
		given := int64(0)
		for _, part := range parts {
			given += Of(part.Amounts, "rpm")
			stored := &item{states[part.At]}
			if !stored.apply(&part.Plan) {
				t.Fatalf("shard %d does not give its part: %+v", part.At, part.Plan.Steps)
			}
			if left := stored.state.find("rpm").Tokens; left < -Share(depth, part.At, n)-1 {
				t.Fatalf("shard %d is left with %d, its depth is %d", part.At, left, Share(depth, part.At, n))
			}
		}
		if given != d.Amounts[0].Tokens {
			t.Fatalf("%d are given of %d", given, d.Amounts[0].Tokens)
		}
	})
}

// TestStatusesTellTheQueue checks that a status reports for a debt how long the queue is, and for a caller that waits
// whether that is too long.
func TestStatusesTellTheQueue(t *testing.T) {
	c := Config{Params: []Params{{Name: "rpm", Capacity: 10, RefillAmount: 10, RefillPeriod: 1000}}}
	state := &State{RefilledAt: waitNow, Limits: []Limit{{Name: "rpm", Tokens: -20, Capacity: 10, RefillAmount: 10, RefillPeriod: 1000}}}
	for _, test := range []struct {
		wait, amount int64
		want         Status
	}{
		{0, 0, Status{Available: -20, Queue: 2000}},
		{0, 5, Status{Available: -20, Queue: 2000, Requested: 5, Wait: 2500, Short: true}},
		{2499, 5, Status{Available: -20, Queue: 2000, Requested: 5, Wait: 2500, Short: true}},
		{2500, 5, Status{Available: -20, Queue: 2000, Requested: 5, Wait: 2500}},
		{1 << 40, 11, Status{Available: -20, Queue: 2000, Requested: 11, Wait: Never, Short: true}},
	} {
		test.want.Params = c.Params[0]
		d := &Demand{Amounts: []Amount{{Limit: "rpm", Tokens: test.amount}}, Wait: test.wait}
		if got := c.Statuses(nil, []*State{state}, d, waitNow); !reflect.DeepEqual(got, []Status{test.want}) {
			t.Errorf("%d for one that waits %d ms: %+v, want %+v", test.amount, test.wait, got[0], test.want)
		}
	}
}

// TestWaitersAreExact runs clients with old images on one item, with δ = 0: callers that wait, callers that do not, and refunds. It compares
// the item at each write with the ideal bucket that sees the same writes. Spends on an old stamp lose no refill and hand none out twice.
func TestWaitersAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Params{Name: "rpm", Capacity: rapid.Int64Range(1, 100).Draw(t, "capacity"), RefillAmount: rapid.Int64Range(1, 100).Draw(t, "refill"), RefillPeriod: 1000}
		c := Config{Params: []Params{p}}
		now, stored := int64(waitNow), &item{}
		b := &ideal{Params: p, balance: rat(p.Capacity), at: now}
		images := make([]*State, 3)
		old := 0
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 100), rapid.Int64Range(0, 5000)).Draw(t, "elapsed")
			by := &images[rapid.IntRange(0, 2).Draw(t, "client")]
			if rapid.Bool().Draw(t, "looks") {
				*by = stored.image()
			}
			d := Demand{Amounts: []Amount{{Limit: "rpm", Tokens: rapid.Int64Range(1, p.Capacity).Draw(t, "amount")}}}
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				d.Unchecked, d.Amounts[0].Tokens = true, -d.Amounts[0].Tokens
			case 1:
			default:
				d.Wait = rapid.Int64Range(1, 5000).Draw(t, "wait")
			}
			var plan Plan
			plan.Decide(*by, &c, &d, now)
			applied := stored.apply(&plan)
			*by = stored.image()
			if !applied {
				continue
			}
			if plan.Kind == Spend && stored.state.RefilledAt < now {
				old++
			}
			b.refill(now)
			b.consume(d.Amounts[0].Tokens)
			l := stored.state.find("rpm")
			if off := new(big.Rat).Sub(rat(stored.state.Available(l, now)), b.balance); off.Abs(off).Cmp(rat(1)) > 0 {
				t.Fatalf("a %v leaves %d, the ideal bucket has %v", plan.Kind, stored.state.Available(l, now), b.balance.FloatString(3))
			}
		}
		if old > 0 {
			t.Logf("%d spends on an old stamp", old)
		}
	})
}

// TestOldStampsAsk writes a spend on an old stamp to an item that has changed since its image. Either tokens were given
// back, so that the refill since the stamp does not fit, or the limits differ.
func TestOldStampsAsk(t *testing.T) {
	c := Config{Params: []Params{{Name: "rpm", Capacity: 100, RefillAmount: 10, RefillPeriod: 1000}}}
	state := State{Shards: 1, RefilledAt: waitNow - maxCredit, Limits: []Limit{
		{Name: "rpm", Tokens: -40, Capacity: 100, RefillAmount: 10, RefillPeriod: 1000},
		{Name: WriteUnits, Tokens: WriteCapacity, Capacity: WriteCapacity, RefillAmount: WriteCapacity, RefillPeriod: 1000},
	}}
	d := Demand{Amounts: []Amount{{Limit: "rpm", Tokens: 1}}, Wait: 60_000}
	for _, test := range []struct {
		name    string
		change  func(*State)
		applied bool
	}{
		{"as it was", func(*State) {}, true},
		{"others wait, too", func(s *State) { s.Limits[0].Tokens = -500 }, true},
		{"room for the refill", func(s *State) { s.Limits[0].Tokens = 90 }, true},
		{"no room for the refill", func(s *State) { s.Limits[0].Tokens = 91 }, false},
		{"others have moved the stamp", func(s *State) { s.RefilledAt++ }, false},
		{"the last place of the queue", func(s *State) { s.Limits[0].Tokens = -609 }, true}, // 600 flow in during the wait, and 10 have since
		{"the queue is full", func(s *State) { s.Limits[0].Tokens = -610 }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			stored := item{&state}
			stored.state = stored.image()
			test.change(stored.state)
			var plan Plan
			if plan.Decide(&state, &c, &d, waitNow); plan.Kind != Spend {
				t.Fatalf("Decide() plans to %v, want a spend", plan.Kind)
			}
			if applied := stored.apply(&plan); applied != test.applied {
				t.Errorf("applied is %v, want %v", applied, test.applied)
			}
		})
	}
}

// In TestQuotaTakesTheDebt, a quota takes the place of a limit that was in debt. What is owed is there when the quota resets.
func TestQuotaTakesTheDebt(t *testing.T) {
	daily := check.Call(calendar.Parse("0 0 * * *", "UTC")).Must(t, "calendar.Parse()")
	was := &State{RefilledAt: waitNow, Limits: []Limit{{Name: "rpm", Tokens: -20, Consumed: 30, Capacity: 10, RefillAmount: 10, RefillPeriod: 1000}}}
	is := &State{RefilledAt: waitNow + 500, Limits: []Limit{{Name: "rpm", Tokens: -15, Consumed: 30, Capacity: 10, RefillPeriod: 1, Rare: &Rare{Times: daily}}}}
	if due := is.DueSince(was, []Amount{{Limit: "rpm", Tokens: 10}}, nil); due != daily.Next(waitNow) {
		t.Errorf("due at %d, want %d", due, daily.Next(waitNow))
	}
}
