package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/ledger"
	"github.com/zlimit/zlimit-go/zlimit/recent"
)

// A topBody is the screen that answers who uses most, and who is refused most.
type topBody struct {
	choice

	Limits  []string
	Limit   string
	Used    []topUse
	Refused []topRefusal
	Total   int64 // refusals of all
	Reach   reach
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

// A usedAndRefused is what was read for the screen: what each entity used itself, by limit and in windows, and what was refused.
type usedAndRefused struct {
	used    *ledger.Series
	refused map[recent.Refusal]int64
	at      time.Time
}

func (p *page) top(ctx context.Context, q url.Values) (view, error) {
	c, err := p.choose(ctx, q, true)
	if err != nil || c.Resource == "" {
		return nothing, err
	}
	back, err := reachOf(backwards, q, "since", "24h")
	if err != nil {
		return view{}, err
	}
	read, err := once(ctx, p.feed, fmt.Sprintf("top %q %v", c.Resource, back.d), 15*time.Second, func(ctx context.Context) (r usedAndRefused, err error) {
		r.at = p.Now()
		window := zlimit.WindowHourly
		if back.d > 8*24*time.Hour {
			window = zlimit.WindowDaily
		}
		to := window.End(r.at)
		if r.used, err = ledger.ReadSeries(ctx, p.Limiter, zlimit.UsageQuery{Window: window, From: window.Start(to.Add(-back.d)), To: to}, c.each...); err == nil {
			r.refused, err = p.rejectedOf(ctx, oneResource(c.Resource), back.d)
		}
		return r, err
	})
	if err != nil {
		return view{}, err
	}
	body := &topBody{choice: c, Reach: back, Limit: q.Get("limit")}
	body.Limits = slices.SortedFunc(maps.Keys(read.used.By), func(a, b string) int { return cmp.Or(btoi(isMoney(b))-btoi(isMoney(a)), cmp.Compare(a, b)) })
	if read.used.By[body.Limit] == nil {
		body.Limit = mainLimit(body.Limits)
	}
	body.Used = mostUsed(read.used.By[body.Limit])
	body.Refused, body.Total = mostRefused(read.refused)
	return view{At: read.at, Body: body}, nil
}

// mainLimit is the limit to show of several: tokens, or else the first one; "" for none.
func mainLimit(names []string) string {
	if slices.Contains(names, "tpm") {
		return "tpm"
	}
	return cmp.Or(names...)
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
