package explore

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A table keeps items in memory, as a store does, for one goroutine. It remembers each item as before its last
// change, for lagging reads. It has a digest of everything, to recognize equal states.
type table struct {
	indexes map[string]store.Index
	rows    map[store.Key]*row
	lags    bool   // what items were counts for the digest
	digest  uint64 // of all rows, in no order
}

// A row is an item with its former version. A row is never changed.
type row struct {
	item, was expr.Item // nil if there is none
	digest    uint64
}

func newTable(indexes []store.Index) *table {
	t := &table{indexes: map[string]store.Index{}, rows: map[store.Key]*row{}}
	for _, x := range indexes {
		t.indexes[x.Name] = x
	}
	return t
}

// clone returns a table of the same items.
func (t *table) clone() *table {
	return &table{indexes: t.indexes, rows: maps.Clone(t.rows), lags: t.lags, digest: t.digest}
}

// item returns the item of a key; as it was before its last change for a read that lags.
func (t *table) item(k store.Key, lagging bool) expr.Item {
	r := t.rows[k]
	switch {
	case r == nil:
		return nil
	case lagging:
		return r.was
	default:
		return r.item
	}
}

// settle forgets what items were.
func (t *table) settle() {
	for k, r := range t.rows {
		t.put(k, &row{item: r.item, was: r.item})
	}
}

// put replaces a row.
func (t *table) put(k store.Key, r *row) {
	if old := t.rows[k]; old != nil {
		t.digest -= old.digest
	}
	if !isAudit(k) { // which has a random key
		r.digest = digestOf(k.PK, k.SK, digestItem(r.item))
		if t.lags {
			r.digest = digestOf(r.digest, digestItem(r.was))
		}
		t.digest += r.digest
	}
	t.rows[k] = r
}

// isAudit reports whether a key is that of an audit event.
func isAudit(k store.Key) bool { return strings.HasPrefix(k.SK, "#AUDIT#") }

// transact does writes, all or none, and returns what each of them found.
func (t *table) transact(writes []store.Write) ([]store.Result, error) {
	results := make([]store.Result, len(writes))
	next := make([]expr.Item, len(writes))
	all := true
	for i := range writes {
		w := &writes[i]
		if err := w.Validate(); err != nil {
			return nil, &store.Error{Op: "write", Invalid: true, Err: err}
		}
		old := t.item(w.Key, false)
		if !w.Expr.Holds(old) {
			results[i].Item = old
			all = false
			continue
		}
		results[i].Applied = true
		switch w.Kind {
		case store.Update:
			base := old
			if base == nil {
				base = w.Key.Join(nil)
			}
			var err error
			if next[i], err = w.Expr.Apply(base); err != nil {
				return nil, &store.Error{Op: "write", Invalid: true, Err: err}
			}
		case store.Put:
			next[i] = w.Key.Join(w.Item)
		case store.Check:
			next[i] = old
		case store.Delete:
		}
	}
	if !all {
		return results, nil
	}
	for i := range writes {
		if old := t.item(writes[i].Key, false); writes[i].Kind != store.Check && (old != nil || next[i] != nil) {
			t.put(writes[i].Key, &row{item: next[i], was: old})
		}
	}
	return results, nil
}

// write does one write, whose result has the item that it left.
func (t *table) write(w store.Write) (store.Result, error) {
	results, err := t.transact([]store.Write{w})
	if err != nil {
		return store.Result{}, err
	}
	if results[0].Applied && w.Kind != store.Check {
		results[0].Item = t.item(w.Key, false)
	}
	return results[0], nil
}

// remove deletes items.
func (t *table) remove(keys []store.Key) {
	for _, k := range keys {
		if old := t.item(k, false); old != nil {
			t.put(k, &row{was: old})
		}
	}
}

// query returns all that a query finds as one page.
func (t *table) query(q store.Query, lagging bool) (store.Page, error) {
	x := store.Index{PK: store.PK, SK: store.SK}
	if q.Index != "" {
		var ok bool
		if x, ok = t.indexes[q.Index]; !ok {
			return store.Page{}, &store.Error{Op: "query", Err: fmt.Errorf("no index %q", q.Index)}
		}
	}
	if q.Continue != nil {
		return store.Page{}, &store.Error{Op: "query", Err: errors.New("a page of a query that had one page")}
	}
	type found struct {
		sk   string
		item expr.Item
	}
	var all []found
	for k := range t.rows {
		item := t.item(k, lagging)
		if item == nil || item.Get(x.PK).Text() != q.PK {
			continue
		}
		sk, ok := item.Lookup(x.SK)
		text := sk.Text()
		switch {
		case !ok, !strings.HasPrefix(text, q.Prefix), q.After != "" && text <= q.After, q.UpTo != "" && text > q.UpTo:
			continue
		case x.KeysOnly:
			item = k.Join(nil)
			item.Set(x.PK, expr.S(q.PK))
			item.Set(x.SK, sk)
		}
		all = append(all, found{text, item})
	}
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(cmp.Compare(a.sk, b.sk), cmp.Compare(a.item.Get(store.PK).Text(), b.item.Get(store.PK).Text()))
	})
	if q.Reverse {
		slices.Reverse(all)
	}
	var page store.Page
	for _, f := range all {
		page.Items = append(page.Items, f.item)
	}
	return page, nil
}

// seed makes digests of one run of the program comparable.
var seed = maphash.MakeSeed()

// digestOf returns a digest of values.
func digestOf(values ...any) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, v := range values {
		maphash.WriteComparable(&h, v)
	}
	return h.Sum64()
}

// writerAttribute holds a random number by which a call of a manual operation finds its own record.
const writerAttribute = "writer"

// digestItem returns a digest of the attributes of an item, in no order.
func digestItem(item expr.Item) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	sum := uint64(len(item))
	if item == nil {
		return sum
	}
	for i := range item {
		if item[i].Name == writerAttribute {
			continue
		}
		h.Reset()
		h.WriteString(item[i].Name)
		writeValue(&h, item[i].Value)
		sum += h.Sum64()
	}
	return sum + 1
}

// digestValue returns a digest of a value.
func digestValue(v expr.Value) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	writeValue(&h, v)
	return h.Sum64()
}

func writeValue(h *maphash.Hash, v expr.Value) {
	h.WriteByte(byte(v.Kind()))
	switch v.Kind() {
	case expr.KindS:
		h.WriteString(v.Text())
	case expr.KindN:
		if n, ok := v.Int(); ok {
			maphash.WriteComparable(h, n)
		} else {
			h.WriteString(v.Number())
		}
	case expr.KindBool:
		maphash.WriteComparable(h, v.True())
	default:
		h.WriteString(v.String())
	}
}
