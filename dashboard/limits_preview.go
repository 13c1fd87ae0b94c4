package dashboard

import (
	"cmp"
	"context"
	"net/url"
	"slices"

	"github.com/zlimit/zlimit-go/zlimit"
)

const (
	mostPreviewed  = 2000 // buckets
	shownPreviewed = 12
)

// A previewBody is what a change would do.
type previewBody struct {
	editBody

	Diff                 []diffRow
	Buckets, Left, Tight int
	Rows                 []feltRow
	Nothing, Partly      bool
}

// A feltRow is a bucket with the limits that change, after the change.
type feltRow struct {
	*zlimit.Bucket
	Cells []cell
	Tag   tag
	share float64 // of the lowest limit
}

type diffRow struct{ Name, Was, Is, Class, Word string }

func (p *page) previewLimits(ctx context.Context, q url.Values) (view, error) {
	body := &previewBody{}
	next, err := parseLimits(q.Get("limits"))
	if err == nil {
		body.editBody, err = p.edited(ctx, levelOf(q))
	}
	if err == nil && q.Get("before") != body.Before {
		err = errStale
	}
	if err != nil {
		return p.again(ctx, q, err)
	}
	body.Text, body.Diff = q.Get("limits"), diffOf(body.Config.Limits, next)
	body.Nothing = !slices.ContainsFunc(body.Diff, func(d diffRow) bool { return d.Word != "stays" })
	return view{Body: body}, p.preview(ctx, body, next)
}

// diffOf says how limits differ, those that stay the same last.
func diffOf(was, is []zlimit.Limit) (rows []diffRow) {
	for i := range is {
		old, row := limitNamed(was, is[i].Name), diffRow{Name: is[i].Name, Is: is[i].String(), Word: "new"}
		switch {
		case old == nil:
		case *old == is[i]:
			row.Word, row.Class = "stays", "off"
		default:
			row.Was = old.String()
			row.Word = map[int]string{-1: "falls", 0: "changes", 1: "rises"}[cmp.Compare(is[i].Capacity, old.Capacity)]
			row.Class = map[bool]string{false: "low"}[row.Word == "rises"]
		}
		rows = append(rows, row)
	}
	for i := range was {
		if limitNamed(is, was[i].Name) == nil {
			rows = append(rows, diffRow{Name: was[i].Name, Was: was[i].String(), Word: "goes", Class: "no"})
		}
	}
	slices.SortStableFunc(rows, func(a, b diffRow) int { return btoi(a.Word == "stays") - btoi(b.Word == "stays") })
	return rows
}

// preview finds the buckets that a level is for, and what they have left under other limits.
func (p *page) preview(ctx context.Context, body *previewBody, next []zlimit.Limit) error {
	buckets, err := p.bucketsOf(ctx, body.Level)
	if err != nil {
		return err
	}
	body.Partly = len(buckets) == mostPreviewed
	for i := range buckets {
		covered, err := p.covered(ctx, body.Level, &buckets[i])
		if err != nil {
			return err
		}
		if !covered {
			continue
		}
		body.Buckets++
		if row := p.felt(&buckets[i], next); len(row.Cells) > 0 {
			body.Rows = append(body.Rows, row)
			body.Tight += btoi(row.share <= 0)
		}
	}
	slices.SortStableFunc(body.Rows, func(a, b feltRow) int { return cmp.Compare(a.share, b.share) })
	shown := min(len(body.Rows), shownPreviewed)
	body.Rows, body.Left = body.Rows[:shown], len(body.Rows)-shown
	return nil
}

// felt returns what a bucket has left under other limits.
func (p *page) felt(b *zlimit.Bucket, next []zlimit.Limit) feltRow {
	row := feltRow{Bucket: b, share: 1, Tag: tag{"keeps room", ""}}
	for _, st := range b.Statuses {
		l := limitNamed(next, st.Limit.Name)
		if l == nil || *l == st.Limit {
			continue
		}
		st.Limit, st.Window, st.Available = *l, nil, min(st.Available, l.Capacity)
		c := statusCell(&st, p.Now())
		c.Column = l.Name
		row.Cells = append(row.Cells, c)
		if l.Mode == zlimit.ModeEnforced {
			row.share = min(row.share, shareOf(&st))
		}
	}
	switch {
	case row.share <= 0:
		row.Tag = tags[rankRefuses]
	case row.share < lowShare:
		row.Tag = tags[rankLow]
	}
	return row
}

// SaveCost is what docs and LimitService say: two units for each item of a transaction, and one for the index of the event; a new level
// has a registry, and an index more.
func (b *previewBody) SaveCost() string {
	switch {
	case b.Nothing:
		return "nothing"
	case b.Exists():
		return "about 5"
	case b.Level.Entity != "":
		return "about 9"
	default:
		return "about 8"
	}
}

func (p *page) bucketsOf(ctx context.Context, at zlimit.Level) (all []zlimit.Bucket, err error) {
	if at.Entity != "" {
		all, err = first(0, p.Limiter.Entities.Buckets(ctx, at.Entity))
		return slices.DeleteFunc(all, func(b zlimit.Bucket) bool { return at.Resource != "" && b.Resource != at.Resource }), err
	}
	resources := []string{at.Resource}
	if at.Resource == "" {
		if resources, err = p.feed.resources(ctx); err != nil {
			return nil, err
		}
	}
	for _, resource := range resources {
		read, err := p.feed.buckets(ctx, resource)
		if err != nil {
			return nil, err
		}
		all = append(all, read.Buckets[:min(len(read.Buckets), mostPreviewed-len(all))]...)
	}
	return all, nil
}

// covered reports whether the limits of a bucket come from a level, or would.
func (p *page) covered(ctx context.Context, at zlimit.Level, b *zlimit.Bucket) (bool, error) {
	resolved, err := p.Limiter.Limits.Resolve(ctx, b.Entity, b.Resource)
	if isNoLimits(err) {
		return true, nil
	}
	order := []zlimit.Source{zlimit.SourceEntity, zlimit.SourceEntityDefault, zlimit.SourceResource, zlimit.SourceSystem}
	return err == nil && (resolved.Source == zlimit.SourceDefault || slices.Index(order, at.Source()) <= slices.Index(order, resolved.Source)), err
}
