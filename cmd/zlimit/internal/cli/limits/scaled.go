package limits

import (
	"context"
	"fmt"
	"math/big"
	"path/filepath"
	"slices"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A scaledFrom is a stored level with limits, and its limits of factor 1.
type scaledFrom struct {
	stored zlimit.Stored
	known  bool // the file has the level
	first  []zlimit.Limit
	former string // the entity that the file names for it; "" for its own
	past   provision.History
}

// A foreign limit was changed by others since the file was written.
type foreign struct {
	at        zlimit.Level
	is, first zlimit.Limit
	by        provision.Drift // the zero value where that is not known
}

// changed reports whether a limit was changed by others, and by whom: it is neither that of factor 1, nor did scale make it last. Where events do not
// say who made it, it must be a multiple that scale has made.
func (of *scaledFrom) changed(is, first *zlimit.Limit, made []*big.Rat) (by provision.Drift, yes bool) {
	_, multiplied := of.past.First[is.Name]
	if is.String() == first.String() || multiplied {
		return by, false
	}
	if by, yes = of.past.Others[is.Name]; yes {
		return by, true
	}
	return by, !slices.ContainsFunc(made, func(f *big.Rat) bool {
		scaled, err := scaledLimit(*first, f)
		return err == nil && scaled.String() == is.String()
	})
}

// scaledLevels returns the stored levels, with what a file has of them. An entity that took the place of one of the file has the limits of that
// one. It reads the record of each entity that the file lacks.
func scaledLevels(ctx context.Context, l *zlimit.RateLimiter, p *provision.Provisioner, levels []zlimit.Stored) (of []scaledFrom, err error) {
	first := map[zlimit.Level][]zlimit.Limit{}
	for i := range levels {
		first[levels[i].Level] = levels[i].Config.Limits
	}
	for stored, err := range l.Limits.List(ctx, zlimit.LevelQuery{}) {
		if err != nil {
			return nil, err
		}
		if len(stored.Config.Limits) == 0 {
			continue
		}
		at := stored.Level
		limits, known := first[at]
		for seen := []string{}; !known && at.Entity != "" && !slices.Contains(seen, at.Entity); limits, known = first[at] {
			seen = append(seen, at.Entity)
			if at.Entity, err = p.Predecessor(ctx, at.Entity); err != nil {
				return nil, err
			}
			if at.Entity == "" {
				break
			}
		}
		former := ""
		if known && at != stored.Level {
			former = at.Entity
		}
		of = append(of, scaledFrom{stored: stored, known: known, first: limits, former: former})
	}
	return of, nil
}

func levelsOf(stored []zlimit.Stored) (levels []zlimit.Level) {
	for i := range stored {
		levels = append(levels, stored[i].Level)
	}
	return levels
}

// checkScaled reads the histories of levels, and refuses those that another file has scaled: the file is another one by its name, or if it lacks the
// factor.
func (f *limitsFile) checkScaled(ctx context.Context, p *provision.Provisioner, of []scaledFrom, made []*big.Rat) error {
	levels := []zlimit.Level{}
	for i := range of {
		if of[i].known {
			levels = append(levels, of[i].stored.Level)
		}
	}
	all, err := p.Histories(ctx, levels)
	if err != nil {
		return err
	}
	next := 0
	for i := range of {
		if of[i].known {
			of[i].past = all[next]
			next++
		}
	}
	scaled := slices.DeleteFunc(provision.Scaled(all), func(s provision.History) bool {
		factor, ok := ratOf(s.Scaling.Factor)
		return s.Scaling.File == filepath.Base(f.path) && ok && slices.ContainsFunc(made, func(m *big.Rat) bool { return m.Cmp(factor) == 0 })
	})
	if len(scaled) == 0 {
		return nil
	}
	return f.scaledAlready(scaled)
}

// scaledAlready says which files levels are scaled by, and how to go on.
func (f *limitsFile) scaledAlready(scaled []provision.History) error {
	scalings := provision.ScalingsOf(scaled)
	of, is := scalings[0].File, "is another file, and would take multiplied limits for limits of factor 1"
	switch {
	case len(f.text) == 0:
		is = "does not exist, and would be written with multiplied limits"
	case of == filepath.Base(f.path):
		is = "is another file of that name"
	}
	return fmt.Errorf("limits scale: the limits of %s are multiplied: %s. %s %s. Use the file %s; "+
		"if it is lost, zlimit limits scale 1 -f %s --rebuild writes it from audit events, and restores the limits",
		show.Counted(len(scaled), "level"), provision.TextOf(scalings), f.path, is, of, of)
}

// rebuilt returns the levels of a lost file: all but those that another file has scaled, with the limits of factor 1. It also returns the factors.
func (f *limitsFile) rebuilt(scaled []provision.History) (levels []zlimit.Stored, made []*big.Rat, err error) {
	if len(scaled) == 0 {
		return nil, nil, shell.Usagef("limits scale: no level is scaled, so there is nothing to rebuild %s from", f.path)
	}
	by := map[zlimit.Level]*provision.History{}
	for i := range scaled {
		s := &scaled[i]
		by[s.Level] = s
		factor, ok := ratOf(s.Scaling.Factor)
		if ok && s.Scaling.File == filepath.Base(f.path) && !slices.ContainsFunc(made, func(m *big.Rat) bool { return m.Cmp(factor) == 0 }) {
			made = append(made, factor)
		}
	}
	if len(made) == 0 {
		return nil, nil, f.scaledAlready(scaled)
	}
	for _, level := range f.levels {
		s := by[level.Level]
		if s != nil && s.Scaling.File != filepath.Base(f.path) {
			continue
		}
		if s != nil {
			level.Config.Limits = slices.Clone(level.Config.Limits)
			for i, limit := range level.Config.Limits {
				if first, ok := s.First[limit.Name]; ok {
					level.Config.Limits[i] = first
				}
			}
		}
		levels = append(levels, level)
	}
	return levels, made, nil
}
