package stack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/cfn"
	"github.com/zlimit/zlimit-go/internal/iam"
	"github.com/zlimit/zlimit-go/stack"
)

const tenantTag = "aws:PrincipalTag/zlimit-namespace"

// A trial is a call of a tenant, and whether it should be allowed.
type trial struct {
	name    string
	policy  string
	request iam.Request
	want    bool
}

// trials returns calls of the tenant k3J9 and of others, for every policy of tenants.
func trials() (all []trial) {
	ask := func(name, policy, tag, action, index string, want bool, leading ...string) {
		q := iam.Request{Action: "dynamodb:" + action, Resource: tableARN, Context: map[string][]string{}}
		if index != "" {
			q.Resource += "/index/" + index
		}
		if leading != nil {
			q.Context[leadingKeys] = leading
		}
		if tag != "" {
			q.Context[tenantTag] = []string{tag}
		}
		all = append(all, trial{policy + ": " + name, policy, q, want})
	}
	const own, other = "k3J9/BUCKET#e#r#0", "zzzz/BUCKET#e#r#0"
	for _, policy := range []string{"TenantAcquirePolicy", "TenantFullPolicy", "TenantReadPolicy"} {
		writes, queries := policy != "TenantReadPolicy", policy != "TenantAcquirePolicy"
		ask("reads its own", policy, "k3J9", "GetItem", "", true, own)
		ask("reads its own in a batch", policy, "k3J9", "BatchGetItem", "", true, own, "k3J9/SYSTEM#")
		ask("reads of another in a batch", policy, "k3J9", "BatchGetItem", "", false, own, other)
		ask("reads another", policy, "k3J9", "GetItem", "", false, other)
		ask("reads one whose ID begins with its own", policy, "k3J9", "GetItem", "", false, "k3J9x/BUCKET#e#r#0")
		ask("without a tag", policy, "", "GetItem", "", false, own)
		ask("with an empty tag", policy, "", "GetItem", "", false, "/BUCKET#e#r#0")
		ask("names no key", policy, "k3J9", "GetItem", "", false)
		ask("scans", policy, "k3J9", "Scan", "", false)
		ask("states PartiQL", policy, "k3J9", "PartiQLSelect", "", false, own)
		ask("finds its name", policy, "k3J9", "BatchGetItem", "", true, "_/SYSTEM#", "_/SYSTEM#")
		ask("finds a name", policy, "k3J9", "GetItem", "", true, "_/SYSTEM#")
		ask("looks whether the table answers", policy, "k3J9", "GetItem", "", true, "_/PING#7")
		ask("lists the registry", policy, "k3J9", "Query", "", false, "_/SYSTEM#")
		ask("lists the registry by its tag", policy, "_", "Query", "", false, "_/SYSTEM#")
		ask("lists the registry by an index", policy, "_", "Query", "GSI4", false, "_")
		ask("writes its own", policy, "k3J9", "UpdateItem", "", writes, own)
		ask("writes another", policy, "k3J9", "UpdateItem", "", false, other)
		ask("queries its own", policy, "k3J9", "Query", "", queries, "k3J9/ENTITY#e")
		ask("queries its own in an index", policy, "k3J9", "Query", "GSI4", queries, "k3J9")
		ask("queries another in an index", policy, "k3J9", "Query", "GSI4", false, "zzzz")
		ask("queries one whose ID begins with its own", policy, "k3J9", "Query", "GSI4", false, "k3J9x")
		ask("queries nothing in an index", policy, "k3J9", "Query", "GSI2", false)
		for _, action := range []string{"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem"} {
			ask(action+" in the registry", policy, "k3J9", action, "", false, "_/SYSTEM#")
			ask(action+" in the registry by its tag", policy, "_", action, "", false, "_/SYSTEM#")
			ask(action+" with the registry among them", policy, "_", action, "", false, "_/OTHER", "_/SYSTEM#")
		}
	}
	return all
}

// checkTenants tries what tenants may and may not do.
func checkTenants(text string) error {
	policies := map[string][]iam.Statement{}
	for _, trial := range trials() {
		if policies[trial.policy] == nil {
			var err error
			if policies[trial.policy], err = statements(text, trial.policy, nil); err != nil {
				return err
			}
		}
		got, err := iam.Allows(policies[trial.policy], trial.request)
		if err != nil || got != trial.want {
			return fmt.Errorf("%s: allowed %t, %w, want %t", trial.name, got, err, trial.want)
		}
	}
	return nil
}

