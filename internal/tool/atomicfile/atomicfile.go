// Package atomicfile replaces files as a whole: after a crash a file has its old
// content or the new one.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write replaces a file by way of a temporary one beside it, which is synced
// before it takes the name. The directory is made if it is missing, for the
// owner alone. A symbolic link keeps pointing if it does, and a file keeps its
// permissions; a new one is the owner's alone.
//
// A process that is killed while it writes leaves its temporary file behind. The
// next Write of the same file removes it; one that another process is writing
// stays. Several processes may write a file: the last one wins.
func Write(path string, data []byte) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	pattern := "." + filepath.Base(path) + ".*.tmp"
	removeLeftovers(dir, pattern)
	f, err := create(dir, pattern)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if info, err := os.Stat(path); err == nil {
		if err := f.Chmod(info.Mode().Perm()); err != nil {
			return err
		}
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := publish(f, path); err != nil {
		return err
	}
	return syncDir(dir)
}

// createTries bounds how often a temporary file is made. Another process may take
// one for a leftover between its creation and its lock.
const createTries = 16

// create makes a temporary file and marks it as in use.
func create(dir, pattern string) (*os.File, error) {
	for range createTries {
		f, err := os.CreateTemp(dir, pattern)
		if err != nil {
			return nil, err
		}
		claim(f)
		if _, err := os.Stat(f.Name()); err == nil {
			return f, nil
		}
		_ = f.Close()
	}
	return nil, &fs.PathError{Op: "create", Path: filepath.Join(dir, pattern), Err: errors.New("removed by another process again and again")}
}

// removeLeftovers removes the temporary files of processes that were killed. A file that cannot be removed stays, and
// does no harm.
func removeLeftovers(dir, pattern string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if ok, err := filepath.Match(pattern, e.Name()); ok && err == nil {
			removeUnclaimed(filepath.Join(dir, e.Name()))
		}
	}
}

// syncDir makes a rename last. Not every system can sync a directory; there the
// rename lasts when the system gets to it.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // The path is the caller's.
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	_ = d.Sync()
	return nil
}
