package dynamo_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
)

func timeToLive(t *testing.T, engine *enginetest.Engine, table string) (string, types.TimeToLiveStatus) {
	t.Helper()
	out, err := engine.Client().DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: &table})
	check.Fatal(t, "DescribeTimeToLive()", err)
	name := ""
	if out.TimeToLiveDescription.AttributeName != nil {
		name = *out.TimeToLiveDescription.AttributeName
	}
	return name, out.TimeToLiveDescription.TimeToLiveStatus
}

func TestSetupTurnsOnExpiry(t *testing.T) {
	engine := enginetest.Start(t)
	table := engine.Table(t)
	faults := enginetest.NewFaults(engine.Transport())
	s := dynamo.New(engine.Client(faults.Attach), table, storetest.Table, enginetest.CreateSuiteTable)
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	if name, status := timeToLive(t, engine, table); name != "ttl" || status != types.TimeToLiveStatusEnabled {
		t.Errorf("after Setup items expire by %q: %s", name, status)
	}
	faults.Reset()
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	if faults.Calls("") != 2 || faults.Calls("DescribeTable") != 1 || faults.Calls("DescribeTimeToLive") != 1 {
		t.Errorf("Setup of a finished table made %d calls, want a DescribeTable and a DescribeTimeToLive", faults.Calls(""))
	}
}

// TestSetupFinishesWhatAnotherBegan sets up a table without expiry, as a process leaves it when it ends half-way.
func TestSetupFinishesWhatAnotherBegan(t *testing.T) {
	engine := enginetest.Start(t)
	table := engine.Table(t)
	if _, err := engine.Client().CreateTable(t.Context(), enginetest.CreateSuiteTable(table)); err != nil {
		t.Fatalf("CreateTable() = %v", err)
	}
	s := dynamo.New(engine.Client(), table, storetest.Table, enginetest.CreateSuiteTable)
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	if name, status := timeToLive(t, engine, table); name != "ttl" || status != types.TimeToLiveStatusEnabled {
		t.Errorf("after Setup items expire by %q: %s", name, status)
	}
}

// TestSetupLeavesATableAsItIs sets up a table with fewer indexes.
func TestSetupLeavesATableAsItIs(t *testing.T) {
	engine := enginetest.Start(t)
	table := engine.Table(t)
	small := func(name string) *dynamodb.CreateTableInput {
		in := enginetest.CreateSuiteTable(name)
		in.AttributeDefinitions, in.GlobalSecondaryIndexes, in.LocalSecondaryIndexes = in.AttributeDefinitions[:2], nil, nil
		return in
	}
	check.Fatal(t, "Setup()", dynamo.New(engine.Client(), table, store.Table{}, small).Setup(t.Context()))
	if name, status := timeToLive(t, engine, table); status != types.TimeToLiveStatusDisabled {
		t.Errorf("without a TTL attribute items expire by %q: %s", name, status)
	}
	check.Fatal(t, "Setup()", dynamo.New(engine.Client(), table, storetest.Table, enginetest.CreateSuiteTable).Setup(t.Context()))
	out, err := engine.Client().DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &table})
	check.Fatal(t, "DescribeTable()", err)
	if n := len(out.Table.GlobalSecondaryIndexes); n != 0 {
		t.Errorf("Setup added %d indexes to an existing table", n)
	}
}

func TestSetupByManyAtOnce(t *testing.T) {
	engine := enginetest.Start(t)
	table := engine.Table(t)
	var group errgroup.Group
	for range 8 {
		group.Go(func() error {
			return dynamo.New(engine.Client(), table, storetest.Table, enginetest.CreateSuiteTable).Setup(t.Context())
		})
	}
	check.Error(t, "Setup()", group.Wait())
}

