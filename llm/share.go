package llm

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/zlimit/zlimit-go/price"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A share is what a call holds of one resource. A call of one model has one. A call that names models of several resources has one for
// each, since only the answer shows which of them were used.
type share struct {
	model    string // the first one of the resource that the request names
	resource string
	lease    *zlimit.Lease

	pace  pace       // at which it was admitted
	mu    sync.Mutex // is held while more is taken, and while it is settled
	taken zlimit.Amounts
	cut   map[string]bool // the limits of which the estimate was above the capacity
}

// divide finds the resource of each model that the request names.
func (x *exchange) divide() error {
	if x.call.Model == "" {
		_, err := x.transport.config.resource("")
		return err
	}
	for _, model := range x.call.Models {
		resource, err := x.transport.config.resource(model)
		if err != nil {
			return err
		}
		if x.shareOf(resource) == nil {
			x.shares = append(x.shares, &share{model: model, resource: resource})
		}
	}
	return nil
}

func (x *exchange) shareOf(resource string) *share {
	for _, s := range x.shares {
		if s.resource == resource {
			return s
		}
	}
	return nil
}

// own is the share of the model that is asked.
func (x *exchange) own() *share { return x.shares[0] }

// answering returns the share of the model that an answer names.
func (x *exchange) answering(model string) *share {
	if len(x.shares) == 1 {
		return x.own()
	}
	if resource, err := x.transport.config.resource(model); err == nil {
		if s := x.shareOf(resource); s != nil {
			return s
		}
	}
	if asked := x.asked(model); asked != "" {
		if resource, err := x.transport.config.resource(asked); err == nil {
			return x.shareOf(resource)
		}
	}
	return x.own()
}

// asked returns the model of the request that an answer means by a name: the one that begins it, since answers have dates
// behind the names; "" if none does.
func (x *exchange) asked(model string) string {
	found := ""
	for _, named := range x.call.Models {
		if len(named) > len(found) && strings.HasPrefix(model, named) {
			found = named
		}
	}
	return found
}

// check asks whether each model of the call may be asked.
func (x *exchange) check(check func(Call) error) error {
	for _, model := range x.call.Models {
		c := x.call
		c.Model = model
		if err := check(c); err != nil {
			return err
		}
	}
	return nil
}

// dearest returns the most that any model of the call may take.
func (x *exchange) dearest() (most zlimit.Amounts, err error) {
	for _, model := range x.call.Models {
		amounts, err := x.amounts(model, Usage{Model: model, Input: x.call.Input, Output: x.call.Output, Region: x.region})
		if err != nil {
			return nil, err
		}
		most = greater(most, amounts)
	}
	return most, nil
}

// acquire takes the estimate, cut to the capacity of the limits.
func (x *exchange) acquire(ctx context.Context) error {
	most, err := x.dearest()
	if err != nil {
		return err
	}
	x.phase = x.transport.paces.phase()
	for _, s := range x.shares {
		s.taken = make(zlimit.Amounts, len(most))
		for limit, n := range most {
			s.taken[limit] = n
		}
		if c := &x.transport.config; c.paced {
			x.scale(s.taken, x.transport.paces.get(s.resource))
			s.taken[c.pace] = 0 // so that its status comes with the lease
		}
	}
	// A quota holds more within a window than it ever has, if it resets outside of the window: then the estimate is cut once more.
	err = x.take(ctx)
	for _, capacity := range []func(zlimit.Status) int64{
		func(s zlimit.Status) int64 { return s.Now().Capacity },
		func(s zlimit.Status) int64 { return min(s.Now().Capacity, s.Limit.Capacity) },
	} {
		var exceeded *zlimit.ExceededError
		if !errors.As(err, &exceeded) || exceeded.RetryAfter() < zlimit.Never {
			return err
		}
		if x.cut(exceeded, capacity) {
			err = x.take(ctx)
		}
	}
	return err
}

