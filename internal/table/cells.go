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
	cellCalls   = 3             // calls of a key one after the other that are not answered, or keys of which one is not
	nearCells   = 4             // that a key may have
	cellPause   = time.Second   // between questions for silent keys, less up to a fifth
	cellForgets = 5 * cellPause // calls that were not answered, where none came later
)

// A cell is the memory of calls with a partition key. It knows one at a time: another one takes it over when the calls
// of the first are answered. A key has one of nearCells cells, or none while others have all of them.
type cell struct {
	key    atomic.Uint64          // hashed
	begun  atomic.Int64           // calls sent since one was answered last
	first  atomic.Int64           // when the first of them was sent
	watch  atomic.Int64           // when the last one of cellCalls was sent; 0 while there are fewer
	silent atomic.Pointer[string] // the key, once a call of it is not answered; its calls are refused, unless it is alone with one
}

// A cellKey is a partition key, hashed, and its cell, nil for calls without one.
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

// refuses reports whether a key is silent: several calls of it are not answered, or one, while those of other keys are not either. Calls of
// long ago tell nothing of now, and are forgotten.
func (b *Breaker) refuses(ctx context.Context, c cellKey, pk string) bool {
	if !c.isKnown() {
		return false
	}
	first, past := c.first.Load(), b.now()-time.Duration(c.first.Load())
	if first == 0 || past < b.options.Silence || ctx.Value(insistKey{}) != nil {
		return false
	}
	third := c.watch.Load()
	if c.silent.Load() != nil && (third != 0 || b.quiet.Load() >= cellCalls) {
		return true
	}
	silence := b.silence()
	if past < silence {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now()-time.Duration(max(first, third)) > cellForgets || time.Duration(first) < b.back {
		b.forget(c.cell)
		return false
	}
	if (third == 0 || b.now()-time.Duration(third) < silence/2) && !b.arePart(silence) {
		return false
	}
	b.hush(c.cell, pk) //nolint:contextcheck // questions outlive the call
	return true
}

// arePart reports whether several keys have calls that are not answered for the time of silence. The breaker is locked.
func (b *Breaker) arePart(silence time.Duration) bool {
	if b.quiet.Load() >= cellCalls {
		return true
	}
	now, keys := b.now(), 0
	for i := range b.cells {
		c := &b.cells[i]
		if first := time.Duration(c.first.Load()); first == 0 || c.begun.Load() == 0 || first < b.back {
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

// sentTo notes a call with a key.
func (b *Breaker) sentTo(c cellKey, at time.Duration) {
	if c.cell == nil {
		return
	}
	if before := c.key.Load(); before != c.hash && (c.begun.Load() != 0 || !c.key.CompareAndSwap(before, c.hash)) {
		return
	}
	switch c.begun.Add(1) {
	case 1:
		c.first.Store(int64(at))
	case cellCalls:
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
	c.first.Store(0)
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

// askNext has a silent key asked for. It asks at once, since the key may be back by the time it is noticed, or a pause
// after the question before. The breaker is locked.
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

// ask asks for a silent key. Once it is answered, the silent part is probably back as a whole, and no other key is
// asked for.
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
