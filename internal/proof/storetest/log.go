package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Clock is a time that a test sets.
type Clock struct{ At time.Time }

// Now returns the time.
func (c *Clock) Now() time.Time { return c.At }

// RunLog runs the tests of a change stream that the store itself keeps as a log. The log is the only partition, and is
// off until it is first read. open returns a store on a new table with a clock.
func RunLog(t *testing.T, open func(t *testing.T, c *Clock) store.Store) {
	for name, test := range map[string]func(*testing.T, *log){
		"Off":       testOff,
		"Time":      testTime,
		"Expired":   testExpired,
		"Trim":      testTrim,
		"Forget":    testForget,
		"Unread":    testUnread,
		"Read":      testReadingKeepsOn,
		"Stuck":     testStuck,
		"Positions": testPositions,
	} {
		t.Run(name, func(t *testing.T) {
			c := &Clock{At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
			ready(func(t *testing.T) store.Store { return open(t, c) }, func(t *testing.T, s store.Store) {
				test(t, &log{s, streamer(s), c})
			})(t)
		})
	}
}

// A log is a store whose change stream is a log.
type log struct {
	store.Store
	stream store.Streamer
	clock  *Clock
}

func (l *log) start(t *testing.T) {
	t.Helper()
	check.Fatal(t, "StartStream()", l.stream.StartStream(t.Context()))
}

// count makes changes of one item.
func (l *log) count(t *testing.T, changes int) {
	t.Helper()
	up := store.Write{Key: key, Expr: Bind(t, nil, []expr.Action{expr.Add(n, 0)}, 1)}
	for range changes {
		write(t, l, up)
	}
}

// changes reads one page.
func (l *log) changes(t *testing.T, after store.Sequence) store.ChangePage {
	t.Helper()
	page, err := l.stream.Changes(t.Context(), "log", store.Position{After: after}, 1<<30)
	if err != nil {
		t.Fatalf("Changes(%q) = %v", after, err)
	}
	return page
}

func sequence(id int) store.Sequence { return store.SequenceOf(fmt.Sprint(id)) }

// expect compares the log from a position on with the ids that it should have.
func (l *log) expect(t *testing.T, after store.Sequence, first, last int, gap bool) {
	t.Helper()
	page := l.changes(t, after)
	var got []store.Sequence
	for _, c := range page.Changes {
		got = append(got, c.Sequence)
	}
	var want []store.Sequence
	for id := first; id <= last; id++ {
		want = append(want, sequence(id))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes after %q (-want +got):\n%s", after, diff)
	}
	if page.Gap != gap || page.End {
		t.Errorf("Changes(%q) reports a gap: %t, of an end: %t; want %t, false", after, page.Gap, page.End, gap)
	}
}

// off asks for a stream that is off.
func (l *log) off(t *testing.T) {
	t.Helper()
	if _, err := l.stream.Partitions(t.Context()); !errors.Is(err, store.ErrNoStream) {
		t.Errorf("Partitions() = %v, want %v", err, store.ErrNoStream)
	}
	if _, err := l.stream.Changes(t.Context(), "log", store.Position{}, 1); !errors.Is(err, store.ErrNoStream) {
		t.Errorf("Changes() = %v, want %v", err, store.ErrNoStream)
	}
}

func testOff(t *testing.T, l *log) {
	l.count(t, 3)
	l.off(t)
	l.start(t)
	l.expect(t, "", 1, 0, false)
	l.count(t, 2)
	l.expect(t, "", 1, 2, false)
}

func testTime(t *testing.T, l *log) {
	l.start(t)
	l.count(t, 1)
	l.clock.At = l.clock.At.Add(1500 * time.Millisecond)
	l.count(t, 1)
	page := l.changes(t, "")
	if got := page.Changes[1].At.Sub(page.Changes[0].At); got != 1500*time.Millisecond || !page.Changes[1].At.Equal(l.clock.At) {
		t.Errorf("changes are %v apart, the last at %v; want 1.5s, %v", got, page.Changes[1].At, l.clock.At)
	}
}

// In testExpired, Expire deletes one item, and the application another.
func testExpired(t *testing.T, l *log) {
	l.start(t)
	keys := []store.Key{{PK: "a", SK: "s"}, {PK: "b", SK: "s"}}
	for _, k := range keys {
		put(t, l, k, "ttl", 1000)
	}
	check.Fatal(t, "Delete()", l.Delete(t.Context(), keys[1:]))
	check.Fatal(t, "Expire()", expirer(l.Store).Expire(t.Context(), 1000))
	want := []store.Change{
		{Key: keys[1], Old: keys[1].Join(Item("ttl", 1000))},
		{Key: keys[0], Old: keys[0].Join(Item("ttl", 1000)), Expired: true},
	}
	got := l.changes(t, "").Changes[2:]
	for i := range got {
		got[i].Sequence, got[i].At = "", time.Time{}
	}
	if diff := cmp.Diff(want, got, Equal); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// testTrim lets changes get older than a day, while a reader looks in now and then.
func testTrim(t *testing.T, l *log) {
	l.start(t)
	l.count(t, 300)
	l.clock.At = l.clock.At.Add(23 * time.Hour)
	l.expect(t, "", 1, 300, false) // and notes the reading
	l.clock.At = l.clock.At.Add(time.Hour)
	l.count(t, 300) // the 512th change finds nothing that is older than a day
	l.expect(t, "", 1, 600, false)
	l.clock.At = l.clock.At.Add(time.Millisecond)
	l.count(t, 200) // the 768th finds the first 300
	l.expect(t, "", 301, 800, false)
	l.expect(t, sequence(299), 301, 800, true)
	l.expect(t, sequence(300), 301, 800, false)
	l.expect(t, sequence(790), 791, 800, false)
}

// testForget makes the log forget applied changes. A reader at that place, or after it, misses nothing.
func testForget(t *testing.T, l *log) {
	l.start(t)
	l.count(t, 3000)
	forget := func(upTo store.Sequence) {
		t.Helper()
		if err := l.stream.(store.Forgetter).Forget(t.Context(), "log", upTo); err != nil {
			t.Errorf("Forget(%q) = %v", upTo, err)
		}
	}
	forget(sequence(2500))
	l.expect(t, "", 2501, 3000, false)
	l.expect(t, sequence(2500), 2501, 3000, false)
	l.expect(t, sequence(2499), 2501, 3000, true)
	forget(sequence(10)) // by one that is behind
	l.expect(t, sequence(2500), 2501, 3000, false)
	forget(sequence(9999))
	l.expect(t, sequence(3000), 1, 0, false)
	l.count(t, 300)
	l.expect(t, sequence(3000), 3001, 3300, false)
	l.expect(t, "", 3001, 3300, false)
	if err := l.stream.(store.Forgetter).Forget(t.Context(), "log", "x"); err == nil {
		t.Error("Forget() took a sequence that is none")
	}
}

// testUnread leaves a log alone for more than a day.
func testUnread(t *testing.T, l *log) {
	l.start(t)
	l.count(t, 10)
	l.expect(t, "", 1, 10, false)
	l.clock.At = l.clock.At.Add(24*time.Hour + time.Millisecond)
	l.count(t, 300) // the 256th change of all turns the log off
	l.off(t)
	l.start(t)
	// A reader that has read up to the last logged change has missed those after it.
	for _, after := range []store.Sequence{sequence(10), sequence(256)} {
		l.expect(t, after, 1, 0, true)
	}
	after := l.changes(t, sequence(256)).Next.After
	l.expect(t, after, 1, 0, false)
	l.count(t, 2)
	l.expect(t, after, 258, 259, false)
	l.expect(t, "", 258, 259, false)
}

// testReadingKeepsOn reads once a day less an hour.
func testReadingKeepsOn(t *testing.T, l *log) {
	l.start(t)
	for range 3 {
		l.clock.At = l.clock.At.Add(23 * time.Hour)
		l.count(t, 260)
		l.changes(t, "")
	}
	if _, err := l.stream.Partitions(t.Context()); err != nil {
		t.Errorf("Partitions() = %v", err)
	}
}

// testStuck looks at the partitions for more than a day, like a consumer that stands at a change which it cannot apply.
// When it goes on, it finds the changes of the last day.
func testStuck(t *testing.T, l *log) {
	l.start(t)
	l.count(t, 1)
	l.expect(t, "", 1, 1, false)
	for hour := range 26 {
		l.clock.At = l.clock.At.Add(time.Hour)
		if _, err := l.stream.Partitions(t.Context()); err != nil {
			t.Fatalf("Partitions() after %d hours = %v", hour+1, err)
		}
		l.count(t, 100)
	}
	// The change of number 2,560 trimmed up to 512 that were older than a day by then.
	l.expect(t, "", 102, 2601, false)
}

// testPositions reads after a change still to come, and after a text that is no sequence of a log.
func testPositions(t *testing.T, l *log) {
	l.start(t)
	l.count(t, 3)
	l.expect(t, sequence(5), 1, 0, false)
	if _, err := l.stream.Changes(t.Context(), "log", store.Position{After: sequence(1) + "x"}, 1); err == nil {
		t.Error("Changes() took a sequence that is none")
	}
}
