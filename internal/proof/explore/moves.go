package explore

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Move is the operation by which an operator gives an entity another parent, or none.
const Move Kind = 'M'

// A kin knows the parents of entities, as the table has had them one after another. Its rules:
//
//   - An admitted request is charged to the entity and to exactly one of its parents, or to none if none was a parent. The parent is one
//     that was in force since the request came, and so for the parents above.
//   - A move binds requests that come when it ends: also in a process that has the former record in memory. It binds all others once the
//     config TTL is past. A bucket that a process with the former record has made after the move is such another one.
//   - A lease is settled with the parents that it was charged to.
type kin struct {
	program *Program
	history map[string][]parentage
	behind  map[string]int // the last moment at which the bucket of an entity was one that a process with a former record has made
	fault   int64          // when a fault last kept a process from what is stored, epoch milliseconds
}

// A parentage is a parent of an entity from a time on.
type parentage struct {
	parent     string
	generation int64 // which buckets carry; 0 for none
	at         int64 // when the table had it, epoch milliseconds
	moment     int   // so, among the moments of all operations
	bound      int   // the number of operations that had ended when the move was; 0 as long as it is not
	by         *running
}

func newKin(p *Program) *kin {
	k := &kin{program: p, history: map[string][]parentage{}, behind: map[string]int{}}
	for entity, parent := range p.Initial.parents() {
		k.history[entity] = []parentage{{parent: parent}}
	}
	return k
}

// parents returns the entities that have a record, each with the parent that it cascades to; "" for none.
func (w *Initial) parents() map[string]string {
	switch {
	case w.Parents != nil:
		return w.Parents
	case w.Family:
		return map[string]string{"p": "", "c": "p", "d": "p"}
	default:
		return nil
	}
}

// families returns the entities that have a record, each after its parent.
func (w *Initial) families() (all []zlimit.Entity) {
	parents := w.parents()
	for depth := 1; len(all) < len(parents); depth++ {
		for entity, parent := range parents {
			if len(w.chain(entity)) == depth {
				all = append(all, zlimit.Entity{ID: entity, ParentID: parent, Cascade: parent != ""})
			}
		}
	}
	return all
}

// changed notes a change of the record of an entity.
func (k *kin) changed(w *witness, r *running, key store.Key, item expr.Item) {
	of, ok := layout.ParseEntityKey(key)
	if !ok || item == nil {
		return
	}
	record, err := layout.DecodeEntity(item)
	if err != nil {
		w.blame("item", "a record cannot be read: %v", err)
		return
	}
	h := k.history[of.Entity]
	if len(h) == 0 || h[len(h)-1].parent == record.Parent {
		return
	}
	now := time.Now().UnixMilli()
	if last := k.generation(of.Entity); record.Generation < max(now, last+1) {
		w.blame("moves", "%s is moved at %d, from generation %d to %d", of.Entity, now, last, record.Generation)
	}
	k.history[of.Entity] = append(h, parentage{parent: record.Parent, generation: record.Generation, at: now, moment: w.moments, by: r})
}

// generation returns that of the last parent of an entity, 0 where it was never moved.
func (k *kin) generation(entity string) int64 {
	h := k.history[entity]
	return h[len(h)-1].generation
}

// copied checks the copy of the parent in a bucket that carries moves.
func (k *kin) copied(w *witness, entity string, item expr.Item) {
	if h := k.history[entity]; len(h) > 1 && item != nil {
		copied, _, err := layout.ReadBucket(item)
		isTrue := func(p parentage) bool { return p.generation == copied.Moved && p.parent == copied.Parent }
		if err == nil && copied.Moved > 0 && !slices.ContainsFunc(h, isTrue) {
			w.blame("moves", "an item of %s has generation %d, and names the parent %q", entity, copied.Moved, copied.Parent)
		}
	}
}

