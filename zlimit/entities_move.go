package zlimit

import (
	"context"
	"fmt"
	"strings"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// SetParent moves an entity, with everything below it, to another parent, or to none if the parent is "". The parent must have a record.
// [Entity.Cascade] does not change: it decides whether the parent is charged.
//
// Earlier charges do not move. An open lease is settled with the parents from which its tokens were taken. What it takes later is taken
// from the new ones.
//
// SetParent first changes the record. Then it marks the buckets of the entity, so that the next write of any process on them fails, and
// no process waits for its [WithConfigTTL]. The report says when the move is complete everywhere: an entity without limits for a resource
// has no bucket to mark, and a process may create a bucket meanwhile. A repeated call resumes where the former one was interrupted. An
// audit event records who moved the entity, and from where.
//
// It returns [ErrEntityNotFound] if the entity or the parent has no record, and a [*ValidationError] for a broken rule. An entity cannot
// be moved below itself. No chain may become longer than 8 entities. A child that is created below at the same time may make a longer one:
// its requests then fail with that error. It is safe for concurrent use.
//
// It costs a consistent read of the entity, of the parent and of each entity above, and one and a half read units for the list of the
// entity's children. With children, each entity above the former parent is read as well. If the entity moves deeper, each entity below it
// costs such a list, too.
//
// The move is one transaction. It costs two write units per KB for each of these: the records of the entity and of the parent, the items
// that list the child under the keys of both parents, the audit event, and a check of each further entity above. The indexes cost five
// more. An index then lists the buckets, at half a read unit per 4 KB. Each bucket costs a write unit, and reads of the levels of its
// entity.
//
// The first move raises the version required of clients to 0.17.0, see [LimitService]: older clients would charge the former parent.
func (s *EntityService) SetParent(ctx context.Context, entity, parent string) (SwitchReport, error) {
	if err := s.check(entity); err != nil {
		return SwitchReport{}, err
	}
	if parent != "" {
		if err := validateEntity("parent", parent); err != nil {
			return SwitchReport{}, err
		}
	}
	if parent == entity {
		return SwitchReport{}, &ValidationError{Field: "parent", Value: parent, Reason: "must not be the entity itself"}
	}
	err := s.l.table.Optimistic(ctx, func() (done bool, err error) { return s.move(ctx, entity, parent) })
	if err != nil {
		return SwitchReport{}, publicError("move the entity", err)
	}
	return s.l.Limits.bind(ctx, Level{Entity: entity}, false, nil)
}

// move is one try of SetParent, without the marks. It returns false when others came first.
func (s *EntityService) move(ctx context.Context, id, parent string) (done bool, err error) {
	key := layout.EntityKey{NS: s.l.ns.id(), Entity: id}.Key()
	items, by, err := s.l.readToChange(ctx, key)
	switch {
	case err != nil:
		return false, err
	case items[0] == nil:
		return false, fmt.Errorf("%w: %q", ErrEntityNotFound, id)
	}
	record, err := layout.DecodeEntity(items[0])
	if err != nil {
		return false, err
	}
	if record.Parent == parent {
		return true, nil
	}
	above, err := s.above(ctx, id, parent)
	if err == nil {
		err = s.fits(ctx, &record, above)
	}
	if err != nil {
		return false, err
	}
	generation := max(record.Generation+1, s.l.now().UnixMilli()) // higher than that of a move of a former entity of the same id
	writes, err := s.moves(&record, above, generation)
	if err != nil {
		return false, err
	}
	changed := auditEntry{action: ActionEntityMoved, entity: id, details: movedDetails(record.Parent, parent, generation)}
	if writes, err = by.with(changed, writes...); err != nil {
		return false, err
	}
	if err := s.l.askFor(ctx, layout.ObeysMoves); err != nil {
		return false, err
	}
	epoch := s.l.epoch.Add(1)
	results, err := s.l.table.TryTransact(ctx, writes)
	if err != nil || results == nil || !table.Applied(results) {
		return false, err // the next try shows what was not there any more
	}
	record.Parent, record.Generation = parent, generation
	s.l.cache.learn(key, &cachedLevel{lineage: record.Lineage()}, epoch)
	return true, nil
}

// above returns the records of a new parent of an entity and of the entities above it, the nearest one first.
func (s *EntityService) above(ctx context.Context, id, parent string) (chain []layout.Entity, err error) {
	for next := parent; next != ""; {
		switch {
		case next == id:
			return nil, &ValidationError{Field: "parent", Value: parent, Reason: "is below the entity itself: " + pathOf(id, chain)}
		case len(chain) == protocol.MaxDepth-1:
			return nil, tooDeep(parent)
		}
		items, err := s.l.table.Read(ctx, layout.EntityKey{NS: s.l.ns.id(), Entity: next}.Key())
		if err != nil {
			return nil, err
		}
		if items[0] == nil {
			if len(chain) == 0 {
				return nil, noParent(parent)
			}
			return chain, nil // another program has deleted the record under its children
		}
		record, err := layout.DecodeEntity(items[0])
		if err != nil {
			return nil, err
		}
		chain, next = append(chain, record), record.Parent
	}
	return chain, nil
}

// pathOf returns a chain of entities, each below the next one.
func pathOf(id string, chain []layout.Entity) string {
	var path strings.Builder
	for i := range chain {
		path.WriteString(chain[i].Key.Entity + " < ")
	}
	return path.String() + id
}

func tooDeep(parent string) error {
	reason := fmt.Sprintf("makes a chain of more than %d entities", protocol.MaxDepth)
	return &ValidationError{Field: "parent", Value: parent, Reason: reason}
}

// fits returns an error where a chain would become too long by a move of an entity below others. The entities below it are looked at
// only where it comes to lie deeper than it was: their chains were short enough before.
func (s *EntityService) fits(ctx context.Context, record *layout.Entity, above []layout.Entity) error {
	layer, err := s.below(ctx, record.Key.Entity)
	if err != nil || len(layer) == 0 || len(above) == 0 {
		return err
	}
	before, err := s.above(ctx, "", record.Parent)
	if err == nil && len(before) >= len(above) {
		return nil
	}
	for depth := len(above) + 2; len(layer) > 0; depth++ {
		if depth > protocol.MaxDepth {
			return tooDeep(above[0].Key.Entity)
		}
		var next []string
		for _, id := range layer {
			children, err := s.below(ctx, id)
			if err != nil {
				return err
			}
			next = append(next, children...)
		}
		layer = next
	}
	return nil
}

// below returns the children of an entity. Children of other programs are in the index alone.
func (s *EntityService) below(ctx context.Context, id string) (children []string, err error) {
	known := map[string]bool{}
	listed := layout.QueryChildrenOfEntity(s.l.ns.id(), id)
	listed.Consistent = true
	for page, err := range s.l.table.Pages(ctx, listed) {
		if err != nil {
			return nil, err
		}
		for _, key := range table.Keys(page) {
			if child, ok := layout.ParseChildKey(key); ok && !known[child.Child] {
				known[child.Child], children = true, append(children, child.Child)
			}
		}
	}
	for page, err := range s.l.table.Pages(ctx, layout.QueryChildren(s.l.ns.id(), id)) {
		if err != nil {
			return nil, err
		}
		for _, key := range table.Keys(page) {
			if child, ok := layout.ParseEntityKey(key); ok && !known[child.Entity] {
				known[child.Entity], children = true, append(children, child.Entity)
			}
		}
	}
	return children, nil
}

// moves returns the writes that move an entity below others, the nearest one first. Their condition is that none of
// these was moved since it was read. So two concurrent moves cannot form a cycle.
func (s *EntityService) moves(record *layout.Entity, above []layout.Entity, generation int64) ([]store.Write, error) {
	ns, id := s.l.ns.id(), record.Key.Entity
	call := layout.MoveEntity(record.Generation, generation, 1)
	if record.CreatedAt != "" {
		call.Since(record.CreatedAt)
	}
	if len(above) == 0 {
		call.Alone()
	} else {
		pk, sk := record.Key.ParentIndex(above[0].Key.Entity)
		call.Under(above[0].Key.Entity, pk, sk)
	}
	bound, err := call.Bind()
	if err != nil {
		return nil, err
	}
	writes := []store.Write{{Kind: store.Update, Key: record.Key.Key(), Expr: bound}}
	if record.Parent != "" {
		writes = append(writes, store.Write{Kind: store.Delete, Key: s.child(record.Parent, id).Key.Key()})
	}
	for i := range above {
		w := store.Write{Kind: store.Check, Key: above[i].Key.Key()}
		if i > 0 {
			w.Expr, err = layout.HoldEntity(above[i].Generation)
		} else {
			add := layout.AddChild(1)
			add.Unmoved(above[i].Generation)
			w.Kind = store.Update
			w.Expr, err = add.Bind()
			child := layout.Child{Key: layout.ChildKey{NS: ns, Entity: above[i].Key.Entity, Child: id}}
			writes = append(writes, store.Write{Kind: store.Put, Key: child.Key.Key(), Item: child.Encode()})
		}
		if err != nil {
			return nil, err
		}
		writes = append(writes, w)
	}
	return writes, nil
}

// movedDetails returns a move as its audit event has it, in the form of other programs.
func movedDetails(from, to string, generation int64) expr.Item {
	return expr.Item{
		{Name: "old_parent_id", Value: orNull(from)},
		{Name: "parent_id", Value: orNull(to)},
		{Name: layout.AttrEntityGeneration, Value: expr.N(generation)},
		{Name: "before", Value: expr.Map(expr.Item{{Name: "parent_id", Value: orNull(from)}})},
	}
}

// orNull returns the ID of an entity as a value, null for none.
func orNull(id string) expr.Value {
	if id == "" {
		return expr.Null()
	}
	return expr.S(id)
}
