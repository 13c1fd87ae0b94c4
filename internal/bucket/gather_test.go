package bucket

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// fullShards returns the shards of a full bucket.
func fullShards(c *Config, count int, now int64) tree {
	shards := make(tree, count)
	for i := range shards {
		var plan Plan
		plan.Create(c, &Demand{}, i, count, now)
		shards[i] = &item{}
		shards[i].apply(&plan)
	}
	return shards
}

func (shards tree) images() []*State {
	images := make([]*State, len(shards))
	for i, it := range shards {
		images[i] = it.image()
	}
	return images
}

// gather applies a demand to all shards, and reports whether it is admitted.
func (shards tree) gather(t *rapid.T, c *Config, d *Demand, even bool, now int64) bool {
	parts, ok := c.Gather(shards.images(), d, even, now)
	taken := int64(0)
	for i := range parts {
		if !shards[parts[i].At].apply(&parts[i].Plan) {
			t.Fatalf("part %d of %d does not apply: %+v", i, len(parts), parts[i])
		}
		taken += Of(parts[i].Amounts, c.Params[0].Name)
	}
	if asked := Of(d.Amounts, c.Params[0].Name); ok && taken != asked {
		t.Fatalf("the shards give %d of %d", taken, asked)
	}
	return ok
}

// take applies a demand to one shard or, where that falls short, to all of them. With even it does so, too, where it leaves the shards uneven.
func (shards tree) take(t *rapid.T, c *Config, at int, d *Demand, even bool, now int64) bool {
	if even && c.Uneven(shards.images(), at, d, now) {
		return shards.gather(t, c, d, true, now)
	}
	var plan Plan
	if plan.Decide(shards[at].image(), c, d, now); plan.Writes() {
		return shards[at].apply(&plan)
	}
	return shards.gather(t, c, d, false, now)
}

// resize splits a shard, or merges it with its sibling when that is of the same size. It returns what the bucket may have
// less by it: a millisecond of refill, and a millitoken of each shard. The rates of two halves differ by up to a
// millitoken a period, and so does the time in which they fill up. The same holds for what is reported for later times.
func (shards *tree) resize(t *rapid.T, c *Config, at int, now int64) (bound int64) {
	p := &c.Params[0]
	times := []int64{now, now + p.rule().slowest(p.Capacity)/7, now + p.rule().slowest(p.Capacity)/2}
	told := make([]int64, len(times))
	for i, later := range times {
		told[i] = (view{c, shards.images(), later}).whole(p).available()
	}
	bound = shards.divide(t, c, at, now)
	for i, later := range times {
		if got := (view{c, shards.images(), later}).whole(p).available(); got < told[i]-bound {
			t.Fatalf("%d after %d ms as told, and %d once it is one of %d shards", told[i], later-now, got, len(*shards))
		}
	}
	return bound
}

// siblings returns the places of a shard and of the one that it merges with, in the order of their numbers. One that is missing, or of
// another size, is at -1.
func (shards tree) siblings(it *item) (lower, higher int) {
	of := func(shard int) int {
		return slices.IndexFunc(shards, func(o *item) bool { return o.state.Shard == shard && o.state.Shards == it.state.Shards })
	}
	low, high := Sibling(it.state.Shard, it.state.Count())
	return of(low), of(high)
}

// split splits a shard by an image of it, and returns the new one; nil if the write failed, or there are eight shards.
func (shards *tree) split(it *item, image *State) *State {
	if it.state.Count() >= 8 {
		return nil
	}
	var plan Plan
	plan.Split(image)
	created := plan.Item
	created.Limits = slices.Clone(created.Limits)
	if !it.apply(&plan) {
		return nil
	}
	*shards = append(*shards, &item{&created})
	return &created
}

