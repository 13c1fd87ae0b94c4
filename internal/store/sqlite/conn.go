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

// A conn is a connection with its prepared statements. One goroutine uses it at a time, through the driver itself. The
// package database/sql would add its pool and its conversions to every statement.
//
// The contexts of its methods must not end. Local statements are short, and watching a context would cost each of them
// a goroutine. Calls look at their own contexts while they wait for their turn, the only long part.
type conn struct {
	db    driver.Conn
	ready bool // the schema was there, and the statements are prepared

	begin, commit, rollback *stmt
	find                    *stmt // by key: rowid and item, and whether changes are logged
	insert                  *stmt // key, item, index keys
	replace                 *stmt // item, index keys; by rowid
	change                  *stmt // item; by rowid
	remove                  *stmt // by rowid
	log                     *stmt // key, time, expired, rowid of the old item, new item

	queries map[string]*stmt // by text
	kept    []*stmt          // the statements above, to be closed with the connection
	blob    []byte           // reused for encoding
}

// connect opens a connection to a file, or to a new database in memory, and sets it up.
func connect(ctx context.Context, dsn string) (*conn, error) {
	db, err := new(sqlite.Driver).Open(dsn)
	if err != nil {
		return nil, err
	}
	c := &conn{db: db, queries: map[string]*stmt{}}
	// The store waits for locks itself, since SQLite's wait does not end with a context.
	if err := c.run(ctx, "PRAGMA busy_timeout = 0", "PRAGMA synchronous = NORMAL"); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return c, nil
}

// run executes statements that are used once.
func (c *conn) run(ctx context.Context, statements ...string) error {
	for _, text := range statements {
		if _, err := c.db.(driver.ExecerContext).ExecContext(ctx, text, nil); err != nil {
			return err
		}
	}
	return nil
}

// number returns the integer that a query used once yields.
func (c *conn) number(ctx context.Context, query string) (n int64, err error) {
	s, err := c.prepare(query)
	if err != nil {
		return 0, err
	}
	err = s.rows(ctx, 1, func(row []driver.Value) error {
		n, _ = row[0].(int64)
		return nil
	})
	return n, errors.Join(err, s.Close())
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
		{&c.find, "SELECT items.rowid, item, logging FROM stream LEFT JOIN items ON pk = ? AND sk = ?"},
		{&c.insert, l.insert},
		{&c.replace, l.replace},
		{&c.change, "UPDATE items SET item = ? WHERE rowid = ?"},
		{&c.remove, "DELETE FROM items WHERE rowid = ?"},
		{&c.log, "INSERT INTO changes (pk, sk, at, expired, old, new) VALUES (?, ?, ?, ?, (SELECT item FROM items WHERE rowid = ?), ?)"},
	} {
		s, err := c.keep(p.text)
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
	s, err := c.keep(text)
	if err == nil {
		c.queries[text] = s
	}
	return s, err
}

// keep prepares a statement that lasts as long as the connection.
func (c *conn) keep(text string) (*stmt, error) {
	s, err := c.prepare(text)
	if err == nil {
		c.kept = append(c.kept, s)
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

// close closes the connection and its statements. SQLite keeps a connection open until its last statement is closed, with
// its memory, its descriptors, and the write-ahead log of the file.
func (c *conn) close() error {
	var err error
	for _, s := range c.kept {
		err = errors.Join(err, s.Close())
	}
	return errors.Join(err, c.db.Close())
}

// load returns the item with a key and its rowid, nil and 0 if there is none, and whether changes are logged.
func (c *conn) load(ctx context.Context, k store.Key) (item expr.Item, rowid int64, logging bool, err error) {
	err = c.find.rows(ctx, 3, func(row []driver.Value) (err error) {
		logging = row[2] == int64(1)
		if row[1] == nil {
			return nil
		}
		rowid, _ = row[0].(int64)
		item, err = itemOf(k, row[1])
		return err
	}, k.PK, k.SK)
	return item, rowid, logging, err
}

// itemOf returns the item with the key k that a column encodes.
func itemOf(k store.Key, column driver.Value) (expr.Item, error) {
	blob, _ := column.([]byte)
	return decodeItem(k, string(blob))
}

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

// exec executes a statement that yields no rows.
func (s *stmt) exec(ctx context.Context, args ...any) error {
	_, err := s.Stmt.(driver.StmtExecContext).ExecContext(ctx, s.bind(args))
	return err
}

// insert executes a statement that inserts one row and returns its rowid.
func (s *stmt) insert(ctx context.Context, args ...any) (int64, error) {
	result, err := s.Stmt.(driver.StmtExecContext).ExecContext(ctx, s.bind(args))
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// rows executes a statement and calls each with every row, whose values each may keep.
func (s *stmt) rows(ctx context.Context, columns int, each func(row []driver.Value) error, args ...any) error {
	rows, err := s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, s.bind(args))
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
