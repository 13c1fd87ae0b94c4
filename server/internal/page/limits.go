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
	Groups []levelGroup
	New    string
	More   bool
}

type levelGroup struct {
	Name, Says string
	Rows       []zlimit.Stored
}

const mostLevels = 500

func (p *page) limits(ctx context.Context, r *http.Request, _ User) (view, error) {
	body := &limitsBody{}
	v := view{Title: "Limits", Body: body, Path: []crumb{{p.Namespace, "/"}, {"limits", ""}}}
	q := zlimit.LevelQuery{Entity: r.URL.Query().Get("entity"), Resource: r.URL.Query().Get("resource")}
	groups := map[zlimit.Source]*levelGroup{
		zlimit.SourceSystem:        {Name: "The system", Says: "Holds where no other level has limits."},
		zlimit.SourceResource:      {Name: "Resources", Says: "Hold for every entity without a level of its own."},
		zlimit.SourceEntityDefault: {Name: "Defaults of entities", Says: "Hold for every resource for which the entity has no level."},
		zlimit.SourceEntity:        {Name: "Entities for a resource", Says: "Come before all others."},
	}
	set, err := p.Limiter.Managed.Set(ctx)
	if err != nil {
		return v, err
	}
	n, off, soft := 0, 0, 0
	for stored, err := range p.Limiter.Limits.List(ctx, q) {
		if err != nil {
			return v, err
		}
		if n++; n > mostLevels {
			body.More = true
			break
		}
		for i := range stored.Config.Limits {
			soft += btoi(stored.Config.Limits[i].Mode != zlimit.ModeEnforced)
		}
		off += btoi(isOff(&stored))
		stored.Managed = set.Has(&stored)
		g := groups[stored.Level.Source()]
		g.Rows = append(g.Rows, stored)
	}
	for _, source := range []zlimit.Source{zlimit.SourceEntity, zlimit.SourceEntityDefault, zlimit.SourceResource, zlimit.SourceSystem} {
		if g := groups[source]; len(g.Rows) > 0 {
			slices.SortStableFunc(g.Rows, func(a, b zlimit.Stored) int {
				return cmp.Or(btoi(isOff(&b))-btoi(isOff(&a)), cmp.Compare(named(a.Level.Entity), named(b.Level.Entity)), cmp.Compare(named(a.Level.Resource), named(b.Level.Resource)))
			})
			body.Groups = append(body.Groups, *g)
		}
	}
	v.Head.say("", "%s limits", plural(n, "level has"))
	if off > 0 {
		v.Head.say("", ", and ")
		v.Head.say("low", "%s switched off", plural(off, "level is"))
	} else if n > 0 {
		v.Head.say("", ", and all are in force")
	}
	v.Lead = lead("The first level with limits wins as a whole: an entity's for the resource, the entity's default, the resource's, the system's.")
	if soft > 0 {
		v.Lead += lead(" %s soft or shadow, and rejects nothing.", plural(soft, "limit is"))
	}
	v.Footer = "Read from the store now."
	return v, nil
}

// isOff reports whether a level switches its limits off.
func isOff(stored *zlimit.Stored) bool {
	return stored.Switch == zlimit.SwitchDisabled || stored.Switch == zlimit.SwitchBypassed
}
