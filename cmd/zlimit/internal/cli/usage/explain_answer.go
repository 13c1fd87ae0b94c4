package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/hindsight"
	"github.com/zlimit/zlimit-go/zlimit"
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

// answer says what refused at the time, how often, what that limit was then, and what it is now.
func answer(ctx context.Context, l *zlimit.RateLimiter, past *hindsight.Past, t *TimeLine, refused []hindsight.Refused, now time.Time) (string, error) {
	history, err := past.History(ctx, t.Entity)
	if err != nil {
		return "", err
	}
	asked := Moment{Time: t.At, Kind: kindAsked}
	at := asked.when()
	a := history.Answer(refused, t.At, asked.order())
	switch {
	case a.Off != nil && a.Off.Off == true:
		return fmt.Sprintf("%s was disabled for %s at %s: every request was rejected. The switch was at %s%s.", t.Entity, t.Resource, at, a.Off.At, setBy(a.Off)), nil
	case len(a.During) > 0:
		first := &a.During[0]
		then, err := limitThen(ctx, l, past, first, t, now)
		return fmt.Sprintf("%s was refused at %s by limit %s: %s.%s", first.Entity, at, refusing(first), often(a.During), then), err
	case a.Off != nil && a.Off.Off == string(zlimit.SwitchBypassed):
		return fmt.Sprintf("%s was not limited for %s at %s. The bypass was at %s%s.", t.Entity, t.Resource, at, a.Off.At, setBy(a.Off)), nil
	case a.Nearest != nil:
		r := a.Nearest
		then, err := limitThen(ctx, l, past, r, t, now)
		return fmt.Sprintf("No refusal of %s for %s is reported at %s. The nearest was at %s: limit %s refused %s %s.%s", t.Entity, t.Resource, at,
			r.Minute.UTC().Format("2006-01-02 15:04"), refusing(r), r.Entity, often([]hindsight.Refused{*r}), then), err
	default:
		return fmt.Sprintf("No refusal of %s for %s is reported from %s to %s.", t.Entity, t.Resource, t.From.Format(time.DateTime), t.To.Format(time.DateTime)), nil
	}
}

// refusing names the limit, with its entity if that is a parent.
func refusing(r *hindsight.Refused) string {
	if r.LimitEntity == r.Entity {
		return r.Limit
	}
	return r.Limit + " of " + r.LimitEntity
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

// limitThen says what a limit was when it refused, and what it is now. It begins with a space.
func limitThen(ctx context.Context, l *zlimit.RateLimiter, past *hindsight.Past, r *hindsight.Refused, t *TimeLine, now time.Time) (string, error) {
	history, err := past.History(ctx, r.LimitEntity)
	if err != nil {
		return "", err
	}
	resolved, err := l.Limits.Resolve(ctx, r.LimitEntity, t.Resource)
	if err != nil && !errors.Is(err, zlimit.ErrNoLimits) {
		return "", err
	}
	var present *zlimit.Limit
	if i := slices.IndexFunc(resolved.Limits, func(of zlimit.Limit) bool { return of.Name == r.Limit }); i >= 0 {
		present = &resolved.Limits[i]
	}
	words := hindsight.Words{
		Limit: func(l *zlimit.Limit, level *hindsight.Level) string {
			_, text, _ := strings.Cut(l.String(), "=")
			if level != nil {
				text += " (" + level.At.String() + ")"
			}
			return text
		},
		Who:    func(e *zlimit.AuditEvent) string { return e.Principal },
		Moment: func(t time.Time) string { return t.UTC().Format(time.DateTime) },
		Second: func(t time.Time) string { return t.UTC().Format(time.TimeOnly) },
	}
	if text := words.Sentence(history.Stretches(r.Limit, r.Minute, r.End(t.At, now)), present); text != "" {
		return " " + text, nil
	}
	return "", nil
}

// setBy says by whom and when a level was set, beginning with a comma.
func setBy(level *hindsight.Level) string {
	switch by := level.By; {
	case by == nil:
		return ""
	case by.Principal == "":
		return ", set at " + by.Time.UTC().Format(time.DateTime)
	default:
		return ", set by " + by.Principal + " at " + by.Time.UTC().Format(time.DateTime)
	}
}

// known returns an error where the entity has neither a moment of its own nor a record, limits, a bucket or an event.
func (t *TimeLine) known(ctx context.Context, l *zlimit.RateLimiter) error {
	if slices.ContainsFunc(t.Moments, func(m Moment) bool { return m.Level.Entity == t.Entity || m.Entity == t.Entity }) {
		return nil
	}
	if _, err := l.Entities.Get(ctx, t.Entity); !errors.Is(err, zlimit.ErrEntityNotFound) {
		return err
	}
	for _, err := range l.Limits.List(ctx, zlimit.LevelQuery{Entity: t.Entity, NamesOnly: true}) {
		return err
	}
	for _, err := range l.Entities.Buckets(ctx, t.Entity) {
		return err
	}
	for _, err := range l.Audit.Events(ctx, t.Entity, zlimit.AuditQuery{Limit: 1}) {
		return err
	}
	return fmt.Errorf("%w: nothing is known of entity %q", zlimit.ErrEntityNotFound, t.Entity)
}