// declared returns what spec/calls.yaml says that a program does.
func declared(t *testing.T, program string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../spec/calls.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Programs map[string]struct{ Table, Indexes, Bucket []string }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	p := file.Programs[program]
	all := map[string][]string{}
	for kind, actions := range map[string][]string{"table": p.Table, "indexes": p.Indexes, "bucket": p.Bucket} {
		if len(actions) > 0 {
			all[kind] = actions
		}
	}
	return all
}

// TestCalls runs each kind of program on an engine, and compares what the SDK sends with spec/calls.yaml and the
// policies. Nothing is missing, and nothing is too much. The policy of the program allows every call, that of the
// tenant those in its namespace.
func TestCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("uses a table in every way")
	}
	for name, p := range map[string]struct {
		policy, tenant string
		run            func(t *testing.T, w *testbed)
	}{
		"acquire":     {"AcquirePolicy", "TenantAcquirePolicy", acquires},
		"read":        {"ReadPolicy", "TenantReadPolicy", reads},
		"full":        {"FullPolicy", "TenantFullPolicy", doesAll},
		"aggregator":  {"AggregatorRoleOfStack", "", aggregates},
		"provisioner": {"ProvisionerRoleOfStack", "", provisions},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestbed(t)
			p.run(t, w)
			if len(w.recorder.unknown) > 0 {
				t.Errorf("calls that nobody knows: %v", w.recorder.unknown)
			}
			if diff := cmp.Diff(declared(t, name), w.recorder.recorded()); diff != "" {
				t.Errorf("spec/calls.yaml (-declared +recorded):\n%s", diff)
			}
			policy, err := statements(stack.Template, p.policy, map[string]string{"Provisioner": "true"})
			if err != nil {
				t.Fatal(err)
			}
			var tenant []iam.Statement
			if p.tenant != "" {
				if tenant, err = statements(stack.Template, p.tenant, nil); err != nil {
					t.Fatal(err)
				}
			}
			var asked []question
			for _, q := range w.recorder.requests {
				q.Resource = strings.Replace(q.Resource, "arn:aws:s3:::archive", "arn:aws:s3:::limits-bucket", 1)
				allow(t, policy, q, true)
				asked = append(asked, question{p.policy, q, true})
				if tenant != nil {
					q.Context[tenantTag] = []string{w.namespace}
					want := w.isOwn(q)
					allow(t, tenant, q, want)
					asked = append(asked, question{p.tenant, q, want})
				}
			}
			export(t, name, asked)
		})
	}
}

func allow(t *testing.T, policy []iam.Statement, q iam.Request, want bool) {
	t.Helper()
	if got, err := iam.Allows(policy, q); err != nil || got != want {
		t.Errorf("%v: allowed %t, %v, want %t", q, got, err, want)
	}
}

// A question is a call and what a policy should say to it, for another evaluator.
type question struct {
	Policy  string
	Request iam.Request
	Want    bool
}

// export writes the questions for make infra, which asks another evaluator.
func export(t *testing.T, name string, asked []question) {
	t.Helper()
	dir := os.Getenv("ZLIMIT_INFRA")
	if dir == "" {
		return
	}
	policies := map[string]any{}
	s := evaluate(t, stack.Template, map[string]string{"Provisioner": "true"})
	unique := map[string]question{}
	for _, q := range asked {
		unique[fmt.Sprint(q)] = q
		r := s.Resources[q.Policy]
		document := r.Properties["PolicyDocument"]
		if document == nil {
			document = at(r.Properties["Policies"].([]any)[0], "PolicyDocument")
		}
		policies[q.Policy] = document
	}
	list := []question{}
	for _, q := range unique {
		list = append(list, q)
	}
	writeJSON(t, filepath.Join(dir, "iam-"+name+".json"), map[string]any{"policies": policies, "questions": list})
}

// programs are the policies of programs, each with the program of spec/calls.yaml that it is for.
var programs = map[string]string{
	"AcquirePolicy": "acquire", "ReadPolicy": "read", "FullPolicy": "full",
	"AggregatorRoleOfStack": "aggregator", "ProvisionerRoleOfStack": "provisioner",
}

// ofLambda are the calls that Lambda makes in the role of a function, by policy.
var ofLambda = map[string][]string{
	"AggregatorRoleOfStack": {
		"dynamodb:DescribeStream stream", "dynamodb:GetRecords stream", "dynamodb:GetShardIterator stream", "dynamodb:ListStreams any stream",
		"sqs:SendMessage queue", "logs:CreateLogStream aggregator log", "logs:PutLogEvents aggregator log",
	},
	"ProvisionerRoleOfStack": {"logs:CreateLogStream provisioner log", "logs:PutLogEvents provisioner log"},
}

