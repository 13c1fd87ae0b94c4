package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"os"
)

// SQLite moves the write-ahead log to the file by itself after every thousand pages. It then restarts the log, but
// only if no reader is in the way. Under constant readers one always is, and the log grows without end.
//
// So the writer looks at the size of the log now and then, and waits for the readers where it is too large. The readers
// under way end in milliseconds, and those that come meanwhile do not need the log.
const (
	// walLookEvery is the number of commits after which the writer looks at the size of the log.
	walLookEvery = 64
	// walStep is the size in bytes that the log may have. A reader may not end in time, such as the shell of an operator.
	// The log may then grow by as much again before the next try.
	walStep = 16 << 20
	// walWaitMS bounds the wait for readers, in milliseconds.
	walWaitMS = "500"
)

// A walBound is the writer's memory of the write-ahead log.
type walBound struct {
	commits int   // since the last look
	limit   int64 // of the size, in bytes; 0 stands for walStep
}

// boundWAL empties the write-ahead log if it is too large. It is called after a commit. A log that cannot be emptied is
// no error of the committed write; the next commits try again.
func (s *Store) boundWAL(ctx context.Context, c *conn) {
	if s.path == "" {
		return
	}
	if s.wal.commits++; s.wal.commits < walLookEvery {
		return
	}
	s.wal.commits = 0
	info, err := os.Stat(s.path + "-wal")
	if err != nil || info.Size() < max(s.wal.limit, walStep) {
		return
	}
	s.wal.limit = 0
	if emptied, err := s.emptyWAL(ctx, c); err != nil || !emptied {
		s.wal.limit = info.Size() + walStep
	}
}

// emptyWAL waits for readers, moves the log to the file and truncates it. It reports whether it could.
func (s *Store) emptyWAL(ctx context.Context, c *conn) (emptied bool, err error) {
	if err := c.run(ctx, "PRAGMA busy_timeout = "+walWaitMS); err != nil {
		return false, err
	}
	emptied, err = c.checkpoint(ctx, "TRUNCATE")
	return emptied, errors.Join(err, c.run(ctx, "PRAGMA busy_timeout = 0"))
}

// checkpoint moves the log to the file in a mode of SQLite's. It reports whether it did all that the mode asks for; if
// not, other connections were in the way.
func (c *conn) checkpoint(ctx context.Context, mode string) (done bool, err error) {
	s, err := c.prepare("PRAGMA wal_checkpoint(" + mode + ")")
	if err != nil {
		return false, err
	}
	err = s.rows(ctx, 3, func(row []driver.Value) error {
		done = row[0] == int64(0)
		return nil
	})
	if isBusy(err) {
		err = nil
	}
	return done, errors.Join(err, s.Close())
}
