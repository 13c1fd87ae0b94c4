package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
)

// oldValue is an attribute in DynamoDB's JSON.
type oldValue struct {
	S    *string
	N    *string
	BOOL *bool
	NULL *bool
	SS   []string
	M    map[string]oldValue
}

func (v oldValue) attribute() types.AttributeValue {
	switch {
	case v.S != nil:
		return &types.AttributeValueMemberS{Value: *v.S}
	case v.N != nil:
		return &types.AttributeValueMemberN{Value: *v.N}
	case v.BOOL != nil:
		return &types.AttributeValueMemberBOOL{Value: *v.BOOL}
	case v.NULL != nil:
		return &types.AttributeValueMemberNULL{Value: true}
	case v.SS != nil:
		return &types.AttributeValueMemberSS{Value: v.SS}
	default:
		m := map[string]types.AttributeValue{}
		for name, inner := range v.M {
			m[name] = inner.attribute()
		}
		return &types.AttributeValueMemberM{Value: m}
	}
}

// createOldTable creates a table with the items of releases of zae-limiter, with a plus between them. It has a change stream,
// which begins after them, if it is to have one.
func createOldTable(ts *testscript.TestScript, client *dynamodb.Client, table, releases string, stream bool) {
	keys := []types.KeySchemaElement{
		{AttributeName: aws.String("PK"), KeyType: types.KeyTypeHash}, {AttributeName: aws.String("SK"), KeyType: types.KeyTypeRange},
	}
	in := &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest, KeySchema: keys,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("PK"), AttributeType: types.ScalarAttributeTypeS}, {AttributeName: aws.String("SK"), AttributeType: types.ScalarAttributeTypeS},
		},
	}
	ctx := ts.Value(scriptContext{}).(*testing.T).Context()
	_, err := client.CreateTable(ctx, in)
	ts.Check(err)
	for release := range strings.SplitSeq(releases, "+") {
		text, err := os.ReadFile(filepath.Join(ts.Getenv("FIXTURES"), release+".json"))
		ts.Check(err)
		var items []map[string]oldValue
		ts.Check(json.Unmarshal(text, &items))
		for _, item := range items {
			_, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: oldValue{M: item}.attribute().(*types.AttributeValueMemberM).Value})
			ts.Check(err)
		}
	}
	if stream {
		_, err := client.UpdateTable(ctx, &dynamodb.UpdateTableInput{TableName: &table, StreamSpecification: &types.StreamSpecification{
			StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages,
		}})
		ts.Check(err)
	}
}

type scriptContext struct{}

// sinceTime is the time at which a migration began.
var sinceTime = regexp.MustCompile(`since [-0-9]+T[:0-9]+Z`)

// TestMigrateScripts runs migrations on an engine. `old RELEASE` or `old RELEASE+RELEASE` sets $OLD to a table of a
// release of zae-limiter. It sets `$NEW` to a table that does not exist. `old RELEASE still` has no change stream.
func TestMigrateScripts(t *testing.T) {
	engine := enginetest.Start(t)
	client := engine.Client()
	fixtures := check.Call(filepath.Abs("../../../../cmd/zlimit/internal/migrate/testdata")).Must(t, "filepath.Abs()")
	p := scripts("testdata/migrate", "")
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		env.Values[scriptContext{}] = t
		env.Setenv("FIXTURES", fixtures)
		return setup(env)
	}
	p.Cmds["old"] = func(ts *testscript.TestScript, _ bool, args []string) {
		dsn, table := engineDSN(t, engine)
		createOldTable(ts, client, table, args[0], len(args) == 1)
		ts.Setenv("OLD", dsn)
		dsn, _ = engineDSN(t, engine)
		ts.Setenv("NEW", dsn)
	}
	p.Cmds["shown"] = func(ts *testscript.TestScript, _ bool, args []string) {
		got := strings.NewReplacer(ts.Getenv("OLD"), "OLD", ts.Getenv("NEW"), "NEW").Replace(ts.ReadFile("stdout"))
		got = sinceTime.ReplaceAllString(got, "since TIME")
		if want := ts.ReadFile(args[0]); got != want {
			ts.Fatalf("stdout:\n%swant:\n%s", got, want)
		}
	}
	testscript.Run(t, p)
}
