package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
)

// segmentPart returns the name of the part that a segment of the scan is.
func segmentPart(segment int) string { return fmt.Sprintf("scan/%d", segment) }

// Copy writes what follows from every item of the source, if the target has no item yet. Parts of the source are copied in parallel, and
// each records its progress after every page. It does nothing if all of it was done before.
//
// A copy may be moments old, and older than the write of another part: [Migration.CatchUp] applies every change that
// was made since the start.
func (m *Migration) Copy(ctx context.Context) error {
	if m.Phase() != Copying {
		return nil
	}
	segments := int(m.ledger.record.Segments)
	g, work := errgroup.WithContext(ctx)
	for segment := range segments {
		g.Go(func() error { return m.copier.copySegment(work, segment, segments) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return m.ledger.write(ctx, func(next *layout.Migration) { next.Phase = Following })
}

// A copier writes into the target what follows from the source.
type copier struct {
	config     *Config
	target     *table.Table
	ledger     *ledger
	calls      *calls
	derivation *derivation
}

func (cp *copier) copySegment(ctx context.Context, segment, segments int) error {
	part := cp.ledger.part(segmentPart(segment))
	if part.Done {
		return nil
	}
	counts := decodeCounts(part.Counts)
	if part.Beats == 0 { // the record that writes check
		if err := cp.ledger.savePart(ctx, part, counts); err != nil {
			return err
		}
	}
	q := store.Scan{Segment: segment, Segments: segments, Limit: cp.config.Page}
	if part.AfterPK != "" {
		q.Continue = store.Cursor(store.Key{PK: part.AfterPK, SK: part.AfterSK}.Join(nil))
	}
	last := "" // partition whose group was copied last
	for {
		if err := cp.ledger.beat(ctx); err != nil {
			return err
		}
		page, err := cp.calls.scan(ctx, q, counts)
		if err != nil {
			return err
		}
		if err := cp.copyPage(ctx, part.Key, page.Items, &last, counts); err != nil {
			return err
		}
		part = cp.ledger.part(segmentPart(segment))
		key := store.KeyOf(expr.Item(page.Next))
		part.AfterPK, part.AfterSK, part.Done = key.PK, key.SK, page.Next == nil
		if err := cp.ledger.savePart(ctx, part, counts); err != nil || part.Done {
			return err
		}
		q.Continue = page.Next
	}
}

// copyPage copies what follows from a page of the scan.
func (cp *copier) copyPage(ctx context.Context, part layout.MigrationPartKey, items []expr.Item, last *string, counts Counts) error {
	fresh := inserts{from: map[store.Key]store.Key{}}
	for _, item := range items {
		key := store.KeyOf(item)
		if cp.derivation.isOwn(key) {
			continue
		}
		counts[CountRead]++
		q, grouped := group(key)
		var r Result
		switch {
		case !grouped && !cp.derivation.inGroup(key, *last):
			r = cp.derivation.one(item)
		case !grouped || key.PK == *last:
			continue // the group has it
		default:
			*last = key.PK
			var err error
			if r, err = cp.derivation.derive(ctx, q, counts); err != nil {
				return err
			}
		}
		counts.lose(r.Losses)
		for _, it := range r.Items {
			fresh.add(it, key)
		}
	}
	if err := cp.insert(ctx, part, &fresh, counts); err != nil {
		return err
	}
	return cp.bring(ctx, fresh.stale, counts)
}

// inserts are items that the target is to get if it has none.
type inserts struct {
	items []Item
	from  map[store.Key]store.Key // items of the source from which they follow, by their own keys
	stale work                    // the target lacks items that follow from the source, or has wrong ones
}

func (f *inserts) add(it Item, from store.Key) {
	if _, again := f.from[it.Key]; again {
		f.stale.add(from) // two items of the source have one place
		return
	}
	f.items, f.from[it.Key] = append(f.items, it), from
}

// inGroup reports whether an item without a group of its own was in the group of its partition.
func (dv *derivation) inGroup(key store.Key, last string) bool {
	return key.PK == last && (key.SK <= lastOfEntity || !strings.Contains(key.PK, "ENTITY#"))
}

// derive returns what follows from a group of the source.
func (dv *derivation) derive(ctx context.Context, q store.Query, counts Counts) (Result, error) {
	items, err := dv.calls.query(ctx, q, counts)
	if err != nil {
		return Result{}, err
	}
	if dv.config.InPlace { // whose source had no bucket of a later release
		items = slices.DeleteFunc(items, func(item expr.Item) bool { return dv.adds(store.KeyOf(item)) })
		r := dv.added(dv.rules.Group(items, func(layout.BucketKey) bool { return false }))
		r.sources = len(items)
		return r, nil
	}
	moved := map[layout.BucketKey]bool{}
	var keys []store.Key
	var buckets []layout.BucketKey
	for _, item := range items {
		if old, ok := layout.ParseOldNamespacedBucketKey(store.KeyOf(item)); ok {
			k := layout.BucketKey{NS: old.NS, Entity: old.Entity, Resource: old.Resource}
			keys, buckets = append(keys, k.Key()), append(buckets, k)
		}
	}
	live, err := dv.calls.read(ctx, dv.calls.source, keys, counts)
	if err != nil {
		return Result{}, err
	}
	for i, item := range live {
		moved[buckets[i]] = item != nil
	}
	r := dv.rules.Group(items, func(k layout.BucketKey) bool { return moved[k] })
	r.sources = len(items)
	return r, nil
}

// insert writes items if there are none, in transactions that ask whether this run still has the part. A run that was
// taken over, and wakes, therefore writes nothing.
func (cp *copier) insert(ctx context.Context, part layout.MigrationPartKey, fresh *inserts, counts Counts) error {
	absent, err := layout.Insert()
	if err != nil {
		return err
	}
	for _, chunk := range chunks(fresh.items, func(it Item) int { return store.Size(it.Attributes) }) {
		for len(chunk) > 0 {
			writes := make([]store.Write, len(chunk))
			for i, it := range chunk {
				writes[i] = store.Write{Kind: store.Put, Key: it.Key, Item: it.Attributes, Expr: absent}
			}
			results, err := cp.transact(ctx, part.Key(), writes, counts)
			if err != nil {
				return err
			}
			if table.Applied(results) {
				counts[CountWritten] += int64(len(chunk))
				break
			}
			var again []Item
			for i, it := range chunk {
				switch {
				case results[i].Applied:
					again = append(again, it)
				case results[i].Item.Equal(it.Key.Join(it.Attributes)):
					counts[CountKept]++
				default:
					fresh.stale.add(fresh.from[it.Key])
				}
			}
			chunk = again
		}
	}
	return nil
}

// Bounds of a transaction, beside the check. DynamoDB takes 100 writes, and 4 MB.
const (
	maxWrites = 99
	maxBytes  = 3 << 20
)

// chunks splits writes into transactions.
func chunks[T any](all []T, size func(T) int) (out [][]T) {
	first, bytes := 0, 0
	for i := range all {
		n := size(all[i])
		if i > first && (i-first == maxWrites || bytes+n > maxBytes) {
			out = append(out, all[first:i])
			first, bytes = i, 0
		}
		bytes += n
	}
	if first < len(all) {
		out = append(out, all[first:])
	}
	return out
}

// transact does writes in a transaction, and returns their results. The transaction checks that a record is still of
// this run.
func (cp *copier) transact(ctx context.Context, record store.Key, writes []store.Write, counts Counts) (results []store.Result, err error) {
	check, err := cp.ledger.fence(record)
	if err != nil {
		return nil, err
	}
	all := append(slices.Clone(writes), check)
	err = cp.calls.call(ctx, cp.target, counts, func(ctx context.Context) (err error) {
		if results, err = cp.config.Target.Transact(ctx, all); err == nil && !table.Applied(results) {
			store.UnitsOf(ctx).Write += preparation(all)
		}
		return err
	})
	if err == nil && !results[len(writes)].Applied {
		err = ErrTaken
	}
	if err != nil {
		return nil, err
	}
	return results[:len(writes)], nil
}

// preparation returns the write units of a transaction whose conditions failed. DynamoDB does not report them. It writes each item twice,
// to prepare and to commit, and such a transaction ends between the two.
func preparation(writes []store.Write) (units float64) {
	for i := range writes {
		units += max(1, blocks(store.Size(writes[i].Key.Join(writes[i].Item)), 1024))
	}
	return units
}

// work lists items to be derived again from the source, as it is now.
type work struct {
	groups   map[string]store.Query // by partition key
	singles  map[store.Key]bool
	affected map[store.Key]bool // items of the target that may have to go
}

// add notes an item of the source whose results may have changed.
func (w *work) add(key store.Key) {
	if w.groups == nil {
		w.groups, w.singles, w.affected = map[string]store.Query{}, map[store.Key]bool{}, map[store.Key]bool{}
	}
	if q, ok := group(key); ok {
		w.groups[key.PK] = q
		return
	}
	w.singles[key] = true
	if k, ok := layout.ParseBucketKey(key); ok { // this stands for a bucket of an earlier release
		old := layout.OldNamespacedBucketKey{NS: k.NS, Entity: k.Entity, Resource: k.Resource}.Key()
		if q, ok := group(old); ok {
			w.groups[old.PK] = q
		}
	}
}

// addRemoved notes that an item added by a migration in place is gone.
func (w *work) addRemoved(key store.Key) {
	entity := layout.EntityKey{}
	if k, ok := layout.ParseBucketKey(key); ok {
		entity = layout.EntityKey{NS: k.NS, Entity: k.Entity}
	} else if k, ok := layout.ParseChildKey(key); ok {
		entity = layout.EntityKey{NS: k.NS, Entity: k.Child}
	}
	w.add(entity.Key())
}

// bring makes the items of the target what follows from the source now.
func (cp *copier) bring(ctx context.Context, w work, counts Counts) error {
	want, err := cp.derivation.follows(ctx, w, counts)
	if err != nil {
		return err
	}
	keys := slices.Collect(maps.Keys(want))
	for key := range w.affected {
		if _, ok := want[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	have, err := cp.calls.read(ctx, cp.target, keys, counts)
	if err != nil {
		return err
	}
	var writes []store.Write
	for i, key := range keys {
		attributes, ok := want[key]
		switch {
		case ok && have[i] != nil && have[i].Equal(key.Join(attributes)), !ok && have[i] == nil:
			counts[CountKept]++
		case ok:
			writes = append(writes, store.Write{Kind: store.Put, Key: key, Item: attributes})
			counts[CountReplaced]++
		default:
			writes = append(writes, store.Write{Kind: store.Delete, Key: key})
			counts[CountDeleted]++
		}
	}
	return cp.fenced(ctx, writes, counts)
}

func compareKeys(a, b store.Key) int {
	if c := strings.Compare(a.PK, b.PK); c != 0 {
		return c
	}
	return strings.Compare(a.SK, b.SK)
}

// follows returns what follows from parts of the source now.
func (dv *derivation) follows(ctx context.Context, w work, counts Counts) (map[store.Key]expr.Item, error) {
	want := map[store.Key]expr.Item{}
	for _, pk := range slices.Sorted(maps.Keys(w.groups)) {
		r, err := dv.derive(ctx, w.groups[pk], counts)
		if err != nil {
			return nil, err
		}
		for _, it := range r.Items {
			want[it.Key] = it.Attributes
		}
	}
	items, err := dv.calls.read(ctx, dv.calls.source, slices.SortedFunc(maps.Keys(w.singles), compareKeys), counts)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if item == nil {
			continue
		}
		for _, it := range dv.one(item).Items {
			want[it.Key] = it.Attributes
		}
	}
	return want, nil
}

// fenced does writes in transactions that ask whether this run still has the migration.
func (cp *copier) fenced(ctx context.Context, writes []store.Write, counts Counts) error {
	for _, chunk := range chunks(writes, func(w store.Write) int { return store.Size(w.Item) }) {
		if _, err := cp.transact(ctx, layout.MigrationKey{}.Key(), chunk, counts); err != nil {
			return err
		}
	}
	return nil
}
