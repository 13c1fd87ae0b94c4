package stack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
)

// A Plan lists the changes of a deployment.
type Plan struct {
	Stack string `json:"stack"`
	New   bool   `json:"new"` // there is no such stack yet
	// UpToDate says that there is nothing to do. A plan without changes may have tags and parameters that no resource has.
	UpToDate bool     `json:"up_to_date"`
	Changes  []Change `json:"changes"`
	// Cost is the price of the idle stack a month, in cents of a US dollar at the prices of us-east-1.
	Cost int64 `json:"fixed_cost_cents"`
	// Mark identifies the stack as the plan has seen it, and the stack to come. It is a hash of the template, the code,
	// all parameters and tags. JSON leaves it out, since it differs from one version to the next.
	Mark string `json:"-"`

	changeSet string // its ARN
	create    bool
	resume    bool // what failed before stays where it is, and goes on from there
	aim       aim
}

// ErrStale says that a plan is out of date: the stack, the options or the version differ.
var ErrStale = errors.New("the plan is out of date")

// Check returns [ErrStale], with the differences, when a new plan is not the saved one. A plan from JSON will do, with
// its mark.
func (p *Plan) Check(now *Plan) error {
	for _, c := range now.Changes {
		if !slices.ContainsFunc(p.Changes, c.same) {
			return fmt.Errorf("stack: %w: now it is to %s %s too", ErrStale, c.Action, c.Resource)
		}
	}
	for _, c := range p.Changes {
		if !slices.ContainsFunc(now.Changes, c.same) {
			return fmt.Errorf("stack: %w: it is not to %s %s any more", ErrStale, c.Action, c.Resource)
		}
	}
	if p.Mark != now.Mark {
		return fmt.Errorf("stack: %w: the stack was deployed since, or options, code or version are others", ErrStale)
	}
	return nil
}

func (c *Change) same(o Change) bool {
	return c.Action == o.Action && c.Resource == o.Resource && c.Type == o.Type && c.ID == o.ID && c.Replacement == o.Replacement && c.Later == o.Later &&
		slices.Equal(c.Properties, o.Properties)
}

