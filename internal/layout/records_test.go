package layout

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// The tests of this file hold for every record and every operation, whatever the schema. The schema's own are in the
// tables keyKinds, itemKinds and calls, which are generated.

// keyKind is the keys of one record, for tests about all of them.
type keyKind struct {
	record string
	draw   func(t *rapid.T) (fields any, key store.Key)
	parse  func(store.Key) (fields any, key store.Key, ok bool)
}

func keysOf[K interface {
	comparable
	Key() store.Key
}](record string, parse func(store.Key) (K, bool)) keyKind {
	return keyKind{
		record: record,
		draw: func(t *rapid.T) (any, store.Key) {
			var k K
			drawKey(t, reflect.ValueOf(&k).Elem())
			return k, k.Key()
		},
		parse: func(key store.Key) (any, store.Key, bool) {
			k, ok := parse(key)
			return k, k.Key(), ok
		},
	}
}

// drawKey draws the fields of a key, of characters and words that keys are made of.
func drawKey(t *rapid.T, key reflect.Value) {
	for i := range key.NumField() {
		switch name, field := key.Type().Field(i).Name, key.Field(i); {
		case field.Kind() == reflect.Int:
			field.SetInt(rapid.Int64Range(0, 1<<40).Draw(t, name))
		default:
			text := rapid.StringMatching(`([a-z0-9_.:$/|@+=~%-]|CONFIG|USAGE|BUCKET|/ENTITY|/RESOURCE|_default_|é){1,3}`).Draw(t, name)
			for _, c := range forbidden[name] {
				text = strings.ReplaceAll(text, string(c), "_")
			}
			field.SetString(text)
		}
	}
}

// TestKeysRoundTrip draws keys of every record: each is parsed as it was, by the parser of its record alone. So two keys
// that differ, of one record or of two, never have the same strings.
func TestKeysRoundTrip(t *testing.T) {
	for i, kind := range keyKinds {
		t.Run(kind.record, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				fields, key := kind.draw(t)
				for j, other := range keyKinds {
					got, _, ok := other.parse(key)
					switch {
					case i == j && (!ok || got != fields):
						t.Fatalf("%s: parse(%q) = %+v, %t, want %+v", other.record, key, got, ok, fields)
					case i != j && ok:
						t.Fatalf("%s: parse(%q) = %+v, but it is the key %T%+v", other.record, key, got, fields, fields)
					}
				}
			})
		})
	}
}

// FuzzParseKey asks that a key is accepted by one parser at most, and written again as it was.
func FuzzParseKey(f *testing.F) {
	f.Add("ns/BUCKET#e#r#0", "#STATE")
	f.Add("ns/ENTITY#e", "#USAGE#r#2026-01-02")
	f.Add("_/SYSTEM#", "#VERSION")
	f.Add("_/SYSTEM#", "#NSID#x")
	f.Fuzz(func(t *testing.T, pk, sk string) {
		key := store.Key{PK: pk, SK: sk}
		accepted := ""
		for _, kind := range keyKinds {
			fields, again, ok := kind.parse(key)
			if !ok {
				continue
			}
			if accepted != "" {
				t.Errorf("%q is accepted by %s and by %s", key, accepted, kind.record)
			}
			if accepted = kind.record; again != key {
				t.Errorf("%s: parse(%q) = %+v, which has key %q", kind.record, key, fields, again)
			}
			if text := fmt.Sprint(fields); strings.Contains(text, "#") {
				t.Errorf("%s: parse(%q) = %+v, with a # in a field", kind.record, key, fields)
			}
		}
	})
}

// itemKind is the items of one record, for tests about all of them.
type itemKind struct {
	record string
	draw   func(t *rapid.T) (it any, item expr.Item)
	decode func(expr.Item) (it any, item expr.Item, err error) // item is what encode makes of it again
}

// itemsOf returns the items of a record. key returns the key of one.
func itemsOf[T any, P interface {
	*T
	Encode() expr.Item
}](record string, decode func(expr.Item) (T, error), key func(P) store.Key) itemKind {
	encode := func(it *T) expr.Item { return withKey(key(it), P(it).Encode()) }
	return itemKind{
		record: record,
		draw: func(t *rapid.T) (any, expr.Item) {
			it := new(T)
			drawItem(t, reflect.ValueOf(it).Elem())
			return *it, encode(it)
		},
		decode: func(item expr.Item) (any, expr.Item, error) {
			it, err := decode(item)
			return it, encode(&it), err
		},
	}
}

