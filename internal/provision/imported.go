package provision

import (
	"context"
	"time"

	"github.com/zlimit/zlimit-go/internal/declaration"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Import returns what is stored in the namespace as a declaration. It reads every level; one that is deleted meanwhile is
// left out.
func (p *Provisioner) Import(ctx context.Context) (*declaration.Declaration, error) {
	var levels []zlimit.ConfigLevel
	for level, err := range p.levels(ctx) {
		if err != nil {
			return nil, err
		}
		levels = append(levels, level)
	}
	found, err := p.limiter.Managed.Read(ctx, levels...)
	if err != nil {
		return nil, err
	}
	var stored []Level
	for i := range found {
		if l := levelOf(&found[i]); l.says() {
			stored = append(stored, l)
		}
	}
	return declared(p.name, stored), nil
}

// declared returns levels as a declaration of a namespace.
func declared(namespace string, levels []Level) *declaration.Declaration {
	d := &declaration.Declaration{Namespace: namespace}
	entities := map[string]*declaration.Entity{}
	for i := range levels {
		l := &levels[i]
		limits := l.declared()
		switch at := l.Level; at.Source() {
		case zlimit.SourceSystem:
			d.System = &declaration.System{Limits: limits, OnUnavailable: l.OnUnavailable, RetentionDays: l.RetentionDays}
		case zlimit.SourceResource:
			d.Resources = append(d.Resources, &declaration.Resource{Name: at.Resource, Limits: limits, OnUnavailable: l.OnUnavailable})
		default:
			e := entities[at.Entity]
			if e == nil {
				e = &declaration.Entity{ID: at.Entity}
				entities[at.Entity] = e
				d.Entities = append(d.Entities, e)
			}
			if at.Source() == zlimit.SourceEntityDefault {
				e.Limits, e.OnUnavailable = limits, l.OnUnavailable
			} else {
				e.Resources = append(e.Resources, &declaration.Resource{Name: at.Resource, Limits: limits, OnUnavailable: l.OnUnavailable})
			}
		}
	}
	return d
}

func (l *Level) declared() []*declaration.Limit {
	var limits []*declaration.Limit
	for _, limit := range l.Limits {
		limits = append(limits, &declaration.Limit{
			Name: limit.Name, Capacity: limit.Capacity, Refill: limit.Refill, Period: time.Duration(limit.Period) * time.Second,
		})
	}
	return limits
}
