package cfn

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
)

// An operation is a piece of work on a resource.
type operation struct {
	id     string
	action types.ChangeAction
	old    Resource
	new    Resource
	change types.ResourceChange
}

type changeSet struct {
	id, name, stack string
	status          types.ChangeSetStatus
	reason          string
	kind            types.ChangeSetType
	onFailure       types.OnStackFailure
	next            *Stack
	parameters      map[string]string
	tags            []types.Tag
	operations      []operation
}

// templates are those that change sets were made of, by their text. Tests deploy the same one hundreds of times.
var templates sync.Map

// parsed is Parse, once for each text. The template is shared, and is only read.
func parsed(text string) (*Template, error) {
	if known, ok := templates.Load(text); ok {
		return known.(*Template), nil
	}
	template, err := Parse(text)
	if err == nil {
		templates.Store(text, template)
	}
	return template, err
}

// CreateChangeSet compares a template with the resources of a stack.
func (s *Service) CreateChangeSet(_ context.Context, in *cloudformation.CreateChangeSetInput, _ ...func(*cloudformation.Options)) (*cloudformation.CreateChangeSetOutput, error) {
	return called(s, "CreateChangeSet", func() (*cloudformation.CreateChangeSetOutput, error) {
		found, missing := s.find(in.StackName)
		switch {
		case in.ChangeSetType == types.ChangeSetTypeCreate && found == nil:
			found = &kept{name: *in.StackName, status: types.StackStatusReviewInProgress, now: &Stack{Resources: map[string]Resource{}}, parameters: map[string]string{}}
			found.id = fmt.Sprintf("arn:aws:cloudformation:%s:%s:stack/%s/%d", Region, Account, found.name, s.calls)
			s.stacks[found.name] = found
		case in.ChangeSetType == types.ChangeSetTypeCreate && found.status != types.StackStatusReviewInProgress:
			return nil, Fault("ValidationError", "Stack ["+found.name+"] already exists and cannot be created again with the changeSet")
		case found == nil:
			return nil, missing
		case strings.HasSuffix(string(found.status), "_IN_PROGRESS") && found.status != types.StackStatusReviewInProgress:
			return nil, Fault("ValidationError", "Stack:"+found.id+" is in "+string(found.status)+" state and can not be updated.")
		}
		template, err := parsed(*in.TemplateBody)
		if err != nil {
			return nil, Fault("ValidationError", err.Error())
		}
		given := map[string]string{}
		for _, p := range in.Parameters {
			if p.UsePreviousValue != nil && *p.UsePreviousValue {
				old, ok := found.parameters[*p.ParameterKey]
				if !ok {
					return nil, Fault("ValidationError", "Invalid input for parameter key "+*p.ParameterKey+". Cannot specify usePreviousValue as true for a parameter key not in the previous template")
				}
				given[*p.ParameterKey] = old
				continue
			}
			given[*p.ParameterKey] = *p.ParameterValue
		}
		next, err := template.Evaluate(found.name, given)
		if err != nil {
			return nil, Fault("ValidationError", err.Error())
		}
		c := &changeSet{
			id: "arn:aws:cloudformation:" + Region + ":" + Account + ":changeSet/" + *in.ChangeSetName, name: *in.ChangeSetName, stack: found.name,
			kind: in.ChangeSetType, onFailure: in.OnStackFailure, next: next, parameters: next.Given, tags: in.Tags, status: types.ChangeSetStatusCreatePending,
		}
		c.operations = s.compare(found.now, next, in.ImportExistingResources != nil && *in.ImportExistingResources)
		s.changeSets[c.id] = c
		return &cloudformation.CreateChangeSetOutput{Id: &c.id, StackId: &found.id}, nil
	})
}

// fixed are properties whose change replaces a resource.
var fixed = []string{"TableName", "FunctionName", "KeySchema", "LocalSecondaryIndexes", "RoleName", "ManagedPolicyName"}

// compare returns what leads from one state to another, in the order of logical IDs, removals last.
func (s *Service) compare(old, next *Stack, adopt bool) (all []operation) {
	for _, id := range next.IDs() {
		r := next.Resources[id]
		was, there := old.Resources[id]
		o := operation{id: id, new: r, old: was}
		physical := next.ID(id)
		switch {
		case !there && adopt && slices.Contains(s.Kept[r.Type], physical):
			o.action = types.ChangeActionImport
		case !there:
			o.action = types.ChangeActionAdd
		default:
			properties := differing(was.Properties, r.Properties)
			if len(properties) == 0 {
				continue
			}
			o.action, physical = types.ChangeActionModify, old.ID(id)
			o.change.Replacement = types.ReplacementFalse
			for _, p := range properties {
				target := &types.ResourceTargetDefinition{Attribute: types.ResourceAttributeProperties, Name: &p, RequiresRecreation: types.RequiresRecreationNever}
				if slices.Contains(fixed, p) {
					o.change.Replacement, target.RequiresRecreation = types.ReplacementTrue, types.RequiresRecreationAlways
				}
				o.change.Details = append(o.change.Details, types.ResourceChangeDetail{Target: target})
			}
		}
		all = append(all, o.described(physical))
	}
	for _, id := range slices.Backward(old.IDs()) {
		if _, stays := next.Resources[id]; !stays {
			all = append(all, operation{id: id, action: types.ChangeActionRemove, old: old.Resources[id]}.described(old.ID(id)))
		}
	}
	return all
}

