package zlimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A silent store does not answer until it is asked for too long.
type silent struct{ store.Store }

func (s silent) Read(ctx context.Context, _ []store.Key, _ bool) ([]expr.Item, error) {
	<-ctx.Done()
	return nil, &store.Error{Op: "read", Unavailable: true, Err: ctx.Err()}
}

func (s silent) Ping(ctx context.Context) error {
	<-ctx.Done()
	return &store.Error{Op: "ping", Unavailable: true, Err: ctx.Err()}
}

// away returns a store that is down, with a namespace and a limit of 9 a day in it.
func away(t *testing.T) *down {
	t.Helper()
	s := newMemory(t)
	l := newLimiter(t, s)
	setSystem(t, l, zlimit.PerDay("rpd", 9))
	d := newDown(store.Of(s))
	d.is.Store(true)
	return d
}

// TestStartInAnOutage opens a limiter before its store. Requests follow the failure policy, and all other calls fail.
// What was left to do is done when the store is back.
func TestStartInAnOutage(t *testing.T) {
	for name, opts := range map[string][]zlimit.Option{
		"": nil, "with setup": {zlimit.WithSetup()}, "with an observer": {zlimit.WithObserver(func(context.Context, zlimit.Event) {})},
		"shared writes": {zlimit.WithCoalescing()}, "another namespace": {zlimit.WithSetup(), zlimit.WithNamespace("other"), zlimit.WithDefaultLimits(zlimit.PerDay("rpd", 9))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				d := away(t)
				l, err := zlimit.New(ctx, zlimit.StoreOn(d), append(opts, zlimit.WithFailurePolicy(zlimit.PolicyAllow))...)
				check.Fatal(t, "zlimit.New()", err)
				defer l.Close()
				for range 20 {
					lease, err := l.Acquire(ctx, ask(zlimit.Amounts{"rpd": 1}))
					if err != nil || !lease.Degraded() {
						t.Fatalf("Acquire() in the outage = %v, want a degraded lease", err)
					}
					check.Error(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rpd": 3}), lease.Commit(ctx)))
				}
				strict := ask(zlimit.Amounts{"rpd": 1})
				strict.OnUnavailable = zlimit.PolicyBlock
				own := ask(zlimit.Amounts{"own": 1})
				own.Limits, own.OnUnavailable = []zlimit.Limit{zlimit.PerDay("own", 9)}, zlimit.PolicyBlock
				_, strictly := l.Acquire(ctx, strict)
				_, owned := l.Acquire(ctx, own)
				_, available := l.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
				_, resolved := l.Limits.Resolve(ctx, "key-1", "gpt-4")
				_, created := l.Entities.Create(ctx, zlimit.Entity{ID: "key-1"})
				_, set := l.Managed.Set(ctx)
				var listed, used error
				for _, listed = range l.Entities.List(ctx, zlimit.EntityQuery{}) {
				}
				for _, used = range l.Usage.Snapshots(ctx, zlimit.UsageQuery{Entity: "key-1", Window: zlimit.WindowHourly}) {
				}
				for call, err := range map[string]error{
					"Acquire, blocked": strictly, "Acquire, own limits": owned, "Available": available, "Resolve": resolved, "Create": created,
					"Set": set, "List": listed, "Snapshots": used, "Limits.Set": l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{OnUnavailable: zlimit.PolicyBlock}),
					"Delete": l.Entities.Delete(ctx, "key-1"),
				} {
					if !errors.As(err, new(*zlimit.UnavailableError)) {
						t.Errorf("%s in the outage = %v, want an UnavailableError", call, err)
					}
				}
				if got := l.Stats(); got.Degraded != 20 || got.Unavailable != 2 || got.Admitted != 0 {
					t.Errorf("Stats() = %+v, want 20 degraded and 2 unavailable", got)
				}
				d.is.Store(false)
				time.Sleep(6 * time.Second)
				for i, want := range []int64{8, 7} {
					lease, err := l.Acquire(ctx, ask(zlimit.Amounts{"rpd": 1}))
					if err != nil || lease.Degraded() || lease.Statuses()[0].Available != want {
						t.Fatalf("Acquire() %d with the store back = %v, want a lease that leaves %d", i, err, want)
					}
				}
				if _, err := l.Acquire(ctx, own); err != nil {
					t.Errorf("Acquire() with own limits and the store back = %v", err)
				}
			})
		})
	}
}

// TestStartInAnOutageIsAskedFor fails to open where nothing says that requests are admitted in an outage.
func TestStartInAnOutageIsAskedFor(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, test := range []struct {
		name string
		ctx  context.Context //nolint:containedctx // each case has one
		opts []zlimit.Option
		want func(error) bool
	}{
		{"by default", t.Context(), nil, func(err error) bool { return errors.As(err, new(*zlimit.UnavailableError)) }},
		{"block", t.Context(), []zlimit.Option{zlimit.WithFailurePolicy(zlimit.PolicyBlock)}, func(err error) bool { return errors.As(err, new(*zlimit.UnavailableError)) }},
		{"allow, for a caller that has left", ended, []zlimit.Option{zlimit.WithFailurePolicy(zlimit.PolicyAllow)}, func(err error) bool { return err != nil }},
	} {
		if l, err := zlimit.New(test.ctx, zlimit.StoreOn(away(t)), test.opts...); !test.want(err) || l != nil {
			t.Errorf("%s: New() = %v, %v", test.name, l, err)
		}
	}
}

