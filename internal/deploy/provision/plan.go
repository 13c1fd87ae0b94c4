package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// An Action is what applying a plan does to a level.
type Action string

// The actions.
const (
	Create Action = "create" // nothing is stored there
	Update Action = "update" // something else is stored there
	Adopt  Action = "adopt"  // the declared limits are stored there, and are managed from now on
	Delete Action = "delete" // the file has the level no more
	Forget Action = "forget" // the file has the level no more, and nothing is stored there that it would delete
)

// A Change is the change of one level.
type Change struct {
	Action Action        `json:"action"`
	Before zlimit.Stored `json:"before"` // as it is stored
	After  zlimit.Stored `json:"after"`  // as the file declares it
	// Drift is who changed the level since a file was applied. It is nil where the level was not changed, or is not
	// managed yet.
	Drift *Drift `json:"drift,omitempty"`
	// Scaling is by what zlimit limits scale has multiplied the limits that are stored there. It is nil if they are not.
	Scaling *Scaling `json:"scaling,omitempty"`
}

// A Drift is a change of a managed level by other means.
type Drift struct {
	By string    `json:"by,omitempty"` // "" when that is unknown
	At time.Time `json:"at,omitzero"`  // zero when its audit event has expired
}

// A Plan lists the changes that make the stored limits of a namespace equal to a file's.
type Plan struct {
	Namespace string          `json:"namespace"`
	ID        string          `json:"namespace_id"`
	Manager   string          `json:"manager,omitempty"`    // whose levels they are from then on
	From      string          `json:"taken_from,omitempty"` // the manager that they are taken from
	Hash      string          `json:"hash"`                 // of the declaration
	Declared  []zlimit.Stored `json:"declared"`
	Changes   []Change        `json:"changes"`
	// Unmanaged are levels with limits, found neither in the file nor among those applied before. They stay.
	Unmanaged []zlimit.Level `json:"unmanaged"`
}

// Empty reports whether nothing is to change.
func (p *Plan) Empty() bool { return len(p.Changes) == 0 && p.From == "" }

// Changing reports whether the stored config of a level is to change. Taking a level over leaves it as it is.
func (p *Plan) Changing() bool {
	return slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Action != Adopt && c.Action != Forget })
}

// TakenFromPrograms returns the levels that a program has kept by [zlimit.LimitService.Apply]. Once the plan is applied, the
// declarations of that program have no effect on them.
func (p *Plan) TakenFromPrograms() (levels []zlimit.Level) {
	for i := range p.Changes {
		if c := &p.Changes[i]; c.Before.Declared && c.Action != Forget {
			levels = append(levels, c.After.Level)
		}
	}
	return levels
}

// Validate returns an error for a plan that was changed since it was made, as far as its hash shows.
func (p *Plan) Validate() error {
	if p.Hash != hash(p.Declared) || p.ID == "" {
		return errors.New("the plan was changed since it was made")
	}
	return nil
}

// Fresh returns the plan for a namespace that is not registered yet: every declared level is new. Its ID is empty. It
// returns a [*zlimit.ValidationError] for a wider resource that the file has no limits for.
func Fresh(namespace, manager string, declared []zlimit.Stored) (*Plan, error) {
	wider, changed := declaredWithin(declared, nil)
	for id := range changed {
		if !declares(declared, wider[id]) {
			return nil, errUnknown(id, wider[id])
		}
	}
	if err := checkChains(wider, changed); err != nil {
		return nil, err
	}
	plan := &Plan{Namespace: namespace, Manager: manager, Hash: hash(declared), Declared: declared, Unmanaged: []zlimit.Level{}}
	for _, after := range declared {
		before := zlimit.Stored{Level: after.Level}
		plan.Changes = append(plan.Changes, Change{Action: Create, Before: before, After: resolve(after, before)})
	}
	return plan, nil
}

// A Provisioner keeps the limits of the namespace that a limiter works in.
type Provisioner struct {
	limiter  *zlimit.RateLimiter
	name     string // of the namespace
	now      func() time.Time
	manager  string      // of the levels; "" for a nameless one, which keeps no other manager out
	take     bool        // the levels of another manager
	planned  func(*Plan) // nil for no report, and so is the next
	reported func(Change)

	keepsScaled bool // no scaling is undone
}

// A ManagedError says that another manager owns the levels of a namespace, and would undo the changes made here. Its
// levels are deleted or changed by one alone that takes them over.
type ManagedError struct{ Namespace, Manager, Wanted string }

// Error says who manages the namespace.
func (e *ManagedError) Error() string {
	return fmt.Sprintf("the limits of namespace %s are managed by %s, and not by %s, which would delete what it does not have", e.Namespace, e.Manager, e.Wanted)
}

// ManagedBy names the manager of the levels that a provisioner plans and applies. A namespace has one: a plan for
// another one is a [ManagedError], unless it takes the levels over.
func (p *Provisioner) ManagedBy(manager string, takeOver bool) { p.manager, p.take = manager, takeOver }

// New returns a provisioner of the namespace of a limiter, which has the name given. now is its clock.
func New(limiter *zlimit.RateLimiter, namespace string, now func() time.Time) *Provisioner {
	return &Provisioner{limiter: limiter, name: namespace, now: now}
}

