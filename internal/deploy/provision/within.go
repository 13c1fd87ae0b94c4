package provision

import (
	"context"
	"strings"

	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// nowhere marks, in a declared level, a resource that is to lie within none. It is no name. A resource for which the file does not say it
// stays within the stored one: operators also put resources within others manually.
const nowhere = "#"

// inherited marks, in a declared level, that wider levels say whether parents are charged. A level of which the file does not say it keeps
// what is stored, for the same reason.
const inherited zlimit.CascadePolicy = "inherit"

// resolve returns a declared level as it is to be stored, where another one is stored. What a file cannot say stays.
func resolve(declared, stored zlimit.Stored) zlimit.Stored {
	want, said := stored.Config, declared.Config
	want.Limits, want.OnUnavailable, want.AuditRetention = said.Limits, said.OnUnavailable, said.AuditRetention
	switch said.Cascade {
	case zlimit.CascadeInherit:
	case inherited:
		want.Cascade = zlimit.CascadeInherit
	case zlimit.CascadeAlways, zlimit.CascadeNever:
		want.Cascade = said.Cascade
	}
	switch said.Within {
	case "":
	case nowhere:
		want.Within = ""
	default:
		want.Within = said.Within
	}
	declared.Config = want
	return declared
}

// checkWithin returns a [*zlimit.ValidationError] where a resource would lie within one without limits, in a circle, or
// in a chain that is too long. Where the file changes a wider resource, it reads the stored levels of resources outside
// the file.
func (p *Provisioner) checkWithin(ctx context.Context, declared []zlimit.Stored, live map[zlimit.Level]zlimit.Stored) error {
	wider, changed := declaredWithin(declared, live)
	if len(changed) == 0 {
		return nil
	}
	all := map[string]string{}
	for stored, err := range p.limiter.Resources.List(ctx) {
		if err != nil {
			return err
		}
		all[stored.ID] = stored.Within
	}
	for id := range changed {
		if _, known := all[wider[id]]; known || declares(declared, wider[id]) {
			continue
		}
		known, err := p.hasLevels(ctx, wider[id])
		if err != nil {
			return err
		}
		if !known {
			return errUnknown(id, wider[id])
		}
	}
	for id, within := range wider {
		all[id] = within
	}
	return checkChains(all, changed)
}

// declaredWithin returns the wider resources of those in a file, and the changed ones among them.
func declaredWithin(declared []zlimit.Stored, live map[zlimit.Level]zlimit.Stored) (wider map[string]string, changed map[string]bool) {
	wider, changed = map[string]string{}, map[string]bool{}
	for _, d := range declared {
		if d.Level.Source() != zlimit.SourceResource {
			continue
		}
		before := live[d.Level]
		id, within := d.Level.Resource, resolve(d, before).Config.Within
		if wider[id] = within; within != "" && within != before.Config.Within {
			changed[id] = true
		}
	}
	return wider, changed
}

func declares(declared []zlimit.Stored, resource string) bool {
	for _, d := range declared {
		if d.Level.Resource == resource {
			return true
		}
	}
	return false
}

func (p *Provisioner) hasLevels(ctx context.Context, resource string) (bool, error) {
	for _, err := range p.limiter.Limits.List(ctx, zlimit.LevelQuery{Source: zlimit.SourceEntity, Resource: resource, NamesOnly: true}) {
		return err == nil, err
	}
	return false, nil
}

func checkChains(wider map[string]string, changed map[string]bool) error {
	chain := grammar.CheckWithin(wider, func(id string) bool { return changed[id] })
	if chain == nil {
		return nil
	}
	return &zlimit.ValidationError{
		Field: "within of resource " + chain[0], Value: wider[chain[0]],
		Reason: "makes a circle, or a chain of more than three resources: " + strings.Join(chain, " within "),
	}
}

func errUnknown(id, within string) error {
	return &zlimit.ValidationError{
		Field: "within of resource " + id, Value: within, Reason: "has no limits: neither the file nor what is stored has some for it",
	}
}
