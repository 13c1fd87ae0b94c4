package stack_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/cfn"
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
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
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

// TestInfraLintTwins breaks the template, one mistake at a time, and checks that cfn-lint notices each. One run reads all of them, since most of its
// time goes into its own start.
func TestInfraLintTwins(t *testing.T) {
	t.Parallel()
	dir := tools(t)
	files := map[string]string{} // the mistakes by the files that have them
	for name, twin := range map[string]struct{ old, new string }{
		"a runtime that is gone":     {"Runtime: provided.al2023", "Runtime: go1.x"},
		"an attribute that is none":  {"!GetAtt Table.StreamArn", "!GetAtt Table.Stream"},
		"an action that is none":     {"dynamodb:GetShardIterator", "dynamodb:GetShardIterators"},
		"memory as a word":           {"MemorySize: !Ref MemorySize", "MemorySize: much"},
		"a retention that is none":   {"RetentionInDays: !Ref LogDays", "RetentionInDays: 4"},
		"an attribute without a key": {"   AttributeDefinitions:\n", "   AttributeDefinitions:\n    - { AttributeName: spare, AttributeType: S }\n"},
		"a table that is replaced":   {"  UpdateReplacePolicy: Retain\n  Properties:\n   TableName", "  Properties:\n   TableName"},
	} {
		files[writeTemplate(t, broken(t, name, twin.old, twin.new)[0])] = name
	}
	output, _ := run(t, filepath.Join(dir, "venv/bin/cfn-lint"), slices.Concat([]string{"-f", "parseable", "-t"}, slices.Sorted(maps.Keys(files)))...) // it fails by what it finds
	for file, name := range files {
		if !strings.Contains(output, file+":") {
			t.Errorf("cfn-lint does not notice %s:\n%s", name, output)
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
	synthesize := func(template string) (string, error) {
		work := t.TempDir()
		want, err := cfn.Long(stack.Template)
		if err != nil {
			t.Fatal(err)
		}
		writeJSON(t, filepath.Join(work, "template.json"), want)
		for name, text := range map[string]string{"zlimit.ts": stack.CDK(), "zlimit.yaml": template, "package.json": "{}"} {
			if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return run(t, "node", "../scripts/infra/cdk.mjs", dir, work)
	}
	if output, err := synthesize(stack.Template); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	other := broken(t, "a table that goes with the stack", "  DeletionPolicy: Retain\n", "  DeletionPolicy: Delete\n")[0]
	if output, err := synthesize(other); err == nil || !strings.Contains(output, "DeletionPolicy") {
		t.Errorf("a construct of another template passes: %v\n%s", err, output)
	}
}

// TestInfraTerraform reads the module for Terraform: it knows every parameter of the template, and asks for what the stack
// needs.
func TestInfraTerraform(t *testing.T) {
	t.Parallel()
	dir := tools(t)
	path := filepath.Join(t.TempDir(), "main.tf")
	if err := os.WriteFile(path, []byte(stack.Terraform()), 0o644); err != nil {
		t.Fatal(err)
	}
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
