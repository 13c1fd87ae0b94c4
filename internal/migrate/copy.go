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

// Copy writes what follows from every item of the source, where the target has no item yet. Parts of the source go side by
// side, and each tells how far it has come after every page. It does nothing when all of it was done before.
//
// What is copied may be moments old, and older than what another part writes: [Migration.CatchUp] applies every change that
// was made since the start.
func (m *Migration) Copy(ctx context.Context) error {
	if m.Phase() != Copying {
		return nil
	}
	segments := int(m.record.Segments)
	g, work := errgroup.WithContext(ctx)
	for segment := range segments {
		g.Go(func() error { return m.copySegment(work, segment, segments) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return m.write(ctx, func(next *layout.Migration) { next.Phase = Following })
}

func (m *Migration) copySegment(ctx context.Context, segment, segments int) error {
	part := m.part(segmentPart(segment))
	if part.Done {
		return nil
	}
	counts := decodeCounts(part.Counts)
	q := store.Scan{Segment: segment, Segments: segments, Limit: m.config.Page}
	if part.AfterPK != "" {
		q.Continue = store.Cursor(store.Key{PK: part.AfterPK, SK: part.AfterSK}.Join(nil))
	}
	last := "" // partition whose group was copied last
	for {
		if err := m.beat(ctx); err != nil {
			return err
		}
		page, err := m.scan(ctx, q, counts)
		if err != nil {
			return err
		}
		if err := m.copyPage(ctx, page.Items, &last, counts); err != nil {
			return err
		}
		part = m.part(segmentPart(segment))
		key := store.KeyOf(expr.Item(page.Next))
		part.AfterPK, part.AfterSK, part.Done = key.PK, key.SK, page.Next == nil
		if err := m.savePart(ctx, part, counts); err != nil || part.Done {
			return err
		}
		q.Continue = page.Next
	}
}

// copyPage copies what follows from a page of the scan.
func (m *Migration) copyPage(ctx context.Context, items []expr.Item, last *string, counts Counts) error {
	stale := work{}
	for _, item := range items {
		counts[CountRead]++
		key := store.KeyOf(item)
		q, grouped := group(key)
		var r Result
		switch {
		case !grouped && !m.inGroup(key, *last):
			r = m.rules.One(item)
		case !grouped || key.PK == *last:
			continue // the group has it
		default:
			*last = key.PK
			var err error
			if r, err = m.derive(ctx, q, counts); err != nil {
				return err
			}
		}
		counts.lose(r.Losses)
		for _, it := range r.Items {
			differs, err := m.insert(ctx, it, counts)
			if err != nil {
				return err
			}
			if differs {
				stale.add(key)
			}
		}
	}
	return m.bring(ctx, stale, counts)
}

// inGroup reports whether an item without a group of its own was in the group of its partition.
func (m *Migration) inGroup(key store.Key, last string) bool {
	return key.PK == last && (key.SK <= lastOfEntity || !strings.Contains(key.PK, "ENTITY#"))
}

// derive returns what follows from a group of the source.
func (m *Migration) derive(ctx context.Context, q store.Query, counts Counts) (Result, error) {
	items, err := m.query(ctx, q, counts)
	if err != nil {
		return Result{}, err
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
	live, err := m.read(ctx, m.source, keys, counts)
	if err != nil {
		return Result{}, err
	}
	for i, item := range live {
		moved[buckets[i]] = item != nil
	}
	return m.rules.Group(items, func(k layout.BucketKey) bool { return moved[k] }), nil
}

// insert writes an item where there is none. It reports whether there is another one.
func (m *Migration) insert(ctx context.Context, it Item, counts Counts) (differs bool, err error) {
	absent, err := layout.Insert()
	if err != nil {
		return false, err
	}
	var result store.Result
	err = m.call(ctx, m.target, counts, func(ctx context.Context) (err error) {
		result, err = m.config.Target.Write(ctx, store.Write{Kind: store.Put, Key: it.Key, Item: it.Attributes, Expr: absent})
		return err
	})
	switch {
	case err != nil:
		return false, fmt.Errorf("write %q, %q: %w", it.Key.PK, it.Key.SK, err)
	case result.Applied:
		counts[CountWritten]++
	case result.Item.Equal(it.Key.Join(it.Attributes)):
		counts[CountKept]++
	default:
		return true, nil
	}
	return false, nil
}

// work is what is to be derived again from the source, as it is now.
type work struct {
	groups   map[string]store.Query // by partition key
	singles  map[store.Key]bool
	affected map[store.Key]bool // items of the target that may have to go
}

// add notes that what follows from an item of the source may have changed.
func (w *work) add(key store.Key) {
	if w.groups == nil {
		w.groups, w.singles, w.affected = map[string]store.Query{}, map[store.Key]bool{}, map[store.Key]bool{}
	}
	if q, ok := group(key); ok {
		w.groups[key.PK] = q
		return
	}
	w.singles[key] = true
	if k, ok := layout.ParseBucketKey(key); ok { // which stands for one that an earlier release left
		old := layout.OldNamespacedBucketKey{NS: k.NS, Entity: k.Entity, Resource: k.Resource}.Key()
		if q, ok := group(old); ok {
			w.groups[old.PK] = q
		}
	}
}

// bring makes the items of the target what follows from the source now.
func (m *Migration) bring(ctx context.Context, w work, counts Counts) error {
	want, err := m.follows(ctx, w, counts)
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
	have, err := m.read(ctx, m.target, keys, counts)
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
	return m.fenced(ctx, writes, counts)
}

func compareKeys(a, b store.Key) int {
	if c := strings.Compare(a.PK, b.PK); c != 0 {
		return c
	}
	return strings.Compare(a.SK, b.SK)
}

// follows returns what follows from parts of the source now.
func (m *Migration) follows(ctx context.Context, w work, counts Counts) (map[store.Key]expr.Item, error) {
	want := map[store.Key]expr.Item{}
	for _, pk := range slices.Sorted(maps.Keys(w.groups)) {
		r, err := m.derive(ctx, w.groups[pk], counts)
		if err != nil {
			return nil, err
		}
		for _, it := range r.Items {
			want[it.Key] = it.Attributes
		}
	}
	items, err := m.read(ctx, m.source, slices.SortedFunc(maps.Keys(w.singles), compareKeys), counts)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if item == nil {
			continue
		}
		for _, it := range m.rules.One(item).Items {
			want[it.Key] = it.Attributes
		}
	}
	return want, nil
}

// fenced does writes in transactions that ask whether this run still has the migration.
func (m *Migration) fenced(ctx context.Context, writes []store.Write, counts Counts) error {
	for chunk := range slices.Chunk(writes, 50) {
		check, err := m.fence()
		if err != nil {
			return err
		}
		var results []store.Result
		err = m.call(ctx, m.target, counts, func(ctx context.Context) (err error) {
			results, err = m.config.Target.Transact(ctx, append(slices.Clone(chunk), check))
			return err
		})
		if err != nil {
			return err
		}
		if !table.Applied(results) {
			return ErrTaken
		}
	}
	return nil
}
