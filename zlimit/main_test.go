package zlimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/zlimit"
	zdynamo "github.com/zlimit/zlimit-go/zlimit/dynamo"
	_ "github.com/zlimit/zlimit-go/zlimit/sqlite" // tests of files
)

func TestMain(m *testing.M) {
	if job := os.Getenv(updaterEnv); job != "" {
		os.Exit(update(job))
	}
	if job := os.Getenv(workerEnv); job != "" {
		os.Exit(work(job))
	}
	if job := os.Getenv(queueEnv); job != "" {
		os.Exit(runQueuers(job))
	}
	if dsn := os.Getenv(holderEnv); dsn != "" {
		os.Exit(holdSlots(dsn))
	}
	if job := os.Getenv(trafficEnv); job != "" {
		tr := &traffic{}
		if err := json.Unmarshal([]byte(job), tr); err != nil {
			panic(err)
		}
		os.Exit(tr.run())
	}
	goleak.VerifyTestMain(enginetest.With(m))
}

// A clock is a time that a test sets.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ms.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMilli())
	return c
}

func (c *clock) now() time.Time { return time.UnixMilli(c.ms.Load()).UTC() }

func (c *clock) sleep(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// forEachStoreAtNight runs a long program on the store in memory, and in its long form on every kind of store. Shorter tests of the same
// calls run on every store in the usual form, too.
func forEachStoreAtNight(t *testing.T, test func(t *testing.T, s zlimit.Store)) {
	if soak.Runs() || enginetest.IsMean() {
		forEachStore(t, test)
		return
	}
	t.Run("memory", func(t *testing.T) { test(t, newMemory(t)) })
}

// forEachStore runs a test on every kind of store.
func forEachStore(t *testing.T, test func(t *testing.T, s zlimit.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, newMemory(t)) })
	t.Run("file", func(t *testing.T) {
		s, err := zlimit.SQLite(filepath.Join(t.TempDir(), "zlimit.db"))
		check.Fatal(t, "zlimit.SQLite()", err)
		t.Cleanup(func() { closeStore(t, s) })
		test(t, s)
	})
	t.Run("dynamodb", func(t *testing.T) {
		s, _ := newTable(t)
		test(t, s)
	})
}

func closeStore(t *testing.T, s zlimit.Store) {
	t.Helper()
	check.Error(t, "Close()", s.Close())
}

func newMemory(tb testing.TB) zlimit.Store {
	tb.Helper()
	s, err := zlimit.Memory()
	check.Fatal(tb, "zlimit.Memory()", err)
	tb.Cleanup(func() {
		check.Error(tb, "Close()", s.Close())
	})
	return s
}

// newTable returns a store on a new table of the engine, without a stream, which slows the engine down, and the faulty
// network between them. Every reply reports what it cost.
func newTable(tb testing.TB) (zlimit.Store, *enginetest.Faults) {
	tb.Helper()
	engine := enginetest.Start(tb)
	faults := enginetest.NewFaults(engine.Transport())
	return zlimit.StoreOn(dynamo.New(engine.Client(faults.Attach), engine.Table(tb), layout.Table, withoutStream, dynamo.ConsumedCapacity())), faults
}

func withoutStream(table string) *dynamodb.CreateTableInput {
	input := zdynamo.CreateTableInput(table)
	input.StreamSpecification = nil
	return input
}

// newLimiter returns a limiter on a store that is set up.
func newLimiter(tb testing.TB, s zlimit.Store, opts ...zlimit.Option) *zlimit.RateLimiter {
	tb.Helper()
	defaults := []zlimit.Option{zlimit.WithSetup(), zlimit.WithListing(false)} // nothing is written that no test does
	l, err := zlimit.New(context.Background(), s, append(defaults, opts...)...)
	check.Fatal(tb, "New()", err)
	tb.Cleanup(func() {
		check.Error(tb, "Close()", l.Close())
	})
	return l
}

// setSystem makes limits those of last resort.
func setSystem(tb testing.TB, l *zlimit.RateLimiter, limits ...zlimit.Limit) {
	tb.Helper()
	check.Fatal(tb, "Set()", l.Limits.Set(context.Background(), zlimit.Level{}, zlimit.Config{Limits: limits}))
}

