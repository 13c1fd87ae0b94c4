package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A migration in place has one table for its source and its target. The key of an item alone decides to which of the two
// it belongs. The target has all items of a namespace that was empty at the start. In other namespaces it has the
// buckets with partition keys of their own, and the records of children, since the source had neither. All other items
// are the source's.

// A derivation is what follows from items of the source.
type derivation struct {
	config *Config
	calls  *calls
	rules  Rules
}

// adds reports whether an item of this key is one that a migration in place adds.
func (dv *derivation) adds(key store.Key) bool {
	return dv.config.InPlace && (isMoved(key) || dv.rules.NS != "" && strings.HasPrefix(key.PK, dv.rules.NS+"/"))
}

// isOwn reports whether nothing follows from an item of a table that is migrated in place: it was added, or is about the
// whole table.
func (dv *derivation) isOwn(key store.Key) bool {
	return dv.adds(key) || dv.config.InPlace && key.PK == ownPartition
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

// added leaves out existing items from the results of a source in place.
func (dv *derivation) added(r Result) Result {
	if dv.config.InPlace {
		r.Items = slices.DeleteFunc(r.Items, func(it Item) bool { return !dv.adds(it.Key) })
	}
	return r
}

// one returns the results of an item that stands by itself.
func (dv *derivation) one(item expr.Item) Result { return dv.added(dv.rules.One(item)) }

// A Mix is an item without a namespace, and one of the namespace that it would go to. Two such items may have the same key in the target.
// Limits, entities and registries of the two would then be mixed up.
type Mix struct {
	Namespace  string // its name
	Bare, With store.Key
}

// MarshalJSON returns the keys of the item without a namespace, and of the one with a namespace.
func (x *Mix) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{
		"namespace": x.Namespace, "pk": x.Bare.PK, "sk": x.Bare.SK, "with_pk": x.With.PK, "with_sk": x.With.SK,
	})
}

// Err returns [ErrMixed] with the keys.
func (x *Mix) Err() error {
	return fmt.Errorf("%w: PK %q, SK %q would come beside PK %q, SK %q of namespace %q; name another one by --namespace",
		ErrMixed, x.Bare.PK, x.Bare.SK, x.With.PK, x.With.SK, x.Namespace)
}

// A mixer looks for items without a namespace, and for items of the namespace that they would go to.
type mixer struct {
	id  string // of the namespace, "" where the source has none of its name
	mix Mix
}

// add looks at an item. It reports whether both were found.
func (x *mixer) add(key store.Key) bool {
	switch {
	case isBare(key) && x.mix.Bare == store.Key{}:
		x.mix.Bare = key
	case x.id != "" && strings.HasPrefix(key.PK, x.id+"/") && x.mix.With == store.Key{}:
		x.mix.With = key
	}
	return x.found()
}

func (x *mixer) found() bool { return x.mix.Bare != store.Key{} && x.mix.With != store.Key{} }

// CheckMixed returns [ErrMixed] with the keys where the source has items without a namespace beside items of their
// future namespace, which the rules name. It reads the source until it has found both.
func CheckMixed(ctx context.Context, c Config) error {
	c.Target = c.Source
	m, err := newMigration(c)
	if err != nil {
		return err
	}
	x := mixer{id: c.Rules.NS, mix: Mix{Namespace: c.Namespace}}
	for q := (store.Scan{}); ; {
		page, err := m.calls.scan(ctx, q, Counts{})
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			if x.add(store.KeyOf(item)) {
				return x.mix.Err()
			}
		}
		if q.Continue = page.Next; page.Next == nil {
			return nil
		}
	}
}

