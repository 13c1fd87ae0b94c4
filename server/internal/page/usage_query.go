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
	resource, entity, limit string // [everyone] for all resources, and "" for everyone
	resources               []string
	from, to                time.Time // the month
	zone                    *time.Location
	now                     time.Time
	tops                    []string // the entities without a parent that have used the limit, the largest first
}

// url is the address of a question about an entity, or about everyone.
func (q *usageQuery) url(path, entity string) string {
	return address(path, "resource", q.resource, "limit", q.limit, "month", q.from.Format("2006-01"), "zone", q.zone.String(), "entity", cmp.Or(entity, everyone))
}

func (q *usageQuery) key() string {
	return fmt.Sprintf("usage %q %q %q %v %v", q.resource, q.entity, q.limit, q.from, q.zone)
}

// month is the name of the month.
func (q *usageQuery) month() string {
	if q.from.Year() == q.now.In(q.zone).Year() {
		return q.from.Format("January")
	}
	return q.from.Format("January 2006")
}

func (q *usageQuery) days() int { return int(q.to.Sub(q.from).Hours()/24 + 0.5) }

// present reports whether the month is under way.
func (q *usageQuery) present() bool { return !q.now.Before(q.from) && q.now.Before(q.to) }

// passed is how many days of the month are over, with a fraction.
func (q *usageQuery) passed() float64 {
	return min(max(q.now.Sub(q.from).Hours()/24, 0), float64(q.days()))
}

// usageQuery reads the question, and completes it: the resource with a budget, and the parent that has it.
func (p *page) usageQuery(ctx context.Context, r *http.Request, v *view) (q *usageQuery, tabs, limits []tab, err error) {
	q = &usageQuery{now: p.Now(), zone: time.UTC, entity: r.URL.Query().Get("entity"), limit: r.URL.Query().Get("limit")}
	q.resource, q.resources, tabs, err = p.resources(ctx, r, v)
	if err != nil || q.resource == "" {
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
	asked := q.entity
	if asked == everyone {
		q.entity = ""
	}
	names, order := countedLimits(buckets, q.entity)
	if q.limit == "" && len(order) > 0 {
		q.limit = order[0]
	}
	if q.tops, err = p.tops(ctx, buckets, q.limit); err != nil {
		return q, nil, nil, err
	}
	if asked == "" && len(q.tops) == 1 && isParent(buckets, q.tops[0]) { // who is everyone
		q.entity = q.tops[0]
	}
	if l := names[q.limit]; l != nil && l.Zone != "" {
		q.zone = zoneOf(l)
	}
	if name := r.URL.Query().Get("zone"); name != "" {
		if q.zone, err = time.LoadLocation(name); err != nil || name == "Local" {
			return q, nil, nil, &statusError{http.StatusBadRequest, fmt.Sprintf("zone must be a time zone such as Europe/Berlin, and not %.40q", name)}
		}
	}
	local := q.now.In(q.zone)
	q.from = time.Date(local.Year(), local.Month(), 1, 0, 0, 0, 0, q.zone)
	if text := r.URL.Query().Get("month"); text != "" {
		month, err := time.ParseInLocation("2006-01", text, q.zone)
		if err != nil || month.Year() < 2000 || month.After(q.now) {
			return q, nil, nil, &statusError{http.StatusBadRequest, fmt.Sprintf("month must be one that has begun, such as 2026-11, and not %.40q", text)}
		}
		q.from = month
	}
	q.to = q.from.AddDate(0, 1, 0)
	for _, name := range order {
		link := address("/usage", "resource", q.resource, "limit", name, "month", q.from.Format("2006-01"), "entity", asked)
		limits = append(limits, tab{titled(name), link, name == q.limit})
	}
	return q, tabs, limits, nil
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
