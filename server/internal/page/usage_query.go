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

// A usageQuery is the question of a usage screen.
type usageQuery struct {
	ledger.Query

	Resource string // [everyone] for all resources
	Zone     *time.Location
}

// url is the address of a question about an entity, or about everyone.
func (q *usageQuery) url(path, entity string) string {
	return address(path, "resource", q.Resource, "limit", q.Limit, "month", q.From.Format("2006-01"), "zone", q.Zone.String(), "entity", cmp.Or(entity, everyone))
}

func (q *usageQuery) key() string {
	return fmt.Sprintf("usage %q %q %q %v %v", q.Resource, q.Entity, q.Limit, q.From, q.Zone)
}

// MonthName is the name of the month.
func (q *usageQuery) MonthName() string {
	if q.From.Year() == q.Now.In(q.Zone).Year() {
		return q.From.Format("January")
	}
	return q.From.Format("January 2006")
}

// usageQuery reads the question, and completes it: the resource with a budget, and the parent that has it.
func (p *page) usageQuery(ctx context.Context, r *http.Request, v *view) (q *usageQuery, tabs, limits []string, err error) {
	q = &usageQuery{Zone: time.UTC, Query: ledger.Query{Now: p.Now(), Entity: r.URL.Query().Get("entity"), Limit: r.URL.Query().Get("limit"), Root: p.rootOf}}
	q.Resource, q.Resources, tabs, err = p.resources(ctx, r, v)
	if err != nil || q.Resource == "" {
		return q, nil, nil, err
	}
	var buckets []zlimit.Bucket
	for _, resource := range q.Resources {
		read, _, err := p.feed.buckets(ctx, resource)
		if err != nil {
			return q, nil, nil, err
		}
		buckets = append(buckets, read.Buckets...)
	}
	asked := q.Entity
	if asked == everyone {
		q.Entity = ""
	}
	names, order := countedLimits(buckets, q.Entity)
	if q.Limit == "" && len(order) > 0 {
		q.Limit = order[0]
	}
	if q.Tops, err = p.tops(ctx, q, buckets); err != nil {
		return q, nil, nil, err
	}
	if asked == "" && len(q.Tops) == 1 && isParent(buckets, q.Tops[0]) { // who is everyone
		q.Entity = q.Tops[0]
	}
	if l := names[q.Limit]; l != nil && l.Zone != "" {
		q.Zone = zoneOf(l)
	}
	if name := r.URL.Query().Get("zone"); name != "" {
		if q.Zone, err = time.LoadLocation(name); err != nil || name == "Local" {
			return q, nil, nil, &statusError{http.StatusBadRequest, fmt.Sprintf("zone must be a time zone such as Europe/Berlin, and not %.40q", name)}
		}
	}
	q.From = ledger.Begin(q.Now.In(q.Zone))
	if text := r.URL.Query().Get("month"); text != "" {
		month, err := time.ParseInLocation("2006-01", text, q.Zone)
		if err != nil || month.Year() < 2000 || month.After(q.Now) {
			return q, nil, nil, &statusError{http.StatusBadRequest, fmt.Sprintf("month must be one that has begun, such as 2026-11, and not %.40q", text)}
		}
		q.From = month
	}
	return q, tabs, order, nil
}

// countedLimits returns the limits of buckets that are no slots, by name, and their names in order: money and budgets first. Of several limits
// of a name it takes the one of the entity, or else the widest one.
func countedLimits(buckets []zlimit.Bucket, entity string) (byName map[string]*zlimit.Limit, order []string) {
	byName = map[string]*zlimit.Limit{}
	for i := range buckets {
		for j := range buckets[i].Statuses {
			l := &buckets[i].Statuses[j].Limit
			if l.Term == 0 && (byName[l.Name] == nil || buckets[i].Entity == entity || entity == "" && l.Capacity > byName[l.Name].Capacity) {
				byName[l.Name] = l
			}
		}
	}
	return byName, slices.SortedFunc(maps.Keys(byName), func(a, b string) int {
		return cmp.Or(btoi(isMoney(b))-btoi(isMoney(a)), btoi(isBudget(byName[b]))-btoi(isBudget(byName[a])), cmp.Compare(a, b))
	})
}

// tops returns the entities without a parent that have used a limit, or whose children have, the largest first.
func (p *page) tops(ctx context.Context, q *usageQuery, buckets []zlimit.Bucket) ([]string, error) {
	used := map[string]float64{}
	for i := range buckets {
		b := &buckets[i]
		if n := b.Consumed[q.Limit]; n > 0 || slices.ContainsFunc(b.Statuses, func(st zlimit.Status) bool { return st.Limit.Name == q.Limit }) {
			used[b.Entity] += (n - b.FromChildren[q.Limit]).Float64()
		}
	}
	by := map[string]float64{}
	roots, err := q.Roots(ctx, p.Limiter, used)
	for entity, root := range roots {
		by[root] += used[entity]
	}
	return ledger.Largest(by), err
}

// rootOf returns the topmost parent of an entity.
func (p *page) rootOf(ctx context.Context, entity string) (string, error) {
	lineage, err := p.feed.lineage(ctx, entity)
	if err != nil {
		return "", err
	}
	return lineage[len(lineage)-1], nil
}

// isParent reports whether children were charged to the bucket of an entity.
func isParent(buckets []zlimit.Bucket, entity string) bool {
	return slices.ContainsFunc(buckets, func(b zlimit.Bucket) bool { return b.Entity == entity && len(b.FromChildren) > 0 })
}
