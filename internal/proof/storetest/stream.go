package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// RunStream runs the tests of change streams. open is as for [Run]; its table has a stream.
func RunStream(t *testing.T, open func(t *testing.T) store.Store) {
	for name, test := range map[string]func(*testing.T, store.Store, *tail){
		"Images":    testImages,
		"Unchanged": testUnchanged,
		"Together":  testTogether,
		"Resume":    testResume,
		"Writers":   testWriters,
	} {
		t.Run(name, ready(open, func(t *testing.T, s store.Store) {
			check.Fatal(t, "StartStream()", streamer(s).StartStream(t.Context()))
			test(t, s, newTail(s))
		}))
	}
	t.Run("Forgotten", ready(open, testForgotten))
	t.Run("Close", ready(open, func(t *testing.T, s store.Store) {
		check.Fatal(t, "Close()", s.Close())
		for name, call := range streamCalls(s) {
			if err := call(t); !errors.Is(err, store.ErrClosed) {
				t.Errorf("%s of a closed store = %v, want %v", name, err, store.ErrClosed)
			}
		}
	}))
}

func streamer(s store.Store) store.Streamer { return s.(store.Streamer) }

func streamCalls(s store.Store) map[string]func(*testing.T) error {
	return map[string]func(*testing.T) error{
		"StartStream": func(t *testing.T) error { return streamer(s).StartStream(t.Context()) },
		"Partitions":  func(t *testing.T) error { _, err := streamer(s).Partitions(t.Context()); return err },
		"Children":    func(t *testing.T) error { _, err := streamer(s).Children(t.Context(), "none"); return err },
		"Changes": func(t *testing.T) error {
			_, err := streamer(s).Changes(t.Context(), "none", store.Position{}, 1)
			return err
		},
	}
}

// A tail reads a stream as it grows.
type tail struct {
	s         store.Streamer
	limit     int
	positions map[string]store.Position
}

func newTail(s store.Store) *tail {
	return &tail{s: streamer(s), limit: 100, positions: map[string]store.Position{}}
}

// next returns the next n changes, and fails the test when there are more.
func (f *tail) next(t *testing.T, n int) []store.Change {
	t.Helper()
	var changes []store.Change
	for deadline := time.Now().Add(20 * time.Second); ; {
		before := len(changes)
		partitions, err := f.s.Partitions(t.Context())
		check.Fatal(t, "Partitions()", err)
		for _, p := range partitions {
			at := f.positions[p.ID]
			page, err := f.s.Changes(t.Context(), p.ID, at, f.limit)
			if err != nil {
				t.Fatalf("Changes(%s, %q) = %v", p.ID, at.After, err)
			}
			if page.Gap || len(page.Changes) > f.limit {
				t.Fatalf("Changes(%s, %q) = %d changes, with a gap: %t", p.ID, at.After, len(page.Changes), page.Gap)
			}
			f.positions[p.ID] = page.Next
			changes = append(changes, page.Changes...)
		}
		if quiet := len(changes) == before; len(changes) > n || quiet && len(changes) == n || time.Now().After(deadline) {
			break
		}
	}
	if len(changes) != n {
		t.Fatalf("the stream has %d changes, want %d:\n%v", len(changes), n, changes)
	}
	return changes
}

