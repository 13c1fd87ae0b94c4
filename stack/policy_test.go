package stack_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/iam"
	"github.com/zlimit/zlimit-go/stack"
)

// withProvisioner are parameters with which the template has all policies.
var withProvisioner = map[string]string{"Provisioner": "true"}

const tenantTag = "aws:PrincipalTag/zlimit-namespace"

// A trial is a call, and whether a policy should allow it.
type trial struct {
	name    string
	policy  string
	request iam.Request
	want    bool
}

// trials returns calls of programs, and of the tenant k3J9 and of others for every policy of tenants.
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
	for _, policy := range []string{"TenantAcquirePolicy", "TenantFullPolicy", "TenantOperatePolicy", "TenantReadPolicy"} {
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
		ask("reads of another beside its name", policy, "k3J9", "BatchGetItem", "", false, "_/SYSTEM#", other)
		ask("queries its own and another", policy, "k3J9", "Query", "GSI4", false, "k3J9", "zzzz")
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
	writes := []string{"BatchWriteItem", "DeleteItem", "PutItem", "UpdateItem"}
	for policy, denied := range protected {
		tag := map[bool]string{true: "k3J9", false: ""}[strings.HasPrefix(policy, "Tenant")]
		for _, action := range writes {
			for what, key := range denied {
				ask(action+" "+what, policy, tag, action, "", false, key)
				ask(action+" "+what+" among others", policy, tag, action, "", false, "k3J9/BUCKET#e#r#0", "k3J9/AUDIT#e", key)
			}
			ask(action+" of no key", policy, tag, action, "", false)
		}
	}
	for _, action := range []string{"DeleteItem", "PutItem", "UpdateItem"} {
		ask(action+" a bucket", "AcquirePolicy", "", action, "", true, own)
		ask(action+" buckets", "AcquirePolicy", "", action, "", true, own, other)
		ask(action+" a bucket", "AggregatorRoleOfStack", "", action, "", true, own)
	}
	for _, action := range []string{"DeleteItem", "PutItem"} {
		for what, key := range map[string]string{"the switch of an entity": "k3J9/ENTITY#alice", "the switch of a resource": "k3J9/RESOURCE#gpt-4"} {
			for policy, want := range map[string]bool{"AcquirePolicy": false, "ReadPolicy": false, "OperatePolicy": true, "FullPolicy": true} {
				ask(action+" "+what, policy, "", action, "", want, key)
				ask(action+" "+what, "Tenant"+policy, "k3J9", action, "", want, key)
			}
		}
	}
	return all
}

// theRegistry are partitions that hold the namespaces and the version record, and the aggregator's work.
var theRegistry = map[string]string{"a namespace or the version": "_/SYSTEM#", "the hours to roll up": "_/ROLLUP#3"}

// theLimits are partitions with what an operator decides: limits, and the events that say who decided.
var theLimits = map[string]string{
	"limits of a resource": "k3J9/RESOURCE#gpt-4", "limits of the system": "k3J9/SYSTEM#",
	"limits of an entity": "k3J9/ENTITY#alice", "limits of an entity with the name of a bucket": "k3J9/ENTITY#a/BUCKET",
	"the event of a change": "k3J9/AUDIT#$RESOURCE:gpt-4", "an event about an entity": "k3J9/AUDIT#alice",
}

// protected are the partitions that a policy protects from the programs that it is for, whatever spec/calls.yaml says.
var protected = map[string]map[string]string{
	"AcquirePolicy":       with(theLimits, theRegistry),
	"TenantAcquirePolicy": with(theLimits, theRegistry, map[string]string{"a bucket of another": "zzzz/BUCKET#e#r#0", "limits of another": "zzzz/SYSTEM#"}),
	"ReadPolicy":          with(theLimits, theRegistry, map[string]string{"a bucket": "k3J9/BUCKET#e#r#0"}),
	"TenantReadPolicy":    with(theLimits, theRegistry, map[string]string{"a bucket": "k3J9/BUCKET#e#r#0"}),
	"OperatePolicy":       with(theRegistry, map[string]string{"a partition of no record yet": "k3J9/NONE#alice"}),
	"TenantOperatePolicy": with(theRegistry, map[string]string{"a partition of no record yet": "k3J9/NONE#alice", "a bucket of another": "zzzz/BUCKET#e#r#0", "the switch of another": "zzzz/ENTITY#alice"}),
	"TenantFullPolicy":    with(theRegistry, map[string]string{"a bucket of another": "zzzz/BUCKET#e#r#0", "limits of another": "zzzz/RESOURCE#gpt-4"}),
	"AggregatorRoleOfStack": with(map[string]string{ // limits of entities share the partition of usage
		"limits of a resource": "k3J9/RESOURCE#gpt-4", "limits of the system": "k3J9/SYSTEM#", "an event": "k3J9/AUDIT#alice", "a namespace or the version": "_/SYSTEM#",
	}),
	"ProvisionerRoleOfStack": {"a bucket": "k3J9/BUCKET#e#r#0", "the hours to roll up": "_/ROLLUP#3"},
	"FullPolicy":             {"the hours to roll up": "_/ROLLUP#3"},
}

