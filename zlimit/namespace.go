package zlimit

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// DefaultNamespace is the namespace of limiters that are opened without [WithNamespace]. It cannot be deleted: the next
// limiter opened with [WithSetup] would create an empty one of the same name.
const DefaultNamespace = "default"

// registryNamespace is the namespace id of the registry itself.
const registryNamespace = "_"

// A NamespaceService keeps the namespaces of a table. They are the same for every limiter on the table, in any
// namespace. It is safe for concurrent use.
//
// A name stands for an ID, and every key begins with the ID. Deleting a namespace removes the name and keeps the items:
// [NamespaceService.Recover] restores it, until [NamespaceService.Purge] deletes the items. An open limiter uses the
// ID, so neither affects it: it continues to read and write, and a recovery keeps its writes. Close it before a purge,
// since later writes stay until the ID is purged again. Changes of namespaces themselves have no audit events.
type NamespaceService struct{ l *RateLimiter }

// A NamespaceStatus says where a namespace stands.
type NamespaceStatus string

// The statuses, in the order in which a namespace goes through them.
const (
	NamespaceActive  NamespaceStatus = "active"
	NamespaceDeleted NamespaceStatus = "deleted" // its name was removed
	NamespacePurging NamespaceStatus = "purging" // its items are being deleted, or were when a purge ended too early
)

// A Namespace is a separate part of a table.
type Namespace struct {
	ID        string          `json:"id"`   // opaque
	Name      string          `json:"name"` // the current or former name
	Status    NamespaceStatus `json:"status"`
	CreatedAt time.Time       `json:"created_at,omitzero"`
	DeletedAt time.Time       `json:"deleted_at,omitzero"` // zero for an active one
}

// Register registers a namespace under a name, or finds it registered. It costs one read, and for a new one a
// transaction of two items: four write units, and one for the index of each.
func (s *NamespaceService) Register(ctx context.Context, name string) (Namespace, error) {
	if err := s.l.check(validateNamespace(name)); err != nil {
		return Namespace{}, err
	}
	ns, err := s.register(ctx, name)
	return ns, publicError("register the namespace", err)
}

// Get returns the namespace of a name; [ErrNamespaceNotFound] when there is none. It costs one read.
func (s *NamespaceService) Get(ctx context.Context, name string) (Namespace, error) {
	if err := s.l.check(validateNamespace(name)); err != nil {
		return Namespace{}, err
	}
	found, err := s.named(ctx, name)
	if err != nil {
		return Namespace{}, publicError("get the namespace", err)
	}
	return namespaceOf(&found), nil
}

// List yields the namespaces that have a name, in the order of their names. It reads page by page as the loop goes on:
// a read unit per 4 KB.
func (s *NamespaceService) List(ctx context.Context) iter.Seq2[Namespace, error] {
	return s.list(ctx, layout.QueryNamespaces(), func(item expr.Item) (Namespace, error) {
		decoded, err := layout.DecodeNamespace(item)
		return namespaceOf(&decoded), err
	}, func(Namespace) bool { return true })
}

// Orphans yields the namespaces without their name: deleted ones, and those with an unfinished purge. It reads the
// records of all namespaces, page by page as the loop goes on: a read unit per 4 KB.
func (s *NamespaceService) Orphans(ctx context.Context) iter.Seq2[Namespace, error] {
	return s.list(ctx, layout.QueryNamespaceIDs(), func(item expr.Item) (Namespace, error) {
		decoded, err := layout.DecodeNamespaceID(item)
		return retiredNamespace(&decoded), err
	}, func(ns Namespace) bool { return ns.Status != NamespaceActive })
}

// list yields the namespaces of a query that are wanted.
func (s *NamespaceService) list(
	ctx context.Context, q store.Query, decode func(expr.Item) (Namespace, error), wanted func(Namespace) bool,
) iter.Seq2[Namespace, error] {
	return func(yield func(Namespace, error) bool) {
		if err := s.l.check(nil); err != nil {
			yield(Namespace{}, err)
			return
		}
		q.Consistent = true
		for item, err := range s.l.query(ctx, "list namespaces", q) {
			var ns Namespace
			if err == nil {
				ns, err = decode(item)
				err = publicError("list namespaces", err)
			}
			if err != nil {
				yield(Namespace{}, err)
				return
			}
			if wanted(ns) && !yield(ns, nil) {
				return
			}
		}
	}
}

// Delete removes the name of a namespace, which may then be registered again, and marks the namespace as deleted. Its
// items stay. It returns the namespace, whose ID the other calls take. It returns [ErrNamespaceNotFound] if there is no
// namespace of that name, and a [*ValidationError] for [DefaultNamespace]. It costs one read and a transaction of two
// items: four write units, and one for an index.
func (s *NamespaceService) Delete(ctx context.Context, name string) (Namespace, error) {
	if err := s.l.check(validateNamespace(name)); err != nil {
		return Namespace{}, err
	}
	if name == DefaultNamespace {
		return Namespace{}, &ValidationError{Field: "namespace", Value: name, Reason: "cannot be deleted"}
	}
	ns, err := s.delete(ctx, name)
	return ns, publicError("delete the namespace", err)
}

