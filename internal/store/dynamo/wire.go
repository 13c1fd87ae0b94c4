package dynamo

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo/wire"
)

// A Path says who makes the calls of the hot path: UpdateItem, PutItem, GetItem and BatchGetItem.
type Path struct {
	// Own says that the store makes them itself. It stands for the client, whose settings it keeps to.
	Own bool
	// Reason is why the SDK makes them, "" where Own is set.
	Reason string
}

// Path returns who makes the calls of the hot path. The answer may change once: the first call shows whether the store
// can make requests like the client's.
func (s *Store) Path() Path {
	if s.own.Path == nil {
		return Path{Reason: "turned off, or a client that is no *dynamodb.Client"}
	}
	reason := s.own.Refusal()
	return Path{Own: reason == "", Reason: reason}
}

// An ownPath makes the calls of the hot path itself, in place of the SDK.
type ownPath struct {
	*handle
	*wire.Path // nil where all calls are the SDK's
}

// update makes an UpdateItem call, or returns [wire.ErrUnused].
func (p ownPath) update(ctx context.Context, w *store.Write) (store.Result, error) {
	const op = wire.UpdateItem
	buffer := wire.NewBuffer()
	defer buffer.Free()
	b := wire.AppendString(append(buffer.Bytes, `{"TableName":`...), p.name)
	b = wire.AppendKey(append(b, `,"Key":`...), w.Key)
	m := p.meter(ctx)
	b = m.appendWrite(b, w.Expr)
	b = wire.AppendMember(b, "ReturnValues", string(types.ReturnValueAllNew))
	b = append(b, '}')
	buffer.Bytes = b

	ctx, sent := trace(ctx)
	out := &updated{habit: &p.Images}
	reply, err := p.Do(ctx, op, buffer.Bytes, p.retries.write, out)
	if err != nil {
		return p.rejected(ctx, op, w.Key, sent, err)
	}
	p.learnReply(sent.start, reply)
	m.write(out.Units)
	return applied(op.String(), w.Key, out.oneItem)
}

// put makes a PutItem call, or returns [wire.ErrUnused].
func (p ownPath) put(ctx context.Context, w *store.Write) (store.Result, error) {
	const op = wire.PutItem
	buffer := wire.NewBuffer()
	defer buffer.Free()
	b := wire.AppendString(append(buffer.Bytes, `{"TableName":`...), p.name)
	b = wire.AppendItem(append(b, `,"Item":`...), w.Key, w.Item)
	m := p.meter(ctx)
	buffer.Bytes = append(m.appendWrite(b, w.Expr), '}')

	ctx, sent := trace(ctx)
	out := &written{}
	if _, err := p.Do(ctx, op, buffer.Bytes, p.retries.write, out); err != nil {
		return p.rejected(ctx, op, w.Key, sent, err)
	}
	m.write(out.units)
	return store.Result{Applied: true, Item: w.Key.Join(w.Item)}, nil
}

// appendWrite appends the members of a write that all kinds of it have.
func (m meter) appendWrite(b []byte, e expr.Bound) []byte {
	b = wire.AppendExpression(b, e)
	b = append(b, `,"ReturnValuesOnConditionCheckFailure":"ALL_OLD"`...)
	return m.appendTo(b)
}

// appendTo appends the member of a call that asks for its units.
func (m meter) appendTo(b []byte) []byte {
	if m.ask == "" {
		return b
	}
	return wire.AppendMember(b, "ReturnConsumedCapacity", string(m.ask))
}

// rejected is [handle.rejected], except calls that were not made.
func (p ownPath) rejected(ctx context.Context, op wire.Operation, k store.Key, sent *trail, err error) (store.Result, error) {
	if err == wire.ErrUnused { //nolint:errorlint // it is never wrapped
		return store.Result{}, err
	}
	return p.handle.rejected(ctx, op.String(), k, sent, err)
}

