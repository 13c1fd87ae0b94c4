package zlimit

import (
	"context"
	"iter"
	"strconv"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// An EntityQuery chooses among the entities of a namespace. Its zero value asks for all of them.
type EntityQuery struct {
	Prefix string `json:"prefix"` // entities whose ID begins with it; "" for all
	After  string `json:"after"`  // entities whose ID comes after this one; "" for all
	Limit  int    `json:"limit"`  // entities to yield at most; 0 for all
}

// The keys that List reads from the index per call: at least a page of records, and at most some 20 read units of keys.
const (
	leastListPage = store.MaxRead
	mostListPage  = 10 * store.MaxRead
)

// List yields the entities of the namespace that have a record, in the order of their IDs. To go on with a list that
// was left, set [EntityQuery.After] to the ID of the last entity.
//
// List reads as the loop goes on, and may be moments behind. It costs half a read unit per 4 KB of an index, which is
// some 30 entries. Each record costs half a unit per 4 KB, 100 to a call. The index has an entry for each record, for
// each level of limits, and for each usage snapshot of an entity. On DynamoDB, expiring snapshots are left out. An
// error ends the loop.
func (s *EntityService) List(ctx context.Context, q EntityQuery) iter.Seq2[Entity, error] {
	return func(yield func(Entity, error) bool) {
		if err := s.checkList(&q); err != nil {
			yield(Entity{}, err)
			return
		}
		left := q.Limit
		for e, err := range s.list(ctx, &q) {
			left--
			if !yield(e, publicError("list entities", err)) || err != nil || left == 0 {
				return
			}
		}
	}
}

// checkList returns the error of a list that must not be made.
func (s *EntityService) checkList(q *EntityQuery) error {
	if s.l.closed.Load() {
		return ErrClosed
	}
	if q.Limit < 0 {
		return &ValidationError{Field: "limit", Value: strconv.Itoa(q.Limit), Reason: "must not be negative"}
	}
	if q.Prefix != "" {
		if err := validateEntity("prefix", q.Prefix); err != nil {
			return err
		}
	}
	if q.After != "" {
		return validateEntity("after", q.After)
	}
	return nil
}

// list yields the entities of List.
func (s *EntityService) list(ctx context.Context, q *EntityQuery) iter.Seq2[Entity, error] {
	return func(yield func(Entity, error) bool) {
		query := layout.QueryEntities(s.l.ns.id(), q.Prefix)
		if q.After != "" {
			_, query.After = layout.EntityKey{NS: s.l.ns.id(), Entity: q.After}.NamespaceIndex()
		}
		query.Limit = mostListPage
		if q.Limit > 0 {
			query.Limit = min(max(q.Limit, leastListPage), mostListPage)
		}
		for page, err := range s.l.table.Pages(ctx, query) {
			if err != nil {
				yield(Entity{}, err)
				return
			}
			var records []store.Key
			for _, key := range table.Keys(page) {
				if _, ok := layout.ParseEntityKey(key); ok {
					records = append(records, key)
				}
			}
			for len(records) > 0 {
				chunk := records[:min(len(records), store.MaxRead)]
				records = records[len(chunk):]
				items, err := s.l.table.ReadEventually(ctx, chunk...)
				if err != nil {
					yield(Entity{}, err)
					return
				}
				for _, item := range items {
					if item == nil { // deleted, which the index does not show yet
						continue
					}
					e, err := entityOf(item)
					if !yield(e, err) || err != nil {
						return
					}
				}
			}
		}
	}
}
