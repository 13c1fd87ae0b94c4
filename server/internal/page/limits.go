package page

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A limitsBody lists the levels at which something is stored.
type limitsBody struct {
	Groups       []levelGroup
	N, Off, Soft int // levels, those that are switched off, and limits that reject nothing
	More         bool
}

type levelGroup struct {
	of         zlimit.Source
	Name, Says string
	Rows       []zlimit.Stored
}

const mostLevels = 500

func (p *page) limits(ctx context.Context, r *http.Request, _ User) (view, error) {
	body := &limitsBody{}
	v := view{Body: body}
	q := zlimit.LevelQuery{Entity: r.URL.Query().Get("entity"), Resource: r.URL.Query().Get("resource")}
	groups := []levelGroup{
		{of: zlimit.SourceEntity, Name: "Entities for a resource", Says: "Come before all others."},
		{of: zlimit.SourceEntityDefault, Name: "Defaults of entities", Says: "Hold for every resource for which the entity has no level."},
		{of: zlimit.SourceResource, Name: "Resources", Says: "Hold for every entity without a level of its own."},
		{of: zlimit.SourceSystem, Name: "The system", Says: "Holds where no other level has limits."},
	}
	set, err := p.Limiter.Managed.Set(ctx)
	if err != nil {
		return v, err
	}
	levels, err := first(mostLevels+1, p.Limiter.Limits.List(ctx, q))
	if err != nil {
		return v, err
	}
	body.More = len(levels) > mostLevels
	body.N = min(len(levels), mostLevels)
	for _, stored := range levels[:body.N] {
		for i := range stored.Config.Limits {
			body.Soft += btoi(stored.Config.Limits[i].Mode != zlimit.ModeEnforced)
		}
		body.Off += btoi(isOff(&stored))
		stored.Managed = set.Has(&stored)
		g := slices.IndexFunc(groups, func(g levelGroup) bool { return g.of == stored.Level.Source() })
		groups[g].Rows = append(groups[g].Rows, stored)
	}
	body.Groups = slices.DeleteFunc(groups, func(g levelGroup) bool { return len(g.Rows) == 0 })
	for _, g := range body.Groups {
		slices.SortStableFunc(g.Rows, func(a, b zlimit.Stored) int {
			return cmp.Or(btoi(isOff(&b))-btoi(isOff(&a)), cmp.Compare(named(a.Level.Entity), named(b.Level.Entity)), cmp.Compare(named(a.Level.Resource), named(b.Level.Resource)))
		})
	}
	return v, nil
}

// isOff reports whether a level switches its limits off.
func isOff(stored *zlimit.Stored) bool {
	return stored.Switch == zlimit.SwitchDisabled || stored.Switch == zlimit.SwitchBypassed
}
