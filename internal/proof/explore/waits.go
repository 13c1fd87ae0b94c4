package explore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Requests that wait are takes with a time. A witness of theirs knows when they were admitted, and in which order they were written. It holds
// them against the law of waiting: the capacity and the inflow, and the depth of the queue in five cases.

// waitFor returns a request that waits, and booking one that reserves.
func waitFor(entity string, n int64, longest time.Duration) Op {
	o := take(entity, n)
	o.Wait = longest
	return o
}

func booking(entity string, n int64, longest time.Duration) Op {
	o := waitFor(entity, n, longest)
	o.Books = true
	return o
}

// waitText describes how long an operation waits.
func (o *Op) waitText() string {
	switch {
	case o.Books:
		return ", reserved for within " + o.Wait.String()
	case o.Wait > 0:
		return ", waiting for up to " + o.Wait.String()
	default:
		return ""
	}
}

// acquireOrWait acquires, or waits.
func acquireOrWait(ctx context.Context, r *running, l *zlimit.RateLimiter) (*leased, error) {
	take := func() (*zlimit.Lease, error) { return l.Acquire(ctx, r.ask(&r.Op)) }
	if r.Wait > 0 {
		take = func() (*zlimit.Lease, error) { return l.Wait(ctx, r.ask(&r.Op), zlimit.MaxWait(r.Wait)) }
	}
	lease, err := take()
	return &leased{lease: lease, asked: r}, err
}

// book reserves the amounts of an operation.
func (o *order) book(ctx context.Context, r *running, l *zlimit.RateLimiter, request zlimit.Request) (*leased, error) {
	reservation, err := l.Reserve(ctx, request, zlimit.MaxWait(r.Wait))
	if err != nil {
		return nil, err
	}
	r.degraded = r.Allow && r.outages > 0 // as far as its caller knows
	return &leased{reservation: reservation, asked: r, took: maps.Clone(r.net), doubt: r.unknown > 0 || r.degraded}, nil
}

// attend waits for a reservation and commits its lease by an adjustment, or cancels it.
func (le *leased) attend(ctx context.Context, r *running) error {
	if r.Kind == Rollback {
		return le.reservation.Cancel(ctx)
	}
	lease, err := le.reservation.Wait(ctx)
	if err != nil {
		return err
	}
	if le.asked.at, le.asked.attended = time.Now().UnixMilli(), true; len(r.Amounts) == 0 {
		return lease.Commit(ctx)
	}
	if err := lease.Adjust(r.Amounts); err != nil {
		return err
	}
	return lease.Commit(ctx)
}

// depth returns how deep a debt of a limit an operation may leave.
func (r *running) depth(p *bucket.Params) int64 {
	return flow(0, r.Wait.Milliseconds(), p.RefillAmount, p.RefillPeriod)
}

// An admission is what a request may use from a time on, or negative what it gave back.
type admission struct {
	at, amount int64
	moment     int // among those with the same time
}

// judgeWaits holds programs with requests that wait against the law, in the end.
func (w *witness) judgeWaits() {
	if !slices.ContainsFunc(w.ops, func(r *running) bool { return r.Wait > 0 }) {
		return
	}
	for _, entity := range []string{"c", "d", "p"} {
		for _, name := range w.limitsOf(entity) {
			w.judgeLaw(entity, name)
		}
	}
	for _, r := range w.ops {
		for at, n := range r.net {
			if r.Wait > 0 && r.err != nil && r.judged && n != 0 && r.unknown+r.astray+r.returns == 0 && w.gone[at] == r.held[at].born {
				w.blame("charge", "%s: %q ends with %v, and keeps %d of %s of %s", w.name(r), r.Op, r.err, n, at.limit, at.entity)
			}
		}
	}
	if !w.isLenient() {
		w.judgeOrder()
	}
}

// limitsOf returns the names of the limits that an entity has had.
func (w *witness) limitsOf(entity string) (names []string) {
	for _, limits := range w.history(entity) {
		for _, l := range limits {
			if !slices.Contains(names, l.Name) {
				names = append(names, l.Name)
			}
		}
	}
	return names
}

// isLenient reports whether a program has one of the five cases in which waiters may exceed the limit by the depth of the queue: what is given
// back, limits that change, several limits, parents, and several shards. After a write whose outcome is not known, one waits for longer.
func (w *witness) isLenient() bool {
	return w.program.Initial.Family || slices.ContainsFunc(w.ops, func(r *running) bool {
		switch r.Kind {
		case Take:
			return len(r.Amounts) > 1 || len(r.With) > 0 || r.unknown > 0 || r.Wait > 0 && r.err != nil // what it took is given back
		case Rollback, Set, Unset, Split, Merge, Delete:
			return r.actor >= 0
		case Adjust:
			return r.unknown > 0 || slices.ContainsFunc(slices.Collect(maps.Values(r.Amounts)), func(n int64) bool { return n < 0 })
		default:
			return false
		}
	})
}

// judgeLaw judges the admissions of one limit: over any time at most the capacity, the inflow and that of a millisecond, and in the five cases
// the depth of the queue.
func (w *witness) judgeLaw(entity, name string) {
	if slices.ContainsFunc(w.ops, func(r *running) bool { return r.Kind == Delete && r.Entity == entity }) {
		return // the next bucket begins full
	}
	p := w.greatest(entity, name)
	least := -flow(0, 1, p.RefillAmount, p.RefillPeriod) - 2
	if w.isLenient() {
		deepest := int64(0)
		for _, r := range w.ops {
			deepest = max(deepest, r.depth(&p))
		}
		least -= deepest + 4*maxShards
	}
	i := ideal{tokens: p.Capacity, limit: p, at: w.start.UnixMilli()}
	for _, a := range w.admissions(entity, name) {
		if i.take(a.at, a.amount); i.tokens < least {
			w.blame("law", "%d of %s of %s are admitted at %d ms beyond the capacity and the inflow, and may be by %d",
				-i.tokens, name, entity, a.at-w.start.UnixMilli(), -least)
			return
		}
	}
}

