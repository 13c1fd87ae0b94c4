package sqlite_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	driverpkg "modernc.org/sqlite"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
)

// raw opens a connection of another program to a database file.
func raw(t *testing.T, path string, statements ...string) driver.Conn {
	t.Helper()
	c := check.Call(new(driverpkg.Driver).Open(path)).Must(t, "Open()")
	t.Cleanup(func() { _ = c.Close() }) // perhaps closed by then
	for _, text := range statements {
		execute(t, c, text)
	}
	return c
}

func execute(t *testing.T, c driver.Conn, text string) {
	t.Helper()
	if _, err := c.(driver.ExecerContext).ExecContext(context.Background(), text, nil); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func countUp(t testing.TB) store.Write {
	return store.Write{Key: bucketKey, Expr: storetest.Bind(t, nil, []expr.Action{expr.Add(expr.Attr("n"), 0)}, 1)}
}

// ready returns a store on a new file, and the file.
func ready(t *testing.T) (*sqlite.Store, string) {
	path := filepath.Join(t.TempDir(), "items.db")
	s := open(t)(sqlite.Open(path, storetest.Table))
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	return s, path
}

func TestOpenCreatesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "items.db")
	s := open(t)(sqlite.Open(path, storetest.Table))
	if err := s.Ping(t.Context()); !errors.Is(err, store.ErrTableNotFound) {
		t.Errorf("Ping() = %v, want %v", err, store.ErrTableNotFound)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file exists before Setup: %v", err)
	}
	// Another process sets it up meanwhile.
	other := open(t)(sqlite.Open(path, storetest.Table))
	check.Fatal(t, "Setup()", other.Setup(t.Context()))
	check.Error(t, "Ping() after another process's Setup", s.Ping(t.Context()))
	if _, err := s.Write(t.Context(), countUp(t)); err != nil {
		t.Errorf("Write() after another process's Setup = %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := sqlite.Open("", storetest.Table); err == nil {
		t.Error("Open took no path")
	}
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		check.Fatal(t, "os.WriteFile()", os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	database := func(name string, statements ...string) string {
		path := filepath.Join(dir, name)
		check.Fatal(t, "Close()", raw(t, path, statements...).Close())
		return path
	}
	for _, test := range []struct {
		name, path, want string
		setup            bool // whether Setup makes it usable
	}{
		{"no file", filepath.Join(dir, "none.db"), "table not found", true},
		{"an empty file", file("empty.db", ""), "table not found", true},
		{"no directory", filepath.Join(dir, "none", "items.db"), "table not found", false},
		{"a directory", dir, "not a file, but d", false},
		{"a device", os.DevNull, "not a file, but D", false},
		{"a text", file("text.db", strings.Repeat("This is no database. ", 100)), "not a database", false},
		{"another application's database", database("other.db", "CREATE TABLE t (x)"), "belongs to another application", false},
		{"another application's empty database", database("marked.db", "PRAGMA application_id = 7"), "belongs to another application", false},
		{"a newer schema", database("newer.db", "CREATE TABLE items (x)", "PRAGMA application_id = 0x7a6c696d", "PRAGMA user_version = 99"), "schema version 99 is newer", false},
		{"another schema of that version", database("odd.db", "CREATE TABLE items (x)", "CREATE TABLE stream (x)", "PRAGMA application_id = 0x7a6c696d", "PRAGMA user_version = 1"), "no such column", false},
	} {
		before, _ := os.ReadFile(test.path)
		s := open(t)(sqlite.Open(test.path, storetest.Table))
		_, err := s.Write(t.Context(), countUp(t))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Write to %s = %v, want an error with %q", test.name, err, test.want)
		}
		if got := errors.Is(err, store.ErrTableNotFound); got != (test.want == "table not found") {
			t.Errorf("Write to %s = %v, which is ErrTableNotFound: %t", test.name, err, got)
		}
		err = s.Setup(t.Context())
		if (err == nil) != test.setup {
			t.Errorf("Setup of %s = %v", test.name, err)
		}
		if !test.setup {
			if after, _ := os.ReadFile(test.path); string(after) != string(before) {
				t.Errorf("Setup of %s changed the file", test.name)
			}
		}
		_, err = s.Write(t.Context(), countUp(t))
		if (err == nil) != test.setup {
			t.Errorf("Write after Setup of %s = %v", test.name, err)
		}
	}
}

func TestSetupWithoutADirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	s := open(t)(sqlite.Open(filepath.Join(dir, "items.db"), storetest.Table))
	err := s.Setup(t.Context())
	var failed *store.Error
	if !errors.As(err, &failed) || failed.Unavailable || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "stat "+dir+":") {
		t.Errorf("Setup() = %v, want an error that names the directory, and no outage", err)
	}
}

func TestBadPathsAreNoOutage(t *testing.T) {
	for _, path := range []string{t.TempDir(), os.DevNull} {
		s := open(t)(sqlite.Open(path, storetest.Table))
		for name, err := range map[string]error{"Setup": s.Setup(t.Context()), "Ping": s.Ping(t.Context())} {
			if got := store.OutcomeOf(err); got != store.Refused {
				t.Errorf("%s of %s = %v, outcome %d; want %d", name, path, err, got, store.Refused)
			}
		}
	}
}

// TestFilesAreTheOwners looks at the modes of the files.
func TestFilesAreTheOwners(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no modes of that kind")
	}
	s, path := ready(t)
	if _, err := s.Write(t.Context(), countUp(t)); err != nil {
		t.Fatalf("Write() = %v", err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info := check.Call(os.Stat(path+suffix)).Must(t, "os.Stat()")
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", filepath.Base(path+suffix), info.Mode())
		}
	}

	link := filepath.Join(t.TempDir(), "link.db")
	check.Fatal(t, "os.Symlink()", os.Symlink("other.db", link))
	check.Fatal(t, "Setup()", open(t)(sqlite.Open(link, storetest.Table)).Setup(t.Context()))
	if info, err := os.Stat(link); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file that a link leads to: %v, %v; want mode 0600", info, err)
	}
}

func TestPathsAreNotURIs(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"with space.db", "what?.db", "100%.db", "100%41.db", "a#b.db", "žluť.db", "a&mode=ro.db", "file:x.db", ":memory:"} {
		s := open(t)(sqlite.Open(filepath.Join(dir, name), storetest.Table))
		if err := s.Setup(t.Context()); err != nil {
			t.Errorf("Setup of %q = %v", name, err)
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("Setup of %q did not create it: %v", name, err)
		}
	}
	t.Chdir(dir)
	s := open(t)(sqlite.Open("relative.db", storetest.Table))
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	if _, err := os.Stat(filepath.Join(dir, "relative.db")); err != nil {
		t.Errorf("os.Stat() = %v", err)
	}
}

// TestItemsOutliveTheStore closes a store and opens another on the file.
func TestItemsOutliveTheStore(t *testing.T) {
	s, path := ready(t)
	for range 3 {
		if _, err := s.Write(t.Context(), countUp(t)); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
	check.Fatal(t, "Close()", s.Close())
	s = open(t)(sqlite.Open(path, storetest.Table))
	items, err := s.Read(t.Context(), []store.Key{bucketKey}, true)
	if err != nil || items[0].Get("n").Number() != "3" {
		t.Errorf("Read = %v, %v; want n = 3", items, err)
	}
}

// TestWaitsForOtherProcesses holds the lock that a write needs, from outside.
func TestWaitsForOtherProcesses(t *testing.T) {
	s, path := ready(t)
	other := raw(t, path, "BEGIN IMMEDIATE")

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := s.Write(ctx, countUp(t))
	if e := (*store.Error)(nil); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &e) && (e.Unknown || e.Unavailable) {
		t.Errorf("Write while another process writes = %v, want %v and nothing written", err, context.DeadlineExceeded)
	}
	if _, err := s.Read(t.Context(), []store.Key{bucketKey}, true); err != nil {
		t.Errorf("Read while another process writes = %v", err)
	}

	// One call waits for the lock, and the next for the one; that one's context ends.
	first := make(chan error, 1)
	go func() { _, err := s.Write(t.Context(), countUp(t)); first <- err }()
	time.Sleep(10 * time.Millisecond)
	canceled, cancelSecond := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() { _, err := s.Write(canceled, countUp(t)); second <- err }()
	time.Sleep(10 * time.Millisecond)
	cancelSecond()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("Write that waits for another call = %v, want %v", err, context.Canceled)
	}
	execute(t, other, "COMMIT")
	check.Error(t, "Write after another process's", <-first)
	items, err := s.Read(t.Context(), []store.Key{bucketKey}, true)
	if err != nil || items[0].Get("n").Number() != "1" {
		t.Errorf("Read = %v, %v; want n = 1", items, err)
	}
}