// divide splits a shard, or merges it, as resize does.
func (shards *tree) divide(t *rapid.T, c *Config, at int, now int64) (bound int64) {
	p := &c.Params[0]
	it := (*shards)[at]
	var plan Plan
	p.rule().each(func(r rule) { bound = max(bound, r.refill/r.period+1+int64(len(*shards))) })
	switch lower, higher := shards.siblings(it); {
	case it.state.Shards > 1 && lower >= 0 && higher >= 0 && rapid.Bool().Draw(t, "merge"):
		plan.Merge((*shards)[lower].image(), (*shards)[higher].image(), now)
		if !(*shards)[lower].apply(&plan) {
			t.Fatalf("%+v does not apply", plan)
		}
		*shards = slices.Delete(*shards, higher, higher+1)
	case it.state.Shards < 32:
		plan.Split(it.image())
		slowest := int64(0)
		p.rule().each(func(r rule) {
			slowest = max(slowest, it.state.share(p.Name, r.capacity)/max(Share(r.refill, plan.Item.Shard, plan.Item.Shards), 1)+1)
		})
		bound += slowest
		created := plan.Item
		created.Limits = slices.Clone(created.Limits)
		if !it.apply(&plan) {
			t.Fatalf("%+v does not apply", plan)
		}
		*shards = append(*shards, &item{&created})
	}
	return bound
}

// TestSplitIsWhole runs random programs on the shards of a bucket beside the ideal bucket, which is whole. The shards
// admit no more than the ideal bucket, and all of it that they have together. While they are kept even, they have at
// most an eighth of the capacity less than it. Some of them split and merge on the way. The bucket then has no less
// than it was reported to have, except the bound of [tree.resize].
func TestSplitIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Params{
			Name: "rpm", Capacity: rapid.Int64Range(1_000, 1<<40).Draw(t, "capacity"),
			RefillAmount: rapid.Int64Range(1_000, 1<<30).Draw(t, "refill"), RefillPeriod: rapid.Int64Range(1, 100_000).Draw(t, "period"),
		}
		c := Config{Params: []Params{p}}
		count := 1 << rapid.IntRange(1, 4).Draw(t, "shards")
		now := int64(1 << 40)
		shards := fullShards(&c, count, now)
		whole := ideal{Params: p, balance: rat(p.Capacity), at: now}
		even, resizes := rapid.Bool().Draw(t, "even"), rapid.Bool().Draw(t, "resizes")
		lost := int64(0) // by splits and merges, at most
		for step := range rapid.IntRange(1, 40).Draw(t, "operations") {
			if rapid.Bool().Draw(t, "waits") {
				now += rapid.Int64Range(0, 2*p.rule().slowest(p.Capacity)/int64(count)).Draw(t, "time")
			}
			whole.refill(now)
			at := rapid.IntRange(0, len(shards)-1).Draw(t, "shard")
			if resizes && rapid.Bool().Draw(t, "resize") {
				lost += shards.resize(t, &c, at, now)
				at = min(at, len(shards)-1)
			}
			d := Demand{Amounts: []Amount{{Limit: "rpm", Tokens: rapid.Int64Range(1, p.Capacity/int64(count)*2).Draw(t, "amount")}}}
			amount := d.Amounts[0].Tokens
			before := (view{&c, shards.images(), now}).whole(&c.Params[0]).available()
			rounding := rat(int64(32*(step+2)) + lost) // of each shard and step, in millitokens
			if excess := rat(before); excess.Sub(excess, whole.balance).Cmp(rounding) > 0 {
				t.Fatalf("the shards have %d, the ideal bucket %v", before, whole.balance)
			}
			if short := rat(before + p.Capacity/8 + int64(count)); even && short.Sub(whole.balance, short).Cmp(rounding) > 0 {
				t.Fatalf("the shards have %d, the ideal bucket %v, of %d", before, whole.balance, p.Capacity)
			}
			admitted := shards.take(t, &c, at, &d, even, now)
			if admitted != (amount <= before) {
				t.Fatalf("a demand of %d on %d: admitted %v", amount, before, admitted)
			}
			if admitted {
				whole.consume(amount)
			}
			for _, it := range shards {
				// A half of the credit of a split may flow in more slowly, by a millitoken a period.
				if l := it.state.find("rpm"); l.Tokens > it.state.share("rpm", l.Capacity) || it.state.Available(l, now) < -2-maxCredit/p.RefillPeriod {
					t.Fatalf("shard %d of %d has %d", it.state.Shard, it.state.Shards, l.Tokens)
				}
			}
		}
	})
}

