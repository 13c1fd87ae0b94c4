package dynamo

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

var _ store.Indexer = (*Store)(nil)

// CompareIndexes makes one DescribeTable call.
func (s *setup) CompareIndexes(ctx context.Context) (d store.IndexDifferences, err error) {
	table, err := s.describe(ctx)
	if err != nil {
		return d, err
	}
	d = store.NoDifferences()
	in := s.create(s.name)
	for i := range in.GlobalSecondaryIndexes {
		want := &in.GlobalSecondaryIndexes[i]
		has := globalIndex(table, aws.ToString(want.IndexName))
		switch {
		case has == nil:
			d.Missing = append(d.Missing, aws.ToString(want.IndexName))
		case has.Projection != nil && has.Projection.ProjectionType != want.Projection.ProjectionType:
			d.Projecting = append(d.Projecting, aws.ToString(want.IndexName))
		}
	}
	for i := range in.LocalSecondaryIndexes {
		name := aws.ToString(in.LocalSecondaryIndexes[i].IndexName)
		if !slices.ContainsFunc(table.LocalSecondaryIndexes, func(x types.LocalSecondaryIndexDescription) bool { return aws.ToString(x.IndexName) == name }) {
			d.Local = append(d.Local, name)
		}
	}
	return d, nil
}

func globalIndex(table *types.TableDescription, name string) *types.GlobalSecondaryIndexDescription {
	for i := range table.GlobalSecondaryIndexes {
		if x := &table.GlobalSecondaryIndexes[i]; aws.ToString(x.IndexName) == name {
			return x
		}
	}
	return nil
}

// AddIndexes makes one UpdateTable call for each missing index, since DynamoDB creates one at a time. It makes
// DescribeTable calls until the index can be used. An index that another process creates is waited for.
func (s *setup) AddIndexes(ctx context.Context) error {
	in := s.create(s.name)
	for i := range in.GlobalSecondaryIndexes {
		want := &in.GlobalSecondaryIndexes[i]
		for pause := setupPoll; ; pause = min(2*pause, 16*setupPoll) {
			table, err := s.describe(ctx)
			if err != nil {
				return err
			}
			quiet := table.TableStatus == types.TableStatusActive && usable(table)
			if quiet && globalIndex(table, aws.ToString(want.IndexName)) != nil {
				break
			}
			if quiet {
				if err := s.addIndex(ctx, in, want); err != nil {
					return err
				}
			}
			if err := wait.For(ctx, pause); err != nil {
				return err
			}
		}
	}
	return nil
}

// addIndex begins the creation of an index, unless the table is being changed otherwise.
func (s *setup) addIndex(ctx context.Context, in *dynamodb.CreateTableInput, x *types.GlobalSecondaryIndex) error {
	const op = "UpdateTable"
	create := &types.CreateGlobalSecondaryIndexAction{IndexName: x.IndexName, KeySchema: x.KeySchema, Projection: x.Projection}
	var keys []types.AttributeDefinition
	for _, a := range in.AttributeDefinitions {
		if slices.ContainsFunc(x.KeySchema, func(k types.KeySchemaElement) bool {
			return aws.ToString(k.AttributeName) == aws.ToString(a.AttributeName)
		}) {
			keys = append(keys, a)
		}
	}
	_, err := s.client.UpdateTable(ctx, &dynamodb.UpdateTableInput{
		TableName: &s.name, AttributeDefinitions: keys,
		GlobalSecondaryIndexUpdates: []types.GlobalSecondaryIndexUpdate{{Create: create}},
	}, s.retries.reading...)
	if err == nil || hasCode(err, "ResourceInUseException") || hasCode(err, "LimitExceededException") {
		return nil
	}
	return failure(ctx, op, err, true, false)
}
