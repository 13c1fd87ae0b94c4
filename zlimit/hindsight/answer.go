package hindsight

import (
	"context"
	"errors"
	"slices"

	"github.com/zlimit/zlimit-go/zlimit"
)

// An Answer says what refused at a time: a switch or limits, or else the nearest limit.
type Answer struct {
	// Entities are the entity and its parents, and Resources the resource and the wider ones, the narrowest first: what requests were
	// charged to.
	Entities  []string
	Resources []string

	Off       *Switch   // that rejected requests at the time; nil for none
	Late      *Switch   // that was lifted less than a minute before, so that processes may not know; nil where something refused
	During    []Refused // refusals in the minute of the time, the most frequent first
	Nearest   *Refused  // the nearest refusal; nil where During has some
	Bypass    *Level    // which let requests pass; nil for none
	Unlimited bool      // nothing that requests are charged to had limits
}

// ByLimit reports whether limits refused before any switch did.
func (a *Answer) ByLimit() bool { return len(a.During) > 0 && (a.Off == nil || !a.Off.From.IsZero()) }

// answer says what refused requests of an entity. The refusals are of the entity, or by it. It makes the calls of [past.history] for each
// bucket that requests were charged to.
func (p *past) answer(ctx context.Context, q *Question, refused []Refused) (a Answer, err error) {
	at, end := q.At, q.End
	c, err := p.charged(ctx, q.Entity, at, end)
	if err != nil {
		return a, err
	}
	a.Entities, a.Resources = c.entities, c.resources
	a.During, a.Nearest = during(refused, at)
	a.Unlimited = true
	for i, level := range c.levels() {
		h, err := p.history(ctx, level.Entity, level.Resource)
		if err != nil {
			return a, err
		}
		if s := h.disabled(at, end); s != nil {
			s.Passing = slices.Contains(c.passing, level.Entity) || slices.Contains(c.passing, level.Resource)
			if a.Off == nil || s.Whole() && !a.Off.Whole() {
				a.Off = s
			}
		}
		if s := h.disabled(at.Add(-lag), at); a.Late == nil && s != nil && !s.To.IsZero() {
			a.Late = s
		}
		if off := h.off(end); i == 0 && off != nil && off.State == zlimit.SwitchBypassed {
			a.Bypass = off
		}
		a.Unlimited = a.Unlimited && !h.limited(at) && !h.limited(end)
	}
	if a.Off != nil || len(a.During) > 0 {
		a.Late = nil
	}
	for i := range a.During {
		if err := p.place(ctx, &a.During[i], q); err != nil {
			return a, err
		}
	}
	if a.Nearest != nil {
		err = p.place(ctx, a.Nearest, q)
	}
	return a, err
}

// place finds out what the limit of a refusal was and is, and which resource it is for, where a report does not say it.
func (p *past) place(ctx context.Context, r *Refused, q *Question) error {
	for _, resource := range append([]string{r.LimitResource}, p.resources...) {
		h, err := p.history(ctx, r.LimitEntity, resource)
		if err != nil {
			return err
		}
		if len(h.stretches(r.Limit, r.Minute, r.Until)) > 0 {
			r.LimitResource = resource
			break
		}
	}
	h, err := p.history(ctx, r.LimitEntity, r.LimitResource)
	if err != nil {
		return err
	}
	r.Was = h.stretches(r.Limit, r.Minute, r.end(q.At, q.Now))
	resolved, err := p.limiter.Limits.Resolve(ctx, r.LimitEntity, r.LimitResource)
	if err != nil && !errors.Is(err, zlimit.ErrNoLimits) {
		return err
	}
	if i := slices.IndexFunc(resolved.Limits, func(of zlimit.Limit) bool { return of.Name == r.Limit }); i >= 0 {
		r.Is = &resolved.Limits[i]
	}
	return nil
}
