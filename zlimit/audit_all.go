package zlimit

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// All yields the events of the whole namespace, of every entity, resource and the system, in the order of time. Otherwise it works like
// [AuditService.Events].
//
// The time is part of the key of an event. All reads the keys of all events of the namespace from an index, at half a read unit per 4 KB,
// or about 20 keys. It keeps the keys within the times of the query in memory. Then it reads their events, at half a unit each, page by
// page as the loop proceeds. The index and the events may lag by moments.
func (s *AuditService) All(ctx context.Context, q AuditQuery) iter.Seq2[AuditEvent, error] {
	return func(yield func(AuditEvent, error) bool) {
		keys, err := s.keysOfAll(ctx, &q)
		if err != nil {
			yield(AuditEvent{}, err)
			return
		}
		now, left := s.l.now().Unix(), q.Limit
		for page := range slices.Chunk(keys, auditPage) {
			items, err := s.l.table.ReadEventually(ctx, page...)
			if err != nil {
				yield(AuditEvent{}, publicError("read audit events", err))
				return
			}
			for _, item := range items {
				if item == nil { // deleted meanwhile
					continue
				}
				decoded, err := layout.DecodeAudit(item)
				if err != nil {
					yield(AuditEvent{}, publicError("read audit events", err))
					return
				}
				if !q.chooses(&decoded, now) {
					continue
				}
				left--
				if !yield(eventOf(&decoded), nil) || left == 0 {
					return
				}
			}
		}
	}
}

// chooses reports whether an event meets the fields of a query other than its times, and is within its retention.
func (q *AuditQuery) chooses(it *layout.Audit, now int64) bool {
	expired := it.ExpiresAt > 0 && it.ExpiresAt <= now
	return !expired && (q.Resource == "" || q.Resource == it.Resource) && (q.Principal == "" || q.Principal == it.Principal)
}

// keysOfAll returns the keys of the events of the namespace within the times of a query, in its order.
func (s *AuditService) keysOfAll(ctx context.Context, q *AuditQuery) (keys []store.Key, err error) {
	if err := s.l.check(q.validate()); err != nil {
		return nil, err
	}
	from, to := timePrefix(q.From), timePrefix(q.To)
	query := layout.QueryNamespaceItems(s.l.ns.id())
	_, query.Prefix = layout.AuditKey{NS: s.l.ns.id()}.NamespaceIndex()
	for item, err := range s.l.query(ctx, "list audit events", query) {
		if err != nil {
			return nil, err
		}
		k, ok := layout.ParseAuditKey(store.KeyOf(item))
		if ok && k.EventID >= from && (to == "" || k.EventID < to) {
			keys = append(keys, k.Key())
		}
	}
	slices.SortFunc(keys, func(a, b store.Key) int {
		if q.Reverse {
			a, b = b, a
		}
		return strings.Compare(a.SK, b.SK)
	})
	return keys, nil
}
