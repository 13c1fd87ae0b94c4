package cfn

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/aws/smithy-go"
)

// A Service is a CloudFormation in memory, with the bucket service that it takes code from. It works on one resource with
// each look at a stack. It is safe for concurrent use.
type Service struct {
	mu sync.Mutex

	// Fail says which resources cannot be made or changed, with the reason.
	Fail map[string]string
	// Call is asked before each call is carried out, and after. An error is the call's result.
	Call func(n int, name string, after bool) error

	// Objects are the objects of buckets, by bucket and key with a slash between them.
	Objects map[string][]byte
	// Uploaded is when all of them were stored.
	Uploaded time.Time
	// Kept are physical IDs of resources that a stack has left behind, by their type.
	Kept map[string][]string
	// Drifted are logical IDs of resources that were changed past a stack, with the property.
	Drifted map[string]string
	// Deleted are tables and buckets that were deleted past a stack. Unprotected are tables that may be deleted.
	Deleted, Unprotected map[string]bool
	// Ringing are alarms that are not well.
	Ringing map[string]bool
	// Letters are the bodies of dead letters, by their message ID.
	Letters map[string]string
	// Records are the changes that the stream has, by shard. A shard that is not there is forgotten.
	Records map[string][]streamtypes.Record
	// Open are shards that may have changes after their last one, so their pages never end.
	Open map[string]bool
	// Invoked returns the answer of a function to an event.
	Invoked func(payload []byte) (answer string)
	// Replaced counts resources that were replaced, by logical ID.
	Replaced map[string]int

	receipts      map[string]receipt // of letters
	handedOut     int                // letters, each time
	calls, events int
	stacks        map[string]*kept
	changeSets    map[string]*changeSet
}

// NewService returns a service without stacks.
func NewService() *Service {
	return &Service{
		Fail: map[string]string{}, Objects: map[string][]byte{}, Kept: map[string][]string{}, Drifted: map[string]string{},
		Deleted: map[string]bool{}, Unprotected: map[string]bool{}, Ringing: map[string]bool{},
		Letters: map[string]string{}, Records: map[string][]streamtypes.Record{},
		Open: map[string]bool{}, receipts: map[string]receipt{},
		Replaced: map[string]int{}, stacks: map[string]*kept{}, changeSets: map[string]*changeSet{},
	}
}

// A kept is a stack that the service keeps.
type kept struct {
	name, id   string
	status     types.StackStatus
	parameters map[string]string
	tags       []types.Tag
	now        *Stack // its present state
	events     []types.StackEvent
	pending    []operation
	begun      *changeSet // that is being executed
	deleting   bool
	made       []string // since begun
}

// Fault is an error of a service of AWS.
func Fault(code, message string) error {
	return &smithy.GenericAPIError{Code: code, Message: message}
}

// called counts a call and carries it out, unless Call refuses it before. An error of Call afterwards is the call's result.
func called[T any](s *Service, name string, do func() (*T, error)) (*T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	n := s.calls
	if s.Call == nil {
		return do()
	}
	if err := s.Call(n, name, false); err != nil {
		return nil, err
	}
	out, err := do()
	return out, cmp.Or(s.Call(n, name, true), err)
}

// Calls returns how many calls the service has got.
func (s *Service) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Stack returns the state of a stack, nil when there is none.
func (s *Service) Stack(name string) *Stack {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.stacks[name]; found != nil {
		return found.now
	}
	return nil
}

// Status returns the status of a stack, "" when there is none.
func (s *Service) Status(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.stacks[name]; found != nil {
		return string(found.status)
	}
	return ""
}

func (s *Service) find(name *string) (*kept, error) {
	for _, found := range s.stacks {
		if name != nil && (found.name == *name || found.id == *name) {
			return found, nil
		}
	}
	text := ""
	if name != nil {
		text = *name
	}
	return nil, Fault("ValidationError", "Stack with id "+text+" does not exist")
}

func (s *Service) event(found *kept, logical, kind, physical, status, reason string) {
	s.events++
	id := fmt.Sprint(s.events)
	at := time.Date(2026, 3, 1, 12, 0, s.events, 0, time.UTC)
	e := types.StackEvent{
		EventId: &id, StackId: &found.id, StackName: &found.name, LogicalResourceId: &logical, ResourceType: &kind, PhysicalResourceId: &physical,
		ResourceStatus: types.ResourceStatus(status), Timestamp: &at,
	}
	if reason != "" {
		e.ResourceStatusReason = &reason
	}
	found.events = append(found.events, e)
}

