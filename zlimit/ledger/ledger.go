// Package ledger adds up what a month has consumed of a limit: day by day, in all and by who, beside the month before. Of the present month it has
// the budgets, what the rest of the month will take, and whether the budgets last. It is what a page of usage shows to a customer or an operator.
//
//	month, err := ledger.Read(ctx, limiter, ledger.Query{
//		Entity: "acme", Resources: []string{"gpt"}, Limit: "usd", From: ledger.Begin(now), Now: now,
//	})
//	if err == nil {
//		fmt.Println(month.Spent(), month.Budget, month.Outlook(&month.Forecast, month.Total))
//	}
//
// Amounts are in tokens, and of a limit in money in billionths of a dollar. They are what an aggregator has counted. The functions write nothing.
package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Query says what a ledger is about. Without resources or a limit, the month has no consumption.
type Query struct {
	// Entity is whose consumption it is, with that of its children; "" for everyone's.
	Entity string
	// Resources are one resource, or all resources of the namespace, whose amounts are added up. Budgets are of one resource: with more there are none.
	Resources []string
	Limit     string
	// From is the first midnight of the month in its time zone, see [Begin]. Usage is kept by hours of UTC: an hour is in the day that it begins in.
	From time.Time
	// Now is the present.
	Now time.Time
	// Tops are entities without a parent that a ledger of everyone has, also without consumption: they may have a budget.
	Tops []string
	// Root returns the topmost parent of an entity, or the entity itself. It is for a ledger of everyone. Without it each record is read, up to
	// eight parents upward.
	Root func(ctx context.Context, entity string) (string, error)
}

// Begin returns the beginning of the month that a time is in, in the time zone of the time.
func Begin(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, t.Location())
}

// To returns the end of the month.
func (q *Query) To() time.Time { return q.From.AddDate(0, 1, 0) }

// Days returns how many days the month has.
func (q *Query) Days() int { return daysOf(q.From, q.To()) }

func daysOf(from, to time.Time) int { return int(to.Sub(from).Hours()/24 + 0.5) }

// Present reports whether the month is under way.
func (q *Query) Present() bool { return !q.Now.Before(q.From) && q.Now.Before(q.To()) }

// Passed returns how many days of the month are over, with a fraction.
func (q *Query) Passed() float64 {
	return min(max(q.Now.Sub(q.From).Hours()/24, 0), float64(q.Days()))
}

// resource returns the resource of a query of usage: "" stands for all of them.
func (q *Query) resource() string {
	if len(q.Resources) == 1 {
		return q.Resources[0]
	}
	return ""
}

// A Month is what a month has. Amounts by day begin with the days of the month before.
type Month struct {
	Query  Query
	Before int       // days of the month before
	Total  []float64 // by day
	Groups []Group   // who consumed most in the month, the largest first
	Left   int       // how many there are beside them

	Budget    float64         // with grants; 0 for none. Of everyone it is the sum, if all who used something have one
	Available float64         // of the budget
	Ends      time.Time       // of the budget's period
	Forecast  zlimit.Forecast // of the entity's budget

	Early  bool       // there are too few days of usage for the following
	Path   []float64  // the sum of the month at the end of today, and of each day after it
	Spread []float64  // by how much each of them may be off, as the last four weeks vary
	Likely float64    // the sum at the end of the month
	AtEnd  [2]float64 // from the least to the most

	Complete time.Time // up to when consumption is counted; the zero time where that is not known
}

// A Group is a child of the entity with all below it. In a ledger of everyone it is an entity without a parent.
type Group struct {
	Entity   string
	Days     []float64        // as [Month.Total]
	Forecast *zlimit.Forecast // of its budget for a month; nil for none
}

// Spent returns what was used in the month.
func (m *Month) Spent() float64 { return m.In(m.Total) }

// SpentBefore returns what was used in the month before.
func (m *Month) SpentBefore() float64 { return sum(m.Total[:m.Before]) }

