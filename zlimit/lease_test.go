package zlimit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestSettling(t *testing.T) {
	ctx := context.Background()
	for _, test := range []struct {
		name     string
		settle   func(*zlimit.Lease) error
		left     int64 // of 1000
		consumed zlimit.Amounts
	}{
		{"commit without a correction", func(le *zlimit.Lease) error { return le.Commit(ctx) }, 500, zlimit.Amounts{"tpm": 500}},
		{"a call that cost more", func(le *zlimit.Lease) error {
			return errors.Join(le.Adjust(zlimit.Amounts{"tpm": 100}), le.Adjust(zlimit.Amounts{"tpm": 50}), le.Commit(ctx))
		}, 350, zlimit.Amounts{"tpm": 650}},
		{"a call that cost more than there is", func(le *zlimit.Lease) error {
			return errors.Join(le.Adjust(zlimit.Amounts{"tpm": 1500}), le.Commit(ctx))
		}, -1000, zlimit.Amounts{"tpm": 2000}},
		{"a call that cost less", func(le *zlimit.Lease) error {
			return errors.Join(le.Release(zlimit.Amounts{"tpm": 200}), le.Commit(ctx))
		}, 700, zlimit.Amounts{"tpm": 300}},
		{"corrections that cancel out", func(le *zlimit.Lease) error {
			return errors.Join(le.Adjust(zlimit.Amounts{"tpm": 200}), le.Release(zlimit.Amounts{"tpm": 200}), le.Commit(ctx))
		}, 500, zlimit.Amounts{"tpm": 500}},
		{"a call that went on", func(le *zlimit.Lease) error {
			return errors.Join(le.Consume(ctx, zlimit.Amounts{"tpm": 300}), le.Commit(ctx))
		}, 200, zlimit.Amounts{"tpm": 800}},
		{"a call that went on, and cost less than either part", func(le *zlimit.Lease) error {
			return errors.Join(le.Consume(ctx, zlimit.Amounts{"tpm": 300}), le.Release(zlimit.Amounts{"tpm": 600}), le.Commit(ctx))
		}, 800, zlimit.Amounts{"tpm": 200}},
		{"a rollback", func(le *zlimit.Lease) error {
			return errors.Join(le.Consume(ctx, zlimit.Amounts{"tpm": 300}), le.Adjust(zlimit.Amounts{"tpm": 50}), le.Rollback(ctx))
		}, 1000, nil},
		{"a limit that the request did not name", func(le *zlimit.Lease) error {
			return errors.Join(le.Adjust(zlimit.Amounts{"rpm": 3}), le.Commit(ctx))
		}, 500, zlimit.Amounts{"tpm": 500, "rpm": 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			forEachStore(t, func(t *testing.T, s zlimit.Store) {
				for _, elapsed := range []time.Duration{0, 30 * time.Millisecond} { // a fresh stamp, and one that is not
					c := newClock()
					l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithNamespace(elapsed.String()), zlimit.WithFreshness(10*time.Millisecond))
					setSystem(t, l, zlimit.PerDay("tpm", 1000), zlimit.PerDay("rpm", 10))
					lease := acquire(t, l, ask(zlimit.Amounts{"tpm": 500}))
					c.sleep(elapsed)
					check.Fatal(t, "settle()", test.settle(lease))
					if got := available(t, l, "tpm"); got != test.left {
						t.Errorf("tpm has %d after %v, want %d", got, elapsed, test.left)
					}
					if got := limit(t, l, "tpm").Consumed; got != test.consumed["tpm"]*1000 {
						t.Errorf("the item counts %d, want %d", got, test.consumed["tpm"]*1000)
					}
					if got := lease.Consumed(); test.consumed != nil && !cmp.Equal(got, test.consumed) {
						t.Errorf("Consumed() = %v, want %v", got, test.consumed)
					}
					for name, call := range map[string]func() error{
						"Commit":   func() error { return lease.Commit(ctx) },
						"Rollback": func() error { return lease.Rollback(ctx) },
						"Adjust":   func() error { return lease.Adjust(zlimit.Amounts{"tpm": 1}) },
						"Consume":  func() error { return lease.Consume(ctx, zlimit.Amounts{"tpm": 1}) },
					} {
						if err := call(); !errors.Is(err, zlimit.ErrLeaseClosed) {
							t.Errorf("%s() of a settled lease = %v, want ErrLeaseClosed", name, err)
						}
					}
				}
			})
		})
	}
}

