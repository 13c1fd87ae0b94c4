package table

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// How a silent part of the store is known by its keys.
const (
	cellCalls   = 3             // calls of a key one after the other that are not answered for the time of silence
	nearCells   = 4             // that a key may have
	cellPause   = time.Second   // between questions for silent keys, less up to a fifth
	cellForgets = 5 * cellPause // calls that were not answered, where none came later
)

// A cell is what is known of calls with a partition key. It knows one at a time: another one takes it over when the calls of the first
// are answered. A key has one of nearCells cells, or none while others have all of them.
type cell struct {
	key    atomic.Uint64          // hashed
	begun  atomic.Int64           // calls sent since one was answered last
	watch  atomic.Int64           // when so many were sent that the key may be silent, none of which is answered; 0 while calls are answered
	silent atomic.Pointer[string] // the key, once its calls are refused
}

// A cellKey is a partition key, hashed, and its cell, which is nil for calls that have none.
type cellKey struct {
	*cell
	hash uint64
}

// cellOf returns the cell of a partition key, or one that it may take over.
func (b *Breaker) cellOf(pk string) cellKey {
	if pk == "" || b.options.Ask == nil {
		return cellKey{}
	}
	hash := maphash.String(b.seed, pk)
	found := cellKey{nil, hash}
	for i := range uint64(nearCells) {
		c := &b.cells[(hash+i)%uint64(len(b.cells))]
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

// isKnown reports whether the cell has calls of the key that are not answered.
func (c cellKey) isKnown() bool {
	return c.cell != nil && c.key.Load() == c.hash && c.begun.Load() != 0
}

// refuses reports whether a key is silent. Calls of long ago tell nothing of now, and are forgotten.
func (b *Breaker) refuses(ctx context.Context, c cellKey, pk string) bool {
	if !c.isKnown() {
		return false
	}
	since, silent := c.watch.Load(), c.silent.Load() != nil
	if since == 0 || ctx.Value(insistKey{}) != nil {
		return false
	}
	past := b.now() - time.Duration(since)
	if silent || past < b.silence() {
		return silent
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if past > cellForgets || time.Duration(since) < b.back {
		b.forget(c.cell)
		return false
	}
	b.hush(c.cell, pk) //nolint:contextcheck // questions outlive the call
	return true
}

// sentTo notes a call with a key.
func (b *Breaker) sentTo(c cellKey, at time.Duration) {
	if c.cell == nil {
		return
	}
	if before := c.key.Load(); before != c.hash && (c.begun.Load() != 0 || !c.key.CompareAndSwap(before, c.hash)) {
		return
	}
	enough := int64(cellCalls)
	if b.quiet.Load() >= cellCalls {
		enough = 1
	}
	if c.begun.Add(1) >= enough {
		c.watch.CompareAndSwap(0, int64(at))
	}
}

// heard notes an answer to a call with a key, or that its calls tell nothing.
func (b *Breaker) heard(c cellKey) {
	if c.isKnown() {
		b.forget(c.cell)
	}
}

func (b *Breaker) forget(c *cell) {
	c.begun.Store(0)
	c.watch.Store(0)
	if c.silent.Load() != nil && c.silent.Swap(nil) != nil {
		b.quiet.Add(-1)
	}
}

// hush notes that a key is silent, and has the breaker ask for silent keys from now on. The breaker is locked.
func (b *Breaker) hush(c *cell, pk string) {
	if !c.silent.CompareAndSwap(nil, &pk) {
		return
	}
	if b.quiet.Add(1); !b.asking {
		b.asking = true
		b.askNext()
	}
}

// askNext has a silent key asked for: at once, since the key may be back by the time it is noticed, or a pause after the question
// before. The breaker is locked.
func (b *Breaker) askNext() {
	b.asker = b.after(b.nextAsk-b.now(), func() {
		if pk, any := b.nextSilent(); any {
			b.ask(pk)
		}
	})
}

// nextSilent returns a silent key, another one each time, and has the next one asked for after a pause. It returns false where none is
// silent any more.
func (b *Breaker) nextSilent() (pk string, any bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.cells {
		b.cursor = (b.cursor + 1) % len(b.cells)
		if silent := b.cells[b.cursor].silent.Load(); silent != nil {
			apart := time.Duration(b.options.IntN(int(cellPause/5/time.Millisecond))) * time.Millisecond // from other processes
			b.nextAsk = b.now() + cellPause - apart
			b.askNext()
			return *silent, true
		}
	}
	b.asking = false
	return "", false
}

// ask asks for a silent key. Once it is answered, what was silent is probably back as a whole, and no other key is asked for.
func (b *Breaker) ask(pk string) {
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout/2)
	defer cancel()
	switch store.OutcomeOf(b.options.Ask(ctx, pk)) {
	case store.Unavailable, store.Unknown, store.Ended:
		return
	default:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.back = b.now()
	for i := range b.cells {
		if b.cells[i].silent.Load() != nil {
			b.forget(&b.cells[i])
		}
	}
}