// cut cuts the estimate to the capacity of limits that it exceeds, and reports whether it exceeds one.
func (x *exchange) cut(by *zlimit.ExceededError, capacity func(zlimit.Status) int64) (cut bool) {
	for _, status := range by.Statuses {
		for _, s := range x.shares {
			asked, ok := s.taken[status.Limit.Name]
			if most := capacity(status) - status.Kept; ok && asked > most && (len(x.shares) == 1 || status.Resource == s.resource) {
				if s.cut == nil {
					s.cut = map[string]bool{}
				}
				s.taken[status.Limit.Name], s.cut[status.Limit.Name], cut = most, true, true
			}
		}
	}
	return cut
}

// take takes the amounts of a call, and waits for them where calls do. Amounts of several resources are taken together, or none.
func (x *exchange) take(ctx context.Context) (err error) {
	t := x.transport
	requests := make([]zlimit.Request, len(x.shares))
	for i, s := range x.shares {
		requests[i] = zlimit.Request{Entity: x.entity, Resource: s.resource, Consume: s.taken, Priority: t.config.priority}
	}
	switch own := x.own(); {
	case len(requests) > 1:
		leases, err := t.limiter.AcquireAll(ctx, requests)
		t.warn(ctx, &requests[0], err)
		for i, s := range x.shares {
			if err == nil {
				s.lease = leases.Of(i)
			}
		}
		return err
	case t.config.maxWait == 0:
		own.lease, err = t.limiter.Acquire(ctx, requests[0])
	default:
		own.lease, err = t.limiter.Wait(ctx, requests[0], zlimit.MaxWait(t.config.maxWait))
	}
	t.warn(ctx, &requests[0], err)
	return err
}

// warn logs that limits are missing, which the caller does not learn.
func (t *Transport) warn(ctx context.Context, r *zlimit.Request, err error) {
	if err != nil {
		t.missing.Warn(ctx, t.config.logger, "llm: a call was refused since limits are missing", r, err)
	}
}

// amounts returns what a usage takes of each limit, asked as a call of a model. A usage that is not complete and has no class of service or
// speed, such as an estimate or that of a stream that broke off, has the dearer of the usual one and that which the request asks for.
func (x *exchange) amounts(asked string, u Usage) (zlimit.Amounts, error) {
	most, err := x.exactly(asked, u)
	requested := u
	requested.Service, requested.Speed = cmp.Or(u.Service, x.call.Service), cmp.Or(u.Speed, x.call.Speed)
	if err != nil || u.Complete || requested == u {
		return most, err
	}
	more, err := x.exactly(asked, requested)
	return greater(most, more), err
}

// exactly is amounts of a usage as it is.
func (x *exchange) exactly(asked string, u Usage) (zlimit.Amounts, error) {
	amounts := make(zlimit.Amounts, len(x.transport.config.charges))
	for _, c := range x.transport.config.charges {
		n, err := c.of(asked, u)
		switch {
		case errors.Is(err, price.ErrOverflow): // by a bound in the request
			n = maxAmount
		case err != nil:
			return nil, err
		}
		amounts[c.limit] = min(n, maxAmount) // which is cut to the capacity
	}
	return amounts, nil
}

// charges returns what each share takes for the usage of a call; nil for a share that the answer does not use.
func (x *exchange) charges(u Usage, parts []part) ([]zlimit.Amounts, error) {
	charges, own := make([]zlimit.Amounts, len(x.shares)), u
	for _, p := range parts {
		of := p.usage(&u, x.format.InputHasCache)
		amounts, err := x.price(of)
		if err != nil {
			return nil, err
		}
		own = own.without(of)
		call, err := x.price(Usage{Model: of.Model, Service: of.Service, Speed: of.Speed, Region: of.Region}) // what a call takes by itself, such as a request
		if err != nil {
			return nil, err
		}
		for limit := range amounts {
			amounts[limit] = max(0, amounts[limit]-call[limit])
		}
		x.charge(charges, p.model, amounts)
	}
	amounts, err := x.price(own)
	if err != nil {
		return nil, err
	}
	x.charge(charges, u.Model, amounts)
	return charges, nil
}

// charge adds amounts to the share of a model.
func (x *exchange) charge(charges []zlimit.Amounts, model string, amounts zlimit.Amounts) {
	at := slices.Index(x.shares, x.answering(model))
	x.scale(amounts, x.shares[at].pace)
	for limit, n := range charges[at] {
		amounts[limit] = plus(amounts[limit], n)
	}
	charges[at] = amounts
}

