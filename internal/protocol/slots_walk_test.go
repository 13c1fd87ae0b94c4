package protocol

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

var (
	slotWalks = flag.Int("slots.walks", 300, "random interleavings of processes that hold slots")
	slotSeed  = flag.Uint64("slots.seed", 0, "the seed of the first one")
)

// A slotWalk is a random interleaving of processes that hold slots of one bucket, in virtual time. Each call of the store
// is held until the walk lets it happen, or loses it. The model is the set of held slots, which the counters of the item
// stand for. Each slot has its process, and the epoch in which the process last renewed.
type slotWalk struct {
	t     *testing.T
	seed  uint64
	rnd   *rand.Rand
	began time.Time
	term  time.Duration // the shortest one
	key   layout.BucketKey
	items map[store.Key]expr.Item
	tells bool // it writes a log
	log   []string

	limits  *Limits // as stored
	procs   []*slotProc
	started int

	mu   sync.Mutex // guards what follows
	held []*slotCall
	over bool // calls fail from now on

	read struct { // the last one
		of    *expr.Attribute
		slots *bucket.Slots
	}

	// The model, which changes with the item.
	set      map[*slotProc]map[int64]int64 // slots by process and epoch
	vague    atomic.Bool                   // a write had an outcome that its process does not know
	fence    int64                         // greatest of all
	enrolled int64
	created  time.Time      // when the counters began
	taken    map[int64]bool // fencing numbers that callers have
	admitted int
	wrong    string
}

// A slotProc is a process.
type slotProc struct {
	store.Store
	walk      *slotWalk
	number    int
	e         *Engine
	limits    atomic.Pointer[Limits]
	dead      atomic.Bool // it was killed: nothing of it reaches the store any more
	suspended atomic.Bool // none of its instructions runs
	resumed   chan struct{}
	leases    []*slotLease
	asking    atomic.Int64 // callers under way
}

// A slotLease is the slots of a caller.
type slotLease struct {
	of      *slotProc
	receipt *Receipt
	hold    *Hold
}

// A slotCall is a call of the store that is held.
type slotCall struct {
	of     *slotProc
	writes []store.Write // none for a read
	keys   []store.Key
	answer chan slotAnswer
	done   *slotAnswer // made, and not answered yet
	orphan bool        // no one waits for it any more
}

type slotAnswer struct {
	results []store.Result
	applied bool
	items   []expr.Item
	err     error
}

func (w *slotWalk) notef(format string, args ...any) {
	if !w.tells {
		return
	}
	w.log = append(w.log, fmt.Sprintf("%9.3f s  ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

func (w *slotWalk) blame(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
		w.notef("WRONG: %s", w.wrong)
	}
}

// lost is the error of a call that is not answered.
func lost(unknown bool) error {
	return &store.Error{Op: "call", Unavailable: true, Unknown: unknown, Err: errors.New("connection reset")}
}

// hold waits until the walk has decided about a call.
func (p *slotProc) hold(ctx context.Context, c *slotCall) slotAnswer {
	w := p.walk
	w.mu.Lock()
	if p.dead.Load() || w.over {
		w.mu.Unlock()
		return slotAnswer{err: lost(false)}
	}
	c.of, c.answer = p, make(chan slotAnswer, 1)
	w.held = append(w.held, c)
	w.mu.Unlock()
	select {
	case a := <-c.answer:
		return a
	case <-ctx.Done():
		w.mu.Lock()
		if c.orphan = true; len(c.writes) > 0 {
			w.vague.Store(true)
		}
		w.mu.Unlock()
		return slotAnswer{err: &store.Error{Op: "call", Unavailable: true, Unknown: len(c.writes) > 0, Err: ctx.Err()}}
	}
}

func (p *slotProc) Write(ctx context.Context, write store.Write) (store.Result, error) {
	a := p.hold(ctx, &slotCall{writes: []store.Write{write}})
	if a.err != nil {
		return store.Result{}, a.err
	}
	return a.results[0], nil
}

func (p *slotProc) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	a := p.hold(ctx, &slotCall{writes: writes})
	return a.results, a.err
}

func (p *slotProc) Read(ctx context.Context, keys []store.Key, _ bool) ([]expr.Item, error) {
	a := p.hold(ctx, &slotCall{keys: keys})
	return a.items, a.err
}

func (*slotProc) Partitioned() bool { return false }

// Elapsed implements [Sleeper].
func (p *slotProc) Elapsed() time.Duration { return time.Since(p.walk.began) }

// Sleep implements [Sleeper]: who is suspended sleeps on.
func (p *slotProc) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	for p.suspended.Load() && !p.dead.Load() {
		<-p.resumed
	}
	return ctx.Err()
}

