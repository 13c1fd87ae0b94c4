package aggregator

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/zlimit"
	zdynamo "github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// trace is a file of requests to LLM services: time, context tokens, generated tokens.
const trace = "../../shared/data/llm_conv_trace.csv"

// monthEnd moves the trace to where its 19:00 is the end of a month.
const monthEnd = 14*24*time.Hour + 5*time.Hour

// A traced is a request of the trace.
type traced struct {
	at     time.Time
	tokens int64
}

// readTrace returns the requests of the trace, moved by some time.
func readTrace(t *testing.T, move time.Duration) []traced {
	t.Helper()
	f, err := os.Open(trace)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no trace at %s", trace)
	}
	check.Fatal(t, "os.Open()", err)
	defer f.Close()
	rows := check.Call(csv.NewReader(f).ReadAll()).Must(t, "ReadAll()")
	var all []traced
	for _, row := range rows[1:] {
		at, err := time.Parse(time.DateTime, row[0])
		input, inputErr := strconv.ParseInt(row[1], 10, 64)
		output, outputErr := strconv.ParseInt(row[2], 10, 64)
		check.Fatal(t, fmt.Sprintf("parse of %q", row), errors.Join(err, inputErr, outputErr))
		all = append(all, traced{at.Add(move), input + output})
	}
	return all
}

// ask asks a limiter to admit a request.
func (r traced) ask(t *testing.T, l *zlimit.RateLimiter) (zlimit.Amounts, bool) {
	t.Helper()
	lease, err := l.Acquire(t.Context(), zlimit.Request{
		Entity: "conv", Resource: "llm", Consume: zlimit.Amounts{"rpm": 1, "tpm": r.tokens},
		Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 300), zlimit.PerMinute("tpm", 400_000)},
	})
	switch {
	case err == nil:
		return lease.Consumed(), true
	case !errors.As(err, new(*zlimit.ExceededError)):
		t.Fatalf("Acquire() = %v", err)
	}
	return nil, false
}

// A tally is what was admitted in each window, as the snapshots must have it.
type tally map[zlimit.Window][]zlimit.Snapshot

// add adds a request admitted at a time, which is not before the last one's.
func (y tally) add(at time.Time, consumed zlimit.Amounts) {
	at = at.UTC()
	day := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
	month := day.AddDate(0, 0, 1-at.Day())
	for _, s := range []zlimit.Snapshot{
		{Window: zlimit.WindowHourly, Start: at.Truncate(time.Hour), End: at.Truncate(time.Hour).Add(time.Hour)},
		{Window: zlimit.WindowDaily, Start: day, End: day.AddDate(0, 0, 1)},
		{Window: zlimit.WindowMonthly, Start: month, End: month.AddDate(0, 1, 0)},
	} {
		if all := y[s.Window]; len(all) == 0 || !all[len(all)-1].Start.Equal(s.Start) {
			s.Entity, s.Resource, s.Consumed = "conv", "llm", map[string]zlimit.Quantity{}
			y[s.Window] = append(all, s)
		}
		last := &y[s.Window][len(y[s.Window])-1]
		last.Events++
		for limit, n := range consumed {
			last.Consumed[limit] += zlimit.Quantity(n) * zlimit.Token
		}
	}
}

// counted returns what the snapshots have.
func counted(t *testing.T, l *zlimit.RateLimiter) tally {
	t.Helper()
	got := tally{}
	for _, w := range windows {
		got[w] = check.All(t, "Usage.Snapshots()", l.Usage.Snapshots(t.Context(), zlimit.UsageQuery{Entity: "conv", Resource: "llm", Window: w}))
	}
	return got
}

func newLimiter(t *testing.T, s zlimit.Store, opts ...zlimit.Option) *zlimit.RateLimiter {
	t.Helper()
	l, err := zlimit.New(t.Context(), s, append([]zlimit.Option{zlimit.WithSetup(), zlimit.WithFreshness(0)}, opts...)...)
	check.Fatal(t, "zlimit.New()", err)
	t.Cleanup(func() { check.Error(t, "Close()", l.Close()) })
	return l
}

