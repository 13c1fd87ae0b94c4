// Package sqlite keeps items in an SQLite database: a file that several processes may share, or the memory of one
// process.
//
// Package expr evaluates conditions and updates on the stored item, in a transaction that no other writer runs beside.
// So a write has the same effect here as on DynamoDB.
//
// A file is in WAL mode with synchronous=NORMAL. A crash loses no write. A power failure, or a crash of the operating
// system, may lose the last writes, back to the last checkpoint in the worst case. It never loses part of a write, and
// leaves the file sound. The file must be on a local disk: WAL needs memory that all its users share.
//
// While the file is open, its last writes are in the write-ahead log beside it. The store keeps that to a few dozen
// megabytes, however many readers it has. After the last Close the file is whole by itself.
//
// A file that is deleted or replaced while it is open would be written on unseen. So a store looks at its path once a
// second while it is used. All calls fail while another file is there, or none. Setup fails too, since the caller's
// knowledge of the old file does not apply to a new one: close the store, and open it again. A file that returns
// is used again. A file whose content is overwritten is not recognized.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/zlimit/zlimit-go/internal/store"
)

const (
	// busyLimit bounds the wait for a lock that another process holds.
	busyLimit = 15 * time.Second
	// Pauses between two tries grow from the first to the longest. A write takes a few dozen microseconds.
	firstPause   = 50 * time.Microsecond
	longestPause = 4 * time.Millisecond

	maxReaders = 8
)

// A Store is a [store.Store] on an SQLite database. It is safe for concurrent use. Close it.
type Store struct {
	path   string // "" for a database in memory
	layout *layout
	closed atomic.Bool
	at     identity

	// A pool holds the connections that are not in use, nil for those not opened yet. One connection may write; a database
	// in memory has no other.
	writer, readers chan *conn

	now func() time.Time

	// The holder of the writer uses these.
	swept   int64     // the row that Expire looked at last
	gained  time.Time // when a write had the lock last
	logging bool      // the log is on; for a database in memory, where no other process turns it on
	wal     walBound
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Expirer  = (*Store)(nil)
	_ store.Streamer = (*Store)(nil)
)

// An Option changes how a [Store] works.
type Option func(*Store)

// Clock sets the clock for the time of a change, and its age. It is time.Now by default.
func Clock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// Open returns a store on a database file. It does not create the file, and opens it only when needed. [Store.Setup]
// creates the file with its schema; until then calls fail with [store.ErrTableNotFound].
func Open(path string, table store.Table, options ...Option) (*Store, error) {
	if path == "" {
		return nil, errors.New("sqlite: no path")
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	s, err := newStore(table, options)
	if err != nil {
		return nil, err
	}
	s.path = absolute
	s.readers = make(chan *conn, min(maxReaders, runtime.GOMAXPROCS(0)))
	for range cap(s.readers) {
		s.readers <- nil
	}
	return s, nil
}

// OpenMemory returns a store in the memory of this process, which ends with it. It is empty: like a file it needs
// [Store.Setup].
func OpenMemory(table store.Table, options ...Option) (*Store, error) {
	s, err := newStore(table, options)
	if err != nil {
		return nil, err
	}
	c, err := connect(context.Background(), ":memory:")
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	<-s.writer
	s.writer <- c
	s.readers = s.writer
	return s, nil
}

func newStore(table store.Table, options []Option) (*Store, error) {
	l, err := newLayout(table)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	s := &Store{layout: l, writer: make(chan *conn, 1), now: time.Now}
	for _, option := range options {
		option(s)
	}
	s.writer <- nil
	return s, nil
}

// Partitioned returns false: all keys share one writer.
func (s *Store) Partitioned() bool { return false }

// Ping opens the database, if it is not open, and looks whether the schema exists.
func (s *Store) Ping(ctx context.Context) error {
	return s.view(ctx, "ping", func(ctx context.Context, c *conn) error { return c.check(ctx) })
}

// Close waits for the calls under way and closes the database. It moves the store's writes from the log to the file
// itself. A file that no other process has open is then whole without its write-ahead log. A second Close does nothing;
// other calls fail with [store.ErrClosed].
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	var err error
	pools := []chan *conn{s.writer, s.readers}
	if s.readers == s.writer {
		pools = pools[:1]
	}
	for _, pool := range pools {
		for range cap(pool) { // take all, then free those who wait for one
			if c := <-pool; c != nil {
				err = errors.Join(err, s.closeConn(c, pool == s.writer))
			}
		}
		for range cap(pool) {
			pool <- nil
		}
	}
	return failure("close", err)
}

// closeConn closes a connection. SQLite moves the log to the file when the last connection closes, but not when two processes close their
// last ones at the same time. So the writer does it first, as far as other processes let it.
func (s *Store) closeConn(c *conn, writer bool) error {
	var err error
	if writer && s.path != "" && c.ready && s.at.look(s.path) == nil { // the log beside another file may be that file's
		_, err = c.checkpoint(context.Background(), "TRUNCATE")
	}
	return errors.Join(err, c.close())
}

