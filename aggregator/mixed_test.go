package aggregator

import (
	"reflect"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// TestCallsOfThePythonClient asks the second index as get_resource_buckets, get_resource_capacity and get_usage_snapshots of
// zae-limiter do, of a table for a mixed fleet and of another one. The calls take the items from the index alone, and
// leave out those without the attributes that they look for.
func TestCallsOfThePythonClient(t *testing.T) {
	for _, test := range []struct {
		name  string
		mixed bool
	}{{"for a mixed fleet", true}, {"with keys alone", false}} {
		t.Run(test.name, func(t *testing.T) {
			engine := enginetest.Start(t)
			client, table := engine.Client(), engine.Table(t)
			opts := []zlimit.Option{zlimit.WithTable(zlimit.TableSettings{MixedFleet: test.mixed})}
			if test.mixed {
				opts = append(opts, zlimit.WithMixedFleet()) // buckets are in the index from their creation on
			}
			g := newGardenOf(t, dynamo.New(client, table), opts, WithoutRollUp())
			g.seen(store.Change{Key: g.shard.Key(), New: g.item(0), At: g.now})
			enginetest.CatchUp()
			for _, call := range []struct {
				name, prefix string
				items        int
				needs        []string
			}{
				{"get_resource_buckets and get_resource_capacity", "BUCKET#", 1, []string{"entity_id", "resource", "b_rpm_tk", "b_rpm_cp", "b_rpm_ra", "b_rpm_rp", "b_rpm_tc", "rf"}},
				{"get_usage_snapshots", "USAGE#", 3, []string{"entity_id", "resource", "window", "window_start", "total_events", "rpm", "tpm"}},
			} {
				var found *dynamodb.QueryOutput
				var err error
				for range 100 { // a bucket enters the index a second after its creation where the table is not for a mixed fleet
					found, err = client.Query(t.Context(), &dynamodb.QueryInput{
						TableName: &table, IndexName: aws.String("GSI2"),
						KeyConditionExpression: aws.String("GSI2PK = :pk AND begins_with(GSI2SK, :sk_prefix)"),
						ExpressionAttributeValues: map[string]types.AttributeValue{
							":pk": &types.AttributeValueMemberS{Value: g.shard.NS + "/RESOURCE#r"}, ":sk_prefix": &types.AttributeValueMemberS{Value: call.prefix},
						},
					})
					if err != nil || len(found.Items) == call.items {
						break
					}
					time.Sleep(100 * time.Millisecond)
				}
				if err != nil || len(found.Items) != call.items {
					t.Fatalf("%s: %d items, %v, want %d", call.name, len(found.Items), err, call.items)
				}
				for _, item := range found.Items {
					for _, name := range call.needs {
						if _, ok := item[name]; ok != test.mixed {
							t.Errorf("%s: %s is in the index: %t, want %t", call.name, name, ok, test.mixed)
						}
					}
					whole, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{
						TableName: &table, Key: map[string]types.AttributeValue{"PK": item["PK"], "SK": item["SK"]}, ConsistentRead: aws.Bool(true),
					})
					check.Fatal(t, "GetItem()", err)
					if test.mixed && !reflect.DeepEqual(whole.Item, item) {
						t.Errorf("%s: the index has %v, want the item, %v", call.name, item, whole.Item)
					}
				}
			}
		})
	}
}
