package stack_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/cfn"
	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/deploy/customresource"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/iam"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

func writeJSON(t *testing.T, path string, v any) {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	check.Fatal(t, "json.MarshalIndent()", err)
}

// A testbed is a table that an administrator has set up, and a client of the program under test, which is recorded.
type testbed struct {
	*testing.T
	table     string
	raw       *dynamodb.Client // neither recorded nor disturbed
	client    *dynamodb.Client
	recorder  *recorder
	faults    *enginetest.Faults
	admin     *zlimit.RateLimiter
	namespace string // ID of the default one
	ms        atomic.Int64
}

var limits = []zlimit.Limit{zlimit.PerMinute("rpm", 1000), zlimit.PerDay("tpd", 10_000)}

func newTestbed(t *testing.T) *testbed {
	t.Helper()
	engine := enginetest.Start(t)
	w := &testbed{T: t, table: engine.Table(t), raw: engine.Client()}
	w.ms.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMilli())
	w.faults = enginetest.NewFaults(engine.Transport())
	w.recorder = &recorder{base: w.faults, table: w.table}
	w.client = engine.Client(func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: w.recorder} })
	w.admin = w.limiter(w.raw, zlimit.WithSetup())
	ns := check.Call(w.admin.Namespaces.Get(t.Context(), zlimit.DefaultNamespace)).Must(w, "Namespaces.Get()")
	w.namespace = ns.ID
	check.Fatal(w, "Limits.Set()", w.admin.Limits.Set(t.Context(), zlimit.Level{}, zlimit.Config{Limits: limits}))
	for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "key", ParentID: "team", Cascade: true}, {ID: "loner"}} {
		check.Call(w.admin.Entities.Create(t.Context(), e)).Must(w, "Entities.Create()")
	}
	return w
}

func (w *testbed) now() time.Time        { return time.UnixMilli(w.ms.Load()).UTC() }
func (w *testbed) sleep(d time.Duration) { w.ms.Add(d.Milliseconds()) }

// limiter returns a limiter by a client, which the test closes.
func (w *testbed) limiter(client *dynamodb.Client, opts ...zlimit.Option) *zlimit.RateLimiter {
	w.Helper()
	opts = append([]zlimit.Option{zlimit.WithClock(w.now), zlimit.WithPrincipal("test")}, opts...)
	l := check.Call(zlimit.New(w.Context(), dynamo.New(client, w.table), opts...)).Must(w, "zlimit.New()")
	w.Cleanup(func() {
		check.Error(w, "Close()", l.Close())
	})
	return l
}

// isOwn reports whether a tenant of the default namespace may make a call: in its namespace all, in the registry reads by
// key.
func (w *testbed) isOwn(q iam.Request) bool {
	for _, k := range q.Context[leadingKeys] {
		switch {
		case k == w.namespace, strings.HasPrefix(k, w.namespace+"/"):
		case strings.HasPrefix(k, "_/PING#") && q.Action == "dynamodb:GetItem":
		case k == "_/SYSTEM#" && (q.Action == "dynamodb:GetItem" || q.Action == "dynamodb:BatchGetItem"):
		default:
			return false
		}
	}
	return len(q.Context[leadingKeys]) > 0
}

// shards returns how many shards the bucket of an entity has.
func (w *testbed) shards(entity string) (n int) {
	w.Helper()
	prefix := w.namespace + "/BUCKET#" + entity + "#gpt-4#"
	out := check.Call(w.raw.Scan(w.Context(), &dynamodb.ScanInput{TableName: &w.table})).Must(w, "Scan()")
	for _, item := range out.Items {
		if pk, ok := item["PK"].(*types.AttributeValueMemberS); ok && strings.HasPrefix(pk.Value, prefix) {
			n++
		}
	}
	return n
}

// until tries something again and again until the bucket of an entity has so many shards.
func (w *testbed) until(entity string, shards int, try func()) {
	w.Helper()
	for range 200 {
		if w.shards(entity) == shards {
			return
		}
		try()
		time.Sleep(5 * time.Millisecond) // resizing is done in the background
	}
	w.Fatalf("the bucket of %s has %d shards, want %d", entity, w.shards(entity), shards)
}

