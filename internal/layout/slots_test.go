package layout_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

var slotWalks = flag.Int("slots.walks", 0, "random walks of TestSlotWalks; 0 for the usual number")

// The term of the walks is ten ticks. Clocks may be one tick off.
const (
	walkTerm  = 10
	walkStart = 1000 * walkTerm
	walkSlots = 2
	walkSteps = 120
	walkers   = 3
	walkTicks = 0.3 // part of the steps
)

// A flaw is what a walk does wrong on purpose. All of them must be found.
type flaw string

const (
	noAllowance    flaw = "no allowance"
	lateRelease    flaw = "late release"
	repeatedWrite  flaw = "repeated release"
	assumedBeat    flaw = "lost beat taken for done"
	unboundOpen    flaw = "an epoch begun whatever the present one"
	setBack        flaw = "the present epoch set back"
	clocksBeyond   flaw = "clocks beyond the allowance"
	unboundBeat    flaw = "slots moved to the epoch before"
	takesLastSlots flaw = "slots taken that are not there"
)

// A walk is one random interleaving of the calls of some processes, with late and lost calls and replies. It goes by the rules of package
// bucket, and by the writes of the schema on an item.
type walk struct {
	random    *rand.Rand
	flaw      flaw
	now       int64 // true time
	item      expr.Item
	processes []walker
	count     int64 // slots there are
	took      int
}

// A walker is a process.
type walker struct {
	off   int64 // of its clock
	seen  bucket.Slots
	lease *walkLease
	call  *walkCall // under way, or nil
}

// A walkLease is what a process holds: one slot.
type walkLease struct {
	epoch, enrolled int64
	ends            int64 // by its own clock
}

// A walkCall is a call under way.
type walkCall struct {
	kind    string
	write   expr.Bound
	epoch   int64 // that the lease is in after it
	of      *walkLease
	sent    int64        // by the clock of the process
	applied bool         // what the reply says
	left    bucket.Slots // and shows
	done    bool         // the store has it
	open    bool         // it begins an epoch
	seen    bucket.Slots
}

func (w *walk) chance(p float64) bool { return w.random.Float64() < p }

func (w *walk) slots() bucket.Slots {
	s, err := layout.ReadState(w.item)
	if err != nil {
		panic(err)
	}
	if len(s.Slots) == 0 {
		return bucket.Slots{}
	}
	return s.Slots[0]
}

// newItem has the item created.
func (w *walk) newItem(off int64) {
	p := bucket.SlotParams{Name: "n", Slots: w.count, Term: walkTerm}
	k := layout.BucketKey{NS: "n", Entity: "e", Resource: "r"}
	w.item = k.Item(&bucket.State{Shards: 1, Slots: []bucket.Slots{p.Enrol(0, w.now+off)}}, layout.Owner{}).Encode()
	w.item.Set(store.PK, expr.S(k.Key().PK))
	w.item.Set(store.SK, expr.S(k.Key().SK))
}

// step does one thing, and returns whether more slots are held than there are.
func (w *walk) step(t *testing.T) bool {
	if w.chance(walkTicks) {
		w.now++
		return w.isOver()
	}
	p := &w.processes[w.random.IntN(len(w.processes))]
	switch {
	case p.lease != nil && w.chance(0.02): // it is killed, or forgets what it holds
		p.lease, p.call = nil, nil
	case p.call == nil:
		w.begin(p)
	case !p.call.done && w.chance(0.1): // the call is lost
		p.call = nil
	case !p.call.done:
		w.apply(t, p.call)
	default:
		w.reply(p)
	}
	return w.isOver()
}

// begin has a process begin a call.
func (w *walk) begin(p *walker) {
	own := w.now + p.off
	if p.lease != nil && own >= p.lease.ends {
		p.lease = nil
	}
	s := &p.seen
	call := layout.Keep()
	c := &walkCall{sent: own, seen: *s}
	to, opens := s.Opens(own)
	if w.flaw == setBack && own/walkTerm < s.Epoch {
		to, opens = own/walkTerm, true
	}
	hold, beat, give, open := call.HoldEven, call.BeatEven, call.ReleaseEven, call.OpenEven
	if s.Epoch%2 != 0 {
		hold, beat = call.HoldOdd, call.BeatOdd
	}
	switch {
	case p.lease != nil && w.chance(0.3): // it gives back
		if p.lease.epoch%2 != 0 {
			give = call.ReleaseOdd
		}
		lapsed := p.lease.epoch + 2
		if w.flaw == lateRelease {
			lapsed++
		}
		give("n", 1, p.lease.epoch, lapsed, p.lease.enrolled)
		c.kind, p.lease = "release", nil
	case opens:
		kept := int64(0)
		if p.lease != nil && p.lease.epoch == s.Epoch && to == s.Epoch+1 {
			kept, c.of = 1, p.lease
		}
		if to%2 != 0 {
			open = call.OpenOdd
		}
		open("n", s.Epoch, to, kept, s.Enrolled)
		c.kind, c.epoch, c.open = "beat", to, true
	case p.lease == nil && s.FreeAt(own) > 0 && w.chance(0.6):
		amount := int64(1)
		hold("n", amount, s.Epoch, 1, s.Enrolled)
		c.kind, c.epoch = "hold", s.Epoch
	case p.lease != nil && p.lease.enrolled == s.Enrolled && p.lease.epoch == s.Epoch-1:
		beat("n", 1, s.Epoch, s.Enrolled)
		c.kind, c.epoch, c.of = "beat", s.Epoch, p.lease
	default: // it looks
		p.seen = w.slots()
		return
	}
	var err error
	if c.write, err = call.Bind(); err != nil {
		panic(err)
	}
	p.call = c
}

