package aggregator

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// at returns an aggregator as on DynamoDB at a time.
func at(t testing.TB, s zlimit.Store, now time.Time, opts ...Option) *Aggregator {
	t.Helper()
	clock := WithClock(func() time.Time { return now })
	return byHour(newAggregator(t, s, append([]Option{WithConcurrency(1), clock}, opts...)...), true)
}

// roll rolls up what is due at a time.
func roll(t testing.TB, s zlimit.Store, now time.Time, opts ...Option) {
	t.Helper()
	a := at(t, s, now, opts...)
	a.roller.rollDue(context.Background(), context.Background())
}

// after is when the hour of noon is due.
var after = noon.Add(46 * time.Minute)

// expectFigures compares all snapshots of entity e.
func expectFigures(t *testing.T, what string, s zlimit.Store, want map[string]figures) {
	t.Helper()
	compare.Equal(t, fmt.Sprintf("%s: snapshots", what), want, snapshotsOf(t, newAggregator(t, s), "e"))
}

// sum returns the figures of n changes of busy.
func sum(n float64) figures {
	return figures{"rpm": fmt.Sprint(n), "tpm": fmt.Sprint(2.5 * n), "total_events": fmt.Sprint(n)}
}

// hourOnly is a snapshot of the hour of noon alone.
func hourOnly(f figures) map[string]figures { return map[string]figures{"r#2026-03-31T12:00:00Z": f} }

// TestRollUpCosts counts the calls of batches and of an hour that is rolled up, and the write units of their updates.
func TestRollUpCosts(t *testing.T) {
	s, _, faults := newTable(t)
	a := at(t, s, noon, WithoutTending())
	changes := busy(200)
	apply := func(changes []store.Change) func() { return func() { mustApply(t, a, changes...) } }
	for _, step := range []struct {
		name         string
		do           func()
		calls        int
		table, index float64
	}{
		{"the first batch looks for the hour, the day and the month, begins the hour, notes it, and reads the registry", apply(changes[:100]), 5, 1, 1},
		{"a batch of 100 changes reads the hour and writes it", apply(changes[100:]), 2, 1, 0},
		{"a batch that has been counted reads the hour and the registry", apply(changes[100:]), 2, 0, 0},
		{"an hour that is over is closed and put into a new day and a new month", func() { roll(t, s, after) }, 26, 5, 3},
		{"nothing is due", func() { roll(t, s, after) }, 17, 0, 0},
	} {
		enginetest.CatchUp()
		faults.Reset()
		step.do()
		used := faults.Capacity("")
		index := 0.0
		for _, units := range used.Indexes {
			index += units.Write
		}
		if calls := faults.Calls(""); calls != step.calls || used.Table.Write != step.table || index != step.index {
			t.Errorf("%s: %d calls, %v + %v write units, want %d, %v + %v",
				step.name, calls, used.Table.Write, index, step.calls, step.table, step.index)
		}
	}
	expectFigures(t, "in the end", s, figuresOf(sum(200)))
}

// TestWritesOfAnHour counts the writes of snapshots.
func TestWritesOfAnHour(t *testing.T) {
	s := newMemory(t)
	var batches []Batch
	observe := WithObserver(func(b Batch) { batches = append(batches, b) })
	a := at(t, s, noon, observe)
	changes := busy(6)
	mustApply(t, a, changes[:2]...)
	mustApply(t, a, changes[2:4]...)
	mustApply(t, a, changes[4:]...)
	expectFigures(t, "before the hour is over", s, hourOnly(sum(6)))
	roll(t, s, noon.Add(44*time.Minute), observe)
	expectFigures(t, "before it is due", s, hourOnly(sum(6)))
	roll(t, s, after, observe)
	expectFigures(t, "when it is due", s, figuresOf(sum(6)))
	var writes, rolledUp []int
	for _, b := range batches {
		writes, rolledUp = append(writes, b.Writes), append(rolledUp, b.RolledUp)
	}
	if !slices.Equal(writes, []int{1, 1, 1, 3}) || !slices.Equal(rolledUp, []int{0, 0, 0, 1}) {
		t.Errorf("batches with %v writes roll %v hours up, want [1 1 1 3] and [0 0 0 1]", writes, rolledUp)
	}
	if left := dueHours(t, s); len(left) > 0 {
		t.Errorf("there are still %v", left)
	}
}

