package quotas

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/quota"
	"github.com/zlimit/zlimit-go/quota/quotasqlite"
)

// TestDefaultStateFile shows that the default files are those of package quota.
func TestDefaultStateFile(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"HOME", "USERPROFILE"} {
		t.Setenv(name, home)
	}
	sh := &shell.Shell{Env: os.Getenv, Stderr: io.Discard}
	for _, backend := range []string{quota.BackendSQLite, quota.BackendYAML} { // the YAML file wins where both are there
		l := check.Call(quota.NewWithConfig(t.Context(), quota.Config{Backend: backend})).Must(t, "quota.NewWithConfig()")
		check.Fatal(t, "Persist() and Close()", errors.Join(l.Persist(t.Context()), l.Close()))
		f, err := stateFileAt(sh, "")
		if err != nil || f.format != backend || f.written.IsZero() {
			t.Errorf("stateFileAt() = %+v, %v; want the %s file that a limiter has written", f, err, backend)
		}
	}
	if _, err := stateFileAt((&shell.Shell{Env: func(string) string { return "" }}), ""); err == nil {
		t.Error("stateFileAt() without a home directory = nil, want an error")
	}
}

// TestLastWriteOfLog: a write that SQLite has only in its log counts.
func TestLastWriteOfLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	store := check.Call(quotasqlite.Open(t.Context(), path, nil)).Must(t, "quotasqlite.Open()")
	defer func() { _ = store.Close() }()
	check.Fatal(t, "Record()", store.Record(t.Context(), quota.Charge{Request: quota.Request{Model: "m"}}))
	long := time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC)
	late := long.Add(time.Hour)
	check.Fatal(t, "os.Chtimes()", errors.Join(os.Chtimes(path, long, long), os.Chtimes(path+"-wal", late, late)))
	f, err := inspect(path)
	if err != nil || !f.written.Equal(late) {
		t.Errorf("inspect() = %+v, %v; want written %v", f, err, late)
	}
	// A process that has the file open is no obstacle, and its usage is there.
	s, err := f.status(t.Context(), time.Now(), nil)
	if err != nil || len(s.Models) != 1 || s.Models[0].Limits[2].Used != 1 {
		t.Errorf("status() = %+v, %v; want one request of m", s, err)
	}
}
