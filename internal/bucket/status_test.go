package bucket

import (
	"math"
	"testing"
)

// TestRoom counts how often a bucket can admit demands.
func TestRoom(t *testing.T) {
	c := &Config{Params: []Params{
		{Name: "rpm", Capacity: 100_000, RefillAmount: 60_000, RefillPeriod: 60_000},
		{Name: "tpm", Capacity: 1_000_000, RefillAmount: 1_000_000, RefillPeriod: 60_000},
	}}
	at := func(shards, rpm, tpm int64) *State {
		return &State{RefilledAt: 60_000, Shards: int(shards), Limits: []Limit{
			{Name: "rpm", Capacity: 100_000, RefillAmount: 60_000, RefillPeriod: 60_000, Tokens: rpm},
			{Name: "tpm", Capacity: 1_000_000, RefillAmount: 1_000_000, RefillPeriod: 60_000, Tokens: tpm},
		}}
	}
	one, both := []Amount{{Limit: "rpm", Tokens: 1000}}, []Amount{{Limit: "rpm", Tokens: 1000}, {Limit: "tpm", Tokens: 50_000}}
	for _, test := range []struct {
		name      string
		shards    []*State
		amounts   []Amount
		now, over int64
		want      int64
	}{
		{"what it has", []*State{at(1, 8000, 0)}, one, 60_000, 0, 8},
		{"nothing", []*State{at(1, 0, 0)}, one, 60_000, 0, 0},
		{"a debt", []*State{at(1, -5000, 0)}, one, 60_000, 0, 0},
		{"what flowed in", []*State{at(1, 0, 0)}, one, 65_000, 0, 5},
		{"what flows in", []*State{at(1, 2000, 0)}, one, 60_000, 10_000, 12},
		{"what flows into a full one", []*State{at(1, 100_000, 0)}, one, 60_000, 10_000, 110},
		{"of the scarcest limit", []*State{at(1, 90_000, 120_000)}, both, 60_000, 0, 2},
		{"of all shards", []*State{at(2, 3000, 0), at(2, 4000, 0)}, one, 60_000, 0, 7},
		{"a new one", nil, both, 60_000, 0, 20},
		{"what is given back", []*State{at(1, 0, 0)}, Negated(one), 60_000, 0, math.MaxInt64},
	} {
		if got := c.Room(test.shards, &Demand{Amounts: test.amounts}, test.now, test.over); got != test.want {
			t.Errorf("%s: Room() = %d, want %d", test.name, got, test.want)
		}
	}
}
