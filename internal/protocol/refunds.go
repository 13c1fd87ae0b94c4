package protocol

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/tool/seldom"
)

// refunds returns the tokens of requests that were not admitted.
type refunds struct {
	*core
	settler *settler
	memory  *Memory
	lost    seldom.Line // tokens that could not be returned
}

// report logs that tokens could not be returned, once a minute. Unreturned counts every case.
func (rf *refunds) report(ctx context.Context, b *Bucket, requests uint64, err error) {
	rf.Unreturned.Add(requests)
	rf.lost.Log(ctx, rf.options.Logger, slog.LevelWarn, "zlimit: tokens of a request that was not admitted could not be given back",
		"entity", b.Entity, "resource", b.Resource, "requests", requests, "error", err)
}

// A pendingRefunds has tokens of requests that were not admitted, if the store did not accept their return to the bucket. It has one sum of
// amounts for each shard. The sums are returned in the background, or by the next request that falls short. It is safe for concurrent use.
type pendingRefunds struct {
	turn chan struct{} // holds a token while a goroutine returns tokens

	owes atomic.Bool // something is due

	mu      sync.Mutex // guards what follows
	due     []correction
	giving  []correction // corrections that are being written
	takes   uint64       // the number of takes in the sums
	running bool         // a background goroutine returns them
}

// amounts returns the tokens due to all shards, as amounts taken.
func (o *pendingRefunds) amounts() (total []bucket.Amount) {
	if !o.owes.Load() {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, due := range [][]correction{o.due, o.giving} {
		for i := range due {
			if sum, err := bucket.Sum(total, bucket.Negated(due[i].amounts)); err == nil {
				total = sum
			}
		}
	}
	return total
}

// add adds corrections to the due ones. It returns false if a sum overflows.
func (o *pendingRefunds) add(due []correction) bool {
	defer o.note()
	for _, c := range due {
		known := false
		for i := range o.due {
			d := &o.due[i]
			if d.shard != c.shard || !slices.Equal(d.lives, c.lives) {
				continue
			}
			sum, err := bucket.Sum(d.amounts, c.amounts)
			if err != nil {
				return false
			}
			d.amounts, known = sum, true
			break
		}
		if !known {
			o.due = append(o.due, c)
		}
	}
	return true
}

// note notes whether something is due.
func (o *pendingRefunds) note() { o.owes.Store(len(o.due)+len(o.giving) > 0) }

// leastRest and mostRest bound the time between two tries to return tokens to a bucket.
const (
	leastRest = 100 * time.Millisecond
	mostRest  = 10 * time.Second
)

// owe keeps corrections that failed, and writes them in the background. It returns false if they may have been written, and if the engine
// is closed.
func (rf *refunds) owe(ctx context.Context, b *Bucket, due []correction, failure error) bool {
	if !isRepeatable(failure) {
		return false
	}
	o := &b.pendingRefunds
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running = o.running || rf.background.Go(ctx, func(ctx context.Context) { rf.repay(ctx, b) })
	if !o.running || !o.add(due) {
		return false
	}
	o.takes++
	return true
}

// isRepeatable reports whether a correction that was not written may succeed later, given its error.
func isRepeatable(err error) bool {
	return isOutage(err) || errors.Is(err, ErrContended) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrClosed)
}

// repay returns the tokens that are due to a bucket, until none are. When the engine is closed, it tries once more, within the settle
// limit.
func (rf *refunds) repay(ctx context.Context, b *Bucket) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(rf.background.open, func() { time.AfterFunc(rf.options.SettleLimit, cancel) })() //nolint:contextcheck // it ends with the engine
	for rest := leastRest; ; rest = min(2*rest, mostRest) {
		rf.rest(ctx, b.shard(0).queue.pace, rest)
		isLast := rf.background.open.Err() != nil
		err := rf.returnDue(ctx, b)
		if b.pendingRefunds.end(isLast || err != nil && !isRepeatable(err), func(takes uint64) { rf.report(ctx, b, takes, err) }) {
			return
		}
	}
}

// end ends the work in the background if nothing is due or giveUp is set. It reports the number of takes that were given up.
func (o *pendingRefunds) end(giveUp bool, lost func(takes uint64)) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.giving) > 0 || len(o.due) > 0 && !giveUp {
		return false
	}
	if len(o.due) > 0 {
		lost(o.takes)
	}
	o.due, o.takes, o.running = nil, 0, false
	o.note()
	return true
}

// returnDue returns the tokens that are due to a bucket.
func (rf *refunds) returnDue(ctx context.Context, b *Bucket) error {
	o := &b.pendingRefunds
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	o.mu.Lock()
	s := Settlement{due: slices.Clone(o.due)}
	o.due, o.giving = nil, o.due
	o.mu.Unlock()
	err := rf.settler.settleAll(ctx, &s)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.giving = nil
	if !o.add(s.due) || IsUnknown(err) {
		rf.Unreturned.Add(1)
	}
	if len(o.due) == 0 {
		o.takes = 0
	}
	return err
}
