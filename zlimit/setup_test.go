package zlimit_test

import (
	"context"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// A creatingClient notes how a table is created.
type creatingClient struct {
	dynamo.Client
	created *dynamodb.CreateTableInput
}

func (c *creatingClient) CreateTable(ctx context.Context, in *dynamodb.CreateTableInput, options ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	c.created = in
	return c.Client.CreateTable(ctx, in, options...)
}

// TestTableForAMixedFleet creates a table whose index holds whole items. A table that exists without is refused, whatever
// holds it together otherwise, and one that exists with them is taken.
func TestTableForAMixedFleet(t *testing.T) {
	engine := enginetest.Start(t)
	mixed := zlimit.WithTable(zlimit.TableSettings{MixedFleet: true})
	projections := func(table string) map[string]types.ProjectionType {
		out, err := engine.Client().DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &table})
		check.Fatal(t, "DescribeTable()", err)
		found := map[string]types.ProjectionType{}
		for _, x := range out.Table.GlobalSecondaryIndexes {
			found[*x.IndexName] = x.Projection.ProjectionType
		}
		return found
	}
	made := engine.Table(t)
	for _, settings := range []zlimit.Option{mixed, mixed, zlimit.WithTable(zlimit.TableSettings{})} {
		newLimiter(t, dynamo.New(engine.Client(), made), zlimit.WithSetup(), settings)
	}
	want := map[string]types.ProjectionType{"GSI1": "ALL", "GSI2": "ALL", "GSI3": "KEYS_ONLY", "GSI4": "KEYS_ONLY"}
	compare.Equal(t, "indexes of the table for a mixed fleet", want, projections(made))
	plain := engine.Table(t)
	newLimiter(t, dynamo.New(engine.Client(), plain), zlimit.WithSetup())
	_, err := zlimit.New(t.Context(), dynamo.New(engine.Client(), plain), zlimit.WithSetup(), mixed)
	if invalid(err).Field != "mixed fleet" || !strings.Contains(err.Error(), "GSI2") || !strings.Contains(err.Error(), "cannot change") {
		t.Errorf("New() of a table with an index of keys alone = %v, want a ValidationError that names the index", err)
	}
	if got := projections(plain)["GSI2"]; got != types.ProjectionTypeKeysOnly {
		t.Errorf("GSI2 of the refused table projects %s", got)
	}
}

// TestWithTable creates a table with settings, by an option and by Setup.
func TestWithTable(t *testing.T) {
	engine := enginetest.Start(t)
	client := &creatingClient{Client: engine.Client()}
	settings := zlimit.WithTable(zlimit.TableSettings{DeletionProtection: true, MaxWriteUnits: 700})
	l := newLimiter(t, dynamo.New(client, engine.Table(t)), zlimit.WithSetup(), settings)
	in := client.created
	if in == nil || in.DeletionProtectionEnabled == nil || !*in.DeletionProtectionEnabled || *in.OnDemandThroughput.MaxWriteRequestUnits != 700 {
		t.Fatalf("the table is created as %+v", in)
	}
	if client.created = nil; l.Setup(t.Context()) != nil || client.created != nil {
		t.Errorf("Setup of a table that exists: %+v is created", client.created)
	}
	// Another store has no such settings.
	if l, err := zlimit.Open(t.Context(), "memory:", settings, zlimit.WithSetup()); err != nil {
		t.Errorf("zlimit.Open() = %v", err)
	} else if err := l.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
}