// verbs name what becomes of a resource, as statuses do.
var verbs = map[types.ChangeAction]string{
	types.ChangeActionAdd: "CREATE", types.ChangeActionModify: "UPDATE", types.ChangeActionRemove: "DELETE", types.ChangeActionImport: "IMPORT",
}

// advance works on the next resource of a stack.
func (s *Service) advance(found *kept) {
	switch {
	case found.deleting:
		s.advanceDeletion(found)
		return
	case found.begun == nil:
		return
	case len(found.pending) == 0:
		s.complete(found)
		return
	}
	o := found.pending[0]
	found.pending = found.pending[1:]
	verb, kind, physical := verbs[o.action], *o.change.ResourceType, ""
	if o.change.PhysicalResourceId != nil {
		physical = *o.change.PhysicalResourceId
	}
	s.event(found, o.id, kind, physical, verb+"_IN_PROGRESS", "")
	if reason := s.refusal(found, &o); reason != "" {
		s.event(found, o.id, kind, physical, verb+"_FAILED", reason)
		for _, other := range found.pending {
			s.event(found, other.id, *other.change.ResourceType, "", verbs[other.action]+"_FAILED", "Resource "+strings.ToLower(verbs[other.action])+" cancelled")
		}
		s.fail(found)
		return
	}
	if o.change.Replacement == types.ReplacementTrue {
		s.Replaced[o.id]++
	}
	s.event(found, o.id, kind, found.begun.next.idOr(o.id, physical), verb+"_COMPLETE", "")
	found.now = found.now.with(found.begun.next, o.id, o.action != types.ChangeActionRemove)
	if o.action == types.ChangeActionAdd {
		found.made = append(found.made, o.id)
	}
	if o.action == types.ChangeActionRemove && o.old.DeletionPolicy == "Retain" {
		s.Kept[kind] = append(s.Kept[kind], physical)
	}
}

func (t *Stack) idOr(id, other string) string {
	if _, ok := t.Resources[id]; ok {
		return t.ID(id)
	}
	return other
}

// with returns a stack that has, or has not, a resource of another one.
func (t *Stack) with(next *Stack, id string, there bool) *Stack {
	n := *next
	n.Resources = maps.Clone(t.Resources)
	if delete(n.Resources, id); there {
		n.Resources[id] = next.Resources[id]
	}
	return &n
}

// refusal returns why a resource cannot be made or changed.
func (s *Service) refusal(found *kept, o *operation) string {
	if reason := s.Fail[o.id]; reason != "" {
		return reason
	}
	if o.action == types.ChangeActionAdd && slices.Contains(s.Kept[o.new.Type], found.begun.next.ID(o.id)) {
		return found.begun.next.ID(o.id) + " already exists"
	}
	if o.action == types.ChangeActionModify && o.new.Type == "AWS::DynamoDB::Table" {
		if reason := refusesTable(o.old, o.new); reason != "" {
			return reason
		}
	}
	if code, ok := o.new.Properties["Code"].(map[string]any); ok && o.action != types.ChangeActionRemove {
		if _, there := s.Objects[fmt.Sprint(code["S3Bucket"], "/", code["S3Key"])]; !there {
			return "Error occurred while GetObject. S3 Error Code: NoSuchKey. S3 Error Message: The specified key does not exist."
		}
	}
	return ""
}

// complete ends an operation that succeeded.
func (s *Service) complete(found *kept) {
	c := found.begun
	found.begun, found.now, found.parameters, found.tags = nil, c.next, c.parameters, c.tags
	if found.status = types.StackStatusUpdateComplete; c.kind == types.ChangeSetTypeCreate {
		found.status = types.StackStatusCreateComplete
	}
	s.event(found, found.name, stackType, found.id, string(found.status), "")
}

// fail ends a failed operation, which is undone unless its changes should stay.
func (s *Service) fail(found *kept) {
	c := found.begun
	found.begun, found.pending = nil, nil
	create := c.kind == types.ChangeSetTypeCreate
	switch {
	case c.onFailure == types.OnStackFailureDoNothing:
		found.parameters, found.tags = c.parameters, c.tags
		if found.status = types.StackStatusUpdateFailed; create {
			found.status = types.StackStatusCreateFailed
		}
	case create:
		found.status = types.StackStatusRollbackComplete
		found.now = &Stack{Resources: map[string]Resource{}}
	default:
		found.status = types.StackStatusUpdateRollbackComplete
		for _, id := range found.made {
			found.now = found.now.with(found.now, id, false)
		}
	}
	s.event(found, found.name, stackType, found.id, string(found.status), "")
}

