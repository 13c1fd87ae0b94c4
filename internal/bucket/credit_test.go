package bucket

import (
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// In TestCreditIsExact, several clients take of one item on credit: within a second, from images that are old, by writes that arrive late
// and in any order, with clocks a little apart and some refunds. Some writes are for several requests, each at its own time, and some plans
// expect other writes. The item has at any time what ideal buckets have that see the same writes,
// each at the latest time by which a write of the limit was judged. No rejection by the item itself is without a cause. A refund that was
// judged before that time may leave what flows in between the two beyond the capacity, until the next write at that time.
//
// [TestExact] has idle times and greater differences of clocks, in which a stamp is seldom young enough for credit.
func TestCreditIsExact(t *testing.T) {
	type held struct {
		plan   Plan
		demand Demand
		race   Race
		at     int64
		by     *client
		image  *State
	}
	onCredit, late, shared := 0, 0, 0
	placed := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		var c Config
		for _, name := range []string{"rpm", "tpm", "rpd"}[:rapid.IntRange(1, 3).Draw(t, "limits")] {
			c.Params = append(c.Params, Params{
				Name:         name,
				Capacity:     rapid.Int64Range(1, 12).Draw(t, "capacity") * 1000,
				RefillAmount: rapid.Int64Range(1, 40).Draw(t, "refill") * 1000,
				RefillPeriod: rapid.SampledFrom([]int64{997, 1000, 3000}).Draw(t, "period"),
			})
		}
		clients := make([]client, rapid.IntRange(2, 3).Draw(t, "clients"))
		for i := range clients {
			clients[i].skew = rapid.Int64Range(-50, 50).Draw(t, "skew")
		}
		now := int64(1_700_000_000_000)
		stored, buckets := &item{}, map[string]*ideal{}
		var under []held
		arrive := func(h held) {
			before := stored.image()
			applied := stored.apply(&h.plan)
			if !applied || before == nil || h.by.image == nil || before.RefilledAt != h.by.image.RefilledAt {
				h.by.image = stored.image()
			}
			if !applied {
				if h.plan.Writes() && h.race.Writes == 0 && reflect.DeepEqual(h.image, before) {
					t.Fatalf("the %v made from the item itself fails on it: %+v", h.plan.Kind, h.plan.Steps)
				}
				return
			}
			if h.plan.OnCredit {
				if onCredit++; !reflect.DeepEqual(h.image, before) {
					late++
				}
				if i := slices.IndexFunc(h.plan.Steps, func(s Step) bool { return s.Kind == Place }); i >= 0 {
					amount := h.plan.Steps[i].Values[2]
					placed[fmt.Sprint("waits ", h.demand.Waits(), ", gives back ", amount < 0)]++
					if placesAll(&h.plan) {
						placed["all"]++
					}
					if len(h.race.Asks) > 0 {
						shared++
					}
				}
			}
			for _, p := range c.Params {
				if buckets[p.Name] == nil {
					buckets[p.Name] = &ideal{Params: p, balance: rat(p.Capacity), at: stored.state.RefilledAt}
				}
				compare(t, stored.state, buckets[p.Name], &h.plan, &h.demand, h.race.Asks, h.at)
			}
		}
		for range rapid.IntRange(10, 80).Draw(t, "operations") {
			now += rapid.OneOf(rapid.Int64Range(0, 40), rapid.Int64Range(0, 40), rapid.Int64Range(0, 400)).Draw(t, "elapsed")
			for len(under) > 0 && rapid.Bool().Draw(t, "arrives") {
				i := rapid.IntRange(0, len(under)-1).Draw(t, "which")
				h := under[i]
				under = append(under[:i:i], under[i+1:]...)
				arrive(h)
			}
			by := &clients[rapid.IntRange(0, len(clients)-1).Draw(t, "client")]
			if rapid.IntRange(0, 3).Draw(t, "looks") == 0 {
				by.image = stored.image()
			}
			h := held{at: now + by.skew, by: by, image: by.image}
			if h.demand.Unchecked = rapid.IntRange(0, 5).Draw(t, "settles") == 0; !h.demand.Unchecked && rapid.Bool().Draw(t, "waits") {
				h.demand.Wait = rapid.Int64Range(1, 500).Draw(t, "wait")
			}
			for _, p := range c.Params {
				if least := int64(0); rapid.Bool().Draw(t, "asks "+p.Name) {
					if h.demand.Unchecked {
						least = -3
					}
					amount := rapid.Int64Range(least, 3).Draw(t, "amount") * 1000
					h.demand.Amounts = append(h.demand.Amounts, Amount{Limit: p.Name, Tokens: min(amount, p.Capacity)})
				}
			}
			h.race.Apart = rapid.SampledFrom([]int64{0, 100}).Draw(t, "apart")
			h.race.Writes = rapid.SampledFrom([]float64{0, 0, 1, 3}).Draw(t, "expected")
			if takes := !slices.ContainsFunc(h.demand.Amounts, func(a Amount) bool { return a.Tokens < 0 }); takes && rapid.IntRange(0, 2).Draw(t, "shares") == 0 {
				h.race.Asks = sharing(t, &h.demand, h.at)
			}
			h.plan.DecideIn(h.race, by.image, &c, &h.demand, h.at)
			if h.plan.Kind == Reject && reflect.DeepEqual(by.image, stored.image()) {
				checkRejection(t, stored.image(), buckets, &c, &h.demand, h.at)
			}
			if rapid.Bool().Draw(t, "late") {
				under = append(under, h)
			} else {
				arrive(h)
			}
		}
		for _, h := range under {
			arrive(h)
		}
	})
	if onCredit == 0 || late == 0 || shared == 0 {
		t.Errorf("%d writes on credit were done, %d of them from an old image; %d for several requests met a full limit", onCredit, late, shared)
	}
	for _, kind := range []string{"all", "waits false, gives back false", "waits true, gives back false", "waits false, gives back true"} {
		if placed[kind] == 0 {
			t.Errorf("no write on credit met a full limit: %s", kind)
		}
	}
}

