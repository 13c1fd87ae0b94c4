package dynamo

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/store"
)

// Transact makes one TransactWriteItems call, which costs two units where a plain write costs one, for Checks as well.
// A transaction of one write is done as a plain one. The SDK gives each call a token by which DynamoDB recognises a
// repetition. Attempts with an unknown outcome are therefore tried again, too.
func (s *Store) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	const op = "TransactWriteItems"
	switch len(writes) {
	case 0:
		return nil, s.begin(ctx, op)
	case 1:
		result, err := s.Write(ctx, writes[0])
		if err != nil {
			return nil, err
		}
		if result.Applied {
			result.Item = nil
		}
		return []store.Result{result}, nil
	}
	if err := s.begin(ctx, op); err != nil {
		return nil, err
	}
	items := make([]types.TransactWriteItem, len(writes))
	for i := range writes {
		if err := writes[i].Validate(); err != nil {
			return nil, &store.Error{Op: op, Err: err, Invalid: true}
		}
		items[i] = s.transactItem(&writes[i])
	}
	m := s.meter(ctx)
	ctx, sent := trace(ctx)
	own := s.retries.retryer()
	own.repeatable, own.transaction = true, true
	out, err := s.client.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems:          items,
		ReturnConsumedCapacity: m.ask,
	}, own.use)
	results := make([]store.Result, len(writes))
	if err == nil {
		m.write(unitsOf(out.ConsumedCapacity...))
		for i := range results {
			results[i].Applied = true
		}
		return results, nil
	}
	var canceled *types.TransactionCanceledException
	if !errors.As(err, &canceled) || isDoubtful(err) {
		return nil, failure(ctx, op, err, !sent.unsent(), own.doubt)
	}
	// An answer that lists reasons came from DynamoDB's look at the items. DynamoDB recognises a token of a finished
	// transaction before that look, so it has carried out no attempt of this call.
	failed, err := conditions(canceled.CancellationReasons, results, err)
	if !failed {
		return nil, failure(ctx, op, err, true, false)
	}
	return results, nil
}

// conditions stores the images of the writes whose condition failed. It returns false when the transaction was
// cancelled for another reason, in whole or in part, and the error to report then.
func conditions(reasons []types.CancellationReason, results []store.Result, err error) (bool, error) {
	if len(reasons) != len(results) {
		return false, err
	}
	failed := false
	for i := range reasons {
		switch value(reasons[i].Code) {
		case "", "None":
			results[i].Applied = true
		case "ConditionalCheckFailed":
			item, decodeErr := decodeItem(reasons[i].Item)
			if decodeErr != nil {
				return false, decodeErr
			}
			results[i].Item = item
			failed = true
		default:
			return false, err
		}
	}
	return failed, err
}

func (s *Store) transactItem(w *store.Write) types.TransactWriteItem {
	const old = types.ReturnValuesOnConditionCheckFailureAllOld
	e := text(w.Expr)
	switch w.Kind {
	case store.Update:
		return types.TransactWriteItem{Update: &types.Update{
			TableName: &s.name, Key: encodeKey(w.Key),
			ConditionExpression: optional(&e.condition), UpdateExpression: optional(&e.update),
			ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
			ReturnValuesOnConditionCheckFailure: old,
		}}
	case store.Put:
		return types.TransactWriteItem{Put: &types.Put{
			TableName: &s.name, Item: encodeItem(w.Key, w.Item), ConditionExpression: optional(&e.condition),
			ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
			ReturnValuesOnConditionCheckFailure: old,
		}}
	case store.Delete:
		return types.TransactWriteItem{Delete: &types.Delete{
			TableName: &s.name, Key: encodeKey(w.Key), ConditionExpression: optional(&e.condition),
			ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
			ReturnValuesOnConditionCheckFailure: old,
		}}
	default:
		return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
			TableName: &s.name, Key: encodeKey(w.Key), ConditionExpression: optional(&e.condition),
			ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
			ReturnValuesOnConditionCheckFailure: old,
		}}
	}
}