// survey reads the whole table before a migration in place, and chooses the namespace for items without one. It returns
// the name under which the namespace is to be registered, or "" if it is registered, or no item needs one.
// It returns [ErrNotEmpty] or [ErrMixed] if items that it would add could not be distinguished from others.
func (m *Migration) survey(ctx context.Context) (register string, err error) {
	name := m.config.Namespace
	found, err := m.ledger.readOwn(ctx, layout.NamespaceKey{Name: name}.Key())
	if err != nil {
		return "", err
	}
	x := mixer{mix: Mix{Namespace: name}}
	if found[0] != nil {
		it, err := layout.DecodeNamespace(found[0])
		if err != nil {
			return "", err
		}
		x.id = it.ID
	}
	err = m.calls.scanTarget(ctx, func(items []expr.Item) error {
		for _, item := range items {
			key := store.KeyOf(item)
			if isMoved(key) {
				return fmt.Errorf("%w: there is PK %q, SK %q of a later release; migrate to a new table", ErrNotEmpty, key.PK, key.SK)
			}
			if x.add(key) {
				return x.mix.Err()
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return "", err
	case x.mix.Bare == store.Key{}:
		m.derivation.rules.NS = ""
		return "", nil
	case x.id != "":
		m.derivation.rules.NS = x.id
		return "", nil
	}
	m.derivation.rules.NS = layout.NewNamespaceID()
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
		Key: layout.NamespaceKey{Name: name}, ID: m.derivation.rules.NS, Name: name, Status: activeNamespace, CreatedAt: layout.FormatTime(m.config.Now()),
	}
	byID := layout.NamespaceID{
		Key: layout.NamespaceIDKey{ID: m.derivation.rules.NS}, ID: byName.ID, Name: name, Status: byName.Status, CreatedAt: byName.CreatedAt,
	}
	return []store.Write{
		{Kind: store.Put, Key: byName.Key.Key(), Item: byName.Encode(), Expr: absent},
		{Kind: store.Put, Key: byID.Key.Key(), Item: byID.Encode(), Expr: absent},
	}, nil
}

// restoration returns the writes that take back a migration in place, except the added items.
func (m *Migration) restoration() []store.Write {
	version := store.Write{Kind: store.Delete, Key: layout.VersionKey{}.Key()}
	if len(m.ledger.record.Before) > 0 {
		version.Kind, version.Item = store.Put, m.ledger.record.Before
	}
	writes := []store.Write{version}
	if name := m.ledger.record.Namespace; name != "" {
		writes = append(writes, deletions([]store.Key{layout.NamespaceKey{Name: name}.Key(), layout.NamespaceIDKey{ID: m.derivation.rules.NS}.Key()})...)
	}
	return writes
}

const sweepPart = "delete"

// sweep deletes the old items after a migration in place, and ends it. Items of which nothing could be carried over stay.
func (m *Migration) sweep(ctx context.Context) error {
	part := m.ledger.part(sweepPart)
	q := store.Scan{Limit: m.config.Page, Consistent: true}
	if part.AfterPK != "" {
		q.Continue = store.Cursor(store.Key{PK: part.AfterPK, SK: part.AfterSK}.Join(nil))
	}
	for !part.Done {
		if err := m.ledger.beat(ctx); err != nil {
			return err
		}
		counts := decodeCounts(part.Counts)
		page, err := m.calls.scan(ctx, q, counts)
		if err != nil {
			return err
		}
		var keys []store.Key
		for _, item := range page.Items {
			if key := store.KeyOf(item); isOld(key) && !m.derivation.keeps(item) {
				keys = append(keys, key)
			}
		}
		if err := m.copier.fenced(ctx, deletions(keys), counts); err != nil {
			return err
		}
		counts[CountDeleted] += int64(len(keys))
		last := store.KeyOf(expr.Item(page.Next))
		part.AfterPK, part.AfterSK, part.Done = last.PK, last.SK, page.Next == nil
		if err := m.ledger.savePart(ctx, part, counts); err != nil {
			return err
		}
		q.Continue, part = page.Next, m.ledger.part(sweepPart)
	}
	return m.ledger.write(ctx, func(next *layout.Migration) { next.Phase, next.Owner = Finished, "" })
}

// keeps reports whether nothing could be carried over of an item, by itself.
func (dv *derivation) keeps(item expr.Item) bool {
	key := store.KeyOf(item)
	return slices.ContainsFunc(dv.alone(item).Losses, func(l Loss) bool {
		return l.Key == key && (l.Reason == lostUnknown || l.Reason == lostMalformed || l.Reason == lostName || l.Reason == lostWindows)
	})
}
