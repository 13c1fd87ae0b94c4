package stack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/stack"
	"github.com/zlimit/zlimit-go/zlimit"
)

func manager(s *cfn.Service) *stack.Manager { return stack.New(s.Clients(), stack.WithPoll(0)) }

var code = &stack.Code{Zip: []byte("a zip"), Architecture: "arm64"}

// fresh are the options of a new stack.
func fresh() stack.Options { return stack.Options{Name: "limits", Code: code} }

// deploy deploys, and fails the test when that fails.
func deploy(t *testing.T, s *cfn.Service, o stack.Options, h stack.Hooks) *stack.Deployment {
	t.Helper()
	d, err := manager(s).Deploy(t.Context(), o, h)
	if err != nil {
		t.Fatalf("Deploy(%+v) = %v", o, err)
	}
	return d
}

// TestDeploy goes through the life of a stack: new, as it is, changed, reset, with other code.
func TestDeploy(t *testing.T) {
	s := cfn.NewService()
	var plans []*stack.Plan
	h := stack.Hooks{Confirm: func(p *stack.Plan) (bool, error) { plans = append(plans, p); return true, nil }}
	o := fresh()
	o.Settings = map[string]string{"memory": "1024", "log-days": "30"}
	o.Tags = map[string]string{"team": "platform"}
	d := deploy(t, s, o, h)
	if len(plans) != 1 || !plans[0].New || plans[0].Cost != 510 || !d.Changed || d.Status != "UPDATE_COMPLETE" || d.Outputs["TableName"] != "limits" {
		t.Errorf("%d plans, %+v; deployment %+v", len(plans), plans, d)
	}
	has := s.Stack("limits")
	promised := []string{}
	for _, c := range plans[0].Changes {
		if c.Action != stack.ActionAdd {
			t.Errorf("the plan of a new stack has %+v", c)
		}
		promised = append(promised, c.Resource)
	}
	slices.Sort(promised)
	if diff := cmp.Diff(has.IDs(), promised); diff != "" {
		t.Errorf("the plan (-there +planned):\n%s", diff)
	}
	function := func() map[string]any { return s.Stack("limits").Resources["AggregatorFunction"].Properties }
	if got := fmt.Sprint(function()["MemorySize"]); got != "1024" {
		t.Errorf("memory = %s", got)
	}

	if d := deploy(t, s, fresh(), h); d.Changed || len(plans) != 1 {
		t.Errorf("deploying again changed something: %+v, %d plans", d, len(plans))
	}

	deploy(t, s, stack.Options{Name: "limits", Settings: map[string]string{"timeout": "30"}}, h)
	if got := fmt.Sprintln(function()["MemorySize"], function()["Timeout"], at(s.Stack("limits").Resources["Log"].Properties, "RetentionInDays")); got != "1024 30 30\n" || len(plans) != 2 {
		t.Errorf("memory, timeout and retention = %s, want those that were given last", got)
	}
	if c := plans[1].Changes; len(c) != 2 || c[0].Resource != "AggregatorDuration" || c[1].Action != stack.ActionModify || c[1].Resource != "AggregatorFunction" || !slices.Equal(c[1].Properties, []string{"Timeout"}) {
		t.Errorf("the plan of a changed timeout = %+v", c)
	}

	deploy(t, s, stack.Options{Name: "limits", Reset: []string{"memory"}}, h)
	if got := fmt.Sprintln(function()["MemorySize"], function()["Timeout"]); got != "512 30\n" {
		t.Errorf("memory and timeout after a reset = %s", got)
	}

	before := fmt.Sprint(function()["Code"])
	other := stack.Options{Name: "limits", Code: &stack.Code{Zip: []byte("another zip"), Architecture: "x86_64"}}
	deploy(t, s, other, h)
	if got := fmt.Sprint(function()["Code"]); got == before || len(s.Objects) != 2 || fmt.Sprint(function()["Architectures"]) != "[x86_64]" {
		t.Errorf("code %s, %d objects, %v", got, len(s.Objects), function()["Architectures"])
	}

	d = deploy(t, s, stack.Options{Name: "limits", Settings: map[string]string{"aggregator": "false"}}, h)
	if slices.Contains(s.Stack("limits").IDs(), "AggregatorFunction") || !slices.Contains(s.Stack("limits").IDs(), "Bucket") {
		t.Errorf("without an aggregator the stack has %v", s.Stack("limits").IDs())
	}
	if _, there := d.Outputs["FunctionArn"]; there {
		t.Error("there is still an output of the function")
	}
}

