package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// finish asks each process for all that the limits of each entity can hold, when all actors are done and all know the
// limits. It asks all processes first, from their memories, and then each one again after the reported wait.
func (o *order) finish() {
	if o.witness.timed != nil {
		o.finishTimed()
		return
	}
	o.finishSlots()
	o.await()
	clock := o.begin(Op{Kind: Rest, For: configTTL + time.Second}, -1, 0, o.ports[0])
	if o.rest(clock) != nil {
		return
	}
	for _, probe := range []func(*port, *zlimit.RateLimiter, string){o.ask, o.insist} {
		for process, l := range o.limiters {
			if o.ports[process].dead.Load() {
				continue
			}
			for _, entity := range o.entities() {
				if len(o.most(entity)) > 0 && o.witness.wrong == nil {
					probe(o.ports[process], l, entity)
				}
			}
		}
	}
}

// await waits until limiters have given back, in the background, all tokens taken by requests that were not admitted.
func (o *order) await() {
	const enough = 2 * time.Second
	for _, isOver := range []bool{false, true} {
		o.mu.Lock()
		some := o.witness.debtors(isOver)
		o.mu.Unlock()
		if !some {
			return
		}
		time.Sleep(enough)
	}
}

// rest lets time pass.
func (o *order) rest(r *running) (err error) {
	for range max(r.Steps, 1) {
		err = r.port.pause(r.context(), "rests for "+r.step().String(), r.step())
	}
	o.ended(r, nil)
	return err
}

// context returns a context of an operation.
func (r *running) context() context.Context {
	return context.WithValue(context.Background(), opKey{}, r)
}

// entities returns those that the program's actors take from.
func (o *order) entities() []string {
	var list []string
	for _, a := range o.program.Actors {
		for _, op := range append(slices.Clone(a.Warm), a.Ops...) {
			for _, r := range op.requests() {
				if op.Kind == Take && !op.More && !slices.Contains(list, r.Entity) {
					list = append(list, r.Entity)
				}
			}
		}
	}
	return list
}

// most returns the largest request that all limits of an entity can serve.
func (o *order) most(entity string) zlimit.Amounts {
	amounts := zlimit.Amounts{}
	for _, l := range o.witness.effective(entity) {
		amounts[l.Name] = l.Capacity
	}
	for _, above := range o.witness.kin.now().chain(entity)[1:] {
		for _, l := range o.witness.effective(above) {
			if n, ok := amounts[l.Name]; ok {
				amounts[l.Name] = min(n, l.Capacity)
			}
		}
	}
	return amounts
}

// try asks for all that the limits of an entity can hold. A rejection must report the wait of the ideal bucket.
func (o *order) try(p *port, l *zlimit.RateLimiter, entity string) (*leased, error) {
	amounts := o.most(entity)
	r := o.begin(Op{Kind: Take, Entity: entity, Amounts: amounts}, -1, 0, p)
	le, err := o.acquire(r.context(), r, l)
	o.ended(r, err)
	var exceeded *zlimit.ExceededError
	switch {
	case errors.As(err, &exceeded) && !exceeded.Possible():
		o.blameWait("in the end, %c asks for %s of %s, which the limits can hold, and is rejected forever: %v",
			'A'+p.process, amountsText(amounts), entity, err)
	case errors.As(err, &exceeded):
		if reported, least := exceeded.RetryAfter(), o.wait(entity, amounts); reported < least {
			o.blameWait("in the end, %c asks for %s of %s, and must wait %v, of the ideal bucket %v: %v",
				'A'+p.process, amountsText(amounts), entity, reported, least, err)
		}
		o.inLine(p, exceeded)
	case err == nil:
		return le, nil
	}
	return nil, err
}

// wait returns how long it takes until the ideal buckets have amounts. Where an item has other limits than the
// configured ones, it is the state after a write that sets them.
func (o *order) wait(entity string, amounts zlimit.Amounts) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now().UnixMilli()
	longest := int64(0)
	for _, e := range o.witness.kin.now().chain(entity) {
		for _, l := range o.witness.effective(e) {
			at := account{e, l.Name}
			n, asked := amounts[l.Name]
			i := o.witness.ideals[at]
			if !asked || i == nil {
				continue
			}
			is := *i
			if p := paramsOfLimit(l); i.limit != p {
				sum, _ := o.witness.sum(at, &p, now)
				is = ideal{tokens: sum, at: now, limit: p}
			}
			is.tokens = min(is.tokens+is.over+o.witness.rounding(e), is.limit.Capacity)
			longest = max(longest, is.wait(now, n*1000))
		}
	}
	return time.Duration(longest) * time.Millisecond
}

