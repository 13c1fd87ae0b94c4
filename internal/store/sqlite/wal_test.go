package sqlite_test

import (
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
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
)

// TestCloseLeavesAWholeFile copies the database file alone after the last Close, and opens the copy.
func TestCloseLeavesAWholeFile(t *testing.T) {
	s, path := ready(t)
	other := open(t)(sqlite.Open(path, storetest.Table))
	for _, use := range []*sqlite.Store{s, other} {
		if _, err := use.Write(t.Context(), countUp(t)); err != nil {
			t.Fatalf("Write() = %v", err)
		}
		if _, err := use.Read(t.Context(), []store.Key{bucketKey}, true); err != nil {
			t.Fatalf("Read() = %v", err)
		}
		if _, err := use.Query(t.Context(), store.Query{PK: bucketKey.PK}); err != nil {
			t.Fatalf("Query() = %v", err)
		}
		check.Fatal(t, "Close()", use.Close())
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(path + suffix); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after the last Close, %s is there: %v", filepath.Base(path+suffix), err)
		}
	}
	content := check.Call(os.ReadFile(path)).Must(t, "os.ReadFile()")
	twin := filepath.Join(t.TempDir(), "copy.db")
	check.Fatal(t, "os.WriteFile()", os.WriteFile(twin, content, 0o600))
	restored := open(t)(sqlite.Open(twin, storetest.Table))
	items, err := restored.Read(t.Context(), []store.Key{bucketKey}, true)
	if err != nil || items[0].Get("n").Number() != "2" {
		t.Errorf("Read of a copy of the file = %v, %v; want n = 2", items, err)
	}
}

// TestCloseBesideAReader closes a store while a program reads the file that never closes its connection in order.
func TestCloseBesideAReader(t *testing.T) {
	s, path := ready(t)
	if _, err := s.Write(t.Context(), countUp(t)); err != nil {
		t.Fatalf("Write() = %v", err)
	}
	raw(t, path, "SELECT count(*) FROM items")
	check.Fatal(t, "Close()", s.Close())
	if info, err := os.Stat(path + "-wal"); err != nil || info.Size() != 0 {
		t.Errorf("after Close beside another program the log is %v, %v; want an empty one", info, err)
	}
}

// TestCloseReleasesDescriptors opens and closes many stores.
func TestCloseReleasesDescriptors(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("descriptors are counted in /proc")
	}
	dir := t.TempDir()
	count := func() int {
		entries := check.Call(os.ReadDir("/proc/self/fd")).Must(t, "os.ReadDir()")
		return len(entries)
	}
	before := count()
	for i := range 20 {
		s := check.Call(sqlite.Open(filepath.Join(dir, fmt.Sprint(i)), storetest.Table)).Must(t, "sqlite.Open()")
		check.Fatal(t, "Setup()", s.Setup(t.Context()))
		if _, err := s.Write(t.Context(), countUp(t)); err != nil {
			t.Fatalf("Write() = %v", err)
		}
		check.Fatal(t, "Close()", s.Close())
	}
	if after := count(); after > before+5 { // other tests of the process may have opened some
		t.Errorf("%d descriptors are open after 20 stores were closed, %d before", after, before)
	}
}

// TestLogIsBounded writes 200 MB while readers take turns, so that one is under way at every moment.
func TestLogIsBounded(t *testing.T) {
	const item, writes, bound = 100 << 10, 2000, 64 << 20
	s, path := ready(t)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	defer readers.Wait()
	defer close(stop)
	pair := [2]driver.Conn{raw(t, path, "PRAGMA busy_timeout = 10000"), raw(t, path, "PRAGMA busy_timeout = 10000")}
	readers.Go(func() {
		const begin = "BEGIN; SELECT count(*) FROM stream"
		execute(t, pair[0], begin)
		for turn := 1; ; turn = 1 - turn {
			execute(t, pair[turn], begin)
			execute(t, pair[1-turn], "COMMIT")
			select {
			case <-stop:
				execute(t, pair[turn], "COMMIT")
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	largest := int64(0)
	for i := range writes {
		content := strings.Repeat(string(rune('a'+i%26)), item) // SQLite writes only what differs
		w := store.Write{Kind: store.Put, Key: bucketKey, Item: storetest.Item("content", content)}
		if _, err := s.Write(t.Context(), w); err != nil {
			t.Fatalf("Write() = %v", err)
		}
		info := check.Call(os.Stat(path+"-wal")).Must(t, "os.Stat()")
		largest = max(largest, info.Size())
	}
	if largest > bound {
		t.Errorf("the log reached %d MB, want at most %d", largest>>20, bound>>20)
	}
}