// markOf returns the mark of a plan.
func markOf(in *cloudformation.CreateChangeSetInput, o *Options, s *types.Stack) string {
	h := sha256.New()
	note := func(parts ...string) { _, _ = fmt.Fprintf(h, "%q\n", parts) } // never fails
	note(value(in.StackName), value(in.TemplateBody))
	if o.Code != nil {
		note(o.Code.Key())
	}
	for _, p := range in.Parameters {
		note(value(p.ParameterKey), value(p.ParameterValue), fmt.Sprint(p.ParameterValue == nil))
	}
	for _, t := range in.Tags {
		note(value(t.Key), value(t.Value))
	}
	if s != nil {
		updated := ""
		if s.LastUpdatedTime != nil {
			updated = s.LastUpdatedTime.UTC().Format(time.RFC3339Nano)
		}
		note(value(s.StackId), string(s.StackStatus), updated)
		has := parameters(s)
		for _, name := range slices.Sorted(maps.Keys(has)) {
			note(name, has[name])
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// A Change is what happens to one resource.
type Change struct {
	Action      Action   `json:"action"`
	Resource    string   `json:"resource"` // logical ID
	Type        string   `json:"type"`
	ID          string   `json:"id,omitempty"`          // physical ID
	Replacement string   `json:"replacement,omitempty"` // True, False or Conditional, where CloudFormation says so
	Properties  []string `json:"properties,omitempty"`  // that change
	Later       bool     `json:"later,omitempty"`       // in a second step, once the code is in the bucket
}

// An Action is the change of a resource.
type Action string

// The actions.
const (
	ActionAdd     Action = "add"
	ActionModify  Action = "change"
	ActionReplace Action = "replace"
	ActionRemove  Action = "remove"
	ActionImport  Action = "import"
)

// ErrData says that a plan would delete or replace a resource with data.
var ErrData = errors.New("would remove or replace what holds data")

// keepers are the types of resources that hold data.
var keepers = []string{"AWS::DynamoDB::Table", "AWS::S3::Bucket"}

// A laterResource is one that waits for the code of the functions.
type laterResource struct {
	resource, kind string
	needs          []string // settings that must be on
	cents          int64    // a month
}

// wanted reports whether the settings that are on ask for the resource.
func (r *laterResource) wanted(on map[string]bool) bool {
	return !slices.ContainsFunc(r.needs, func(s string) bool { return !on[s] })
}

// afterCode are the resources that wait for the code of the functions.
var afterCode = []laterResource{
	{"AggregatorFunction", "AWS::Lambda::Function", []string{"aggregator"}, 0},
	{"Stream", "AWS::Lambda::EventSourceMapping", []string{"aggregator"}, 0},
	{"AggregatorErrors", alarm, []string{"aggregator", "alarms"}, priceAlarm},
	{"AggregatorLag", alarm, []string{"aggregator", "alarms"}, priceAlarm},
	{"AggregatorStandstill", alarm, []string{"aggregator", "alarms"}, 2 * priceAlarm},
	{"AggregatorThrottles", alarm, []string{"aggregator", "alarms"}, priceAlarm},
	{"AggregatorDuration", alarm, []string{"aggregator", "alarms"}, priceAlarm},
	{"LoggedErrors", "AWS::Logs::MetricFilter", []string{"aggregator", "alarms"}, priceMetric},
	{"AggregatorLoggedErrors", alarm, []string{"aggregator", "alarms"}, priceAlarm},
	{"DeadLettersWaiting", alarm, []string{"aggregator", "alarms"}, priceAlarm},
	{"Dashboard", "AWS::CloudWatch::Dashboard", []string{"aggregator", "alarms"}, priceDashboard},
	{"ProvisionerFunction", "AWS::Lambda::Function", []string{"provisioner"}, 0},
	{"ProvisionerErrors", alarm, []string{"provisioner", "alarms"}, priceAlarm},
}

const alarm = "AWS::CloudWatch::Alarm"

// Prices of us-east-1 a month, in cents.
const (
	priceAlarm     = 10 // for each metric that an alarm looks at
	priceMetric    = 30 // of our own
	priceDashboard = 300
	throttleAlarms = 2 * 5
)

// fixedCost returns the price of an idle stack with these parts a month. An alarm about throttles looks at the table
// and at each of its four indexes.
func fixedCost(on map[string]bool) (cents int64) {
	if on["alarms"] {
		cents = throttleAlarms * priceAlarm
	}
	for _, r := range afterCode {
		if r.wanted(on) {
			cents += r.cents
		}
	}
	return cents
}

// costOf is fixedCost for the parameters of a stack.
func costOf(given map[string]string) int64 {
	return fixedCost(map[string]bool{
		"aggregator": given["Aggregator"] == "true", "alarms": given["Alarms"] == "true", "provisioner": given["Provisioner"] == "true",
	})
}

// changes returns the changes of a change set, page by page.
func (a *account) changes(ctx context.Context, id string) (all []Change, err error) {
	var next *string
	for {
		page, err := call(ctx, a, a.clients.CloudFormation.DescribeChangeSet, &cloudformation.DescribeChangeSetInput{ChangeSetName: &id, NextToken: next})
		if err != nil {
			return nil, fmt.Errorf("stack: read the change set: %w", err)
		}
		for _, c := range page.Changes {
			if r := c.ResourceChange; r != nil {
				all = append(all, changeOf(r))
			}
		}
		if next = page.NextToken; next == nil {
			return all, nil
		}
	}
}

func changeOf(r *types.ResourceChange) Change {
	c := Change{
		Resource: value(r.LogicalResourceId), Type: value(r.ResourceType), ID: value(r.PhysicalResourceId), Replacement: string(r.Replacement),
	}
	always := false
	for _, d := range r.Details {
		if d.Target == nil {
			continue
		}
		always = always || d.Target.RequiresRecreation == types.RequiresRecreationAlways
		name := value(d.Target.Name)
		if name == "" {
			name = string(d.Target.Attribute)
		}
		if !slices.Contains(c.Properties, name) {
			c.Properties = append(c.Properties, name)
		}
	}
	slices.Sort(c.Properties)
	switch r.Action {
	case types.ChangeActionAdd:
		c.Action = ActionAdd
	case types.ChangeActionRemove:
		c.Action = ActionRemove
	case types.ChangeActionImport:
		c.Action = ActionImport
	default:
		if c.Action = ActionModify; r.Replacement == types.ReplacementTrue || r.Replacement == types.ReplacementConditional && always {
			c.Action = ActionReplace
		}
	}
	return c
}

// lost returns an error when changes would remove or replace what holds data.
func lost(changes []Change) error {
	for _, c := range changes {
		if slices.Contains(keepers, c.Type) && (c.Action == ActionRemove || c.Action == ActionReplace) {
			why := string(c.Action)
			if len(c.Properties) > 0 {
				why += ", since " + strings.Join(c.Properties, ", ") + " would change"
			}
			if c.Type == "AWS::S3::Bucket" && c.Action == ActionRemove {
				why += "; its objects stay where they are: delete the stack's parts one by one if that is meant"
			}
			return fmt.Errorf("stack: the plan %w: %s %s: %s", ErrData, c.Resource, c.ID, why)
		}
	}
	return nil
}
