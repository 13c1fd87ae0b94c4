package sqlite

import (
	"encoding/binary"
	"errors"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// The encoding of an item without its key: the version, the number of attributes, and for each its name and its value.
// A value is a tag and the bytes for the tag. Counts and lengths are uvarints, integers zigzag varints, strings their
// length and their bytes. A reader refuses versions and tags that it does not know.
const codecVersion = 1

const (
	tagString  = 'S' // a string
	tagInteger = 'i' // a number that fits an int64
	tagDecimal = 'N' // a number that does not: its decimal text, as a string
	tagTrue    = 't'
	tagFalse   = 'f'
	tagNull    = '0'
	tagSet     = 'Z' // a count, and its strings
	tagList    = 'L' // a count, and its values
	tagMap     = 'M' // a count, and its names with values
)

// errEncoding is the error of a blob that encodeItem did not write.
var errEncoding = errors.New("item is not in an encoding that this version reads")

// appendItem appends the encoding of the attributes of an item except its key.
func appendItem(b []byte, item expr.Item) []byte {
	b = append(b, codecVersion)
	n := len(item)
	for i := range item {
		if isKey(item[i].Name) {
			n--
		}
	}
	b = binary.AppendUvarint(b, uint64(n))
	for i := range item {
		if a := &item[i]; !isKey(a.Name) {
			b = appendValue(appendString(b, a.Name), a.Value)
		}
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendValue(b []byte, v expr.Value) []byte {
	switch v.Kind() {
	case expr.KindS:
		return appendString(append(b, tagString), v.Text())
	case expr.KindN:
		if n, ok := v.Int(); ok {
			return binary.AppendVarint(append(b, tagInteger), n)
		}
		return appendString(append(b, tagDecimal), v.Number())
	case expr.KindBool:
		if v.True() {
			return append(b, tagTrue)
		}
		return append(b, tagFalse)
	case expr.KindSS:
		b = binary.AppendUvarint(append(b, tagSet), uint64(len(v.Elements())))
		for _, e := range v.Elements() {
			b = appendString(b, e.Value.Text())
		}
		return b
	case expr.KindL:
		b = binary.AppendUvarint(append(b, tagList), uint64(len(v.Elements())))
		for _, e := range v.Elements() {
			b = appendValue(b, e.Value)
		}
		return b
	case expr.KindM:
		b = binary.AppendUvarint(append(b, tagMap), uint64(len(v.Elements())))
		for _, e := range v.Elements() {
			b = appendValue(appendString(b, e.Name), e.Value)
		}
		return b
	default:
		return append(b, tagNull)
	}
}

// decodeItem returns the item with the key k whose other attributes a blob encodes. Their strings share its memory.
func decodeItem(k store.Key, blob string) (expr.Item, error) {
	d := decoder{rest: blob}
	if d.byte() != codecVersion {
		return nil, errEncoding
	}
	n := d.count()
	item := make(expr.Item, n+2)
	item[0] = expr.Attribute{Name: store.PK, Value: expr.S(k.PK)}
	item[1] = expr.Attribute{Name: store.SK, Value: expr.S(k.SK)}
	for i := range n {
		a := &item[i+2]
		a.Name = d.string()
		a.Value = d.value(0)
	}
	if d.failed || d.rest != "" {
		return nil, errEncoding
	}
	return item, nil
}

// A decoder takes an encoding apart from the front. Once something is wrong it returns zero values.
type decoder struct {
	rest   string
	failed bool
}

func (d *decoder) fail() { d.failed, d.rest = true, "" }

func (d *decoder) byte() byte {
	if d.rest == "" {
		d.fail()
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) uvarint() uint64 {
	var x uint64
	for shift := 0; shift < 64; shift += 7 {
		b := d.byte()
		if shift == 63 && b > 1 { // more than 64 bits
			break
		}
		x |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return x
		}
	}
	d.fail()
	return 0
}

// count returns a number of things of at least a byte each.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) string() string {
	n := d.count()
	s := d.rest[:n]
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) value(depth int) expr.Value {
	if depth > store.MaxDepth {
		d.fail()
	}
	switch d.byte() {
	case tagString:
		return expr.S(d.string())
	case tagInteger:
		x := d.uvarint()
		return expr.N(int64(x>>1) ^ -int64(x&1))
	case tagDecimal:
		v, err := expr.ParseNumber(d.string())
		if err != nil {
			d.fail()
		}
		return v
	case tagTrue:
		return expr.Bool(true)
	case tagFalse:
		return expr.Bool(false)
	case tagNull:
		return expr.Null()
	case tagSet:
		set := make([]string, d.count())
		for i := range set {
			set[i] = d.string()
		}
		return expr.Strings(set...)
	case tagList:
		list := make([]expr.Value, d.count())
		for i := range list {
			list[i] = d.value(depth + 1)
		}
		return expr.List(list...)
	case tagMap:
		m := make(expr.Item, d.count())
		for i := range m {
			m[i].Name = d.string()
			m[i].Value = d.value(depth + 1)
		}
		return expr.Map(m)
	default:
		d.fail()
		return expr.Value{}
	}
}
