package scale

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// A Table is a model of a table of DynamoDB, and a [store.Store] that behaves as the one on DynamoDB does. It repeats
// throttled calls, twice and with the same pauses, and writes that provably did nothing. It is safe for concurrent use.
type Table struct {
	Params

	items  *memory.Store
	schema *store.Schema
	made   time.Time

	mu      sync.Mutex
	random  *rand.Rand
	base    *space
	indexes []*space                // by the place of the index in the schema; nil for local ones
	held    map[store.Key]int       // items that transactions hold
	past    map[store.Key][]version // former items, for reads that lag
	keys    []store.Key             // of all items that there ever were
	scanned []placedKey             // in the order of a scan
	crossed map[store.Key]int       // writes of an item that have brought it into its next period
	peak    peak
	used    Used
	watch   func(old, next expr.Item, now time.Time) // sees each change of an item, with mu held; nil if nothing does
}

// Used counts the units and the outcomes of a table's calls.
type Used struct {
	Calls, Writes, Failed, Transactions uint64  // writes are of single items; failed are writes whose condition failed
	WriteUnits, ReadUnits, IndexUnits   float64 // write units include the indexes
	Throttled                           map[string]uint64
	Conflicts, Lost                     uint64
	Usual, Return                       uint64 // calls in the second before the outage, and in the first one after it
	Splits                              int    // of partitions for heat
	Snapshots                           struct {
		Units             float64
		Throttled, Failed uint64
		Begun             int // that did not exist
	} // the part of writes of snapshots of usage
}

// isSnapshot reports whether a key is that of a snapshot of usage.
func isSnapshot(key store.Key) bool { return strings.HasPrefix(key.SK, "#USAGE#") }

// A version is an item until a time.
type version struct {
	item  expr.Item
	until time.Time
}

var _ store.Store = (*Client)(nil)

// NewTable returns a table that is set up.
func NewTable(p Params) (*Table, error) {
	items, err := memory.New(layout.Table)
	if err != nil {
		return nil, err
	}
	schema, err := store.NewSchema(layout.Table)
	if err != nil {
		return nil, err
	}
	t := &Table{
		Params: p, items: items, schema: schema, made: time.Now(),
		random:  rand.New(rand.NewPCG(p.Seed, 1)),
		base:    newSpace("Table", p.Partitions),
		held:    map[store.Key]int{},
		past:    map[store.Key][]version{},
		crossed: map[store.Key]int{},
	}
	t.used.Throttled = map[string]uint64{}
	for i := range schema.Indexes {
		if x := &schema.Indexes[i]; x.Local {
			t.indexes = append(t.indexes, nil)
		} else {
			t.indexes = append(t.indexes, newSpace(x.Name, p.Partitions))
		}
	}
	return t, items.Setup(context.Background())
}

// Used returns the usage so far.
func (t *Table) Used() Used {
	t.mu.Lock()
	defer t.mu.Unlock()
	used := t.used
	used.Throttled = make(map[string]uint64, len(t.used.Throttled))
	for reason, n := range t.used.Throttled {
		used.Throttled[reason] = n
	}
	used.Splits = t.base.splits
	for _, x := range t.indexes {
		if x != nil {
			used.Splits += x.splits
		}
	}
	return used
}

// Partitioned returns true.
func (*Table) Partitioned() bool { return true }

// Setup does nothing.
func (*Table) Setup(context.Context) error { return nil }

// Close does nothing.
func (*Table) Close() error { return nil }

// travel waits for one of the two ways of a call, half of its time each.
func (t *Table) travel(factor float64) {
	t.mu.Lock()
	spread := math.Log(float64(t.Tail)/float64(t.Median)) / 2.326 // the 99th percentile of a normal distribution
	whole := float64(t.Median) * math.Exp(spread*t.random.NormFloat64())
	t.mu.Unlock()
	time.Sleep(time.Duration(factor * whole / 2))
}

// silent waits for a call that is not answered.
func silent(ctx context.Context, op string, write bool) error {
	<-ctx.Done()
	return &store.Error{Op: op, Unavailable: true, Unknown: write, Err: ctx.Err()}
}

