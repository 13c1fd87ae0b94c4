package explore

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// An order is one run of a program.
type order struct {
	*sched
	program  *Program
	limiters []*zlimit.RateLimiter
	errs     []error
}

// limiterOptions returns the options of all limiters. They are as strict as can be.
func (p *Program) limiterOptions() []zlimit.Option {
	opts := []zlimit.Option{
		zlimit.WithConfigTTL(configTTL),
		zlimit.WithFreshness(0),
		zlimit.WithRejectionCache(p.Initial.Memory), // a rejection from memory need not agree with the store, see [witness.remembers]
		zlimit.WithCallTimeout(1000 * time.Hour),
		zlimit.WithPrincipal("explorer"),
	}
	return opts
}

// limiter returns a new limiter on a port.
func (o *order) limiter(p *port, opts ...zlimit.Option) (*zlimit.RateLimiter, error) {
	opts = append(opts, o.program.limiterOptions()...)
	if ahead := o.program.Initial.Ahead; ahead > 0 && p.process == 0 {
		opts = append(opts, zlimit.WithClock(func() time.Time { return time.Now().Add(ahead) }))
	}
	within := hooks.Limiter{Random: p.intN, Yield: p.yield}
	if o.program.Initial.Coalescing {
		within.WritesAtOnce = max(1, o.program.Initial.AtOnce)
	}
	return zlimit.New(context.Background(), storeOf(p), append(opts, zlimit.WithHooks(within))...)
}

// storeOf returns a store of a port for the public API.
func storeOf(p *port) zlimit.Store { return store.NewHandle(p, false) }

// newOrder returns an order that begins with a table.
func newOrder(p *Program, t *table) *order {
	o := &order{sched: &sched{table: t, left: p.Faults.Most}, program: p}
	for i := range p.processes() + 1 { // the last one is for splits, merges and the preparation
		o.ports = append(o.ports, &port{sched: o.sched, process: i, learned: map[uint64]uint64{}})
	}
	o.witness = newWitness(p)
	return o
}

// prepare returns the table that a program begins with.
func prepare(t *testing.T, p *Program) *table {
	schema := dynamo.CreateTableInput("explored")
	var indexes []store.Index
	for _, x := range schema.GlobalSecondaryIndexes {
		indexes = append(indexes, store.Index{
			Name: *x.IndexName, PK: *x.KeySchema[0].AttributeName, SK: *x.KeySchema[1].AttributeName,
			KeysOnly: x.Projection.ProjectionType == "KEYS_ONLY",
		})
	}
	for _, x := range schema.LocalSecondaryIndexes {
		indexes = append(indexes, store.Index{
			Name: *x.IndexName, PK: store.PK, SK: *x.KeySchema[1].AttributeName,
			KeysOnly: x.Projection.ProjectionType == "KEYS_ONLY", Local: true,
		})
	}
	made := newTable(indexes)
	synctest.Test(t, func(t *testing.T) {
		o := newOrder(p, made)
		done := o.spawn(func() {
			ctx := context.Background()
			l, err := o.limiter(o.ports[len(o.ports)-1], zlimit.WithSetup())
			if err != nil {
				t.Errorf("limiter() = %v", err)
				return
			}
			for _, e := range p.Initial.families() {
				_, err = l.Entities.Create(ctx, e)
				o.errs = append(o.errs, err)
			}
			for entity, limits := range p.Initial.Limits {
				if entity == "" {
					err = l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: limits})
				} else {
					err = l.Limits.Set(ctx, zlimit.Level{Entity: entity, Resource: resource}, zlimit.Config{Limits: limits})
				}
				o.errs = append(o.errs, err)
			}
			o.errs = append(o.errs, l.Close())
		})
		o.pump(first, done)
		check.Fatal(t, "the setup", errors.Join(o.errs...))
	})
	for _, f := range p.Faults.Fates {
		made.lags = made.lags || f == Lag
	}
	made.settle()
	return made
}

