package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Scaling is a change by which limits were multiplied for a while.
type Scaling struct {
	Factor string    `json:"factor"` // such as 3/2
	File   string    `json:"file"`   // that has the limits of factor 1
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"`
}

// String names the scaling.
func (s *Scaling) String() string {
	by := ""
	if s.By != "" {
		by = " by " + s.By
	}
	return fmt.Sprintf("factor %s%s at %s, whose limits of factor 1 are in %s", s.Factor, by, s.At.UTC().Format(time.RFC3339), s.File)
}

// A History is what the audit events of a level say of its limits. A limit is multiplied until it is changed otherwise.
type History struct {
	Level   zlimit.Level
	Scaling *Scaling                // the latest one by which limits are multiplied now; nil if none is
	First   map[string]zlimit.Limit // the multiplied limits, by name, as they were before the first of the scalings
	Others  map[string]Drift        // by whom and when the others were changed last, as far as events are kept; not by a scaling

	last *Drift                  // by whom the level was changed last; nil for no event
	now  map[string]zlimit.Limit // after that change
}

// scaledAtOnce is the number of levels whose events are read in parallel.
const scaledAtOnce = 16

// Histories returns the history of each level. It reads the audit events of a level back to its last other change, and the entity of an entity's level.
func (p *Provisioner) Histories(ctx context.Context, levels []zlimit.Level) ([]History, error) {
	found := make([]History, len(levels))
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(scaledAtOnce)
	for i := range levels {
		calls.Go(func() (err error) {
			found[i], err = p.history(ctx, levels[i], time.Time{})
			return err
		})
	}
	return found, calls.Wait()
}

// Scaled returns the histories of levels with limits that are multiplied now.
func Scaled(all []History) (scaled []History) {
	for i := range all {
		if all[i].Scaling != nil {
			scaled = append(scaled, all[i])
		}
	}
	return scaled
}

// ScalingsOf returns the scalings of levels, without repetitions, each with the latest of its times.
func ScalingsOf(levels []History) (all []Scaling) {
	for i := range levels {
		s := levels[i].Scaling
		at := slices.IndexFunc(all, func(o Scaling) bool { return o.Factor == s.Factor && o.File == s.File && o.By == s.By })
		switch {
		case at < 0:
			all = append(all, *s)
		case s.At.After(all[at].At):
			all[at].At = s.At
		}
	}
	return all
}

// history reads the events of a level before a time, the zero time for all of them.
func (p *Provisioner) history(ctx context.Context, level zlimit.Level, until time.Time) (h History, err error) {
	about, q := level.Entity, zlimit.AuditQuery{Reverse: true, To: until}
	switch level.Source() {
	case zlimit.SourceSystem:
		about = zlimit.AuditSystem
	case zlimit.SourceResource:
		about = zlimit.AuditResource(level.Resource)
	case zlimit.SourceEntityDefault:
		q.Resource = zlimit.DefaultResource
	default:
		q.Resource = level.Resource
	}
	h.Level, h.First, h.Others = level, map[string]zlimit.Limit{}, map[string]Drift{}
	var open map[string]bool // the limits whose last other change is not found yet
	for event, err := range p.limiter.Audit.Events(ctx, about, q) {
		if err != nil {
			return h, err
		}
		if event.Action != zlimit.ActionLimitsSet && event.Action != zlimit.ActionLimitsDeleted {
			continue
		}
		if h.last == nil {
			h.last, h.now, open = &Drift{By: event.Principal, At: event.Time}, limitsIn(event.Details), map[string]bool{}
			for name := range h.now {
				open[name] = true
			}
		}
		before, _ := event.Details["before"].(map[string]any)
		h.unwind(&event, limitsIn(event.Details), limitsIn(before), open)
		if len(before) == 0 && level.Entity != "" && len(open) > 0 {
			return h, p.inherit(ctx, &h, level, event.Time, open)
		}
		if len(open) == 0 || event.Action == zlimit.ActionLimitsDeleted {
			break
		}
	}
	return h, nil
}

// unwind goes back from the limits after a change to those before it.
func (h *History) unwind(event *zlimit.AuditEvent, after, before map[string]zlimit.Limit, open map[string]bool) {
	scaling := scalingOf(event)
	for name := range open {
		was, there := before[name]
		is := after[name]
		switch {
		case there && was.String() == is.String():
		case there && scaling != nil:
			h.First[name] = was
			if h.Scaling == nil {
				h.Scaling = scaling
			}
		default: // by another change
			h.changed(name, event)
			if len(before) > 0 {
				delete(open, name)
			}
		}
	}
}

