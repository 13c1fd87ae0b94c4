package store

import (
	"context"
	"errors"
)

// A Scan asks for the items of the whole table, or of one of several parts of it, in no particular order. All items of a
// partition key are in one part.
type Scan struct {
	Segment    int    // the part, from 0
	Segments   int    // their number; 0 and 1 both mean the whole table
	Prefix     string // of the partition keys of the items that a page has; it looks at all others, too
	Limit      int    // items that a page looks at, at most; 0 leaves it to the store
	Consistent bool   // it sees every write that returned before it
	Continue   Cursor
}

// Validate returns an error for a scan that DynamoDB would not take.
func (s *Scan) Validate() error {
	if s.Segment < 0 || s.Segment >= max(1, s.Segments) {
		return errors.New("a scan of a part that there is not")
	}
	return nil
}

// ErrNoScan says that the store cannot read items without their keys.
var ErrNoScan = errors.New("the store has no scan")

// A Scanner is a store whose items can be read without their keys.
type Scanner interface {
	// Scan returns one page. An empty page may have a next one.
	Scan(ctx context.Context, s Scan) (Page, error)
	// Estimate returns the number of items and their size in bytes, some hours ago.
	Estimate(ctx context.Context) (items, bytes int64, err error)
}