func TestLeaseRefusesWhatWouldMintTokens(t *testing.T) {
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerDay("tpm", 1000), zlimit.PerDay("rpm", 10))
	lease := acquire(t, l, ask(zlimit.Amounts{"tpm": 500}))
	for name, err := range map[string]error{
		"more released than consumed": lease.Release(zlimit.Amounts{"tpm": 501}),
		"a correction below nothing":  lease.Adjust(zlimit.Amounts{"tpm": -501}),
		"a negative release":          lease.Release(zlimit.Amounts{"tpm": -1}),
		"a negative consumption":      lease.Consume(context.Background(), zlimit.Amounts{"tpm": -1}),
		"an unknown limit":            lease.Adjust(zlimit.Amounts{"tmp": 1}),
		"an unknown limit consumed":   lease.Consume(context.Background(), zlimit.Amounts{"tmp": 1}),
		"an overflow":                 lease.Adjust(zlimit.Amounts{"tpm": zlimit.MaxTokens}),
	} {
		if !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("%s: %v, want a ValidationError", name, err)
		}
	}
	compare.Equal(t, "Consumed()", zlimit.Amounts{"tpm": 500}, lease.Consumed())
	if err := lease.Consume(context.Background(), zlimit.Amounts{"tpm": 501}); !errors.As(err, new(*zlimit.ExceededError)) {
		t.Errorf("Consume() = %v, want an ExceededError", err)
	}
}

// TestRefundsFillTheBucketToTheBrim gives tokens back that no longer fit.
func TestRefundsFillTheBucketToTheBrim(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerMinute("rpm", 60))
		lease := acquire(t, l, ask(zlimit.Amounts{"rpm": 50}))
		c.sleep(30 * time.Second) // 40 there
		check.Fatal(t, "Rollback()", lease.Rollback(context.Background()))
		if got := limit(t, l, "rpm"); got.Tokens != 60_000 || got.Consumed != 0 {
			t.Errorf("the item has %d and counts %d, want 60000 and 0", got.Tokens, got.Consumed)
		}
		if got := burst(t, l, 100); got != 60 {
			t.Errorf("burst(100) = %d, want 60", got)
		}
	})
}

func TestDo(t *testing.T) {
	ctx := context.Background()
	failure := errors.New("the model is down")
	for _, test := range []struct {
		name string
		fn   func(context.Context, *zlimit.Lease) error
		want error
		left int64
	}{
		{"commits on nil", func(_ context.Context, le *zlimit.Lease) error { return le.Adjust(zlimit.Amounts{"tpm": -100}) }, nil, 600},
		{"rolls back on an error", func(context.Context, *zlimit.Lease) error { return failure }, failure, 1000},
		{"leaves a lease alone that was settled", func(ctx context.Context, le *zlimit.Lease) error {
			return errors.Join(le.Commit(ctx), failure)
		}, failure, 500},
		{"commits though the context was cancelled", func(_ context.Context, le *zlimit.Lease) error { return le.Adjust(zlimit.Amounts{"tpm": 100}) }, nil, 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
			setSystem(t, l, zlimit.PerDay("tpm", 1000))
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			err := l.Do(ctx, ask(zlimit.Amounts{"tpm": 500}), func(ctx context.Context, le *zlimit.Lease) error {
				defer cancel()
				return test.fn(ctx, le)
			})
			if !errors.Is(err, test.want) {
				t.Errorf("Do() = %v, want %v", err, test.want)
			}
			if got := available(t, l, "tpm"); got != test.left {
				t.Errorf("tpm has %d, want %d", got, test.left)
			}
		})
	}
	t.Run("rolls back on a panic, which goes on", func(t *testing.T) {
		l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
		setSystem(t, l, zlimit.PerDay("tpm", 1000))
		func() {
			defer func() {
				if r := recover(); r != "oops" {
					t.Errorf("recover() = %v, want oops", r)
				}
			}()
			_ = l.Do(ctx, ask(zlimit.Amounts{"tpm": 500}), func(context.Context, *zlimit.Lease) error { panic("oops") })
		}()
		if got := available(t, l, "tpm"); got != 1000 {
			t.Errorf("tpm has %d, want 1000", got)
		}
	})
	t.Run("does not call the function of a rejected request", func(t *testing.T) {
		l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
		setSystem(t, l, zlimit.PerDay("tpm", 1000))
		err := l.Do(ctx, ask(zlimit.Amounts{"tpm": 1001}), func(context.Context, *zlimit.Lease) error {
			t.Error("called")
			return nil
		})
		if !errors.As(err, new(*zlimit.ExceededError)) {
			t.Errorf("Do() = %v, want an ExceededError", err)
		}
	})
}

