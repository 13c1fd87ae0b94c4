package zlimit_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// disturb notes that limits, or who is charged with an entity, changed: processes may use what was before for a while.
func (w *fleet) disturb() { w.disturbed = w.clock.now() }

// rest waits until no process works in the background.
func (w *fleet) rest() {
	for _, p := range w.procs {
		p.limiter.Engine().Quiesce()
	}
}

// settled reports whether every process knows the limits that are stored, and what is reported to it holds. It
// holds when nothing is lost on its way to the store, and the process rejects nothing from memory.
func (w *fleet) settled(p *process) bool {
	if w.remembers || w.clock.now().Sub(w.disturbed) <= programTTL+time.Second || !p.network.clear() {
		return false
	}
	w.rest()
	w.splitsBefore, w.mergesBefore = w.splits.Load(), w.merges.Load()
	return true
}

// slack returns by how much a reported wait may be short for each merge that came with the request. It is a millisecond,
// and the time for an inflow of one millitoken to each possible shard.
func slack(statuses zlimit.Statuses) (most time.Duration) {
	for _, s := range statuses {
		most = max(most, time.Millisecond+zlimit.MaxShards*s.Limit.RefillPeriod/time.Duration(s.Limit.RefillAmount*zlimit.Millis))
	}
	return most
}

// checkRejection checks what a rejection reports: against the items, and where all was settled when the request came
// by waiting as long as it says.
func (w *fleet) checkRejection(p *process, entity string, consume zlimit.Amounts, e *zlimit.ExceededError, settled bool) {
	t := w.t
	if len(e.Violations()) == 0 {
		t.Fatalf("%v has no violations", e)
	}
	possible := true
	for _, s := range e.Statuses {
		possible = possible && s.Requested <= s.Limit.Capacity
		if s.Exceeded != (s.Requested > 0 && s.Requested > s.Available) || s.Exceeded != (s.RetryAfter > 0) || s.Exceeded && s.Possible() != (s.RetryAfter < zlimit.Never) {
			t.Fatalf("%v: %s of %s says %+v", e, s.Limit.Name, s.Entity, s)
		}
		if consume[s.Limit.Name] != s.Requested {
			t.Fatalf("%v: %s of %s asks for %d, want %d", e, s.Limit.Name, s.Entity, s.Requested, consume[s.Limit.Name])
		}
	}
	if e.Possible() != possible || e.RetryAfter() <= 0 || possible != (e.RetryAfter() < zlimit.Never) {
		t.Fatalf("%v: Possible() = %v, RetryAfter() = %v, want %v", e, e.Possible(), e.RetryAfter(), possible)
	}
	if w.rest(); !settled || w.splits.Load() != w.splitsBefore {
		return
	}
	merges := w.merges.Load() - w.mergesBefore // by another level of the request, which was charged and given back
	for _, s := range e.Statuses {
		if merges == 0 {
			w.checkStatus(p, s)
		}
	}
	if !possible {
		return
	}
	w.clock.ms.Add(e.RetryAfter().Milliseconds() + merges*slack(e.Statuses).Milliseconds())
	lease, err := p.limiter.Acquire(context.Background(), zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: consume})
	if err != nil {
		t.Fatalf("acquire %v for %s after %v, which was told by %v: %v", consume, entity, e.RetryAfter(), e, err)
	}
	w.leases = append(w.leases, &held{Lease: lease, entity: entity, doubt: true})
	w.check("acquire after a wait")
}

// checkStatus holds the status of a limit against the items, when the bucket is not split: it is what an advance would
// leave. A limit that falls short has the configured parameters by then.
func (w *fleet) checkStatus(p *process, s zlimit.Status) {
	states := check.Call(shardsIn(context.Background(), w.witness, p.limiter.NS(), s.Entity)).Must(w.t, "shardsIn()")
	if len(states) != 1 || states[0].Shards > 1 {
		return
	}
	at := slices.IndexFunc(states[0].Limits, func(l bucket.Limit) bool { return l.Name == s.Limit.Name })
	inLine := false
	if at >= 0 {
		l := &states[0].Limits[at]
		inLine = l.Capacity == s.Limit.Capacity*zlimit.Millis && l.RefillAmount == s.Limit.RefillAmount*zlimit.Millis && l.RefillPeriod == s.Limit.RefillPeriod.Milliseconds()
		at := func(t time.Time) int64 {
			return zlimit.Thousands(min(l.Tokens+bucket.Refill(states[0].RefilledAt, t.UnixMilli(), l.RefillAmount, l.RefillPeriod), l.Capacity))
		}
		now := p.limiter.Now()
		if least, most := at(now), at(w.furthest(now)); inLine && (s.Available < least || s.Available > most) {
			w.t.Fatalf("%s of %s: %d are available as told, and %d to %d by the item", s.Limit.Name, s.Entity, s.Available, least, most)
		}
	}
	if s.Exceeded && !inLine {
		w.t.Fatalf("%s of %s is rejected, and its item not in line with %+v: %+v", s.Limit.Name, s.Entity, s.Limit, states[0])
	}
}

// furthest returns the time by the clock of the fleet that is furthest ahead, and a few milliseconds that changes of limits take. Processes
// follow such stamps.
func (w *fleet) furthest(now time.Time) time.Time {
	for _, p := range w.procs {
		if ahead := p.limiter.Now(); ahead.After(now) {
			now = ahead
		}
	}
	return now.Add(20 * time.Millisecond)
}

// finish lets every process know all limits, and asks for all that those of each entity can hold.
func (w *fleet) finish(opts []zlimit.Option) {
	w.clock.ms.Add((2 * programTTL).Milliseconds())
	for i, p := range w.procs {
		if !p.network.clear() {
			w.procs[i] = w.start(p.skew, opts...)
			_ = p.limiter.Close()
			p = w.procs[i]
		}
		for _, entity := range programEntities {
			statuses, err := p.limiter.Available(context.Background(), zlimit.AvailableQuery{Entity: entity, Resource: "gpt-4"})
			if err != nil {
				w.t.Fatalf("Available(%s) = %v", entity, err)
			}
			consume := zlimit.Amounts{}
			for _, s := range statuses {
				consume[s.Limit.Name] = s.Limit.Capacity
			}
			settled := w.settled(p)
			lease, err := p.limiter.Acquire(context.Background(), zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: consume})
			var exceeded *zlimit.ExceededError
			switch {
			case errors.As(err, &exceeded):
				w.checkRejection(p, entity, consume, exceeded, settled)
			case err != nil:
				w.t.Fatalf("acquire %v for %s: %v", consume, entity, err)
			default:
				w.leases = append(w.leases, &held{Lease: lease, entity: entity, doubt: true})
			}
			w.check("the last requests")
		}
	}
}