// told compares changes except their sequences and times, which must be plausible.
func reported(t *testing.T, got []store.Change, want ...store.Change) {
	t.Helper()
	for i, c := range got {
		if len(c.Sequence) != 40 || strings.Trim(string(c.Sequence), "0123456789") != "" {
			t.Errorf("change %d has sequence %q, want 40 digits", i, c.Sequence)
		}
		if age := time.Since(c.At); age < -2*time.Second || age > time.Minute {
			t.Errorf("change %d was made at %v, now it is %v", i, c.At, time.Now())
		}
	}
	if diff := cmp.Diff(want, got, Equal, cmpopts.IgnoreFields(store.Change{}, "Sequence", "Stream", "At")); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func testImages(t *testing.T, s store.Store, f *tail) {
	f.next(t, 0)
	fraction, err := expr.ParseNumber("12345678901234567890.5")
	check.Fatal(t, "expr.ParseNumber()", err)
	item := Item(
		"n", 12, "big", fraction, "text", "a\x00ž", "empty", "", "true", true, "null", expr.Null(),
		"set", expr.Strings("b", "a"), "list", expr.List(expr.S("x"), expr.N(1)), "map", expr.Map(Item("k", "v")),
		"owner", "o", "since", "s", "ttl", 1,
	)
	first := key.Join(item)
	write(t, s, store.Write{Kind: store.Put, Key: key, Item: item})
	second := write(t, s, store.Write{Key: key, Expr: Bind(t, nil, []expr.Action{expr.Add(n, 0)}, 3)}).Item
	third := write(t, s, store.Write{Kind: store.Put, Key: key, Item: Item("owner", "p", "since", "s")}).Item
	write(t, s, store.Write{Kind: store.Delete, Key: key})
	created := write(t, s, store.Write{Key: key, Expr: Bind(t, nil, []expr.Action{expr.Add(n, 0)}, 1)}).Item
	check.Fatal(t, "Delete()", s.Delete(t.Context(), []store.Key{key, {PK: "none", SK: "s"}}))
	reported(t, f.next(t, 6),
		store.Change{Key: key, New: first},
		store.Change{Key: key, Old: first, New: second},
		store.Change{Key: key, Old: second, New: third},
		store.Change{Key: key, Old: third},
		store.Change{Key: key, New: created},
		store.Change{Key: key, Old: created},
	)
}

// testUnchanged makes writes that leave the items as they were. None of them is a change.
func testUnchanged(t *testing.T, s store.Store, f *tail) {
	put(t, s, key, "n", 1)
	first := read(t, s, key)[0]
	fails := Bind(t, []expr.Condition{expr.EQ(n, 0)}, []expr.Action{expr.Add(n, 1)}, 7, 1)
	write(t, s, store.Write{Key: key, Expr: fails})
	write(t, s, store.Write{Kind: store.Delete, Key: key, Expr: Bind(t, []expr.Condition{expr.EQ(n, 0)}, nil, 7)})
	write(t, s, store.Write{Kind: store.Check, Key: key, Expr: Bind(t, []expr.Condition{expr.EQ(n, 0)}, nil, 1)})
	write(t, s, store.Write{Kind: store.Delete, Key: store.Key{PK: "none", SK: "s"}})
	put(t, s, key, "n", 1)
	write(t, s, store.Write{Key: key, Expr: Bind(t, nil, []expr.Action{expr.Set(n, 0)}, 1)})
	other := store.Key{PK: "q", SK: "s"}
	if _, err := s.Transact(t.Context(), []store.Write{{Kind: store.Put, Key: other}, {Key: key, Expr: fails}}); err != nil {
		t.Fatalf("Transact() = %v", err)
	}
	_, err := s.Write(t.Context(), store.Write{Kind: store.Put, Key: key, Item: Item("set", expr.Strings())})
	refused(t, "Write of an empty set", err)
	put(t, s, key, "n", 2)
	reported(t, f.next(t, 2),
		store.Change{Key: key, New: first},
		store.Change{Key: key, Old: first, New: read(t, s, key)[0]},
	)
}

// testTogether expects one change for each item that a transaction changed.
func testTogether(t *testing.T, s store.Store, f *tail) {
	at := func(pk string) store.Key { return store.Key{PK: pk, SK: "s"} }
	put(t, s, at("a"), "n", 1)
	put(t, s, at("b"), "n", 1)
	put(t, s, at("c"), "n", 1)
	f.next(t, 3)
	results, err := s.Transact(t.Context(), []store.Write{
		{Key: at("a"), Expr: Bind(t, nil, []expr.Action{expr.Add(n, 0)}, 1)},
		{Kind: store.Delete, Key: at("b")},
		{Kind: store.Check, Key: at("c"), Expr: Bind(t, []expr.Condition{expr.EQ(n, 0)}, nil, 1)},
		{Kind: store.Put, Key: at("d"), Item: Item("n", 5)},
	})
	if err != nil || !results[0].Applied {
		t.Fatalf("Transact() = %v, %v", results, err)
	}
	image := func(pk string, n int) expr.Item { return at(pk).Join(Item("n", n)) }
	got := f.next(t, 3)
	slices.SortFunc(got, func(a, b store.Change) int { return strings.Compare(a.Key.PK, b.Key.PK) })
	reported(t, got,
		store.Change{Key: at("a"), Old: image("a", 1), New: image("a", 2)},
		store.Change{Key: at("b"), Old: image("b", 1)},
		store.Change{Key: at("d"), New: image("d", 5)},
	)
}

// testResume goes on after each change, with and without an iterator, and in pages of every size.
func testResume(t *testing.T, s store.Store, f *tail) {
	const changes = 7
	for i := range changes {
		put(t, s, key, "n", i)
	}
	whole := f.next(t, changes)
	for i := range changes - 1 {
		if whole[i].Sequence >= whole[i+1].Sequence {
			t.Errorf("change %d has sequence %s, the next one %s", i, whole[i].Sequence, whole[i+1].Sequence)
		}
		rest := newTail(s)
		rest.limit = i + 1
		for id := range f.positions {
			rest.positions[id] = store.Position{After: whole[i].Sequence}
		}
		if diff := cmp.Diff(whole[i+1:], rest.next(t, changes-i-1), Equal); diff != "" {
			t.Errorf("changes after the one of number %d (-want +got):\n%s", i, diff)
		}
	}
	again := newTail(s)
	if diff := cmp.Diff(whole, again.next(t, changes), Equal); diff != "" {
		t.Errorf("the changes a second time (-want +got):\n%s", diff)
	}
}

// testWriters runs many goroutines that write. The changes of each item are a chain from its first image to its last.
func testWriters(t *testing.T, s store.Store, f *tail) {
	const writers, items, steps = 16, 5, 12
	at := func(i int) store.Key { return store.Key{PK: fmt.Sprint("item", i%items), SK: "s"} }
	count := Bind(t, nil, []expr.Action{expr.Add(n, 0)}, 1)
	group, ctx := errgroup.WithContext(t.Context())
	for w := range writers {
		group.Go(func() error {
			for i := range steps {
				writes := []store.Write{{Key: at(w + i), Expr: count}, {Key: at(w + i + 1), Expr: count}}
				if i%3 > 0 {
					if _, err := s.Write(ctx, writes[0]); err != nil {
						return err
					}
				} else if _, err := s.Transact(ctx, writes); err != nil {
					return err
				}
			}
			return nil
		})
	}
	check.Fatal(t, "Wait()", group.Wait())
	chains := map[store.Key]expr.Item{}
	sequences := map[store.Key]store.Sequence{}
	for i, c := range f.next(t, writers*steps*4/3) {
		if !c.Old.Equal(chains[c.Key]) {
			t.Errorf("change %d of %v starts from %v, the one before ended with %v", i, c.Key, c.Old, chains[c.Key])
		}
		if c.Sequence <= sequences[c.Key] {
			t.Errorf("change %d of %v has sequence %s, the one before %s", i, c.Key, c.Sequence, sequences[c.Key])
		}
		chains[c.Key], sequences[c.Key] = c.New, c.Sequence
	}
	for i := range items {
		if now := read(t, s, at(i))[0]; !now.Equal(chains[at(i)]) {
			t.Errorf("the changes of %v end with %v, and it is %v", at(i), chains[at(i)], now)
		}
	}
}

// testForgotten reads a partition that does not exist, or not any more.
func testForgotten(t *testing.T, s store.Store) {
	check.Fatal(t, "StartStream()", streamer(s).StartStream(t.Context()))
	page, err := streamer(s).Changes(t.Context(), "none", store.Position{}, 1)
	if err != nil || !page.End || !page.Gap || len(page.Changes) > 0 {
		t.Errorf("Changes of an unknown partition = %+v, %v; want its end, after a gap", page, err)
	}
}
