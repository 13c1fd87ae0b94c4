package stack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Status is how a stack does. A part that could not be found out is nil, and Failed says why.
type Status struct {
	Stack    string        `json:"stack"`
	Status   string        `json:"status"`
	Deployed string        `json:"deployed"` // version that deployed it last; "" where nothing is deployed yet
	Version  string        `json:"version"`  // of this package
	Table    *TableStatus  `json:"table,omitempty"`
	Stream   *StreamStatus `json:"stream,omitempty"`       // nil without an aggregator
	Dead     *int64        `json:"dead_letters,omitempty"` // messages in the queue
	Alarms   []AlarmStatus `json:"alarms"`
	Drift    []Drift       `json:"drift"`            // changes past CloudFormation; only on request
	Failed   []string      `json:"failed,omitempty"` // look-ups that failed
}

// Findings returns the points that an operator should look at, none where all is well. It finds a stack that is not
// complete, an inactive table or one without a stream, a disabled mapping, dead letters and raised alarms. It finds
// drift if the caller asked for it. Look-ups that failed are not among them.
func (s *Status) Findings() (all []string) {
	find := func(when bool, format string, args ...any) {
		if when {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	find(!slices.Contains(complete, s.Status), "the stack is %s", s.Status)
	if t := s.Table; t != nil {
		find(t.Status != string(dynamodbtypes.TableStatusActive), "table %s is %s", t.Name, t.Status)
		find(s.Stream != nil && !t.Stream, "table %s has no stream", t.Name)
	}
	if s.Stream != nil {
		find(s.Stream.State != mappingEnabled, "the mapping of the aggregator is %s", s.Stream.State)
	}
	find(s.Dead != nil && *s.Dead > 0, "dead letters: %d", aws.ToInt64(s.Dead))
	for _, a := range s.Alarms {
		find(a.State == string(cwtypes.StateValueAlarm), "alarm %s is raised", a.Name)
	}
	for _, d := range s.Drift {
		find(true, "%s was changed past CloudFormation: %s", d.Resource, d.Status)
	}
	return all
}

// complete are the states of a stack whose last change was done.
var complete = []string{
	string(cfntypes.StackStatusCreateComplete), string(cfntypes.StackStatusUpdateComplete), string(cfntypes.StackStatusImportComplete),
}

// mappingEnabled is the state of an event source mapping that Lambda reads.
const mappingEnabled = "Enabled"

// A TableStatus is how the table does.
type TableStatus struct {
	Name      string `json:"name"`
	Status    string `json:"status"`
	Items     int64  `json:"items"` // as DynamoDB counted them some hours ago
	Bytes     int64  `json:"bytes"`
	Protected bool   `json:"protected"`
	Stream    bool   `json:"stream"` // whether it has a stream of changes
}

// A StreamStatus is how the aggregator keeps up.
type StreamStatus struct {
	State  string        `json:"state"`            // Enabled, when all is well
	Result string        `json:"result,omitempty"` // of the last batch
	Lag    time.Duration `json:"lag_nanoseconds"`  // the most of the last quarter of an hour
	Known  bool          `json:"lag_known"`        // whether there were changes to measure it
}

// An AlarmStatus is that of an alarm.
type AlarmStatus struct {
	Name  string `json:"name"`
	State string `json:"state"` // OK, ALARM or INSUFFICIENT_DATA
}

// A Drift is a resource that was changed past CloudFormation.
type Drift struct {
	Resource   string   `json:"resource"`
	Status     string   `json:"status"`
	Properties []string `json:"properties,omitempty"`
}

// Status inspects a stack: a call to each of its services. With drift it makes some more, which may take minutes. The result contains
// failed look-ups. Only a stack that does not exist, or cannot be described, is an error.
func (m *Manager) Status(ctx context.Context, name string, drift bool) (*Status, error) {
	if err := validateName(name); err != nil {
		return nil, err
	}
	s, err := m.describe(ctx, name)
	if err != nil {
		return nil, err
	}
	st := &Status{
		Stack: name, Status: string(s.StackStatus), Deployed: tags(s)[tagVersion], Version: zlimit.Version, Alarms: []AlarmStatus{}, Drift: []Drift{},
	}
	if s.StackStatus == cfntypes.StackStatusReviewInProgress { // a change set, and nothing else
		st.Deployed = ""
	}
	ids, err := m.resources(ctx, name)
	if err != nil {
		st.Failed = append(st.Failed, err.Error())
		return st, nil
	}
	in := inspector{m.account}
	look := func(what string, there bool, do func() error) {
		if !there {
			return
		}
		if err := do(); err != nil {
			st.Failed = append(st.Failed, what+": "+err.Error())
		}
	}
	look("table", ids["Table"] != "", func() (err error) { st.Table, err = in.table(ctx, ids["Table"]); return err })
	look("stream", ids["AggregatorFunction"] != "", func() (err error) {
		st.Stream, err = in.stream(ctx, ids["AggregatorFunction"])
		return err
	})
	look("dead letters", ids["DeadLetters"] != "", func() (err error) { st.Dead, err = in.deadLetters(ctx, ids["DeadLetters"]); return err })
	look("alarms", true, func() (err error) { st.Alarms, err = in.alarms(ctx, ids); return err })
	look("drift", drift, func() (err error) { st.Drift, err = in.drift(ctx, name); return err })
	return st, nil
}

// An inspector looks at the parts of a stack for its status, each by itself.
type inspector struct{ *account }

func (i inspector) table(ctx context.Context, table string) (*TableStatus, error) {
	out, err := call(ctx, i.account, i.clients.DynamoDB.DescribeTable, &dynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		return nil, err
	}
	t := out.Table
	return &TableStatus{
		Name: table, Status: string(t.TableStatus), Items: aws.ToInt64(t.ItemCount), Bytes: aws.ToInt64(t.TableSizeBytes),
		Protected: aws.ToBool(t.DeletionProtectionEnabled), Stream: t.StreamSpecification != nil && aws.ToBool(t.StreamSpecification.StreamEnabled),
	}, nil
}

func (i inspector) stream(ctx context.Context, function string) (*StreamStatus, error) {
	out, err := call(ctx, i.account, i.clients.Lambda.ListEventSourceMappings, &lambda.ListEventSourceMappingsInput{FunctionName: &function})
	switch {
	case err != nil:
		return nil, err
	case len(out.EventSourceMappings) == 0:
		return nil, errors.New("the function has no event source")
	}
	mapping := out.EventSourceMappings[0]
	st := &StreamStatus{State: value(mapping.State), Result: value(mapping.LastProcessingResult)}
	now := i.now()
	metric, err := call(ctx, i.account, i.clients.CloudWatch.GetMetricStatistics, &cloudwatch.GetMetricStatisticsInput{
		Namespace: aws.String("AWS/Lambda"), MetricName: aws.String("IteratorAge"), Period: aws.Int32(300),
		Dimensions: []cwtypes.Dimension{{Name: aws.String("FunctionName"), Value: &function}}, Statistics: []cwtypes.Statistic{cwtypes.StatisticMaximum},
		StartTime: aws.Time(now.Add(-15 * time.Minute)), EndTime: &now,
	})
	if err != nil {
		return st, fmt.Errorf("lag: %w", err)
	}
	for _, p := range metric.Datapoints {
		st.Lag, st.Known = max(st.Lag, time.Duration(aws.ToFloat64(p.Maximum))*time.Millisecond), true
	}
	return st, nil
}

func (i inspector) deadLetters(ctx context.Context, url string) (*int64, error) {
	const count = sqstypes.QueueAttributeNameApproximateNumberOfMessages
	out, err := call(ctx, i.account, i.clients.SQS.GetQueueAttributes, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []sqstypes.QueueAttributeName{count}})
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(out.Attributes[string(count)], 10, 64)
	return &n, err
}

func (i inspector) alarms(ctx context.Context, ids map[string]string) ([]AlarmStatus, error) {
	all := []AlarmStatus{}
	var names []string
	for id, physical := range ids {
		if strings.HasPrefix(id, "Throttled") || slices.ContainsFunc(afterCode, func(r laterResource) bool {
			return r.resource == id && r.kind == alarm
		}) {
			names = append(names, physical)
		}
	}
	if len(names) == 0 {
		return all, nil
	}
	slices.Sort(names)
	out, err := call(ctx, i.account, i.clients.CloudWatch.DescribeAlarms, &cloudwatch.DescribeAlarmsInput{AlarmNames: names})
	if err != nil {
		return all, err
	}
	for _, a := range out.MetricAlarms {
		all = append(all, AlarmStatus{value(a.AlarmName), string(a.StateValue)})
	}
	return all, nil
}

// drift makes CloudFormation look for drift, and returns the result.
func (i inspector) drift(ctx context.Context, name string) ([]Drift, error) {
	all := []Drift{}
	begun, err := call(ctx, i.account, i.clients.CloudFormation.DetectStackDrift, &cloudformation.DetectStackDriftInput{StackName: &name})
	if err != nil {
		return all, err
	}
	for {
		out, err := call(ctx, i.account, i.clients.CloudFormation.DescribeStackDriftDetectionStatus, &cloudformation.DescribeStackDriftDetectionStatusInput{
			StackDriftDetectionId: begun.StackDriftDetectionId,
		})
		switch {
		case err != nil:
			return all, err
		case out.DetectionStatus == cfntypes.StackDriftDetectionStatusDetectionFailed:
			return all, errors.New(value(out.DetectionStatusReason))
		case out.DetectionStatus == cfntypes.StackDriftDetectionStatusDetectionComplete:
			return i.drifted(ctx, name, all)
		}
		if err := i.sleep(ctx, i.poll); err != nil {
			return all, err
		}
	}
}

// drifted appends the resources that differ from CloudFormation's record.
func (i inspector) drifted(ctx context.Context, name string, all []Drift) ([]Drift, error) {
	var next *string
	for {
		page, err := call(ctx, i.account, i.clients.CloudFormation.DescribeStackResourceDrifts, &cloudformation.DescribeStackResourceDriftsInput{
			StackName: &name, NextToken: next,
			StackResourceDriftStatusFilters: []cfntypes.StackResourceDriftStatus{cfntypes.StackResourceDriftStatusModified, cfntypes.StackResourceDriftStatusDeleted},
		})
		if err != nil {
			return all, err
		}
		for n := range page.StackResourceDrifts {
			r := &page.StackResourceDrifts[n]
			d := Drift{Resource: value(r.LogicalResourceId), Status: string(r.StackResourceDriftStatus)}
			for _, p := range r.PropertyDifferences {
				d.Properties = append(d.Properties, strings.TrimPrefix(value(p.PropertyPath), "/"))
			}
			all = append(all, d)
		}
		if next = page.NextToken; next == nil {
			return all, nil
		}
	}
}

// A Listed is a stack in a list.
type Listed struct {
	Name    string    `json:"name"`
	Status  string    `json:"status"`
	Version string    `json:"version"` // that deployed it last; "" for one of zae-limiter
	Table   string    `json:"table"`
	Created time.Time `json:"created"`
}

// oldPrefix begins the names of stacks of the first releases of zae-limiter, which have no tag.
const oldPrefix = "ZAEL-"

// List returns the stacks of zlimit in the account and region, and stacks of zae-limiter by the prefix of their names. It reads all
// stacks, page by page.
func (m *Manager) List(ctx context.Context) ([]Listed, error) {
	all := []Listed{}
	var next *string
	for {
		page, err := call(ctx, m.account, m.clients.CloudFormation.DescribeStacks, &cloudformation.DescribeStacksInput{NextToken: next})
		if err != nil {
			return all, fmt.Errorf("stack: list stacks: %w", err)
		}
		for i := range page.Stacks {
			s := &page.Stacks[i]
			name := value(s.StackName)
			if s.StackStatus == cfntypes.StackStatusDeleteComplete || tags(s)[tagStack] == "" && !strings.HasPrefix(name, oldPrefix) {
				continue
			}
			listed := Listed{Name: name, Status: string(s.StackStatus), Version: tags(s)[tagVersion], Table: tableOf(s)}
			if s.CreationTime != nil {
				listed.Created = s.CreationTime.UTC()
			}
			all = append(all, listed)
		}
		if next = page.NextToken; next == nil {
			return all, nil
		}
	}
}