// replay waits until the time of each request has come, and then asks for it.
func replay(t *testing.T, l *zlimit.RateLimiter, requests []traced) tally {
	t.Helper()
	admitted := tally{}
	for _, r := range requests {
		time.Sleep(time.Until(r.at))
		if consumed, ok := r.ask(t, l); ok {
			admitted.add(r.at, consumed)
		}
	}
	return admitted
}

// TestTrace lets the trace pass on the clock of the bubble, while an aggregator follows it. Or many follow it one after
// another, which are killed at any write and do everything twice. The figures are those of what was admitted, in every
// window. The long form kills the followers of the whole trace.
func TestTrace(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		requests := readTrace(t, 0)
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(requests[0].at))
			s := newMemory(t)
			startStream(t, s)
			_, stop := begin(t, s, WithPoll(time.Second))
			want := checkTrace(t, s, requests)
			stop()
			var admitted, tokens zlimit.Quantity
			for _, month := range want[zlimit.WindowMonthly] {
				admitted += month.Consumed["rpm"]
				tokens += month.Consumed["tpm"]
			}
			if admitted != 16956*zlimit.Token || tokens != 21766807*zlimit.Token {
				t.Errorf("admitted %v with %v tokens, want 16956 with 21766807", admitted, tokens)
			}
		})
	})
	t.Run("file, killed", func(t *testing.T) {
		requests := readTrace(t, monthEnd)
		if !soak.Runs() { // the requests around the end of a month
			middle := slices.IndexFunc(requests, func(r traced) bool { return r.at.Day() == 1 })
			requests = requests[middle-3000 : middle+3000]
		}
		path := filepath.Join(t.TempDir(), "zlimit.db")
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(requests[0].at))
			s := openFile(t, path)
			startStream(t, s)
			random := newRand(t)
			all := &succession{t: t, store: openFile(t, path), rand: random, poll: 10 * time.Second}
			const deaths = 40
			stop := all.start(func(n int) death {
				if n > deaths {
					return death{}
				}
				return death{1 + random.IntN(10*n), random.IntN(2) == 0} // ever later, since what is not saved comes again
			})
			checkTrace(t, s, requests)
			if died := stop(); died < deaths/2 {
				t.Errorf("%d aggregators died, want about %d", died, deaths)
			}
		})
	})
}

// checkTrace admits the trace on a store with a follower, compares usage with what was admitted, and returns that.
func checkTrace(t *testing.T, s zlimit.Store, requests []traced) tally {
	t.Helper()
	l := newLimiter(t, s)
	want := replay(t, l, requests)
	time.Sleep(time.Hour) // time to take over from those that are killed at what is left
	if diff := cmp.Diff(want, counted(t, l)); diff != "" {
		t.Errorf("usage (-admitted +snapshots):\n%s", diff)
	}
	return want
}

// TestTraceKilledAtEveryWrite kills the aggregator of a part of the trace at each of its writes, before it and after it,
// and another one goes on. A month ends in the middle.
func TestTraceKilledAtEveryWrite(t *testing.T) {
	requests := readTrace(t, monthEnd)
	middle := slices.IndexFunc(requests, func(r traced) bool { return r.at.Day() == 1 })
	requests = requests[middle-12 : middle+12]
	random := newRand(t)
	writes := 0
	for died := true; died; writes++ {
		for _, done := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(requests[0].at))
				s := newMemory(t)
				startStream(t, s)
				l := newLimiter(t, s)
				stop := (&succession{t: t, store: s, rand: random}).start(func(n int) death {
					if n > 1 {
						return death{}
					}
					return death{writes + 1, done}
				})
				want := replay(t, l, requests)
				time.Sleep(2 * time.Minute) // the lease runs out, and what is left is done
				died = stop() > 0
				if diff := cmp.Diff(want, counted(t, l)); diff != "" {
					t.Errorf("killed at write %d, done %t: usage (-admitted +snapshots):\n%s", writes+1, done, diff)
				}
			})
		}
	}
	if writes < 30 {
		t.Errorf("an aggregator made %d writes, want more", writes)
	}
}

