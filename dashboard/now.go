package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

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
	choice

	Pulse                           recent.Pulse
	Count, Unlisted                 int // buckets, and entities without one
	Refusing, UsedUp, Disabled, Low int // entities
	Refused                         int64
	Causes                          []recent.Cause
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

	Parent   string
	Children int
}

// Tag says how the bucket stands.
func (r bucketRow) Tag() tag {
	if r.rank == rankParent && r.Children > 0 {
		return tag{fmt.Sprintf("parent of %d", r.Children), "off"}
	}
	return tags[r.rank]
}

func (p *page) now(ctx context.Context, q url.Values) (view, error) {
	c, err := p.choose(ctx, q, false)
	if err != nil || c.Resource == "" {
		return nothing, err
	}
	read, err := p.feed.buckets(ctx, c.Resource)
	if err != nil {
		return view{}, err
	}
	body := &nowBody{choice: c, Pulse: p.Recent.Of(c.Resource), Count: len(read.Buckets), Outage: p.Limiter.Stats().Outage}
	v := view{At: read.At, Body: body}
	refusals, err := p.refusals(ctx, c.Resource, &body.Pulse)
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
	body.Causes, body.Refused = p.causes(refusals, read.Buckets)
	body.Refused = max(body.Refused, body.Pulse.RefusedMinute) // a flood of names is not counted by name
	if read.Coverage.Known() {
		body.Unlisted = read.Coverage.Unlisted
	}
	most := shownBuckets
	if q.Get("all") != "" {
		most = mostBuckets
	}
	if err := p.rows(ctx, body, all, most); err != nil {
		return v, err
	}
	body.Columns, body.Slots = columns(read.Buckets), slotsOf(all)
	body.Changes, err = p.feed.changes(ctx, 24*time.Hour, 4)
	return v, err
}

// rows are the worst buckets.
func (p *page) rows(ctx context.Context, body *nowBody, all []standing, most int) error {
	body.Rows = make([]bucketRow, min(len(all), most))
	body.More = len(all) > most && most < mostBuckets
	var group errgroup.Group
	group.SetLimit(8)
	for i := range body.Rows {
		row := &body.Rows[i]
		row.standing = &all[i]
		body.HasSlots = body.HasSlots || row.Held > 0
		group.Go(func() (err error) {
			if row.Parent, err = p.feed.parent(ctx, row.Entity); err == nil && row.isParent {
				row.Children, err = p.feed.children(ctx, row.Entity)
			}
			return err
		})
	}
	return group.Wait()
}

// columns are the limits that most buckets have, at most three, without slots.
func columns(buckets []zlimit.Bucket) []string {
	counts := map[string]float64{}
	for _, st := range statuses(buckets) {
		if st.Limit.Term == 0 {
			counts[st.Limit.Name]++
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
