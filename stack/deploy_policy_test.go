package stack_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/pages"
	"github.com/zlimit/zlimit-go/stack"
)

// deployServices are those of the calls of a deployment itself, beside [services].
var deployServices = map[string]string{
	"CreateChangeSet": "cloudformation", "DeleteChangeSet": "cloudformation", "DescribeChangeSet": "cloudformation", "DescribeStackEvents": "cloudformation",
	"ExecuteChangeSet": "cloudformation", "GetObject": "s3", "HeadObject": "s3", "ListObjectsV2": "s3", "PutObject": "s3", "UpdateTable": "dynamodb",
	"GetCallerIdentity": "sts",
}

// s3Actions are actions of S3 with other names than their calls.
var s3Actions = map[string]string{"s3:HeadObject": "s3:GetObject", "s3:ListObjectsV2": "s3:ListBucket"}

// TestDeployPolicy holds the policy of the page for those who deploy against the calls of a new stack, of a change, and of the way back,
// both ways.
func TestDeployPolicy(t *testing.T) {
	page := check.Call(pages.Read("..", "docs/deploy.md")).Must(t, "pages.Read()")
	var policy struct {
		Statement []struct{ Action []string }
	}
	for _, b := range page.Blocks {
		if b.Language == "json" && strings.Contains(b.Text, "cloudformation:ExecuteChangeSet") {
			check.Fatal(t, "json.Unmarshal()", json.Unmarshal([]byte(b.Text), &policy))
		}
	}
	allowed := map[string]bool{}
	for _, s := range policy.Statement {
		for _, action := range s.Action {
			allowed[action] = true
		}
	}
	asked := map[string]bool{}
	s := cfn.NewService()
	s.Call = func(_ int, name string, _ bool) error {
		service := services[name] + deployServices[name]
		action := service + ":" + name
		if other := s3Actions[action]; other != "" {
			action = other
		}
		asked[action] = true
		return nil
	}
	deploy(t, s, fresh(), stack.Hooks{})
	ofVersion(t, s, "0.9.0", time.Unix(0, 0))
	changed := fresh()
	changed.Settings = map[string]string{"max-read-units": "16000", "max-write-units": "16000", "memory": "1024"}
	if _, err := manager(s).Plan(t.Context(), changed, stack.Hooks{}); err != nil {
		t.Fatalf("Plan() = %v", err)
	}
	deploy(t, s, changed, stack.Hooks{})
	if _, err := manager(s).Versions(t.Context(), "limits"); err != nil {
		t.Fatalf("Versions() = %v", err)
	}
	deploy(t, s, stack.Options{Name: "limits", Version: "0.9.0"}, stack.Hooks{})
	if diff := cmp.Diff(slices.Sorted(maps.Keys(asked)), slices.Sorted(maps.Keys(allowed))); diff != "" {
		t.Errorf("the policy of docs/deploy.md (-asked +allowed):\n%s", diff)
	}
}

// TestDeployResources: the page names what CloudFormation needs for each kind of resource of the template, and for no other.
func TestDeployResources(t *testing.T) {
	text := check.Call(os.ReadFile("../docs/deploy.md")).Must(t, "os.ReadFile()")
	template := check.Call(os.ReadFile("template.yaml")).Must(t, "os.ReadFile()")
	kinds := func(form, text string) []string {
		found := map[string]bool{}
		for _, kind := range regexp.MustCompile(form).FindAllStringSubmatch(text, -1) {
			found[kind[1]] = true
		}
		return slices.Sorted(maps.Keys(found))
	}
	want := kinds(`(?m)^ +Type: (AWS::[A-Za-z0-9:]+)`, string(template))
	if diff := cmp.Diff(want, kinds("(?m)^\\| `(AWS::[A-Za-z0-9:]+)` \\|", string(text))); diff != "" || len(want) < 5 {
		t.Errorf("kinds of resources on the page (-template +page):\n%s", diff)
	}
	alarms := strings.Count(string(template), "Type: AWS::CloudWatch::Alarm\n")
	words := map[int]string{9: "eight", 10: "nine", 11: "ten", 12: "eleven"} // with the provisioner there is one more
	if want := "| " + words[alarms] + " [alarms]"; !strings.Contains(string(text), want) {
		t.Errorf("the template has %d alarms, and the page does not say %q", alarms, want)
	}
}
