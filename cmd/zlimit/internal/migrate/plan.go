package migrate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Plan estimates a migration from a sample of the source.
type Plan struct {
	Releases string        `json:"releases"`
	Exact    bool          `json:"exact"`  // all items were read
	Stream   bool          `json:"stream"` // the source has a change stream
	Items    int64         `json:"items"`  // items of the source: counted where Exact, else as the store estimates them
	Bytes    int64         `json:"bytes"`
	Sampled  int64         `json:"sampled"` // items that were read
	Shapes   []ShapeCount  `json:"forms"`
	Losses   []LossCount   `json:"losses"`
	Targets  int64         `json:"items_to_write"`    // items that follow
	Copy     store.Units   `json:"copy"`              // what copying takes
	Verify   store.Units   `json:"verify"`            // units of a comparison, which finishing makes at least once
	Spent    store.Units   `json:"plan"`              // units of the plan itself
	Mix      *Mix          `json:"mixed,omitempty"`   // why the migration is not possible with this namespace; nil where the sample shows nothing
	Refused  *RefusedError `json:"refused,omitempty"` // why the migration is not possible at all, by the sample; nil where it shows nothing
	InPlace  *InPlace      `json:"in_place,omitempty"`
}

// InPlace is what a migration in place takes besides: what deleting the old items takes, and indexes to be added or that cannot be.
type InPlace struct {
	Delete store.Units `json:"delete"`
	store.IndexDifferences
}

// A ShapeCount is a number of items of one shape.
type ShapeCount struct {
	Shape Shape `json:"form"`
	Items int64 `json:"items"`
}

// A LossCount is a number of losses for one reason, with one of them.
type LossCount struct {
	Reason string `json:"reason"`
	Items  int64  `json:"items"`
	Example
}

// An Example is the key of one of several items.
type Example struct {
	PK string `json:"example_pk"`
	SK string `json:"example_sk"`
}

// Current reports whether the source has this layout already, so that no migration is needed.
func (p *Plan) Current() bool {
	return len(p.Shapes) > 0 && !slices.ContainsFunc(p.Shapes, func(s ShapeCount) bool { return !s.Shape.IsCurrent() })
}

// Empty reports whether the sample has no item.
func (p *Plan) Empty() bool { return len(p.Shapes) == 0 }

// Foreign reports whether no item has a form of zae-limiter.
func (p *Plan) Foreign() bool { return p.Releases == "" }

