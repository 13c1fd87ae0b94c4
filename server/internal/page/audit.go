package page

import (
	"context"
	"fmt"
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

// spans are the times that a screen can look back.
var spans = []struct {
	key, text string
	d         time.Duration
}{{"24h", "24 hours", 24 * time.Hour}, {"7d", "7 days", 7 * 24 * time.Hour}, {"30d", "30 days", 30 * 24 * time.Hour}}

// spanOf returns the time that a request asks to look back.
func spanOf(r *http.Request, path, usual string) (time.Duration, string, []tab, error) {
	asked := r.URL.Query().Get("since")
	if asked == "" {
		asked = usual
	}
	var tabs []tab
	var d time.Duration
	text := ""
	for _, s := range spans {
		q := r.URL.Query()
		q.Set("since", s.key)
		q.Del("screen")
		tabs = append(tabs, tab{s.text, path + "?" + q.Encode(), s.key == asked})
		if s.key == asked {
			d, text = s.d, s.text
		}
	}
	if d == 0 {
		return 0, "", nil, &statusError{http.StatusBadRequest, fmt.Sprintf("since must be 24h, 7d or 30d, and not %.20q", asked)}
	}
	return d, text, tabs, nil
}

func (p *page) audit(ctx context.Context, r *http.Request, _ User) (view, error) {
	q := r.URL.Query()
	body := &auditBody{Principal: q.Get("principal"), Entity: q.Get("entity"), Hidden: url.Values{"since": {q.Get("since")}}}
	v := view{Title: "Audit", Body: body, Path: []crumb{{p.Namespace, "/"}, {"audit", ""}}}
	since, text, tabs, err := spanOf(r, "/audit", "7d")
	if err != nil {
		return v, err
	}
	body.Spans = tabs
	query := zlimit.AuditQuery{From: p.Now().Add(-since), Limit: mostEvents + 1, Reverse: true, Principal: body.Principal}
	events := p.Limiter.Audit.All(ctx, query)
	if body.Entity != "" {
		events = p.Limiter.Audit.Events(ctx, body.Entity, query)
	}
	people := map[string]bool{}
	for e, err := range events {
		if err != nil {
			return v, err
		}
		if len(body.Rows) == mostEvents {
			body.More = true
			break
		}
		c := changeOf(&e)
		people[c.Who] = true
		body.Rows = append(body.Rows, c)
	}
	if len(body.Rows) == 0 {
		v.Head.say("", "No one changed anything in %s", text)
		v.Footer = "Every change writes its event in the same transaction. Events are kept for 90 days, unless the system says otherwise."
		return v, nil
	}
	c := &body.Rows[0]
	v.Head.say("", "%s was the last to change something, %s ago: %s %s", c.Who, span(p.Now().Sub(c.Time).Round(time.Second)), c.Subject, c.What)
	v.Lead = lead("%s by %s in %s. Times are in UTC.", moreThan(body.More, plural(len(body.Rows), "change")), plural(len(people), "person"), text)
	v.Footer = "Every change writes its event in the same transaction. Names are those that programs and this page gave, as they were. Events are kept for 90 days, unless the system says otherwise."
	return v, nil
}
