package main

import (
	"context"
	"errors"

	"github.com/zlimit/zlimit-go/zlimit"
)

// demoKeys are for a first try: they are public. -keys names a file of other ones.
var demoKeys = []virtualKey{
	{Hash: hashOf("search-key"), Team: "acme-search"},
	{Hash: hashOf("batch-key"), Team: "acme-batch", Models: []string{"gpt-*-mini*", "*claude-*haiku*", "gemini-*flash*"}},
}

// account is the organization whose keys at the providers are used. The providers' remaining figures lower its buckets.
const account = "acme"

// A team has its own limits and the limits of its organization.
type team struct {
	id     string
	parent string // "" for an organization
	limits map[string][]zlimit.Limit
}

// teams are those that the gateway creates when it starts for the first time; organizations come before their members.
var teams = []team{
	{account, "", limitsOf(zlimit.PerMinute("requests", 100), zlimit.PerMinute("tokens", 20_000))},
	{"acme-search", account, limitsOf(zlimit.PerMinute("requests", 60), zlimit.PerMinute("tokens", 10_000))},
	{"acme-batch", account, limitsOf(zlimit.PerMinute("requests", 10), zlimit.PerMinute("tokens", 15_000))},
}

// limitsOf are limits of requests at the gateway, and of tokens of each kind of model.
func limitsOf(requests, tokens zlimit.Limit) map[string][]zlimit.Limit {
	return map[string][]zlimit.Limit{"gateway": {requests}, "": {tokens}}
}

// open returns a limiter on a store with everything that the gateway needs. An operator's changes stay.
func open(ctx context.Context, store string, opts ...zlimit.Option) (*zlimit.RateLimiter, error) {
	limiter, err := zlimit.Open(ctx, store, append(opts, zlimit.WithSetup(), zlimit.WithPrincipal("gateway"))...)
	if err != nil {
		return nil, err
	}
	for _, t := range teams {
		if err := t.ensure(ctx, limiter); err != nil {
			return nil, errors.Join(err, limiter.Close())
		}
	}
	return limiter, nil
}

// ensure stores a team and its limits if they are missing.
func (t *team) ensure(ctx context.Context, limiter *zlimit.RateLimiter) error {
	_, err := limiter.Entities.Ensure(ctx, zlimit.Entity{ID: t.id, ParentID: t.parent, Cascade: t.parent != ""})
	if err != nil {
		return err
	}
	for resource, limits := range t.limits {
		stored, err := limiter.Limits.Get(ctx, zlimit.Level{Entity: t.id, Resource: resource})
		if err == nil && len(stored.Limits) == 0 {
			err = limiter.Limits.Set(ctx, zlimit.Level{Entity: t.id, Resource: resource}, zlimit.Config{Limits: limits})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
