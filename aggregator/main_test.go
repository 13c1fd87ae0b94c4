package aggregator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
	_ "github.com/zlimit/zlimit-go/zlimit/sqlite" // tests of files
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(enginetest.With(m)) }

// noon is the time of most changes.
var noon = time.Date(2026, 3, 31, 12, 30, 0, 0, time.UTC)

// forEachStore runs a test on every kind of store.
func forEachStore(t *testing.T, test func(t *testing.T, s zlimit.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, newMemory(t)) })
	t.Run("file", func(t *testing.T) { test(t, newFile(t)) })
	t.Run("dynamodb", func(t *testing.T) {
		s, _, _ := newTable(t)
		test(t, s)
	})
}

func closeStore(tb testing.TB, s zlimit.Store) {
	tb.Helper()
	check.Error(tb, "Close()", s.Close())
}

func newMemory(tb testing.TB) zlimit.Store {
	tb.Helper()
	s := check.Call(zlimit.Memory()).Must(tb, "zlimit.Memory()")
	tb.Cleanup(func() { closeStore(tb, s) })
	setUp(tb, s)
	return s
}

func newFile(t *testing.T) zlimit.Store {
	t.Helper()
	s := check.Call(zlimit.SQLite(filepath.Join(t.TempDir(), "zlimit.db"))).Must(t, "zlimit.SQLite()")
	t.Cleanup(func() { closeStore(t, s) })
	setUp(t, s)
	return s
}

func setUp(tb testing.TB, s zlimit.Store) {
	tb.Helper()
	check.Fatal(tb, "Setup()", store.Of(s).Setup(context.Background()))
}

// metered is a client that asks for the cost of writes.
type metered struct{ *dynamodb.Client }

func (c metered) UpdateItem(
	ctx context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options),
) (*dynamodb.UpdateItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	return c.Client.UpdateItem(ctx, in, opts...)
}

// newTable returns a store on a new table of the engine, without a stream, and the faulty network between them.
func newTable(tb testing.TB) (s zlimit.Store, table string, faults *enginetest.Faults) {
	tb.Helper()
	engine := enginetest.Start(tb)
	faults = enginetest.NewFaults(engine.Transport())
	client := engine.Client(faults.Attach)
	table = engine.Table(tb)
	input := dynamo.CreateTableInput(table)
	input.StreamSpecification = nil
	if _, err := client.CreateTable(context.Background(), input); err != nil {
		tb.Fatalf("CreateTable() = %v", err)
	}
	return dynamo.New(metered{client}, table), table, faults
}

// newAggregator returns an aggregator that does not pause, at a time long after all changes.
func newAggregator(tb rapid.TB, s zlimit.Store, opts ...Option) *Aggregator {
	tb.Helper()
	later := func() time.Time { return noon.AddDate(10, 0, 0) }
	restless := func(o *options) { o.sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() } }
	return check.Call(New(s, append([]Option{WithClock(later), restless}, opts...)...)).Must(tb, "New()")
}

// shard names a shard of the bucket of entity e and resource r.
func shard(number int) layout.BucketKey {
	return layout.BucketKey{NS: "n", Entity: "e", Resource: "r", Shard: number}
}

// keyOf returns the key of a bucket item, and item the item, which has counted so much of each limit.
func keyOf(s layout.BucketKey) store.Key {
	return store.Key{PK: fmt.Sprintf("%s/BUCKET#%s#%s#%d", s.NS, s.Entity, s.Resource, s.Shard), SK: "#STATE"}
}

func item(s layout.BucketKey, counted map[string]int64) expr.Item {
	it := expr.Item{{Name: "rf", Value: expr.N(1)}, {Name: "shard_count", Value: expr.N(1)}}
	for _, limit := range slices.Sorted(maps.Keys(counted)) {
		if of, ok := strings.CutPrefix(limit, "children#"); ok {
			it = append(it, expr.Attribute{Name: "c_" + of, Value: expr.N(counted[limit])})
			continue
		}
		for field, n := range map[string]int64{"tk": 1, "cp": 1000, "ra": 1000, "rp": 1000, "tc": counted[limit]} {
			it = append(it, expr.Attribute{Name: "b_" + limit + "_" + field, Value: expr.N(n)})
		}
	}
	return keyOf(s).Join(it)
}

