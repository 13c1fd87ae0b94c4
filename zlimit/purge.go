package zlimit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// A PurgeProgress says how far a purge has come.
type PurgeProgress struct {
	Deleted int `json:"deleted"` // items that this call has deleted
}

// A PurgeCost is the cost of a purge besides the deletions. No index of a DynamoDB table has the expiring items of a
// namespace. A purge therefore reads the whole table in the end, however small the namespace is.
type PurgeCost struct {
	Items     int64         `json:"items"` // in the table, some hours ago
	Bytes     int64         `json:"bytes"`
	ReadUnits float64       `json:"read_units"` // 0.125 USD a million, on demand in us-east-1
	Time      time.Duration `json:"-"`          // at the pace of a purge, throttles not counted
}

// MarshalJSON returns the cost as an object, with the time in seconds.
func (c PurgeCost) MarshalJSON() ([]byte, error) {
	type fields PurgeCost
	return json.Marshal(struct {
		fields
		Time secondsJSON `json:"seconds"`
	}{fields(c), secondsJSON(c.Time)})
}

// PurgeCost returns the cost of the reads of a purge, before it begins. It makes one DescribeTable call. On stores
// whose indexes have all items it makes none: a purge costs by its namespace alone there, and the cost is the zero
// value.
func (s *NamespaceService) PurgeCost(ctx context.Context) (PurgeCost, error) {
	if err := s.l.check(nil); err != nil {
		return PurgeCost{}, err
	}
	scanner, ok := s.l.store.(store.Scanner)
	if !ok || !s.l.table.Partitioned() {
		return PurgeCost{}, nil
	}
	items, bytes, err := scanner.Estimate(ctx)
	if err != nil {
		return PurgeCost{}, publicError("estimate the purge", err)
	}
	pages := time.Duration((bytes + scanPage - 1) / scanPage)
	return PurgeCost{Items: items, Bytes: bytes, ReadUnits: float64((bytes+readUnit-1)/readUnit) / 2, Time: pages * scanPause}, nil
}

// The bytes of a page of a scan, and of an eventually consistent read of half a unit.
const scanPage, readUnit = 1 << 20, 4096

// maxSweeps bounds how often a purge goes through a namespace that never gets empty.
const maxSweeps = 8

// Purge deletes every item of a deleted namespace, and then its record. It deletes nothing of another namespace, nor of
// the registry. It calls progress after every 25 items, unless progress is nil. A purge that has begun cannot be
// undone.
//
// An interrupted or failed purge resumes when Purge is called again; several may run concurrently. An unregistered ID
// is purged as well: a limiter that was still open may have written items. [ErrNamespaceNotFound] says that it had
// nothing. Purge returns [ErrNamespaceState] for a namespace that is not deleted, or still gets writes of a limiter.
//
// Purge costs as much as deleting each item by itself: a write unit per KB, and one for each index with the item. A
// bucket costs three, most others two. Reading the keys costs half a read unit per 4 KB of them, twice. An ID that is
// not registered costs a read unit per 4 KB of the names of all namespaces.
//
// On DynamoDB a purge takes a second at least, since indexes lag. Purge retries for some seconds during throttles and
// other outages. An index stores all keys of a namespace in one partition, which supports about 1,000 deletions per
// second.
//
// No index of a DynamoDB table lists the expiring items of a namespace, which are buckets and usage snapshots. So at
// the end, Purge reads the whole table, a page of 1 MB every tenth of a second, and needs the permission to Scan. That
// takes two minutes per gigabyte, and costs half a read unit per 4 KB, about 16 USD per terabyte.
// [NamespaceService.PurgeCost] reports it for a table, and [LeaveExpiring] avoids it.
func (s *NamespaceService) Purge(ctx context.Context, id string, progress func(PurgeProgress), opts ...PurgeOption) error {
	if err := s.l.check(validateNamespaceID(id)); err != nil {
		return err
	}
	p := &purge{NamespaceService: s, id: id, progress: progress, reached: map[[3]string]bool{}}
	for _, opt := range opts {
		opt(p)
	}
	return publicError("purge the namespace", p.purge(ctx))
}

// A PurgeOption changes a purge.
type PurgeOption func(*purge)

// LeaveExpiring makes the cost of a purge depend only on the namespace, even on DynamoDB: the purge does not read the
// whole table. It deletes the items of the namespace in the indexes, and the buckets and usage of the entities and
// resources that they name. It leaves other buckets and snapshots to DynamoDB, which deletes them free of charge when
// they expire. These belong to entities without a record, limits or listed buckets, and to resources that no item
// names.
func LeaveExpiring() PurgeOption { return func(p *purge) { p.leaving = true } }

// A purge is one call of [NamespaceService.Purge]. It is not safe for concurrent use.
type purge struct {
	*NamespaceService
	id       string
	progress func(PurgeProgress)
	leaving  bool // what expires, and no index of the namespace has
	done     PurgeProgress
	reached  map[[3]string]bool // questions asked about entities and resources: index, partition and prefix
}

func (s *purge) purge(ctx context.Context) error {
	id := s.id
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
		return s.forgotten(ctx)
	case !result.Applied:
		return fmt.Errorf("%w: %s is not deleted", ErrNamespaceState, id)
	}
	if err := s.empty(ctx); err != nil {
		return err
	}
	forget, err := layout.ForgetNamespace(string(NamespacePurging))
	if err != nil {
		return err
	}
	_, err = s.l.table.PatientWrite(ctx, store.Write{Kind: store.Delete, Key: key, Expr: forget})
	return err
}

