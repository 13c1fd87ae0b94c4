package aggregator

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	memorystore "github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestGapsAreInCompleteness uses a resource before the first aggregator, and then for longer than changes are kept. Neither range is
// complete, and the time between them is.
func TestGapsAreInCompleteness(t *testing.T) {
	now := noon
	clock := func() time.Time { return now }
	raw := check.Call(memorystore.New(layout.Table, memorystore.Clock(clock))).Must(t, "memorystore.New()")
	s := store.NewHandle(raw, true)
	defer closeStore(t, s)
	l := check.Call(zlimit.New(t.Context(), s, zlimit.WithClock(clock), zlimit.WithSetup())).Must(t, "zlimit.New()")
	defer l.Close()
	use := func(n int) {
		t.Helper()
		for range n {
			lease, err := l.Acquire(t.Context(), zlimit.Request{
				Entity: "acme", Resource: "gpt", Consume: zlimit.Amounts{"rpm": 1}, Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 1_000_000)},
			})
			if err == nil {
				err = lease.Commit(t.Context())
			}
			check.Fatal(t, "Acquire()", err)
		}
	}
	count := func(name string) {
		t.Helper()
		a := check.Call(New(s, WithClock(clock), WithPoll(time.Millisecond), WithName(name))).Must(t, "New()")
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		check.Fatal(t, "Run()", a.Run(ctx))
	}
	use(1)
	now = noon.Add(time.Hour)
	count("one")
	now = noon.Add(2 * time.Hour)
	use(1)
	count("one")
	now = noon.Add(40 * time.Hour)
	use(600) // the log finds that no one reads it
	now = noon.Add(41 * time.Hour)
	count("two")
	got := check.Call(l.Usage.Completeness(t.Context())).Must(t, "Usage.Completeness()")
	want := &zlimit.Completeness{To: now, Gaps: []zlimit.UsageGap{
		{Kind: zlimit.GapUncounted, From: noon, To: noon.Add(time.Hour)},
		{Kind: zlimit.GapLost, From: noon.Add(2 * time.Hour), To: now},
	}}
	compare.Equal(t, "Completeness()", want, got)
	for _, test := range []struct {
		from, to int
		want     bool
	}{{0, 2, false}, {1, 2, true}, {1, 3, false}, {41, 42, false}, {0, 1, false}} {
		if covers := got.Covers(noon.Add(time.Duration(test.from)*time.Hour), noon.Add(time.Duration(test.to)*time.Hour)); covers != test.want {
			t.Errorf("Covers(%d h to %d h) = %t, want %t", test.from, test.to, covers, test.want)
		}
	}
}

// A labelled store has the change stream of DynamoDB: partitions are named by when it was made.
type labelled struct{ *memorystore.Store }

func (labelled) Partitioned() bool { return true }

