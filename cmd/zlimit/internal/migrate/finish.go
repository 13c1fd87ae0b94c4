package migrate

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// Finish opens the target to programs, once the source was not written for a time and the target is exactly what
// follows from it. In place it then deletes the old items. It returns no verification where nothing else was left to
// do. It returns [ErrBusy] when the source is written again and again meanwhile, and [ErrDiffers] with the verification
// when the two differ. The source is left as it is.
func (m *Migration) Finish(ctx context.Context) (*Verification, error) {
	switch m.Phase() {
	case Finished:
		return nil, ErrFinished
	case Aborting:
		return nil, ErrAborting
	case Deleting:
		return nil, m.sweep(ctx)
	}
	for range 3 {
		if err := m.Copy(ctx); err != nil {
			return nil, err
		}
		if err := m.follow(ctx, m.config.Quiet, 6*m.config.Quiet); err != nil {
			return nil, err
		}
		before := m.Counts()[CountChanges]
		v, err := m.verifier.verify(ctx)
		if err != nil {
			return nil, err
		}
		if err := m.CatchUp(ctx); err != nil {
			return nil, err
		}
		if m.Counts()[CountChanges] != before || v.Written > 0 {
			continue // the verified copies are out of date
		}
		if !v.Exact() {
			return v, ErrDiffers
		}
		if err := m.open(ctx, v); err != nil || !m.config.InPlace {
			return v, err
		}
		return v, m.sweep(ctx)
	}
	return nil, ErrBusy
}

// open writes the registries, and lets programs in, in one transaction.
func (m *Migration) open(ctx context.Context, v *Verification) error {
	m.ledger.mu.Lock()
	defer m.ledger.mu.Unlock()
	more := []store.Write{m.ledger.version(v.Clients, v.childrenFrom)}
	if m.derivation.rules.NS != "" && !v.kept {
		if len(v.resources) > 0 {
			it := layout.ResourceRegistry{
				Key: layout.ResourceRegistryKey{NS: m.derivation.rules.NS}, Resources: slices.Sorted(maps.Keys(v.resources)),
			}
			more = append(more, store.Write{Kind: store.Put, Key: it.Key.Key(), Item: it.Encode()})
		}
		if len(v.entities) > 0 {
			it := layout.EntityConfigRegistry{Key: layout.EntityConfigRegistryKey{NS: m.derivation.rules.NS}}
			for _, resource := range slices.Sorted(maps.Keys(v.entities)) {
				it.Resources = append(it.Resources, layout.ResourceCount{Name: resource, Entities: v.entities[resource]})
			}
			more = append(more, store.Write{Kind: store.Put, Key: it.Key.Key(), Item: it.Encode()})
		}
	}
	return m.ledger.writeLocked(ctx, func(next *layout.Migration) {
		if next.Phase, next.Owner = Finished, ""; m.config.InPlace {
			next.Phase, next.Owner = Deleting, m.ledger.record.Owner
		}
	}, more...)
}

// Abort deletes the items written by the migration, and the record of the migration last. It returns the number of
// items. The source is left as it is, and so is the version of the target, which is open again. In place it takes back
// the registrations of the migration.
func (m *Migration) Abort(ctx context.Context) (deleted int64, err error) {
	switch m.Phase() {
	case Finished:
		return 0, ErrFinished
	case Deleting:
		return 0, ErrDeleting
	}
	if err := m.ledger.write(ctx, func(next *layout.Migration) { next.Phase = Aborting }); err != nil {
		return 0, err
	}
	record, version := layout.MigrationKey{}.Key(), layout.VersionKey{}.Key()
	err = m.calls.scanTarget(ctx, func(items []expr.Item) error {
		var keys []store.Key
		for _, item := range items {
			if key := store.KeyOf(item); m.aborts(key) && key != record && key != version {
				keys = append(keys, key)
			}
		}
		if err := m.ledger.beat(ctx); err != nil {
			return err
		}
		counts := Counts{}
		err := m.copier.fenced(ctx, deletions(keys), counts)
		m.ledger.booked.add(counts)
		if err != nil {
			return err
		}
		deleted += int64(len(keys))
		return nil
	})
	if err != nil {
		return deleted, err
	}
	check, err := m.ledger.fence(record)
	if err != nil {
		return deleted, err
	}
	last := []store.Write{{Kind: store.Delete, Key: check.Key, Expr: check.Expr}}
	if m.config.InPlace {
		last = append(last, m.restoration()...)
	} else {
		last = append(last, m.ledger.version(m.config.ClientMinVersion, ""))
	}
	applied := false
	err = m.ledger.patientlyOwn(ctx, func(ctx context.Context) error {
		results, err := m.config.Target.Transact(ctx, last)
		applied = err == nil && table.Applied(results)
		return err
	})
	if err != nil || applied {
		return deleted, err
	}
	if found, err := m.ledger.load(ctx); err != nil || found != nil { // it is gone when the reply of the first try was lost
		return deleted, errors.Join(err, ErrTaken)
	}
	return deleted, nil
}

func deletions(keys []store.Key) []store.Write {
	writes := make([]store.Write, len(keys))
	for i, key := range keys {
		writes[i] = store.Write{Kind: store.Delete, Key: key}
	}
	return writes
}

// aborts reports whether an item of the target is the migration's.
func (m *Migration) aborts(key store.Key) bool {
	if m.config.InPlace {
		return m.derivation.adds(key) || strings.HasPrefix(key.SK, layout.QueryMigrationParts().Prefix) && key.PK == ownPartition
	}
	return !m.isOwnRegistry(key)
}

// isOwnRegistry reports whether a key is of the namespace registered in the target for the migration.
func (m *Migration) isOwnRegistry(key store.Key) bool {
	if m.derivation.rules.NS == "" || key.PK != ownPartition {
		return false
	}
	return strings.HasPrefix(key.SK, layout.QueryNamespaces().Prefix) || strings.HasPrefix(key.SK, layout.QueryNamespaceIDs().Prefix)
}