// TestDeployWithoutAggregator takes one change set.
func TestDeployWithoutAggregator(t *testing.T) {
	s := cfn.NewService()
	d := deploy(t, s, stack.Options{Name: "limits", Settings: map[string]string{"aggregator": "false", "permissions-boundary": "bound", "roles": "true"}}, stack.Hooks{})
	if d.Status != "CREATE_COMPLETE" || len(s.Objects) != 1 { // the release
		t.Errorf("deployment %+v, objects %v", d, s.Objects)
	}
	if got := s.Stack("limits").Resources["AppRole"].Properties["PermissionsBoundary"]; got != "arn:aws-cn:iam::"+cfn.Account+":policy/bound" {
		t.Errorf("boundary = %v", got)
	}
	if _, err := manager(s).Deploy(t.Context(), stack.Options{Name: "limits", Settings: map[string]string{"aggregator": "true"}}, stack.Hooks{}); err == nil || !strings.Contains(err.Error(), "no code") {
		t.Errorf("Deploy() of an aggregator without code = %v", err)
	}
}

// TestPlanOnly declines a plan: nothing is left of it.
func TestPlanOnly(t *testing.T) {
	s := cfn.NewService()
	no := stack.Hooks{Confirm: func(*stack.Plan) (bool, error) { return false, nil }}
	if _, err := manager(s).Deploy(t.Context(), fresh(), no); !errors.Is(err, stack.ErrDeclined) {
		t.Errorf("Deploy() = %v, want ErrDeclined", err)
	}
	if s.Status("limits") != "" || len(s.Objects) > 0 {
		t.Errorf("a plan leaves a stack that is %s, and %v", s.Status("limits"), s.Objects)
	}
	deploy(t, s, fresh(), stack.Hooks{})
	o := stack.Options{Name: "limits", Settings: map[string]string{"memory": "256"}}
	if _, err := manager(s).Deploy(t.Context(), o, no); !errors.Is(err, stack.ErrDeclined) || s.Status("limits") != "UPDATE_COMPLETE" {
		t.Errorf("Deploy() = %v, %s", err, s.Status("limits"))
	}
}

// TestPlan plans a new stack, changes and nothing at all. It changes nothing, in the table neither, and says what Deploy shows.
func TestPlan(t *testing.T) {
	s := cfn.NewService()
	setups := 0
	clients := s.Clients()
	clients.Setup = func(context.Context, string, string, time.Duration) error { setups++; return nil }
	m := stack.New(clients, stack.WithPoll(0))
	tagged, changed := fresh(), fresh()
	tagged.Tags = map[string]string{"team": "platform"}
	changed.Settings = map[string]string{"memory": "256"}
	for _, step := range []struct {
		name    string
		options stack.Options
		want    stack.Plan // except its changes
		changes int
	}{
		{"a new stack", fresh(), stack.Plan{New: true}, 27},
		{"the same again", fresh(), stack.Plan{UpToDate: true}, 0},
		{"a tag", tagged, stack.Plan{}, 0},
		{"a change", changed, stack.Plan{}, 1},
	} {
		before, status, had := s.Stack("limits"), s.Status("limits"), setups
		p, err := m.Plan(t.Context(), step.options, stack.Hooks{})
		if err != nil || p.New != step.want.New || p.UpToDate != step.want.UpToDate || len(p.Changes) != step.changes || p.Changes == nil || p.Cost != 510 {
			t.Errorf("%s: Plan() = %+v, %v, want %+v with %d changes", step.name, p, err, step.want, step.changes)
		}
		if s.Stack("limits") != before || s.Status("limits") != status || setups != had {
			t.Errorf("%s: the plan was executed: %s, set up %d times", step.name, s.Status("limits"), setups-had)
		}
		confirmed := false
		h := stack.Hooks{Confirm: func(shown *stack.Plan) (bool, error) {
			confirmed = true
			if diff := cmp.Diff(p, shown, cmpopts.IgnoreUnexported(stack.Plan{})); diff != "" {
				t.Errorf("%s (-Plan +Deploy):\n%s", step.name, diff)
			}
			return true, nil
		}}
		if _, err := m.Deploy(t.Context(), step.options, h); err != nil || confirmed == p.UpToDate || setups != had+1 {
			t.Errorf("%s: Deploy() = %v, confirmed %t, set up %d times", step.name, err, confirmed, setups-had)
		}
	}
	if _, err := m.Plan(t.Context(), stack.Options{Name: "limits", Settings: map[string]string{"table": "others"}}, stack.Hooks{}); !errors.Is(err, stack.ErrData) {
		t.Errorf("Plan() of another table = %v, want ErrData", err)
	}
	if _, err := m.Plan(t.Context(), stack.Options{Name: "1"}, stack.Hooks{}); !errors.As(err, new(*zlimit.ValidationError)) {
		t.Errorf("Plan() of a bad name = %v", err)
	}
}

