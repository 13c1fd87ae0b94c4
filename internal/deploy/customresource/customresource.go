// Package customresource is Custom::ZlimitLimits, limits as a resource of CloudFormation. AWS Lambda calls its function
// when such a resource is created, updated or deleted. The function applies the limits as `zlimit limits apply` applies
// a file.
package customresource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/cfn"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
	"github.com/zlimit/zlimit-go/zlimit"
	_ "github.com/zlimit/zlimit-go/zlimit/dynamo" // stores named dynamodb:TABLE
)

// unapplied is the physical ID of a resource whose creation has changed nothing. CloudFormation deletes such a resource,
// and the deletion then must not remove what others manage in the namespace.
const unapplied = "zlimit-limits-unapplied"

// reserve is the time that is left for the answer, unless a quarter of all the time is less. Without an answer
// CloudFormation waits for an hour.
const reserveTime = 5 * time.Second

// maxReason is the most bytes of a reason; CloudFormation takes answers of 4 KB.
const maxReason = 2000

// A Function answers the events of resources.
type Function struct {
	// Table is the name of the table, with which physical IDs begin.
	Table string
	// Open opens a limiter on the table; each event has one of its own.
	Open func(ctx context.Context, opts ...zlimit.Option) (*zlimit.RateLimiter, error)
	// Logger gets the applied changes; [slog.Default] when nil.
	Logger *slog.Logger
}

// Serve serves as the program of a Lambda function, and ends with the process unless its configuration is invalid. The
// environment variable ZLIMIT_TABLE names the table.
func Serve(ctx context.Context, env func(string) string, logger *slog.Logger) error {
	table := env("ZLIMIT_TABLE")
	if table == "" {
		return errors.New("customresource: ZLIMIT_TABLE is not set")
	}
	f := &Function{Table: table, Logger: logger, Open: func(ctx context.Context, opts ...zlimit.Option) (*zlimit.RateLimiter, error) {
		return zlimit.Open(ctx, "dynamodb:"+table, opts...)
	}}
	slog.SetDefault(logger) // lines that the Lambda library writes by package log are JSON, too
	lambda.StartWithOptions(f.Handler(), lambda.WithContext(ctx))
	return nil
}

// Handler returns the function that AWS Lambda calls, for lambda.Start. It sends its answer to the URL of the event:
// FAILED with the reason for an error, SUCCESS otherwise. After an answer that cannot be sent it returns an error, and
// Lambda calls again.
func (f *Function) Handler() cfn.CustomResourceLambdaFunction {
	return cfn.LambdaWrap(func(ctx context.Context, event cfn.Event) (string, map[string]any, error) {
		if deadline, ok := ctx.Deadline(); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline.Add(-min(reserveTime, time.Until(deadline)/4)))
			defer cancel()
		}
		id, data, err := f.Handle(ctx, event)
		if err != nil {
			err = errors.New(reason(err))
		}
		return id, data, err
	})
}

// reason returns an error as CloudFormation takes it.
func reason(err error) string {
	text := strings.TrimPrefix(err.Error(), "zlimit: ")
	if len(text) <= maxReason {
		return text
	}
	cut := maxReason
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + " …"
}

// Handle carries out an event. It returns the physical ID of the resource, and its attributes. Any event may come
// again. Then it does the remaining work.
func (f *Function) Handle(ctx context.Context, event cfn.Event) (id string, data map[string]any, err error) {
	switch event.RequestType {
	case cfn.RequestCreate:
		return f.apply(ctx, &event)
	case cfn.RequestUpdate:
		if id, data, err = f.apply(ctx, &event); err != nil {
			id = event.PhysicalResourceID // with another one CloudFormation would delete the resource that is there
		}
		return id, data, err
	case cfn.RequestDelete:
		return event.PhysicalResourceID, nil, f.remove(ctx, &event)
	default:
		return event.PhysicalResourceID, nil, fmt.Errorf("request type %q is none of Create, Update and Delete", event.RequestType)
	}
}

