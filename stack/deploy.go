package stack

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Hooks follow the progress of a deployment. Each may be nil.
type Hooks struct {
	// Confirm decides whether a plan may be executed. Without it, every plan is.
	Confirm func(*Plan) (bool, error)
	// Watch is called with every event of CloudFormation.
	Watch func(Event)
	// Join is called if CloudFormation is already at work on the stack. The deployment first waits for its end.
	Join func(status string)
}

func (h *Hooks) watch(e Event) {
	if h.Watch != nil {
		h.Watch(e)
	}
}

// ErrDeclined says that [Hooks.Confirm] refused a plan, which was not executed.
var ErrDeclined = errors.New("stack: the plan was not executed")

// A Deployment is what [Manager.Deploy] has achieved.
type Deployment struct {
	Stack   string            `json:"stack"`
	Status  string            `json:"status"`
	Changed bool              `json:"changed"`
	Outputs map[string]string `json:"outputs"`
}

// Deploy brings a stack to the state of the options: the template and, if they have code, the code of this version. It
// asks CloudFormation for a change set, asks for a confirmation, executes it and follows what happens. A new stack
// with an aggregator takes two change sets: the bucket must be there before the code. A table that lacks several
// indexes takes one change set for each, since DynamoDB adds one at a time. CloudFormation waits until an index can be
// used.
//
// Every step can be the last one, by an error, a crash or a caller that gives up. The next Deploy begins where this one
// ended, and waits for what CloudFormation is doing meanwhile. Bad options are [*zlimit.ValidationError]s, joined,
// before any call. When CloudFormation fails, the error is a [*FailedError]. A plan that would remove or replace the
// table or the bucket is refused with [ErrData].
func (m *Manager) Deploy(ctx context.Context, o Options, h Hooks) (*Deployment, error) {
	d, err := m.deployer(ctx, o, h)
	if err != nil {
		return nil, err
	}
	done := &Deployment{Stack: o.Name}
	confirmed := false // further steps belong to the plan of the first one
	for {
		s, err := d.settled(ctx)
		if err != nil {
			return done, err
		}
		plan, err := d.plan(ctx, s)
		switch {
		case err != nil:
			return done, err
		case plan == nil:
			return d.deployed(ctx, done)
		}
		if err := d.confirm(ctx, plan, confirmed); err != nil {
			return done, err
		}
		done.Changed, confirmed = true, plan.aim.more()
		if s, err = d.execute(ctx, plan); err != nil {
			return done, err
		}
		if s != nil && !plan.aim.more() {
			return d.deployed(ctx, done)
		}
	}
}

// Plan returns what [Manager.Deploy] would show with the same options, and changes nothing: neither the stack nor the table. It asks
// CloudFormation for a change set, and discards it. What CloudFormation is doing is waited for, as Deploy does.
func (m *Manager) Plan(ctx context.Context, o Options, h Hooks) (*Plan, error) {
	d, err := m.deployer(ctx, o, h)
	if err != nil {
		return nil, err
	}
	s, err := d.settled(ctx)
	if err != nil {
		return nil, err
	}
	plan, err := d.plan(ctx, s)
	switch {
	case err != nil:
		return nil, err
	case plan == nil:
		return &Plan{Stack: o.Name, UpToDate: true, Changes: []Change{}, Cost: costOf(parameters(s))}, nil
	}
	return plan, d.discard(ctx, plan)
}

// A deployer brings a stack to the state of options.
type deployer struct {
	*account
	Options
	hooks Hooks
}

// deployer checks options, and makes the settings those that the template takes.
func (m *Manager) deployer(ctx context.Context, o Options, h Hooks) (*deployer, error) {
	if err := errors.Join(o.Validate()...); err != nil {
		return nil, err
	}
	var err error
	o.Settings, err = m.resolve(ctx, o)
	return &deployer{m.account, o, h}, err
}

// deployed sets the table up, and returns the result of a deployment.
func (d *deployer) deployed(ctx context.Context, done *Deployment) (*Deployment, error) {
	s, err := d.describe(ctx, done.Stack)
	if err != nil {
		return done, err
	}
	done.Status, done.Outputs = string(s.StackStatus), map[string]string{}
	for _, out := range s.Outputs {
		done.Outputs[value(out.OutputKey)] = value(out.OutputValue)
	}
	if d.Version != "" { // of which the table knows, and versions in it are never lowered
		return done, nil
	}
	b, err := d.bucketOf(ctx, done.Stack)
	if err == nil {
		err = b.keepRelease(ctx, s)
	}
	if err != nil {
		return done, err
	}
	if d.clients.Setup != nil {
		aggregator := ""
		if d.Code != nil && parameters(s)["Aggregator"] == "true" {
			aggregator = zlimit.Version
		}
		days, _ := strconv.Atoi(parameters(s)["AuditRetention"]) // CloudFormation has checked it
		kept := time.Duration(days) * 24 * time.Hour             // 0 in a stack without the parameter
		err = d.clients.Setup(ctx, tableOf(s), aggregator, kept) // last, so that no writer is refused before the aggregator is new
	}
	return done, err
}

