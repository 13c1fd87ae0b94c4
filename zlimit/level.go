package zlimit

import (
	"cmp"
	"reflect"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Level is a place where limits are stored. Its zero value is the system. Entity alone is the entity's default, for
// every resource without a level of the entity. Resource alone is the resource. Both are the entity's level for that
// resource. The entity need not exist.
//
// An empty name widens the level, so a program should check that names from outside are not empty.
type Level struct {
	Entity   string `json:"entity,omitempty"`
	Resource string `json:"resource,omitempty"`
}

// Source returns which of the four kinds of level it is.
func (v Level) Source() Source {
	switch {
	case v.Entity == "" && v.Resource == "":
		return SourceSystem
	case v.Entity == "":
		return SourceResource
	case v.Resource == "":
		return SourceEntityDefault
	default:
		return SourceEntity
	}
}

// String names the level in words, such as "entity acme, resource gpt-4".
func (v Level) String() string {
	switch v.Source() {
	case SourceSystem:
		return "system"
	case SourceResource:
		return "resource " + v.Resource
	case SourceEntityDefault:
		return "entity " + v.Entity
	default:
		return "entity " + v.Entity + ", resource " + v.Resource
	}
}

// Compare orders levels: the system, resources, entities; by name.
func (v Level) Compare(other Level) int {
	return cmp.Or(strings.Compare(v.Entity, other.Entity), strings.Compare(v.Resource, other.Resource))
}

func (v Level) validate() error {
	if v.Entity != "" {
		if err := validateEntity("entity", v.Entity); err != nil {
			return err
		}
	}
	if v.Resource == DefaultResource {
		return &ValidationError{Field: "resource", Value: v.Resource, Reason: "is reserved; a level without a resource is the entity's default"}
	}
	if v.Resource != "" {
		return validateResource(v.Resource)
	}
	return nil
}

// A Config is the content of a level: limits, the failure policy, whether parents are charged, and the wider resource of
// a resource. Limits, failure policy and cascade policy each come from the first level that has it, in the order of
// [Source]. So a level may have a failure policy and leave its limits to the next one.
type Config struct {
	Limits []Limit `json:"limits"`
	// OnUnavailable is the failure policy of requests that do not set one. PolicyInherit leaves it to the next level, and that of
	// the system to [WithFailurePolicy].
	OnUnavailable FailurePolicy `json:"on_unavailable"`
	// Within is only for the level of a resource: the wider resource that it lies within, "" for none. A request of the resource is also
	// charged to the entity's bucket of the wider one, for the limits that the entity has there. The same applies to the parents that the
	// entity cascades to. Each limit of a request must belong to the resource, or to a resource that it lies within. A chain has at most
	// three resources.
	Within string `json:"within,omitempty"`
	// Cascade says whether requests charge the parent of their entity. CascadeInherit leaves it to the next level, and finally to
	// [Entity.Cascade]. The system has none.
	Cascade CascadePolicy `json:"cascade,omitempty"`
	// AuditRetention is only for the system: how long audit events of the namespace that are written from now on are
	// kept, in whole days. 0 stands for the table's [RateLimiter.SetAuditRetention], 90 days by default.
	AuditRetention time.Duration `json:"-"`
}

// IsZero reports whether the config says nothing.
func (c *Config) IsZero() bool { return c.Same(&Config{}) }

// Same reports whether two configs say the same. The order of their limits does not count.
func (c *Config) Same(other *Config) bool {
	a, b := *c, *other
	a.Limits, b.Limits = inOrder(c.Limits), inOrder(other.Limits)
	return reflect.DeepEqual(a, b)
}

// check validates a config that is to be stored at a level, and puts its limits in order. A zero config passes.
func (c *Config) check(at Level, field string) error {
	if err := c.OnUnavailable.validate(); err != nil {
		return err
	}
	if err := validateRetention(c.AuditRetention); err != nil {
		return err
	}
	if c.AuditRetention != 0 && at != (Level{}) {
		return &ValidationError{Field: "audit retention", Value: c.AuditRetention.String(), Reason: "is for the system alone"}
	}
	if err := cmp.Or(c.checkWithin(at), c.Cascade.check(at)); err != nil {
		return err
	}
	if err := validateLimits(field, c.Limits, time.Second); err != nil {
		return err
	}
	c.Limits = inOrder(c.Limits)
	return nil
}

// nothingGiven returns the error of a config that must say something.
func nothingGiven(field string) error {
	return &ValidationError{Field: field, Value: "", Reason: "must hold at least one limit; deleting is a call of its own"}
}

func (p FailurePolicy) validate() error {
	if p > PolicyAllow {
		return &ValidationError{Field: "on unavailable", Value: p.String(), Reason: "must be PolicyInherit, PolicyBlock or PolicyAllow"}
	}
	return nil
}

// Stored is a level with its stored config.
type Stored struct {
	Level  Level  `json:"level"`
	Config Config `json:"config"`
	// Version counts the writes of the level since it was created; 0 for a level without config. [ManagedRun.Replace]
	// sets it.
	Version int64 `json:"version"`
	// Managed says that the last write was made by [ManagedRun.Replace], which sets it. [ManagedSet.Has] reports whether a file of limits
	// manages the level, even if another writer changed it last.
	Managed bool `json:"managed"`
	// Declared says that the last write was made by [LimitService.Apply]: a program declares the limits.
	Declared bool `json:"declared,omitempty"`
	// Switch says whether requests are served. No change of the config changes it, see [LimitService.Disable].
	Switch Switch `json:"switch,omitempty"`
	// Unsupported lists features of zae-limiter at the level that this version does not know, see [UnsupportedError]. Config and Managed
	// are empty then. The level can be neither changed nor deleted.
	Unsupported []UnsupportedFeature `json:"unsupported,omitempty"`
}

// refused returns an [*UnsupportedError] for a level that this version cannot limit by.
func (s *Stored) refused() error {
	if len(s.Unsupported) == 0 {
		return nil
	}
	return &UnsupportedError{s.Level.Source(), s.Level.Entity, s.Level.Resource, s.Unsupported}
}

// A configRef addresses the item of one level of a namespace.
type configRef struct {
	Level
	source Source
	key    store.Key
	ns     string
}

func (n *namespaceID) at(v Level) configRef {
	c := configRef{Level: v, source: v.Source(), ns: n.id()}
	switch c.source {
	case SourceSystem:
		c.key = layout.SystemConfigKey{NS: c.ns}.Key()
	case SourceResource:
		c.key = layout.ResourceConfigKey{NS: c.ns, Resource: v.Resource}.Key()
	default:
		c.key = layout.EntityConfigKey{NS: c.ns, Entity: v.Entity, Resource: c.storedResource()}.Key()
	}
	return c
}

// storedResource returns the resource as items and audit events have it.
func (v Level) storedResource() string {
	if v.Entity == "" {
		return v.Resource
	}
	return entityDefault(v.Resource)
}

// entityDefault returns the resource as the items of entities have it.
func entityDefault(resource string) string { return cmp.Or(resource, DefaultResource) }

// entityLevel returns the level of an entity whose item has a resource.
func entityLevel(entity, resource string) Level {
	if resource == DefaultResource {
		resource = ""
	}
	return Level{entity, resource}
}

// sourceRecord marks the record of an entity, which is read with its limits.
const sourceRecord Source = ""

func (n *namespaceID) record(entity string) configRef {
	return configRef{source: sourceRecord, key: layout.EntityKey{NS: n.id(), Entity: entity}.Key()}
}

// levelsOf returns the levels of an entity and a resource in order of precedence, and the entity's record.
func (n *namespaceID) levelsOf(entity, resource string) []configRef {
	return []configRef{
		n.at(Level{entity, resource}),
		n.at(Level{Entity: entity}),
		n.at(Level{Resource: resource}),
		n.at(Level{}),
		n.record(entity),
	}
}
