package enginetest

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
)

// CreateSuiteTable returns what creates [storetest.Table] on DynamoDB.
func CreateSuiteTable(name string) *dynamodb.CreateTableInput {
	in := &dynamodb.CreateTableInput{
		TableName:   &name,
		BillingMode: types.BillingModePayPerRequest,
		KeySchema:   keySchema(store.PK, store.SK),
	}
	attributes := map[string]bool{}
	define := func(names ...string) {
		for _, name := range names {
			if !attributes[name] {
				attributes[name] = true
				in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{
					AttributeName: aws.String(name), AttributeType: types.ScalarAttributeTypeS,
				})
			}
		}
	}
	define(store.PK, store.SK)
	for _, x := range storetest.Table.Indexes {
		define(x.PK, x.SK)
		projection := &types.Projection{ProjectionType: types.ProjectionTypeAll}
		if x.KeysOnly {
			projection.ProjectionType = types.ProjectionTypeKeysOnly
		}
		if x.Local {
			in.LocalSecondaryIndexes = append(in.LocalSecondaryIndexes, types.LocalSecondaryIndex{
				IndexName: aws.String(x.Name), KeySchema: keySchema(x.PK, x.SK), Projection: projection,
			})
		} else {
			in.GlobalSecondaryIndexes = append(in.GlobalSecondaryIndexes, types.GlobalSecondaryIndex{
				IndexName: aws.String(x.Name), KeySchema: keySchema(x.PK, x.SK), Projection: projection,
			})
		}
	}
	return in
}

// CreateSuiteTableWithStream returns what creates [storetest.Table] with a stream of old and new images.
func CreateSuiteTableWithStream(name string) *dynamodb.CreateTableInput {
	in := CreateSuiteTable(name)
	in.StreamSpecification = &types.StreamSpecification{
		StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages,
	}
	return in
}

func keySchema(pk, sk string) []types.KeySchemaElement {
	return []types.KeySchemaElement{
		{AttributeName: aws.String(pk), KeyType: types.KeyTypeHash},
		{AttributeName: aws.String(sk), KeyType: types.KeyTypeRange},
	}
}