// TestBeginning begins to count a table. What was consumed before the stream has changes is a gap, and a time in which nothing was
// consumed is none, whatever the second in which the namespace was registered.
func TestBeginning(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		registered time.Duration
		stream     time.Duration // when it was made; negative for a log that begins with its first reader
		used       []time.Duration
		begun      time.Duration
		listed     time.Duration // when a log began; 0 for when it is read
		gap        bool
	}{
		"a log, nothing used yet":                                  {registered: 300 * ms, stream: -1, begun: 2 * time.Hour},
		"a log, read within the second":                            {registered: 300 * ms, stream: -1, begun: 800 * ms},
		"a log, read within the second after a use":                {registered: 300 * ms, stream: -1, used: []time.Duration{500 * ms}, begun: 800 * ms, gap: true},
		"a log, used between its beginning and its first reader":   {registered: 300 * ms, stream: -1, used: []time.Duration{700 * ms, 900 * ms}, listed: 600 * ms, begun: time.Second},
		"a log, used before and after its beginning":               {registered: 300 * ms, stream: -1, used: []time.Duration{500 * ms, 700 * ms}, listed: 600 * ms, begun: time.Second, gap: true},
		"a log, whose first bucket has expired after it had begun": {registered: 300 * ms, stream: -1, used: []time.Duration{time.Second, 9 * time.Hour}, listed: 8 * time.Hour, begun: 9 * time.Hour, gap: true},
		"a log, whose first bucket has expired":                    {registered: 300 * ms, stream: -1, used: []time.Duration{time.Second}, begun: 9 * time.Hour, gap: true},
		"a log, several buckets have expired":                      {registered: 300 * ms, stream: -1, used: []time.Duration{time.Second, time.Hour, 2 * time.Hour}, begun: 9 * time.Hour, gap: true},
		"a stream of the table, used before it is read":            {registered: 700 * ms, stream: 900 * ms, used: []time.Duration{2 * time.Second}, begun: time.Hour},
		"a stream before the namespace":                            {registered: time.Minute, stream: 900 * ms, used: []time.Duration{2 * time.Minute}, begun: time.Hour},
		"a stream that is made later than the first use":           {registered: 300 * ms, stream: time.Minute, used: []time.Duration{time.Second}, begun: time.Hour, gap: true},
		"a stream that is read after it forgets the uses":          {registered: 300 * ms, stream: 400 * ms, used: []time.Duration{time.Second}, begun: 30 * time.Hour, gap: true},
	} {
		t.Run(name, func(t *testing.T) {
			now := noon
			clock := func() time.Time { return now }
			raw := check.Call(memorystore.New(layout.Table, memorystore.Clock(clock))).Must(t, "memorystore.New()")
			s, partitions := store.NewHandle(raw, true), []store.Partition(nil)
			if test.stream >= 0 {
				s = store.NewHandle(labelled{raw}, true)
				partitions = []store.Partition{{ID: noon.Add(test.stream).Format("2006-01-02T15:04:05.000") + "/shard-1"}}
			}
			defer closeStore(t, s)
			now = noon.Add(test.registered)
			l := check.Call(zlimit.New(t.Context(), s, zlimit.WithClock(clock), zlimit.WithSetup())).Must(t, "zlimit.New()")
			defer l.Close()
			for i, at := range test.used {
				if test.listed > 0 && at > test.listed {
					now = noon.Add(test.listed)
					check.Fatal(t, "StartStream()", raw.StartStream(t.Context()))
				}
				now = noon.Add(at)
				r := zlimit.Request{
					Entity: fmt.Sprint("acme-", i), Resource: "gpt", Consume: zlimit.Amounts{"rps": 1}, Limits: []zlimit.Limit{zlimit.PerSecond("rps", 5)},
				}
				if _, err := l.Acquire(t.Context(), r); err != nil {
					t.Fatalf("Acquire() = %v", err)
				}
			}
			now = noon.Add(test.begun)
			a := check.Call(New(s, WithClock(clock), WithName("one"))).Must(t, "New()")
			check.Fatal(t, "StartStream()", raw.StartStream(t.Context())) // as a consumer does, unless it was
			if test.stream < 0 {
				partitions = check.Call(raw.Partitions(t.Context())).Must(t, "Partitions()")
			}
			check.Fatal(t, "noteBegin()", a.noteBegin(t.Context(), partitions))
			now = now.Add(time.Second) // a repeated call notes nothing else
			check.Fatal(t, "noteBegin()", a.noteBegin(t.Context(), partitions))
			got := check.Call(l.Usage.Completeness(t.Context())).Must(t, "Usage.Completeness()")
			if gap := len(got.Within(noon.Add(-30*24*time.Hour), noon.Add(48*time.Hour))) > 0; gap != test.gap {
				t.Errorf("Completeness() = %+v, want a gap: %t", got, test.gap)
			}
		})
	}
}

// TestMadeAt reads when a stream was made from its label, in the form of DynamoDB and in that of an engine for tests.
func TestMadeAt(t *testing.T) {
	for label, want := range map[string]time.Time{
		"2026-03-01T12:00:00.250": time.Date(2026, 3, 1, 12, 0, 0, 250e6, time.UTC),
		"1772366400.250":          time.Date(2026, 3, 1, 12, 0, 0, 250e6, time.UTC),
		"0":                       {},
		"shardId-1":               {},
		"":                        {},
		"NaN":                     {},
		"1e300":                   {},
	} {
		got, ok := madeAt(label)
		if ok == want.IsZero() || ok && !got.Equal(want) {
			t.Errorf("madeAt(%q) = %v, %v, want %v", label, got, ok, want)
		}
	}
}

// TestBeginningBeforeSetup begins to count a file that no program has opened yet. Registrations have whole seconds, so that of the namespace
// may seem to be earlier than the beginning, and is not.
func TestBeginningBeforeSetup(t *testing.T) {
	now := noon.Add(300 * time.Millisecond)
	clock := func() time.Time { return now }
	raw := check.Call(memorystore.New(layout.Table, memorystore.Clock(clock))).Must(t, "memorystore.New()")
	check.Fatal(t, "Setup()", raw.Setup(t.Context()))
	s := store.NewHandle(raw, true)
	defer closeStore(t, s)
	a := check.Call(New(s, WithClock(clock), WithPoll(time.Millisecond), WithName("one"))).Must(t, "New()")
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	check.Fatal(t, "Run()", a.Run(ctx))
	now = noon.Add(600 * time.Millisecond)
	l := check.Call(zlimit.New(t.Context(), s, zlimit.WithClock(clock), zlimit.WithSetup())).Must(t, "zlimit.New()")
	defer l.Close()
	got := check.Call(l.Usage.Completeness(t.Context())).Must(t, "Usage.Completeness()")
	if len(got.Within(noon.Add(-time.Hour), noon.Add(time.Hour))) > 0 {
		t.Errorf("Completeness() = %+v, want no gap", got)
	}
}