// spawn runs a function in a goroutine, and returns a function that reports whether it has returned.
func (o *order) spawn(f func()) func() bool {
	var done atomic.Bool
	go func() {
		defer done.Store(true)
		f()
	}()
	return done.Load
}

// all joins functions that report whether something is done.
func all(done []func() bool) func() bool {
	return func() bool {
		for _, d := range done {
			if !d() {
				return false
			}
		}
		return true
	}
}

// run runs a program once, in a bubble of its own; choose decides about the calls between preparation and end. It returns
// false when choose cut the order short.
func (o *order) run(t *testing.T, choose func([]*call) (option, bool)) (whole bool) {
	synctest.Test(t, func(*testing.T) {
		o.witness.start = time.Now()
		actors := make([]*actor, len(o.program.Actors))
		done := o.spawn(func() {
			for i := range o.program.processes() {
				l, err := o.limiter(o.ports[i])
				if err != nil {
					o.witness.blame("error", "New: %v", err)
					return
				}
				o.limiters = append(o.limiters, l)
			}
			for i := range actors {
				actors[i] = &actor{order: o, index: i, gated: o.program.gated()}
				actors[i].work(o.program.Actors[i].Warm)
			}
		})
		o.pump(o.watched(first), done)
		if o.witness.wrong != nil {
			o.log = append(o.log, line{text: "          (before the exploration)"})
		} else {
			o.log, o.events = nil, 0
			for i := range actors {
				actors[i].number, actors[i].exploring = 0, true
			}
			whole = o.explore(actors, choose)
		}
		o.close()
	})
	return whole
}

// explore runs the actors side by side, and what comes in the end.
func (o *order) explore(actors []*actor, choose func([]*call) (option, bool)) (whole bool) {
	var done []func() bool
	for i, a := range actors {
		done = append(done, o.spawn(func() { a.work(o.program.Actors[i].Ops) }))
	}
	cut := false
	live := o.pump(o.watched(func(calls []*call) (option, bool) {
		next, ok := choose(calls)
		cut = !ok
		return next, ok
	}), all(done))
	o.witness.step()
	switch {
	case cut:
		return false
	case o.witness.wrong != nil:
		return true
	case !live:
		o.witness.blame("stuck", "nothing happens any more")
		return true
	}
	finished := o.spawn(o.finish)
	if !o.pump(o.watched(first), finished) {
		o.witness.blame("stuck", "nothing happens any more in the end")
	}
	o.witness.step()
	o.witness.balance()
	o.witness.judgeWaits()
	return true
}

// watched lets the witness look before each choice, and ends where something is wrong.
func (o *order) watched(choose func([]*call) (option, bool)) func([]*call) (option, bool) {
	return func(calls []*call) (option, bool) {
		o.witness.step()
		if o.witness.wrong != nil {
			return option{}, false
		}
		return choose(calls)
	}
}

// close ends all calls and closes the limiters.
func (o *order) close() {
	o.end()
	closed := o.spawn(func() {
		for _, l := range o.limiters {
			_ = l.Close()
		}
	})
	o.pump(func([]*call) (option, bool) { return option{}, true }, closed)
	synctest.Wait()
	time.Sleep(maxIdle) // what waits for its time, such as a pause between two tries, comes to its end
	synctest.Wait()
}

// An actor does operations of a program, one after another.
type actor struct {
	*order
	index     int
	number    int
	gated     bool
	exploring bool
	lease     *leased
}

// work does operations.
func (a *actor) work(ops []Op) {
	for _, op := range ops {
		if a.ending.Load() || a.ports[a.program.Actors[a.index].Process].dead.Load() {
			return
		}
		a.do(op)
		a.number++
	}
}

