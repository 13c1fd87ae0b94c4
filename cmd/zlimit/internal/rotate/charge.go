package rotate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A balance is what a limit of an entity has left, by the limits that hold now: a bucket may have former ones.
type balance struct {
	limit    zlimit.Limit
	capacity int64 // that holds now
	left     int64
	ends     time.Time // of a grant
}

// add adds what a limit is to have less, or more where it is negative.
func (c *Charge) add(limit string, missing int64) {
	switch {
	case missing > 0:
		c.Used[limit] = missing
	case missing < 0:
		c.Granted[limit] = -missing
	}
}

// A used bucket is what the old entity has left of a resource.
type used struct {
	resource string
	limits   map[string]balance
}

func (b used) isFull() bool {
	for _, one := range b.limits {
		if one.left != one.capacity {
			return false
		}
	}
	return true
}

// charge copies limits, and makes each limit of the new one have what the old one has left: a wider resource after the narrower
// ones, which are charged to it as well. It takes what the new one has too much, which counts as no usage, and grants what it has too little.
// Each of these has an ID, under which it is done once. A repeated run reports what was done by the one before.
func (r *rotator) charge(ctx context.Context) error {
	if err := r.copyLevels(ctx); err != nil {
		return err
	}
	r.l.Limits.InvalidateAll() // another run may have copied limits since this one knows the level
	of, err := r.reached(ctx)
	if err != nil {
		return err
	}
	buckets, err := r.used(ctx, of.resources)
	if err != nil {
		return err
	}
	ctx = hooks.Adjust(hooks.Admit(ctx)) // the new entity is suspended
	r.done.Charges = []Charge{}
	for _, b := range buckets {
		r.report("charging what is used of " + b.resource)
		c := Charge{Resource: b.resource, Used: zlimit.Amounts{}, Granted: zlimit.Amounts{}}
		others, err := r.balance(ctx, &b, nil, &c)
		if err == nil && len(others) > 0 {
			_, err = r.balance(ctx, &b, others, &c)
		}
		if err != nil {
			return err
		}
		r.done.Charges = append(r.done.Charges, c)
	}
	return nil
}

// maxRounds bounds how often a bucket of the new entity is charged. Nothing else changes it, so one round more is needed for each run that was
// interrupted and whose limits were changed afterwards.
const maxRounds = 8

// balance charges a bucket of the new entity until it has what that of the old one has left. A run that was interrupted may have charged it by
// former limits, under the ID of a round: what is still missing then is charged under the ID of another round.
func (r *rotator) balance(ctx context.Context, b *used, given []zlimit.Limit, all *Charge) (others []zlimit.Limit, err error) {
	for round := range maxRounds {
		var even bool
		if others, even, err = r.chargeBy(ctx, b, given, round, all); even || err != nil {
			return others, err
		}
	}
	return nil, fmt.Errorf("%s of %s has not what %s has left after %d rounds: its limits change meanwhile; repeat the command",
		b.resource, r.done.To, r.done.From, maxRounds)
}

// chargeBy charges and grants by limits that are given, or by the stored limits if there are none. It returns the limits of the bucket that
// those are not: requests gave them, or they were stored once. It also reports whether nothing was missing after the first round.
func (r *rotator) chargeBy(
	ctx context.Context, b *used, given []zlimit.Limit, round int, all *Charge,
) (others []zlimit.Limit, even bool, err error) {
	has, err := r.left(ctx, r.done.To, b.resource, given)
	if err != nil {
		return nil, false, err
	}
	c := Charge{Used: zlimit.Amounts{}, Granted: zlimit.Amounts{}}
	asked := zlimit.Amounts{}
	for name, was := range b.limits {
		now, there := has[name]
		if !there {
			others = append(others, was.limit)
			continue
		}
		c.add(name, now.left-was.left)
		asked[name] = 0
	}
	slices.SortFunc(others, func(a, b zlimit.Limit) int { return cmp.Compare(a.Name, b.Name) })
	if even = round > 0 && len(c.Used)+len(c.Granted) == 0; even {
		return others, true, nil
	}
	if len(asked) > 0 { // in the first round also where nothing is missing: a run before may have charged it
		err = r.use(ctx, b, given, asked, round, all)
	}
	if err == nil && len(c.Granted) > 0 {
		for name, n := range c.Granted {
			all.Granted[name] += n
		}
		if err = r.keepGrant(ctx, all); err == nil {
			err = r.grant(ctx, b, c.Granted, round)
		}
	}
	return others, false, err
}