func tableOf(s *types.Stack) string { return cmp.Or(parameters(s)["TableName"], value(s.StackName)) }

// resolve returns the settings of options as the template takes them: a boundary by its name becomes an ARN.
func (a *account) resolve(ctx context.Context, o Options) (map[string]string, error) {
	settings := maps.Clone(o.Settings)
	name := settings["permissions-boundary"]
	if name == "" || strings.HasPrefix(name, "arn:") {
		return settings, nil
	}
	out, err := call(ctx, a, a.clients.STS.GetCallerIdentity, &sts.GetCallerIdentityInput{})
	if err != nil {
		return nil, fmt.Errorf("stack: find the account of the permissions boundary: %w", err)
	}
	partition := strings.Split(value(out.Arn)+"::", ":")[1]
	settings["permissions-boundary"] = "arn:" + partition + ":iam::" + value(out.Account) + ":policy/" + name
	return settings, nil
}

// settled returns a stack that can be changed, nil when there is none. It waits for what CloudFormation is doing.
func (d *deployer) settled(ctx context.Context) (*types.Stack, error) {
	name := d.Name
	s, err := d.describe(ctx, name)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if busy(s.StackStatus) {
		if d.hooks.Join != nil {
			d.hooks.Join(string(s.StackStatus))
		}
		deleting := s.StackStatus == types.StackStatusDeleteInProgress
		if s, err = d.follow(ctx, name, d.hooks.watch); err != nil {
			return nil, err
		}
		if s == nil && !deleting {
			return nil, &FailedError{Stack: name, Status: string(types.StackStatusDeleteComplete)}
		}
	}
	if s == nil {
		return nil, nil
	}
	switch s.StackStatus {
	case types.StackStatusReviewInProgress:
		return nil, nil // an unexecuted change set
	case types.StackStatusRollbackComplete, types.StackStatusRollbackFailed, types.StackStatusDeleteFailed:
		return nil, fmt.Errorf("stack: %s is %s, and can only be deleted; that keeps table and bucket, and a new deployment takes the table over", name, s.StackStatus)
	case types.StackStatusUpdateRollbackFailed:
		return nil, fmt.Errorf("stack: %s is %s: continue its rollback in CloudFormation first", name, s.StackStatus)
	default:
		return s, d.newer(ctx, s)
	}
}

// newer returns an error when a stack was deployed by a later version, unless options say where it is to go back to.
func (d *deployer) newer(ctx context.Context, s *types.Stack) error {
	deployed := tags(s)[tagVersion]
	switch {
	case d.Version != "" || deployed == "" || compareVersions(deployed, zlimit.Version) <= 0:
		return nil
	case d.AllowDowngrade:
		return d.fits(ctx, tableOf(s), zlimit.Version)
	default:
		return fmt.Errorf("stack: %s was deployed by version %s, this is %s: take the later one, or allow the downgrade", value(s.StackName), deployed, zlimit.Version)
	}
}

// An aim is the purpose of a step of a deployment.
type aim struct {
	parameters []types.Parameter
	code       *Code           // to be uploaded; nil for none
	twice      bool            // another step follows, with the code
	indexes    []string        // another step follows for each of these
	on         map[string]bool // the switches, by their settings
}

// more reports whether another step follows.
func (a *aim) more() bool { return a.twice || len(a.indexes) > 0 }

// runsCode reports whether the stack is to have a function.
func (a *aim) runsCode() bool { return a.on["aggregator"] || a.on["provisioner"] }

// aim returns the purpose of the next step, by the options and the stack as it is.
func (d *deployer) aim(ctx context.Context, s *types.Stack) (aim, error) {
	had := parameters(s)
	effective := func(st Setting) string {
		if v, ok := d.Settings[st.Name]; ok {
			return v
		}
		if v, ok := had[st.Parameter]; ok && !slices.Contains(d.Reset, st.Name) {
			return v
		}
		return st.Default
	}
	a := aim{on: map[string]bool{}}
	if err := d.checkFixed(ctx, s, effective); err != nil {
		return a, err
	}
	for _, st := range settings {
		switch _, given := d.Settings[st.Name]; {
		case given:
			a.set(st.Parameter, d.Settings[st.Name])
		case slices.Contains(d.Reset, st.Name):
			a.set(st.Parameter, st.Default)
		default:
			a.keep(st.Parameter, had)
		}
		if st.Kind == KindSwitch {
			a.on[st.Name] = effective(st) == "true"
		}
	}
	table, _ := setting("table")
	name := cmp.Or(effective(table), d.Name)
	if reason := functionNames(name, a.on["aggregator"], a.on["provisioner"]); reason != "" {
		return a, &zlimit.ValidationError{Field: "table", Value: name, Reason: reason}
	}
	a.keep("CodeBucket", had)
	if d.Code == nil || !a.runsCode() {
		if a.runsCode() && had["CodeKey"] == "" {
			return a, errors.New("stack: there is no code for aggregator and provisioner: give it, or leave them out")
		}
		a.keep("CodeKey", had)
		a.keep("Architecture", had)
		return a, nil
	}
	bucket := ""
	if s != nil {
		ids, err := d.resources(ctx, d.Name)
		if err != nil {
			return a, err
		}
		bucket = ids["Bucket"]
	}
	a.set("Architecture", d.Code.Architecture)
	if a.twice = bucket == ""; !a.twice {
		a.set("CodeKey", d.Code.Key())
		a.code = d.Code
	}
	return a, nil
}