// made notes the buckets that a write makes by a former record, and checks what the copies of the items say about moves.
func (k *kin) made(w *witness, changes []change) {
	for _, c := range changes {
		if c.next == nil || len(k.history[c.entity]) == 0 {
			continue
		}
		isBehind := c.next.Moved() < k.generation(c.entity)
		switch {
		case c.old != nil && c.next.Moved() < c.old.Moved():
			w.blame("moves", "a write undoes generation %d of %s, which the item has taken on", c.old.Moved(), c.entity)
		case c.old == nil && c.shard == 0 && isBehind:
			k.behind[c.entity] = math.MaxInt
		case c.shard == 0 && !isBehind && k.behind[c.entity] == math.MaxInt:
			k.behind[c.entity] = w.moments
		}
	}
}

// fails notes a fault. After a conflict a limiter tries again.
func (k *kin) fails(f Fate) {
	if f != Conflict {
		k.fault = time.Now().UnixMilli()
	}
}

// over notes that a move is over. It stands in every bucket where no fault has kept it from one.
func (k *kin) over(w *witness, r *running) {
	if r.err != nil || r.outages > 0 || r.unknown > 0 || k.fault >= r.begun {
		return
	}
	h := k.history[r.Entity]
	for i := len(h) - 1; i >= 0; i-- {
		if p := &h[i]; p.by == r || p.parent == r.Parent && p.moment < r.since {
			if p.bound == 0 {
				p.bound = w.done
			}
			for _, s := range w.shards[r.Entity] {
				if s.Moved() < p.generation && k.behind[r.Entity] < r.since {
					w.blame("moves", "%s: %q is done, and shard %d of %s has generation %d", w.name(r), r.Op, s.Shard, r.Entity, s.Moved())
				}
			}
			return
		}
	}
	w.blame("moves", "%s: %q is done, and the parent of %s is %q", w.name(r), r.Op, r.Entity, h[len(h)-1].parent)
}

// binds reports whether a move of an entity binds a request.
func (k *kin) binds(entity string, p *parentage, r *running) bool {
	known := max(p.at, k.fault)+configTTL.Milliseconds() < r.begun
	return known || p.bound > 0 && p.bound <= r.after && k.behind[entity] < r.since
}

// parents returns the parents of an entity that a request may be charged to.
func (k *kin) parents(entity string, r *running) (all []string) {
	h := k.history[entity]
	first := 0
	for i := range h {
		if i > 0 && k.binds(entity, &h[i], r) {
			first = i
		}
	}
	for _, p := range h[first:] {
		if !slices.Contains(all, p.parent) {
			all = append(all, p.parent)
		}
	}
	return all
}

// An ancestry has the parents of entities at one time.
type ancestry map[string]string

// chain returns an entity, its parent and so on.
func (a ancestry) chain(entity string) []string {
	chain := []string{entity}
	for next := a[entity]; next != "" && !slices.Contains(chain, next); next = a[next] {
		chain = append(chain, next)
	}
	return chain
}

// ways returns the parents that a request may be charged to, in each of the ways that moves leave it.
func (k *kin) ways(r *running) []ancestry {
	return k.waysOf(func(entity string) []string { return k.parents(entity, r) })
}

// waysOf returns all choices of one parent for each entity.
func (k *kin) waysOf(parents func(entity string) []string) []ancestry {
	ways := []ancestry{{}}
	for _, entity := range slices.Sorted(maps.Keys(k.history)) {
		var next []ancestry
		for _, way := range ways {
			for _, parent := range parents(entity) {
				more := maps.Clone(way)
				more[entity] = parent
				next = append(next, more)
			}
		}
		ways = next
	}
	return ways
}

// most returns the most that a request may be charged for, in any way. A write of unknown outcome may have charged any former
// parent: the refusal of the entity's own item comes too late, and no one gives back what may not have been taken.
func (k *kin) most(r *running, at account) (most int64) {
	ways := k.ways(r)
	if r.err != nil && r.unknown > 0 {
		ways = k.waysOf(func(entity string) (all []string) {
			for _, p := range k.history[entity] {
				all = append(all, p.parent)
			}
			return all
		})
	}
	for _, way := range ways {
		most = max(most, way.asks(&r.Op)[at.entity][at.limit])
	}
	return most
}

// family returns all entities that a request may be charged to.
func (k *kin) family(r *running) (all []string) {
	for _, way := range k.ways(r) {
		all = slices.AppendSeq(all, maps.Keys(way.asks(&r.Op)))
	}
	return all
}