// In returns the sum of the month of amounts by day.
func (m *Month) In(days []float64) float64 { return sum(days[m.Before:]) }

// Growth returns the change from the month before, as a part of that. It is meaningless if nothing was used then, see [Month.SpentBefore].
func (m *Month) Growth() float64 { return m.Spent()/m.SpentBefore() - 1 }

// Part returns which part of the budget was used. It is meaningless without a budget.
func (m *Month) Part() float64 { return m.Spent() / m.Budget }

// Others returns what all but the first groups consumed by day.
func (m *Month) Others(groups int) []float64 {
	days := slices.Clone(m.Total)
	for _, g := range m.Groups[:min(len(m.Groups), groups)] {
		for i := range g.Days {
			days[i] -= g.Days[i]
		}
	}
	return days
}

const (
	mostGroups  = 24
	mostParents = 8
)

// Read reads a month and the one before. For an entity it reads usage of the entity and of up to 96 children, for everyone that of each resource:
// days of UTC that are complete, and hours of the others, or of all days in another time zone. In the present month it makes the calls of
// [zlimit.UsageService.Forecast], [zlimit.RateLimiter.Available] and [github.com/zlimit/zlimit-go/zlimit/hindsight.Raised] for the entity and for
// each of up to 24 groups, as far as they have a budget. It returns a [*zlimit.ValidationError] before any read, and errors of the store.
func Read(ctx context.Context, l *zlimit.RateLimiter, q Query) (*Month, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	r := reader{l, &q, q.From.AddDate(0, -1, 0)}
	m := &Month{Query: q, Before: daysOf(r.start, q.From)}
	read := r.usedByTops
	if q.Entity != "" {
		read = r.usedByChildren
	}
	var by map[string][]float64
	var err error
	if m.Total, by, err = read(ctx, m.Before+q.Days()); err != nil {
		return nil, err
	}
	m.group(by)
	return m, r.foresee(ctx, m)
}

// A reader reads the ledger of a query.
type reader struct {
	l *zlimit.RateLimiter
	*Query
	start time.Time // of the month before
}

// usedByTops returns what everyone used by day: in all, and by topmost parents.
func (r *reader) usedByTops(ctx context.Context, n int) (total []float64, by map[string][]float64, err error) {
	each, used := map[string][]float64{}, map[string]float64{}
	for _, resource := range r.Resources {
		if err := r.series(ctx, zlimit.UsageQuery{Resource: resource}, func(s *zlimit.Snapshot, day int) {
			amount := own(s, r.Limit, len(r.Resources) > 1).Float64()
			at(each, s.Entity, n)[day] += amount
			used[s.Entity] += amount
		}); err != nil {
			return nil, nil, err
		}
	}
	total, by = make([]float64, n), map[string][]float64{}
	for _, days := range each {
		add(total, days)
	}
	roots, err := r.Roots(ctx, r.l, used)
	for entity, root := range roots {
		add(at(by, root, n), each[entity])
	}
	for _, top := range r.Tops {
		at(by, top, n)
	}
	return total, by, err
}

// usedByChildren returns what an entity used by day: in all, and by its children.
func (r *reader) usedByChildren(ctx context.Context, n int) (total []float64, by map[string][]float64, err error) {
	entities := []string{r.Entity}
	for child, err := range r.l.Entities.Children(ctx, r.Entity) {
		if err != nil {
			return nil, nil, err
		}
		if entities = append(entities, child.ID); len(entities) > 4*mostGroups {
			break
		}
	}
	days := make([][]float64, len(entities))
	err = each(len(days), func(i int) error {
		days[i] = make([]float64, n)
		of := zlimit.UsageQuery{Entity: entities[i], Resource: r.resource()}
		return r.series(ctx, of, func(s *zlimit.Snapshot, day int) { days[i][day] += s.Counted(of)[r.Limit].Float64() })
	})
	by = map[string][]float64{}
	for i, e := range entities[1:] {
		by[e] = days[i+1]
	}
	return days[0], by, err
}