func withKey(key store.Key, item expr.Item) expr.Item {
	return append(item, expr.Attribute{Name: store.PK, Value: expr.S(key.PK)}, expr.Attribute{Name: store.SK, Value: expr.S(key.SK)})
}

// drawItem draws the fields of an item or of a member of one.
func drawItem(t *rapid.T, it reflect.Value) {
	for i := range it.NumField() {
		field := it.Field(i)
		switch name := it.Type().Field(i).Name; {
		case name == "Key":
			drawKey(t, field)
		case readOnly[name] || !field.CanSet() || name == "Life", name == "FromChildren", name == "FromNarrower": // is not written, is not of the schema, or is among Lives, Children or Narrower
		case field.Kind() == reflect.String:
			field.SetString(rapid.StringMatching(`[a-z#é]{0,3}`).Draw(t, name))
		case field.Type() == reflect.TypeFor[*bucket.Rare]():
			var rare bucket.Rare
			if drawItem(t, reflect.ValueOf(&rare).Elem()); rare != (bucket.Rare{}) {
				field.Set(reflect.ValueOf(&rare))
			}
		case field.Type() == reflect.TypeFor[*calendar.Times]():
			if text := rapid.StringMatching(`[a-z#é]{0,3}`).Draw(t, name); text != "" {
				field.Set(reflect.ValueOf(calendar.Unplaced(text)))
			}
		case field.Type() == reflect.TypeFor[*calendar.Windows]():
			if text := rapid.StringMatching(`[a-z#é]{0,3}`).Draw(t, name); text != "" {
				field.Set(reflect.ValueOf(calendar.UnplacedWindows(text)))
			}
		case field.Kind() == reflect.Int64:
			field.SetInt(rapid.Int64().Draw(t, name))
		case field.Type() == reflect.TypeFor[expr.Value]():
			field.Set(reflect.ValueOf(rapid.SampledFrom([]expr.Value{{}, expr.Bool(true), expr.Bool(false), expr.S("x")}).Draw(t, name)))
		case field.Kind() == reflect.Bool:
			field.SetBool(rapid.Bool().Draw(t, name))
		default:
			field.Set(reflect.ValueOf(drawMany(t, name, field.Type())))
		}
	}
}

// drawMany draws what there are several of; a nil slice when there are none.
func drawMany(t *rapid.T, name string, typ reflect.Type) any {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
		"rpm", "tpm", "wcu", "my_limit", "my_limit_tk", "a.b", "x-y", "b_x_tk", "limit_",
	}), 0, 5, rapid.ID).Draw(t, name)
	slices.Sort(names)
	all := reflect.Zero(typ)
	for _, n := range names {
		var one reflect.Value
		switch typ.Elem() {
		case reflect.TypeFor[string]():
			one = reflect.ValueOf(n)
		case reflect.TypeFor[expr.Value]():
			one = reflect.ValueOf(expr.S(n))
		case reflect.TypeFor[expr.Attribute]():
			one = reflect.ValueOf(expr.Attribute{Name: n, Value: expr.List(expr.S(n))})
		default: // a member
			one = reflect.New(typ.Elem()).Elem()
			drawItem(t, one)
			one.FieldByName("Name").SetString(n)
			switch l, _ := one.Addr().Interface().(*bucket.StoredLimit); {
			case l == nil:
			case name == "Sessions": // which have none of these
				l.Times, l.Carry, l.Term = "", 0, 0
			default:
				l.Session = 0
			}
		}
		all = reflect.Append(all, one)
	}
	return all.Interface()
}

// sameItems compares items except the attributes that the schema does not know.
var sameItems = cmp.Options{
	cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".unknown" }, cmp.Ignore()),
	cmp.Exporter(func(reflect.Type) bool { return true }),
	cmp.Comparer(expr.Value.Equal),
	cmpopts.EquateEmpty(),
}

// written compares items except the fields that are read alone.
var written = cmp.FilterPath(func(p cmp.Path) bool {
	return readOnly[strings.TrimPrefix(p.Last().String(), ".")]
}, cmp.Ignore())

