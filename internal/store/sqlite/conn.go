package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"

	"modernc.org/sqlite"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A conn is a connection with its prepared statements. It is used by one goroutine at a time, and through the driver
// itself: database/sql would add its pool and its conversions to every statement.
type conn struct {
	db    driver.Conn
	ready bool // the schema was there, and the statements are prepared

	begin, commit, rollback *stmt
	find                    *stmt // by key: rowid and item
	insert                  *stmt // key, item, index keys
	replace                 *stmt // item, index keys; by rowid
	change                  *stmt // item; by rowid
	remove                  *stmt // by rowid

	queries map[string]*stmt // by text
	blob    []byte           // reused for encoding
}

// connect opens a connection and sets it up for the life of the connection.
func connect(dsn string) (*conn, error) {
	db, err := new(sqlite.Driver).Open(dsn)
	if err != nil {
		return nil, err
	}
	c := &conn{db: db, queries: map[string]*stmt{}}
	// Waiting for locks is the store's own business, since SQLite's does not end with a context.
	if err := c.run("PRAGMA busy_timeout = 0", "PRAGMA synchronous = NORMAL"); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return c, nil
}

// run executes statements that are used once.
func (c *conn) run(statements ...string) error {
	for _, text := range statements {
		if _, err := c.db.(driver.ExecerContext).ExecContext(context.Background(), text, nil); err != nil {
			return err
		}
	}
	return nil
}

// number returns the integer that a query used once yields.
func (c *conn) number(query string) (int64, error) {
	s, err := c.prepare(query)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	var n int64
	err = s.rows(1, func(row []driver.Value) error {
		n, _ = row[0].(int64)
		return nil
	})
	return n, err
}

// prepareAll prepares the statements that items are read and written with.
func (c *conn) prepareAll(l *layout) error {
	for _, p := range []struct {
		to   **stmt
		text string
	}{
		{&c.begin, "BEGIN IMMEDIATE"},
		{&c.commit, "COMMIT"},
		{&c.rollback, "ROLLBACK"},
		{&c.find, "SELECT rowid, item FROM items WHERE pk = ? AND sk = ?"},
		{&c.insert, l.insert},
		{&c.replace, l.replace},
		{&c.change, "UPDATE items SET item = ? WHERE rowid = ?"},
		{&c.remove, "DELETE FROM items WHERE rowid = ?"},
	} {
		s, err := c.prepare(p.text)
		if err != nil {
			return err
		}
		*p.to = s
	}
	c.ready = true
	return nil
}

// query returns a statement that is prepared at its first use and kept: the texts of queries are few.
func (c *conn) query(text string) (*stmt, error) {
	if s, ok := c.queries[text]; ok {
		return s, nil
	}
	s, err := c.prepare(text)
	if err == nil {
		c.queries[text] = s
	}
	return s, err
}

func (c *conn) prepare(text string) (*stmt, error) {
	s, err := c.db.Prepare(text)
	if err != nil {
		return nil, err
	}
	return &stmt{Stmt: s}, nil
}

// close closes the connection with its statements.
func (c *conn) close() error { return c.db.Close() }

// load returns the item with a key and its rowid, nil where there is none.
func (c *conn) load(k store.Key) (expr.Item, int64, error) {
	var (
		item  expr.Item
		rowid int64
	)
	err := c.find.rows(2, func(row []driver.Value) (err error) {
		rowid, _ = row[0].(int64)
		item, err = itemOf(k, row[1])
		return err
	}, k.PK, k.SK)
	return item, rowid, err
}

// itemOf returns the item with the key k that a column encodes.
func itemOf(k store.Key, column driver.Value) (expr.Item, error) {
	blob, _ := column.([]byte)
	d := decoder{rest: string(blob)}
	_ = d.byte()
	return decodeItem(append(make(expr.Item, 0, d.count()+2),
		expr.Attribute{Name: store.PK, Value: expr.S(k.PK)},
		expr.Attribute{Name: store.SK, Value: expr.S(k.SK)},
	), string(blob))
}

// A stmt is a prepared statement.
type stmt struct {
	driver.Stmt
	args []driver.NamedValue // reused
	row  []driver.Value      // reused
}

func (s *stmt) bind(args []any) []driver.NamedValue {
	for len(s.args) < len(args) {
		s.args = append(s.args, driver.NamedValue{Ordinal: len(s.args) + 1})
	}
	for i, a := range args {
		s.args[i].Value = a
	}
	return s.args[:len(args)]
}

// exec executes a statement that yields no rows. Local statements are short: a context that can end would cost each of
// them a goroutine.
func (s *stmt) exec(args ...any) error {
	_, err := s.Stmt.(driver.StmtExecContext).ExecContext(context.Background(), s.bind(args))
	return err
}

// rows executes a statement and calls each with every row, whose values are each's to keep.
func (s *stmt) rows(columns int, each func(row []driver.Value) error, args ...any) error {
	rows, err := s.Stmt.(driver.StmtQueryContext).QueryContext(context.Background(), s.bind(args))
	if err != nil {
		return err
	}
	if s.row == nil {
		s.row = make([]driver.Value, columns)
	}
	for err == nil {
		if err = rows.Next(s.row); err == nil {
			err = each(s.row)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, rows.Close())
}
