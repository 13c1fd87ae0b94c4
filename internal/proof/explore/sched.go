package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A sched decides about the calls of all processes, one at a time, when every goroutine of the bubble waits. Its
// methods are for that goroutine; exceptions say so.
type sched struct {
	table   *table
	witness *witness
	ports   []*port
	loose   bool // see [Sweep.Loose]
	left    int  // faults that may still happen
	log     []line
	events  int // decisions so far

	mu     sync.Mutex
	held   []*call
	ending atomic.Bool // calls are refused from now on
}

// submit adds a call to those that are held. Any goroutine may call it.
func (s *sched) submit(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, c)
}

// withdraw removes a call whose caller has given up; false when it was decided about. Any goroutine may call it.
func (s *sched) withdraw(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.held, c)
	if i < 0 {
		return false
	}
	s.held = slices.Delete(s.held, i, i+1)
	return true
}

// waiting returns the held calls, in an order that depends on them alone.
func (s *sched) waiting() []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.held, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.port.process, b.port.process), cmp.Compare(a.text, b.text), cmp.Compare(a.digest, b.digest))
	})
	return slices.Clone(s.held)
}

// An option is a call that may come next, and its fate.
type option struct {
	call int // among those that wait
	fate Fate
}

// errFault is the cause of all faults.
var errFault = errors.New("fault of the explorer")

// options returns what may happen next.
func (s *sched) options(calls []*call, faults *Faults, to []option) []option {
	for i, c := range calls {
		if c.kind == drawCall {
			for shard := range max(s.witness.program.Initial.Draws, 2) {
				to = append(to, option{i, Fate(shard)}) //nolint:gosec // a small number
			}
			continue
		}
		if c.rest() > 0 && slices.ContainsFunc(calls, func(other *call) bool { return other.endsWithin(c.rest()) }) {
			continue
		}
		to = append(to, option{i, Done})
		if s.left == 0 || c.orphan || c.begun || c.kind == pauseCall {
			continue
		}
		for _, f := range faults.Fates {
			if s.may(c, f) {
				to = append(to, option{i, f})
			}
		}
	}
	return to
}

// rest returns for how long everything rests when the call is done.
func (c *call) rest() time.Duration {
	if c.kind == pauseCall && c.op != nil && c.op.Kind == Rest && c.apply != nil {
		return c.op.step()
	}
	return 0
}

// endsWithin reports whether a call, or a goroutine that goes on, ends by its context within a time.
func (c *call) endsWithin(d time.Duration) bool {
	end, ok := c.ctx.Deadline()
	return ok && !c.orphan && time.Until(end) <= d
}

// may reports whether a fate may befall a call.
func (s *sched) may(c *call, f Fate) bool {
	switch f {
	case LostReply, LostCall, Late, Conflict:
		return c.kind == writeCall
	case HotKey: // the reasons of a cancelled transaction name none
		return c.kind == readCall || c.kind == writeCall && len(c.writes) == 1
	case Lag:
		return c.eventual
	case CancelFirst, CancelAfter:
		return c.op != nil && c.op.Cancel && !c.op.canceled
	case Garbled:
		return c.kind == writeCall && len(c.writes) == 1 && !c.again && isBucket(c.writes[0].Key)
	case LateReply: // where a process has one call at a time, that is the same as a later next call
		return c.kind == readCall && c.shards > 0 && s.witness.program.shares(c.port.process)
	case Torn, TornBack: // reads of splits and merges excepted: their writes ask for all that was read
		return c.kind == readCall && c.shards > 1 && c.op != nil && c.op.Kind != Split && c.op.Kind != Merge
	default:
		return true
	}
}

// decide lets a call happen.
func (s *sched) decide(c *call, f Fate) {
	s.events++
	if !s.withdraw(c) {
		return
	}
	if c.orphan {
		s.witness.crowd.fault(c)
	}
	if f != Done && c.kind != drawCall {
		s.left--
		s.witness.kin.fails(f)
	}
	s.do(c, f)
	for _, other := range s.waiting() {
		if c.isTwin(other) && s.withdraw(other) {
			s.do(other, f)
		}
	}
}