func (s *NamespaceService) delete(ctx context.Context, name string) (Namespace, error) {
	var ns Namespace
	err := s.l.table.Optimistic(ctx, func() (done bool, err error) {
		found, err := s.named(ctx, name)
		if err != nil {
			return false, err
		}
		ns = namespaceOf(&found)
		ns.Status, ns.DeletedAt = NamespaceDeleted, s.l.now().UTC().Truncate(time.Second)
		release, err := layout.ReleaseName(ns.ID)
		if err != nil {
			return false, err
		}
		retire, err := layout.RetireNamespace(string(NamespaceActive), string(NamespaceDeleted), layout.FormatTime(ns.DeletedAt))
		if err != nil {
			return false, err
		}
		results, err := s.l.table.TryTransact(ctx, []store.Write{
			{Kind: store.Delete, Key: found.Key.Key(), Expr: release},
			{Kind: store.Update, Key: layout.NamespaceIDKey{ID: ns.ID}.Key(), Expr: retire},
		})
		switch {
		case err != nil:
			return false, err
		case results == nil: // another transaction was in the way
		case !results[0].Applied: // the name has gone, or leads elsewhere
		case !results[1].Applied:
			return false, fmt.Errorf("%w: the record of %s, %q, is missing or not active", ErrNamespaceState, ns.ID, name)
		default:
			return true, nil
		}
		return false, nil
	})
	if err != nil {
		return Namespace{}, err
	}
	return ns, nil
}

// Recover restores a deleted namespace under its name, with everything in it. It returns [ErrNamespaceNotFound] for an
// ID that is not registered. It returns [ErrNamespaceState] when the namespace is not deleted, when its purge has
// begun, or when a new namespace has taken the name. It costs one read and a transaction of two items: four write
// units, and one for an index.
func (s *NamespaceService) Recover(ctx context.Context, id string) (Namespace, error) {
	if err := s.l.check(validateNamespaceID(id)); err != nil {
		return Namespace{}, err
	}
	ns, err := s.recover(ctx, id)
	return ns, publicError("recover the namespace", err)
}

func (s *NamespaceService) recover(ctx context.Context, id string) (Namespace, error) {
	var ns Namespace
	err := s.l.table.Optimistic(ctx, func() (done bool, err error) {
		items, err := s.l.table.Read(ctx, layout.NamespaceIDKey{ID: id}.Key())
		if err != nil {
			return false, err
		}
		if items[0] == nil {
			return false, missing(id)
		}
		found, err := layout.DecodeNamespaceID(items[0])
		if err != nil {
			return false, err
		}
		ns = retiredNamespace(&found)
		if ns.Status != NamespaceDeleted {
			return false, fmt.Errorf("%w: %s is %s, not deleted", ErrNamespaceState, id, ns.Status)
		}
		ns.Status, ns.DeletedAt = NamespaceActive, time.Time{}
		forward := layout.Namespace{
			Key: layout.NamespaceKey{Name: ns.Name}, ID: id, Name: ns.Name, Status: string(NamespaceActive), CreatedAt: found.CreatedAt,
		}
		absent, err := layout.Insert()
		if err != nil {
			return false, err
		}
		restore, err := layout.RestoreNamespace(string(NamespaceDeleted), string(NamespaceActive))
		if err != nil {
			return false, err
		}
		results, err := s.l.table.TryTransact(ctx, []store.Write{
			{Kind: store.Put, Key: forward.Key.Key(), Item: forward.Encode(), Expr: absent},
			{Kind: store.Update, Key: found.Key.Key(), Expr: restore},
		})
		switch {
		case err != nil:
			return false, err
		case results == nil: // another transaction was in the way
		case !results[1].Applied: // recovered or condemned meanwhile
		case !results[0].Applied:
			return false, fmt.Errorf("%w: the name %q of %s is taken", ErrNamespaceState, ns.Name, id)
		default:
			return true, nil
		}
		return false, nil
	})
	if err != nil {
		return Namespace{}, err
	}
	return ns, nil
}

// Namespace returns a limiter that works in another namespace of the same store. It shares the store, the client and
// the memory of stored limits with l, and has l's options except those given. A namespace that is not registered is
// [ErrNamespaceNotFound], unless [WithSetup] is among them. Closing the limiter leaves the store open. If l has opened
// the store, closing l closes it for both. It costs one batch read of two items, and some kilobytes of memory: keep the
// limiter for as long as the namespace is used.
func (l *RateLimiter) Namespace(ctx context.Context, name string, opts ...Option) (*RateLimiter, error) {
	if l.closed.Load() {
		return nil, ErrClosed
	}
	o := l.options
	o.setup = false
	for _, opt := range opts {
		opt(&o)
	}
	o.namespace = name
	if err := o.validate(); err != nil {
		return nil, err
	}
	return start(ctx, l.store, o, l.common, false, (*NamespaceService).lookup)
}

