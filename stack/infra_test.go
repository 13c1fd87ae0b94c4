package stack_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/stack"
)

// tools returns the directory of the tools that make infra installs, and skips the test where there is none.
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

// TestInfraLint has cfn-lint look at the template with all pairs of options.
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

// TestInfraLintTwins breaks the template, one mistake at a time, and has cfn-lint notice.
func TestInfraLintTwins(t *testing.T) {
	t.Parallel()
	dir := tools(t)
	for name, twin := range map[string]struct{ old, new string }{
		"a runtime that is gone":     {"Runtime: provided.al2023", "Runtime: go1.x"},
		"an attribute that is none":  {"!GetAtt Table.StreamArn", "!GetAtt Table.Stream"},
		"an action that is none":     {"dynamodb:GetShardIterator", "dynamodb:GetShardIterators"},
		"memory as a word":           {"MemorySize: !Ref MemorySize", "MemorySize: much"},
		"a retention that is none":   {"RetentionInDays: !Ref LogDays", "RetentionInDays: 4"},
		"an attribute without a key": {"      AttributeDefinitions:\n", "      AttributeDefinitions:\n        - { AttributeName: spare, AttributeType: S }\n"},
		"a table that is replaced":   {"    UpdateReplacePolicy: Retain\n    Properties:\n      TableName", "    Properties:\n      TableName"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := broken(t, name, twin.old, twin.new)[0]
			output, err := run(t, filepath.Join(dir, "venv/bin/cfn-lint"), "-t", writeTemplate(t, text))
			if err == nil {
				t.Errorf("cfn-lint does not notice:\n%s", output)
			}
		})
	}
}

// TestInfraCheckov has checkov look at the template. Findings that stay have a reason in it.
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