// TestTraceOnDynamoDB replays a part of the trace on the engine as fast as that goes. The aggregators that follow its
// stream are killed at one of their first three writes, and do everything twice. The n-th change by which a stream
// reports that something was consumed is the n-th admission; the stream reports its time as well.
func TestTraceOnDynamoDB(t *testing.T) {
	if testing.Short() {
		t.Skip("an engine takes a while for a stream of some thousand changes")
	}
	requests := readTrace(t, 0)[:soak.Pick(900, 1500)]
	engine := enginetest.Fresh(t) // streams slow an engine down for all
	s := zdynamo.New(engine.Client(), engine.Table(t), zdynamo.WithStreams(engine.Streams()), dynamo.ReadInterval(0))
	setUp(t, s)
	var now atomic.Pointer[time.Time]
	now.Store(&requests[0].at)
	l := newLimiter(t, s, zlimit.WithClock(func() time.Time { return *now.Load() }), zlimit.WithTuning(zlimit.Tuning{BucketTTL: -1}))
	all := &succession{t: t, store: s, rand: newRand(t), name: "heir", term: 3 * time.Second, poll: 10 * time.Millisecond}
	const deaths = 40
	stop := all.start(func(n int) death {
		if n > deaths {
			return death{}
		}
		return death{1 + n%3, n%2 == 0} // few writes each, so that a slow machine sees all deaths
	})
	var admitted []zlimit.Amounts
	for _, r := range requests {
		now.Store(&r.at)
		if consumed, ok := r.ask(t, l); ok {
			admitted = append(admitted, consumed)
		}
	}
	want := tally{}
	times := consumptions(t, s)
	if len(times) != len(admitted) {
		t.Fatalf("the stream tells of %d admissions, want %d", len(times), len(admitted))
	}
	for i, consumed := range admitted {
		want.add(times[i], consumed)
	}
	reader := newLimiter(t, s)
	eventually(t, "usage is what was admitted", func() bool { return cmp.Equal(want[zlimit.WindowHourly], counted(t, reader)[zlimit.WindowHourly]) })
	if died := stop(); died < deaths/2 {
		t.Errorf("%d aggregators died, want about %d", died, deaths)
	}
	later := check.Call(New(s, WithClock(func() time.Time { return time.Now().Add(2 * time.Hour) }))).Must(t, "New()")
	later.roller.rollDue(t.Context(), t.Context())
	if diff := cmp.Diff(want, counted(t, reader)); diff != "" {
		t.Errorf("usage (-admitted +snapshots):\n%s", diff)
	}
}

// consumptions returns the times of the changes of a stream by which a bucket consumed something.
func consumptions(t *testing.T, s zlimit.Store) (times []time.Time) {
	t.Helper()
	for _, c := range readAll(t, store.Of(s).(store.Streamer)) {
		if n := c.New.Get("b_rpm_tc").Number(); n != "" && n != c.Old.Get("b_rpm_tc").Number() {
			times = append(times, c.At)
		}
	}
	return times
}

// startStream starts the change stream of a store.
func startStream(t *testing.T, s zlimit.Store) {
	t.Helper()
	check.Fatal(t, "StartStream()", store.Of(s).(store.Streamer).StartStream(t.Context()))
}

// openFile opens a file that other stores may have, too.
func openFile(t *testing.T, path string) zlimit.Store {
	t.Helper()
	s := check.Call(zlimit.SQLite(path)).Must(t, "zlimit.SQLite()")
	t.Cleanup(func() { closeStore(t, s) })
	setUp(t, s)
	return s
}
