package provision

import (
	"context"
	"errors"
	"iter"
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
	Forget Action = "forget" // the file has the level no more, and nothing is stored there
)

// A Change is what is to happen to one level.
type Change struct {
	Action Action `json:"action"`
	Before Level  `json:"before"` // as it is stored
	After  Level  `json:"after"`  // as the file declares it
	// Drift is who changed the level since a file was applied. It is nil where the level was not changed, or is not
	// managed yet.
	Drift *Drift `json:"drift,omitempty"`
}

// A Drift is a change of a managed level by other means.
type Drift struct {
	By string    `json:"by,omitempty"` // "" when that is unknown
	At time.Time `json:"at,omitzero"`  // zero when its audit event has expired
}

// A Plan is what is to change so that the stored limits of a namespace are those of a file.
type Plan struct {
	Namespace string   `json:"namespace"`
	ID        string   `json:"namespace_id"`
	Hash      string   `json:"hash"` // of the declaration
	Declared  []Level  `json:"declared"`
	Changes   []Change `json:"changes"`
	// Unmanaged are levels that have limits, and that neither the file nor what was applied before has. They stay.
	Unmanaged []zlimit.ConfigLevel `json:"unmanaged"`
}

// Empty reports whether nothing is to change.
func (p *Plan) Empty() bool { return len(p.Changes) == 0 }

// Validate returns an error for a plan that was changed since it was made, as far as its hash tells.
func (p *Plan) Validate() error {
	if p.Hash != hash(p.Declared) || p.ID == "" {
		return errors.New("the plan was changed since it was made")
	}
	return nil
}

// Fresh returns the plan for a namespace that is not registered yet: all that is declared is new. Its ID is empty.
func Fresh(namespace string, declared []Level) *Plan {
	plan := &Plan{Namespace: namespace, Hash: hash(declared), Declared: declared, Unmanaged: []zlimit.ConfigLevel{}}
	for _, after := range declared {
		plan.Changes = append(plan.Changes, Change{Action: Create, Before: Level{Level: after.Level}, After: after})
	}
	return plan
}

// A Provisioner keeps the limits of the namespace that a limiter works in.
type Provisioner struct {
	limiter *zlimit.RateLimiter
	name    string // of the namespace
	lease   time.Duration
	now     func() time.Time
	planned func(*Plan) // nil for no report, and so is the next
	told    func(Change)
}

// New returns a provisioner of the namespace of a limiter, which has the name given. It goes by a clock.
func New(limiter *zlimit.RateLimiter, namespace string, now func() time.Time) *Provisioner {
	return &Provisioner{limiter: limiter, name: namespace, lease: time.Minute, now: now}
}

// Tell makes a provisioner report the plan that it is about to apply, and each change when it is done. Levels that are
// not managed are not listed in that plan. Either function may be nil.
func (p *Provisioner) Tell(planned func(*Plan), done func(Change)) { p.planned, p.told = planned, done }

// Plan compares declared levels with what is stored. It reads the record of what is managed, each level of the file and
// of the record, and the names of all other levels. For a level that other programs have changed it also reads the last
// audit event. It writes nothing.
func (p *Provisioner) Plan(ctx context.Context, declared []Level) (*Plan, error) {
	plan, _, err := p.plan(ctx, declared, true)
	return plan, err
}