// TestSetupWaits follows a table that is created slowly, and is not seen at first.
func TestSetupWaits(t *testing.T) {
	table := func(status, index string) reply {
		return reply{status: 200, body: fmt.Sprintf(`{"Table":{"TableName":"table","TableStatus":%q,"GlobalSecondaryIndexes":[{"IndexName":"ByOwner","IndexStatus":%q}]}}`, status, index)}
	}
	missing := reply{status: 400, body: exception("ResourceNotFoundException")}
	s, sent := scripted(
		missing,
		reply{status: 200, body: `{"TableDescription":{"TableName":"table","TableStatus":"CREATING"}}`},
		missing, table("CREATING", "CREATING"), table("ACTIVE", "CREATING"), table("ACTIVE", "ACTIVE"),
		reply{status: 200, body: `{"TimeToLiveDescription":{"TimeToLiveStatus":"DISABLED"}}`},
		reply{status: 400, body: exception("ValidationException")}, // on already
		reply{status: 200, body: `{"TimeToLiveDescription":{"TimeToLiveStatus":"ENABLING","AttributeName":"ttl"}}`},
	)
	if err := s.Setup(t.Context()); err != nil || len(sent.requests) != 9 {
		t.Errorf("Setup() = %v after %d requests, want 9", err, len(sent.requests))
	}

	// An engine that knows no expiry will do.
	s, _ = scripted(table("ACTIVE", "ACTIVE"), reply{status: 400, body: exception("UnknownOperationException")})
	if err := s.Setup(t.Context()); err != nil {
		t.Errorf("Setup() on an engine without expiry = %v", err)
	}
	s, _ = scripted(reply{status: 400, body: exception("AccessDeniedException")})
	expectVerdict(t, "Setup() without permission", s.Setup(t.Context()), refusal)
}

