package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/enginetest"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/migrate"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/zlimit"
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

// migrated returns how many items to migrate: ZLIMIT_MIGRATE_ITEMS, or few.
func migrated() int {
	if n, err := strconv.Atoi(os.Getenv("ZLIMIT_MIGRATE_ITEMS")); err == nil {
		return n
	}
	if testing.Short() {
		return 300
	}
	return 1500
}

// tables are an old table of an engine, filled, and a new one.
type tables struct {
	t      *testing.T
	client *dynamodb.Client
	items  int
	old    string
	table  string
	config migrate.Config
}

func newTables(t *testing.T) *tables {
	engine := enginetest.Fresh(t)
	client, streams := engine.Client(), engine.Streams()
	w := &tables{t: t, client: client, items: migrated(), old: engine.Table(t), table: engine.Table(t)}
	if _, err := client.CreateTable(t.Context(), createOld(w.old)); err != nil {
		t.Fatal(err)
	}
	fillOld(t, client, w.old, w.items)
	target := dynamo.New(client, w.table, layout.Table, zlimit.CreateTableInput, dynamo.Streams(streams))
	if err := target.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.config = migrate.Config{
		Source: dynamo.New(client, w.old, store.Table{TTL: "ttl"}, createOld, dynamo.Streams(streams)), Target: target, SourceName: "dynamodb:" + w.old,
		Rules: migrate.Rules{NS: "AAAAAAAAAAA", Windows: migrate.Windows}, SchemaVersion: zlimit.SchemaVersion, ClientMinVersion: zlimit.ClientMinVersion,
		Quiet: 2 * time.Second, Poll: 100 * time.Millisecond,
	}
	return w
}

// write consumes, and now and then deletes, until the context ends. It returns the number of writes.
func (w *tables) write(ctx context.Context) (n int) {
	for ; ctx.Err() == nil; n++ {
		pk := oldItem(n * 5 % w.items)["PK"]
		_, err := w.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: &w.old, Key: raw{"PK": pk, "SK": text("#BUCKET#gpt-4#rpm")},
			UpdateExpression: aws.String("ADD tokens_milli :n, total_consumed_milli :n"), ExpressionAttributeValues: raw{":n": number(1)},
			ConditionExpression: aws.String("attribute_exists(PK)"),
		})
		var missing *types.ConditionalCheckFailedException
		if err != nil && ctx.Err() == nil && !errors.As(err, &missing) {
			w.t.Errorf("UpdateItem() = %v", err)
		}
		if n%50 == 49 {
			if _, err := w.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &w.old, Key: raw{"PK": pk, "SK": text("#META")}}); err != nil && ctx.Err() == nil {
				w.t.Errorf("DeleteItem() = %v", err)
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return n
}

// TestOnEngine migrates a table of an engine that programs write meanwhile, by runs that are interrupted. Afterwards the
// new table is exactly what follows from the old one, and open.
func TestOnEngine(t *testing.T) {
	w := newTables(t)
	c := w.config
	c.Page = 50
	ctx, stop := context.WithCancel(t.Context())
	written := make(chan int)
	go func() { written <- w.write(ctx) }()
	interrupted := 0
	for run := 1; ; run++ {
		first, interrupt := context.WithCancel(t.Context())
		c.Report = func(p migrate.Progress) {
			if p.Counts[migrate.CountRead] > int64(run*w.items/3) {
				interrupt()
			}
		}
		m, err := migrate.Start(first, c)
		if err != nil {
			t.Fatal(err)
		}
		err = m.Copy(first)
		interrupt()
		if err := m.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			break
		}
		interrupted++
	}
	c.Report = nil
	stop()
	n := <-written
	m, err := migrate.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	v, err := m.Finish(t.Context())
	if err != nil {
		t.Fatalf("Finish() = %v, %+v", err, v)
	}
	t.Logf("%d interruptions, %d writes meanwhile; %d items compared, %v", interrupted, n, v.Items, m.Counts())
	if interrupted == 0 || n == 0 || m.Counts()[migrate.CountChanges] == 0 {
		t.Error("nothing came between")
	}
	l, err := zlimit.New(t.Context(), zlimit.DynamoDB(w.client, w.table), zlimit.WithSetup())
	if err != nil {
		t.Fatalf("New() on the target = %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestUnitsOnEngine compares the units and the items of a copy with what the plan said, and tells the time.
// ZLIMIT_MIGRATE_ITEMS chooses the number of items.
func TestUnitsOnEngine(t *testing.T) {
	w := newTables(t)
	plan, err := migrate.MakePlan(t.Context(), w.config, 2000)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("plan: %d items, all read %t, %d to write; copy %.0f, compare %.0f", plan.Items, plan.Exact, plan.Targets, plan.Copy, plan.Verify)
	began := time.Now()
	m, err := migrate.Start(t.Context(), w.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Copy(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts := m.Counts()
	t.Logf("%d items copied in %v", counts[migrate.CountRead], time.Since(began))
	if counts[migrate.CountRead] != int64(w.items) || math.Abs(float64(counts[migrate.CountWritten])/float64(plan.Targets)-1) > 0.05 {
		t.Errorf("%d items read, %d written, the plan said %d and %d", counts[migrate.CountRead], counts[migrate.CountWritten], plan.Items, plan.Targets)
	}
	for _, of := range []struct {
		what      string
		plan, got float64
	}{
		{"read", plan.Copy.Read, float64(counts[migrate.CountReadUnits]) / 1000},
		{"write", plan.Copy.Write, float64(counts[migrate.CountWriteUnits]) / 1000},
	} {
		t.Logf("%s units: %.1f, %.3f of the plan", of.what, of.got, of.got/of.plan)
		if math.Abs(of.got/of.plan-1) > 0.1 {
			t.Errorf("%s units: %.1f, the plan said %.1f", of.what, of.got, of.plan)
		}
	}
	began = time.Now()
	v, err := m.Verify(t.Context())
	if err != nil || !v.Exact() {
		t.Fatalf("Verify() = %+v, %v", v, err)
	}
	t.Logf("%d items compared in %v", v.Items, time.Since(began))
}
