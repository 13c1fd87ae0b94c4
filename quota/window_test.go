package quota

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestIndexMatchesAMap holds the index against the built-in map, with hashes
// that collide often.
func TestIndexMatchesAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x index
		model := map[string]*subject{}
		hash := func(name string) uint64 { n, _ := strconv.Atoi(name); return uint64(n*n) % 7 * 3 }
		name := rapid.Custom(func(t *rapid.T) string { return strconv.Itoa(rapid.IntRange(0, 40).Draw(t, "n")) })
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				n := name.Draw(t, "name")
				if model[n] == nil {
					model[n] = &subject{name: n, hash: hash(n)}
					x.insert(model[n])
				}
			},
			"remove": func(t *rapid.T) {
				n := name.Draw(t, "name")
				if s := model[n]; s != nil {
					x.remove(s)
					delete(model, n)
				}
			},
			"": func(t *rapid.T) {
				for i := range 41 {
					n := strconv.Itoa(i)
					if got := x.find(hash(n), n); got != model[n] {
						t.Fatalf("find(%s) = %p, want %p", n, got, model[n])
					}
				}
				if x.n != len(model) || 4*x.n > 3*len(x.slots) {
					t.Fatalf("n = %d of %d slots, want %d names, three quarters at most", x.n, len(x.slots), len(model))
				}
			},
		})
	})
}

// TestMemoryFollowsTheWindow checks that rings and tables shrink when their entries have aged out, been cancelled, or
// been forgotten.
func TestMemoryFollowsTheWindow(t *testing.T) {
	ctx := t.Context()
	now := time.Unix(1e9, 0)
	l := newLimiter(Config{Providers: []Provider{ProviderLocal}, Clock: func() time.Time { return now }}, nil)
	sh, h := l.mem.models.shard("m")
	ring := func() int { return len(sh.index.find(h, "m").buf) }

	for range 100_000 {
		check.Fatal(t, "RecordUsage()", l.RecordUsage(ctx, "m", 1, 1))
	}
	if got := ring(); got < 100_000 || got > 200_000 {
		t.Fatalf("ring for 100,000 entries holds %d, want at most twice as many", got)
	}
	now = now.Add(time.Minute)
	if _, err := l.Stats(ctx, "m"); err != nil {
		t.Fatalf("Stats() = %v", err)
	}
	if got := ring(); got > 8 {
		t.Errorf("ring when all has aged out holds %d, want at most 8", got)
	}

	// Reservations taken back at once must not pile up behind one that stays.
	for i := range 50_000 {
		r := check.Call(l.Reserve(ctx, Request{Model: "m", Input: 1})).Must(t, "Reserve()")
		if i%1000 != 0 {
			check.Fatal(t, "Cancel()", r.Cancel(ctx))
		}
	}
	if got := ring(); got > 256 {
		t.Errorf("ring for 50 entries among 50,000 cancelled holds %d, want at most 256", got)
	}

	// Cancelled in the order of reservation, holes are everywhere.
	var held []*Reservation
	for range 10_000 {
		r := check.Call(l.Reserve(ctx, Request{Model: "m", Input: 1})).Must(t, "Reserve()")
		held = append(held, &r)
	}
	for i, r := range held {
		if i%100 != 0 {
			check.Fatal(t, "Cancel()", r.Cancel(ctx))
		}
	}
	if got := ring(); got > 1024 {
		t.Errorf("ring for 150 entries with holes between holds %d, want at most 1024", got)
	}
	for i := 0; i < len(held); i += 100 { // compaction lost none of them
		check.Fatal(t, "Settle()", held[i].Settle(ctx, 11, 0))
	}
	if st, _ := l.Stats(ctx, "m"); st.RPM != 150 || st.InputTPM != 50+100*11 {
		t.Errorf("Stats = %+v, want 150 requests and %d tokens", st, 50+100*11)
	}
}

