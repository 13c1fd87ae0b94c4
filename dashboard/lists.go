package dashboard

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"

	"github.com/zlimit/zlimit-go/zlimit"
)

// The most rows of the screens that list what is stored.
const (
	mostLevels      = 500
	mostEvents      = 200
	entitiesPerPage = 50
)

// A limitsBody lists the levels at which something is stored.
type limitsBody struct {
	Groups       map[string][]zlimit.Stored // by the source that a level is
	N, Off, Soft int                        // levels, those that are switched off, and limits that reject nothing
	More         bool
}

func (p *page) limits(ctx context.Context, q url.Values) (view, error) {
	body := &limitsBody{Groups: map[string][]zlimit.Stored{}}
	set, err := p.Limiter.Managed.Set(ctx)
	if err != nil {
		return view{}, err
	}
	levels, err := first(mostLevels+1, p.Limiter.Limits.List(ctx, zlimit.LevelQuery{Entity: q.Get("entity"), Resource: q.Get("resource")}))
	levels, body.More = upTo(mostLevels, levels)
	body.N = len(levels)
	for _, stored := range levels {
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
	return view{Body: body}, err
}

// isOff reports whether a level switches its limits off.
func isOff(stored *zlimit.Stored) bool {
	return stored.Switch == zlimit.SwitchDisabled || stored.Switch == zlimit.SwitchBypassed
}

// An entitiesBody lists entities by the beginning of their names.
type entitiesBody struct {
	Prefix string
	Rows   []zlimit.Entity
	More   bool
	Next   string
}

func (p *page) entities(ctx context.Context, q url.Values) (view, error) {
	body := &entitiesBody{Prefix: q.Get("q")}
	stored, err := first(0, p.Limiter.Entities.List(ctx, zlimit.EntityQuery{Prefix: body.Prefix, After: q.Get("after"), Limit: entitiesPerPage + 1}))
	if errors.As(err, new(*zlimit.ValidationError)) { // no name has such a beginning
		err = nil
	}
	if body.Rows, body.More = upTo(entitiesPerPage, stored); body.More {
		body.Next = address("/entities", "q", body.Prefix, "after", body.Rows[entitiesPerPage-1].ID)
	}
	body.More = body.More || q.Get("after") != ""
	return view{Body: body}, err
}

// An auditBody is the screen that answers who changed what.
type auditBody struct {
	Rows              []change
	People            map[string]bool
	Reach             reach
	Principal, Entity string
	More              bool
	Hidden            url.Values
}

func (p *page) audit(ctx context.Context, q url.Values) (view, error) {
	back, err := reachOf(backwards, q, "since", "7d")
	if err != nil {
		return view{}, err
	}
	body := &auditBody{Reach: back, Principal: q.Get("principal"), Entity: q.Get("entity"), Hidden: url.Values{"since": {q.Get("since")}}, People: map[string]bool{}}
	query := zlimit.AuditQuery{From: p.Now().Add(-back.d), Limit: mostEvents + 1, Reverse: true, Principal: body.Principal}
	all := p.Limiter.Audit.All(ctx, query)
	if body.Entity != "" {
		all = p.Limiter.Audit.Events(ctx, body.Entity, query)
	}
	changes, err := changesOf(all)
	body.Rows, body.More = upTo(mostEvents, changes)
	for _, c := range body.Rows {
		body.People[c.Who] = true
	}
	return view{Body: body}, err
}
