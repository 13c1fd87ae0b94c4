package page

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A whyBody is the screen that answers why an entity was refused at a time.
type whyBody struct {
	ID, Resource, Within string
	At                   string // for the input of a time
	Spans                []tab
	Rows                 []whyRow
	Notes                []string
}

// A whyRow is something that happened around the time.
type whyRow struct {
	When, Tag, Class, Whose, URL, What, By string

	at time.Time
}

// A whyQuery is the question of the screen.
type whyQuery struct {
	id, resource string
	at, end      time.Time // the time, and the end of its minute if no second was asked for
	within       time.Duration
	now          time.Time
}

// window is the time that is looked at.
func (q *whyQuery) window() (from, to time.Time) {
	from, to = q.at.Add(-q.within), q.at.Add(q.within)
	if latest := q.now.Add(time.Minute); to.After(latest) {
		to = latest
	}
	return from, to
}

// text writes the time: a minute has no seconds.
func (q *whyQuery) text() string {
	if q.at.Equal(q.at.Truncate(time.Minute)) && sameDay(q.at, q.now) {
		return q.at.Format("15:04")
	}
	return moment(q.at, q.now, time.UTC)
}

// whySpans are the times before and after a question.
var whySpans = []struct {
	key, text string
	d         time.Duration
}{{"10m", "10 minutes", 10 * time.Minute}, {"1h", "1 hour", time.Hour}, {"6h", "6 hours", 6 * time.Hour}}

func (p *page) why(ctx context.Context, r *http.Request, _ User) (view, error) {
	body := &whyBody{}
	q, err := p.whyQuery(ctx, r, body)
	if err != nil {
		return view{}, err
	}
	v := view{Title: "Why " + named(q.id), Body: body, Path: []crumb{{p.Namespace, "/"}, {"entities", "/entities"}, {named(q.id), entityURL(q.id, q.resource)}, {"why", ""}}}
	e, err := p.Limiter.Entities.Get(ctx, q.id)
	if err != nil && !isNotFound(err) {
		return v, err
	}
	parents, err := p.feed.lineage(ctx, e.ParentID)
	if err != nil {
		return v, err
	}
	past := &past{page: p, q: q, lineage: append([]string{q.id}, parents...), read: map[string][]zlimit.AuditEvent{}}
	refused, err := past.refusals(ctx)
	if err != nil {
		return v, err
	}
	if err := p.whyHead(ctx, &v, past, refused); err != nil {
		return v, err
	}
	for _, of := range refused {
		body.Rows = append(body.Rows, whyRow{at: of.minute, Tag: "refused", Class: "no", Whose: named(of.LimitEntity), URL: entityURL(of.LimitEntity, q.resource), What: of.text()})
	}
	if err := past.changes(ctx, body); err != nil {
		return v, err
	}
	if err := past.usage(ctx, body); err != nil {
		return v, err
	}
	if len(refused) == 0 {
		body.Notes = append(body.Notes, "No refusals of it are reported around this time. Processes report them where they are set to, and reports are kept for seven days by default.")
	}
	body.Rows = append(body.Rows, whyRow{at: q.at, Tag: "asked", What: "the time in question"})
	slices.SortStableFunc(body.Rows, func(a, b whyRow) int { return a.at.Compare(b.at) })
	for i := range body.Rows {
		body.Rows[i].When = moment(body.Rows[i].at, q.now, time.UTC)
	}
	v.Footer = "Times are in UTC. Refusals are by the minute of the first one in a report, by the strictest limit, as processes report them up to two minutes late. Usage is by hour. Limits of that time are as audit events have them."
	return v, nil
}

// whyQuery reads the question, and fills in the form.
func (p *page) whyQuery(ctx context.Context, r *http.Request, body *whyBody) (*whyQuery, error) {
	values := r.URL.Query()
	q := &whyQuery{id: values.Get("id"), now: p.Now().UTC()}
	if q.id == "" {
		return nil, &statusError{http.StatusBadRequest, "Say which entity: id is missing"}
	}
	resource, err := p.entityResources(ctx, r, q.id, &entityBody{})
	if err != nil {
		return nil, err
	}
	if q.resource = resource; resource == "" {
		return nil, &statusError{http.StatusNotFound, "Nothing is limited yet"}
	}
	q.at, q.end = q.now, q.now
	if text := strings.TrimSpace(values.Get("at")); text != "" {
		at, resolution, ok := parseTime(text, q.now)
		if !ok || at.After(q.now) {
			return nil, &statusError{http.StatusBadRequest, fmt.Sprintf("at must be a time in UTC that has come, such as 14:03 or 2026-11-28 14:03, and not %.40q", text)}
		}
		q.at, q.end = at, at.Add(resolution)
	}
	asked := cmp.Or(values.Get("within"), whySpans[0].key)
	body.ID, body.Resource, body.Within, body.At = q.id, q.resource, asked, q.at.Format("2006-01-02 15:04")
	for _, s := range whySpans {
		link := url.Values{"id": {q.id}, "resource": {q.resource}, "at": {cmp.Or(values.Get("at"), body.At)}, "within": {s.key}}
		body.Spans = append(body.Spans, tab{s.text + " around it", "/why?" + link.Encode(), s.key == asked})
		if s.key == asked {
			q.within = s.d
		}
	}
	if q.within == 0 {
		return nil, &statusError{http.StatusBadRequest, fmt.Sprintf("within must be 10m, 1h or 6h, and not %.20q", asked)}
	}
	return q, nil
}

