package main

import (
	"context"
	"errors"

	"github.com/zlimit/zlimit-go/zlimit"
)

// The limits that requests take of.
const (
	requests = "requests"
	tokens   = "tokens"
)

// A tenant is who calls the gateway, or what several of them belong to.
type tenant struct {
	id     string
	parent string // "" for an organisation
	limits []zlimit.Limit
}

// tenants are those that there are when the gateway starts for the first time; organisations come before their members.
var tenants = []tenant{
	{"acme", "", []zlimit.Limit{zlimit.PerMinute(requests, 100), zlimit.PerMinute(tokens, 20_000)}},
	{"acme-search", "acme", []zlimit.Limit{zlimit.PerMinute(requests, 60), zlimit.PerMinute(tokens, 10_000)}},
	{"acme-batch", "acme", []zlimit.Limit{zlimit.PerMinute(requests, 10), zlimit.PerMinute(tokens, 15_000)}},
}

// open returns a limiter on a store with everything that the gateway needs.
func open(ctx context.Context, store string, opts ...zlimit.Option) (*zlimit.RateLimiter, error) {
	limiter, err := zlimit.Open(ctx, store, append(opts, zlimit.WithSetup(), zlimit.WithPrincipal("gateway"))...)
	if err != nil {
		return nil, err
	}
	for _, t := range tenants {
		if err := ensure(ctx, limiter, t); err != nil {
			return nil, errors.Join(err, limiter.Close())
		}
	}
	return limiter, nil
}

// ensure stores a tenant and its limits where they are missing. Limits that an operator has changed stay as they are.
func ensure(ctx context.Context, limiter *zlimit.RateLimiter, t tenant) error {
	e := zlimit.Entity{ID: t.id, ParentID: t.parent, Cascade: t.parent != ""}
	if _, err := limiter.Entities.Create(ctx, e); err != nil && !errors.Is(err, zlimit.ErrEntityExists) {
		return err
	}
	_, err := limiter.Limits.Entity(ctx, t.id, zlimit.DefaultResource)
	if errors.Is(err, zlimit.ErrNoLimits) {
		return limiter.Limits.SetEntity(ctx, t.id, zlimit.DefaultResource, t.limits)
	}
	return err
}
