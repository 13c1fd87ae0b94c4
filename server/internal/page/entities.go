package page

import (
	"context"
	"errors"
	"html/template"
	"net/http"

	"github.com/zlimit/zlimit-go/zlimit"
)

// An entitiesBody lists entities by the beginning of their names.
type entitiesBody struct {
	Prefix string
	Rows   []zlimit.Entity
	Next   string
}

const entitiesPerPage = 50

func (p *page) entities(ctx context.Context, r *http.Request, _ User) (view, error) {
	prefix, after := r.URL.Query().Get("q"), r.URL.Query().Get("after")
	body := &entitiesBody{Prefix: prefix}
	v := view{Title: "Entities", Body: body, Path: []crumb{{p.Namespace, "/"}, {"entities", ""}}}
	stored, err := first(0, p.Limiter.Entities.List(ctx, zlimit.EntityQuery{Prefix: prefix, After: after, Limit: entitiesPerPage + 1}))
	var invalid *zlimit.ValidationError
	if err != nil && !errors.As(err, &invalid) { // no name has such a beginning
		return v, err
	}
	if body.Rows = stored; len(stored) > entitiesPerPage {
		body.Rows = stored[:entitiesPerPage]
		body.Next = address("/entities", "q", prefix, "after", body.Rows[entitiesPerPage-1].ID)
	}
	n, more := len(body.Rows), body.Next != "" || after != ""
	switch {
	case n == 0 && prefix == "":
		v.Head.say("", "No entity is stored")
	case n == 0:
		v.Head.say("", "No stored entity begins with %s", prefix)
	case prefix != "":
		v.Head.say("", "%s with %s", moreThan(more, plural(n, "entity begins")), prefix)
	default:
		v.Head.say("", "%s stored", moreThan(more, plural(n, "entity is")))
	}
	v.Lead = template.HTML(`An entity need not be stored to be limited. Type its whole name to look at one that is not.`)
	return v, nil
}
