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
	"github.com/zlimit/zlimit-go/zlimit/recent"
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
	recent.Refusal
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
	used, at, err := once(ctx, &p.feed, fmt.Sprintf("top %q %v", resource, back.d), 15*time.Second, func(ctx context.Context) (*ledger.Series, error) {
		return p.used(ctx, names, back.d)
	})
	if err != nil {
		return v, err
	}
	v.At = at
	rejected, _, err := once(ctx, &p.feed, fmt.Sprintf("top rejected %q %v", resource, back.d), 15*time.Second, func(ctx context.Context) (map[recent.Refusal]int64, error) {
		return p.rejectedOf(ctx, body.Resource, back.d)
	})
	if err != nil {
		return v, err
	}
	body.Limits = slices.SortedFunc(maps.Keys(used.By), func(a, b string) int { return cmp.Or(btoi(isMoney(b))-btoi(isMoney(a)), cmp.Compare(a, b)) })
	if used.By[body.Limit] == nil && len(body.Limits) > 0 {
		if body.Limit = body.Limits[0]; slices.Contains(body.Limits, "tpm") {
			body.Limit = "tpm"
		}
	}
	body.Used = mostUsed(used.By[body.Limit])
	body.Refused, body.Total = mostRefused(rejected)
	return v, nil
}

// used reads what each entity used itself, by limit and in windows.
func (p *page) used(ctx context.Context, resources []string, since time.Duration) (*ledger.Series, error) {
	window := zlimit.WindowHourly
	if since > 8*24*time.Hour {
		window = zlimit.WindowDaily
	}
	to := window.End(p.Now())
	return ledger.ReadSeries(ctx, p.Limiter, zlimit.UsageQuery{Window: window, From: window.Start(to.Add(-since)), To: to}, resources...)
}

// mostUsed are the entities that used most, in thirty parts of the time.
func mostUsed(used map[string][]zlimit.Quantity) (all []topUse) {
	const parts = 30
	by, sums, total := map[string][]float64{}, map[string]float64{}, 0.0
	for e, windows := range used {
		by[e] = make([]float64, parts)
		for i, n := range windows {
			by[e][i*parts/len(windows)] += n.Float64()
		}
		sums[e] = sum(by[e])
		total += max(sums[e], 0)
	}
	entities := ledger.Largest(sums)
	for _, e := range entities[:min(len(entities), topRows)] {
		if n := sums[e]; n > 0 {
			all = append(all, topUse{e, by[e], n, n / total})
		}
	}
	return all
}

func mostRefused(rejected map[recent.Refusal]int64) (all []topRefusal, total int64) {
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
