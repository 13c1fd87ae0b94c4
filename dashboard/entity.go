package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
	"github.com/zlimit/zlimit-go/zlimit/ledger"
	"github.com/zlimit/zlimit-go/zlimit/recent"
)

// An entityBody is the screen that answers what an entity may do, why, and what happened to it.
type entityBody struct {
	choice

	ID        string
	Resolved  zlimit.Resolved
	NoLimits  bool
	Limits    []limitRow
	Parents   []string // the topmost first
	Children  []zlimit.Entity
	Stored    bool
	Cascade   bool // whether its requests are charged to parents
	Events    []change
	Hours     charts
	Used      float64 // in these hours, of a limit
	UsedOf    string
	Names     []string // of limits that can be topped up
	Operation string   // of the forms
	Done      string
	Refused   int64          // in the last minute
	Cause     *recent.Cause  // which refuses most
	Low       bool           // the narrowest limit runs low
	Narrowest *zlimit.Status // of those that refuse
	Until     time.Time      // when it has room, if it has none
}

// A limitRow is where a limit stands, and where it comes from.
type limitRow struct {
	*zlimit.Status
	Cell   cell
	Source zlimit.Source
	At     zlimit.Level // of the source
	Raised *hindsight.Raise
	Ends   time.Time // when a budget is used up, at the pace of the period
	Full   time.Duration
}

func (p *page) entity(ctx context.Context, q url.Values) (view, error) {
	id := q.Get("id")
	if id == "" {
		return view{}, errNoEntity
	}
	e, err := p.Limiter.Entities.Get(ctx, id)
	if err != nil && !isNotFound(err) {
		return view{}, err
	}
	body := &entityBody{ID: id, Operation: rand.Text(), Done: q.Get("done"), Stored: err == nil, Cascade: e.Cascade && e.ParentID != ""}
	v := view{Body: body}
	if body.choice, err = p.chooseOf(ctx, q, id); err != nil || body.Resource == "" {
		return v, err
	}
	statuses, err := p.limitsOf(ctx, body)
	if err == nil {
		err = p.related(ctx, body, e.ParentID)
	}
	if err != nil {
		return v, err
	}
	pulse := p.Recent.Of(body.Resource)
	refusals, err := p.refusals(ctx, body.Resource, &pulse)
	p.verdict(body, statuses, refusals)
	return v, err
}

var errNoEntity = bad("Say which entity: id is missing")

// limitsOf reads where the limits of an entity stand, and where they come from: its own first.
func (p *page) limitsOf(ctx context.Context, body *entityBody) (statuses zlimit.Statuses, err error) {
	body.Resolved, err = p.Limiter.Limits.Resolve(ctx, body.ID, body.Resource)
	if body.NoLimits = err != nil; err != nil && !isNoLimits(err) {
		return nil, err
	}
	statuses, err = p.Limiter.Available(ctx, zlimit.AvailableQuery{Entity: body.ID, Resource: body.Resource, Parents: true})
	if errors.Is(err, zlimit.ErrDisabled) {
		statuses, err = p.disabled(ctx, body.ID, body.Resource, &body.Resolved)
	}
	if err != nil && !isNoLimits(err) {
		return nil, err
	}
	sources := map[string]zlimit.Source{body.ID: body.Resolved.Source}
	for i := range statuses {
		st := &statuses[i]
		row, err := p.limitRow(ctx, st, sources)
		if err != nil {
			return nil, err
		}
		if body.Resolved.DisabledBy != "" && row.Cell.Class == "" {
			row.Cell.State, row.Cell.Class = "disabled", "off"
		}
		body.Limits = append(body.Limits, row)
		if st.Entity == body.ID && st.Limit.Term == 0 {
			body.Names = append(body.Names, st.Limit.Name)
		}
	}
	slices.SortStableFunc(body.Limits, func(a, b limitRow) int {
		return btoi(b.Entity == body.ID && b.Wider == 0) - btoi(a.Entity == body.ID && a.Wider == 0)
	})
	return statuses, nil
}

// verdict finds what refuses the entity, or else its narrowest limit.
func (p *page) verdict(body *entityBody, all zlimit.Statuses, refusals []recent.Refused) {
	causes, refused := p.causes(slices.DeleteFunc(refusals, func(of recent.Refused) bool { return of.Entity != body.ID || of.Resource != body.Resource }), []zlimit.Bucket{{Statuses: all}})
	if body.Refused = refused; refused > 0 {
		body.Cause = &causes[0]
	}
	for i := range all {
		st, least := &all[i], body.Narrowest
		if st.Limit.Mode == zlimit.ModeEnforced && (least == nil || cmp.Or(cmp.Compare(shareOf(st), shareOf(least)), cmp.Compare(st.Available, least.Available)) < 0) {
			body.Narrowest = st
		}
	}
	rank, lowest := rankOf(all, false, false, refused, p.Now())
	switch body.Low = rank == rankLow; {
	case body.Narrowest == nil:
	case body.Narrowest.Available <= 0:
		body.Until = recent.RoomAt(body.Narrowest, &recent.Refused{Requested: 1}, p.Now())
	case body.Low:
		body.Narrowest = lowest
	}
}

// disabled returns where the limits of an entity stand that may not use them: as its bucket has them, or full without one.
func (p *page) disabled(ctx context.Context, id, resource string, resolved *zlimit.Resolved) (zlimit.Statuses, error) {
	buckets, err := p.bucketsOf(ctx, zlimit.Level{Entity: id, Resource: resource})
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(buckets, func(b zlimit.Bucket) bool { return len(b.Statuses) > 0 }); i >= 0 {
		return buckets[i].Statuses, nil
	}
	var statuses zlimit.Statuses
	for _, l := range resolved.Limits {
		statuses = append(statuses, zlimit.Status{Entity: id, Resource: resource, Limit: l, Available: l.Capacity})
	}
	return statuses, nil
}

