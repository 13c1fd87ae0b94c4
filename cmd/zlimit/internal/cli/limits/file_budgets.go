package limits

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/budgets"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/zlimit"
)

// maxShown is the number of levels whose budgets an apply shows on a terminal.
const maxShown = 20

// standingsAtOnce is the number of levels that are read in parallel.
const standingsAtOnce = 16

// A standings has where the budgets stood before an apply that changes them.
type standings struct {
	read   []*budgets.Standing
	unread []*provision.Change // levels that are left out on a terminal
}

// standingsOf reads where the budgets stand that a plan changes: of all levels, or of the first ones.
func standingsOf(ctx context.Context, sh *shell.Shell, l *zlimit.RateLimiter, plan *provision.Plan, all bool, progress func(string)) (s standings, err error) {
	var levels []*provision.Change
	for i := range plan.Changes {
		if c := &plan.Changes[i]; changesBudget(c) {
			levels = append(levels, c)
		}
	}
	wider, covered := widerLevels{l: l, known: map[zlimit.Level][]zlimit.Limit{}}, make([]bool, len(levels))
	err = eachLevel(ctx, len(levels), progress, func(ctx context.Context, i int) (err error) {
		covered[i], err = wider.has(ctx, levels[i])
		return err
	})
	if err != nil {
		return s, err
	}
	at := -1
	levels = slices.DeleteFunc(levels, func(*provision.Change) bool {
		at++
		return !covered[at]
	})
	if n := len(levels); !all && n > maxShown {
		levels, s.unread = levels[:maxShown], levels[maxShown:]
	}
	s.read = make([]*budgets.Standing, len(levels))
	err = eachLevel(ctx, len(levels), progress, func(ctx context.Context, i int) (err error) {
		s.read[i], err = budgets.Stand(ctx, l, levels[i].After.Level, sh.Now())
		return err
	})
	return s, err
}

// changes returns what has become of budgets.
func (s *standings) changes(ctx context.Context, l *zlimit.RateLimiter, progress func(string)) (all []budgets.Change, err error) {
	each := make([][]budgets.Change, len(s.read))
	err = eachLevel(ctx, len(s.read), progress, func(ctx context.Context, i int) (err error) {
		each[i], err = s.read[i].Changes(ctx, l)
		return err
	})
	for _, changes := range each {
		all = append(all, changes...)
	}
	return all, err
}

// widerLevels remembers levels that are wider than the levels of a plan.
type widerLevels struct {
	l     *zlimit.RateLimiter
	mu    sync.Mutex
	known map[zlimit.Level][]zlimit.Limit
}

// has reports whether buckets of a level may have had one of its budgets before a change: by the level itself, or by a wider one. No request has
// been charged by a new level. It costs a read of each wider level.
func (w *widerLevels) has(ctx context.Context, c *provision.Change) (bool, error) {
	at := c.After.Level
	if c.Action != provision.Create {
		return true, nil
	}
	if at.Entity == "" || at.Resource == "" {
		return false, nil // it has no bucket of its own
	}
	for _, level := range []zlimit.Level{{Resource: at.Resource}, {}, {Entity: at.Entity}} {
		limits, err := w.limits(ctx, level)
		if err != nil {
			return false, err
		}
		for _, was := range limits {
			if is, there := limitOf(c.After.Config.Limits, was.Name); there && (budgets.IsBudget(&is) || budgets.IsBudget(&was)) {
				return true, nil
			}
		}
	}
	return false, nil
}

func (w *widerLevels) limits(ctx context.Context, at zlimit.Level) ([]zlimit.Limit, error) {
	w.mu.Lock()
	limits, known := w.known[at]
	w.mu.Unlock()
	if known {
		return limits, nil
	}
	config, err := w.l.Limits.Get(ctx, at)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.known[at] = config.Limits
	}
	return config.Limits, err
}

// eachLevel calls a function for the number of each of n levels, in parallel, and reports how many are done.
func eachLevel(ctx context.Context, n int, progress func(string), do func(ctx context.Context, i int) error) error {
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(standingsAtOnce)
	var mu sync.Mutex
	done := 0
	for i := range n {
		calls.Go(func() error {
			if err := do(ctx, i); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			done++
			progress(fmt.Sprintf("looking at the budgets of %s of %s", show.Grouped(int64(done)), show.Counted(n, "level")))
			return nil
		})
	}
	return calls.Wait()
}

// unreadLine says what an apply does to the budgets of levels that are not shown.
func (s *standings) unreadLine() string {
	lowered, raised, others := 0, 0, 0
	for _, c := range s.unread {
		for _, is := range c.After.Config.Limits {
			was, there := limitOf(c.Before.Config.Limits, is.Name)
			switch {
			case !budgets.IsBudget(&is) || there && was.String() == is.String():
			case !there || was.Resets != is.Resets || was.Zone != is.Zone || was.Session != is.Session || was.Capacity == is.Capacity:
				others++
			case is.Capacity < was.Capacity:
				lowered++
			default:
				raised++
			}
		}
		for _, was := range c.Before.Config.Limits {
			if _, there := limitOf(c.After.Config.Limits, was.Name); !there && budgets.IsBudget(&was) {
				others++
			}
		}
	}
	var parts []string
	for _, kind := range []struct {
		n    int
		text string
	}{{lowered, "lowered from now on"}, {raised, "raised from their next period on"}, {others, "changed otherwise"}} {
		if kind.n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", show.Grouped(int64(kind.n)), kind.text))
		}
	}
	return fmt.Sprintf("budgets of %s are not shown: %s; --all shows what is left of each, and so do a pipe and -o json",
		show.Counted(len(s.unread), "more level"), strings.Join(parts, ", "))
}

func limitOf(limits []zlimit.Limit, name string) (zlimit.Limit, bool) {
	for _, l := range limits {
		if l.Name == name {
			return l, true
		}
	}
	return zlimit.Limit{}, false
}

// changesBudget reports whether a change of a level may change a budget in use. A new level may change that of a wider one, and the end of a
// level puts a wider one in its place.
func changesBudget(c *provision.Change) bool {
	is := map[string]string{}
	for _, limit := range c.Before.Config.Limits {
		is[limit.Name] = limit.String()
	}
	for _, limit := range c.After.Config.Limits {
		if budgets.IsBudget(&limit) && is[limit.Name] != limit.String() {
			return true
		}
		delete(is, limit.Name)
	}
	return c.Action == provision.Delete && c.After.Level.Entity != "" && c.After.Level.Resource != ""
}
