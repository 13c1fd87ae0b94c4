package memory

import (
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// TestLogIsBounded adds changes of one moment, which age does not trim.
func TestLogIsBounded(t *testing.T) {
	now := time.Now()
	l := &changeLog{maxReadChanges: 300, maxChanges: 5000, readAt: now}
	l.on.Store(true)
	add := func(n int) {
		for range n {
			l.add(logged{at: now})
		}
	}
	add(4000)
	if l.lost != 0 {
		t.Errorf("%d changes that nobody has read are lost, of 4000", l.lost)
	}
	add(4000)
	if kept := l.last - l.lost; kept < 5000 || kept > 5000+trimEvery {
		t.Errorf("%d changes that nobody has read are kept, want 5000", kept)
	}
	if page := l.page(store.Position{After: sequence(100)}, 100, 1); !page.Gap || page.Changes[0].Sequence != sequence(l.lost+1) {
		t.Errorf("page = %v with a gap: %t; want one, and the oldest change that is left", page.Changes, page.Gap)
	}
	l.page(store.Position{}, 0, 1<<30) // reads all
	read := l.last
	add(3000)
	if l.lost > read {
		t.Errorf("changes up to %d are lost, but only those up to %d were read", l.lost, read)
	}
	l.page(store.Position{}, 0, 1<<30)
	add(20 * trimEvery)
	l.page(store.Position{}, 0, 1<<30)
	add(10 * trimEvery)
	if kept := l.last - l.lost; kept > 10*trimEvery+300+trimEvery {
		t.Errorf("%d changes are kept, of which all but %d were read", kept, 10*trimEvery)
	}
	if got, most := len(l.blocks), int((l.last-l.lost)/trimEvery)+2; got > most {
		t.Errorf("the log has %d blocks for %d changes", got, l.last-l.lost)
	}
}

// TestLogTurnedOffMeanwhile adds a change that was on its way when the log was turned off.
func TestLogTurnedOffMeanwhile(t *testing.T) {
	l := &changeLog{last: 256, lost: 256}
	if l.add(logged{}); l.last != 256 || l.blocks != nil {
		t.Errorf("the last change of a log that is off = %d, with %d blocks", l.last, len(l.blocks))
	}
}