// TestItemsRoundTrip encodes and decodes items of every record, among attributes that the schema does not know, which
// stay as they are. The decoders of other records refuse them.
func TestItemsRoundTrip(t *testing.T) {
	strange := expr.Item{
		{Name: "later", Value: expr.Strings("a", "b")},
		{Name: "b_rpm_zz", Value: expr.Null()},
		{Name: "b__tk", Value: expr.Bool(true)},
		{Name: "l_cp", Value: expr.List()},
		{Name: "LSI3SK", Value: expr.S("x")},
	}
	for _, kind := range itemKinds {
		t.Run(kind.record, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				it, item := kind.draw(t)
				item = append(item, strange[:rapid.IntRange(0, len(strange)).Draw(t, "strange")]...)
				item = rapid.Permutation(item).Draw(t, "item")
				got, again, err := kind.decode(item)
				if err != nil {
					t.Fatalf("%s: decode(%v) = %v", kind.record, item, err)
				}
				if diff := cmp.Diff(it, got, sameItems); diff != "" {
					t.Fatalf("%s: decode(%v) (-want +got):\n%s", kind.record, item, diff)
				}
				if !again.Equal(item) {
					t.Fatalf("encoded again:\n%v, want\n%v", again, item)
				}
				other := rapid.SampledFrom(itemKinds).Draw(t, "other")
				if got, _, err := other.decode(item); other.record != kind.record && err == nil {
					t.Fatalf("%s: decode(%v) = %+v, but it is of another record", other.record, item, got)
				}
			})
		})
	}
}

// checkDecode changes attributes of items of every record. A decoded item is encoded to one that decodes alike. Every
// other item is an error that names the record.
func checkDecode(t *rapid.T) {
	kind := rapid.SampledFrom(itemKinds).Draw(t, "kind")
	_, item := kind.draw(t)
	for range rapid.IntRange(0, 4).Draw(t, "changes") {
		name := rapid.SampledFrom([]string{
			"PK", "SK", "GSI1PK", "GSI4SK", "LSI1SK", "rf", "ttl", "name", "parent_id", "metadata", "resources", "config_version",
			"managed_entities", "b_x_tk", "b_x_cp", "b_x_y_tk", "l_x_cp", "l_x_bx", "b_", "b__", "_", "x", "",
		}).Draw(t, "name")
		if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
			item.Remove(name)
		} else {
			item.Set(name, drawValue(t))
		}
	}
	got, again, err := kind.decode(item)
	if err != nil {
		if !strings.Contains(err.Error(), " item: ") {
			t.Fatalf("%s: decode(%v) = %v, which does not name the record", kind.record, item, err)
		}
		return
	}
	second, _, err := kind.decode(again)
	if diff := cmp.Diff(got, second, sameItems, written); err != nil || diff != "" {
		t.Fatalf("%s: decode(%v) = %v, encoded and decoded again: (-first +second)\n%s", kind.record, item, err, diff)
	}
}

func drawValue(t *rapid.T) expr.Value {
	text := rapid.SampledFrom([]string{"", "a", "n/ENTITY#e", "#META", "é"}).Draw(t, "text")
	number := rapid.SampledFrom([]string{"0", "-1", "9223372036854775807", "18446744073709551617", "0.5"}).Draw(t, "number")
	n := check.Call(expr.ParseNumber(number)).Must(t, "expr.ParseNumber()")
	return rapid.SampledFrom([]expr.Value{
		expr.S(text), n, expr.Bool(true), expr.Null(), expr.Strings(text), expr.List(n, expr.Null()),
		expr.Map(expr.Item{{Name: text, Value: n}}),
		{},
	}).Draw(t, "value")
}

func TestDecode(t *testing.T) { rapid.Check(t, checkDecode) }

func FuzzDecode(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkDecode)) }

// operationCall is a call of an operation with some values.
type operationCall struct {
	name string
	bind func() (expr.Bound, error)
}

// TestOperations binds every operation: the runtime takes what is generated, and every value is used.
func TestOperations(t *testing.T) {
	for _, c := range calls {
		bound, err := c.bind()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		text := bound.Condition() + " " + bound.Update() + " "
		for i := range bound.Values {
			if !regexp.MustCompile(expr.Placeholder(i) + `\b`).MatchString(text) {
				t.Errorf("%s: %s does not use value %d", c.name, text, i)
			}
		}
		for placeholder, name := range bound.Names() {
			if name == "" || !regexp.MustCompile(placeholder+`\b`).MatchString(text) {
				t.Errorf("%s: %s does not use %s, which is %q", c.name, text, placeholder, name)
			}
		}
	}
}