// do carries out a call that is not held any more, as its fate says.
func (s *sched) do(c *call, f Fate) {
	reply, err := s.carryOut(c, f)
	s.note(c, f, err)
	c.port.learn(digestOf(c.digest, f, reply, err != nil, time.Now().UnixNano()))
	switch {
	case c.goesOn(f):
		c.goOn(f, reply, err)
		s.submit(c)
	case !c.orphan:
		c.answer <- err
	}
}

// goesOn reports whether a call that has met its fate comes to its end as another step. So does one that outlives its caller: otherwise
// the answer and the caller's end would resume two goroutines at the same time.
func (c *call) goesOn(f Fate) bool {
	return c.kind != drawCall && (f.goesOn() || f.cancels() && c.ctx.Err() == nil)
}

// goOn makes a call one that is done, or done in part, and comes to its end later.
func (c *call) goOn(f Fate, reply uint64, err error) {
	if f == CancelFirst {
		return
	}
	c.begun, c.text = true, c.text+", to its end"
	if f == LateReply || f == CancelAfter {
		c.apply = func(Fate) (uint64, error) { return reply, err }
	}
}

// isBucket reports whether a key is that of a shard.
func isBucket(k store.Key) bool {
	_, ok := layout.ParseBucketKey(k)
	return ok
}

// carryOut does a call or not, as its fate says, and returns what its caller hears.
func (s *sched) carryOut(c *call, f Fate) (reply uint64, err error) {
	if c.kind == drawCall || f == Done || f == Lag || f.goesOn() {
		return c.apply(f)
	}
	s.witness.fault(c, f)
	failed := &store.Error{Op: "call", Unavailable: true, Err: errFault}
	switch f {
	case Garbled:
		return c.apply(f)
	case Throttle, HotKey:
		if failed.Throttled = true; f == HotKey {
			failed.Throttles = []store.Throttle{{Limit: store.OfKey, Write: c.kind == writeCall}}
		}
		return 0, failed
	case Conflict:
		return 0, &store.Error{Op: "call", Err: fmt.Errorf("%w: %w", store.ErrConflict, errFault)}
	case CancelFirst, CancelAfter:
		c.op.canceled = true
		if f == CancelAfter {
			reply, err = c.apply(Done)
		}
		c.op.cancel()
		if ended := c.ctx.Err(); ended != nil {
			return 0, &store.Error{Op: "call", Unknown: c.kind == writeCall && !c.again, Err: ended}
		}
		return reply, err
	case LostReply:
		_, _ = c.apply(Done)
	case Late:
		late := *c
		late.orphan, late.text = true, c.text+", late"
		s.submit(&late)
	default: // LostCall
	}
	failed.Unknown = !c.again
	return 0, failed
}

// note writes a line of the order's log.
func (s *sched) note(c *call, f Fate, err error) {
	who := "?"
	if c.op != nil {
		if c.op.actor < 0 {
			who = "end " + string(rune('A'+c.port.process))
		} else {
			who = fmt.Sprintf("%s.%d", s.witness.program.actorName(c.op.actor), c.op.number+1)
		}
	}
	text := fmt.Sprintf("%8d ms  %-5s %s", time.Since(s.witness.start).Milliseconds(), who, c.text)
	switch {
	case c.kind == drawCall:
		text += fmt.Sprintf(": %d", f)
	case f != Done:
		text += ": " + f.String()
	case err != nil:
		text += ": " + err.Error()
	}
	s.log = append(s.log, line{text, s.witness.last})
	s.witness.last = nil
}

// A line is one line of an order's log: a call, and its changes.
type line struct {
	text    string
	changes []change
}

