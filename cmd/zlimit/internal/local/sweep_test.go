//go:build linux

package local_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/local"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// between is a transport that does something before each call of an operation.
type between struct {
	http.RoundTripper
	operation string
	do        func()
}

func (b between) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), "."+b.operation) {
		b.do()
	}
	return b.RoundTripper.RoundTrip(r)
}

// TestSweep deletes what has expired, but not an item whose time of expiry is moved between the look and the deletion.
func TestSweep(t *testing.T) {
	engine := enginetest.Start(t)
	table, client, ctx := engine.Table(t), engine.Client(), t.Context()
	l, err := zlimit.New(ctx, dynamo.New(client, table), zlimit.WithSetup())
	check.Fatal(t, "Close()", errors.Join(err, l.Close()))
	now := time.Now()
	put := func(name string, expires time.Duration) {
		t.Helper()
		item := map[string]types.AttributeValue{"PK": &types.AttributeValueMemberS{Value: "x/" + name}, "SK": &types.AttributeValueMemberS{Value: "#X"}}
		if expires != 0 {
			item["ttl"] = &types.AttributeValueMemberN{Value: strconv.FormatInt(now.Add(expires).Unix(), 10)}
		}
		if _, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: item}); err != nil {
			t.Fatalf("PutItem() = %v", err)
		}
	}
	put("expired", -time.Hour)
	put("moved", -time.Hour)
	put("later", time.Hour)
	put("never", 0)
	mover := engine.Client(func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: between{engine.Transport(), "DeleteItem", func() { put("moved", time.Hour) }}}
	})
	if n, err := local.Sweep(ctx, mover, table, now); err != nil || n != 1 {
		t.Errorf("Sweep() = %d, %v, want 1", n, err)
	}
	for name, want := range map[string]bool{"expired": false, "moved": true, "later": true, "never": true} {
		out, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, ConsistentRead: aws.Bool(true), Key: map[string]types.AttributeValue{
			"PK": &types.AttributeValueMemberS{Value: "x/" + name}, "SK": &types.AttributeValueMemberS{Value: "#X"},
		}})
		if err != nil || (out.Item != nil) != want {
			t.Errorf("item %s is there: %t, %v, want %t", name, out.Item != nil, err, want)
		}
	}
}
