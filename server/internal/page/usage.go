package page

import (
	"cmp"
	"context"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/server/internal/token"
)

// A usageBody is the screen that answers whether a budget lasts, who is the cause, and what is spent but not settled.
type usageBody struct {
	Resources   []tab
	Limits      []tab
	Facts       []fact
	What        string // "Spent" or the name of a limit
	Wide, Small template.HTML
	Key         []keyItem
	Rows        []budgetRow
	Against     string // the month before
	CSV         string
	Before      string // the address of the month before
	After       string // and after, "" for the future
	Month       string
	Complete    time.Time // up to when usage is counted
	Zone        string
	Hidden      url.Values
	HiddenTop   url.Values
	Tops        []choice // entities without a parent, and everyone
	All         bool     // everyone is shown
	Left        int      // rows that are not shown
}

// A choice is an option of a select.
type choice struct {
	Text, Value string
	Current     bool
}

type budgetRow struct {
	Colour, Name, URL            string
	Share                        string // "98 % of $8,000"
	Width, HeldX, Held, Tick     string
	Spent, NotSettled, LastsTill string
	Change                       string
	Refused                      int64
	Tag, TagClass                string
	rank                         int
	spent                        float64
}

func (p *page) usage(ctx context.Context, r *http.Request, _ User) (view, error) {
	v := view{Live: true}
	q, tabs, limits, err := p.usageQuery(ctx, r, &v)
	if err != nil || q.resource == "" {
		return v, err
	}
	book, at, err := p.ledgerOf(ctx, q)
	if err != nil {
		return v, err
	}
	v.At = at
	body := &usageBody{Resources: tabs, Limits: limits, All: q.entity == "", Complete: book.complete, Against: q.from.AddDate(0, 0, -1).Format("January"), Zone: q.zone.String(), Month: q.month()}
	v.Body = body
	v.Path = []crumb{{p.Namespace, "/"}, {"usage", "/usage"}, {resourceName(q.resource), q.url("/usage", everyone)}}
	if q.entity != "" {
		v.Path = append(v.Path, crumb{named(q.entity), entityURL(q.entity, oneResource(q.resource))})
	}
	if len(q.tops) > 1 || q.entity == "" || !slices.Contains(q.tops, q.entity) {
		body.Tops = append(body.Tops, choice{"everyone", everyone, q.entity == ""})
		names := slices.Clone(q.tops)
		for i := range book.groups { // some have no bucket any more
			if q.entity == "" {
				names = append(names, book.groups[i].entity)
			}
		}
		if q.entity != "" {
			names = append(names, q.entity)
		}
		for _, name := range names {
			if !slices.ContainsFunc(body.Tops, func(c choice) bool { return c.Value == name }) {
				body.Tops = append(body.Tops, choice{named(name), name, name == q.entity})
			}
		}
	}
	var open []token.OpenLease
	for _, resource := range q.resources {
		open = append(open, p.Leases(resource)...)
	}
	held, err := p.heldBy(ctx, q, book, open)
	if err != nil {
		return v, err
	}
	v.Title = q.month() + " · usage"
	usageHead(&v, q, book)
	usageFacts(body, q, book, held)
	usageRows(body, q, book, held)
	body.What = "Spent"
	if !isMoney(q.limit) {
		body.What = q.limit
	}
	body.Wide, body.Small = drawUsage(q, book, false), drawUsage(q, book, true)
	body.CSV = q.url("/usage.csv", q.entity)
	before, after := *q, *q
	before.from, after.from = q.from.AddDate(0, -1, 0), q.to
	body.Before = before.url("/usage", q.entity)
	if q.to.Before(q.now) {
		body.After = after.url("/usage", q.entity)
	}
	body.Hidden = url.Values{"resource": {q.resource}, "limit": {q.limit}, "month": {q.from.Format("2006-01")}, "entity": {cmp.Or(q.entity, everyone)}}
	body.HiddenTop = url.Values{"resource": {q.resource}, "limit": {q.limit}, "month": {q.from.Format("2006-01")}, "zone": {q.zone.String()}}
	return v, nil
}