// calls returns calls of every kind, by their action and what they are about.
func calls() map[string]iam.Request {
	all := map[string]iam.Request{}
	ask := func(what, resource string, actions ...string) {
		for _, action := range actions {
			q := iam.Request{Action: action, Resource: resource, Context: map[string][]string{}}
			if strings.HasPrefix(resource, "arn:aws:dynamodb:") && !strings.Contains(resource, "/stream/") {
				q.Context[leadingKeys] = []string{"k3J9/SYSTEM#"}
			}
			all[action+" "+what] = q
		}
	}
	const (
		other = "arn:aws:dynamodb:" + cfn.Region + ":" + cfn.Account + ":table/limits-2"
		logs  = "arn:aws:logs:" + cfn.Region + ":" + cfn.Account + ":log-group:/aws/lambda/limits-"
	)
	for what, table := range map[string]string{"table": tableARN, "other table": other} {
		ask(what, table, "dynamodb:BatchGetItem", "dynamodb:BatchWriteItem", "dynamodb:ConditionCheckItem", "dynamodb:DeleteItem", "dynamodb:GetItem",
			"dynamodb:PutItem", "dynamodb:Query", "dynamodb:Scan", "dynamodb:UpdateItem", "dynamodb:DeleteTable", "dynamodb:UpdateTable", "dynamodb:UpdateTimeToLive")
		ask("index of "+what, table+"/index/GSI4", "dynamodb:Query", "dynamodb:Scan")
	}
	ask("stream", tableARN+"/stream/2026-03-01T12:00:00.000", "dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator")
	ask("any stream", "*", "dynamodb:ListStreams")
	ask("stream of other table", other+"/stream/2026-03-01T12:00:00.000", "dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator")
	ask("bucket", "arn:aws:s3:::limits-bucket/audit/2026/03/event.json", "s3:PutObject", "s3:GetObject", "s3:DeleteObject")
	ask("code", "arn:aws:s3:::limits-bucket/code/1.zip", "s3:PutObject", "s3:GetObject", "s3:DeleteObject")
	ask("other bucket", "arn:aws:s3:::limits-bucket-2/audit/2026/03/event.json", "s3:PutObject")
	ask("queue", "arn:aws:sqs:"+cfn.Region+":"+cfn.Account+":limits-deadletters", "sqs:SendMessage", "sqs:ReceiveMessage", "sqs:PurgeQueue")
	ask("aggregator log", logs+"aggregator:log-stream:1", "logs:CreateLogStream", "logs:PutLogEvents")
	ask("provisioner log", logs+"provisioner:log-stream:1", "logs:CreateLogStream", "logs:PutLogEvents", "logs:DeleteLogStream")
	return all
}

// TestTrialsOfPrograms asks every policy of a program about every call. It allows what spec/calls.yaml says of the program, and
// what Lambda does in the role of a function, and nothing else.
func TestTrialsOfPrograms(t *testing.T) {
	var asked []question
	for policy, program := range programs {
		all, err := statements(stack.Template, policy, map[string]string{"Provisioner": "true"})
		if err != nil {
			t.Fatal(err)
		}
		wanted := map[string]bool{}
		for kind, actions := range declared(t, program) {
			what, service := map[string]string{"table": "table", "indexes": "index of table", "bucket": "bucket"}[kind], "dynamodb:"
			if kind == "bucket" {
				service = "s3:"
			}
			for _, action := range actions {
				wanted[service+action+" "+what] = true
			}
		}
		for _, name := range ofLambda[policy] {
			wanted[name] = true
		}
		for name, q := range calls() {
			if got, err := iam.Allows(all, q); err != nil || got != wanted[name] {
				t.Errorf("%s: %s: allowed %t, %v, want %t", policy, name, got, err, wanted[name])
			}
			asked = append(asked, question{policy, q, wanted[name]})
			delete(wanted, name)
		}
		for name := range wanted {
			t.Errorf("%s: %s is not asked", policy, name)
		}
	}
	export(t, "programs", asked)
}

// TestTrialsForAnotherEvaluator exports what tenants may and may not do.
func TestTrialsForAnotherEvaluator(t *testing.T) {
	var asked []question
	for _, trial := range trials() {
		asked = append(asked, question{trial.policy, trial.request, trial.want})
	}
	if len(asked) < 60 {
		t.Errorf("%d trials", len(asked))
	}
	export(t, "trials", asked)
}
