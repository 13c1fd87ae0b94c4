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
)

// A usageQuery is the question of a usage screen.
type usageQuery struct {
	ledger.Query
	choice

	Limits []string // to choose from
	Zone   *time.Location
}

// url is the address of a question about an entity, or about everyone.
func (q *usageQuery) url(path, entity string) string {
	return address(path, "resource", q.Resource, "limit", q.Limit, "month", q.From.Format("2006-01"), "zone", q.Zone.String(), "entity", cmp.Or(entity, everyone))
}

// MonthName is the name of the month.
func (q *usageQuery) MonthName() string {
	if q.From.Year() == q.Now.In(q.Zone).Year() {
		return q.From.Format("January")
	}
	return q.From.Format("January 2006")
}

// usageQuery reads the question, and completes it: the resource with a budget, and the parent that has it.
func (p *page) usageQuery(ctx context.Context, given url.Values) (*usageQuery, error) {
	q := &usageQuery{Zone: time.UTC, Query: ledger.Query{Now: p.Now(), Entity: given.Get("entity"), Limit: given.Get("limit"), Root: p.rootOf}}
	var err error
	if q.choice, err = p.choose(ctx, given, true); err != nil || q.Resource == "" {
		return q, err
	}
	q.Resources = q.each
	var buckets []zlimit.Bucket
	for _, resource := range q.each {
		read, err := p.feed.buckets(ctx, resource)
		if err != nil {
			return q, err
		}
		buckets = append(buckets, read.Buckets...)
	}
	asked := q.Entity
	if asked == everyone {
		q.Entity = ""
	}
	limits := countedLimits(buckets, q.Entity)
	q.Limits = slices.SortedFunc(maps.Keys(limits), func(a, b string) int { // money and budgets first
		return cmp.Or(btoi(isMoney(b))-btoi(isMoney(a)), btoi(isBudget(limits[b]))-btoi(isBudget(limits[a])), cmp.Compare(a, b))
	})
	if q.Limit == "" && len(q.Limits) > 0 {
		q.Limit = q.Limits[0]
	}
	if q.Tops, err = p.tops(ctx, q, buckets); err != nil {
		return q, err
	}
	if asked == "" && len(q.Tops) == 1 && isParent(buckets, q.Tops[0]) { // who is everyone
		q.Entity = q.Tops[0]
	}
	return q, q.month(given.Get("zone"), given.Get("month"), limits[q.Limit])
}

// month sets the time zone, which is that of the limit if none is given, and the month.
func (q *usageQuery) month(zone, month string, l *zlimit.Limit) (err error) {
	if l != nil {
		q.Zone = zoneOf(l)
	}
	if zone != "" {
		if q.Zone, err = time.LoadLocation(zone); err != nil || zone == "Local" {
			return mustBe("zone", "a time zone such as Europe/Berlin", zone)
		}
	}
	q.From = ledger.Begin(q.Now.In(q.Zone))
	if month != "" {
		if q.From, err = time.ParseInLocation("2006-01", month, q.Zone); err != nil || q.From.Year() < 2000 || q.From.After(q.Now) {
			return mustBe("month", "one that has begun, such as 2026-11", month)
		}
	}
	return nil
}

// countedLimits returns the limits of buckets that are no slots, by name. Of several of a name it takes the one of the entity, or else the widest one.
func countedLimits(buckets []zlimit.Bucket, entity string) map[string]*zlimit.Limit {
	byName := map[string]*zlimit.Limit{}
	for b, st := range statuses(buckets) {
		l := &st.Limit
		if l.Term == 0 && (byName[l.Name] == nil || b.Entity == entity || entity == "" && l.Capacity > byName[l.Name].Capacity) {
			byName[l.Name] = l
		}
	}
	return byName
}

// tops returns the entities without a parent that have used a limit, or whose children have, the largest first.
func (p *page) tops(ctx context.Context, q *usageQuery, buckets []zlimit.Bucket) ([]string, error) {
	used := map[string]float64{}
	for i := range buckets {
		b := &buckets[i]
		if _, limited := b.Statuses.Limit(q.Limit); limited || b.Consumed[q.Limit] > 0 {
			used[b.Entity] += (b.Consumed[q.Limit] - b.FromChildren[q.Limit]).Float64()
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
	return lineage[len(lineage)-1], err
}

// isParent reports whether children were charged to the bucket of an entity.
func isParent(buckets []zlimit.Bucket, entity string) bool {
	return slices.ContainsFunc(buckets, func(b zlimit.Bucket) bool { return b.Entity == entity && len(b.FromChildren) > 0 })
}

// A book is a month, with how often its limit refused entities in 24 hours.
type book struct {
	*ledger.Month

	refused map[string]int64
	at      time.Time
}

const usageKept = 20 * time.Second

// bookOf reads the month and the one before.
func (p *page) bookOf(ctx context.Context, q *usageQuery) (*book, error) {
	key := fmt.Sprintf("usage %q %q %q %v %v", q.Resource, q.Entity, q.Limit, q.From, q.Zone)
	return once(ctx, p.feed, key, usageKept, func(ctx context.Context) (b *book, err error) {
		b = &book{refused: map[string]int64{}, at: p.Now()}
		if b.Month, err = ledger.Read(ctx, p.Limiter, q.Query); err != nil || !q.Present() {
			return b, err
		}
		rejected, err := p.rejectedOf(ctx, oneResource(q.Resource), 24*time.Hour)
		for of, n := range rejected {
			if of.Limit == q.Limit {
				b.refused[of.Entity] += n
			}
		}
		return b, err
	})
}

// heldBy returns the amounts of calls under way, by group; amounts of others are below "".
func (p *page) heldBy(ctx context.Context, q *usageQuery, of *book) (map[string]float64, error) {
	by := map[string]float64{}
	for _, resource := range q.each {
		for _, h := range p.Leases(resource) {
			n := float64(h.Amounts[q.Limit])
			if n == 0 || !q.Present() {
				continue
			}
			lineage, err := p.feed.lineage(ctx, h.Entity)
			if err != nil {
				return nil, err
			}
			isGroup := func(entity string) bool {
				return slices.ContainsFunc(of.Groups, func(g ledger.Group) bool { return g.Entity == entity })
			}
			at := slices.IndexFunc(lineage, func(e string) bool { return isGroup(e) || e == q.Entity })
			switch {
			case at >= 0 && isGroup(lineage[at]):
				by[lineage[at]] += n
			case q.Entity == "" || at >= 0:
				by[""] += n
			}
		}
	}
	return by, nil
}
