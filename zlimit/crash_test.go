package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A killedProcess is a process that is killed in the middle of an operation.
type killedProcess struct {
	t       *testing.T
	clock   *clock
	limiter *zlimit.RateLimiter
	lease   *zlimit.Lease // 100 tokens that it holds
}

// operations are those that the process is killed in. Each says what it may leave charged too much: the tokens, of tpd,
// that a request had under way.
var operations = map[string]struct {
	leak    int64
	back    int64 // tokens that it gives back
	shards  int
	prepare func(ctx context.Context, c *killedProcess)
	run     func(ctx context.Context, c *killedProcess) error
}{
	"acquire, of new buckets": {leak: 10, prepare: func(ctx context.Context, c *killedProcess) {
		for _, entity := range []string{"key-1", "team", "org"} {
			c.discard(ctx, entity)
		}
	}, run: func(ctx context.Context, c *killedProcess) error { return c.acquire(ctx, 10) }},
	"acquire":                       {leak: 10, run: func(ctx context.Context, c *killedProcess) error { return c.acquire(ctx, 10) }},
	"acquire, with a refill":        {leak: 10, prepare: func(_ context.Context, c *killedProcess) { c.clock.sleep(time.Hour) }, run: func(ctx context.Context, c *killedProcess) error { return c.acquire(ctx, 10) }},
	"acquire, refused by team":      {leak: 290, run: func(ctx context.Context, c *killedProcess) error { return c.acquire(ctx, 290) }},
	"acquire, of several parts":     {leak: 180, shards: 4, run: func(ctx context.Context, c *killedProcess) error { return c.acquire(ctx, 180) }},
	"acquire, with an ID":           {leak: 10, run: func(ctx context.Context, c *killedProcess) error { return c.acquireAs(ctx, 10) }},
	"acquire, with an ID, of parts": {leak: 180, shards: 4, run: func(ctx context.Context, c *killedProcess) error { return c.acquireAs(ctx, 180) }},
	"consume": {leak: 20, run: func(ctx context.Context, c *killedProcess) error {
		return c.lease.Consume(ctx, zlimit.Amounts{"tpd": 20})
	}},
	"commit a debit":  {leak: 30, run: func(ctx context.Context, c *killedProcess) error { return c.settle(ctx, 30) }},
	"commit a refund": {back: 40, run: func(ctx context.Context, c *killedProcess) error { return c.settle(ctx, -40) }},
	"roll back":       {back: 100, run: func(ctx context.Context, c *killedProcess) error { return c.lease.Rollback(ctx) }},
	"roll back several parts": {leak: 80, back: 100, shards: 4, run: func(ctx context.Context, c *killedProcess) error {
		return errors.Join(c.lease.Consume(ctx, zlimit.Amounts{"tpd": 80}), c.lease.Rollback(ctx))
	}},
	"settle a debit":  {leak: 30, run: func(ctx context.Context, c *killedProcess) error { return c.settleToken(ctx, 130) }},
	"settle a refund": {back: 40, run: func(ctx context.Context, c *killedProcess) error { return c.settleToken(ctx, 60) }},
	"settle a refund exactly": {back: 40, run: func(ctx context.Context, c *killedProcess) error {
		return c.settleToken(ctx, 60, zlimit.SettleExactly())
	}},
	"settle a refund, of parts": {back: 40, shards: 4, run: func(ctx context.Context, c *killedProcess) error {
		return c.settleToken(ctx, 60, zlimit.SettleExactly())
	}},
	"split": {run: func(ctx context.Context, c *killedProcess) error {
		return resizeEach(ctx, c.limiter, c.limiter.Calls(), splitShard)
	}},
	"merge": {shards: 4, run: func(ctx context.Context, c *killedProcess) error {
		return resizeEach(ctx, c.limiter, c.limiter.Calls(), mergeShard)
	}},
	"change limits": {leak: 1, run: func(ctx context.Context, c *killedProcess) error {
		return errors.Join(c.limiter.Limits.Set(ctx, zlimit.Level{Entity: "key-1", Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tpd", 350)}}), c.acquire(ctx, 1))
	}},
}

func (c *killedProcess) acquire(ctx context.Context, tokens int64) error {
	_, err := c.limiter.Acquire(ctx, ask(zlimit.Amounts{"tpd": tokens}))
	return err
}

func (c *killedProcess) acquireAs(ctx context.Context, tokens int64) error {
	_, err := c.limiter.Acquire(ctx, askAs("job-1", zlimit.Amounts{"tpd": tokens}))
	return err
}

func (c *killedProcess) settle(ctx context.Context, correction int64) error {
	return errors.Join(c.lease.Adjust(zlimit.Amounts{"tpd": correction}), c.lease.Commit(ctx))
}

func (c *killedProcess) settleToken(ctx context.Context, actual int64, opts ...zlimit.SettleOption) error {
	token, err := c.lease.Token(time.Hour)
	return errors.Join(err, c.limiter.Settle(ctx, token, zlimit.Amounts{"tpd": actual}, opts...))
}

// discard deletes the bucket of an entity, and what the process knows of it.
func (c *killedProcess) discard(ctx context.Context, entity string) {
	key := layout.BucketKey{NS: c.limiter.NS(), Entity: entity, Resource: "gpt-4"}.Key()
	check.Fatal(c.t, "Delete()", c.limiter.Table().Delete(ctx, []store.Key{key}))
	if _, err := c.limiter.Available(ctx, zlimit.AvailableQuery{Entity: entity, Resource: "gpt-4"}); err != nil {
		c.t.Fatalf("Available() = %v", err)
	}
}

// TestCrashes kills a process at every call of every operation, before and after the call is carried out. What others
// see afterwards is at worst too little. Nothing is admitted twice, no more is charged in vain than the operation had
// under way, and shares add up. Once the bucket has filled up, nothing is missing.
func TestCrashes(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(operations)) {
		for _, how := range []faulttest.Crash{faulttest.Before, faulttest.After} {
			t.Run(fmt.Sprintf("%s, killed %s", name, how), func(t *testing.T) {
				for at := 1; killAt(t, name, at, how); at++ {
					if at == 100 {
						t.Fatal("the operation does not end")
					}
				}
			})
		}
	}
}

// killAt kills a process at a call of an operation; false when the operation ends before that.
func killAt(t *testing.T, name string, at int, how faulttest.Crash) (killed bool) {
	t.Helper()
	ctx := context.Background()
	op := operations[name]
	w := newWitness(store.Of(newMemory(t)))
	m := faulttest.NewMortal(w)
	clock := newClock()
	survivor := newLimiter(t, zlimit.StoreOn(w), zlimit.WithClock(clock.now))
	putChain(t, survivor, "org", "team", "key-1")
	c := &killedProcess{t: t, clock: clock, limiter: newLimiter(t, zlimit.StoreOn(m), zlimit.WithClock(clock.now))}
	err := errors.Join(
		survivor.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tpd", 400)}}),
		survivor.Limits.Set(ctx, zlimit.Level{Entity: "team", Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tpd", 300)}}),
	)
	check.Fatal(t, "Limits.Set() and Limits.Set()", err)
	c.lease = acquire(t, c.limiter, ask(zlimit.Amounts{"tpd": 100}))
	for n := 1; n < op.shards; n *= 2 {
		split(t, c.limiter)
	}
	if op.prepare != nil {
		op.prepare(ctx, c)
	}
	before := map[string]float64{}
	for _, entity := range []string{"key-1", "team", "org"} {
		before[entity] = w.counted(entity, "tpd")
	}

	m.Kill(at, how)
	err = op.run(ctx, c)
	died := m.Died()
	m.Kill(0, "") // the process is gone; what it holds is lost, and only its goroutines end

	for entity, counted := range before {
		least, most := counted-float64(op.back), counted+float64(op.leak)
		if !died && err != nil {
			least, most = counted, counted
		}
		if got := w.counted(entity, "tpd"); got < least || got > most {
			t.Errorf("call %d: %s counts %v, want from %v to %v", at, entity, got, least, most)
		}
	}
	if _, err := survivor.Acquire(ctx, ask(zlimit.Amounts{"tpd": 1})); err != nil {
		t.Errorf("call %d: Acquire() by another process = %v", at, err)
	}
	clock.sleep(24 * time.Hour)
	if got := drain(t, survivor); got != 300 {
		t.Errorf("call %d: a day later %d are admitted, want 300", at, got)
	}
	if err := w.verdict(); err != nil {
		t.Errorf("call %d: %v", at, err)
	}
	return died
}

// drain acquires as much as there is, in portions.
func drain(tb testing.TB, l *zlimit.RateLimiter) (admitted int64) {
	tb.Helper()
	for _, portion := range []int64{100, 10, 1} {
		for {
			_, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"tpd": portion}))
			if errors.As(err, new(*zlimit.ExceededError)) {
				break
			}
			check.Fatal(tb, "Acquire()", err)
			admitted += portion
		}
	}
	return admitted
}
