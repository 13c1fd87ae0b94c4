package protocol

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Slots bound how many requests run concurrently. They are counters in the first item of a bucket, even if it is split; [bucket.Slots]
// explains them. A process keeps its slots by one write for each epoch and item. The write moves all of them to the counter of the present
// epoch. A process that ends loses them within two epochs.

// A slotKeeper renews slots that were taken, and releases them.
type slotKeeper struct {
	*core
	items *items
	looks *looks
	clock *clockAsker
}

// A Hold has the slots of one limit that a request holds. It is safe for concurrent use.
type Hold struct {
	bucket   *Bucket
	limit    string
	amount   int64 // slots
	fence    int64
	term     int64 // milliseconds
	enrolled int64 // identifies the counters that it is counted in
	lost     chan struct{}
	done     chan struct{} // closed when it is released or lost

	// Guarded by the tended slots of the bucket.
	phase    holdPhase
	reported bool          // the holder was notified of the loss
	epoch    int64         // the last epoch in which this process certainly renewed it
	due      time.Duration // when the process should renew it, by core.elapsed
	ends     time.Duration // when the hold is lost unless it is renewed
	over     bool          // a release failed, and the holder may try again
	until    time.Duration // until when the holder may try again; 0 if not known yet
}

// A holdPhase is the phase in the life of a hold.
type holdPhase uint8

const (
	held    holdPhase = iota
	leaving           // it is being released, and is not moved to another epoch
	gone              // released or lost
)

// tended has the slots of a bucket that this process holds. It is safe for concurrent use.
type tended struct {
	turn chan struct{} // holds a token while a goroutine moves or releases slots, which must know their epoch

	mu      sync.Mutex // guards what follows
	holds   []*Hold
	news    []SlotChange   // still to be reported
	leaves  []*leave       // releases that wait for the turn
	running bool           // a goroutine tends them
	changed bool           // the holds have changed since that goroutine last checked them
	late    bool           // slots were already due when they were taken
	closed  bool           // no more slots are taken
	wake    func()         // ends the sleep of the goroutine; nil while it does not sleep
	queue   *queue[*claim] // of callers that take only slots; nil before the first one
}

// A leave is a caller that releases slots.
type leave struct {
	holds []*Hold
	done  bool
	err   error
}

// retryPart is the part of a term after which a process renews again if it got no reply.
const retryPart = 4

// spreadPart is the part of a term over which the beats (renewals) of an epoch are spread, so that processes do not all write at the same
// time.
const spreadPart = 10

// errLostSlots reports that slots were written and the returned item is unreadable. The slots become free again within two terms.
var errLostSlots = errors.New("what the write of slots returned cannot be read")

// slotsOf returns the slots that a request needs of a level, nil for none.
func (l *Limits) slotsOf(amounts []bucket.Amount) (asked []bucket.Amount) {
	if len(l.Config.Slots) == 0 {
		return nil
	}
	for _, a := range amounts {
		if a.Tokens > 0 && l.Config.FindSlots(a.Limit) != nil {
			asked = append(asked, bucket.Amount{Limit: a.Limit, Tokens: a.Tokens / bucket.Slot})
		}
	}
	return asked
}

// heard notes that a write renewed the hold in an epoch, and when it was sent.
func (h *Hold) heard(c *core, epoch, now int64, sent time.Duration) {
	h.epoch = epoch
	s := bucket.Slots{Term: h.term}
	h.ends = sent + milliseconds(s.Ends(epoch)-now)
	h.due = sent + milliseconds((epoch+1)*h.term-now) + milliseconds(int64(c.table.IntN(int(min(h.term/spreadPart, math.MaxInt32))+1)))
}

// keep writes slots of an item, and remembers the returned image. It reports whether the write was applied.
func (sk *slotKeeper) keep(ctx context.Context, s *shard, from *image, call *layout.KeepCall, now int64) (*image, bool, error) {
	if from.Writes() != 0 {
		call.Tally(bucket.WriteUnits, int64(from.units())*1000)
	}
	if expiry, ok := from.SlotsUntil(now); ok {
		call.Prolong(expiry)
	}
	bound, err := call.Bind()
	if err != nil {
		return nil, false, err
	}
	return sk.items.exchange(ctx, s, store.Write{Kind: store.Update, Key: s.key, Expr: bound}, nil, sk.now())
}

// Lost returns a channel that is closed when the slots are lost or the engine is closed.
func (h *Hold) Lost() <-chan struct{} { return h.lost }

// Gone returns a channel that is closed when the slots are no longer held: they were lost or released.
func (h *Hold) Gone() <-chan struct{} { return h.done }

// Fence returns the fencing number. It is greater than the numbers of all earlier holds of the limit.
func (h *Hold) Fence() int64 { return h.fence }

// held returns the held slots of a level, each limit once.
func (t *levelReceipt) held() (amounts []bucket.Amount) {
	for _, h := range t.holds() {
		amounts = append(amounts, bucket.Amount{Limit: h.limit, Tokens: h.amount})
	}
	return amounts
}