// TestDataIsKept refuses plans that would remove or replace what holds data.
func TestDataIsKept(t *testing.T) {
	for name, change := range map[string]map[string]string{
		"another table": {"table": "others"},
		"no bucket":     {"aggregator": "false", "archive": "false"},
	} {
		s := cfn.NewService()
		deploy(t, s, fresh(), stack.Hooks{})
		before := s.Stack("limits")
		confirm := stack.Hooks{Confirm: func(*stack.Plan) (bool, error) { t.Errorf("%s: the plan is to be confirmed", name); return true, nil }}
		_, err := manager(s).Deploy(t.Context(), stack.Options{Name: "limits", Settings: change}, confirm)
		if !errors.Is(err, stack.ErrData) || s.Stack("limits") != before {
			t.Errorf("%s: Deploy() = %v, want ErrData and nothing done", name, err)
		}
	}
}

// TestMixedFleet makes the index of a new table hold whole items, and refuses to change that later, either way.
func TestMixedFleet(t *testing.T) {
	for made, next := range map[string]string{"true": "false", "false": "true"} {
		s := cfn.NewService()
		o := fresh()
		o.Settings = map[string]string{"mixed-fleet": made}
		deploy(t, s, o, stack.Hooks{})
		before := s.Stack("limits")
		for name, change := range map[string]stack.Options{
			"set":   {Name: "limits", Settings: map[string]string{"mixed-fleet": next}},
			"reset": {Name: "limits", Reset: []string{"mixed-fleet"}},
		} {
			_, err := manager(s).Deploy(t.Context(), change, stack.Hooks{})
			var invalid *zlimit.ValidationError
			refused := errors.As(err, &invalid) && invalid.Field == "mixed-fleet" && strings.Contains(err.Error(), "DynamoDB cannot change")
			if same := name == "reset" && made == "false"; refused == same || s.Stack("limits") != before && !same {
				t.Errorf("a table made with %s, %s: Deploy() = %v", made, name, err)
			}
		}
	}
}

// TestFailure makes a resource fail: the first reason is reported, what was there stays, and the next deployment
// succeeds.
func TestFailure(t *testing.T) {
	for _, id := range []string{"Table", "AcquirePolicy", "AggregatorFunction", "Stream"} {
		s := cfn.NewService()
		s.Fail[id] = "no capacity for you"
		var events []stack.Event
		_, err := manager(s).Deploy(t.Context(), fresh(), stack.Hooks{Watch: func(e stack.Event) { events = append(events, e) }})
		var failed *stack.FailedError
		if !errors.As(err, &failed) || failed.Resource != id || failed.Reason != "no capacity for you" || len(events) == 0 {
			t.Errorf("%s fails: Deploy() = %v after %d events", id, err, len(events))
			continue
		}
		delete(s.Fail, id)
		if d := deploy(t, s, fresh(), stack.Hooks{}); d.Status != "UPDATE_COMPLETE" || !slices.Contains(s.Stack("limits").IDs(), "Stream") {
			t.Errorf("%s failed before: deployment %+v with %v", id, d, s.Stack("limits").IDs())
		}
		if len(s.Replaced) > 0 {
			t.Errorf("%s failed before: replaced %v", id, s.Replaced)
		}
	}
}

// TestRollback makes an update fail: the code and the settings are those from before.
func TestRollback(t *testing.T) {
	s := cfn.NewService()
	deploy(t, s, fresh(), stack.Hooks{})
	s.Fail["Stream"] = "wrong batch"
	s.Fail["AggregatorLag"] = "wrong threshold"
	o := stack.Options{Name: "limits", Settings: map[string]string{"alarm-lag": "60"}, Code: &stack.Code{Zip: []byte("bad"), Architecture: "arm64"}}
	_, err := manager(s).Deploy(t.Context(), o, stack.Hooks{})
	var failed *stack.FailedError
	if !errors.As(err, &failed) || failed.Status != "UPDATE_ROLLBACK_COMPLETE" || failed.Resource != "AggregatorLag" {
		t.Fatalf("Deploy() = %v", err)
	}
	if d := deploy(t, s, stack.Options{Name: "limits"}, stack.Hooks{}); d.Status != "UPDATE_ROLLBACK_COMPLETE" && !d.Changed {
		t.Errorf("deployment after a rollback: %+v", d)
	}
}

