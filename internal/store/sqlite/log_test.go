package sqlite_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
	"github.com/zlimit/zlimit-go/internal/store/storetest"
)

// A clock is a time that a test sets.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newClock() *clock { return &clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

// logged returns a store in memory whose stream is on.
func logged(t *testing.T, c *clock) *sqlite.Store {
	t.Helper()
	s := open(t)(sqlite.OpenMemory(storetest.Table, sqlite.Clock(c.now)))
	if err := s.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	startStream(t, s)
	return s
}

func startStream(t *testing.T, s *sqlite.Store) {
	t.Helper()
	if err := s.StartStream(t.Context()); err != nil {
		t.Fatalf("StartStream() = %v", err)
	}
}

// count makes n changes of one item.
func count(t *testing.T, s *sqlite.Store, n int) {
	t.Helper()
	for range n {
		if _, err := s.Write(t.Context(), countUp(t)); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
}

// changes reads one page.
func changes(t *testing.T, s *sqlite.Store, after store.Sequence) store.ChangePage {
	t.Helper()
	page, err := s.Changes(t.Context(), "log", store.Position{After: after}, 1<<30)
	if err != nil {
		t.Fatalf("Changes(%q) = %v", after, err)
	}
	return page
}

func sequence(id int) store.Sequence { return store.Sequence(fmt.Sprintf("%040d", id)) }

// expectLog compares the log from a position on with the ids that it should have.
func expectLog(t *testing.T, s *sqlite.Store, after store.Sequence, first, last int, gap bool) {
	t.Helper()
	page := changes(t, s, after)
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
		t.Errorf("Changes(%q) tells of a gap: %t, of an end: %t; want %t, false", after, page.Gap, page.End, gap)
	}
}

func TestNothingIsLoggedUnasked(t *testing.T) {
	s, _ := ready(t)
	count(t, s, 3)
	if _, err := s.Partitions(t.Context()); !errors.Is(err, store.ErrNoStream) {
		t.Errorf("Partitions() = %v, want %v", err, store.ErrNoStream)
	}
	if _, err := s.Changes(t.Context(), "log", store.Position{}, 1); !errors.Is(err, store.ErrNoStream) {
		t.Errorf("Changes() = %v, want %v", err, store.ErrNoStream)
	}
	startStream(t, s)
	expectLog(t, s, "", 1, 0, false)
	count(t, s, 2)
	expectLog(t, s, "", 1, 2, false)
}

// TestEveryProcessLogs starts the stream with one store while others have the file open and have written to it.
func TestEveryProcessLogs(t *testing.T) {
	writer, path := ready(t)
	count(t, writer, 1)
	reader := open(t)(sqlite.Open(path, storetest.Table))
	startStream(t, reader)
	count(t, writer, 1)
	if _, err := writer.Transact(t.Context(), []store.Write{countUp(t)}); err != nil {
		t.Fatal(err)
	}
	if err := writer.Delete(t.Context(), []store.Key{bucketKey}); err != nil {
		t.Fatal(err)
	}
	expectLog(t, reader, "", 1, 3, false)
}

func TestTimeOfChange(t *testing.T) {
	c := newClock()
	s := logged(t, c)
	count(t, s, 1)
	c.at = c.at.Add(1500 * time.Millisecond)
	count(t, s, 1)
	page := changes(t, s, "")
	if got := page.Changes[1].At.Sub(page.Changes[0].At); got != 1500*time.Millisecond || !page.Changes[1].At.Equal(c.at) {
		t.Errorf("changes are %v apart, the last at %v; want 1.5s, %v", got, page.Changes[1].At, c.at)
	}
}