// do does one operation.
func (a *actor) do(op Op) {
	process := a.program.Actors[a.index].Process
	if op.More {
		if a.lease == nil {
			return
		}
		op.Entity = a.lease.asked.Entity
	}
	r := a.begin(op, a.index, a.number, a.ports[process])
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), opKey{}, r))
	defer cancel()
	r.cancel = cancel
	if op.Kind == Rest {
		_ = a.rest(r)
		return
	}
	if a.gated && a.exploring {
		_ = r.port.pause(ctx, op.String(), 0)
		r.begun, r.after = time.Now().UnixMilli(), a.witness.done
	}
	a.ended(r, a.perform(ctx, r, a.limiters[process]))
}

// begin notes the beginning of an operation.
func (o *order) begin(op Op, actor, number int, p *port) *running {
	r := &running{Op: op, actor: actor, number: number, port: p, begun: time.Now().UnixMilli()}
	o.mu.Lock()
	defer o.mu.Unlock()
	r.drawn, r.after = maps.Clone(o.witness.drawn), o.witness.done
	if p.process < len(o.limiters) && o.limiters[p.process].Stats().Outage {
		r.outages++ // it may be refused
	}
	o.witness.moments++
	r.since = o.witness.moments
	o.witness.ops = append(o.witness.ops, r)
	return r
}

// ended notes the outcome of an operation.
func (o *order) ended(r *running, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ending.Load() {
		r.judged = true
	}
	o.witness.moments++
	r.err, r.ended, r.at, r.over = err, true, time.Now().UnixMilli(), o.witness.moments
}

// perform does an operation through the public API.
func (a *actor) perform(ctx context.Context, r *running, l *zlimit.RateLimiter) error {
	switch r.Kind {
	case Take:
		if r.More {
			return a.lease.take(ctx, r)
		}
		lease, err := a.acquire(ctx, r, l)
		var exceeded *zlimit.ExceededError
		if r.Insist && errors.As(err, &exceeded) && exceeded.Possible() {
			wait := exceeded.RetryAfter()
			if err := r.port.pause(ctx, "rests for "+wait.String(), wait); err != nil {
				return err
			}
			lease, err = a.acquire(ctx, r, l)
			if errors.As(err, &exceeded) && len(a.program.Actors) == 1 {
				a.blameWait("%q must wait %v, and after that, with nothing else going on, %v: %v", r.Op, wait, exceeded.RetryAfter(), err)
			}
		}
		if lease != nil {
			a.lease = lease
		}
		return err
	case Adjust, Rollback:
		return a.settle(ctx, r)
	case Set:
		if r.Entity == "" {
			return l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: r.Limits})
		}
		return l.Limits.Set(ctx, zlimit.Level{Entity: r.Entity, Resource: resource}, zlimit.Config{Limits: r.Limits})
	case Unset:
		if r.Entity == "" {
			return l.Limits.Delete(ctx, zlimit.Level{})
		}
		return l.Limits.Delete(ctx, zlimit.Level{Entity: r.Entity, Resource: resource})
	case Split, Merge:
		err := a.resize(ctx, r)
		if failed := (*store.Error)(nil); errors.As(err, &failed) && (failed.Unavailable || errors.Is(err, store.ErrConflict)) {
			return nil // and left to another time
		}
		return err
	case Lose:
		return a.lose(ctx, r, l)
	case Die:
		r.port.kill()
		return nil
	case TopUp, Reset, Disable, Enable:
		return a.byHand(ctx, r, l)
	case Move:
		return r.moveTo(ctx, l)
	case Look:
		_, err := l.Available(ctx, zlimit.AvailableQuery{Entity: r.Entity, Resource: resource})
		return err
	default:
		if a.witness.crowd != nil { // slots that begin in the millisecond of others are not distinguished from these
			_ = r.port.pause(ctx, "waits for a millisecond", time.Millisecond)
		}
		return l.Entities.Delete(ctx, r.Entity)
	}
}