// TestRollUpCrashes ends processes at each write of batches and rollers, before it and after it. Others take over.
func TestRollUpCrashes(t *testing.T) {
	changes := busy(12)
	for i := range changes {
		changes[i].At = noon.Add(time.Duration(i) * 20 * time.Minute)
	}
	end := noon.Add(6 * time.Hour)
	want := map[string]figures{}
	for crash, crashed := 0, true; crashed || crash == 1; crash++ {
		for _, written := range []bool{false, true} {
			s := newMemory(t)
			writes := 0
			crashed = false
			mortal := func(now time.Time) *Aggregator {
				a := at(t, s, now, WithName(fmt.Sprint("before ", now)))
				inject(a, func(int) (bool, error) {
					if writes++; crash == 0 || writes < crash {
						return false, nil
					}
					crashed = true
					return written && writes == crash, errDown
				})
				return a
			}
			f := follower{changes: changes}
			for f.done < len(changes) && !crashed {
				to := min(f.done+3, len(changes))
				f.apply(t.Context(), mortal(changes[to-1].At.Add(time.Minute)), f.done, to)
				if crashed {
					break
				}
				mortal(changes[to-1].At.Add(2*time.Minute)).roller.rollDue(t.Context(), t.Context())
			}
			for before := -1; f.done < len(changes); {
				if f.done == before {
					t.Fatalf("a crash at write %d, written %t: the next one is stuck at change %d", crash, written, f.done)
				}
				before = f.done
				to := min(f.done+4, len(changes))
				f.apply(t.Context(), at(t, s, changes[to-1].At.Add(time.Minute)), f.done, to)
			}
			roll(t, s, end)
			got := snapshotsOf(t, newAggregator(t, s), "e")
			if crash == 0 {
				want = got
				if f := want["r#2026-03"]; f["rpm"] != "12" || f["tpm"] != "30" || f["total_events"] != "12" {
					t.Fatalf("the month is %v", f)
				}
			}
			compare.Equal(t, fmt.Sprintf("a crash at write %d, written %t", crash, written), want, got)
			if left := dueHours(t, s); len(left) > 0 {
				t.Errorf("a crash at write %d, written %t: there are still %v", crash, written, left)
			}
		}
	}
}

// TestUnreadHours fails the reads before the writes. The writes find out what to write.
func TestUnreadHours(t *testing.T) {
	s := newMemory(t)
	for i, c := range busy(3) {
		a := at(t, s, noon)
		a.table = a.tableOf(blind{store.Of(s)})
		mustApply(t, a, c)
		expectFigures(t, fmt.Sprint("after change ", i), s, hourOnly(sum(float64(i+1))))
	}
	a := at(t, s, after)
	a.table = a.tableOf(blind{store.Of(s)})
	a.roller.rollDue(t.Context(), t.Context())
	expectFigures(t, "rolled up", s, figuresOf(sum(3)))
}

// blind is a store that fails eventually consistent reads.
type blind struct{ store.Store }

func (b blind) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	if !consistent {
		return nil, errDown
	}
	return b.Store.Read(ctx, keys, consistent)
}

// TestLateChanges counts changes from after the roll-up of their hour, and repeats them.
func TestLateChanges(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		changes := busy(9)
		mustApply(t, at(t, s, noon), changes[:4]...)
		enginetest.CatchUp()
		roll(t, s, after)
		expectFigures(t, "rolled up", s, figuresOf(sum(4)))
		mustApply(t, at(t, s, noon), changes[2:6]...) // of an aggregator whose clock is behind
		mustApply(t, at(t, s, after), changes[4:9]...)
		mustApply(t, at(t, s, after), changes...)
		roll(t, s, after)
		expectFigures(t, "late changes", s, figuresOf(sum(9)))
	})
}

