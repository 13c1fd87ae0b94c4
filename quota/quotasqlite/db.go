// Package quotasqlite is the SQLite engine of package quota. Import it for its
// effect to make [quota.NewWithSQLite] work:
//
//	import _ "github.com/zlimit/zlimit-go/quota/quotasqlite"
//
// The package is apart from quota, so that only programs with SQLite link it.
//
// Several processes may share a file. Every decision and its record are one transaction that takes
// SQLite's write lock first. Together, all processes never exceed a quota. A process that finds the
// lock taken tries again until its context ends, and never reports a busy file.
//
// The file is in WAL mode and is not synced on every commit. The crash of a
// process loses nothing, that of the machine perhaps the last moments. Neither
// leaves a broken file. It must be on a local disk.
package quotasqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/zlimit/zlimit-go/quota"
)

func init() { quota.RegisterSQLite(Open) }

const (
	minute = int64(time.Minute)
	day    = int64(24 * time.Hour)

	// A caller that finds the file locked looks again after a random part of this.
	// Transactions take about a tenth of a millisecond.
	retryPause = time.Millisecond
	// Every tidyEvery-th transaction drops the aged-out rows of all names, so that unused names are forgotten.
	tidyEvery = 4096
)

// A db is an open file: one connection and a turn to use it.
type db struct {
	path  string
	now   func() time.Time
	pool  *sql.DB
	conn  *sql.Conn
	stmts [2][stmtCount]*sql.Stmt // by scope
	turn  chan struct{}           // holds one token; nil once closed

	changes int // transactions since the last tidy
	refused atomic.Bool
}

// Open opens a file, or creates it and its directory. clock nil is the
// machine's clock. The store is safe for concurrent use; close it.
func Open(ctx context.Context, path string, clock func() time.Time) (quota.Store, error) {
	if path == "" {
		return nil, &quota.ValidationError{Field: "path", Value: path, Rule: "must not be empty"}
	}
	if clock == nil {
		clock = time.Now //nolint:forbidigo // The default clock.
	}
	d := &db{path: path, now: clock, turn: make(chan struct{}, 1)}
	if err := d.open(ctx); err != nil {
		return nil, errors.Join(d.wrap("open", err), d.shut())
	}
	d.turn <- struct{}{}
	return d, nil
}

func (d *db) open(ctx context.Context) error {
	abs, err := filepath.Abs(d.path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(abs), 0o700); err != nil {
		return err
	}
	dsn := (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}).String()
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return err
	}
	d.pool = sql.OpenDB(connector)
	d.pool.SetMaxOpenConns(1)
	if d.conn, err = d.pool.Conn(ctx); err != nil {
		return err
	}
	// A short busy_timeout: the pauses between attempts are ours, and end with
	// the context.
	for _, pragma := range []string{
		"PRAGMA busy_timeout=1", "PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", "PRAGMA trusted_schema=OFF",
	} {
		if err := d.retry(ctx, func() error { _, err := d.conn.ExecContext(ctx, pragma); return err }); err != nil {
			return fmt.Errorf("%s: %w", pragma, err)
		}
	}
	if err := d.transaction(ctx, func() error {
		if err := d.createSchema(ctx); err != nil {
			return err
		}
		return d.tidy(ctx)
	}); err != nil {
		return err
	}
	for _, sc := range scopes {
		for i, text := range statementTexts {
			if d.stmts[sc][i], err = d.conn.PrepareContext(ctx, forScope(sc, text)); err != nil {
				return fmt.Errorf("tables are not of the known layout: %w", err)
			}
		}
	}
	return nil
}

// Close closes the file. Calls after it return an error.
func (d *db) Close() error {
	if _, ok := <-d.turn; !ok {
		return nil
	}
	close(d.turn)
	if err := d.shut(); err != nil {
		return d.wrap("close", err)
	}
	return nil
}

func (d *db) shut() error {
	var errs []error
	for _, stmts := range d.stmts {
		for _, s := range stmts {
			if s != nil {
				errs = append(errs, s.Close())
			}
		}
	}
	if d.conn != nil {
		errs = append(errs, d.conn.Close())
	}
	if d.pool != nil {
		errs = append(errs, d.pool.Close())
	}
	return errors.Join(errs...)
}

var errClosed = errors.New("the file is closed")

// wrap names the operation and the file, once.
func (d *db) wrap(op string, err error) error {
	return fmt.Errorf("quota: %s %s: %w", op, d.path, err)
}

