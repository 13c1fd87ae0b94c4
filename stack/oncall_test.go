package stack_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/pages"
	"github.com/zlimit/zlimit-go/stack"
)

// services are those of the calls that someone on call makes. A batch is allowed by the action for one.
var services = map[string]string{
	"DescribeStackResources": "cloudformation", "DescribeStacks": "cloudformation", "DescribeAlarms": "cloudwatch", "GetMetricStatistics": "cloudwatch",
	"DescribeTable": "dynamodb", "GetRecords": "dynamodb", "GetShardIterator": "dynamodb", "Invoke": "lambda", "ListEventSourceMappings": "lambda",
	"ChangeMessageVisibility": "sqs", "DeleteMessage": "sqs", "GetQueueAttributes": "sqs", "ReceiveMessage": "sqs",
}

// byHand finds commands of AWS's own on a page: a service, and an operation or a command of several.
var byHand = regexp.MustCompile(`aws ([a-z]+) ([a-z-]+)`)

// actionOf returns the action of a command of AWS's own, such as aws lambda update-event-source-mapping.
func actionOf(service, command string) string {
	if service == "logs" && command == "tail" {
		return "logs:FilterLogEvents"
	}
	action := service + ":"
	for word := range strings.SplitSeq(command, "-") {
		action += strings.ToUpper(word[:1]) + word[1:]
	}
	return action
}

// TestOnCallPolicy holds the policy of the page for those on call against the calls of stack status and of redriving dead letters, and
// against the commands of AWS's own on that page, both ways.
func TestOnCallPolicy(t *testing.T) {
	page := check.Call(pages.Read("..", "docs/operations.md")).Must(t, "pages.Read()")
	var policy struct {
		Statement []struct {
			Effect   string
			Action   []string
			Resource any
		}
	}
	for _, b := range page.Blocks {
		if b.Language == "json" && strings.Contains(b.Text, "sqs:ReceiveMessage") {
			check.Fatal(t, "json.Unmarshal()", json.Unmarshal([]byte(b.Text), &policy))
		}
	}
	var allowed []string
	for _, s := range policy.Statement {
		allowed = append(allowed, s.Action...)
	}
	slices.Sort(allowed)

	s := cfn.NewService()
	deploy(t, s, fresh(), stack.Hooks{})
	number := "100"
	s.Records["shard-1"] = []streamtypes.Record{{EventName: streamtypes.OperationTypeModify, Dynamodb: &streamtypes.StreamRecord{SequenceNumber: &number}}}
	s.Letters = map[string]string{"1": letter("shard-1", "100", "100", 1), "2": letter("shard-0", "7", "8", 2)}
	s.Invoked = func(payload []byte) string {
		var event events.DynamoDBEvent
		check.Error(t, "json.Unmarshal()", json.Unmarshal(payload, &event))
		return `{"batchItemFailures":[]}`
	}
	asked := map[string]bool{}
	s.Call = func(_ int, name string, _ bool) error {
		name = strings.TrimSuffix(name, "Batch")
		action := services[name] + ":" + name
		if name == "Invoke" {
			action += "Function"
		}
		asked[action] = true
		return nil
	}
	if _, err := manager(s).Status(t.Context(), "limits", false); err != nil {
		t.Fatalf("Status() = %v", err)
	}
	letters, err := manager(s).DeadLetters(t.Context(), "limits", true, false)
	if err != nil || len(letters) != 2 || !slices.ContainsFunc(letters, func(l stack.DeadLetter) bool { return l.Outcome == stack.LetterRedriven }) {
		t.Fatalf("DeadLetters() = %s, %v, want one of two redriven", fmt.Sprint(letters), err)
	}
	text := check.Call(os.ReadFile("../docs/operations.md")).Must(t, "os.ReadFile()")
	commands := byHand.FindAllStringSubmatch(string(text), -1)
	for _, found := range commands {
		asked[actionOf(found[1], found[2])] = true
	}
	if len(commands) < 5 {
		t.Errorf("the page has the commands %v, want those of the function's log, of the mapping and of the table", commands)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(asked)), allowed); diff != "" {
		t.Errorf("the policy of docs/operations.md (-asked +allowed):\n%s", diff)
	}
}