// greatest returns the most that a limit of an entity has allowed at any time.
func (w *witness) greatest(entity, name string) (p bucket.Params) {
	for _, limits := range w.history(entity) {
		for _, l := range limits {
			if l.Name != name {
				continue
			}
			of := paramsOfLimit(l)
			if p.Capacity = max(p.Capacity, of.Capacity); p.RefillPeriod == 0 || of.RefillAmount*p.RefillPeriod > p.RefillAmount*of.RefillPeriod {
				p.RefillAmount, p.RefillPeriod = of.RefillAmount, of.RefillPeriod
			}
		}
	}
	return p
}

// admissions returns what the requests of an entity were admitted with, and gave back, one after another. The last ones of a program are
// judged by themselves.
func (w *witness) admissions(entity, name string) (all []admission) {
	attended := map[*running]int{} // of a reservation: the moment
	for _, r := range w.ops {
		if r.lease != nil && r.lease.asked.attended {
			attended[r.lease.asked] = r.over
		}
	}
	for _, r := range w.ops {
		if r.actor < 0 || !r.ended || r.err != nil {
			continue
		}
		n := r.Amounts[name] * 1000
		switch {
		case r.Kind == Take && !r.degraded && (!r.Books || r.attended):
			all = append(all, admission{r.at, r.own(entity, name) * 1000, cmp.Or(attended[r], r.over)})
		case !r.settles() || r.lease == nil:
		case r.Kind == Rollback && r.lease.reservation == nil: // a cancelled reservation was never admitted
			all = append(all, admission{r.begun, -r.lease.asked.requests()[r.Of].own(entity, name) * 1000, r.since})
		case r.lease.asked.Entity != entity:
		case r.Kind == Adjust && n < 0:
			all = append(all, admission{r.begun, n, r.since})
		case r.Kind == Adjust:
			all = append(all, admission{r.at, n, r.over})
		}
	}
	slices.SortStableFunc(all, func(a, b admission) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.moment, b.moment)) })
	return all
}

// maxShards is the most shards that a bucket has in these programs. Each of them rounds.
const maxShards = 2

// judgeOrder judges the order of waiters of one bucket: that of their writes.
func (w *witness) judgeOrder() {
	for _, r := range w.ops {
		for _, other := range w.ops {
			if r.Wait > 0 && other.Wait > 0 && r.Slots+other.Slots == 0 && r.Entity == other.Entity && !r.Books && !other.Books && r.err == nil && other.err == nil &&
				r.ended && other.ended && r.wrote > 0 && r.wrote < other.wrote && r.at > other.at {
				w.blame("order", "%s: %q is written before %q of %s, and admitted %d ms later", w.name(r), r.Op, other.Op, w.name(other), r.at-other.at)
			}
		}
	}
}

// waitGrammars have requests that wait.
func waitGrammars() []Grammar {
	second := func(rate int64) zlimit.Limit { return zlimit.PerSecond("rpm", rate, zlimit.Burst(2)) }
	bucket := Initial{Limits: map[string][]zlimit.Limit{"c": {second(2)}}}
	commit, rollback, split, merge := Op{Kind: Adjust}, Op{Kind: Rollback}, Op{Kind: Split, Entity: "c"}, Op{Kind: Merge, Entity: "c"}
	short := rest(700 * time.Millisecond)
	queue := []Op{waitFor("c", 1, 3*time.Second), waitFor("c", 2, 3*time.Second), waitFor("c", 2, time.Second), take("c", 1), short}
	changing := []Op{
		waitFor("c", 1, 3*time.Second), booking("c", 2, 3*time.Second), commit, rollback, take("c", 1),
		set("c", second(4)), set("c", second(1)), split, merge, short, rest(configTTL + time.Second),
	}
	family := []Op{waitFor("c", 2, 3*time.Second), waitFor("d", 1, 3*time.Second), booking("d", 2, 3*time.Second), commit, rollback, take("c", 1), short}
	parent := Initial{Family: true, Limits: map[string][]zlimit.Limit{"": {second(2)}, "p": {second(3)}}}
	knows := []Op{take("c", 2)}
	return []Grammar{
		{Name: "waits, cold", Initial: bucket, Words: [2][]Op{queue, queue}, Others: []Op{waitFor("c", 1, 3*time.Second)}},
		{Name: "waits", Initial: bucket, Warm: [2][]Op{knows, nil}, Words: [2][]Op{queue, queue}},
		{Name: "waits, one process", Initial: bucket, Warm: [2][]Op{knows, nil}, Words: [2][]Op{queue, queue}, Shared: true},
		{Name: "waits, changing", Initial: bucket, Warm: [2][]Op{knows, nil}, Words: [2][]Op{changing, changing}},
		{Name: "waits, split", Initial: bucket, Warm: [2][]Op{{take("c", 2), split}, {take("c", 1)}}, Words: [2][]Op{changing, changing}},
		{Name: "waits, family", Initial: parent, Words: [2][]Op{family, family}},
	}
}
