package dynamo_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

func ExampleNew() {
	ctx := context.Background()
	options := dynamodb.Options{Region: "eu-central-1"}
	streams := dynamodbstreams.New(dynamodbstreams.Options{Region: "eu-central-1"}) // for an aggregator alone
	store := dynamo.New(dynamodb.New(options), "limits", dynamo.WithStreams(streams))
	limiter, err := zlimit.New(ctx, store)
	if err != nil {
		return // there is no table, or no way to it
	}
	defer limiter.Close()
}

func ExampleCreateTableInput() {
	table := dynamo.CreateTableInput("limits")
	fmt.Println(*table.TableName, table.BillingMode, len(table.GlobalSecondaryIndexes), "indexes")
	// Output: limits PAY_PER_REQUEST 4 indexes
}