// acquires is a program that acquires: new and known buckets, parents, corrections, rejections, a bucket that splits and
// merges. It reports its rejections and what budgets come to.
func acquires(_ *testing.T, w *testbed) {
	acquireWith(w, w.limiter(w.client))
	reportWith(w, w.client)
}

// reportWith reports a rejection and an alert.
func reportWith(w *testbed, client *dynamodb.Client) {
	w.Helper()
	ignore := func(context.Context, zlimit.BudgetAlert) error { return nil }
	opts := []zlimit.Option{zlimit.WithClock(w.now), zlimit.WithBudgetAlerts(ignore, 50), zlimit.WithRejectionReports(zlimit.RejectionReports{})}
	month := zlimit.Config{Limits: []zlimit.Limit{zlimit.Monthly("month", 10, "UTC")}}
	check.Fatal(w, "Limits.Set()", w.admin.Limits.Set(w.Context(), zlimit.Level{Entity: "budget", Resource: "gpt-4"}, month))
	l := check.Call(zlimit.New(w.Context(), dynamo.New(client, w.table), opts...)).Must(w, "zlimit.New()")
	r := zlimit.Request{Entity: "budget", Resource: "gpt-4", Consume: zlimit.Amounts{"month": 6}}
	_, err := l.Acquire(w.Context(), r)
	check.Fatal(w, "Acquire()", err)
	if _, err = l.Acquire(w.Context(), r); !errors.As(err, new(*zlimit.ExceededError)) {
		w.Fatalf("Acquire() of a budget that is used up = %v", err)
	}
	check.Fatal(w, "Close()", l.Close()) // which reports
}

