package zlimit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/wait"
)

// A PurgeProgress says how far a purge has come.
type PurgeProgress struct {
	Deleted int `json:"deleted"` // items that this call has deleted
}

// maxSweeps bounds how often a purge goes through a namespace that never gets empty.
const maxSweeps = 8

// Purge deletes every item of a deleted namespace, and then its record. It deletes nothing of another namespace, nor of
// the registry. It calls progress after every 25 items, unless progress is nil. A purge that has begun cannot be
// undone.
//
// A purge that was interrupted, or that failed, goes on when Purge is called again; several may run at once. An ID that
// is not registered any more is purged as well, of what a limiter that was still open has written.
// [ErrNamespaceNotFound] says that it had nothing. Purge returns [ErrNamespaceState] for a namespace that is not
// deleted, or that a limiter keeps writing to.
//
// It costs what deleting each item by itself does: a write unit per KB, and one for each index that has the item. A
// bucket costs three, most others two. Reading the keys costs half a read unit per 4 KB of
// them, twice. An ID that is not registered costs a read unit per 4 KB of the names of all namespaces.
//
// On DynamoDB a purge takes a second at least, since indexes lag. Purge waits out throttles and other outages for some
// seconds. An index holds all keys of a namespace in one partition, which takes about 1,000 deletions per second.
//
// No index of a DynamoDB table lists what expires in a namespace, buckets and usage snapshots. Purge therefore reads the
// whole table in the end, a page of 1 MB every tenth of a second, with the permission to Scan. That takes two minutes for a
// gigabyte, and costs half a read unit per 4 KB, some 16 USD for a terabyte.
func (s *NamespaceService) Purge(ctx context.Context, id string, progress func(PurgeProgress)) error {
	if err := s.check(validateNamespaceID(id)); err != nil {
		return err
	}
	return publicError("purge the namespace", s.purge(ctx, id, progress))
}

func (s *NamespaceService) purge(ctx context.Context, id string, progress func(PurgeProgress)) error {
	condemn, err := layout.CondemnNamespace(string(NamespaceDeleted), string(NamespacePurging))
	if err != nil {
		return err
	}
	key := layout.NamespaceIDKey{ID: id}.Key()
	result, err := s.l.table.PatientWrite(ctx, store.Write{Kind: store.Update, Key: key, Expr: condemn})
	switch {
	case err != nil:
		return err
	case !result.Applied && result.Item == nil:
		return s.purgeForgotten(ctx, id, progress)
	case !result.Applied:
		return fmt.Errorf("%w: %s is not deleted", ErrNamespaceState, id)
	}
	if _, err := s.empty(ctx, id, progress); err != nil {
		return err
	}
	forget, err := layout.ForgetNamespace(string(NamespacePurging))
	if err != nil {
		return err
	}
	_, err = s.l.table.PatientWrite(ctx, store.Write{Kind: store.Delete, Key: key, Expr: forget})
	return err
}

// purgeForgotten purges an ID that has no record, unless a name leads to it: other programs may register it by its name
// alone.
func (s *NamespaceService) purgeForgotten(ctx context.Context, id string, progress func(PurgeProgress)) error {
	q := layout.QueryNamespaces()
	q.Consistent = true
	for item, err := range s.l.table.Items(ctx, q) {
		if err != nil {
			return err
		}
		found, err := layout.DecodeNamespace(item)
		if err != nil {
			return err
		}
		if found.ID == id {
			return fmt.Errorf("%w: %s is not deleted", ErrNamespaceState, id)
		}
	}
	deleted, err := s.empty(ctx, id, progress)
	if err == nil && deleted == 0 {
		err = missing(id)
	}
	return err
}

// Pauses between sweeps: one that grows from sweep to sweep, and the least one where indexes lag. After a page of a scan, which
// may take 128 of the 3,000 read units that a partition serves in a second, others come first.
const (
	sweepPause = 50 * time.Millisecond
	indexLag   = time.Second
	scanPause  = 100 * time.Millisecond
)

// empty deletes the items of a namespace, and returns how many. The sweeps of the index end with one that finds none. On a
// store whose indexes lag, that is never the first sweep. What is in no index is found at last, by a scan.
func (s *NamespaceService) empty(ctx context.Context, id string, progress func(PurgeProgress)) (deleted int, err error) {
	var done PurgeProgress
	lags := s.l.table.Partitioned()
	for sweep := range maxSweeps {
		before := done.Deleted
		if err := s.sweep(ctx, id, &done, progress); err != nil {
			return done.Deleted, err
		}
		if done.Deleted == before && (sweep > 0 || !lags) {
			err := s.scan(ctx, id, &done, progress)
			return done.Deleted, err
		}
		pause := time.Duration(sweep) * sweepPause
		if lags {
			pause = max(pause, indexLag)
		}
		if err := wait.For(ctx, pause); err != nil {
			return done.Deleted, err
		}
	}
	return done.Deleted, fmt.Errorf("%w: %s is still written to", ErrNamespaceState, id)
}

// sweep goes once through the items of a namespace.
func (s *NamespaceService) sweep(ctx context.Context, id string, done *PurgeProgress, progress func(PurgeProgress)) error {
	q := layout.QueryNamespaceItems(id)
	for {
		var page store.Page
		err := s.l.table.Patiently(ctx, func(ctx context.Context) (err error) {
			page, err = s.l.store.Query(ctx, q)
			return err
		})
		if err != nil {
			return err
		}
		if err := s.remove(ctx, id, page.Items, done, progress); err != nil {
			return err
		}
		if page.Next == nil {
			return nil
		}
		q.Continue = page.Next
	}
}

// scan goes once through the whole table, where its indexes do not have all items.
func (s *NamespaceService) scan(ctx context.Context, id string, done *PurgeProgress, progress func(PurgeProgress)) error {
	scanner, ok := s.l.store.(store.Scanner)
	if !ok || !s.l.table.Partitioned() {
		return nil
	}
	for q := (store.Scan{Prefix: id + "/"}); ; {
		var page store.Page
		err := s.l.table.Patiently(ctx, func(ctx context.Context) (err error) {
			page, err = scanner.Scan(ctx, q)
			return err
		})
		if err != nil {
			return err
		}
		if err := s.remove(ctx, id, page.Items, done, progress); err != nil {
			return err
		}
		if q.Continue = page.Next; page.Next == nil {
			return nil
		}
		if err := s.l.table.Sleep(ctx, scanPause); err != nil {
			return err
		}
	}
}

// remove deletes those of some items that are of a namespace, whatever an index says.
func (s *NamespaceService) remove(
	ctx context.Context, id string, items []expr.Item, done *PurgeProgress, progress func(PurgeProgress),
) error {
	var keys []store.Key
	for _, item := range items {
		if k := store.KeyOf(item); strings.HasPrefix(k.PK, id+"/") {
			keys = append(keys, k)
		}
	}
	for chunk := range slices.Chunk(keys, store.MaxDelete) {
		if err := s.l.table.Delete(ctx, chunk); err != nil {
			return err
		}
		done.Deleted += len(chunk)
		if progress != nil {
			progress(*done)
		}
	}
	return nil
}
