package explore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/zlimit"
)

// judgeOp judges the outcome of an operation that has ended.
func (w *witness) judgeOp(r *running) {
	if err := r.err; err != nil && !w.excused(r) {
		w.blame("error", "%s: %q fails: %v", w.name(r), r.Op, err)
		w.doubt = true
		return
	}
	switch r.Kind {
	case Take:
		w.judgeTake(r)
	case Adjust, Rollback:
		w.judgeSettle(r)
	case Move:
		w.kin.over(w, r)
	default:
	}
}

func (w *witness) name(r *running) string {
	if r.actor < 0 {
		return "in the end, " + string(rune('A'+r.port.process))
	}
	return w.program.actorName(r.actor)
}

// excused reports whether an operation may fail with the error that it has.
func (w *witness) excused(r *running) bool {
	var outage *zlimit.UnavailableError
	switch err := r.err; {
	case r.port.dead.Load():
		return true
	case errors.As(err, new(*zlimit.ExceededError)):
		return r.Kind == Take
	case errors.As(err, &outage):
		return r.outages > 0 || w.isSilent(r) && outage.Unknown == r.unclear.Load()
	case errors.Is(err, zlimit.ErrContended):
		return r.Kind == Take && r.hot && r.unknown == 0
	case errors.As(err, new(*zlimit.ItemError)):
		return r.Slots > 0 && r.outages > 0 // the fencing number is not known
	case errors.Is(err, context.Canceled):
		return r.canceled
	case errors.As(err, new(*zlimit.ValidationError)), errors.Is(err, zlimit.ErrNoLimits):
		if r.Kind != Take {
			return false
		}
		for _, of := range r.requests() {
			for limit := range of.Amounts {
				if always, _ := w.has(of.Entity, limit, r.begun); !always {
					return true
				}
			}
		}
		return w.crowd.mayLack(r)
	case errors.Is(err, zlimit.ErrEntityNotFound), errors.Is(err, zlimit.ErrEntityHasChildren):
		return r.Kind == Delete
	default:
		return false
	}
}

// settleLimit is how long a limiter settles a lease.
const settleLimit = 5 * time.Second

// isSilent reports whether an operation that settles a lease has ended since a call of it, or of its process, was not answered in time.
func (w *witness) isSilent(r *running) bool {
	return r.lease != nil && time.Now().UnixMilli()-r.begun >= settleLimit.Milliseconds()
}

// judgeTake judges the answer to a request, and the amounts counted for it.
func (w *witness) judgeTake(r *running) {
	var exceeded *zlimit.ExceededError
	admitted := r.err == nil && !r.degraded
	w.crowd.judgeDeaf(r)
	switch {
	case errors.As(r.err, &exceeded):
		w.judgeRejection(r, exceeded)
	case r.degraded && (!r.Allow || r.outages == 0):
		w.blame("degraded", "%s: %q is admitted uncounted without an outage", w.name(r), r.Op)
	case r.degraded && r.outages == r.returns:
		w.blame("degraded", "%s: %q is rejected, and admitted uncounted because what it took could not be given back", w.name(r), r.Op)
	}
	doubt := !admitted && (r.unknown > 0 || r.returns > 0 || r.canceled || r.Wait > 0) // see debtors and judgeWaits
	if w.program.Initial.Coalescing {
		w.owe(r, admitted)
		return
	}
	if admitted {
		w.relabel(r)
	}
	for at, n := range r.net {
		if n < 0 || n > w.kin.most(r, at)*1000 && r.returns == 0 {
			w.blame("charge", "%s: %q counted %d of %s of %s", w.name(r), r.Op, n, at.limit, at.entity)
		}
		if gone := w.gone[at] != r.held[at].born; n != 0 && !admitted && !doubt && !gone {
			w.blame("charge", "%s: %q is not admitted (%v), and counted %d of %s of %s", w.name(r), r.Op, r.err, n, at.limit, at.entity)
		}
	}
	if admitted {
		w.judgeAdmission(r)
		w.judgeSeen(r)
	}
}

// relabel makes an admitted request count what an earlier one of its process seems to have taken besides its own. The goroutine that writes for
// requests that wait for a throttled bucket carries the name of the request that began it.
func (w *witness) relabel(r *running) {
	for _, o := range w.ops {
		if o == r || o.port != r.port || o.Kind != Take || !o.judged || o.err != nil || o.outages == 0 || o.returns > 0 {
			continue
		}
		asked := o.way.asks(&o.Op)
		for at, n := range o.net {
			more := n - asked[at.entity][at.limit]*1000
			if more <= 0 || r.net[at] != 0 || r.made == nil {
				continue
			}
			for _, to := range []*map[account]int64{&r.net, &r.made.took} {
				if *to == nil {
					*to = map[account]int64{}
				}
				(*to)[at] += more
			}
			if r.held == nil {
				r.held = map[account]holding{}
			}
			h := o.held[at]
			r.held[at] = holding{tokens: more, born: h.born}
			o.net[at], o.held[at] = n-more, holding{tokens: h.tokens - more, born: h.born}
		}
	}
}