func acquireWith(w *testbed, l *zlimit.RateLimiter) {
	w.Helper()
	ctx := w.Context()
	check.Fatal(w, "Ping()", l.Ping(ctx))
	for range 2 {
		lease, err := l.Acquire(ctx, zlimit.Request{Entity: "key", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1, "tpd": 100}})
		check.Fatal(w, "Acquire()", err)
		check.Fatal(w, "Consume() and Adjust() and Commit()", errors.Join(lease.Consume(ctx, zlimit.Amounts{"tpd": 5}), lease.Adjust(zlimit.Amounts{"tpd": -50}), lease.Commit(ctx)))
		lease, err = l.Acquire(ctx, zlimit.Request{Entity: "loner", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
		check.Fatal(w, "Acquire()", err)
		check.Fatal(w, "Rollback()", lease.Rollback(ctx))
		settleWith(w, l)
		for range 2 {
			_, err = l.Acquire(ctx, zlimit.Request{ID: "job-" + w.now().Format("15"), Entity: "key", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
			check.Fatal(w, "Acquire()", err)
		}
		w.sleep(time.Hour)
	}
	_, err := l.Acquire(ctx, zlimit.Request{Entity: "key", Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": 20_000}})
	if !errors.As(err, new(*zlimit.ExceededError)) {
		w.Fatalf("Acquire() of too much = %v", err)
	}
	check.Call(l.Available(ctx, zlimit.AvailableQuery{Entity: "key", Resource: "gpt-4"})).Must(w, "Available()")
	_, err = l.TimeUntil(ctx, zlimit.Request{Entity: "key", Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": 9_990}})
	check.Fatal(w, "TimeUntil()", err)

	ask := func() {
		_, _ = l.Acquire(ctx, zlimit.Request{Entity: "loner", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}}) // throttled or not
	}
	w.faults.Inject(enginetest.Fault{Kind: enginetest.Throttled, Operation: "UpdateItem"})
	w.until("loner", 2, ask)
	w.faults.Clear()
	_, err = l.Acquire(ctx, zlimit.Request{Entity: "loner", Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": 9_000}}) // of both
	check.Fatal(w, "Acquire()", err)
	w.until("loner", 1, func() {
		w.sleep(10 * time.Minute)
		ask()
	})
}

// settleWith settles leases by their tokens: with less, with more, and one whose corrections are not written at first.
func settleWith(w *testbed, l *zlimit.RateLimiter) {
	w.Helper()
	ctx := w.Context()
	for _, actual := range []int64{50, 120, 60} {
		lease, err := l.Acquire(ctx, zlimit.Request{Entity: "key", Resource: "gpt-4", Consume: zlimit.Amounts{"tpd": 100}})
		check.Fatal(w, "Acquire()", err)
		token := check.Call(lease.Token(time.Hour)).Must(w, "Token()")
		if actual == 60 {
			w.faults.Inject(enginetest.Fault{Kind: enginetest.AccessDenied, Operation: "UpdateItem"})
			if err := l.Settle(ctx, token, zlimit.Amounts{"tpd": actual}); err == nil {
				w.Fatal("Settle() of a bucket that refuses writes = nil")
			}
			w.faults.Clear()
		}
		check.Fatal(w, "Settle()", l.Settle(ctx, token, zlimit.Amounts{"tpd": actual}))
	}
}

// reads is a program that shows all there is.
func reads(t *testing.T, w *testbed) {
	ctx := t.Context()
	_, err := w.admin.Acquire(ctx, zlimit.Request{Entity: "key", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
	check.Fatal(w, "Acquire()", err)
	check.Fatal(w, "Limits.Set()", w.admin.Limits.Set(ctx, zlimit.Level{Entity: "key", Resource: "gpt-4"}, zlimit.Config{Limits: limits}))
	readWith(w, w.limiter(w.client))
}

func readWith(w *testbed, l *zlimit.RateLimiter) {
	w.Helper()
	ctx := w.Context()
	check.Call(l.Available(ctx, zlimit.AvailableQuery{Entity: "key", Resource: "gpt-4"})).Must(w, "Available()")
	check.Call(l.Entities.Get(ctx, "key")).Must(w, "Entities.Get()")
	check.Call(l.Limits.Resolve(ctx, "key", "gpt-4")).Must(w, "Limits.Resolve()")
	check.Call(l.Limits.Get(ctx, zlimit.Level{})).Must(w, "Limits.Get()")
	check.Call(l.Usage.Capacity(ctx, "gpt-4")).Must(w, "Usage.Capacity()")
	_, err := l.Usage.Summary(ctx, zlimit.UsageQuery{Entity: "key", Resource: "gpt-4", Window: zlimit.WindowDaily})
	check.Fatal(w, "Usage.Summary()", err)
	check.Call(l.Namespaces.Get(ctx, zlimit.DefaultNamespace)).Must(w, "Namespaces.Get()")
	check.All(w, "Entities.Children()", l.Entities.Children(ctx, "team"))
	check.All(w, "Entities.Buckets()", l.Entities.Buckets(ctx, "key"))
	check.All(w, "Limits.List()", l.Limits.List(ctx, zlimit.LevelQuery{}))
	check.All(w, "Usage.Snapshots()", l.Usage.Snapshots(ctx, zlimit.UsageQuery{Resource: "gpt-4", Window: zlimit.WindowHourly}))
	check.All(w, "Audit.Events()", l.Audit.Events(ctx, "key", zlimit.AuditQuery{}))
	check.All(w, "Namespaces.List()", l.Namespaces.List(ctx))
	check.All(w, "Namespaces.Orphans()", l.Namespaces.Orphans(ctx))
}

// operates is a program of those on call: it looks at what there is, and disables and enables levels.
func operates(_ *testing.T, w *testbed) {
	for _, entity := range []string{"key", "loner"} {
		_, err := w.admin.Acquire(w.Context(), zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
		check.Fatal(w, "Acquire()", err)
	}
	throttled := dynamodb.New(w.raw.Options(), func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: w.faults} })
	busy := w.limiter(throttled)
	w.faults.Inject(enginetest.Fault{Kind: enginetest.Throttled, Operation: "UpdateItem"})
	w.until("loner", 2, func() {
		_, _ = busy.Acquire(w.Context(), zlimit.Request{Entity: "loner", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}}) // throttled
	})
	w.faults.Clear()
	// The first bypass raises the version of the table, which those on call may not.
	check.Call(w.admin.Limits.Bypass(w.Context(), zlimit.Level{Resource: "other"}, nil)).Must(w, "Limits.Bypass()")
	l := w.limiter(w.client)
	readWith(w, l)
	operateWith(w, l)
	if c, err := l.Limits.Reset(w.Context(), zlimit.ResetRequest{Entity: "loner", Resource: "gpt-4"}); err != nil || c.Shards != 2 {
		w.Errorf("Reset() = %+v, %v, want two shards", c, err)
	}
}

func operateWith(w *testbed, l *zlimit.RateLimiter) {
	w.Helper()
	ctx := w.Context()
	for _, at := range []zlimit.Level{{Entity: "loner"}, {Resource: "gpt-4"}, {Entity: "key", Resource: "gpt-4"}, {Entity: "new", Resource: "gpt-4"}} {
		for _, turn := range []func(context.Context, zlimit.Level, func(zlimit.SwitchReport)) (zlimit.SwitchReport, error){
			l.Limits.Disable, l.Limits.Enable, l.Limits.Bypass, l.Limits.LeaveSwitch,
		} {
			check.Call(turn(ctx, at, nil)).Must(w, "turn()")
		}
	}
	for _, entity := range []string{"key", "new"} { // which has a bucket, and which has none
		id := "ticket-" + entity
		for _, repeated := range []bool{false, true} {
			c, err := l.Limits.Reset(ctx, zlimit.ResetRequest{Entity: entity, Resource: "gpt-4", OperationID: id})
			if check.Fatal(w, "Limits.Reset()", err); c.Repeated != repeated {
				w.Errorf("Reset() = %+v, want repeated %t", c, repeated)
			}
		}
		_, err := l.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: entity, Resource: "gpt-4", Amounts: zlimit.Amounts{"rpm": 1}})
		check.Fatal(w, "Limits.TopUp()", err)
	}
}

// doesAll is a program that uses every service.
func doesAll(t *testing.T, w *testbed) {
	ctx := t.Context()
	l := w.limiter(w.client)
	acquireWith(w, l)
	reportWith(w, w.client)
	readWith(w, l)
	operateWith(w, l)
	check.Fatal(w, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: limits}))
	check.Fatal(w, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: limits}))
	check.Fatal(w, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{Entity: "loner", Resource: "gpt-4"}, zlimit.Config{Limits: limits}))
	check.Fatal(w, "Limits.Delete()", l.Limits.Delete(ctx, zlimit.Level{Entity: "loner", Resource: "gpt-4"}))
	check.Fatal(w, "Limits.Delete()", l.Limits.Delete(ctx, zlimit.Level{Resource: "gpt-4"}))
	check.Call(l.Limits.Apply(ctx, zlimit.Declaration{Resource: "gpt-5", Limits: limits})).Must(w, "Limits.Apply()")
	check.Fatal(w, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{Resource: "models"}, zlimit.Config{Limits: limits}))
	check.Fatal(w, "Resources.Put()", l.Resources.Put(ctx, zlimit.Resource{ID: "gpt-5", Within: "models"})) // raises the version of the table
	check.Call(l.Entities.Create(ctx, zlimit.Entity{ID: "new", ParentID: "team"})).Must(w, "Entities.Create()")
	_, err := w.raw.PutItem(ctx, &dynamodb.PutItemInput{TableName: &w.table, Item: keyOf(w.namespace+"/ENTITY#loner", "#USAGE#gpt-4#2026-03-01T12:00:00Z")})
	check.Fatal(w, "PutItem()", err)
	entity := check.Call(l.Entities.Get(ctx, "new")).Must(w, "Entities.Get()")
	entity.Name = "New"
	check.Call(l.Entities.Update(ctx, entity)).Must(w, "Entities.Update()")
	check.Call(l.Entities.SetParent(ctx, "new", "")).Must(w, "Entities.SetParent()")
	check.Call(l.Entities.SetParent(ctx, "new", "team")).Must(w, "Entities.SetParent()")
	check.Fatal(w, "Entities.Delete()", l.Entities.Delete(ctx, "loner"))
	ns := check.Call(l.Namespaces.Register(ctx, "staging")).Must(w, "Namespaces.Register()")
	other := check.Call(l.Namespace(ctx, "staging")).Must(w, "Namespace()")
	check.Fatal(w, "Limits.Set()", other.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: limits}))
	check.Fatal(w, "Limits.Set()", other.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: limits}))
	check.Fatal(w, "Limits.Set()", other.Limits.Set(ctx, zlimit.Level{Entity: "acme", Resource: "gpt-4"}, zlimit.Config{Limits: limits}))
	for _, e := range []zlimit.Entity{{ID: "acme"}, {ID: "new", ParentID: "acme"}} {
		check.Call(other.Entities.Create(ctx, e)).Must(w, "Entities.Create()")
	}
	check.Call(other.Limits.Reset(ctx, zlimit.ResetRequest{Entity: "acme", Resource: "gpt-4"})).Must(w, "Limits.Reset()")
	check.Fatal(w, "Close()", other.Close())
	check.Call(l.Namespaces.Delete(ctx, "staging")).Must(w, "Namespaces.Delete()")
	check.Call(l.Namespaces.Recover(ctx, ns.ID)).Must(w, "Namespaces.Recover()")
	check.Call(l.Namespaces.Delete(ctx, "staging")).Must(w, "Namespaces.Delete()")
	check.Fatal(w, "Namespaces.Purge()", l.Namespaces.Purge(ctx, ns.ID, nil))
	check.Fatal(w, "SetAuditRetention()", l.SetAuditRetention(ctx, 24*time.Hour))
	provisions(t, w) // as zlimit limits apply does
}

