package zlimit_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A fleet is a table, the processes that share it, and what they hold.
type fleet struct {
	t       *rapid.T
	clock   *clock
	witness *witness
	procs   []*process
	leases  []*held

	lines map[string]*lineage // of the entities

	remembers bool      // processes reject from memory
	expires   bool      // buckets expire
	disturbed time.Time // when limits or parents changed last

	splits, merges             atomic.Int64 // of shards, by processes in the background
	splitsBefore, mergesBefore int64        // those before the request that is judged
}

// A process is a limiter with a clock and a network of its own.
type process struct {
	limiter *zlimit.RateLimiter
	network *flaky
	skew    int64
}

// A held lease is one that was not settled yet.
type held struct {
	*zlimit.Lease
	entity string
	at     time.Time
	took   map[string]zlimit.Amounts // millitokens, of each entity that it has charged
	more   bool                      // it took more later
	doubt  bool                      // some of it is not known
}

// programTTL is how long a process uses limits that it has read.
const programTTL = time.Minute

// The entities that programs take from, and those that may be charged with them.
var (
	programEntities = []string{"alone", "child-1", "child-2"}
	programParents  = []string{"parent", "parent-2"}
)

func (w *fleet) start(skew int64, opts ...zlimit.Option) *process {
	p := &process{network: &flaky{Store: w.witness}, skew: skew}
	resized := zlimit.WithObserver(func(_ context.Context, e zlimit.Event) {
		switch {
		case e.Kind == zlimit.EventShards && e.Shards > 0:
			w.splits.Add(1)
		case e.Kind == zlimit.EventShards:
			w.merges.Add(1)
		}
	})
	now := func() time.Time { return w.clock.now().Add(time.Duration(p.skew) * time.Millisecond) }
	l, err := zlimit.New(context.Background(), zlimit.StoreOn(p.network), append([]zlimit.Option{zlimit.WithSetup(), zlimit.WithListing(false), zlimit.WithClock(now), resized}, opts...)...)
	check.Fatal(w.t, "zlimit.New()", err)
	p.limiter = l
	return p
}

// counted returns what an entity's buckets ever counted of each limit, in millitokens. The items do not show it: shards
// that a process merges meanwhile take along what they counted.
func (w *fleet) counted(entity string) zlimit.Amounts {
	w.witness.mu.Lock()
	defer w.witness.mu.Unlock()
	return maps.Clone(w.witness.ledger[entity])
}

func (w *fleet) check(what string) {
	if err := w.witness.verdict(); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// limitsOf draws a set of limits.
func drawLimits(t *rapid.T, names ...string) (limits []zlimit.Limit) {
	for _, name := range names {
		limits = append(limits, zlimit.Limit{
			Name:         name,
			Capacity:     rapid.Int64Range(1, 60).Draw(t, "capacity"),
			RefillAmount: rapid.Int64Range(1, 90).Draw(t, "refill"),
			RefillPeriod: time.Duration(rapid.SampledFrom([]int64{1, 7, 60, 86400}).Draw(t, "period")) * time.Second,
		})
	}
	return limits
}

// drawTheSame makes a test draw the same programs in every run, and more of them unless the run is short. make soak draws others.
func drawTheSame(t *testing.T, programs int) {
	t.Helper()
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() != checks.DefValue {
		return
	}
	values := map[string]string{"rapid.seed": "1"}
	if !testing.Short() {
		values["rapid.checks"] = strconv.Itoa(programs)
	}
	for name, value := range values {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			check.Fatal(t, "Value.Set()", f.Value.Set(value))
			t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
		}
	}
}

