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
		if !own.Scan(body) || repeats(expr.KindM, own.item) {
			return
		}
		reply := &smithyhttp.Response{Response: &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(body))}}
		if err := protocol.DeserializeResponse(context.Background(), schema, dynamodb.TypeRegistry, reply, &sdk); err != nil || sdk.err != nil {
			t.Fatalf("%q is read as %v, and refused by the SDK: %v, %v", body, own.item, err, sdk.err)
		}
		if !own.item.Equal(sdk.item) || own.units != sdk.units {
			t.Errorf("%q is read as %v and %v units, by the SDK as %v and %v", body, own.item, own.units, sdk.item, sdk.units)
		}
	})
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
