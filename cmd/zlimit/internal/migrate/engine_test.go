package migrate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/zlimit"
	zdynamo "github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// createOld returns what creates a table of release 0.6: two indexes, and a stream.
func createOld(name string) *dynamodb.CreateTableInput {
	in := &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		StreamSpecification: &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages},
	}
	keys := func(pk, sk string) []types.KeySchemaElement {
		for _, name := range []string{pk, sk} {
			in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{
				AttributeName: aws.String(name), AttributeType: types.ScalarAttributeTypeS,
			})
		}
		return []types.KeySchemaElement{
			{AttributeName: aws.String(pk), KeyType: types.KeyTypeHash}, {AttributeName: aws.String(sk), KeyType: types.KeyTypeRange},
		}
	}
	in.KeySchema = keys("PK", "SK")
	for _, index := range []string{"GSI1", "GSI2"} {
		in.GlobalSecondaryIndexes = append(in.GlobalSecondaryIndexes, types.GlobalSecondaryIndex{
			IndexName: aws.String(index), KeySchema: keys(index+"PK", index+"SK"),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeAll},
		})
	}
	return in
}

type raw = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func number(n int) types.AttributeValue  { return &types.AttributeValueMemberN{Value: strconv.Itoa(n)} }

// oldItem returns item number n of a table of release 0.6. Each entity has five.
func oldItem(n int) raw {
	e := fmt.Sprintf("user-%d", n/5)
	limit := []string{"rpm", "tpm"}[n%2]
	item := raw{"PK": text("ENTITY#" + e), "entity_id": text(e), "resource": text("gpt-4")}
	switch n % 5 {
	case 0:
		item["SK"] = text("#META")
		item["name"], item["created_at"], item["metadata"] = text(e), text("2025-11-02T10:00:00Z"), &types.AttributeValueMemberM{Value: raw{}}
		item["parent_id"], item["cascade"] = text("org-1"), &types.AttributeValueMemberBOOL{Value: true}
		item["GSI1PK"], item["GSI1SK"] = text("PARENT#org-1"), text("CHILD#"+e)
		delete(item, "resource")
	case 1, 2:
		item["SK"], item["limit_name"] = text("#BUCKET#gpt-4#"+limit), text(limit)
		for name, v := range map[string]int{
			"tokens_milli": n * 1000, "last_refill_ms": 1767225600000 + n, "capacity_milli": 1e9, "burst_milli": 2e9, "refill_amount_milli": 1e9,
			"refill_period_ms": 60000, "total_consumed_milli": n, "ttl": 1893456000,
		} {
			item[name] = number(v)
		}
		item["GSI2PK"], item["GSI2SK"] = text("RESOURCE#gpt-4"), text("BUCKET#"+e+"#"+limit)
	case 3:
		item["SK"], item["limit_name"] = text("#LIMIT#gpt-4#"+limit), text(limit)
		item["capacity"], item["burst"], item["refill_amount"], item["refill_period_seconds"] = number(10), number(20), number(10), number(60)
	default:
		item["SK"] = text("#USAGE#gpt-4#2026-01-01T14:00:00Z")
		item["window"], item["window_start"], item["total_events"] = text("hourly"), text("2026-01-01T14:00:00Z"), number(3)
		item["rpm"], item["tpm"], item["ttl"] = number(n), number(7*n), number(1893456000)
		item["GSI2PK"], item["GSI2SK"] = text("RESOURCE#gpt-4"), text("USAGE#2026-01-01T14:00:00Z#"+e)
	}
	return item
}

