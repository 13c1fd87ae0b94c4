package dynamo

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo/wire"
)

// Write makes one UpdateItem, PutItem or DeleteItem call, and for a Check one consistent GetItem. A write costs one
// unit per KB of the larger of the old and the new item, whether its condition held or not. Each index with a changed
// entry of the item costs as much again. A Check costs one read unit per 4 KB.
//
// An applied Update has no item in its result where DynamoDB returned one that cannot be read.
func (s *Store) Write(ctx context.Context, w store.Write) (store.Result, error) {
	if err := w.Validate(); err != nil {
		return store.Result{}, &store.Error{Op: "Write", Err: err, Invalid: true}
	}
	switch w.Kind {
	case store.Update:
		return s.update(ctx, w)
	case store.Put:
		return s.put(ctx, w)
	case store.Delete:
		return s.delete(ctx, w)
	default: // Check
		item, err := s.get(ctx, w.Key, true)
		if err != nil {
			return store.Result{}, err
		}
		if w.Expr.Holds(item) {
			return store.Result{Applied: true}, nil
		}
		return store.Result{Item: item}, nil
	}
}

func (s *Store) update(ctx context.Context, w store.Write) (store.Result, error) {
	const op = "UpdateItem"
	if err := s.begin(ctx, op); err != nil {
		return store.Result{}, err
	}
	if s.own.Open() {
		result, err := s.own.update(ctx, &w)
		if !errors.Is(err, wire.ErrUnused) {
			return result, err
		}
	}
	m := s.meter(ctx)
	call := &struct {
		in   dynamodb.UpdateItemInput
		key  keyMembers
		text expression
	}{key: membersOf(w.Key), text: text(w.Expr)}
	call.in = dynamodb.UpdateItemInput{
		TableName:                           &s.name,
		Key:                                 call.key.attributes(),
		ConditionExpression:                 optional(&call.text.condition),
		UpdateExpression:                    optional(&call.text.update),
		ExpressionAttributeNames:            call.text.names,
		ExpressionAttributeValues:           call.text.values,
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnConsumedCapacity:              m.ask,
	}
	ctx, sent := trace(ctx)
	out, err := s.client.UpdateItem(ctx, &call.in, s.retries.writing...)
	if err != nil {
		return s.rejected(ctx, op, w.Key, sent, err)
	}
	s.learn(sent.start, out.ResultMetadata)
	m.write(unitsOfOne(out.ConsumedCapacity))
	return applied(op, w.Key, newItem(out.Attributes, out.ConsumedCapacity))
}

// applied returns the result of an Update that DynamoDB answered with the new item. Its outcome is unknown where the reply
// has no item of the key: DynamoDB would return it. An item that cannot be read was written all the same.
func applied(op string, k store.Key, o oneItem) (store.Result, error) {
	if store.KeyOf(o.Item) != k {
		return store.Result{}, &store.Error{Op: op, Unavailable: true, Unknown: true, Err: errOtherItem}
	}
	result := store.Result{Applied: true}
	if o.err == nil {
		result.Item, result.Forms, result.Loan = o.Item, o.Forms, o.Loan
	}
	return result, nil
}

// errOtherItem is the cause of an error of a call whose reply lacks the wanted item.
var errOtherItem = errors.New("the reply does not hold the item of the key")

func (s *Store) put(ctx context.Context, w store.Write) (store.Result, error) {
	const op = "PutItem"
	if err := s.begin(ctx, op); err != nil {
		return store.Result{}, err
	}
	if s.own.Open() {
		result, err := s.own.put(ctx, &w)
		if !errors.Is(err, wire.ErrUnused) {
			return result, err
		}
	}
	e, m := text(w.Expr), s.meter(ctx)
	ctx, sent := trace(ctx)
	out, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           &s.name,
		Item:                                encodeItem(w.Key, w.Item),
		ConditionExpression:                 optional(&e.condition),
		ExpressionAttributeNames:            e.names,
		ExpressionAttributeValues:           e.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnConsumedCapacity:              m.ask,
	}, s.retries.writing...)
	if err != nil {
		return s.rejected(ctx, op, w.Key, sent, err)
	}
	m.write(unitsOfOne(out.ConsumedCapacity))
	return store.Result{Applied: true, Item: w.Key.Join(w.Item)}, nil
}

func (s *Store) delete(ctx context.Context, w store.Write) (store.Result, error) {
	const op = "DeleteItem"
	if err := s.begin(ctx, op); err != nil {
		return store.Result{}, err
	}
	e, m := text(w.Expr), s.meter(ctx)
	ctx, sent := trace(ctx)
	out, err := s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName:                           &s.name,
		Key:                                 encodeKey(w.Key),
		ConditionExpression:                 optional(&e.condition),
		ExpressionAttributeNames:            e.names,
		ExpressionAttributeValues:           e.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnConsumedCapacity:              m.ask,
	}, s.retries.writing...)
	if err != nil {
		return s.rejected(ctx, op, w.Key, sent, err)
	}
	m.write(unitsOfOne(out.ConsumedCapacity))
	return store.Result{Applied: true}, nil
}

// rejected returns the result of a write whose condition did not hold, or the error of one that failed otherwise.
func (h *handle) rejected(ctx context.Context, op string, k store.Key, sent *trail, err error) (store.Result, error) {
	var condition *types.ConditionalCheckFailedException
	if !errors.As(err, &condition) || isDoubtful(err) {
		return store.Result{}, failure(ctx, op, err, !sent.unsent(), false)
	}
	h.learnFrom(sent.start, err)
	old := newItem(condition.Item, nil)
	if old.isOther(k) {
		return store.Result{}, &store.Error{Op: op, Unavailable: true, Unknown: true, Err: errOtherItem}
	}
	item, err := old.of(op, k)
	return store.Result{Item: item}, err
}

// expression is a bound template as the SDK takes it.
type expression struct {
	condition, update string
	names             map[string]string
	values            map[string]types.AttributeValue
}

func text(b expr.Bound) expression {
	if b.Template == nil {
		return expression{}
	}
	return expression{b.Condition(), b.Update(), b.Names(), encodeValues(b.Values)}
}

// optional returns the pointer that stands for a text in an input, nil for none.
func optional(text *string) *string {
	if *text == "" {
		return nil
	}
	return text
}
