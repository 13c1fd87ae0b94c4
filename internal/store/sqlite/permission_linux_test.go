package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
	"github.com/zlimit/zlimit-go/internal/store/storetest"
)

// TestDeniedPermission opens files that the user may not: that is a mistake, and no outage.
func TestDeniedPermission(t *testing.T) {
	dir := t.TempDir()
	for _, parent := range []string{dir, filepath.Dir(dir)} { // others may look
		if err := os.Chmod(parent, 0o755); err != nil { //nolint:gosec // so that another user gets to the file
			t.Fatal(err)
		}
	}
	secret := filepath.Join(dir, "secret.db")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		asAnotherUser(t)
	} else {
		t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })                                 //nolint:gosec // a directory
		if err := errors.Join(os.Chmod(secret, 0), os.Chmod(dir, 0o500)); err != nil { //nolint:gosec // a directory
			t.Fatal(err)
		}
	}
	for name, path := range map[string]string{"a file that may not be opened": secret, "a new file where none may be made": filepath.Join(dir, "new.db")} {
		s, err := sqlite.Open(path, storetest.Table)
		if err == nil {
			t.Cleanup(func() { _ = s.Close() })
			err = s.Setup(t.Context())
		}
		if !errors.Is(err, fs.ErrPermission) || store.OutcomeOf(err) != store.Refused {
			t.Errorf("%s: %v, an outcome of %d; want a denied permission", name, err, store.OutcomeOf(err))
		}
	}
}

// asAnotherUser has the test's thread access files as a user who owns none, for the rest of the test.
func asAnotherUser(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	t.Cleanup(func() {
		if err := syscall.Setfsuid(os.Getuid()); err != nil {
			t.Error(err)
		}
	})
	const other = 65534
	if err := syscall.Setfsuid(other); err != nil {
		t.Fatal(err)
	}
}