// settle settles the last lease.
func (a *actor) settle(ctx context.Context, r *running) error {
	le := a.lease
	if a.lease = nil; le == nil {
		return nil
	}
	r.lease, le.settles = le, r
	if le.reservation != nil {
		return le.attend(ctx, r)
	}
	return le.settle(ctx, r)
}

// enoughPings open a breaker that is closed, when all of them are refused.
const enoughPings = 10

// lose opens the breaker of a process. Its calls under way meet an outage.
func (o *order) lose(ctx context.Context, r *running, l *zlimit.RateLimiter) error {
	r.port.away.Store(true)
	for range enoughPings {
		if l.Ping(ctx) == nil {
			return errors.New("a ping is answered while the store is away")
		}
	}
	r.port.away.Store(false)
	if !l.Stats().Outage {
		return errors.New("the breaker is closed")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r.port.learn(digestOf("away", time.Now().UnixNano()))
	for _, other := range o.witness.ops {
		if !other.judged && other.port == r.port {
			other.outages++
		}
	}
	return nil
}

// acquire acquires the amounts of an operation.
func (o *order) acquire(ctx context.Context, r *running, l *zlimit.RateLimiter) (*leased, error) {
	if r.Books {
		return o.book(ctx, r, l, r.ask(&r.Op))
	}
	var le *leased
	var err error
	if len(r.With) > 0 {
		le, err = o.together(ctx, r, l)
	} else {
		le, err = acquireOrWait(ctx, r, l)
	}
	if err != nil {
		return nil, err
	}
	r.degraded = le.lease.Degraded()
	for _, s := range le.lease.Statuses() {
		if s.Ancestor == 0 && s.Limit.Term == 0 {
			r.by = append(r.by, s.Limit)
		}
	}
	le.took, le.doubt, r.made = maps.Clone(r.net), r.degraded, le
	o.admitted(le)
	return le, nil
}

// ask returns one of the requests of an operation.
func (r *running) ask(o *Op) zlimit.Request {
	request := zlimit.Request{Entity: o.Entity, Resource: resource, Consume: o.request(), Limits: o.Own, Priority: r.As, OnUnavailable: zlimit.PolicyBlock}
	if r.Allow {
		request.OnUnavailable = zlimit.PolicyAllow
	}
	return request
}

// resize splits a bucket, or merges its shards, in one try.
func (a *actor) resize(ctx context.Context, r *running) error {
	err := a.resizeShard(ctx, r, 0, 1)
	for shard := 0; shard < 2 && r.Twice && err == nil; shard++ {
		err = a.resizeShard(ctx, r, shard, shard+2)
	}
	return err
}

func (a *actor) resizeShard(ctx context.Context, r *running, from, to int) error {
	p := a.ports[len(a.ports)-1]
	low := layout.BucketKey{NS: a.namespace(), Entity: r.Entity, Resource: resource, Shard: from}
	high := low
	high.Shard = to
	items, err := p.Read(ctx, []store.Key{low.Key(), high.Key()}, true)
	if err != nil || items[0] == nil || (items[1] != nil) != (r.Kind == Merge) {
		return err
	}
	decoded, state, err := layout.ReadBucket(items[0])
	if err != nil {
		return err
	}
	var writes []store.Write
	if r.Kind == Split {
		writes, err = low.Split(&state, nil, decoded.Lineage())
	} else {
		var other bucket.State
		if other, err = layout.ReadState(items[1]); err != nil || !state.MergesWith(&other) {
			return err
		}
		writes, err = low.Merge(high, &state, &other, time.Now().UnixMilli())
	}
	if err != nil || len(writes) == 0 {
		return err
	}
	_, err = p.Transact(ctx, writes)
	return err
}

// namespace returns the ID of the namespace.
func (o *order) namespace() string {
	for k := range o.table.rows {
		if s, ok := layout.ParseBucketKey(k); ok {
			return s.NS
		}
	}
	return ""
}
