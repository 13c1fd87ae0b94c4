package explore

import (
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Vocabulary of the grammars that combine others.
func more(n int64) Op { return Op{Kind: Take, More: true, Amounts: zlimit.Amounts{"rpm": n}} }

// as gives a request a priority.
func as(priority string, o Op) Op {
	o.As = priority
	return o
}

// combinedGrammars are those in which several parts of a limiter meet: moves and requests that are admitted together, or leases that take
// more; slots and such requests, or an operator's reset; waits and floors.
func combinedGrammars() []Grammar {
	day := func(n int64) zlimit.Limit { return zlimit.PerDay("rpm", n) }
	second := func(rate int64) zlimit.Limit { return zlimit.PerSecond("rpm", rate, zlimit.Burst(2)).Floor("low", 50) }
	rollback, one, commit, die := Op{Kind: Rollback}, Op{Kind: Rollback, Of: 1}, Op{Kind: Adjust}, Op{Kind: Die}
	split, merge := Op{Kind: Split, Entity: "c"}, Op{Kind: Merge, Entity: "c"}
	pause, expiry, short := rest(2*time.Second), rest(configTTL+time.Second), rest(700*time.Millisecond)
	know, look, parted := []Op{take("c", 1)}, []Op{{Kind: Look, Entity: "c"}}, []Op{take("c", 2), split}

	limits := map[string][]zlimit.Limit{"": {day(10)}, "p": {day(12)}, "q": {day(8)}}
	three := Initial{Parents: map[string]string{"p": "", "q": "", "c": "p", "d": "p"}, Limits: limits}
	pair, twice := asking(take("c", 2), take("d", 3)), asking(take("c", 4), take("c", 3))
	movers := []Op{moveTo("c", "q"), moveTo("d", ""), moveTo("d", "q"), take("d", 3), pause}
	callers := []Op{pair, twice, take("c", 8), rollback, one, adjust(2), adjust(-1), pause, expiry}

	operator := []Op{moveTo("c", "q"), moveTo("c", ""), moveTo("c", "p"), take("c", 2), pause}
	lease := []Op{more(3), more(6), rollback, adjust(2), adjust(-1), adjust(-4), take("c", 2), pause, expiry}
	shards := []Op{more(3), rollback, adjust(-4), split, merge, take("c", 2), pause}

	slots := Initial{Limits: map[string][]zlimit.Limit{"c": {day(10), slotsOf(2)}, "d": {day(10), slotsOf(2)}}}
	family := Initial{Family: true, Limits: map[string][]zlimit.Limit{"c": {day(10), slotsOf(2)}, "d": {day(10), slotsOf(2)}, "p": {day(12), slotsOf(3)}}}
	long := passing(2*term, 4)
	held, heldTwice := asking(hold("c", 1), hold("d", 1)), asking(hold("c", 1), hold("c", 1))
	mixed := asking(holdAnd(2), take("d", 3))
	holders := []Op{held, heldTwice, mixed, hold("c", 1), take("d", 8), rollback, one, commit, die, long}

	beside := Initial{Limits: map[string][]zlimit.Limit{"c": {day(10), slotsOf(2)}}}
	resets := []Op{holdAnd(2), hold("c", 1), take("c", 8), reset("one"), reset("two"), rollback, adjust(-1), long}
	parts := []Op{holdAnd(2), take("c", 8), reset("one"), rollback, split, merge}

	floored := Initial{Limits: map[string][]zlimit.Limit{"c": {second(2)}}}
	above := Initial{Family: true, Limits: map[string][]zlimit.Limit{"": {second(2)}, "p": {second(3)}}}
	low := []Op{as("low", waitFor("c", 1, 3*time.Second)), as("low", take("c", 1)), waitFor("c", 1, 3*time.Second), rollback, short}
	high := []Op{waitFor("c", 2, 3*time.Second), booking("c", 1, 3*time.Second), take("c", 1), commit, rollback, short}
	child := append(slices.Clone(high), waitFor("d", 1, 3*time.Second))
	return []Grammar{
		{Name: "moves, together", Initial: three, Warm: [2][]Op{nil, {take("c", 1), take("d", 1)}}, Words: [2][]Op{movers, callers}},
		{Name: "moves, together, stale", Initial: three, Warm: [2][]Op{nil, look}, Words: [2][]Op{movers, callers}},
		{Name: "moves, more", Initial: three, Warm: [2][]Op{nil, {take("c", 2)}}, Words: [2][]Op{operator, lease}},
		{Name: "moves, more, parted", Initial: three, Warm: [2][]Op{nil, append(slices.Clone(parted), take("c", 2))}, Words: [2][]Op{operator, shards}},
		{Name: "slots, together", Initial: slots, Warm: [2][]Op{{hold("c", 1)}, {held}}, Words: [2][]Op{holders, holders}},
		{Name: "slots, together, family", Initial: family, Warm: [2][]Op{{hold("c", 1)}, nil}, Words: [2][]Op{holders, holders}},
		{Name: "slots, reset", Initial: beside, Warm: [2][]Op{{holdAnd(2)}, know}, Words: [2][]Op{resets, resets}},
		{Name: "slots, reset, split", Initial: beside, Warm: [2][]Op{{holdAnd(2), split}, know}, Words: [2][]Op{parts, parts}},
		{Name: "waits, floors, cold", Initial: floored, Words: [2][]Op{low, high}},
		{Name: "waits, floors", Initial: floored, Warm: [2][]Op{know, {take("c", 2)}}, Words: [2][]Op{low, high}},
		{Name: "waits, floors, split", Initial: floored, Warm: [2][]Op{know, parted}, Words: [2][]Op{low, append(slices.Clone(high), merge)}},
		{Name: "waits, floors, family", Initial: above, Words: [2][]Op{low, child}},
	}
}