// TestGatherMovesRefill takes from one of two shards and waits. A demand of all that the whole bucket has gets what the
// full shard could not hold, from a second after the take on.
func TestGatherMovesRefill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{Params: []Params{{Name: "rpm", Capacity: 10_000_000, RefillAmount: 1_000_000, RefillPeriod: 1000}}}
		shards := fullShards(&c, 2, 0)
		take := Demand{Amounts: []Amount{{Limit: "rpm", Tokens: 4_900_000}}}
		var plan Plan
		plan.Decide(shards[0].image(), &c, &take, 0)
		shards[0].apply(&plan)
		all := Demand{Amounts: []Amount{{Limit: "rpm", Tokens: 8_600_000}}}
		more := Demand{Amounts: []Amount{{Limit: "rpm", Tokens: 8_600_001}}}
		if got := c.Statuses(nil, shards.images(), &more, 4000); got[0].Available != 8_600_000 || got[0].Wait != 1 {
			t.Fatalf("status %+v, want 8,600,000 available and a wait of 1 ms", got[0])
		}
		if shards.gather(t, &c, &more, false, 4000) {
			t.Fatal("more than the whole bucket has is admitted")
		}
		if !shards.gather(t, &c, &all, false, 4000) {
			t.Fatal("what the whole bucket has is rejected")
		}
		if got := c.Statuses(nil, shards.images(), &Demand{}, 4000); got[0].Available != 0 {
			t.Fatalf("%d are left, want 0", got[0].Available)
		}
	})
}

// TestSpreadSharesDebts charges more than there is: every shard is left with the same part of its share in debt.
func TestSpreadSharesDebts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{Params: []Params{{Name: "rpm", Capacity: 4_000, RefillAmount: 1, RefillPeriod: 1 << 40}}}
		shards := fullShards(&c, 4, 0)
		amount := rapid.Int64Range(4_001, 40_000).Draw(t, "amount")
		back, children := rapid.Int64Range(0, 10).Draw(t, "back"), rapid.Int64Range(-10, 50_000).Draw(t, "part of children")
		narrower := rapid.Int64Range(-10, 50_000).Draw(t, "part of narrower resources")
		keep := func(s *State) *Config { return &Config{Params: s.Params()} }
		parts, ok := Spread(keep, shards.images(), 2, &Demand{Amounts: []Amount{{"rpm", amount, children, narrower, 0}, {Limit: "tpm", Tokens: -back}}}, 0)
		if !ok {
			t.Fatal("not planned")
		}
		taken := int64(0)
		for i := range parts {
			if !shards[parts[i].At].apply(&parts[i].Plan) {
				t.Fatalf("part %d does not apply", i)
			}
			taken += Of(parts[i].Amounts, "rpm")
		}
		least, most, counted, within := shards[0].state.find("rpm").Tokens, shards[0].state.find("rpm").Tokens, int64(0), int64(0)
		for _, it := range shards {
			counted += it.state.find("rpm").FromChildren()
			within += it.state.find("rpm").FromNarrower()
			least, most = min(least, it.state.find("rpm").Tokens), max(most, it.state.find("rpm").Tokens)
		}
		if taken != amount || counted != children || within != narrower || most-least > 4 || most > 2 {
			t.Fatalf("%d of %d taken, %d of %d by children, %d of %d by narrower resources, balances from %d to %d", taken, amount, counted, children, within, narrower, least, most)
		}
	})
}

func TestPortionsAddUp(t *testing.T) {
	taken := [][]Amount{{{Limit: "rpm", Tokens: 3}, {Limit: "tpm", Tokens: 10}}, {{Limit: "rpm", Tokens: 2}}}
	first := Portion(taken, []Amount{{"rpm", 4, 4, 2, 0}, {Limit: "tpm", Tokens: 1}})
	second := Portion(taken, []Amount{{Limit: "rpm", Tokens: 1}, {Limit: "tpm", Tokens: 9}})
	if want := [][]Amount{{{"rpm", 3, 3, 2, 0}, {Limit: "tpm", Tokens: 1}}, {{"rpm", 1, 1, 0, 0}}}; !slices.EqualFunc(first, want, slices.Equal) {
		t.Errorf("first portion %v, want %v", first, want)
	}
	if want := [][]Amount{{{Limit: "tpm", Tokens: 9}}, {{Limit: "rpm", Tokens: 1}}}; !slices.EqualFunc(second, want, slices.Equal) {
		t.Errorf("second portion %v, want %v", second, want)
	}
}

