package page

import (
	"context"
	"fmt"
	"html/template"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

type treeRow struct {
	Depth     int
	Name, URL string
	Here      bool
	Note      string
}

const shownChildren = 20

// tree shows the parents, the entity and its children.
func (p *page) tree(ctx context.Context, body *entityBody, e zlimit.Entity, stored bool) error {
	chain, err := p.feed.lineage(ctx, e.ParentID)
	if err != nil {
		return err
	}
	slices.Reverse(chain)
	for i, name := range chain {
		body.Tree = append(body.Tree, treeRow{Depth: min(i, 3), Name: named(name), URL: entityURL(name, body.Resource)})
	}
	here := treeRow{Depth: min(len(chain), 3), Name: body.Name, Here: true, Note: "requests are charged to it alone"}
	switch {
	case !stored:
		here.Note = "it is not stored, and has no parent"
	case e.Cascade && e.ParentID != "":
		here.Note = "requests are charged to its parents, too"
	}
	body.Tree = append(body.Tree, here)
	children, err := first(shownChildren+1, p.Limiter.Entities.Children(ctx, body.ID))
	for i, child := range children {
		row := treeRow{Depth: min(len(chain)+1, 3), Name: "and more"}
		if i < shownChildren {
			row.Name, row.URL = named(child.ID), entityURL(child.ID, body.Resource)
		}
		body.Tree = append(body.Tree, row)
	}
	return err
}

// timeline shows what happened: changes, and the hours of the last two days.
func (p *page) timeline(ctx context.Context, body *entityBody, id, resource string) error {
	events, err := first(0, p.Limiter.Audit.Events(ctx, id, zlimit.AuditQuery{Limit: 8, Reverse: true}))
	if err != nil {
		return err
	}
	body.Events = p.items(events, func(c *change) { c.Subject = "" })
	if len(body.Names) == 0 {
		return nil
	}
	limit := body.Names[0]
	if slices.Contains(body.Names, "tpm") {
		limit = "tpm"
	}
	first := zlimit.WindowHourly.Start(p.Now()).Add(-47 * time.Hour)
	hours, err := p.hours(ctx, id, resource, limit, first, 48)
	if err != nil {
		return err
	}
	if total := sum(hours); total > 0 {
		body.HoursText = fmt.Sprintf("%s of %s in 48 hours, by hour in UTC", amount(limit, total), limit)
		body.Hours, body.SmallHours = drawHours(hours, first, limit, body.HoursText, false), drawHours(hours, first, limit, body.HoursText, true)
	}
	return nil
}

// hours returns what an entity used in each of some hours.
func (p *page) hours(ctx context.Context, entity, resource, limit string, first time.Time, n int) ([]float64, error) {
	hours := make([]float64, n)
	q := zlimit.UsageQuery{Entity: entity, Resource: resource, Window: zlimit.WindowHourly, From: first, To: first.Add(time.Duration(n) * time.Hour)}
	for s, err := range p.Limiter.Usage.Snapshots(ctx, q) {
		if err != nil {
			return nil, err
		}
		if i := int(s.Start.Sub(first).Hours()); i >= 0 && i < n {
			hours[i] += max(s.Consumed[limit].Float64(), 0)
		}
	}
	return hours, nil
}

func drawHours(hours []float64, first time.Time, limit, label string, small bool) template.HTML {
	c, width, height, every := chart{left: 48, right: 934, top: 12, bottom: 140, slots: len(hours)}, 940.0, 162.0, 6
	if small {
		c, width, height, every = chart{left: 44, right: 334, top: 12, bottom: 130, slots: len(hours)}, 340, 152, 16
	}
	c.axis(slices.Max(hours), 2, func(v float64) string { return axisAmount(limit, v) })
	c.bars("have", make([]float64, len(hours)), hours)
	for i := 0; i < len(hours); i += every {
		c.text(c.x(float64(i)), c.bottom+16, "", "", first.Add(time.Duration(i)*time.Hour).Format("2 Jan 15:04"))
	}
	return c.svg(width, height, label)
}