// now returns the parents as the table has them.
func (k *kin) now() ancestry {
	all := ancestry{}
	for entity, h := range k.history {
		all[entity] = h[len(h)-1].parent
	}
	return all
}

// digest returns a digest of what a kin knows.
func (k *kin) digest() (sum uint64) {
	for entity, h := range k.history {
		sum += digestOf(entity, k.behind[entity])
		for i := range h {
			sum += digestOf(entity, i, h[i].parent, h[i].generation, h[i].at, h[i].moment, h[i].bound, h[i].by.id())
		}
	}
	return digestOf(sum, k.fault)
}

// moveTo does a move.
func (r *running) moveTo(ctx context.Context, l *zlimit.RateLimiter) error {
	_, err := l.Entities.SetParent(ctx, r.Entity, r.Parent)
	return err
}

// isTwin reports whether two calls are reads of one move, which stamps several shards in parallel. Nothing distinguishes them, so they
// happen together.
func (c *call) isTwin(other *call) bool {
	return c.op != nil && c.op.Kind == Move && c.kind == readCall && c.op == other.op && c.digest == other.digest && c.text == other.text && !other.begun
}

// Vocabulary of moves.
func moveTo(entity, parent string) Op { return Op{Kind: Move, Entity: entity, Parent: parent} }

// moveGrammars have entities that operators move, while processes have the former records in memory. A process that has looked at a
// bucket that there is not has the records, too.
func moveGrammars() []Grammar {
	day := func(n int64) zlimit.Limit { return zlimit.PerDay("rpm", n) }
	rollback, split, merge := Op{Kind: Rollback}, Op{Kind: Split, Entity: "c"}, Op{Kind: Merge, Entity: "c"}
	pause, expiry := rest(2*time.Second), rest(configTTL+time.Second)
	limits := map[string][]zlimit.Limit{"": {day(10)}, "p": {day(12)}, "q": {day(8)}}
	two := Initial{Parents: map[string]string{"p": "", "q": "", "c": "p"}, Limits: limits}
	three := Initial{Parents: map[string]string{"p": "q", "q": "", "r": "", "c": "p"}, Limits: limits}
	operator := []Op{moveTo("c", "q"), moveTo("c", ""), moveTo("c", "p"), set("q", day(20)), take("c", 2), rollback, adjust(2), pause}
	caller := []Op{take("c", 2), take("c", 8), rollback, adjust(2), adjust(-1), pause, expiry}
	shards := []Op{take("c", 2), take("c", 5), rollback, split, merge, pause}
	above := []Op{moveTo("p", "r"), moveTo("p", ""), moveTo("c", "q"), take("c", 2), pause}
	know, look, parted := []Op{take("c", 1)}, []Op{{Kind: Look, Entity: "c"}}, []Op{take("c", 1), split, take("c", 1)}
	merged := append(slices.Clone(parted), merge) // which the process does not know
	return []Grammar{
		{Name: "moves, cold", Initial: two, Words: [2][]Op{operator, caller}},
		{Name: "moves", Initial: two, Warm: [2][]Op{know, know}, Words: [2][]Op{operator, caller}},
		{Name: "moves, stale", Initial: two, Warm: [2][]Op{nil, look}, Words: [2][]Op{operator, caller}},
		{Name: "moves, merged", Initial: two, Warm: [2][]Op{nil, merged}, Words: [2][]Op{operator, shards}},
		{Name: "moves, parted", Initial: two, Warm: [2][]Op{nil, parted}, Words: [2][]Op{operator, shards}},
		{Name: "moves, above", Initial: three, Warm: [2][]Op{nil, know}, Words: [2][]Op{above, caller}},
		{Name: "moves, above, stale", Initial: three, Warm: [2][]Op{nil, look}, Words: [2][]Op{above, caller}},
		{Name: "moves, three", Initial: two, Warm: [2][]Op{nil, look}, Words: [2][]Op{operator, caller}, Others: []Op{take("c", 1), take("c", 2)}},
	}
}