// with returns the entries of several maps.
func with[V any](maps ...map[string]V) map[string]V {
	all := map[string]V{}
	for _, m := range maps {
		for key, value := range m {
			all[key] = value
		}
	}
	return all
}

// checkTrials tries what policies should and should not allow.
func checkTrials(text string) error {
	policies := map[string][]iam.Statement{}
	for _, trial := range trials() {
		if policies[trial.policy] == nil {
			var err error
			if policies[trial.policy], err = statements(text, trial.policy, withProvisioner); err != nil {
				return err
			}
		}
		got, err := iam.Allows(policies[trial.policy], trial.request)
		if err != nil {
			return fmt.Errorf("%s: %w", trial.name, err)
		}
		if got != trial.want {
			return fmt.Errorf("%s: allowed %t, want %t", trial.name, got, trial.want)
		}
	}
	return nil
}

// declared returns what spec/calls.yaml says of a program.
func declared(t *testing.T, name string) program {
	t.Helper()
	text := check.Call(os.ReadFile("../spec/calls.yaml")).Must(t, "os.ReadFile()")
	var file struct{ Programs map[string]program }
	check.Fatal(t, "Unmarshal()", yaml.Unmarshal(text, &file))
	p, ok := file.Programs[name]
	if !ok {
		t.Fatalf("spec/calls.yaml has no program %s", name)
	}
	return p
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
		"operate":     {"OperatePolicy", "TenantOperatePolicy", operates},
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
			if diff := cmp.Diff(declared(t, name), w.recorder.recorded(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("spec/calls.yaml (-declared +recorded):\n%s", diff)
			}
			policy, err := statements(stack.Template, p.policy, withProvisioner)
			check.Fatal(t, "statements()", err)
			var tenant []iam.Statement
			if p.tenant != "" {
				if tenant, err = statements(stack.Template, p.tenant, withProvisioner); err != nil {
					t.Fatalf("statements() = %v", err)
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
			asked = append(asked, denyManually(t, w)...)
			export(t, name, asked)
		})
	}
}