// MakePlan reads a sample of the source, and extrapolates from it. It writes nothing.
func MakePlan(ctx context.Context, c Config, sample int64) (*Plan, error) {
	c.Target = c.Source
	m, err := newMigration(c)
	if err != nil {
		return nil, err
	}
	if m.derivation.rules.NS == "" {
		m.derivation.rules.NS = strings.Repeat("n", 11) // as long as an id is
	}
	p, counts := &Plan{Shapes: []ShapeCount{}, Losses: []LossCount{}}, Counts{}
	err = m.source.Call(ctx, func(ctx context.Context) (err error) {
		p.Items, p.Bytes, err = m.calls.scanner.Estimate(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	switch err := m.startStream(ctx); {
	case err == nil:
		p.Stream = true
	case !errors.Is(err, ErrStream):
		return nil, err
	}
	if c.InPlace {
		p.InPlace = &InPlace{IndexDifferences: store.NoDifferences()}
		if x, ok := c.Source.(store.Indexer); ok {
			err := m.source.Call(ctx, func(ctx context.Context) (err error) {
				p.InPlace.IndexDifferences, err = x.CompareIndexes(ctx)
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	s := sampler{m: m, plan: p, refused: RefusedError{Features: []FeatureCount{}}, shapes: map[Shape]int64{}, losses: map[string]*LossCount{}, counts: counts}
	s.mixer.mix.Namespace = c.Namespace
	if s.mixer.id, _, err = m.calls.namespaceIn(ctx, c.Namespace, counts); err != nil {
		return nil, err
	}
	if _, err = m.calls.readVersion(ctx, &s.refused, counts); err != nil {
		return nil, err
	}
	if err := s.run(ctx, sample); err != nil {
		return nil, err
	}
	if s.refused.found() {
		p.Refused = &s.refused
	}
	p.Spent = store.Units{Read: float64(counts[CountReadUnits]) / 1000}
	return p, nil
}

// A sampler goes through pages of all parts of the source in turn.
type sampler struct {
	m      *Migration
	plan   *Plan
	shapes map[Shape]int64
	losses map[string]*LossCount
	counts Counts
	bytes  int64
	all    estimate
	mixer  mixer

	refused RefusedError
}

// An estimate is what items take and become.
type estimate struct {
	targets float64
	copying store.Units
	reading float64 // of a comparison
}

func (e *estimate) add(more estimate, times float64) {
	e.targets += more.targets * times
	e.copying.Read += more.copying.Read * times
	e.copying.Write += more.copying.Write * times
	e.reading += more.reading * times
}

// A share is one item of a group, with its cost and its results. A sample may end within a group, and has that many
// shares of it.
type share struct {
	pk  string
	one estimate
}

func (s *sampler) run(ctx context.Context, sample int64) error {
	p := s.plan
	queue := make([]store.Scan, s.m.config.Segments)
	last := make([]share, s.m.config.Segments)
	for i := range queue {
		queue[i] = store.Scan{Segment: i, Segments: s.m.config.Segments, Limit: s.m.config.Page}
	}
	for len(queue) > 0 && p.Sampled < sample {
		q := queue[0]
		page, err := s.m.calls.scanPage(ctx, q, s.counts)
		if err != nil {
			return err
		}
		if err := s.page(ctx, page.Items, &last[q.Segment]); err != nil {
			return err
		}
		if queue = queue[1:]; page.Next != nil {
			q.Continue = page.Next
			queue = append(queue, q)
		}
	}
	p.Exact = len(queue) == 0
	for _, shape := range slices.SortedFunc(maps.Keys(s.shapes), func(a, b Shape) int { return cmp.Compare(a.String(), b.String()) }) {
		p.Shapes = append(p.Shapes, ShapeCount{shape, s.shapes[shape]})
	}
	p.Releases = Releases(slices.Collect(maps.Keys(s.shapes)))
	for _, reason := range slices.Sorted(maps.Keys(s.losses)) {
		p.Losses = append(p.Losses, *s.losses[reason])
	}
	if s.mixer.found() {
		p.Mix = &s.mixer.mix
	}
	s.extrapolate()
	return nil
}

// page adds a page of the source, with its cost and its results.
func (s *sampler) page(ctx context.Context, items []expr.Item, last *share) error {
	p := s.plan
	for _, item := range items {
		p.Sampled++
		size := store.Size(item)
		s.bytes += int64(size)
		if p.InPlace != nil && isOld(store.KeyOf(item)) {
			p.InPlace.Delete.Write += 2*blocks(size, 1024) + wholeEntries(item)
		}
		s.shapes[ShapeOf(item)]++
		if s.refused.add(item) {
			continue // nothing follows from it
		}
		key := store.KeyOf(item)
		s.mixer.add(key)
		q, grouped := group(key)
		var r Result
		switch {
		case !grouped && !s.m.derivation.inGroup(key, last.pk):
			r = s.m.derivation.one(item)
			e := s.estimate(r.Items)
			e.reading += blocks(size, 4096) // read again, by its key
			s.all.add(e, 1)
		case !grouped || key.PK == last.pk:
			s.all.add(last.one, 1)
			continue
		default:
			before := s.counts[CountReadUnits]
			var err error
			if r, err = s.m.derivation.derive(ctx, q, s.counts); errors.As(err, new(*RefusedError)) {
				continue // for an item that comes later in the sample
			} else if err != nil {
				return err
			}
			e := s.estimate(r.Items)
			again := float64(s.counts[CountReadUnits]-before) / 1000
			e.copying.Read += again
			e.reading += again
			*last = share{pk: key.PK}
			last.one.add(e, 1/float64(max(1, r.sources)))
			s.all.add(last.one, 1)
		}
		for _, l := range r.Losses {
			if s.losses[l.Reason] == nil {
				s.losses[l.Reason] = &LossCount{Reason: l.Reason, Example: Example(l.Key)}
			}
			s.losses[l.Reason].Items++
		}
	}
	return nil
}

// estimate returns what writing items takes, and reading them in a comparison.
func (s *sampler) estimate(items []Item) (e estimate) {
	for _, it := range items {
		whole := it.Key.Join(it.Attributes)
		size := store.Size(whole)
		e.targets++
		e.copying.Write += s.writeUnits(whole) + blocks(size, 1024) // twice in a transaction, except indexes
		e.reading += blocks(size, 4096) + float64(size)/4096        // by its key, and by a scan
	}
	return e
}

// extrapolate scales the sample to the whole source, and adds the scans.
func (s *sampler) extrapolate() {
	p := s.plan
	if p.Exact || p.Items < p.Sampled { // DynamoDB counts every few hours alone
		p.Items, p.Bytes = p.Sampled, max(p.Bytes, s.bytes)
		if p.Exact {
			p.Bytes = s.bytes
		}
	}
	if p.Sampled > 0 {
		scale := float64(p.Items) / float64(p.Sampled)
		p.Bytes = max(p.Bytes, int64(float64(s.bytes)*scale)) // if the store does not report it
		p.Targets = int64(math.Round(s.all.targets * scale))
		p.Copy.Read = s.all.copying.Read * scale
		p.Copy.Write = s.all.copying.Write * scale
		p.Verify.Read = s.all.reading * scale
		if p.InPlace != nil {
			p.InPlace.Delete.Write *= scale
		}
		for i := range p.Shapes {
			p.Shapes[i].Items = int64(float64(p.Shapes[i].Items) * scale)
		}
		for i := range p.Losses {
			p.Losses[i].Items = int64(float64(p.Losses[i].Items) * scale)
		}
	}
	pages := float64(p.Items)/float64(s.m.config.Page) + float64(s.m.config.Segments)
	perPage := math.Ceil(float64(p.Targets) / max(1, pages) / maxWrites)
	p.Copy.Write += 2 * min(pages*perPage, float64(p.Targets)) // the checks of the transactions
	p.Copy.Write += pages + 2*float64(s.m.config.Segments)     // the checkpoints, the first of each part with its entry in an index
	p.Copy.Read += float64(p.Bytes)/8192 + pages/4             // half a unit for 4 KB, rounded up page by page
	p.Verify.Read += float64(p.Bytes)/4096 + pages/2
	if p.InPlace != nil {
		p.Copy.Read += float64(p.Bytes) / 4096 // the survey
		p.InPlace.Delete.Read = float64(p.Bytes)/4096 + pages/2
		p.InPlace.Delete.Write += 2 * pages
	}
}

// blocks returns how many blocks a size takes.
func blocks(size, block int) float64 { return float64((size + block - 1) / block) }

// wholeEntries returns the units of an item's entries in global indexes that project whole items.
func wholeEntries(item expr.Item) (units float64) {
	for i := range layout.Table.Indexes {
		x := &layout.Table.Indexes[i]
		_, hasPK := item.Lookup(x.PK)
		if _, hasSK := item.Lookup(x.SK); hasPK && hasSK && !x.Local {
			units += blocks(store.Size(item), 1024)
		}
	}
	return units
}

// writeUnits returns the units that writing a new item takes, with its entries in indexes.
func (s *sampler) writeUnits(item expr.Item) float64 {
	size := store.Size(item)
	units := blocks(size, 1024)
	var differences store.IndexDifferences
	if s.plan.InPlace != nil {
		differences = s.plan.InPlace.IndexDifferences
	}
	for i := range layout.Table.Indexes {
		x := &layout.Table.Indexes[i]
		_, hasPK := item.Lookup(x.PK)
		_, hasSK := item.Lookup(x.SK)
		switch {
		case !hasPK || !hasSK || slices.Contains(differences.Local, x.Name):
		case x.KeysOnly && !slices.Contains(differences.Projecting, x.Name):
			units++
		default:
			units += blocks(size, 1024)
		}
	}
	return units
}

// NamespaceIn returns the id of a namespace of the source, false when it has none of that name.
func NamespaceIn(ctx context.Context, c Config, name string) (id string, ok bool, err error) {
	c.Target = c.Source
	m, err := newMigration(c)
	if err != nil {
		return "", false, err
	}
	return m.calls.namespaceIn(ctx, name, Counts{})
}

func (cl *calls) namespaceIn(ctx context.Context, name string, counts Counts) (id string, ok bool, err error) {
	if name == "" {
		return "", false, nil
	}
	items, err := cl.read(ctx, cl.source, []store.Key{layout.NamespaceKey{Name: name}.Key()}, counts)
	if err != nil || items[0] == nil {
		return "", false, err
	}
	it, err := layout.DecodeNamespace(items[0])
	return it.ID, err == nil, err
}
