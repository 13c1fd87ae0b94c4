package page

import (
	"context"
	"errors"
	"net/url"

	"github.com/zlimit/zlimit-go/zlimit"
)

// An entitiesBody lists entities by the beginning of their names.
type entitiesBody struct {
	Prefix string
	Rows   []zlimit.Entity
	More   bool
	Next   string
}

const entitiesPerPage = 50

func (p *page) entities(ctx context.Context, q url.Values) (view, error) {
	prefix, after := q.Get("q"), q.Get("after")
	body := &entitiesBody{Prefix: prefix}
	v := view{Body: body}
	stored, err := first(0, p.Limiter.Entities.List(ctx, zlimit.EntityQuery{Prefix: prefix, After: after, Limit: entitiesPerPage + 1}))
	if err != nil && !errors.As(err, new(*zlimit.ValidationError)) { // no name has such a beginning
		return v, err
	}
	if body.Rows = stored; len(stored) > entitiesPerPage {
		body.Rows = stored[:entitiesPerPage]
		body.Next = address("/entities", "q", prefix, "after", body.Rows[entitiesPerPage-1].ID)
	}
	body.More = body.Next != "" || after != ""
	return v, nil
}
