package usage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
)

// parseClock parses a TIME, or the time of a clock in UTC, which is the last one of it.
func parseClock(text string, now time.Time) (time.Time, bool) {
	for _, form := range []string{"15:04", "15:04:05"} {
		clock, err := time.Parse(form, text)
		if err != nil {
			continue
		}
		now = now.UTC()
		at := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), clock.Second(), 0, time.UTC)
		if at.After(now) {
			at = at.AddDate(0, 0, -1)
		}
		return at, true
	}
	return shell.ParseMoment(text, now)
}

// answerText says what refused at the time, how often, what that limit was then, and what it is now.
func answerText(t *TimeLine, a *hindsight.Answer, at string) string {
	words := explainWords()
	switch {
	case a.ByLimit():
		first := &a.During[0]
		text := fmt.Sprintf("%s was refused at %s by limit %s: %s.%s", first.Entity, at, refusing(first), often(a.During), words.Then(first))
		if a.Off != nil {
			text += " " + switchedText(words, t, a.Off, at)
		}
		return text
	case a.Off != nil:
		return switchedText(words, t, a.Off, at) + alsoRefused(a.During)
	case a.Bypass != nil:
		return fmt.Sprintf("%s was not limited for %s at %s. The bypass was at %s%s.", t.Entity, t.Resource, at, a.Bypass.At, words.Author(&hindsight.Switch{Level: *a.Bypass}))
	case a.Late != nil:
		return fmt.Sprintf("%s was disabled for %s until %s, and a process may reject requests for another minute. The switch was at %s%s.",
			t.Entity, t.Resource, words.Second(a.Late.To), a.Late.At, words.Author(a.Late))
	case a.Nearest != nil:
		r := a.Nearest
		return fmt.Sprintf("No refusal of %s for %s is reported at %s. The nearest was at %s: limit %s refused %s %s.%s", t.Entity, t.Resource, at,
			r.Minute.UTC().Format("2006-01-02 15:04"), refusing(r), r.Entity, often([]hindsight.Refused{*r}), words.Then(r))
	case a.Unlimited:
		return fmt.Sprintf("No limits of %s for %s were stored at %s, nor any of what it is charged to: a request needs limits of its own, or ends with an error.",
			t.Entity, t.Resource, at)
	default:
		return fmt.Sprintf("No refusal of %s for %s is reported from %s to %s.", t.Entity, t.Resource, t.From.Format(time.DateTime), t.To.Format(time.DateTime))
	}
}

// switchedText says that a switch rejected requests, and when.
func switchedText(words *hindsight.Words, t *TimeLine, s *hindsight.Switch, at string) string {
	text := fmt.Sprintf("%s was disabled for %s at %s: every request was rejected.", t.Entity, t.Resource, at)
	if !s.Whole() {
		text = fmt.Sprintf("%s was disabled for %s at %s, %s: requests were rejected then%s.", t.Entity, t.Resource, at, words.Span(s), words.After(s))
	}
	return text + fmt.Sprintf(" The switch was at %s%s.", s.At, words.Author(s))
}

// alsoRefused says that limits refused beside a switch. It begins with a space.
func alsoRefused(during []hindsight.Refused) string {
	if len(during) == 0 {
		return ""
	}
	return fmt.Sprintf(" In that minute limit %s refused %s %s.", refusing(&during[0]), during[0].Entity, often(during))
}

// explainWords writes limits as commands take them, with dollars marked, and times in UTC.
func explainWords() *hindsight.Words {
	return &hindsight.Words{
		Limit: func(l *zlimit.Limit, level *hindsight.Level) string {
			_, text, _ := strings.Cut(l.String(), "=")
			if l.Name == grammar.Money {
				text = "$" + text
			}
			if level != nil {
				text += " (" + level.At.String() + ")"
			}
			return text
		},
		Who:    func(e *zlimit.AuditEvent) string { return e.Principal },
		Moment: func(t time.Time) string { return t.UTC().Format(time.DateTime) },
		Second: func(t time.Time) string { return t.UTC().Format(time.TimeOnly) },
	}
}

// refusing names the limit, with its entity and its resource if the request has others.
func refusing(r *hindsight.Refused) string {
	text := r.Limit
	if r.LimitEntity != r.Entity {
		text += " of " + r.LimitEntity
	}
	if r.LimitResource != r.Resource {
		text += " for " + r.LimitResource
	}
	return text
}

// refusingFor names the limit, with its resource if that is a wider one.
func refusingFor(r *hindsight.Refused) string {
	own := *r
	own.LimitEntity = own.Entity
	return refusing(&own)
}

// often is how often the first of some refusals occurred, and the others.
func often(during []hindsight.Refused) string {
	others := int64(0)
	for i := range during[1:] {
		others += during[i+1].Count
	}
	text := times(&during[0], "time") + " in that minute"
	if others > 0 {
		text += ", and " + show.Counted(int(others), "time") + " by other limits or entities"
	}
	return text
}

// times counts refusals, as far as a report knows.
func times(r *hindsight.Refused, unit string) string {
	if r.AtLeast != r.AtMost {
		return fmt.Sprintf("%s to %s", show.Grouped(r.AtLeast), show.Counted(int(r.AtMost), unit))
	}
	return show.Counted(int(r.Count), unit)
}

// noteUnknown notes that the entity has neither a moment of its own nor a record, limits, a bucket, an event or usage.
func (t *TimeLine) noteUnknown(ctx context.Context, l *zlimit.RateLimiter, now time.Time) error {
	if slices.ContainsFunc(t.Moments, func(m Moment) bool { return m.Level.Entity == t.Entity || m.Entity == t.Entity }) {
		return nil
	}
	if known, err := isKnown(ctx, l, t.Entity, now); known || err != nil {
		return err
	}
	t.Notes = append(t.Notes, fmt.Sprintf("nothing is known of entity %s: no request of it was admitted, and it has no record, limits, changes or usage", t.Entity))
	return nil
}