// denyManually asks about each reset and top-up that was recorded, which is one transaction. The policies for programs that acquire or read
// deny a member of it, whatever members they allow. It returns what was denied.
func denyManually(t *testing.T, w *testbed) (denied []question) {
	t.Helper()
	if operates := w.recorder.writes["operation"] != nil; operates != (len(w.recorder.byHand) > 0) {
		t.Errorf("%d transactions with records of operations", len(w.recorder.byHand))
	}
	for _, policy := range []string{"AcquirePolicy", "TenantAcquirePolicy", "ReadPolicy", "TenantReadPolicy"} {
		all := check.Call(statements(stack.Template, policy, withProvisioner)).Must(t, "statements()")
		for _, members := range w.recorder.byHand {
			before := len(denied)
			for _, q := range members {
				q.Context = with(q.Context, map[string][]string{tenantTag: {w.namespace}})
				if allowed, err := iam.Allows(all, q); err != nil || !allowed {
					denied = append(denied, question{policy, q, false})
				}
			}
			if len(denied) == before {
				t.Errorf("%s allows to reset a bucket: %v", policy, members)
			}
		}
	}
	return denied
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
	s := evaluate(t, stack.Template, withProvisioner)
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

// programs are the policies, each with the program of spec/calls.yaml that it is for.
var programs = map[string]string{
	"AcquirePolicy": "acquire", "OperatePolicy": "operate", "ReadPolicy": "read", "FullPolicy": "full",
	"TenantAcquirePolicy": "acquire", "TenantOperatePolicy": "operate", "TenantReadPolicy": "read", "TenantFullPolicy": "full",
	"AggregatorRoleOfStack": "aggregator", "ProvisionerRoleOfStack": "provisioner",
}

// TestTrialsOfRecords asks every policy about every action on every kind of record, in the tenant's namespace, in another one, and
// with names like those of buckets. A policy allows what spec/calls.yaml says of its program, and nothing else.
func TestTrialsOfRecords(t *testing.T) {
	var asked []question
	for policy, name := range programs {
		all := check.Call(statements(stack.Template, policy, withProvisioner)).Must(t, "statements()")
		p, tenant := declared(t, name), strings.HasPrefix(policy, "Tenant")
		written, changes := []string{}, []string{}
		for record, actions := range p.Writes {
			written = append(written, literal(partition(record)))
			changes = append(changes, actions...)
		}
		for _, form := range keyForms() {
			registry := strings.HasPrefix(form.pk, "_/")
			for _, ns := range []string{"k3J9", "zzzz"} {
				for _, action := range []string{
					"BatchGetItem", "BatchWriteItem", "ConditionCheckItem", "DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem",
				} {
					want := slices.Contains(p.Reads, action) || slices.Contains(changes, action) && slices.ContainsFunc(written, func(prefix string) bool { return strings.HasPrefix(form.pk, prefix) })
					if tenant && registry {
						want = form.pk == "_/SYSTEM#" && (action == "GetItem" || action == "BatchGetItem")
					} else if tenant && ns != "k3J9" {
						want = false
					}
					for _, name := range []string{"7", "a/BUCKET", "SYSTEM", "_/SYSTEM"} {
						q := iam.Request{Action: "dynamodb:" + action, Resource: tableARN, Context: map[string][]string{leadingKeys: {partitionKey(form.pk, ns, name)}}}
						if tenant {
							q.Context[tenantTag] = []string{"k3J9"}
						}
						if got, err := iam.Allows(all, q); err != nil || got != want {
							t.Errorf("%s: %s of %s with the key %s: allowed %t, %v, want %t", policy, action, form.record, q.Context[leadingKeys], got, err, want)
						}
						asked = append(asked, question{policy, q, want})
					}
				}
			}
		}
	}
	export(t, "records", asked)
}

// ofLambda are the calls that Lambda makes in the role of a function, by policy.
var ofLambda = map[string][]string{
	"AggregatorRoleOfStack": {
		"dynamodb:DescribeStream stream", "dynamodb:GetRecords stream", "dynamodb:GetShardIterator stream", "dynamodb:ListStreams any stream",
		"sqs:SendMessage queue", "logs:CreateLogStream aggregator log", "logs:PutLogEvents aggregator log",
	},
	"ProvisionerRoleOfStack": {"logs:CreateLogStream provisioner log", "logs:PutLogEvents provisioner log"},
}

// calls returns calls of every kind but those on items of the table, by their action and what they are about.
func calls() map[string]iam.Request {
	all := map[string]iam.Request{}
	ask := func(what, resource string, actions ...string) {
		for _, action := range actions {
			q := iam.Request{Action: action, Resource: resource, Context: map[string][]string{}}
			if strings.HasPrefix(resource, "arn:aws:dynamodb:") && !strings.Contains(resource, "/stream/") && !strings.HasSuffix(action, "Scan") {
				q.Context[leadingKeys] = []string{"k3J9/BUCKET#e#r#0"}
			}
			all[action+" "+what] = q
		}
	}
	const (
		other = "arn:aws:dynamodb:" + cfn.Region + ":" + cfn.Account + ":table/limits-2"
		logs  = "arn:aws:logs:" + cfn.Region + ":" + cfn.Account + ":log-group:/aws/lambda/limits-"
	)
	ask("table", tableARN, "dynamodb:Scan", "dynamodb:DeleteTable", "dynamodb:UpdateTable", "dynamodb:UpdateTimeToLive")
	ask("other table", other, "dynamodb:BatchGetItem", "dynamodb:BatchWriteItem", "dynamodb:ConditionCheckItem", "dynamodb:DeleteItem", "dynamodb:GetItem",
		"dynamodb:PutItem", "dynamodb:Query", "dynamodb:Scan", "dynamodb:UpdateItem", "dynamodb:DeleteTable")
	for what, table := range map[string]string{"table": tableARN, "other table": other} {
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

// TestTrialsOfPrograms asks every policy of a program about every call but those on items of the table. It allows what
// spec/calls.yaml says of the program, and what Lambda does in the role of a function, and nothing else.
func TestTrialsOfPrograms(t *testing.T) {
	var asked []question
	for policy, program := range programs {
		if strings.HasPrefix(policy, "Tenant") {
			continue
		}
		all := check.Call(statements(stack.Template, policy, withProvisioner)).Must(t, "statements()")
		p, wanted := declared(t, program), map[string]bool{}
		if slices.Contains(p.Reads, "Scan") {
			wanted["dynamodb:Scan table"] = true
		}
		for _, action := range p.Indexes {
			wanted["dynamodb:"+action+" index of table"] = true
		}
		for _, action := range p.Bucket {
			wanted["s3:"+action+" bucket"] = true
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

// TestDocumentedPolicy asks the policy for programs that acquire in docs/dynamodb.md what AcquirePolicy is asked.
func TestDocumentedPolicy(t *testing.T) {
	text := check.Call(os.ReadFile("../docs/dynamodb.md")).Must(t, "os.ReadFile()")
	_, after, found := strings.Cut(string(text), "can write only buckets:\n\n```json\n")
	block, _, closed := strings.Cut(after, "```")
	if !found || !closed {
		t.Fatal("docs/dynamodb.md has no policy for a program that can write only buckets")
	}
	var document any
	check.Fatal(t, "json.Unmarshal()", json.Unmarshal([]byte(block), &document))
	documented := check.Call(iam.Parse(document)).Must(t, "iam.Parse()")
	for _, trial := range trials() {
		if trial.policy == "AcquirePolicy" {
			allow(t, documented, trial.request, trial.want)
		}
	}
}

// TestTrialsForAnotherEvaluator exports what programs and tenants may and may not do.
func TestTrialsForAnotherEvaluator(t *testing.T) {
	var asked []question
	for _, trial := range trials() {
		asked = append(asked, question{trial.policy, trial.request, trial.want})
	}
	if len(asked) < 400 {
		t.Errorf("%d trials", len(asked))
	}
	export(t, "trials", asked)
}
