package protocol

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// Callers of a process that wait for slots of a bucket stand in a line. When the process gives slots back, those ask for whom they are
// enough, in the order of the line. Now and then the first one looks, since other processes give back as well. So a process looks as often
// as one caller would, however many wait.
//
// The first one is passed by smaller requests for no longer than [slotTurn]. After that, the others of its process leave the slots that come
// free. Where other processes hold slots, it then claims its slots in the item, and they leave them as well; see slots_claim.go.

// A slotLine has the callers of this process that wait for slots of a bucket, in the order in which they came. It is
// safe for concurrent use.
type slotLine struct {
	mu     sync.Mutex // guards what follows
	places []*Place
	asking int           // callers who ask for slots that were free
	served time.Duration // when the first one last had its slots, or when the line began, by core.elapsed
	serves int           // callers who had their slots
	claims int           // as serves when this process last claimed slots

	claimedAt    time.Duration // when slots were last seen to be claimed, by core.elapsed; 0 for never
	claimedFence int64         // the last fencing number then
}

// A Place is that of a caller in the line of a bucket. It is not safe for concurrent use.
type Place struct {
	*core
	waits  *Waits
	bucket *Bucket
	asks   []bucket.Amount // slots of each limit
	alone  bool            // it asks for slots of the bucket, and for no tokens
	woken  chan struct{}   // holds a token when the caller is to ask for its slots
	probe  time.Duration
	life   int64 // of a claim, milliseconds
	number int64 // of the caller, in the order in which they came

	// Guarded by the line.
	first    time.Duration // since when it is the first one, by core.elapsed; -1 while it is not
	asking   bool          // for its slots, which were free
	handing  bool          // slots are being handed to it
	hands    []*Hold       // slots that were handed to it, and that it has not taken yet; nil for none
	declined bool          // it gave back slots that were handed to it
	gone     bool          // it has left the line
}

const (
	// The first caller of a line looks again after a part of the term, with jitter: other processes may have given slots
	// back.
	probePart  = 50
	leastProbe = 100 * time.Millisecond
	mostProbe  = time.Second
	// slotTurn is how long the first caller of a line is passed by others at most, of its process and of other ones.
	slotTurn = 500 * time.Millisecond
	// claimProbe is the mean time between the looks of a process for which slots are kept.
	claimProbe = 50 * time.Millisecond
	// A claim ends after a part of the term unless it is renewed, so that a process which has ended keeps nothing from others for long.
	claimPart = 5
	leastLife = 2 * time.Second
)

// ShortSlots are the slots of a bucket that refuse a request.
type ShortSlots struct {
	Entity, Resource string
	Term             time.Duration
	Asks             []bucket.Amount // slots of each limit of the bucket
	Alone            bool            // the request asks for no tokens of the bucket
}

// ShortOfSlots returns the bucket whose slots refuse a request; false where no slots do. Slots that there are too few of altogether are not
// waited for.
func (e *RejectedError) ShortOfSlots() (short ShortSlots, ok bool) {
	for _, l := range e.Levels {
		var asks []bucket.Amount
		isShort, isAlone := false, true
		term := time.Duration(0)
		for _, s := range l.Statuses {
			if s.Term <= 0 || s.Requested <= 0 {
				isAlone = isAlone && s.Requested == 0
				continue
			}
			if s.Wait == bucket.Never {
				return ShortSlots{}, false
			}
			asks = append(asks, bucket.Amount{Limit: s.Name, Tokens: s.Requested / bucket.Slot})
			if s.Short {
				isShort, term = true, milliseconds(s.Term)
			}
		}
		if isShort && !ok {
			short, ok = ShortSlots{l.Entity, l.Resource, term, asks, isAlone}, true
		}
	}
	return short, ok
}

// Join adds a caller to the line of a bucket's callers that wait for slots. The caller leaves the line in the end. A caller that comes from
// another line, of another level that rejected it, stands before those that came later: at the end of each line, it might never be served by
// both. Its former place is nil without one.
func (ws *Waits) Join(short ShortSlots, former *Place) *Place {
	b := ws.memory.Bucket(short.Entity, short.Resource)
	p := &Place{
		core: ws.core, waits: ws, bucket: b, asks: short.Asks, alone: short.Alone, woken: make(chan struct{}, 1), first: -1,
		probe: min(max(short.Term/probePart, leastProbe), mostProbe), life: max(short.Term/claimPart, leastLife).Milliseconds(),
	}
	b.line.mu.Lock()
	defer b.line.mu.Unlock()
	if former != nil {
		p.number = former.number
	} else {
		p.number = ws.NextEpoch()
	}
	b.line.stand(p)
	return p
}

