package main

import (
	"context"
	"errors"

	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
)

// keys are those of the tenants. A gateway in earnest keeps their hashes, as [httplimit.ByBearer] makes them.
var keys = map[string]string{"search-key": "acme-search", "batch-key": "acme-batch"}

// models says which models are limited together. A model that none of the rules is for is refused.
var models = []llm.Rule{
	{Pattern: "*mini*", Resource: "small"},
	{Pattern: "*haiku*", Resource: "small"},
	{Pattern: "*flash*", Resource: "small"},
	{Pattern: "gpt-*", Resource: "large"},
	{Pattern: "claude-*", Resource: "large"},
	{Pattern: "gemini-*", Resource: "large"},
}

// A team has limits of its own, and those of its organization.
type team struct {
	id     string
	parent string // "" for an organization
	limits map[string][]zlimit.Limit
}

// teams are those that the gateway creates when it starts for the first time; organizations come before their members.
var teams = []team{
	{"acme", "", limitsOf(zlimit.PerMinute("requests", 100), zlimit.PerMinute("tokens", 20_000))},
	{"acme-search", "acme", limitsOf(zlimit.PerMinute("requests", 60), zlimit.PerMinute("tokens", 10_000))},
	{"acme-batch", "acme", limitsOf(zlimit.PerMinute("requests", 10), zlimit.PerMinute("tokens", 15_000))},
}

// limitsOf are limits of requests at the gateway, and of tokens of each kind of model.
func limitsOf(requests, tokens zlimit.Limit) map[string][]zlimit.Limit {
	return map[string][]zlimit.Limit{"gateway": {requests}, zlimit.DefaultResource: {tokens}}
}

// open returns a limiter on a store with everything that the gateway needs. What an operator has changed stays.
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

// ensure stores a team and its limits where they are missing.
func (t *team) ensure(ctx context.Context, limiter *zlimit.RateLimiter) error {
	_, err := limiter.Entities.Ensure(ctx, zlimit.Entity{ID: t.id, ParentID: t.parent, Cascade: t.parent != ""})
	if err != nil {
		return err
	}
	for resource, limits := range t.limits {
		stored, err := limiter.Limits.Entity(ctx, t.id, resource)
		if err == nil && len(stored) == 0 {
			err = limiter.Limits.SetEntity(ctx, t.id, resource, limits)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