// TestPrograms runs random programs of several processes on one table. They acquire for children and parents, correct,
// roll back, change limits and parents, split and merge. Clocks disagree, memories are old, replies are lost, and
// processes end in the middle. A witness judges every write; a request takes all or nothing, and what a rejection
// reports is what happens (I4, I5, I8, I9).
func TestPrograms(t *testing.T) {
	drawTheSame(t, soak.Pick(300, 2000))
	rapid.Check(t, func(t *rapid.T) {
		memory := check.Call(zlimit.Memory()).Must(t, "zlimit.Memory()")
		defer memory.Close()
		w := &fleet{t: t, clock: newClock(), witness: newWitness(store.Of(memory)), lines: map[string]*lineage{}}
		lifetime := rapid.SampledFrom([]int{-1, 7}).Draw(t, "lifetime")
		w.expires = lifetime > 0
		opts := []zlimit.Option{zlimit.WithTuning(zlimit.Tuning{BucketTTL: lifetime}), zlimit.WithConfigTTL(programTTL), zlimit.WithCallTimeout(time.Minute)}
		if rapid.Bool().Draw(t, "exact") {
			opts = append(opts, zlimit.WithFreshness(0))
		}
		if w.remembers = rapid.Bool().Draw(t, "remembers"); !w.remembers {
			opts = append(opts, zlimit.WithRejectionCache(0))
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "processes") {
			w.procs = append(w.procs, w.start(int64(i)*rapid.Int64Range(-1500, 1500).Draw(t, "skew"), opts...))
		}
		defer func() {
			for _, p := range w.procs {
				_ = p.limiter.Close()
			}
		}()
		first := w.procs[0].limiter
		for _, parent := range programParents {
			create(t, first, zlimit.Entity{ID: parent})
		}
		for _, child := range programEntities[1:] {
			create(t, first, zlimit.Entity{ID: child, ParentID: "parent", Cascade: true})
		}
		setSystem(t, first, drawLimits(t, "rpm", "tpm")...)
		for _, child := range programEntities {
			w.family(child, nil)
		}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			w.step(opts)
		}
		w.finish(opts)
	})
}

