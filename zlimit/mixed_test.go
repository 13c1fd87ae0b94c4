package zlimit_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// A pythonClient writes a bucket with the expressions that zae-limiter 0.10.1 to 0.17.0 sends.
type pythonClient struct {
	client *dynamodb.Client
	table  string
	key    map[string]types.AttributeValue
}

// pythonSDK returns a client that meets no faults, since this is no test of what the Python client makes of them.
func pythonSDK(engine *enginetest.Engine) *dynamodb.Client {
	return engine.Client(func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	})
}

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// take is the write by which acquire begins: it asks for the balance, and neither reads nor moves the refill stamp. It
// reports whether the tokens were there.
func (c *pythonClient) take(t *testing.T, tokens int64, now time.Time) bool {
	t.Helper()
	_, err := c.client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: &c.table, Key: c.key,
		UpdateExpression: aws.String("ADD #c0 :p0, #t0 :n0, #wcu_tk :neg_wcu, #wcu_tc :pos_wcu"),
		ConditionExpression: aws.String("attribute_exists(PK) AND #t0 >= :h0 AND #wcu_tk >= :thresh_wcu AND " +
			"(attribute_not_exists(#ttl) OR #ttl > :now_epoch)"),
		ExpressionAttributeNames: map[string]string{
			"#c0": "b_rpm_tc", "#t0": "b_rpm_tk", "#wcu_tk": "b_wcu_tk", "#wcu_tc": "b_wcu_tc", "#ttl": "ttl",
		},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":p0": number(tokens * 1000), ":n0": number(-tokens * 1000), ":h0": number(tokens * 1000),
			":neg_wcu": number(-1000), ":pos_wcu": number(1000), ":thresh_wcu": number(1000), ":now_epoch": number(now.Unix()),
		},
	})
	if hasCode(err, "ConditionalCheckFailedException") {
		return false
	}
	check.Fatal(t, "UpdateItem()", err)
	return true
}

// adjust is the write at the end of a lease: without any condition.
func (c *pythonClient) adjust(t *testing.T, tokens int64) {
	t.Helper()
	check.Call(c.client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: &c.table, Key: c.key,
		UpdateExpression:         aws.String("ADD #b_rpm_tk :b_rpm_tk_delta, #b_rpm_tc :b_rpm_tc_delta"),
		ExpressionAttributeNames: map[string]string{"#b_rpm_tk": "b_rpm_tk", "#b_rpm_tc": "b_rpm_tc"},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":b_rpm_tk_delta": number(-tokens * 1000), ":b_rpm_tc_delta": number(tokens * 1000),
		},
	})).Must(t, "UpdateItem()")
}

// In TestMixedFleet, a bucket of 100 a minute is idle for five minutes. The Python client is the first to write it then.
// Without the option this package hands out that time once more; with it the fleet takes no more than the bucket holds.
func TestMixedFleet(t *testing.T) {
	engine := enginetest.Start(t)
	for _, test := range []struct {
		name    string
		options []zlimit.Option
		least   int
		most    int
	}{
		{"without the option", nil, 180, 180},
		{"with it", []zlimit.Option{zlimit.WithMixedFleet()}, 100, 101},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newClock()
			table := engine.Table(t)
			l := newLimiter(t, dynamo.New(engine.Client(), table), append(test.options, zlimit.WithSetup(), zlimit.WithClock(c.now))...)
			setSystem(t, l, zlimit.PerMinute("rpm", 100))
			acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
			key := layout.BucketKey{NS: l.NS(), Entity: "key-1", Resource: "gpt-4"}.Key()
			python := &pythonClient{pythonSDK(engine), table, map[string]types.AttributeValue{
				"PK": &types.AttributeValueMemberS{Value: key.PK}, "SK": &types.AttributeValueMemberS{Value: key.SK},
			}}
			c.sleep(5 * time.Minute)
			admitted := 0
			for range 60 {
				if python.take(t, 1, c.now()) {
					admitted++
				}
			}
			python.adjust(t, 20)
			admitted += 20 + burst(t, l, 200)
			if admitted < test.least || admitted > test.most {
				t.Errorf("%d are admitted after five idle minutes, want %d to %d", admitted, test.least, test.most)
			}
			if test.options == nil {
				return
			}
			// From then on refill counts as ever, and what the wait says is true.
			exceeded := reject(t, l, ask(zlimit.Amounts{"rpm": 50}))
			c.sleep(exceeded.RetryAfter())
			acquire(t, l, ask(zlimit.Amounts{"rpm": 50}))
			// A process that does not know of the fleet uses the notes in the item.
			c.sleep(5 * time.Minute)
			if !python.take(t, 0, c.now()) {
				t.Fatal("the item is not as the Python client needs it")
			}
			python.adjust(t, 70)
			other := newLimiter(t, dynamo.New(engine.Client(), table), zlimit.WithClock(c.now))
			if got := available(t, other, "rpm"); got != 30 {
				t.Errorf("Available() = %d, want 30: 70 of 100 were taken since the last refill", got)
			}
			lease := acquire(t, other, ask(zlimit.Amounts{"rpm": 30}))
			check.Fatal(t, "Rollback()", lease.Rollback(context.Background()))
			if got := burst(t, other, 100); got != 30 {
				t.Errorf("burst(100) = %d, want 30", got)
			}
		})
	}
}

// hasCode reports whether an error is an answer of DynamoDB with that code.
func hasCode(err error, code string) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == code
}