// String returns the line, and the figures of the buckets that changed.
func (l line) String() string {
	var b strings.Builder
	b.WriteString(l.text)
	for _, c := range l.changes {
		fmt.Fprintf(&b, "\n                     %s, shard %d: ", c.entity, c.shard)
		if c.next == nil {
			b.WriteString("gone")
			continue
		}
		for i := range c.next.Limits {
			limit := &c.next.Limits[i]
			if limit.Name == bucket.WriteUnits {
				continue
			}
			counted := limit.Consumed
			if c.old != nil {
				if had := limitOf(c.old, limit.Name); had != nil {
					counted -= had.Consumed
				}
			}
			fmt.Fprintf(&b, "%s %d of %d, counted %+d; ", limit.Name, limit.Tokens, limit.Capacity, counted)
		}
		for _, s := range c.next.Slots() {
			fmt.Fprintf(&b, "%s %d free, %d and %d held, of %d; ", s.Name, s.Free, s.Even, s.Odd, s.Capacity)
		}
	}
	return b.String()
}

// idle is how long the scheduler lets time pass when no call is held, and maxIdle how long that may go on.
const (
	idle    = 5 * time.Millisecond
	maxIdle = time.Minute
)

// pump decides about calls with choose, until over says so while every goroutine waits and no call is held, or choose
// does not choose. It returns false when neither comes to pass.
func (s *sched) pump(choose func([]*call) (option, bool), over func() bool) (ok bool) {
	waited := time.Duration(0)
	for {
		synctest.Wait()
		calls := s.waiting()
		if len(calls) == 0 {
			if over() {
				return true
			}
			if waited += idle; waited > maxIdle {
				return false
			}
			time.Sleep(idle)
			continue
		}
		waited = 0
		next, ok := choose(calls)
		if !ok {
			return true
		}
		s.decide(calls[next.call], next.fate)
	}
}

// first chooses the first call that waits, and no fault.
func first([]*call) (option, bool) { return option{}, true }

// end makes every call fail from now on.
func (s *sched) end() {
	s.ending.Store(true)
	for _, c := range s.waiting() {
		if s.withdraw(c) && !c.orphan {
			c.answer <- &store.Error{Op: "call", Err: store.ErrClosed}
		}
	}
}

// digest returns a digest of the state: the table, the time, the remaining faults, and each process's memory. It
// also includes the witness's memory, which later orders are judged by.
func (s *sched) digest(calls []*call) uint64 {
	d := digestOf(s.table.digest, s.left, time.Now().UnixNano(), s.witness.digest())
	for _, p := range s.ports {
		d = digestOf(d, p.history)
	}
	for _, c := range calls {
		if c.orphan {
			d = digestOf(d, c.digest)
		}
	}
	return d
}

// pause holds an actor until the scheduler lets it go on, after rest has passed.
func (p *port) pause(ctx context.Context, text string, rest time.Duration) error {
	c := &call{kind: pauseCall, text: text}
	c.apply = func(Fate) (uint64, error) {
		if rest > 0 {
			time.Sleep(rest)
		}
		return 0, nil
	}
	return p.hold(ctx, c)
}

// yield holds a goroutine that another one woke until the scheduler lets it go on: several may be woken together.
func (p *port) yield(ctx context.Context) error { return p.pause(ctx, "goes on", 0) }

// draws is the number of values of a random number by which a shard is drawn. Other random numbers are lengths of pauses.
const draws = 1 << 16

// salts is the number of values of a random number, by which a process distinguishes the limits that it starts from those that others
// start.
const salts = math.MaxInt32

// intN returns the longest pause, the salt of the process, or lets the scheduler choose a shard.
func (p *port) intN(n int) int {
	drawn := n - 1
	switch n {
	case salts:
		return p.process
	case draws:
	default:
		return drawn
	}
	c := &call{kind: drawCall, text: "draws a shard"}
	c.apply = func(f Fate) (uint64, error) {
		drawn = int(f)
		return uint64(f), nil
	}
	_ = p.hold(context.Background(), c)
	return drawn
}