// DescribeStacks returns one stack, or all of them, after a little work on each.
func (s *Service) DescribeStacks(_ context.Context, in *cloudformation.DescribeStacksInput, _ ...func(*cloudformation.Options)) (*cloudformation.DescribeStacksOutput, error) {
	return called(s, "DescribeStacks", func() (*cloudformation.DescribeStacksOutput, error) {
		out := &cloudformation.DescribeStacksOutput{}
		if in.StackName != nil {
			found, err := s.find(in.StackName)
			if err != nil {
				return nil, err
			}
			s.advance(found)
			if s.stacks[found.name] != found {
				return nil, Fault("ValidationError", "Stack with id "+*in.StackName+" does not exist")
			}
			out.Stacks = []types.Stack{found.described()}
			return out, nil
		}
		names := slices.Sorted(maps.Keys(s.stacks))
		from := 0
		if in.NextToken != nil {
			from, _ = slices.BinarySearch(names, *in.NextToken)
		}
		const size = 2
		for _, name := range names[from:min(from+size, len(names))] {
			out.Stacks = append(out.Stacks, s.stacks[name].described())
		}
		if from+size < len(names) {
			out.NextToken = &names[from+size]
		}
		return out, nil
	})
}

func (found *kept) described() types.Stack {
	created := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	d := types.Stack{StackName: &found.name, StackId: &found.id, StackStatus: found.status, Tags: found.tags, CreationTime: &created}
	for _, key := range slices.Sorted(maps.Keys(found.parameters)) {
		value := found.parameters[key]
		d.Parameters = append(d.Parameters, types.Parameter{ParameterKey: &key, ParameterValue: &value})
	}
	for _, key := range slices.Sorted(maps.Keys(found.now.Outputs)) {
		value := found.now.Outputs[key]
		d.Outputs = append(d.Outputs, types.Output{OutputKey: &key, OutputValue: &value})
	}
	return d
}

// DescribeStackEvents returns the events of a stack, the newest first, in pages.
func (s *Service) DescribeStackEvents(_ context.Context, in *cloudformation.DescribeStackEventsInput, _ ...func(*cloudformation.Options)) (*cloudformation.DescribeStackEventsOutput, error) {
	return called(s, "DescribeStackEvents", func() (*cloudformation.DescribeStackEventsOutput, error) {
		found, err := s.find(in.StackName)
		if err != nil {
			return nil, err
		}
		newest := slices.Clone(found.events)
		slices.Reverse(newest)
		events, next := page(newest, in.NextToken, 20)
		return &cloudformation.DescribeStackEventsOutput{StackEvents: events, NextToken: next}, nil
	})
}

// page returns a part of a list from a token on, and the token of the next part, nil at the end.
func page[T any](all []T, token *string, size int) (part []T, next *string) {
	from := 0
	if token != nil {
		_, _ = fmt.Sscan(*token, &from)
	}
	to := min(from+size, len(all))
	if to < len(all) {
		text := fmt.Sprint(to)
		next = &text
	}
	return all[from:to], next
}

// DescribeStackResources returns the resources of a stack.
func (s *Service) DescribeStackResources(_ context.Context, in *cloudformation.DescribeStackResourcesInput, _ ...func(*cloudformation.Options)) (*cloudformation.DescribeStackResourcesOutput, error) {
	return called(s, "DescribeStackResources", func() (*cloudformation.DescribeStackResourcesOutput, error) {
		found, err := s.find(in.StackName)
		if err != nil {
			return nil, err
		}
		out := &cloudformation.DescribeStackResourcesOutput{}
		for _, id := range found.now.IDs() {
			physical, kind := found.now.ID(id), found.now.Resources[id].Type
			out.StackResources = append(out.StackResources, types.StackResource{
				LogicalResourceId: &id, PhysicalResourceId: &physical, ResourceType: &kind, ResourceStatus: types.ResourceStatusCreateComplete,
			})
		}
		return out, nil
	})
}

