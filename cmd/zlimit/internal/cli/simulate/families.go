package simulate

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// parseMore takes what makes requests of several keys, of parents, and estimates of costs.
func (s *simulation) parseMore(sh *shell.Shell, parentLimits, actual []string, more columns) (err error) {
	switch {
	case more.parent != "" && more.key == "":
		return shell.Usagef("simulate: --parent goes with --key")
	case (more.parent != "") != (len(parentLimits) > 0):
		return shell.Usagef("simulate: --parent and --parent-limit go together")
	case more.parent != "" && cmp.Or(sh.Store, shell.MemoryDSN) != shell.MemoryDSN:
		return shell.Usagef("simulate: --parent is for the store memory: alone, since it makes entities and limits")
	case more.latency != "" && len(actual) == 0:
		return shell.Usagef("simulate: --latency goes with --actual")
	}
	if s.parents, err = shell.ParseLimits(parentLimits); err != nil {
		return err
	}
	named := func(name string) int {
		return slices.IndexFunc(s.request.Limits, func(l zlimit.Limit) bool { return l.Name == name })
	}
	for _, l := range s.parents {
		if named(l.Name) < 0 {
			return shell.Usagef("simulate: --parent-limit %s: no --limit is named %q, and so it has no cost", l.Name, l.Name)
		}
	}
	if len(actual) > 0 {
		s.actual = slices.Clone(s.costs) // of limits whose cost is no estimate
	}
	seen := map[string]bool{}
	for _, text := range actual {
		c, err := parseCost(text)
		if err != nil {
			return err
		}
		i := named(c.limit)
		if i < 0 || seen[c.limit] {
			return shell.Usagef("--actual %q: no --limit is named %q, or it is given twice", text, c.limit)
		}
		seen[c.limit] = true
		s.actual[i] = c
	}
	if more.key != "" {
		s.families = &families{of: map[string]string{}, rejected: map[string]bool{}, made: map[string]bool{}}
	}
	return nil
}

// A families has the keys of a trace, with their parents.
type families struct {
	of       map[string]string // key to its parent, "" for none
	rejected map[string]bool   // keys of which a request was rejected
	made     map[string]bool   // parents
}

// entity returns the entity of a row, which is made if it has a parent, and the parent too.
func (s *simulation) entity(ctx context.Context, l *zlimit.RateLimiter, row *row) (string, error) {
	if s.families == nil {
		return s.request.Entity, nil
	}
	entity := s.request.Entity + "/" + zlimit.Name(row.key)
	parent, known := s.families.of[row.key]
	switch {
	case known && parent != row.parent:
		return "", shell.Usagef("the parent of key %q is %q here, and was %q before", row.key, row.parent, parent)
	case known:
		return entity, nil
	}
	s.families.of[row.key] = row.parent
	if row.parent == "" {
		return entity, nil
	}
	above := s.request.Entity + "/parent/" + zlimit.Name(row.parent)
	if !s.families.made[above] {
		s.families.made[above] = true
		_, err := l.Entities.Create(ctx, zlimit.Entity{ID: above})
		if err == nil {
			err = l.Limits.Set(ctx, zlimit.Level{Entity: above, Resource: s.request.Resource}, zlimit.Config{Limits: s.parents})
		}
		if err != nil {
			return "", err
		}
	}
	_, err := l.Entities.Create(ctx, zlimit.Entity{ID: entity, ParentID: above, Cascade: true})
	return entity, err
}

// acquire makes the request of a row, and takes in how it came out. The lease is nil for one that is not admitted.
func (s *simulation) acquire(ctx context.Context, l *zlimit.RateLimiter, r zlimit.Request, row *row, out *Outcome) (lease *zlimit.Lease, err error) {
	if r.Entity, err = s.entity(ctx, l, row); err != nil {
		return nil, err
	}
	lease, err = l.Acquire(ctx, r)
	if errors.As(err, new(*zlimit.ExceededError)) && s.families != nil {
		s.families.rejected[row.key] = true
	}
	if counted := out.count(r.Entity, lease, err); counted != nil || err != nil {
		return nil, counted
	}
	return lease, nil
}

// A settlement is a lease with its real cost, which is known from a time on.
type settlement struct {
	at    time.Time
	lease *zlimit.Lease
	used  zlimit.Amounts
}

// Settlements are those that are due, the first one on top.
type settlements []settlement

// Len, Less, Swap, Push and Pop implement [heap.Interface].
func (s settlements) Len() int           { return len(s) }
func (s settlements) Less(i, j int) bool { return s[i].at.Before(s[j].at) }
func (s settlements) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }

// Push appends one.
func (s *settlements) Push(v any) { *s = append(*s, v.(settlement)) } //nolint:forcetypeassert // nothing else is pushed

// Pop removes the last one.
func (s *settlements) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// settleLater notes the real cost of a request. A request that was not admitted has no lease.
func (s *simulation) settleLater(lease *zlimit.Lease, at time.Time, used []int64) {
	if lease == nil {
		return
	}
	amounts := zlimit.Amounts{}
	for i, limit := range s.request.Limits {
		amounts[limit.Name] = used[i]
	}
	heap.Push(&s.open, settlement{at, lease, amounts})
}

// settle settles the leases due by a time, at its own time.
func (s *simulation) settle(ctx context.Context, by time.Time, out *Outcome) error {
	for len(s.open) > 0 && !s.open[0].at.After(by) {
		next := heap.Pop(&s.open).(settlement) //nolint:forcetypeassert // nothing else is pushed
		s.advance(next.at)
		change := zlimit.Amounts{}
		for name, taken := range next.lease.Consumed() {
			change[name] = next.used[name] - taken
			out.TokensUsed[name] += next.used[name]
		}
		if err := next.lease.Adjust(change); err != nil {
			return err
		}
		if err := next.lease.Commit(ctx); err != nil {
			return err
		}
	}
	return nil
}

// tell takes in how keys came out.
func (f *families) tell(o *Outcome) {
	if f != nil {
		o.Keys, o.KeysRejected = len(f.of), len(f.rejected)
	}
}

// more shows what came of keys, parents and estimates.
func (o *Outcome) more(p *show.Page, s *simulation) {
	if s.families != nil {
		p.Linef("")
		p.Linef("%s keys, of which %s had requests rejected", show.Grouped(int64(o.Keys)), show.Grouped(int64(o.KeysRejected)))
	}
	for _, l := range s.parents {
		p.Linef("%s of parents: %s rejections", l.String(), show.Grouped(int64(o.RejectedAbove[l.Name])))
	}
	for _, l := range s.request.Limits {
		if used, admitted := o.TokensUsed[l.Name], o.TokensAdmitted[l.Name]; s.actual != nil {
			p.Linef("%s used in the end: %s, %s of what was taken", l.Name, show.Amount(l.Name, used), show.Percent(used, admitted))
		}
	}
}
