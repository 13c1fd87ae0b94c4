package provision

import (
	"context"

	"github.com/zlimit/zlimit-go/internal/declaration"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Import returns the stored levels of the namespace as a declaration. It reads every level; one that is deleted
// meanwhile is left out. Levels that a declaration cannot hold are left out too, and come beside it.
func (p *Provisioner) Import(ctx context.Context) (d *declaration.Declaration, unsupported []zlimit.Stored, err error) {
	var stored []zlimit.Stored
	for level, err := range p.limiter.Limits.List(ctx, zlimit.LevelQuery{}) {
		if err != nil {
			return nil, nil, err
		}
		switch {
		case len(level.Unsupported) > 0:
			unsupported = append(unsupported, level)
		case !level.Config.IsZero():
			stored = append(stored, level)
		}
	}
	return Declare(p.name, stored), unsupported, nil
}

// Declare returns levels as a declaration of a namespace.
func Declare(namespace string, levels []zlimit.Stored) *declaration.Declaration {
	d := &declaration.Declaration{Namespace: namespace}
	entities := map[string]*declaration.Entity{}
	for _, l := range levels {
		var limits []*declaration.Limit
		for _, limit := range l.Config.Limits {
			limits = append(limits, &declaration.Limit{Limit: textOf(limit)})
		}
		policy := ""
		if l.Config.OnUnavailable != zlimit.PolicyInherit {
			policy = l.Config.OnUnavailable.String()
		}
		cascade := string(l.Config.Cascade)
		switch at := l.Level; at.Source() {
		case zlimit.SourceSystem:
			d.System = &declaration.System{Limits: limits, OnUnavailable: policy, RetentionDays: int64(l.Config.AuditRetention / day)}
		case zlimit.SourceResource:
			r := &declaration.Resource{Name: at.Resource, Limits: limits, OnUnavailable: policy, Cascade: cascade}
			if l.Config.Within != "" {
				r.Within = &declaration.Wider{Name: l.Config.Within}
			}
			d.Resources = append(d.Resources, r)
		default:
			e := entities[at.Entity]
			if e == nil {
				e = &declaration.Entity{ID: at.Entity}
				entities[at.Entity] = e
				d.Entities = append(d.Entities, e)
			}
			if at.Resource == "" {
				e.Limits, e.OnUnavailable, e.Cascade = limits, policy, cascade
			} else {
				e.Resources = append(e.Resources, &declaration.Resource{Name: at.Resource, Limits: limits, OnUnavailable: policy, Cascade: cascade})
			}
		}
	}
	return d
}
