package stack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

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