// take takes a connection from a pool, nil when it is still to be opened.
func (s *Store) take(ctx context.Context, pool chan *conn) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var c *conn
	select {
	case c = <-pool:
	default:
		select {
		case c = <-pool:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if s.closed.Load() {
		pool <- c
		return nil, store.ErrClosed
	}
	return c, nil
}

// prepared returns c, or a new connection for nil, ready to use. It returns the connection with every error, too.
func (s *Store) prepared(ctx context.Context, c *conn) (*conn, error) {
	if err := s.at.check(s.path); err != nil {
		return c, err
	}
	if c != nil && c.ready {
		return c, nil
	}
	if c == nil {
		var err error
		if c, err = s.open(ctx, "rw"); err != nil {
			return nil, err
		}
	}
	return c, s.wait(ctx, time.Now(), func(ctx context.Context) error {
		if err := c.check(ctx); err != nil {
			return err
		}
		return c.prepareAll(s.layout)
	})
}

// open opens a connection to the file in a mode of SQLite's URIs: rw, or rwc to create it.
func (s *Store) open(ctx context.Context, mode string) (c *conn, err error) {
	path := filepath.ToSlash(s.path)
	if !strings.HasPrefix(path, "/") { // a drive letter
		path = "/" + path
	}
	uri := url.URL{Scheme: "file", Path: path, RawQuery: "mode=" + mode}
	if info, err := os.Stat(s.path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s: not a file, but %v", s.path, info.Mode())
	}
	err = s.wait(ctx, time.Now(), func(ctx context.Context) (err error) {
		files.Lock()
		defer files.Unlock()
		if mode == "rwc" {
			createFile(s.path)
		}
		before, _ := os.Stat(s.path) // SQLite meets the error
		if c, err = connect(ctx, uri.String()); err != nil {
			return err
		}
		if err = s.at.is(s.path, before); err != nil {
			err = errors.Join(err, c.close())
		}
		return err
	})
	if code(err) == lib.SQLITE_CANTOPEN {
		if _, statErr := os.Stat(s.path); mode == "rw" && errors.Is(statErr, fs.ErrNotExist) {
			return nil, store.ErrTableNotFound
		}
		if mistake := s.mistake(); mistake != nil {
			err = mistake
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s.path, err)
	}
	return c, nil
}

// mistake returns a mistake in the path, nil if there is none: SQLite does not distinguish a missing directory or a denied permission
// from an outage.
func (s *Store) mistake() error {
	if _, err := os.Stat(filepath.Dir(s.path)); errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return denied(s.path)
}

// files is held while a file is created, and while a connection is opened. Closing a file would release the lock that a
// connection of the same process has on it.
var files sync.Mutex

// createFile creates the file, unless it exists, for its owner alone. The files that SQLite makes beside it get the
// same mode. Errors are left to SQLite, which meets them too.
func createFile(path string) {
	for range 40 { // a link to nothing, which the flags would not follow
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	if f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
		_ = f.Close()
	}
}

// wait calls f until no lock of another process stops it, with a context for its statements. It fails when a lock has been held for
// busyLimit since a time.
func (s *Store) wait(ctx context.Context, since time.Time, f func(context.Context) error) error {
	endless := context.WithoutCancel(ctx)
	err := f(endless)
	if !isBusy(err) {
		return err
	}
	deadline := since.Add(busyLimit)
	timer := time.NewTimer(firstPause)
	defer timer.Stop()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		switch err = f(endless); {
		case !isBusy(err) || time.Now().After(deadline):
			return err
		case s.closed.Load():
			return store.ErrClosed
		}
		timer.Reset(pause/2 + rand.N(pause))
	}
}

// Setup creates the file, unless the database is in memory, and the schema. It does nothing if that is done. Several processes may run it
// concurrently.
func (s *Store) Setup(ctx context.Context) error {
	c, err := s.take(ctx, s.writer)
	if err == nil {
		if err = s.at.check(s.path); err == nil {
			c, err = s.setup(ctx, c)
		}
		s.writer <- c
	}
	return failure("setup", err)
}

func (s *Store) setup(ctx context.Context, c *conn) (*conn, error) {
	if c == nil {
		var err error
		if c, err = s.open(ctx, "rwc"); err != nil {
			return nil, err
		}
	}
	if s.path != "" {
		if err := s.wait(ctx, time.Now(), func(ctx context.Context) error {
			if err := c.check(ctx); !errors.Is(err, store.ErrTableNotFound) { // not a foreign file, nor a finished one
				return err
			}
			return c.run(ctx, "PRAGMA journal_mode = WAL")
		}); err != nil {
			return c, err
		}
	}
	return c, s.wait(ctx, time.Now(), func(ctx context.Context) error {
		if err := c.run(ctx, "BEGIN IMMEDIATE"); err != nil {
			return err
		}
		err := c.check(ctx)
		if errors.Is(err, store.ErrTableNotFound) {
			err = c.run(ctx, s.layout.create...)
		}
		if err == nil {
			err = c.run(ctx, "COMMIT")
		}
		if err != nil {
			return rolledBack(err, c.run(ctx, "ROLLBACK"))
		}
		return c.prepareAll(s.layout)
	})
}
