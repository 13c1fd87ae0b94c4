package protocol

import (
	"context"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A lister enters buckets into the index of their resource, in the background and one after another. All buckets of a resource
// have one key there, which takes a thousand writes a second. The creation of a bucket leaves that index alone, so that no other
// new bucket stands in its way. A process enters two new buckets in ten seconds, and the others when they are refilled for the first
// time. In a flood of names that are used once most are never entered. A throttled entry makes the next ones wait. It is made up
// for, as any that is lost: each refill looks whether the bucket is entered.
type lister struct {
	mu      sync.Mutex // guards what follows
	waiting []*shard   // in the order in which they came
	running bool       // a goroutine enters those that wait
	span    int64      // the last one in which a new bucket came, counted since the epoch
	created int        // new buckets of that span

	pace pace
}

const (
	mostListings = 1000                  // that wait
	listingDelay = time.Second           // before the first entry
	listingGap   = 20 * time.Millisecond // between two entries
	lastListings = 8                     // while the engine is being closed
	newListings  = 2                     // of buckets that were not refilled yet, in a span
	newSpan      = 10 * time.Second
)

// unlist takes a new item that a write puts out of indexes that have one key for many buckets. In a mixed fleet other programs may
// ask for it there at once.
func (it *items) unlist(w *store.Write) {
	if w.Kind == store.Put && it.table.Partitioned() && !it.options.Mixed {
		w.Item = layout.Unlisted(w.Item)
	}
}

// list has an item that was created or refilled entered into the index of its resource, unless its image shows that it is, or
// too many wait.
func (e *Engine) list(ctx context.Context, s *shard, i *image, created bool) {
	if !e.options.Listing || i.listed || !i.exists || !s.listing.CompareAndSwap(false, true) {
		return
	}
	q := &e.lister
	q.mu.Lock()
	defer q.mu.Unlock()
	if created && !q.admits(e.now()) || len(q.waiting) == mostListings || !q.running && !e.Begin() {
		s.listing.Store(false)
		return
	}
	q.waiting = append(q.waiting, s)
	if !q.running {
		q.running = true
		go e.listAll(context.WithoutCancel(ctx))
	}
}

// admits reports whether a new bucket is entered at a time, in epoch milliseconds.
func (q *lister) admits(now int64) bool {
	if span := now / newSpan.Milliseconds(); span != q.span {
		q.span, q.created = span, 0
	}
	q.created++
	return q.created <= newListings
}

// listAll enters those that wait, until none does. While the engine is being closed only some are entered, without a
// pause, until one fails.
func (e *Engine) listAll(ctx context.Context) {
	defer e.End()
	q := &e.lister
	last := lastListings
	for e.rest(ctx, &q.pace, listingDelay); ; e.rest(ctx, &q.pace, listingGap) {
		if e.open.Err() != nil {
			if last--; last < 0 {
				return
			}
		}
		s := q.first()
		if s == nil {
			return
		}
		switch err := e.enterIndex(ctx, s); {
		case err == nil:
			q.pace.ended(&e.items)
		case e.open.Err() != nil:
			return
		case IsThrottled(err):
			q.pace.throttle(e.sinceStart(), e.table.IntN)
		default:
			e.options.Logger.Debug("zlimit: a bucket could not be entered into an index", "key", s.key.PK, "error", err)
		}
	}
}

// first takes the first item that waits. It returns nil when none does, and the goroutine then ends.
func (q *lister) first() *shard {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.running = false
		return nil
	}
	s := q.waiting[0]
	q.waiting = q.waiting[1:]
	s.listing.Store(false)
	return s
}

// enterIndex enters an item into the index of its resource, if it still exists.
func (it *items) enterIndex(ctx context.Context, s *shard) error {
	w, err := s.List()
	if err != nil {
		return err
	}
	known, by := s.image.Load(), it.newCall()
	result, err := it.table.Write(ctx, w)
	if err != nil {
		return err
	}
	w.Expr.Release()
	_, err = it.observe(s, result.Item, by, known)
	result.Release()
	return err
}
