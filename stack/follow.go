package stack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
)

// An Event is something that CloudFormation did to a resource, or to the whole stack.
type Event struct {
	Time     time.Time `json:"time"`
	Resource string    `json:"resource"` // logical ID; the stack's name for the whole
	Type     string    `json:"type"`
	Status   string    `json:"status"`
	Reason   string    `json:"reason,omitempty"`
}

// A FailedError says that CloudFormation could not do its work, and why. CloudFormation has undone its changes, unless
// Status says otherwise.
type FailedError struct {
	Stack    string `json:"stack"`
	Status   string `json:"status"`   // that the stack is in now
	Resource string `json:"resource"` // the first one that failed; "" when none did
	Type     string `json:"type"`
	Reason   string `json:"reason"`
}

// Error names the first resource that failed, and its reason.
func (e *FailedError) Error() string {
	if e.Resource == "" {
		return fmt.Sprintf("stack: %s is %s", e.Stack, e.Status)
	}
	return fmt.Sprintf("stack: %s (%s) failed: %s; %s is %s", e.Resource, e.Type, e.Reason, e.Stack, e.Status)
}

// A DetachedError says that the caller stopped waiting for CloudFormation, which goes on.
type DetachedError struct {
	Stack string
	Err   error
}

// Error says how to go on.
func (e *DetachedError) Error() string {
	return fmt.Sprintf("stack: stopped waiting for %s, which CloudFormation goes on with; deploy again to wait", e.Stack)
}

// Unwrap returns why the caller stopped.
func (e *DetachedError) Unwrap() error { return e.Err }

// busy reports whether CloudFormation is at work on a stack.
func busy(s types.StackStatus) bool {
	return strings.HasSuffix(string(s), "_IN_PROGRESS") && s != types.StackStatusReviewInProgress
}

func failed(s types.StackStatus) bool {
	return strings.Contains(string(s), "ROLLBACK") || strings.HasSuffix(string(s), "_FAILED")
}

// follow waits until CloudFormation has done with a stack, and passes what happens to watch. It returns the stack, nil
// when it is gone; a [*FailedError] when the operation failed.
func (a *account) follow(ctx context.Context, name string, watch func(Event)) (*types.Stack, error) {
	seen := map[string]bool{}
	for {
		s, err := a.describe(ctx, name)
		gone := errors.Is(err, ErrNotFound)
		if err != nil && !gone {
			return nil, a.detached(ctx, name, err)
		}
		var id string
		if s != nil {
			id = value(s.StackId)
		}
		var events []types.StackEvent
		if !gone {
			if events, err = a.operation(ctx, id); err != nil {
				return nil, a.detached(ctx, name, err)
			}
		}
		for i := range events {
			e := &events[i]
			if !seen[value(e.EventId)] {
				seen[value(e.EventId)] = true
				watch(eventOf(e))
			}
		}
		switch {
		case gone:
			return nil, nil
		case busy(s.StackStatus):
			if err := a.sleep(ctx, a.poll); err != nil {
				return nil, a.detached(ctx, name, err)
			}
		case failed(s.StackStatus):
			return s, failure(name, s, events)
		default:
			return s, nil
		}
	}
}

// detached returns an error of a call; a [*DetachedError] when the caller has given up.
func (*account) detached(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		return &DetachedError{Stack: name, Err: ctx.Err()}
	}
	return err
}

func eventOf(e *types.StackEvent) Event {
	event := Event{
		Resource: value(e.LogicalResourceId), Type: value(e.ResourceType), Status: string(e.ResourceStatus), Reason: value(e.ResourceStatusReason),
	}
	if e.Timestamp != nil {
		event.Time = e.Timestamp.UTC()
	}
	return event
}

const stackType = "AWS::CloudFormation::Stack"

// operation returns the events of the last operation on a stack, the oldest first.
func (a *account) operation(ctx context.Context, id string) ([]types.StackEvent, error) {
	var all []types.StackEvent // the newest first
	var next *string
	for {
		page, err := call(ctx, a, a.clients.CloudFormation.DescribeStackEvents, &cloudformation.DescribeStackEventsInput{StackName: &id, NextToken: next})
		if err != nil {
			return nil, fmt.Errorf("stack: list the events of %s: %w", id, err)
		}
		for _, e := range page.StackEvents {
			all = append(all, e)
			if begins(&e, id) {
				slices.Reverse(all)
				return all, nil
			}
		}
		if next = page.NextToken; next == nil {
			slices.Reverse(all)
			return all, nil
		}
	}
}

// begins reports whether an event is the first one of an operation on a stack.
func begins(e *types.StackEvent, id string) bool {
	if value(e.ResourceType) != stackType || value(e.PhysicalResourceId) != id {
		return false
	}
	switch e.ResourceStatus {
	case types.ResourceStatusCreateInProgress, types.ResourceStatusUpdateInProgress, types.ResourceStatusDeleteInProgress, types.ResourceStatusImportInProgress:
		return true
	default:
		return false
	}
}

// failure returns why an operation failed: by the first resource that did. Those that CloudFormation stopped because of it
// come later, or say so.
func failure(name string, s *types.Stack, events []types.StackEvent) error {
	e := &FailedError{Stack: name, Status: string(s.StackStatus)}
	for i := range events {
		event := eventOf(&events[i])
		if event.Type == stackType || !strings.HasSuffix(event.Status, "_FAILED") || strings.Contains(event.Reason, "cancelled") {
			continue
		}
		e.Resource, e.Type, e.Reason = event.Resource, event.Type, event.Reason
		return e
	}
	if e.Reason = value(s.StackStatusReason); e.Reason != "" {
		e.Resource, e.Type = name, stackType
	}
	return e
}
