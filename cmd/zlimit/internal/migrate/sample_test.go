package migrate

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// skewed returns the items of an entity of release 0.7. Few entities have most of the items and of the bytes.
func skewed(r *rand.Rand, n int) (items []expr.Item) {
	e := fmt.Sprintf("user-%d", n)
	pareto := func(most float64) int { return int(math.Min(most, math.Pow(1-r.Float64(), -1/1.3))) }
	item := func(pk, sk string, attributes ...expr.Attribute) {
		items = append(items, store.Key{PK: pk, SK: sk}.Join(attributes))
	}
	text := func(name, v string) expr.Attribute { return expr.Attribute{Name: name, Value: expr.S(v)} }
	item("ENTITY#"+e, "#META", text("entity_id", e), text("name", e), expr.Attribute{
		Name: "metadata", Value: expr.Map(expr.Item{text("note", strings.Repeat("x", 100*pareto(300)))}),
	})
	for i := range pareto(20) {
		item("ENTITY#"+e, fmt.Sprintf("#BUCKET#model-%d", i), text("entity_id", e), text("resource", fmt.Sprintf("model-%d", i)),
			expr.Attribute{Name: "rf", Value: expr.N(1767225600000)}, expr.Attribute{Name: "b_rpm_tk", Value: expr.N(5)},
			expr.Attribute{Name: "b_rpm_cp", Value: expr.N(5)}, expr.Attribute{Name: "b_rpm_ra", Value: expr.N(5)}, expr.Attribute{Name: "b_rpm_rp", Value: expr.N(5)})
	}
	for i := range pareto(40) - 1 {
		item("AUDIT#"+e, fmt.Sprintf("#AUDIT#%d", i), text("entity_id", e), text("event_id", fmt.Sprint(i)), text("timestamp", "2026-01-01T00:00:00Z"),
			text("action", "limits_set"), expr.Attribute{Name: "details", Value: expr.Map(expr.Item{text("note", strings.Repeat("x", 30*pareto(200)))})})
	}
	return items
}

// hashed is a store that scans in the order of the hashes of partition keys, as DynamoDB does.
type hashed struct {
	tableStore
	items [][]expr.Item // of each segment
}

func newHashed(s tableStore, items []expr.Item, segments int) *hashed {
	place := func(item expr.Item) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(store.KeyOf(item).PK))
		return h.Sum64() * 0x9e3779b97f4a7c15
	}
	slices.SortStableFunc(items, func(a, b expr.Item) int { return cmp.Compare(place(a), place(b)) })
	h := &hashed{tableStore: s, items: make([][]expr.Item, segments)}
	for _, item := range items {
		segment, _ := bits.Mul64(place(item), uint64(segments))
		h.items[segment] = append(h.items[segment], item)
	}
	return h
}

// Scan reads a page of a segment.
func (h *hashed) Scan(_ context.Context, q store.Scan) (page store.Page, err error) {
	all := h.items[q.Segment]
	if q.Continue != nil {
		last := store.KeyOf(expr.Item(q.Continue))
		all = all[slices.IndexFunc(all, func(item expr.Item) bool { return store.KeyOf(item) == last })+1:]
	}
	if page.Items = all; len(all) > q.Limit {
		page.Items = all[:q.Limit]
		page.Next = store.Cursor(store.KeyOf(all[q.Limit-1]).Join(nil))
	}
	return page, nil
}

// TestSampledPlan compares plans from a sample with those of whole tables, whose items and sizes are skewed. A plan
// is a ratio estimate from partitions drawn by the hash of their keys. It must be within four of its standard errors,
// which follow from the table. All plans together must be closer, by their number.
func TestSampledPlan(t *testing.T) {
	const seeds, entities, sample, segments, page = 6, 1500, 1000, 16, 20
	mean, bounds := 0.0, 0.0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := &testbed{t: t, source: newStore(t), target: newStore(t)}
		exact := sampler{plan: &Plan{}}
		var all []expr.Item
		var units, items []float64 // of each partition
		for n := range entities {
			one := skewed(r, n)
			all = append(all, one...)
			partitions := map[string][]expr.Item{}
			for _, item := range one {
				pk := store.KeyOf(item).PK
				partitions[pk] = append(partitions[pk], item)
			}
			for _, pk := range slices.Sorted(maps.Keys(partitions)) {
				cost := 0.0
				for _, it := range derive(rulesOf(), partitions[pk]).Items {
					whole := it.Key.Join(it.Attributes)
					cost += exact.writeUnits(whole) + blocks(store.Size(whole), 1024)
				}
				units, items = append(units, cost), append(items, float64(len(partitions[pk])))
			}
		}
		fill(t, w.source, all)
		c := w.config(&process{})
		c.Source, c.Segments, c.Page = newHashed(w.source, all, segments), segments, page
		total := int64(len(all))
		whole, err := MakePlan(t.Context(), c, math.MaxInt64)
		if err != nil || !whole.Exact || whole.Items != total {
			t.Fatalf("seed %d: plan of all items %+v, %v", seed, whole, err)
		}
		p, err := MakePlan(t.Context(), c, sample)
		if err != nil || p.Exact || p.Items != total || p.Sampled < sample || p.Sampled > sample+page {
			t.Fatalf("seed %d: plan of a sample %+v, %v", seed, p, err)
		}
		sum, count := 0.0, 0.0
		for i := range units {
			sum, count = sum+units[i], count+items[i]
		}
		variance, n := 0.0, float64(len(units))
		for i := range units {
			d := units[i] - sum/count*items[i]
			variance += d * d / n
		}
		drawn := n * float64(p.Sampled) / float64(total)
		bound := 4 * math.Sqrt(variance/drawn*(1-drawn/n)) / (sum / n)
		off := p.Copy.Write/whole.Copy.Write - 1
		mean, bounds = mean+off/seeds, bounds+bound/seeds
		t.Logf("seed %d: %d items, %.0f units, %+.3f of it, within %.3f", seed, total, whole.Copy.Write, off, bound)
		if math.Abs(off) > bound {
			t.Errorf("seed %d: %.0f write units from %d of %d items, want %.0f within %.3f", seed, p.Copy.Write, p.Sampled, total, whole.Copy.Write, bound)
		}
	}
	if most := bounds / math.Sqrt(seeds); math.Abs(mean) > most {
		t.Errorf("estimates are off by %+.4f on average, want at most %.4f: they are biased", mean, most)
	}
}