// group sets the groups, the largest of the month first.
func (m *Month) group(by map[string][]float64) {
	q := &m.Query
	for e, days := range by {
		if sum(days) != 0 || q.Entity == "" && q.Present() && slices.Contains(q.Tops, e) { // which may have a budget, and no use
			m.Groups = append(m.Groups, Group{Entity: e, Days: days})
		}
	}
	slices.SortFunc(m.Groups, func(x, y Group) int {
		return cmp.Or(cmp.Compare(m.In(y.Days), m.In(x.Days)), cmp.Compare(x.Entity, y.Entity))
	})
	m.Left = max(len(m.Groups)-mostGroups, 0)
	m.Groups = m.Groups[:min(len(m.Groups), mostGroups)]
}

// series calls f for each snapshot of both months: days that are complete, and hours since yesterday or in zones other than UTC.
func (r *reader) series(ctx context.Context, of zlimit.UsageQuery, f func(s *zlimit.Snapshot, day int)) error {
	start, end := r.start, r.To()
	if r.Now.Before(end) {
		end = r.Now
	}
	read := func(window zlimit.Window, from, to time.Time) error {
		from, to = zlimit.WindowHourly.Start(from), zlimit.WindowHourly.Start(to.Add(time.Hour-1))
		if !from.Before(to) {
			return nil
		}
		of.Window, of.From, of.To = window, from, to
		for s, err := range r.l.Usage.Snapshots(ctx, of) {
			if err != nil {
				return err
			}
			local := s.Start.In(start.Location())
			day := int(time.Date(local.Year(), local.Month(), local.Day(), 12, 0, 0, 0, time.UTC).Sub(time.Date(start.Year(), start.Month(), start.Day(), 0, 0, 0, 0, time.UTC)).Hours() / 24)
			if day >= 0 && day < daysOf(start, r.To()) {
				f(&s, day)
			}
		}
		return nil
	}
	split := start // of days that are complete, and hours
	if start.Location().String() == "UTC" {
		split = zlimit.WindowDaily.Start(r.Now).AddDate(0, 0, -1) // the day before, whose last hours may not be in its day yet
	}
	split = start.Add(max(min(split.Sub(start), end.Sub(start)), 0))
	if err := read(zlimit.WindowDaily, start, split); err != nil {
		return err
	}
	return read(zlimit.WindowHourly, split, end)
}

// mostRoots bounds the entities whose parents are looked up, the largest first.
const mostRoots = 256

// Roots returns the topmost parents of the 256 largest of entities, given what each has used. It makes up to eight reads for each, unless the query
// says otherwise.
func (q *Query) Roots(ctx context.Context, l *zlimit.RateLimiter, used map[string]float64) (map[string]string, error) {
	entities := Largest(used)
	entities = entities[:min(len(entities), mostRoots)]
	root := q.Root
	if root == nil {
		root = func(ctx context.Context, entity string) (string, error) { return rootOf(ctx, l, entity) }
	}
	found := make([]string, len(entities))
	err := each(len(entities), func(i int) (err error) {
		found[i], err = root(ctx, entities[i])
		return err
	})
	roots := make(map[string]string, len(entities))
	for i, e := range entities {
		roots[e] = found[i]
	}
	return roots, err
}

func rootOf(ctx context.Context, l *zlimit.RateLimiter, entity string) (string, error) {
	for range mostParents {
		e, err := l.Entities.Get(ctx, entity)
		if err != nil && !errors.Is(err, zlimit.ErrEntityNotFound) {
			return "", err
		}
		if e.ParentID == "" {
			break
		}
		entity = e.ParentID
	}
	return entity, nil
}

// each calls f for 0 to n-1, eight at a time, and returns the first error.
func each(n int, f func(int) error) error {
	var group errgroup.Group
	group.SetLimit(8)
	for i := range n {
		group.Go(func() error { return f(i) })
	}
	return group.Wait()
}
