package aggregator

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// All snapshots of a resource have one key in an index, which takes a thousand new entries a second. At a full hour each bucket
// in use begins a snapshot. A full index throttles these writes, and may hold back others. So a process begins the snapshots of a
// resource at a pace, from the first such throttle on until a while after the last one. Snapshots that exist change no index, and
// go on as they come.

// A pace bounds how often the snapshots of one resource begin. Each throttle lowers the rate, and the rate grows meanwhile.
type pace struct {
	rate  float64       // beginnings a second, when it was last lowered
	since time.Duration // when that was
	next  time.Duration // no beginning before
	begun time.Duration // when the index last took a beginning, or when the pace was made
}

const (
	firstRate       = 100.0 // of a pace; a process is rarely alone
	leastRate       = 1.0
	mostRate        = 1000.0           // that the key of an index takes; above it there is no pace
	throttleFactor  = 0.7              // by which a throttle lowers the rate
	growthPerSecond = 0.03             // of the rate, in a second
	loweringGap     = time.Second      // between two times that the rate is lowered
	maxFullTime     = 30 * time.Second // in which an index takes nothing before the rest of a batch is given up
	gapsToDraw      = 1000             // between half a gap and one and a half
)

// Why a snapshot does not begin: its index takes nothing, or takes others until the context ends.
var (
	errFull = errors.New("the index of the resource has taken no new snapshot for half a minute")
	errLate = errors.New("the index of the resource takes other new snapshots first")
)

// at returns the rate at a time, 0 for any.
func (p *pace) at(now time.Duration) float64 {
	rate := p.rate * math.Exp(growthPerSecond*(now-p.since).Seconds())
	if rate >= mostRate {
		return 0
	}
	return rate
}

// paces holds the pace of each resource whose index recently throttled a beginning. It is safe for concurrent use. Times are since the
// aggregator was made, so clock changes do not affect them.
type paces struct {
	mu  sync.Mutex
	all map[resource]*pace
}

// A resource is one of a namespace.
type resource struct{ ns, name string }

// reserve returns how long to wait before the next snapshot of a resource begins, at most a time. The gaps between two of them are
// drawn, so that processes do not write in step. While the index takes nothing only one of them is tried at a time, and the others
// fail.
func (p *paces) reserve(of resource, now, most time.Duration, random func(int) int) (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pace := p.all[of]
	if pace == nil {
		return 0, nil
	}
	rate := pace.at(now)
	if rate == 0 {
		delete(p.all, of)
		return 0, nil
	}
	start := max(pace.next, now)
	switch {
	case start > now && now-pace.begun > maxFullTime:
		return 0, errFull
	case start-now > most:
		return 0, errLate
	}
	gap := (0.5 + float64(random(gapsToDraw))/gapsToDraw) / rate
	pace.next = start + time.Duration(gap*float64(time.Second))
	return start - now, nil
}

// took notes that the index took a beginning.
func (p *paces) took(of resource, now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pace := p.all[of]; pace != nil {
		pace.begun = now
	}
}

// throttle notes that the index throttled a beginning. A write sent before the rate was lowered, or just after, changes
// nothing.
func (p *paces) throttle(of resource, sent, now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.all[of]
	switch {
	case old == nil || old.at(now) == 0:
		if p.all == nil {
			p.all = map[resource]*pace{}
		}
		p.all[of] = &pace{rate: firstRate, since: now, next: now, begun: now}
	case sent >= old.since+loweringGap:
		old.rate, old.since = max(throttleFactor*old.at(now), leastRate), now
	}
}

// isFull reports whether an index takes no more entries of a key for now.
func isFull(err error) bool {
	var failed *store.Error
	return errors.As(err, &failed) && failed.IndexThrottled()
}

// write writes a snapshot, and waits other outages out. One that begins waits for the pace of its resource, and for its turn
// after a throttle, until the context ends.
func (ct *counter) write(ctx context.Context, s *snapshot, w store.Write) (result store.Result, err error) {
	of := resource{s.bucket.NS, s.bucket.Resource}
	for {
		if s.begins {
			most := time.Duration(math.MaxInt64)
			if deadline, ok := ctx.Deadline(); ok {
				most = time.Until(deadline)
			}
			pause, err := ct.paces.reserve(of, time.Since(ct.made), most, ct.table.IntN)
			if err == nil {
				err = ct.table.Sleep(ctx, pause)
			}
			if err != nil {
				return store.Result{}, err
			}
		}
		sent, full := time.Since(ct.made), false
		err = ct.table.Patiently(ctx, func(ctx context.Context) error {
			result, err = ct.table.Store().Write(ctx, w)
			if full = isFull(err); full { // more concurrent tries would add to the load
				return nil
			}
			return err
		})
		switch {
		case full:
			s.begins = true
			ct.paces.throttle(of, sent, time.Since(ct.made))
		case err == nil && s.begins:
			ct.paces.took(of, time.Since(ct.made))
			return result, nil
		default:
			return result, err
		}
	}
}
