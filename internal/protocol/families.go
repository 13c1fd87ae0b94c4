package protocol

import (
	"context"
	"errors"
	"slices"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
)

// MaxDepth bounds the entities of a request: its own and the parents. MaxWidth bounds its resources: its own and the wider ones.
// MaxLevels bounds the buckets.
const (
	MaxDepth  = 8
	MaxWidth  = 3
	MaxLevels = 16
)

// families find the levels of requests.
type families struct {
	*core
	looks  *looks
	memory *Memory
}

// levels appends the levels of a request: the levels of its entity and, as long as entities cascade, of the parents. Each entity has one
// level for the resource of the request, and one for each wider resource that it has limits for. All levels except the first use their own
// stored limits. A level is charged for the limits that it has, and each limit of the request must exist on at least one level. The entity
// itself may have none.
func (fs *families) levels(ctx context.Context, r *Request, began int64, levels []level) (_ []level, err error) {
	if r.together != nil {
		return fs.levelsTogether(ctx, r.together, began)
	}
	found, err := fs.climb(ctx, r, began, levels)
	if err != nil {
		if found, err = fs.climbAgain(ctx, r, began, levels, err); err != nil {
			return nil, err
		}
	}
	if err := checkKnown(r, found); err != nil { // slightly stale limits do not reject a request
		if err := fs.reread(ctx, r, found); err != nil {
			return nil, err
		}
		if found, err = fs.climb(ctx, r, began, levels); err != nil {
			return nil, err
		}
		if err := checkKnown(r, found); err != nil {
			return nil, fs.withAsked(ctx, r, found, err, began)
		}
	}
	if len(found) > MaxLevels {
		return nil, &LevelsError{r.Entity, r.Resource, len(found)}
	}
	if r.Wait > 0 {
		fs.boundWait(found)
	}
	return found, nil
}

// reread reads the limits of levels without limits again, consistently, unless they already come from a consistent read.
func (fs *families) reread(ctx context.Context, r *Request, levels []level) error {
	for i := range levels {
		l := &levels[i]
		if !l.limits.Config.IsEmpty() || l.limits.Epoch > 0 || i == 0 && r.Own != nil {
			continue
		}
		if _, err := fs.options.Source.After(ctx, l.bucket, fs.NextEpoch()); err != nil {
			return err
		}
	}
	return nil
}

// climb appends the levels of a request.
func (fs *families) climb(ctx context.Context, r *Request, began int64, levels []level) (_ []level, err error) {
	levels = append(levels, level{})
	first := &levels[0]
	if err := fs.firstLevel(ctx, r, began, first); err != nil {
		return nil, err
	}
	if first.limits.Within == "" && !first.limits.Lineage.Charges() {
		return levels, nil
	}
	var charges charges
	if levels, err = fs.widen(ctx, r, levels, &charges, began); err != nil {
		return nil, err
	}
	lineage := lineageBy(levels)
	for at := (position{ancestor: 1}); lineage.Cascade && lineage.Parent != ""; at.ancestor++ {
		if at.ancestor == MaxDepth {
			return nil, &DepthError{r.Entity}
		}
		first, err := fs.level(ctx, r, fs.memory.Bucket(lineage.Parent, r.Resource), levels, &charges, began, at)
		if err != nil {
			return nil, err
		}
		known := len(levels)
		if levels, err = fs.widen(ctx, r, append(levels, first), &charges, began); err != nil {
			return nil, err
		}
		lineage = lineageBy(levels[known:])
	}
	return levels, nil
}

// withAsked adds the checked levels, including levels without limits, to an error for a limit that no level has.
func (fs *families) withAsked(ctx context.Context, _ *Request, levels []level, err error, began int64) error {
	var asked []string
	for i := range levels {
		l := &levels[i]
		if l.wider > 0 { // added below, together with resources without limits
			continue
		}
		resource, limits := l.bucket.Resource, l.limits
		for range MaxWidth {
			asked = append(asked, l.bucket.Entity+"/"+resource)
			if resource = limits.Within; resource == "" {
				break
			}
			next, failed := fs.storedLimits(ctx, fs.memory.Bucket(l.bucket.Entity, resource), began)
			if failed != nil {
				break
			}
			limits = next
		}
	}
	var none *NoLimitsError
	var unknown *UnknownLimitError
	switch {
	case errors.As(err, &none):
		none.Asked = asked
	case errors.As(err, &unknown):
		unknown.Asked = asked
	}
	return err
}

