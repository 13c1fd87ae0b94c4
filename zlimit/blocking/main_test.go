package blocking

import (
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
	_ "github.com/zlimit/zlimit-go/zlimit/sqlite" // tests of files
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(enginetest.With(m)) }

// forEachStore runs a test on every kind of store, with limits of 10 and 1,000 tokens a minute.
func forEachStore(t *testing.T, test func(t *testing.T, l *RateLimiter)) {
	t.Run("memory", func(t *testing.T) { test(t, open(t, "memory:")) })
	t.Run("file", func(t *testing.T) { test(t, open(t, "sqlite:"+filepath.Join(t.TempDir(), "zlimit.db"))) })
	t.Run("dynamodb", func(t *testing.T) {
		l, _ := newTable(t)
		test(t, l)
	})
}

// open returns a limiter on the store that a name stands for.
func open(tb testing.TB, dsn string, opts ...zlimit.Option) *RateLimiter {
	tb.Helper()
	l, err := Open(dsn, opts...)
	if err != nil {
		tb.Fatalf("Open(%q) = %v", dsn, err)
	}
	return prepared(tb, l)
}

// newTable returns a limiter on a new table of the engine, and the faulty network between them.
func newTable(tb testing.TB, opts ...zlimit.Option) (*RateLimiter, *enginetest.Faults) {
	tb.Helper()
	engine := enginetest.Start(tb)
	table := engine.Table(tb)
	input := dynamo.CreateTableInput(table)
	input.StreamSpecification = nil // slows the engine down
	if _, err := engine.Client().CreateTable(tb.Context(), input); err != nil {
		tb.Fatalf("CreateTable() = %v", err)
	}
	faults := enginetest.NewFaults(engine.Transport())
	client := engine.Client(func(o *dynamodb.Options) { faults.Attach(o) })
	l := check.Call(New(dynamo.New(client, table), append([]zlimit.Option{zlimit.WithSetup()}, opts...)...)).Must(tb, "New()")
	return prepared(tb, l), faults
}

func prepared(tb testing.TB, l *RateLimiter) *RateLimiter {
	tb.Helper()
	tb.Cleanup(func() {
		check.Error(tb, "Close()", l.Close())
	})
	limits := []zlimit.Limit{zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 1000)}
	check.Fatal(tb, "Set()", l.Limits.Set(zlimit.Level{}, zlimit.Config{Limits: limits}))
	return l
}

// ask is a request of the usual entity and resource.
func ask(consume zlimit.Amounts) zlimit.Request {
	return zlimit.Request{Entity: "key-1", Resource: "gpt-4", Consume: consume}
}

func acquire(tb testing.TB, l *RateLimiter, r zlimit.Request) *Lease {
	tb.Helper()
	lease, err := l.Acquire(r)
	if err != nil {
		tb.Fatalf("Acquire(%v) = %v, want a lease", r.Consume, err)
	}
	return lease
}

// left returns what a limit of the usual bucket has.
func left(tb testing.TB, l *RateLimiter, name string) int64 {
	tb.Helper()
	statuses := check.Call(l.Available(zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})).Must(tb, "Available()")
	s, ok := statuses.Limit(name)
	if !ok {
		tb.Fatalf("Available() = %v, want a status of %s", statuses, name)
	}
	return s.Available
}