// DeleteStack begins to delete a stack.
func (s *Service) DeleteStack(_ context.Context, in *cloudformation.DeleteStackInput, _ ...func(*cloudformation.Options)) (*cloudformation.DeleteStackOutput, error) {
	return called(s, "DeleteStack", func() (*cloudformation.DeleteStackOutput, error) {
		found, _ := s.find(in.StackName)
		switch {
		case found == nil: // there is nothing to delete
		case found.status == types.StackStatusReviewInProgress:
			delete(s.stacks, found.name)
		case !found.deleting:
			found.status, found.deleting, found.begun = types.StackStatusDeleteInProgress, true, nil
			s.event(found, found.name, stackType, found.id, string(found.status), "User Initiated")
		}
		return &cloudformation.DeleteStackOutput{}, nil
	})
}

// advanceDeletion deletes the next resource of a stack.
func (s *Service) advanceDeletion(found *kept) {
	ids := found.now.IDs()
	if len(ids) == 0 {
		delete(s.stacks, found.name)
		return
	}
	id := ids[len(ids)-1]
	r, physical := found.now.Resources[id], found.now.ID(id)
	if reason := s.Fail[id]; reason != "" {
		s.event(found, id, r.Type, physical, "DELETE_FAILED", reason)
		found.status, found.deleting = types.StackStatusDeleteFailed, false
		s.event(found, found.name, stackType, found.id, string(found.status), "")
		return
	}
	status := "DELETE_COMPLETE"
	if r.DeletionPolicy == "Retain" {
		status = "DELETE_SKIPPED"
		s.Kept[r.Type] = append(s.Kept[r.Type], physical)
	}
	s.event(found, id, r.Type, physical, status, "")
	found.now = found.now.with(found.now, id, false)
}

// DetectStackDrift begins to look for drift, which is found immediately.
func (s *Service) DetectStackDrift(_ context.Context, in *cloudformation.DetectStackDriftInput, _ ...func(*cloudformation.Options)) (*cloudformation.DetectStackDriftOutput, error) {
	return called(s, "DetectStackDrift", func() (*cloudformation.DetectStackDriftOutput, error) {
		found, err := s.find(in.StackName)
		if err != nil {
			return nil, err
		}
		return &cloudformation.DetectStackDriftOutput{StackDriftDetectionId: &found.id}, nil
	})
}

// DescribeStackDriftDetectionStatus returns the result of a look for drift.
func (s *Service) DescribeStackDriftDetectionStatus(_ context.Context, in *cloudformation.DescribeStackDriftDetectionStatusInput, _ ...func(*cloudformation.Options)) (*cloudformation.DescribeStackDriftDetectionStatusOutput, error) {
	return called(s, "DescribeStackDriftDetectionStatus", func() (*cloudformation.DescribeStackDriftDetectionStatusOutput, error) {
		status := types.StackDriftStatusInSync
		if len(s.Drifted) > 0 {
			status = types.StackDriftStatusDrifted
		}
		return &cloudformation.DescribeStackDriftDetectionStatusOutput{
			DetectionStatus: types.StackDriftDetectionStatusDetectionComplete, StackDriftStatus: status, StackId: in.StackDriftDetectionId,
		}, nil
	})
}

// DescribeStackResourceDrifts returns the resources that differ.
func (s *Service) DescribeStackResourceDrifts(context.Context, *cloudformation.DescribeStackResourceDriftsInput, ...func(*cloudformation.Options)) (*cloudformation.DescribeStackResourceDriftsOutput, error) {
	return called(s, "DescribeStackResourceDrifts", func() (*cloudformation.DescribeStackResourceDriftsOutput, error) {
		out := &cloudformation.DescribeStackResourceDriftsOutput{}
		for _, id := range slices.Sorted(maps.Keys(s.Drifted)) {
			path := "/" + s.Drifted[id]
			out.StackResourceDrifts = append(out.StackResourceDrifts, types.StackResourceDrift{
				LogicalResourceId: &id, StackResourceDriftStatus: types.StackResourceDriftStatusModified,
				PropertyDifferences: []types.PropertyDifference{{PropertyPath: &path}},
			})
		}
		return out, nil
	})
}

// SetTag sets a tag of a stack.
func (s *Service) SetTag(name, key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.stacks[name]
	found.tags = slices.DeleteFunc(slices.Clone(found.tags), func(t types.Tag) bool { return *t.Key == key })
	found.tags = append(found.tags, types.Tag{Key: &key, Value: &value})
}

// Tag returns the value of a tag of a stack, "" for none.
func (s *Service) Tag(name, key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.stacks[name].tags {
		if *t.Key == key {
			return *t.Value
		}
	}
	return ""
}

// SetStatus sets the status of a stack.
func (s *Service) SetStatus(name, status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stacks[name].status = types.StackStatus(status)
}