// errKilled is what calls of a process that is dead come to.
var errKilled = errors.New("killed")

// life deploys, changes and deploys again, as a test of crashes does.
var life = []stack.Options{
	{Name: "limits", Code: code},
	{Name: "limits", Settings: map[string]string{"memory": "1024"}},
	{Name: "limits", Code: &stack.Code{Zip: []byte("another zip"), Architecture: "arm64"}},
}

// step is how many calls lie between two at which a test kills: short tests kill at each fifth one.
func step() int {
	if testing.Short() {
		return 5
	}
	return soak.Pick(3, 1)
}

// In TestThrottles, every call is throttled some times. Nothing fails.
func TestThrottles(t *testing.T) {
	s := cfn.NewService()
	throttled := 0
	s.Call = func(n int, name string, after bool) error {
		if !after && n%4 != 0 {
			throttled++
			code := "Throttling"
			if strings.Contains(name, "Object") {
				code = "SlowDown"
			}
			return cfn.Fault(code, "Rate exceeded")
		}
		return nil
	}
	for _, o := range life {
		deploy(t, s, o, stack.Hooks{})
	}
	if throttled < 100 {
		t.Errorf("%d calls were throttled", throttled)
	}
	for name, content := range s.Objects {
		if len(content) == 0 {
			t.Errorf("object %s is empty: its content was read by a call that was throttled", name)
		}
	}
	s.Call = func(int, string, bool) error { return cfn.Fault("Throttling", "Rate exceeded") }
	if _, err := manager(s).Deploy(t.Context(), fresh(), stack.Hooks{}); err == nil || !strings.Contains(err.Error(), "Rate exceeded") {
		t.Errorf("Deploy() while everything is throttled = %v", err)
	}
}

// TestJoins begins a deployment, gives up waiting, and joins it.
func TestJoins(t *testing.T) {
	s := cfn.NewService()
	ctx, cancel := context.WithCancel(t.Context())
	events := 0
	_, err := manager(s).Deploy(ctx, fresh(), stack.Hooks{Watch: func(stack.Event) {
		if events++; events == 5 {
			cancel()
		}
	}})
	if !errors.As(err, new(*stack.DetachedError)) || !errors.Is(err, context.Canceled) || s.Status("limits") != "CREATE_IN_PROGRESS" {
		t.Fatalf("Deploy() = %v, the stack is %s", err, s.Status("limits"))
	}
	joined := ""
	d := deploy(t, s, fresh(), stack.Hooks{Join: func(status string) { joined = status }})
	if joined != "CREATE_IN_PROGRESS" || d.Status != "UPDATE_COMPLETE" {
		t.Errorf("joined at %q, deployment %+v", joined, d)
	}
}

// TestAdopts deploys where an earlier stack has left its table.
func TestAdopts(t *testing.T) {
	s := cfn.NewService()
	s.Kept["AWS::DynamoDB::Table"] = []string{"limits"}
	var plan *stack.Plan
	deploy(t, s, fresh(), stack.Hooks{Confirm: func(p *stack.Plan) (bool, error) { plan = p; return true, nil }})
	i := slices.IndexFunc(plan.Changes, func(c stack.Change) bool { return c.Resource == "Table" })
	if plan.Changes[i].Action != stack.ActionImport {
		t.Errorf("the table is to be %s, want import", plan.Changes[i].Action)
	}
}

