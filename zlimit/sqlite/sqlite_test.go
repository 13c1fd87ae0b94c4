package sqlite

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

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
