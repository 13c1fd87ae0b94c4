package quota

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/tool/atomicfile"
)

// Persist writes quotas and usage to the YAML file, making its directory if it is missing. The file is replaced as a
// whole. After a crash it holds the old or the new state, and the remains of a killed process beside it are removed.
// One process at a time should write a file; where several do, the last one wins. On SQLite, where usage is always
// stored, Persist stores the default quotas of models that have none stored.
func (l *Limiter) Persist(ctx context.Context) error {
	if l.store != nil {
		if err := l.store.SetQuotas(ctx, ScopeModel, l.mem.models.allQuotas(), true); err != nil {
			return err
		}
		return l.store.SetQuotas(ctx, ScopeKey, l.mem.keys.allQuotas(), true)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("quota: persist: %w", context.Cause(ctx))
	}
	path, err := l.cfg.path()
	if err != nil {
		return err
	}
	return writeStateFile(path, l.mem.state())
}

// Load reads the YAML file: its quotas and usage replace the present ones of the same models and keys, and the
// others stay. A missing file is an empty one. A malformed file is a *FileError with the line:
// nothing is loaded from it, and the file stays as it is. On SQLite, where usage is never loaded,
// Load checks the whole file.
func (l *Limiter) Load(ctx context.Context) error {
	if l.store != nil {
		return l.store.Verify(ctx)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("quota: load: %w", context.Cause(ctx))
	}
	path, err := l.cfg.path()
	if err != nil {
		return err
	}
	st, err := readStateFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	l.mem.load(&st)
	l.waiting.wake()
	return nil
}

// MigrateYAMLToSQLite copies the quotas and the usage of a YAML file to an SQLite file, which is
// created if it is missing. The usage replaces the contents of the SQLite file, in one
// transaction, so running it again leaves the same state. The YAML file is read as a whole before
// SQLite is opened, and is left as it is. The program must import quota/quotasqlite.
func MigrateYAMLToSQLite(ctx context.Context, yamlPath, sqlitePath string) (err error) {
	for _, p := range []struct{ field, path string }{{"yaml path", yamlPath}, {"sqlite path", sqlitePath}} {
		if p.path == "" {
			return &ValidationError{Field: p.field, Value: p.path, Rule: "must not be empty"}
		}
	}
	st, err := readStateFile(yamlPath)
	if err != nil {
		return err
	}
	s, err := openSQLite(ctx, sqlitePath, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Replace(ctx, st)
}

func readStateFile(path string) (State, error) {
	data, err := os.ReadFile(path) //nolint:gosec // The path is the caller's.
	if err != nil {
		return State{}, fmt.Errorf("quota: read state: %w", err)
	}
	st, err := parseState(data)
	if err != nil {
		if at, ok := errors.AsType[*FileError](err); ok {
			at.Path = path
		}
		return State{}, err
	}
	return st, nil
}

func writeStateFile(path string, st State) error {
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(st), enc.Close()); err != nil {
		return fmt.Errorf("quota: encode state: %w", err)
	}
	if err := atomicfile.Write(path, buf.Bytes()); err != nil {
		return fmt.Errorf("quota: write state: %w", err)
	}
	return nil
}
