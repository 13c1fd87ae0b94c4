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

const (
	shownBuckets = 50
	mostBuckets  = 500 // after "show more"
)

// A nowBody is the screen that answers who is refused, by which limit, and until when.
type nowBody struct {
	Resource  string
	Resources []tab
	Facts     []fact
	Columns   []string
	HasSlots  bool
	Rows      []bucketRow
	More      string // the address with more rows
	Note      string
	Refusing  []listItem
	Slots     *slotsView
	Changes   []listItem
}

// A fact is one figure, with its course.
type fact struct {
	Name, Value, Class, Note string
	Line                     string // the points of a sparkline
	LineClass                string
}

type listItem struct {
	Text, More, Value, Class, Note, URL string
}

// A bucketRow is a bucket with the limits of the columns.
type bucketRow struct {
	*standing
	relation
	Cells []cell
}

// Tag says how the bucket stands.
func (r bucketRow) Tag() tag {
	if r.rank == rankParent && r.Children > 0 {
		return tag{fmt.Sprintf("parent of %d", r.Children), "off"}
	}
	return tags[r.rank]
}

func (p *page) now(ctx context.Context, r *http.Request, _ User) (view, error) {
	v := view{Live: true}
	resource, resources, err := p.resource(ctx, r, &v)
	if err != nil || resource == "" {
		return v, err
	}
	read, at, err := p.feed.buckets(ctx, resource)
	if err != nil {
		return v, err
	}
	v.At = at
	pulse := p.Recent.pulse(resource)
	reported, err := p.feed.rejected(ctx, resource)
	if err != nil {
		return v, err
	}
	refusals := together(pulse.Refusals, &reported)
	byEntity := map[string]int64{}
	for _, of := range refusals {
		byEntity[of.entity] += of.N
	}
	all := make([]standing, len(read.Buckets))
	for i := range read.Buckets {
		b := &read.Buckets[i]
		all[i] = standingOf(b, byEntity[b.Entity], pulse.Waiting[b.Entity], p.Now())
	}
	slices.SortStableFunc(all, func(a, b standing) int { return a.compare(&b) })
	body := &nowBody{Resource: named(resource), Resources: resources}
	v.Body, v.Path = body, []crumb{{p.Namespace, "/"}, {"resource", ""}}
	v.Title = named(resource) + " now"
	p.nowHead(&v, body, all, refusals, &pulse)
	p.facts(body, &pulse, all, refusals)
	if err := p.rows(ctx, r, body, all, &read); err != nil {
		return v, err
	}
	body.Refusing = p.refusing(all, refusals)
	body.Slots = slotsOf(all)
	if body.Changes, err = p.justChanged(ctx); err != nil {
		return v, err
	}
	return v, nil
}

func (p *page) facts(body *nowBody, pulse *pulse, all []standing, refusals []refusedBy) {
	_, total := causesOf(refusals)
	total = max(total, pulse.RefusedMinute) // a flood of names is not counted by name
	refused := fact{Name: "Refused a minute", Value: grouped(total), Note: "of this resource", Line: sparkline(pulse.Refused), LineClass: "r"}
	if total > 0 {
		refused.Class = "red"
	}
	if pulse.Decided > 0 {
		refused.Note = percent(float64(pulse.RefusedMinute)/float64(pulse.Decided)) + " of the calls for this resource"
		if total > pulse.RefusedMinute {
			refused.Note = fmt.Sprintf("%s by this server, %s of its calls for it", grouped(pulse.RefusedMinute), percent(float64(pulse.RefusedMinute)/float64(pulse.Decided)))
		}
	}
	waiting := fact{Name: "Waiting", Value: grouped(int64(pulse.Waits.N)), Note: "no one waits", Line: sparkline(pulse.Waiters), LineClass: "v"}
	if pulse.Waits.N > 0 {
		waiting.Class, waiting.Note = "violet", "longest "+span(pulse.Waits.Longest)
	}
	held, capacity := int64(0), int64(0)
	for i := range all {
		held, capacity = held+all[i].Held, capacity+all[i].slots
	}
	store := fact{Name: "Store", Value: "idle", Note: "no call in the last minute", Line: sparkline(pulse.Store), LineClass: "g"}
	if pulse.Calls {
		store.Value, store.Note = span(pulse.Slowest), "slowest call · no outage"
	}
	if p.Limiter.Stats().Outage {
		store.Value, store.Class, store.Note = "outage", "red", "calls of the store are suspended"
	}
	perSecond := grouped(int64(pulse.PerSecond + 0.5))
	if pulse.PerSecond < 9.95 {
		perSecond = short(pulse.PerSecond)
	}
	body.Facts = []fact{
		{Name: "Admitted a second", Value: perSecond, Note: "calls for it, by this server", Line: sparkline(pulse.Admitted)},
		refused, waiting,
	}
	if capacity > 0 {
		body.Facts = append(body.Facts, fact{Name: "Slots", Value: grouped(held), Note: "of " + grouped(capacity) + " held", Line: ""})
	}
	body.Facts = append(body.Facts, store)
}

