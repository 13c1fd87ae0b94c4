package zlimit_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A canned transport answers every call of an operation with one body.
type canned map[string][]byte

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	body := c[r.Header.Get("X-Amz-Target")]
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(body)), Request: r,
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}

// recorder keeps the last body of each operation that passes.
type recorder struct {
	base   http.RoundTripper
	bodies canned
}

func (rec *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := rec.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return nil, err
	}
	rec.bodies[r.Header.Get("X-Amz-Target")] = body
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// benchRequest asks two limits that never run out.
var benchRequest = ask(zlimit.Amounts{"rpm": 1, "tpm": 50})

func benchClock() time.Time { return time.UnixMilli(1_767_225_600_000) }

// benchTable returns a warm limiter on a table of the engine, whose client goes through a transport.
func benchTable(b *testing.B, transport func(engine http.RoundTripper) http.RoundTripper) (*zlimit.RateLimiter, *dynamodb.Client, string) {
	b.Helper()
	engine := enginetest.Start(b)
	client := engine.Client(func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: transport(engine.Transport())}
	})
	table := engine.Table(b)
	l := newLimiter(b, zlimit.StoreOn(dynamo.New(client, table, layout.Table, withoutStream)), zlimit.WithClock(benchClock))
	setSystem(b, l, zlimit.PerMinute("rpm", 1e12), zlimit.PerMinute("tpm", 1e12))
	for range 2 { // create, and spend
		acquire(b, l, benchRequest)
	}
	return l, client, table
}

// bareUpdate returns the call of the SDK that a warm acquire of benchRequest makes, as hand-written code.
func bareUpdate(client *dynamodb.Client, table, pk string) func() error {
	names := map[string]string{
		"#0": "rf", "#1": "ttl", "#2": "b_rpm_tk", "#3": "b_tpm_tk", "#4": "b_wcu_tk", "#5": "b_rpm_tc", "#6": "b_tpm_tc", "#7": "b_wcu_tc",
	}
	number := func(n int64) types.AttributeValue {
		return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
	}
	return func() error {
		now := benchClock().UnixMilli()
		_, err := client.UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
			TableName: &table,
			Key: map[string]types.AttributeValue{
				"PK": &types.AttributeValueMemberS{Value: pk}, "SK": &types.AttributeValueMemberS{Value: "#STATE"},
			},
			ConditionExpression: aws.String("#0 >= :0 AND (attribute_not_exists(#1) OR #1 > :1) AND " +
				"#2 >= :2 AND #3 >= :3 AND attribute_exists(#4)"),
			UpdateExpression:         aws.String("SET #2 = #2 - :2, #3 = #3 - :3, #4 = #4 - :4 ADD #5 :2, #6 :3, #7 :4"),
			ExpressionAttributeNames: names,
			ExpressionAttributeValues: map[string]types.AttributeValue{
				":0": number(now - 600), ":1": number(now / 1000), ":2": number(1000), ":3": number(50_000), ":4": number(1000),
			},
			ReturnValues:                        types.ReturnValueAllNew,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		return err
	}
}

func acquirer(l *zlimit.RateLimiter) func() error {
	return func() error {
		_, err := l.Acquire(context.Background(), benchRequest)
		return err
	}
}

// BenchmarkWarm compares an acquire of a known bucket with the bare SDK call that it makes, over a transport that
// answers immediately. The two take turns, so that their ratio means something on any machine. What zlimit takes
// longer is its own work: validation, caches, the decision, binding, and decoding the image.
func BenchmarkWarm(b *testing.B) {
	record := &recorder{bodies: canned{}}
	var replay bool
	l, client, table := benchTable(b, func(engine http.RoundTripper) http.RoundTripper {
		record.base = engine
		return transportFunc(func(r *http.Request) (*http.Response, error) {
			if replay {
				return record.bodies.RoundTrip(r)
			}
			return record.RoundTrip(r)
		})
	})
	replay = true
	bare, warm := bareUpdate(client, table, shardKey(l, "key-1", 0).Key().PK), acquirer(l)
	var bareTime, warmTime time.Duration
	for b.Loop() {
		timed(b, &bareTime, bare)
		timed(b, &warmTime, warm)
	}
	n := float64(b.N)
	b.ReportMetric(0, "ns/op") // of both together: means nothing
	b.ReportMetric(float64(bareTime.Nanoseconds())/n, "sdk-ns")
	b.ReportMetric(float64(warmTime.Nanoseconds())/n, "zlimit-ns")
	b.ReportMetric(float64(warmTime)/float64(bareTime), "x-sdk")
	b.ReportMetric(allocations(b, warm)-allocations(b, bare), "more-allocs")
}