// checkFixed returns a [*zlimit.ValidationError] for a setting that would need an impossible change of the table.
func (d *deployer) checkFixed(ctx context.Context, s *types.Stack, effective func(Setting) string) error {
	fixed, _ := setting("mixed-fleet")
	next := effective(fixed)
	if s == nil || next == cmp.Or(parameters(s)[fixed.Parameter], fixed.Default) {
		return nil
	}
	ids, err := d.resources(ctx, d.Name)
	if err != nil || ids["Table"] == "" {
		return err
	}
	return &zlimit.ValidationError{Field: fixed.Name, Value: next, Reason: "table " + ids["Table"] +
		" was made with the other value, and DynamoDB cannot change what an index holds: deploy another stack"}
}

func (a *aim) set(parameter, value string) {
	a.parameters = append(a.parameters, types.Parameter{ParameterKey: &parameter, ParameterValue: &value})
}

// keep keeps the value of a parameter; a new parameter gets its default.
func (a *aim) keep(parameter string, had map[string]string) {
	if _, ok := had[parameter]; ok {
		keep := true
		a.parameters = append(a.parameters, types.Parameter{ParameterKey: &parameter, UsePreviousValue: &keep})
	}
}

// keeps reports whether the step changes no parameter.
func (a *aim) keeps(had map[string]string) bool {
	return !slices.ContainsFunc(a.parameters, func(p types.Parameter) bool {
		old, ok := had[value(p.ParameterKey)]
		return p.ParameterValue != nil && (!ok || old != *p.ParameterValue)
	})
}

// plan asks CloudFormation for a change set; it returns nil when there is nothing to change.
func (d *deployer) plan(ctx context.Context, s *types.Stack) (*Plan, error) {
	r, err := d.back(ctx, s)
	if err != nil {
		return nil, err
	}
	a, template := aim{}, Template
	if r != nil {
		a, template = aimBack(r, s), r.Template
	} else if a, err = d.aim(ctx, s); err != nil {
		return nil, err
	}
	if s != nil {
		if template, a.indexes, err = d.stage(ctx, tableOf(s), template); err != nil {
			return nil, err
		}
	}
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	name := "zlimit-" + hex.EncodeToString(random)
	adopt := true
	in := &cloudformation.CreateChangeSetInput{
		StackName: &d.Name, ChangeSetName: &name, ClientToken: &name, TemplateBody: &template, Parameters: a.parameters, Tags: stackTags(&d.Options, s),
		Capabilities: []types.Capability{types.CapabilityCapabilityNamedIam}, ChangeSetType: types.ChangeSetTypeUpdate,
	}
	plan := &Plan{Stack: d.Name, Changes: []Change{}, New: s == nil, create: s == nil, aim: a, Cost: fixedCost(a.on), Mark: markOf(in, &d.Options, s)}
	if plan.create {
		// Failed parts stay, and the next deployment goes on from there: a rollback would leave a table in its way.
		in.ChangeSetType, in.OnStackFailure = types.ChangeSetTypeCreate, types.OnStackFailureDoNothing
		in.ImportExistingResources = &adopt // a table that an earlier stack has kept
	} else if s.StackStatus == types.StackStatusCreateFailed || s.StackStatus == types.StackStatusUpdateFailed {
		plan.resume = true
	}
	out, err := call(ctx, d.account, d.clients.CloudFormation.CreateChangeSet, in)
	if err != nil {
		return nil, fmt.Errorf("stack: create a change set of %s: %w", d.Name, err)
	}
	plan.changeSet = value(out.Id)
	empty, err := d.changeSetReady(ctx, plan.changeSet)
	if err == nil && !empty {
		var changes []Change
		changes, err = d.changes(ctx, plan.changeSet)
		plan.Changes = append(plan.Changes, changes...)
	}
	if err == nil {
		err = lost(plan.Changes)
	}
	// Values that no resource depends on at present are changes too.
	empty = empty || len(plan.Changes) == 0 && a.keeps(parameters(s)) && maps.Equal(tagsOf(in.Tags), tags(s))
	if err != nil || empty {
		return nil, errors.Join(err, d.discard(ctx, plan))
	}
	if a.twice {
		for _, later := range afterCode {
			if later.wanted(a.on) {
				plan.Changes = append(plan.Changes, Change{Action: ActionAdd, Resource: later.resource, Type: later.kind, Later: true})
			}
		}
	}
	for _, name := range a.indexes {
		plan.Changes = append(plan.Changes, Change{Action: ActionModify, Resource: "Table", Type: "AWS::DynamoDB::Table", Properties: []string{"index " + name}, Later: true})
	}
	return plan, nil
}

