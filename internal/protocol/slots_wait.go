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

// Callers of a process that wait for slots of a bucket form a line. When the process releases slots, the callers that the free slots
// suffice for try again, in the order of the line. From time to time the first caller looks, since other processes release slots as well.
// So a process looks as often as one caller would, however many wait.
//
// Smaller requests may overtake the first caller for at most [slotTurn]. After that, the other callers of its process leave it the slots
// that become free. If other processes hold slots, it then claims its slots in the item, so that these processes leave them too; see
// slots_claim.go.

// A slotLine has the callers of this process that wait for slots of a bucket, in the order of their arrival. It is safe for concurrent use.
type slotLine struct {
	mu     sync.Mutex // guards what follows
	places []*Place
	asking int           // callers that are trying to take free slots
	served time.Duration // when a first caller last got its slots, or when the line began, by core.elapsed
	serves int           // callers that got their slots
	claims int           // the value of serves when this process last claimed slots

	claimedAt    time.Duration // when a claim was last seen, by core.elapsed; 0 for never
	claimedFence int64         // the last fencing number then
}

// A Place is the place of a caller in the line of a bucket. It is not safe for concurrent use.
type Place struct {
	*core
	waits  *Waits
	bucket *Bucket
	asks   []bucket.Amount // slots of each limit
	alone  bool            // the request needs slots of the bucket, and no tokens
	woken  chan struct{}   // holds a token when the caller should try to take its slots
	probe  time.Duration
	life   int64 // of a claim, milliseconds
	number int64 // of the caller, in the order of arrival

	// Guarded by the line.
	first    time.Duration // when it became the first one, by core.elapsed; -1 while it is not
	asking   bool          // it is trying to take its slots, which were free
	handing  bool          // slots are being handed to it
	hands    []*Hold       // slots that were handed to it and not taken yet; nil for none
	declined bool          // it released slots that were handed to it
	gone     bool          // it has left the line
}

const (
	// The first caller of a line looks again after a part of the term, with jitter, since other processes may have released slots.
	probePart  = 50
	leastProbe = 100 * time.Millisecond
	mostProbe  = time.Second
	// slotTurn is the longest time for which other callers, of any process, may overtake the first caller of a line.
	slotTurn = 500 * time.Millisecond
	// claimProbe is the mean time between the looks of a process for which slots are kept.
	claimProbe = 50 * time.Millisecond
	// A claim ends after a part of the term unless it is renewed, so that slots are not kept for long for a process that has ended.
	claimPart = 5
	leastLife = 2 * time.Second
)

// ShortSlots are the slots of a bucket that are too few for a request.
type ShortSlots struct {
	Entity, Resource string
	Term             time.Duration
	Asks             []bucket.Amount // requested slots of each limit of the bucket
	Alone            bool            // the request needs no tokens of the bucket
}

// ShortOfSlots returns the bucket whose slots reject a request. It returns false if no slots do, or if the bucket will never have enough
// slots.
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

// Join adds a caller to the line of a bucket's callers that wait for slots. The caller must leave the line later. A caller from the line of
// another level goes before the callers that arrived later: if it joined at the end each time, it might never get both. Former is its place
// in that line, nil for none.
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

// IsFor reports whether a place is in the line for the given slots. It returns false for a nil place.
func (p *Place) IsFor(short ShortSlots) bool {
	return p != nil && p.bucket.is(p.waits.memory.Bucket(short.Entity, short.Resource)) && slices.Equal(p.asks, short.Asks)
}

// stand puts a caller in the line, before the callers that arrived later. The line is locked.
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

// Await waits until the caller should try to take slots, or a time has passed. It ends with the context, or with [ErrClosed] when the
// engine is closed. The first caller of a line looks at the slots meanwhile, with one consistent read each time.
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
				err = nil // the time has passed
			}
			if !woken && err == nil { // the time of others may end at the same moment
				return p.table.Yield(caller)
			}
			return err
		}
		if isFirst && p.mayAsk(ctx) {
			return nil
		}
	}
}

// hasAsked notes that the caller's try has ended, and that it is still in line.
func (p *Place) hasAsked() {
	p.bucket.line.mu.Lock()
	defer p.bucket.line.mu.Unlock()
	p.bucket.line.asked(p)
	p.bucket.line.stand(p)
}

// asked notes that a caller's try has ended. The line is locked.
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

// mayAsk looks at the slots, and reports whether the caller should try to take them: they are free, could not be read, or their bucket or
// limits have changed.
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

// sleepUnlessWoken sleeps for a time, and reports whether the caller was woken to try.
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

// StepAside removes the caller from the line while another level rejects its request. Meanwhile no slots are kept for it. When it waits for
// slots again, it returns to its place before the callers behind it.
func (p *Place) StepAside(ctx context.Context) { p.Leave(ctx, false) }

// Leave removes the caller from the line, whether or not it got its slots. The next caller is then the first.
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
	case served && i != nil: // the remaining free slots are for the callers behind
		l.free(p.core, i)
	}
}

// wake makes the caller try to take its slots.
func (p *Place) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// free wakes callers of the line that the free slots of an image suffice for. After a release by this process, the image may be nil, which
// means unknown. Callers overtake one that the slots do not suffice for, unless that is the first one, and has been for [slotTurn].
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

// isDue reports whether the first caller of a line can no longer be overtaken. The line is locked.
func (l *slotLine) isDue(c *core) bool { return c.elapsed()-l.places[0].first >= slotTurn }

// keeps returns the slots that a caller of this process must leave to the line, nil for none: the slots of the first caller if it is due,
// and of callers that were woken for theirs. The place is the caller's own, nil for a caller that is not in line.
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
			break // the places behind it arrived later
		}
		if at > 0 || len(kept) == 0 {
			kept, _ = bucket.Sum(kept, other.asks)
		}
	}
	return kept
}
