package rls

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/server/internal/auth"
	"github.com/zlimit/zlimit-go/server/internal/token"
	"github.com/zlimit/zlimit-go/zlimit"
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
		t.lease, err = s.options.Tokens().Sign(claims)
	}
	if err == nil {
		s.options.Open.Add(claims)
		return nil
	}
	for i := range claims.Leases { // their leases are closed
		none := zlimit.Amounts{}
		for name := range estimates[i].amounts {
			none[name] = 0
		}
		err = errors.Join(err, s.options.Limiter.Settle(context.WithoutCancel(ctx), claims.Leases[i].Token, none))
	}
	s.giveBack(ctx, estimates[len(claims.Leases):])
	return err
}

// claims returns what a token of estimates says: of each lease the limits alone that a settlement corrects. After an error, it has the
// leases that were closed before.
func (s *Service) claims(t *turn, estimates []*ask) (*token.Claims, error) {
	until := s.options.Now().Add(t.Lease)
	claims := &token.Claims{Namespace: s.options.Namespace, Caller: t.caller.Name, Expires: until, Last: until}
	if s.options.Tokens == nil {
		return claims, errNoSigner
	}
	for _, a := range estimates {
		text, err := a.lease.Token(t.Lease)
		if err != nil {
			return claims, err
		}
		lease := token.Lease{Token: text, Entity: a.request.Entity, Resource: a.request.Resource, Amounts: map[string]int64{}}
		for _, name := range a.estimated {
			lease.Amounts[name] = a.hits
		}
		claims.Leases = append(claims.Leases, lease)
	}
	return claims, nil
}

// errNoSigner is for a service with leases that has no keys.
var errNoSigner = status.Error(codes.FailedPrecondition, "leases need keys that sign them")

// settle settles the leases of an earlier request, whose actual amount is the hits.
func (s *Service) settle(ctx context.Context, caller *auth.Principal, a *ask) error {
	if s.options.Tokens == nil {
		return errNoSigner
	}
	claims, err := s.options.Tokens().Open(a.sealed, s.options.Namespace, caller.Name, s.options.Now())
	switch {
	case errors.Is(err, token.ErrExpired):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, token.ErrForeign):
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
		err := s.options.Limiter.Settle(ctx, claims.Leases[i].Token, actual)
		if err == nil || errors.Is(err, zlimit.ErrSettled) { // by another replica
			s.options.Open.Settled(claims.Leases[i].Token)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}
