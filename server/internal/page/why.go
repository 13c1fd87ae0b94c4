package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/hindsight"
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

	at    time.Time
	whole bool // a minute, which comes after the changes in it, as they may be its cause
}

// order is the time that rows are in the order of.
func (r *whyRow) order() time.Time {
	if r.whole {
		return r.at.Add(time.Minute - time.Nanosecond)
	}
	return r.at
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

func (p *page) why(ctx context.Context, r *http.Request, _ User) (view, error) {
	body := &whyBody{}
	q, err := p.whyQuery(ctx, r, body)
	if err != nil {
		return view{}, err
	}
	v := view{Title: "Why " + named(q.id), Body: body, Path: []crumb{{p.Namespace, "/"}, {"entities", "/entities"}, {named(q.id), entityURL(q.id, q.resource)}, {"why", ""}}}
	past := &past{page: p, q: q, kept: hindsight.New(p.Limiter, q.resource)}
	from, to := q.window()
	reported, err := past.kept.Refusals(ctx, from, to)
	if err != nil {
		return v, err
	}
	refused := hindsight.Of(reported, q.id)
	answer, err := past.kept.Answer(ctx, q.id, refused, q.at, q.end)
	if err != nil {
		return v, err
	}
	past.charged = answer.Charged
	if err := p.whyHead(ctx, &v, past, &answer); err != nil {
		return v, err
	}
	for i := range refused {
		of := refusedThen{refused[i]}
		body.Rows = append(body.Rows, whyRow{at: of.Minute, whole: true, Tag: "refused", Class: "no", Whose: named(of.LimitEntity), URL: entityURL(of.LimitEntity, q.resource), What: of.text()})
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
	body.Rows = append(body.Rows, whyRow{at: q.at, whole: q.end.After(q.at), Tag: "asked", What: "the time in question"})
	slices.SortStableFunc(body.Rows, func(a, b whyRow) int { return a.order().Compare(b.order()) })
	for i := range body.Rows {
		if row := &body.Rows[i]; row.whole && sameDay(row.at, q.now) {
			row.When = row.at.UTC().Format("15:04")
		} else {
			row.When = moment(row.at, q.now, time.UTC)
		}
	}
	v.Footer = "Times are in UTC. Refusals are by the minute of the first one in a report, by the strictest limit, as processes report them up to two minutes late. Usage is by hour. Limits of that minute are as audit events have them."
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
	body.ID, body.Resource, body.At = q.id, q.resource, q.at.Format("2006-01-02 15:04")
	links := url.Values{"id": {q.id}, "resource": {q.resource}, "at": {cmp.Or(values.Get("at"), body.At)}, "within": values["within"]}
	reach, tabs, err := reachOf(around, "/why", links, "within", around[0].key)
	q.within, body.Within, body.Spans = reach.d, reach.key, tabs
	return q, err
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
