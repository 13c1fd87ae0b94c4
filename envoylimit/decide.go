package envoylimit

import (
	"context"
	"errors"

	"github.com/zlimit/zlimit-go/zlimit"
)

// decide asks all limits of a request.
func (s *Service) decide(ctx context.Context, t *turn) (err error) {
	var hard, quotas []*ask
	for i := range t.asks {
		switch a := &t.asks[i]; {
		case a.kind == askSettlement:
			if err := s.settle(ctx, t.caller, a); err != nil {
				return err
			}
		case a.kind == askBlocked:
			a.refused = true
			hard = append(hard, a)
		case a.kind != askLimit:
		case a.limit != nil && a.limit.quota:
			quotas = append(quotas, a)
		default:
			hard = append(hard, a)
		}
	}
	if t.refused, err = s.all(ctx, t.domain, hard); !t.refused && err == nil {
		t.refused, err = s.any(ctx, hard, quotas)
	}
	return err
}

// all asks limits of which each may refuse the request. Unless they are counted one by one, all are charged or none.
func (s *Service) all(ctx context.Context, d *domain, asks []*ask) (refused bool, err error) {
	var charges []*ask
	for _, a := range asks {
		if a.kind == askLimit && !a.question {
			charges = append(charges, a)
			continue
		}
		if a.kind == askLimit {
			if err := s.look(ctx, a); err != nil {
				return false, err
			}
		}
		refused = refused || a.refused
	}
	if d.CountRefused {
		for _, a := range charges {
			if err := s.charge(ctx, a); err != nil {
				return false, err
			}
			refused = refused || a.refused
		}
		return refused, nil
	}
	switch {
	case refused || len(charges) == 0:
		return refused, nil
	case len(charges) == 1:
		err := s.charge(ctx, charges[0])
		return charges[0].refused, err
	}
	requests := make([]zlimit.Request, len(charges))
	for i, a := range charges {
		requests[i] = a.request
	}
	leases, err := s.limiter.AcquireAll(ctx, requests)
	if err != nil {
		return refuse(err, charges...)
	}
	for i, a := range charges {
		a.lease = leases.Of(i)
		a.statuses = a.lease.Statuses()
	}
	return false, nil
}

// any asks quotas, each by itself: the request is refused if all of them refuse it. What other limits were charged is given back then.
func (s *Service) any(ctx context.Context, hard, quotas []*ask) (bool, error) {
	left := len(quotas)
	for _, a := range quotas {
		ask := s.charge
		if a.question {
			ask = s.look
		}
		if err := ask(ctx, a); err != nil {
			s.giveBack(ctx, append(hard, quotas...))
			return false, err
		}
		if a.refused {
			left--
		}
	}
	if len(quotas) > 0 && left == 0 {
		s.giveBack(ctx, hard)
		return true, nil
	}
	return false, nil
}

// charge asks the limits of one descriptor.
func (s *Service) charge(ctx context.Context, a *ask) error {
	lease, err := s.limiter.Acquire(ctx, a.request)
	if err != nil {
		_, err := refuse(err, a)
		return err
	}
	a.lease, a.statuses = lease, lease.Statuses()
	return nil
}

// look answers a question: a descriptor of zero hits is refused if nothing is left.
func (s *Service) look(ctx context.Context, a *ask) error {
	all, err := s.limiter.Available(ctx, zlimit.AvailableQuery{
		Entity: a.request.Entity, Resource: a.request.Resource, Limits: a.request.Limits, Parents: true,
	})
	if err != nil {
		_, err := refuse(err, a)
		return err
	}
	for _, status := range all {
		if _, ok := a.amounts[status.Limit.Name]; !ok {
			continue
		}
		if status.Available < max(1, a.amounts[status.Limit.Name]) && status.Limit.Mode == zlimit.ModeEnforced {
			a.refused, status.Exceeded = true, true
		}
		a.statuses = append(a.statuses, status)
	}
	return nil
}

// refuse notes a refusal at the descriptors that it is of. It returns an error that is no refusal.
func refuse(err error, asks ...*ask) (bool, error) {
	var exceeded *zlimit.ExceededError
	var disabled *zlimit.DisabledError
	switch {
	case errors.As(err, &exceeded):
		found := false
		for _, a := range asks {
			for _, status := range exceeded.Statuses {
				if status.Entity == a.request.Entity && status.Resource == a.request.Resource {
					a.statuses = append(a.statuses, status)
					a.refused = a.refused || status.Exceeded
				}
			}
			found = found || a.refused
		}
		if !found { // by a parent, or a wider resource
			for _, a := range asks {
				a.refused, a.statuses = true, exceeded.Statuses
			}
		}
		return true, nil
	case errors.As(err, &disabled):
		for _, a := range asks {
			a.refused = len(asks) == 1 || a.request.Entity == disabled.Entity
		}
		return true, nil
	}
	return false, err
}

// giveBack gives back what descriptors were charged.
func (s *Service) giveBack(ctx context.Context, asks []*ask) {
	for _, a := range asks {
		if a.lease == nil {
			continue
		}
		if err := a.lease.Rollback(context.WithoutCancel(ctx)); err != nil {
			s.options.logger.ErrorContext(ctx, "a charge was not given back", "resource", a.request.Resource, "error", err)
		}
		a.lease = nil
	}
}