// placesAll reports whether all limits that a plan takes from have been full.
func placesAll(p *Plan) bool {
	return !slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Kind == Below })
}

// sharing divides a demand among requests that came one after another before a time, and makes it the demand of all of them.
func sharing(t *rapid.T, whole *Demand, at int64) (asks []*Demand) {
	rest := whole.Amounts
	for came := at - rapid.Int64Range(0, 300).Draw(t, "first"); len(rest) > 0; came += rapid.Int64Range(0, 100).Draw(t, "next") {
		ask := *whole
		ask.Amounts, ask.At = nil, min(came, at)
		var left []Amount
		for _, a := range rest {
			part := rapid.Int64Range(0, a.Tokens).Draw(t, "part")
			if len(asks) == 3 {
				part = a.Tokens
			}
			ask.Amounts = append(ask.Amounts, Amount{Limit: a.Limit, Tokens: part})
			if part < a.Tokens {
				left = append(left, Amount{Limit: a.Limit, Tokens: a.Tokens - part})
			}
		}
		asks, rest = append(asks, &ask), left
	}
	if len(asks) < 2 {
		return nil
	}
	if whole.Wait == 0 {
		joined, err := Join(asks)
		if err != nil {
			t.Fatalf("join %d demands: %v", len(asks), err)
		}
		*whole = joined
	}
	return asks
}

// In TestRequestsThatShareMakeRoom, two requests share a write on a full bucket, half a second apart. The refill between them fits into the room
// that the first one makes.
func TestRequestsThatShareMakeRoom(t *testing.T) {
	c := Config{Params: []Params{{Name: "rpm", Capacity: 10_000, RefillAmount: 10_000, RefillPeriod: 1000}}}
	asks := []*Demand{{Amounts: []Amount{{Limit: "rpm", Tokens: 8000}}, At: 100}, {Amounts: []Amount{{Limit: "rpm", Tokens: 1000}}, At: 600}}
	whole, err := Join(asks)
	if err != nil {
		t.Fatalf("join the demands: %v", err)
	}
	var plan Plan
	stored := &item{}
	plan.Decide(nil, &c, &Demand{Amounts: []Amount{{Limit: "rpm", Tokens: 1}}}, 0)
	stored.apply(&plan)
	plan.DecideIn(Race{Apart: 100, Asks: asks}, stored.image(), &c, &whole, 600)
	if !stored.apply(&plan) || !plan.Places {
		t.Fatalf("the plan is %+v, want one that clamps the limit and applies", plan)
	}
	if got := (view{&c, []*State{stored.image()}, 600}).whole(&c.Params[0]).available(); got != 6000 {
		t.Errorf("%d are left, want 6000: all but 8000 at 100, and 1000 less than that with the refill at 600", got)
	}
}

