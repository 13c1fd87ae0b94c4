package page

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/server/internal/token"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A ledger is what a month has, by group.
type ledger struct {
	Groups    []group
	others    group
	Total     []float64 // by day of the month before and of the month
	offset    int       // days of the month before
	Budget    float64   // capacity with grants; 0 for none
	Available float64
	Ends      time.Time
	Forecast  zlimit.Forecast
	AtEnd     [2]float64 // of the month: the forecast's spread
	Likely    float64
	path      []float64 // forecast for the rest of today, and each day after
	spread    []float64
	Early     bool // too early for a forecast
	Left      int  // groups that are not shown
	Complete  time.Time
}

// Spent is what was used in the month.
func (b *ledger) Spent() float64 { return sum(b.Total[b.offset:]) }

// SpentBefore is what was used in the month before.
func (b *ledger) SpentBefore() float64 { return sum(b.Total[:b.offset]) }

// Growth is the change from the month before.
func (b *ledger) Growth() float64 { return b.Spent()/b.SpentBefore() - 1 }

// Part is which part of the budget was used.
func (b *ledger) Part() float64 { return b.Spent() / b.Budget }

// A group is a child of the entity, with all below it.
type group struct {
	Entity   string
	days     []float64 // as ledger.Total
	Forecast *zlimit.Forecast
	Refused  int64
}

const (
	mostGroups = 24
	usageKept  = 20 * time.Second
)

// ledgerOf reads the month and the one before.
func (p *page) ledgerOf(ctx context.Context, q *usageQuery) (*ledger, time.Time, error) {
	return once(ctx, &p.feed, q.key(), usageKept, func(ctx context.Context) (*ledger, error) {
		start := q.From.AddDate(0, -1, 0)
		book := &ledger{offset: int(q.From.Sub(start).Hours()/24 + 0.5)}
		read := p.usedByTops
		if q.Entity != "" {
			read = p.usedByChildren
		}
		total, by, err := read(ctx, q, start, book.offset+q.Days())
		if err != nil {
			return nil, err
		}
		book.Total = total
		book.group(q, by)
		return book, p.foresee(ctx, q, book)
	})
}

// usedByTops returns what everyone used by day: in all, and by topmost parents.
func (p *page) usedByTops(ctx context.Context, q *usageQuery, start time.Time, n int) (total []float64, by map[string][]float64, err error) {
	own := map[string][]float64{}
	for _, resource := range q.resources {
		if err := p.series(ctx, q, zlimit.UsageQuery{Resource: resource}, start, func(s *zlimit.Snapshot, day int) {
			if own[s.Entity] == nil {
				own[s.Entity] = make([]float64, n)
			}
			own[s.Entity][day] += ownOf(s, q.Limit, q.Resource == everyone)
		}); err != nil {
			return nil, nil, err
		}
	}
	return p.byTop(ctx, q, own, n)
}

// ownOf is what an entity used of a limit itself, without what children used and, in all resources, without what counts at a narrower
// one. A request of a child for a narrower resource is in both parts, so the larger part counts: an entity that has children, and its own
// requests beside theirs for a resource and for a narrower one, may seem to use more.
func ownOf(s *zlimit.Snapshot, limit string, all bool) float64 {
	part := s.FromChildren[limit]
	if all {
		part = max(part, s.FromNarrower[limit])
	}
	return (s.Consumed[limit] - part).Float64()
}

// usedByChildren returns what an entity used by day: in all, and by its children.
func (p *page) usedByChildren(ctx context.Context, q *usageQuery, start time.Time, n int) (total []float64, by map[string][]float64, err error) {
	children, err := first(4*mostGroups, p.Limiter.Entities.Children(ctx, q.Entity))
	if err != nil {
		return nil, nil, err
	}
	entities := []string{q.Entity}
	for _, child := range children {
		entities = append(entities, child.ID)
	}
	days := make([][]float64, len(entities))
	if err := each8(len(days), func(i int) error {
		days[i] = make([]float64, n)
		of := zlimit.UsageQuery{Entity: entities[i], Resource: oneResource(q.Resource)}
		return p.series(ctx, q, of, start, func(s *zlimit.Snapshot, day int) { days[i][day] += s.Counted(of)[q.Limit].Float64() })
	}); err != nil {
		return nil, nil, err
	}
	by = map[string][]float64{}
	for i, e := range entities[1:] {
		by[e] = days[i+1]
	}
	return days[0], by, nil
}

// group sets the groups that are shown, the largest of the month first, and what is left for others.
func (b *ledger) group(q *usageQuery, by map[string][]float64) {
	for e, days := range by {
		if sum(days) != 0 || q.Entity == "" && q.Present() && slices.Contains(q.tops, e) { // which may have a budget, and no use
			b.Groups = append(b.Groups, group{Entity: e, days: days})
		}
	}
	slices.SortFunc(b.Groups, func(x, y group) int {
		return cmp.Or(cmp.Compare(sum(y.days[b.offset:]), sum(x.days[b.offset:])), cmp.Compare(x.Entity, y.Entity))
	})
	b.Left = max(len(b.Groups)-mostGroups, 0)
	b.Groups = b.Groups[:min(len(b.Groups), mostGroups)]
	b.others = group{Entity: "others", days: slices.Clone(b.Total)}
	for _, g := range b.Groups[:min(len(b.Groups), len(colours)-1)] {
		for i := range g.days {
			b.others.days[i] -= g.days[i]
		}
	}
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
func (p *page) series(ctx context.Context, q *usageQuery, of zlimit.UsageQuery, start time.Time, f func(s *zlimit.Snapshot, day int)) error {
	end := q.To
	if q.Now.Before(end) {
		end = q.Now
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
			local := s.Start.In(q.Zone)
			day := int(time.Date(local.Year(), local.Month(), local.Day(), 12, 0, 0, 0, time.UTC).Sub(time.Date(start.Year(), start.Month(), start.Day(), 0, 0, 0, 0, time.UTC)).Hours() / 24)
			if day >= 0 && day < int(q.To.Sub(start).Hours()/24+0.5) {
				f(&s, day)
			}
		}
		return nil
	}
	split := start // of days that are complete, and hours
	if q.Zone.String() == "UTC" {
		split = zlimit.WindowDaily.Start(q.Now).AddDate(0, 0, -1) // the day before, whose last hours may not be in its day yet
	}
	split = start.Add(max(min(split.Sub(start), end.Sub(start)), 0))
	if err := read(zlimit.WindowDaily, start, split); err != nil {
		return err
	}
	return read(zlimit.WindowHourly, split, end)
}

// heldBy returns the amounts of calls under way, by group; amounts of others are below "".
func (p *page) heldBy(ctx context.Context, q *usageQuery, book *ledger, open []token.OpenLease) (map[string]float64, error) {
	by := map[string]float64{}
	groups := map[string]bool{}
	for _, g := range book.Groups {
		groups[g.Entity] = true
	}
	for _, h := range open {
		n := float64(h.Amounts[q.Limit])
		if n == 0 || !q.Present() {
			continue
		}
		lineage, err := p.feed.lineage(ctx, h.Entity)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(lineage, func(e string) bool { return groups[e] || e == q.Entity })
		switch {
		case at >= 0 && groups[lineage[at]]:
			by[lineage[at]] += n
		case q.Entity == "" || at >= 0:
			by[""] += n
		}
	}
	return by, nil
}
