package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"time"
)

// lookEvery is the time after which a store looks again whether the file at its path is still the open one.
const lookEvery = time.Second

// An identity is which file a store has open. The zero value is of none. It is safe for concurrent use.
type identity struct {
	file   atomic.Pointer[os.FileInfo]
	looked atomic.Int64 // when the path was looked at last, in nanoseconds since 1970
	found  atomic.Pointer[error]
}

// is notes the file of a new connection, as it was found at the path before; nil where there was none. It returns an
// error unless the file is there still, and is that of the other connections.
func (f *identity) is(path string, before os.FileInfo) error {
	if before == nil {
		return nil // the next connection will know
	}
	f.file.CompareAndSwap(nil, &before)
	err := f.look(path)
	if err != nil && *f.file.Load() == before { // this is the first connection, and the next may find another file
		f.file.Store(nil)
	}
	return err
}

// check returns an error when the file was deleted or replaced, as the path was looked at within the last second.
func (f *identity) check(path string) error {
	if f.file.Load() == nil {
		return nil
	}
	now, last := time.Now().UnixNano(), f.looked.Load()
	if passed := now - last; (passed < 0 || passed >= int64(lookEvery)) && f.looked.CompareAndSwap(last, now) {
		err := f.look(path)
		f.found.Store(&err)
	}
	if found := f.found.Load(); found != nil {
		return *found
	}
	return nil
}

// look returns an error when the file was deleted or replaced. A path that cannot be looked at is no such case.
func (f *identity) look(path string) error {
	file := f.file.Load()
	if file == nil {
		return nil
	}
	switch now, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("file %s was deleted or moved since it was opened: open it again", path)
	case err == nil && !os.SameFile(*file, now):
		return fmt.Errorf("file %s was replaced since it was opened: open it again", path)
	default:
		return nil
	}
}
