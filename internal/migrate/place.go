package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A migration in place has one table for its source and its target. Which of the two an item belongs to follows from its
// key alone: the target has the items of a namespace that was empty at the start, and in other namespaces the buckets with
// partition keys of their own and the records of children, of which there was none. All other items are the source's.

// adds reports whether an item of this key is one that a migration in place adds.
func (m *Migration) adds(key store.Key) bool {
	return m.config.InPlace && (isMoved(key) || m.rules.NS != "" && strings.HasPrefix(key.PK, m.rules.NS+"/"))
}

// isOwn reports whether nothing follows from an item of a table that is migrated in place: it was added, or is about the
// whole table.
func (m *Migration) isOwn(key store.Key) bool {
	return m.adds(key) || m.config.InPlace && key.PK == ownPartition
}

// isMoved reports whether the items of a namespace of 0.10.0 have none of this key.
func isMoved(key store.Key) bool {
	if _, ok := layout.ParseBucketKey(key); ok {
		return true
	}
	_, ok := layout.ParseChildKey(key)
	return ok
}

// isBare reports whether what follows from an item goes to the namespace for items without one.
func isBare(key store.Key) bool {
	switch recordOf(key) {
	case entityRecord, limitBucketRecord, bucketRecord, entityLimitRecord, resourceLimitRecord, systemLimitRecord,
		entityConfigRecord, resourceConfigRecord, systemConfigRecord, usageRecord, auditRecord:
		return true
	default:
		return false
	}
}

// isOld reports whether an item is of no use once the migration is finished.
func isOld(key store.Key) bool {
	record := recordOf(key)
	return isBare(key) || record == namespacedBucketRecord || (record == registryRecord || record == versionRecord) && key.PK != ownPartition
}

// added leaves out of what follows from a source in place what is there already.
func (m *Migration) added(r Result) Result {
	if m.config.InPlace {
		r.Items = slices.DeleteFunc(r.Items, func(it Item) bool { return !m.adds(it.Key) })
	}
	return r
}

// one returns what follows from an item that stands by itself.
func (m *Migration) one(item expr.Item) Result { return m.added(m.rules.One(item)) }

// survey reads the whole table before a migration in place, and chooses the namespace for items without one. It returns
// the name under which that is to be registered, "" where it is, or where no item needs one. It returns [ErrNotEmpty] where
// items that it would add could not be told from others.
func (m *Migration) survey(ctx context.Context) (register string, err error) {
	name := m.config.Namespace
	found, err := m.target.Read(ctx, layout.NamespaceKey{Name: name}.Key())
	if err != nil {
		return "", err
	}
	id := ""
	if found[0] != nil {
		it, err := layout.DecodeNamespace(found[0])
		if err != nil {
			return "", err
		}
		id = it.ID
	}
	bare, used := false, false
	err = m.scanTarget(ctx, func(items []expr.Item) error {
		for _, item := range items {
			key := store.KeyOf(item)
			if isMoved(key) {
				return fmt.Errorf("%w: there is PK %q, SK %q of a later release; migrate to a new table", ErrNotEmpty, key.PK, key.SK)
			}
			bare = bare || isBare(key)
			used = used || id != "" && strings.HasPrefix(key.PK, id+"/")
		}
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case !bare:
		m.rules.NS = ""
		return "", nil
	case used:
		return "", fmt.Errorf("%w: items without a namespace would mix with those of namespace %q; name another one", ErrNotEmpty, name)
	case id != "":
		m.rules.NS = id
		return "", nil
	}
	m.rules.NS = layout.NewNamespaceID()
	return name, nil
}

// activeNamespace is the status of a namespace that programs may use.
const activeNamespace = "active"

// registration returns the writes that register the namespace of a migration in place.
func (m *Migration) registration(name string) (writes []store.Write, err error) {
	absent, err := layout.Insert()
	if err != nil || name == "" {
		return nil, err
	}
	byName := layout.Namespace{
		Key: layout.NamespaceKey{Name: name}, ID: m.rules.NS, Name: name, Status: activeNamespace, CreatedAt: layout.FormatTime(m.config.Now()),
	}
	byID := layout.NamespaceID{
		Key: layout.NamespaceIDKey{ID: m.rules.NS}, ID: byName.ID, Name: name, Status: byName.Status, CreatedAt: byName.CreatedAt,
	}
	return []store.Write{
		{Kind: store.Put, Key: byName.Key.Key(), Item: byName.Encode(), Expr: absent},
		{Kind: store.Put, Key: byID.Key.Key(), Item: byID.Encode(), Expr: absent},
	}, nil
}

// restoration returns the writes that take back what a migration in place did beside adding items.
func (m *Migration) restoration() []store.Write {
	version := store.Write{Kind: store.Delete, Key: layout.VersionKey{}.Key()}
	if len(m.record.Before) > 0 {
		version.Kind, version.Item = store.Put, m.record.Before
	}
	writes := []store.Write{version}
	if name := m.record.Namespace; name != "" {
		writes = append(writes, deletions([]store.Key{layout.NamespaceKey{Name: name}.Key(), layout.NamespaceIDKey{ID: m.rules.NS}.Key()})...)
	}
	return writes
}

const sweepPart = "delete"

// sweep deletes the old items after a migration in place, and ends it. Those of which nothing could be carried over stay.
func (m *Migration) sweep(ctx context.Context) error {
	part := m.part(sweepPart)
	q := store.Scan{Limit: m.config.Page, Consistent: true}
	if part.AfterPK != "" {
		q.Continue = store.Cursor(store.Key{PK: part.AfterPK, SK: part.AfterSK}.Join(nil))
	}
	for !part.Done {
		if err := m.beat(ctx); err != nil {
			return err
		}
		counts := decodeCounts(part.Counts)
		page, err := m.scan(ctx, q, counts)
		if err != nil {
			return err
		}
		var keys []store.Key
		for _, item := range page.Items {
			if key := store.KeyOf(item); isOld(key) && !m.keeps(item) {
				keys = append(keys, key)
			}
		}
		if err := m.fenced(ctx, deletions(keys), counts); err != nil {
			return err
		}
		counts[CountDeleted] += int64(len(keys))
		last := store.KeyOf(expr.Item(page.Next))
		part.AfterPK, part.AfterSK, part.Done = last.PK, last.SK, page.Next == nil
		if err := m.savePart(ctx, part, counts); err != nil {
			return err
		}
		q.Continue, part = page.Next, m.part(sweepPart)
	}
	return m.write(ctx, func(next *layout.Migration) { next.Phase, next.Owner = Finished, "" })
}

// keeps reports whether nothing could be carried over of an item, by itself.
func (m *Migration) keeps(item expr.Item) bool {
	key := store.KeyOf(item)
	return slices.ContainsFunc(m.alone(item).Losses, func(l Loss) bool {
		return l.Key == key && (l.Reason == lostUnknown || l.Reason == lostMalformed || l.Reason == lostName || l.Reason == lostWindows)
	})
}