// step does one thing.
func (w *fleet) step(opts []zlimit.Option) {
	t, ctx := w.t, context.Background()
	at := rapid.IntRange(0, len(w.procs)-1).Draw(t, "process")
	p := w.procs[at]
	if p.network.ended() {
		w.procs[at] = w.start(p.skew, opts...)
		_ = p.limiter.Close() // no call of it reaches the store
		return
	}
	entity := rapid.SampledFrom(programEntities).Draw(t, "entity")
	for _, other := range w.procs {
		w.repay(ctx, other)
	}
	before, lost, settled := map[string]zlimit.Amounts{}, lostBy(p.limiter), w.settled(p)
	for _, e := range append([]string{entity}, programParents...) {
		before[e] = w.counted(e)
	}
	counted := map[string]zlimit.Amounts{}
	for _, e := range programEntities {
		counted[e] = w.counted(e)
	}
	accounts := w.all()
	op := rapid.IntRange(0, 20).Draw(t, "operation")
	what := fmt.Sprintf("operation %d", op)
	switch op {
	case 0, 1, 2, 3, 4:
		consume := zlimit.Amounts{}
		for _, name := range []string{"rpm", "tpm"} {
			if n := rapid.Int64Range(-1, 40).Draw(t, name); n >= 0 {
				consume[name] = n
			}
		}
		parents := w.family(entity, consume)
		lease, err := p.limiter.Acquire(ctx, zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: consume})
		what = fmt.Sprintf("acquire %v for %s: %v", consume, entity, err)
		w.repay(ctx, p)
		if err == nil {
			taken := &held{Lease: lease, entity: entity, at: w.clock.now(), took: map[string]zlimit.Amounts{}, doubt: lostBy(p.limiter) != lost}
			if w.leases = append(w.leases, taken); !taken.doubt {
				w.take(what, taken, parents, accounts)
			}
		}
		if lostBy(p.limiter) == lost {
			w.checkTaken(what, entity, before, consume, settled, err)
		}
		var exceeded *zlimit.ExceededError
		if w.check(what); errors.As(err, &exceeded) {
			w.checkRejection(p, entity, consume, exceeded, settled && len(parents) == 1) // a process that does not know of a move asks a former parent
		}
	case 5, 6, 7:
		if len(w.leases) == 0 {
			return
		}
		i := rapid.IntRange(0, len(w.leases)-1).Draw(t, "lease")
		lease := w.leases[i]
		w.leases = append(w.leases[:i:i], w.leases[i+1:]...)
		var err error
		had, delta := lease.Consumed(), zlimit.Amounts{}
		if op == 7 {
			err = lease.Rollback(ctx)
			for name, n := range had {
				delta[name] = -n
			}
		} else {
			for _, name := range slices.Sorted(maps.Keys(lease.Consumed())) { // drawn in order, so that a seed repeats it
				delta[name] = rapid.Int64Range(-20, 40).Draw(t, "correction")
			}
			if err = lease.Adjust(delta); err != nil { // it is refused
				delta = nil
			}
			err = errors.Join(err, lease.Commit(ctx))
		}
		what = fmt.Sprintf("settle %s, which has %v, by %v: %v", lease.entity, had, delta, err)
		if err == nil {
			w.checkSettled(what, lease.entity, counted, delta)
		}
		if err == nil && !lease.doubt {
			w.checkAccounts(what, lease, accounts)
		}
	case 17, 18:
		if len(w.leases) == 0 {
			return
		}
		lease := w.leases[rapid.IntRange(0, len(w.leases)-1).Draw(t, "lease")]
		more := zlimit.Amounts{}
		for _, name := range slices.Sorted(maps.Keys(lease.Consumed())) {
			more[name] = rapid.Int64Range(0, 20).Draw(t, "more")
		}
		parents := w.family(lease.entity, more)
		lease.more = true
		err := lease.Consume(ctx, more)
		what = fmt.Sprintf("consume %v more for %s: %v", more, lease.entity, err)
		for _, other := range w.procs {
			w.repay(ctx, other)
		}
		if lease.doubt = lease.doubt || err != nil; !lease.doubt {
			w.take(what, lease, parents, accounts)
		}
	case 8:
		limits := drawLimits(t, []string{"rpm", "tpm", "x"}[:rapid.IntRange(1, 3).Draw(t, "limits")]...)
		_ = p.limiter.Limits.Set(ctx, zlimit.Level{Entity: rapid.SampledFrom(append(programParents, programEntities...)).Draw(t, "of"), Resource: "gpt-4"}, zlimit.Config{Limits: limits}) // may be lost
		w.disturb()
	case 9, 10:
		shards, err := shardsIn(ctx, w.witness, p.limiter.NS(), entity)
		if err != nil || len(shards) == 0 {
			return
		}
		i := shards[rapid.IntRange(0, len(shards)-1).Draw(t, "shard")%len(shards)]
		switch {
		case op == 9 && i.Shards < zlimit.MaxShards:
			_, _ = splitAt(ctx, p.limiter, entity, i) // may be lost
		case op == 10 && i.Shards > 1:
			i.Shard &^= i.Shards / 2
			_ = mergeAt(ctx, p.limiter, entity, i)
		}
	case 11:
		w.clock.ms.Add(rapid.SampledFrom([]int64{0, 1, 50, 900, 30_000, 70_000, 4_000_000}).Draw(t, "elapsed"))
	case 12:
		for range rapid.IntRange(1, 3).Draw(t, "writes") {
			p.network.add(fault(rapid.IntRange(int(none), int(endFirst)).Draw(t, "fault")))
		}
	case 13:
		_ = p.limiter.Limits.Delete(ctx, zlimit.Level{Entity: rapid.SampledFrom(append(programParents, programEntities...)).Draw(t, "of"), Resource: "gpt-4"})
		w.disturb()
	case 14:
		_ = p.limiter.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: drawLimits(t, "rpm", "tpm")})
		w.disturb()
	case 15:
		if entity == "alone" || !p.network.clear() {
			return
		}
		e := zlimit.Entity{ID: entity, ParentID: rapid.SampledFrom(append([]string{""}, programParents...)).Draw(t, "parent")}
		e.Cascade = e.ParentID != ""
		check.Fatal(t, "Entities.Delete()", p.limiter.Entities.Delete(ctx, entity))
		w.clock.sleep(10 * time.Second) // a stamp stands for one state of an item; a deleted one that comes back gets another
		create(t, p.limiter, e)
		if rapid.Bool().Draw(t, "moved") { // as often as a former one of its id, perhaps
			if _, err := p.limiter.Entities.SetParent(ctx, entity, rapid.SampledFrom(programParents).Draw(t, "to")); err != nil {
				t.Fatalf("Entities.SetParent() = %v", err)
			}
		}
		w.family(entity, nil)
		w.disturb()
	case 19, 20:
		if entity == "alone" {
			return
		}
		parent := rapid.SampledFrom(append([]string{""}, programParents...)).Draw(t, "parent")
		_, err := p.limiter.Entities.SetParent(ctx, entity, parent) // may be lost
		what = fmt.Sprintf("move %s to %q: %v", entity, parent, err)
		w.family(entity, nil)
	default:
		w.procs[at] = w.start(p.skew, opts...)
		check.Fatal(t, "Close()", p.limiter.Close())
	}
	w.check(what)
}

