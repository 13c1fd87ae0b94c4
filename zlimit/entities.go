package zlimit

import (
	"context"
	"fmt"
	"iter"
	"time"
	"unicode/utf8"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// An EntityService keeps the records of the entities of a namespace. An entity needs no record to be limited, nor to
// have limits of its own. It needs one to have a parent. [EntityService.SetParent] moves an entity to another parent. It is
// safe for concurrent use.
//
// A process that has used an entity before learns of another process's record within its [WithConfigTTL]. On DynamoDB
// the same holds for a process that first uses the entity in the moment after: its read may still be behind. Until then
// the parent is not charged.
type EntityService struct{ l *RateLimiter }

// An Entity is a user, key, team or other party that is limited.
type Entity struct {
	ID   string `json:"id"`
	Name string `json:"name"` // for people; the ID unless another is given
	// ParentID is the entity above this one; "" for none.
	ParentID string `json:"parent_id,omitempty"`
	// Cascade says that the entity's consumption is charged to its parent as well.
	Cascade bool `json:"cascade"`
	// Metadata is the application's own data of the entity: up to 16 KB in all. Limits do not depend on it.
	Metadata  map[string]string `json:"metadata,omitempty"`
	CreatedAt time.Time         `json:"created_at,omitzero"` // set by Create, whole seconds
	Version   int64             `json:"version"`             // counts the calls of Update and SetParent that changed the entity
}

const (
	maxEntityName = 256
	maxMetadata   = 16 << 10 // an item is 400 KB at most, and costs by the KB
)

// validateNew checks an entity that is to be created. An entity that was moved to no parent may cascade.
func (e *Entity) validateNew() error {
	err := e.validate()
	if err == nil && e.Cascade && e.ParentID == "" {
		err = &ValidationError{Field: "cascade", Value: "true", Reason: "takes a parent"}
	}
	return err
}

func (e *Entity) validate() error {
	if err := validateEntity("entity", e.ID); err != nil {
		return err
	}
	if len(e.Name) > maxEntityName || !printable(e.Name) {
		reason := fmt.Sprintf("must be at most %d bytes of UTF-8 without control characters", maxEntityName)
		return &ValidationError{Field: "name", Value: e.Name, Reason: reason}
	}
	if e.ParentID != "" {
		if err := validateEntity("parent", e.ParentID); err != nil {
			return err
		}
	}
	if e.ParentID == e.ID {
		return &ValidationError{Field: "parent", Value: e.ParentID, Reason: "must not be the entity itself"}
	}
	size := 0
	for key, value := range e.Metadata {
		if key == "" || !utf8.ValidString(key) || !utf8.ValidString(value) {
			return &ValidationError{Field: "metadata[" + key + "]", Value: value, Reason: "must be UTF-8 under a name that is not empty"}
		}
		size += len(key) + len(value)
	}
	if size > maxMetadata {
		reason := fmt.Sprintf("must be at most %d bytes, names included", maxMetadata)
		return &ValidationError{Field: "metadata", Value: fmt.Sprintf("%d bytes", size), Reason: reason}
	}
	return nil
}

// Create writes the record of a new entity and returns it, with what Create has filled in. A parent must have a record.
// The entity and all of its parents form a chain of at most 8.
//
// Create returns [ErrEntityExists] for an ID with a record, [ErrEntityNotFound] for a parent without one, and a
// [*ValidationError] for a broken rule. It costs a transaction of the record and an audit event: two write units per KB
// each, and one for the index of each. The first change within [WithConfigTTL] reads two items more, in a call more. A
// parent costs in addition:
//   - one write unit for an index more;
//   - three for the item that lists the child under the parent's key;
//   - two per KB of the parent's record, which counts its children, and one for its index if it has a parent;
//   - a consistent read of each entity of the chain.
func (s *EntityService) Create(ctx context.Context, e Entity) (Entity, error) {
	rules := e
	if hooks.Admits(ctx) { // it gets its parent later
		rules.Cascade = false
	}
	if err := s.l.check(rules.validateNew()); err != nil {
		return Entity{}, err
	}
	created, err := s.create(ctx, e)
	return created, publicError("create the entity", err)
}

func (s *EntityService) create(ctx context.Context, e Entity) (Entity, error) {
	by, err := s.ancestry(ctx, &e)
	if err != nil {
		return Entity{}, err
	}
	if e.Name == "" {
		e.Name = e.ID
	}
	e.CreatedAt, e.Version = s.l.now().UTC().Truncate(time.Second), 0
	item := layout.Entity{
		Key: layout.EntityKey{NS: s.l.ns.id(), Entity: e.ID}, Name: e.Name, Parent: e.ParentID, Cascade: e.Cascade,
		Metadata: e.metadata(), CreatedAt: layout.FormatTime(e.CreatedAt),
	}
	absent, err := layout.Insert()
	if err != nil {
		return Entity{}, err
	}
	writes := []store.Write{{Kind: store.Put, Key: item.Key.Key(), Item: item.Encode(), Expr: absent}}
	if e.ParentID != "" {
		w := store.Write{Kind: store.Update, Key: layout.EntityKey{NS: s.l.ns.id(), Entity: e.ParentID}.Key()}
		if w.Expr, err = layout.AddChild(1).Bind(); err != nil {
			return Entity{}, err
		}
		child := s.child(e.ParentID, e.ID)
		writes = append(writes, w, store.Write{Kind: store.Put, Key: child.Key.Key(), Item: child.Encode()})
	}
	err = s.l.table.Optimistic(ctx, func() (done bool, err error) {
		all, err := by.with(auditEntry{action: ActionEntityCreated, entity: e.ID, details: e.details()}, writes...)
		if err != nil {
			return false, err
		}
		epoch := s.l.epoch.Add(1)
		results, err := s.l.table.TryTransact(ctx, all)
		switch {
		case err != nil:
			return false, err
		case results == nil: // another transaction was in the way
			return false, nil
		case !results[0].Applied:
			return false, fmt.Errorf("%w: %q", ErrEntityExists, e.ID)
		case e.ParentID != "" && !results[1].Applied:
			return false, noParent(e.ParentID)
		case !table.Applied(results): // the audit event has an id that was taken
			return false, nil
		}
		s.l.cache.learn(item.Key.Key(), &cachedLevel{lineage: layout.Lineage{Cascade: e.Cascade, Parent: e.ParentID}}, epoch)
		return true, nil
	})
	if err != nil {
		return Entity{}, err
	}
	return e, nil
}

// child returns the item that lists a child of an entity.
func (s *EntityService) child(parent, child string) layout.Child {
	return layout.Child{Key: layout.ChildKey{NS: s.l.ns.id(), Entity: parent, Child: child}}
}

func noParent(id string) error { return fmt.Errorf("%w: parent %q", ErrEntityNotFound, id) }

// details returns an entity as its audit event has it.
func (e *Entity) details() expr.Item {
	return expr.Item{
		{Name: "name", Value: expr.S(e.Name)},
		{Name: "parent_id", Value: orNull(e.ParentID)},
		{Name: "cascade", Value: expr.Bool(e.Cascade)},
		{Name: "metadata", Value: expr.Map(e.metadata())},
	}
}

// ancestry reads the chain above an entity that is to be created, and returns the author of the change. A parent exists before its
// children, and a move makes no circle, so that a chain ends. Only another program can make one: it deletes a record under
// its children, and then makes a new record of that ID.
func (s *EntityService) ancestry(ctx context.Context, e *Entity) (by author, err error) {
	if e.ParentID == "" {
		_, by, err = s.l.readToChange(ctx)
		return by, err
	}
	items, by, err := s.l.readToChange(ctx, layout.EntityKey{NS: s.l.ns.id(), Entity: e.ParentID}.Key())
	if err == nil && items[0] == nil {
		err = noParent(e.ParentID)
	}
	for depth := 2; err == nil && items[0] != nil; depth++ {
		var above layout.Entity
		above, err = layout.DecodeEntity(items[0])
		switch {
		case err != nil:
		case above.Parent == "":
			return by, nil
		case above.Parent == e.ID:
			err = &ValidationError{Field: "parent", Value: e.ParentID, Reason: "is below the entity itself"}
		case depth == protocol.MaxDepth:
			reason := fmt.Sprintf("makes a chain of more than %d entities", protocol.MaxDepth)
			err = &ValidationError{Field: "parent", Value: e.ParentID, Reason: reason}
		default:
			items, err = s.l.table.Read(ctx, layout.EntityKey{NS: s.l.ns.id(), Entity: above.Parent}.Key())
		}
	}
	return by, err
}

// Get returns the record of an entity; [ErrEntityNotFound] when it has none. It costs one consistent read.
func (s *EntityService) Get(ctx context.Context, id string) (Entity, error) {
	if err := s.check(id); err != nil {
		return Entity{}, err
	}
	e, err := s.get(ctx, id)
	return e, publicError("get the entity", err)
}

func (s *EntityService) get(ctx context.Context, id string) (Entity, error) {
	items, err := s.l.table.Read(ctx, layout.EntityKey{NS: s.l.ns.id(), Entity: id}.Key())
	if err != nil {
		return Entity{}, err
	}
	if items[0] == nil {
		return Entity{}, fmt.Errorf("%w: %q", ErrEntityNotFound, id)
	}
	return entityOf(items[0])
}

// Children yields the entities whose parent is the one given, in the order of their IDs. It reads an index page by page
// as the loop goes on, at half a read unit per 4 KB. The index may be moments behind.
func (s *EntityService) Children(ctx context.Context, id string) iter.Seq2[Entity, error] {
	return func(yield func(Entity, error) bool) {
		if err := s.check(id); err != nil {
			yield(Entity{}, err)
			return
		}
		for item, err := range s.l.query(ctx, "list children", layout.QueryChildren(s.l.ns.id(), id)) {
			var e Entity
			if err == nil {
				e, err = entityOf(item)
				err = publicError("list children", err)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// check returns the error of a call that must not be made.
func (s *EntityService) check(id string) error { return s.l.check(validateEntity("entity", id)) }

func entityOf(item expr.Item) (Entity, error) {
	decoded, err := layout.DecodeEntity(item)
	if err != nil {
		return Entity{}, err
	}
	e := Entity{
		ID: decoded.Key.Entity, Name: decoded.Name, ParentID: decoded.Parent, Cascade: decoded.Cascade,
		CreatedAt: layout.ParseTime(decoded.CreatedAt), Version: decoded.Version,
	}
	if e.Name == "" {
		e.Name = e.ID
	}
	if len(decoded.Metadata) > 0 {
		e.Metadata = make(map[string]string, len(decoded.Metadata))
	}
	for _, a := range decoded.Metadata {
		if a.Value.Kind() == expr.KindS {
			e.Metadata[a.Name] = a.Value.Text()
		} else { // of another program
			e.Metadata[a.Name] = a.Value.String()
		}
	}
	return e, nil
}

// Buckets yields the buckets of an entity, in the order of their resources. A resource that the entity has not used yet
// has no bucket: [RateLimiter.Available] returns its balance.
//
// Buckets reads an index page by page as the loop goes on, at half a read unit per 4 KB of keys. It reads 100 items at
// a time consistently, at a read unit per 4 KB of each. The index may be moments behind.
func (s *EntityService) Buckets(ctx context.Context, id string) iter.Seq2[Bucket, error] {
	return func(yield func(Bucket, error) bool) {
		if err := s.check(id); err != nil {
			yield(Bucket{}, err)
			return
		}
		for b, err := range s.l.spreads(ctx, layout.QueryBucketsOfEntity(s.l.ns.id(), id, ""), s.l.table.Read) {
			if err != nil {
				yield(Bucket{}, publicError("list buckets", err))
				return
			}
			if !yield(b.bucket(s.l.now()), nil) {
				return
			}
		}
	}
}
