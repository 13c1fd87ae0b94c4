package memory

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// shards is the number of shards of a table. Calls on different keys meet in one by chance, so there are many more than
// processors.
const tableShards = 256

// A table is the items of a store.
//
// The locks of shards are taken first, in the order of their places in the array. Then comes the lock of an index, or
// of the log. No two of the latter are held at the same time.
type table struct {
	schema *store.Schema
	seed   maphash.Seed
	shards [tableShards]shard
	global []globalIndex // by the place of the index in the schema; entries of local indexes are not used
	log    changeLog
	sweep  sweep
}

// A shard is the items of some of the partition keys.
type shard struct {
	mu         sync.Mutex
	partitions map[string]*partition // by partition key; none is empty
	records    []*record             // all of them, in no order, for Expire
	spare      *version              // no longer in use by callers, for the next write

	_ [72]byte // keeps the locks of neighbors out of one pair of cache lines
}

type partition struct {
	items list   // sorted by sort key
	local []list // by the place of the index in the schema; entries of global indexes are not used; nil while all are empty
}

// A record is the place of one item. Its shard guards what changes.
type record struct {
	key   store.Key
	shard *shard

	*version     // of the item; nil once it was deleted
	bound    int // the size of the item in bytes is at most this
	place    int // in the shard's records
}

// A version is an item as a write left it. The next write puts another one in its place. The item is not changed while
// it may be in use: by a call that returned it, or by the log. After that, its memory serves a later write.
type version struct {
	item  expr.Item
	forms *expr.Forms // nil if they are not known
	loan  loan
}

// A loan counts those who may look at an item. It is safe for concurrent use.
type loan struct{ readers atomic.Int64 }

// Return implements [store.Loan] for one of them.
func (l *loan) Return() { l.readers.Add(-1) }

// isReturned reports whether the item is out of use.
func (l *loan) isReturned() bool { return l.readers.Load() == 0 }

func newTable(schema *store.Schema) *table {
	t := &table{schema: schema, seed: maphash.MakeSeed(), global: make([]globalIndex, len(schema.Indexes))}
	t.log.maxReadChanges, t.log.maxChanges = maxReadChanges, maxChanges
	return t
}

// place returns the number of the shard of a partition key.
func (t *table) place(pk string) int { return int(maphash.String(t.seed, pk) % tableShards) }

func (t *table) lock(pk string) *shard {
	sh := &t.shards[t.place(pk)]
	sh.mu.Lock()
	return sh
}

// find returns the record of a key, nil when there is no item.
func (sh *shard) find(k store.Key) *record {
	p := sh.partitions[k.PK]
	if p == nil {
		return nil
	}
	return p.items.find(k.SK)
}

// stored returns the item of a record, nil for none. It is good as long as the shard is locked.
func (r *record) stored() expr.Item {
	item, _ := r.formed()
	return item
}

// formed is [record.stored] with the forms of the item, nil if they are not known.
func (r *record) formed() (expr.Item, *expr.Forms) {
	if r == nil || r.version == nil {
		return nil, nil
	}
	return r.item, r.forms
}

// lend returns the item of a version, nil for none, for a caller that may look at it until the loan is returned.
// Appending to it makes a copy.
func (v *version) lend() (expr.Item, store.Loan) {
	if v == nil {
		return nil, nil
	}
	v.loan.readers.Add(1)
	return v.item[:len(v.item):len(v.item)], &v.loan
}

// image returns the item of a record, nil for none, for a caller that may keep it.
func (r *record) image() expr.Item {
	if r == nil {
		return nil
	}
	item, _ := r.lend()
	return item
}

// fresh returns a version for a write to fill, with the memory of an earlier one if there is some.
func (sh *shard) fresh() *version {
	v := sh.spare
	if v == nil {
		return new(version)
	}
	sh.spare = nil
	return v
}

// reuse keeps a version for a later write, unless its item may be in use.
func (sh *shard) reuse(v *version) {
	if v.loan.isReturned() {
		sh.spare = v
	}
}

// insert adds an item that was not there.
func (t *table) insert(sh *shard, k store.Key, next *version, size int) {
	r := &record{key: k, shard: sh, bound: size, place: len(sh.records)}
	sh.records = append(sh.records, r)
	p := sh.partitions[k.PK]
	if p == nil {
		p = &partition{}
		if sh.partitions == nil {
			sh.partitions = make(map[string]*partition)
		}
		sh.partitions[k.PK] = p
	}
	p.items.insert(entry{k.SK, r})
	t.index(p, r, next.item)
	r.version = next
}

func (t *table) remove(r *record) {
	sh := r.shard
	p := sh.partitions[r.key.PK]
	t.index(p, r, nil)
	r.version = nil
	p.items.remove(entry{r.key.SK, r})
	if p.items.empty() {
		delete(sh.partitions, r.key.PK)
	}
	last := len(sh.records) - 1
	sh.records[last].place = r.place
	sh.records[r.place] = sh.records[last]
	sh.records = slices.Delete(sh.records, last, last+1)
}

// index makes the indexes hold a record as its next item says, in place of its present one; nil for none.
func (t *table) index(p *partition, r *record, next expr.Item) {
	for i := range t.schema.Indexes {
		x := &t.schema.Indexes[i]
		oldPK, oldSK, had := keysIn(x, r.stored())
		newPK, newSK, has := keysIn(x, next)
		switch {
		case had == has && oldPK == newPK && oldSK == newSK:
		case x.Local:
			if p.local == nil {
				p.local = make([]list, len(t.schema.Indexes))
			}
			if had {
				p.local[i].remove(entry{oldSK, r})
			}
			if has {
				p.local[i].insert(entry{newSK, r})
			}
		default:
			g := &t.global[i]
			g.mu.Lock()
			if had {
				g.remove(oldPK, entry{oldSK, r})
			}
			if has {
				g.insert(newPK, entry{newSK, r})
			}
			g.mu.Unlock()
		}
	}
}

// keysIn returns the keys of an item in an index; false when the item is not in it.
func keysIn(x *store.Index, item expr.Item) (pk, sk string, ok bool) {
	p, hasPK := item.Lookup(x.PK)
	s, hasSK := item.Lookup(x.SK)
	if !hasPK || !hasSK {
		return "", "", false
	}
	return p.Text(), s.Text(), true
}