// apply stores the limits of a resource.
func (f *Function) apply(ctx context.Context, event *cfn.Event) (id string, data map[string]any, err error) {
	p, err := read(event.LogicalResourceID, event.ResourceProperties)
	if err != nil {
		return unapplied, nil, err
	}
	done, began, err := f.provision(ctx, event, p.namespace, p.levels, p.take)
	if errors.Is(err, zlimit.ErrNamespaceNotFound) && p.create {
		if err = f.register(ctx, p.namespace); err == nil {
			done, began, err = f.provision(ctx, event, p.namespace, p.levels, p.take)
		}
	}
	switch {
	case errors.Is(err, zlimit.ErrNamespaceNotFound):
		err = fmt.Errorf("namespace %q is not registered; CreateNamespace: true registers it", p.namespace)
	case errors.As(err, new(*provision.ManagedError)):
		err = fmt.Errorf("%w; TakeOver: true takes them over", err)
	case err != nil && len(done) > 0:
		err = fmt.Errorf("%d changes are done, the others are not: %w", len(done), err)
	}
	if id = f.Table + "/" + p.namespace; err != nil && !began {
		id = unapplied
	}
	return id, map[string]any{"Namespace": p.namespace, "Levels": len(p.levels), "Changes": len(done)}, err
}

// remove deletes the limits that a resource manages, where it is to take them along.
func (f *Function) remove(ctx context.Context, event *cfn.Event) error {
	if event.PhysicalResourceID == unapplied {
		return nil
	}
	switch along, err := onDelete(event.ResourceProperties); {
	case err != nil:
		return err
	case !along:
		f.log("limits are kept, since OnDelete does not say remove", event)
		return nil
	}
	namespace, ours := strings.CutPrefix(event.PhysicalResourceID, f.Table+"/")
	if !ours {
		return fmt.Errorf("resource %q is not of table %s", event.PhysicalResourceID, f.Table)
	}
	_, _, err := f.provision(ctx, event, namespace, nil, false)
	if other := (*provision.ManagedError)(nil); errors.As(err, &other) {
		f.log("limits are kept, since another manager has taken them over", event, "manager", other.Manager)
		return nil
	}
	if errors.Is(err, zlimit.ErrNamespaceNotFound) || errors.Is(err, zlimit.ErrTableNotFound) {
		return nil // and so there are no limits
	}
	return err
}

// provision applies levels to a namespace, and waits for a program that does so now. began reports whether it got to write.
func (f *Function) provision(ctx context.Context, event *cfn.Event, namespace string, levels []zlimit.Stored, take bool) (done []provision.Change, began bool, err error) {
	_, name, _ := strings.Cut(event.StackID, ":stack/")
	name, _, _ = strings.Cut(name, "/")
	manager := "cloudformation:" + name + "/" + event.LogicalResourceID
	l, err := f.Open(ctx, zlimit.WithNamespace(namespace), zlimit.WithPrincipal(manager))
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	p := provision.New(l, namespace, time.Now)
	p.ManagedBy(manager, take)
	p.OnProgress(func(plan *provision.Plan) { began = began || !plan.Empty() }, nil)
	for {
		_, done, err = p.Apply(ctx, levels, nil)
		if !errors.Is(err, zlimit.ErrLocked) || wait.For(ctx, time.Second) != nil { // then the error says who has the lock
			break
		}
	}
	if err == nil {
		f.log("limits are applied", event, "namespace", namespace, "changes", len(done))
	}
	return done, began, err
}

func (f *Function) register(ctx context.Context, namespace string) (err error) {
	l, err := f.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	_, err = l.Namespaces.Register(ctx, namespace)
	return err
}

func (f *Function) log(text string, event *cfn.Event, args ...any) {
	logger := f.Logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.Info("customresource: "+text, append([]any{"request", event.RequestType, "stack", event.StackID, "resource", event.LogicalResourceID}, args...)...)
}
