package stack_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/stack"
)

// tools returns the directory of the tools that make infra installs, and skips the test if there is none.
func tools(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("ZLIMIT_INFRA")
	if dir == "" {
		t.Skip("needs the tools of make infra")
	}
	return dir
}

// run runs a tool, and returns what it prints.
func run(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	output, err := cmd.CombinedOutput()
	return string(output), err
}

func writeTemplate(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "template.yaml")
	check.Fatal(t, "os.WriteFile()", os.WriteFile(path, []byte(text), 0o644))
	return path
}

// TestInfraLint runs cfn-lint on the template with all pairs of options.
func TestInfraLint(t *testing.T) {
	t.Parallel()
	dir := tools(t)
	all := combinations()
	template, args := writeTemplate(t, stack.Template), []string{"--deployment-files"}
	for i, c := range all {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("deployment-%d.json", i))
		writeJSON(t, path, map[string]any{"template-file-path": template, "parameters": c})
		args = append(args, path)
	}
	if output, err := run(t, filepath.Join(dir, "venv/bin/cfn-lint"), args...); err != nil {
		t.Errorf("cfn-lint with %d combinations: %v\n%s", len(all), err, output)
	}
}

// TestInfraLintTwins breaks the template by several mistakes at once, and checks that cfn-lint notices each, by its rule. cfn-lint reads
// one file, since it takes seconds for each.
func TestInfraLintTwins(t *testing.T) {
	t.Parallel()
	dir := tools(t)
	text, rules := stack.Template, map[string]string{} // the mistakes by the rules that they break
	for _, twin := range []struct{ name, old, new, rule string }{
		{"a runtime that is gone", "Runtime: provided.al2023", "Runtime: go1.x", "E2531"},
		{"an attribute that is none", "!GetAtt Table.StreamArn", "!GetAtt Table.Stream", "E1010"},
		{"an action that is none", "dynamodb:GetShardIterator", "dynamodb:GetShardIterators", "W3037"},
		{"memory as a word", "MemorySize: !Ref MemorySize", "MemorySize: much", "E3012"},
		{"a retention that is none", "RetentionInDays: !Ref LogDays", "RetentionInDays: 4", "E3030"},
		{"an attribute without a key", "   AttributeDefinitions:\n", "   AttributeDefinitions:\n    - { AttributeName: spare, AttributeType: S }\n", "E3039"},
		{"a table that is replaced", "  UpdateReplacePolicy: Retain\n  Properties:\n   TableName", "  Properties:\n   TableName", "W3011"},
	} {
		broken(t, twin.name, twin.old, twin.new) // fails if the template has nothing to break
		text, rules[twin.rule] = strings.Replace(text, twin.old, twin.new, 1), twin.name
	}
	output, err := run(t, filepath.Join(dir, "venv/bin/cfn-lint"), "-f", "parseable", "-t", writeTemplate(t, text))
	for rule, name := range rules {
		if !strings.Contains(output, ":"+rule+":") {
			t.Errorf("cfn-lint does not notice %s, which breaks rule %s: %v\n%s", name, rule, err, output)
		}
	}
}

// TestInfraCheckov runs checkov on the template. Findings that stay have a reason in it.
func TestInfraCheckov(t *testing.T) {
	t.Parallel()
	dir := tools(t)
	output, err := run(t, filepath.Join(dir, "venv/bin/checkov"), "-f", writeTemplate(t, stack.Template), "--framework", "cloudformation", "--compact", "--quiet", "--skip-download")
	if err != nil || !strings.Contains(output, "Failed checks: 0") || strings.Contains(output, "Passed checks: 0") {
		t.Errorf("checkov: %v\n%s", err, output)
	}
}

// TestInfraSimulate asks another evaluator of policies what TestCalls and the trials of tenants ask ours.
func TestInfraSimulate(t *testing.T) {
	dir := tools(t)
	output, err := run(t, "node", "../scripts/infra/simulate.mjs", dir)
	if err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	t.Log(output)
}

// TestInfraCDK synthesizes the construct for the CDK, which comes to the template itself. A template that is not the one beside the
// construct is noticed.
func TestInfraCDK(t *testing.T) {
	t.Parallel()
	dir := tools(t)
	want := check.Call(cfn.Long(stack.Template)).Must(t, "cfn.Long()")
	work, twin := t.TempDir(), t.TempDir()
	writeJSON(t, filepath.Join(work, "template.json"), want)
	for path, text := range map[string]string{
		filepath.Join(work, "zlimit.ts"):    stack.CDK(),
		filepath.Join(work, "zlimit.yaml"):  stack.Template,
		filepath.Join(work, "package.json"): "{}",
		filepath.Join(twin, "zlimit.yaml"):  broken(t, "a table that goes with the stack", "  DeletionPolicy: Retain\n", "  DeletionPolicy: Delete\n")[0],
	} {
		check.Fatal(t, "os.WriteFile()", os.WriteFile(path, []byte(text), 0o644))
	}
	output, err := run(t, "node", "../scripts/infra/cdk.mjs", dir, work, twin)
	if err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	if !regexp.MustCompile(`(?m)^cdk: the other template differs: .*DeletionPolicy`).MatchString(output) {
		t.Errorf("a construct of another template passes:\n%s", output)
	}
}

// TestInfraTerraform reads the module for Terraform: it knows every parameter of the template, and asks for what the stack
// needs.
func TestInfraTerraform(t *testing.T) {
	t.Parallel()
	dir := tools(t)
	path := filepath.Join(t.TempDir(), "main.tf")
	check.Fatal(t, "os.WriteFile()", os.WriteFile(path, []byte(stack.Terraform()), 0o644))
	output, err := run(t, filepath.Join(dir, "venv/bin/python"), "-c", "import hcl2, json, sys; print(json.dumps(hcl2.load(open(sys.argv[1]))))", path)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	var module struct {
		Locals []struct {
			Known [][]string `json:"known"`
		} `json:"locals"`
		Resource []map[string]map[string]map[string]any `json:"resource"`
	}
	if err := json.Unmarshal([]byte(output), &module); err != nil || len(module.Locals) != 1 || len(module.Locals[0].Known) != 1 || len(module.Resource) != 1 {
		t.Fatalf("%v\n%s", err, output)
	}
	known := slices.Sorted(slices.Values(module.Locals[0].Known[0]))
	if diff := cmp.Diff(slices.Sorted(maps.Keys(parse(t, stack.Template).Parameters)), known); diff != "" {
		t.Errorf("parameters (-template +module):\n%s", diff)
	}
	resource := module.Resource[0]["aws_cloudformation_stack"]["zlimit"]
	if fmt.Sprint(resource["capabilities"]) != "[[CAPABILITY_NAMED_IAM]]" || !strings.Contains(fmt.Sprint(resource["template_body"]), "zlimit.yaml") {
		t.Errorf("the resource is %v", resource)
	}
}
