package page

import (
	"context"
	"fmt"
	"net/http"
	"slices"
)

// resource returns the resource that a request asks for, or else the busiest one, with the names for tabs.
func (p *page) resource(ctx context.Context, r *http.Request, v *view) (asked string, names []string, err error) {
	if names, err = p.feed.resources(ctx); err != nil {
		return "", nil, err
	}
	if asked = r.URL.Query().Get("resource"); asked == "" && len(names) == 0 {
		v.Screen = "empty"
		return "", nil, nil
	}
	if asked == "" {
		asked = p.busiest(names)
	}
	return asked, names[:min(len(names), 12)], nil
}

// mostTogether bounds the resources that are read for a screen of all of them. Each costs what a screen of its own does.
const mostTogether = 32

// resources is [page.resource] for a screen that can show all resources, too. It returns the names of those to read.
func (p *page) resources(ctx context.Context, r *http.Request, v *view) (asked string, names, tabs []string, err error) {
	if asked, tabs, err = p.resource(ctx, r, v); err != nil || asked == "" {
		return asked, nil, tabs, err
	}
	all, err := p.feed.resources(ctx)
	if n := len(all); n > 1 && n <= mostTogether {
		tabs = slices.Concat([]string{everyone}, tabs)
	} else if asked == everyone {
		return "", nil, nil, &statusError{http.StatusBadRequest, fmt.Sprintf("resource must be one of %d: from 2 to %d can be shown together", n, mostTogether)}
	}
	if asked == everyone {
		return asked, all, tabs, err
	}
	return asked, []string{asked}, tabs, err
}

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
