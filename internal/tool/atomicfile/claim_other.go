//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package atomicfile

import (
	"os"
	"time"
)

// leftoverAge is the age from which a temporary file is taken for a leftover.
const leftoverAge = time.Hour

// claim does nothing: a file is claimed by its age.
func claim(*os.File) {}

// publish closes a file and gives it its name: in this order, since Windows
// renames no open file.
func publish(f *os.File, path string) error {
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// removeUnclaimed removes a file that was written long ago.
func removeUnclaimed(path string) {
	if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > leftoverAge {
		_ = os.Remove(path)
	}
}
