package table_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/internal/table"
)

// newStore returns a store in memory that is set up.
func newStore(t *testing.T) *memory.Store {
	t.Helper()
	s, err := memory.New(layout.Table)
	if err == nil {
		err = s.Setup(t.Context())
	}
	check.Fatal(t, "memory.New()", err)
	t.Cleanup(func() { check.Error(t, "Close()", s.Close()) })
	return s
}

// newTable returns a table on a store, with options except the timeout.
func newTable(s store.Store, o table.Options) *table.Table {
	o.Timeout = time.Minute
	return table.New(s, o)
}

var errBusy = &store.Error{Op: "PutItem", Unavailable: true, Throttled: true, Err: errors.New("slower")}

// faulty is a store whose writes, transactions and deletions fail with what next returns, if that is not nil.
type faulty struct {
	store.Store
	calls int
	next  func(call int) error
}

func (f *faulty) fail() error {
	f.calls++
	return f.next(f.calls)
}

func (f *faulty) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if err := f.fail(); err != nil {
		return store.Result{}, err
	}
	return f.Store.Write(ctx, w)
}

func (f *faulty) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	return f.Store.Transact(ctx, writes)
}

func (f *faulty) Delete(ctx context.Context, keys []store.Key) error {
	if err := f.fail(); err != nil {
		return err
	}
	return f.Store.Delete(ctx, keys)
}

// always returns a fault that does not end.
func always(err error) func(int) error { return func(int) error { return err } }

// first returns a fault of the first calls.
func first(n int, err error) func(int) error {
	return func(call int) error {
		if call > n {
			return nil
		}
		return err
	}
}

// put returns a write of item number n of a partition, on condition that it is absent.
func put(t *testing.T, pk string, n int) store.Write {
	t.Helper()
	absent := check.Call(layout.Insert()).Must(t, "layout.Insert()")
	return store.Write{
		Kind: store.Put, Key: key(pk, n), Expr: absent, Item: expr.Item{{Name: "n", Value: expr.N(int64(n))}},
	}
}

func key(pk string, n int) store.Key {
	return store.Key{PK: pk, SK: string(rune('a'+n/26)) + string(rune('a'+n%26))}
}

// fill puts items into a partition.
func fill(t *testing.T, s store.Store, pk string, n int) (keys []store.Key) {
	t.Helper()
	for i := range n {
		w := put(t, pk, i)
		if _, err := s.Write(t.Context(), w); err != nil {
			t.Fatalf("Write() = %v", err)
		}
		keys = append(keys, w.Key)
	}
	return keys
}

// numbers returns the numbers of items, -1 for one that is missing.
func numbers(items []expr.Item) (all []string) {
	for _, item := range items {
		if item == nil {
			all = append(all, "-")
			continue
		}
		all = append(all, item.Get("n").Number())
	}
	return all
}

