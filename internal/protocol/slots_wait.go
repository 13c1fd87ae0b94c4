package protocol

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// Callers of a process that wait for slots of a bucket stand in a line. The first one asks for slots: when this process gives some back, and
// now and then, since other processes give back as well. So a process asks as often as one caller would, however many wait.

// A slotLine has the callers of this process that wait for slots of a bucket, in the order in which they came. It is
// safe for concurrent use.
type slotLine struct {
	mu     sync.Mutex // guards what follows
	places []*Place
}

// A Place is that of a caller in the line of a bucket. It is not safe for concurrent use.
type Place struct {
	*core
	line  *slotLine
	first chan struct{} // closed when the caller is the first one
	freed chan struct{} // holds a token when this process has given slots back since
	probe time.Duration
}

// The first caller of a line asks again after a part of the term, with jitter: other processes may have given slots
// back.
const (
	probePart  = 50
	leastProbe = 100 * time.Millisecond
	mostProbe  = time.Second
)

// ShortOfSlots returns the bucket whose slots refuse a request, and their term; false where no slots do. Slots that there are too few of
// altogether are not waited for.
func (e *RejectedError) ShortOfSlots() (entity, resource string, term time.Duration, ok bool) {
	for _, l := range e.Levels {
		for _, s := range l.Statuses {
			if s.Term > 0 && s.Wait == bucket.Never {
				return "", "", 0, false
			}
			if s.Term > 0 && s.Short && !ok {
				entity, resource, term, ok = l.Entity, l.Resource, milliseconds(s.Term), true
			}
		}
	}
	return entity, resource, term, ok
}

// Join has a caller join the line of those who wait for slots of a bucket, which the caller leaves in the end.
func (ws *Waits) Join(entity, resource string, term time.Duration) *Place {
	b := ws.memory.Bucket(entity, resource)
	p := &Place{
		core: ws.core, line: &b.line, first: make(chan struct{}), freed: make(chan struct{}, 1),
		probe: min(max(term/probePart, leastProbe), mostProbe),
	}
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	if p.line.places = append(p.line.places, p); len(p.line.places) == 1 {
		close(p.first)
	}
	return p
}

// Await waits until it is the caller's turn to ask for slots, or a time is over. It ends with the context, or with [ErrClosed] when the
// engine is closed.
func (p *Place) Await(ctx context.Context, rest time.Duration) error {
	began := p.elapsed()
	select {
	case <-p.first:
	default:
		if err := p.sleepUntil(ctx, p.first, rest); err != nil {
			return err
		}
	}
	pause := p.probe/2 + time.Duration(p.table.IntN(int(p.probe)))
	return p.sleepUntil(ctx, p.freed, min(pause, rest-(p.elapsed()-began)))
}

// sleepUntil sleeps for a time, or until a channel has something.
func (p *Place) sleepUntil(ctx context.Context, until <-chan struct{}, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	asleep, wake := context.WithCancel(ctx)
	defer wake()
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-until:
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
		return ErrClosed
	}
	return ctx.Err()
}

// Leave has the caller leave the line. The next one is the first then.
func (p *Place) Leave() {
	if p == nil {
		return
	}
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	at := slices.Index(p.line.places, p)
	if at < 0 {
		return
	}
	if p.line.places = slices.Delete(p.line.places, at, at+1); at == 0 && len(p.line.places) > 0 {
		next := p.line.places[0]
		close(next.first)
		next.note()
	}
}

// note has the caller ask at once.
func (p *Place) note() {
	select {
	case p.freed <- struct{}{}:
	default:
	}
}

// free has the first caller of the line ask: this process has given slots back.
func (l *slotLine) free() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.places) > 0 {
		l.places[0].note()
	}
}
