package memory

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// The change stream is a log of its own, which has one partition. A write adds the old and the new item to it under the
// lock of the item's shard. The log therefore has the changes of an item in their order, and has every write that
// begins after StartStream.
//
// A reader makes the log forget applied changes. Writers trim the rest as they go. They turn the log off when it was
// not read for as long as changes are kept.
const (
	partitionID = "log"

	// retention is how long changes are kept, as DynamoDB does.
	retention = 24 * time.Hour
	// Each trimEvery-th change trims up to trimMost of the oldest ones.
	trimEvery = 256
	trimMost  = 2 * trimEvery
	// The log holds two items a change in memory, so it keeps less than a day of many changes. maxReadChanges is the bound of
	// the read changes, which a reader that starts again needs. The bound of all changes is maxChanges.
	maxReadChanges = 1 << 16
	maxChanges     = 1 << 20
)

// A changeLog is changes with ids in a row.
type changeLog struct {
	on atomic.Bool // changes with mu held

	mu                         sync.Mutex
	blocks                     []*[trimEvery]logged // of the ids that follow first
	first                      int64                // a multiple of trimEvery
	last                       int64                // the id given last
	lost                       int64                // changes were trimmed, or not logged, up to this id
	read                       int64                // the id that was returned last
	readAt                     time.Time
	maxReadChanges, maxChanges int64 // are kept
}

// A logged change is one of the log.
type logged struct {
	key      store.Key
	old, new expr.Item
	at       time.Time
	expired  bool
}

// note adds a change to the log, if it is on, before the change is made. The record of the old item is r, or nil for
// none. For a deletion next is nil.
func (s *Store) note(t *table, k store.Key, r *record, next *version, expired bool) {
	if l := &t.log; l.on.Load() {
		item, _ := next.lend() // permanently
		if old := r.image(); !item.Equal(old) {
			l.add(logged{k, old, item, s.now(), expired})
		}
	}
}

func (l *changeLog) add(c logged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on.Load() { // turned off meanwhile
		return
	}
	l.last++
	*l.slot(l.last) = c
	if l.last%trimEvery == 0 {
		l.trim(c.at)
	}
}

// slot returns where the change of an id is, which is not lost.
func (l *changeLog) slot(id int64) *logged {
	if len(l.blocks) == 0 {
		l.first = (id - 1) / trimEvery * trimEvery
	}
	i := id - 1 - l.first
	if i/trimEvery == int64(len(l.blocks)) {
		l.blocks = append(l.blocks, new([trimEvery]logged))
	}
	return &l.blocks[i/trimEvery][i%trimEvery]
}

// trim drops some of the changes that are older than the retention, or too many. It turns the log off when it was not
// read for that long.
func (l *changeLog) trim(now time.Time) {
	oldest := now.Add(-retention)
	if l.readAt.Before(oldest) {
		l.on.Store(false)
		l.last++ // a reader at the last change will miss the unlogged ones, which count as one more
		l.lost, l.blocks = l.last, nil
		return
	}
	for range trimMost {
		kept := l.last - l.lost
		if kept == 0 {
			return
		}
		c := l.slot(l.lost + 1)
		if kept <= l.maxChanges && (kept <= l.maxReadChanges || l.lost >= l.read) && !c.at.Before(oldest) {
			return
		}
		l.drop(c)
	}
}

func (l *changeLog) drop(c *logged) {
	*c = logged{}
	if l.lost++; l.lost%trimEvery == 0 {
		l.blocks[0] = nil
		l.blocks, l.first = l.blocks[1:], l.lost
	}
}

// Forget implements [store.Forgetter].
func (s *Store) Forget(ctx context.Context, id string, upTo store.Sequence) error {
	const op = "forget changes"
	t, err := s.begin(ctx)
	if err != nil {
		return failure(op, err)
	}
	until, err := strconv.ParseInt(string(upTo), 10, 64)
	if err != nil || id != partitionID {
		return failure(op, err)
	}
	l := &t.log
	l.mu.Lock()
	defer l.mu.Unlock()
	for until = min(until, l.last, l.lost+maxReadChanges); l.lost < until; {
		l.drop(l.slot(l.lost + 1))
	}
	return nil
}

// StartStream makes writes log their changes from now on.
func (s *Store) StartStream(ctx context.Context) error {
	t, err := s.begin(ctx)
	if err != nil {
		return failure("start the stream", err)
	}
	l := &t.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on.Store(true)
	l.readAt = s.now()
	return nil
}

// Partitions returns the one partition of the log, and notes that it is being read. A consumer that stands at a change
// which it cannot apply reads no others, and must find the later changes when it goes on.
func (s *Store) Partitions(ctx context.Context) ([]store.Partition, error) {
	const op = "partitions"
	t, err := s.begin(ctx)
	if err != nil {
		return nil, failure(op, err)
	}
	l := &t.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on.Load() {
		return nil, failure(op, store.ErrNoStream)
	}
	l.readAt = s.now()
	return []store.Partition{{ID: partitionID}}, nil
}

// Children returns none: the log has no end.
func (s *Store) Children(ctx context.Context, _ string) ([]store.Partition, error) {
	_, err := s.begin(ctx)
	return nil, failure("children", err)
}

// Changes reads a page of the log, and notes that it is being read.
func (s *Store) Changes(ctx context.Context, id string, at store.Position, limit int) (store.ChangePage, error) {
	const op = "changes"
	t, err := s.begin(ctx)
	if err != nil {
		return store.ChangePage{}, failure(op, err)
	}
	after := int64(0)
	if at.After != "" {
		if after, err = strconv.ParseInt(string(at.After), 10, 64); err != nil {
			return store.ChangePage{}, failure(op, err)
		}
	}
	l := &t.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on.Load() {
		return store.ChangePage{}, failure(op, store.ErrNoStream)
	}
	l.readAt = s.now()
	if id != partitionID {
		return store.ChangePage{Next: at, End: true, Gap: true}, nil
	}
	return l.page(at, after, limit), nil
}

// page returns the changes that follow an id.
func (l *changeLog) page(at store.Position, after int64, limit int) store.ChangePage {
	// A reader without a position starts where the log begins, and has lost nothing before it.
	page := store.ChangePage{Next: at, Gap: at.After != "" && after < l.lost}
	from := max(after, l.lost)
	for id := from + 1; id <= l.last && id-from <= int64(limit); id++ {
		c := l.slot(id)
		page.Changes = append(page.Changes, store.Change{
			Key: c.key, Old: c.old, New: c.new, Sequence: sequence(id), At: c.at.Round(0).UTC(), Expired: c.expired,
		})
		page.Next, l.read = store.Position{After: sequence(id)}, max(l.read, id)
	}
	if page.Gap && len(page.Changes) == 0 {
		page.Next = store.Position{After: sequence(l.lost)}
	}
	return page
}

func sequence(id int64) store.Sequence { return store.SequenceOf(strconv.FormatInt(id, 10)) }