// TestStuck deploys on stacks that cannot be changed.
func TestStuck(t *testing.T) {
	s := cfn.NewService()
	deploy(t, s, fresh(), stack.Hooks{})
	newer := stack.Options{Name: "limits"}
	s.SetTag("limits", "zlimit:version", "99.0.0")
	if _, err := manager(s).Deploy(t.Context(), newer, stack.Hooks{}); err == nil || !strings.Contains(err.Error(), "deployed by version 99.0.0") {
		t.Errorf("Deploy() on a stack of a later version = %v", err)
	}
	for status, want := range map[string]string{"ROLLBACK_COMPLETE": "can only be deleted", "UPDATE_ROLLBACK_FAILED": "continue its rollback"} {
		s.SetStatus("limits", status)
		if _, err := manager(s).Deploy(t.Context(), fresh(), stack.Hooks{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Deploy() on a stack that is %s = %v", status, err)
		}
	}
}

// TestValidate checks that all mistakes are reported together, before any call.
func TestValidate(t *testing.T) {
	s := cfn.NewService()
	tags := map[string]string{"aws:x": "", "zlimit:y": "", strings.Repeat("k", 129): ""}
	for i := range 45 {
		tags[fmt.Sprint("tag", i)] = ""
	}
	long := strings.Repeat("x", 60) + "{}"
	o := stack.Options{Name: "1", Reset: []string{"memory", "nothing"}, Tags: tags, Settings: map[string]string{
		"memory": "64", "timeout": "soon", "log-days": "4", "point-in-time-days": "36", "kms-key": "my-key", "iam": "false", "alarms": "yes",
		"role-names": long, "policy-names": "a{}b{}", "usage-hourly": "1h", "permissions-boundary": "a b", "warm-read-units": "1", "colour": "red",
		"alarm-topic": "arn:aws:sqs:eu-central-1:123456789012:q", "table": "a b",
	}}
	_, err := manager(s).Deploy(t.Context(), o, stack.Hooks{})
	if !errors.As(err, new(*zlimit.ValidationError)) || s.Calls() > 0 {
		t.Fatalf("Deploy() = %v after %d calls", err, s.Calls())
	}
	for _, want := range []string{
		`name "1"`, `memory "64": must be from 128 to 10240`, `timeout "soon": must be a whole number`, `log-days "4": must be one of 1 3 5`,
		`point-in-time-days "36": must be from 1 to 35`, `kms-key "my-key": must be an ARN of kms`, `iam "false": needs aggregator-role`,
		`alarms "yes": must be true or false`, `with 74 characters, of at most 64`, `policy-names "a{}b{}": must have {} once`,
		`usage-hourly "1h": must be 0`, `permissions-boundary "a b"`, `warm-read-units "1": must be from 12000`, `setting "colour": there is no such`,
		`reset "memory": is also given`, `reset "nothing": there is no such`, `alarm-topic "arn:aws:sqs`, `table "a b"`,
		`tag "aws:x": aws: begins`, `tag "zlimit:y": zlimit: begins`, `must have 1 to 128`, `tags "48": must be at most 47`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Deploy() = %v, want %q in it", err, want)
		}
	}
}