// upTo returns the numbers from 0 to n-1.
func upTo(n int) (all []string) {
	for i := range n {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

func TestOptimistic(t *testing.T) {
	failed := errors.New("failed")
	conflict := &store.Error{Op: "put", Err: store.ErrConflict}
	for _, test := range []struct {
		name   string
		races  int
		doneAt int // the try that succeeds; 0 for none
		failAt int // the try that fails; 0 for none
		lost   error
		tries  int
		pauses int
		want   error
	}{
		{"done at once", 0, 1, 0, nil, 1, 0, nil},
		{"done after two lost races, which need no pause", 0, 3, 0, nil, 3, 0, nil},
		{"done after more", 0, 6, 0, nil, 6, 3, nil},
		{"done after transactions in the way", 0, 6, 0, conflict, 6, 3, nil},
		{"a failure is not tried again", 0, 0, 4, nil, 4, 1, failed},
		{"other writers are always first", 0, 0, 0, nil, table.MaxAttempts, table.MaxAttempts - 3, table.ErrContended},
		{"fewer tries", 3, 0, 0, nil, 3, 0, table.ErrContended},
		{"transactions are always in the way", 3, 0, 0, conflict, 3, 0, table.ErrContended},
	} {
		tries, pauses := 0, 0
		tab := newTable(newStore(t), table.Options{
			Races: test.races,
			Sleep: func(context.Context, time.Duration) error { pauses++; return nil },
		})
		err := tab.Optimistic(t.Context(), func() (bool, error) {
			tries++
			switch tries {
			case test.failAt:
				return false, failed
			case test.doneAt:
				return true, nil
			default:
				return false, test.lost
			}
		})
		if !errors.Is(err, test.want) || tries != test.tries || pauses != test.pauses {
			t.Errorf("%s: Optimistic() = %v after %d tries and %d pauses, want %v after %d and %d",
				test.name, err, tries, pauses, test.want, test.tries, test.pauses)
		}
	}
}

// TestOptimisticPauses checks that the bounds of the pauses grow to 64 ms, and that a pause is a random part.
func TestOptimisticPauses(t *testing.T) {
	var pauses []time.Duration
	tab := newTable(newStore(t), table.Options{
		IntN:  func(n int) int { return n / 2 },
		Races: 12,
		Sleep: func(_ context.Context, d time.Duration) error { pauses = append(pauses, d); return nil },
	})
	if err := tab.Optimistic(t.Context(), func() (bool, error) { return false, nil }); !errors.Is(err, table.ErrContended) {
		t.Fatalf("Optimistic() = %v", err)
	}
	var want []time.Duration
	for _, bound := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 64, 64} {
		want = append(want, bound*time.Millisecond/2)
	}
	compare.Equal(t, "pauses", want, pauses)
}

// TestOptimisticEnds checks that no try follows the end of the context, whether that comes during a try or during a
// pause.
func TestOptimisticEnds(t *testing.T) {
	for _, during := range []int{1, 4} {
		ctx, cancel := context.WithCancel(t.Context())
		tab, tries := newTable(newStore(t), table.Options{IntN: func(n int) int { return n - 1 }}), 0
		err := tab.Optimistic(ctx, func() (bool, error) {
			if tries++; tries == during {
				cancel()
			}
			return false, nil
		})
		if !errors.Is(err, context.Canceled) || tries != during {
			t.Errorf("the context ended during try %d: Optimistic() = %v after %d tries", during, err, tries)
		}
		cancel()
	}
}

func TestPatiently(t *testing.T) {
	denied := &store.Error{Op: "PutItem", Err: errors.New("denied")}
	for _, test := range []struct {
		name  string
		tries int
		fault func(int) error
		calls int
		want  error
	}{
		{"no failure", 0, always(nil), 1, nil},
		{"a throttle that passes", 0, first(3, errBusy), 4, nil},
		{"an outage that passes", 0, first(1, &store.Error{Unavailable: true, Err: errors.New("down")}), 2, nil},
		{"a lost reply", 0, first(1, &store.Error{Unknown: true, Err: errors.New("reset")}), 2, nil},
		{"another transaction", 0, first(1, store.ErrConflict), 2, nil},
		{"a throttle that stays", 0, always(errBusy), 7, errBusy},
		{"fewer tries", 4, always(errBusy), 4, errBusy},
		{"a denied permission", 0, always(denied), 1, denied},
	} {
		s := &faulty{Store: newStore(t), next: test.fault}
		tab := newTable(s, table.Options{
			Tries: test.tries, Sleep: func(context.Context, time.Duration) error { return nil },
		})
		result, err := tab.PatientWrite(t.Context(), put(t, "p", 1))
		if !errors.Is(err, test.want) || s.calls != test.calls || result.Applied != (test.want == nil) {
			t.Errorf("%s: PatientWrite() = %+v, %v after %d calls, want %v after %d", test.name, result, err, s.calls, test.want, test.calls)
		}
	}
}

// TestPatientlyPauses uses the clock of a bubble: 200 ms at most, then twice as long each time.
func TestPatientlyPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(nil, table.Options{IntN: func(n int) int { return n - 1 }})
		began := time.Now()
		err := tab.Patiently(t.Context(), func(context.Context) error { return errBusy })
		took := time.Since(began).Round(time.Millisecond)
		if want := 63 * 200 * time.Millisecond; !errors.Is(err, errBusy) || took != want {
			t.Errorf("Patiently() = %v after %v, want %v after %v", err, took, errBusy, want)
		}
	})
}

// TestPatientlyEnds ends the context of a caller. The caller gets the error of the call, which may say that the write
// happened.
func TestPatientlyEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	lost := &store.Error{Op: "PutItem", Unknown: true, Err: context.Canceled}
	err := newTable(nil, table.Options{}).Patiently(ctx, func(context.Context) error {
		calls++
		cancel()
		return lost
	})
	if !errors.Is(err, lost) || calls != 1 {
		t.Errorf("Patiently() = %v after %d calls, want %v after 1", err, calls, lost)
	}
}

func TestUnknown(t *testing.T) {
	tab := newTable(nil, table.Options{})
	lost := &store.Error{Unknown: true, Err: errors.New("reset")}
	for _, err := range []error{nil, errBusy, lost, lost, store.ErrConflict} {
		if got := tab.Call(t.Context(), func(context.Context) error { return err }); !errors.Is(got, err) {
			t.Errorf("Call() = %v, want %v", got, err)
		}
	}
	if tab.Unknown() != 2 {
		t.Errorf("Unknown() = %d, want 2", tab.Unknown())
	}
}

