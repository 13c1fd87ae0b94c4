package zlimit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/wait"
)

// A PurgeProgress says how far a purge has come.
type PurgeProgress struct {
	Deleted int // items that this call has deleted
}

// maxSweeps bounds how often a purge goes through a namespace that never gets empty.
const maxSweeps = 8

// Purge deletes every item of a deleted namespace, and then its record; nothing of another namespace, nor of the
// registry. It tells progress after every 25 items, if that is not nil. There is no way back from its first moment.
//
// A purge that was interrupted, or that failed, goes on when Purge is called again; several may run at once. It returns
// [ErrNamespaceNotFound] for an ID that is not registered, or not any more, and [ErrNamespaceState] for a namespace
// that is not deleted, or that a limiter keeps writing to.
//
// It costs what deleting each item by itself does, a write unit per KB and one for each index that has the item, and
// half a read unit per 4 KB of keys. A bucket costs four, most others two. Throttles and other outages are waited out
// for some seconds: an index holds all keys of a namespace in one partition, which takes about 1,000 deletions per
// second.
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
		return missing(id)
	case !result.Applied:
		return fmt.Errorf("%w: %s is not deleted", ErrNamespaceState, id)
	}
	var done PurgeProgress
	for sweep := 0; ; sweep++ {
		before := done.Deleted
		if err := s.sweep(ctx, id, &done, progress); err != nil {
			return err
		}
		if done.Deleted == before {
			break
		}
		if sweep == maxSweeps-1 {
			return fmt.Errorf("%w: %s is still written to", ErrNamespaceState, id)
		}
		if err := wait.For(ctx, time.Duration(sweep)*sweepPause); err != nil { // the index may be moments behind
			return err
		}
	}
	forget, err := layout.ForgetNamespace(string(NamespacePurging))
	if err != nil {
		return err
	}
	_, err = s.l.table.PatientWrite(ctx, store.Write{Kind: store.Delete, Key: key, Expr: forget})
	return err
}

// sweepPause grows from sweep to sweep.
const sweepPause = 50 * time.Millisecond

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
		var keys []store.Key
		for _, item := range page.Items {
			if k := store.KeyOf(item); strings.HasPrefix(k.PK, id+"/") { // whatever the index says
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
		if page.Next == nil {
			return nil
		}
		q.Continue = page.Next
	}
}