// plan returns the plan with the managed set that it starts from. Without others it does not look for other levels.
func (p *Provisioner) plan(ctx context.Context, declared []Level, others bool) (*Plan, zlimit.ManagedSet, error) {
	namespace, err := p.limiter.Namespaces.Get(ctx, p.name)
	if err != nil {
		return nil, zlimit.ManagedSet{}, err
	}
	set, err := p.limiter.Managed.Set(ctx)
	if err != nil {
		return nil, set, err
	}
	plan := &Plan{
		Namespace: p.name, ID: namespace.ID, Hash: hash(declared), Declared: declared, Changes: []Change{}, Unmanaged: []zlimit.ConfigLevel{},
	}
	live, err := p.read(ctx, declared, &set)
	if err != nil {
		return nil, set, err
	}
	managed := map[zlimit.ConfigLevel]bool{}
	for _, level := range set.Levels {
		managed[level] = true
	}
	wanted := map[zlimit.ConfigLevel]bool{}
	for _, after := range declared {
		wanted[after.Level] = true
		if c := compare(live[after.Level], after, managed[after.Level]); c != nil {
			plan.Changes = append(plan.Changes, *c)
		}
	}
	for _, level := range set.Pending { // of a run that ended before it could record what it had written
		if found := live[level]; !wanted[level] && !managed[level] && found.there() && found.managedVersion {
			managed[level] = true
			set.Levels = append(set.Levels, level)
		}
	}
	for _, level := range set.Levels {
		if wanted[level] {
			continue
		}
		c := Change{Action: Delete, Before: live[level], After: Level{Level: level}}
		if !c.Before.there() {
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
	for level, err := range p.levels(ctx) {
		if err != nil {
			return nil, set, err
		}
		if !wanted[level] && !managed[level] {
			plan.Unmanaged = append(plan.Unmanaged, level)
		}
	}
	return plan, set, nil
}

// read returns what is stored at the levels that a plan is about.
func (p *Provisioner) read(ctx context.Context, declared []Level, set *zlimit.ManagedSet) (map[zlimit.ConfigLevel]Level, error) {
	var levels []zlimit.ConfigLevel
	for _, d := range declared {
		levels = append(levels, d.Level)
	}
	levels = slices.Concat(levels, set.Levels, set.Pending)
	slices.SortFunc(levels, zlimit.ConfigLevel.Compare)
	found, err := p.limiter.Managed.Read(ctx, slices.Compact(levels)...)
	live := map[zlimit.ConfigLevel]Level{}
	for i := range found {
		live[found[i].Level] = levelOf(&found[i])
	}
	return live, err
}

// compare returns the change from what is stored to what is declared, nil for none.
func compare(before, after Level, managed bool) *Change {
	c := &Change{Before: before, After: after}
	switch {
	case !before.there():
		c.Action = Create
	case !before.same(&after):
		c.Action = Update
	case !managed:
		c.Action = Adopt
	default:
		return nil
	}
	return c
}

// explain finds out who changed managed levels by other means.
func (p *Provisioner) explain(ctx context.Context, plan *Plan, managed map[zlimit.ConfigLevel]bool) error {
	for i := range plan.Changes {
		c := &plan.Changes[i]
		if c.Before.managedVersion || !managed[c.After.Level] {
			continue
		}
		drift, err := p.last(ctx, c.After.Level)
		if err != nil {
			return err
		}
		c.Drift = drift
	}
	return nil
}

// last returns who changed a level last.
func (p *Provisioner) last(ctx context.Context, level zlimit.ConfigLevel) (*Drift, error) {
	about, q := level.Entity, zlimit.AuditQuery{Reverse: true, Limit: 1}
	switch level.Source() {
	case zlimit.SourceSystem:
		about = zlimit.AuditSystem
	case zlimit.SourceResource:
		about = zlimit.AuditResource(level.Resource)
	default:
		q.Resource = level.Resource
	}
	for event, err := range p.limiter.Audit.Events(ctx, about, q) {
		if err != nil {
			return nil, err
		}
		return &Drift{By: event.Principal, At: event.Time}, nil
	}
	return &Drift{}, nil
}

// levels yields every level that has limits: the system, resources, entities by resource.
func (p *Provisioner) levels(ctx context.Context) iter.Seq2[zlimit.ConfigLevel, error] {
	return func(yield func(zlimit.ConfigLevel, error) bool) {
		system, err := p.limiter.Managed.Read(ctx, zlimit.ConfigLevel{})
		if err != nil || system[0].Version > 0 {
			if !yield(zlimit.ConfigLevel{}, err) || err != nil {
				return
			}
		}
		for resource, err := range p.limiter.Limits.Resources(ctx) {
			if !yield(zlimit.ConfigLevel{Resource: resource}, err) || err != nil {
				return
			}
		}
		for resource, err := range p.limiter.Limits.ResourcesWith(ctx) {
			if err != nil {
				yield(zlimit.ConfigLevel{}, err)
				return
			}
			for entity, err := range p.limiter.Limits.EntitiesWith(ctx, resource) {
				if !yield(zlimit.ConfigLevel{Entity: entity, Resource: resource}, err) || err != nil {
					return
				}
			}
		}
	}
}
