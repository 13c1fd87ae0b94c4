package bucket

import (
	"errors"
	"slices"
	"testing"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

const (
	grantStart = 1_792_879_200_000 // the beginning of an hour
	grantHour  = 3_600_000
)

// hourly is a quota of 1,000 beside a limit that refills.
func hourly(t *testing.T) Config {
	t.Helper()
	return Config{Freshness: 2000, Params: []Params{
		{Name: "a", Capacity: 1000, RefillPeriod: 1000, Times: timesOf(t, "0 * * * *", "UTC")},
		{Name: "b", Capacity: 1000, RefillAmount: 60, RefillPeriod: 60_000},
	}}
}

// lent returns the shards of a bucket of which 500 of a limit are granted until a time.
func lent(t *testing.T, c *Config, count int, limit string, until int64) tree {
	t.Helper()
	shards := fullShards(c, count, grantStart)
	parts, _, err := c.Change(shards.images(), &ManualChange{Gifts: []Amount{{Limit: limit, Tokens: 500}}, Until: until}, count > 1, 7, grantStart)
	check.Fatal(t, "Change()", err)
	for i := range parts {
		if !shards[i].apply(&parts[i].Plan) {
			t.Fatalf("%+v does not apply", parts[i].Plan)
		}
	}
	return shards
}

// takeOf takes of a limit of an item, by an image.
func takeOf(t *testing.T, c *Config, it *item, image *State, limit string, amount, now int64) {
	t.Helper()
	var plan Plan
	if plan.Decide(image, c, &Demand{Amounts: []Amount{{Limit: limit, Tokens: amount}}}, now); !it.apply(&plan) {
		t.Fatalf("%d of %s: %+v does not apply", amount, limit, plan)
	}
}

// TestEdgesAskForTheRest crosses an edge during a grant by an old image, after another client took of the grant. The
// write fails, in an advance and in a merge.
func TestEdgesAskForTheRest(t *testing.T) {
	c := hourly(t)
	shards := lent(t, &c, 1, "a", grantStart+2*grantHour)
	image := shards[0].image()
	takeOf(t, &c, shards[0], shards[0].image(), "a", 1400, grantStart+1)
	var plan Plan
	if plan.Decide(image, &c, &Demand{Amounts: []Amount{{Limit: "a", Tokens: 1}}}, grantStart+grantHour); shards[0].apply(&plan) {
		t.Errorf("an advance that knows nothing of a take applies: %+v", shards[0].state)
	}
	shards = lent(t, &c, 2, "a", grantStart+2*grantHour)
	image = shards[0].image()
	takeOf(t, &c, shards[0], shards[0].image(), "a", 700, grantStart+1)
	takeOf(t, &c, shards[1], shards[1].image(), "b", 1, grantStart+grantHour)
	if plan.Merge(image, shards[1].image(), grantStart+grantHour); shards[0].apply(&plan) {
		t.Errorf("a merge that knows nothing of a take applies: %+v", shards[0].state)
	}
}

// TestRefundsAskForGrants gives back what was planned during a grant, after its end: the write fails.
func TestRefundsAskForGrants(t *testing.T) {
	c := hourly(t)
	until := int64(grantStart + 1000)
	shards := lent(t, &c, 1, "b", until)
	takeOf(t, &c, shards[0], shards[0].image(), "b", 100, grantStart+1)
	var refund Plan
	refund.Decide(shards[0].image(), &c, &Demand{Amounts: []Amount{{Limit: "b", Tokens: -100}}, Unchecked: true, Settles: true}, until-1)
	if refund.Kind != Spend {
		t.Fatalf("the refund is a %v", refund.Kind)
	}
	takeOf(t, &c, shards[0], shards[0].image(), "a", 1, until)
	if shards[0].apply(&refund) {
		t.Errorf("a refund lifts a limit above its capacity: %+v", shards[0].state)
	}
}

// TestGrantsAreCutOff writes another limit of an item when a grant is over: nothing above the capacity is left.
func TestGrantsAreCutOff(t *testing.T) {
	c := hourly(t)
	shards := lent(t, &c, 1, "a", grantStart+1000)
	takeOf(t, &c, shards[0], shards[0].image(), "b", 1, grantStart+1000)
	if l := shards[0].state.find("a"); l.Tokens != 1000 || l.Granted() != 0 || l.Until() != 0 {
		t.Errorf("%+v, %+v", l, l.Rare)
	}
}

// TestGrantsAreNotProlonged grants when another grant is over in one of two shards, by its stamp, and not in the other: the former is over.
func TestGrantsAreNotProlonged(t *testing.T) {
	c := hourly(t)
	until := int64(grantStart + 1000)
	shards := lent(t, &c, 2, "a", until)
	takeOf(t, &c, shards[0], shards[0].image(), "b", 1, until-1)
	var plan Plan
	plan.advance(shards[0].image(), &c, &Demand{}, until-1)
	if !shards[0].apply(&plan) {
		t.Fatal("the stamp does not move")
	}
	parts, _, err := c.Change(shards.images(), &ManualChange{Gifts: []Amount{{Limit: "a", Tokens: 10}}, Until: until + 1000}, true, 7, until-1)
	check.Fatal(t, "Change()", err)
	granted := int64(0)
	for i := range parts {
		if !shards[i].apply(&parts[i].Plan) {
			t.Fatalf("%+v does not apply", parts[i].Plan)
		}
		granted += shards[i].state.find("a").Granted()
	}
	if granted != 10 {
		t.Errorf("%d are granted, want 10", granted)
	}
}

// TestGrantsAreDivided splits an item that has most of a grant, and merges its parts. Shards whose grants end at different times do not merge.
func TestGrantsAreDivided(t *testing.T) {
	c := hourly(t)
	shards := lent(t, &c, 1, "a", grantStart+grantHour)
	takeOf(t, &c, shards[0], shards[0].image(), "a", 101, grantStart+1)
	var plan Plan
	plan.Split(shards[0].image())
	made := plan.Item
	made.Limits = slices.Clone(made.Limits)
	if !shards[0].apply(&plan) {
		t.Fatalf("the split does not apply: %+v", plan)
	}
	low, high := shards[0].image(), &made
	if a, b := low.find("a"), high.find("a"); a.Tokens != 700 || b.Tokens != 699 || a.Granted() != 250 || b.Granted() != 250 {
		t.Errorf("%+v and %+v", a, b)
	}
	if !low.MergesWith(high) {
		t.Error("the parts do not merge")
	}
	high.find("a").SetUntil(grantStart + 1)
	if low.MergesWith(high) {
		t.Error("parts with other ends merge")
	}
}

// TestMergesOfQuotasInWindows merges two shards. One reset before a window, which cut it off. The other is seen
// from before.
func TestMergesOfQuotasInWindows(t *testing.T) {
	w := check.Call(calendar.ParseWindows("*/2 * * * * x0.5", "UTC")).Must(t, "calendar.ParseWindows()")
	c := Config{Params: []Params{{Name: "a", Capacity: 1000, RefillPeriod: 1000, Times: timesOf(t, "*/7 * * * *", "UTC"), Windows: w}}}
	shards := fullShards(&c, 2, grantStart)
	at := int64(grantStart + 9*60_000) // a minute after a window of half the capacity
	takeOf(t, &c, shards[0], shards[0].image(), "a", 1, at)
	var plan Plan
	if plan.Merge(shards[0].image(), shards[1].image(), at); !shards[0].apply(&plan) {
		t.Fatal("the merge does not apply")
	}
	if l := shards[0].state.find("a"); l.Tokens != 499 {
		t.Errorf("%d, want 499", l.Tokens)
	}
}

// TestWaitsForGrantsAreNever asks for what a quota has with a grant alone, which ends before the quota resets.
func TestWaitsForGrantsAreNever(t *testing.T) {
	c := hourly(t)
	shards := lent(t, &c, 1, "a", grantStart+1000)
	takeOf(t, &c, shards[0], shards[0].image(), "a", 1400, grantStart+1)
	s := c.Statuses(nil, shards.images(), &Demand{Amounts: []Amount{{Limit: "a", Tokens: 1200}}}, grantStart+2)[0]
	if s.Wait != Never || s.Granted != 500 {
		t.Errorf("status %+v", s)
	}
}

// TestOddGrantsAreDivided splits a full item whose capacity and grant have an odd millitoken each: neither part has more than it can hold.
func TestOddGrantsAreDivided(t *testing.T) {
	c := hourly(t)
	c.Params[0].Capacity = 999
	shards := lent(t, &c, 1, "a", grantStart+grantHour)
	parts, _, err := c.Change(shards.images(), &ManualChange{Gifts: []Amount{{Limit: "a", Tokens: 1}}, Until: grantStart + grantHour}, false, 7, grantStart+1)
	if err != nil || !shards[0].apply(&parts[0].Plan) {
		t.Fatalf("Change() = %v", err)
	}
	var plan Plan
	plan.Split(shards[0].image())
	made := plan.Item
	made.Limits = slices.Clone(made.Limits)
	if !shards[0].apply(&plan) || shards[0].state.find("a").Tokens != 751 || made.find("a").Tokens != 749 || made.find("a").Granted() != 250 {
		t.Errorf("%+v and %+v", shards[0].state.find("a"), made.find("a"))
	}
}

// TestGrantsEndLater asks for a grant that is over by the stamp that it would get.
func TestGrantsEndLater(t *testing.T) {
	c := hourly(t)
	shards := fullShards(&c, 1, grantStart)
	_, _, err := c.Change(shards.images(), &ManualChange{Gifts: []Amount{{Limit: "a", Tokens: 1}}, Until: grantStart + 1}, false, 7, grantStart)
	var end *EndError
	if !errors.As(err, &end) || !end.Over {
		t.Errorf("Change() = %v", err)
	}
}
