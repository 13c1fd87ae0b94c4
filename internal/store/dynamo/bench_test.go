package dynamo_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
)

// image is a bucket of two limits as an UpdateItem returns it.
const image = `{"Attributes":{"PK":{"S":"ABCDEFGHIJK/BUCKET#user-1#gpt-4#0"},"SK":{"S":"#STATE"},"entity_id":{"S":"user-1"},
"resource":{"S":"gpt-4"},"b_rpm_tk":{"N":"99000"},"b_rpm_cp":{"N":"100000"},"b_rpm_ra":{"N":"100000"},"b_rpm_rp":{"N":"60000"},
"b_rpm_tc":{"N":"1000"},"b_wcu_tk":{"N":"999"},"b_wcu_cp":{"N":"1000"},"b_wcu_ra":{"N":"1000"},"b_wcu_rp":{"N":"1000"},
"b_wcu_tc":{"N":"1"},"rf":{"N":"1700000000000"},"shard_count":{"N":"1"},"cascade":{"BOOL":false}}}`

// canned answers every request with the same body.
type canned string

// RoundTrip implements [http.RoundTripper].
func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader([]byte(c))), ContentLength: int64(len(c)), Request: r}, nil
}

// BenchmarkUpdate compares a spend on a bucket of two limits with the SDK's UpdateItem. That call has the same
// expression and a ready input, and its output is not looked at. The difference is what the store adds. The store's
// retryer is lighter than the SDK's, hence the comparison with none. There is no network.
func BenchmarkUpdate(b *testing.B) {
	client := dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://dynamodb.test"), HTTPClient: &http.Client{Transport: canned(image)},
		DisableValidateResponseChecksum: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		}),
	})
	tk, tc := expr.Of("b_", "_tk"), expr.Of("b_", "_tc")
	op := &expr.Operation{
		Name: "spend", Placeholders: 1, Where: []expr.Condition{expr.GE(expr.Attr("rf"), 0)},
		Clauses: []expr.Clause{{Name: "limit", Placeholders: 3, Where: []expr.Condition{expr.GE(tk, 0)}, Update: []expr.Action{expr.Add(tk, 1), expr.Add(tc, 2)}}},
	}
	bind := func() expr.Bound {
		c := op.Call(expr.N(1699999999000))
		c.Pick(0, "rpm", expr.N(1000), expr.N(-1000), expr.N(1000))
		c.Pick(0, "wcu", expr.N(1), expr.N(-1), expr.N(1))
		return check.Call(c.Bind()).Must(b, "Bind()")
	}
	key := store.Key{PK: "ABCDEFGHIJK/BUCKET#user-1#gpt-4#0", SK: "#STATE"}

	sdk := func(b *testing.B, options ...func(*dynamodb.Options)) {
		bound := bind()
		values := map[string]types.AttributeValue{}
		for i, v := range bound.Values {
			values[expr.Placeholder(i)] = &types.AttributeValueMemberN{Value: v.Number()}
		}
		in := &dynamodb.UpdateItemInput{
			TableName: aws.String("table"),
			Key: map[string]types.AttributeValue{
				"PK": &types.AttributeValueMemberS{Value: key.PK}, "SK": &types.AttributeValueMemberS{Value: key.SK},
			},
			ConditionExpression: aws.String(bound.Condition()), UpdateExpression: aws.String(bound.Update()),
			ExpressionAttributeNames: bound.Names(), ExpressionAttributeValues: values,
			ReturnValues:                        types.ReturnValueAllNew,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := client.UpdateItem(b.Context(), in, options...); err != nil {
				b.Fatalf("UpdateItem() = %v", err)
			}
		}
	}
	b.Run("sdk", func(b *testing.B) { sdk(b) })
	b.Run("sdk without retries", func(b *testing.B) {
		sdk(b, func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} })
	})
	tuned := check.Call(dynamo.NewClient(b.Context(), dynamo.ClientConfig{Endpoint: "http://127.0.0.1:8000"})).Must(b, "dynamo.NewClient()")
	tuned = dynamodb.New(tuned.Options(), func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: canned(image)} })
	onStore := func(b *testing.B, client *dynamodb.Client, options ...dynamo.Option) {
		s := dynamo.New(client, "table", storetest.Table, enginetest.CreateSuiteTable, options...)
		w := store.Write{Key: key, Expr: bind()}
		b.ReportAllocs()
		for b.Loop() {
			if r, err := s.Write(b.Context(), w); err != nil || !r.Applied || len(r.Item) != 17 {
				b.Fatal(r, err)
			}
		}
	}
	b.Run("store", func(b *testing.B) { onStore(b, client) })
	b.Run("store on a tuned client", func(b *testing.B) { onStore(b, tuned) })
	b.Run("store without the wire path", func(b *testing.B) { onStore(b, tuned, dynamo.WithoutWire()) })
}
