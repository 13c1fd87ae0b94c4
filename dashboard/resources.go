package dashboard

import (
	"context"
	"net/url"
	"slices"
)

// A choice is the resource of a screen, and those to choose from.
type choice struct {
	Resource string   // [everyone] for all resources
	Tabs     []string // to choose from

	each []string // the resources to read
}

// The bounds of resources: the tabs of a screen, and those that are read for all of them. Each costs what a screen of its own does.
const (
	mostTabs     = 12
	mostTogether = 32
)

// choose returns the resource that a request asks for, or else the busiest one; "" if there is none. Some screens can show all resources together.
func (p *page) choose(ctx context.Context, q url.Values, together bool) (c choice, err error) {
	all, err := p.feed.resources(ctx)
	if c.Resource = q.Get("resource"); err != nil || c.Resource == "" && len(all) == 0 {
		return c, err
	}
	if c.Resource == "" {
		c.Resource = p.busiest(all)
	}
	c.Tabs, c.each = all[:min(len(all), mostTabs)], []string{c.Resource}
	if !together {
		return c, nil
	}
	if n := len(all); n > 1 && n <= mostTogether {
		c.Tabs = slices.Concat([]string{everyone}, c.Tabs)
	} else if c.Resource == everyone {
		return c, bad("resource must be one of %d: from 2 to %d can be shown together", n, mostTogether)
	}
	if c.Resource == everyone {
		c.each = all
	}
	return c, nil
}

// nothing is the screen without a resource.
var nothing = view{Screen: "empty"}

// resourceName is a resource, or all of them, for the reader.
func resourceName(name string) string {
	if name == everyone {
		return "all resources"
	}
	return named(name)
}

// oneResource is a resource; "" for all of them.
func oneResource(name string) string {
	if name == everyone {
		return ""
	}
	return name
}

// busiest returns the resource with the most refusals in this process, or else with the most calls.
func (p *page) busiest(names []string) string {
	calls := p.Recent.Calls()
	best, most := names[0], int64(0)
	for _, name := range names {
		n := min(calls[name], 1<<40)
		for _, of := range p.Recent.Of(name).Refusals {
			n += of.N << 40
		}
		if n > most {
			best, most = name, n
		}
	}
	return best
}