// TestPlacedLimitsLeaveOutLittle runs clients whose clock readings are up to 100 ms apart on a limit that is nearly full. A write that places
// the limit at its ceiling may leave out a hundredth of the capacity, so that writes by earlier readings succeed, too. The limit never has
// more than the ideal bucket, and never less by more than that.
func TestPlacedLimitsLeaveOutLittle(t *testing.T) {
	placed := 0
	rapid.Check(t, func(t *rapid.T) {
		p := Params{Name: "tpm", Capacity: rapid.Int64Range(1, 100).Draw(t, "capacity") * 100_000, RefillPeriod: 1000}
		p.RefillAmount = p.Capacity / rapid.Int64Range(1, 100).Draw(t, "seconds")
		c := Config{Params: []Params{p}, Freshness: 1}
		now := int64(1 << 40)
		var plan Plan
		plan.Decide(nil, &c, &Demand{Amounts: []Amount{{Limit: "tpm", Tokens: 1000}}}, now)
		stored := &item{}
		stored.apply(&plan)
		b, seen := &ideal{Params: p, balance: rat(p.Capacity - 1000), at: now}, stored.image()
		for range rapid.IntRange(1, 40).Draw(t, "writes") {
			now += rapid.Int64Range(0, 60).Draw(t, "elapsed")
			at := now - rapid.Int64Range(0, 100).Draw(t, "late")
			d := Demand{Amounts: []Amount{{Limit: "tpm", Tokens: rapid.Int64Range(1, p.Capacity/50).Draw(t, "amount")}}}
			race := Race{Apart: 100, Writes: rapid.SampledFrom([]float64{0, 1, 3}).Draw(t, "expected")}
			plan.DecideIn(race, seen, &c, &d, at)
			if rapid.Bool().Draw(t, "looks") {
				seen = stored.image()
			}
			if !stored.apply(&plan) {
				continue
			}
			if plan.OnCredit && placesAll(&plan) {
				placed++
			}
			if !plan.OnCredit {
				at = max(at, stored.state.RefilledAt)
			}
			b.refill(at)
			b.consume(d.Amounts[0].Tokens)
			has := rat(add(stored.state.find("tpm").Tokens, Refill(stored.state.RefilledAt, b.at, p.RefillAmount, p.RefillPeriod)))
			most := new(big.Rat).Add(b.balance, rat(p.RefillAmount/p.RefillPeriod*2+2)) // of the freshness, rounded
			if least := new(big.Rat).Sub(b.balance, rat(p.Capacity/slackPart+1)); has.Cmp(least) < 0 || has.Cmp(most) > 0 {
				t.Fatalf("after a %v the limit has %v, the ideal bucket %v", plan.Kind, has.FloatString(0), b.balance.FloatString(0))
			}
		}
	})
	if placed == 0 {
		t.Error("no write placed the limit")
	}
}

// TestSplitOnCredit runs random programs on the shards of a bucket that is taken from several times a second, beside the ideal bucket,
// which is whole. Takes on credit leave the stamps of shards alone. Full shards give others what they cannot hold, and shards split and
// merge. Together they never have more than the ideal bucket, besides millitokens of rounding.
func TestSplitOnCredit(t *testing.T) {
	onCredit := 0
	rapid.Check(t, func(t *rapid.T) {
		p := Params{
			Name: "rpm", Capacity: rapid.Int64Range(1_000, 100_000).Draw(t, "capacity"),
			RefillAmount: rapid.Int64Range(1_000, 100_000).Draw(t, "refill"), RefillPeriod: rapid.Int64Range(500, 5_000).Draw(t, "period"),
		}
		c := Config{Params: []Params{p}}
		now := int64(1 << 40)
		shards := fullShards(&c, 1<<rapid.IntRange(1, 3).Draw(t, "shards"), now)
		whole := ideal{Params: p, balance: rat(p.Capacity), at: now}
		resizes, early := rapid.Bool().Draw(t, "resizes"), int64(0)
		for step := range rapid.IntRange(1, 100).Draw(t, "operations") {
			now += rapid.Int64Range(0, 900).Draw(t, "time")
			whole.refill(now)
			at := rapid.IntRange(0, len(shards)-1).Draw(t, "shard")
			if resizes && rapid.IntRange(0, 3).Draw(t, "resize") == 0 {
				early += p.RefillAmount/p.RefillPeriod + 1 // of the millisecond by which it moves the stamp
				shards.divide(t, &c, at, now)
				at = min(at, len(shards)-1)
			}
			rounding := rat(int64(32*(step+2)) + early)
			has := (view{&c, shards.images(), now}).whole(&p).available()
			if excess := rat(has); excess.Sub(excess, whole.balance).Cmp(rounding) > 0 {
				t.Fatalf("the shards have %d, the ideal bucket %v", has, whole.balance)
			}
			amount := rapid.Int64Range(1, p.Capacity/int64(len(shards))*3/2+1).Draw(t, "amount")
			d := Demand{Amounts: []Amount{{Limit: "rpm", Tokens: amount}}}
			if rapid.IntRange(0, 3).Draw(t, "waits") == 0 {
				d.Wait = rapid.Int64Range(1, 3000).Draw(t, "wait")
			}
			var plan Plan
			var admitted bool
			race := Race{Apart: rapid.SampledFrom([]int64{0, 100}).Draw(t, "apart"), Writes: rapid.SampledFrom([]float64{0, 1}).Draw(t, "expected")}
			if plan.DecideIn(race, shards[at].image(), &c, &d, now); plan.Writes() {
				if plan.OnCredit {
					onCredit++
				}
				admitted = shards[at].apply(&plan)
			} else {
				admitted = shards.gather(t, &c, &d, rapid.Bool().Draw(t, "even"), now)
			}
			if admitted {
				whole.consume(amount)
			}
		}
	})
	if onCredit == 0 {
		t.Error("no take left a stamp alone on credit")
	}
}

