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
)

// A topBody is the screen that answers who uses most, and who is refused most.
type topBody struct {
	Resources, Limits, Spans []tab
	Limit                    string
	Used, Refused            []topRow
	UsedText, RefusedText    string
}

type topRow struct {
	Name, URL             string
	Value, Share          string
	Width                 string
	Line                  string
	Limit, LimitOf, Count string
}

const topRows = 20

func (p *page) top(ctx context.Context, r *http.Request, _ User) (view, error) {
	v := view{Live: true}
	resource, names, tabs, err := p.resources(ctx, r, &v)
	if err != nil || resource == "" {
		return v, err
	}
	back, spans, err := reachOf(backwards, "/top", r.URL.Query(), "since", "24h")
	if err != nil {
		return v, err
	}
	body := &topBody{Resources: tabs, Spans: spans}
	v.Body, v.Path, v.Title = body, []crumb{{p.Namespace, "/"}, {"top", "/top"}, {resourceName(resource), ""}}, "Top of "+resourceName(resource)
	used, at, err := once(ctx, &p.feed, fmt.Sprintf("top %q %v", resource, back.d), 15*time.Second, func(ctx context.Context) (map[string]map[string][]float64, error) {
		return p.used(ctx, names, back.d)
	})
	if err != nil {
		return v, err
	}
	v.At = at
	rejected, _, err := once(ctx, &p.feed, fmt.Sprintf("top rejected %q %v", resource, back.d), 15*time.Second, func(ctx context.Context) (map[refusal]int64, error) {
		return p.rejectedOf(ctx, oneResource(resource), back.d)
	})
	if err != nil {
		return v, err
	}
	limits := slices.SortedFunc(maps.Keys(used), func(a, b string) int { return cmp.Or(btoi(isMoney(b))-btoi(isMoney(a)), cmp.Compare(a, b)) })
	body.Limit = r.URL.Query().Get("limit")
	if used[body.Limit] == nil && len(limits) > 0 {
		body.Limit = limits[0]
		for _, name := range limits {
			if name == "tpm" {
				body.Limit = name
			}
		}
	}
	for _, name := range limits {
		body.Limits = append(body.Limits, tab{titled(name), address("/top", "resource", resource, "limit", name, "since", back.key), name == body.Limit})
	}
	mostUsed, share := p.usedRows(body, oneResource(resource), used[body.Limit])
	mostRefused, total := p.refusedRows(body, rejected, resource == everyone)
	switch {
	case mostUsed == "" && total == 0:
		v.Head.say("", "No one used %s in the last %s", resourceName(resource), back.text)
	case mostUsed == "":
		v.Head.say("no", "%s was refused most", mostRefused)
		v.Head.say("", " in the last %s", back.text)
	default:
		v.Head.say("", "%s used most of %s", mostUsed, resourceName(resource))
		v.Head.say("", ": %s of %s", share, limitTitle(body.Limit))
		if total > 0 {
			v.Head.say("", ". ")
			v.Head.say("no", "%s was refused most", mostRefused)
		}
	}
	v.Lead = lead("In the last %s. %s refused in all.", back.text, plural(total, "request was"))
	body.UsedText = "Net of what calls gave back. Requests of children count for themselves, and not for their parents again."
	if resource == everyone {
		body.UsedText += " A request for a resource that lies within another one counts once."
	}
	body.RefusedText = "By the strictest limit, with its owner"
	v.Footer = "Use is counted by an aggregator, seconds to a minute behind. Refusals are of processes that report them, up to two minutes late; they are kept for seven days, and counts of small ones are estimates."
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
				by[limit][s.Entity][part] += ownOf(&s, limit, len(resources) > 1)
			}
		}
	}
	return by, nil
}

func (p *page) usedRows(body *topBody, resource string, used map[string][]float64) (most, share string) {
	entities, total := largest(sums(used)), 0.0
	for _, values := range used {
		total += max(sum(values), 0)
	}
	for i, e := range entities[:min(len(entities), topRows)] {
		n := sum(used[e])
		if n <= 0 || total <= 0 {
			break
		}
		row := topRow{Name: named(e), URL: entityURL(e, resource), Value: amount(body.Limit, n), Share: percent(n / total), Width: pct(n / total), Line: sparkline(used[e])}
		if i == 0 {
			most, share = row.Name, row.Share
		}
		body.Used = append(body.Used, row)
	}
	return most, share
}

func (p *page) refusedRows(body *topBody, rejected map[refusal]int64, all bool) (most string, total int64) {
	keys := slices.SortedFunc(maps.Keys(rejected), func(a, b refusal) int {
		return cmp.Or(cmp.Compare(rejected[b], rejected[a]), cmp.Compare(a.entity, b.entity), cmp.Compare(a.limit, b.limit))
	})
	for _, n := range rejected {
		total += n
	}
	for i, of := range keys[:min(len(keys), topRows)] {
		n := rejected[of]
		row := topRow{Name: named(of.entity), URL: entityURL(of.entity, of.resource), Count: grouped(n), Share: percent(float64(n) / float64(total)), Width: pct(float64(n) / float64(total)), Limit: of.limit}
		row.LimitOf = "its own"
		if of.limitEntity != of.entity {
			row.LimitOf = "of " + named(of.limitEntity)
		}
		if all {
			row.LimitOf += ", for " + named(of.resource)
		}
		if i == 0 {
			most = row.Name
		}
		body.Refused = append(body.Refused, row)
	}
	return most, total
}
