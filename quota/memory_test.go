package quota

import (
	"strconv"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// held returns the number of names that a table knows, and of entries for which
// their rings have room.
func held(tb *table) (names, room int) {
	for i := range tb.shards {
		for _, s := range tb.shards[i].queue {
			names++
			room += len(s.buf)
		}
	}
	return names, room
}

// TestMemoryFollowsOneOffKeys: a key that is used once counts for a day, and is
// forgotten as the next day's keys come.
func TestMemoryFollowsOneOffKeys(t *testing.T) {
	const perDay = 10_000
	now := time.Unix(1e9, 0)
	l := newLimiter(Config{Providers: []Provider{ProviderLocal}, Clock: func() time.Time { return now }}, nil)
	most := 0
	for i := range 5 * perDay {
		check.Fatal(t, "Record()", l.Record(t.Context(), Request{Model: "m", Key: "key-" + strconv.Itoa(i)}))
		now = now.Add(24 * time.Hour / perDay)
		if i%1000 == 0 {
			names, _ := held(l.mem.keys)
			most = max(most, names)
		}
	}
	if most > perDay+1000 {
		t.Errorf("with %d keys a day the limiter held %d at once, want little more than those of a day", perDay, most)
	}
	if names, room := held(l.mem.keys); room > names {
		t.Errorf("%d keys have rings for %d entries, want none for most: their minute is over", names, room)
	}
}

// TestEveryCallGivesMemoryBack: names whose windows have emptied are forgotten
// whatever the limiter is used for.
func TestEveryCallGivesMemoryBack(t *testing.T) {
	ctx := t.Context()
	const names = 5000
	for name, use := range map[string]func(l *Limiter, r *Reservation) error{
		"checks":   func(l *Limiter, _ *Reservation) error { return l.Check(ctx, Request{Model: "other"}) },
		"records":  func(l *Limiter, _ *Reservation) error { return l.RecordUsage(ctx, "other", 1, 1) },
		"settling": func(_ *Limiter, r *Reservation) error { return r.Settle(ctx, 1, 1) },
		"looking": func(l *Limiter, _ *Reservation) error {
			_, err := l.TimeUntil(ctx, Request{Model: "other"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1e9, 0)
			l := newLimiter(Config{Providers: []Provider{ProviderLocal}, Clock: func() time.Time { return now }}, nil)
			open := make([]Reservation, 2*names)
			for i := range open {
				var err error
				if open[i], err = l.Reserve(ctx, Request{Model: "other"}); err != nil {
					t.Fatalf("Reserve() = %v", err)
				}
			}
			for i := range names {
				check.Fatal(t, "Record()", l.Record(ctx, Request{Model: "old-" + strconv.Itoa(i), Key: "key-" + strconv.Itoa(i)}))
			}
			now = now.Add(24 * time.Hour)
			for i := range open {
				check.Fatal(t, "use()", use(l, &open[i]))
			}
			models, _ := held(l.mem.models)
			keys, _ := held(l.mem.keys)
			if models > 1 || keys > 0 {
				t.Errorf("a day and %d calls later the limiter holds %d models and %d keys, want the one in use", len(open), models, keys)
			}
		})
	}
}

// TestACancelledNameIsForgotten checks that a cancelled reservation leaves no name.
func TestACancelledNameIsForgotten(t *testing.T) {
	l := newLimiter(Config{Providers: []Provider{ProviderLocal}}, nil)
	for i := range 1000 {
		r := check.Call(l.Reserve(t.Context(), Request{Model: "m", Key: strconv.Itoa(i)})).Must(t, "Reserve()")
		check.Fatal(t, "Cancel()", r.Cancel(t.Context()))
	}
	models, _ := held(l.mem.models)
	if keys, _ := held(l.mem.keys); models != 0 || keys != 0 {
		t.Errorf("after 1,000 cancellations the limiter holds %d models and %d keys, want none", models, keys)
	}
}

// TestABurstGivesItsRingBack: the ring of a full minute goes when the minute is
// over, though the day's counters stay.
func TestABurstGivesItsRingBack(t *testing.T) {
	now := time.Unix(1e9, 0)
	l := newLimiter(Config{Providers: []Provider{ProviderLocal}, Clock: func() time.Time { return now }}, nil)
	for range 10_000 {
		check.Fatal(t, "RecordUsage()", l.RecordUsage(t.Context(), "burst", 1, 1))
	}
	now = now.Add(time.Minute)
	for range sweepEvery * shardCount {
		check.Fatal(t, "Check()", l.Check(t.Context(), Request{Model: "other"}))
	}
	if names, room := held(l.mem.models); names != 1 || room != 0 {
		t.Errorf("a minute later %d names have rings for %d entries, want the one name without a ring", names, room)
	}
	if st, err := l.Stats(t.Context(), "burst"); err != nil || st.RPD != 10_000 {
		t.Errorf("Stats = %+v, %v, want the day's 10,000 requests", st, err)
	}
}

// TestAClockSetBackKeepsNoName sets the clock back. A name due in a far future is due within a day.
func TestAClockSetBackKeepsNoName(t *testing.T) {
	now := time.Unix(2e9, 0)
	l := newLimiter(Config{Providers: []Provider{ProviderLocal}, Clock: func() time.Time { return now }}, nil)
	for i := range 1000 {
		check.Fatal(t, "Record()", l.Record(t.Context(), Request{Model: "m", Key: strconv.Itoa(i)}))
	}
	now = time.Unix(1e9, 0)
	for range 3 {
		for range sweepEvery * shardCount {
			check.Fatal(t, "Check()", l.Check(t.Context(), Request{Model: "other"}))
		}
		now = now.Add(24 * time.Hour)
	}
	if keys, _ := held(l.mem.keys); keys != 0 {
		t.Errorf("two days after the clock was set back the limiter holds %d keys, want none", keys)
	}
}
