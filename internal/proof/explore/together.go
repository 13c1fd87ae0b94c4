package explore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Take may have several requests, which are admitted together or not at all. Its first one is its own, and the others are With it. All rules
// for one request hold: what it asks of a bucket is then the sum of what the requests ask of it.

// asking returns a Take of several requests.
func asking(first Op, others ...Op) Op {
	first.With = others
	return first
}

// requests returns the requests of a Take.
func (o *Op) requests() []*Op {
	all := []*Op{o}
	for i := range o.With {
		all = append(all, &o.With[i])
	}
	return all
}

// requestsText describes what a Take asks for.
func (o *Op) requestsText() string {
	var parts []string
	for _, r := range o.requests() {
		parts = append(parts, amountsText(r.request())+" of "+r.Entity)
	}
	return strings.Join(parts, " together with ")
}

// asks returns what a Take asks of each entity that it is charged to.
func (w *Initial) asks(o *Op) map[string]zlimit.Amounts { return ancestry(w.parents()).asks(o) }

func (a ancestry) asks(o *Op) map[string]zlimit.Amounts {
	all := map[string]zlimit.Amounts{}
	for _, r := range o.requests() {
		for _, entity := range a.chain(r.Entity) {
			if all[entity] == nil {
				all[entity] = zlimit.Amounts{}
			}
			for limit, n := range r.Amounts {
				all[entity][limit] += n
			}
		}
	}
	return all
}

// settled returns what an operation adds to each entity that the lease of a Take is charged to; without faults, and where the bucket
// and its limits are as they were. What a lease took last is given back first.
func (w *Initial) settled(r *running) map[string]zlimit.Amounts {
	asked, sum := &r.lease.asked.Op, map[string]zlimit.Amounts{}
	add := func(by *running, o *Op, sign int64) {
		way := by.way
		if way == nil {
			way = w.parents()
		}
		for entity, amounts := range way.asks(o) {
			if sum[entity] == nil {
				sum[entity] = zlimit.Amounts{}
			}
			for limit, n := range amounts {
				sum[entity][limit] += sign * n
			}
		}
	}
	rounds := append([]*running{r.lease.asked}, r.lease.rounds...)
	switch {
	case r.Kind == Adjust:
		for limit, n := range r.Amounts {
			last := rounds[len(rounds)-1]
			for i := len(rounds) - 1; n < 0 && i > 0; i-- {
				back := min(-n, rounds[i].Amounts[limit])
				add(rounds[i], &Op{Entity: asked.Entity, Amounts: zlimit.Amounts{limit: back}}, -1)
				n, last = n+back, rounds[i-1]
			}
			add(last, &Op{Entity: asked.Entity, Amounts: zlimit.Amounts{limit: n}}, 1)
		}
	case r.Of > 0:
		add(rounds[0], asked.requests()[r.Of], -1)
	default:
		for _, round := range rounds {
			add(round, &round.Op, -1)
		}
	}
	return sum
}

// take takes more by a lease.
func (le *leased) take(ctx context.Context, r *running) error {
	r.more = le
	err := le.lease.Consume(ctx, r.Amounts)
	if err == nil {
		le.rounds = append(le.rounds, r)
		for at, n := range r.net { // it took something before
			le.took[at] += n
		}
	}
	return err
}

// own returns what a Take asks of the limit of an entity itself, and not of its children.
func (o *Op) own(entity, limit string) (sum int64) {
	for _, r := range o.requests() {
		if r.Entity == entity {
			sum += r.Amounts[limit]
		}
	}
	return sum
}

// together acquires the amounts of several requests.
func (o *order) together(ctx context.Context, r *running, l *zlimit.RateLimiter) (*leased, error) {
	var requests []zlimit.Request
	for _, each := range r.requests() {
		requests = append(requests, r.ask(each))
	}
	all, err := l.AcquireAll(ctx, requests)
	if err != nil {
		return nil, err
	}
	return &leased{lease: all.Of(0), all: all, asked: r}, nil
}

