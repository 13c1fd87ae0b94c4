package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// meanTable returns a client without tries of its own on a table with an index on
// the attribute I, and the table's name. The table itself is made in good weather.
func meanTable(t *testing.T, m Mean) (*dynamodb.Client, string) {
	t.Helper()
	t.Setenv(envMean, "")
	engine := Start(t)
	name := engine.Table(t)
	s := func(name string, kind types.KeyType) types.KeySchemaElement {
		return types.KeySchemaElement{AttributeName: &name, KeyType: kind}
	}
	a := func(name string) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &name, AttributeType: types.ScalarAttributeTypeS}
	}
	check.Call(engine.Client().CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{a("PK"), a("SK"), a("I")},
		KeySchema:            []types.KeySchemaElement{s("PK", types.KeyTypeHash), s("SK", types.KeyTypeRange)},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName: aws.String("ByI"), KeySchema: []types.KeySchemaElement{s("I", types.KeyTypeHash)},
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeAll},
		}},
	})).Must(t, "CreateTable()")
	return engine.Client(func(o *dynamodb.Options) {
		o.HTTPClient = &http.Client{Transport: m.Transport(caseful{engine.transport})}
		o.Retryer = aws.NopRetryer{}
	}), name
}

func text(v string) types.AttributeValue { return &types.AttributeValueMemberS{Value: v} }

func put(ctx context.Context, c *dynamodb.Client, table, sk, n string) error {
	_, err := c.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: map[string]types.AttributeValue{
		"PK": text("p"), "SK": text(sk), "I": text("i"), "n": text(n),
	}})
	return err
}

// In TestMeanRefusals, every call meets each kind of trouble, and is made again immediately. It is served then.
func TestMeanRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		mean  Mean
		check func(error) bool
		done  bool // although it failed
	}{
		"conflicts": {Mean{Conflicts: 1}, func(err error) bool {
			return errors.As(err, new(*types.TransactionConflictException))
		}, false},
		"throttles": {Mean{Throttles: 1}, func(err error) bool {
			var e *types.ProvisionedThroughputExceededException
			return errors.As(err, &e) && len(e.ThrottlingReasons) == 1 && *e.ThrottlingReasons[0].Reason == "TableWriteKeyRangeThroughputExceeded"
		}, false},
		"lost writes": {Mean{LostWrites: 1}, func(err error) bool { return errors.Is(err, errLostByMean) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, table := meanTable(t, test.mean)
			for i := range 3 {
				sk := fmt.Sprint(i)
				if err := put(t.Context(), c, table, sk, "1"); !test.check(err) {
					t.Errorf("the first write of an item = %v", err)
				}
				out, err := Start(t).Client().GetItem(t.Context(), &dynamodb.GetItemInput{
					TableName: &table, Key: map[string]types.AttributeValue{"PK": text("p"), "SK": text(sk)}, ConsistentRead: aws.Bool(true),
				})
				if err != nil || (out.Item != nil) != test.done {
					t.Errorf("after the first write, the item is %v, %v; want it there: %t", out.Item, err, test.done)
				}
				check.Error(t, "the same write again", put(t.Context(), c, table, sk, "1"))
			}
		})
	}
}

// In TestMeanTransactions, transactions conflict and are throttled, with reasons.
func TestMeanTransactions(t *testing.T) {
	for reason, m := range map[string]Mean{"TransactionConflict": {Conflicts: 1}, "ThrottlingError": {Throttles: 1}} {
		c, table := meanTable(t, m)
		item := func(sk string) types.TransactWriteItem {
			return types.TransactWriteItem{Put: &types.Put{TableName: &table, Item: map[string]types.AttributeValue{"PK": text("p"), "SK": text(sk)}}}
		}
		_, err := c.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{item("a"), item("b")}})
		var canceled *types.TransactionCanceledException
		if !errors.As(err, &canceled) || len(canceled.CancellationReasons) != 2 || *canceled.CancellationReasons[0].Code != reason {
			t.Errorf("TransactWriteItems = %v, want it cancelled for %s", err, reason)
		}
	}
}

