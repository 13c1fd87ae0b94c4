package page

import (
	"context"
	"html/template"
	"time"

	"github.com/zlimit/zlimit-go/internal/hindsight"
	"github.com/zlimit/zlimit-go/zlimit"
)

// whyHead answers the question, and says what the limit was.
func (p *page) whyHead(ctx context.Context, v *view, past *past, refused []hindsight.Refused) error {
	q := past.q
	name, at := named(q.id), q.text()
	history, err := past.kept.History(ctx, q.id)
	if err != nil {
		return err
	}
	answer := history.Answer(refused, q.at, q.end)
	off, during, nearest := answer.Off, answer.During, answer.Nearest
	switch {
	case off != nil && off.Off == true:
		v.Head.say("", "%s ", name)
		v.Head.say("no", "was disabled")
		v.Head.say("", " for %s at %s", named(q.resource), at)
		v.Lead = lead("Every request was rejected. The switch was at <b>%s</b>%s.", sourceText(off.At.Source()), setText(off.By, q.now))
		return nil
	case len(during) > 0:
		first := refusedThen{during[0]}
		v.Head.say("", "%s ", name)
		v.Head.say("no", "was refused")
		v.Head.say("", " at %s by %s", at, first.limitOf(q.id))
		v.Lead, err = p.whyLead(ctx, past, during)
		return err
	case off != nil && off.Off == string(zlimit.SwitchBypassed):
		v.Head.say("", "%s ", name)
		v.Head.say("low", "was not limited")
		v.Head.say("", " for %s at %s", named(q.resource), at)
		v.Lead = lead("Requests were counted alone. The bypass was at <b>%s</b>%s.", sourceText(off.At.Source()), setText(off.By, q.now))
		return nil
	case nearest != nil:
		v.Head.say("", "No refusal of %s is reported at %s. ", name, at)
		v.Head.say("low", "The nearest was at %s", nearest.Minute.UTC().Format("15:04"))
		v.Head.say("", ", by %s", (&refusedThen{*nearest}).limitOf(q.id))
		v.Lead, err = p.whyLead(ctx, past, []hindsight.Refused{*nearest})
		return err
	default:
		v.Head.say("", "No refusal of %s for %s is reported around %s", name, named(q.resource), at)
		return nil
	}
}

// whyLead says how often a limit refused, what it was when it did, and what it is now.
func (p *page) whyLead(ctx context.Context, past *past, during []hindsight.Refused) (template.HTML, error) {
	q, first := past.q, refusedThen{during[0]}
	others := int64(0)
	for i := range during[1:] {
		others += during[i+1].Count
	}
	text := lead("It was refused <b>%s</b> %s", first.times(), first.during())
	if others > 0 {
		text += lead(", and %s by other limits", plural(others, "time"))
	}
	text += "."
	history, err := past.kept.History(ctx, first.LimitEntity)
	if err != nil {
		return text, err
	}
	resolved, err := p.Limiter.Limits.Resolve(ctx, first.LimitEntity, q.resource)
	if err != nil && !isNoLimits(err) {
		return text, err
	}
	words := whyWords(q.now)
	stretches := history.Stretches(first.Limit, first.Minute, first.End(q.at, q.now))
	if then := words.Sentence(stretches, limitNamed(resolved.Limits, first.Limit)); then != "" {
		text += " " + template.HTML(then) //nolint:gosec // the words are escaped
	}
	return text, nil
}

// whyWords writes what a limit was, as HTML.
func whyWords(now time.Time) *hindsight.Words {
	return &hindsight.Words{
		Limit:  func(l *zlimit.Limit, _ *hindsight.Level) string { return string(lead("<b>%s</b>", limitText(l))) },
		Who:    func(e *zlimit.AuditEvent) string { return template.HTMLEscapeString(changeOf(e).Who) },
		Moment: func(t time.Time) string { return moment(t, now, time.UTC) },
		Second: func(t time.Time) string { return t.UTC().Format(time.TimeOnly) },
	}
}

// setText says by whom a level was set, beginning with a comma; "" where that is not kept.
func setText(by *zlimit.AuditEvent, now time.Time) string {
	if by == nil {
		return ""
	}
	c := changeOf(by)
	return ", set by " + c.Who + " at " + moment(c.Time, now, time.UTC)
}

// A refusedThen writes what a report has of a minute.
type refusedThen struct{ hindsight.Refused }

// during says in which time it was refused: a minute, except for a process that has had no chance to report.
func (r *refusedThen) during() string {
	if d := r.Until.Sub(r.Minute); d > 2*time.Minute {
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
