package cfn

import (
	"context"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// A Tables is the DynamoDB of a service: the tables of its stacks, and those that stacks have left behind.
type Tables struct{ *Service }

// there returns whether a table is there, and protected.
func (t Tables) there(name string) (there, protected bool) {
	if t.Deleted[name] {
		return false, false
	}
	there = slices.Contains(t.Kept["AWS::DynamoDB::Table"], name)
	for _, found := range t.stacks {
		if r, ok := found.now.Resources["Table"]; ok && found.now.ID("Table") == name {
			there, protected = true, r.Properties["DeletionProtectionEnabled"] == true
		}
	}
	return there, protected && !t.Unprotected[name]
}

func (t Tables) missing(name string) error {
	return Fault("ResourceNotFoundException", "Requested resource not found: Table: "+name+" not found")
}

// DescribeTable describes a table of 1,234 items.
func (t Tables) DescribeTable(_ context.Context, in *dynamodb.DescribeTableInput, _ ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	return called(t.Service, "DescribeTable", func() (*dynamodb.DescribeTableOutput, error) {
		there, protected := t.there(*in.TableName)
		if !there {
			return nil, t.missing(*in.TableName)
		}
		var indexes []types.GlobalSecondaryIndexDescription
		for _, found := range t.stacks {
			if r, ok := found.now.Resources["Table"]; ok && found.now.ID("Table") == *in.TableName {
				for _, name := range indexNames(r) {
					indexes = append(indexes, types.GlobalSecondaryIndexDescription{IndexName: &name, IndexStatus: types.IndexStatusActive})
				}
			}
		}
		items, bytes, stream := int64(1234), int64(567_890), true
		return &dynamodb.DescribeTableOutput{Table: &types.TableDescription{
			TableName: in.TableName, TableStatus: types.TableStatusActive, ItemCount: &items, TableSizeBytes: &bytes, DeletionProtectionEnabled: &protected,
			StreamSpecification: &types.StreamSpecification{StreamEnabled: &stream}, GlobalSecondaryIndexes: indexes,
		}}, nil
	})
}

func indexNames(r Resource) (names []string) {
	list, _ := r.Properties["GlobalSecondaryIndexes"].([]any)
	for _, x := range list {
		names = append(names, text(x.(map[string]any)["IndexName"]))
	}
	return names
}

// refusesTable returns why DynamoDB would not change a table.
func refusesTable(old, next Resource) string {
	differ, keys := 0, map[string]bool{}
	has, wants := indexNames(old), indexNames(next)
	for _, name := range slices.Concat(has, wants) {
		if slices.Contains(has, name) != slices.Contains(wants, name) {
			differ++
		}
	}
	for _, list := range []string{"GlobalSecondaryIndexes", "LocalSecondaryIndexes"} {
		indexes, _ := next.Properties[list].([]any)
		for _, x := range indexes {
			for _, k := range x.(map[string]any)["KeySchema"].([]any) {
				keys[text(k.(map[string]any)["AttributeName"])] = true
			}
		}
	}
	for _, a := range next.Properties["AttributeDefinitions"].([]any) {
		if name := text(a.(map[string]any)["AttributeName"]); !keys[name] && name != "PK" && name != "SK" {
			return "Property AttributeDefinitions is inconsistent with the KeySchema of the table and the secondary indexes"
		}
	}
	if differ > 1 {
		return "Cannot perform more than one GSI creation or deletion in a single update"
	}
	return ""
}

// UpdateTable takes the protection of a table away.
func (t Tables) UpdateTable(_ context.Context, in *dynamodb.UpdateTableInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateTableOutput, error) {
	return called(t.Service, "UpdateTable", func() (*dynamodb.UpdateTableOutput, error) {
		if there, _ := t.there(*in.TableName); !there {
			return nil, t.missing(*in.TableName)
		}
		t.Unprotected[*in.TableName] = !*in.DeletionProtectionEnabled
		return &dynamodb.UpdateTableOutput{}, nil
	})
}

// DeleteTable deletes a table that is not protected.
func (t Tables) DeleteTable(_ context.Context, in *dynamodb.DeleteTableInput, _ ...func(*dynamodb.Options)) (*dynamodb.DeleteTableOutput, error) {
	return called(t.Service, "DeleteTable", func() (*dynamodb.DeleteTableOutput, error) {
		switch there, protected := t.there(*in.TableName); {
		case !there:
			return nil, t.missing(*in.TableName)
		case protected:
			return nil, Fault("ValidationException", "Resource cannot be deleted as it is currently protected against deletion.")
		}
		t.Deleted[*in.TableName] = true
		return &dynamodb.DeleteTableOutput{}, nil
	})
}

// A Watch is the CloudWatch, Lambda and SQS of a service.
type Watch struct{ *Service }

// DescribeAlarms returns the alarms: all are well, except the alarms that a test makes fail.
func (w Watch) DescribeAlarms(_ context.Context, in *cloudwatch.DescribeAlarmsInput, _ ...func(*cloudwatch.Options)) (*cloudwatch.DescribeAlarmsOutput, error) {
	return called(w.Service, "DescribeAlarms", func() (*cloudwatch.DescribeAlarmsOutput, error) {
		out := &cloudwatch.DescribeAlarmsOutput{}
		for _, name := range in.AlarmNames {
			state := cwtypes.StateValueOk
			if w.Ringing[name] {
				state = cwtypes.StateValueAlarm
			}
			out.MetricAlarms = append(out.MetricAlarms, cwtypes.MetricAlarm{AlarmName: &name, StateValue: state})
		}
		return out, nil
	})
}

// GetMetricStatistics returns a lag of a second and a half.
func (w Watch) GetMetricStatistics(context.Context, *cloudwatch.GetMetricStatisticsInput, ...func(*cloudwatch.Options)) (*cloudwatch.GetMetricStatisticsOutput, error) {
	return called(w.Service, "GetMetricStatistics", func() (*cloudwatch.GetMetricStatisticsOutput, error) {
		most := 1500.0
		return &cloudwatch.GetMetricStatisticsOutput{Datapoints: []cwtypes.Datapoint{{Maximum: &most}}}, nil
	})
}

// ListEventSourceMappings returns the mapping of a function.
func (w Watch) ListEventSourceMappings(context.Context, *lambda.ListEventSourceMappingsInput, ...func(*lambda.Options)) (*lambda.ListEventSourceMappingsOutput, error) {
	return called(w.Service, "ListEventSourceMappings", func() (*lambda.ListEventSourceMappingsOutput, error) {
		state, result := "Enabled", "OK"
		return &lambda.ListEventSourceMappingsOutput{EventSourceMappings: []lambdatypes.EventSourceMappingConfiguration{{State: &state, LastProcessingResult: &result}}}, nil
	})
}

// GetQueueAttributes returns how many letters there are.
func (w Watch) GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	return called(w.Service, "GetQueueAttributes", func() (*sqs.GetQueueAttributesOutput, error) {
		return &sqs.GetQueueAttributesOutput{Attributes: map[string]string{"ApproximateNumberOfMessages": strconv.Itoa(w.visible())}}, nil
	})
}
