package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
)

// TestFileThatMoves deletes, replaces and puts back the file of an open store. Within a second its calls fail, and nothing
// is written to a file that has no name, nor to another one.
func TestFileThatMoves(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open cannot be deleted or replaced")
	}
	synctest.Test(t, fileThatMoves)
}

func fileThatMoves(t *testing.T) {
	ctx := t.Context()
	s, path := ready(t)
	w, q := countUp(t), store.Query{PK: bucketKey.PK}
	move := func(from, to string) {
		t.Helper()
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if err := os.Rename(from+suffix, to+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("os.Rename() = %v", err)
			}
		}
	}
	expect := func(step, want string) {
		t.Helper()
		time.Sleep(time.Second)
		for name, call := range map[string]func() error{
			"Read":     func() error { _, err := s.Read(ctx, []store.Key{bucketKey}, true); return err },
			"Query":    func() error { _, err := s.Query(ctx, q); return err },
			"Write":    func() error { _, err := s.Write(ctx, w); return err },
			"Transact": func() error { _, err := s.Transact(ctx, []store.Write{w}); return err },
			"Ping":     func() error { return s.Ping(ctx) },
			"Setup":    func() error { return s.Setup(ctx) },
		} {
			err := call()
			if want == "" && err != nil {
				t.Errorf("%s: %s = %v", step, name, err)
			}
			if want != "" && (err == nil || !strings.Contains(err.Error(), path+want) || store.OutcomeOf(err) != store.Refused) {
				t.Errorf("%s: %s = %v, outcome %d; want %q and %d", step, name, err, store.OutcomeOf(err), want, store.Refused)
			}
		}
	}
	count := func(of *sqlite.Store) string {
		t.Helper()
		items := check.Call(of.Read(ctx, []store.Key{bucketKey}, true)).Must(t, "Read()")
		return items[0].Get("n").Number()
	}

	expect("in its place", "")
	before := count(s)
	away := filepath.Join(t.TempDir(), "away.db")
	move(path, away)
	expect("moved away", " was deleted or moved since it was opened")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was made in its place: %v", err)
	}
	other := open(t)(sqlite.Open(path, storetest.Table))
	check.Fatal(t, "Setup()", other.Setup(ctx))
	if _, err := other.Write(ctx, w); err != nil {
		t.Fatalf("Write() = %v", err)
	}
	expect("replaced", " was replaced since it was opened")
	if got := count(other); got != "1" {
		t.Errorf("the other file has n = %s, want 1", got)
	}
	check.Fatal(t, "Close()", other.Close())
	move(path, path+".other")
	move(away, path)
	expect("put back", "")
	if got := count(s); got == before {
		t.Errorf("after the writes n = %s, as before them", got)
	}

	// A store closed beside another file leaves the other file's log alone.
	check.Fatal(t, "os.Remove()", os.Remove(path))
	log, err := os.ReadFile(path + "-wal")
	if err != nil || len(log) == 0 {
		t.Fatalf("the log has %d bytes, %v", len(log), err)
	}
	check.Error(t, "Close() of a store whose file was deleted", s.Close())
	if after, err := os.ReadFile(path + "-wal"); err != nil || len(after) != len(log) {
		t.Errorf("after Close() of a store whose file was deleted, the log has %d bytes, %v, want %d", len(after), err, len(log))
	}
}