// ask is a request of the usual entity and resource.
func ask(consume zlimit.Consumption) zlimit.Request {
	return zlimit.Request{Entity: "key-1", Resource: "gpt-4", Consume: consume}
}

func acquire(tb testing.TB, l *zlimit.RateLimiter, r zlimit.Request) *zlimit.Lease {
	tb.Helper()
	lease, err := l.Acquire(context.Background(), r)
	if err != nil {
		tb.Fatalf("Acquire(%v) = %v, want a lease", r.Consume, err)
	}
	return lease
}

func reject(tb testing.TB, l *zlimit.RateLimiter, r zlimit.Request) *zlimit.ExceededError {
	tb.Helper()
	_, err := l.Acquire(context.Background(), r)
	var exceeded *zlimit.ExceededError
	if !errors.As(err, &exceeded) {
		tb.Fatalf("Acquire(%v) = %v, want an ExceededError", r.Consume, err)
	}
	return exceeded
}

// burst acquires one token of rpm that many times and returns how many were admitted.
func burst(tb testing.TB, l *zlimit.RateLimiter, times int) (admitted int) {
	tb.Helper()
	return burstOf(tb, l, 1, times)
}

// burstOf acquires some tokens of rpm that many times and returns how many were admitted.
func burstOf(tb testing.TB, l *zlimit.RateLimiter, tokens int64, times int) (admitted int) {
	tb.Helper()
	for range times {
		_, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"rpm": tokens}))
		var exceeded *zlimit.ExceededError
		switch {
		case err == nil:
			admitted++
		case !errors.As(err, &exceeded):
			tb.Fatalf("Acquire() = %v", err)
		}
	}
	return admitted
}

// item returns the item of the usual bucket, nil when there is none.
func item(tb testing.TB, l *zlimit.RateLimiter) expr.Item {
	tb.Helper()
	key := layout.BucketKey{NS: l.NS(), Entity: "key-1", Resource: "gpt-4"}.Key()
	items, err := l.Calls().Read(context.Background(), []store.Key{key}, true)
	check.Fatal(tb, "Read()", err)
	return items[0]
}

// limit returns a limit of the usual bucket as it is stored.
func limit(tb testing.TB, l *zlimit.RateLimiter, name string) bucket.Limit {
	tb.Helper()
	item, err := layout.DecodeBucket(item(tb, l))
	check.Fatal(tb, "layout.DecodeBucket()", err)
	i := slices.IndexFunc(item.Limits, func(l bucket.Limit) bool { return l.Name == name })
	if i < 0 {
		tb.Fatalf("the item has no limit %s: %v", name, item.Limits)
	}
	return item.Limits[i]
}

// available returns what a limit of the usual bucket has.
func available(tb testing.TB, l *zlimit.RateLimiter, name string) int64 {
	tb.Helper()
	statuses, err := l.Available(context.Background(), zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
	check.Fatal(tb, "Available()", err)
	s, ok := statuses.Limit(name)
	if !ok {
		tb.Fatalf("Available() = %v, want a status of %s", statuses, name)
	}
	return s.Available
}

// newDSN returns the data source name of a new table of the engine, set up.
func newDSN(t *testing.T) string {
	t.Helper()
	engine := enginetest.Start(t)
	table := engine.Table(t)
	newLimiter(t, zlimit.StoreOn(dynamo.New(engine.Client(), table, layout.Table, withoutStream)))
	return "dynamodb:" + table + "?region=us-east-1&endpoint=" + engine.Endpoint()
}

// drop deletes the usual bucket, as its time of expiry does.
func drop(tb testing.TB, l *zlimit.RateLimiter) {
	tb.Helper()
	key := layout.BucketKey{NS: l.NS(), Entity: "key-1", Resource: "gpt-4"}.Key()
	if _, err := l.Calls().Write(context.Background(), store.Write{Kind: store.Delete, Key: key}); err != nil {
		tb.Fatalf("Write() = %v", err)
	}
}
