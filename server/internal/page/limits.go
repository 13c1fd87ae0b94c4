package page

import (
	"cmp"
	"context"
	"net/url"
	"slices"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A limitsBody lists the levels at which something is stored.
type limitsBody struct {
	Groups       map[string][]zlimit.Stored // by the source that a level is
	N, Off, Soft int                        // levels, those that are switched off, and limits that reject nothing
	More         bool
}

const mostLevels = 500

func (p *page) limits(ctx context.Context, q url.Values) (view, error) {
	body := &limitsBody{Groups: map[string][]zlimit.Stored{}}
	v := view{Body: body}
	set, err := p.Limiter.Managed.Set(ctx)
	if err != nil {
		return v, err
	}
	levels, err := first(mostLevels+1, p.Limiter.Limits.List(ctx, zlimit.LevelQuery{Entity: q.Get("entity"), Resource: q.Get("resource")}))
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
		of := string(stored.Level.Source())
		body.Groups[of] = append(body.Groups[of], stored)
	}
	for _, rows := range body.Groups {
		slices.SortStableFunc(rows, func(a, b zlimit.Stored) int {
			return cmp.Or(btoi(isOff(&b))-btoi(isOff(&a)), cmp.Compare(named(a.Level.Entity), named(b.Level.Entity)), cmp.Compare(named(a.Level.Resource), named(b.Level.Resource)))
		})
	}
	return v, nil
}

// isOff reports whether a level switches its limits off.
func isOff(stored *zlimit.Stored) bool {
	return stored.Switch == zlimit.SwitchDisabled || stored.Switch == zlimit.SwitchBypassed
}
