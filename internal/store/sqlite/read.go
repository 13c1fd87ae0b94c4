package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Read reads each item by itself. It always sees every write that returned before it.
func (s *Store) Read(ctx context.Context, keys []store.Key, _ bool) ([]expr.Item, error) {
	items := make([]expr.Item, len(keys))
	err := s.view(ctx, "read", func(ctx context.Context, c *conn) error {
		if err := store.ValidateRead(keys); err != nil {
			return err
		}
		for i, k := range keys {
			var err error
			if items[i], _, _, err = c.load(ctx, k); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return items, nil
}

// view calls f with a connection to read with. It may call f again, since a lock can stop a reader, too, when another
// process opens or closes the database.
func (s *Store) view(ctx context.Context, op string, f func(context.Context, *conn) error) error {
	began := time.Now()
	c, err := s.take(ctx, s.readers)
	if err != nil {
		return failure(op, err)
	}
	c, err = s.prepared(ctx, c)
	defer func() { s.readers <- c }()
	if err != nil {
		return failure(op, err)
	}
	if err = f(context.WithoutCancel(ctx), c); isBusy(err) {
		err = s.wait(ctx, began, func(ctx context.Context) error { return f(ctx, c) })
	}
	return failure(op, err)
}

// Query reads one page by the primary key or by an index.
func (s *Store) Query(ctx context.Context, q store.Query) (store.Page, error) {
	x, err := s.layout.Lookup(&q)
	if err != nil {
		return store.Page{}, failure("query", err)
	}
	text, args := s.layout.query(q, x)
	limit := q.PageLimit()
	args = append(args, int64(limit))
	var page store.Page
	err = s.view(ctx, "query", func(ctx context.Context, c *conn) error {
		statement, err := c.query(text)
		if err != nil {
			return err
		}
		page = store.Page{}
		return statement.rows(ctx, 4, func(row []driver.Value) error {
			k := store.Key{PK: row[0].(string), SK: row[1].(string)}
			var item expr.Item
			if x.KeysOnly {
				item = x.KeyItem(k, q.PK, row[2].(string))
			} else if item, err = itemOf(k, row[3]); err != nil {
				return err
			}
			page.Items = append(page.Items, item)
			if len(page.Items) == limit {
				page.Next = store.Cursor(x.KeyItem(k, q.PK, row[2].(string)))
			}
			return nil
		}, args...)
	})
	if err != nil {
		return store.Page{}, err
	}
	return page, nil
}

// query returns the SQL of a query, except the limit, and its arguments. SQLite orders strings by their bytes, as
// DynamoDB does.
//
// The text has at most one bound from below and one from above. Of several bounds, SQLite seeks to the first and tests
// the rest on every row. A continued query would then read again the rows that the pages before it returned.
func (l *layout) query(q store.Query, x *store.Index) (string, []any) {
	pk, sk := l.column(x.PK), l.column(x.SK)
	columns := sk + ", item"
	if x.KeysOnly {
		columns = sk + ", NULL" // all of it is in the index
	}
	var b strings.Builder
	fmt.Fprintf(&b, "SELECT pk, sk, %s FROM items WHERE %s = ? AND %s IS NOT NULL", columns, pk, sk)
	args := []any{q.PK}
	bound := func(operator, value string) {
		fmt.Fprintf(&b, " AND %s %s ?", sk, operator)
		args = append(args, value)
	}
	order := l.order(x)
	direction, operator := "", ">"
	if q.Reverse {
		direction, operator = " DESC", "<"
	}
	fromBelow, fromAbove := true, true
	if last := expr.Item(q.Continue); last != nil {
		k := store.KeyOf(last)
		at := map[string]any{"pk": k.PK, "sk": k.SK, sk: last.Get(x.SK).Text()}
		fmt.Fprintf(&b, " AND (%s) %s (?%s)", strings.Join(order, ", "), operator, strings.Repeat(", ?", len(order)-1))
		for _, column := range order {
			args = append(args, at[column])
		}
		// A page ended there, within the query's bounds on that side.
		fromBelow, fromAbove = q.Reverse, !q.Reverse
	}
	if fromBelow {
		switch {
		case q.After != "" && q.After >= q.Prefix:
			bound(">", q.After)
		case q.Prefix != "":
			bound(">=", q.Prefix)
		}
	}
	if fromAbove {
		switch end, ok := prefixEnd(q.Prefix); {
		case q.UpTo != "" && (!ok || q.UpTo < end):
			bound("<=", q.UpTo)
		case ok:
			bound("<", end)
		}
	}
	fmt.Fprintf(&b, " ORDER BY %s%s LIMIT ?", strings.Join(order, direction+", "), direction)
	return b.String(), args
}

// prefixEnd returns the first string after those with a prefix; false when there is none.
func prefixEnd(prefix string) (string, bool) {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			return prefix[:i] + string([]byte{prefix[i] + 1}), true
		}
	}
	return "", false
}