// arrive counts a call that has reached the table. While the outage has an item of it, the call waits for as long as calls take then,
// or is not answered.
func (t *Table) arrive(ctx context.Context, op string, write bool, keys ...store.Key) error {
	t.count()
	since := time.Since(t.made)
	isHit := func(k store.Key) bool { return t.Outage.hits(k.PK) }
	if since < t.Outage.From || since >= t.Outage.To || !slices.ContainsFunc(keys, isHit) {
		return nil
	}
	if t.Outage.Slow == 0 {
		return silent(ctx, op, write)
	}
	if err := wait.For(ctx, t.Outage.Slow); err != nil {
		return &store.Error{Op: op, Unavailable: true, Unknown: write, Err: err}
	}
	return nil
}

// count counts a call.
func (t *Table) count() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used.Calls++
	switch since := time.Since(t.made); {
	case t.Outage.To == 0:
	case since >= t.Outage.From-time.Second && since < t.Outage.From:
		t.used.Usual++
	case since >= t.Outage.To && since < t.Outage.To+time.Second:
		t.used.Return++
	}
}

// A limit that a call met.
type met struct {
	reason string
	of     store.Limit
	index  bool
	write  bool
}

func (m *met) err(op string) *store.Error {
	return &store.Error{
		Op: op, Unavailable: true, Throttled: true, Err: errors.New(m.reason),
		Throttles: []store.Throttle{{Limit: m.of, Index: m.index, Write: m.write, Reason: m.reason, Resource: "arn:model"}},
	}
}

// throttle counts a throttled item.
func (t *Table) throttle(m met) *met {
	t.used.Throttled[m.reason]++
	return &m
}

// mayWrite reports whether the table takes a write of an item now; it returns the limit that it met. mu is held.
func (t *Table) mayWrite(key store.Key, entries []entry, now time.Time) *met {
	if rate := t.peak.rate(t, now); rate > 0 {
		t.base.written.refill(now, rate, t.Burst)
		if t.base.written.units <= 0 {
			return t.throttle(met{"TableWriteAccountLimitExceeded", store.OfAccount, false, true})
		}
	}
	p := at(key.PK, "")
	i := t.base.find(p)
	part := t.base.partitions[i]
	if now.Before(part.held) {
		return t.throttle(met{"IndexWriteKeyRangeThroughputExceeded", store.OfKey, true, true})
	}
	for _, e := range entries {
		x := t.indexes[e.index]
		at := x.find(e.at)
		behind := x.partitions[at]
		behind.writes.refill(now, t.PartitionWrites, t.Burst)
		if behind.writes.units <= -t.PartitionWrites*t.Backlog.Seconds() {
			x.heat(at, e.at, now, t.SplitAfter)
			if t.Pressure == PressureOnPartition {
				part.held = now.Add(time.Second)
			}
			return t.throttle(met{"IndexWriteKeyRangeThroughputExceeded", store.OfKey, true, true})
		}
	}
	part.writes.refill(now, t.PartitionWrites, t.Burst)
	if part.writes.units <= 0 {
		t.base.heat(i, p, now, t.SplitAfter)
		return t.throttle(met{"TableWriteKeyRangeThroughputExceeded", store.OfKey, false, true})
	}
	return nil
}

// charge takes the units of a write of an item. mu is held.
func (t *Table) charge(key store.Key, units float64, entries []entry) {
	t.base.partitions[t.base.find(at(key.PK, ""))].writes.units -= units
	t.base.written.units -= units
	t.used.WriteUnits += units
	t.peak.add(units)
	for _, e := range entries {
		x := t.indexes[e.index]
		x.partitions[x.find(e.at)].writes.units -= e.units
		t.used.WriteUnits += e.units
		t.used.IndexUnits += e.units
		units += e.units
	}
	if isSnapshot(key) {
		t.used.Snapshots.Units += units
	}
}

// mayRead is mayWrite for a read. mu is held.
func (t *Table) mayRead(key store.Key, now time.Time) *met {
	if t.TableReads > 0 {
		t.base.read.refill(now, t.TableReads, t.Burst)
		if t.base.read.units <= 0 {
			return t.throttle(met{"TableReadAccountLimitExceeded", store.OfAccount, false, false})
		}
	}
	part := t.base.partitions[t.base.find(at(key.PK, ""))]
	part.reads.refill(now, t.PartitionReads, t.Burst)
	if part.reads.units <= 0 {
		return t.throttle(met{"TableReadKeyRangeThroughputExceeded", store.OfKey, false, false})
	}
	return nil
}