// use gives fn the connection. A refusal by a limit comes back as it is, every
// other error wrapped.
func (d *db) use(ctx context.Context, op string, fn func(ctx context.Context) error) error {
	select {
	case _, ok := <-d.turn:
		if !ok {
			return d.wrap(op, errClosed)
		}
	case <-ctx.Done():
		return d.wrap(op, context.Cause(ctx))
	}
	defer func() { d.turn <- struct{}{} }()
	err := fn(ctx)
	if err == nil || errors.As(err, new(*quota.ExceededError)) {
		return err
	}
	return d.wrap(op, err)
}

// write runs fn in a transaction that holds the write lock from its beginning.
func (d *db) write(ctx context.Context, op string, fn func(ctx context.Context) error) error {
	return d.use(ctx, op, func(ctx context.Context) error {
		return d.transaction(ctx, func() error {
			// Once the lock is held the work is short, and is not broken off.
			ctx := context.WithoutCancel(ctx)
			if d.changes++; d.changes >= tidyEvery {
				d.changes = 0
				if err := d.tidy(ctx); err != nil {
					return err
				}
			}
			return fn(ctx)
		})
	})
}

// transaction runs fn between BEGIN IMMEDIATE and COMMIT. Where fn returns an
// error everything is rolled back. The connection is the caller's.
func (d *db) transaction(ctx context.Context, fn func() error) (err error) {
	if err := d.begin(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	done := false
	defer func() {
		if !done {
			_, rollback := d.conn.ExecContext(ctx, "ROLLBACK")
			err = errors.Join(err, rollback)
		}
	}()
	if err := fn(); err != nil {
		return err
	}
	if err := d.retry(ctx, func() error { _, err := d.conn.ExecContext(ctx, "COMMIT"); return err }); err != nil {
		return err
	}
	done = true
	return nil
}

func (d *db) begin(ctx context.Context, how string) error {
	return d.retry(ctx, func() error {
		_, err := d.conn.ExecContext(context.WithoutCancel(ctx), how)
		return err
	})
}

// read runs fn in a transaction that sees one state of the file.
func (d *db) read(ctx context.Context, op string, fn func(ctx context.Context) error) error {
	return d.use(ctx, op, func(ctx context.Context) error {
		return d.retry(ctx, func() (err error) {
			whole := context.WithoutCancel(ctx) // a BEGIN that is broken off may have begun
			if _, err := d.conn.ExecContext(whole, "BEGIN"); err != nil {
				return err
			}
			defer func() {
				_, rollback := d.conn.ExecContext(whole, "ROLLBACK")
				err = errors.Join(err, rollback)
			}()
			return fn(ctx)
		})
	})
}

// retry calls fn again while it finds the file locked by another process, until
// ctx ends.
func (d *db) retry(ctx context.Context, fn func() error) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := fn()
		if !isBusy(err) {
			return err
		}
		t := time.NewTimer(rand.N(retryPause))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

func isBusy(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	code := e.Code() & 0xff // without the extension
	return code == sqlite3.SQLITE_BUSY || code == sqlite3.SQLITE_LOCKED
}

// tidy drops aged entries of all names, and lets entries later than now count from now.
func (d *db) tidy(ctx context.Context) error {
	now := d.now().UnixNano()
	for _, sc := range scopes {
		for _, c := range []struct {
			text string
			arg  int64
		}{
			{`UPDATE {p}requests SET ts = ?1 WHERE ts > ?1 AND typeof(ts) = 'integer'`, now},
			{`UPDATE {p}tokens SET ts = ?1 WHERE ts > ?1 AND typeof(ts) = 'integer'`, now},
			{`UPDATE {p}daily SET day_start = ?1 WHERE day_start > ?1 AND typeof(day_start) = 'integer'`, now},
			{`DELETE FROM {p}requests WHERE ts <= ?`, now - minute},
			{`DELETE FROM {p}tokens WHERE ts <= ?`, now - minute},
			{`DELETE FROM {p}daily WHERE day_start <= ? OR day_count <= 0`, now - day},
		} {
			if _, err := d.conn.ExecContext(ctx, forScope(sc, c.text), c.arg); err != nil {
				return err
			}
		}
		if _, err := d.conn.ExecContext(ctx, forScope(sc, `DELETE FROM {p}totals WHERE requests = 0 AND input = 0 AND output = 0`)); err != nil {
			return err
		}
	}
	return nil
}
