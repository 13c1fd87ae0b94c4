package wire

import (
	"strconv"
	"unicode/utf8"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// AppendString appends a JSON string. Bytes that are not UTF-8 become U+FFFD, as the SDK writes them.
func AppendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0 // of text copied as it is
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		b = append(b, s[start:i]...)
		switch {
		case c >= utf8.RuneSelf:
			b = append(b, "\ufffd"...)
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}

// AppendMember appends a member whose value is a string, after a comma.
func AppendMember(b []byte, name, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	return AppendString(append(b, '"', ':'), value)
}

// AppendKey appends a primary key as an object of its attributes.
func AppendKey(b []byte, k store.Key) []byte {
	b = appendKeyAttributes(append(b, '{'), k)
	return append(b, '}')
}

func appendKeyAttributes(b []byte, k store.Key) []byte {
	b = AppendString(append(b, `"`+store.PK+`":{"S":`...), k.PK)
	b = AppendString(append(b, `},"`+store.SK+`":{"S":`...), k.SK)
	return append(b, '}')
}

// AppendItem appends an item with the key k, which replaces key attributes of the item.
func AppendItem(b []byte, k store.Key, item expr.Item) []byte {
	b = appendKeyAttributes(append(b, '{'), k)
	for i := range item {
		if item[i].Name != store.PK && item[i].Name != store.SK {
			b = appendAttribute(append(b, ','), item[i])
		}
	}
	return append(b, '}')
}

func appendAttribute(b []byte, a expr.Attribute) []byte {
	b = append(AppendString(b, a.Name), ':')
	return AppendValue(b, a.Value)
}

// AppendExpression appends the members of a bound template to a request, each after a comma: the condition, the update,
// the names and the values.
func AppendExpression(b []byte, e expr.Bound) []byte {
	if e.Template == nil {
		return b
	}
	if members := e.Members(); members != "" {
		b = append(append(b, ','), members...)
	}
	if len(e.Values) == 0 { // DynamoDB takes no empty map
		return b
	}
	b = append(b, `,"ExpressionAttributeValues":{`...)
	for i, v := range e.Values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), expr.Placeholder(i)...), '"', ':')
		b = AppendValue(b, v)
	}
	return append(b, '}')
}

// AppendValue appends an attribute value, such as {"N":"1"}.
func AppendValue(b []byte, v expr.Value) []byte {
	switch v.Kind() {
	case expr.KindS:
		b = AppendString(append(b, `{"S":`...), v.Text())
	case expr.KindN:
		b = append(b, `{"N":"`...)
		if n, ok := v.Int(); ok {
			b = strconv.AppendInt(b, n, 10)
		} else {
			b = append(b, v.Number()...)
		}
		b = append(b, '"')
	case expr.KindBool:
		b = strconv.AppendBool(append(b, `{"BOOL":`...), v.True())
	case expr.KindSS:
		b = append(b, `{"SS":[`...)
		for i, e := range v.Elements() {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendString(b, e.Value.Text())
		}
		b = append(b, ']')
	case expr.KindL:
		b = append(b, `{"L":[`...)
		for i, e := range v.Elements() {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendValue(b, e.Value)
		}
		b = append(b, ']')
	case expr.KindM:
		b = append(b, `{"M":{`...)
		for i, e := range v.Elements() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendAttribute(b, e)
		}
		b = append(b, '}')
	default: // KindNull, and KindNone, which no item holds
		b = append(b, `{"NULL":true`...)
	}
	return append(b, '}')
}