// settle settles several leases: all of them, or one by a rollback and the others by a commit.
func (le *leased) settle(ctx context.Context, r *running) error {
	if le.all == nil && r.Kind == Rollback {
		return le.lease.Rollback(ctx)
	}
	if r.Kind == Adjust && len(r.Amounts) > 0 { // a lease whose commit failed takes no more corrections
		if err := le.lease.Adjust(r.Amounts); err != nil {
			return err
		}
	}
	switch {
	case le.all == nil:
		return le.lease.Commit(ctx)
	case r.Kind == Rollback && r.Of == 0:
		return le.all.Rollback(ctx)
	case r.Kind == Rollback:
		return errors.Join(le.all.Of(r.Of).Rollback(ctx), le.all.Commit(ctx))
	}
	return le.all.Commit(ctx)
}

// togetherGrammars have requests that are admitted together. They share the bucket of an entity, or of a parent.
func togetherGrammars() []Grammar {
	day, tokens := func(n int64) zlimit.Limit { return zlimit.PerDay("rpm", n) }, zlimit.PerDay("tpm", 100)
	limits := map[string][]zlimit.Limit{"": {day(10), tokens}, "p": {day(12), tokens}}
	family := Initial{Family: true, Limits: limits}
	coalescing, second := family, func(rate int64) zlimit.Limit { return zlimit.PerSecond("rpm", rate, zlimit.Burst(2)) }
	coalescing.Coalescing = true
	waiting := Initial{Family: true, Limits: map[string][]zlimit.Limit{"": {second(2)}, "p": {second(3)}}}

	both, twice := asking(take("c", 2), take("d", 3)), asking(take("c", 4), take("c", 5))
	many, mixed := asking(take("c", 6), take("d", 5)), asking(takeBoth("c"), take("d", 1), take("d", 4))
	pair := asking(takeBoth("c"), takeBoth("d"))
	rollback, one, pause := Op{Kind: Rollback}, Op{Kind: Rollback, Of: 1}, rest(2*time.Second)
	split := func(entity string) Op { return Op{Kind: Split, Entity: entity} }
	merge := func(entity string) Op { return Op{Kind: Merge, Entity: entity} }

	words := []Op{
		both, twice, many, mixed, take("c", 8), take("d", 3), rollback, one, adjust(2), adjust(-1),
		set("p", day(20), tokens), set("p", day(6)), set("c", day(5), tokens), pause,
	}
	shards := []Op{both, twice, many, take("c", 4), rollback, one, adjust(-1), split("c"), merge("p"), split("p"), pause}
	shared := []Op{both, twice, mixed, take("c", 5), rollback, one, adjust(2), adjust(-1)}
	changing := []Op{pair, take("c", 1), one, set("p", day(12)), set("p", day(12), tokens), pause}
	short := rest(700 * time.Millisecond)
	queue := []Op{
		asking(take("c", 1), take("d", 1)), asking(take("c", 1), take("c", 1)), waitFor("c", 2, 3*time.Second),
		waitFor("d", 1, 3*time.Second), rollback, one, short,
	}
	know := func(entity string) []Op { return []Op{take(entity, 1), pause} }
	return []Grammar{
		{Name: "together, cold", Initial: family, Words: [2][]Op{words, words}},
		{Name: "together", Initial: family, Warm: [2][]Op{know("d"), {both}}, Words: [2][]Op{words, words}},
		{
			Name: "together, split", Initial: family,
			Warm: [2][]Op{{take("d", 1), both, split("p")}, {take("c", 1)}}, Words: [2][]Op{shards, shards},
		},
		{Name: "together, coalescing", Initial: coalescing, Warm: [2][]Op{know("c"), nil}, Words: [2][]Op{shared, shared}, Shared: true, Others: []Op{both}},
		{Name: "together, changing", Initial: family, Words: [2][]Op{changing, changing}, Shared: true},
		{Name: "together, waits", Initial: waiting, Warm: [2][]Op{{take("c", 1)}, nil}, Words: [2][]Op{queue, queue}},
	}
}
