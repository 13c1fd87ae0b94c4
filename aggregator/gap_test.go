package aggregator

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	memorystore "github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestGapsAreInCompleteness uses a resource before the first aggregator, and then for longer than changes are kept. Neither range is
// complete, and the time between them is.
func TestGapsAreInCompleteness(t *testing.T) {
	now := noon
	clock := func() time.Time { return now }
	raw, err := memorystore.New(layout.Table, memorystore.Clock(clock))
	if err != nil {
		t.Fatal(err)
	}
	s := store.NewHandle(raw, true)
	defer closeStore(t, s)
	l, err := zlimit.New(t.Context(), s, zlimit.WithClock(clock), zlimit.WithSetup())
	if err != nil {
		t.Fatal(err)
	}
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
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	count := func(name string) {
		t.Helper()
		a, err := New(s, WithClock(clock), WithPoll(time.Millisecond), WithName(name))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		if err := a.Run(ctx); err != nil {
			t.Fatal(err)
		}
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
	got, err := l.Usage.Completeness(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := &zlimit.Completeness{To: now, Gaps: []zlimit.UsageGap{
		{Kind: zlimit.GapUncounted, From: noon, To: noon.Add(time.Hour)},
		{Kind: zlimit.GapLost, From: noon.Add(2 * time.Hour), To: now},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Completeness() (-want +got):\n%s", diff)
	}
	for _, test := range []struct {
		from, to int
		want     bool
	}{{0, 2, false}, {1, 2, true}, {1, 3, false}, {41, 42, false}, {0, 1, false}} {
		if covers := got.Covers(noon.Add(time.Duration(test.from)*time.Hour), noon.Add(time.Duration(test.to)*time.Hour)); covers != test.want {
			t.Errorf("Covers(%d h to %d h) = %t, want %t", test.from, test.to, covers, test.want)
		}
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