// lineageBy returns the lineage of an entity from its levels. The first level, for the resource of the request, decides whether the parent
// is charged, also for wider resources. A move takes effect as soon as one of the entity's buckets shows it, even if the other levels still
// have the former parent.
func lineageBy(levels []level) layout.Lineage {
	lineage := levels[0].limits.Lineage
	for i := range levels[1:] {
		if later := levels[1+i].limits.Lineage; later.Generation > lineage.Generation {
			later.Cascade = lineage.Cascade
			lineage = later
		}
	}
	return lineage
}

// checkKnown returns an error unless each limit of a request exists on a level.
func checkKnown(r *Request, levels []level) error {
	if len(levels[0].demand.Amounts) == len(r.Amounts) && !levels[0].limits.Config.IsEmpty() {
		return nil
	}
	if !slices.ContainsFunc(levels, func(l level) bool { return !l.limits.Config.IsEmpty() }) {
		return &NoLimitsError{Entity: r.Entity, Resource: r.Resource}
	}
	for _, a := range r.Amounts {
		known := false
		for i := range levels {
			known = known || levels[i].limits.has(a.Limit)
		}
		if !known {
			return unknown(r, levels, a.Limit)
		}
	}
	return nil
}

// unknown returns the error for a limit that no level has.
func unknown(r *Request, levels []level, limit string) error {
	var known []bucket.Params
	for i := range levels {
		known = appendMissing(known, levels[i].limits.Config.Limits())
		known = appendMissing(known, levels[i].limits.slotNames())
	}
	if len(known) == 0 {
		return &NoLimitsError{Entity: r.Entity, Resource: r.Resource}
	}
	return &UnknownLimitError{Limit: limit, Known: known}
}

// appendMissing appends the limits that a list lacks.
func appendMissing(known, more []bucket.Params) []bucket.Params {
	for _, p := range more {
		if !slices.ContainsFunc(known, func(k bucket.Params) bool { return k.Name == p.Name }) {
			known = append(known, p)
		}
	}
	return known
}

// alone returns only the level of the entity for the resource of a request, without parents and wider resources.
func (fs *families) alone(ctx context.Context, r *Request, began int64) ([]level, error) {
	levels := make([]level, 1)
	err := fs.firstLevel(ctx, r, began, &levels[0])
	if err == nil && levels[0].limits.Config.IsEmpty() {
		err = &NoLimitsError{Entity: r.Entity, Resource: r.Resource}
	}
	return levels, err
}

// firstLevel fills an empty level as the first one: the level of the entity for the resource of the request.
func (fs *families) firstLevel(ctx context.Context, r *Request, began int64, l *level) (err error) {
	l.bucket, l.began = r.Bucket, began
	if l.bucket == nil || l.bucket.evicted.Load() {
		l.bucket = fs.memory.Bucket(r.Entity, r.Resource)
	}
	if l.limits, err = fs.limitsOf(ctx, l.bucket, r, began); err == nil {
		l.demand = r.demand(l.limits, l.limits.only(r.Amounts), fs.life(began))
		if slots := l.limits.slotsOf(r.Amounts); len(slots) > 0 {
			l.demand = l.demand.TakingSlots(slots)
		}
	}
	return err
}

// level returns the level of a bucket with its stored limits, to be appended to the levels found so far.
func (fs *families) level(ctx context.Context, r *Request, b *Bucket, known []level, charges *charges, began int64, at position) (level, error) {
	limits, err := fs.storedLimits(ctx, b, began)
	if err != nil {
		return level{}, err
	}
	amounts := countedBelow(limits.only(charges.of(r.Amounts, at)), func(limit string, children bool) bool {
		return slices.ContainsFunc(known, func(l level) bool {
			return l.isBelow(at, b.Resource, l.bucket.Resource, children) && l.limits.has(limit)
		})
	})
	demand := r.demand(limits, amounts, fs.life(began))
	demand = demand.TakingSlots(limits.slotsOf(r.Amounts))
	return level{bucket: b, limits: limits, demand: demand, began: began, position: at}, nil
}