// In TestTimeout, a call hangs, which is an outage. The end of the caller's context is none.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable(nil, table.Options{Gate: store.NewGate(1, nil)})
		for _, test := range []struct {
			name   string
			giveUp time.Duration
			want   store.Outcome
		}{
			{"the store hangs", time.Hour, store.Unavailable},
			{"the caller gives up", time.Second, store.Ended},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), test.giveUp)
			err := tab.Call(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			if got := store.OutcomeOf(err); got != test.want {
				t.Errorf("%s: Call() = %v, outcome %d, want %d", test.name, err, got, test.want)
			}
			cancel()
		}
	})
}

func TestTransact(t *testing.T) {
	s := &faulty{Store: newStore(t), next: always(nil)}
	tab := newTable(s, table.Options{})
	if applied, err := tab.Transact(t.Context(), nil); !applied || err != nil || s.calls != 0 {
		t.Errorf("Transact(nothing) = %t, %v after %d calls, want true without a call", applied, err, s.calls)
	}
	for _, test := range []struct {
		name    string
		writes  []store.Write
		fault   error
		applied bool
		err     error
	}{
		{"all can be done", []store.Write{put(t, "p", 1), put(t, "p", 2)}, nil, true, nil},
		{"one is there", []store.Write{put(t, "p", 2), put(t, "p", 3)}, nil, false, nil},
		{"another transaction", []store.Write{put(t, "p", 4)}, store.ErrConflict, false, nil},
		{"an outage", []store.Write{put(t, "p", 4)}, errBusy, false, errBusy},
	} {
		s.next = always(test.fault)
		if applied, err := tab.Transact(t.Context(), test.writes); applied != test.applied || !errors.Is(err, test.err) {
			t.Errorf("%s: Transact() = %t, %v, want %t, %v", test.name, applied, err, test.applied, test.err)
		}
	}
	items, err := tab.Read(t.Context(), key("p", 1), key("p", 2), key("p", 3), key("p", 4))
	if diff := cmp.Diff([]string{"1", "2", "-", "-"}, numbers(items)); diff != "" || err != nil {
		t.Errorf("Read() = %v, items (-want +got):\n%s", err, diff)
	}
}

// TestReadsAndDeletes handles more items than a call takes, and than a page holds.
func TestReadsAndDeletes(t *testing.T) {
	s := newStore(t)
	tab := newTable(s, table.Options{})
	const count = 2*store.MaxRead + 7
	keys := fill(t, s, "p", count)
	fill(t, s, "other", 3)

	items, err := tab.ReadChunks(t.Context(), keys)
	if diff := cmp.Diff(upTo(count), numbers(items)); diff != "" || err != nil {
		t.Errorf("ReadChunks() = %v, items (-want +got):\n%s", err, diff)
	}
	list := func() []expr.Item {
		t.Helper()
		return check.All(t, "Items()", tab.Items(t.Context(), store.Query{PK: "p", Limit: 30}))
	}
	compare.Equal(t, "Items()", upTo(count), numbers(list()))
	pages := 0
	for page, err := range tab.Pages(t.Context(), store.Query{PK: "p", Limit: 30}) {
		if err != nil || len(page) == 0 {
			t.Fatalf("Pages() yields %d items, %v", len(page), err)
		}
		if pages++; pages == 2 {
			break
		}
	}
	check.Fatal(t, "Delete()", tab.Delete(t.Context(), keys[1:]))
	compare.Equal(t, "after Delete() Items()", []string{"0"}, numbers(list()))
	if left, err := tab.Read(t.Context(), key("other", 0)); err != nil || left[0] == nil {
		t.Errorf("Delete() of one partition took from another: %v, %v", left, err)
	}
}

// TestLookUp deletes an item between the query of the index and the read of the table.
func TestLookUp(t *testing.T) {
	s := newStore(t)
	tab := newTable(s, table.Options{})
	keys := fill(t, s, "p", 4)
	read := func(ctx context.Context, found ...store.Key) ([]expr.Item, error) {
		if slices.Contains(found, keys[1]) {
			if err := s.Delete(ctx, keys[1:2]); err != nil {
				return nil, err
			}
		}
		return tab.Read(ctx, found...)
	}
	items := check.All(t, "LookUp()", tab.LookUp(t.Context(), store.Query{PK: "p", Limit: 3}, read))
	compare.Equal(t, "LookUp()", []string{"0", "2", "3"}, numbers(items))
	broken := func(context.Context, ...store.Key) ([]expr.Item, error) { return nil, errBusy }
	for item, err := range tab.LookUp(t.Context(), store.Query{PK: "p"}, broken) {
		if item != nil || !errors.Is(err, errBusy) {
			t.Errorf("LookUp() yields %v, %v, want the error of the read", item, err)
		}
	}
}
