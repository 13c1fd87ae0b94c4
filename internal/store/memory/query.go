package memory

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A globalIndex is the items that an index of partitions of its own holds. Its lock is held while it changes, which is
// before the item does. A query therefore looks again at the items that it found in the index.
type globalIndex struct {
	mu         sync.RWMutex
	partitions map[string]*list // by partition key of the index; none is empty
}

func (g *globalIndex) insert(pk string, e entry) {
	l := g.partitions[pk]
	if l == nil {
		l = &list{}
		if g.partitions == nil {
			g.partitions = make(map[string]*list)
		}
		g.partitions[pk] = l
	}
	l.insert(e)
}

func (g *globalIndex) remove(pk string, e entry) {
	l := g.partitions[pk]
	if l.remove(e); l.empty() {
		delete(g.partitions, pk)
	}
}

// Query reads one page by the primary key or by an index. A page of the table or of a local index is the state of one
// moment. A page of a global index is not, as on DynamoDB. The query may see a write that is under way on some items of
// the page.
func (s *Store) Query(ctx context.Context, q store.Query) (store.Page, error) {
	const op = "query"
	t, err := s.begin(ctx)
	if err != nil {
		return store.Page{}, failure(op, err)
	}
	x, err := s.schema.Lookup(&q)
	if err != nil {
		return store.Page{}, failure(op, err)
	}
	if x.Local {
		return t.queryPartition(&q, x), nil
	}
	return t.queryGlobal(&q, x), nil
}

// queryPartition reads a page of the table or of a local index.
func (t *table) queryPartition(q *store.Query, x *store.Index) store.Page {
	sh := t.lock(q.PK)
	defer sh.mu.Unlock()
	p := sh.partitions[q.PK]
	if p == nil {
		return store.Page{}
	}
	l := &p.items
	if q.Index != "" {
		if p.local == nil {
			return store.Page{}
		}
		l = &p.local[t.number(x)]
	}
	found := l.page(q, x)
	items := make([]expr.Item, len(found))
	for i, e := range found {
		if items[i] = e.image(); x.KeysOnly {
			items[i] = x.KeyItem(e.key, q.PK, e.sort)
		}
	}
	return pageOf(q, x, items, found)
}

// queryGlobal reads a page of a global index, and then its items.
func (t *table) queryGlobal(q *store.Query, x *store.Index) store.Page {
	found := t.global[t.number(x)].page(q, x)
	return pageOf(q, x, imagesOf(q, x, found), found)
}

func (g *globalIndex) page(q *store.Query, x *store.Index) []entry {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if l := g.partitions[q.PK]; l != nil {
		return l.page(q, x)
	}
	return nil
}

// imagesOf returns the items of entries of a global index, except those that were deleted, or moved in the index, since.
func imagesOf(q *store.Query, x *store.Index, found []entry) []expr.Item {
	items := make([]expr.Item, 0, len(found))
	for _, e := range found {
		if x.KeysOnly {
			items = append(items, x.KeyItem(e.key, q.PK, e.sort))
			continue
		}
		e.shard.mu.Lock()
		item := e.image()
		e.shard.mu.Unlock()
		if pk, sk, ok := keysIn(x, item); ok && pk == q.PK && sk == e.sort {
			items = append(items, item)
		}
	}
	return items
}

// number returns the place of an index in the schema.
func (t *table) number(x *store.Index) int {
	return slices.IndexFunc(t.schema.Indexes, func(other store.Index) bool { return other.Name == x.Name })
}

// pageOf returns a page of the items of the entries that were found.
func pageOf(q *store.Query, x *store.Index, items []expr.Item, found []entry) store.Page {
	page := store.Page{Items: items}
	if len(found) == q.PageLimit() {
		last := found[len(found)-1]
		page.Next = store.Cursor(x.KeyItem(last.key, q.PK, last.sort))
	}
	return page
}

func (l *list) page(q *store.Query, x *store.Index) []entry {
	last := expr.Item(q.Continue)
	lastKey, lastSort := store.KeyOf(last), last.Get(x.SK).Text()
	below := func(e entry) bool {
		return e.sort < q.Prefix || q.After != "" && e.sort <= q.After ||
			last != nil && !q.Reverse && e.compare(lastSort, lastKey) <= 0
	}
	above := func(e entry) bool {
		return q.UpTo != "" && e.sort > q.UpTo || e.sort > q.Prefix && !strings.HasPrefix(e.sort, q.Prefix) ||
			last != nil && q.Reverse && e.compare(lastSort, lastKey) >= 0
	}
	limit := q.PageLimit()
	var found []entry
	if q.Reverse {
		at := l.previous(l.seek(func(e entry) bool { return !above(e) }))
		for e, ok := l.at(at); ok && !below(e) && len(found) < limit; e, ok = l.at(at) {
			found, at = append(found, e), l.previous(at)
		}
		return found
	}
	at := l.seek(below)
	for e, ok := l.at(at); ok && !above(e) && len(found) < limit; e, ok = l.at(at) {
		found, at = append(found, e), l.next(at)
	}
	return found
}