// sequence returns the sequence number n.
func sequence(n int) store.Sequence { return store.Sequence(fmt.Sprintf("%040d", n)) }

// change is a change of shard 0 by which a limit was counted from one number to another.
func change(n int, at time.Time, from, to map[string]int64) store.Change {
	c := store.Change{Key: keyOf(shard(0)), Sequence: sequence(n), At: at}
	if from != nil {
		c.Old = item(shard(0), from)
	}
	if to != nil {
		c.New = item(shard(0), to)
	}
	return c
}

// mustApply applies changes, which works.
func mustApply(tb testing.TB, a *Aggregator, changes ...store.Change) {
	tb.Helper()
	if errs := a.apply(context.Background(), changes); errs != nil {
		tb.Fatalf("apply() = %v", errors.Join(errs...))
	}
}

// figures are those of a snapshot, total_events among them, as the table has them.
type figures map[string]string

// snapshotsOf returns the figures of all snapshots of an entity, by the ends of their keys: resource#window_key.
func snapshotsOf(tb rapid.TB, a *Aggregator, entity string) map[string]figures {
	tb.Helper()
	all := map[string]figures{}
	q := store.Query{PK: "n/ENTITY#" + entity, Prefix: "#USAGE#", Consistent: true}
	for {
		page := check.Call(beneath(a).Query(context.Background(), q)).Must(tb, "Query()")
		for _, it := range page.Items {
			f := figures{}
			for _, attribute := range it {
				none := strings.HasPrefix(attribute.Name, "children#") && attribute.Value.Number() == "0"
				if attribute.Value.Kind() == expr.KindN && attribute.Name != "ttl" && !none {
					f[attribute.Name] = attribute.Value.Number()
				}
			}
			all[strings.TrimPrefix(it.Get(store.SK).Text(), "#USAGE#")] = f
		}
		if q.Continue = page.Next; page.Next == nil {
			return all
		}
	}
}

// faulty is a store whose writes may go wrong.
type faulty struct {
	store.Store
	mu     sync.Mutex
	writes int
	// fault is asked before each write, by its number from 1. It returns an error in place of the result, and whether
	// the write is done all the same.
	fault func(n int) (done bool, err error)
}

// beneath returns the store of an aggregator without faults.
func beneath(a *Aggregator) store.Store {
	if f, ok := a.table.Store().(*faulty); ok {
		return f.Store
	}
	return a.table.Store()
}

// inject puts a faulty store under an aggregator.
func inject(a *Aggregator, fault func(n int) (done bool, err error)) *faulty {
	f := &faulty{Store: beneath(a), fault: fault}
	a.table = a.tableOf(f)
	return f
}

// attempt does a write, unless the fault is otherwise.
func (f *faulty) attempt(write func() error) error {
	f.mu.Lock()
	f.writes++
	var done bool
	var err error
	if f.fault != nil {
		done, err = f.fault(f.writes)
	}
	f.mu.Unlock()
	if err == nil || done {
		if failed := write(); failed != nil {
			return failed
		}
	}
	return err
}

func (f *faulty) Write(ctx context.Context, w store.Write) (r store.Result, err error) {
	err = f.attempt(func() (err error) {
		r, err = f.Store.Write(ctx, w)
		return err
	})
	if err != nil {
		return store.Result{}, err
	}
	return r, nil
}

func (f *faulty) Transact(ctx context.Context, writes []store.Write) (r []store.Result, err error) {
	err = f.attempt(func() (err error) {
		r, err = f.Store.Transact(ctx, writes)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

var (
	errDown = errors.New("the store is down")
	errLost = &store.Error{Op: "UpdateItem", Unavailable: true, Unknown: true, Err: errors.New("no answer")}
)
