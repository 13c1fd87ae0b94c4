package protocol

import (
	"maps"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
)

// slots returns the counters of the item, nil where there are none.
func (w *slotWalk) slots() *bucket.Slots {
	item := w.items[w.key.Key()]
	if item == nil {
		return nil
	}
	if &item[0] == w.read.of {
		return w.read.slots
	}
	s, err := layout.ReadState(item)
	if err != nil {
		w.blame("the item cannot be read: %v", err)
		return nil
	}
	w.read.of, w.read.slots = &item[0], s.FindSlots("slots")
	return w.read.slots
}

// move moves slots of a process in the set.
func (w *slotWalk) move(p *slotProc, epoch, slots int64) {
	if w.set[p] == nil {
		w.set[p] = map[int64]int64{}
	}
	w.set[p][epoch] += slots
	if !w.vague.Load() && w.set[p][epoch] < 0 {
		w.blame("process %d gives back or moves %d slots of epoch %d that it does not hold", p.number, -slots, epoch)
	}
}

// judge holds a write of a process against the set.
func (w *slotWalk) judge(p *slotProc, old, is *bucket.Slots) {
	if is == nil {
		if old != nil {
			w.blame("a write of process %d removed the slots", p.number)
		}
		return
	}
	if is.Free+is.Even+is.Odd != is.Capacity {
		w.blame("%d slots are free, and %d and %d held, of %d", is.Free, is.Even, is.Odd, is.Capacity)
	}
	isNew := old == nil || old.Enrolled != is.Enrolled
	if is.Fence < w.fence {
		w.blame("the fencing number goes back from %d to %d", w.fence, is.Fence)
	}
	began := w.fence
	w.fence, w.enrolled = is.Fence, is.Enrolled
	if isNew {
		w.created = time.Now()
		if old != nil && old.Even+old.Odd != 0 {
			w.blame("new counters take the place of those of %d held slots", old.Even+old.Odd)
		}
		w.set = map[*slotProc]map[int64]int64{}
		if held := is.Even + is.Odd; held > 0 {
			w.move(p, is.Epoch, held)
		}
		return
	}
	if is.Epoch < old.Epoch {
		w.blame("the epoch goes back from %d to %d", old.Epoch, is.Epoch)
	}
	now := func(s *bucket.Slots) (this, other int64) { // the counters of the epoch that is the present one after the write
		if is.Epoch%2 == 0 {
			return s.Even, s.Odd
		}
		return s.Odd, s.Even
	}
	isThis, isOther := now(is)
	oldThis, oldOther := now(old)
	isMoved := isThis + isOther - oldThis - oldOther
	switch {
	case is.Epoch > old.Epoch: // the set's slots of two epochs before are free
		for _, held := range w.set {
			maps.DeleteFunc(held, func(epoch, _ int64) bool { return epoch%2 == is.Epoch%2 })
		}
		if isThis > 0 { // the process goes on holding its own
			w.move(p, is.Epoch-1, -isThis)
			w.move(p, is.Epoch, isThis)
		}
	case is.Fence > began: // taken
		if is.Free < 0 {
			w.blame("process %d takes a slot, and %d are free", p.number, is.Free)
		}
		w.move(p, is.Epoch, isMoved)
	case isMoved < 0 && isThis < oldThis: // given back
		w.move(p, is.Epoch, isThis-oldThis)
	case isMoved < 0:
		w.move(p, is.Epoch-1, isOther-oldOther)
	case isThis > oldThis: // moved
		w.move(p, is.Epoch-1, isOther-oldOther)
		w.move(p, is.Epoch, isThis-oldThis)
	}
	if w.vague.Load() {
		return
	}
	var this, other int64
	for _, held := range w.set {
		for epoch, n := range held {
			if epoch%2 == is.Epoch%2 {
				this += n
			} else {
				other += n
			}
		}
	}
	if this != isThis || other != isOther {
		w.blame("the counters have %d slots of epoch %d and %d of the others, the set %d and %d", isThis, is.Epoch, isOther, this, other)
	}
}

// isAtWork reports whether a caller believes that it holds its slots, as an outside observer sees it. One that is suspended, and wakes too
// late, cannot know: the fencing number is for that.
func (l *slotLease) isAtWork() bool {
	d := &l.hold.bucket.tended
	d.mu.Lock()
	defer d.mu.Unlock()
	return !l.of.dead.Load() && l.hold.phase == held && !l.hold.reported && (!l.of.suspended.Load() || l.of.Elapsed() < l.hold.ends) &&
		l.hold.enrolled == l.of.walk.enrolled
}

// observe counts who is at work: each of them is in the counters.
func (w *slotWalk) observe() {
	atWork := int64(0)
	of := map[*slotProc]int64{}
	for _, p := range w.procs {
		p.leases = slices.DeleteFunc(p.leases, func(l *slotLease) bool {
			d := &l.hold.bucket.tended
			d.mu.Lock()
			defer d.mu.Unlock()
			return p.dead.Load() || l.hold.phase != held
		})
		for _, l := range p.leases {
			if l.isAtWork() {
				atWork += l.hold.amount
				of[p] += l.hold.amount
			}
		}
	}
	is := w.slots()
	switch {
	case is == nil:
		if atWork > 0 && w.enrolled != 0 {
			w.blame("%d are at work, and the bucket has no slots", atWork)
		}
	case atWork > is.Even+is.Odd:
		w.blame("%d are at work, and the bucket has %d + %d held slots of %d", atWork, is.Even, is.Odd, is.Capacity)
	case !w.vague.Load():
		for p, n := range of {
			if held := w.set[p]; n > held[is.Epoch]+held[is.Epoch-1] {
				w.blame("process %d has %d at work, and the set %v", p.number, n, held)
			}
		}
	}
}
