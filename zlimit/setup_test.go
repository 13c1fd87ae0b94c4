package zlimit_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/zlimit/zlimit-go/internal/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A creatingClient notes how a table is created.
type creatingClient struct {
	zlimit.DynamoDBClient
	created *dynamodb.CreateTableInput
}

func (c *creatingClient) CreateTable(ctx context.Context, in *dynamodb.CreateTableInput, options ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	c.created = in
	return c.DynamoDBClient.CreateTable(ctx, in, options...)
}

// TestWithTable creates a table with settings, by an option and by Setup.
func TestWithTable(t *testing.T) {
	engine := enginetest.Start(t)
	client := &creatingClient{DynamoDBClient: engine.Client()}
	settings := zlimit.WithTable(zlimit.TableSettings{DeletionProtection: true, MaxWriteUnits: 700})
	l := newLimiter(t, zlimit.DynamoDB(client, engine.Table(t)), zlimit.WithSetup(), settings)
	in := client.created
	if in == nil || in.DeletionProtectionEnabled == nil || !*in.DeletionProtectionEnabled || *in.OnDemandThroughput.MaxWriteRequestUnits != 700 {
		t.Fatalf("the table is created as %+v", in)
	}
	if client.created = nil; l.Setup(t.Context()) != nil || client.created != nil {
		t.Errorf("Setup of a table that exists: %+v is created", client.created)
	}
	// Another store has no such settings.
	if l, err := zlimit.Open(t.Context(), "memory:", settings, zlimit.WithSetup()); err != nil {
		t.Error(err)
	} else if err := l.Close(); err != nil {
		t.Error(err)
	}
}
