package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
)

// A Sequence orders the changes of one item in a stream: a later change has a greater one. It is a decimal number of 40 digits, so
// that it is compared like a string. The zero value comes before all others.
type Sequence string

// SequenceOf returns the sequence of a decimal number of at most 40 digits.
func SequenceOf(number string) Sequence {
	return Sequence(strings.Repeat("0", max(0, 40-len(number))) + number)
}

// A Change is one change of an item, as the change stream of a store reports it.
type Change struct {
	Key Key
	// Old and New are the whole item, with its key, before and after the change; nil if it did not exist.
	Old, New expr.Item
	Sequence Sequence
	// Stream names the stream where a store may have several, one after another, each with sequences of its own. A later
	// stream has a greater name of the same length.
	Stream string
	// At is the time of the change by the clock of the store. DynamoDB reports whole seconds.
	At time.Time
	// Expired says that the store deleted the item because it had expired.
	Expired bool
}

// ErrNoStream reports a table without a stream of old and new images, or a store made without access to it.
var ErrNoStream = errors.New("no change stream")

// A Partition is a part of a change stream. At any time the changes of one item go to one partition. A partition that
// ends hands its items over to its children, whose changes come after its own.
type Partition struct {
	ID     string
	Parent string // "" for none; may name a parent that the store has forgotten
}

// A Position is a place in a partition. The zero value is its beginning.
type Position struct {
	After Sequence // the change that was read last
	// Iterator is where the store itself goes on. It may be lost, or be too old, since After is enough to find the place
	// again.
	Iterator string
}

// A ChangePage is a part of a partition.
type ChangePage struct {
	Changes []Change // in the order of their sequences; may be empty before the end
	Next    Position // where to go on
	End     bool     // the partition has ended, and this is the last of it
	// Gap says that the store had forgotten a part after the position, perhaps with changes in it. The page starts with
	// the oldest change that is left.
	Gap bool
}

// A Streamer is a store that reports the changes of its items, for about a day after they were made. A transaction yields
// one change for each changed item; a write that leaves the item as it was yields none.
type Streamer interface {
	// StartStream turns the stream on where the store can do so itself. Elsewhere it returns [ErrNoStream] when the stream
	// is off. A stream that is not read for a day may be turned off again.
	StartStream(ctx context.Context) error

	// Partitions returns the partitions that can be read. It returns [ErrNoStream] when the stream is off. A call counts
	// as reading, so that a stream whose consumer stands still stays on.
	Partitions(ctx context.Context) ([]Partition, error)

	// Children returns the partitions that got the items of an ended partition, as far as the store reports them yet.
	// There are none of a partition that the store has forgotten.
	Children(ctx context.Context, partition string) ([]Partition, error)

	// Changes returns the changes of a partition that follow a position: at most limit of them. The limit is positive.
	// A partition that the store has forgotten is a page with End and Gap.
	Changes(ctx context.Context, partition string, at Position, limit int) (ChangePage, error)
}

// A Forgetter is a streamer that need not keep changes any more once they are applied.
type Forgetter interface {
	Streamer
	// Forget drops changes of a partition up to a sequence: not all of them in one call, where there are many.
	Forget(ctx context.Context, partition string, upTo Sequence) error
}
