package dynamo

import (
	"slices"
	"testing"
	"time"
)

// TestClockBounds gives the clock replies of a server whose clock is ahead by an offset, and whose dates are whole seconds.
func TestClockBounds(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const trip = 10 * time.Millisecond
	for _, offset := range []time.Duration{0, 300 * time.Millisecond, -300 * time.Millisecond, 90 * time.Second, -90 * time.Second} {
		c := &clock{}
		for i := range 200 {
			sent := start.Add(time.Duration(i) * 37 * time.Millisecond)
			date := sent.Add(trip / 2).Add(offset).Truncate(time.Second)
			c.observe(sent, sent.Add(trip), date)
			got := time.Duration(c.offset.Load())
			switch {
			case offset >= 0 && (got < 0 || got > offset), offset < 0 && (got > 0 || got < offset):
				t.Fatalf("after %d replies of a clock that is %v ahead, Offset() = %v, which is no part of it", i+1, offset, got)
			case i == 1 && (got-offset).Abs() > dateStep+trip+2*clockSlack:
				t.Errorf("after a reply of a clock that is %v ahead, Offset() = %v, want it within a second and the round trip", offset, got)
			}
		}
		got := time.Duration(c.offset.Load())
		if (got - offset).Abs() > 2*clockSlack+trip {
			t.Errorf("after 200 replies of a clock that is %v ahead, Offset() = %v", offset, got)
		}
	}
}

// replies gives a clock replies, a tenth of a second apart, whose dates are ahead by offsets, and returns what it reports
// then.
type replies struct {
	clock clock
	sent  time.Time
}

func (r *replies) give(times int, offsets ...time.Duration) (offset time.Duration, known bool) {
	if r.sent.IsZero() {
		r.sent = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	}
	for i := range times {
		r.sent = r.sent.Add(100 * time.Millisecond)
		r.clock.observe(r.sent, r.sent, r.sent.Add(offsets[i%len(offsets)]).Truncate(time.Second))
	}
	return time.Duration(r.clock.offset.Load()), r.clock.known.Load()
}

// In TestClockThatIsSet, some replies contradict the others, which changes nothing. Then all that follow do for a long time.
func TestClockThatIsSet(t *testing.T) {
	var r replies
	if _, known := r.give(1, 0); known {
		t.Error("one reply alone tells the time")
	}
	if _, known := r.give(9, 0); !known {
		t.Error("ten replies do not report the time")
	}
	for name, offsets := range map[string][]time.Duration{
		"one of another time": {time.Hour, 0},
		"two in a row":        {time.Hour, time.Hour, 0},
		"fifteen in a row":    append(slices.Repeat([]time.Duration{time.Hour}, 15), 0),
		"of many times":       {time.Hour, 2 * time.Hour, -time.Hour},
	} {
		if got, _ := r.give(len(offsets)*3, offsets...); got != 0 {
			t.Errorf("%s: Offset() = %v, want 0", name, got)
		}
	}
	r.give(1, 0)
	if got, _ := r.give(49, time.Hour); got != 0 {
		t.Errorf("within 5 s Offset() = %v, want 0", got)
	}
	if got, _ := r.give(30, time.Hour); (got - time.Hour).Abs() > 2*time.Second {
		t.Errorf("after 80 replies of a time an hour ahead, Offset() = %v", got)
	}
	if got, _ := r.give(35_000, 0); got == 0 {
		t.Error("the offset moved twice within an hour")
	}
	if got, _ := r.give(2000, 0); got != 0 {
		t.Errorf("after an hour of replies of the first time, Offset() = %v", got)
	}
}

// TestClockOfWrongBeginnings begins with replies of other times.
func TestClockOfWrongBeginnings(t *testing.T) {
	for _, wrong := range []time.Duration{-time.Hour, time.Hour, -56 * 365 * 24 * time.Hour} {
		var r replies
		r.give(1, wrong)
		if got, known := r.give(2, 0); !known || got != 0 {
			t.Errorf("after one reply of %v and two of the right time, Offset() = %v, %t", wrong, got, known)
		}
		var turns replies
		if got, known := turns.give(100, wrong, 0); known {
			t.Errorf("two times by turns: Offset() = %v, want none", got)
		}
	}
}

// In TestClockDrifts, the offset grows slowly over hours, as a bad crystal makes it.
func TestClockDrifts(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := &clock{}
	for i := range 10_000 {
		sent := start.Add(time.Duration(i) * 3700 * time.Millisecond)
		offset := 5*time.Second + sent.Sub(start)/(2*driftPart)
		c.observe(sent, sent, sent.Add(offset).Truncate(time.Second))
		if got := time.Duration(c.offset.Load()); i > 100 && (got-offset).Abs() > 500*time.Millisecond {
			t.Fatalf("after %v, Offset() = %v, want about %v", sent.Sub(start), got, offset)
		}
	}
}
