package page

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// An auditBody is the screen that answers who changed what.
type auditBody struct {
	Rows      []change
	Spans     []tab
	Principal string
	Entity    string
	More      bool
	Hidden    url.Values
}

const mostEvents = 200

func (p *page) audit(ctx context.Context, r *http.Request, _ User) (view, error) {
	q := r.URL.Query()
	body := &auditBody{Principal: q.Get("principal"), Entity: q.Get("entity"), Hidden: url.Values{"since": {q.Get("since")}}}
	v := view{Title: "Audit", Body: body, Path: []crumb{{p.Namespace, "/"}, {"audit", ""}}}
	back, tabs, err := reachOf(backwards, "/audit", q, "since", "7d")
	if err != nil {
		return v, err
	}
	body.Spans = tabs
	query := zlimit.AuditQuery{From: p.Now().Add(-back.d), Limit: mostEvents + 1, Reverse: true, Principal: body.Principal}
	all := p.Limiter.Audit.All(ctx, query)
	if body.Entity != "" {
		all = p.Limiter.Audit.Events(ctx, body.Entity, query)
	}
	events, err := first(0, all)
	if err != nil {
		return v, err
	}
	body.More = len(events) > mostEvents
	people := map[string]bool{}
	for i := range events[:min(len(events), mostEvents)] {
		c := changeOf(&events[i])
		people[c.Who] = true
		body.Rows = append(body.Rows, c)
	}
	if len(body.Rows) == 0 {
		v.Head.say("", "No one changed anything in %s", back.text)
		return v, nil
	}
	c := &body.Rows[0]
	v.Head.say("", "%s was the last to change something, %s ago: %s %s", c.Who, span(p.Now().Sub(c.Time).Round(time.Second)), c.Subject, c.What)
	v.Lead = lead("%s by %s in %s. Times are in UTC.", moreThan(body.More, plural(len(body.Rows), "change")), plural(len(people), "person"), back.text)
	return v, nil
}