// rows are the worst buckets.
func (p *page) rows(ctx context.Context, r *http.Request, body *nowBody, all []standing, read *reading) error {
	body.Columns = columns(all)
	shown := min(len(all), shownBuckets)
	if r.URL.Query().Get("all") != "" {
		shown = min(len(all), mostBuckets)
	}
	body.Rows = make([]bucketRow, shown)
	if err := each8(shown, func(i int) (err error) {
		row := &body.Rows[i]
		row.standing = &all[i]
		for _, name := range body.Columns {
			row.Cells = append(row.Cells, cellOf(row.standing, name, p.Now()))
		}
		row.relation, err = p.feed.relation(ctx, row.Entity, row.isParent)
		return err
	}); err != nil {
		return err
	}
	body.HasSlots = slices.ContainsFunc(body.Rows, func(r bucketRow) bool { return r.Held > 0 })
	body.Note = fmt.Sprintf("%s of %s shown", grouped(int64(shown)), grouped(int64(len(all))))
	if len(all) > shown && shown < mostBuckets {
		q := r.URL.Query()
		q.Del("screen")
		q.Set("all", "1")
		body.More = screenURL(r) + "?" + q.Encode()
	}
	if read.Coverage.Known() && read.Coverage.Unlisted > 0 {
		body.Note += fmt.Sprintf(" · %s used once or expired, and not listed", plural(read.Coverage.Unlisted, "entity"))
	}
	return nil
}

// columns are the limits that most buckets have, at most three, without slots.
func columns(all []standing) []string {
	counts := map[string]int{}
	for i := range all {
		for j := range all[i].Statuses {
			if st := &all[i].Statuses[j]; st.Limit.Term == 0 {
				counts[st.Limit.Name]++
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	names = names[:min(len(names), 3)]
	slices.SortFunc(names, func(a, b string) int { // money last
		return cmp.Or(cmp.Compare(btoi(isMoney(a)), btoi(isMoney(b))), cmp.Compare(a, b))
	})
	return names
}

// A slotsView is who holds slots.
type slotsView struct {
	Text    string
	Squares []string // classes
	Key     []keyItem
}

type keyItem struct{ Class, Text string }

const mostSquares = 100

func slotsOf(all []standing) *slotsView {
	var holders []*standing
	held, capacity := int64(0), int64(0)
	for i := range all {
		if s := &all[i]; !s.isParent { // whose children hold its slots
			held, capacity = held+s.Held, capacity+s.slots
			if s.Held > 0 {
				holders = append(holders, s)
			}
		}
	}
	if held == 0 {
		return nil
	}
	slices.SortFunc(holders, func(a, b *standing) int { return cmp.Or(cmp.Compare(b.Held, a.Held), cmp.Compare(a.Entity, b.Entity)) })
	v := &slotsView{Text: fmt.Sprintf("%s of %s calls are under way", grouped(held), grouped(capacity))}
	scale := max((max(capacity, held)+mostSquares-1)/mostSquares, 1)
	if scale > 1 {
		v.Text += fmt.Sprintf("; a square is %d of them", scale)
	}
	others := int64(0)
	for i, h := range holders {
		if i >= len(colours)-1 {
			others += h.Held
			continue
		}
		v.add(colours[i], named(h.Entity), h.Held, scale)
	}
	if others > 0 {
		v.add("E", "others", others, scale)
	}
	for int64(len(v.Squares)) < min(capacity/scale, mostSquares) {
		v.Squares = append(v.Squares, "")
	}
	return v
}

var colours = []string{"A", "B", "C", "D", "E"}

func (v *slotsView) add(class, name string, n, scale int64) {
	for range (n + scale - 1) / scale {
		v.Squares = append(v.Squares, class)
	}
	v.Key = append(v.Key, keyItem{class, fmt.Sprintf("%s %d", name, n)})
}

func (p *page) justChanged(ctx context.Context) ([]listItem, error) {
	events, err := p.feed.changes(ctx, 24*time.Hour, 4)
	return p.items(events, nil), err
}

// items lists changes, each without what is the same for all.
func (p *page) items(events []zlimit.AuditEvent, shorten func(*change)) (items []listItem) {
	for i := range events {
		c := changeOf(&events[i])
		if shorten != nil {
			shorten(&c)
		}
		items = append(items, c.item(p.Now()))
	}
	return items
}