// keepGrant notes a grant before it is done: the balances do not show it afterwards.
func (r *rotator) keepGrant(ctx context.Context, c *Charge) error {
	return r.keep(ctx, func(metadata map[string]string) {
		if metadata[StageKey] != stageCharging { // another run is further, and has noted all
			return
		}
		kept := chargesIn(metadata)
		kept = slices.DeleteFunc(kept, func(k Charge) bool { return k.Resource == c.Resource })
		metadata[ChargesKey] = encode(append(kept, Charge{Resource: c.Resource, Granted: c.Granted}))
	})
}

// keepCharges notes all charges, with the grants that were noted before.
func (r *rotator) keepCharges(metadata map[string]string) {
	kept := chargesIn(metadata)
	for i := range r.done.Charges {
		c := &r.done.Charges[i]
		for _, k := range kept {
			if k.Resource == c.Resource {
				maps.Copy(c.Granted, k.Granted)
			}
		}
	}
	r.done.Charges = slices.DeleteFunc(r.done.Charges, func(c Charge) bool { return len(c.Used)+len(c.Granted) == 0 })
	if len(r.done.Charges) > 0 {
		metadata[ChargesKey] = encode(r.done.Charges)
	}
}

// chargesIn returns the charges in metadata that the rotation has written.
func chargesIn(metadata map[string]string) (kept []Charge) {
	_ = json.Unmarshal([]byte(metadata[ChargesKey]), &kept) // recall reports what is wrong
	return kept
}

// planCharges reports what the new entity will have less than its limits begin with.
func (r *rotator) planCharges(ctx context.Context) error {
	if r.done.Resumed == stageJoining { // all was charged
		return nil
	}
	r.done.Charges = []Charge{}
	buckets, err := r.used(ctx, nil)
	for _, b := range buckets {
		c := Charge{Resource: b.resource, Used: zlimit.Amounts{}, Granted: zlimit.Amounts{}}
		for name, was := range b.limits {
			c.add(name, was.capacity-was.left)
		}
		if len(c.Used)+len(c.Granted) > 0 {
			r.done.Charges = append(r.done.Charges, c)
		}
	}
	return err
}

// used returns what the old entity has left in each of its buckets, narrower resources first. A bucket that was just made may not be listed
// yet: the buckets of the given resources are read in any case.
func (r *rotator) used(ctx context.Context, resources []string) ([]used, error) {
	var buckets []used
	listed := map[string]bool{}
	for b, err := range r.l.Entities.Buckets(ctx, r.done.From) {
		if err != nil {
			return nil, err
		}
		if len(b.Unsupported) > 0 {
			return nil, &zlimit.UnsupportedError{Source: zlimit.SourceEntity, Entity: b.Entity, Resource: b.Resource, Features: b.Unsupported}
		}
		one := used{b.Resource, balancesOf(b.Statuses, b.Resource)}
		if err := r.byStored(ctx, &one); err != nil {
			return nil, err
		}
		if listed[b.Resource] = len(one.limits) > 0; listed[b.Resource] {
			buckets = append(buckets, one)
		}
	}
	for _, resource := range resources {
		if listed[resource] {
			continue
		}
		limits, err := r.left(ctx, r.done.From, resource, nil)
		if err != nil {
			return nil, err
		}
		buckets = append(buckets, used{resource, limits})
	}
	return r.inOrder(ctx, buckets)
}

// inOrder sorts buckets, narrower resources first, and leaves out unused buckets, unless a narrower one is used.
func (r *rotator) inOrder(ctx context.Context, buckets []used) ([]used, error) {
	width, charged := map[string]int{}, map[string]bool{}
	for _, b := range buckets {
		wider, err := r.wider(ctx, b.resource)
		if err != nil {
			return nil, err
		}
		width[b.resource] = len(wider)
		for _, name := range wider {
			charged[name] = charged[name] || !b.isFull()
		}
	}
	buckets = slices.DeleteFunc(buckets, func(b used) bool { return b.isFull() && !charged[b.resource] })
	slices.SortFunc(buckets, func(a, b used) int {
		return cmp.Or(width[b.resource]-width[a.resource], cmp.Compare(a.resource, b.resource))
	})
	return buckets, nil
}

