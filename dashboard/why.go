package dashboard

import (
	"cmp"
	"context"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
)

// A whyBody is the screen that answers why an entity was refused at a time.
type whyBody struct {
	hindsight.Question
	*hindsight.Explanation

	Within      string
	Input, Text string             // the time, for the form and as it was given
	Rows        []hindsight.Moment // with the time in question, which is nothing else
	Refused     bool               // the limit of First did
	First       *refusedThen       // or the nearest
	Others      int64              // refusals at the time by other limits
	Then        template.HTML      // what the limit was
}

// When writes the time: a minute has no seconds.
func (b *whyBody) When() string {
	if b.At.Equal(b.At.Truncate(time.Minute)) && sameDay(b.At, b.Now) {
		return b.At.Format("15:04")
	}
	return moment(b.At, b.Now, time.UTC)
}

// Moment writes the time of a row.
func (b *whyBody) Moment(m *hindsight.Moment) string {
	minute := m.Refused != nil || m.Used == nil && m.Change == nil && b.End.After(b.At)
	if minute && sameDay(m.Time, b.Now) {
		return m.Time.UTC().Format("15:04")
	}
	return moment(m.Time, b.Now, time.UTC)
}

func (p *page) why(ctx context.Context, q url.Values) (view, error) {
	b, err := p.question(ctx, q)
	if err != nil {
		return view{}, err
	}
	v := view{Body: b}
	if b.Explanation, err = hindsight.Explain(ctx, p.Limiter, b.Question); err != nil {
		return v, err
	}
	b.Rows = slices.Insert(b.Moments, b.Asked, hindsight.Moment{Time: b.At})
	a := &b.Answer
	switch b.Refused = a.ByLimit(); {
	case b.Refused:
		b.First = &refusedThen{a.During[0]}
		for i := range a.During[1:] {
			b.Others += a.During[i+1].Count
		}
	case a.Off == nil && a.Bypass == nil && a.Late == nil && a.Nearest != nil:
		b.First = &refusedThen{*a.Nearest}
	default:
		return v, nil
	}
	b.Then = template.HTML(b.words(template.HTMLEscapeString).Then(&b.First.Refused)) //nolint:gosec // the words are escaped
	return v, nil
}

// question reads the question.
func (p *page) question(ctx context.Context, q url.Values) (*whyBody, error) {
	now := p.Now().UTC()
	b := &whyBody{Question: hindsight.Question{Entity: q.Get("id"), At: now, End: now, Now: now}}
	if b.Entity == "" {
		return nil, errNoEntity
	}
	c, err := p.chooseOf(ctx, q, b.Entity)
	if err != nil {
		return nil, err
	}
	if b.Resource = c.Resource; b.Resource == "" {
		return nil, &statusError{http.StatusNotFound, "Nothing is limited yet"}
	}
	if text := strings.TrimSpace(q.Get("at")); text != "" {
		at, resolution, ok := parseTime(text, now)
		if !ok || at.After(now) {
			return nil, mustBe("at", "a time in UTC that has come, such as 14:03 or 2026-11-28 14:03", text)
		}
		b.At, b.End = at, at.Add(resolution)
	}
	reach, err := reachOf(around, q, "within", around[0].Key)
	b.From, b.To, b.Within = b.At.Add(-reach.d), b.At.Add(reach.d), reach.Key
	b.Input = b.At.Format("2006-01-02 15:04")
	b.Text = cmp.Or(q.Get("at"), b.Input)
	return b, err
}

// words write what a limit was, with what others have said escaped.
func (b *whyBody) words(escape func(string) string) *hindsight.Words {
	return &hindsight.Words{
		Limit:  func(l *zlimit.Limit, _ *hindsight.Level) string { return "<b>" + escape(limitText(l)) + "</b>" },
		Who:    func(e *zlimit.AuditEvent) string { return escape(changeOf(e).Who) },
		Moment: func(t time.Time) string { return moment(t, b.Now, time.UTC) },
		Second: func(t time.Time) string { return t.UTC().Format(time.TimeOnly) },
	}
}

// Words write of switches.
func (b *whyBody) Words() *hindsight.Words { return b.words(func(text string) string { return text }) }

// Bypassed is the bypass that held at the time, as a switch.
func (b *whyBody) Bypassed() *hindsight.Switch { return &hindsight.Switch{Level: *b.Bypass} }

// LevelText names a level, with its entity where that is a parent, and its resource where that is a wider one.
func (b *whyBody) LevelText(at zlimit.Level) string {
	text := sourceText(at.Source())
	if at.Entity != "" && at.Entity != b.Entity {
		text = "the level"
		if at.Resource == "" {
			text = "the default level"
		}
		text += " of " + named(at.Entity)
	}
	switch {
	case at.Resource == "" || at.Resource == b.Resource:
		return text
	case at.Entity == "":
		return "the resource " + named(at.Resource)
	default:
		return text + " for " + named(at.Resource)
	}
}

// A refusedThen writes what a report has of a minute.
type refusedThen struct{ hindsight.Refused }

// During says in which time it was refused: a minute, except for a process that has had no chance to report.
func (r *refusedThen) During() string {
	if d := r.Until.Sub(r.Minute); d > 2*time.Minute {
		return span(d)
	}
	return "minute"
}

// refusedTimes is how often it was refused, as far as a report knows.
func refusedTimes(r *hindsight.Refused) string {
	if r.AtLeast != r.AtMost {
		return grouped(r.AtLeast) + " to " + plural(r.AtMost, "time")
	}
	return plural(r.Count, "time")
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
