package hindsight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// An Answer says what refused at a time: a switch or limits, or else the nearest limit.
type Answer struct {
	Charged

	Off       *Switch // which rejected requests then; nil for none
	Late      *Switch // which was lifted less than [Lag] before; nil where something refused
	During    []Refused
	Nearest   *Refused
	Bypass    *Level // which let requests pass then; nil for none
	Unlimited bool   // nothing that requests are charged to had limits
}

// ByLimit reports whether limits refused before any switch did.
func (a *Answer) ByLimit() bool { return len(a.During) > 0 && (a.Off == nil || !a.Off.From.IsZero()) }

// Answer says what refused requests of an entity from a time to the end of its minute, or at a moment. The refusals are of the entity,
// or by it. It makes the calls of [Past.History] for each bucket that requests were charged to.
func (p *Past) Answer(ctx context.Context, entity string, refused []Refused, at, end time.Time) (a Answer, err error) {
	if a.Charged, err = p.Charged(ctx, entity, at, end); err != nil {
		return a, err
	}
	a.During, a.Nearest = During(refused, at)
	a.Unlimited = true
	for i, level := range a.Levels() {
		h, err := p.History(ctx, level.Entity, level.Resource)
		if err != nil {
			return a, err
		}
		if s := h.disabled(at, end); s != nil {
			s.Passing = slices.Contains(a.passing, level.Entity) || slices.Contains(a.passing, level.Resource)
			if a.Off == nil || s.Whole() && !a.Off.Whole() {
				a.Off = s
			}
		}
		if s := h.disabled(at.Add(-Lag), at); a.Late == nil && s != nil && !s.To.IsZero() {
			a.Late = s
		}
		if off := h.Off(end); i == 0 && off != nil && off.Off == string(zlimit.SwitchBypassed) {
			a.Bypass = off
		}
		a.Unlimited = a.Unlimited && !h.limited(at) && !h.limited(end)
	}
	if a.Off != nil || len(a.During) > 0 {
		a.Late = nil
	}
	for i := range a.During {
		if err := p.place(ctx, &a.During[i]); err != nil {
			return a, err
		}
	}
	if a.Nearest != nil {
		err = p.place(ctx, a.Nearest)
	}
	return a, err
}

// place finds out which resource a limit is for, where a report does not say it.
func (p *Past) place(ctx context.Context, r *Refused) error {
	for _, resource := range append([]string{r.LimitResource}, p.resources...) {
		h, err := p.History(ctx, r.LimitEntity, resource)
		if err != nil {
			return err
		}
		if len(h.Stretches(r.Limit, r.Minute, r.Until)) > 0 {
			r.LimitResource = resource
			return nil
		}
	}
	return nil
}

// Then says what the limit of a refusal was in the minute of the refusal, and what it is now, in words. It begins with a space.
func (p *Past) Then(ctx context.Context, w *Words, r *Refused, at, now time.Time) (string, error) {
	h, err := p.History(ctx, r.LimitEntity, r.LimitResource)
	if err != nil {
		return "", err
	}
	resolved, err := p.limiter.Limits.Resolve(ctx, r.LimitEntity, r.LimitResource)
	if err != nil && !errors.Is(err, zlimit.ErrNoLimits) {
		return "", err
	}
	var present *zlimit.Limit
	if i := slices.IndexFunc(resolved.Limits, func(of zlimit.Limit) bool { return of.Name == r.Limit }); i >= 0 {
		present = &resolved.Limits[i]
	}
	text := w.Sentence(h.Stretches(r.Limit, r.Minute, r.End(at, now)), present)
	if text == "" {
		text = "It is not among the stored limits of that time: the program brought it."
	}
	switch {
	case r.Impossible:
		text += " The requests asked for more than the limit can hold, so they can never be admitted."
	case r.TooLarge > 0:
		text += fmt.Sprintf(" Of the requests %d asked for more than the limit can hold, and can never be admitted.", r.TooLarge)
	}
	return " " + text, nil
}