// price returns what a usage takes of each limit. Where the request names several models, and the answer another one, the dearest
// of them counts.
func (x *exchange) price(u Usage) (zlimit.Amounts, error) {
	if asked := x.asked(u.Model); asked != "" || len(x.call.Models) < 2 {
		return x.amounts(cmp.Or(asked, x.call.Model), u)
	}
	var most zlimit.Amounts
	for _, model := range x.call.Models {
		amounts, err := x.amounts(model, u)
		if err != nil {
			return nil, err
		}
		most = greater(most, amounts)
	}
	return most, nil
}

// greater returns the greater amount of each limit. It may change the first amounts.
func greater(a, b zlimit.Amounts) zlimit.Amounts {
	if a == nil {
		return b
	}
	for limit, n := range b {
		a[limit] = max(a[limit], n)
	}
	return a
}

// keepCut cuts the charge of an estimate that stands as the estimate was cut. It would otherwise be a debt of whatever the request names.
func (s *share) keepCut(charge zlimit.Amounts) {
	for limit, n := range charge {
		if s.cut[limit] {
			charge[limit] = min(n, s.taken[limit])
		}
	}
}

// settle writes the charge of a share, and returns it. What may have been written counts as written.
func (s *share) settle(ctx context.Context, charge zlimit.Amounts) (charged zlimit.Amounts, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if charge == nil {
		charge, err = zlimit.Amounts{}, s.lease.Rollback(ctx)
	} else {
		correction := make(zlimit.Amounts, len(charge))
		for limit, n := range charge {
			correction[limit] = n - s.taken[limit]
		}
		err = errors.Join(s.lease.Adjust(correction), s.lease.Commit(ctx))
	}
	var unavailable *zlimit.UnavailableError
	if err != nil && (!errors.As(err, &unavailable) || !unavailable.Unknown) {
		charge = s.taken
	}
	return charge, err
}

// correct settles the leases, and returns the charge.
func (x *exchange) correct(ctx context.Context, o outcome) (charged zlimit.Amounts, err error) {
	charges := make([]zlimit.Amounts, len(x.shares))
	if !o.unsent {
		var unpriced error
		if charges, unpriced = x.charges(o.usage, o.parts); unpriced != nil {
			err, charges = unpriced, make([]zlimit.Amounts, len(x.shares))
			for i, s := range x.shares {
				charges[i] = s.taken
			}
		}
	}
	for i, s := range x.shares {
		if u := &o.usage; !u.Complete && u.Output == x.call.Output { // nothing is known of the answer
			s.keepCut(charges[i])
		}
		one, failed := s.settle(ctx, charges[i])
		err = errors.Join(err, failed)
		if charged == nil {
			charged = one
			continue
		}
		for limit, n := range one {
			charged[limit] = plus(charged[limit], n)
		}
	}
	return charged, err
}

// usage returns the part of a call that a model took; within says that the count of the input includes the cache.
func (p *part) usage(of *Usage, within bool) Usage {
	n := &p.counts
	u := Usage{
		Model: p.model, Service: of.Service, Speed: of.Speed, Region: of.Region,
		Input: n.uncached(within), CacheRead: n[CountCacheRead], CacheWrite: n[CountCacheWrite],
		CacheWriteHour: n[CountCacheWriteHour], CacheWrite12Hours: n[CountCacheWrite12Hours],
		Output: n[CountOutput], Reasoning: min(n[CountReasoning], n[CountOutput]), Searches: n[CountSearches],
	}
	u.within()
	return u
}

// without returns a usage less a part of it.
func (u Usage) without(part Usage) Usage {
	for _, class := range [...]struct {
		of   *int64
		less int64
	}{
		{&u.Input, part.Input},
		{&u.CacheRead, part.CacheRead},
		{&u.CacheWrite, part.CacheWrite},
		{&u.CacheWriteHour, part.CacheWriteHour},
		{&u.CacheWrite12Hours, part.CacheWrite12Hours},
		{&u.Output, part.Output},
		{&u.Reasoning, part.Reasoning},
		{&u.Searches, part.Searches},
	} {
		*class.of = max(0, *class.of-class.less)
	}
	u.within()
	return u
}
