package protocol

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Sleeping callers make no calls. Operators may meanwhile disable their bucket, raise its limits, reset it or top it up. So a process looks
// at each bucket that has sleepers once a second, whatever their number. A look wakes callers whose tokens are available earlier. It wakes
// all callers if a new request would be rejected with an error.

// lookEvery is the time between two looks at a bucket whose callers sleep. A caller that sleeps for less is not woken.
const lookEvery = time.Second

// soonerBy is how much earlier the tokens of a caller must be available to wake it.
const soonerBy = 100 * time.Millisecond

// sleepers has the sleeping callers of a bucket. It is safe for concurrent use.
type sleepers struct {
	mu      sync.Mutex // guards what follows
	all     []*sleeper
	watched bool // a goroutine looks at the bucket
}

// A sleeper is a caller that sleeps.
type sleeper struct {
	buckets []*Bucket
	shards  []*shard    // their images show whether the caller must sleep further
	own     bool        // its request specified the limits
	isEarly func() bool // whether the images in memory show that the caller may wake

	mu       sync.Mutex // guards what follows
	wake     func()     // ends the sleep; nil while the caller is awake
	notified bool       // a change concerns the caller
}

// notify wakes a caller. A caller that is about to sleep will not sleep.
func (s *sleeper) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notified = true; s.wake != nil {
		s.wake()
	}
}

// begin stores how to wake a caller that is about to sleep, and wakes it if it was notified before.
func (s *sleeper) begin(wake func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wake = wake; s.notified {
		wake()
	}
}

// end notes that a caller is awake, and reports whether it was notified of a change.
func (s *sleeper) end() (notified bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	notified, s.notified, s.wake = s.notified, false, nil
	return notified
}

// watch watches the buckets of a caller that is about to sleep for a time. It returns nil for a short time, and for callers that sleep by
// the clock of a test.
func (ws *Waits) watch(ctx context.Context, s *sleeper, rest time.Duration) *sleeper {
	if rest <= lookEvery || ws.options.Sleeper != nil {
		return nil
	}
	for _, b := range s.buckets {
		v := &b.asleep
		v.mu.Lock()
		v.all = append(v.all, s)
		v.watched = v.watched || ws.background.Tend(ctx, func(ctx context.Context) { ws.watchBucket(ctx, b) })
		v.mu.Unlock()
	}
	return s
}

// leave ends the watch of a caller.
func (s *sleeper) leave() {
	if s == nil {
		return
	}
	for _, b := range s.buckets {
		v := &b.asleep
		v.mu.Lock()
		if at := slices.Index(v.all, s); at >= 0 {
			last := len(v.all) - 1
			v.all[at], v.all[last] = v.all[last], nil
			v.all = v.all[:last]
		}
		v.mu.Unlock()
	}
}

// list returns the callers. If there are none, it returns false, and the goroutine that looks ends.
func (v *sleepers) list() (all []*sleeper, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.watched = len(v.all) > 0; !v.watched {
		return nil, false
	}
	return slices.Clone(v.all), true
}

// watchBucket looks at a bucket once a second while callers of it sleep, and wakes the callers that a change concerns.
func (ws *Waits) watchBucket(ctx context.Context, b *Bucket) {
	ctx, cancel := ws.background.whileOpen(ctx)
	defer cancel()
	known := b.Limits.Load()
	for {
		if ws.table.Sleep(ctx, lookEvery-lookEvery/20+time.Duration(ws.table.IntN(int(lookEvery/10)))) != nil {
			return
		}
		asleep, ok := b.asleep.list()
		if !ok {
			return
		}
		limits, refuses := ws.lookFor(ctx, b, asleep)
		changed := limits != nil && known != nil && !limits.agree(known)
		if limits != nil {
			known = limits
		}
		for _, s := range asleep {
			if refuses || changed && !s.own || s.isEarly() {
				s.notify()
			}
		}
	}
}