// fillOld writes items to the old table.
func fillOld(t *testing.T, client *dynamodb.Client, table string, items int) {
	t.Helper()
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for first := worker * 25; first < items; first += 100 {
				var puts []types.WriteRequest
				for n := first; n < min(first+25, items); n++ {
					puts = append(puts, types.WriteRequest{PutRequest: &types.PutRequest{Item: oldItem(n)}})
				}
				out, err := client.BatchWriteItem(t.Context(), &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: puts}})
				if err != nil || len(out.UnprocessedItems) > 0 {
					t.Errorf("BatchWriteItem() = %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

var itemsFlag = flag.Int("migrate.items", 0, "items of the migrations on an engine; 0 for few")

// migrated returns how many items to migrate.
func migrated() int {
	if *itemsFlag > 0 {
		return *itemsFlag
	}
	if testing.Short() {
		return 300
	}
	return 1500
}

// engineTables are an old table of an engine, filled, and a new one.
type engineTables struct {
	t      *testing.T
	client *dynamodb.Client
	items  int
	old    string
	table  string
	config Config
	seed   maphash.Seed
}

func newTables(t *testing.T) *engineTables {
	engine := enginetest.Fresh(t)
	client, streams := engine.Client(), engine.Streams()
	w := &engineTables{t: t, client: client, items: migrated(), old: engine.Table(t), table: engine.Table(t), seed: maphash.MakeSeed()}
	// An engine takes the longer for a write of a table with a stream, the more records its stream has. The old table gets its
	// stream once it is filled, and the new one needs none.
	if _, err := client.CreateTable(t.Context(), withoutStream(createOld)(w.old)); err != nil {
		t.Fatalf("CreateTable() = %v", err)
	}
	fillOld(t, client, w.old, w.items)
	startStream(t, client, w.old)
	target := dynamo.New(client, w.table, layout.Table, withoutStream(zdynamo.CreateTableInput))
	check.Fatal(t, "Setup()", target.Setup(t.Context()))
	w.config = Config{
		Source: dynamo.New(client, w.old, store.Table{TTL: "ttl"}, createOld, dynamo.Streams(streams)), Target: target, SourceName: "dynamodb:" + w.old,
		Rules: Rules{NS: "AAAAAAAAAAA", Windows: Windows}, SchemaVersion: zlimit.SchemaVersion, ClientMinVersion: zlimit.ClientMinVersion, ClientVersion: zlimit.Version,
		Quiet: 2 * time.Second, Poll: 100 * time.Millisecond,
	}
	return w
}

// write consumes until the context ends, and now and then deletes, if it may. It returns the number of writes.
func (w *engineTables) write(ctx context.Context, deletes bool) (n int) {
	for ; ctx.Err() == nil; n++ {
		pk := oldItem(n * 5 % w.items)["PK"]
		_, err := w.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: &w.old, Key: raw{"PK": pk, "SK": text("#BUCKET#gpt-4#rpm")},
			UpdateExpression: aws.String("ADD tokens_milli :n, total_consumed_milli :n"), ExpressionAttributeValues: raw{":n": number(1)},
			ConditionExpression: aws.String("attribute_exists(PK)"),
		})
		if err != nil && ctx.Err() == nil && !errors.As(err, new(*types.ConditionalCheckFailedException)) {
			w.t.Errorf("UpdateItem() = %v", err)
		}
		if deletes && n%50 == 49 {
			if _, err := w.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &w.old, Key: raw{"PK": pk, "SK": text("#META")}}); err != nil && ctx.Err() == nil {
				w.t.Errorf("DeleteItem() = %v", err)
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return n
}

// TestOnEngine migrates a table of an engine by interrupted runs, while programs write it. Afterwards the new table is
// exactly what follows from the old one, and open.
func TestOnEngine(t *testing.T) {
	w := newTables(t)
	c := w.config
	c.Page = 50
	ctx, stop := context.WithCancel(t.Context())
	written := make(chan int)
	go func() { written <- w.write(ctx, true) }()
	interrupted := 0
	for run := 1; ; run++ {
		first, interrupt := context.WithCancel(t.Context())
		c.Report = func(p Progress) {
			if p.Counts[CountRead] > int64(run*w.items/3) {
				interrupt()
			}
		}
		m := check.Call(Start(first, c)).Must(t, "Start()")
		err := m.Copy(first)
		interrupt()
		check.Fatal(t, "Release()", m.Release(t.Context()))
		if err == nil {
			break
		}
		interrupted++
	}
	c.Report = nil
	stop()
	n := <-written
	m := check.Call(Start(t.Context(), c)).Must(t, "Start()")
	v, err := m.Finish(t.Context())
	if err != nil {
		t.Fatalf("Finish() = %v, %+v", err, v)
	}
	t.Logf("%d interruptions, %d writes meanwhile; %d items compared, %v", interrupted, n, v.Items, m.Counts())
	if interrupted == 0 || n == 0 || m.Counts()[CountChanges] == 0 {
		t.Error("nothing came between")
	}
	l := check.Call(zlimit.New(t.Context(), zdynamo.New(w.client, w.table), zlimit.WithSetup())).Must(t, "New() on the target")
	check.Error(t, "Close()", l.Close())
}

// digest returns a digest of the items of a table, except those about the whole table. It does not depend on their order.
func (w *engineTables) digest(s store.Store) (sum uint64, items int) {
	w.t.Helper()
	for q := (store.Scan{Consistent: true}); ; {
		page := check.Call(s.(store.Scanner).Scan(w.t.Context(), q)).Must(w.t, "Scan()")
		for _, item := range page.Items {
			if store.KeyOf(item).PK == ownPartition {
				continue
			}
			slices.SortFunc(item, func(a, b expr.Attribute) int { return strings.Compare(a.Name, b.Name) })
			sum += maphash.String(w.seed, fmt.Sprint(item))
			items++
		}
		if q.Continue = page.Next; page.Next == nil {
			return sum, items
		}
	}
}

// spent compares capacity units with what the plan said of them.
func (w *engineTables) spent(step string, plan, got store.Units) {
	w.t.Helper()
	for _, of := range []struct {
		what      string
		plan, got float64
	}{{"read", plan.Read, got.Read}, {"write", plan.Write, got.Write}} {
		if of.plan == 0 {
			continue
		}
		w.t.Logf("%s: %.0f %s units, %.3f of the plan", step, of.got, of.what, of.got/of.plan)
		if math.Abs(of.got/of.plan-1) > 0.05 {
			w.t.Errorf("%s: %.0f %s units, the plan said %.0f", step, of.got, of.what, of.plan)
		}
	}
}

// unitsOf returns the units of counts, without those of earlier ones.
func unitsOf(after, before Counts) store.Units {
	return store.Units{
		Read: float64(after[CountReadUnits]-before[CountReadUnits]) / 1000, Write: float64(after[CountWriteUnits]-before[CountWriteUnits]) / 1000,
	}
}

// TestLargeOnEngine migrates a table while programs write it, and compares units and items with the plan. A second run
// writes nothing, and neither does a copy from the start. This migrates 100,000 items, and reports the time:
//
//	make test PKG=./cmd/zlimit/internal/migrate TESTFLAGS='-run LargeOnEngine -v -migrate.items 100000'
func TestLargeOnEngine(t *testing.T) {
	w := newTables(t)
	plan := check.Call(MakePlan(t.Context(), w.config, 2000)).Must(t, "MakePlan()")
	t.Logf("plan: %d items, all read: %t, %d to write; copy %.0f, compare %.0f", plan.Items, plan.Exact, plan.Targets, plan.Copy, plan.Verify)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	written := make(chan int)
	go func() { written <- w.write(ctx, false) }()

	began := time.Now()
	m, err := Start(t.Context(), w.config)
	if err == nil {
		err = m.Copy(t.Context())
	}
	check.Fatal(t, "Start()", err)
	copied := m.Counts()
	t.Logf("%d items copied in %v", copied[CountRead], time.Since(began))
	w.spent("copy", plan.Copy, unitsOf(copied, nil))
	if copied[CountRead] != int64(w.items) || copied[CountWritten] != plan.Targets {
		t.Errorf("%d items read, %d written, the plan said %d and %d", copied[CountRead], copied[CountWritten], plan.Items, plan.Targets)
	}

	stop()
	writes := <-written
	began = time.Now()
	check.Fatal(t, "CatchUp()", m.CatchUp(t.Context()))
	followed := m.Counts()
	t.Logf("%d writes meanwhile; %d changes, %d items replaced, in %v, %.0f", writes, followed[CountChanges], followed[CountReplaced], time.Since(began), unitsOf(followed, copied))
	if followed[CountChanges] == 0 {
		t.Error("nothing was written meanwhile")
	}
	began = time.Now()
	v, err := m.Verify(t.Context())
	if err != nil || !v.Exact() || v.Items != plan.Targets {
		t.Fatalf("Verify() = %+v, %v", v, err)
	}
	t.Logf("%d items compared in %v", v.Items, time.Since(began))
	w.spent("compare", plan.Verify, unitsOf(m.Counts(), followed))
	check.Fatal(t, "Release()", m.Release(t.Context()))

	sum, items := w.digest(w.config.Target)
	for _, again := range []string{"a second run", "a copy from the start"} {
		began := time.Now()
		m := check.Call(Start(t.Context(), w.config)).Must(t, "Start()")
		before := m.Counts()
		if again == "a copy from the start" {
			if err := m.restart(t.Context()); !errors.Is(err, ErrGap) {
				t.Fatalf("restart() = %v", err)
			}
		}
		if err := errors.Join(m.Copy(t.Context()), m.CatchUp(t.Context()), m.Release(t.Context())); err != nil {
			t.Fatalf("Copy() and CatchUp() and Release() = %v", err)
		}
		after := m.Counts()
		t.Logf("%s: %d items read, in %v; %.0f", again, after[CountRead]-before[CountRead], time.Since(began), unitsOf(after, before))
		for _, name := range []string{CountWritten, CountReplaced, CountDeleted} {
			if after[name] != before[name] {
				t.Errorf("%s: %s: %d, before it %d", again, name, after[name], before[name])
			}
		}
		if got, n := w.digest(w.config.Target); got != sum || n != items {
			t.Errorf("%s changed items: %d, before it %d", again, n, items)
		}
	}
}

var everyFlag = flag.Int("migrate.every", 0, "a migration on an engine is killed at one of so many of its calls; 1 for each, 0 for few")

// killsOfEngine is how often runs are killed on one engine.
const killsOfEngine = 10

// TestKilledOnEngine is TestKilled on tables of an engine, for some of the calls, which are the same in each run of the test.
// This takes all of them:
//
//	make test PKG=./cmd/zlimit/internal/migrate TESTFLAGS='-run KilledOnEngine -v -migrate.every 1'
func TestKilledOnEngine(t *testing.T) {
	every := *everyFlag
	if every == 0 {
		if every = soak.Pick(120, 40); testing.Short() {
			every = 120
		}
	}
	for i, release := range releases {
		for _, way := range []string{"to a new table", "in place"} {
			t.Run(way+"/"+release, func(t *testing.T) {
				t.Parallel()
				enginetest.Start(t) // without engines, there is nothing to kill
				killed := 0
				// Calls are before and after in turn, and others for each layout.
				for at, dead := 1+i*7%every, true; dead && !t.Failed(); {
					t.Run(fmt.Sprintf("from call %d", at), func(t *testing.T) {
						engine := enginetest.Fresh(t) // which is the slower, the more it was used
						for range killsOfEngine {
							for _, after := range []bool{false, true} {
								if every > 1 && after != (at/every%2 == 0) {
									continue
								}
								t.Run(fmt.Sprintf("call %d, after=%t", at, after), func(t *testing.T) {
									if dead = newTestbedOnEngine(t, engine, release, way == "in place").killed(at, after); dead {
										killed++
									}
								})
							}
							if at += every; !dead || t.Failed() {
								return
							}
						}
					})
				}
				t.Logf("killed at %d calls", killed)
				if killed == 0 {
					t.Error("no run was killed")
				}
			})
		}
	}
}

// withoutStream returns what creates a table as another function does, except its stream.
func withoutStream(create func(string) *dynamodb.CreateTableInput) func(string) *dynamodb.CreateTableInput {
	return func(name string) *dynamodb.CreateTableInput {
		in := create(name)
		in.StreamSpecification = nil
		return in
	}
}

// startStream turns the stream of a table on.
func startStream(t *testing.T, client *dynamodb.Client, table string) {
	t.Helper()
	stream := createOld(table).StreamSpecification
	if _, err := client.UpdateTable(t.Context(), &dynamodb.UpdateTableInput{TableName: &table, StreamSpecification: stream}); err != nil {
		t.Fatalf("UpdateTable() = %v", err)
	}
}

// newTestbedOnEngine returns a testbed of tables of an engine. Its time goes on by pauses alone, which take none. The
// stream of the old table has no change from before its migration, so the copy has to be right.
func newTestbedOnEngine(t *testing.T, engine *enginetest.Engine, release string, inPlace bool) *testbed {
	client, old := engine.Client(), engine.Table(t)
	newTable := func(name string, create func(string) *dynamodb.CreateTableInput) tableStore {
		s := dynamo.New(client, name, layout.Table, withoutStream(create), dynamo.Streams(engine.Streams()), dynamo.ReadInterval(time.Nanosecond))
		check.Fatal(t, "Setup()", s.Setup(t.Context()))
		return s
	}
	var w *testbed
	if inPlace {
		w = newTestbedIn(t, release, newTable(old, zdynamo.CreateTableInput))
	} else {
		w = newTestbedOn(t, release, newTable(old, createOld), newTable(engine.Table(t), zdynamo.CreateTableInput))
	}
	startStream(t, client, old)
	w.tune = func(c *Config) {
		var mu sync.Mutex
		now := time.Now()
		c.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
		c.Sleep = func(ctx context.Context, d time.Duration) error {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(d)
			return ctx.Err()
		}
		c.Quiet = 3 * time.Second
	}
	return w
}