// For implements [LimitSource].
func (p *slotProc) For(context.Context, *Bucket) (*Limits, error) { return p.limits.Load(), nil }

// After implements [LimitSource].
func (p *slotProc) After(context.Context, *Bucket, int64) (*Limits, error) {
	next := *p.walk.limits
	next.Epoch = p.e.NextEpoch()
	p.limits.Store(&next)
	return &next, nil
}

// apply makes a call, and holds its writes against the model.
func (w *slotWalk) apply(c *slotCall) (a slotAnswer) {
	for _, k := range c.keys {
		a.items = append(a.items, w.items[k])
	}
	if len(c.writes) == 0 {
		return a
	}
	before := w.slots()
	a.results, a.applied = w.transact(c.writes)
	if a.applied {
		w.judge(c.of, before, w.slots())
	}
	return a
}

// transact makes writes, all or none.
func (w *slotWalk) transact(writes []store.Write) (results []store.Result, applied bool) {
	results, applied = make([]store.Result, len(writes)), true
	for i := range writes {
		old := w.items[writes[i].Key]
		results[i] = store.Result{Applied: writes[i].Expr.Template == nil || writes[i].Expr.Holds(old), Item: old}
		applied = applied && results[i].Applied
	}
	if !applied {
		return results, false
	}
	for i := range writes {
		write := &writes[i]
		next := write.Key.Join(write.Item)
		switch write.Kind {
		case store.Update:
			if next = w.items[write.Key]; next == nil {
				next = write.Key.Join(nil)
			}
			var err error
			if next, err = write.Expr.Apply(next); err != nil {
				w.blame("a write cannot be applied: %v", err)
				continue
			}
		case store.Delete:
			delete(w.items, write.Key)
			continue
		case store.Check:
			continue
		default:
		}
		w.items[write.Key], results[i].Item = next, next
	}
	return results, true
}

// start starts a process.
func (w *slotWalk) start() *slotProc {
	tenth := w.term.Milliseconds()/10 - 2 // times are reported in whole milliseconds
	skew := []int64{tenth, -tenth, w.rnd.Int64N(2*tenth) - tenth}[w.rnd.IntN(3)]
	return w.startAs(time.Duration(skew)*time.Millisecond, w.term*time.Duration(1+w.rnd.IntN(20))/10, w.rnd.IntN(3))
}

// startAs starts a process whose clock is off by a time, whose calls have a time, and which makes so many writes at once before it shares them.
func (w *slotWalk) startAs(skew, timeout time.Duration, writesAtOnce int) *slotProc {
	p := &slotProc{walk: w, number: w.started, resumed: make(chan struct{})}
	w.started++
	random := rand.New(rand.NewPCG(w.seed, uint64(p.number)))
	var mu sync.Mutex
	p.e = New(Options{
		Table: table.New(p, table.Options{Timeout: timeout, IntN: func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return random.IntN(n)
		}}),
		Source: p, Namespace: func() string { return "ns" }, Now: func() time.Time { return time.Now().Add(skew) },
		Freshness: func([]bucket.Params) int64 { return 1000 }, MaxShards: 32, WritesAtOnce: writesAtOnce, Buckets: 100,
		MaxLead: time.Hour, SettleLimit: w.term / 2, Logger: slog.New(slog.DiscardHandler), Sleeper: p,
		Resized: func(context.Context, string, string, int) {},
	})
	p.limits.Store(w.limits)
	w.procs = append(w.procs, p)
	w.notef("process %d starts, its clock off by %v", p.number, skew)
	return p
}

