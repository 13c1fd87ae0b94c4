package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

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
		test(t, openStore(t, newFile(t)))
	})
	t.Run("dynamodb", func(t *testing.T) {
		s, _ := newTable(t)
		test(t, s)
	})
}

// newFile returns the data source name of a new database file.
func newFile(tb testing.TB) string { return "sqlite:" + filepath.Join(tb.TempDir(), "zlimit.db") }

// openStore returns the store of a data source name.
func openStore(tb testing.TB, dsn string) zlimit.Store {
	tb.Helper()
	s := check.Call(zlimit.OpenStore(context.Background(), dsn)).Must(tb, "zlimit.OpenStore()")
	tb.Cleanup(func() { check.Error(tb, "Close()", s.Close()) })
	return s
}

// newMemory returns a new store in memory.
func newMemory(tb testing.TB) zlimit.Store {
	tb.Helper()
	s := check.Call(zlimit.Memory()).Must(tb, "zlimit.Memory()")
	tb.Cleanup(func() { check.Error(tb, "Close()", s.Close()) })
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
	l := check.Call(zlimit.New(context.Background(), s, append(defaults, opts...)...)).Must(tb, "New()")
	tb.Cleanup(func() { check.Error(tb, "Close()", l.Close()) })
	return l
}

// ask is a request of the usual entity and resource.
func ask(consume zlimit.Consumption) zlimit.Request {
	return zlimit.Request{Entity: "key-1", Resource: "gpt-4", Consume: consume}
}

// setSystem makes limits those of last resort.
func setSystem(tb check.TB, l *zlimit.RateLimiter, limits ...zlimit.Limit) {
	tb.Helper()
	setLimits(tb, l, zlimit.Level{}, limits...)
}

// setLimits stores the limits of a level.
func setLimits(tb check.TB, l *zlimit.RateLimiter, at zlimit.Level, limits ...zlimit.Limit) {
	tb.Helper()
	check.Fatal(tb, "Limits.Set()", l.Limits.Set(context.Background(), at, zlimit.Config{Limits: limits}))
}

// create creates an entity, and returns it as it is stored.
func create(tb check.TB, l *zlimit.RateLimiter, e zlimit.Entity) zlimit.Entity {
	tb.Helper()
	return check.Call(l.Entities.Create(context.Background(), e)).Must(tb, fmt.Sprintf("Entities.Create(%+v)", e))
}

// acquire returns the lease of a request that is to be admitted.
func acquire(tb check.TB, l *zlimit.RateLimiter, r zlimit.Request) *zlimit.Lease {
	lease, err := l.Acquire(context.Background(), r)
	if err != nil {
		tb.Helper() // which would cost a benchmark a tenth of an acquire
		tb.Fatalf("Acquire(%v) = %v, want a lease", r.Consume, err)
	}
	return lease
}

// reject returns the rejection of a request that is to be rejected.
func reject(tb check.TB, l *zlimit.RateLimiter, r zlimit.Request) *zlimit.ExceededError {
	tb.Helper()
	_, err := l.Acquire(context.Background(), r)
	var exceeded *zlimit.ExceededError
	if !errors.As(err, &exceeded) {
		tb.Fatalf("Acquire(%v) = %v, want an ExceededError", r.Consume, err)
	}
	return exceeded
}

// invalid returns what is wrong with a call whose input is bad; nothing, if the error is another one.
func invalid(err error) (bad zlimit.ValidationError) {
	if of, ok := errors.AsType[*zlimit.ValidationError](err); ok {
		bad = *of
	}
	return bad
}

// burst acquires one token of rpm that many times and returns how many were admitted.
func burst(tb check.TB, l *zlimit.RateLimiter, times int) (admitted int) {
	tb.Helper()
	return burstOf(tb, l, 1, times)
}

// burstOf acquires some tokens of rpm that many times and returns how many were admitted.
func burstOf(tb check.TB, l *zlimit.RateLimiter, tokens int64, times int) (admitted int) {
	tb.Helper()
	for range times {
		_, err := l.Acquire(context.Background(), ask(zlimit.Amounts{"rpm": tokens}))
		switch {
		case err == nil:
			admitted++
		case !errors.As(err, new(*zlimit.ExceededError)):
			tb.Fatalf("Acquire() = %v", err)
		}
	}
	return admitted
}

// keyOfBucket returns the key of the usual bucket.
func keyOfBucket(l *zlimit.RateLimiter) store.Key {
	return layout.BucketKey{NS: l.NS(), Entity: "key-1", Resource: "gpt-4"}.Key()
}