// apply has the store do a call.
func (w *walk) apply(t *testing.T, c *walkCall) {
	c.done = true
	before := w.slots()
	write := c.write
	rebuild := func(build func(layout.KeepCall)) {
		call := layout.Keep()
		build(call)
		write, _ = call.Bind()
	}
	switch {
	case w.flaw == unboundOpen && c.open && c.of == nil && before.Epoch > c.seen.Epoch && before.Enrolled == c.seen.Enrolled:
		rebuild(func(call layout.KeepCall) {
			if c.epoch = before.Epoch + 1; c.epoch%2 == 0 {
				call.OpenEven("n", before.Epoch, c.epoch, 0, before.Enrolled)
			} else {
				call.OpenOdd("n", before.Epoch, c.epoch, 0, before.Enrolled)
			}
		})
	case w.flaw == unboundBeat && c.kind == "beat" && !c.open && before.Epoch == c.epoch+1:
		item, err := write.Apply(w.item)
		if err != nil {
			t.Fatal(err)
		}
		w.item, c.applied, c.left = item, true, before
		return
	}
	if c.applied = write.Holds(w.item); c.applied || w.flaw == takesLastSlots && c.kind == "hold" {
		c.applied = true
		for times := 1; times >= 0; times-- {
			item, err := write.Apply(w.item)
			if err != nil {
				t.Fatal(err)
			}
			w.item = item
			if w.flaw != repeatedWrite || c.kind != "release" || !write.Holds(w.item) {
				break
			}
		}
	}
	c.left = w.slots()
	if s := &c.left; s.Free+s.Even+s.Odd != s.Capacity {
		t.Fatalf("%d slots are free, %d and %d are held, of %d", s.Free, s.Even, s.Odd, s.Capacity)
	}
}

// reply has the reply of a call arrive, or be lost.
func (w *walk) reply(p *walker) {
	c := p.call
	p.call = nil
	lost := w.chance(0.15)
	if lost && (w.flaw != assumedBeat || c.kind != "beat") {
		return
	}
	if !lost {
		p.seen = c.left
	}
	if lost { // by mistake it is taken for done
		c.applied, c.left = true, c.seen
	}
	if !c.applied {
		if l := p.lease; l != nil && c.left.Lapsed(l.epoch, l.enrolled) {
			p.lease = nil
		}
		return
	}
	ends := c.left.Ends(c.epoch)
	if w.flaw == noAllowance {
		ends += walkTerm / 5
	}
	switch {
	case c.kind == "hold":
		p.lease = &walkLease{c.epoch, c.left.Enrolled, ends}
		w.took++
	case c.kind == "beat" && c.of != nil && c.of == p.lease:
		p.lease.epoch, p.lease.ends = c.epoch, ends
	}
}

// isOver reports whether more slots are held than there are.
func (w *walk) isOver() bool {
	at := int64(0)
	for i := range w.processes {
		p := &w.processes[i]
		if p.lease != nil && w.now+p.off < p.lease.ends {
			at++
		}
	}
	return at > w.count
}

// walkOnce walks, and returns after how many steps more slots were held than there are; 0 for never.
func walkOnce(t *testing.T, seed uint64, f flaw) (steps, took int) {
	w := walk{random: rand.New(rand.NewPCG(seed, 7)), flaw: f, now: walkStart}
	w.count = 1 + int64(seed%2) // of one or two more processes
	w.processes = make([]walker, w.count+1)
	off := int64(1)
	if f == clocksBeyond {
		off = 2
	}
	for i := range w.processes {
		w.processes[i].off = []int64{off, -off, 0}[i]
	}
	w.now += int64(w.random.IntN(walkTerm))
	w.newItem(w.processes[w.random.IntN(len(w.processes))].off)
	for i := range w.processes {
		w.processes[i].seen = w.slots()
	}
	for step := range walkSteps {
		if w.step(t) {
			return step + 1, w.took
		}
	}
	return 0, w.took
}

// TestSlotWalks has processes take slots, go on holding them and give them back in random orders, with calls and replies that are late or
// lost, processes that are killed, and clocks that differ by a fifth of the term. A set of those who hold one is kept beside the counters:
// there are never more than slots.
func TestSlotWalks(t *testing.T) {
	walks := 5_000
	if testing.Short() {
		walks = 1_500
	}
	if *slotWalks > 0 {
		walks = *slotWalks
	}
	took := 0
	for seed := range walks {
		steps, n := walkOnce(t, uint64(seed), "")
		if took += n; steps > 0 {
			t.Fatalf("walk %d: more slots are held than there are after %d steps", seed, steps)
		}
	}
	if took < walks {
		t.Errorf("%d slots were taken in %d walks", took, walks)
	}
	for _, f := range []flaw{
		noAllowance, lateRelease, repeatedWrite, assumedBeat, unboundOpen, setBack, clocksBeyond, unboundBeat, takesLastSlots,
	} {
		t.Run(string(f), func(t *testing.T) {
			if (f == noAllowance || f == clocksBeyond) && testing.Short() {
				t.Skip("takes thousands of walks")
			}
			for seed := range 300_000 {
				if steps, _ := walkOnce(t, uint64(seed), f); steps > 0 {
					t.Logf("found in walk %d after %d steps", seed, steps)
					return
				}
			}
			t.Error("no walk notices")
		})
	}
}