// TestIdleNamesAreForgotten checks that names go which are no longer asked for, while others are in use.
func TestIdleNamesAreForgotten(t *testing.T) {
	ctx := t.Context()
	now := time.Unix(1e9, 0)
	l := newLimiter(Config{Providers: []Provider{ProviderLocal}, Clock: func() time.Time { return now }}, nil)
	for i := range 20_000 {
		check.Fatal(t, "Record()", l.Record(ctx, Request{Model: "old-" + strconv.Itoa(i), Key: "key-" + strconv.Itoa(i)}))
	}
	names := func(tb *table) (n int) {
		for i := range tb.shards {
			n += len(tb.shards[i].queue)
		}
		return n
	}
	if m, k := names(l.mem.models), names(l.mem.keys); m != 20_000 || k != 20_000 {
		t.Fatalf("names = %d, %d, want 20,000 each", m, k)
	}
	now = now.Add(24 * time.Hour)
	for i := range 400_000 {
		check.Fatal(t, "RecordUsage()", l.RecordUsage(ctx, "new-"+strconv.Itoa(i%4), 1, 1))
		now = now.Add(time.Millisecond)
	}
	if m, k := names(l.mem.models), names(l.mem.keys); m != 4 || k != 0 {
		t.Errorf("names a day later = %d, %d, want the 4 in use and no key", m, k)
	}
}

func TestDecisionsDoNotAllocate(t *testing.T) {
	ctx := context.Background()
	var tick time.Duration
	start := time.Unix(1e9, 0)
	l := newLimiter(Config{
		Quotas:          map[string]ModelQuota{"free": {MaxRPM: 1 << 40, MaxTPM: 1 << 40, MaxRPD: 1 << 40}, "full": {MaxRPM: 1}},
		DefaultKeyQuota: ModelQuota{MaxRPM: 1 << 40},
		Clock:           func() time.Time { tick += time.Millisecond; return start.Add(tick) },
	}, nil)
	for range 200_000 { // the ring of a full minute
		check.Fatal(t, "Record()", l.Record(ctx, Request{Model: "free", Key: "k", Input: 1}))
	}
	_ = l.RecordUsage(ctx, "full", 1, 1)
	calls := map[string]func(){
		"CanSend, allowed": func() { _, _ = l.CanSend(ctx, "free", 10) },
		"Reserve, allowed": func() {
			r, _ := l.Reserve(ctx, Request{Model: "free", Key: "k", Input: 10})
			_ = r.Settle(ctx, 5, 5)
		},
		"RecordUsage":      func() { _ = l.RecordUsage(ctx, "free", 1, 1) },
		"an unknown model": func() { _, _ = l.CanSend(ctx, "other", 10) },
		"Reserve, refused": func() {
			_ = l.Record(ctx, Request{Model: "full"})
			_, _ = l.Reserve(ctx, Request{Model: "full", Input: 10})
		},
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if got := testing.AllocsPerRun(1000, calls[name]); got != 0 {
			t.Errorf("%s allocates %v times, want 0", name, got)
		}
	}
}

// TestAHeldLockIsWaitedFor: a shard that stays locked for longer than a
// decision takes keeps others out until it is unlocked.
func TestAHeldLockIsWaitedFor(t *testing.T) {
	l := newLimiter(Config{}, nil)
	sh, _ := l.mem.models.shard("m")
	sh.lock()
	done := make(chan error)
	go func() { done <- l.RecordUsage(context.Background(), "m", 1, 1) }()
	select {
	case err := <-done:
		t.Fatalf("RecordUsage while the shard is locked = %v, want it to wait", err)
	case <-time.After(20 * time.Millisecond):
	}
	sh.mu.Unlock()
	check.Error(t, "RecordUsage", <-done)
}

// TestErrNoSQLite calls the constructors without the engine. They name the package to import.
func TestErrNoSQLite(t *testing.T) {
	defer sqliteOpener.Store(sqliteOpener.Swap(nil))
	if _, err := NewWithSQLite(t.Context(), t.TempDir()+"/x.db"); err != ErrNoSQLite { //nolint:errorlint // Returned bare.
		t.Errorf("NewWithSQLite = %v, want ErrNoSQLite", err)
	}
}