// parseTime reads a time in UTC, to a minute or to a second. A time without a day is the last one of it.
func parseTime(text string, now time.Time) (at time.Time, resolution time.Duration, ok bool) {
	for _, day := range []string{"", "2006-01-02 ", "2006-01-02T"} {
		for clock, resolution := range map[string]time.Duration{"15:04": time.Minute, "15:04:05": 0, "15:04:05Z": 0} {
			at, err := time.Parse(day+clock, text)
			if err != nil {
				continue
			}
			if day == "" {
				at = time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), at.Second(), 0, time.UTC)
				if at.After(now) {
					at = at.AddDate(0, 0, -1)
				}
			}
			return at, resolution, at.Year() >= 2000
		}
	}
	return at, 0, false
}

// whyHead answers the question, and says what the limit was.
func (p *page) whyHead(ctx context.Context, v *view, past *past, refused []refusedThen) error {
	q := past.q
	name, at := named(q.id), q.text()
	off, err := past.off(ctx)
	if err != nil {
		return err
	}
	during, nearest := q.during(refused)
	switch {
	case off != nil && off.off == true:
		v.Head.say("", "%s ", name)
		v.Head.say("no", "was disabled")
		v.Head.say("", " for %s at %s", named(q.resource), at)
		v.Lead = lead("Every request was rejected. The switch was at <b>%s</b>%s.", sourceText(off.source), off.set(q.now))
		return nil
	case len(during) > 0:
		first := during[0]
		v.Head.say("", "%s ", name)
		v.Head.say("no", "was refused")
		v.Head.say("", " at %s by %s", at, first.limitOf(q.id))
		v.Lead, err = p.whyLead(ctx, past, during)
		return err
	case off != nil && off.off == string(zlimit.SwitchBypassed):
		v.Head.say("", "%s ", name)
		v.Head.say("low", "was not limited")
		v.Head.say("", " for %s at %s", named(q.resource), at)
		v.Lead = lead("Requests were counted alone. The bypass was at <b>%s</b>%s.", sourceText(off.source), off.set(q.now))
		return nil
	case nearest != nil:
		v.Head.say("", "No refusal of %s is reported at %s. ", name, at)
		v.Head.say("low", "The nearest was at %s", nearest.minute.UTC().Format("15:04"))
		v.Head.say("", ", by %s", nearest.limitOf(q.id))
		v.Lead, err = p.whyLead(ctx, past, []refusedThen{*nearest})
		return err
	default:
		v.Head.say("", "No refusal of %s for %s is reported around %s", name, named(q.resource), at)
		return nil
	}
}

// whyLead says how often a limit refused, what it was then, and what it is now.
func (p *page) whyLead(ctx context.Context, past *past, during []refusedThen) (text template.HTML, err error) {
	q, first := past.q, during[0]
	others := int64(0)
	for _, of := range during[1:] {
		others += of.Count
	}
	text = lead("It was refused <b>%s</b> %s", first.times(), first.during())
	if others > 0 {
		text += lead(", and %s by other limits", plural(others, "time"))
	}
	text += "."
	then, by, err := past.limit(ctx, first.LimitEntity, first.Limit)
	if err != nil || then == nil {
		return text, err
	}
	text += lead(" The limit was <b>%s</b>%s", limitText(then), by.set(q.now))
	resolved, err := p.Limiter.Limits.Resolve(ctx, first.LimitEntity, q.resource)
	if err != nil && !isNoLimits(err) {
		return text, err
	}
	switch now := limitNamed(resolved.Limits, first.Limit); {
	case now == nil:
		text += ", and is none now."
	case *now != *then:
		text += lead(", and is <b>%s</b> now.", limitText(now))
	default:
		text += ", as now."
	}
	return text, nil
}

// A refusedThen is what a report has of a minute.
type refusedThen struct {
	zlimit.Rejection

	minute, until time.Time
}

// during says in which time it was refused: a minute, except for a process that has had no chance to report.
func (r *refusedThen) during() string {
	if d := r.until.Sub(r.minute); d > 2*time.Minute {
		return "in the " + span(d)
	}
	return "in the minute"
}

// limitOf names the limit, with its entity if that is a parent.
func (r *refusedThen) limitOf(id string) string {
	if r.LimitEntity == id {
		return titled(r.Limit)
	}
	return titled(r.Limit) + " of " + named(r.LimitEntity)
}

// times is how often it was refused, as far as a report knows.
func (r *refusedThen) times() string {
	if r.AtLeast != r.AtMost {
		return grouped(r.AtLeast) + " to " + plural(r.AtMost, "time")
	}
	return plural(r.Count, "time")
}

func (r *refusedThen) text() string {
	return r.times() + " by " + titled(r.Limit) + ", in the minute from here"
}

// during returns the refusals of the time in question, the most frequent first, and otherwise the nearest one. A report that begins in the
// minute before may have them, too.
func (q *whyQuery) during(refused []refusedThen) (during []refusedThen, nearest *refusedThen) {
	for _, back := range []time.Duration{0, time.Minute} {
		minute := q.at.Truncate(time.Minute).Add(-back)
		for i := range refused {
			if !refused[i].minute.After(minute) && minute.Before(refused[i].until) {
				during = append(during, refused[i])
			}
		}
		if len(during) > 0 {
			slices.SortStableFunc(during, func(a, b refusedThen) int { return cmp.Compare(b.Count, a.Count) })
			return during, nil
		}
	}
	for i := range refused {
		if r := &refused[i]; nearest == nil || r.minute.Sub(q.at).Abs() < nearest.minute.Sub(q.at).Abs() {
			nearest = r
		}
	}
	return nil, nearest
}