// TestStartWithAStoreThatHangs waits for one call's time, and no longer to close.
func TestStartWithAStoreThatHangs(t *testing.T) {
	for name, opts := range map[string][]zlimit.Option{"": nil, "with setup": {zlimit.WithSetup()}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			opts := append(opts, zlimit.WithFailurePolicy(zlimit.PolicyAllow), zlimit.WithCallTimeout(time.Second))
			l, err := zlimit.New(t.Context(), zlimit.StoreOn(silent{store.Of(newMemory(t))}), opts...)
			if took := time.Since(began); err != nil || took > time.Second {
				t.Fatalf("%s: New() = %v after %v, want a limiter after 1s", name, err, took)
			}
			if lease, err := l.Acquire(t.Context(), ask(zlimit.Amounts{"rpd": 1})); err != nil || !lease.Degraded() || time.Since(began) > time.Second {
				t.Errorf("%s: Acquire() = %v after %v, want a degraded lease at once", name, err, time.Since(began))
			}
			time.Sleep(600 * time.Millisecond) // it looks for the store
			began = time.Now()
			if err := l.Close(); err != nil || time.Since(began) > 0 {
				t.Errorf("%s: Close() = %v after %v, want at once", name, err, time.Since(began))
			}
			if _, err := l.Acquire(t.Context(), ask(zlimit.Amounts{"rpd": 1})); !errors.Is(err, zlimit.ErrClosed) {
				t.Errorf("%s: Acquire() after Close = %v", name, err)
			}
		})
	}
}

// TestStartInAnOutageThatHidesAMistake admits nothing once the store says that it cannot be used.
func TestStartInAnOutageThatHidesAMistake(t *testing.T) {
	for name, test := range map[string]struct {
		opts []zlimit.Option
		do   func(t *testing.T, s store.Store)
		want func(error) bool
	}{
		"a namespace that is not there": {
			[]zlimit.Option{zlimit.WithNamespace("typo")},
			func(*testing.T, store.Store) {},
			func(err error) bool { return errors.Is(err, zlimit.ErrNamespaceNotFound) },
		},
		"a table for later clients": {
			nil, func(t *testing.T, s store.Store) {
				record := layout.Version{SchemaVersion: "99.0.0", ClientMinVersion: "99.0.0"}
				if _, err := s.Write(t.Context(), store.Write{Kind: store.Put, Key: record.Key.Key(), Item: record.Encode()}); err != nil {
					t.Fatalf("Write() = %v", err)
				}
			},
			func(err error) bool { return errors.As(err, new(*zlimit.VersionError)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := away(t)
				l, err := zlimit.New(t.Context(), zlimit.StoreOn(d), append(test.opts, zlimit.WithFailurePolicy(zlimit.PolicyAllow))...)
				check.Fatal(t, "zlimit.New()", err)
				defer l.Close()
				test.do(t, d.Store)
				d.is.Store(false)
				time.Sleep(6 * time.Second)
				if lease, err := l.Acquire(t.Context(), ask(zlimit.Amounts{"rpd": 1})); lease != nil || !test.want(err) {
					t.Errorf("Acquire() = %v, %v, want the mistake", lease, err)
				}
				if _, err := l.Available(t.Context(), zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"}); !test.want(err) {
					t.Errorf("Available() = %v, want the mistake", err)
				}
			})
		})
	}
}

// TestKeysOfBeforeTheEntry refuses a call whose key was made while the namespace was unknown, instead of writing to a
// namespace without a name.
func TestKeysOfBeforeTheEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := away(t)
		l := check.Call(zlimit.New(t.Context(), zlimit.StoreOn(d), zlimit.WithFailurePolicy(zlimit.PolicyAllow))).Must(t, "zlimit.New()")
		defer l.Close()
		stale := l.Engine().Memory.Bucket("key-1", "gpt-4")
		d.is.Store(false)
		time.Sleep(6 * time.Second)
		if stale == l.Engine().Memory.Bucket("key-1", "gpt-4") {
			t.Error("a bucket of no namespace is remembered")
		}
		before := d.calls.Load()
		w := store.Write{Kind: store.Put, Key: layout.EntityKey{NS: stale.NS, Entity: "key-1"}.Key()}
		_, read := l.Table().Read(t.Context(), w.Key)
		_, written := l.Table().Write(t.Context(), w)
		_, transacted := l.Table().TryTransact(t.Context(), []store.Write{w})
		var queried error
		for _, queried = range l.Table().Items(t.Context(), layout.QueryEntities(stale.NS, "")) {
		}
		for call, err := range map[string]error{"Read": read, "Write": written, "TryTransact": transacted, "Items": queried} {
			var away *store.Error
			if !errors.As(err, &away) || !away.Unavailable {
				t.Errorf("%s() with a key of no namespace = %v, want an outage", call, err)
			}
		}
		if d.calls.Load() != before {
			t.Error("the store was asked")
		}
	})
}
