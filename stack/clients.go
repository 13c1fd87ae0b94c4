package stack

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// CloudFormation is what package stack asks of CloudFormation; [*cloudformation.Client] is one.
type CloudFormation interface {
	CreateChangeSet(context.Context, *cloudformation.CreateChangeSetInput, ...func(*cloudformation.Options)) (*cloudformation.CreateChangeSetOutput, error)
	DeleteChangeSet(context.Context, *cloudformation.DeleteChangeSetInput, ...func(*cloudformation.Options)) (*cloudformation.DeleteChangeSetOutput, error)
	DeleteStack(context.Context, *cloudformation.DeleteStackInput, ...func(*cloudformation.Options)) (*cloudformation.DeleteStackOutput, error)
	DescribeChangeSet(context.Context, *cloudformation.DescribeChangeSetInput, ...func(*cloudformation.Options)) (*cloudformation.DescribeChangeSetOutput, error)
	DescribeStackDriftDetectionStatus(context.Context, *cloudformation.DescribeStackDriftDetectionStatusInput, ...func(*cloudformation.Options)) (*cloudformation.DescribeStackDriftDetectionStatusOutput, error)
	DescribeStackEvents(context.Context, *cloudformation.DescribeStackEventsInput, ...func(*cloudformation.Options)) (*cloudformation.DescribeStackEventsOutput, error)
	DescribeStackResourceDrifts(context.Context, *cloudformation.DescribeStackResourceDriftsInput, ...func(*cloudformation.Options)) (*cloudformation.DescribeStackResourceDriftsOutput, error)
	DescribeStackResources(context.Context, *cloudformation.DescribeStackResourcesInput, ...func(*cloudformation.Options)) (*cloudformation.DescribeStackResourcesOutput, error)
	DescribeStacks(context.Context, *cloudformation.DescribeStacksInput, ...func(*cloudformation.Options)) (*cloudformation.DescribeStacksOutput, error)
	DetectStackDrift(context.Context, *cloudformation.DetectStackDriftInput, ...func(*cloudformation.Options)) (*cloudformation.DetectStackDriftOutput, error)
	ExecuteChangeSet(context.Context, *cloudformation.ExecuteChangeSetInput, ...func(*cloudformation.Options)) (*cloudformation.ExecuteChangeSetOutput, error)
}

// CloudWatch is what package stack asks of CloudWatch; [*cloudwatch.Client] is one.
type CloudWatch interface {
	DescribeAlarms(context.Context, *cloudwatch.DescribeAlarmsInput, ...func(*cloudwatch.Options)) (*cloudwatch.DescribeAlarmsOutput, error)
	GetMetricStatistics(context.Context, *cloudwatch.GetMetricStatisticsInput, ...func(*cloudwatch.Options)) (*cloudwatch.GetMetricStatisticsOutput, error)
}

// DynamoDB is what package stack asks of DynamoDB beside items; [*dynamodb.Client] is one.
type DynamoDB interface {
	DeleteTable(context.Context, *dynamodb.DeleteTableInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteTableOutput, error)
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
	UpdateTable(context.Context, *dynamodb.UpdateTableInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateTableOutput, error)
}

// Lambda is what package stack asks of Lambda; [*lambda.Client] is one.
type Lambda interface {
	Invoke(context.Context, *lambda.InvokeInput, ...func(*lambda.Options)) (*lambda.InvokeOutput, error)
	ListEventSourceMappings(context.Context, *lambda.ListEventSourceMappingsInput, ...func(*lambda.Options)) (*lambda.ListEventSourceMappingsOutput, error)
}

// S3 is what package stack asks of S3; [*s3.Client] is one.
type S3 interface {
	DeleteBucket(context.Context, *s3.DeleteBucketInput, ...func(*s3.Options)) (*s3.DeleteBucketOutput, error)
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	DeleteObjects(context.Context, *s3.DeleteObjectsInput, ...func(*s3.Options)) (*s3.DeleteObjectsOutput, error)
	HeadObject(context.Context, *s3.HeadObjectInput, ...func(*s3.Options)) (*s3.HeadObjectOutput, error)
	ListObjectsV2(context.Context, *s3.ListObjectsV2Input, ...func(*s3.Options)) (*s3.ListObjectsV2Output, error)
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
}

// SQS is what package stack asks of SQS; [*sqs.Client] is one.
type SQS interface {
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
	DeleteMessage(context.Context, *sqs.DeleteMessageInput, ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error)
	GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
}

// Streams is what package stack asks of streams of DynamoDB; [*dynamodbstreams.Client] is one.
type Streams interface {
	GetRecords(context.Context, *dynamodbstreams.GetRecordsInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error)
	GetShardIterator(context.Context, *dynamodbstreams.GetShardIteratorInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error)
}

// STS is what package stack asks of STS; [*sts.Client] is one.
type STS interface {
	GetCallerIdentity(context.Context, *sts.GetCallerIdentityInput, ...func(*sts.Options)) (*sts.GetCallerIdentityOutput, error)
}

// Clients are the services of AWS.
type Clients struct {
	CloudFormation CloudFormation
	CloudWatch     CloudWatch
	DynamoDB       DynamoDB
	Lambda         Lambda
	S3             S3
	SQS            SQS
	Streams        Streams
	STS            STS
	// Setup registers the default namespace in a table. It raises the versions in the version record to the present
	// ones: of the layout, of the oldest client, and of the aggregator. The aggregator's is "" if none is deployed
	// now. It then sets how long audit events are kept; 0 leaves that as it is.
	Setup func(ctx context.Context, table, aggregator string, auditRetention time.Duration) error
	// Oldest returns the version of the oldest client that a table admits, "" for any. Without, all versions are taken to be admitted.
	Oldest func(ctx context.Context, table string) (string, error)
}

// ClientsOf returns clients of one account and region. An endpoint of the configuration serves all of them.
func ClientsOf(cfg aws.Config) Clients {
	tables := dynamodb.NewFromConfig(cfg)
	return Clients{
		CloudFormation: cloudformation.NewFromConfig(cfg),
		CloudWatch:     cloudwatch.NewFromConfig(cfg),
		DynamoDB:       tables,
		Lambda:         lambda.NewFromConfig(cfg),
		S3:             s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = cfg.BaseEndpoint != nil }),
		SQS:            sqs.NewFromConfig(cfg),
		Streams:        dynamodbstreams.NewFromConfig(cfg),
		STS:            sts.NewFromConfig(cfg),
		Setup: func(ctx context.Context, table, aggregator string, auditRetention time.Duration) error {
			l, err := zlimit.New(ctx, dynamo.New(tables, table), zlimit.WithSetup(),
				zlimit.WithHooks(hooks.Limiter{Deployment: &hooks.Deployment{Aggregator: aggregator}}))
			if err != nil {
				return err
			}
			if auditRetention > 0 {
				err = l.SetAuditRetention(ctx, auditRetention)
			}
			return errors.Join(err, l.Close())
		},
		Oldest: func(ctx context.Context, table string) (string, error) {
			key := zlimit.VersionKey()
			out, err := tables.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, ConsistentRead: aws.Bool(true), Key: map[string]types.AttributeValue{
				"PK": &types.AttributeValueMemberS{Value: key.PK}, "SK": &types.AttributeValueMemberS{Value: key.SK},
			}})
			if err != nil {
				return "", err
			}
			oldest, _ := out.Item["client_min_version"].(*types.AttributeValueMemberS)
			if oldest == nil {
				return "", nil
			}
			return oldest.Value, nil
		},
	}
}
