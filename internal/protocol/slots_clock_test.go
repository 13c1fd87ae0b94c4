package protocol

import (
	"fmt"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A dated store reports the time by dates of whole seconds, as the replies of DynamoDB do.
type dated struct {
	now         time.Time // by the clock of the process
	offset      time.Duration
	trip        time.Duration
	least, most time.Duration
	reads       int
}

// read narrows down the offset by the date of one reply.
func (d *dated) read() {
	sent := d.now
	date := sent.Add(d.trip / 2).Add(d.offset).Truncate(dateStep)
	d.now = d.now.Add(d.trip)
	d.reads++
	d.least = max(d.least, date.Sub(d.now)-dateSlack)
	d.most = min(d.most, date.Add(dateStep).Sub(sent)+dateSlack)
}

func (d *dated) slotTime() (now time.Time, wrong time.Duration) {
	wrong = (d.most - d.least) / 2
	return d.now.Add(d.least + wrong), wrong
}

// TestAskedTime asks for the time from every moment of a second on, until slots of a term may be taken.
func TestAskedTime(t *testing.T) {
	for _, test := range []struct {
		term, trip time.Duration
		reads      int           // at most
		within     time.Duration // at most
	}{
		{5 * time.Second, time.Millisecond, 1, 200 * time.Millisecond},
		{5 * time.Second, 20 * time.Millisecond, 1, 200 * time.Millisecond},
		{5 * time.Second, 200 * time.Millisecond, 2, 1300 * time.Millisecond},
		{2 * time.Second, 5 * time.Millisecond, 3, 1300 * time.Millisecond},
		{2 * time.Second, 60 * time.Millisecond, 4, 1300 * time.Millisecond},
		{time.Second, time.Millisecond, 11, 2 * time.Second},
		{time.Second, 20 * time.Millisecond, 12, 2 * time.Second},
		{time.Second, 60 * time.Millisecond, 16, clockPatience},
	} {
		t.Run(fmt.Sprint(test.term, " ", test.trip), func(t *testing.T) {
			for offset := time.Duration(0); offset < time.Second; offset += 7 * time.Millisecond {
				start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
				d := dated{now: start, offset: offset, trip: test.trip, least: -time.Hour, most: time.Hour}
				d.read()
				d.read()
				began, exact := d.now, test.term/bucket.SlotClockError
				d.reads = 0
				for {
					now, wrong := d.slotTime()
					if wrong <= exact {
						break
					}
					if d.reads > 100 {
						t.Fatalf("offset %v: after %d reads the clock is known to %v, want %v", offset, d.reads, wrong, exact)
					}
					d.now = d.now.Add(untilReport(now, wrong, exact, test.trip))
					d.read()
				}
				if d.least > offset || d.most < offset {
					t.Fatalf("offset %v: the clock is known as %v to %v", offset, d.least, d.most)
				}
				if took := d.now.Sub(began); d.reads > test.reads || took > test.within {
					t.Errorf("offset %v: it took %d reads and %v, want at most %d and %v", offset, d.reads, took, test.reads, test.within)
				}
			}
		})
	}
}
