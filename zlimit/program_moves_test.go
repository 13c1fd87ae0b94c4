package zlimit_test

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A lineage says which parents an entity has, and had.
type lineage struct {
	layout.Lineage
	ended map[string]time.Time // when a former one was last seen in the record
}

// family reads the record of an entity from the store, and returns the parents that the next request may be charged to. A
// former parent may be charged by a process whose reads are older than the move: through a shard that does not show it, and by a request that
// takes nothing from the bucket of the entity.
func (w *fleet) family(entity string, consume zlimit.Amounts) (parents []string) {
	ctx, ns, now := context.Background(), w.procs[0].limiter.NS(), w.clock.now()
	line := w.lines[entity]
	if line == nil {
		line = &lineage{ended: map[string]time.Time{}}
		w.lines[entity] = line
	}
	items := check.Call(w.witness.Read(ctx, []store.Key{layout.EntityKey{NS: ns, Entity: entity}.Key()}, true)).Must(w.t, "Read()")
	var is layout.Lineage
	if items[0] != nil {
		record := check.Call(layout.DecodeEntity(items[0])).Must(w.t, "layout.DecodeEntity()")
		is = record.Lineage()
	}
	if is != line.Lineage {
		line.ended[line.Parent] = now
		line.Lineage = is
	}
	parents = []string{line.Parent}
	shards := check.Call(shardsIn(ctx, w.witness, ns, entity)).Must(w.t, "shardsIn()")
	behind := len(shards) == 0 || line.Generation == 0
	for _, s := range shards {
		behind = behind || s.Moved() != line.Generation || s.ExpiresAt > 0 && s.ExpiresAt <= now.Unix()+10
	}
	if len(line.ended) > 0 && !behind {
		behind = !slices.ContainsFunc(slices.Sorted(maps.Keys(consume)), func(name string) bool { return consume[name] > 0 && !w.mayLack(entity, name, true) })
	}
	for parent, ended := range line.ended {
		if behind && parent != line.Parent && now.Sub(ended) <= programTTL {
			parents = append(parents, parent)
		}
	}
	return parents
}

// since returns what the buckets of all entities have counted since, in millitokens.
func (w *fleet) since(before map[string]zlimit.Amounts) map[string]zlimit.Amounts {
	diff := map[string]zlimit.Amounts{}
	for _, entity := range slices.Concat(programEntities, programParents) {
		for limit, n := range w.counted(entity) {
			if n -= before[entity][limit]; n != 0 && limit != bucket.WriteUnits {
				if diff[entity] == nil {
					diff[entity] = zlimit.Amounts{}
				}
				diff[entity][limit] = n
			}
		}
	}
	return diff
}

// all returns what the buckets of all entities have counted.
func (w *fleet) all() map[string]zlimit.Amounts {
	all := map[string]zlimit.Amounts{}
	for _, entity := range slices.Concat(programEntities, programParents) {
		all[entity] = w.counted(entity)
	}
	return all
}

// take notes the tokens of a lease by account, and checks that the lease may be charged to the parent.
func (w *fleet) take(what string, lease *held, parents []string, before map[string]zlimit.Amounts) {
	isAbove := false // a parent has counted something
	for entity, amounts := range w.since(before) {
		isAbove = isAbove || entity != lease.entity
		if entity != lease.entity && !slices.Contains(parents, entity) {
			w.t.Fatalf("%s: %s is charged with %v, and the parents since are %q", what, entity, amounts, parents)
		}
		if lease.took[entity] == nil {
			lease.took[entity] = zlimit.Amounts{}
		}
		for limit, n := range amounts {
			lease.took[entity][limit] += n
		}
	}
	if !isAbove {
		for _, parent := range parents { // one of which a later correction charges
			if lease.took[parent] == nil {
				lease.took[parent] = zlimit.Amounts{}
			}
		}
	}
}

// checkAccounts checks that a lease was settled with the accounts that it has charged, and gave none of them back more than it took. Where
// no limit has changed since, and it took once, its parents get what the entity gets.
func (w *fleet) checkAccounts(what string, lease *held, before map[string]zlimit.Amounts) {
	diff := w.since(before)
	above := zlimit.Amounts{}
	for entity, amounts := range diff {
		for limit, n := range amounts {
			switch took := lease.took[entity][limit]; {
			case entity != lease.entity && lease.took[entity] == nil && len(lease.took) > 1, n < 0 && -n > took:
				w.t.Fatalf("%s: %s counts %d of %s, of which the lease has taken %d", what, entity, n, limit, took)
			case entity != lease.entity:
				above[limit] += n
			}
		}
	}
	mirrored := !w.expires && lease.at.After(w.disturbed) && !lease.more
	for limit, took := range lease.took[lease.entity] {
		sum := int64(0)
		for entity, amounts := range lease.took {
			if entity != lease.entity {
				sum += amounts[limit]
			}
		}
		if mirrored && sum == took && above[limit] != diff[lease.entity][limit] {
			w.t.Fatalf("%s: %s counts %d of %s, and its parents %d: %v", what, lease.entity, diff[lease.entity][limit], limit, above[limit], maps.Clone(diff))
		}
	}
}