// await takes slots for a caller that stands in line for them, as [Waits] asks for it.
func (p *slotProc) await(r *Request, receipt *Receipt) (err error) {
	ctx, until := context.Background(), p.Elapsed()+2*p.walk.term
	defer func() { r.Place.Leave(ctx, err == nil) }()
	for {
		var rejected *RejectedError
		if err = p.e.Take(ctx, r, receipt); !errors.As(err, &rejected) {
			return err
		}
		short, ok := rejected.ShortOfSlots()
		rest := until - p.Elapsed()
		if !ok || rest <= 0 {
			return err
		}
		if r.Place == nil {
			r.Place = p.e.Waits.Join(short, r.Place)
		}
		if failure := r.Place.Await(ctx, rest); failure != nil {
			return failure
		}
		*receipt = Receipt{}
	}
}

// ask makes a caller take a slot, alone or beside tokens. It may wait for that.
func (w *slotWalk) ask(p *slotProc, slots int64, waits bool) (done func() error) {
	r := &Request{Entity: w.key.Entity, Resource: w.key.Resource, Amounts: []bucket.Amount{{Limit: "slots", Tokens: slots * bucket.Slot}}}
	if w.rnd.IntN(4) == 0 {
		r.Amounts = append(r.Amounts, bucket.Amount{Limit: "rpd", Tokens: 3000})
	}
	take := func(receipt *Receipt) error { return p.e.Take(context.Background(), r, receipt) }
	if waits {
		take = func(receipt *Receipt) error { return p.await(r, receipt) }
	}
	var err error
	var ended atomic.Bool
	p.asking.Add(1)
	go func() {
		defer ended.Store(true)
		defer p.asking.Add(-1)
		var receipt Receipt
		if err = take(&receipt); err != nil {
			return
		}
		h := receipt.Holds()[0]
		w.mu.Lock()
		defer w.mu.Unlock()
		if p.dead.Load() {
			return
		}
		if w.taken[h.fence] || h.fence > w.fence {
			w.blame("process %d has the fencing number %d, of at most %d; another one has it: %t", p.number, h.fence, w.fence, w.taken[h.fence])
		}
		w.taken[h.fence] = true
		w.admitted++
		p.leases = append(p.leases, &slotLease{p, &receipt, h})
		w.notef("process %d has a slot, with fencing number %d", p.number, h.fence)
	}()
	return func() error {
		if !ended.Load() {
			return errors.New("it has not come back")
		}
		return err
	}
}

// giveBack gives back the slot of a caller.
func (w *slotWalk) giveBack(p *slotProc) {
	if len(p.leases) == 0 {
		return
	}
	at := w.rnd.IntN(len(p.leases))
	l := p.leases[at]
	p.leases = slices.Delete(p.leases, at, at+1)
	w.notef("process %d gives %d back", p.number, l.hold.fence)
	settle := l.receipt.Return()
	if w.rnd.IntN(2) == 0 {
		settle = l.receipt.Correct([]bucket.Amount{{Limit: "rpd", Tokens: 1000}})
	}
	go func() { _ = p.e.Settle(context.Background(), &settle) }()
}