// TestPages reads more than DynamoDB returns at once.
func TestPages(t *testing.T) {
	engine := enginetest.Start(t)
	faults := enginetest.NewFaults(engine.Transport())
	s := dynamo.New(engine.Client(faults.Attach), engine.Table(t), storetest.Table, enginetest.CreateSuiteTable)
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	const items = 60 // of 300 KB: 1 MB in a page, 16 MB in a batch
	text := strings.Repeat("x", 300_000)
	var keys []store.Key
	for i := range items {
		k := store.Key{PK: "p", SK: fmt.Sprintf("%02d", i)}
		keys = append(keys, k)
		if _, err := s.Write(t.Context(), store.Write{Kind: store.Put, Key: k, Item: storetest.Item("text", text)}); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
	got := 0
	q := store.Query{PK: "p"}
	for {
		page := check.Call(s.Query(t.Context(), q)).Must(t, "Query()")
		for _, item := range page.Items {
			if sk := item.Get("SK").Text(); sk != keys[got].SK {
				t.Fatalf("item %d is %s", got, sk)
			}
			got++
		}
		if q.Continue = page.Next; q.Continue == nil {
			break
		}
	}
	if got != items || faults.Calls("Query") < 10 {
		t.Errorf("%d items in %d pages, want %d in many", got, faults.Calls("Query"), items)
	}
	all := check.Call(s.Read(t.Context(), keys, true)).Must(t, "Read()")
	for i, item := range all {
		if store.KeyOf(item) != keys[i] || len(item.Get("text").Text()) != len(text) {
			t.Errorf("Read: item %d is %v", i, store.KeyOf(item))
		}
	}
	if n := faults.Calls("BatchGetItem"); n != 2 {
		t.Errorf("Read of 18 MB made %d calls, want 2", n)
	}
}

// TestConsumedCapacity pins what the methods cost in capacity units, as their comments state it. A store that counts
// the units of a call finds the same, by the SDK and by the wire path.
func TestConsumedCapacity(t *testing.T) {
	engine := enginetest.Start(t)
	faults := enginetest.NewFaults(engine.Transport())
	table := engine.Table(t)
	open := func(options ...dynamo.Option) *dynamo.Store {
		return dynamo.New(engine.Client(faults.Attach), table, storetest.Table, enginetest.CreateSuiteTable, options...)
	}
	asking, own, sdk := open(dynamo.ConsumedCapacity()), open(), open(dynamo.WithoutWire())
	check.Fatal(t, "Setup()", asking.Setup(t.Context()))
	fill := storetest.Item("n", 0, "owner", "o", "since", "s")
	for k, item := range map[store.Key]expr.Item{one: fill, two: fill[:1]} {
		if _, err := asking.Write(t.Context(), store.Write{Kind: store.Put, Key: k, Item: item}); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
	type call func(context.Context, *dynamo.Store) error
	write := func(writes ...store.Write) call {
		return func(ctx context.Context, s *dynamo.Store) error {
			if len(writes) == 1 {
				_, err := s.Write(ctx, writes[0])
				return err
			}
			_, err := s.Transact(ctx, writes)
			return err
		}
	}
	read := func(consistent bool, keys ...store.Key) call {
		return func(ctx context.Context, s *dynamo.Store) error { _, err := s.Read(ctx, keys, consistent); return err }
	}
	query := func(ctx context.Context, s *dynamo.Store) error {
		_, err := s.Query(ctx, store.Query{PK: "p"})
		return err
	}
	ping := func(ctx context.Context, s *dynamo.Store) error { return s.Ping(ctx) }
	remove := func(ctx context.Context, s *dynamo.Store) error { return s.Delete(ctx, []store.Key{three}) }
	check := store.Write{Kind: store.Check, Key: one, Expr: storetest.Bind(t, []expr.Condition{expr.Exists(expr.Attr("n"))}, nil)}
	for _, test := range []struct {
		name string
		do   call
		want enginetest.Units
	}{
		// ByOwner projects all attributes: the entry is written with every count.
		{"Update of what an index projects", write(count(t, one)), enginetest.Units{Write: 2}},
		{"Update", write(count(t, two)), enginetest.Units{Write: 1}},
		{"Put", write(store.Write{Kind: store.Put, Key: two, Item: fill[:1]}), enginetest.Units{Write: 1}},
		{"Delete", write(store.Write{Kind: store.Delete, Key: three}), enginetest.Units{Write: 1}},
		{"Check", write(check), enginetest.Units{Read: 1}},
		{"Transact", write(check, count(t, two)), enginetest.Units{Write: 4}},
		{"Read", read(false, one), enginetest.Units{Read: 0.5}},
		{"Read, consistent", read(true, one), enginetest.Units{Read: 1}},
		{"Read of nothing", read(false, three), enginetest.Units{Read: 0.5}},
		{"Read of two, one of them twice", read(false, one, two, one), enginetest.Units{Read: 1}},
		{"Query", query, enginetest.Units{Read: 0.5}},
		{"Ping", ping, enginetest.Units{Read: 0.5}},
		{"Delete of many", remove, enginetest.Units{Write: 1}},
	} {
		for by, s := range map[string]*dynamo.Store{"a store that asks": asking, "the wire path": own, "the SDK": sdk} {
			faults.Reset()
			if err := test.do(t.Context(), s); err != nil {
				t.Errorf("%s by %s = %v", test.name, by, err)
			}
			want := test.want
			if s != asking {
				want = enginetest.Units{}
			}
			if got := faults.Capacity("").Units; got != want {
				t.Errorf("%s by %s consumed %+v, want %+v", test.name, by, got, want)
			}
			if calls := faults.Calls(""); calls != 1 {
				t.Errorf("%s by %s made %d calls, want 1", test.name, by, calls)
			}
			var units store.Units
			if err := test.do(store.CountUnits(t.Context(), &units), s); err != nil {
				t.Errorf("%s by %s, counted = %v", test.name, by, err)
			}
			if got := enginetest.Units(units); got != test.want {
				t.Errorf("%s by %s counted %+v, want %+v", test.name, by, got, test.want)
			}
		}
	}
}

// TestSetupTurnsOnTheStream sets up a table without a stream, as a restored backup is.
func TestSetupTurnsOnTheStream(t *testing.T) {
	engine := enginetest.Start(t)
	table := engine.Table(t)
	if _, err := engine.Client().CreateTable(t.Context(), enginetest.CreateSuiteTable(table)); err != nil {
		t.Fatalf("CreateTable() = %v", err)
	}
	s := dynamo.New(engine.Client(), table, storetest.Table, createWithStream)
	for range 2 { // the second time it is on
		check.Fatal(t, "Setup()", s.Setup(t.Context()))
		out, err := engine.Client().DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &table})
		check.Fatal(t, "DescribeTable()", err)
		if got := out.Table.StreamSpecification; got == nil || !*got.StreamEnabled || got.StreamViewType != types.StreamViewTypeNewAndOldImages {
			t.Errorf("after Setup the stream is %+v, want both images", got)
		}
	}
}