// chargeRead takes the units of a read. mu is held.
func (t *Table) chargeRead(key store.Key, item expr.Item, consistent bool) {
	units := math.Ceil(float64(max(store.Size(item), 1)) / 4096)
	if !consistent {
		units /= 2
	}
	t.base.partitions[t.base.find(at(key.PK, ""))].reads.units -= units
	t.base.read.units -= units
	t.used.ReadUnits += units
}

// unitsOf returns the write units of items before or after a write.
func unitsOf(items ...expr.Item) float64 {
	size := 1
	for _, item := range items {
		size = max(size, store.Size(item))
	}
	return math.Ceil(float64(size) / 1024)
}

// An entry is a change in an index.
type entry struct {
	index int
	at    position
	units float64
}

// entries returns the changes in the indexes by a change of an item.
func (t *Table) entries(old, next expr.Item) (all []entry) {
	for i := range t.schema.Indexes {
		x := &t.schema.Indexes[i]
		if x.Local {
			continue
		}
		oldPK, oldSK := old.Get(x.PK).Text(), old.Get(x.SK).Text()
		newPK, newSK := next.Get(x.PK).Text(), next.Get(x.SK).Text()
		had, has := oldPK != "" && oldSK != "", newPK != "" && newSK != ""
		same := had && has && oldPK == newPK && oldSK == newSK
		if same && (x.KeysOnly || old.Equal(next)) {
			continue
		}
		units := 1.0
		if !x.KeysOnly {
			units = unitsOf(old, next)
		}
		if had {
			all = append(all, entry{i, at(oldPK, oldSK), units})
		}
		if has && !same {
			all = append(all, entry{i, at(newPK, newSK), units})
		}
	}
	return all
}

// remember keeps the former version of an item, for lagging reads. Snapshots are not kept, since nothing reads them
// soon after a write. It counts a write that brings a bucket into its next period. mu is held.
func (t *Table) remember(key store.Key, old, next expr.Item, now time.Time) {
	if t.watch != nil {
		t.watch(old, next, now)
	}
	if old == nil {
		t.keys = append(t.keys, key)
	}
	const edge = "vu"
	if until, timed := old.Get(edge).Int(); timed && until > 0 && until <= now.UnixMilli() {
		if later, _ := next.Get(edge).Int(); later > until {
			t.crossed[key]++
		}
	}
	if t.Lag <= 0 || isSnapshot(key) {
		return
	}
	kept := t.past[key]
	for len(kept) > 0 && now.Sub(kept[0].until) > t.Lag {
		kept = kept[1:]
	}
	t.past[key] = append(kept, version{old, now})
}

// lagging returns an item as it was some time ago, of which the lag is the most. mu is held.
func (t *Table) lagging(key store.Key, item expr.Item, now time.Time) expr.Item {
	if t.Lag <= 0 {
		return item
	}
	then := now.Add(-time.Duration(t.random.Int64N(int64(t.Lag))))
	for _, v := range t.past[key] {
		if v.until.After(then) {
			return v.item
		}
	}
	return item
}

// A peak is the greatest rate of writes of the last half hours, by which a table warms up.
type peak struct {
	allowed     float64
	since, mark time.Time // of the half hour, and of the second
	units, most float64
}

const warmTime = 30 * time.Minute

// rate returns the writes a second that the table serves, 0 for any number.
func (p *peak) rate(t *Table, now time.Time) float64 {
	const fresh = 4000
	if t.Warm == 0 {
		return t.TableWrites
	}
	if p.allowed == 0 {
		p.allowed, p.since, p.mark = max(fresh, 2*t.Warm), now, now
	}
	if now.Sub(p.mark) >= time.Second {
		p.most = max(p.most, min(p.allowed, p.units/now.Sub(p.mark).Seconds())) // a burst is no rate
		p.units, p.mark = 0, now
	}
	if now.Sub(p.since) >= warmTime {
		p.allowed = max(p.allowed, 2*p.most)
		p.since = now
	}
	if t.TableWrites > 0 {
		return min(p.allowed, t.TableWrites)
	}
	return p.allowed
}

func (p *peak) add(units float64) { p.units += units }
