package dynamo

import (
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
			case i == 0 && (got-offset).Abs() > dateStep+trip+2*clockSlack:
				t.Errorf("after a reply of a clock that is %v ahead, Offset() = %v, want it within a second and the round trip", offset, got)
			}
		}
		got := time.Duration(c.offset.Load())
		if (got - offset).Abs() > 2*clockSlack+trip {
			t.Errorf("after 200 replies of a clock that is %v ahead, Offset() = %v", offset, got)
		}
	}
}

// TestClockThatIsSet has one reply contradict the others, which changes nothing, and then all that follow.
func TestClockThatIsSet(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := &clock{}
	reply := func(i int, offset time.Duration) time.Duration {
		sent := start.Add(time.Duration(i) * 100 * time.Millisecond)
		c.observe(sent, sent, sent.Add(offset).Truncate(time.Second))
		return time.Duration(c.offset.Load())
	}
	for i := range 10 {
		reply(i, 0)
	}
	if got := reply(10, time.Hour); got != 0 {
		t.Errorf("after one reply of another time, Offset() = %v, want 0", got)
	}
	if got := reply(11, 0); got != 0 {
		t.Errorf("after a reply of another time and one of the old, Offset() = %v, want 0", got)
	}
	reply(12, time.Hour)
	if got := reply(13, time.Hour); (got - time.Hour).Abs() > 2*time.Second {
		t.Errorf("after two replies of a time an hour ahead, Offset() = %v", got)
	}
}

// TestClockDrifts has the offset grow slowly over hours, as a bad crystal makes it.
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
