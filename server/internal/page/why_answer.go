package page

import (
	"context"
	"html/template"
	"time"

	"github.com/zlimit/zlimit-go/internal/hindsight"
	"github.com/zlimit/zlimit-go/zlimit"
)

// whyHead answers the question, and says what the limit was.
func (p *page) whyHead(ctx context.Context, v *view, past *past, a *hindsight.Answer) (err error) {
	q := past.q
	name, at := named(q.id), q.text()
	words := whyWords(q.now)
	switch {
	case a.ByLimit() || len(a.During) > 0 && a.Off == nil:
		first := refusedThen{a.During[0]}
		v.Head.say("", "%s ", name)
		v.Head.say("no", "was refused")
		v.Head.say("", " at %s by %s", at, first.limitOf(q))
		v.Lead, err = past.lead(ctx, a.During)
		if a.Off != nil {
			v.Lead += template.HTML(" It was disabled "+words.Span(a.Off)+". ") + past.switchText(a.Off) //nolint:gosec // the words are escaped
		}
		return err
	case a.Off != nil:
		v.Head.say("", "%s ", name)
		v.Head.say("no", "was disabled")
		v.Head.say("", " for %s at %s", named(q.resource), at)
		v.Lead = "Every request was rejected. "
		if !a.Off.Whole() {
			v.Lead = template.HTML("Requests were rejected " + words.Span(a.Off) + words.After(a.Off) + ". ") //nolint:gosec // the words are escaped
		}
		v.Lead += past.switchText(a.Off)
	case a.Bypass != nil:
		v.Head.say("", "%s ", name)
		v.Head.say("low", "was not limited")
		v.Head.say("", " for %s at %s", named(q.resource), at)
		v.Lead = lead("Requests were counted alone. The bypass was at <b>%s</b>%s.", sourceText(a.Bypass.At.Source()), setText(a.Bypass.By, q.now))
	case a.Late != nil:
		v.Head.say("", "%s ", name)
		v.Head.say("no", "was disabled")
		v.Head.say("", " for %s until %s", named(q.resource), words.Second(a.Late.To))
		v.Lead = "A process may reject requests for another minute. " + past.switchText(a.Late)
	case a.Nearest != nil:
		v.Head.say("", "No refusal of %s is reported at %s. ", name, at)
		v.Head.say("low", "The nearest was at %s", a.Nearest.Minute.UTC().Format("15:04"))
		v.Head.say("", ", by %s", (&refusedThen{*a.Nearest}).limitOf(q))
		v.Lead, err = past.lead(ctx, []hindsight.Refused{*a.Nearest})
		return err
	case a.Unlimited:
		v.Head.say("", "No limits of %s for %s were stored at %s", name, named(q.resource), at)
		v.Lead = "Nor were any of what it is charged to. A request needs limits of its own, or ends with an error."
	default:
		v.Head.say("", "No refusal of %s for %s is reported around %s", name, named(q.resource), at)
	}
	return nil
}

// switchText says where a switch was, and who set it and lifted it.
func (p *past) switchText(s *hindsight.Switch) template.HTML {
	return lead("The switch was at <b>%s</b>", p.levelText(s.At)) + template.HTML(whyWords(p.q.now).Author(s)) + "." //nolint:gosec // the words are escaped
}

// levelText names a level, with its entity where that is a parent, and its resource where that is a wider one.
func (p *past) levelText(at zlimit.Level) string {
	text := sourceText(at.Source())
	if at.Entity != "" && at.Entity != p.q.id {
		text = "the level"
		if at.Resource == "" {
			text = "the default level"
		}
		text += " of " + named(at.Entity)
	}
	switch {
	case at.Resource == "" || at.Resource == p.q.resource:
		return text
	case at.Entity == "":
		return "the resource " + named(at.Resource)
	default:
		return text + " for " + named(at.Resource)
	}
}

// lead says how often a limit refused, what it was when it did, and what it is now.
func (p *past) lead(ctx context.Context, during []hindsight.Refused) (template.HTML, error) {
	first := refusedThen{during[0]}
	others := int64(0)
	for i := range during[1:] {
		others += during[i+1].Count
	}
	text := lead("It was refused <b>%s</b> %s", first.times(), first.during())
	if others > 0 {
		text += lead(", and %s by other limits", plural(others, "time"))
	}
	then, err := p.kept.Then(ctx, whyWords(p.q.now), &first.Refused, p.q.at, p.q.now)
	return text + "." + template.HTML(then), err //nolint:gosec // the words are escaped
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

// limitOf names the limit, with its entity if that is a parent, and its resource if that is a wider one.
func (r *refusedThen) limitOf(q *whyQuery) string {
	text := titled(r.Limit)
	if r.LimitEntity != q.id {
		text += " of " + named(r.LimitEntity)
	}
	if r.LimitResource != q.resource {
		text += " for " + named(r.LimitResource)
	}
	return text
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