// judgeAdmission judges the amounts counted for an admitted request. All of it counts at the entity, and all or nothing
// at a parent whose limits came or went meanwhile. Where an entity was moved meanwhile, one of its parents is: the latest, if
// what was taken of another one is owed.
func (w *witness) judgeAdmission(r *running) {
	var wrong account
	for _, way := range slices.Backward(w.kin.ways(r)) {
		at, ok := w.isCharged(r, way)
		if ok {
			r.way = way
			return
		}
		wrong = at
	}
	w.blame("charge", "%s: %q is admitted, and counted %d of %s of %s", w.name(r), r.Op, r.net[wrong], wrong.limit, wrong.entity)
}

// isCharged reports whether an admitted request is charged to its entities and their parents, and to no other ones. It returns an account
// that is not.
func (w *witness) isCharged(r *running, way ancestry) (wrong account, ok bool) {
	asks := way.asks(&r.Op)
	for _, entity := range slices.Sorted(maps.Keys(asks)) {
		for limit, asked := range asks[entity] {
			n := r.net[account{entity, limit}]
			always, sometimes := w.has(entity, limit, r.begun)
			own := r.own(entity, limit) > 0
			switch {
			case n == asked*1000 && (own || sometimes):
			case n > asked*1000 && r.returns > 0: // what is too much is given back later, see mayOwe
			case n == 0 && !own && !always:
			default:
				return account{entity, limit}, false
			}
		}
	}
	for at, n := range r.net {
		if n != 0 && asks[at.entity] == nil && r.returns == 0 {
			return at, false
		}
	}
	return account{}, true
}

// judgeRejection judges the answer to a rejected request.
func (w *witness) judgeRejection(r *running, e *zlimit.ExceededError) {
	if len(e.Violations()) == 0 {
		w.blame("rejection", "%s: %q is rejected by no limit, retry after %v", w.name(r), r.Op, e.RetryAfter())
	}
	if e.Possible() && e.RetryAfter() <= 0 {
		w.blame("rejection", "%s: %q is rejected, retry after %v", w.name(r), r.Op, e.RetryAfter())
	}
	family := w.kin.family(r)
	for _, s := range e.Violations() {
		if !slices.Contains(family, s.Entity) {
			w.blame("rejection", "%s: %q is rejected by %s of %s, which it is not charged to", w.name(r), r.Op, s.Limit.Name, s.Entity)
		}
	}
	switch {
	case r.short:
	case r.apart:
		w.blame("lost refill", "%s: %q is rejected (%v), which the ideal bucket would admit all the time", w.name(r), r.Op, e)
	default:
		w.blame("unjustified", "%s: %q is rejected (%v), though each limit had enough all the time", w.name(r), r.Op, e)
	}
}

// judgeSettle judges the writes of a commit or a rollback.
func (w *witness) judgeSettle(r *running) {
	le := r.lease
	if le == nil {
		return
	}
	if w.program.Initial.Coalescing {
		w.owe(r, true)
		return
	}
	doubt := r.err != nil || r.unknown > 0 || le.doubt
	for at, n := range r.net {
		if held := le.took[at]; n < 0 && -n > held {
			w.blame("return", "%s: %q gave back %d of %s of %s, of which the lease took %d", w.name(r), r.Op, -n, at.limit, at.entity, held)
		}
	}
	accounts := map[account]bool{}
	for at := range r.net {
		accounts[at] = true
	}
	for at := range le.took {
		accounts[at] = true
	}
	wants := w.program.Initial.settled(r)
	for at := range accounts {
		if at.limit == bucket.WriteUnits {
			continue
		}
		n, took := r.net[at], le.took[at]
		want := wants[at.entity][at.limit] * 1000
		if r.Kind == Rollback {
			want = max(want, -took)
		}
		gone := w.gone[at] != le.asked.held[at].born
		switch {
		case n == want && (took > 0 || want >= 0):
		case n == 0 && (doubt || gone || took == 0):
		case doubt && min(0, want) <= n && n <= max(0, want):
		default:
			w.blame("settle", "%s: %q counted %d of %s of %s, of which the lease took %d", w.name(r), r.Op, n, at.limit, at.entity, took)
		}
	}
}