// missing returns the error of a name or an ID that is not registered.
func missing(namespace string) error { return fmt.Errorf("%w: %q", ErrNamespaceNotFound, namespace) }

// A registration has the records of a table and of a namespace.
type registration struct {
	versioned bool              // it has a whole version record, which this client may use
	namespace *layout.Namespace // nil when it is not registered
}

// find looks up a namespace for a process that starts. All processes of a fleet read the same two records, and may
// start together: an eventual read takes half the units. Records missing in it may exist, and are read consistently. A
// limiter that was itself asked for another namespace may have registered it moments ago, and does not use find.
func (s *NamespaceService) find(ctx context.Context, name string) (registration, error) {
	found, err := s.look(ctx, name, false)
	if err == nil && found.namespace != nil || store.OutcomeOf(err) > store.Refused {
		return found, err
	}
	return s.lookup(ctx, name)
}

// lookup reads the version record and that of a namespace: one batch read.
func (s *NamespaceService) lookup(ctx context.Context, name string) (registration, error) {
	return s.look(ctx, name, true)
}

// look is lookup by a consistent or an eventual read. It waits throttles out.
func (s *NamespaceService) look(ctx context.Context, name string, consistent bool) (found registration, err error) {
	keys := []store.Key{layout.VersionKey{}.Key(), layout.NamespaceKey{Name: name}.Key()}
	var items []expr.Item
	err = s.l.table.WhileThrottled(ctx, func(ctx context.Context) error {
		items, err = s.l.store.Read(ctx, keys, consistent)
		return err
	})
	if err != nil {
		return found, err
	}
	if err := checkVersion(items[0]); err != nil {
		return found, err
	}
	found.versioned = items[0] != nil && items[0].Get(layout.AttrVersionChildrenFrom).Kind() != expr.KindNone
	if items[1] == nil {
		return found, nil
	}
	item, err := layout.DecodeNamespace(items[1])
	found.namespace = &item
	return found, err
}

// named returns the record of a registered namespace.
func (s *NamespaceService) named(ctx context.Context, name string) (item layout.Namespace, err error) {
	items, err := s.l.table.Read(ctx, layout.NamespaceKey{Name: name}.Key())
	if err == nil && items[0] == nil {
		err = missing(name)
	}
	if err != nil {
		return item, err
	}
	return layout.DecodeNamespace(items[0])
}

// register registers a namespace, or finds it registered.
func (s *NamespaceService) register(ctx context.Context, name string) (Namespace, error) {
	var ns Namespace
	err := s.l.table.Optimistic(ctx, func() (done bool, err error) {
		items, err := s.l.table.Read(ctx, layout.NamespaceKey{Name: name}.Key())
		if err != nil {
			return false, err
		}
		if items[0] != nil {
			found, err := layout.DecodeNamespace(items[0])
			ns = namespaceOf(&found)
			return true, err
		}
		now := s.l.now().UTC().Format(layout.TimeFormat)
		status := string(NamespaceActive)
		id := layout.NewNamespaceID()
		forward := layout.Namespace{Key: layout.NamespaceKey{Name: name}, ID: id, Name: name, Status: status, CreatedAt: now}
		reverse := layout.NamespaceID{Key: layout.NamespaceIDKey{ID: id}, ID: id, Name: name, Status: status, CreatedAt: now}
		absent, err := layout.Insert()
		if err != nil {
			return false, err
		}
		ns = namespaceOf(&forward)
		return s.l.table.Transact(ctx, []store.Write{
			{Kind: store.Put, Key: forward.Key.Key(), Item: forward.Encode(), Expr: absent},
			{Kind: store.Put, Key: reverse.Key.Key(), Item: reverse.Encode(), Expr: absent},
		})
	})
	if err != nil {
		return Namespace{}, err
	}
	return ns, nil
}

func namespaceOf(it *layout.Namespace) Namespace {
	return Namespace{it.ID, it.Name, NamespaceStatus(it.Status), layout.ParseTime(it.CreatedAt), layout.ParseTime(it.DeletedAt)}
}

// retiredNamespace returns the namespace that the record of an id holds.
func retiredNamespace(it *layout.NamespaceID) Namespace {
	return Namespace{it.ID, it.Name, NamespaceStatus(it.Status), layout.ParseTime(it.CreatedAt), layout.ParseTime(it.DeletedAt)}
}

// validateNamespaceID checks an ID for keys that it goes into.
func validateNamespaceID(id string) error {
	var reason string
	switch {
	case id == "" || len(id) > 64:
		reason = "must have from 1 to 64 characters"
	case id == registryNamespace:
		reason = "is the registry's own"
	case !isToken(id):
		reason = "must hold only ASCII letters, digits, - and _"
	default:
		return nil
	}
	return &ValidationError{Field: "namespace id", Value: id, Reason: reason}
}

func isToken(id string) bool {
	for _, r := range id {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (r < '0' || r > '9') && r != '-' && r != '_' {
			return false
		}
	}
	return true
}
