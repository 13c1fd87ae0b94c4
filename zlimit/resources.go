package zlimit

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/internal/protocol"
)

// A Resource is something that requests consume, such as a model. It needs a record only if a field besides ID is set.
type Resource struct {
	ID string `json:"id"`
	// Within is the wider resource, "" for none. A request of the resource is charged to the buckets of both, for those limits that
	// each of them has: see [Config.Within].
	Within string `json:"within,omitempty"`
	// Cascade says whether requests of the resource charge the parents of their entities, see [Config.Cascade]. A level of the entity takes
	// precedence. For wider resources, the setting of the request's own resource applies.
	Cascade CascadePolicy `json:"cascade,omitempty"`
}

// A ResourceService stores which resources lie within wider ones, and which of them charge parents. The level of a resource stores this
// together with the limits: see [Config.Within] and [Config.Cascade]. It is safe for concurrent use.
type ResourceService struct{ l *RateLimiter }

// Put stores the wider resource of a resource, and whether its requests charge parents. If Within is empty, the resource is part of none.
// If Cascade is empty, [Entity.Cascade] decides whether parents are charged. The limits of the resource do not change. A change reaches
// other processes within their [WithConfigTTL], like a change of limits.
//
// A changed Cascade is also copied to the known buckets, and takes effect for them immediately, in every process. The copies cost what the
// marks of [LimitService.Disable] cost. The same applies to [LimitService.Set] and [LimitService.Update] at any level. If copying fails,
// the policy is stored, and other programs use the former copies: [LimitService.LeaveSwitch] of the level copies again. Leases return
// tokens to the parents that they charged. The first policy raises the version required of clients to 0.16.0.
//
// Put returns a [*ValidationError], and has written nothing, if
//   - a resource would be part of itself, or a chain would have more than three resources, as far as the stored resources show. Two
//     concurrent calls may still make a cycle, and requests of its resources then fail;
//   - nothing is stored for the wider resource: neither its own limits nor an entity's limits for it.
//
// Older programs would not charge the wider resource. So the first write of a wider resource, by Put or otherwise, raises the version
// required of clients to 0.17.1, see [LimitService]. Older ones are rejected when they start, with a [*VersionError]. Running ones
// continue until they are restarted. A limiter with [WithMixedFleet] rejects wider resources, since zae-limiter has none.
//
// Put costs what [LimitService.Update] costs. A new wider resource costs further reads: of the registries of resources and of levels, of
// each stored resource, and of the version of the table. A Put that changes nothing writes nothing.
func (s *ResourceService) Put(ctx context.Context, r Resource) error {
	at := Level{Resource: r.ID}
	if r.ID == "" {
		return validateResource(r.ID)
	}
	config := Config{Within: r.Within, Cascade: r.Cascade}
	if err := at.validate(); err != nil {
		return err
	}
	if err := cmp.Or(config.checkWithin(at), r.Cascade.check(at)); err != nil {
		return err
	}
	if err := s.l.Limits.checkFleet(r.Within); err != nil {
		return err
	}
	return s.l.Limits.Update(ctx, at, func(c *Config) error {
		c.Within, c.Cascade = r.Within, r.Cascade
		return nil
	})
}

// Get returns the stored resource. A resource that is not stored lies within none. It costs one consistent read.
func (s *ResourceService) Get(ctx context.Context, id string) (Resource, error) {
	if id == "" {
		return Resource{}, validateResource(id)
	}
	config, err := s.l.Limits.Get(ctx, Level{Resource: id})
	return Resource{id, config.Within, config.Cascade}, err
}

// List yields the stored resources, in alphabetical order. It costs a read of their names, and a consistent read of each. An error ends the
// loop.
func (s *ResourceService) List(ctx context.Context) iter.Seq2[Resource, error] {
	return func(yield func(Resource, error) bool) {
		for stored, err := range s.l.Limits.List(ctx, LevelQuery{Source: SourceResource}) {
			if !yield(Resource{stored.Level.Resource, stored.Config.Within, stored.Config.Cascade}, err) || err != nil {
				return
			}
		}
	}
}

// checkWithin checks the wider resource of a config, which may be none.
func (c *Config) checkWithin(at Level) error {
	switch {
	case c.Within == "":
		return nil
	case at.Source() != SourceResource:
		return &ValidationError{Field: "within", Value: c.Within, Reason: "is for resources alone"}
	case c.Within == at.Resource:
		return &ValidationError{Field: "within", Value: c.Within, Reason: "must be another resource than the one that lies within it"}
	case c.Within == DefaultResource || reservedName(c.Within):
		return &ValidationError{Field: "within", Value: c.Within, Reason: "is reserved"}
	default:
		return invalid("within", c.Within, grammar.CheckName(c.Within))
	}
}

// admitWider returns an error unless a resource may lie within a wider one, by the stored levels of the others. None
// needs no check.
func (s *LimitService) admitWider(ctx context.Context, resource, within string) error {
	if within == "" {
		return nil
	}
	wider := map[string]string{}
	for other, err := range s.l.Resources.List(ctx) {
		if err != nil {
			return err
		}
		wider[other.ID] = other.Within
	}
	_, known := wider[within]
	wider[resource] = within
	if chain := grammar.CheckWithin(wider, func(id string) bool { return id == resource }); chain != nil {
		return &ValidationError{
			Field: "within", Value: within, Reason: "makes a circle, or a chain of more than three resources: " + strings.Join(chain, " within "),
		}
	}
	if !known {
		others, err := s.resourcesOfEntities(ctx, &LevelQuery{Source: SourceEntity})
		if err != nil {
			return publicError("read which resources have limits", err)
		}
		if !slices.Contains(others, within) {
			return &ValidationError{Field: "within", Value: within, Reason: "has no limits; set limits of the resource first, or limits of an entity for it"}
		}
	}
	return s.checkFleet(within)
}

// A chain of requests is as long as one that may be stored.
var _ [grammar.MaxWithin]struct{} = [protocol.MaxWidth]struct{}{}

// checkSlots returns an error for slots, and for guaranteed shares, in a table that zae-limiter shares.
func (s *LimitService) checkSlots(limits []Limit) error {
	for i := range limits {
		if l := &limits[i]; l.Term != 0 && s.l.options.mixedFleet {
			reason := "is of slots, which zae-limiter does not know, and WithMixedFleet says that it shares the table"
			return &ValidationError{Field: "limits[" + l.Name + "]", Value: l.String(), Reason: reason}
		}
		if l := &limits[i]; s.l.options.mixedFleet && len(grammar.Shares(l.Floors)) > 0 {
			reason := "guarantees shares, which zae-limiter does not know, and WithMixedFleet says that it shares the table"
			return &ValidationError{Field: "limits[" + l.Name + "]", Value: l.String(), Reason: reason}
		}
	}
	return nil
}

// checkFleet returns an error for a wider resource in a table that zae-limiter shares.
func (s *LimitService) checkFleet(within string) error {
	if within == "" || !s.l.options.mixedFleet {
		return nil
	}
	return &ValidationError{
		Field: "within", Value: within,
		Reason: "zae-limiter does not charge wider resources, and WithMixedFleet says that it shares the table",
	}
}
