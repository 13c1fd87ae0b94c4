package envoylimit

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
)

// handOn closes the leases of a request. The leases of estimates become a token that settles them. If one cannot be handed on, the estimates are
// given back.
func (s *Service) handOn(ctx context.Context, t *turn) error {
	var estimates []*ask
	for i := range t.asks {
		switch a := &t.asks[i]; {
		case a.lease == nil:
		case t.Lease > 0 && len(a.estimated) > 0:
			estimates = append(estimates, a)
		default:
			if err := a.lease.Commit(ctx); err != nil {
				return err
			}
		}
	}
	if len(estimates) == 0 {
		return nil
	}
	claims, err := s.claims(t, estimates)
	if err == nil {
		t.lease, err = s.options.signer.Sign(claims)
	}
	if err == nil {
		s.options.held.Add(claims)
		return nil
	}
	for i := range claims.Leases { // their leases are closed
		err = errors.Join(err, s.limiter.Settle(context.WithoutCancel(ctx), claims.Leases[i].Token, nothing(estimates[i].amounts)))
	}
	s.giveBack(ctx, estimates[len(claims.Leases):])
	return err
}

// nothing returns amounts of zero of the same limits.
func nothing(of zlimit.Amounts) zlimit.Amounts {
	none := make(zlimit.Amounts, len(of))
	for name := range of {
		none[name] = 0
	}
	return none
}

// claims returns what a token of estimates says: of each lease the limits alone that a settlement corrects. After an error, it has the
// leases that were closed before.
func (s *Service) claims(t *turn, estimates []*ask) (*leasetoken.Claims, error) {
	until := s.options.now().Add(t.Lease)
	claims := &leasetoken.Claims{Namespace: s.options.namespace, Caller: t.caller.Name, Expires: until, Last: until}
	for _, a := range estimates {
		text, err := a.lease.Token(t.Lease)
		if err != nil {
			return claims, err
		}
		lease := leasetoken.Lease{Token: text, Entity: a.request.Entity, Resource: a.request.Resource, Amounts: map[string]int64{}}
		for _, name := range a.estimated {
			lease.Amounts[name] = a.hits
		}
		claims.Leases = append(claims.Leases, lease)
	}
	return claims, nil
}

// settle settles the leases of an earlier request, whose actual amount is the hits.
func (s *Service) settle(ctx context.Context, caller Caller, a *ask) error {
	claims, err := s.options.signer.Open(a.sealed, s.options.namespace, caller.Name, s.options.now())
	switch {
	case errors.Is(err, leasetoken.ErrExpired):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, leasetoken.ErrForeign):
		return status.Error(codes.PermissionDenied, err.Error())
	case err != nil:
		return status.Error(codes.InvalidArgument, err.Error())
	}
	var failed error
	for i := range claims.Leases {
		actual := zlimit.Amounts{}
		for name := range claims.Leases[i].Amounts {
			actual[name] = a.hits
		}
		err := s.limiter.Settle(ctx, claims.Leases[i].Token, actual)
		if err == nil || errors.Is(err, zlimit.ErrSettled) { // by another replica
			s.options.held.Settled(claims.Leases[i].Token)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}
