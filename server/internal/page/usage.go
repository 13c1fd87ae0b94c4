package page

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/server/internal/token"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A usageBody is the screen that answers whether a budget lasts, who is the cause, and what is spent but not settled.
type usageBody struct {
	Resources   []tab
	Limits      []tab
	Facts       []fact
	What        string // "Spent" or the name of a limit
	Wide, Small template.HTML
	Key         []keyItem
	Rows        []budgetRow
	Against     string // the month before
	CSV         string
	Before      string // the address of the month before
	After       string // and after, "" for the future
	Month       string
	Zone        string
	Hidden      url.Values
	HiddenTop   url.Values
	Tops        []choice // entities without a parent, and everyone
	All         bool     // everyone is shown
	Left        int      // rows that are not shown
}

// A choice is an option of a select.
type choice struct {
	Text, Value string
	Current     bool
}

// everyone stands for all entities in the address of a screen. It is no name of an entity.
const everyone = "*"

type budgetRow struct {
	Colour, Name, URL            string
	Share                        string // "98 % of $8,000"
	Width, HeldX, Held, Tick     string
	Spent, NotSettled, LastsTill string
	Change                       string
	Refused                      int64
	Tag, TagClass                string
	rank                         int
	spent                        float64
}

// A usageQuery is the question of a usage screen.
type usageQuery struct {
	resource, entity, limit string
	from, to                time.Time // the month
	zone                    *time.Location
	now                     time.Time
	tops                    []string // the entities without a parent that have used the limit, the largest first
}

