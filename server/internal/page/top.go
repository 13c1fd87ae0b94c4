package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

// A topBody is the screen that answers who uses most, and who is refused most.
type topBody struct {
	Resources, Limits []string
	Resource, Limit   string // the resource is everyone for all
	Used              []topUse
	Refused           []topRefusal
	Total             int64 // refusals of all
	All               bool  // all resources are shown
	Reach             reach
}

// A topUse is what an entity used, with its part of all.
type topUse struct {
	Entity     string
	Days       []float64
	Sum, Share float64
}

// A topRefusal is how often a limit refused an entity, with its part of all.
type topRefusal struct {
	refusal
	N     int64
	Share float64
}

const topRows = 20

func (p *page) top(ctx context.Context, r *http.Request, _ User) (view, error) {
	var v view
	resource, names, tabs, err := p.resources(ctx, r, &v)
	if err != nil || resource == "" {
		return v, err
	}
	back, err := reachOf(backwards, r.URL.Query(), "since", "24h")
	if err != nil {
		return v, err
	}
	body := &topBody{Resources: tabs, Reach: back, Resource: oneResource(resource), Limit: r.URL.Query().Get("limit"), All: resource == everyone}
	v.Body = body
	used, at, err := once(ctx, &p.feed, fmt.Sprintf("top %q %v", resource, back.d), 15*time.Second, func(ctx context.Context) (map[string]map[string][]float64, error) {
		return p.used(ctx, names, back.d)
	})
	if err != nil {
		return v, err
	}
	v.At = at
	rejected, _, err := once(ctx, &p.feed, fmt.Sprintf("top rejected %q %v", resource, back.d), 15*time.Second, func(ctx context.Context) (map[refusal]int64, error) {
		return p.rejectedOf(ctx, body.Resource, back.d)
	})
	if err != nil {
		return v, err
	}
	body.Limits = slices.SortedFunc(maps.Keys(used), func(a, b string) int { return cmp.Or(btoi(isMoney(b))-btoi(isMoney(a)), cmp.Compare(a, b)) })
	if used[body.Limit] == nil && len(body.Limits) > 0 {
		if body.Limit = body.Limits[0]; slices.Contains(body.Limits, "tpm") {
			body.Limit = "tpm"
		}
	}
	body.Used = mostUsed(used[body.Limit])
	body.Refused, body.Total = mostRefused(rejected)
	return v, nil
}

// used adds up what each entity used itself, by limit and in thirty parts of the time.
func (p *page) used(ctx context.Context, resources []string, since time.Duration) (map[string]map[string][]float64, error) {
	window := zlimit.WindowHourly
	if since > 8*24*time.Hour {
		window = zlimit.WindowDaily
	}
	to := window.End(p.Now())
	from := window.Start(to.Add(-since))
	const parts = 30
	by := map[string]map[string][]float64{}
	for _, resource := range resources {
		for s, err := range p.Limiter.Usage.Snapshots(ctx, zlimit.UsageQuery{Resource: resource, Window: window, From: from, To: to}) {
			if err != nil {
				return nil, err
			}
			part := min(max(int(float64(s.Start.Sub(from))/float64(to.Sub(from))*parts), 0), parts-1)
			for limit := range s.Consumed {
				if by[limit] == nil {
					by[limit] = map[string][]float64{}
				}
				if by[limit][s.Entity] == nil {
					by[limit][s.Entity] = make([]float64, parts)
				}
				by[limit][s.Entity][part] += ledger.Own(&s, limit, len(resources) > 1)
			}
		}
	}
	return by, nil
}

func mostUsed(used map[string][]float64) (all []topUse) {
	total := 0.0
	for _, days := range used {
		total += max(sum(days), 0)
	}
	entities := ledger.Largest(sums(used))
	for _, e := range entities[:min(len(entities), topRows)] {
		if n := sum(used[e]); n > 0 {
			all = append(all, topUse{e, used[e], n, n / total})
		}
	}
	return all
}

func mostRefused(rejected map[refusal]int64) (all []topRefusal, total int64) {
	for _, n := range rejected {
		total += n
	}
	for of, n := range rejected {
		all = append(all, topRefusal{of, n, float64(n) / float64(total)})
	}
	slices.SortFunc(all, func(a, b topRefusal) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Entity, b.Entity), cmp.Compare(a.Limit, b.Limit))
	})
	return all[:min(len(all), topRows)], total
}

// sums are the totals of amounts by day.
func sums(days map[string][]float64) map[string]float64 {
	totals := make(map[string]float64, len(days))
	for entity, of := range days {
		totals[entity] = sum(of)
	}
	return totals
}
