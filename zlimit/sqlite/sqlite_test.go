package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestOpen(t *testing.T) {
	l, err := zlimit.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "limits.db"))
	if err != nil {
		t.Fatalf("Open() = %v", err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
}

// TestFileThatMoves deletes the file of a limiter that admits in outages: that is a mistake, and nothing is admitted.
func TestFileThatMoves(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open cannot be deleted")
	}
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "limits.db")
		l, err := zlimit.Open(t.Context(), "sqlite:"+path, zlimit.WithFailurePolicy(zlimit.Allow), zlimit.WithDefaultLimits(zlimit.PerDay("rpd", 9)))
		if err != nil {
			t.Fatal(err)
		}
		r := zlimit.Request{Entity: "e", Resource: "r", Consume: zlimit.Amounts{"rpd": 1}}
		lease, err := l.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		_, acquire := l.Acquire(t.Context(), r)
		for call, err := range map[string]error{"Acquire": acquire, "Rollback": lease.Rollback(t.Context()), "Ping": l.Ping(t.Context())} {
			var outage *zlimit.UnavailableError
			if err == nil || errors.As(err, &outage) || !strings.Contains(err.Error(), path+" was deleted or moved") {
				t.Errorf("%s() after the file was deleted = %v, want an error that says so, and no outage", call, err)
			}
		}
		if err := l.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
}

// TestWithoutImport does what a program does that does not import the package.
func TestWithoutImport(t *testing.T) {
	linked := store.OpenFile
	store.OpenFile = nil
	defer func() { store.OpenFile = linked }()
	path := filepath.Join(t.TempDir(), "limits.db")
	for name, open := range map[string]func() error{
		"Open":      func() error { _, err := zlimit.Open(t.Context(), "sqlite:"+path); return err },
		"OpenStore": func() error { _, err := zlimit.OpenStore(t.Context(), "sqlite:"+path); return err },
		"SQLite":    func() error { _, err := zlimit.SQLite(path); return err },
	} {
		var invalid *zlimit.ValidationError
		err := open()
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), `add import _ "github.com/zlimit/zlimit-go/zlimit/sqlite"`) {
			t.Errorf("%s() = %v, want a ValidationError with what to import", name, err)
		}
	}
	if files, _ := filepath.Glob(path + "*"); files != nil {
		t.Errorf("files %v were made", files)
	}
}