// stackTags returns the tags of a stack: its own, the tags of the options, and ours.
func stackTags(o *Options, s *types.Stack) (all []types.Tag) {
	merged := map[string]string{}
	if !slices.Contains(o.Reset, "tags") {
		maps.Copy(merged, tags(s))
	}
	maps.Copy(merged, o.Tags)
	merged[tagStack], merged[tagVersion] = o.Name, cmp.Or(o.Version, zlimit.Version)
	for _, key := range slices.Sorted(maps.Keys(merged)) {
		value := merged[key]
		all = append(all, types.Tag{Key: &key, Value: &value})
	}
	return all
}

// changeSetReady waits for a change set; empty says that it has no changes.
func (a *account) changeSetReady(ctx context.Context, id string) (empty bool, err error) {
	for {
		out, err := call(ctx, a, a.clients.CloudFormation.DescribeChangeSet, &cloudformation.DescribeChangeSetInput{ChangeSetName: &id})
		if err != nil {
			return false, fmt.Errorf("stack: wait for the change set: %w", err)
		}
		reason := value(out.StatusReason)
		switch out.Status { //nolint:exhaustive // the others are on the way
		case types.ChangeSetStatusCreateComplete:
			return false, nil
		case types.ChangeSetStatusFailed:
			if strings.Contains(reason, "didn't contain changes") || strings.Contains(reason, "No updates are to be performed") {
				return true, nil
			}
			return false, fmt.Errorf("stack: CloudFormation refuses the change set: %s", reason)
		}
		if err := a.sleep(ctx, a.poll); err != nil {
			return false, err
		}
	}
}

// discard deletes a change set, and the shell of a new stack that was made for it.
func (d *deployer) discard(ctx context.Context, p *Plan) error {
	ctx = context.WithoutCancel(ctx)
	_, err := call(ctx, d.account, d.clients.CloudFormation.DeleteChangeSet, &cloudformation.DeleteChangeSetInput{ChangeSetName: &p.changeSet})
	if err != nil || !p.create {
		return discarded(err)
	}
	// Another deployment may have made a stack of it meanwhile.
	if s, err := d.describe(ctx, p.Stack); err == nil && s.StackStatus == types.StackStatusReviewInProgress {
		_, err = call(ctx, d.account, d.clients.CloudFormation.DeleteStack, &cloudformation.DeleteStackInput{StackName: s.StackId})
		return discarded(err)
	}
	return nil
}

func discarded(err error) error {
	if err != nil {
		return fmt.Errorf("stack: discard the change set: %w", err)
	}
	return nil
}

// confirm asks whether a plan may be executed, and discards it otherwise.
func (d *deployer) confirm(ctx context.Context, p *Plan, confirmed bool) error {
	if confirmed || d.hooks.Confirm == nil {
		return nil
	}
	yes, err := d.hooks.Confirm(p)
	if err == nil && yes {
		return nil
	}
	if err == nil {
		err = ErrDeclined
	}
	return errors.Join(err, d.discard(ctx, p))
}

// execute uploads the code, executes a plan and follows it.
func (d *deployer) execute(ctx context.Context, p *Plan) (*types.Stack, error) {
	if p.aim.code != nil {
		b, err := d.bucketOf(ctx, d.Name)
		if err == nil {
			err = b.upload(ctx, p.aim.code)
		}
		if err != nil {
			return nil, err
		}
	}
	in := &cloudformation.ExecuteChangeSetInput{ChangeSetName: &p.changeSet}
	if p.resume {
		in.DisableRollback = &p.resume
	}
	_, err := call(ctx, d.account, d.clients.CloudFormation.ExecuteChangeSet, in)
	if err != nil {
		return nil, fmt.Errorf("stack: execute the change set: %w", err)
	}
	s, err := d.follow(ctx, p.Stack, d.hooks.watch)
	if err == nil && s == nil {
		err = &FailedError{Stack: p.Stack, Status: string(types.StackStatusDeleteComplete)}
	}
	return s, err
}