// TestSetupWithoutPermissionForTheStream may not change the table: limits work without a stream.
func TestSetupWithoutPermissionForTheStream(t *testing.T) {
	engine := enginetest.Start(t)
	table := engine.Table(t)
	if _, err := engine.Client().CreateTable(t.Context(), enginetest.CreateSuiteTable(table)); err != nil {
		t.Fatalf("CreateTable() = %v", err)
	}
	client := &frozenClient{Client: engine.Client()}
	log := &strings.Builder{}
	s := dynamo.New(client, table, storetest.Table, createWithStream, dynamo.Logger(slog.New(slog.NewTextHandler(log, nil))))
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	if client.asked != 1 || !strings.Contains(log.String(), "stream of the table is off") {
		t.Errorf("%d updates of the table were tried, and the log says %q", client.asked, log)
	}
}

// createWithStream creates a table of the tests with a stream of both images.
func createWithStream(table string) *dynamodb.CreateTableInput {
	in := enginetest.CreateSuiteTable(table)
	in.StreamSpecification = &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages}
	return in
}

// A frozenClient may not change tables.
type frozenClient struct {
	dynamo.Client
	asked int
}

func (c *frozenClient) UpdateTable(context.Context, *dynamodb.UpdateTableInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateTableOutput, error) {
	c.asked++
	return nil, &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "not authorized to perform dynamodb:UpdateTable"}
}

// TestSetupWith creates a table with settings, and leaves them alone afterwards.
func TestSetupWith(t *testing.T) {
	engine := enginetest.Start(t)
	table := engine.Table(t)
	log := &strings.Builder{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	client := &notingClient{Client: engine.Client()}
	s := dynamo.New(client, table, storetest.Table, enginetest.CreateSuiteTable)
	settings := store.TableSettings{DeletionProtection: true, MaxReadUnits: 7000, MaxWriteUnits: 5000, WarmWriteUnits: 8000}
	check.Fatal(t, "SetupWith()", s.SetupWith(t.Context(), settings, logger))
	if in := client.created; in == nil || !*in.DeletionProtectionEnabled || *in.OnDemandThroughput.MaxWriteRequestUnits != 5000 ||
		*in.OnDemandThroughput.MaxReadRequestUnits != 7000 || *in.WarmThroughput.ReadUnitsPerSecond != 12_000 || *in.WarmThroughput.WriteUnitsPerSecond != 8000 {
		t.Fatalf("the table is created as %+v", in)
	}
	if len(client.created.GlobalSecondaryIndexes) == 0 {
		t.Fatal("the table of the test has no index")
	}
	for _, x := range client.created.GlobalSecondaryIndexes {
		if *x.WarmThroughput.WriteUnitsPerSecond != 8000 || *x.OnDemandThroughput.MaxReadRequestUnits != 7000 {
			t.Errorf("index %s is created with %+v and %+v", *x.IndexName, x.WarmThroughput, x.OnDemandThroughput)
		}
	}
	if log.Len() > 0 {
		t.Errorf("a table that is created by its settings is logged: %s", log)
	}
	client.created = nil
	client.described = func(d *types.TableDescription) {
		d.DeletionProtectionEnabled, d.OnDemandThroughput = aws.Bool(false), nil
	}
	check.Fatal(t, "SetupWith()", s.SetupWith(t.Context(), settings, logger))
	if client.created != nil {
		t.Error("Setup of a table that exists creates one")
	}
	if text := log.String(); strings.Count(text, "left as it is") != 1 || !strings.Contains(text, "deletion protection") || !strings.Contains(text, "ceilings") {
		t.Errorf("Setup of a table with other settings logs %q", text)
	}
}

// A notingClient notes how a table is created, and may describe it as another one.
type notingClient struct {
	dynamo.Client
	created   *dynamodb.CreateTableInput
	described func(*types.TableDescription)
}

func (c *notingClient) CreateTable(ctx context.Context, in *dynamodb.CreateTableInput, options ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	c.created = in
	return c.Client.CreateTable(ctx, in, options...)
}

func (c *notingClient) DescribeTable(ctx context.Context, in *dynamodb.DescribeTableInput, options ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	out, err := c.Client.DescribeTable(ctx, in, options...)
	if err == nil && c.described != nil {
		c.described(out.Table)
	}
	return out, err
}