// TestSurplusOfTakesOnCredit takes from one of two shards on credit, just before the unsplit bucket would be full. What the other shard
// cannot hold until a second after the stamps is lost: the take may have come after it. Neither a view nor a merge counts it.
func TestSurplusOfTakesOnCredit(t *testing.T) {
	c := Config{Params: []Params{{Name: "rpm", Capacity: 20_000, RefillAmount: 20_000, RefillPeriod: 1000}}}
	for _, merges := range []bool{false, true} {
		shards := fullShards(&c, 2, 0)
		take := func(amount, now int64) (onCredit bool) {
			var plan Plan
			plan.Decide(shards[1].image(), &c, &Demand{Amounts: []Amount{{Limit: "rpm", Tokens: amount}}}, now)
			if !shards[1].apply(&plan) {
				t.Fatalf("a take of %d at %d does not apply", amount, now)
			}
			return plan.OnCredit
		}
		take(5_000, 0)
		if !take(9_000, 400) { // it has 9,000, and the unsplit bucket is full since 250
			t.Fatal("the take moves the stamp")
		}
		if merges {
			var plan Plan
			if plan.Merge(shards[0].image(), shards[1].image(), 400); !shards[0].apply(&plan) {
				t.Fatal("the merge does not apply")
			}
			shards = shards[:1]
		}
		want := map[int64]int64{400: 10_000, 900: 15_000} // what flows into the first shard after 400 finds no room
		if merges {
			want[900] = 20_000
		}
		for now, want := range want {
			if got := (view{&c, shards.images(), now}).whole(&c.Params[0]).available(); got != want {
				t.Errorf("merged %t: %d at %d, want %d", merges, got, now, want)
			}
		}
	}
}

// TestShardsAreNoWholeBuckets takes from a shard in two ways in which a whole bucket leaves its stamp alone: with a wait, from a stamp of
// over a second, and more than the shard holds, which was full since its stamp and has another limit that is used up.
func TestShardsAreNoWholeBuckets(t *testing.T) {
	c := Config{Params: []Params{
		{Name: "rpm", Capacity: 20_000, RefillAmount: 20_000, RefillPeriod: 1000},
		{Name: "tpm", Capacity: 20_000, RefillAmount: 20_000, RefillPeriod: 60_000},
	}}
	take := func(it *item, d Demand, now int64) *Plan {
		var plan Plan
		if plan.Decide(it.image(), &c, &d, now); plan.Writes() && !it.apply(&plan) {
			t.Fatalf("%+v does not apply", plan)
		}
		return &plan
	}
	waiting := fullShards(&c, 2, 0)[0]
	take(waiting, Demand{Amounts: []Amount{{Limit: "rpm", Tokens: 10_000}, {Limit: "tpm", Tokens: 10_000}}}, 0)
	if p := take(waiting, Demand{Amounts: []Amount{{Limit: "tpm", Tokens: 100}}, Wait: 60_000}, maxCredit+1); p.Kind != Advance {
		t.Errorf("a waiting caller takes from an old stamp by %v, want an advance", p.Kind)
	}
	full := fullShards(&c, 2, 0)[0]
	take(full, Demand{Amounts: []Amount{{Limit: "tpm", Tokens: 10_000}}}, 0)
	if p := take(full, Demand{Amounts: []Amount{{Limit: "rpm", Tokens: 10_001}, {Limit: "tpm", Tokens: 1}}}, 500); p.Kind != Reject {
		t.Errorf("more than a full shard holds is taken by %v, want a rejection", p.Kind)
	}
}