// TestSettlingABucketThatIsGone gives back to, and charges, a bucket that expired and was deleted meanwhile.
func TestSettlingABucketThatIsGone(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s, zlimit.WithClock(newClock().now))
		setSystem(t, l, zlimit.PerDay("tpm", 1000))
		back, more := acquire(t, l, ask(zlimit.Amounts{"tpm": 100})), acquire(t, l, ask(zlimit.Amounts{"tpm": 100}))
		drop(t, l)
		if err := back.Rollback(context.Background()); err != nil || item(t, l) != nil {
			t.Errorf("Rollback() = %v and left %v, want no item", err, item(t, l))
		}
		check.Error(t, "Commit()", errors.Join(more.Adjust(zlimit.Amounts{"tpm": 50}), more.Commit(context.Background())))
		if got := available(t, l, "tpm"); got != 950 {
			t.Errorf("tpm has %d, want 950", got)
		}
	})
}

// TestSettlingALimitThatIsGone corrects what was consumed of a limit that another process has removed meanwhile.
func TestSettlingALimitThatIsGone(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		setSystem(t, l, zlimit.PerDay("rpd", 100), zlimit.PerDay("tpd", 1000))
		lease := acquire(t, l, ask(zlimit.Amounts{"rpd": 1, "tpd": 100}))
		setSystem(t, other, zlimit.PerDay("rpd", 100))
		acquire(t, other, ask(zlimit.Amounts{"rpd": 1}))
		if err := errors.Join(lease.Adjust(zlimit.Amounts{"rpd": 1, "tpd": 50}), lease.Commit(context.Background())); err != nil {
			t.Fatalf("Adjust() and Commit() = %v", err)
		}
		if got := limit(t, l, "rpd").Consumed; got != 3000 {
			t.Errorf("the item counts %d of rpd, want 3000", got)
		}
		if got := item(t, l).Get("b_tpd_tc"); got.Kind() != expr.KindNone {
			t.Errorf("the item counts %v of a limit that is gone", got)
		}
	})
}

// TestRefundsOnOldImages gives tokens back by a process whose image is old: meanwhile the bucket was refilled, its limit
// lowered, or it was split. The balance never passes what the item may hold.
func TestRefundsOnOldImages(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(c *clock, other *zlimit.RateLimiter)
		want      int64 // tokens in all shards
	}{
		"refilled": {func(c *clock, other *zlimit.RateLimiter) {
			c.sleep(30 * time.Minute)
			acquire(t, other, ask(zlimit.Amounts{"rpm": 1}))
		}, 10_000},
		"lowered": {func(_ *clock, other *zlimit.RateLimiter) {
			setSystem(t, other, zlimit.PerHour("rpm", 2))
			acquire(t, other, ask(zlimit.Amounts{"rpm": 1}))
		}, 2000},
		"split": {func(_ *clock, other *zlimit.RateLimiter) {
			acquire(t, other, ask(zlimit.Amounts{"rpm": 1}))
			split(t, other)
		}, 9000}, // as in the unsplit bucket
	} {
		t.Run(name, func(t *testing.T) {
			s := zlimit.StoreOn(partitioned{store.Of(newMemory(t))})
			c := newClock()
			l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithFreshness(time.Hour))
			other := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithFreshness(0))
			setSystem(t, l, zlimit.PerHour("rpm", 10))
			lease := acquire(t, l, ask(zlimit.Amounts{"rpm": 8}))
			test.meanwhile(c, other)
			check.Fatal(t, "Rollback()", lease.Rollback(context.Background()))
			for _, s := range shardsOf(t, l) {
				for _, l := range s.Limits {
					if share := bucket.Share(l.Capacity, s.Shard, s.Shards); l.Name == "rpm" && l.Tokens > share {
						t.Errorf("shard %d of %d has %d, more than its share of %d", s.Shard, s.Shards, l.Tokens, share)
					}
				}
			}
			if tokens, _, _ := total(shardsOf(t, l), "rpm"); tokens/100*100 != test.want {
				t.Errorf("there are %d, want %d", tokens, test.want)
			}
		})
	}
}
