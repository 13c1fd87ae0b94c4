package explore

import (
	"math"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Processes may reject based on what they have seen a while ago. They also conclude from it that no shard of a bucket has room for
// tokens that come back. The shard counts those, and they are lost.

// formerly is an item as it was until a time.
type formerly struct {
	shardOf
	state *bucket.State
	until int64 // epoch milliseconds
}

func (f *formerly) digest() uint64 {
	sum := digestOf(f.shardOf, f.until, f.state.RefilledAt)
	for i := range f.state.Limits {
		sum = digestOf(sum, f.state.Limits[i].Tokens)
	}
	return sum
}

// forget notes an item that is changed, for as long as processes may remember it.
func (w *witness) forget(c change) {
	memory := w.program.Initial.Memory.Milliseconds()
	if memory == 0 || c.old == nil {
		return
	}
	now := time.Now().UnixMilli()
	for len(w.former) > 0 && w.former[0].until < now-memory {
		w.former = w.former[1:]
	}
	w.former = append(w.former, formerly{shardOf{c.entity, c.shard}, c.old, now})
}

// remembered returns the least balance of a bucket that a process may report from memory, with the refill since.
func (w *witness) remembered(at account, p *bucket.Params, now int64) (sum int64) {
	memory := w.program.Initial.Memory.Milliseconds()
	if memory == 0 || len(w.shards[at.entity]) == 0 {
		return math.MaxInt64
	}
	for number, s := range w.shards[at.entity] {
		least, _ := level(s, p, now)
		for _, f := range w.former {
			if f.entity == at.entity && f.shard == number && f.until >= now-memory {
				had, _ := level(f.state, p, now)
				least = min(least, had)
			}
		}
		sum += least
	}
	return sum - w.rounding(at.entity)
}

// forgone returns how much of the tokens that come back to a shard of several may be lost, of those that are missing after the write: as
// many as flow into the bucket while processes remember, if it and another shard were full within that time.
func (w *witness) forgone(c change, l *bucket.Limit, lacks int64) int64 {
	memory := w.program.Initial.Memory.Milliseconds()
	if memory == 0 || c.old.Shards < 2 || lacks >= 0 {
		return 0
	}
	full, p, now := map[int]bool{}, paramsOf(l), w.present(c.entity, time.Now().UnixMilli())
	note := func(s *bucket.State) {
		has, _ := level(s, &p, now)
		full[s.Shard] = full[s.Shard] || has >= share(p.Capacity, s)
	}
	for _, s := range w.shards[c.entity] {
		note(s)
	}
	for _, f := range w.former {
		if f.entity == c.entity && f.until >= now-memory {
			note(f.state)
		}
	}
	count := 0
	for _, is := range full {
		if is {
			count++
		}
	}
	if !full[c.shard] || count < 2 {
		return 0
	}
	return min(-lacks, flow(c.next.RefilledAt-memory, c.next.RefilledAt, l.RefillAmount, l.RefillPeriod)+1)
}

// settleGrammars have fast limits of four shards, to which leases give back while processes remember what they have seen.
func settleGrammars() []Grammar {
	second, day := zlimit.PerSecond("rpm", 8), zlimit.PerDay("rpm", 8)
	four := Op{Kind: Split, Entity: "c", Twice: true}
	fast := Initial{Limits: map[string][]zlimit.Limit{"c": {second}}, Memory: time.Second}
	slow := Initial{Limits: map[string][]zlimit.Limit{"c": {day}}, Memory: time.Second}
	drawn := fast
	drawn.Draws = 4
	rollback, short := Op{Kind: Rollback}, rest(300*time.Millisecond)
	holder := []Op{rollback, adjust(-1), take("c", 1), short}
	taker := []Op{take("c", 1), take("c", 2), take("c", 6), rollback, adjust(-1), reset("one"), short}
	return []Grammar{
		{Name: "settles, fast", Initial: fast, Warm: [2][]Op{{take("c", 2), four}, {take("c", 2)}}, Words: [2][]Op{holder, taker}},
		{Name: "settles, slow", Initial: slow, Warm: [2][]Op{{take("c", 2), four}, {take("c", 2)}}, Words: [2][]Op{holder, taker}},
		{
			Name: "settles, full", Initial: fast, Words: [2][]Op{holder, taker},
			Warm: [2][]Op{{take("c", 2), four, rest(2 * time.Second), {Kind: Look, Entity: "c"}}, {take("c", 2), rest(time.Second)}},
		},
		{
			Name: "settles, slower", Initial: drawn, Words: [2][]Op{{rollback, set("c", day)}, {take("c", 2), rollback}},
			Warm: [2][]Op{{take("c", 2), four, rest(2 * time.Second), {Kind: Look, Entity: "c"}}, {take("c", 2), rest(time.Second)}},
		},
	}
}
