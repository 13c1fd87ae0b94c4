package stack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/smithy-go"

	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// A Manager deploys stacks and inspects them. It keeps no state of its own: another one, on another machine, can resume any of its work.
// It is safe for concurrent use.
type Manager struct{ *account }

// An account is where stacks are: all calls of AWS are made with its clients.
type account struct {
	clients Clients
	poll    time.Duration
	now     func() time.Time
}

// An Option changes how a manager works.
type Option func(*Manager)

// WithPoll sets the pause between two looks at work under way, and the first pause after a throttled call; the default
// is two seconds.
func WithPoll(d time.Duration) Option { return func(m *Manager) { m.poll = d } }

// WithClock sets where a manager takes the time from; the default is [time.Now].
func WithClock(now func() time.Time) Option { return func(m *Manager) { m.now = now } }

// New returns a manager of the stacks of one account and region.
func New(c Clients, opts ...Option) *Manager {
	m := &Manager{&account{clients: c, poll: 2 * time.Second, now: time.Now}}
	for _, opt := range opts {
		opt(m)
	}
	return m
}

func (*account) sleep(ctx context.Context, d time.Duration) error { return wait.For(ctx, d) }

// ErrNotFound says that there is no such stack.
var ErrNotFound = errors.New("stack: there is no such stack")

// attempts is how often one call is made while it is throttled.
const maxAttempts = 8

// call makes a call of AWS, again where the service throttled it and has therefore not done it.
func call[In, Out, Options any](
	ctx context.Context, a *account, do func(context.Context, *In, ...func(*Options)) (*Out, error), in *In,
) (*Out, error) {
	for attempt := 1; ; attempt++ {
		result, err := do(ctx, in)
		if err == nil || !isThrottle(err) || attempt == maxAttempts {
			return result, err
		}
		if err := a.sleep(ctx, time.Duration(attempt)*a.poll); err != nil {
			return result, err
		}
	}
}

// isThrottle reports whether a service refused a call because there were too many.
func isThrottle(err error) bool {
	return hasCode(err, "Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException", "RequestLimitExceeded", "SlowDown", "RequestThrottled")
}

// describe returns a stack, [ErrNotFound] when there is none.
func (a *account) describe(ctx context.Context, name string) (*types.Stack, error) {
	out, err := call(ctx, a, a.clients.CloudFormation.DescribeStacks, &cloudformation.DescribeStacksInput{StackName: &name})
	var api smithy.APIError
	switch {
	case errors.As(err, &api) && api.ErrorCode() == "ValidationError" && strings.Contains(api.ErrorMessage(), "does not exist"):
		return nil, ErrNotFound
	case err != nil:
		return nil, fmt.Errorf("stack: describe %s: %w", name, err)
	case len(out.Stacks) == 0 || out.Stacks[0].StackStatus == types.StackStatusDeleteComplete:
		return nil, ErrNotFound
	}
	return &out.Stacks[0], nil
}

func parameters(s *types.Stack) map[string]string {
	all := map[string]string{}
	if s != nil {
		for _, p := range s.Parameters {
			all[value(p.ParameterKey)] = value(p.ParameterValue)
		}
	}
	return all
}

func tags(s *types.Stack) map[string]string {
	if s == nil {
		return map[string]string{}
	}
	return tagsOf(s.Tags)
}

func tagsOf(list []types.Tag) map[string]string {
	all := map[string]string{}
	for _, t := range list {
		all[value(t.Key)] = value(t.Value)
	}
	return all
}

// resources returns the physical IDs of a stack's resources by their logical ones.
func (a *account) resources(ctx context.Context, name string) (map[string]string, error) {
	out, err := call(ctx, a, a.clients.CloudFormation.DescribeStackResources, &cloudformation.DescribeStackResourcesInput{StackName: &name})
	if err != nil {
		return nil, fmt.Errorf("stack: list the resources of %s: %w", name, err)
	}
	all := map[string]string{}
	for _, r := range out.StackResources {
		if r.ResourceStatus != types.ResourceStatusDeleteComplete {
			all[value(r.LogicalResourceId)] = value(r.PhysicalResourceId)
		}
	}
	return all, nil
}

func value(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