// IsFor reports whether a place is one for some slots; false for none.
func (p *Place) IsFor(short ShortSlots) bool {
	return p != nil && p.bucket.is(p.waits.memory.Bucket(short.Entity, short.Resource)) && slices.Equal(p.asks, short.Asks)
}

// stand puts a caller in the line, before the callers that came later. The line is locked.
func (l *slotLine) stand(p *Place) {
	at, found := slices.BinarySearchFunc(l.places, p.number, func(other *Place, number int64) int { return cmp.Compare(other.number, number) })
	if found {
		return
	}
	p.gone, p.declined = false, false
	if l.places = slices.Insert(l.places, at, p); at > 0 {
		return
	}
	if len(l.places) == 1 {
		l.served = p.elapsed()
	} else {
		l.places[1].first = -1
	}
	l.promote(p)
}

// promote makes a caller the first one of a line, which is locked.
func (l *slotLine) promote(p *Place) {
	p.first = p.elapsed()
	p.wake()
}

// Await waits until the caller is to ask for slots, or a time is over. It ends with the context, or with [ErrClosed] when the
// engine is closed. The first caller of a line looks at the slots meanwhile: one consistent read each time.
func (p *Place) Await(ctx context.Context, rest time.Duration) error {
	p.hasAsked()
	until := p.after(rest)
	caller := ctx
	ctx, end := p.waits.Bound(ctx, until)
	defer end()
	for {
		pause, isFirst := until-p.elapsed(), p.isFirst()
		if isFirst {
			pause = min(pause, p.claim(ctx))
		}
		if woken, err := p.sleepUnlessWoken(ctx, pause); woken || err != nil || p.elapsed() >= until {
			if caller.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
				err = nil // the time is over
			}
			if !woken && err == nil { // the time of others may be over at the same moment
				return p.table.Yield(caller)
			}
			return err
		}
		if isFirst && p.mayAsk(ctx) {
			return nil
		}
	}
}

// hasAsked notes that the caller does not ask any more, and stands in the line.
func (p *Place) hasAsked() {
	p.bucket.line.mu.Lock()
	defer p.bucket.line.mu.Unlock()
	p.bucket.line.asked(p)
	p.bucket.line.stand(p)
}

// asked notes that a caller does not ask any more. The line is locked.
func (l *slotLine) asked(p *Place) {
	if p.asking {
		p.asking = false
		l.asking--
	}
}

// isFirst reports whether the caller is the first one of its line.
func (p *Place) isFirst() bool {
	p.bucket.line.mu.Lock()
	defer p.bucket.line.mu.Unlock()
	return p.first >= 0
}

// mayAsk looks at the slots, and reports whether the caller may ask for its own: they are free, or could not be looked at, or their bucket or
// their limits have changed.
func (p *Place) mayAsk(ctx context.Context) bool {
	i, err := p.waits.looks.lookSince(ctx, p.bucket.shard(0), p.NextEpoch())
	if err != nil || !i.exists || i.Disabled || i.hasSlots(p.asks, p.slotNow()) {
		return true
	}
	known, err := p.options.Source.For(ctx, p.bucket)
	return err != nil || known.Disabled || p.bucket.outdates(known) || slices.ContainsFunc(p.asks, func(a bucket.Amount) bool {
		of, s := known.Config.FindSlots(a.Limit), i.FindSlots(a.Limit)
		return of == nil || s == nil || s.Capacity != of.Slots || s.Term != of.Term && s.ChangesTerm()
	})
}

// hasSlots reports whether an image has free slots at a time.
func (i *image) hasSlots(asks []bucket.Amount, now int64) bool {
	return !slices.ContainsFunc(asks, func(a bucket.Amount) bool {
		s := i.FindSlots(a.Limit)
		return s != nil && s.FreeAt(now) < a.Tokens
	})
}

