package dynamo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo/wire"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// Read makes one BatchGetItem call, or for a single key the quicker GetItem, which costs the same. An item costs half a
// read unit per 4 KB, and a key without an item half a unit; consistent reads cost twice that. A key given twice is
// read once. Keys that DynamoDB leaves unprocessed are read again, as long as each call reads some of them.
func (s *Store) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	const op = "BatchGetItem"
	switch len(keys) {
	case 0:
		return nil, s.begin(ctx, op)
	case 1:
		item, err := s.get(ctx, keys[0], consistent)
		if err != nil {
			return nil, err
		}
		return []expr.Item{item}, nil
	}
	if err := s.begin(ctx, op); err != nil {
		return nil, err
	}
	places := make(map[store.Key]int, len(keys)) // of the first item of a key
	wanted := make([]store.Key, 0, len(keys))
	for i, k := range keys {
		if _, repeated := places[k]; !repeated {
			places[k] = i
			wanted = append(wanted, k)
		}
	}
	if len(wanted) > store.MaxRead {
		return nil, &store.Error{Op: op, Err: fmt.Errorf("%d keys: at most %d", len(wanted), store.MaxRead)}
	}
	items := make([]expr.Item, len(keys))
	fruitless := 0
	for {
		batch, err := s.batch(ctx, wanted, consistent)
		if err != nil {
			return nil, err
		}
		for _, item := range batch.items {
			at, asked := places[store.KeyOf(item)]
			if !asked {
				return nil, &store.Error{Op: op, Unavailable: true, Err: errOtherItem}
			}
			items[at] = item
		}
		if len(batch.left) == 0 {
			break
		}
		if len(batch.left) < len(wanted) {
			fruitless = 0
		} else if fruitless++; fruitless == maxAttempts {
			return nil, &store.Error{Op: op, Unavailable: true, Err: fmt.Errorf("%d keys unprocessed", len(batch.left))}
		}
		if err := wait.For(ctx, backoff.Pause(fruitless)); err != nil {
			return nil, &store.Error{Op: op, Err: err}
		}
		wanted = batch.left
		store.NoteSent(ctx)
	}
	for i, k := range keys {
		items[i] = items[places[k]]
	}
	return items, nil
}

// batch makes one BatchGetItem call.
func (s *Store) batch(ctx context.Context, keys []store.Key, consistent bool) (*batch, error) {
	const op = "BatchGetItem"
	if s.own.Open() {
		found, err := s.own.batch(ctx, keys, consistent)
		if !errors.Is(err, wire.ErrUnused) {
			return found, err
		}
	}
	request := types.KeysAndAttributes{Keys: make([]map[string]types.AttributeValue, len(keys)), ConsistentRead: &consistent}
	for i, k := range keys {
		request.Keys[i] = encodeKey(k)
	}
	m, sent := s.meter(ctx), time.Now()
	out, err := s.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
		RequestItems:           map[string]types.KeysAndAttributes{s.name: request},
		ReturnConsumedCapacity: m.ask,
	}, s.retries.reading...)
	if err != nil {
		return nil, failure(ctx, op, err, false, false)
	}
	s.learn(sent, out.ResultMetadata)
	found := &batch{table: s.name}
	found.decode(out)
	m.read(found.units)
	return found.checked(op)
}

// get makes one GetItem call.
func (s *Store) get(ctx context.Context, k store.Key, consistent bool) (expr.Item, error) {
	const op = "GetItem"
	if err := s.begin(ctx, op); err != nil {
		return nil, err
	}
	if s.own.Open() {
		item, err := s.own.get(ctx, k, consistent)
		if !errors.Is(err, wire.ErrUnused) {
			return item, err
		}
	}
	m, sent := s.meter(ctx), time.Now()
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:              &s.name,
		Key:                    encodeKey(k),
		ConsistentRead:         &consistent,
		ReturnConsumedCapacity: m.ask,
	}, s.retries.reading...)
	if err != nil {
		return nil, failure(ctx, op, err, false, false)
	}
	s.learn(sent, out.ResultMetadata)
	found := newItem(out.Item, out.ConsumedCapacity)
	m.read(found.Units)
	return found.of(op, k)
}