// TestBounds covers options at the bounds of their rules, and just beyond.
func TestBounds(t *testing.T) {
	name, form := func(n int) string { return strings.Repeat("x", n) }, func(n int) string { return strings.Repeat("x", n) + "{}" }
	with := func(settings ...string) stack.Options {
		o := stack.Options{Name: "limits", Settings: map[string]string{}}
		for i := 0; i < len(settings); i += 2 {
			o.Settings[settings[i]] = settings[i+1]
		}
		return o
	}
	const role = "arn:aws:iam::123456789012:role/r"
	for _, test := range []struct {
		name    string
		options stack.Options
		wrong   string // the field of the only error, "" for none
	}{
		{"a name of two characters", stack.Options{Name: "ab"}, "name"},
		{"a name of three", stack.Options{Name: "abc"}, ""},
		{"a name of 53", stack.Options{Name: name(53)}, ""},
		{"a name of 54", stack.Options{Name: name(54)}, "name"},
		{"a name that begins with a digit", stack.Options{Name: "1abc"}, "name"},
		{"the least memory", with("memory", "128"), ""},
		{"too little memory", with("memory", "127"), "memory"},
		{"the most memory", with("memory", "10240"), ""},
		{"too much memory", with("memory", "10241"), "memory"},
		{"a number with a sign", with("memory", "+512"), "memory"},
		{"a number with a zero before it", with("memory", "0512"), "memory"},
		{"no text", with("alarm-topic", ""), "alarm-topic"},
		{"no form of names", with("role-names", ""), "role-names"},
		{"names of roles of 64 characters", with("role-names", form(64-len("limits-provisioner"))), ""},
		{"names of roles of 65", with("role-names", form(65-len("limits-provisioner"))), "role-names"},
		{"names of policies of 128", with("policy-names", form(128-len("limits-tenant-acquire"))), ""},
		{"names of policies of 129", with("policy-names", form(129-len("limits-tenant-acquire"))), "policy-names"},
		{"names of roles that a long table makes too long", with("table", name(53), "role-names", "a{}"), "role-names"},
		{"a table with the longest name of a function", with("table", name(53)), ""},
		{"a table with a name that is too long for a function", with("table", name(54)), "table"},
		{"a table that is too long for the other function", with("table", name(53), "provisioner", "true"), "table"},
		{"a table with a name that no function has", with("table", "prod.limits"), "table"},
		{"a table without functions", with("table", "prod."+name(250), "aggregator", "false"), ""},
		{"usage of two days", with("usage-hourly", "48h"), ""},
		{"usage of less", with("usage-hourly", "47h59m"), "usage-hourly"},
		{"usage for ever", with("usage-hourly", "0"), ""},
		{"usage of days", with("usage-hourly", "2d"), "usage-hourly"},
		{"an ARN of another service", with("alarm-topic", "arn:aws:sqs:eu-central-1:123456789012:q"), "alarm-topic"},
		{"no policies and no aggregator", with("iam", "false", "aggregator", "false"), ""},
		{"no policies, with an aggregator", with("iam", "false"), "iam"},
		{"no policies, with a role", with("iam", "false", "aggregator-role", role), ""},
		{"no policies, with a provisioner", with("iam", "false", "aggregator", "false", "provisioner", "true"), "iam"},
		{"no policies, with both roles", with("iam", "false", "aggregator-role", role, "provisioner", "true", "provisioner-role", role), ""},
		{"a boundary by name", with("permissions-boundary", "bound"), ""},
		{"a boundary of another service", with("permissions-boundary", "arn:aws:s3::123456789012:policy/x"), "permissions-boundary"},
		{"a reset of tags", stack.Options{Name: "limits", Reset: []string{"tags", "memory"}}, ""},
		{"a tag that AWS keeps to itself", stack.Options{Name: "limits", Tags: map[string]string{"AWS:x": "1"}}, "tag"},
		{"a tag with a long value", stack.Options{Name: "limits", Tags: map[string]string{"x": name(257)}}, "tag"},
		{"a tag with a value of 256 characters", stack.Options{Name: "limits", Tags: map[string]string{"x": name(256)}}, ""},
	} {
		wrong := test.options.Validate()
		var invalid *zlimit.ValidationError
		if len(wrong) == 1 && errors.As(wrong[0], &invalid) && invalid.Field == test.wrong || len(wrong) == 0 && test.wrong == "" {
			continue
		}
		t.Errorf("%s: Validate() = %v, want one of %q", test.name, wrong, test.wrong)
	}
}

// TestChanges reads what CloudFormation says of changes. If it does not know whether a resource is replaced, one that always is for
// some property counts as replaced.
func TestChanges(t *testing.T) {
	detail := func(property string, recreation types.RequiresRecreation) types.ResourceChangeDetail {
		return types.ResourceChangeDetail{Target: &types.ResourceTargetDefinition{Attribute: types.ResourceAttributeProperties, Name: &property, RequiresRecreation: recreation}}
	}
	kind := "AWS::DynamoDB::Table"
	for _, test := range []struct {
		name    string
		change  types.ResourceChange
		want    stack.Action
		refused bool
	}{
		{"added", types.ResourceChange{Action: types.ChangeActionAdd}, stack.ActionAdd, false},
		{"taken over", types.ResourceChange{Action: types.ChangeActionImport}, stack.ActionImport, false},
		{"removed", types.ResourceChange{Action: types.ChangeActionRemove}, stack.ActionRemove, true},
		{"changed", types.ResourceChange{Action: types.ChangeActionModify, Replacement: types.ReplacementFalse}, stack.ActionModify, false},
		{"replaced", types.ResourceChange{Action: types.ChangeActionModify, Replacement: types.ReplacementTrue}, stack.ActionReplace, true},
		{"perhaps replaced, by a property that always replaces", types.ResourceChange{
			Action: types.ChangeActionModify, Replacement: types.ReplacementConditional,
			Details: []types.ResourceChangeDetail{{}, detail("Tags", types.RequiresRecreationNever), detail("TableName", types.RequiresRecreationAlways)},
		}, stack.ActionReplace, true},
		{"perhaps replaced, by none that does", types.ResourceChange{
			Action: types.ChangeActionModify, Replacement: types.ReplacementConditional,
			Details: []types.ResourceChangeDetail{detail("StreamSpecification", types.RequiresRecreationConditionally)},
		}, stack.ActionModify, false},
	} {
		test.change.ResourceType = &kind
		c := stack.ChangeOf(&test.change)
		if err := stack.Lost([]stack.Change{c}); c.Action != test.want || errors.Is(err, stack.ErrData) != test.refused {
			t.Errorf("%s: %+v, %v, want %s, refused %t", test.name, c, err, test.want, test.refused)
		}
	}
}

