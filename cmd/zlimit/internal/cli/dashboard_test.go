package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
)

// TestDashboard starts a program of the name zlimitd, with the store and the namespace of the command.
func TestDashboard(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if got := command(t, "", "dashboard", "--store", "memory:"); got.code != shell.ExitFailure || !strings.Contains(got.stderr, "zlimitd is not in PATH") {
		t.Errorf("dashboard without zlimitd: code %d, %s", got.code, got.stderr)
	}
	if got := command(t, "", "dashboard"); got.code != shell.ExitUsage {
		t.Errorf("dashboard without a store: code %d, %s, want %d", got.code, got.stderr, shell.ExitUsage)
	}
	write := func(script string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "zlimitd"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // it must run
			t.Fatalf("os.WriteFile() = %v", err)
		}
	}
	write(`echo "$@ $ZLIMITD_STORE $ZLIMITD_NAMESPACE"`)
	got := command(t, "", "dashboard", "--store", "memory:", "--namespace", "staging", "--listen", "127.0.0.1:9000")
	if want := "dashboard -listen 127.0.0.1:9000 memory: staging\n"; got.code != shell.ExitOK || got.stdout != want {
		t.Errorf("dashboard: code %d, %q %s, want %q", got.code, got.stdout, got.stderr, want)
	}
	write("echo broken >&2; exit 1")
	if got := command(t, "", "dashboard", "--store", "memory:"); got.code != shell.ExitFailure || !strings.Contains(got.stderr, "broken") {
		t.Errorf("dashboard whose zlimitd fails: code %d, %s, want %d and its words", got.code, got.stderr, shell.ExitFailure)
	}
}
