package zlimit

import (
	"context"
	"iter"
	"slices"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A LevelQuery chooses among the levels at which something is stored. Its zero value asks for all of them. A level must
// meet every field that is set.
type LevelQuery struct {
	Source   Source `json:"source,omitempty"`   // levels of this kind, such as [SourceResource]
	Entity   string `json:"entity,omitempty"`   // levels of this entity
	Resource string `json:"resource,omitempty"` // the level of this resource, and entities' levels for it
	// NamesOnly leaves all of [Stored] empty except its level, which saves reading the levels.
	NamesOnly bool `json:"names_only,omitempty"`
}

func (q *LevelQuery) validate() error {
	switch q.Source {
	case "", SourceSystem, SourceResource, SourceEntityDefault, SourceEntity:
		return Level{q.Entity, q.Resource}.validate()
	default:
		return &ValidationError{Field: "source", Value: string(q.Source), Reason: "is not a level that is stored"}
	}
}

// asks reports whether the query may choose levels of a kind.
func (q *LevelQuery) asks(source Source) bool {
	ofEntity := source == SourceEntity || source == SourceEntityDefault
	ofResource := source == SourceEntity || source == SourceResource
	return (q.Source == "" || q.Source == source) && (q.Entity == "" || ofEntity) && (q.Resource == "" || ofResource)
}

// List yields the levels at which something is stored: the system, then the resources by name, then the entities' levels.
// Those are ordered by resource, defaults first, and then by entity.
//
// Listing the names of resources costs a read, and listing the resources for which entities have levels another one. The entities of each
// cost a query of an index, page by page as the loop goes on; the index may be moments behind. The levels of one entity are read without
// the index. The contents of levels cost a consistent batch read for each 100 of them. A level that is deleted meanwhile is skipped. A
// level with limits that this version does not support has [Stored.Unsupported]. An error ends the loop.
func (s *LimitService) List(ctx context.Context, q LevelQuery) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		if err := q.validate(); err != nil {
			yield(Stored{}, err)
			return
		}
		var unread []Level
		readAll := func() bool { // and yields the stored configs; false to end the loop
			found, err := s.read(ctx, unread...)
			if err != nil {
				yield(Stored{}, err)
				return false
			}
			unread = unread[:0]
			for _, stored := range found {
				if stored.Version == 0 && stored.Config.IsZero() && stored.Switch == SwitchInherit && len(stored.Unsupported) == 0 {
					continue
				}
				if q.NamesOnly {
					stored = Stored{Level: stored.Level}
				}
				if !yield(stored, nil) {
					return false
				}
			}
			return true
		}
		for at, err := range s.levels(ctx, &q) {
			if err != nil {
				yield(Stored{}, publicError("list limits", err))
				return
			}
			if listed := at != (Level{}) && q.Entity == ""; listed && q.NamesOnly {
				if len(unread) > 0 && !readAll() || !yield(Stored{Level: at}, nil) {
					return
				}
				continue
			}
			if unread = append(unread, at); len(unread) == store.MaxRead && !readAll() {
				return
			}
		}
		if len(unread) > 0 {
			readAll()
		}
	}
}

// levels yields the levels of List. The system is one of them in any case, and every level that the entity asked for may
// have.
func (s *LimitService) levels(ctx context.Context, q *LevelQuery) iter.Seq2[Level, error] {
	return func(yield func(Level, error) bool) {
		if s.l.closed.Load() {
			yield(Level{}, ErrClosed)
			return
		}
		if q.asks(SourceSystem) && !yield(Level{}, nil) {
			return
		}
		var resources []string
		var err error
		if q.asks(SourceResource) {
			resources, err = s.resources(ctx)
		}
		for _, name := range resources {
			if (q.Resource == "" || q.Resource == name) && !yield(Level{Resource: name}, nil) {
				return
			}
		}
		if err == nil {
			resources, err = s.resourcesOfEntities(ctx, q)
		}
		if err != nil {
			yield(Level{}, err)
			return
		}
		for _, name := range resources {
			for at, err := range s.levelsOfEntities(ctx, q.Entity, name) {
				if !yield(at, err) || err != nil {
					return
				}
			}
		}
	}
}

// levelsOfEntities yields the levels that entities have for a resource, or for "" their defaults. With an entity it
// yields the level that the entity may have.
func (s *LimitService) levelsOfEntities(ctx context.Context, entity, resource string) iter.Seq2[Level, error] {
	return func(yield func(Level, error) bool) {
		if entity != "" {
			yield(Level{entity, resource}, nil)
			return
		}
		for item, err := range s.l.table.Items(ctx, layout.QueryEntitiesWithConfig(s.l.ns.id(), entityDefault(resource))) {
			if err != nil {
				yield(Level{}, err)
				return
			}
			if k, ok := layout.ParseEntityConfigKey(store.KeyOf(item)); ok && !yield(entityLevel(k.Entity, k.Resource), nil) {
				return
			}
		}
	}
}

// resources returns the resources that have a level, in alphabetical order.
func (s *LimitService) resources(ctx context.Context) ([]string, error) {
	items, err := s.l.table.Read(ctx, layout.ResourceRegistryKey{NS: s.l.ns.id()}.Key())
	if err != nil || items[0] == nil {
		return nil, err
	}
	registry, err := layout.DecodeResourceRegistry(items[0])
	return slices.Sorted(slices.Values(registry.Resources)), err
}

// resourcesOfEntities returns the resources that entities may have levels for, in alphabetical order, "" for defaults.
func (s *LimitService) resourcesOfEntities(ctx context.Context, q *LevelQuery) (names []string, err error) {
	switch {
	case !q.asks(SourceEntity) && !q.asks(SourceEntityDefault):
		return nil, nil
	case !q.asks(SourceEntity), q.Resource != "":
		return []string{q.Resource}, nil
	}
	items, err := s.l.table.Read(ctx, layout.EntityConfigRegistryKey{NS: s.l.ns.id()}.Key())
	if err != nil || items[0] == nil {
		return nil, err
	}
	registry, err := layout.DecodeEntityConfigRegistry(items[0])
	for _, r := range registry.Resources {
		if at := entityLevel(q.Entity, r.Name); r.Entities > 0 && (at.Resource != "" || q.asks(SourceEntityDefault)) {
			names = append(names, at.Resource)
		}
	}
	slices.Sort(names)
	return names, err
}
