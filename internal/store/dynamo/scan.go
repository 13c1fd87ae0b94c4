package dynamo

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

var _ store.Scanner = (*Store)(nil)

// A scanClient is a client that scans, as a *dynamodb.Client does. A limiter needs none.
type scanClient interface {
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// Scan makes one Scan call: half a read unit per 4 KB of the page, one where it is consistent. A page ends after 1 MB if
// the limit does not end it before.
func (s *Store) Scan(ctx context.Context, q store.Scan) (store.Page, error) {
	const op = "Scan"
	if err := s.begin(ctx, op); err != nil {
		return store.Page{}, err
	}
	if err := q.Validate(); err != nil {
		return store.Page{}, &store.Error{Op: op, Err: err}
	}
	client, ok := s.client.(scanClient)
	if !ok {
		return store.Page{}, &store.Error{Op: op, Err: store.ErrNoScan}
	}
	m := s.meter(ctx)
	in := &dynamodb.ScanInput{TableName: &s.name, ConsistentRead: &q.Consistent, ReturnConsumedCapacity: m.ask}
	if q.Segments > 1 {
		segment, segments := int32(q.Segment), int32(q.Segments)
		in.Segment, in.TotalSegments = &segment, &segments
	}
	if q.Prefix != "" {
		filter, pk := "begins_with(#pk, :prefix)", store.PK
		in.FilterExpression, in.ExpressionAttributeNames = &filter, map[string]string{"#pk": pk}
		in.ExpressionAttributeValues = map[string]types.AttributeValue{":prefix": &types.AttributeValueMemberS{Value: q.Prefix}}
	}
	if q.Limit > 0 {
		limit := int32(min(q.Limit, 1<<30))
		in.Limit = &limit
	}
	if q.Continue != nil {
		in.ExclusiveStartKey = encodeKey(store.KeyOf(expr.Item(q.Continue)))
	}
	out, err := client.Scan(ctx, in, s.retries.reading...)
	if err != nil {
		return store.Page{}, failure(ctx, op, err, false, false)
	}
	m.read(unitsOfOne(out.ConsumedCapacity))
	return pageOf(op, out.Items, out.LastEvaluatedKey)
}

// Estimate makes one DescribeTable call. DynamoDB counts every six hours or so.
func (s *Store) Estimate(ctx context.Context) (items, bytes int64, err error) {
	t, err := s.describe(ctx)
	if err != nil {
		return 0, 0, err
	}
	return aws.ToInt64(t.ItemCount), aws.ToInt64(t.TableSizeBytes), nil
}