func (o operation) described(physical string) operation {
	kind := o.new.Type
	if o.action == types.ChangeActionRemove {
		kind = o.old.Type
	}
	o.change.Action, o.change.LogicalResourceId, o.change.ResourceType = o.action, &o.id, &kind
	if o.action != types.ChangeActionAdd {
		o.change.PhysicalResourceId = &physical
	}
	return o
}

// differing returns the names of properties that differ.
func differing(a, b map[string]any) (names []string) {
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		before, _ := json.Marshal(a[name])
		after, _ := json.Marshal(b[name])
		if string(before) != string(after) {
			names = append(names, name)
		}
	}
	return names
}

// DescribeChangeSet returns a change set, which is ready at the second look, with its changes in pages.
func (s *Service) DescribeChangeSet(_ context.Context, in *cloudformation.DescribeChangeSetInput, _ ...func(*cloudformation.Options)) (*cloudformation.DescribeChangeSetOutput, error) {
	return called(s, "DescribeChangeSet", func() (*cloudformation.DescribeChangeSetOutput, error) {
		c := s.changeSets[*in.ChangeSetName]
		if c == nil {
			return nil, Fault("ChangeSetNotFound", "ChangeSet ["+*in.ChangeSetName+"] does not exist")
		}
		switch {
		case c.status == types.ChangeSetStatusCreatePending:
			c.status = types.ChangeSetStatusCreateInProgress
		case c.status == types.ChangeSetStatusCreateInProgress && len(c.operations) == 0 && !s.retagged(c) && maps.Equal(c.parameters, s.stacks[c.stack].parameters):
			c.status, c.reason = types.ChangeSetStatusFailed, "The submitted information didn't contain changes. Submit different information to create a change set."
		case c.status == types.ChangeSetStatusCreateInProgress:
			c.status = types.ChangeSetStatusCreateComplete
		}
		operations, next := page(c.operations, in.NextToken, 10)
		out := &cloudformation.DescribeChangeSetOutput{ChangeSetId: &c.id, Status: c.status, StatusReason: &c.reason, NextToken: next}
		for i := range operations {
			out.Changes = append(out.Changes, types.Change{Type: types.ChangeTypeResource, ResourceChange: &operations[i].change})
		}
		return out, nil
	})
}

func (s *Service) retagged(c *changeSet) bool {
	a, _ := json.Marshal(c.tags)
	b, _ := json.Marshal(s.stacks[c.stack].tags)
	return string(a) != string(b)
}

// DeleteChangeSet deletes a change set.
func (s *Service) DeleteChangeSet(_ context.Context, in *cloudformation.DeleteChangeSetInput, _ ...func(*cloudformation.Options)) (*cloudformation.DeleteChangeSetOutput, error) {
	return called(s, "DeleteChangeSet", func() (*cloudformation.DeleteChangeSetOutput, error) {
		delete(s.changeSets, *in.ChangeSetName)
		return &cloudformation.DeleteChangeSetOutput{}, nil
	})
}

// ExecuteChangeSet begins with the changes of a change set.
func (s *Service) ExecuteChangeSet(_ context.Context, in *cloudformation.ExecuteChangeSetInput, _ ...func(*cloudformation.Options)) (*cloudformation.ExecuteChangeSetOutput, error) {
	return called(s, "ExecuteChangeSet", func() (*cloudformation.ExecuteChangeSetOutput, error) {
		c := s.changeSets[*in.ChangeSetName]
		if c == nil || c.status != types.ChangeSetStatusCreateComplete {
			return nil, Fault("InvalidChangeSetStatus", "ChangeSet ["+*in.ChangeSetName+"] cannot be executed")
		}
		found := s.stacks[c.stack]
		if in.DisableRollback != nil && *in.DisableRollback {
			c.onFailure = types.OnStackFailureDoNothing
		}
		for id, other := range s.changeSets { // they are obsolete
			if other.stack == c.stack {
				delete(s.changeSets, id)
			}
		}
		found.begun, found.pending, found.made = c, slices.Clone(c.operations), nil
		found.status = types.StackStatusUpdateInProgress
		if c.kind == types.ChangeSetTypeCreate {
			found.status = types.StackStatusCreateInProgress
		}
		s.event(found, found.name, stackType, found.id, string(found.status), "User Initiated")
		return &cloudformation.ExecuteChangeSetOutput{}, nil
	})
}

const stackType = "AWS::CloudFormation::Stack"
