package explore

import (
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Requests that wait for slots are judged as others are: by the holders at work. Besides, none may sleep beside free slots, be they given back by its
// own process or by another one.

// A waiter asks again after a second at most. Others' claims keep slots from it for at most two.
const deafness = 3500 * time.Millisecond

// waitToHold returns a request that waits for slots of c.
func waitToHold(n int64, longest time.Duration) Op {
	o := hold("c", n)
	o.Wait = longest
	return o
}

// listens notes since when a request that waits could have its slots.
func (k *crowd) listens(r *running) {
	now := time.Now().UnixMilli()
	for entity := range k.limits {
		least, _ := k.bounds(entity, r.begun)
		slots := k.asksInAll(&r.Op, entity)
		if slots > 0 && k.taken(entity, r)+slots > least {
			r.couldSince = 0
			return
		}
	}
	if r.couldSince == 0 {
		r.couldSince = now
	}
}

// judgeDeaf judges a request that waited for slots, and ends.
func (k *crowd) judgeDeaf(r *running) {
	if k == nil || r.Slots == 0 || r.Wait == 0 || r.couldSince == 0 || r.outages > 0 {
		return
	}
	if slept := time.Duration(time.Now().UnixMilli()-r.couldSince) * time.Millisecond; slept > deafness {
		k.blame("deaf", "%s: %q sleeps for %v while its slots are free", k.name(r), r.Op, slept)
	}
}

// waitSlotGrammars have requests that wait for slots. The first actor holds all of them.
func waitSlotGrammars() []Grammar {
	alone := Initial{Limits: map[string][]zlimit.Limit{"c": {slotsOf(2)}}}
	const longest, longer = 6*time.Second + 13*time.Millisecond, 6*time.Second + 31*time.Millisecond // which end beside no look
	rollback, commit, die := Op{Kind: Rollback}, Op{Kind: Adjust}, Op{Kind: Die}
	holder := []Op{rollback, commit, die, waitToHold(1, longest), rest(time.Second)}
	waiters := []Op{waitToHold(1, longest), waitToHold(2, longest), hold("c", 1), rollback, die}
	both, one := []Op{hold("c", 2)}, []Op{hold("c", 1), rollback}
	return []Grammar{
		{Name: "slots, waits", Initial: alone, Warm: [2][]Op{both, nil}, Words: [2][]Op{holder, waiters}},
		{Name: "slots, waits, warm", Initial: alone, Warm: [2][]Op{one, both}, Words: [2][]Op{waiters, holder}},
		{Name: "slots, waits, one process", Initial: alone, Warm: [2][]Op{both, nil}, Words: [2][]Op{holder, waiters}, Shared: true},
		{
			Name: "slots, waits, two processes", Initial: alone, Warm: [2][]Op{both, nil}, Words: [2][]Op{{rollback, commit, die}, waiters},
			Shared: true, Others: []Op{waitToHold(1, longer), rollback},
		},
	}
}

// handedOn are programs in which several requests of a process wait, and get what it gives back.
func handedOn() []Program {
	alone := Initial{Limits: map[string][]zlimit.Limit{"c": {slotsOf(2)}}}
	one, both, rollback := []Op{hold("c", 1)}, []Op{hold("c", 2)}, []Op{rest(200 * time.Millisecond), {Kind: Rollback}}
	waits := func(more time.Duration) []Op { return []Op{waitToHold(1, 4*time.Second+more)} }
	return []Program{ // the holder is the last actor
		{Name: "one slot for two callers", Initial: alone, Actors: []Actor{
			{Process: 0, Ops: waits(13 * time.Millisecond)},
			{Process: 0, Warm: one, Ops: waits(31 * time.Millisecond)},
			{Process: 0, Warm: one, Ops: rollback},
		}},
		{Name: "two slots for two callers", Initial: alone, Actors: []Actor{
			{Process: 0, Ops: waits(13 * time.Millisecond)},
			{Process: 0, Ops: waits(31 * time.Millisecond)},
			{Process: 0, Warm: both, Ops: rollback},
		}},
		{Name: "two slots for a caller of each process", Initial: alone, Actors: []Actor{
			{Process: 0, Ops: waits(13 * time.Millisecond)},
			{Process: 1, Ops: waits(31 * time.Millisecond)},
			{Process: 0, Warm: both, Ops: rollback},
		}},
	}
}
