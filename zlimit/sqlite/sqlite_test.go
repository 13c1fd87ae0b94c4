package sqlite

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestOpen(t *testing.T) {
	l := check.Call(zlimit.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "limits.db"))).Must(t, "Open()")
	check.Error(t, "Close()", l.Close())
}

// TestFileThatMoves deletes the file of a limiter that admits in outages: that is a mistake, and nothing is admitted.
func TestFileThatMoves(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open cannot be deleted")
	}
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "limits.db")
		l, err := zlimit.Open(t.Context(), "sqlite:"+path, zlimit.WithFailurePolicy(zlimit.PolicyAllow), zlimit.WithDefaultLimits(zlimit.PerDay("rpd", 9)))
		check.Fatal(t, "zlimit.Open()", err)
		r := zlimit.Request{Entity: "e", Resource: "r", Consume: zlimit.Amounts{"rpd": 1}}
		lease := check.Call(l.Acquire(t.Context(), r)).Must(t, "Acquire()")
		check.Fatal(t, "os.Remove()", os.Remove(path))
		time.Sleep(time.Second)
		_, acquire := l.Acquire(t.Context(), r)
		for call, err := range map[string]error{"Acquire": acquire, "Rollback": lease.Rollback(t.Context()), "Ping": l.Ping(t.Context())} {
			if err == nil || errors.As(err, new(*zlimit.UnavailableError)) || !strings.Contains(err.Error(), path+" was deleted or moved") {
				t.Errorf("%s() after the file was deleted = %v, want an error that says so, and no outage", call, err)
			}
		}
		check.Error(t, "Close()", l.Close())
	})
}

// In TestLockedFile, another program keeps the write lock of a file, as a shell does in a transaction. That is an
// outage: the policy decides until the lock is released. Nothing is taken meanwhile.
func TestLockedFile(t *testing.T) {
	for policy, within := range map[zlimit.FailurePolicy]time.Duration{
		zlimit.PolicyAllow: 250 * time.Millisecond, zlimit.PolicyBlock: 15 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "limits.db")
			l, err := zlimit.Open(t.Context(), "sqlite:"+path, zlimit.WithFailurePolicy(policy), zlimit.WithDefaultLimits(zlimit.PerDay("rpd", 9)))
			check.Fatal(t, "zlimit.Open()", err)
			acquire := func() (counted bool, took time.Duration, err error) {
				began := time.Now()
				lease, err := l.Acquire(t.Context(), zlimit.Request{Entity: "e", Resource: "r", Consume: zlimit.Amounts{"rpd": 1}})
				return err == nil && !lease.Degraded(), time.Since(began), err
			}
			if counted, _, err := acquire(); !counted {
				t.Fatalf("Acquire() = %v", err)
			}
			release := lock(t, path)
			counted, took, err := acquire()
			var outage *zlimit.UnavailableError
			if counted || took < within || took > within+time.Second || (err == nil) != (policy == zlimit.PolicyAllow) {
				t.Errorf("%v: Acquire() of a locked file = %t, %v after %v", policy, counted, err, took)
			}
			if err != nil && (!errors.As(err, &outage) || outage.Unknown || !strings.Contains(err.Error(), "database is locked")) {
				t.Errorf("%v: Acquire() of a locked file = %v, want an outage in which nothing was written", policy, err)
			}
			release()
			time.Sleep(5 * time.Second) // what the caller left goes on in the background, and the outage ends
			if counted, _, err := acquire(); !counted {
				t.Errorf("%v: Acquire() after the lock = %v", policy, err)
			}
			status, err := l.Available(t.Context(), zlimit.AvailableQuery{Entity: "e", Resource: "r"})
			if want := map[zlimit.FailurePolicy]int64{zlimit.PolicyAllow: 6, zlimit.PolicyBlock: 7}[policy]; err != nil || status[0].Available != want {
				t.Errorf("%v: %v are available (%v), want %d: a request that was left counts once the lock is gone", policy, status, err, want)
			}
			check.Error(t, "Close()", l.Close())
		})
	}
}

// lock takes the write lock of a file, as another program does, and returns what gives it back.
func lock(t *testing.T, path string) (release func()) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err == nil {
		db.SetMaxOpenConns(1)
		_, err = db.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	}
	check.Fatal(t, "sql.Open()", err)
	return func() {
		_, err := db.ExecContext(t.Context(), "COMMIT")
		check.Error(t, "Close()", errors.Join(err, db.Close()))
	}
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
		err := open()
		if !errors.As(err, new(*zlimit.ValidationError)) || !strings.Contains(err.Error(), `add import _ "github.com/zlimit/zlimit-go/zlimit/sqlite"`) {
			t.Errorf("%s() = %v, want a ValidationError with what to import", name, err)
		}
	}
	if files, _ := filepath.Glob(path + "*"); files != nil {
		t.Errorf("files %v were made", files)
	}
}