// stored returns an item as the store has it, nil for none.
func stored(tb check.TB, l *zlimit.RateLimiter, key store.Key) expr.Item {
	tb.Helper()
	items := check.Call(l.Calls().Read(context.Background(), []store.Key{key}, true)).Must(tb, "Read()")
	return items[0]
}

// item returns the item of the usual bucket, nil for none.
func item(tb check.TB, l *zlimit.RateLimiter) expr.Item {
	tb.Helper()
	return stored(tb, l, keyOfBucket(l))
}

// write makes one write of the store.
func write(tb check.TB, l *zlimit.RateLimiter, w store.Write) {
	tb.Helper()
	check.Call(l.Calls().Write(context.Background(), w)).Must(tb, "Write()")
}

// put stores an item, or replaces it.
func put(tb check.TB, l *zlimit.RateLimiter, key store.Key, item expr.Item) {
	tb.Helper()
	item = slices.DeleteFunc(slices.Clone(item), func(a expr.Attribute) bool { return a.Name == store.PK || a.Name == store.SK })
	write(tb, l, store.Write{Kind: store.Put, Key: key, Item: item})
}

// drop deletes the usual bucket, as its time of expiry does.
func drop(tb check.TB, l *zlimit.RateLimiter) {
	tb.Helper()
	write(tb, l, store.Write{Kind: store.Delete, Key: keyOfBucket(l)})
}

// limit returns a limit of the usual bucket as it is stored.
func limit(tb check.TB, l *zlimit.RateLimiter, name string) bucket.Limit {
	tb.Helper()
	return storedLimit(tb, l, "key-1", name)
}

// storedLimit returns a limit of the bucket of an entity for gpt-4 as it is stored.
func storedLimit(tb check.TB, l *zlimit.RateLimiter, entity, name string) bucket.Limit {
	tb.Helper()
	item, err := layout.DecodeBucket(stored(tb, l, layout.BucketKey{NS: l.NS(), Entity: entity, Resource: "gpt-4"}.Key()))
	check.Fatal(tb, "layout.DecodeBucket()", err)
	i := slices.IndexFunc(item.Limits, func(l bucket.Limit) bool { return l.Name == name })
	if i < 0 {
		tb.Fatalf("the item of %s has no limit %s: %v", entity, name, item.Limits)
	}
	return item.Limits[i]
}

// checkLimit checks what a limit of an entity has and counts, in millitokens.
func checkLimit(tb check.TB, l *zlimit.RateLimiter, entity, name string, tokens, consumed int64) {
	tb.Helper()
	if got := storedLimit(tb, l, entity, name); got.Tokens != tokens || got.Consumed != consumed {
		tb.Errorf("%s has %d of %s and counts %d, want %d and %d", entity, got.Tokens, name, got.Consumed, tokens, consumed)
	}
}

// collect returns what a sequence yields, and fails the test on an error.
func collect[T any](tb check.TB, call string, seq iter.Seq2[T, error]) []T {
	tb.Helper()
	enginetest.CatchUp()
	return check.All(tb, call, seq)
}

// endOf returns the error that a sequence ends with.
func endOf[T any](seq iter.Seq2[T, error]) (failed error) {
	for _, err := range seq {
		failed = err
	}
	return failed
}

// statuses returns where the limits of the usual bucket stand.
func statuses(tb check.TB, l *zlimit.RateLimiter) zlimit.Statuses {
	tb.Helper()
	statuses, err := l.Available(context.Background(), zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
	check.Fatal(tb, "Available()", err)
	return statuses
}

// status returns where a limit of the usual bucket stands.
func status(tb check.TB, l *zlimit.RateLimiter, name string) zlimit.Status {
	tb.Helper()
	all := statuses(tb, l)
	s, ok := all.Limit(name)
	if !ok {
		tb.Fatalf("Available() = %v, want a status of %s", all, name)
	}
	return s
}

// available returns what a limit of the usual bucket has.
func available(tb check.TB, l *zlimit.RateLimiter, name string) int64 {
	tb.Helper()
	return status(tb, l, name).Available
}

// newDSN returns the data source name of a new table of the engine, set up.
func newDSN(tb testing.TB) string {
	tb.Helper()
	engine := enginetest.Start(tb)
	table := engine.Table(tb)
	newLimiter(tb, zlimit.StoreOn(dynamo.New(engine.Client(), table, layout.Table, withoutStream)))
	return "dynamodb:" + table + "?region=us-east-1&endpoint=" + engine.Endpoint()
}