// TestMeanLag reads items that were written a moment ago, at every consistency.
func TestMeanLag(t *testing.T) {
	c, table := meanTable(t, Mean{Lag: time.Hour})
	key := map[string]types.AttributeValue{"PK": text("p"), "SK": text("s")}
	get := func(consistent bool) string {
		t.Helper()
		out, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, Key: key, ConsistentRead: &consistent})
		check.Fatal(t, "GetItem()", err)
		n, _ := out.Item["n"].(*types.AttributeValueMemberS)
		if n == nil {
			return ""
		}
		return n.Value
	}
	batch := func() string {
		t.Helper()
		out, err := c.BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{table: {Keys: []map[string]types.AttributeValue{key}}}})
		check.Fatal(t, "BatchGetItem()", err)
		if len(out.Responses[table]) == 0 {
			return ""
		}
		return out.Responses[table][0]["n"].(*types.AttributeValueMemberS).Value
	}
	index := func() string {
		t.Helper()
		out := check.Call(c.Query(t.Context(), &dynamodb.QueryInput{
			TableName: &table, IndexName: aws.String("ByI"), KeyConditionExpression: aws.String("I = :i"),
			ExpressionAttributeValues: map[string]types.AttributeValue{":i": text("i")},
		})).Must(t, "Query()")
		if len(out.Items) == 0 {
			return ""
		}
		return out.Items[0]["n"].(*types.AttributeValueMemberS).Value
	}
	check.Fatal(t, "put()", put(t.Context(), c, table, "s", "new"))
	for name, read := range map[string]func() string{
		"GetItem": func() string { return get(false) }, "BatchGetItem": batch, "Query of an index": index,
	} {
		seen := map[string]int{}
		for range 100 {
			seen[read()]++
		}
		if seen[""] == 0 || seen["new"] == 0 || len(seen) != 2 {
			t.Errorf("%s of an item that is new: %v, want it sometimes", name, seen)
		}
	}
	for range 20 {
		if got := get(true); got != "new" {
			t.Fatalf("a consistent read = %q, want new", got)
		}
	}
}

// TestMeanLimits sends expressions of the largest size, and larger ones.
func TestMeanLimits(t *testing.T) {
	c, table := meanTable(t, Mean{})
	update := func(expression string, values int) error {
		names, bound := map[string]string{}, map[string]types.AttributeValue{}
		for i := range values {
			names[fmt.Sprint("#n", i)] = fmt.Sprint("n", i)
			bound[fmt.Sprint(":v", i)] = text("x")
		}
		_, err := c.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
			TableName: &table, Key: map[string]types.AttributeValue{"PK": text("p"), "SK": text("s")}, UpdateExpression: &expression,
			ExpressionAttributeNames: names, ExpressionAttributeValues: bound,
		})
		return err
	}
	sets := func(n int) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = fmt.Sprintf("#n%d = :v%d", i, i)
		}
		return "SET " + strings.Join(parts, ",")
	}
	for _, test := range []struct {
		n    int
		text string
		want string
	}{
		{200, sets(200), ""},
		{300, sets(300), ""},
		{301, strings.ReplaceAll(sets(301), " = ", "="), "operator count: 301"},
		{1, sets(1) + strings.Repeat(" ", 4096), "expression size: 41"},
	} {
		err := update(test.text, test.n)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("an update of %d characters = %v, want an error with %q", len(test.text), err, test.want)
		}
	}
	for text, want := range map[string]int{
		"#a >= :0 AND (#b < :1 OR NOT #c = :2)": 6, "attribute_exists(#a) AND #b IN (:0,:1)": 3, "SET #a = if_not_exists(#a, :0) + :1": 3,
	} {
		if got := operators(text); got != want {
			t.Errorf("operators(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestMeanOptions(t *testing.T) {
	for text, want := range map[string]*Mean{
		"":  nil,
		"7": {Seed: 7, Conflicts: meanDefault.Conflicts, Throttles: meanDefault.Throttles, LostReplies: meanDefault.LostReplies},
		"7,lag=20ms,conflicts=0,throttles=0,lostreplies=0,lostwrites=0.5": {Seed: 7, Lag: 20 * time.Millisecond, LostWrites: 0.5},
	} {
		got, err := meanOf(text)
		if err != nil || (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("meanOf(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"x", "1,odd=1", "1,lag=x", "1,conflicts=x"} {
		if _, err := meanOf(text); err == nil {
			t.Errorf("meanOf(%q) took it", text)
		}
	}
}