// TestCloseEndsTheWait closes the store while a call waits for another process.
func TestCloseEndsTheWait(t *testing.T) {
	s, path := ready(t)
	other := raw(t, path, "BEGIN IMMEDIATE")
	waiting := make(chan error, 1)
	go func() { _, err := s.Write(t.Context(), countUp(t)); waiting <- err }()
	time.Sleep(10 * time.Millisecond)
	check.Error(t, "Close()", s.Close())
	if err := <-waiting; !errors.Is(err, store.ErrClosed) {
		t.Errorf("Write = %v, want %v", err, store.ErrClosed)
	}
	execute(t, other, "COMMIT")
}

// In TestWaitIsBounded, another process holds the lock permanently. Callers that wait for it one after another give up
// together.
func TestWaitIsBounded(t *testing.T) {
	_, path := ready(t)
	raw(t, path, "BEGIN IMMEDIATE")
	w := countUp(t)
	synctest.Test(t, func(t *testing.T) {
		s := open(t)(sqlite.Open(path, storetest.Table))
		start := time.Now()
		var writes sync.WaitGroup
		for range 5 {
			writes.Go(func() {
				_, err := s.Write(context.Background(), w)
				var e *store.Error
				if !errors.As(err, &e) || !e.Unavailable || e.Unknown {
					t.Errorf("Write = %v, want an outage and nothing written", err)
				}
				if waited := time.Since(start); waited < 10*time.Second || waited > 20*time.Second {
					t.Errorf("Write gave up after %v", waited)
				}
			})
		}
		writes.Wait()
	})
}

// TestUnreadableItem reads an item in an encoding of the future.
func TestUnreadableItem(t *testing.T) {
	s, path := ready(t)
	if _, err := s.Write(t.Context(), countUp(t)); err != nil {
		t.Fatalf("Write() = %v", err)
	}
	raw(t, path, "UPDATE items SET item = x'7f00'")
	for name, call := range map[string]func() error{
		"Read":  func() error { _, err := s.Read(t.Context(), []store.Key{bucketKey}, true); return err },
		"Write": func() error { _, err := s.Write(t.Context(), countUp(t)); return err },
		"Query": func() error { _, err := s.Query(t.Context(), store.Query{PK: bucketKey.PK}); return err },
	} {
		err := call()
		if e := (*store.Error)(nil); !errors.As(err, &e) || e.Unavailable || e.Unknown || !strings.Contains(fmt.Sprint(err), "encoding") {
			t.Errorf("%s of an unreadable item = %v", name, err)
		}
	}
	if _, err := s.Write(t.Context(), store.Write{Kind: store.Put, Key: store.Key{PK: "p", SK: "s"}, Item: bucket}); err != nil {
		t.Errorf("Write of another item afterwards = %v", err)
	}
}

func TestPartitioned(t *testing.T) {
	if s := open(t)(sqlite.OpenMemory(storetest.Table)); s.Partitioned() {
		t.Error("Partitioned() = true")
	}
}
