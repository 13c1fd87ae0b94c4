package table

import (
	"context"
	"hash/maphash"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// How a silent part of the store is known by its keys.
const (
	cellCalls   = 3             // unanswered calls in a row of a key, or keys with one unanswered call each
	nearCells   = 4             // cells that a key may use, all in one row
	cellRows    = 256           // rows of cells; each is allocated by the first call of a key in it
	rowCells    = 16            // in a row
	cellPause   = time.Second   // between probes of silent keys, less up to a fifth
	cellForgets = 5 * cellPause // after this time without further calls, unanswered calls are discarded
)

// A keyWatch tracks which partition keys of the store are silent, and probes them until one is answered. It is safe for concurrent use.
type keyWatch struct {
	*traffic
	tasks *tasks
	ask   func(ctx context.Context, pk string) error // nil where no key is watched
	intN  func(int) int
	seed  maphash.Seed
	rows  [cellRows]atomic.Pointer[cellRow] // nil where no call had a key
	quiet atomic.Int64                      // silent keys

	mu      sync.Mutex    // guards the fields below, and that keys become silent
	asking  bool          // while keys are silent
	nextAsk time.Duration // when that may be at the earliest
	back    time.Duration // when a silent key was answered last
	cursor  int           // the cell of the key that is probed next, or one before it
}

// A cell remembers the unanswered calls of one partition key. Another key may take it over once these calls are answered. A key uses one of
// nearCells cells, or none while other keys use all of them.
type cell struct {
	key    atomic.Uint64          // hashed
	begun  atomic.Int64           // calls sent since the last answer
	first  atomic.Int64           // when the first of them was sent
	watch  atomic.Int64           // when call number cellCalls was sent; 0 while there are fewer
	looked atomic.Bool            // a timer will evaluate the key without a call
	silent atomic.Pointer[string] // the key, if silent: its calls are rejected, unless only one is unanswered and few other keys are silent
}

// A cellRow has the cells for keys whose hashes share a part.
type cellRow [rowCells]cell

// A cellKey is a partition key, hashed, and its cell, nil for calls without one.
type cellKey struct {
	*cell
	hash uint64
}

// cellOf returns the cell of a partition key, or one that it may take over.
func (k *keyWatch) cellOf(pk string) cellKey {
	if pk == "" || k.ask == nil {
		return cellKey{}
	}
	hash := maphash.String(k.seed, pk)
	found, row := cellKey{nil, hash}, k.rowOf(hash)
	for i := range uint64(nearCells) {
		c := &row[(hash+i)%rowCells]
		isFree := c.begun.Load() == 0
		if !isFree && c.key.Load() == hash {
			return cellKey{c, hash}
		}
		if isFree && found.cell == nil {
			found.cell = c
		}
	}
	return found
}

// rowOf returns the row of a hashed key.
func (k *keyWatch) rowOf(hash uint64) *cellRow {
	place := &k.rows[hash/rowCells%cellRows]
	row := place.Load()
	if row == nil {
		place.CompareAndSwap(nil, new(cellRow))
		row = place.Load()
	}
	return row
}

// used returns the cells that calls had.
func (k *keyWatch) used() iter.Seq[*cell] {
	return func(yield func(*cell) bool) {
		for i := range k.rows {
			row := k.rows[i].Load()
			for j := 0; row != nil && j < rowCells; j++ {
				if !yield(&row[j]) {
					return
				}
			}
		}
	}
}

// isKnown reports whether the cell has calls of the key that are not answered.
func (c cellKey) isKnown() bool {
	return c.cell != nil && c.key.Load() == c.hash && c.begun.Load() != 0
}

// refuses reports whether a key is silent: several of its calls are unanswered, or one while calls of other keys are unanswered as well.
// Old calls prove nothing about the present, and are discarded.
func (k *keyWatch) refuses(ctx context.Context, c cellKey, pk string) bool {
	if !c.isKnown() {
		return false
	}
	first, past := c.first.Load(), k.now()-time.Duration(c.first.Load())
	if first == 0 || past < k.least || ctx.Value(insistKey{}) != nil {
		return false
	}
	third := c.watch.Load()
	if c.silent.Load() != nil && (third != 0 || k.quiet.Load() >= cellCalls) {
		return true
	}
	silence := k.silence()
	if past < silence {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.now()-time.Duration(max(first, third)) > cellForgets || time.Duration(first) < k.back {
		k.forget(c.cell)
		return false
	}
	if (third == 0 || k.now()-time.Duration(third) < silence/2) && !k.arePart(silence) {
		return false
	}
	k.hush(c.cell, pk) //nolint:contextcheck // questions outlive the call
	return true
}

// arePart reports whether several keys have calls that were unanswered for the time of silence. The watch is locked.
func (k *keyWatch) arePart(silence time.Duration) bool {
	if k.quiet.Load() >= cellCalls {
		return true
	}
	now, keys := k.now(), 0
	for c := range k.used() {
		if first := time.Duration(c.first.Load()); first == 0 || c.begun.Load() == 0 || first < k.back {
			continue
		} else if past := now - first; past < silence || past > cellForgets {
			continue
		}
		if keys++; keys >= cellCalls {
			return true
		}
	}
	return false
}

// sentTo notes that a call with a key is sent.
func (k *keyWatch) sentTo(c cellKey, at time.Duration) {
	if c.cell == nil {
		return
	}
	if before := c.key.Load(); before != c.hash && (c.begun.Load() != 0 || !c.key.CompareAndSwap(before, c.hash)) && c.key.Load() != c.hash {
		return
	}
	switch c.begun.Add(1) {
	case 1:
		c.first.Store(int64(at))
	case cellCalls:
		c.watch.CompareAndSwap(0, int64(at))
	}
}

// heard notes an answer to a call with a key, or that its calls prove nothing.
func (k *keyWatch) heard(c cellKey) {
	if c.isKnown() {
		k.forget(c.cell)
	}
}

func (k *keyWatch) forget(c *cell) {
	c.begun.Store(0)
	c.first.Store(0)
	c.watch.Store(0)
	if c.silent.Load() != nil && c.silent.Swap(nil) != nil {
		k.quiet.Add(-1)
	}
}

// unanswered notes that a call of a key ended without an answer. It reports whether the key was known to be silent.
func (k *keyWatch) unanswered(c cellKey, pk string, sent time.Duration) (known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !c.isKnown() || sent < k.back {
		return false
	}
	known = c.silent.Load() != nil
	k.hush(c.cell, pk)
	return known
}

// looks schedules an evaluation of a key for when enough time has passed since its unanswered calls, even if no call follows.
func (k *keyWatch) looks(c cellKey, pk string) {
	if !c.isKnown() || c.silent.Load() != nil || !c.looked.CompareAndSwap(false, true) {
		return
	}
	silence := k.silence()
	at := max(time.Duration(c.first.Load())+silence, time.Duration(c.watch.Load())+silence/2)
	k.tasks.after(at-k.now(), func() {
		c.looked.Store(false)
		k.refuses(context.Background(), c, pk)
	})
}

// reset discards all calls: single keys prove nothing while the whole store is silent.
func (k *keyWatch) reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.used() {
		k.forget(c)
	}
}

// hush notes that a key is silent, and starts the probes of silent keys. The watch is locked.
func (k *keyWatch) hush(c *cell, pk string) {
	if !c.silent.CompareAndSwap(nil, &pk) {
		return
	}
	if k.quiet.Add(1); !k.asking {
		k.asking = true
		k.askNext()
	}
}

// askNext probes a silent key. It does so immediately, since the key may be back by the time it is noticed, or a pause after the previous
// probe. The watch is locked.
func (k *keyWatch) askNext() {
	k.tasks.after(k.nextAsk-k.now(), func() {
		if pk, any := k.nextSilent(); any {
			k.askFor(pk)
		}
	})
}

// nextSilent returns a silent key, a different one each time, and schedules the probe of the next one after a pause. It returns false if
// none is silent any more.
func (k *keyWatch) nextSilent() (pk string, any bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for range cellRows * rowCells {
		k.cursor = (k.cursor + 1) % (cellRows * rowCells)
		row := k.rows[k.cursor/rowCells].Load()
		if row == nil {
			continue
		}
		if silent := row[k.cursor%rowCells].silent.Load(); silent != nil {
			apart := time.Duration(k.intN(int(cellPause/5/time.Millisecond))) * time.Millisecond // so that processes do not probe at the same moment
			k.nextAsk = k.now() + cellPause - apart
			k.askNext()
			return *silent, true
		}
	}
	k.asking = false
	return "", false
}

// askFor probes a silent key. Once it is answered, the whole silent part is probably back, and no other key is probed.
func (k *keyWatch) askFor(pk string) {
	err := k.tasks.bounded(k.timeout/2, func(ctx context.Context) error { return k.ask(ctx, pk) })
	switch store.OutcomeOf(err) {
	case store.Unavailable, store.Unknown, store.Ended:
		return
	default:
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.back = k.now()
	for c := range k.used() {
		if c.silent.Load() != nil {
			k.forget(c)
		}
	}
}
