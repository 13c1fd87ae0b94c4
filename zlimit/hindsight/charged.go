package hindsight

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// charged names what requests of an entity for the resource were charged to.
type charged struct {
	entities  []string // the entity, then its parents
	resources []string // the resource, then the wider ones
	passing   []string // which of both were not charged all the time
}

// most bounds the entities and the resources of a request.
const most = 8

// charged returns what requests of an entity were charged to between two times, as far as audit events say, and as it is now where they do
// not. It makes two reads and a query for each entity, and four queries for each resource.
func (p *past) charged(ctx context.Context, entity string, from, to time.Time) (charged, error) {
	first, err := p.chargedAt(ctx, entity, from)
	if err != nil {
		return charged{}, err
	}
	last, err := p.chargedAt(ctx, entity, to)
	if err != nil {
		return charged{}, err
	}
	c := charged{entities: union(first.entities, last.entities), resources: union(first.resources, last.resources)}
	for _, name := range slices.Concat(c.entities, c.resources) {
		if !first.has(name) || !last.has(name) {
			c.passing = append(c.passing, name)
		}
	}
	for _, name := range c.resources {
		if !slices.Contains(p.resources, name) {
			p.resources = append(p.resources, name)
		}
	}
	return c, nil
}

func (p *past) chargedAt(ctx context.Context, entity string, at time.Time) (c charged, err error) {
	c.resources, err = upward(p.resource, func(name string) (string, error) {
		h, err := p.history(ctx, entity, name)
		if err != nil {
			return "", err
		}
		return h.within(at), nil
	})
	if err == nil {
		c.entities, err = upward(entity, func(name string) (string, error) { return p.parent(ctx, name, at) })
	}
	return c, err
}

func (c *charged) has(name string) bool {
	return slices.Contains(c.entities, name) || slices.Contains(c.resources, name)
}

// union appends the names of a list that another one lacks to it.
func union(names, more []string) []string {
	names = slices.Clone(names)
	for _, name := range more {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// levels returns an entity and a resource for each bucket: the entity itself first.
func (c *charged) levels() (all []zlimit.Level) {
	for _, entity := range c.entities {
		for _, resource := range c.resources {
			all = append(all, zlimit.Level{Entity: entity, Resource: resource})
		}
	}
	return all
}

// upward returns a name and those above it. Another program may have made a circle, which ends it.
func upward(name string, above func(string) (string, error)) (names []string, err error) {
	for err == nil && name != "" && !slices.Contains(names, name) && len(names) < most {
		names = append(names, name)
		name, err = above(name)
	}
	return names, err
}

// parent returns the parent that requests of an entity were charged to at a time, "" for none.
func (p *past) parent(ctx context.Context, entity string, at time.Time) (string, error) {
	record, known := p.records[entity]
	if !known {
		var err error
		if record, err = p.limiter.Entities.Get(ctx, entity); err != nil && !errors.Is(err, zlimit.ErrEntityNotFound) {
			return "", err
		}
		p.records[entity] = record
	}
	if record.ID == "" {
		return "", nil
	}
	resolved, err := p.limiter.Limits.Resolve(ctx, entity, p.resource)
	if err != nil && !errors.Is(err, zlimit.ErrNoLimits) {
		return "", err
	}
	if resolved.Cascade == zlimit.CascadeNever || resolved.Cascade == zlimit.CascadeInherit && !record.Cascade {
		return "", nil
	}
	events, err := p.all(ctx, entity)
	return parentAt(events, record.ParentID, at), err
}

// parentAt returns the parent of an entity at a time, by its events, the latest first, and by the present one.
func parentAt(events []zlimit.AuditEvent, present string, at time.Time) string {
	parent := present
	for i := range events {
		e := &events[i]
		before, _ := e.Details["before"].(map[string]any)
		switch e.Action {
		case zlimit.ActionEntityCreated:
		case zlimit.ActionEntityMoved:
		default:
			continue
		}
		if !e.Time.After(at) {
			parent, _ = e.Details["parent_id"].(string)
			return parent
		}
		parent, _ = before["parent_id"].(string)
	}
	return parent
}