// kill ends a process abruptly. What it has sent may still arrive.
func (w *slotWalk) kill(p *slotProc) {
	w.notef("process %d is killed", p.number)
	p.dead.Store(true)
	w.mu.Lock()
	for _, c := range w.held {
		if c.of == p && !c.orphan {
			c.orphan = true
			c.answer <- slotAnswer{err: lost(false)}
		}
	}
	w.held = slices.DeleteFunc(w.held, func(c *slotCall) bool { return c.of == p && (len(c.writes) == 0 || w.rnd.IntN(2) == 0) })
	w.mu.Unlock()
	if p.suspended.Load() {
		close(p.resumed)
	}
	go p.e.Close()
	w.procs = slices.DeleteFunc(w.procs, func(other *slotProc) bool { return other == p })
}

// text describes a call for the log.
func (c *slotCall) text() string {
	if len(c.writes) == 0 {
		return "read"
	}
	return "write"
}

// decide lets a held call happen, or not.
func (w *slotWalk) decide(faults float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ready := slices.DeleteFunc(slices.Clone(w.held), func(c *slotCall) bool { return c.of.suspended.Load() && c.done != nil })
	if len(ready) == 0 {
		return
	}
	c := ready[w.rnd.IntN(len(ready))]
	w.held = slices.DeleteFunc(w.held, func(other *slotCall) bool { return other == c })
	before := w.slots()
	switch fate := w.rnd.Float64(); {
	case c.orphan && c.done != nil:
	case c.orphan:
		if len(c.writes) > 0 {
			w.vague.Store(true)
			applied := w.apply(c).applied
			w.notef("late %s of process %d, applied %t: %v -> %v", c.text(), c.of.number, applied, before, w.slots())
		}
	case c.done != nil:
		c.answer <- *c.done
		w.notef("reply to process %d", c.of.number)
	case fate < faults/2:
		w.vague.Store(w.vague.Load() || len(c.writes) > 0)
		w.notef("%s of process %d lost", c.text(), c.of.number)
		if c.answer <- (slotAnswer{err: lost(len(c.writes) > 0)}); len(c.writes) > 0 && w.rnd.IntN(2) == 0 {
			c.orphan = true // it comes later
			w.held = append(w.held, c)
		}
	case fate < faults:
		a := w.apply(c)
		w.vague.Store(w.vague.Load() || a.applied)
		c.answer <- slotAnswer{err: lost(len(c.writes) > 0)}
		w.notef("%s of process %d, reply lost, applied %t: %v -> %v", c.text(), c.of.number, a.applied, before, w.slots())
	default:
		a := w.apply(c)
		w.notef("%s of process %d, applied %t: %v -> %v", c.text(), c.of.number, a.applied, before, w.slots())
		if c.of.suspended.Load() || w.rnd.IntN(4) == 0 { // the reply takes its time
			c.done = &a
			w.held = append(w.held, c)
			return
		}
		c.answer <- a
	}
}

// pass lets time pass.
func (w *slotWalk) pass() {
	ms := int64(w.term / time.Millisecond)
	d := int64(1)
	switch w.rnd.IntN(8) {
	case 0, 1:
		d += w.rnd.Int64N(ms / 50)
	case 2, 3, 4:
		d += w.rnd.Int64N(ms / 4)
	case 5, 6: // to about the next beginning of an epoch, by some clock
		d = max(d, ms-time.Now().UnixMilli()%ms+w.rnd.Int64N(ms/4)-ms/8)
	default:
		d += w.rnd.Int64N(ms)
	}
	time.Sleep(time.Duration(d) * time.Millisecond)
}

// resize changes the number of slots and their term, of which processes hear when they ask.
func (w *slotWalk) resize() {
	next := *w.limits
	next.Config.Slots = []bucket.SlotParams{{Name: "slots", Slots: 1 + w.rnd.Int64N(4), Term: next.Config.Slots[0].Term}}
	if w.rnd.IntN(4) == 0 {
		next.Config.Slots[0].Term = w.term.Milliseconds() * (2 + w.rnd.Int64N(2)) / 2
	}
	w.limits = &next
	for _, p := range w.procs {
		if w.rnd.IntN(2) == 0 {
			p.limits.Store(w.limits)
		}
	}
	w.notef("there are %d slots of %d ms", next.Config.Slots[0].Slots, next.Config.Slots[0].Term)
}