// TestResume goes on with a new stack of which a part failed: what another failure meets stays as well, until all is there. A change of
// a whole stack is undone when it fails.
func TestResume(t *testing.T) {
	s := cfn.NewService()
	var failed *stack.FailedError
	for _, step := range []struct{ resource, status string }{
		{"DeadLetters", "CREATE_FAILED"}, {"TenantFullPolicy", "UPDATE_FAILED"}, {"TenantReadPolicy", "UPDATE_FAILED"},
	} {
		s.Fail = map[string]string{step.resource: "no"}
		if _, err := manager(s).Deploy(t.Context(), fresh(), stack.Hooks{}); !errors.As(err, &failed) || failed.Resource != step.resource || s.Status("limits") != step.status {
			t.Errorf("Deploy() without %s = %v, the stack is %s, want %s", step.resource, err, s.Status("limits"), step.status)
		}
		if _, ok := s.Stack("limits").Resources["AcquirePolicy"]; !ok {
			t.Errorf("without %s nothing is left of what was made", step.resource)
		}
	}
	s.Fail = nil
	if d := deploy(t, s, fresh(), stack.Hooks{}); d.Status != "UPDATE_COMPLETE" {
		t.Errorf("in the end the stack is %s", d.Status)
	}
	s.Fail = map[string]string{"AggregatorFunction": "no"}
	o := stack.Options{Name: "limits", Settings: map[string]string{"memory": "256"}}
	if _, err := manager(s).Deploy(t.Context(), o, stack.Hooks{}); !errors.As(err, &failed) || failed.Status != "UPDATE_ROLLBACK_COMPLETE" {
		t.Errorf("Deploy() of a change that fails = %v", err)
	}
}

// TestFirstFailure finds the resource that failed first, and not one that was stopped because of it, nor the stack.
func TestFirstFailure(t *testing.T) {
	event := func(resource, kind string, status types.ResourceStatus, reason string) types.StackEvent {
		return types.StackEvent{LogicalResourceId: &resource, ResourceType: &kind, ResourceStatus: status, ResourceStatusReason: &reason}
	}
	const queue, whole = "AWS::SQS::Queue", "AWS::CloudFormation::Stack"
	why := "The following resource(s) failed to create: [DeadLetters]."
	s := &types.Stack{StackStatus: types.StackStatusCreateFailed, StackStatusReason: &why}
	events := []types.StackEvent{
		event("limits", whole, types.ResourceStatusCreateInProgress, "User Initiated"),
		event("Log", "AWS::Logs::LogGroup", types.ResourceStatusCreateFailed, "Resource creation cancelled"),
		event("limits", whole, types.ResourceStatusCreateFailed, "stopped"),
		event("DeadLetters", queue, types.ResourceStatusCreateFailed, "Limit exceeded"),
		event("Bucket", "AWS::S3::Bucket", types.ResourceStatusCreateFailed, "Access denied"),
	}
	for _, test := range []struct {
		name   string
		events []types.StackEvent
		want   stack.FailedError
	}{
		{"a queue", events, stack.FailedError{Stack: "limits", Status: "CREATE_FAILED", Resource: "DeadLetters", Type: queue, Reason: "Limit exceeded"}},
		{"no resource", events[:3], stack.FailedError{Stack: "limits", Status: "CREATE_FAILED", Resource: "limits", Type: whole, Reason: why}},
	} {
		var failed *stack.FailedError
		if err := stack.Failure("limits", s, test.events); !errors.As(err, &failed) || *failed != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, failed, test.want)
		}
	}
}

// TestUnusedValues keeps a value that no resource has at present, for the time when one has it.
func TestUnusedValues(t *testing.T) {
	s := cfn.NewService()
	o := fresh()
	o.Settings = map[string]string{"alarms": "false"}
	deploy(t, s, o, stack.Hooks{})
	o.Settings = map[string]string{"alarm-lag": "120"}
	if d := deploy(t, s, o, stack.Hooks{}); !d.Changed {
		t.Errorf("a value that no resource has: %+v, want it changed", d)
	}
	if d := deploy(t, s, o, stack.Hooks{}); d.Changed {
		t.Errorf("the same again: %+v", d)
	}
	o.Settings = map[string]string{"alarms": "true"}
	deploy(t, s, o, stack.Hooks{})
	if got := s.Stack("limits").Resources["AggregatorLag"].Properties["Threshold"]; got != "120000" {
		t.Errorf("the alarm rings at %v ms, want 120000", got)
	}
}

