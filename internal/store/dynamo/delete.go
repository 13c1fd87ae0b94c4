package dynamo

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// Delete makes one BatchWriteItem call, at the cost of the single deletions. An item costs a write unit per KB, and one
// for each index that it is in; a key without an item costs one. A key given twice is sent once. Deletions that
// DynamoDB leaves unprocessed are sent again, as long as each call does some of them.
func (s *Store) Delete(ctx context.Context, keys []store.Key) error {
	const op = "BatchWriteItem"
	if err := s.begin(ctx, op); err != nil || len(keys) == 0 {
		return err
	}
	known := make(map[store.Key]bool, len(keys))
	request := make([]types.WriteRequest, 0, len(keys))
	for _, k := range keys {
		if !known[k] {
			known[k] = true
			request = append(request, types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: encodeKey(k)}})
		}
	}
	if len(request) > store.MaxDelete {
		return &store.Error{Op: op, Err: fmt.Errorf("%d keys: at most %d", len(request), store.MaxDelete)}
	}
	m, fruitless := s.meter(ctx), 0
	for {
		out, err := s.client.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{
			RequestItems:           map[string][]types.WriteRequest{s.name: request},
			ReturnConsumedCapacity: m.ask,
		}, s.retries.reading...) // a deletion may be repeated like a read
		if err != nil {
			return failure(ctx, op, err, false, false)
		}
		m.write(unitsOf(out.ConsumedCapacity...))
		rest := out.UnprocessedItems[s.name]
		if len(rest) == 0 {
			return nil
		}
		if len(rest) < len(request) {
			fruitless = 0
		} else if fruitless++; fruitless == maxAttempts {
			return &store.Error{Op: op, Unavailable: true, Err: fmt.Errorf("%d deletions unprocessed", len(rest))}
		}
		if err := wait.For(ctx, backoff.Pause(fruitless)); err != nil {
			return &store.Error{Op: op, Err: err}
		}
		request = rest
	}
}
