package zlimit

import (
	"context"
	"fmt"
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// Delete deletes the record of an entity and everything that belongs to it: its limits, buckets and usage. Its audit events stay. An
// entity without a record is deleted in the same way. Delete returns [ErrEntityNotFound] if there was nothing at all.
//
// It returns [ErrEntityHasChildren] for an entity with children. Of a deletion and a concurrent creation of a child, only one succeeds.
// Delete removes the record last, so calling it again finishes an interrupted deletion. A request meanwhile or later starts a new bucket
// with full limits, so revoke the access of the entity first.
//
// It costs:
//   - a consistent read of all items under the entity's key;
//   - a read and a transaction for each resource with limits of its own, see [LimitService];
//   - a consistent read of a bucket for each resource that has limits, that the entity has limits or usage for, or that this process has
//     seen it use;
//   - a write unit per KB and index entry of each bucket and usage snapshot, 25 to a call;
//   - a transaction of the record and its event: two write units, and one for an index. With a parent it also has the item under the
//     parent's key that lists the entity;
//   - for the children, a consistent query under the entity's key, and two queries of an index.
//
// A bucket of any other resource, and a child that another program created, are found in the index, which may lag by moments.
func (s *EntityService) Delete(ctx context.Context, id string) error {
	if err := s.check(id); err != nil {
		return err
	}
	return publicError("delete the entity", s.delete(ctx, id))
}

func (s *EntityService) delete(ctx context.Context, id string) error {
	key := layout.EntityKey{NS: s.l.ns.id(), Entity: id}.Key()
	items, by, err := s.l.readToChange(ctx, key, layout.ResourceRegistryKey{NS: s.l.ns.id()}.Key())
	if err != nil {
		return err
	}
	var record layout.Entity
	if items[0] != nil {
		if record, err = layout.DecodeEntity(items[0]); err != nil {
			return err
		}
	}
	gone, err := s.childless(ctx, id)
	if err != nil {
		return err
	}
	found, err := s.clear(ctx, id, items[1])
	if err == nil {
		err = s.forget(ctx, key, items[0] != nil, record.ChildrenAdded, gone)
	}
	switch {
	case err != nil:
		return err
	case items[0] == nil && found:
		return nil
	case items[0] == nil:
		return fmt.Errorf("%w: %q", ErrEntityNotFound, id)
	}
	e, err := entityOf(items[0])
	if err != nil {
		return err
	}
	return s.l.table.Optimistic(ctx, func() (done bool, err error) {
		// Another program, which does not count children, may have created one since.
		if err := s.indexed(ctx, id); err != nil {
			return false, err
		}
		remove, err := layout.RemoveEntity(record.ChildrenAdded)
		if err != nil {
			return false, err
		}
		writes := []store.Write{{Kind: store.Delete, Key: key, Expr: remove}}
		if e.ParentID != "" {
			writes = append(writes, store.Write{Kind: store.Delete, Key: s.child(e.ParentID, id).Key.Key()})
		}
		writes, err = by.with(auditEntry{action: ActionEntityDeleted, entity: id, details: e.details()}, writes...)
		if err != nil {
			return false, err
		}
		epoch := s.l.epoch.Add(1)
		results, err := s.l.table.TryTransact(ctx, writes)
		switch {
		case err != nil:
			return false, err
		case results == nil: // another transaction was in the way
			return false, nil
		case table.Applied(results):
			s.l.cache.learn(key, &cachedLevel{}, epoch)
			return true, nil
		case results[0].Applied: // the audit event has an id that was taken
			return false, nil
		case results[0].Item == nil: // another Delete was first
			return false, fmt.Errorf("%w: %q", ErrEntityNotFound, id)
		default: // a child was created
			if record, err = layout.DecodeEntity(results[0].Item); err == nil {
				_, err = s.childless(ctx, id)
			}
			return false, err
		}
	})
}

// childless returns ErrEntityHasChildren unless an entity has none, and the items of children that are gone. Children
// are listed under the key of the entity. Each child of the list is looked up, since a program that does not know of
// the list may have deleted one.
func (s *EntityService) childless(ctx context.Context, id string) (gone []store.Key, err error) {
	q := layout.QueryChildrenOfEntity(s.l.ns.id(), id)
	q.Consistent = true
	for page, err := range s.l.table.Pages(ctx, q) {
		if err != nil {
			return nil, err
		}
		var listed, records []store.Key
		for _, key := range table.Keys(page) {
			if child, ok := layout.ParseChildKey(key); ok {
				listed = append(listed, key)
				records = append(records, layout.EntityKey{NS: s.l.ns.id(), Entity: child.Child}.Key())
			}
		}
		items, err := s.l.table.ReadChunks(ctx, records)
		if err != nil {
			return nil, err
		}
		for i, item := range items {
			parent, err := parentOf(item)
			if err != nil {
				return nil, err
			}
			if parent == id {
				return nil, hasChildren(id)
			}
			gone = append(gone, listed[i])
		}
	}
	return gone, s.indexed(ctx, id)
}

// indexed returns ErrEntityHasChildren when the index has a child of an entity. Such a child is not listed under the
// entity's key. The method then reads the child's record, which may have just been deleted.
func (s *EntityService) indexed(ctx context.Context, id string) error {
	for _, err := range s.l.table.LookUp(ctx, layout.QueryChildren(s.l.ns.id(), id), s.l.table.Read) {
		if err == nil {
			err = hasChildren(id)
		}
		return err
	}
	return nil
}

func hasChildren(id string) error { return fmt.Errorf("%w: %q", ErrEntityHasChildren, id) }

// parentOf returns the parent that the record of an entity names, "" for no record.
func parentOf(item expr.Item) (string, error) {
	if item == nil {
		return "", nil
	}
	e, err := layout.DecodeEntity(item)
	return e.Parent, err
}

// maxForgotten is the number of items that one transaction of forget deletes; a transaction has 100 writes at most.
const maxForgotten = 90

// forget deletes the items of children that are gone, unless the record of their parent, if any, got a child since it
// was read. One of them may have come back.
func (s *EntityService) forget(ctx context.Context, parent store.Key, recorded bool, children int64, gone []store.Key) error {
	unchanged, err := layout.Insert()
	if recorded {
		unchanged, err = layout.RemoveEntity(children)
	}
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(gone, maxForgotten) {
		writes := []store.Write{{Kind: store.Check, Key: parent, Expr: unchanged}}
		for _, key := range chunk {
			writes = append(writes, store.Write{Kind: store.Delete, Key: key})
		}
		if applied, err := s.l.table.Transact(ctx, writes); err != nil || !applied {
			return err // a child was created: the deletion of the record will fail
		}
	}
	return nil
}

// clear deletes what belongs to an entity except its record, and reports whether it found anything. Limits go first.
// Buckets that are created meanwhile then have the limits of a level above, and expire by them. The item of the
// resources that have limits is registry, or nil for none.
func (s *EntityService) clear(ctx context.Context, id string, registry expr.Item) (found bool, err error) {
	resources, err := s.usable(id, registry)
	if err != nil {
		return false, err
	}
	q := layout.QueryEntityItems(s.l.ns.id(), id)
	q.Consistent = true
	record := layout.EntityKey{NS: s.l.ns.id(), Entity: id}.Key()
	for page, err := range s.l.table.Pages(ctx, q) {
		if err != nil {
			return found, err
		}
		var usage []store.Key // and items of later layouts
		for _, key := range table.Keys(page) {
			config, isConfig := layout.ParseEntityConfigKey(key)
			_, isChild := layout.ParseChildKey(key)
			switch {
			case key == record, isChild: // one that is new, or left to forget
				continue
			case isConfig:
				resources[config.Resource] = true
				if err := s.l.Limits.Delete(ctx, entityLevel(id, config.Resource)); err != nil {
					return found, err
				}
			default:
				if of, ok := layout.ParseUsageKey(key); ok {
					resources[of.Resource] = true
				}
				usage = append(usage, key)
			}
			found = true
		}
		if err := s.l.table.Delete(ctx, usage); err != nil {
			return found, err
		}
	}
	cleared, err := s.clearBuckets(ctx, id, resources)
	return found || cleared, err
}

// usable returns the resources of which an entity may have a bucket, as far as is known without an index. They are the
// resources with limits, and the resources that this process has seen the entity use.
func (s *EntityService) usable(id string, registry expr.Item) (map[string]bool, error) {
	resources := map[string]bool{}
	if registry != nil {
		listed, err := layout.DecodeResourceRegistry(registry)
		if err != nil {
			return nil, err
		}
		for _, resource := range listed.Resources {
			resources[resource] = true
		}
	}
	for resource := range s.l.engine.Memory.ResourcesOf(id) {
		resources[resource] = true
	}
	return resources, nil
}

// clearBuckets deletes the buckets of an entity, and reports whether it found any. They are the resources' buckets, by
// their keys, and all others in the index.
func (s *EntityService) clearBuckets(ctx context.Context, id string, resources map[string]bool) (found bool, err error) {
	delete(resources, DefaultResource)
	var shards []store.Key
	for resource := range resources {
		shards = append(shards, layout.BucketKey{NS: s.l.ns.id(), Entity: id, Resource: resource}.Key())
	}
	for len(shards) > 0 { // the shards of one level of the tree
		items, err := s.l.table.ReadChunks(ctx, shards)
		if err != nil {
			return found, err
		}
		var there, below []store.Key
		for i, item := range items {
			if item == nil {
				continue
			}
			there = append(there, shards[i])
			of, _ := layout.ParseBucketKey(shards[i])
			state, _ := layout.ReadState(item) // what can be read of it
			for _, of.Shard = range bucket.Branches(nil, of.Shard, state.Count()) {
				below = append(below, of.Key())
			}
		}
		found = found || len(there) > 0
		if err := s.l.table.Delete(ctx, there); err != nil {
			return found, err
		}
		shards = below
	}
	for page, err := range s.l.table.Pages(ctx, layout.QueryBucketsOfEntity(s.l.ns.id(), id, "")) {
		if err != nil {
			return found, err
		}
		buckets := slices.DeleteFunc(table.Keys(page), func(key store.Key) bool { // even if the index has more
			k, ok := layout.ParseBucketKey(key)
			return !ok || k.NS != s.l.ns.id() || k.Entity != id
		})
		found = found || len(buckets) > 0
		if err := s.l.table.Delete(ctx, buckets); err != nil {
			return found, err
		}
	}
	for resource := range s.l.engine.Memory.ResourcesOf(id) {
		s.l.engine.Memory.Forget(id, resource)
	}
	return found, nil
}