// OnProgress makes a provisioner report the plan that it is about to apply, and each change when it is done. Unmanaged levels
// are not listed in that plan. Either function may be nil.
func (p *Provisioner) OnProgress(planned func(*Plan), done func(Change)) {
	p.planned, p.reported = planned, done
}

// Plan compares declared levels with stored ones. It reads the record of managed levels, each level of the file and of
// the record, and the names of all other levels. For a level that other programs have changed it also reads the
// audit events. It writes nothing.
func (p *Provisioner) Plan(ctx context.Context, declared []zlimit.Stored) (*Plan, error) {
	plan, _, err := p.plan(ctx, declared, true)
	return plan, err
}

// plan returns the plan with the managed set that it starts from. Without others it does not look for other levels.
func (p *Provisioner) plan(ctx context.Context, declared []zlimit.Stored, others bool) (*Plan, zlimit.ManagedSet, error) {
	namespace, err := p.limiter.Namespaces.Get(ctx, p.name)
	if err != nil {
		return nil, zlimit.ManagedSet{}, err
	}
	set, err := p.limiter.Managed.Set(ctx)
	if err != nil {
		return nil, set, err
	}
	plan := &Plan{
		Namespace: p.name, ID: namespace.ID, Hash: hash(declared), Declared: declared, Changes: []Change{}, Unmanaged: []zlimit.Level{},
	}
	if plan.Manager = cmp.Or(p.manager, set.Manager); plan.Manager != set.Manager && set.Manager != "" && len(set.Levels)+len(set.Pending) > 0 {
		if plan.From = set.Manager; !p.take {
			return nil, set, &ManagedError{p.name, set.Manager, p.manager}
		}
	}
	live, err := p.read(ctx, declared, &set)
	if err != nil {
		return nil, set, err
	}
	if err := p.checkWithin(ctx, declared, live); err != nil {
		return nil, set, err
	}
	managed := map[zlimit.Level]bool{}
	for _, level := range set.Levels {
		managed[level] = true
	}
	wanted := map[zlimit.Level]bool{}
	for _, after := range declared {
		wanted[after.Level] = true
		if c := compare(live[after.Level], resolve(after, live[after.Level]), managed[after.Level]); c != nil {
			plan.Changes = append(plan.Changes, *c)
		}
	}
	for _, level := range set.Pending { // of a run that ended before it could record its writes
		if found := live[level]; !wanted[level] && !managed[level] && found.Managed {
			managed[level] = true
			set.Levels = append(set.Levels, level)
		}
	}
	for _, level := range set.Levels {
		if wanted[level] {
			continue
		}
		before := live[level]
		c := Change{Action: Delete, Before: before, After: resolve(zlimit.Stored{Level: level}, before)}
		if before.Config.Same(&c.After.Config) {
			c.Action = Forget
		}
		plan.Changes = append(plan.Changes, c)
	}
	slices.SortStableFunc(plan.Changes, func(a, b Change) int { return a.After.Level.Compare(b.After.Level) })
	if err := p.explain(ctx, plan, managed); err != nil {
		return nil, set, err
	}
	if !others {
		return plan, set, nil
	}
	for stored, err := range p.limiter.Limits.List(ctx, zlimit.LevelQuery{NamesOnly: true}) {
		if err != nil {
			return nil, set, err
		}
		if !wanted[stored.Level] && !managed[stored.Level] {
			plan.Unmanaged = append(plan.Unmanaged, stored.Level)
		}
	}
	return plan, set, nil
}

// read returns the stored levels of a plan.
func (p *Provisioner) read(ctx context.Context, declared []zlimit.Stored, set *zlimit.ManagedSet) (map[zlimit.Level]zlimit.Stored, error) {
	var levels []zlimit.Level
	for _, d := range declared {
		levels = append(levels, d.Level)
	}
	levels = slices.Concat(levels, set.Levels, set.Pending)
	slices.SortFunc(levels, zlimit.Level.Compare)
	found, err := p.limiter.Managed.Read(ctx, slices.Compact(levels)...)
	live := map[zlimit.Level]zlimit.Stored{}
	for _, stored := range found {
		if at := stored.Level; len(stored.Unsupported) > 0 {
			return nil, &zlimit.UnsupportedError{Source: at.Source(), Entity: at.Entity, Resource: at.Resource, Features: stored.Unsupported}
		}
		live[stored.Level] = stored
	}
	return live, err
}

// compare returns the change from a stored level to the declared one, nil for none.
func compare(before, after zlimit.Stored, managed bool) *Change {
	c := &Change{Before: before, After: after}
	switch {
	case before.Version == 0:
		c.Action = Create
	case !before.Config.Same(&after.Config):
		c.Action = Update
	case !managed:
		c.Action = Adopt
	default:
		return nil
	}
	return c
}

// explain finds out who changed managed levels by other means, and which levels are scaled.
func (p *Provisioner) explain(ctx context.Context, plan *Plan, managed map[zlimit.Level]bool) error {
	for i := range plan.Changes {
		c := &plan.Changes[i]
		if c.Before.Managed || !managed[c.After.Level] && c.Action != Update {
			continue
		}
		found, err := p.history(ctx, c.After.Level, time.Time{})
		if err != nil {
			return err
		}
		c.Scaling = found.Scaling
		if c.Drift = found.last; !managed[c.After.Level] {
			c.Drift = nil
		} else if c.Drift == nil {
			c.Drift = &Drift{}
		}
	}
	return nil
}
