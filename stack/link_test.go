package stack_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestProgramsDoNotLinkDeployment asks what a program with a limiter links: nothing that only deployments need.
func TestProgramsDoNotLinkDeployment(t *testing.T) {
	output := check.Call(exec.CommandContext(t.Context(), "go", "list", "-deps", "../zlimit", "../aggregator").Output()).Must(t, "Output()")
	for path := range strings.FieldsSeq(string(output)) {
		for _, service := range []string{"cloudformation", "cloudwatch", "lambda", "sqs"} {
			if strings.HasPrefix(path, "github.com/aws/aws-sdk-go-v2/service/"+service) {
				t.Errorf("a program with a limiter or an aggregator links %s", path)
			}
		}
	}
	if !strings.Contains(string(output), "service/dynamodb") {
		t.Error("the list has no client of DynamoDB")
	}
}
