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

const (
	shownBuckets = 50
	mostBuckets  = 500 // after "show more"
)

// A nowBody is the screen that answers who is refused, by which limit, and until when.
type nowBody struct {
	Resource                        string
	Resources                       []string
	Pulse                           recent.Pulse
	Count, Unlisted                 int // buckets, and entities without one
	Refusing, UsedUp, Disabled, Low int // entities
	Refused                         int64
	Causes                          []cause
	Held, Capacity                  int64 // slots
	Outage                          bool
	Columns                         []string
	HasSlots                        bool
	Rows                            []bucketRow
	More                            bool // rows can be shown
	Slots                           *slotsView
	Changes                         []change
}

// A bucketRow is a bucket with its place in the tree.
type bucketRow struct {
	*standing
	relation
}

// Tag says how the bucket stands.
func (r bucketRow) Tag() tag {
	if r.rank == rankParent && r.Children > 0 {
		return tag{fmt.Sprintf("parent of %d", r.Children), "off"}
	}
	return tags[r.rank]
}

func (p *page) now(ctx context.Context, r *http.Request, _ User) (view, error) {
	var v view
	resource, resources, err := p.resource(ctx, r, &v)
	if err != nil || resource == "" {
		return v, err
	}
	read, at, err := p.feed.buckets(ctx, resource)
	if err != nil {
		return v, err
	}
	body := &nowBody{Resource: resource, Resources: resources, Pulse: p.Recent.Of(resource), Count: len(read.Buckets), Outage: p.Limiter.Stats().Outage}
	v.At, v.Body = at, body
	refusals, err := p.refusals(ctx, resource, &body.Pulse)
	if err != nil {
		return v, err
	}
	byEntity := map[string]int64{}
	for _, of := range refusals {
		byEntity[of.Entity] += of.N
	}
	all, ranks := make([]standing, len(read.Buckets)), map[rank]int{}
	for i := range read.Buckets {
		b := &read.Buckets[i]
		all[i] = standingOf(b, byEntity[b.Entity], body.Pulse.Waiting[b.Entity], p.Now())
		ranks[all[i].rank]++
		body.Held, body.Capacity = body.Held+all[i].Held, body.Capacity+all[i].slots
	}
	slices.SortStableFunc(all, func(a, b standing) int { return a.compare(&b) })
	body.Refusing, body.UsedUp, body.Disabled, body.Low = len(byEntity), ranks[rankUsedUp], ranks[rankDisabled], ranks[rankLow]+ranks[rankOwes]
	body.Causes, body.Refused = p.causes(func(entity, limit string) *zlimit.Status {
		if i := slices.IndexFunc(all, func(s standing) bool { return s.Entity == entity && s.Status(limit) != nil }); i >= 0 {
			return all[i].Status(limit)
		}
		return nil
	}, refusals)
	body.Refused = max(body.Refused, body.Pulse.RefusedMinute) // a flood of names is not counted by name
	if read.Coverage.Known() {
		body.Unlisted = read.Coverage.Unlisted
	}
	if err := p.rows(ctx, r, body, all); err != nil {
		return v, err
	}
	body.Slots = slotsOf(all)
	events, err := p.feed.changes(ctx, 24*time.Hour, 4)
	body.Changes = changesOf(events)
	return v, err
}

// rows are the worst buckets.
func (p *page) rows(ctx context.Context, r *http.Request, body *nowBody, all []standing) error {
	body.Columns = columns(all)
	shown := min(len(all), shownBuckets)
	if r.URL.Query().Get("all") != "" {
		shown = min(len(all), mostBuckets)
	}
	body.Rows = make([]bucketRow, shown)
	for i := range body.Rows {
		body.Rows[i].standing = &all[i]
		body.HasSlots = body.HasSlots || all[i].Held > 0
	}
	body.More = len(all) > shown && shown < mostBuckets
	return each8(shown, func(i int) (err error) {
		row := &body.Rows[i]
		row.relation, err = p.feed.relation(ctx, row.Entity, row.isParent)
		return err
	})
}

// columns are the limits that most buckets have, at most three, without slots.
func columns(all []standing) []string {
	counts := map[string]float64{}
	for i := range all {
		for j := range all[i].Statuses {
			if st := &all[i].Statuses[j]; st.Limit.Term == 0 {
				counts[st.Limit.Name]++
			}
		}
	}
	names := ledger.Largest(counts)
	names = names[:min(len(names), 3)]
	slices.SortFunc(names, func(a, b string) int { // money last
		return cmp.Or(cmp.Compare(btoi(isMoney(a)), btoi(isMoney(b))), cmp.Compare(a, b))
	})
	return names
}

// A slotsView is who holds slots, as squares of Scale slots each.
type slotsView struct {
	Held, Capacity, Scale int64
	Squares               []string // classes
	Key                   []keyItem
}

type keyItem struct{ Class, Text string }

const mostSquares = 100

func slotsOf(all []standing) *slotsView {
	v, by := &slotsView{}, map[string]float64{}
	for i := range all {
		if s := &all[i]; !s.isParent { // whose children hold its slots
			v.Held, v.Capacity = v.Held+s.Held, v.Capacity+s.slots
			by[s.Entity] += float64(s.Held)
		}
	}
	if v.Held == 0 {
		return nil
	}
	v.Scale = max((max(v.Capacity, v.Held)+mostSquares-1)/mostSquares, 1)
	maps.DeleteFunc(by, func(_ string, n float64) bool { return n == 0 })
	others := v.Held
	for i, name := range ledger.Largest(by) {
		if i < len(colours)-1 {
			others -= int64(by[name])
			v.add(colours[i], named(name), int64(by[name]))
		}
	}
	v.add("E", "others", others)
	for int64(len(v.Squares)) < min(v.Capacity/v.Scale, mostSquares) {
		v.Squares = append(v.Squares, "")
	}
	return v
}

var colours = []string{"A", "B", "C", "D", "E"}

func (v *slotsView) add(class, name string, n int64) {
	if n == 0 {
		return
	}
	v.Squares = append(v.Squares, slices.Repeat([]string{class}, int((n+v.Scale-1)/v.Scale))...)
	v.Key = append(v.Key, keyItem{class, fmt.Sprintf("%s %d", name, n)})
}

// changesOf are events as sentences.
func changesOf(events []zlimit.AuditEvent) (all []change) {
	for i := range events {
		all = append(all, changeOf(&events[i]))
	}
	return all
}
