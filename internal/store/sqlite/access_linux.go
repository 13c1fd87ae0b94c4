package sqlite

import (
	"io/fs"
	"path/filepath"
	"syscall"
)

// The modes of faccessat, see the manual page access(2).
const (
	atWorkingDirectory = -0x64
	asEffectiveUser    = 0x200
	readAndWrite       = 0x4 | 0x2
	writeAndSearch     = 0x2 | 0x1
)

// denied returns an error when this process may not read and write a file, or may not make it. It does not open the
// file: to close it again would release the locks that connections of this process have on it.
func denied(path string) error {
	err := syscall.Faccessat(atWorkingDirectory, path, readAndWrite, asEffectiveUser)
	if err == syscall.ENOENT {
		path = filepath.Dir(path)
		err = syscall.Faccessat(atWorkingDirectory, path, writeAndSearch, asEffectiveUser)
	}
	if err != syscall.EACCES {
		return nil
	}
	return &fs.PathError{Op: "open for writing", Path: path, Err: err}
}
