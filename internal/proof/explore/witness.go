package explore

import (
	"fmt"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A witness compares the limiter with an ideal one. It knows items as the table has them, and the results of the public
// API. It does not know how a limiter decides. Its rules, by the invariants of the protocol:
//
//   - After a write of a bucket item the balance is the former one, with the refill between the two stamps, up to the
//     capacity. The consumption that the write counts is taken off (I1, I2, I9). Refill stamps never move back (I6). A
//     bucket or a limit begins full. A split and a merge keep the sum (I7). A transaction may move tokens between its
//     shards.
//   - At any time the shards of a bucket together have exactly the balance of the one ideal bucket. The ideal bucket
//     takes what writes count. The ideal bucket gets back the tokens that an open lease took of that very bucket and
//     limit, and nothing else. A bucket or limit that was created again was full without them. Several shards may have less by
//     refill that a full one could not hold, and by a millitoken or two each by rounding. They may also have less by a
//     return that found no room, as far as others took that much meanwhile: the return may have come before. They may
//     have more by the refill between writes that arrive out of the order of their stamps. Several shards admit every
//     request that the ideal bucket admits.
//   - A change of limits holds for all shards when the operation that writes it first is over. Until then each shard may
//     be refilled by either. The same goes for the time after an operation that failed or met a fault, until the same
//     actor is admitted again.
//   - The writes for an operation count its amounts. The writes of an admitted request count exactly its amounts, of its
//     entity and of each parent that has the limit. The writes of a rejected or failed one count nothing (I3, I4, I5). A
//     level whose limits changed within the config TTL may be charged by either. A commit writes exactly the adjustment
//     where the lease took something. A rollback returns exactly the tokens taken, and no level gets back more than it
//     gave. An operation with a write of unknown outcome may have charged once or not. Tokens that a rejected request
//     fails to give back by a throttle come back within seconds. Where requests share writes, the sum of all operations
//     is compared with the sum of all writes.
//   - Every rejection names a limit that falls short, and a wait if waiting helps. Some limit did fall short at some
//     time since the request came.
//   - Where processes reject from memory, a request may be rejected by items as they were within that time. A shard of several
//     that gets tokens back may count them alone, and lose as many as flow into the whole bucket within that time.
//   - Every error is of the kind that the fault calls for. Without a fault, or for a conflict, there is none; for an
//     outage it is an outage. A rejected request is not admitted because giving back failed (I10).
//   - A write by stored limits gives an item limits that were stored together with its own, or later (I8). A process
//     need not know of a change for the config TTL. It never undoes a change that an item has taken on.
//   - A move of an entity, see [kin].
//   - Requests that wait are admitted by the law of waiting: at any time no more than the capacity, the inflow and that of a
//     millisecond. In five cases the depth of the queue comes on top: returns, changed limits, several limits, parents and
//     shards. Elsewhere they are admitted in the order of their writes. One that gives up keeps nothing.
//   - At the end nothing else goes on, and the config TTL is past. Each process then asks for all that the limits can
//     hold. It is admitted immediately, or after exactly the reported wait. The limits that rejected it are then the configured
//     ones (I8), and the limiter reports exactly the balance of the ideal bucket.
type witness struct {
	program *Program
	start   time.Time

	shards  map[string]map[int]*bucket.State // by entity
	ideals  map[account]*ideal
	gone    map[account]int      // how often a limit, or the bucket, was deleted
	changes map[account]*running // which operation last changed a limit, until all shards are due to have the change
	configs map[string][]setting // of each entity, the last one last
	ops     []*running           // those that have begun
	counted map[account]int64    // what all writes counted, millitokens
	drawn   map[account]int64    // counted by all takes, before any returns
	owed    map[account]int64    // counted by the operations according to their outcomes, where writes are shared
	doubt   bool                 // some of it cannot be known
	last    []change             // the changes of the last write
	wrong   *Violation
	ignored []string    // rules that may be broken
	done    int         // operations that have ended
	timed   *timekeeper // judges limits that reset at times; nil for other programs
	crowd   *crowd      // judges slots; nil for programs without
	kin     *kin        // knows parents

	moments  int             // at which operations have begun or ended
	writes   int             // that were the first to count for an operation
	settings int             // changes of stored limits so far
	resets   map[string]int  // by operators, by the ID of the operation
	taken    map[shardOf]int // of each item, which limits of its entity's history it has
	former   []formerly      // items that processes may remember
}

// A Violation is something that must not be.
type Violation struct {
	Rule string // which one it breaks
	Text string
}

func newWitness(p *Program) *witness {
	w := &witness{
		program: p, start: time.Now(), kin: newKin(p),
		shards: map[string]map[int]*bucket.State{}, ideals: map[account]*ideal{}, gone: map[account]int{},
		changes: map[account]*running{}, configs: map[string][]setting{}, taken: map[shardOf]int{},
		resets: map[string]int{}, counted: map[account]int64{}, drawn: map[account]int64{}, owed: map[account]int64{},
	}
	if p.Initial.Timed {
		w.timed = newTimekeeper(w, p)
	}
	for entity, limits := range p.Initial.Limits {
		slots, rates := split(limits)
		w.configs[entity] = []setting{{0, 0, rates}}
		if len(slots) > 0 && w.crowd == nil {
			w.crowd = &crowd{witness: w, limits: map[string][]setting{}}
		}
		if len(slots) > 0 {
			w.crowd.limits[entity] = []setting{{0, 0, slots}}
		}
	}
	return w
}

// blame notes the first violation.
func (w *witness) blame(rule, format string, args ...any) {
	if w.wrong == nil && !slices.Contains(w.ignored, rule) {
		w.wrong = &Violation{rule, fmt.Sprintf(format, args...)}
	}
}

// digest returns a digest of the memory by which the witness judges later calls.
func (w *witness) digest() uint64 {
	if w.timed != nil {
		return w.timed.digest()
	}
	sum := w.crowd.digest() + w.kin.digest()
	for at, i := range w.ideals {
		sum += digestOf(at, *i)
	}
	for at, n := range w.gone {
		sum += digestOf(at, n)
	}
	for id, n := range w.resets {
		sum += digestOf(id, n)
	}
	for at, r := range w.changes {
		sum += digestOf(at, r.id(), r.completed())
	}
	for i := range w.former {
		sum += w.former[i].digest()
	}
	for _, r := range w.ops {
		for at, h := range r.held {
			sum += digestOf(r.id(), at, h)
		}
		if !r.judged {
			sum += digestOf(r.id(), r.short, r.apart, r.begun, r.couldSince)
			for at, s := range r.seen {
				sum += digestOf(r.id(), at, w.stands(at, &s))
			}
			for at, n := range w.drawn {
				sum += digestOf(r.id(), at, n-r.drawn[at])
			}
		}
	}
	return sum
}

// A change is the effect of a write on a shard.
type change struct {
	entity    string
	shard     int
	old, next *bucket.State
}

// watch lets a write happen, and judges its effect.
func (w *witness) watch(r *running, t *table, writes []store.Write, do func() (applied bool)) {
	before := make([]expr.Item, len(writes))
	for i := range writes {
		before[i] = t.item(writes[i].Key, false)
	}
	if !do() {
		return
	}
	var changes []change
	for i := range writes {
		next := t.item(writes[i].Key, false)
		if s, ok := layout.ParseBucketKey(writes[i].Key); ok {
			if (before[i] == nil) != (next == nil) || !before[i].Equal(next) {
				changes = append(changes, w.changeOf(s, before[i], next))
				w.kin.copied(w, s.Entity, next)
			}
			continue
		}
		if w.timed != nil {
			w.timed.stored(r, writes[i].Key)
			continue
		}
		w.configure(r, writes[i].Key, next != nil)
		w.kin.changed(w, r, writes[i].Key, next)
	}
	w.kin.made(w, changes)
	if w.last = changes; w.timed != nil {
		w.timed.judge(r, changes)
		return
	}
	w.judge(r, changes)
	w.crowd.judge(changes)
}

func (w *witness) changeOf(s layout.BucketKey, before, next expr.Item) change {
	c := change{entity: s.Entity, shard: s.Shard, old: w.decode(before), next: w.decode(next)}
	if w.shards[s.Entity] == nil {
		w.shards[s.Entity] = map[int]*bucket.State{}
	}
	for at := range w.changes { // shards fill by the limits that they had so far
		if at.entity == s.Entity && c.next != nil {
			w.refill(at, w.ideals[at], c.next.RefilledAt)
		}
	}
	w.forget(c)
	if c.next == nil {
		delete(w.shards[s.Entity], s.Shard)
	} else {
		w.shards[s.Entity][s.Shard] = c.next
	}
	return c
}

func (w *witness) decode(item expr.Item) *bucket.State {
	if item == nil {
		return nil
	}
	s, err := layout.ReadState(item)
	if err != nil {
		w.blame("item", "an item cannot be read: %v", err)
		return nil
	}
	return &s
}

// step judges what can be judged whenever all goroutines wait.
func (w *witness) step() {
	now := time.Now().UnixMilli()
	w.settled(now)
	w.compare(now)
	w.crowd.step()
	for _, r := range w.ops {
		if r.judged {
			continue
		}
		switch {
		case r.Kind != Take || r.short:
		case w.timed != nil:
			w.timed.look(r, now)
		default:
			w.look(r, now)
		}
		if !r.ended {
			continue
		}
		r.judged = true
		w.done++
		if w.timed != nil {
			w.timed.judgeOp(r)
		} else {
			w.judgeOp(r)
		}
	}
}
