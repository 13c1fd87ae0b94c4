package protocol

import (
	"context"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A lister enters buckets into the index of their resource, in the background and one after another. All buckets of a resource have one key
// there, which sustains a thousand writes a second. The creation of a bucket does not write that index, so other new buckets cannot delay
// it. A process enters two new buckets per ten seconds immediately. It enters the others when a request or a settlement first refills them,
// leaves them in debt, or is rejected by them. In a flood of names that are used once, most buckets are never entered. A throttled entry
// delays the next ones. If an entry is lost, the next refill, debt or rejection enters the bucket.
type lister struct {
	*core
	items *items

	mu      sync.Mutex // guards what follows
	waiting []*shard   // in the order of arrival
	running bool       // a goroutine enters those that wait
	span    int64      // the last span with a new bucket, counted since the epoch
	created int        // new buckets of that span

	pace pace
}

const (
	mostListings = 1000                  // the most that wait
	listingDelay = time.Second           // before the first entry
	listingGap   = 20 * time.Millisecond // between two entries
	lastListings = 8                     // the most while the engine is being closed
	newListings  = 2                     // of buckets without a refill so far, in a span
	newSpan      = 10 * time.Second
)

// unlist takes a new item out of the indexes with one key for many buckets. In a mixed fleet it does not, since other programs may look for
// the item there immediately.
func (it *items) unlist(w *store.Write) {
	if w.Kind == store.Put && it.table.Partitioned() && !it.options.Mixed {
		w.Item = layout.Unlisted(w.Item)
	}
}

// listWritten enters an item into the index of its resource after a plan was written to it. It does nothing if the write neither refilled
// the item nor left it in debt.
func (ls *lister) listWritten(ctx context.Context, s *shard, i *image, kind bucket.Kind) {
	if !i.listed {
		ls.listUnlisted(ctx, s, i, kind)
	}
}

// listUnlisted is [lister.listWritten] for an item that is not in the index.
func (ls *lister) listUnlisted(ctx context.Context, s *shard, i *image, kind bucket.Kind) {
	if owes := i.InDebt(i.seenAt); owes || kind != bucket.Spend {
		ls.list(ctx, s, i, kind == bucket.Create && !owes)
	}
}

// listRejected enters the items of a bucket into the index of their resource after a rejection. Their next refill may be far away, and
// nothing else would list them before it.
func (ls *lister) listRejected(ctx context.Context, b *Bucket) {
	b.walk((*shard).last, func(s *shard, i *image) {
		if i != nil {
			ls.list(ctx, s, i, false)
		}
	})
}

// list enters an item into the index of its resource in the background. It does nothing if the image shows the entry, if too many items
// wait, or if too many items were created in the same span.
func (ls *lister) list(ctx context.Context, s *shard, i *image, created bool) {
	if !ls.options.Listing || i.listed || !i.exists || !s.listing.CompareAndSwap(false, true) {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if created && !ls.admits(ls.now()) || len(ls.waiting) == mostListings || !ls.runs(ctx) {
		s.listing.Store(false)
		return
	}
	ls.waiting = append(ls.waiting, s)
}

// runs starts the goroutine that enters items, unless it is running. It returns false if the engine is closed. The lister is locked.
func (ls *lister) runs(ctx context.Context) bool {
	ls.running = ls.running || ls.background.Go(ctx, ls.listAll)
	return ls.running
}

// admits reports whether a new bucket is entered at a time, in epoch milliseconds.
func (ls *lister) admits(now int64) bool {
	if span := now / newSpan.Milliseconds(); span != ls.span {
		ls.span, ls.created = span, 0
	}
	ls.created++
	return ls.created <= newListings
}

// listAll enters the waiting items, until none is left. While the engine is being closed, it enters only some, without pauses, until one
// fails.
func (ls *lister) listAll(ctx context.Context) {
	last := lastListings
	for ls.rest(ctx, &ls.pace, listingDelay); ; ls.rest(ctx, &ls.pace, listingGap) {
		if ls.background.open.Err() != nil {
			if last--; last < 0 {
				return
			}
		}
		s := ls.first()
		if s == nil {
			return
		}
		switch err := ls.items.enterIndex(ctx, s); {
		case err == nil:
			ls.pace.ended(ls.core)
		case ls.background.open.Err() != nil:
			return
		case IsThrottled(err):
			ls.pace.throttle(ls.sinceStart(), ls.table.IntN)
		default:
			ls.options.Logger.Debug("zlimit: a bucket could not be entered into an index", "key", s.key.PK, "error", err)
		}
	}
}

// first takes the first waiting item. It returns nil if there is none, and the goroutine then ends.
func (ls *lister) first() *shard {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(ls.waiting) == 0 {
		ls.running = false
		return nil
	}
	s := ls.waiting[0]
	ls.waiting = ls.waiting[1:]
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
	it.observe(s, &result, by, known)
	result.Release()
	return nil
}