// divide splits the bucket, or merges its shards.
func (w *slotWalk) divide() {
	high := w.key
	high.Shard = 1
	item := w.items[w.key.Key()]
	if item == nil {
		return
	}
	decoded, state, err := layout.ReadBucket(item)
	if err != nil {
		w.blame("%v", err)
		return
	}
	var writes []store.Write
	if other := w.items[high.Key()]; other == nil {
		writes, err = w.key.Split(&state, nil, decoded.Lineage())
	} else {
		var others bucket.State
		if others, err = layout.ReadState(other); err == nil && state.MergesWith(&others) {
			writes, err = w.key.Merge(high, &state, &others, time.Now().UnixMilli())
		}
	}
	if err != nil {
		w.blame("%v", err)
		return
	}
	before := w.slots()
	if _, applied := w.transact(writes); !applied {
		return
	}
	w.notef("the bucket has %d items", len(w.items))
	if after := w.slots(); (before == nil) != (after == nil) || before != nil && *before != *after {
		w.blame("a split or a merge changes the slots from %+v to %+v", before, after)
	}
}

// remove deletes the bucket, as an operator does, or where it has expired.
func (w *slotWalk) remove(byHand bool) {
	item := w.items[w.key.Key()]
	if item == nil {
		return
	}
	if time.Since(w.created) < w.term/5 { // new fencing numbers may be those of before: they begin by a clock
		return
	}
	if !byHand {
		s, err := layout.ReadState(item)
		if err != nil || s.ExpiresAt <= 0 || s.ExpiresAt*1000 > time.Now().UnixMilli() {
			return
		}
	}
	w.notef("the bucket is deleted, by hand %t", byHand)
	w.lose() // a write that creates the bucket, and was sent before it was deleted, has an old fencing number
	clear(w.items)
	w.set = map[*slotProc]map[int64]int64{}
	if byHand {
		w.enrolled = 0 // who is at work is so without slots
	}
}

// lose ends all calls that are held without effect.
func (w *slotWalk) lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.held {
		if !c.orphan && c.done == nil {
			c.answer <- slotAnswer{err: lost(len(c.writes) > 0)}
		} else if !c.orphan {
			c.answer <- *c.done
		}
	}
	w.held = nil
	w.vague.Store(true)
}

// step does something at random.
func (w *slotWalk) step(faults float64, deletes bool) {
	p := w.procs[w.rnd.IntN(len(w.procs))]
	switch n := w.rnd.IntN(1000); {
	case n < 500:
		w.decide(faults)
	case n < 680:
		w.pass()
	case n < 850:
		if !p.suspended.Load() && p.asking.Load() < 5 {
			w.ask(p, 1+w.rnd.Int64N(4)/3, w.rnd.IntN(2) == 0)
		}
	case n < 930:
		if !p.suspended.Load() {
			w.giveBack(p)
		}
	case n < 940:
		w.kill(p)
		w.start()
	case n < 950: // in good order
		if !p.suspended.Load() {
			w.notef("process %d is closed", p.number)
			go p.e.Close()
			w.start()
		}
	case n < 970:
		if p.suspended.CompareAndSwap(false, true) {
			w.notef("process %d is suspended", p.number)
		} else {
			w.notef("process %d goes on", p.number)
			p.suspended.Store(false)
			close(p.resumed)
			p.resumed = make(chan struct{})
		}
	case n < 980:
		w.resize()
	case n < 995:
		w.divide()
	default:
		w.remove(deletes && w.rnd.IntN(2) == 0)
	}
}

