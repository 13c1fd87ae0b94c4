package zlimit

import "context"

// A LevelConfig is what is stored for a resource, or for an entity and a resource: limits, and what happens while the
// store is unavailable. Each of the two comes from the first level that has it, in the order of [Source]. So a level
// may have a failure policy and leave its limits to the next one.
type LevelConfig struct {
	Limits []Limit `json:"limits"`
	// OnUnavailable is the failure policy of requests that do not set one; Inherit leaves it to the next level.
	OnUnavailable FailurePolicy `json:"on_unavailable"`
}

// level returns the config as it is stored.
func (c *LevelConfig) level() (level, error) {
	return level{limits: c.Limits, policy: c.OnUnavailable}, c.OnUnavailable.validate()
}

// validate returns an error for a policy that does not exist.
func (p FailurePolicy) validate() error {
	if p > Allow {
		return &ValidationError{Field: "on unavailable", Value: p.String(), Reason: "must be Inherit, Block or Allow"}
	}
	return nil
}

// SetResourceConfig replaces the limits and the failure policy of a resource.
func (s *LimitService) SetResourceConfig(ctx context.Context, resource string, c LevelConfig) error {
	if err := validateResource(resource); err != nil {
		return err
	}
	return s.setConfig(ctx, s.l.ns.resourceLevel(resource), c)
}

// ResourceConfig returns what is stored for a resource, an empty config for nothing.
func (s *LimitService) ResourceConfig(ctx context.Context, resource string) (LevelConfig, error) {
	if err := validateResource(resource); err != nil {
		return LevelConfig{}, err
	}
	return s.config(ctx, s.l.ns.resourceLevel(resource))
}

// SetEntityConfig replaces the limits and the failure policy of an entity for a resource, or with [DefaultResource] for every
// resource for which it has none. The entity need not exist.
func (s *LimitService) SetEntityConfig(ctx context.Context, entity, resource string, c LevelConfig) error {
	if err := validateEntityLevel(entity, resource); err != nil {
		return err
	}
	return s.setConfig(ctx, s.l.ns.entityLevel(entity, resource), c)
}

// EntityConfig returns what is stored for an entity and a resource, an empty config for nothing.
func (s *LimitService) EntityConfig(ctx context.Context, entity, resource string) (LevelConfig, error) {
	if err := validateEntityLevel(entity, resource); err != nil {
		return LevelConfig{}, err
	}
	return s.config(ctx, s.l.ns.entityLevel(entity, resource))
}

func (s *LimitService) setConfig(ctx context.Context, at configRef, c LevelConfig) error {
	want, err := c.level()
	if err != nil {
		return err
	}
	return s.set(ctx, at, want, 0)
}

func (s *LimitService) config(ctx context.Context, at configRef) (LevelConfig, error) {
	found, _, err := s.get(ctx, at)
	return LevelConfig{found.limits, found.policy}, err
}