// get makes a GetItem call, or returns [wire.ErrUnused].
func (p ownPath) get(ctx context.Context, k store.Key, consistent bool) (expr.Item, error) {
	const op = wire.GetItem
	buffer := wire.NewBuffer()
	defer buffer.Free()
	b := wire.AppendString(append(buffer.Bytes, `{"TableName":`...), p.name)
	b = wire.AppendKey(append(b, `,"Key":`...), k)
	b = strconv.AppendBool(append(b, `,"ConsistentRead":`...), consistent)
	m := p.meter(ctx)
	buffer.Bytes = append(m.appendTo(b), '}')

	out := &found{}
	if err := p.read(ctx, op, buffer.Bytes, out); err != nil {
		return nil, err
	}
	m.read(out.Units)
	return out.of(op.String(), k)
}

// read makes a reading call, or returns [wire.ErrUnused].
func (p ownPath) read(ctx context.Context, op wire.Operation, body []byte, out wire.Output) error {
	sent := time.Now()
	reply, err := p.Do(ctx, op, body, p.retries.read, out)
	switch {
	case err == wire.ErrUnused: //nolint:errorlint // it is never wrapped
		return err
	case err != nil:
		return failure(ctx, op.String(), err, false, false)
	}
	p.learnReply(sent, reply)
	return nil
}

// batch makes a BatchGetItem call, or returns [wire.ErrUnused].
func (p ownPath) batch(ctx context.Context, keys []store.Key, consistent bool) (*batch, error) {
	const op = wire.BatchGetItem
	buffer := wire.NewBuffer()
	defer buffer.Free()
	b := wire.AppendString(append(buffer.Bytes, `{"RequestItems":{`...), p.name)
	b = append(b, `:{"Keys":[`...)
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = wire.AppendKey(b, k)
	}
	b = strconv.AppendBool(append(b, `],"ConsistentRead":`...), consistent)
	m := p.meter(ctx)
	buffer.Bytes = append(m.appendTo(append(b, "}}"...)), '}')

	out := &batch{table: p.name}
	if err := p.read(ctx, op, buffer.Bytes, out); err != nil {
		return nil, err
	}
	m.read(out.units)
	return out.checked(op.String())
}

// oneItem is the result of a call about one item.
type oneItem struct {
	wire.Only
	empty bool  // there is an item, without attributes
	err   error // an attribute cannot be read; the others are in the item
}

// newItem returns an item read by the SDK.
func newItem(m map[string]types.AttributeValue, units *types.ConsumedCapacity) (o oneItem) {
	o.Item, o.err = decodeItem(m)
	o.empty, o.Units = m != nil && len(m) == 0, unitsOfOne(units)
	return o
}

// isOther reports whether there is an item, and it is not that of a key.
func (o *oneItem) isOther(k store.Key) bool {
	return o.empty || (o.Item != nil || o.err != nil) && store.KeyOf(o.Item) != k
}

// of returns the item that a call found at a key, nil for none. An item of another key is not DynamoDB's answer.
func (o *oneItem) of(op string, k store.Key) (expr.Item, error) {
	switch {
	case o.isOther(k):
		return nil, &store.Error{Op: op, Unavailable: true, Err: errOtherItem}
	case o.err != nil:
		return nil, &store.Error{Op: op, Err: o.err}
	}
	return o.Item, nil
}

// updated is the output of an UpdateItem call: the item as it was left.
type updated struct {
	oneItem
	habit *wire.Habit // of such outputs; nil for none
}

// Scan implements [wire.Output].
func (u *updated) Scan(body string) (ok bool) {
	u.Only, ok = wire.OnlyItem(body, "Attributes", u.habit)
	return ok && u.Item != nil
}

// Deserialize implements [smithy.Deserializable].
func (u *updated) Deserialize(d smithy.ShapeDeserializer) error {
	var out dynamodb.UpdateItemOutput
	err := out.Deserialize(d)
	if err == nil {
		u.oneItem = newItem(out.Attributes, out.ConsumedCapacity)
	}
	return err
}

// found is the output of a GetItem call.
type found struct{ oneItem }

// Scan implements [wire.Output].
func (f *found) Scan(body string) (ok bool) {
	f.Only, ok = wire.OnlyItem(body, "Item", nil)
	return ok
}

// Deserialize implements [smithy.Deserializable].
func (f *found) Deserialize(d smithy.ShapeDeserializer) error {
	var out dynamodb.GetItemOutput
	err := out.Deserialize(d)
	if err == nil {
		f.oneItem = newItem(out.Item, out.ConsumedCapacity)
	}
	return err
}

