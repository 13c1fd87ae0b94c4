package protocol

import (
	"fmt"
	"testing"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// In TestForgottenFix, a process whose clock is right sets back the stamp of a bucket that others move 30 s ahead again and again.
// The process forgets the bucket each time. It sets the stamp back once an hour all the same.
func TestForgottenFix(t *testing.T) {
	const ahead = 30_000
	g, limits := newGauge(t), fixedLimits{}
	perSecond := perDay("", map[string]int64{"rpm": 10})
	perSecond.Config.Params[0].RefillPeriod, perSecond.Config.Lead = 1000, 10_000
	limits.set("key", perSecond)
	e := newProcess(t, g, limits)
	exchange := func() uint64 {
		g.now.Add(1000 + ahead)
		takeFrom(t, newProcess(t, g, limits), "key", map[string]int64{"rpm": 1})
		g.now.Add(-ahead)
		e.Memory.cache = otter.Must(&otter.Options[bucketID, *Bucket]{MaximumSize: 10})
		takeFrom(t, e, "key", map[string]int64{"rpm": 1})
		return e.StampsFixed.Load()
	}
	for n := range 20 {
		if got := exchange(); got != 1 {
			t.Fatalf("after %d times the stamp was set back %d times, want once", n+1, got)
		}
	}
	e.core.started = e.core.started.Add(-fixGap)
	if got := exchange(); got != 2 {
		t.Errorf("after an hour the stamp was set back %d times in all, want 2", got)
	}
}

// In TestManyFixes, more items are set back than are remembered. Each counts as set back then, for an hour.
func TestManyFixes(t *testing.T) {
	e := newProcess(t, newGauge(t), fixedLimits{})
	back := &bucket.Plan{Kind: bucket.Advance, Now: 1, RefilledAt: 2}
	first, other := e.Memory.Bucket("first", "model").shard(0), e.Memory.Bucket("other", "model").shard(0)
	expect := func(when string, ofFirst, ofOther bool) {
		t.Helper()
		if gotFirst, gotOther := e.core.hasFixed(first), e.core.hasFixed(other); gotFirst != ofFirst || gotOther != ofOther || len(e.core.fixes.at) > maxFixes {
			t.Errorf("%s: set back %t and %t, want %t and %t; %d are remembered", when, gotFirst, gotOther, ofFirst, ofOther, len(e.core.fixes.at))
		}
	}
	expect("at first", false, false)
	e.core.noteStamp(first, back)
	e.core.noteStamp(other, &bucket.Plan{Kind: bucket.Advance, Now: 2, RefilledAt: 1})
	expect("alone", true, false)
	for i := range maxFixes {
		e.core.fixes.note(fmt.Sprint(i), e.core.sinceStart())
	}
	expect("among many", true, true)
	e.core.started = e.core.started.Add(-fixGap - time.Second)
	e.core.noteStamp(first, back)
	expect("an hour later", true, false)
}

// In TestFollow, images come whose stamps are ahead. The greatest lead of the last minute and the one before counts.
func TestFollow(t *testing.T) {
	g := newGauge(t)
	e := newProcess(t, g, fixedLimits{})
	s := e.Memory.Bucket("e", "model").shard(0)
	now := e.core.now()
	expect := func(when string, ahead, want int64) {
		t.Helper()
		if got := e.core.follow(s, &image{State: bucket.State{RefilledAt: now + ahead}, seenAt: now}); got != want {
			t.Errorf("%s: a stamp %d ms ahead has the process follow by %d, want %d", when, ahead, got, want)
		}
	}
	expect("at first", 0, 0)
	expect("little", minAheadMS-1, 0)
	expect("too far", maxAheadMS+1, 0)
	expect("ahead", 40, 40)
	expect("later in its reply", 15, 40)
	expect("behind", -10, 40)
	expect("further", 70, 70)
	expect("too far", maxAheadMS+1, 70)
	s.wrote.Store(now + 900)
	expect("its own", 900, 70)
	e.core.started = e.core.started.Add(-aheadTime)
	expect("a minute later", 30, 70)
	e.core.started = e.core.started.Add(-aheadTime)
	expect("two minutes later", 0, 30)
	e.core.started = e.core.started.Add(-2 * aheadTime)
	expect("long after", 0, 0)

	g.now.Add(50) // others have written the stamp during the call
	expect("written during the call", 45, 0)
}
