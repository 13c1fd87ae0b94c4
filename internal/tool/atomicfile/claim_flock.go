//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package atomicfile

import (
	"os"
	"syscall"
)

// claim locks a file for as long as it is open. The system ends the lock of a
// process that is killed. Where a file system has no locks, the file is not
// claimed.
func claim(f *os.File) { _ = flock(f, syscall.LOCK_EX) }

// publish gives a file its name and closes it: in this order, since without its
// lock it would be taken for a leftover.
func publish(f *os.File, path string) error {
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return f.Close()
}

// removeUnclaimed removes a file that no process has claimed.
func removeUnclaimed(path string) {
	f, err := os.Open(path) //nolint:gosec // A temporary file beside the caller's.
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if flock(f, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		_ = os.Remove(path)
	}
}

func flock(f *os.File, how int) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var locked error
	if err := conn.Control(func(fd uintptr) { locked = syscall.Flock(int(fd), how) }); err != nil { //nolint:gosec // A descriptor is a small number.
		return err
	}
	return locked
}
