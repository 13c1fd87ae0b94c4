package stack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/stack"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(enginetest.With(m)) }

// filters returns the patterns of the event source.
func filters(text string, given map[string]string) (patterns []any, err error) {
	parsed, err := cfn.Parse(text)
	if err != nil {
		return nil, err
	}
	all := map[string]string{"CodeKey": "k"}
	for key, value := range given {
		all[key] = value
	}
	s, err := parsed.Evaluate("limits", all)
	if err != nil {
		return nil, err
	}
	list, _ := at(s.Resources["Stream"].Properties, "FilterCriteria", "Filters").([]any)
	for _, element := range list {
		var pattern map[string]any
		if err := json.Unmarshal([]byte(at(element, "Pattern").(string)), &pattern); err != nil {
			return nil, fmt.Errorf("a filter is no JSON: %w", err)
		}
		patterns = append(patterns, pattern)
	}
	return patterns, nil
}

// event returns a record of the stream as Lambda passes it to filters.
func event(r *types.Record) map[string]any {
	key := func(name string) any {
		if v, ok := r.Dynamodb.Keys[name].(*types.AttributeValueMemberS); ok {
			return map[string]any{"S": v.Value}
		}
		return nil
	}
	e := map[string]any{
		"eventName": string(r.EventName), "eventSource": "aws:dynamodb",
		"dynamodb": map[string]any{"Keys": map[string]any{"PK": key("PK"), "SK": key("SK")}},
	}
	if r.UserIdentity != nil {
		e["userIdentity"] = map[string]any{"type": *r.UserIdentity.Type, "principalId": *r.UserIdentity.PrincipalId}
	}
	return e
}

// TestFiltersOnTheStream uses a table in every way, and evaluates the filters on the records of its stream. They let
// through what the aggregator works on, and nothing else. Expiry is made up, since the engine does not expire items.
func TestFiltersOnTheStream(t *testing.T) {
	engine := enginetest.Fresh(t)
	table := engine.Table(t)
	streams := engine.Streams()
	s := dynamo.New(engine.Client(), table, dynamo.WithStreams(streams))
	useTable(t, s)
	patterns := check.Call(filters(stack.Template, nil)).Must(t, "filters()")
	alone, err := filters(stack.Template, map[string]string{"Archive": "false"})
	if err != nil || len(alone) != 1 || len(patterns) != 2 {
		t.Fatalf("%d filters, %d without an archive (%v), want 2 and 1", len(patterns), len(alone), err)
	}
	seen := map[string]int{}
	for _, r := range records(t, streams, table) {
		e := event(&r)
		sk := at(e, "dynamodb", "Keys", "SK", "S").(string)
		kind, _, _ := strings.Cut(strings.TrimPrefix(sk, "#"), "#")
		seen[kind]++
		passes := func(patterns []any) bool {
			return slices.ContainsFunc(patterns, func(p any) bool { return cfn.Matches(p, e) })
		}
		if want := sk == "#STATE"; passes(patterns) != want || passes(alone) != want {
			t.Errorf("a change of %s passes: %t, want %t", sk, passes(patterns), want)
		}
		e["eventName"] = "REMOVE"
		e["userIdentity"] = map[string]any{"type": "Service", "principalId": "dynamodb.amazonaws.com"}
		if want := sk == "#STATE" || kind == "AUDIT"; passes(patterns) != want || passes(alone) != (sk == "#STATE") {
			t.Errorf("an expiry of %s passes: %t, want %t", sk, passes(patterns), want)
		}
	}
	for _, kind := range []string{"STATE", "AUDIT", "USAGE", "META", "CONFIG", "NSID", "NAMESPACE", "VERSION", "RESOURCES", "STREAM"} {
		if seen[kind] == 0 {
			t.Errorf("the stream has no change of %s: %v", kind, seen)
		}
	}
}

// useTable writes items of every kind.
func useTable(t *testing.T, s zlimit.Store) {
	t.Helper()
	ctx := t.Context()
	l := check.Call(zlimit.New(ctx, s, zlimit.WithSetup())).Must(t, "zlimit.New()")
	defer func() { check.Error(t, "Close()", l.Close()) }()
	if _, err := l.Entities.Create(ctx, zlimit.Entity{ID: "alice"}); err != nil {
		t.Fatalf("Entities.Create() = %v", err)
	}
	limits := []zlimit.Limit{zlimit.PerMinute("rpm", 10)}
	check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: limits}))
	check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{Entity: "alice", Resource: "gpt-4"}, zlimit.Config{Limits: limits}))
	request := zlimit.Request{Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}}
	check.Fatal(t, "Do()", l.Do(ctx, request, func(context.Context, *zlimit.Lease) error { return nil }))
	aggregate(t, s, func() bool {
		hours := l.Usage.Snapshots(ctx, zlimit.UsageQuery{Entity: "alice", Resource: "gpt-4", Window: zlimit.WindowHourly})
		return len(check.All(t, "Usage.Snapshots()", hours)) > 0
	})
}

// aggregate runs an aggregator until something holds.
func aggregate(t *testing.T, s zlimit.Store, until func() bool, opts ...aggregator.Option) {
	t.Helper()
	a, err := aggregator.New(s, append([]aggregator.Option{aggregator.WithPoll(20 * time.Millisecond)}, opts...)...)
	check.Fatal(t, "aggregator.New()", err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	for deadline := time.Now().Add(30 * time.Second); !until(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the aggregator does not get there within 30s")
		}
	}
	cancel()
	check.Error(t, "the aggregator", <-done)
}

// records returns all records of a table's stream.
func records(t *testing.T, client *dynamodbstreams.Client, table string) (all []types.Record) {
	t.Helper()
	ctx := t.Context()
	list := check.Call(client.ListStreams(ctx, &dynamodbstreams.ListStreamsInput{TableName: &table})).Must(t, "ListStreams()")
	for _, s := range list.Streams {
		described, err := client.DescribeStream(ctx, &dynamodbstreams.DescribeStreamInput{StreamArn: s.StreamArn})
		check.Fatal(t, "DescribeStream()", err)
		for _, shard := range described.StreamDescription.Shards {
			it := check.Call(client.GetShardIterator(ctx, &dynamodbstreams.GetShardIteratorInput{
				StreamArn: s.StreamArn, ShardId: shard.ShardId, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
			})).Must(t, "GetShardIterator()")
			for next := it.ShardIterator; next != nil; {
				page := check.Call(client.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: next})).Must(t, "GetRecords()")
				all = append(all, page.Records...)
				if next = page.NextShardIterator; len(page.Records) == 0 {
					break
				}
			}
		}
	}
	return all
}
