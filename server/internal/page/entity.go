package page

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/internal/hindsight"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An entityBody is the screen that answers what an entity may do, why, and what happened to it.
type entityBody struct {
	ID, Name, Resource string
	Resources          []tab
	Limits             []limitRow
	Tree               []treeRow
	Events             []listItem
	Hours, SmallHours  template.HTML
	HoursText          string
	Switch             string // "", "disabled" or "bypassed"
	By                 string // the level that has the switch
	Names              []string
	Operation          string // of the forms
	Done               string
	EditURL            string
	NoLimits           bool
}

type limitRow struct {
	Cell          cell
	Name, Allows  string
	From, FromURL string
	When, Whose   string
	Mine          bool
}

func (p *page) entity(ctx context.Context, r *http.Request, _ User) (view, error) {
	id := r.URL.Query().Get("id")
	if id == "" {
		return view{}, &statusError{http.StatusBadRequest, "Say which entity: id is missing"}
	}
	e, err := p.Limiter.Entities.Get(ctx, id)
	if err != nil && !isNotFound(err) {
		return view{}, err
	}
	stored := err == nil
	body := &entityBody{ID: id, Name: named(id), Operation: rand.Text(), Done: p.done(r)}
	v := view{Live: true, Title: named(id), Body: body, Path: []crumb{{p.Namespace, "/"}, {"entities", "/entities"}, {named(id), ""}}}
	resource, err := p.entityResources(ctx, r, id, body)
	if err != nil {
		return v, err
	}
	if resource == "" {
		v.Head.say("", "%s has no bucket, and nothing is limited yet", named(id))
		return v, nil
	}
	body.Resource = resource
	body.EditURL = editURL(zlimit.Level{Entity: id, Resource: resource})
	resolved, err := p.Limiter.Limits.Resolve(ctx, id, resource)
	if err != nil && !isNoLimits(err) {
		return v, err
	}
	body.NoLimits = err != nil
	switch {
	case resolved.DisabledBy != "":
		body.Switch, body.By = "disabled", sourceText(resolved.DisabledBy)
	case resolved.BypassedBy != "":
		body.Switch, body.By = "bypassed", sourceText(resolved.BypassedBy)
	}
	statuses, err := p.Limiter.Available(ctx, zlimit.AvailableQuery{Entity: id, Resource: resource, Parents: true})
	if errors.Is(err, zlimit.ErrDisabled) {
		statuses, err = p.disabled(ctx, id, resource, &resolved)
	}
	if err != nil && !isNoLimits(err) {
		return v, err
	}
	sources := map[string]zlimit.Source{id: resolved.Source}
	for i := range statuses {
		row, err := p.rowOf(ctx, statuses[i], id, sources)
		if err != nil {
			return v, err
		}
		if body.Switch == "disabled" && row.Cell.Class == "" {
			row.Cell.State, row.Cell.Class = "disabled", "off"
		}
		body.Limits = append(body.Limits, row)
		if statuses[i].Entity == id && statuses[i].Limit.Term == 0 {
			body.Names = append(body.Names, statuses[i].Limit.Name)
		}
	}
	slices.SortStableFunc(body.Limits, func(a, b limitRow) int { return cmp.Compare(btoi(b.Mine), btoi(a.Mine)) })
	if err := p.tree(ctx, body, e, stored); err != nil {
		return v, err
	}
	if err := p.timeline(ctx, body, id, resource); err != nil {
		return v, err
	}
	reported, err := p.feed.rejected(ctx, resource)
	if err != nil {
		return v, err
	}
	refusals := slices.DeleteFunc(together(p.Recent.pulse(resource).Refusals, &reported), func(of refusedBy) bool { return of.entity != id || of.resource != resource })
	p.entityHead(&v, body, statuses, refusals)
	return v, nil
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

// entityResources makes the tabs of resources for which the entity has a bucket, and returns the one to show.
func (p *page) entityResources(ctx context.Context, r *http.Request, id string, body *entityBody) (string, error) {
	names, _, err := once(ctx, &p.feed, "buckets of "+id, 10*time.Second, func(ctx context.Context) ([]string, error) {
		buckets, err := first(0, p.Limiter.Entities.Buckets(ctx, id))
		var names []string
		for i := range buckets {
			names = append(names, buckets[i].Resource)
		}
		slices.Sort(names)
		return slices.Compact(names), err
	})
	if err != nil {
		return "", err
	}
	asked := r.URL.Query().Get("resource")
	if asked == "" && len(names) > 0 {
		asked = names[0]
	}
	if asked == "" {
		all, err := p.feed.resources(ctx)
		if err != nil || len(all) == 0 {
			return "", err
		}
		asked = all[0]
	}
	for _, name := range names {
		body.Resources = append(body.Resources, tab{named(name), entityURL(id, name), name == asked})
	}
	return asked, nil
}

// rowOf makes the row of a limit, with the source of the limits of its entity.
func (p *page) rowOf(ctx context.Context, st zlimit.Status, id string, sources map[string]zlimit.Source) (limitRow, error) {
	if _, ok := sources[st.Entity]; !ok {
		above, err := p.Limiter.Limits.Resolve(ctx, st.Entity, st.Resource)
		if err != nil && !isNoLimits(err) {
			return limitRow{}, err
		}
		sources[st.Entity] = above.Source
	}
	row := p.limitRow(&st, id, sources[st.Entity])
	return row, p.raised(ctx, &row, st)
}

// raised shows the budget of the running period in the row of one that was raised since: the raise holds from the next period on.
func (p *page) raised(ctx context.Context, row *limitRow, st zlimit.Status) error {
	now, is := p.Now(), st.Limit.Capacity
	r, ok, err := hindsight.Raised(ctx, p.Limiter, &st, now)
	if !ok || err != nil {
		return err
	}
	st.Limit.Capacity = r.Least
	row.Cell = statusCell(&st, now)
	tokens := func(n int64) string { return amount(st.Limit.Name, float64(n)) }
	text := fmt.Sprintf("raised to %s, which holds from %s on", tokens(is), moment(st.ResetsAt, now, zoneOf(&st.Limit)))
	if !r.Known() {
		text += fmt.Sprintf("; without usage it is not known what the running period began with: %s to %s", tokens(r.Least), tokens(r.Most))
	}
	row.When = text + "; " + row.When
	return nil
}

func sourceText(s zlimit.Source) string {
	return cmp.Or(map[zlimit.Source]string{
		zlimit.SourceEntity: "its own level", zlimit.SourceEntityDefault: "its default level", zlimit.SourceResource: "the resource",
		zlimit.SourceSystem: "the system", zlimit.SourceDefault: "the program",
	}[s], "no one")
}

func (p *page) limitRow(st *zlimit.Status, id string, source zlimit.Source) limitRow {
	now := p.Now()
	limit := st.Now()
	row := limitRow{
		Cell: statusCell(st, now), Name: limitName(&st.Limit), Allows: limitText(&limit), From: sourceText(source), Mine: st.Entity == id && st.Wider == 0,
	}
	at := zlimit.Level{Resource: st.Resource}
	switch source {
	case zlimit.SourceEntity:
		at.Entity = st.Entity
	case zlimit.SourceEntityDefault:
		at = zlimit.Level{Entity: st.Entity}
	case zlimit.SourceSystem:
		at = zlimit.Level{}
	default:
	}
	row.FromURL = editURL(at)
	if st.Entity != id {
		row.Whose = "of " + named(st.Entity)
		if source == zlimit.SourceEntity || source == zlimit.SourceEntityDefault {
			row.From = "level of " + named(st.Entity)
		}
	}
	if st.Wider > 0 {
		row.Whose += " for " + named(st.Resource)
	}
	row.When = when(st, &limit, now)
	if st.Carried > 0 {
		row.When += "; " + amount(st.Limit.Name, float64(st.Carried)) + " carried from the last period"
	}
	if st.Granted > 0 {
		row.When += "; " + amount(st.Limit.Name, float64(st.Granted)) + " granted on top"
	}
	if st.Limit.Mode == zlimit.ModeShadow {
		row.When += fmt.Sprintf("; would have refused %s", plural(st.Refusals, "request"))
	}
	return row
}

// when says when a limit resets, is full, or is empty.
func when(st *zlimit.Status, limit *zlimit.Limit, now time.Time) (text string) {
	zone := zoneOf(&st.Limit)
	switch {
	case st.Limit.Term > 0:
		text = fmt.Sprintf("%d held by calls under way", st.Held())
	case isBudget(&st.Limit) && !st.ResetsAt.IsZero():
		text = "resets " + moment(st.ResetsAt, now, zone)
		if ends, ok := st.UsedUp(now); ok && st.Available > 0 {
			text = "used up " + moment(ends, now, zone) + " at this pace; " + text
		}
	case st.Queue > 0:
		text = "debt is paid at " + moment(now.Add(st.Queue), now, time.UTC)
	case st.Available < limit.Capacity && limit.RefillAmount > 0 && !isBudget(limit):
		missing := float64(limit.Capacity-st.Available) / float64(limit.RefillAmount)
		text = "full in " + span(time.Duration(missing*float64(limit.RefillPeriod)))
	default:
		text = "full"
	}
	return text
}

// entityHead says whether requests are admitted, and until when not.
func (p *page) entityHead(v *view, body *entityBody, statuses zlimit.Statuses, refusals []refusedBy) {
	v.Head.say("", "%s ", body.Name)
	switch {
	case body.Switch == "disabled":
		v.Head.say("no", "is disabled")
		v.Head.say("", " for %s", named(body.Resource))
		v.Lead = lead("Every request is rejected. The switch is at <b>%s</b>.", body.By)
		return
	case body.Switch == "bypassed":
		v.Head.say("low", "is not limited")
		v.Head.say("", " for %s: requests are counted alone", named(body.Resource))
		v.Lead = lead("The bypass is at <b>%s</b>.", body.By)
		return
	case body.NoLimits:
		v.Head.say("no", "has no limits")
		v.Head.say("", " for %s, so its requests fail", named(body.Resource))
		return
	}
	var worst *zlimit.Status
	for i := range statuses {
		if st := &statuses[i]; st.Limit.Mode == zlimit.ModeEnforced && (worst == nil || cmp.Or(cmp.Compare(shareOf(st), shareOf(worst)), cmp.Compare(st.Available, worst.Available)) < 0) {
			worst = st
		}
	}
	causes, refused := causesOf(refusals)
	lead1 := "Nothing was refused in the last minute."
	if refused > 0 {
		lead1 = fmt.Sprintf("%s refused in the last minute.", plural(refused, "request was"))
	}
	rank, lowest := rankOf(statuses, false, false, refused, p.Now())
	switch {
	case rank == rankRefuses:
		of := &causes[0]
		v.Head.say("no", "is refused")
		name, until := of.limit, p.until(nil, of)
		for i := range statuses {
			if st := &statuses[i]; st.Limit.Name == of.limit && st.Entity == of.limitEntity {
				name, until = whose(st, body.ID), p.until(st, of)
			}
		}
		v.Head.say("", " by %s%s", name, until)
	case worst == nil:
		v.Head.say("", "has no limit that refuses for %s", named(body.Resource))
	case worst.Available <= 0:
		v.Head.say("no", "is out of %s", whose(worst, body.ID))
		of := refusedBy{Requested: 1}
		if at, ok := p.better(worst, &of); ok {
			v.Head.say("", " until %s", moment(at, p.Now(), zoneOf(&worst.Limit)))
		} else {
			v.Head.say("", ", which comes back within seconds")
		}
	case rank == rankLow:
		for i := range statuses {
			if st := &statuses[i]; counts(st, p.Now()) && shareOf(st) == lowest {
				worst = st
			}
		}
		v.Head.say("low", "runs low on %s", whose(worst, body.ID))
		v.Head.say("", ": %s left", amount(worst.Limit.Name, float64(worst.Available)))
	default:
		v.Head.say("", "has room for %s", named(body.Resource))
		lead1 += fmt.Sprintf(" The narrowest is %s, of which %s is left.", whose(worst, body.ID), percent(shareOf(worst)))
	}
	v.Lead = lead("%s", lead1)
}

// whose names a limit, with its entity if that is a parent.
func whose(st *zlimit.Status, id string) string {
	if st.Entity == id {
		return limitName(&st.Limit)
	}
	return limitName(&st.Limit) + " of " + named(st.Entity)
}
