package dynamo

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// maxSortKey is the length of the longest sort key in bytes.
const maxSortKey = 1024

// Query makes one Query call: half a read unit per 4 KB of the page, one where it is consistent. A page ends after 1 MB if
// the limit does not end it before.
func (s *Store) Query(ctx context.Context, q store.Query) (store.Page, error) {
	const op = "Query"
	if err := s.begin(ctx, op); err != nil {
		return store.Page{}, err
	}
	pk, sk, err := s.index(q.Index)
	if err = errors.Join(err, q.Validate()); err != nil {
		return store.Page{}, &store.Error{Op: op, Err: err}
	}
	condition, names, values, satisfiable := keyCondition(q, pk, sk)
	if !satisfiable {
		return store.Page{}, nil
	}
	forward, m := !q.Reverse, s.meter(ctx)
	in := &dynamodb.QueryInput{
		TableName:                 &s.name,
		KeyConditionExpression:    &condition,
		ExpressionAttributeNames:  names,
		ExpressionAttributeValues: values,
		ScanIndexForward:          &forward,
		ConsistentRead:            &q.Consistent,
		ReturnConsumedCapacity:    m.ask,
	}
	if q.Index != "" {
		in.IndexName = &q.Index
	}
	if q.Limit > 0 {
		limit := int32(min(q.Limit, 1<<30))
		in.Limit = &limit
	}
	if q.Continue != nil {
		in.ExclusiveStartKey = make(map[string]types.AttributeValue, len(q.Continue))
		for _, a := range q.Continue {
			in.ExclusiveStartKey[a.Name] = encode(a.Value)
		}
	}
	out, err := s.client.Query(ctx, in, s.retries.reading...)
	if err != nil {
		return store.Page{}, failure(ctx, op, err, false, false)
	}
	m.read(unitsOfOne(out.ConsumedCapacity))
	return pageOf(op, out.Items, out.LastEvaluatedKey)
}

// pageOf returns a page of items, and the key after which the next one begins.
func pageOf(op string, items []map[string]types.AttributeValue, last map[string]types.AttributeValue) (page store.Page, err error) {
	page.Items = make([]expr.Item, len(items))
	for i := range items {
		if page.Items[i], err = decodeItem(items[i]); err != nil {
			return store.Page{}, &store.Error{Op: op, Err: err}
		}
	}
	next, err := decodeItem(last)
	if err != nil {
		return store.Page{}, &store.Error{Op: op, Err: err}
	}
	page.Next = store.Cursor(next)
	return page, nil
}

// keyCondition renders the condition of a query on the key attributes pk and sk; satisfiable is false when no key can
// meet it. DynamoDB allows one condition on the sort key.
func keyCondition(q store.Query, pk, sk string) (text string, names map[string]string, values map[string]types.AttributeValue, satisfiable bool) {
	text = "#0 = :0"
	names = map[string]string{"#0": pk}
	values = map[string]types.AttributeValue{":0": &types.AttributeValueMemberS{Value: q.PK}}
	bound := func(condition string, operands ...string) {
		text += " AND " + condition
		names["#1"] = sk
		for i, operand := range operands {
			values[":"+strconv.Itoa(i+1)] = &types.AttributeValueMemberS{Value: operand}
		}
	}
	after, upTo := q.After, q.UpTo
	if after < q.Prefix { // the prefix alone bounds the keys from below
		after = ""
	}
	if q.Prefix != "" && upTo >= lastKey(q.Prefix) { // nor does it bound them from above any closer
		upTo = ""
	}
	switch {
	case q.Prefix == "" && after == "" && upTo == "":
	case after == "" && upTo == "":
		bound("begins_with(#1, :1)", q.Prefix)
	case q.Prefix == "" && upTo == "":
		bound("#1 > :1", after)
	case q.Prefix == "" && after == "":
		bound("#1 <= :1", upTo)
	default:
		first := q.Prefix
		if after != "" {
			first = after + "\x00" // the next string
		}
		if upTo == "" {
			upTo = lastKey(q.Prefix)
		}
		if first > upTo {
			return "", nil, nil, false
		}
		bound("#1 BETWEEN :1 AND :2", first, upTo)
	}
	return text, names, values, true
}

// lastKey returns the last sort key with a prefix. Strings are ordered by their bytes, and none begins with greater ones
// than the largest character.
func lastKey(prefix string) string {
	return prefix + strings.Repeat(string(utf8.MaxRune), max(0, maxSortKey-len(prefix))/utf8.UTFMax)
}
