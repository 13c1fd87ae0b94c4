package zlimit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// Update replaces the name and the metadata of an entity, and returns the entity as it is then. It takes an entity as
// [EntityService.Get] returned it, with another name or other metadata. Version and CreatedAt say which state of the
// entity was changed. An empty name stands for the ID. Parent and cascade do not change, and must equal those in the
// entity: [EntityService.SetParent] changes the parent.
//
// Update returns [ErrEntityChanged] when the entity was updated since, or was deleted and created again. The caller
// reads it again and starts over. It returns [ErrEntityNotFound] for an entity without a record, and a
// [*ValidationError] for what breaks a rule. It costs a consistent read, and a transaction of the record and an audit
// event. The two cost two write units per KB each, and one for the index of the event. A record with a parent costs one
// more per KB for its index. If nothing is to change Update costs the read. The first change within [WithConfigTTL]
// reads two items more, in a call more.
func (s *EntityService) Update(ctx context.Context, e Entity) (Entity, error) {
	if err := s.l.check(e.validate()); err != nil {
		return Entity{}, err
	}
	if e.Version < 0 {
		return Entity{}, &ValidationError{Field: "version", Value: strconv.FormatInt(e.Version, 10), Reason: "must not be negative"}
	}
	if e.Name == "" {
		e.Name = e.ID
	}
	updated, err := s.update(ctx, e)
	if err != nil {
		return Entity{}, publicError("update the entity", err)
	}
	return updated, nil
}

func (s *EntityService) update(ctx context.Context, e Entity) (Entity, error) {
	key := layout.EntityKey{NS: s.l.ns.id(), Entity: e.ID}.Key()
	items, by, err := s.l.readToChange(ctx, key)
	if err != nil {
		return Entity{}, err
	}
	if items[0] == nil {
		return Entity{}, fmt.Errorf("%w: %q", ErrEntityNotFound, e.ID)
	}
	record, err := layout.DecodeEntity(items[0])
	if err != nil {
		return Entity{}, err
	}
	found, err := entityOf(items[0])
	if err != nil {
		return Entity{}, err
	}
	if err := e.changes(&found); err != nil {
		return Entity{}, err
	}
	if e.Name == found.Name && maps.Equal(e.Metadata, found.Metadata) {
		return found, nil
	}
	metadata := record.Metadata // of other programs, perhaps with values that are no strings
	if !maps.Equal(e.Metadata, found.Metadata) {
		metadata = e.metadata()
	}
	call := layout.UpdateEntity(e.Name, metadata, 1)
	if found.Version == 0 {
		call.First()
	} else {
		call.Later(found.Version)
	}
	if record.CreatedAt != "" {
		call.Since(record.CreatedAt)
	}
	update, err := call.Bind()
	if err != nil {
		return Entity{}, err
	}
	before := found.details()
	found.Name, found.Metadata = e.Name, maps.Clone(e.Metadata)
	found.Version++
	return found, s.writeUpdate(ctx, &found, before, by, store.Write{Kind: store.Update, Key: key, Expr: update})
}

// changes returns the error of a change that Update does not make, or of a change based on an outdated entity.
func (e *Entity) changes(found *Entity) error {
	switch {
	case e.Version != found.Version, !e.CreatedAt.IsZero() && !e.CreatedAt.Equal(found.CreatedAt):
		return changed(e.ID)
	case e.ParentID != found.ParentID:
		return &ValidationError{Field: "parent", Value: e.ParentID, Reason: fmt.Sprintf("must stay %q", found.ParentID)}
	case e.Cascade != found.Cascade:
		reason := fmt.Sprintf("must stay %t", found.Cascade)
		return &ValidationError{Field: "cascade", Value: strconv.FormatBool(e.Cascade), Reason: reason}
	default:
		return nil
	}
}

// writeUpdate writes an update of an entity with its audit event, provided that the entity is as it was read.
func (s *EntityService) writeUpdate(ctx context.Context, next *Entity, before expr.Item, by author, update store.Write) error {
	return s.l.table.Optimistic(ctx, func() (done bool, err error) {
		made := auditEntry{action: ActionEntityUpdated, entity: next.ID, details: next.details()}
		made.replaces(before)
		all, err := by.with(made, update)
		if err != nil {
			return false, err
		}
		results, err := s.l.table.TryTransact(ctx, all)
		switch {
		case err != nil:
			return false, err
		case results == nil: // another transaction was in the way
			return false, nil
		case !results[0].Applied && results[0].Item == nil:
			return false, fmt.Errorf("%w: %q", ErrEntityNotFound, next.ID)
		case !results[0].Applied:
			return false, changed(next.ID)
		default: // otherwise the audit event has an id that was taken
			return table.Applied(results), nil
		}
	})
}

func changed(id string) error { return fmt.Errorf("%w: %q", ErrEntityChanged, id) }

// metadata returns the application's data of the entity in an item.
func (e *Entity) metadata() expr.Item {
	item := make(expr.Item, 0, len(e.Metadata))
	for _, key := range slices.Sorted(maps.Keys(e.Metadata)) {
		item = append(item, expr.Attribute{Name: key, Value: expr.S(e.Metadata[key])})
	}
	return item
}

// Ensure returns the entity of an ID, and creates it when it has no record. An application calls it for the entities
// that it needs. An existing entity keeps its name and metadata; [EntityService.Update] changes them.
//
// Ensure returns [ErrEntityExists] when the entity exists with another parent, or cascades otherwise, and the other
// errors of [EntityService.Create]. It costs a consistent read, and what Create costs when it creates the entity.
func (s *EntityService) Ensure(ctx context.Context, e Entity) (Entity, error) {
	if err := s.l.check(e.validateNew()); err != nil {
		return Entity{}, err
	}
	var found Entity
	err := s.l.table.Optimistic(ctx, func() (done bool, err error) {
		found, err = s.get(ctx, e.ID)
		if errors.Is(err, ErrEntityNotFound) {
			found, err = s.create(ctx, e)
			if errors.Is(err, ErrEntityExists) { // since it was asked for
				return false, nil
			}
			return err == nil, err
		}
		switch {
		case err != nil:
			return false, err
		case found.ParentID != e.ParentID:
			return false, fmt.Errorf("%w: %q, with the parent %q", ErrEntityExists, e.ID, found.ParentID)
		case found.Cascade != e.Cascade:
			return false, fmt.Errorf("%w: %q, with cascade %t", ErrEntityExists, e.ID, found.Cascade)
		}
		return true, nil
	})
	if err != nil {
		return Entity{}, publicError("ensure the entity", err)
	}
	return found, nil
}
