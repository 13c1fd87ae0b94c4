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

// Slots bound how many requests are at work concurrently. They are counters in the first item of a bucket, also of a split
// one; [bucket.Slots] explains them. A process goes on holding its slots by a write for each epoch and item. The write
// moves all of them to the counter of the present epoch. A process that ends loses them within two epochs.

// A slotKeeper goes on holding slots that were taken, and gives them back.
type slotKeeper struct {
	*core
	items *items
	looks *looks
	clock *clockAsker
}

// A Hold has the slots of a request, of one limit. It is safe for concurrent use.
type Hold struct {
	bucket   *Bucket
	limit    string
	amount   int64 // slots
	fence    int64
	term     int64 // milliseconds
	enrolled int64 // by which counters it is held
	lost     chan struct{}
	done     chan struct{} // closed when it is given back, or lost

	// Guarded by the tended slots of the bucket.
	phase    holdPhase
	reported bool          // that it is lost
	epoch    int64         // in which this process last renewed for certain
	due      time.Duration // when it is to renew, by core.elapsed
	ends     time.Duration // when the hold is lost unless it is
	over     bool          // its holder could not give it back, and may try again
	until    time.Duration // how long the holder has for that; 0 before that is known
}

// A holdPhase is how far a hold has come.
type holdPhase uint8

const (
	held    holdPhase = iota
	leaving           // it is being given back, and is not moved to another epoch meanwhile
	gone              // given back, or lost
)

// tended are the slots of a bucket that this process holds. It is safe for concurrent use.
type tended struct {
	turn chan struct{} // holds a token while a goroutine moves slots or gives them back: which epoch they count in must be known

	mu      sync.Mutex // guards what follows
	holds   []*Hold
	news    []SlotChange   // still to be reported
	leaves  []*leave       // that wait for the turn
	running bool           // a goroutine tends them
	changed bool           // since that goroutine looked at them last
	late    bool           // slots were taken that are due already
	closed  bool           // none are taken any more
	wake    func()         // ends the sleep of the goroutine; nil while it does not sleep
	queue   *queue[*claim] // of callers who take slots alone; nil before the first one
}

// A leave is a caller that gives slots back.
type leave struct {
	holds []*Hold
	done  bool
	err   error
}

// retryPart is the part of a term after which a process tries again to renew, where no reply came.
const retryPart = 4

// spreadPart is the part of a term over which the beats of an epoch are spread, so that processes do not all write at
// the same time.
const spreadPart = 10

// errLostSlots says that a bucket was written and the returned item cannot be read. The slots are free again in two
// terms.
var errLostSlots = errors.New("what the write of slots returned cannot be read")

// slotsOf returns the slots that a request asks of a level; nil for none.
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

// heard notes a beat of the process in an epoch, by a write that was sent at a time.
func (h *Hold) heard(c *core, epoch, now int64, sent time.Duration) {
	h.epoch = epoch
	s := bucket.Slots{Term: h.term}
	h.ends = sent + milliseconds(s.Ends(epoch)-now)
	h.due = sent + milliseconds((epoch+1)*h.term-now) + milliseconds(int64(c.table.IntN(int(min(h.term/spreadPart, math.MaxInt32))+1)))
}

// keep writes slots of an item, and remembers the image that the store returned. It returns whether the write was applied.
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

// Lost returns a channel that is closed when the slots are lost, or the engine was closed.
func (h *Hold) Lost() <-chan struct{} { return h.lost }

// Gone returns a channel that is closed when the slots are held no more, whether they were lost or given back.
func (h *Hold) Gone() <-chan struct{} { return h.done }

// Fence returns the fencing number: it is greater than that of all who held slots of the limit before.
func (h *Hold) Fence() int64 { return h.fence }

// held returns the held slots of a level, each limit once.
func (t *levelReceipt) held() (amounts []bucket.Amount) {
	for _, h := range t.holds() {
		amounts = append(amounts, bucket.Amount{Limit: h.limit, Tokens: h.amount})
	}
	return amounts
}