// agree reports whether two readings of limits lead to the same decisions, for the same levels.
func (l *Limits) agree(other *Limits) bool {
	return l.Config.Equal(&other.Config) && l.Lineage == other.Lineage && l.Within == other.Within
}

// lookFor looks at a bucket for sleeping callers, unless other calls of this process have shown it since the last look. It brings items in
// line with the stored limits, since there may be no other request that does. It returns the limits, nil if they are unknown, and whether
// any new request would be rejected, whatever its amounts.
func (ws *Waits) lookFor(ctx context.Context, b *Bucket, asleep []*sleeper) (limits *Limits, refuses bool) {
	shards, own := []*shard{b.shard(0)}, false
	for _, s := range asleep {
		own = own || s.own
		for _, sh := range s.shards {
			if sh.bucket == b && !slices.Contains(shards, sh) {
				shards = append(shards, sh)
			}
		}
	}
	began, now := ws.NextEpoch(), ws.now()
	stale := slices.DeleteFunc(slices.Clone(shards), func(s *shard) bool {
		i := s.image.Load()
		return i != nil && i.asked > 0 && now-i.askedAt >= 0 && now-i.askedAt < lookEvery.Milliseconds()*9/10
	})
	if len(stale) > 0 {
		w := ws.looks.sharing.Sharer()
		if _, err := ws.looks.lookAt(ctx, stale, &w); err != nil {
			return nil, false // nothing is known of it
		}
	}
	limits, err := ws.families.storedLimits(ctx, b, began)
	if err != nil {
		return nil, !isOutage(err) && ctx.Err() == nil
	}
	if own || limits.Config.IsEmpty() {
		return limits, false
	}
	l := level{bucket: b, limits: limits, demand: bucket.Demand{Life: ws.life(began)}, began: began}
	if states, complete := b.states(nil); complete && len(states) > 0 && !l.inLine(states, ws.now()) {
		_, _ = ws.judge.aligner.viewInLine(ctx, &l, ws.looks.seenSince(began)) // the next look tries again
	}
	return limits, false
}

// sleepOn is [Waits.Sleep] for a caller that may be woken, and reports whether it was. The sleeper is nil for a caller that is never woken.
func (ws *Waits) sleepOn(ctx context.Context, s *sleeper, d time.Duration) (woken bool, err error) {
	if s == nil {
		return false, ws.Sleep(ctx, d)
	}
	asleep, wake := context.WithCancel(ctx)
	defer wake()
	s.begin(wake)
	err = ws.Sleep(asleep, d)
	if woken = s.end(); woken && ctx.Err() == nil && ws.background.open.Err() == nil {
		err = nil
	}
	return woken, err
}

// SleepUnlessChanged waits for a time after a rejection. It returns earlier if the limits or the balances of the buckets have changed so
// that another try may succeed.
func (ws *Waits) SleepUnlessChanged(ctx context.Context, d time.Duration, e *RejectedError) error {
	if e == nil {
		return ws.Sleep(ctx, d)
	}
	s := &sleeper{}
	for i := range e.Levels {
		b := ws.memory.Bucket(e.Levels[i].Entity, e.Levels[i].Resource)
		s.buckets, s.shards = append(s.buckets, b), append(s.shards, b.shard(0))
	}
	s.isEarly = func() bool { return e.mayPass(s.shards) }
	w := ws.watch(ctx, s, d)
	defer w.leave()
	_, err := ws.sleepOn(ctx, w, d)
	return err
}

// mayPass reports whether the items of the levels of a rejection now have enough of the limits that were short.
func (e *RejectedError) mayPass(shards []*shard) bool {
	short := false
	for i := range e.Levels {
		image := shards[i].image.Load()
		for _, s := range e.Levels[i].Statuses {
			if !s.Short || s.Mode != bucket.Enforced {
				continue
			}
			short = true
			if image == nil || image.exists && !image.mayHave(&s) {
				return false
			}
		}
	}
	return short
}