// timed adds the time of a call to a total.
func timed(b *testing.B, total *time.Duration, call func() error) {
	start := time.Now()
	check.Fatal(b, "call()", call())
	*total += time.Since(start)
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func allocations(b *testing.B, call func() error) float64 {
	return testing.AllocsPerRun(200, func() {
		check.Fatal(b, "call()", call())
	})
}

// BenchmarkOverhead is what an acquire of a known bucket costs beside its store, which answers immediately. The timer
// that bounds a call of other stores is counted to those.
func BenchmarkOverhead(b *testing.B) {
	l := newReady(b)
	b.ReportAllocs()
	for b.Loop() {
		acquire(b, l, benchRequest)
	}
}

// BenchmarkAllow compares an acquire under Allow, which the caller leaves when it takes too long, with one under Block. The store is
// not marked as immediate, and answers immediately. The two take turns.
func BenchmarkAllow(b *testing.B) {
	l, _ := faulttest.New(b, []zlimit.Limit{zlimit.PerHour("rpm", 1<<40)}, zlimit.WithTuning(zlimit.Tuning{MaxShards: 1}))
	under := func(policy zlimit.FailurePolicy) func() error {
		r := zlimit.Request{Entity: "e", Resource: "api", Consume: zlimit.Amounts{"rpm": 1}, OnUnavailable: policy}
		return func() error {
			_, err := l.Acquire(context.Background(), r)
			return err
		}
	}
	block, allow := under(zlimit.PolicyBlock), under(zlimit.PolicyAllow)
	var blockTime, allowTime time.Duration
	for b.Loop() {
		timed(b, &blockTime, block)
		timed(b, &allowTime, allow)
	}
	n := float64(b.N)
	b.ReportMetric(0, "ns/op") // of both together: means nothing
	b.ReportMetric(float64(blockTime.Nanoseconds())/n, "block-ns")
	b.ReportMetric(float64(allowTime.Nanoseconds())/n, "allow-ns")
	b.ReportMetric(allocations(b, allow)-allocations(b, block), "more-allocs")
}

// gpt4 is the type that zlimitgen writes for two limits.
type gpt4 struct{ rpm, tpm int64 }

func (gpt4) Resource() string { return "gpt-4" }

func (c gpt4) AppendAmounts(to []zlimit.Amount) []zlimit.Amount {
	if c.rpm != 0 {
		to = append(to, zlimit.Amount{Limit: "rpm", Tokens: c.rpm})
	}
	if c.tpm != 0 {
		to = append(to, zlimit.Amount{Limit: "tpm", Tokens: c.tpm})
	}
	return to
}

// BenchmarkTyped compares an estimate and its correction as types that zlimitgen writes with the same as maps: what a
// request costs beside its store. The two take turns.
func BenchmarkTyped(b *testing.B) {
	l := newReady(b)
	tokens := int64(50) // an estimate is no constant
	run := func(r zlimit.Request, correction func() zlimit.Consumption) error {
		lease, err := l.Acquire(context.Background(), r)
		if err != nil {
			return err
		}
		return lease.Adjust(correction())
	}
	byMap := func() error {
		return run(ask(zlimit.Amounts{"rpm": 1, "tpm": tokens}), func() zlimit.Consumption { return zlimit.Amounts{"tpm": tokens / 2} })
	}
	byType := func() error {
		return run(zlimit.Request{Entity: "key-1", Consume: gpt4{1, tokens}}, func() zlimit.Consumption { return gpt4{tpm: tokens / 2} })
	}
	var mapTime, typedTime time.Duration
	for b.Loop() {
		tokens++
		timed(b, &mapTime, byMap)
		timed(b, &typedTime, byType)
	}
	n := float64(b.N)
	b.ReportMetric(0, "ns/op") // of both together: means nothing
	b.ReportMetric(float64(mapTime.Nanoseconds())/n, "map-ns")
	b.ReportMetric(float64(typedTime.Nanoseconds())/n, "typed-ns")
	b.ReportMetric(float64(typedTime)/float64(mapTime), "x-map")
	b.ReportMetric(allocations(b, byMap), "map-allocs")
	b.ReportMetric(allocations(b, byType), "typed-allocs")
}

// BenchmarkMemory is an acquire of a known bucket in memory, written and read back.
func BenchmarkMemory(b *testing.B) {
	l := newLimiter(b, newMemory(b), zlimit.WithClock(benchClock))
	setSystem(b, l, zlimit.PerMinute("rpm", 1e12), zlimit.PerMinute("tpm", 1e12))
	acquire(b, l, benchRequest)
	b.ReportAllocs()
	for b.Loop() {
		acquire(b, l, benchRequest)
	}
}

// BenchmarkKinds compares a warm acquire of three limits that refill with one of a limit with windows, a calendar quota and a session quota.
// The two take turns, a burst at a time. It reports the ratio of their fastest bursts: run it with -benchtime=20x.
func BenchmarkKinds(b *testing.B) {
	request := zlimit.Request{Entity: "key-1", Resource: "gpt-4", Consume: zlimit.Amounts{"a": 1, "b": 1, "c": 1}}
	limits := [2][]zlimit.Limit{
		{zlimit.PerMinute("a", 1e12), zlimit.PerMinute("b", 1e12), zlimit.PerMinute("c", 1e12)},
		{zlimit.PerMinute("a", 1e12).When("* 9-17 * * 1-5", "x2"), zlimit.Monthly("b", 1e12, "UTC"), zlimit.Session("c", 1e12, 5*time.Hour)},
	}
	var all [2]*zlimit.RateLimiter
	var fastest [2]time.Duration
	for i := range all {
		all[i] = newLimiter(b, newMemory(b), zlimit.WithClock(benchClock))
		setSystem(b, all[i], limits[i]...)
		acquire(b, all[i], request)
	}
	const calls = 5000
	for b.Loop() {
		for i, l := range all {
			start := time.Now()
			for range calls {
				acquire(b, l, request)
			}
			if took := time.Since(start); fastest[i] == 0 || took < fastest[i] {
				fastest[i] = took
			}
		}
	}
	b.ReportMetric(float64(fastest[1])/float64(fastest[0]), "times")
}

// BenchmarkFile is BenchmarkMemory on a database file.
func BenchmarkFile(b *testing.B) {
	l := newLimiter(b, openStore(b, newFile(b)), zlimit.WithClock(benchClock))
	setSystem(b, l, zlimit.PerMinute("rpm", 1e12), zlimit.PerMinute("tpm", 1e12))
	acquire(b, l, benchRequest)
	b.ReportAllocs()
	for b.Loop() {
		acquire(b, l, benchRequest)
	}
}

// BenchmarkParallel compares the throughput of 64 goroutines on one bucket of the engine. They use the bare SDK call, a
// write for each request, or shared writes. The three take turns, a burst at a time.
func BenchmarkParallel(b *testing.B) {
	l, client, table := benchTable(b, func(engine http.RoundTripper) http.RoundTripper { return engine })
	bare, warm := bareUpdate(client, table, shardKey(l, "key-1", 0).Key().PK), acquirer(l)
	var writes atomic.Int64
	counted := countedWrites{dynamo.New(client, table, layout.Table, withoutStream), &writes}
	sharing := newLimiter(b, zlimit.StoreOn(counted), zlimit.WithClock(benchClock), zlimit.WithCoalescing())
	shared := acquirer(sharing)
	const goroutines, calls = 64, 10
	burst := func(total *time.Duration, call func() error) {
		start := time.Now()
		var group errgroup.Group
		for range goroutines {
			group.Go(func() error {
				for range calls {
					if err := call(); err != nil {
						return err
					}
				}
				return nil
			})
		}
		check.Fatal(b, "Wait()", group.Wait())
		*total += time.Since(start)
	}
	var bareTime, warmTime, sharedTime time.Duration
	for b.Loop() {
		burst(&bareTime, bare)
		burst(&warmTime, warm)
		burst(&sharedTime, shared)
	}
	n := float64(b.N) * goroutines * calls
	b.ReportMetric(0, "ns/op") // of all together: means nothing
	b.ReportMetric(n/bareTime.Seconds(), "sdk-calls/s")
	b.ReportMetric(n/warmTime.Seconds(), "zlimit-calls/s")
	b.ReportMetric(float64(bareTime)/float64(warmTime), "x-sdk")
	b.ReportMetric(float64(bareTime)/float64(sharedTime), "x-sdk-shared")
	b.ReportMetric(float64(writes.Load())/n, "writes-shared/call")
}

// A countedWrites is a store whose writes are counted.
type countedWrites struct {
	store.Store
	writes *atomic.Int64
}

func (c countedWrites) Write(ctx context.Context, w store.Write) (store.Result, error) {
	c.writes.Add(1)
	return c.Store.Write(ctx, w)
}