// url is the address of a question about an entity, or about everyone.
func (q *usageQuery) url(path, entity string) string {
	values := url.Values{"resource": {q.resource}, "limit": {q.limit}, "month": {q.from.Format("2006-01")}, "zone": {q.zone.String()}, "entity": {cmp.Or(entity, everyone)}}
	return path + "?" + values.Encode()
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

// A ledger is what a month has, by group.
type ledger struct {
	groups    []group
	others    group
	total     []float64 // by day of the month before and of the month
	offset    int       // days of the month before
	budget    float64   // capacity with grants; 0 for none
	available float64
	ends      time.Time
	forecast  zlimit.Forecast
	atEnd     [2]float64 // of the month: the forecast's spread
	likely    float64
	path      []float64 // forecast for the rest of today, and each day after
	spread    []float64
	early     bool // too early for a forecast
	left      int  // groups that are not shown
	complete  time.Time
}

// A group is a child of the entity, with all below it.
type group struct {
	entity   string
	days     []float64 // as ledger.total
	forecast *zlimit.Forecast
	refused  int64
}

const (
	mostGroups    = 24
	usageKept     = 20 * time.Second
	forecastDays  = 28
	leastForecast = 14 // days of usage
)

func (p *page) usage(ctx context.Context, r *http.Request, _ User) (view, error) {
	v := view{Live: true}
	q, tabs, limits, err := p.usageQuery(ctx, r, &v)
	if err != nil || q.resource == "" {
		return v, err
	}
	book, at, err := p.ledgerOf(ctx, q)
	if err != nil {
		return v, err
	}
	v.At = at
	body := &usageBody{Resources: tabs, Limits: limits, All: q.entity == "", Against: q.from.AddDate(0, 0, -1).Format("January"), Zone: q.zone.String(), Month: q.month()}
	v.Body = body
	v.Path = []crumb{{p.Namespace, "/"}, {"usage", "/usage"}, {named(q.resource), q.url("/usage", everyone)}}
	if q.entity != "" {
		v.Path = append(v.Path, crumb{named(q.entity), entityURL(q.entity, q.resource)})
	}
	if len(q.tops) > 1 || q.entity == "" || !slices.Contains(q.tops, q.entity) {
		body.Tops = append(body.Tops, choice{"everyone", everyone, q.entity == ""})
		names := slices.Clone(q.tops)
		for i := range book.groups { // some have no bucket any more
			if q.entity == "" {
				names = append(names, book.groups[i].entity)
			}
		}
		if q.entity != "" {
			names = append(names, q.entity)
		}
		seen := map[string]bool{}
		for _, name := range names {
			if !seen[name] {
				body.Tops = append(body.Tops, choice{named(name), name, name == q.entity})
			}
			seen[name] = true
		}
	}
	held, err := p.heldBy(ctx, q, book, p.Leases(q.resource))
	if err != nil {
		return v, err
	}
	v.Title = q.month() + " · usage"
	usageHead(&v, q, book)
	usageFacts(body, q, book, held)
	usageRows(body, q, book, held)
	body.What = "Spent"
	if !isMoney(q.limit) {
		body.What = q.limit
	}
	body.Wide, body.Small = drawUsage(q, book, false), drawUsage(q, book, true)
	body.CSV = q.url("/usage.csv", q.entity)
	before, after := *q, *q
	before.from, after.from = q.from.AddDate(0, -1, 0), q.to
	body.Before = before.url("/usage", q.entity)
	if q.to.Before(q.now) {
		body.After = after.url("/usage", q.entity)
	}
	body.Hidden = url.Values{"resource": {q.resource}, "limit": {q.limit}, "month": {q.from.Format("2006-01")}, "entity": {cmp.Or(q.entity, everyone)}}
	body.HiddenTop = url.Values{"resource": {q.resource}, "limit": {q.limit}, "month": {q.from.Format("2006-01")}, "zone": {q.zone.String()}}
	complete := "No aggregator has said yet how far usage is counted."
	if !book.complete.IsZero() {
		complete = "Usage is counted up to " + book.complete.UTC().Format("2 January, 15:04:05") + " UTC."
	}
	v.Footer = complete + " Days are of " + q.zone.String() + ". Held amounts are of leases that this server has handed out, and part of what is spent: one that another server settles counts until its end. Forecast: each weekday as in the last four weeks if that fits them better, or else the last seven days; the spread is that of the same days."
	return v, nil
}

// usageQuery reads the question, and completes it: the resource with a budget, and the parent that has it.
func (p *page) usageQuery(ctx context.Context, r *http.Request, v *view) (q *usageQuery, tabs, limits []tab, err error) {
	q = &usageQuery{now: p.Now(), zone: time.UTC, entity: r.URL.Query().Get("entity"), limit: r.URL.Query().Get("limit")}
	q.resource, tabs, err = p.resource(ctx, r, v)
	if err != nil || q.resource == "" {
		return q, nil, nil, err
	}
	read, _, err := p.feed.buckets(ctx, q.resource)
	if err != nil {
		return q, nil, nil, err
	}
	asked := q.entity
	if asked == everyone {
		q.entity = ""
	}
	names, order := countedLimits(read.Buckets, q.entity)
	if q.limit == "" && len(order) > 0 {
		q.limit = order[0]
	}
	if q.tops, err = p.tops(ctx, read.Buckets, q.limit); err != nil {
		return q, nil, nil, err
	}
	if asked == "" && len(q.tops) == 1 && isParent(read.Buckets, q.tops[0]) { // who is everyone
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
		values := url.Values{"resource": {q.resource}, "limit": {name}, "month": {q.from.Format("2006-01")}}
		if asked != "" {
			values.Set("entity", asked)
		}
		limits = append(limits, tab{titled(name), "/usage?" + values.Encode(), name == q.limit})
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
		at := entities[i]
		for range mostParents {
			r, err := p.feed.relation(ctx, at, false)
			if err != nil {
				return err
			}
			if r.Parent == "" {
				break
			}
			at = r.Parent
		}
		found[i] = at
		return nil
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

// ledgerOf reads the month and the one before.
func (p *page) ledgerOf(ctx context.Context, q *usageQuery) (*ledger, time.Time, error) {
	return once(ctx, &p.feed, q.key(), usageKept, func(ctx context.Context) (*ledger, error) {
		start := q.from.AddDate(0, -1, 0)
		book := &ledger{offset: int(q.from.Sub(start).Hours()/24 + 0.5)}
		n := book.offset + q.days()
		var entities []string
		byEntity := map[string][]float64{}
		if q.entity == "" {
			own := map[string][]float64{}
			if err := p.series(ctx, q, zlimit.UsageQuery{Resource: q.resource}, start, func(s *zlimit.Snapshot, day int, amount zlimit.Quantity) {
				if own[s.Entity] == nil {
					own[s.Entity] = make([]float64, n)
				}
				own[s.Entity][day] += (amount - s.FromChildren[q.limit]).Float64()
			}); err != nil {
				return nil, err
			}
			var err error
			if book.total, byEntity, err = p.byTop(ctx, q, own, n); err != nil {
				return nil, err
			}
			entities = largest(sums(byEntity))
		} else {
			for child, err := range p.Limiter.Entities.Children(ctx, q.entity) {
				if err != nil {
					return nil, err
				}
				if entities = append(entities, child.ID); len(entities) == 4*mostGroups {
					break
				}
			}
			days := make([][]float64, len(entities)+1)
			if err := each8(len(days), func(i int) error {
				days[i] = make([]float64, n)
				of := q.entity
				if i < len(entities) {
					of = entities[i]
				}
				return p.series(ctx, q, zlimit.UsageQuery{Entity: of, Resource: q.resource}, start, func(_ *zlimit.Snapshot, day int, amount zlimit.Quantity) {
					days[i][day] += amount.Float64()
				})
			}); err != nil {
				return nil, err
			}
			for i, e := range entities {
				byEntity[e] = days[i]
			}
			book.total = days[len(entities)]
		}
		for _, e := range entities {
			book.groups = append(book.groups, group{entity: e, days: byEntity[e]})
		}
		slices.SortFunc(book.groups, func(a, b group) int {
			return cmp.Or(cmp.Compare(sum(b.days[book.offset:]), sum(a.days[book.offset:])), cmp.Compare(a.entity, b.entity))
		})
		book.groups = slices.DeleteFunc(book.groups, func(g group) bool {
			return sum(g.days) == 0 && (q.entity != "" || !q.present() || !slices.Contains(q.tops, g.entity))
		})
		book.left = max(len(book.groups)-mostGroups, 0)
		if book.total == nil {
			book.total = make([]float64, n)
			for _, g := range book.groups {
				add(book.total, g.days)
			}
		}
		book.others = group{entity: "others", days: slices.Clone(book.total)}
		book.groups = book.groups[:min(len(book.groups), mostGroups)]
		for _, g := range book.groups[:min(len(book.groups), len(colours)-1)] {
			for i := range g.days {
				book.others.days[i] -= g.days[i]
			}
		}
		return book, p.foresee(ctx, q, book)
	})
}

// byTop adds up what entities used themselves: all of them, and by their topmost parents.
func (p *page) byTop(ctx context.Context, q *usageQuery, own map[string][]float64, n int) (total []float64, by map[string][]float64, err error) {
	total, by = make([]float64, n), map[string][]float64{}
	for _, days := range own {
		add(total, days)
	}
	roots, err := p.roots(ctx, sums(own))
	for entity, root := range roots {
		if by[root] == nil {
			by[root] = make([]float64, n)
		}
		add(by[root], own[entity])
	}
	for _, top := range q.tops { // which may have a budget, and no use
		if by[top] == nil {
			by[top] = make([]float64, n)
		}
	}
	return total, by, err
}

// sums are the totals of amounts by day.
func sums(days map[string][]float64) map[string]float64 {
	totals := make(map[string]float64, len(days))
	for entity, of := range days {
		totals[entity] = sum(of)
	}
	return totals
}

// series calls f for each snapshot of a range: days that are complete, and hours since yesterday or in zones other than UTC.
func (p *page) series(ctx context.Context, q *usageQuery, of zlimit.UsageQuery, start time.Time, f func(s *zlimit.Snapshot, day int, amount zlimit.Quantity)) error {
	end := q.to
	if q.now.Before(end) {
		end = q.now
	}
	read := func(window zlimit.Window, from, to time.Time) error {
		from, to = zlimit.WindowHourly.Start(from), zlimit.WindowHourly.Start(to.Add(time.Hour-1))
		if !from.Before(to) {
			return nil
		}
		of.Window, of.From, of.To = window, from, to
		for s, err := range p.Limiter.Usage.Snapshots(ctx, of) {
			if err != nil {
				return err
			}
			local := s.Start.In(q.zone)
			day := int(time.Date(local.Year(), local.Month(), local.Day(), 12, 0, 0, 0, time.UTC).Sub(time.Date(start.Year(), start.Month(), start.Day(), 0, 0, 0, 0, time.UTC)).Hours() / 24)
			if day >= 0 && day < int(q.to.Sub(start).Hours()/24+0.5) {
				f(&s, day, s.Consumed[q.limit])
			}
		}
		return nil
	}
	if q.zone != time.UTC && q.zone.String() != "UTC" {
		return read(zlimit.WindowHourly, start, end)
	}
	yesterday := zlimit.WindowDaily.Start(q.now).AddDate(0, 0, -1) // whose last hours may not be in its day yet
	if end.Before(yesterday) {
		return read(zlimit.WindowDaily, start, end)
	}
	if err := read(zlimit.WindowDaily, start, yesterday); err != nil {
		return err
	}
	if start.After(yesterday) {
		yesterday = start
	}
	return read(zlimit.WindowHourly, yesterday, end)
}

// foresee adds budgets, their forecasts, and refusals.
func (p *page) foresee(ctx context.Context, q *usageQuery, book *ledger) error {
	done, err := p.Limiter.Usage.Completeness(ctx)
	if err != nil {
		return err
	}
	book.complete = done.To
	if !q.present() {
		return nil
	}
	rejected, err := p.rejectedOf(ctx, q.resource, 24*time.Hour)
	if err != nil {
		return err
	}
	if q.entity != "" {
		f, err := p.forecastOf(ctx, q, q.entity)
		if err != nil {
			return err
		}
		if f != nil {
			book.forecast, book.budget, book.available, book.ends = *f, float64(f.Capacity), float64(f.Available), f.ResetsAt
		}
	}
	err = each8(len(book.groups), func(i int) (err error) {
		g := &book.groups[i]
		for of, n := range rejected {
			if of.entity == g.entity && of.limit == q.limit {
				g.refused += n
			}
		}
		g.forecast, err = p.forecastOf(ctx, q, g.entity)
		return err
	})
	if q.entity == "" {
		book.together()
	}
	book.extend(q)
	return err
}

// together adds up the budgets of everyone, if all who use the limit have one.
func (b *ledger) together() {
	var budget, available float64
	for i := range b.groups {
		f := b.groups[i].forecast
		if f == nil && sum(b.groups[i].days[b.offset:]) > 0 || b.left > 0 {
			return
		}
		if f != nil {
			budget, available, b.ends = budget+float64(f.Capacity), available+float64(f.Available), f.ResetsAt
		}
	}
	b.budget, b.available = budget, available
}

// forecastOf returns the forecast of an entity's own monthly budget; nil if it has none.
func (p *page) forecastOf(ctx context.Context, q *usageQuery, entity string) (*zlimit.Forecast, error) {
	all, err := p.Limiter.Usage.Forecast(ctx, entity, q.resource)
	if err != nil && !isNoLimits(err) {
		return nil, err
	}
	for i := range all {
		f := &all[i]
		if f.Entity == entity && f.Limit == q.limit && f.ResetsAt.Sub(q.now) <= 31*24*time.Hour && !f.ResetsAt.Before(q.to.Add(-time.Hour)) {
			return f, nil
		}
	}
	return nil, nil //nolint:nilnil // no budget is no failure
}

// tooEarly reports whether amounts by day are of too few days for a forecast.
func (b *ledger) tooEarly(q *usageQuery, days []float64) bool {
	today := b.offset + int(q.passed())
	used := 0
	for _, v := range days[max(today-forecastDays, 0):today] {
		if v > 0 {
			used++
		}
	}
	return used < leastForecast
}

// An outlook is how a budget ends.
type outlook int

const (
	outlookUsedUp outlook = iota
	outlookEndsEarly
	outlookTooEarly
	outlookLasts
)

// outlook decides for the headline and for every row how a budget ends, from what was used by day.
func (b *ledger) outlook(q *usageQuery, f *zlimit.Forecast, days []float64) outlook {
	switch {
	case f.Available <= f.Capacity/2000:
		return outlookUsedUp
	case b.tooEarly(q, days):
		return outlookTooEarly
	case !f.UsedUp.IsZero():
		return outlookEndsEarly
	default:
		return outlookLasts
	}
}

// extend foresees the rest of the month: each day as its weekday in the last four weeks, or as the last seven days.
func (b *ledger) extend(q *usageQuery) {
	today := b.offset + int(q.passed())
	first := max(today-forecastDays, 0)
	if b.early = b.tooEarly(q, b.total); b.early {
		return
	}
	weekday := func(day int) time.Weekday { return q.from.AddDate(0, 0, day-b.offset).Weekday() }
	var rate [7]float64
	flat := sum(b.total[max(today-7, 0):today]) / float64(min(today, 7))
	for wd := range rate {
		n := 0
		for day := first; day < today; day++ {
			if weekday(day) == time.Weekday(wd) {
				rate[wd] += b.total[day]
				n++
			}
		}
		rate[wd] /= float64(max(n, 1))
		if !b.forecast.Weekdays && b.budget > 0 {
			rate[wd] = flat
		}
	}
	if b.forecast.PerDay > 0 { // the forecast of the budget has the level, and the weekdays its shape
		scale := 7 * b.forecast.PerDay / max(sum(rate[:]), 1e-9)
		for i := range rate {
			rate[i] *= scale
		}
	}
	variance := 0.0
	for day := first; day < today; day++ {
		d := b.total[day] - rate[weekday(day)]
		variance += d * d / float64(today-first)
	}
	spent := sum(b.total[b.offset:])
	at := spent
	for day := today; day < b.offset+q.days(); day++ {
		part := 1.0
		if day == today {
			part = 1 - (q.passed() - float64(int(q.passed())))
		}
		at += rate[weekday(day)] * part
		b.path = append(b.path, at)
		b.spread = append(b.spread, sqrt(variance*(float64(len(b.path)-1)+part)))
	}
	if n := len(b.path); n > 0 {
		b.likely = b.path[n-1]
		b.atEnd = [2]float64{max(b.likely-b.spread[n-1], spent), b.likely + b.spread[n-1]}
	}
}

// heldBy returns the amounts of calls under way, by group; amounts of others are below "".
func (p *page) heldBy(ctx context.Context, q *usageQuery, book *ledger, open []token.OpenLease) (map[string]float64, error) {
	by := map[string]float64{}
	groups := map[string]bool{}
	for _, g := range book.groups {
		groups[g.entity] = true
	}
	for _, h := range open {
		n := float64(h.Amounts[q.limit])
		if n == 0 || !q.present() {
			continue
		}
		at := h.Entity
		for range mostParents {
			if at == "" || groups[at] || at == q.entity {
				break
			}
			r, err := p.feed.relation(ctx, at, false)
			if err != nil {
				return nil, err
			}
			at = r.Parent
		}
		if groups[at] {
			by[at] += n
		} else if q.entity == "" || at == q.entity {
			by[""] += n
		}
	}
	return by, nil
}

func (p *page) usageCSV(w http.ResponseWriter, r *http.Request, u User) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	var v view
	q, _, _, err := p.usageQuery(ctx, r, &v)
	if err == nil && q.resource == "" {
		err = &statusError{http.StatusNotFound, "Nothing is limited yet"}
	}
	var book *ledger
	if err == nil {
		book, _, err = p.ledgerOf(ctx, q)
	}
	if err != nil {
		p.fail(w, r, u, err)
		return
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="usage-`+q.from.Format("2006-01")+`.csv"`)
	out := csv.NewWriter(w)
	_ = out.Write([]string{"day", "zone", "resource", "limit", "entity", "amount"})
	for day := range q.days() {
		for _, g := range append(slices.Clone(book.groups), group{entity: "(total)", days: book.total}) {
			if n := g.days[book.offset+day]; n != 0 {
				text := strconv.FormatFloat(n, 'f', -1, 64)
				if isMoney(q.limit) {
					text = strconv.FormatFloat(n/nanoDollars, 'f', 6, 64)
				}
				_ = out.Write([]string{q.from.AddDate(0, 0, day).Format(time.DateOnly), q.zone.String(), disarmed(q.resource), disarmed(q.limit), disarmed(g.entity), text})
			}
		}
	}
	out.Flush()
}

// disarmed puts an apostrophe before what a spreadsheet would take for a formula.
func disarmed(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
