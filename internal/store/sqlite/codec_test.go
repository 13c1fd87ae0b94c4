package sqlite

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

var codecKey = store.Key{PK: "p", SK: "s"}

func number(t check.TB, text string) expr.Value {
	return check.Call(expr.ParseNumber(text)).Must(t, "expr.ParseNumber()")
}

// TestEncoding pins the bytes: files of earlier versions must stay readable.
func TestEncoding(t *testing.T) {
	for _, test := range []struct {
		value expr.Value
		want  string
	}{
		{expr.S(""), "S\x00"},
		{expr.S("žluť"), "S\x06žluť"},
		{expr.N(0), "i\x00"},
		{expr.N(-1), "i\x01"},
		{expr.N(300), "i\xd8\x04"},
		{expr.N(math.MaxInt64), "i\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
		{expr.N(math.MinInt64), "i\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
		{number(t, "1.50"), "N\x031.5"},
		{expr.Bool(true), "t"},
		{expr.Bool(false), "f"},
		{expr.Null(), "0"},
		{expr.Strings("b", "a"), "Z\x02\x01a\x01b"},
		{expr.List(expr.N(1), expr.List()), "L\x02i\x02L\x00"},
		{expr.Map(expr.Item{{Name: "k", Value: expr.Null()}}), "M\x01\x01k0"},
	} {
		item := codecKey.Join(expr.Item{{Name: "a", Value: test.value}})
		got := appendItem(nil, item)
		if want := "\x01\x01\x01a" + test.want; string(got) != want {
			t.Errorf("encoding of %v = %q, want %q", test.value, got, want)
		}
		if back, err := decodeItem(codecKey, string(got)); err != nil || !back.Equal(item) {
			t.Errorf("decoding of %q = %v, %v; want %v", got, back, err, item)
		}
	}
	// Attributes keep their order, on which store.Schema.Moves relies.
	item := codecKey.Join(expr.Item{{Name: "b", Value: expr.N(1)}, {Name: "a", Value: expr.N(2)}, {Name: "", Value: expr.N(3)}})
	back, err := decodeItem(codecKey, string(appendItem([]byte{}, item)))
	if err != nil || fmt.Sprint([]expr.Attribute(back)) != fmt.Sprint([]expr.Attribute(item)) {
		t.Errorf("decoding = %v, %v; want %v", back, err, item)
	}
}

func TestDecodingRefuses(t *testing.T) {
	deep := strings.Repeat("L\x01", store.MaxDepth+2) + "0"
	for name, blob := range map[string]string{
		"nothing":                   "",
		"another version":           "\x02\x00",
		"a tag that is not known":   "\x01\x01\x01ax",
		"too few attributes":        "\x01\x02\x01a0",
		"more than it says":         "\x01\x01\x01a00",
		"a count beyond the end":    "\x01\xff\xff\xff\xff\x0f",
		"a string beyond the end":   "\x01\x01\x01aS\x05x",
		"a varint without end":      "\x01\x01\x01ai\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"a varint beyond 64 bits":   "\x01\x01\x01ai\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
		"a number that is not one":  "\x01\x01\x01aN\x01x",
		"lists nested without end":  "\x01\x01\x01a" + deep,
		"a set of more than it has": "\x01\x01\x01aZ\x02\x01a",
	} {
		if item, err := decodeItem(codecKey, blob); err == nil {
			t.Errorf("decoding of %s = %v", name, item)
		}
	}
}

// value draws a value of any kind.
func value(t *rapid.T, depth int) expr.Value {
	kinds := 7
	if depth > 0 {
		kinds = 9
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return expr.S(rapid.String().Draw(t, "string"))
	case 1:
		return expr.N(rapid.Int64().Draw(t, "integer"))
	case 2:
		return number(t, rapid.StringMatching(`-?[1-9][0-9]{19,30}(\.[0-9]{1,7})?`).Draw(t, "decimal"))
	case 3:
		return expr.Bool(true)
	case 4:
		return expr.Bool(false)
	case 5:
		return expr.Null()
	case 6:
		return expr.Strings(rapid.SliceOf(rapid.String()).Draw(t, "set")...)
	case 7:
		return expr.List(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) expr.Value { return value(t, depth-1) }), 0, 4).Draw(t, "list")...)
	default:
		return expr.Map(attributes(t, depth-1))
	}
}

func attributes(t *rapid.T, depth int) expr.Item {
	item := expr.Item{}
	for range rapid.IntRange(0, 4).Draw(t, "attributes") {
		item.Set(rapid.StringN(1, 5, -1).Draw(t, "name"), value(t, depth))
	}
	return item
}

func TestEncodingKeepsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		item := codecKey.Join(attributes(t, 3))
		got, err := decodeItem(codecKey, string(appendItem(nil, item)))
		if err != nil || !got.Equal(item) {
			t.Fatalf("decoding = %v, %v; want %v", got, err, item)
		}
	})
}

// FuzzDecode decodes bytes that are no encoding. They fail, or their value survives the encoding.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x01\x00"))
	f.Add(appendItem(nil, expr.Item{
		{Name: "a", Value: expr.S("text")},
		{Name: "b", Value: expr.N(-300)},
		{Name: "c", Value: number(f, "0.5")},
		{Name: "d", Value: expr.Strings("x", "y")},
		{Name: "e", Value: expr.List(expr.Null(), expr.Bool(true))},
		{Name: "f", Value: expr.Map(expr.Item{{Name: "g", Value: expr.Bool(false)}})},
	}))
	f.Fuzz(func(t *testing.T, blob []byte) {
		item, err := decodeItem(codecKey, string(blob))
		if err != nil {
			if item != nil {
				t.Fatalf("decoding of %q = %v, %v", blob, item, err)
			}
			return
		}
		again := appendItem(nil, item)
		back, err := decodeItem(codecKey, string(again))
		if err != nil || !bytes.Equal(appendItem(nil, back), again) {
			t.Fatalf("%q is %v, which becomes %q, which is %v, %v", blob, item, again, back, err)
		}
	})
}