// checkSettled checks that a settled lease corrected a limit by the whole difference, or not at all. The bucket may have
// expired, or may have lost the limit. What the lease took before the bucket or the limit was made again is not given
// back, and what it took since is.
func (w *fleet) checkSettled(what, entity string, before map[string]zlimit.Amounts, delta zlimit.Amounts) {
	after := w.counted(entity)
	for _, name := range slices.Sorted(maps.Keys(delta)) {
		got, want := after[name]-before[entity][name], delta[name]*zlimit.Millis
		if got != want && got != 0 && (got > 0 || got < want) {
			w.t.Fatalf("%s: %s counts %d more of %s, want %d", what, entity, got, name, want)
		}
	}
}

// lostBy counts what a limiter could not give back, or does not know to have taken: a rejected request may have left that.
func lostBy(l *zlimit.RateLimiter) uint64 {
	stats := l.Stats()
	return stats.Unreturned + stats.UnknownOutcomes
}

// repay gives back what a process owes, which the process would do in the background.
func (w *fleet) repay(ctx context.Context, p *process) {
	for _, e := range slices.Concat(programEntities, programParents) {
		for range 10 { // more often than a program has faults in a row
			if p.limiter.Engine().Repay(ctx, e, "gpt-4") == nil {
				break
			}
		}
	}
}

// checkTaken checks that an acquire took all of what was asked, or nothing (I4, I3). It does so for the entity and at
// most one parent. A parent may lack a limit, and so may the entity, if a parent has it. A process that is not settled may
// use stale limits.
func (w *fleet) checkTaken(what, entity string, before map[string]zlimit.Amounts, consume zlimit.Amounts, settled bool, err error) {
	if errors.Is(err, errLost) {
		return
	}
	charged, counting := "", zlimit.Amounts{}
	for e := range before {
		after := w.counted(e)
		for _, name := range slices.Sorted(maps.Keys(consume)) {
			got, want := after[name]-before[e][name], int64(0)
			if err == nil && (got != 0 || e == entity && (consume[name] <= 0 || !w.mayLack(entity, name, settled))) {
				want = consume[name] * zlimit.Millis
			}
			counting[name] += got
			if got != want {
				w.t.Fatalf("%s: %s counts %d more of %s, want %d", what, e, got, name, want)
			}
			if got != 0 && e != entity {
				if charged != "" && charged != e {
					w.t.Fatalf("%s: both %s and %s are charged", what, charged, e)
				}
				charged = e
			}
		}
	}
	for name, n := range consume {
		if err == nil && n > 0 && counting[name] == 0 {
			w.t.Fatalf("%s: no bucket counts %s", what, name)
		}
	}
}

// mayLack reports whether an entity's level has no limit of a name, or may have had none for a process that is not settled.
func (w *fleet) mayLack(entity, name string, settled bool) bool {
	if !settled {
		return true
	}
	ctx := context.Background()
	l, err := zlimit.New(ctx, zlimit.StoreOn(w.witness), zlimit.WithClock(w.clock.now))
	if err != nil {
		w.t.Fatalf("open the witness: %v", err)
	}
	defer l.Close()
	config, err := l.Limits.Get(ctx, zlimit.Level{Entity: entity, Resource: "gpt-4"})
	if err == nil && len(config.Limits) == 0 {
		config, err = l.Limits.Get(ctx, zlimit.Level{})
	}
	if err != nil {
		w.t.Fatalf("read the limits of %s: %v", entity, err)
	}
	return !slices.ContainsFunc(config.Limits, func(limit zlimit.Limit) bool { return limit.Name == name })
}