// byStored replaces balances of the old entity by those that its stored limits leave: a bucket has the limits of its last request. Limits that
// are not stored stay as requests gave them. Others of which nothing is stored any more are left out: the new entity has no such limit.
func (r *rotator) byStored(ctx context.Context, b *used) error {
	stored, err := r.left(ctx, r.done.From, b.resource, nil)
	if err != nil {
		return err
	}
	var gone []string
	for name, was := range b.limits {
		if now, there := stored[name]; there {
			b.limits[name] = now
		} else if !isGiven(&was.limit) {
			delete(b.limits, name)
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	for _, name := range gone {
		r.note("limit %s of %s is not stored any more: %s gets nothing of it", name, b.resource, r.done.To)
	}
	return nil
}

// isGiven reports whether requests may have given a limit. Others are stored.
func isGiven(l *zlimit.Limit) bool {
	return l.Resets == "" && l.Session == 0 && l.Windows == "" && l.Mode == zlimit.ModeEnforced && len(grammar.Shares(l.Floors)) == 0
}

// wider returns the resources that a resource lies within.
func (r *rotator) wider(ctx context.Context, resource string) (wider []string, err error) {
	for seen := []string{resource}; ; seen = append(seen, resource) {
		found, err := r.l.Resources.Get(ctx, resource)
		if err != nil || found.Within == "" || slices.Contains(seen, found.Within) {
			return seen[1:], err
		}
		resource = found.Within
	}
}

// left returns what an entity has left of a resource, by limits that are given, or by the stored limits if there are none. It may be suspended.
func (r *rotator) left(ctx context.Context, entity, resource string, given []zlimit.Limit) (map[string]balance, error) {
	statuses, err := r.l.Available(hooks.Look(ctx), zlimit.AvailableQuery{Entity: entity, Resource: resource, Limits: given})
	if errors.Is(err, zlimit.ErrNoLimits) {
		err = nil
	}
	return balancesOf(statuses, resource), err
}

// balancesOf returns the limits of the entity itself for a resource. Slots are held by leases, which stay with the old entity.
func balancesOf(statuses zlimit.Statuses, resource string) map[string]balance {
	limits := map[string]balance{}
	for _, s := range statuses {
		if s.Ancestor == 0 && s.Wider == 0 && s.Resource == resource && s.Limit.Term == 0 {
			limits[s.Limit.Name] = balance{s.Limit, s.Now().Capacity, s.Available, s.GrantEnds}
		}
	}
	return limits
}

// use takes from the new entity what it has too much of the limits that are asked, whatever it has left: a debt is carried over, too. A request
// that asks for nothing is remembered by its ID. Its lease is settled with the amounts, which a repeated call finds settled. A
// bucket with limits that are given is made by a request that asks for something, and what that has taken is settled as well. It adds what
// was charged, by this call or by a call before.
func (r *rotator) use(ctx context.Context, b *used, given []zlimit.Limit, asked zlimit.Amounts, round int, all *Charge) error {
	names := slices.Sorted(maps.Keys(asked))
	if len(given) > 0 {
		asked[names[0]] = 1
	}
	lease, err := r.l.Acquire(ctx, zlimit.Request{
		Entity: r.done.To, Resource: b.resource, Consume: asked, Limits: given, OnUnavailable: zlimit.PolicyBlock,
		ID: r.operation(b.resource, "use "+strings.Join(names, " "), round), // a request of other limits is another one
	})
	if err != nil {
		return err
	}
	token, err := lease.Token(zlimit.MaxTokenTime)
	if err != nil {
		return err
	}
	has, err := r.left(ctx, r.done.To, b.resource, given)
	if err != nil {
		return err
	}
	actual := zlimit.Amounts{}
	for name, taken := range asked {
		was, now := b.limits[name], has[name]
		actual[name] = max(taken+now.left-was.left, 0)
	}
	err = r.l.Settle(ctx, token, actual, zlimit.SettleExactly())
	var settled *zlimit.SettledError
	if errors.As(err, &settled) {
		actual, err = settled.Amounts, nil
	}
	for name, n := range actual {
		if n > 0 {
			all.Used[name] += n
		}
	}
	return err
}

// grant adds amounts to what the new entity has, of limits of which the old one has more than they begin with.
func (r *rotator) grant(ctx context.Context, b *used, amounts zlimit.Amounts, round int) error {
	for name, n := range amounts { // limits may have grants with different ends
		top := zlimit.TopUpRequest{
			Entity: r.done.To, Resource: b.resource, Amounts: zlimit.Amounts{name: n}, Until: b.limits[name].ends,
			OperationID: r.operation(b.resource, "grant "+name, round),
		}
		_, err := r.l.Limits.TopUp(ctx, top)
		var invalid *zlimit.ValidationError
		if errors.As(err, &invalid) && invalid.Field == "operation id" { // a run before has granted what was missing then
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// operation returns the ID of a change of a bucket of the new entity in a round. Another entity of that name, made later, has others.
func (r *rotator) operation(resource, what string, round int) string {
	if round > 0 {
		what += "\n" + strconv.Itoa(round)
	}
	sum := sha256.Sum256([]byte(r.done.From + "\n" + r.done.To + "\n" + r.new.CreatedAt.Format(time.RFC3339) + "\n" + resource + "\n" + what))
	return "rotate-" + hex.EncodeToString(sum[:12])
}