// owe notes the amount that an operation claims to have counted, where several share a write.
func (w *witness) owe(r *running, done bool) {
	w.doubt = w.doubt || r.outages > 0 || r.canceled || r.port.dead.Load()
	if !done {
		return
	}
	owed := w.program.Initial.asks(&r.Op)
	if r.lease != nil {
		owed = w.program.Initial.settled(r)
	}
	for entity, amounts := range owed {
		for limit, n := range amounts {
			w.owed[account{entity, limit}] += n * 1000
		}
	}
}

// owner returns the entity that an operation takes from, or gives back to.
func (r *running) owner() string {
	if r.lease != nil {
		return r.lease.asked.Entity
	}
	return r.Entity
}

// balance compares the amounts claimed by operations with those counted by writes, when nothing is under way.
func (w *witness) balance() {
	if !w.program.Initial.Coalescing || w.doubt {
		return
	}
	for at, n := range w.counted {
		if owed := w.owed[at]; owed != n {
			w.blame("charge", "all operations counted %d of %s of %s, and all writes %d", owed, at.limit, at.entity, n)
		}
	}
}

// owes reports whether a rejected or failed request has tokens still to give back. Either the store refused them for now, and may take
// them later, or the caller gave up and did not wait for the writes that give them back.
func (r *running) owes(at account, gone int) bool { return r.mayOwe(at, gone) && r.unknown == 0 }

// mayOwe is owes also for a request with a write that is unknown, which no one gives back: its other writes may be due.
func (r *running) mayOwe(at account, gone int) bool {
	keeps := r.err != nil || r.way != nil && r.net[at] > r.way.asks(&r.Op)[at.entity][at.limit]*1000
	return r.judged && r.Kind == Take && keeps && (r.returns > 0 || r.canceled) && r.net[at] != 0 && gone == r.held[at].born
}

// debtors reports whether some requests may have still to give something back. Where that is said to be over, it blames those that do.
func (w *witness) debtors(isOver bool) (some bool) {
	if w.program.Initial.Coalescing {
		return false
	}
	for _, r := range w.ops {
		for at, n := range r.net {
			if !r.mayOwe(at, w.gone[at]) {
				continue
			}
			if some = true; isOver && r.owes(at, w.gone[at]) {
				w.blame("kept", "%s: %q is not admitted (%v), and keeps %d of %s of %s though the store would take it back", w.name(r), r.Op, r.err, n, at.limit, at.entity)
			}
		}
	}
	return some
}

// leased is a lease and its holdings as the witness saw them.
type leased struct {
	lease *zlimit.Lease  // of the first request; nil for a reservation that was not waited for
	all   *zlimit.Leases // of several requests; nil for one

	reservation *zlimit.Reservation
	asked       *running // by which it was made
	took        map[account]int64
	rounds      []*running // that took more by it
	settles     *running   // nil until someone begins to settle it
	doubt       bool       // a write of it has an outcome that it cannot know
}

// A holding is the amount that an operation, or its lease, has taken of a limit and not given back.
type holding struct {
	tokens int64 // millitokens
	born   int   // how often the limit had been deleted before
}

// look notes whether some limit cannot admit a request now, or whether that cannot be known.
func (w *witness) look(r *running, now int64) {
	r.short = len(r.Own) > 0
	for _, way := range w.kin.ways(r) {
		w.lookAt(r, way.asks(&r.Op), now)
	}
}

func (w *witness) lookAt(r *running, asks map[string]zlimit.Amounts, now int64) {
	for _, entity := range slices.Sorted(maps.Keys(asks)) {
		held := w.window(entity, r.begun)
		if len(held) != 1 {
			r.short = true
			return
		}
		for _, l := range held[0] {
			asked, ok := asks[entity][l.Name]
			if !ok {
				continue
			}
			p, at := paramsOfLimit(l), account{entity, l.Name}
			sum, _ := w.sum(at, &p, now)
			if len(w.shards[entity]) == 0 {
				sum = p.Capacity
			}
			have := sum
			if i := w.ideals[at]; i != nil && i.limit == p && w.agree(at, &p) {
				is := *i
				if is.until(now); is.tokens-sum > w.rounding(entity) {
					have = is.tokens
				}
			}
			least := asked * 1000
			if keeps := r.keeps(l); keeps == 0 {
				least -= r.depth(&p)
			} else if asked > 0 {
				least += keeps // such a request books nothing
			}
			r.apart = r.apart || sum < least
			r.short = r.short || have < least || w.remembered(at, &p, now) < least
		}
	}
}