// TestLateHour begins an hour when those who look for hours may have looked: it is rolled up immediately, and not
// noted.
func TestLateHour(t *testing.T) {
	s := newMemory(t)
	for _, test := range []struct {
		minutes time.Duration // since noon
		late    bool
	}{{35, false}, {36, true}} {
		empty := newMemory(t)
		mustApply(t, at(t, empty, noon.Add(test.minutes*time.Minute)), busy(2)...)
		want, notes := hourOnly(sum(2)), 1
		if test.late {
			want, notes = figuresOf(sum(2)), 0
		}
		expectFigures(t, fmt.Sprint(test.minutes, " minutes later"), empty, want)
		if got := dueHours(t, empty); len(got) != notes {
			t.Errorf("%d minutes later: noted as %v, want %d", test.minutes, got, notes)
		}
	}
	// The clock counts when the write has been answered.
	now := noon
	a := at(t, s, noon, WithClock(func() time.Time { return now }))
	inject(a, func(n int) (bool, error) {
		if n == 1 {
			now = after
		}
		return false, nil
	})
	mustApply(t, a, busy(2)...)
	expectFigures(t, "a write that took long", s, figuresOf(sum(2)))
}

// TestProgramsOfThreeSnapshots begins an hour with a program of three snapshots, which may end anywhere. It goes on
// with a program that rolls up, or the other way round with WithoutRollUp.
func TestProgramsOfThreeSnapshots(t *testing.T) {
	changes := busy(8)
	for end := range 8 { // the write at which the first one ends
		s := newMemory(t)
		first := newAggregator(t, s, WithConcurrency(1)) // knows nothing of hours that carry
		inject(first, func(n int) (bool, error) {
			if n > end {
				return false, errDown
			}
			return false, nil
		})
		done := 0
		if first.apply(t.Context(), changes[:2]) == nil {
			done = 2
			if first.apply(t.Context(), changes[2:4]) == nil {
				done = 4
			}
		}
		mustApply(t, at(t, s, noon), changes[done:5]...)
		roll(t, s, after)
		mustApply(t, at(t, s, noon), changes[5:]...)
		roll(t, s, after)
		expectFigures(t, fmt.Sprintf("ended at write %d", end), s, figuresOf(sum(8)))
	}
	for missing := range 3 { // of the three writes, which are made at the same time
		s := newMemory(t)
		first := newAggregator(t, s, WithConcurrency(1))
		inject(first, func(n int) (bool, error) {
			if n == missing+1 {
				return false, errDown
			}
			return false, nil
		})
		first.apply(t.Context(), changes[:1])
		mustApply(t, at(t, s, noon), changes...)
		roll(t, s, after)
		expectFigures(t, fmt.Sprintf("without write %d", missing), s, figuresOf(sum(8)))
	}
	for _, order := range [][]bool{{true, false, true}, {false, true, false}} {
		s := newMemory(t)
		for i, carries := range order {
			from := max(0, 3*i-2) // some come again
			mustApply(t, byHour(at(t, s, noon), carries), changes[from:min(3*i+3, 8)]...)
		}
		roll(t, s, after)
		expectFigures(t, fmt.Sprint("rolling up or not: ", order), s, figuresOf(sum(8)))
	}
	for end := range 4 { // the write at which one without roll-up ends, in an hour that carries something
		s := newMemory(t)
		mustApply(t, at(t, s, noon), changes[:2]...)
		without := byHour(at(t, s, noon), false)
		inject(without, func(n int) (bool, error) {
			if n > end {
				return false, errDown
			}
			return false, nil
		})
		without.apply(t.Context(), changes[2:4])
		mustApply(t, at(t, s, noon), changes[2:]...)
		roll(t, s, after)
		expectFigures(t, fmt.Sprintf("without roll-up, ended at write %d", end), s, figuresOf(sum(8)))
	}
}