// TestExpiredIsTold has Expire delete one item, and the application another.
func TestExpiredIsTold(t *testing.T) {
	s := logged(t, newClock())
	keys := []store.Key{{PK: "a", SK: "s"}, {PK: "b", SK: "s"}}
	for _, k := range keys {
		if _, err := s.Write(t.Context(), store.Write{Kind: store.Put, Key: k, Item: storetest.Item("ttl", 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Delete(t.Context(), keys[1:]); err != nil {
		t.Fatal(err)
	}
	if err := s.Expire(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	want := []store.Change{
		{Key: keys[1], Old: keys[1].Join(storetest.Item("ttl", 1000))},
		{Key: keys[0], Old: keys[0].Join(storetest.Item("ttl", 1000)), Expired: true},
	}
	got := changes(t, s, "").Changes[2:]
	for i := range got {
		got[i].Sequence, got[i].At = "", time.Time{}
	}
	if diff := cmp.Diff(want, got, storetest.Equal); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// TestTrim lets changes get older than a day, while a reader looks in now and then.
func TestTrim(t *testing.T) {
	c := newClock()
	s := logged(t, c)
	count(t, s, 300)
	c.at = c.at.Add(23 * time.Hour)
	expectLog(t, s, "", 1, 300, false) // and notes the reading
	c.at = c.at.Add(time.Hour)
	count(t, s, 300) // the 512th change finds nothing that is older than a day
	expectLog(t, s, "", 1, 600, false)
	c.at = c.at.Add(time.Millisecond)
	count(t, s, 200) // the 768th finds the first 300
	expectLog(t, s, "", 301, 800, false)
	expectLog(t, s, sequence(299), 301, 800, true)
	expectLog(t, s, sequence(300), 301, 800, false)
	expectLog(t, s, sequence(790), 791, 800, false)
}

// TestNobodyReads leaves a log alone for more than a day.
func TestNobodyReads(t *testing.T) {
	c := newClock()
	s := logged(t, c)
	count(t, s, 10)
	expectLog(t, s, "", 1, 10, false)
	c.at = c.at.Add(24*time.Hour + time.Millisecond)
	count(t, s, 300) // the 256th change of all turns the log off
	if _, err := s.Partitions(t.Context()); !errors.Is(err, store.ErrNoStream) {
		t.Errorf("Partitions() = %v, want %v", err, store.ErrNoStream)
	}
	startStream(t, s)
	// Whoever has read up to the last change that was logged has missed those after it.
	for _, after := range []store.Sequence{sequence(10), sequence(256)} {
		expectLog(t, s, after, 1, 0, true)
	}
	after := changes(t, s, sequence(256)).Next.After
	expectLog(t, s, after, 1, 0, false)
	count(t, s, 2)
	expectLog(t, s, after, 258, 259, false)
	expectLog(t, s, "", 258, 259, false)
}

// TestReadingKeepsTheLogOn reads once a day less an hour.
func TestReadingKeepsTheLogOn(t *testing.T) {
	c := newClock()
	s := logged(t, c)
	for range 3 {
		c.at = c.at.Add(23 * time.Hour)
		count(t, s, 260)
		changes(t, s, "")
	}
	if _, err := s.Partitions(t.Context()); err != nil {
		t.Errorf("Partitions() = %v", err)
	}
}

// TestPageOfLargeItems ends a page by its size.
func TestPageOfLargeItems(t *testing.T) {
	s := open(t)(sqlite.Open(filepath.Join(t.TempDir(), "items.db"), storetest.Table))
	if err := s.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	startStream(t, s)
	for i := range 8 {
		item := storetest.Item("n", i, "text", strings.Repeat("x", 300_000))
		if _, err := s.Write(t.Context(), store.Write{Kind: store.Put, Key: bucketKey, Item: item}); err != nil {
			t.Fatal(err)
		}
	}
	read := 0
	var after store.Sequence
	for pages := 1; read < 8; pages++ {
		page := changes(t, s, after)
		if n := len(page.Changes); n == 0 || n > 4 || pages > 8 {
			t.Fatalf("page %d has %d changes", pages, n)
		}
		read, after = read+len(page.Changes), page.Next.After
	}
	if after != sequence(8) {
		t.Errorf("the pages end at %s, want the 8th change", after)
	}
}

func TestChangesRefusesAnotherStoresSequence(t *testing.T) {
	s := logged(t, newClock())
	if _, err := s.Changes(t.Context(), "log", store.Position{After: sequence(1) + "x"}, 1); err == nil {
		t.Error("Changes() took a sequence that is none")
	}
}
