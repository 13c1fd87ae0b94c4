package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
)

// deniedIn names the variable that holds the directory of TestDeniedPermission, for a process of another user.
const deniedIn = "ZLIMIT_DENIED_IN"

// TestDeniedPermission opens files without permission, a mistake and no outage. Root may open everything, so that root
// runs the test again as another user.
func TestDeniedPermission(t *testing.T) {
	if dir := os.Getenv(deniedIn); dir != "" {
		openDenied(t, dir)
		return
	}
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret.db")
	check.Fatal(t, "os.WriteFile()", os.WriteFile(secret, nil, 0o600))
	readonly := filepath.Join(dir, "readonly.db")
	s, err := sqlite.Open(readonly, storetest.Table)
	if err == nil {
		err = errors.Join(s.Setup(t.Context()), s.Close(), os.Chmod(readonly, 0o444)) //nolint:gosec // so that another user may read it
	}
	check.Fatal(t, "sqlite.Open()", err)
	if os.Getuid() != 0 {
		t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })                                 //nolint:gosec // a directory
		if err := errors.Join(os.Chmod(secret, 0), os.Chmod(dir, 0o500)); err != nil { //nolint:gosec // a directory
			t.Fatalf("os.Chmod() = %v", err)
		}
		openDenied(t, dir)
		return
	}
	program := filepath.Join(dir, "program")
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	var code []byte
	if err == nil {
		code, err = os.ReadFile(self)
	}
	if err == nil {
		err = os.WriteFile(program, code, 0o755) //nolint:gosec // so that another user may run it
	}
	for _, parent := range []string{dir, filepath.Dir(dir)} { // others may look
		err = errors.Join(err, os.Chmod(parent, 0o755)) //nolint:gosec // see above
	}
	check.Fatal(t, "os.Executable()", err)
	const other = 65534
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestDeniedPermission$", "-test.v")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), deniedIn+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as another user: %v\n%s", err, out)
	}
}

// openDenied opens files that the user may not open, or not write.
func openDenied(t *testing.T, dir string) {
	s, err := sqlite.Open(filepath.Join(dir, "readonly.db"), storetest.Table)
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
		err = s.Setup(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "cannot be opened for writing: open "+filepath.Join(dir, "readonly.db")+": attempt to write a readonly database") || store.OutcomeOf(err) != store.Refused {
		t.Errorf("a file that may only be read: %v, an outcome of %d; want it refused", err, store.OutcomeOf(err))
	}
	for name, path := range map[string]string{
		"a file that may not be opened":     filepath.Join(dir, "secret.db"),
		"a new file where none may be made": filepath.Join(dir, "new.db"),
	} {
		s, err := sqlite.Open(path, storetest.Table)
		if err == nil {
			t.Cleanup(func() { _ = s.Close() })
			err = s.Setup(t.Context())
		}
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "open for writing ") || store.OutcomeOf(err) != store.Refused {
			t.Errorf("%s: %v, an outcome of %d; want a denied permission", name, err, store.OutcomeOf(err))
		}
	}
}