// In TestMeanwhile, others work between a batch's read of the hour and its write.
func TestMeanwhile(t *testing.T) {
	all := busy(2)
	first, second := all[0], all[1]
	sibling := layout.BucketKey{NS: "n", Entity: "e", Resource: "r", Shard: 1}
	elsewhere := store.Change{Key: keyOf(sibling), Sequence: sequence(1), At: noon, New: item(sibling, map[string]int64{"rpm": 1000, "tpm": 2500})}
	for _, m := range []struct {
		name      string
		meanwhile func(s zlimit.Store)
		want      float64
	}{
		{"a program of three snapshots counts the change", func(s zlimit.Store) { mustApply(t, newAggregator(t, s), second) }, 2},
		{"another aggregator counts the change", func(s zlimit.Store) { mustApply(t, at(t, s, noon), second) }, 2},
		{"another aggregator counts a change of another shard", func(s zlimit.Store) { mustApply(t, at(t, s, noon), elsewhere) }, 3},
		{"the hour is rolled up", func(s zlimit.Store) { roll(t, s, after) }, 2},
	} {
		s := newMemory(t)
		mustApply(t, at(t, s, noon), first)
		a := at(t, s, noon)
		inject(a, func(n int) (bool, error) {
			if n == 1 {
				m.meanwhile(s)
			}
			return false, nil
		})
		mustApply(t, a, second)
		roll(t, s, after)
		expectFigures(t, m.name, s, figuresOf(sum(m.want)))
	}
}

// TestHoursOfADay rolls up an hour between another roller's read of the day, or of the month, and its write: both have all
// hours.
func TestHoursOfADay(t *testing.T) {
	for write := 3; write <= 4; write++ { // a claim, an hour, a day and a month
		s := newMemory(t)
		changes := busy(3)
		for i := range changes {
			changes[i].At = noon.Add(time.Duration(i) * time.Hour)
			mustApply(t, at(t, s, changes[i].At), changes[i])
		}
		roll(t, s, after)
		a := at(t, s, after.Add(time.Hour))
		inject(a, func(n int) (bool, error) {
			if n == write {
				roll(t, s, after.Add(2*time.Hour))
			}
			return false, nil
		})
		a.roller.rollDue(t.Context(), t.Context())
		roll(t, s, after.Add(2*time.Hour))
		for _, w := range parentWindows {
			whole := &snapshot{bucket: layout.BucketKey{NS: "n", Entity: "e", Resource: "r"}, window: w, start: w.Start(noon)}
			items := check.Call(store.Of(s).Read(t.Context(), []store.Key{whole.key()}, true)).Must(t, "Read()")
			for i := range changes {
				hours := layout.HoursContained(items[0], changes[i].At)
				if found, err := layout.ContainsHour(hours, changes[i].At); !found || err != nil {
					t.Errorf("before write %d: %s contains hours %s, %v, want hour %d among them", write, w, hours, err, i)
				}
			}
			if n := layout.CountedEvents(items[0]); n != 3 {
				t.Errorf("before write %d: %s has %d changes, want 3", write, w, n)
			}
		}
	}
}

// TestHoursWaitForRollUp lets days pass between the last batch of an hour and its roll-up. The hour expires after that,
// however short it is kept.
func TestHoursWaitForRollUp(t *testing.T) {
	for _, c := range []struct {
		rolledUp time.Time
		expires  time.Time
	}{
		{after, noon.Add(time.Hour / 2).Add(72 * time.Hour)},
		{after.Add(240 * time.Hour), after.Add(240 * time.Hour).Add(48 * time.Hour)},
	} {
		s := newMemory(t)
		short := WithRetention(zlimit.WindowHourly, 72*time.Hour)
		mustApply(t, at(t, s, noon, short), busy(2)...)
		hour := &snapshot{bucket: layout.BucketKey{NS: "n", Entity: "e", Resource: "r"}, window: zlimit.WindowHourly, start: zlimit.WindowHourly.Start(noon)}
		ttl := func() int64 {
			items := check.Call(store.Of(s).Read(t.Context(), []store.Key{hour.key()}, true)).Must(t, "Read()")
			snapshot := check.Call(layout.DecodeUsage(items[0])).Must(t, "layout.DecodeUsage()")
			return snapshot.ExpiresAt
		}
		if got := ttl(); got != 0 {
			t.Errorf("an hour that is not rolled up expires at %v", time.Unix(got, 0).UTC())
		}
		roll(t, s, c.rolledUp, short)
		expectFigures(t, "after days", s, figuresOf(sum(2)))
		if got := ttl(); got != c.expires.Unix() {
			t.Errorf("rolled up at %v, the hour expires at %v, want %v", c.rolledUp, time.Unix(got, 0).UTC(), c.expires)
		}
	}
}

