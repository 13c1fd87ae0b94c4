package dynamo

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/schemas"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store/dynamo/wire"
)

// FuzzScan compares two readings of one reply, by the wire path and by the SDK's deserializer. It may leave a reply to
// the SDK, but must not read another item, nor other units.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` {"Attributes" : { } } `, `{"Attributes":{"PK":{"S":"p"},"n":{"N":"-1"},"b":{"BOOL":true},"z":{"NULL":true}}}`,
		`{"Attributes":{"l":{"L":[{"N":"1.5"},{"SS":["b","a","b"]},{"M":{"x":{"L":[]},"y":{"M":{}}}}]}}}`,
		`{"Attributes":{"s":{"S":"\u00e9"},"b":{"B":"aGk="},"ns":{"NS":["1"]}}}`, `{"Attributes":null}`, `{"Attributes":{"s":{"S":"\u00e9"}}}`, `{"Attributes":{"\n":{"NULL":true}}}`, `{"Attributes":{"a":{"S":null}}}`,
		`{"Attributes":{"a":{"N":"1E+3"}},"ConsumedCapacity":{"TableName":"t"}}`, `{"Attributes":{"a":{"N":"01"}}}x`,
		`{"ConsumedCapacity":{"CapacityUnits":0.5,"TableName":"t"}}`, `{"ConsumedCapacity":{"CapacityUnits":01}}`, `{"ConsumedCapacity":{"CapacityUnits":1.},"Attributes":{}}`, "{\"Attributes\":{\"a\":{\"S\":\"\xff\"}}}",
		`{"Attributes":{"a":{"SS":[]},"b":{"N":"-0"},"c":{"BOOL":false,"N":"1"}},}`, `{"Attributes":{"":{"L":[{"M":{"":{"L":[]},"":{"M":{}}}}]}}}`, `{"Attributes":{"a":{"__type":"x","N":"1"}}}`,
	} {
		f.Add(seed)
	}
	protocol := dynamodb.New(dynamodb.Options{Region: "us-east-1"}).Options().Protocol
	schema := smithy.NewOperationSchema(schemas.UpdateItem, schemas.UpdateItemInput, schemas.UpdateItemOutput)
	f.Fuzz(func(t *testing.T, body string) {
		var own, sdk updated
		if !own.Scan(body) || repeats(expr.KindM, own.Item) {
			return
		}
		reply := &smithyhttp.Response{Response: &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(body))}}
		if err := protocol.DeserializeResponse(context.Background(), schema, dynamodb.TypeRegistry, reply, &sdk); err != nil || sdk.err != nil {
			t.Fatalf("%q is read as %v, and refused by the SDK: %v, %v", body, own.Item, err, sdk.err)
		}
		if !own.Item.Equal(sdk.Item) || own.Units != sdk.Units {
			t.Errorf("%q is read as %v and %v units, by the SDK as %v and %v", body, own.Item, own.Units, sdk.Item, sdk.Units)
		}
	})
}

// FuzzHabit reads a reply with the habit of others, and compares with a reading of it alone.
func FuzzHabit(f *testing.F) {
	const plain = `{"Attributes":{"PK":{"S":"p"},"n":{"N":"-1"},"b":{"BOOL":true},"z":{"NULL":true}},"ConsumedCapacity":{"CapacityUnits":0.5}}`
	for _, next := range []string{
		plain, strings.Replace(plain, "-1", "123456789012345678901234567890", 1), strings.Replace(plain, "-1", "x", 1), strings.Replace(plain, "-1", "", 1), strings.Replace(plain, "-1", `1\"`, 1),
		strings.Replace(plain, `"p"`, `"q\u0070"`, 1), strings.Replace(plain, `"p"`, `""`, 1), strings.Replace(plain, "true", "false", 1), strings.Replace(plain, `"n"`, `"m"`, 1),
		strings.Replace(plain, `:{"N"`, ` : {"N"`, 1), strings.Replace(plain, `}}`, `},"more":{"N":"2"}}`, 1), strings.Replace(plain, `"z"`, `"b"`, 1), plain[:40], plain[:len(plain)-1], plain + "x",
		`{"Attributes":{"PK":{"S":"p"}}}`, `{"Attributes":{}}`, `{"Attributes":{"l":{"L":[{"N":"1"}]}}}`, "{\"Attributes\":{\"\xff\":{\"S\":\"\xff\"}}}", `{}`,
	} {
		f.Add(plain, next)
		f.Add(next, next)
		f.Add(next, plain)
	}
	f.Fuzz(func(t *testing.T, before, body string) {
		var habit wire.Habit
		(&updated{habit: &habit}).Scan(before)
		alone, after := updated{}, updated{habit: &habit}
		ok, habitual := alone.Scan(body), after.Scan(body)
		if ok != habitual || ok && (!alone.Item.Equal(after.Item) || alone.Units != after.Units || after.Forms != nil && !after.Forms.Fit(after.Item)) {
			t.Errorf("%q is read as %v, %t, and after %q as %v, %t", body, alone.Item, ok, before, after.Item, habitual)
		}
	})
}

// TestLentImages: an item that was given back is used for another one, and an item that was not is not.
func TestLentImages(t *testing.T) {
	var habit wire.Habit
	read := func(n string) *updated {
		u := &updated{habit: &habit}
		if !u.Scan(`{"Attributes":{"PK":{"S":"p"},"n":{"N":"` + n + `"}}}`) {
			t.Fatal("Scan() = false")
		}
		return u
	}
	read("0")
	kept := read("1")
	for range 100 {
		if u := read("2"); u.Loan == nil {
			t.Fatal("an item of the pattern is not lent")
		} else {
			u.Loan.Return()
		}
	}
	if n, _ := kept.Item.Get("n").Int(); n != 1 {
		t.Errorf("an item that was not given back has become %v", kept.Item)
	}
}

// TestHabit: an item that is written like another one is read by its pattern, and others are learned in time.
func TestHabit(t *testing.T) {
	var habit wire.Habit
	read := func(body string) bool {
		u := updated{habit: &habit}
		return u.Scan(body) && u.Forms != nil
	}
	const one, other = `{"Attributes":{"PK":{"S":"p"},"n":{"N":"1"}}}`, `{"Attributes":{"PK":{"S":"p"},"m":{"N":"1"}}}`
	if read(one) || !read(one) || !read(strings.Replace(one, "1", "23", 1)) || read(other) || !read(one) {
		t.Error("the second item of a form is not read by the pattern of the first one")
	}
	for range 16 {
		read(other)
	}
	if !read(other) {
		t.Error("another pattern is never learned")
	}
}

// repeats reports whether a map has two attributes of one name, which DynamoDB never sends.
func repeats(kind expr.Kind, elements expr.Item) bool {
	seen := map[string]bool{}
	for _, e := range elements {
		if kind == expr.KindM && seen[e.Name] || repeats(e.Value.Kind(), e.Value.Elements()) {
			return true
		}
		seen[e.Name] = true
	}
	return false
}