// images returns an item as a record of the stream has it.
func (w *testbed) image(pk, sk string) map[string]events.DynamoDBAttributeValue {
	w.Helper()
	out := check.Call(w.raw.GetItem(w.Context(), &dynamodb.GetItemInput{TableName: &w.table, Key: keyOf(pk, sk)})).Must(w, "GetItem()")
	if out.Item == nil {
		w.Fatalf("no item %s %s", pk, sk)
	}
	image := map[string]events.DynamoDBAttributeValue{}
	for name, v := range out.Item {
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			image[name] = events.NewStringAttribute(v.Value)
		case *types.AttributeValueMemberN:
			image[name] = events.NewNumberAttribute(v.Value)
		case *types.AttributeValueMemberBOOL:
			image[name] = events.NewBooleanAttribute(v.Value)
		case *types.AttributeValueMemberNULL:
			image[name] = events.NewNullAttribute()
		}
	}
	return image
}

func keyOf(pk, sk string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"PK": &types.AttributeValueMemberS{Value: pk}, "SK": &types.AttributeValueMemberS{Value: sk}}
}

// aggregates is the function, called with changes that make it count, refill, split, merge, take over, clean up, archive and
// roll hours up.
func aggregates(t *testing.T, w *testbed) {
	ctx := t.Context()
	archive := &http.Client{Transport: &recorder{base: accepts{}}}
	objects := archive.Transport.(*recorder)
	client := s3.New(s3.Options{
		Region: "eu-central-1", HTTPClient: archive, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
	})
	a, err := aggregator.New(dynamo.New(w.client, w.table), aggregator.WithClock(w.now), aggregator.WithArchive(aggregator.S3(client, "archive", "")))
	check.Fatal(w, "aggregator.New()", err)
	handle := aggregator.Handler(a)
	sequence := 0
	apply := func(old, image map[string]events.DynamoDBAttributeValue, expired bool, at time.Time) {
		t.Helper()
		sequence++
		either := image
		if either == nil {
			either = old
		}
		r := events.DynamoDBEventRecord{EventSourceArn: tableARN + "/stream/2026", Change: events.DynamoDBStreamRecord{
			ApproximateCreationDateTime: events.SecondsEpochTime{Time: at},
			Keys:                        map[string]events.DynamoDBAttributeValue{"PK": either["PK"], "SK": either["SK"]},
			OldImage:                    old, NewImage: image, SequenceNumber: strconv.Itoa(sequence),
		}}
		if expired {
			r.UserIdentity = &events.DynamoDBUserIdentity{Type: "Service", PrincipalID: "dynamodb.amazonaws.com"}
		}
		out, err := handle(ctx, events.DynamoDBEvent{Records: []events.DynamoDBEventRecord{r}})
		if err != nil || len(out.BatchItemFailures) > 0 {
			t.Fatalf("the function answers %v, %v", out, err)
		}
	}
	acquire := func(l *zlimit.RateLimiter) {
		t.Helper()
		_, err := l.Acquire(ctx, zlimit.Request{Entity: "loner", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 600}})
		check.Fatal(w, "Acquire()", err)
	}
	pk := func(ns string, shard int) string { return ns + "/BUCKET#loner#gpt-4#" + strconv.Itoa(shard) }
	state := func(shard int) map[string]events.DynamoDBAttributeValue {
		return w.image(pk(w.namespace, shard), "#STATE")
	}

	acquire(w.admin)
	whole := state(0)
	apply(nil, whole, false, w.now()) // a new bucket
	w.sleep(10 * time.Second)
	apply(whole, state(0), false, w.now())

	units := "b_" + bucket.WriteUnits + "_tk"
	_, err = w.raw.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &w.table, Key: keyOf(pk(w.namespace, 0), "#STATE"), UpdateExpression: aws.String("SET #u = :none, rf = :now"),
		ExpressionAttributeNames: map[string]string{"#u": units},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":none": &types.AttributeValueMemberN{Value: "0"}, ":now": &types.AttributeValueMemberN{Value: strconv.FormatInt(w.now().UnixMilli(), 10)},
		},
	})
	check.Fatal(w, "UpdateItem()", err)
	apply(whole, state(0), false, w.now())
	if n := w.shards("loner"); n != 2 {
		t.Fatalf("%d shards after pressure, want 2", n)
	}
	w.sleep(time.Hour)
	low, high := state(0), state(1)
	records := []events.DynamoDBEventRecord{}
	for i, at := range []time.Time{w.now().Add(-30 * time.Minute), w.now()} {
		sequence++
		records = append(records, events.DynamoDBEventRecord{EventSourceArn: tableARN + "/stream/2026", Change: events.DynamoDBStreamRecord{
			ApproximateCreationDateTime: events.SecondsEpochTime{Time: at},
			Keys:                        map[string]events.DynamoDBAttributeValue{"PK": low["PK"], "SK": low["SK"]},
			OldImage:                    low, NewImage: low, SequenceNumber: strconv.Itoa(1000 + i),
		}})
	}
	_, err = handle(ctx, events.DynamoDBEvent{Records: records})
	check.Fatal(w, "handle()", err)
	if n := w.shards("loner"); n != 1 {
		t.Fatalf("%d shards after calm, want 1", n)
	}
	for _, item := range []map[string]events.DynamoDBAttributeValue{low} { // split again, and one shard is lost
		_, err = w.raw.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: &w.table, Key: keyOf(item["PK"].String(), "#STATE"), UpdateExpression: aws.String("SET shard_count = :two"),
			ExpressionAttributeValues: map[string]types.AttributeValue{":two": &types.AttributeValueMemberN{Value: "2"}},
		})
		check.Fatal(w, "UpdateItem()", err)
	}
	sequence = 2000
	apply(high, nil, false, w.now())

	ns := check.Call(w.admin.Namespaces.Register(ctx, "staging")).Must(w, "Namespaces.Register()")
	staging := check.Call(w.admin.Namespace(ctx, "staging")).Must(w, "Namespace()")
	check.Fatal(w, "Limits.Set()", staging.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: limits}))
	acquire(staging)
	last := w.image(pk(ns.ID, 0), "#STATE")
	check.Fatal(w, "Close()", staging.Close())
	check.Call(w.admin.Namespaces.Delete(ctx, "staging")).Must(w, "Namespaces.Delete()")
	check.Fatal(w, "Namespaces.Purge()", w.admin.Namespaces.Purge(ctx, ns.ID, nil))
	apply(nil, last, false, w.now()) // after the purge

	check.Fatal(w, "Limits.Set()", w.admin.Limits.Set(ctx, zlimit.Level{Entity: "loner", Resource: "gpt-4"}, zlimit.Config{Limits: limits}))
	out, err := w.raw.Query(ctx, &dynamodb.QueryInput{
		TableName: &w.table, KeyConditionExpression: aws.String("PK = :pk"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":pk": &types.AttributeValueMemberS{Value: w.namespace + "/AUDIT#loner"}},
	})
	check.Fatal(w, "Query()", err)
	if len(out.Items) == 0 {
		t.Fatal("no audit event")
	}
	event := w.image(w.namespace+"/AUDIT#loner", out.Items[0]["SK"].(*types.AttributeValueMemberS).Value)
	event["details"] = events.NewMapAttribute(map[string]events.DynamoDBAttributeValue{})
	event["ttl"] = events.NewNumberAttribute(strconv.FormatInt(w.now().Add(-time.Hour).Unix(), 10))
	apply(event, nil, true, w.now())
	w.sleep(2 * time.Hour) // the hours of all that have ended
	apply(high, nil, false, w.now())
	w.recorder.requests = append(w.recorder.requests, objects.requests...)
	w.recorder.unknown = append(w.recorder.unknown, objects.unknown...)
}