// TestRollUpBehindAPurge purges a namespace before and during the writes of a roller: nothing comes back.
func TestRollUpBehindAPurge(t *testing.T) {
	for n := range 6 {
		s := newMemory(t)
		l, ns, changes := doomed(t, s)
		a := byHour(newAggregator(t, s, WithConcurrency(1), WithoutTending(), WithClock(time.Now)), true)
		mustApply(t, a, changes...)
		if left := dueHours(t, s); len(left) == 0 {
			t.Fatal("no hour is noted")
		}
		purge := func() { check.Error(t, "Purge()", l.Namespaces.Purge(context.Background(), ns.ID, nil)) }
		if n == 0 {
			purge()
		}
		b := at(t, s, time.Now().Add(2*time.Hour))
		inject(b, func(write int) (bool, error) {
			if write == n {
				purge()
			}
			return false, nil
		})
		b.roller.rollDue(t.Context(), t.Context())
		if got := itemsOf(t, s, ns.ID); len(got) != 0 {
			t.Errorf("a purge at write %d leaves %q", n, got)
		}
		if left := dueHours(t, s); len(left) > 0 {
			t.Errorf("a purge at write %d: there are still %v", n, left)
		}
	}
}

// TestRunRollsUp lets time pass for Run: the day of an hour follows within 80 minutes.
func TestRunRollsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory(t)
		startStream(t, s)
		l := newLimiter(t, s)
		a := check.Call(New(s, WithPoll(time.Minute))).Must(t, "New()")
		byHour(a, true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + time.Second)))
		if _, ok := (traced{time.Now(), 10}).ask(t, l); !ok {
			t.Fatal("not admitted")
		}
		time.Sleep(2 * time.Minute)
		if got := counted(t, l); len(got[zlimit.WindowHourly]) != 1 || len(got[zlimit.WindowDaily]) != 0 {
			t.Errorf("after two minutes: %+v, want an hour", got)
		}
		time.Sleep(78 * time.Minute)
		got := counted(t, l)
		for _, w := range windows {
			if len(got[w]) != 1 || got[w][0].Consumed["tpm"] != 10*zlimit.Token || got[w][0].Events != 1 {
				t.Errorf("after 80 minutes: %s %+v, want 10 tokens", w, got[w])
			}
		}
		cancel()
		check.Error(t, "Run()", <-done)
	})
}

// TestFunctionRollsUp checks that calls of the function roll up, once a minute.
func TestFunctionRollsUp(t *testing.T) {
	s := newMemory(t)
	now := noon
	a := at(t, s, noon, WithClock(func() time.Time { return now }))
	changes := busy(4)
	call := func(changes ...store.Change) {
		t.Helper()
		if response, err := Handler(a)(t.Context(), lambdaEvent(t, changes)); err != nil || len(response.BatchItemFailures) > 0 {
			t.Fatalf("Handler() = %+v, %v", response, err)
		}
	}
	seen := map[string]int64{"rpm": 2000, "tpm": 5000}
	quiet := func() store.Change { return change(9, now, seen, seen) } // which counts nothing
	call(changes[:2]...)
	now = after.Add(-time.Minute - time.Second)
	call(quiet())
	expectFigures(t, "not due", s, hourOnly(sum(2)))
	now = after.Add(-time.Minute + 5*time.Second)
	call(quiet())
	expectFigures(t, "due, but the last look was less than a minute ago", s, hourOnly(sum(2)))
	now = after
	call(quiet())
	expectFigures(t, "due", s, figuresOf(sum(2)))
}