// changed notes the last change of a limit that is not multiplied. Also a factor of 1 is of a scaling.
func (h *History) changed(name string, event *zlimit.AuditEvent) {
	_, multiplied := h.First[name]
	_, known := h.Others[name]
	if !multiplied && !known && event.Details["scaled"] == nil {
		h.Others[name] = Drift{By: event.Principal, At: event.Time}
	}
}

// rotatedFrom is the name of the metadata of an entity that names the entity which it has taken the place of.
const rotatedFrom = "rotated_from"

// Predecessor returns the entity that another one has taken the place of, "" for none. It costs a read.
func (p *Provisioner) Predecessor(ctx context.Context, entity string) (string, error) {
	e, err := p.limiter.Entities.Get(ctx, entity)
	if errors.Is(err, zlimit.ErrEntityNotFound) {
		return "", nil
	}
	return e.Metadata[rotatedFrom], err
}

// inherit goes on at the entity whose place the entity of a level took at a time. A limit that it had then is as it was there.
func (p *Provisioner) inherit(ctx context.Context, h *History, level zlimit.Level, at time.Time, open map[string]bool) error {
	former, err := p.Predecessor(ctx, level.Entity)
	if err != nil || former == "" || former == level.Entity {
		return err
	}
	earlier, err := p.history(ctx, zlimit.Level{Entity: former, Resource: level.Resource}, at)
	if err != nil || earlier.Scaling == nil {
		return err
	}
	for name := range open {
		taken := h.now[name]
		if first, multiplied := h.First[name]; multiplied {
			taken = first
		}
		is := earlier.now[name]
		first, scaled := earlier.First[name]
		if !scaled || is.String() != taken.String() {
			continue
		}
		h.First[name] = first
		delete(h.Others, name)
		if h.Scaling == nil {
			h.Scaling = earlier.Scaling
		}
	}
	return nil
}

// limitsIn returns the limits in the details of an event, by name.
func limitsIn(details map[string]any) map[string]zlimit.Limit {
	all := map[string]zlimit.Limit{}
	list, _ := details["limits"].([]any)
	for _, each := range list {
		text, err := json.Marshal(each)
		var l zlimit.Limit
		if err == nil && json.Unmarshal(text, &l) == nil {
			all[l.Name] = l
		}
	}
	return all
}

// scalingOf returns by what a change has multiplied limits, nil for any other one.
func scalingOf(event *zlimit.AuditEvent) *Scaling {
	scaled, _ := event.Details["scaled"].(map[string]any)
	factor, _ := scaled["factor"].(string)
	if factor == "" || factor == "1" {
		return nil
	}
	file, _ := scaled["file"].(string)
	return &Scaling{Factor: factor, File: file, By: event.Principal, At: event.Time}
}

// A ScaledError says that a plan would undo a scaling.
type ScaledError struct {
	Scalings []Scaling
	Levels   int
}

// Error names the scalings.
func (e *ScaledError) Error() string {
	return fmt.Sprintf("it would undo zlimit limits scale of %d of the levels: %s", e.Levels, TextOf(e.Scalings))
}

// TextOf names scalings.
func TextOf(scalings []Scaling) string {
	var each []string
	for i := range scalings {
		each = append(each, scalings[i].String())
	}
	return strings.Join(each, "; ")
}

// KeepsScaled makes a provisioner apply no plan that undoes a scaling: that is a [ScaledError], and nothing is written.
func (p *Provisioner) KeepsScaled() { p.keepsScaled = true }

// Scalings returns the scalings that the plan undoes, and the number of their levels.
func (p *Plan) Scalings() ([]Scaling, int) {
	var levels []History
	for i := range p.Changes {
		if c := &p.Changes[i]; c.Scaling != nil {
			levels = append(levels, History{Level: c.After.Level, Scaling: c.Scaling})
		}
	}
	return ScalingsOf(levels), len(levels)
}

// Undoes returns the [ScaledError] of a plan that undoes a scaling, nil for another plan.
func (p *Plan) Undoes() error {
	if scalings, levels := p.Scalings(); levels > 0 {
		return &ScaledError{scalings, levels}
	}
	return nil
}