// TestSettings holds the settings against the parameters of the template.
func TestSettings(t *testing.T) {
	parameters := parse(t, stack.Template).Parameters
	unset := maps.Clone(parameters)
	for _, s := range stack.Settings() {
		p, ok := parameters[s.Parameter]
		if !ok || fmt.Sprint(p.Default) != s.Default {
			t.Errorf("setting %s has default %q, the parameter %s %v", s.Name, s.Default, s.Parameter, p.Default)
		}
		delete(unset, s.Parameter)
	}
	if got := slices.Sorted(maps.Keys(unset)); !slices.Equal(got, []string{"Architecture", "CodeBucket", "CodeKey"}) {
		t.Errorf("parameters without a setting: %v", got)
	}
}

// TestAfterCode holds what a plan promises for its second step against the template.
func TestAfterCode(t *testing.T) {
	without := evaluate(t, stack.Template, map[string]string{"Provisioner": "true"})
	with := evaluate(t, stack.Template, map[string]string{"Provisioner": "true", "CodeKey": "k"})
	var later []string
	for _, id := range with.IDs() {
		if _, there := without.Resources[id]; !there {
			later = append(later, id)
		}
	}
	got := stack.AfterCode()
	slices.Sort(got)
	if !slices.Equal(got, later) {
		t.Errorf("afterCode = %v, want %v", got, later)
	}
	cents := func(s *cfn.Stack) (sum int64) {
		for _, r := range s.Resources {
			switch r.Type {
			case "AWS::CloudWatch::Alarm":
				metrics, _ := r.Properties["Metrics"].([]any)
				sum += 10 * int64(max(1, len(metrics)-1)) // all but the expression
			case "AWS::Logs::MetricFilter":
				sum += 30
			case "AWS::CloudWatch::Dashboard":
				sum += 300
			}
		}
		return sum
	}
	none := evaluate(t, stack.Template, map[string]string{"Provisioner": "true", "CodeKey": "k", "Alarms": "false"})
	for _, test := range []struct {
		on   map[string]bool
		want *cfn.Stack
	}{
		{map[string]bool{"aggregator": true, "provisioner": true, "alarms": true}, with},
		{map[string]bool{"alarms": true}, without},
		{map[string]bool{"aggregator": true, "provisioner": true}, none},
	} {
		if got, want := stack.FixedCost(test.on), cents(test.want); got != want {
			t.Errorf("fixed cost with %v = %d, want %d", test.on, got, want)
		}
	}
}

func TestCompareVersions(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"0.10.0", "0.9.0", 1}, {"0.9.0", "0.10.0", -1}, {"1.0", "1.0.0", 0}, {"v1.2.3", "1.2.4", -1}} {
		if got := stack.CompareVersions(test.a, test.b); got != test.want {
			t.Errorf("compareVersions(%s, %s) = %d, want %d", test.a, test.b, got, test.want)
		}
	}
}

// TestSelfOfARelease deploys with a release on a system that cannot run the function: the code is what the release has inside.
func TestSelfOfARelease(t *testing.T) {
	t.Parallel()
	inside := check.Call(stack.Pack(cfn.Executable())).Must(t, "stack.Pack()")
	for _, system := range []string{"darwin", "windows", "linux"} {
		code, err := stack.SelfOn(t.Context(), system, inside.Zip)
		if err != nil {
			t.Fatalf("on %s: %v", system, err)
		}
		s := cfn.NewService()
		deploy(t, s, stack.Options{Name: "limits", Code: code}, stack.Hooks{})
		properties := s.Stack("limits").Resources["AggregatorFunction"].Properties
		if got := properties["Code"].(map[string]any)["S3Key"]; got != inside.Key() || fmt.Sprint(properties["Architectures"]) != "[arm64]" {
			t.Errorf("on %s the function is of %v for %v, want %s for arm64", system, got, properties["Architectures"], inside.Key())
		}
		if got := s.Objects["limits-bucket/"+inside.Key()]; !bytes.Equal(got, inside.Zip) {
			t.Errorf("on %s the bucket has %d bytes under the key of the code, want %d", system, len(got), len(inside.Zip))
		}
	}
	if _, err := stack.SelfOn(t.Context(), "darwin", []byte("no zip")); err == nil || !strings.Contains(err.Error(), "no zip") {
		t.Errorf("with a release that is broken Self() = %v", err)
	}
}