// forgotten purges an ID that has no record, unless a name leads to it: other programs may register it by its name
// alone.
func (s *purge) forgotten(ctx context.Context) error {
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
		if found.ID == s.id {
			return fmt.Errorf("%w: %s is not deleted", ErrNamespaceState, s.id)
		}
	}
	err := s.empty(ctx)
	if err == nil && s.done.Deleted == 0 {
		err = missing(s.id)
	}
	return err
}

// Pauses between sweeps: one that grows from sweep to sweep, and the least one where indexes lag. After a page of a
// scan, other requests come first: a page may take 128 of the 3,000 read units that a partition serves in a second.
const (
	sweepPause = 50 * time.Millisecond
	indexLag   = time.Second
	scanPause  = 100 * time.Millisecond
)

// empty deletes the items of the namespace. The sweeps of the index end with one that finds none. On a store whose
// indexes lag, that is never the first sweep. A scan at the end finds the items outside all indexes, unless they are
// left.
func (s *purge) empty(ctx context.Context) error {
	lags := s.l.table.Partitioned()
	for sweep := range maxSweeps {
		before := s.done.Deleted
		if err := s.sweep(ctx); err != nil {
			return err
		}
		if s.done.Deleted == before && (sweep > 0 || !lags) {
			return s.scan(ctx)
		}
		pause := time.Duration(sweep) * sweepPause
		if lags {
			pause = max(pause, indexLag)
		}
		if err := wait.For(ctx, pause); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %s is still written to", ErrNamespaceState, s.id)
}

// sweep goes once through the items of the namespace that its index has.
func (s *purge) sweep(ctx context.Context) error {
	return s.pages(ctx, layout.QueryNamespaceItems(s.id), func(items []expr.Item) error {
		if s.leaving { // first, so that an interrupted purge finds the items that name the others again
			if err := s.reach(ctx, items); err != nil {
				return err
			}
		}
		return s.remove(ctx, items)
	})
}

// reach deletes buckets and usage of the entities and resources named by items, and of those that these name in turn.
// Such items expire, so the index of the namespace does not have them.
func (s *purge) reach(ctx context.Context, items []expr.Item) error {
	queue := s.named(items)
	for len(queue) > 0 {
		q := queue[0]
		queue = queue[1:]
		about := [3]string{q.Index, q.PK, q.Prefix}
		if s.reached[about] {
			continue
		}
		s.reached[about] = true
		err := s.pages(ctx, q, func(items []expr.Item) error {
			queue = append(queue, s.named(items)...)
			return s.remove(ctx, slices.DeleteFunc(items, func(item expr.Item) bool {
				_, bucket := layout.ParseBucketKey(store.KeyOf(item))
				_, usage := layout.ParseUsageKey(store.KeyOf(item))
				return !bucket && !usage
			}))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// named returns the queries for the buckets and the usage of the entities and resources that items name.
func (s *purge) named(items []expr.Item) (queries []store.Query) {
	for _, item := range items {
		key := store.KeyOf(item)
		entity, resource := "", ""
		if k, ok := layout.ParseBucketKey(key); ok {
			entity, resource = k.Entity, k.Resource
		} else if k, ok := layout.ParseUsageKey(key); ok {
			entity, resource = k.Entity, k.Resource
		} else if k, ok := layout.ParseEntityConfigKey(key); ok {
			entity, resource = k.Entity, k.Resource
		} else if k, ok := layout.ParseEntityKey(key); ok {
			entity = k.Entity
		} else if k, ok := layout.ParseResourceConfigKey(key); ok {
			resource = k.Resource
		}
		if entity != "" {
			queries = append(queries, layout.QueryBucketsOfEntity(s.id, entity, ""), layout.QueryUsageOfEntity(s.id, entity, "", ""))
		}
		if resource != "" {
			queries = append(queries, layout.QueryBucketsOfResource(s.id, resource, ""), layout.QueryUsageOfResource(s.id, resource, ""))
		}
	}
	return queries
}

// pages calls a function for each page that a query finds.
func (s *purge) pages(ctx context.Context, q store.Query, each func([]expr.Item) error) error {
	for {
		var page store.Page
		err := s.l.table.Patiently(ctx, func(ctx context.Context) (err error) {
			page, err = s.l.store.Query(ctx, q)
			return err
		})
		if err != nil {
			return err
		}
		if err := each(page.Items); err != nil || page.Next == nil {
			return err
		}
		q.Continue = page.Next
	}
}

// scan goes once through the whole table, where its indexes do not have all items.
func (s *purge) scan(ctx context.Context) error {
	scanner, ok := s.l.store.(store.Scanner)
	if !ok || !s.l.table.Partitioned() || s.leaving {
		return nil
	}
	for q := (store.Scan{Prefix: s.id + "/"}); ; {
		var page store.Page
		err := s.l.table.Patiently(ctx, func(ctx context.Context) (err error) {
			page, err = scanner.Scan(ctx, q)
			return err
		})
		if err != nil {
			return err
		}
		if err := s.remove(ctx, page.Items); err != nil {
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

// remove deletes the items of the namespace among some, regardless of the index.
func (s *purge) remove(ctx context.Context, items []expr.Item) error {
	var keys []store.Key
	for _, item := range items {
		if k := store.KeyOf(item); strings.HasPrefix(k.PK, s.id+"/") {
			keys = append(keys, k)
		}
	}
	for chunk := range slices.Chunk(keys, store.MaxDelete) {
		if err := s.l.table.Delete(ctx, chunk); err != nil {
			return err
		}
		s.done.Deleted += len(chunk)
		if s.progress != nil {
			s.progress(s.done)
		}
	}
	return nil
}
