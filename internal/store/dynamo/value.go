package dynamo

import (
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Attribute values that are all alike. The SDK does not change its input.
var (
	attrTrue  types.AttributeValue = &types.AttributeValueMemberBOOL{Value: true}
	attrFalse types.AttributeValue = &types.AttributeValueMemberBOOL{Value: false}
	attrNull  types.AttributeValue = &types.AttributeValueMemberNULL{Value: true}
)

// keyMembers are the values of a primary key.
type keyMembers [2]types.AttributeValueMemberS

func membersOf(k store.Key) keyMembers { return keyMembers{{Value: k.PK}, {Value: k.SK}} }

// attributes returns the key as the SDK takes it. It points into m.
func (m *keyMembers) attributes() map[string]types.AttributeValue {
	return map[string]types.AttributeValue{store.PK: &m[0], store.SK: &m[1]}
}

// encodeKey returns a primary key as the SDK takes it.
func encodeKey(k store.Key) map[string]types.AttributeValue {
	m := membersOf(k)
	return m.attributes()
}

// encodeItem returns an item with the key k as the SDK takes it.
func encodeItem(k store.Key, item expr.Item) map[string]types.AttributeValue {
	m := make(map[string]types.AttributeValue, len(item)+2)
	var numbers numbers
	numbers.prepare(len(item), func(i int) expr.Value { return item[i].Value })
	for i := range item {
		m[item[i].Name] = numbers.encode(item[i].Value)
	}
	key := membersOf(k)
	m[store.PK], m[store.SK] = &key[0], &key[1]
	return m
}

// encodeValues returns bound values by their placeholders, nil for none: DynamoDB takes no empty map.
func encodeValues(values []expr.Value) map[string]types.AttributeValue {
	if len(values) == 0 {
		return nil
	}
	m := make(map[string]types.AttributeValue, len(values))
	var numbers numbers
	numbers.prepare(len(values), func(i int) expr.Value { return values[i] })
	for i, v := range values {
		m[expr.Placeholder(i)] = numbers.encode(v)
	}
	return m
}

// numbers encodes values. Most of them are numbers: it writes all their texts into one string, and allocates them in one
// slice, in place of two allocations each.
type numbers struct {
	members []types.AttributeValueMemberN
}

// prepare encodes the n values that are integers at the top level.
func (b *numbers) prepare(n int, value func(int) expr.Value) {
	var space [512]byte
	text := space[:0]
	count := 0
	for i := range n {
		if v, ok := value(i).Int(); ok {
			text = strconv.AppendInt(text, v, 10)
			count++
		}
	}
	b.members = make([]types.AttributeValueMemberN, 0, count)
	rest := string(text)
	for i := range n {
		if v, ok := value(i).Int(); ok {
			length := decimalLength(v)
			b.members = append(b.members, types.AttributeValueMemberN{Value: rest[:length]})
			rest = rest[length:]
		}
	}
}

func decimalLength(n int64) int {
	length, u := 1, uint64(n)
	if n < 0 {
		length, u = 2, -u
	}
	for u >= 10 {
		u /= 10
		length++
	}
	return length
}

// encode returns a value as the SDK takes it. Integers must come in the order in which prepare saw them.
func (b *numbers) encode(v expr.Value) types.AttributeValue {
	if _, ok := v.Int(); ok {
		m := &b.members[0]
		b.members = b.members[1:]
		return m
	}
	return encode(v)
}

func encode(v expr.Value) types.AttributeValue {
	switch v.Kind() {
	case expr.KindS:
		return &types.AttributeValueMemberS{Value: v.Text()}
	case expr.KindN:
		return &types.AttributeValueMemberN{Value: v.Number()}
	case expr.KindBool:
		if v.True() {
			return attrTrue
		}
		return attrFalse
	case expr.KindSS:
		set := make([]string, len(v.Elements()))
		for i, e := range v.Elements() {
			set[i] = e.Value.Text()
		}
		return &types.AttributeValueMemberSS{Value: set}
	case expr.KindL:
		list := make([]types.AttributeValue, len(v.Elements()))
		for i, e := range v.Elements() {
			list[i] = encode(e.Value)
		}
		return &types.AttributeValueMemberL{Value: list}
	case expr.KindM:
		m := make(map[string]types.AttributeValue, len(v.Elements()))
		for _, e := range v.Elements() {
			m[e.Name] = encode(e.Value)
		}
		return &types.AttributeValueMemberM{Value: m}
	default: // KindNull, and KindNone, which no item holds
		return attrNull
	}
}

// decodeItem returns an item of the SDK, nil for none. Attributes of kinds that no zlimit record has (binary values,
// sets of numbers) are left out, at every depth; no update touches them. Its error is a [*store.ItemError], for the first of
// the attributes that cannot be read, beside the item of the others.
func decodeItem(m map[string]types.AttributeValue) (expr.Item, error) {
	if len(m) == 0 {
		return nil, nil
	}
	var broken *store.ItemError
	item := make(expr.Item, 0, len(m))
	for name, a := range m {
		v, err := decode(a)
		switch {
		case err != nil && (broken == nil || name < broken.Attribute):
			broken = &store.ItemError{Attribute: name, Err: fmt.Errorf("attribute %q: %w", name, err)}
		case err == nil && v.Kind() != expr.KindNone:
			item = append(item, expr.Attribute{Name: name, Value: v})
		}
	}
	if broken == nil {
		return item, nil
	}
	broken.Key = store.KeyOf(item)
	return item, broken
}

// decode returns a value of the SDK, the zero Value for a kind that no zlimit record has.
func decode(a types.AttributeValue) (expr.Value, error) {
	switch a := a.(type) {
	case *types.AttributeValueMemberN:
		return expr.ParseNumber(a.Value)
	case *types.AttributeValueMemberS:
		return expr.S(a.Value), nil
	case *types.AttributeValueMemberBOOL:
		return expr.Bool(a.Value), nil
	case *types.AttributeValueMemberNULL:
		return expr.Null(), nil
	case *types.AttributeValueMemberSS:
		return expr.Strings(a.Value...), nil
	case *types.AttributeValueMemberL:
		list := make([]expr.Value, 0, len(a.Value))
		for _, e := range a.Value {
			v, err := decode(e)
			if err != nil {
				return expr.Value{}, err
			}
			if v.Kind() != expr.KindNone {
				list = append(list, v)
			}
		}
		return expr.List(list...), nil
	case *types.AttributeValueMemberM:
		m, err := decodeItem(a.Value)
		return expr.Map(m), err
	default:
		return expr.Value{}, nil
	}
}
