package bucket

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

func TestFloorsOf(t *testing.T) {
	floors := Floors("low=20 lower=100 lo=7")
	for priority, want := range map[string]int64{"": 0, "low": 20, "lower": 100, "lo": 7, "l": 0, "20": 0, "low=20": 0} {
		if got := floors.Of(priority); got != want {
			t.Errorf("Of(%q) = %d, want %d", priority, got, want)
		}
	}
	if got := floors.kept("low", 1<<62); got != (1<<62)/5 {
		t.Errorf("a fifth of a large capacity is %d", got)
	}
}

// In TestFloors, requests of three priorities take from shards. A request is admitted exactly if the balance covers its
// amount and its floor. A refused request learns the first millisecond at which it is admitted.
func TestFloors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1, 1000).Draw(t, "capacity")
		p := Params{Name: "rpm", Capacity: capacity, RefillAmount: rapid.Int64Range(1, 100).Draw(t, "refill"), RefillPeriod: 1000, Floors: "low=20 lower=75"}
		if rapid.Bool().Draw(t, "windows") {
			w := check.Call(calendar.ParseWindows("*/2 * * * * x0.5", "UTC")).Must(t, "calendar.ParseWindows()")
			p.Windows = w
		}
		c := Config{Params: []Params{p}, Freshness: rapid.SampledFrom([]int64{0, 300}).Draw(t, "freshness")}
		stored, now := &item{}, int64(waitNow)
		for range rapid.IntRange(1, 20).Draw(t, "requests") {
			now += rapid.Int64Range(0, 40_000).Draw(t, "later")
			d := Demand{
				Amounts:  []Amount{{Limit: "rpm", Tokens: rapid.Int64Range(1, capacity).Draw(t, "amount")}},
				Priority: rapid.SampledFrom([]string{"", "low", "lower"}).Draw(t, "priority"),
			}
			kept := p.Floors.kept(d.Priority, p.rule().capacityAt(now))
			states := []*State{}
			if s := stored.image(); s != nil {
				states = append(states, s)
			}
			before, status := (view{&c, states, now}).available(&p, &d), c.Statuses(nil, states, &d, now)[0]
			if status.Kept != kept {
				t.Fatalf("%q is told that it leaves %d, want %d", d.Priority, status.Kept, kept)
			}
			var plan Plan
			plan.Decide(stored.image(), &c, &d, now)
			fits := before-d.Amounts[0].Tokens >= kept
			if room := c.Room(states, &d, now, 0); (room > 0) != fits {
				t.Fatalf("%q takes %v of %d and leaves %d: there is room for %d", d.Priority, d.Amounts, before, kept, room)
			}
			if plan.Writes() != fits || status.Short == fits {
				t.Fatalf("%q takes %v of %d and leaves %d: %v, told %+v", d.Priority, d.Amounts, before, kept, plan.Kind, status)
			}
			if plan.Writes() {
				if !stored.apply(&plan) {
					t.Fatalf("the %v made from the item itself fails on it: %+v", plan.Kind, plan.Steps)
				}
				continue
			}
			if status.Wait == Never {
				most := capacity
				if p.Windows != nil { // every other minute cuts off what is above half, and the one after it lets in so much
					most = min(most, capacity/2+60*p.RefillAmount-1)
				}
				if needs := d.Amounts[0].Tokens + p.Floors.kept(d.Priority, capacity); needs <= most {
					t.Fatalf("%q is told never, and needs %d of %d", d.Priority, needs, most)
				}
				continue
			}
			admits := func(at int64) bool {
				plan.Decide(stored.image(), &c, &d, at)
				return plan.Writes()
			}
			if !admits(now+status.Wait) || admits(now+status.Wait-1) {
				t.Fatalf("%q is told to wait %d, which is not the first millisecond that admits it", d.Priority, status.Wait)
			}
		}
	})
}

// TestGatherFloors gathers a request with a floor from several shards. It is admitted exactly where all shards together
// cover the amount and the floor. A shard that gives keeps its share of the floor, or its balance where that is less.
func TestGatherFloors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Params{Name: "rpm", Capacity: 1000, RefillAmount: 100, RefillPeriod: 1000, Floors: "low=20"}
		c := Config{Params: []Params{p}, Freshness: 500}
		n := rapid.SampledFrom([]int{2, 4}).Draw(t, "shards")
		states := make([]*State, n)
		for i := range states {
			states[i] = &State{Shard: i, Shards: n, RefilledAt: waitNow - 100}
			tokens := rapid.Int64Range(-100, Share(1000, i, n)).Draw(t, "tokens")
			states[i].Limits = []Limit{{Name: "rpm", Tokens: tokens, Capacity: 1000, RefillAmount: 100, RefillPeriod: 1000}, {Name: WriteUnits, Capacity: WriteCapacity, RefillAmount: WriteCapacity, RefillPeriod: 1000}}
		}
		d := Demand{Amounts: []Amount{{Limit: "rpm", Tokens: rapid.Int64Range(1, 1000).Draw(t, "amount")}}, Priority: "low"}
		available := (view{&c, states, waitNow}).available(&p, &d)
		parts, ok := c.Gather(states, &d, rapid.Bool().Draw(t, "even"), waitNow)
		if fits := available-d.Amounts[0].Tokens >= 200; ok != fits {
			t.Fatalf("%d of %d are given: %v, want %v", d.Amounts[0].Tokens, available, ok, fits)
		}
		given := int64(0)
		for _, part := range parts {
			given += Of(part.Amounts, "rpm")
			was := states[part.At].Available(states[part.At].find("rpm"), waitNow)
			less := *states[part.At]
			less.Limits = append([]Limit(nil), less.Limits...)
			less.Limits[0].Tokens = Of(part.Amounts, "rpm") + Share(200, part.At, n) - 11 // 10 flow in at most
			if was > less.Limits[0].Tokens+10 && (&item{&less}).apply(&part.Plan) {
				t.Fatalf("shard %d gives %v of what it leaves: %+v", part.At, part.Amounts, part.Plan.Steps)
			}
			stored := &item{states[part.At]}
			if !stored.apply(&part.Plan) {
				t.Fatalf("shard %d does not give its part: %+v", part.At, part.Plan.Steps)
			}
		}
		if ok && given != d.Amounts[0].Tokens {
			t.Fatalf("%d of %d are given", given, d.Amounts[0].Tokens)
		}
	})
}
