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
type whyRow struct{ When, Tag, Class, Whose, URL, What, By string }

// A whyQuery is the question of the screen.
type whyQuery struct {
	id, resource string
	at, end      time.Time // the time, and the end of its minute if no second was asked for
	within       time.Duration
	now          time.Time
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
	line, err := past.kept.Line(ctx, hindsight.Question{Entity: q.id, At: q.at, End: q.end, From: q.at.Add(-q.within), To: q.at.Add(q.within), Now: q.now})
	if err != nil {
		return v, err
	}
	if err := p.whyHead(ctx, &v, past, &line.Answer); err != nil {
		return v, err
	}
	asked := hindsight.Moment{Time: q.at}
	order := q.at
	if q.end.After(q.at) {
		order = hindsight.EndOfMinute(q.at)
	}
	at, _ := slices.BinarySearchFunc(line.Moments, order, func(m hindsight.Moment, t time.Time) int { return cmp.Or(m.Order().Compare(t), -1) })
	for _, m := range slices.Insert(line.Moments, at, asked) {
		body.Rows = append(body.Rows, past.row(&m))
	}
	past.notes(body, line)
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
