package page

import (
	"context"
	"net/url"

	"github.com/zlimit/zlimit-go/zlimit"
)

// An auditBody is the screen that answers who changed what.
type auditBody struct {
	Rows      []change
	People    map[string]bool
	Reach     reach
	Principal string
	Entity    string
	More      bool
	Hidden    url.Values
}

const mostEvents = 200

func (p *page) audit(ctx context.Context, q url.Values) (v view, err error) {
	body := &auditBody{Principal: q.Get("principal"), Entity: q.Get("entity"), Hidden: url.Values{"since": {q.Get("since")}}, People: map[string]bool{}}
	v.Body = body
	if body.Reach, err = reachOf(backwards, q, "since", "7d"); err != nil {
		return v, err
	}
	query := zlimit.AuditQuery{From: p.Now().Add(-body.Reach.d), Limit: mostEvents + 1, Reverse: true, Principal: body.Principal}
	all := p.Limiter.Audit.All(ctx, query)
	if body.Entity != "" {
		all = p.Limiter.Audit.Events(ctx, body.Entity, query)
	}
	events, err := first(0, all)
	body.More = len(events) > mostEvents
	body.Rows = changesOf(events[:min(len(events), mostEvents)])
	for _, c := range body.Rows {
		body.People[c.Who] = true
	}
	return v, err
}
