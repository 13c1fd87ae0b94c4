// Package storetest is the behaviour that every [store.Store] must show, as tests: one suite for memory, for
// SQLite and for DynamoDB.
package storetest

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Table is the table that the suite works on. It has an index of each sort.
var Table = store.Table{
	Indexes: []store.Index{
		{Name: "ByOwner", PK: "owner", SK: "since"},
		{Name: "ByKind", PK: "kind", SK: "rank", KeysOnly: true},
		{Name: "ByDate", PK: store.PK, SK: "date", Local: true},
		{Name: "ByName", PK: store.PK, SK: "name", Local: true, KeysOnly: true},
	},
	TTL: "ttl",
}

// Item returns an item of attributes in pairs: a name, and a value or an int, string or bool that becomes one.
func Item(pairs ...any) expr.Item {
	item := make(expr.Item, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		item = append(item, expr.Attribute{Name: pairs[i].(string), Value: Value(pairs[i+1])})
	}
	return item
}

// Value returns v as a value.
func Value(v any) expr.Value {
	switch v := v.(type) {
	case expr.Value:
		return v
	case int:
		return expr.N(int64(v))
	case string:
		return expr.S(v)
	case bool:
		return expr.Bool(v)
	default:
		panic("storetest: a value of an unknown type")
	}
}

// Bind returns an operation of the given parts, bound to values.
func Bind(tb testing.TB, where []expr.Condition, update []expr.Action, values ...any) expr.Bound {
	tb.Helper()
	op := &expr.Operation{Name: tb.Name(), Placeholders: len(values), Where: where, Update: update}
	bound := make([]expr.Value, len(values))
	for i, v := range values {
		bound[i] = Value(v)
	}
	b, err := op.Call(bound...).Bind()
	if err != nil {
		tb.Fatalf("Bind: %v", err)
	}
	return b
}

// Equal makes cmp compare items by their attributes in any order, and results whether they are lent or not, and whether their forms are known
// or not.
var Equal = cmp.Options{cmp.FilterPath(isKnowledge, cmp.Ignore()), cmp.Transformer("attributes", func(item expr.Item) map[string]string {
	if item == nil {
		return nil
	}
	attributes := make(map[string]string, len(item))
	for _, a := range item {
		attributes[a.Name] += a.Value.Kind().String() + " " + a.Value.String() // twice for a repeated attribute
	}
	return attributes
})}

func isKnowledge(p cmp.Path) bool {
	is := p.Last().Type()
	return is == reflect.TypeFor[store.Loan]() || is == reflect.TypeFor[*expr.Forms]()
}