// chooseOf returns the resource to show of an entity, and those for which it has a bucket.
func (p *page) chooseOf(ctx context.Context, q url.Values, id string) (c choice, err error) {
	c.Tabs, err = once(ctx, p.feed, "buckets of "+id, 10*time.Second, func(ctx context.Context) (names []string, err error) {
		buckets, err := first(0, p.Limiter.Entities.Buckets(ctx, id))
		for i := range buckets {
			names = append(names, buckets[i].Resource)
		}
		slices.Sort(names)
		return slices.Compact(names), err
	})
	known := c.Tabs
	if c.Resource = q.Get("resource"); err == nil && c.Resource == "" && len(known) == 0 {
		known, err = p.feed.resources(ctx)
	}
	if err == nil && c.Resource == "" && len(known) > 0 {
		c.Resource = known[0]
	}
	return c, err
}

// limitRow makes the row of a limit. The sources of the limits of entities are looked up once each. A budget that was raised is shown with that
// of the running period: the raise holds from the next period on.
func (p *page) limitRow(ctx context.Context, st *zlimit.Status, sources map[string]zlimit.Source) (row limitRow, err error) {
	source, ok := sources[st.Entity]
	if !ok {
		above, err := p.Limiter.Limits.Resolve(ctx, st.Entity, st.Resource)
		if err != nil && !isNoLimits(err) {
			return row, err
		}
		source = above.Source
		sources[st.Entity] = source
	}
	now := p.Now()
	row = limitRow{Status: st, Cell: statusCell(st, now), Source: source}
	if source == zlimit.SourceEntity || source == zlimit.SourceEntityDefault {
		row.At.Entity = st.Entity
	}
	if source != zlimit.SourceEntityDefault && source != zlimit.SourceSystem {
		row.At.Resource = st.Resource
	}
	if ends, ok := st.UsedUp(now); ok && st.Available > 0 {
		row.Ends = ends
	}
	if limit := st.Now(); st.Available < limit.Capacity && limit.RefillAmount > 0 && !isBudget(&limit) {
		row.Full = time.Duration(float64(limit.Capacity-st.Available) / float64(limit.RefillAmount) * float64(limit.RefillPeriod))
	}
	raise, ok, err := hindsight.Raised(ctx, p.Limiter, st, now)
	if ok {
		began := *st
		began.Limit.Capacity = raise.Least
		row.Raised, row.Cell = &raise, statusCell(&began, now)
	}
	return row, err
}

func sourceText(s zlimit.Source) string {
	return cmp.Or(map[zlimit.Source]string{
		zlimit.SourceEntity: "its own level", zlimit.SourceEntityDefault: "its default level", zlimit.SourceResource: "the resource",
		zlimit.SourceSystem: "the system", zlimit.SourceDefault: "the program",
	}[s], "no one")
}

const shownChildren = 20

// related reads the parents, the children, what happened, and the hours of the last two days.
func (p *page) related(ctx context.Context, body *entityBody, parent string) (err error) {
	if body.Parents, err = p.feed.lineage(ctx, parent); err != nil {
		return err
	}
	slices.Reverse(body.Parents)
	if body.Children, err = first(shownChildren+1, p.Limiter.Entities.Children(ctx, body.ID)); err != nil {
		return err
	}
	body.Events, err = changesOf(p.Limiter.Audit.Events(ctx, body.ID, zlimit.AuditQuery{Limit: 8, Reverse: true}))
	if err != nil || len(body.Names) == 0 {
		return err
	}
	body.UsedOf = mainLimit(body.Names)
	first := zlimit.WindowHourly.Start(p.Now()).Add(-47 * time.Hour)
	hours, err := p.hours(ctx, body.ID, body.Resource, body.UsedOf, first, 48)
	if body.Used = sum(hours); body.Used > 0 {
		body.Hours = drawHours(hours, first, body.UsedOf)
	}
	return err
}

// hours returns what an entity used in each of some hours.
func (p *page) hours(ctx context.Context, entity, resource, limit string, first time.Time, n int) ([]float64, error) {
	q := zlimit.UsageQuery{Entity: entity, Resource: resource, Window: zlimit.WindowHourly, From: first, To: first.Add(time.Duration(n) * time.Hour)}
	series, err := ledger.ReadSeries(ctx, p.Limiter, q)
	if err != nil {
		return nil, err
	}
	hours := make([]float64, n)
	for i, used := range series.By[limit][entity] {
		hours[i] = max(used.Float64(), 0)
	}
	return hours, nil
}

func drawHours(hours []float64, first time.Time, limit string) charts {
	wide := &chart{left: 48, right: 934, top: 12, bottom: 140, slots: len(hours), width: 940, height: 162}
	small := &chart{left: 44, right: 334, top: 12, bottom: 130, slots: len(hours), width: 340, height: 152}
	return drawTwice(fmt.Sprintf("%s of %s in 48 hours, by hour in UTC", amount(limit, sum(hours)), limit), wide, small, func(c *chart) {
		c.axis(slices.Max(hours), 2, func(v float64) string { return axisAmount(limit, v) })
		stacked([]string{"have"}, [][]float64{hours}, c.bars)
		every := 6
		if c.small {
			every = 16
		}
		for i := 0; i < len(hours); i += every {
			c.text(c.x(float64(i)), c.bottom+16, "", "", first.Add(time.Duration(i)*time.Hour).Format("2 Jan 15:04"))
		}
	})
}