// written is the output of a PutItem call, which returns no item.
type written struct{ units float64 }

// Scan implements [wire.Output].
func (w *written) Scan(body string) bool {
	o, ok := wire.OnlyItem(body, "", nil)
	w.units = o.Units
	return ok
}

// Deserialize implements [smithy.Deserializable].
func (w *written) Deserialize(d smithy.ShapeDeserializer) error {
	var out dynamodb.PutItemOutput
	if err := out.Deserialize(d); err != nil {
		return err
	}
	w.units = unitsOfOne(out.ConsumedCapacity)
	return nil
}

// batch is the output of a BatchGetItem call on a table: the items found, and the keys that are to be asked for again.
type batch struct {
	table string
	named bool // the reply is about the table
	items []expr.Item
	left  []store.Key
	units float64
	err   error
}

// Scan implements [wire.Output].
func (b *batch) Scan(body string) bool {
	b.items, b.left, b.units, b.named = nil, nil, 0, false
	s := wire.Scan(body)
	return s.Object(func(name string) bool {
		switch name {
		case "Responses":
			return s.Object(func(table string) bool {
				b.named = true
				return b.names(table) && s.Array(func() bool {
					item, ok := s.Item()
					b.items = append(b.items, item)
					return ok
				})
			})
		case "UnprocessedKeys":
			return s.Object(func(table string) bool {
				b.named = true
				return b.names(table) && b.scanLeft(&s)
			})
		case "ConsumedCapacity":
			return s.Array(func() bool {
				units, ok := s.Consumed()
				b.units += units
				return ok
			})
		default:
			return false
		}
	}) && s.End() && b.named
}

// names reports whether a reply is about the table. A reply to a call by an ARN may have the name.
func (b *batch) names(table string) bool {
	return table == b.table || strings.HasPrefix(b.table, "arn:") && strings.HasSuffix(b.table, "/"+table)
}

// tableIn returns how a reply names the table.
func tableIn[T any](b *batch, replies map[string]T) string {
	for table := range replies {
		if b.names(table) {
			return table
		}
	}
	return b.table
}

// scanLeft reads the keys that were left.
func (b *batch) scanLeft(s *wire.Scanner) bool {
	return s.Object(func(name string) bool {
		switch name {
		case "Keys":
			return s.Array(func() bool {
				k, ok := s.Key()
				b.left = append(b.left, k)
				return ok
			})
		case "ConsistentRead":
			_, ok := s.Bool()
			return ok
		default:
			return false
		}
	})
}

// Deserialize implements [smithy.Deserializable].
func (b *batch) Deserialize(d smithy.ShapeDeserializer) error {
	var out dynamodb.BatchGetItemOutput
	if err := out.Deserialize(d); err != nil {
		return err
	}
	b.decode(&out)
	return nil
}

// decode takes an output of the SDK.
func (b *batch) decode(out *dynamodb.BatchGetItemOutput) {
	*b = batch{table: b.table, units: unitsOf(out.ConsumedCapacity...)}
	found, some := out.Responses[tableIn(b, out.Responses)]
	left, more := out.UnprocessedKeys[tableIn(b, out.UnprocessedKeys)]
	b.named = some || more
	for _, m := range found {
		item, err := decodeItem(m)
		if err != nil && b.err == nil {
			b.err = err
		}
		b.items = append(b.items, item)
	}
	for _, m := range left.Keys {
		k, _ := decodeItem(m) // a key of another form is not asked for
		b.left = append(b.left, store.KeyOf(k))
	}
}

// checked returns the batch, or an error where it cannot be read. A reply that does not name the table is not
// DynamoDB's answer. Read as one, it would show every key without an item.
func (b *batch) checked(op string) (*batch, error) {
	switch {
	case !b.named:
		return nil, &store.Error{Op: op, Unavailable: true, Err: fmt.Errorf("the reply does not name the table %s", b.table)}
	case b.err != nil:
		return nil, &store.Error{Op: op, Err: b.err}
	}
	return b, nil
}