// sleepUnlessWoken sleeps for a time, and reports whether the caller was woken to ask.
func (p *Place) sleepUnlessWoken(ctx context.Context, d time.Duration) (woken bool, err error) {
	if d <= 0 {
		return false, ctx.Err()
	}
	asleep, wake := context.WithCancel(ctx)
	defer wake()
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-p.woken:
			woken = true
			wake()
		case <-p.background.open.Done():
			wake()
		case <-stop:
		}
	})
	sleep := p.table.Sleep
	if s := p.options.Sleeper; s != nil {
		sleep = s.Sleep
	}
	_ = sleep(asleep, d)
	close(stop)
	watching.Wait()
	if p.background.open.Err() != nil {
		return false, ErrClosed
	}
	return woken, ctx.Err()
}

// StepAside removes the caller from the line until it waits for slots again: another level rejects its request. Meanwhile it keeps no slots
// from the callers behind it. It comes back before them.
func (p *Place) StepAside(ctx context.Context) { p.Leave(ctx, false) }

// Leave removes the caller from the line, with its slots or without. The next one is then the first.
func (p *Place) Leave(ctx context.Context, served bool) {
	if p == nil {
		return
	}
	l := &p.bucket.line
	l.mu.Lock()
	at := slices.Index(l.places, p)
	if at < 0 {
		l.mu.Unlock()
		return
	}
	l.asked(p)
	hands := p.hands
	p.gone, p.hands = true, nil
	if served {
		l.serves++
	}
	if served && at == 0 {
		l.served = p.elapsed()
	}
	if l.places = slices.Delete(l.places, at, at+1); at == 0 && len(l.places) > 0 {
		l.promote(l.places[0])
	}
	isLast := len(l.places) == 0
	l.mu.Unlock()
	p.giveBack(ctx, hands)
	switch i := p.bucket.shard(0).image.Load(); {
	case isLast:
		p.unclaim(ctx)
	case served && i != nil: // the rest of what is free is for those behind
		l.free(p.core, i)
	}
}

// wake makes the caller ask.
func (p *Place) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// free wakes callers of the line for whom an image shows free slots. The image is nil if it is unknown, after this process has given slots
// back. Others pass a caller for whom they are not enough, unless it is the first one, and has been for [slotTurn].
func (l *slotLine) free(c *core, i *image) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.places) == 0 {
		return
	}
	if i == nil || !i.exists {
		l.places[0].wake()
		return
	}
	now := c.slotNow()
	left := map[string]int64{}
	for n := range i.Slots() {
		left[i.Slots()[n].Name] = i.Slots()[n].FreeAt(now)
	}
	for _, p := range l.places {
		for _, a := range p.asks {
			if p.asking {
				left[a.Limit] -= a.Tokens
			}
		}
	}
	for at, p := range l.places {
		if p.asking || p.handing || len(p.hands) > 0 {
			continue
		}
		fits := !slices.ContainsFunc(p.asks, func(a bucket.Amount) bool {
			free, known := left[a.Limit]
			return known && free < a.Tokens
		})
		isOut := true
		for _, a := range p.asks {
			if fits {
				left[a.Limit] -= a.Tokens
			}
			isOut = isOut && left[a.Limit] <= 0
		}
		switch {
		case fits:
			p.asking = true
			l.asking++
			p.wake()
		case at == 0 && l.isDue(c):
			return
		}
		if isOut {
			return
		}
	}
}

// isDue reports whether the first caller of a line is not passed any more. The line is locked.
func (l *slotLine) isDue(c *core) bool { return c.elapsed()-l.places[0].first >= slotTurn }

// keeps returns the slots that the line keeps from a caller of its process, nil for none: the slots of its first caller when that is due,
// and of callers who have been woken for theirs. The place is the caller's, nil for one that does not stand in line.
func (l *slotLine) keeps(c *core, p *Place) (kept []bucket.Amount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.places) == 0 || l.places[0] == p {
		return nil
	}
	if first := l.places[0]; l.isDue(c) && !first.handing && len(first.hands) == 0 {
		kept = append(kept, first.asks...)
	}
	left := l.asking
	for at, other := range l.places {
		if left == 0 {
			break
		}
		if !other.asking {
			continue
		}
		if left--; other == p {
			break // those behind it came later
		}
		if at > 0 || len(kept) == 0 {
			kept, _ = bucket.Sum(kept, other.asks)
		}
	}
	return kept
}