// TestLeadingStampIsSetBack decides on an item whose refill stamp no correct clock can have written: the write sets it
// back, and nothing flows in.
func TestLeadingStampIsSetBack(t *testing.T) {
	c := Config{Params: []Params{{Name: "rpm", Capacity: 1000, RefillAmount: 1000, RefillPeriod: 1000}}, Lead: 10_000}
	now := int64(1_000_000)
	it := fullShards(&c, 1, now+10_001)[0]
	if c.InLine(it.state, now) || !c.InLine(it.state, now+1) {
		t.Fatal("only a stamp more than the lead ahead is out of line")
	}
	it.state.Limits[0].Tokens = 400
	var plan Plan
	plan.Decide(it.image(), &c, &Demand{Amounts: []Amount{{Limit: "rpm", Tokens: 500}}}, now)
	if plan.Kind != Reject {
		t.Fatalf("plan %v, want a rejection", plan.Kind)
	}
	plan.Align(it.image(), &c, now)
	if !it.apply(&plan) || it.state.RefilledAt != now || it.state.Limits[0].Tokens != 400 {
		t.Fatalf("after the write the item is %+v", it.state)
	}
}

// TestOtherLimitsAreBounded names new limits again and again. The item keeps a few full limits, and never drops a limit
// that is not full.
func TestOtherLimitsAreBounded(t *testing.T) {
	it, now := &item{}, int64(1000)
	var plan Plan
	for i := range 200 {
		c := Config{Params: []Params{{Name: string(rune('a'+i%26)) + string(rune('a'+i/26)), Capacity: 10, RefillAmount: 10, RefillPeriod: 1000}}, Partial: true}
		d := Demand{Amounts: []Amount{{Limit: c.Params[0].Name, Tokens: 5}}}
		if plan.Decide(it.image(), &c, &d, now); !plan.Writes() || !it.apply(&plan) {
			t.Fatalf("request %d: plan %v", i, plan.Kind)
		}
		now += 500
		if others := len(it.state.Limits) - 2; others > maxOthers+1 {
			t.Fatalf("the item has %d other limits", others)
		}
	}
	crowded := false
	for i := range 200 { // none of them fills up
		c := Config{Params: []Params{{Name: "x" + string(rune('a'+i%26)) + string(rune('a'+i/26)), Capacity: 10, RefillAmount: 1, RefillPeriod: 1 << 40}}, Partial: true}
		d := Demand{Amounts: []Amount{{Limit: c.Params[0].Name, Tokens: 5}}}
		if plan.Decide(it.image(), &c, &d, now); plan.Kind == Crowded {
			crowded = true
			break
		}
		it.apply(&plan)
	}
	if got := len(it.state.Limits) - 1; !crowded || got > MaxLimits {
		t.Fatalf("crowded %v, the item has %d limits", crowded, got)
	}
}

// TestPiledUpLimitsGo configures an item that has more limits than one write can take from it. The parts go one after
// another, and no limit that stays loses refill.
func TestPiledUpLimitsGo(t *testing.T) {
	for _, partial := range []bool{false, true} {
		it := &item{state: &State{RefilledAt: 0, Shards: 1}}
		for i := range 100 {
			it.state.Limits = append(it.state.Limits, Limit{Name: string(rune('a'+i%26)) + string(rune('a'+i/26)), Tokens: 500, Capacity: 1000, RefillAmount: 100, RefillPeriod: 1000})
		}
		c := Config{Params: []Params{{Name: "rpm", Capacity: 1000, RefillAmount: 1000, RefillPeriod: 1000}}, Partial: partial}
		want, least := []int{}, 0
		if partial {
			least = maxOthers
		}
		for others := 100; others > least; {
			others = max(others-maxDrops, least)
			want = append(want, others)
		}
		for write, others := range want {
			now := int64(5000 + 1000*write) // when all of them are full
			var plan Plan
			plan.Align(it.image(), &c, now)
			if plan.Writes() && !it.apply(&plan) {
				t.Fatalf("write %d: %v was not applied", write, plan.Kind)
			}
			got := 0
			for _, l := range it.state.Limits {
				if l.Name != WriteUnits && l.Name != "rpm" {
					if got++; l.Tokens != l.Capacity {
						t.Errorf("write %d: %s has %d, want %d", write, l.Name, l.Tokens, l.Capacity)
					}
				}
			}
			if got != others {
				t.Errorf("write %d: the item has %d other limits, want %d; partial %v", write, got, others, partial)
			}
		}
		if !c.InLine(it.state, 10_000) {
			t.Errorf("the item is not in line, partial %v", partial)
		}
	}
}