// ask asks once, and gives the tokens back.
func (o *order) ask(p *port, l *zlimit.RateLimiter, entity string) {
	if lease, _ := o.try(p, l, entity); lease != nil {
		o.giveBack(p, lease)
	}
}

// insist asks, and again after the reported wait.
func (o *order) insist(p *port, l *zlimit.RateLimiter, entity string) {
	lease, err := o.try(p, l, entity)
	var exceeded *zlimit.ExceededError
	if errors.As(err, &exceeded) {
		wait := exceeded.RetryAfter()
		if wait == zlimit.Never {
			wait = 0 // the next try is refused too, and blamed
		}
		r := o.begin(Op{Kind: Rest, For: wait}, -1, 0, p)
		if o.rest(r) != nil {
			return
		}
		if lease, err = o.try(p, l, entity); errors.As(err, &exceeded) {
			o.blameWait("in the end, %c asks for all of %s, must wait %v, and after that, with nothing else going on, %v: %v",
				'A'+p.process, entity, wait, exceeded.RetryAfter(), err)
		}
	}
	if lease != nil {
		o.tells(p, l, entity)
		o.giveBack(p, lease)
	}
}

// giveBack rolls a lease back.
func (o *order) giveBack(p *port, le *leased) {
	r := o.begin(Op{Kind: Rollback}, -1, 0, p)
	r.lease, le.settles = le, r
	o.ended(r, le.settle(r.context(), r))
}

// blameWait is blame of the witness for a wait, for another goroutine than the scheduler's.
func (o *order) blameWait(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.witness.blame("wait", format, args...)
}

// inLine checks that the configured limits rejected a request, and that one of them at least stands in the items: such a limit rejects the
// request immediately, and the others are reported as last seen.
func (o *order) inLine(p *port, e *zlimit.ExceededError) {
	o.mu.Lock()
	defer o.mu.Unlock()
	stands, lacks := false, ""
	for _, s := range e.Violations() {
		for _, l := range o.witness.effective(s.Entity) {
			if l.Name != s.Limit.Name {
				continue
			}
			if s.Limit != l {
				o.witness.blame("in line", "in the end, %c is rejected by %v of %s, which is configured as %v", 'A'+p.process, s.Limit, s.Entity, l)
			}
			if o.stands(s.Entity, l) {
				stands = true
			} else {
				lacks = fmt.Sprintf("%s of %s, whose item does not have the configured %v", l.Name, s.Entity, l)
			}
		}
	}
	if !stands && lacks != "" {
		o.witness.blame("in line", "in the end, %c is rejected by %s", 'A'+p.process, lacks)
	}
}

// stands reports whether all items of an entity have a limit as it is configured.
func (o *order) stands(entity string, l zlimit.Limit) bool {
	for _, shard := range o.witness.shards[entity] {
		if had := limitOf(shard, l.Name); had == nil || paramsOf(had) != paramsOfLimit(l) {
			return false
		}
	}
	return true
}

// tells checks the balances that a limiter reports.
func (o *order) tells(p *port, l *zlimit.RateLimiter, entity string) {
	r := o.begin(Op{Kind: Rest}, -1, 4, p)
	reported, err := l.Available(r.context(), zlimit.AvailableQuery{Entity: entity, Resource: resource})
	o.ended(r, err)
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now().UnixMilli()
	for _, s := range reported {
		at := account{entity, s.Limit.Name}
		i := o.witness.ideals[at]
		if i == nil {
			continue
		}
		if _, least, most := o.witness.bounds(at, i, now); s.Available < floor(least) || s.Available > floor(most) {
			o.witness.blame("available", "in the end, %c sees %d of %s of %s available, the ideal bucket has from %d to %d",
				'A'+p.process, s.Available, s.Limit.Name, entity, least, most)
		}
	}
}

// floor returns whole tokens.
func floor(millitokens int64) int64 {
	q := millitokens / 1000
	if millitokens%1000 < 0 {
		q--
	}
	return q
}