// mayHave reports whether an image has what a status lacked. In a split bucket, the image is of one shard.
func (i *image) mayHave(s *bucket.Status) bool {
	for at := range i.Limits {
		if of := &i.Limits[at]; of.Name == s.Name {
			return of.Tokens >= (s.Requested+s.Kept)/int64(i.Count())
		}
	}
	return false
}

// A wake evaluates the state of the buckets for a caller that has slept.
type wake struct {
	waits    *Waits
	judge    *judge
	receipt  *Receipt
	receipts []levelReceipt // the receipt's when the caller fell asleep
	limits   []*Limits      // for each level receipt, when the caller fell asleep
}

func newWake(ws *Waits, ju *judge, r *Receipt) wake {
	w := wake{ws, ju, r, r.levels, make([]*Limits, len(r.levels))}
	for i := range r.levels {
		w.limits[i] = r.levels[i].limits
	}
	return w
}

// sleeper returns the caller of the receipt as a sleeper until a reading of Elapsed.
func (w *wake) sleeper(until func() time.Duration) *sleeper {
	s := &sleeper{isEarly: func() bool {
		rest, known := w.rest()
		return known && w.waits.after(rest)+soonerBy < until()
	}}
	for i := range w.receipts {
		t := &w.receipts[i]
		s.own = s.own || t.limits.Own
		s.buckets = append(s.buckets, t.bucket)
		for j := range t.bookings() {
			s.shards = append(s.shards, t.bookings()[j].shard)
		}
	}
	return s
}

// rest returns the time until the tokens are available, from the images in memory. It returns false if they do not show it. A bucket that
// is bypassed now needs no wait.
func (w *wake) rest() (longest time.Duration, known bool) {
	now := w.judge.now()
	for i := range w.receipts {
		t := &w.receipts[i]
		if limits := t.bucket.Limits.Load(); limits != nil && limits.Config.Bypass {
			continue
		}
		for j := range t.bookings() {
			b := &t.bookings()[j]
			rest, known := b.restBy(b.shard.image.Load(), t.amountsOf(b.shard), now)
			if !known {
				return 0, false
			}
			longest = max(longest, rest)
		}
	}
	return longest, true
}

// restBy returns the time until amounts are available, from a later image of the shard. It returns false if there is no image, or if the
// bucket was split. A missing item, and an item that was created again, have no debt.
func (b *booking) restBy(i *image, amounts []bucket.Amount, now int64) (rest time.Duration, known bool) {
	switch {
	case b.image == nil || i == nil:
		return 0, false
	case !i.exists:
		return 0, true
	case i.Count() != b.image.Count():
		return 0, false
	case i.Writes() < b.image.Writes() && i.RefilledAt > b.image.RefilledAt:
		return 0, true
	case !i.newer(b.image):
		i = b.image
	}
	return milliseconds(i.DueSince(&b.image.State, amounts, b.after) - i.timeAt(now)), true
}

// refusal returns the error of a new request if the buckets are disabled now, or have other limits, and nil if it would get no error.
// Buckets that cannot be read count as unchanged.
func (w *wake) refusal(ctx context.Context) error {
	asks := false
	for i := range w.receipts {
		t := &w.receipts[i]
		first := t.bucket.shard(0).image.Load()
		known := t.bucket.Limits.Load()
		asks = asks || first != nil && first.exists && first.Disabled ||
			known != nil && (known.Disabled || t.bucket.outdates(known) || !t.limits.Own && !known.Config.Equal(&t.limits.Config))
	}
	if !asks || len(w.receipts) == 0 {
		return nil
	}
	r := w.receipt.Request(w.receipt.rest().asked)
	if _, err := w.judge.families.levels(ctx, &r, w.judge.NextEpoch(), nil); err != nil && !isOutage(err) && store.OutcomeOf(err) != store.Ended {
		return err
	}
	return nil
}
