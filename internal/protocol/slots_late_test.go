package protocol

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// answer executes the oldest held call of a process, and delivers its reply if replies is set.
func (w *slotWalk) answer(of *slotProc, replies bool) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	at := slices.IndexFunc(w.held, func(c *slotCall) bool { return c.of == of && !c.orphan })
	if at < 0 {
		w.t.Error("the process has made no call")
		return
	}
	c := w.held[at]
	if c.done == nil {
		a := w.apply(c)
		c.done = &a
	}
	if replies {
		w.held = slices.Delete(w.held, at, at+1)
		c.answer <- *c.done
	}
}

// TestLateTakeIsLost delays the reply to a take until its slot is free again by itself, while a beat for another slot is
// under way. The caller learns immediately that its slot is lost.
func TestLateTakeIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlotWalk(t, 3, 2)
		p := w.startAs(0, time.Hour, 0)
		first := w.ask(p, 1, false)
		w.answer(p, true)  // a read
		w.answer(p, false) // the take, in this epoch
		time.Sleep(w.term)
		second := w.ask(p, 1, false)
		synctest.Wait()
		w.mu.Lock()
		late := w.held[0]
		w.held = w.held[1:]
		w.mu.Unlock()
		for second() != nil && !t.Failed() {
			w.answer(p, true)
			synctest.Wait()
		}
		time.Sleep(w.term * 12 / 10) // a beat for the second one is sent
		late.answer <- *late.done
		synctest.Wait()
		if err := first(); err != nil || w.admitted != 2 {
			t.Fatalf("%d are admitted, and the first one gets %v", w.admitted, err)
		}
		if l := p.leases[1]; !l.hold.reported {
			t.Errorf("the slot with fencing number %d is lost since %v, and its caller does not hear of it", l.hold.fence, p.Elapsed()-l.hold.ends)
		}
		w.kill(p)
		w.mu.Lock()
		w.over = true
		w.mu.Unlock()
		synctest.Wait()
	})
}
