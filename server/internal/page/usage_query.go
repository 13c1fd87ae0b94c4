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

// A usageQuery is the question of a usage screen.
type usageQuery struct {
	Resource, Entity, Limit string // [everyone] for all resources, and "" for everyone
	resources               []string
	From, To                time.Time // the month
	Zone                    *time.Location
	Now                     time.Time
	tops                    []string // the entities without a parent that have used the limit, the largest first
}

// url is the address of a question about an entity, or about everyone.
func (q *usageQuery) url(path, entity string) string {
	return address(path, "resource", q.Resource, "limit", q.Limit, "month", q.From.Format("2006-01"), "zone", q.Zone.String(), "entity", cmp.Or(entity, everyone))
}

func (q *usageQuery) key() string {
	return fmt.Sprintf("usage %q %q %q %v %v", q.Resource, q.Entity, q.Limit, q.From, q.Zone)
}

// Month is the name of the month.
func (q *usageQuery) Month() string {
	if q.From.Year() == q.Now.In(q.Zone).Year() {
		return q.From.Format("January")
	}
	return q.From.Format("January 2006")
}

func (q *usageQuery) Days() int { return int(q.To.Sub(q.From).Hours()/24 + 0.5) }

// Present reports whether the month is under way.
func (q *usageQuery) Present() bool { return !q.Now.Before(q.From) && q.Now.Before(q.To) }

// Passed is how many days of the month are over, with a fraction.
func (q *usageQuery) Passed() float64 {
	return min(max(q.Now.Sub(q.From).Hours()/24, 0), float64(q.Days()))
}

// usageQuery reads the question, and completes it: the resource with a budget, and the parent that has it.
func (p *page) usageQuery(ctx context.Context, r *http.Request, v *view) (q *usageQuery, tabs, limits []string, err error) {
	q = &usageQuery{Now: p.Now(), Zone: time.UTC, Entity: r.URL.Query().Get("entity"), Limit: r.URL.Query().Get("limit")}
	q.Resource, q.resources, tabs, err = p.resources(ctx, r, v)
	if err != nil || q.Resource == "" {
		return q, nil, nil, err
	}
	var buckets []zlimit.Bucket
	for _, resource := range q.resources {
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
	if q.tops, err = p.tops(ctx, buckets, q.Limit); err != nil {
		return q, nil, nil, err
	}
	if asked == "" && len(q.tops) == 1 && isParent(buckets, q.tops[0]) { // who is everyone
		q.Entity = q.tops[0]
	}
	if l := names[q.Limit]; l != nil && l.Zone != "" {
		q.Zone = zoneOf(l)
	}
	if name := r.URL.Query().Get("zone"); name != "" {
		if q.Zone, err = time.LoadLocation(name); err != nil || name == "Local" {
			return q, nil, nil, &statusError{http.StatusBadRequest, fmt.Sprintf("zone must be a time zone such as Europe/Berlin, and not %.40q", name)}
		}
	}
	local := q.Now.In(q.Zone)
	q.From = time.Date(local.Year(), local.Month(), 1, 0, 0, 0, 0, q.Zone)
	if text := r.URL.Query().Get("month"); text != "" {
		month, err := time.ParseInLocation("2006-01", text, q.Zone)
		if err != nil || month.Year() < 2000 || month.After(q.Now) {
			return q, nil, nil, &statusError{http.StatusBadRequest, fmt.Sprintf("month must be one that has begun, such as 2026-11, and not %.40q", text)}
		}
		q.From = month
	}
	q.To = q.From.AddDate(0, 1, 0)
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

// mostTops bounds the entities of a resource whose parents are looked up, the largest first.
const mostTops = 256

// tops returns the entities without a parent that have used a limit, or whose children have, the largest first.
func (p *page) tops(ctx context.Context, buckets []zlimit.Bucket, limit string) ([]string, error) {
	used := map[string]float64{}
	for i := range buckets {
		b := &buckets[i]
		if n := b.Consumed[limit]; n > 0 || slices.ContainsFunc(b.Statuses, func(st zlimit.Status) bool { return st.Limit.Name == limit }) {
			used[b.Entity] += (n - b.FromChildren[limit]).Float64()
		}
	}
	by := map[string]float64{}
	roots, err := p.roots(ctx, used)
	for entity, root := range roots {
		by[root] += used[entity]
	}
	return largest(by), err
}

// roots returns the topmost parents of the largest entities, and of none beyond [mostTops].
func (p *page) roots(ctx context.Context, used map[string]float64) (map[string]string, error) {
	entities := largest(used)
	entities = entities[:min(len(entities), mostTops)]
	found := make([]string, len(entities))
	err := each8(len(entities), func(i int) error {
		lineage, err := p.feed.lineage(ctx, entities[i])
		if err == nil {
			found[i] = lineage[len(lineage)-1]
		}
		return err
	})
	roots := make(map[string]string, len(entities))
	for i, e := range entities {
		roots[e] = found[i]
	}
	return roots, err
}

// largest returns the keys of amounts, the largest first.
func largest(amounts map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(amounts), func(a, b string) int { return cmp.Or(cmp.Compare(amounts[b], amounts[a]), cmp.Compare(a, b)) })
}

// isParent reports whether children were charged to the bucket of an entity.
func isParent(buckets []zlimit.Bucket, entity string) bool {
	return slices.ContainsFunc(buckets, func(b zlimit.Bucket) bool { return b.Entity == entity && len(b.FromChildren) > 0 })
}
