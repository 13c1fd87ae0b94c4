package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

var _ store.Scanner = (*Store)(nil)

// Scan reads a page of the items in the order of their keys. It looks at the items of all parts.
func (s *Store) Scan(ctx context.Context, q store.Scan) (store.Page, error) {
	const op = "scan"
	if err := q.Validate(); err != nil {
		return store.Page{}, failure(op, err)
	}
	after := store.KeyOf(expr.Item(q.Continue))
	limit := (&store.Query{Limit: q.Limit}).PageLimit()
	var page store.Page
	err := s.view(ctx, op, func(ctx context.Context, c *conn) error {
		statement, err := c.query("SELECT pk, sk, item FROM items WHERE (pk, sk) > (?, ?) ORDER BY pk, sk LIMIT ?")
		if err != nil {
			return err
		}
		page = store.Page{}
		looked := 0
		return statement.rows(ctx, 3, func(row []driver.Value) error {
			pk, ofText := row[0].(string)
			sk, too := row[1].(string)
			if !ofText || !too {
				return fmt.Errorf("a key is no text")
			}
			k := store.Key{PK: pk, SK: sk}
			if looked++; looked == limit {
				page.Next = store.Cursor(k.Join(nil))
			}
			if segmentOf(pk, q.Segments) != q.Segment || !strings.HasPrefix(pk, q.Prefix) {
				return nil
			}
			item, err := itemOf(k, row[2])
			if err == nil {
				page.Items = append(page.Items, item)
			}
			return err
		}, after.PK, after.SK, int64(limit))
	})
	if err != nil {
		return store.Page{}, err
	}
	return page, nil
}

// segmentOf returns in which of several parts a partition key is.
func segmentOf(pk string, segments int) int {
	if segments <= 1 {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(pk))
	return int(h.Sum32() % uint32(segments))
}

// Estimate counts all items, and the bytes of what they hold.
func (s *Store) Estimate(ctx context.Context) (items, bytes int64, err error) {
	err = s.view(ctx, "estimate", func(ctx context.Context, c *conn) error {
		statement, err := c.query("SELECT count(*), coalesce(sum(length(pk) + length(sk) + length(item)), 0) FROM items")
		if err != nil {
			return err
		}
		return statement.rows(ctx, 2, func(row []driver.Value) error {
			items, _ = row[0].(int64)
			bytes, _ = row[1].(int64)
			return nil
		})
	})
	return items, bytes, err
}