// provisions is the function of Custom::ZlimitLimits: limits are created, changed, and removed again, in a namespace that it
// registers and in one that is gone.
func provisions(t *testing.T, w *testbed) {
	f := &customresource.Function{Table: "limits", Open: func(ctx context.Context, opts ...zlimit.Option) (*zlimit.RateLimiter, error) {
		return zlimit.New(ctx, dynamo.New(w.client, w.table), opts...)
	}}
	const stackID = "arn:aws:cloudformation:eu-central-1:123456789012:stack/app/1"
	handle := func(kind cfn.RequestType, id string, limits any) string {
		t.Helper()
		id, _, err := f.Handle(t.Context(), cfn.Event{
			RequestType: kind, StackID: stackID, LogicalResourceID: "Limits", PhysicalResourceID: id,
			ResourceProperties: map[string]any{"Limits": limits, "CreateNamespace": "true", "OnDelete": "remove"},
		})
		check.Fatal(w, "Handle()", err)
		return id
	}
	for _, namespace := range []string{zlimit.DefaultNamespace, "staging"} {
		entity := map[string]any{"limits": map[string]any{"rpm": "5/min"}, "resources": map[string]any{"gpt-4": map[string]any{"limits": map[string]any{"rpm": "7/min"}}}}
		declared := map[string]any{"namespace": namespace, "system": map[string]any{"limits": map[string]any{"rpm": "100/min"}}, "entities": map[string]any{"acme": entity}}
		id := handle(cfn.RequestCreate, "", declared)
		check.Fatal(w, "Limits.Set()", w.admin.Limits.Set(t.Context(), zlimit.Level{}, zlimit.Config{Limits: limits})) // by other means
		declared["resources"] = map[string]any{
			"models": map[string]any{"limits": map[string]any{"rpm": "90/min"}},
			"gpt-4":  map[string]any{"limits": map[string]any{"rpm": "50/min"}, "within": "models"},
		}
		delete(declared, "entities")
		handle(cfn.RequestUpdate, id, declared)
		handle(cfn.RequestDelete, id, declared)
	}
	handle(cfn.RequestDelete, "limits/nowhere", nil)
	w.divideRecord()
}

// divideRecord records so many levels as managed that the record is in parts, and then in more of them.
func (w *testbed) divideRecord() {
	w.Helper()
	l := check.Call(zlimit.New(w.Context(), dynamo.New(w.client, w.table))).Must(w, "zlimit.New()")
	var many zlimit.ManagedSet
	for i := range 512 {
		many.Pending = append(many.Pending, zlimit.Level{Entity: fmt.Sprintf("%0255d", i), Resource: "gpt-4"})
	}
	check.Fatal(w, "Managed.Run()", l.Managed.Run(w.Context(), func(ctx context.Context, r *zlimit.ManagedRun) error {
		return errors.Join(r.Record(ctx, zlimit.ManagedSet{Pending: many.Pending[:256]}), r.Record(ctx, many), r.Record(ctx, zlimit.ManagedSet{}))
	}))
	check.Fatal(w, "Close()", l.Close())
}

// accepts is a network in which every object is stored.
type accepts struct{}

func (accepts) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}