// widen appends the levels of the wider resources. The last level so far is the level of an entity for the resource of a request. A
// resource gets no level if the entity has no limits for it.
func (fs *families) widen(ctx context.Context, r *Request, levels []level, charges *charges, began int64) ([]level, error) {
	within := levels[len(levels)-1].limits.Within
	if within == "" {
		return levels, nil
	}
	entity, at := levels[len(levels)-1].bucket.Entity, levels[len(levels)-1].position
	chain := [MaxWidth]string{r.Resource}
	for width := 1; within != ""; width++ {
		at.wider++
		if width == MaxWidth || slices.Contains(chain[:width], within) {
			return nil, &WidthError{append(slices.Clone(chain[:width]), within)}
		}
		chain[width] = within
		l, err := fs.level(ctx, r, fs.memory.Bucket(entity, within), levels, charges, began, at)
		if err != nil {
			return nil, err
		}
		if within = l.limits.Within; !l.limits.Config.IsEmpty() {
			levels = append(levels, l)
		}
	}
	return levels, nil
}

// boundWait ends the wait of a request when a quota of any level resets, since tokens of one period are not taken in another. A request
// whose priority has a floor takes no tokens in advance: otherwise the callers that the floor protects would wait behind it.
func (fs *families) boundWait(levels []level) {
	longest := int64(0)
	for i := range levels {
		longest = max(longest, levels[i].demand.Wait)
	}
	if longest <= 0 {
		return
	}
	now := fs.now()
	for i := range levels {
		if levels[i].limits.Config.Bypass {
			continue
		}
		states, _ := levels[i].bucket.states(nil)
		longest = min(longest, levels[i].limits.Config.UntilEdge(states, now))
		if levels[i].demand.Priority != "" {
			longest = 0
		}
	}
	for i := range levels {
		if !levels[i].limits.Config.Bypass {
			levels[i].demand.Wait = longest
		}
	}
}

// limitsOf returns the limits that apply to a request: its own, with the stored lineage and the stored wider resource, or the stored
// limits. Only a consistent read proves that no limits are stored. That is not an error if a wider resource or a parent may have some,
// since the other levels show it.
func (fs *families) limitsOf(ctx context.Context, b *Bucket, r *Request, began int64) (*Limits, error) {
	stored, err := fs.storedLimits(ctx, b, began)
	switch {
	case err != nil:
		return nil, err
	case r.Own != nil && r.Own.Lineage == stored.Lineage && r.Own.Within == stored.Within && b.generation.Load() == nil && !stored.Config.Bypass:
		return r.Own, nil
	case r.Own != nil:
		own := *r.Own
		own.Config.Bypass, own.Config.MarkUntil = stored.Config.Bypass, stored.Config.MarkUntil
		own.Lineage, own.Within, own.Epoch, own.ReadAt = stored.Lineage, stored.Within, stored.Epoch, stored.ReadAt
		return &own, nil
	case !stored.isDeadEnd():
		return stored, nil
	case stored.Epoch == 0: // from an eventually consistent read
		if stored, err = fs.options.Source.After(ctx, b, fs.NextEpoch()); err != nil {
			return nil, err
		}
		if !stored.isDeadEnd() {
			return stored, nil
		}
	}
	return nil, &NoLimitsError{Entity: b.Entity, Resource: b.Resource}
}

// isDeadEnd reports whether there are no limits, and no other level that may have some.
func (l *Limits) isDeadEnd() bool {
	return l.Config.IsEmpty() && l.Within == "" && (!l.Lineage.Cascade || l.Lineage.Parent == "")
}

// has reports whether a limit of that name is configured, of tokens or of slots.
func (l *Limits) has(name string) bool { return l.Config.Has(name) || l.Config.FindSlots(name) != nil }

// slotNames returns parameters with the names of the limits of slots alone.
func (l *Limits) slotNames() (named []bucket.Params) {
	for i := range l.Config.Slots {
		named = append(named, bucket.Params{Name: l.Config.Slots[i].Name})
	}
	return named
}

// only returns the amounts of limits that are configured.
func (l *Limits) only(amounts []bucket.Amount) []bucket.Amount {
	first := 0
	for first < len(amounts) && l.Config.Has(amounts[first].Limit) {
		first++
	}
	if first == len(amounts) {
		return amounts
	}
	known := slices.Clone(amounts[:first])
	for _, a := range amounts[first+1:] {
		if l.Config.Has(a.Limit) {
			known = append(known, a)
		}
	}
	return known
}
