package stack_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/stack"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestVersionsAreRaisedLast raises the versions of a table once the aggregator is there, and not when something failed.
func TestVersionsAreRaisedLast(t *testing.T) {
	s := cfn.NewService()
	var raised []string
	clients := s.Clients()
	clients.Setup = func(_ context.Context, table, aggregator string, _ time.Duration) error {
		if s.Status("limits") != "UPDATE_COMPLETE" || aggregator != "" && !slices.Contains(s.Stack("limits").IDs(), "Stream") {
			t.Errorf("versions are raised while the stack is %s with %v", s.Status("limits"), s.Stack("limits").IDs())
		}
		raised = append(raised, table+" "+aggregator)
		return nil
	}
	m := stack.New(clients, stack.WithPoll(0))
	deploy := func(o stack.Options) error {
		t.Helper()
		_, err := m.Deploy(t.Context(), o, stack.Hooks{})
		return err
	}
	s.Fail["Stream"] = "no capacity for you"
	if err := deploy(fresh()); !errors.As(err, new(*stack.FailedError)) || len(raised) > 0 {
		t.Errorf("Deploy() = %v, and versions are raised: %v", err, raised)
	}
	delete(s.Fail, "Stream")
	for _, step := range []struct {
		options stack.Options
		want    string
	}{
		{fresh(), "limits " + zlimit.Version},
		{fresh(), "limits " + zlimit.Version}, // a run before may have ended too early
		{stack.Options{Name: "limits", Settings: map[string]string{"memory": "256"}}, "limits "},
		{stack.Options{Name: "limits", Settings: map[string]string{"aggregator": "false"}, Code: code}, "limits "},
	} {
		raised = nil
		if err := deploy(step.options); err != nil || !slices.Equal(raised, []string{step.want}) {
			t.Errorf("Deploy(%v) = %v, raised %q, want %q", step.options.Settings, err, raised, step.want)
		}
	}
}

// TestAuditRetentionIsSet sets the retention of the table to what the stack says, which stays where no option names it.
func TestAuditRetentionIsSet(t *testing.T) {
	s := cfn.NewService()
	var kept []time.Duration
	clients := s.Clients()
	clients.Setup = func(_ context.Context, _, _ string, auditRetention time.Duration) error {
		kept = append(kept, auditRetention)
		return nil
	}
	m := stack.New(clients, stack.WithPoll(0))
	for _, step := range []struct {
		options stack.Options
		want    int // days
	}{
		{fresh(), 90},
		{stack.Options{Name: "limits", Settings: map[string]string{"audit-retention": "365"}}, 365},
		{stack.Options{Name: "limits", Settings: map[string]string{"memory": "256"}}, 365},
		{stack.Options{Name: "limits", Reset: []string{"audit-retention"}}, 90},
	} {
		kept = nil
		d, err := m.Deploy(t.Context(), step.options, stack.Hooks{})
		if want := time.Duration(step.want) * 24 * time.Hour; err != nil || !d.Changed || !slices.Equal(kept, []time.Duration{want}) {
			t.Errorf("Deploy(%v) = %+v, %v, kept %v, want %v", step.options.Settings, d, err, kept, want)
		}
	}
	for _, value := range []string{"0", "36501", "-1", "1.5", "90d"} {
		var invalid *zlimit.ValidationError
		_, err := m.Deploy(t.Context(), stack.Options{Name: "limits", Settings: map[string]string{"audit-retention": value}}, stack.Hooks{})
		if !errors.As(err, &invalid) || invalid.Field != "audit-retention" || invalid.Value != value {
			t.Errorf("Deploy() with %s days = %v, want a ValidationError of audit-retention", value, err)
		}
	}
}

// TestSetupKeepsAudit sets a table up as a deployment does. A namespace without a retention keeps its events as long as
// the stack says, and 0 changes nothing.
func TestSetupKeepsAudit(t *testing.T) {
	engine := enginetest.Start(t)
	client, table := engine.Client(), engine.Table(t)
	setup := stack.ClientsOf(aws.Config{Region: "eu-central-1", BaseEndpoint: aws.String(engine.Endpoint()), Credentials: credentials.NewStaticCredentialsProvider("k", "s", "")}).Setup
	for _, step := range []struct{ given, want int64 }{{365, 365}, {0, 365}, {7, 7}} {
		check.Fatal(t, "setup()", setup(t.Context(), table, zlimit.Version, time.Duration(step.given)*24*time.Hour))
		out := check.Call(client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, Key: map[string]types.AttributeValue{
			"PK": &types.AttributeValueMemberS{Value: "_/SYSTEM#"}, "SK": &types.AttributeValueMemberS{Value: "#CONFIG"},
		}})).Must(t, "GetItem()")
		days, ok := out.Item["audit_retention_days"].(*types.AttributeValueMemberN)
		if !ok || days.Value != strconv.FormatInt(step.want, 10) {
			t.Errorf("Setup(%d days): the table has %v, want %d", step.given, out.Item, step.want)
		}
	}
}
