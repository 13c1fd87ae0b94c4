package dynamo_test

import (
	"context"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
)

// A pinged client counts the partition keys that it is asked for.
type pinged struct {
	dynamo.Client
	keys map[string]int
}

func (p *pinged) GetItem(
	_ context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.GetItemOutput, error) {
	key, _ := in.Key["PK"].(*types.AttributeValueMemberS)
	p.keys[key.Value]++
	return &dynamodb.GetItemOutput{}, nil
}

// TestPingsSpread pings a thousand times. No key has more than a few, and every program may read each of them.
func TestPingsSpread(t *testing.T) {
	client := &pinged{keys: map[string]int{}}
	s := dynamo.New(client, "limits", layout.Table, nil)
	for range 1000 {
		check.Fatal(t, "Ping()", s.Ping(t.Context()))
	}
	for key, times := range client.keys {
		if times > 100 || !strings.HasPrefix(key, "_/") {
			t.Errorf("%d of 1000 pings read %q", times, key)
		}
	}
}
