package enginetest

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
)

func TestPartitionsServeEachKeyAtItsRate(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := start
	p := NewPartitions(Throughput{Writes: 1000, Reads: 3000, Burst: 2 * time.Second, Now: func() time.Time { return now }})
	writes := func() (n int) {
		for p.Write(1, "a") == nil {
			n++
		}
		return n
	}
	for _, test := range []struct {
		at   time.Duration
		want int
	}{
		{0, 2000}, {0, 0}, {time.Millisecond, 1}, {500 * time.Millisecond, 499}, {time.Second, 500}, {time.Hour, 2000},
	} {
		now = start.Add(test.at)
		if got := writes(); got != test.want {
			t.Errorf("after %v a key is written %d times, want %d", test.at, got, test.want)
		}
	}
	if got := p.Write(2, "b", "a", "c"); !cmp.Equal(got, []int{1}) {
		t.Errorf("Write(b, a, c) throttles %v, want [1]", got)
	}
	now = now.Add(time.Millisecond)
	if p.Write(2, "a", "b") != nil || p.Write(1, "a") == nil { // two units of the one that there is
		t.Error("a call is not served with what is left, or leaves no debt")
	}
	now = now.Add(time.Millisecond)
	if p.Write(1, "a") == nil {
		t.Error("a debt is not paid")
	}
	reads := 0
	for p.Read(0.5, "a") == nil {
		reads++
	}
	if reads != 12000 {
		t.Errorf("a key is read %d times at half a unit, want 12000", reads)
	}
}

func TestPartitionsAnswerAsDynamoDB(t *testing.T) {
	engine := Start(t)
	table := engine.Table(t)
	createTable(t, engine.Client(), table)
	for name, test := range map[string]struct {
		onDemand bool
		is       func(error) bool
		reason   string
	}{
		"provisioned": {false, isType[*types.ProvisionedThroughputExceededException], "ProvisionedThroughputExceeded"},
		"on demand":   {true, isType[*types.ThrottlingException], "ThrottlingError"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, now := t.Context(), time.Now()
			p := NewPartitions(Throughput{
				Writes: 1, Reads: 1, Burst: time.Second, OnDemand: test.onDemand, Key: "id", Now: func() time.Time { return now },
			})
			client := engine.Client(func(o *dynamodb.Options) {
				o.Retryer = aws.NopRetryer{}
				o.HTTPClient = &http.Client{Transport: p.Transport(engine.Transport())}
			})
			key := func(id string) map[string]types.AttributeValue {
				return map[string]types.AttributeValue{"id": item(id, 0)["id"]}
			}
			put := func(id string) error {
				_, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: item(id, 1)})
				return err
			}
			get := func(id string) error {
				_, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: key(id), ConsistentRead: aws.Bool(true)})
				return err
			}
			batch := func(ids ...string) error {
				keys := types.KeysAndAttributes{ConsistentRead: aws.Bool(true)}
				for _, id := range ids {
					keys.Keys = append(keys.Keys, key(id))
				}
				_, err := client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{table: keys}})
				return err
			}
			transact := func(ids ...string) error {
				var items []types.TransactWriteItem
				for _, id := range ids {
					items = append(items, types.TransactWriteItem{Delete: &types.Delete{TableName: &table, Key: key(id)}})
				}
				_, err := client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items})
				return err
			}
			check.Fatal(t, "put() and get() and batch()", errors.Join(put("a"), put("b"), get("a"), batch("b", "c")))
			for call, err := range map[string]error{
				"PutItem": put("a"), "GetItem": get("a"), "BatchGetItem": batch("d", "c"),
			} {
				if !test.is(err) {
					t.Errorf("%s = %v, want a throttle", call, err)
				}
			}
			var canceled *types.TransactionCanceledException
			if err := transact("c", "a"); !errors.As(err, &canceled) {
				t.Fatalf("TransactWriteItems = %v, want TransactionCanceledException", err)
			}
			var codes []string
			for _, reason := range canceled.CancellationReasons {
				codes = append(codes, aws.ToString(reason.Code))
			}
			compare.Equal(t, "reasons", []string{"None", test.reason}, codes)
			if got := p.Throttled(); got != 4 {
				t.Errorf("throttled %d calls, want 4", got)
			}
			now = now.Add(time.Second)
			if err := errors.Join(transact("c", "a"), put("b")); err != nil {
				t.Errorf("a second later: %v", err)
			}
			if err := put("c"); !test.is(err) { // of one unit a second, the transaction took two
				t.Errorf("PutItem after a transaction = %v, want a throttle", err)
			}
		})
	}
}