// TestStampsAheadGiveNothing gives one of two shards a refill stamp ahead of the time. What flows into the other one
// until then is not there yet.
func TestStampsAheadGiveNothing(t *testing.T) {
	const now = 1_000_000
	c := &Config{Params: []Params{{Name: "rpm", Capacity: 100_000, RefillAmount: 1000, RefillPeriod: 1}}, Lead: 10_000}
	shards := fullShards(c, 2, now).images()
	shards[0].RefilledAt = now + 5
	for _, s := range shards {
		s.find("rpm").Tokens = 0
	}
	status := c.Statuses(nil, shards, &Demand{}, now)[0]
	if status.Available != 0 {
		t.Errorf("%d are available, want 0", status.Available)
	}
	shards[1].find("rpm").Capacity++ // the shard is brought in line a millisecond later, with a new stamp
	parts, ok := c.Gather(shards, &Demand{}, true, now)
	if !ok || len(parts) != 2 || parts[0].Plan.Now != now+5 || parts[1].Plan.Now != now+1 {
		t.Fatalf("Gather() = %+v, %t, want stamps at %d and %d", parts, ok, now+5, now+1)
	}
	left := int64(0)
	for _, p := range parts {
		for _, step := range p.Plan.Steps {
			if step.Kind == Credit && step.Limit == "rpm" {
				left += step.Values[1]
			}
		}
	}
	if left != 500 {
		t.Errorf("the shards are left with %d, want the refill of one of them in a millisecond, 500", left)
	}
}

// TestIsTrickle asks four shards, one of which falls short, whether they have only a trickle of a limit.
func TestIsTrickle(t *testing.T) {
	const now = 1_000_000
	c := &Config{Params: []Params{
		{Name: "fast", Capacity: 4000, RefillAmount: 4000, RefillPeriod: 1000},
		{Name: "slow", Capacity: 4000, RefillAmount: 4000, RefillPeriod: 86_400_000},
	}}
	for _, test := range []struct {
		name              string
		fast, slow        int64 // what the first shard has
		others            int64 // what each of the others has of both
		asks              []Amount
		isTrickle, within bool
	}{
		{"used up", 50, 1000, 300, []Amount{{Limit: "fast", Tokens: 100}}, true, true},
		{"used up, and nothing is remembered", 50, 1000, 300, []Amount{{Limit: "fast", Tokens: 100}}, false, false},
		{"others have more", 50, 1000, 320, []Amount{{Limit: "fast", Tokens: 100}}, false, true},
		{"more than flows into a shard", 50, 1000, 300, []Amount{{Limit: "fast", Tokens: 251}}, false, true},
		{"slow", 1000, 50, 1, []Amount{{Limit: "slow", Tokens: 100}}, false, true},
		{"short of both", 50, 50, 1, []Amount{{Limit: "fast", Tokens: 100}, {Limit: "slow", Tokens: 100}}, false, true},
		{"short of the fast one alone", 50, 1000, 300, []Amount{{Limit: "fast", Tokens: 100}, {Limit: "slow", Tokens: 100}}, true, true},
	} {
		states := fullShards(c, 4, now).images()
		for at, s := range states {
			s.Limits[0].Tokens, s.Limits[1].Tokens = test.others, test.others
			if at == 0 {
				s.Limits[0].Tokens, s.Limits[1].Tokens = test.fast, test.slow
			}
		}
		within := int64(0)
		if test.within {
			within = 250
		}
		if got := c.IsTrickle(states, states[0], &Demand{Amounts: test.asks}, now, now, within); got != test.isTrickle {
			t.Errorf("%s: IsTrickle() = %v", test.name, got)
		}
	}
}