// finish ends all processes abruptly. All slots are free again in two terms and the difference of the clocks.
func (w *slotWalk) finish() {
	for len(w.procs) > 0 {
		w.kill(w.procs[0])
	}
	w.mu.Lock()
	w.held = nil
	w.mu.Unlock()
	w.notef("all are gone")
	time.Sleep(w.term * 33 / 10) // by a longer term
	w.remove(false)
	p := w.start()
	all := w.limits.Config.Slots[0].Slots
	done := w.ask(p, all, false)
	for range 50 {
		synctest.Wait()
		w.decide(0)
		if done() == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	synctest.Wait()
	if err := done(); err != nil {
		w.blame("2.2 of the longest terms after the last process, not all of %d slots can be taken: %v; %+v", all, err, w.slots())
	}
	w.kill(p)
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	synctest.Wait()
}

// newSlotWalk returns a walk with a number of slots.
func newSlotWalk(t *testing.T, seed uint64, slots int64) *slotWalk {
	w := &slotWalk{
		t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 0)), began: time.Now(), term: 10 * time.Second,
		key: layout.BucketKey{NS: "ns", Entity: "e", Resource: "r"}, items: map[store.Key]expr.Item{},
		set: map[*slotProc]map[int64]int64{}, taken: map[int64]bool{},
	}
	w.limits = &Limits{Epoch: 1 << 40, Config: bucket.Config{
		Params: []bucket.Params{{Name: "rpd", Capacity: 1e12, RefillAmount: 1e12, RefillPeriod: 86_400_000}},
		Slots:  []bucket.SlotParams{{Name: "slots", Slots: slots, Term: w.term.Milliseconds()}},
	}}
	return w
}

// walkSlots runs one interleaving, and returns what is wrong.
func walkSlots(t *testing.T, seed uint64, tells bool) (w *slotWalk) {
	synctest.Test(t, func(t *testing.T) {
		w = newSlotWalk(t, seed, 1+int64(seed%3))
		if w.tells = tells; w.rnd.IntN(3) == 0 { // it expires
			w.limits.Config.Params = []bucket.Params{{Name: "rpd", Capacity: 5_000_000, RefillAmount: 5_000_000, RefillPeriod: 1000}}
			w.limits.Config.ExpiryFactor = 1
		}
		time.Sleep(time.Duration(w.rnd.Int64N(w.term.Milliseconds())) * time.Millisecond)
		for range 2 + w.rnd.IntN(3) {
			w.start()
		}
		faults, deletes := []float64{0, 0, 0.05, 0.3}[w.rnd.IntN(4)], w.rnd.IntN(4) == 0
		for range 40 + w.rnd.IntN(120) {
			w.step(faults, deletes)
			synctest.Wait()
			if w.observe(); w.wrong != "" {
				break
			}
		}
		w.finish()
	})
	return w
}

// TestSlotsAgainstASet walks through random interleavings of processes that hold slots. Their clocks are up to a fifth of the term apart.
// Calls and replies are lost or late, processes are killed, closed or suspended, and the bucket is split, merged, deleted and given other
// numbers of slots. Never are more at work than the counters say, the counters are those of the set of held slots, and all slots come back.
func TestSlotsAgainstASet(t *testing.T) {
	var next, admitted atomic.Uint64
	began := time.Now()
	t.Run("workers", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for n := next.Add(1); n <= uint64(*slotWalks) && !t.Failed(); n = next.Add(1) {
					w := walkSlots(t, *slotSeed+n-1, false)
					if admitted.Add(uint64(w.admitted)); w.wrong != "" {
						reported := walkSlots(t, w.seed, true)
						t.Errorf("seed %d: %s\n%s", w.seed, w.wrong, strings.Join(reported.log, "\n"))
					}
				}
			})
		}
	})
	t.Logf("%d interleavings, %d admissions, in %v", *slotWalks, admitted.Load(), time.Since(began).Round(time.Millisecond))
	if admitted.Load() < uint64(*slotWalks) {
		t.Errorf("%d admissions: the processes hardly compete", admitted.Load())
	}
}
