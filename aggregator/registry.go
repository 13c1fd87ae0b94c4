package aggregator

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// The registry of a table has its namespaces, and the oldest client that may use it. Changes lag behind both. Since an
// item was changed, the table may have been given to later clients, and the namespace may have been purged.

// A registry knows whether this client may use the table, and which namespaces are gone.
type registry struct {
	*base
	admitted atomic.Bool // as the last read of the table's version has found
}

// admit returns a [*zlimit.VersionError] if this client may not use the table. It makes one read at each call, until one admits the
// client. After that, the reads of [registry.forget] show when the table changes.
func (rg *registry) admit(ctx context.Context) error {
	if rg.admitted.Load() {
		return nil
	}
	_, err := rg.purged(ctx, nil)
	return err
}

// forget deletes the snapshots that a batch has begun in namespaces purged or being purged. The purge deletes snapshots
// that existed before the batch, now or later. A purge that begins after this deletes all of them. The cost is one
// consistent batch read, of the version and of each namespace with new snapshots. A batch without new snapshots costs
// none. What could not be deleted fails the changes of the snapshots, and is returned.
func (rg *registry) forget(ctx context.Context, b *batch) (failed error) {
	if len(b.started) == 0 {
		return nil
	}
	ids := map[string]bool{}
	for _, s := range b.started {
		ids[s.bucket.NS] = true
	}
	purged, err := rg.purged(ctx, ids)
	gone := b.started
	if err == nil {
		gone = slices.DeleteFunc(gone, func(s *snapshot) bool { return !purged[s.bucket.NS] })
	}
	for chunk := range slices.Chunk(gone, store.MaxDelete) {
		if err == nil {
			err = rg.delete(ctx, chunk)
		}
		if err == nil {
			continue
		}
		failed = err
		for _, s := range chunk { // they come again
			for _, e := range s.events {
				b.fail(e.index, err)
			}
		}
	}
	return failed
}

// purged returns which of the namespaces the registry has no more, or has with a purge under way. It returns none where
// the table has no registry. It makes one consistent batch read for every hundred, together with the version of the
// table. It returns a [*zlimit.VersionError] when the version does not admit this client.
func (rg *registry) purged(ctx context.Context, ids map[string]bool) (map[string]bool, error) {
	keys := []store.Key{layout.VersionKey{}.Key()}
	for id := range ids {
		keys = append(keys, layout.NamespaceIDKey{ID: id}.Key())
	}
	purged := map[string]bool{}
	for chunk := range slices.Chunk(keys, store.MaxRead) {
		items, err := rg.table.Read(ctx, chunk...)
		if err != nil {
			return nil, err
		}
		for i, item := range items {
			if chunk[i] == keys[0] {
				if item == nil { // the layout of a program that keeps no registry
					rg.admitted.Store(true)
					return nil, nil
				}
				record, err := layout.DecodeVersion(item)
				if err != nil {
					return nil, err
				}
				admits := record.Admits(zlimit.SchemaVersion, zlimit.Version)
				if rg.admitted.Store(admits); !admits {
					return nil, &zlimit.VersionError{Schema: record.SchemaVersion, ClientMin: record.ClientMinVersion, Client: zlimit.Version}
				}
				continue
			}
			id, _ := layout.ParseNamespaceIDKey(chunk[i])
			if item == nil {
				purged[id.ID] = true
				continue
			}
			record, err := layout.DecodeNamespaceID(item)
			if err != nil {
				return nil, err
			}
			purged[id.ID] = record.Status == string(zlimit.NamespacePurging)
		}
	}
	return purged, nil
}

func (rg *registry) delete(ctx context.Context, snapshots []*snapshot) error {
	keys := make([]store.Key, len(snapshots))
	for i, s := range snapshots {
		keys[i] = s.key()
	}
	return rg.table.Delete(ctx, keys)
}
