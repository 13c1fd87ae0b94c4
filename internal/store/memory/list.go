package memory

import (
	"cmp"
	"slices"
	"sort"

	"github.com/zlimit/zlimit-go/internal/store"
)

// chunk is the number of entries in a chunk at most.
const chunk = 256

// A list is entries in their order. It keeps them in chunks, so that a change moves few of them: a list of a million has
// a few thousand chunks. The zero list is empty.
type list struct {
	chunks [][]entry // sorted; none is empty
}

// An entry is an item in the order of a table or of an index.
type entry struct {
	sort string // its sort key there
	*record
}

// compare orders entries by their sort key, and by the primary key where several items have it in common.
func (e entry) compare(sort string, k store.Key) int {
	if c := cmp.Compare(e.sort, sort); c != 0 {
		return c
	}
	if c := cmp.Compare(e.key.PK, k.PK); c != 0 {
		return c
	}
	return cmp.Compare(e.key.SK, k.SK)
}

func (l *list) empty() bool { return len(l.chunks) == 0 }

// find returns the record of a sort key that items do not have in common; nil for none.
func (l *list) find(sort string) *record {
	if len(l.chunks) == 1 && len(l.chunks[0]) == 1 { // of a bucket
		if only := l.chunks[0][0]; only.sort == sort {
			return only.record
		}
		return nil
	}
	at := l.seek(func(e entry) bool { return e.sort < sort })
	if e, ok := l.at(at); ok && e.sort == sort {
		return e.record
	}
	return nil
}

// A position is a place in a list.
type position struct {
	chunk, entry int
}

// seek returns the position of the first entry that is not before, where those before come first.
func (l *list) seek(before func(entry) bool) position {
	c := sort.Search(len(l.chunks), func(i int) bool { return !before(l.chunks[i][len(l.chunks[i])-1]) })
	if c == len(l.chunks) {
		return position{c, 0}
	}
	return position{c, sort.Search(len(l.chunks[c]), func(i int) bool { return !before(l.chunks[c][i]) })}
}

// at returns the entry at a position; false when there is none.
func (l *list) at(p position) (entry, bool) {
	if p.chunk < 0 || p.chunk >= len(l.chunks) {
		return entry{}, false
	}
	return l.chunks[p.chunk][p.entry], true
}

// next returns the position after one that has an entry.
func (l *list) next(p position) position {
	if p.entry++; p.entry == len(l.chunks[p.chunk]) {
		return position{p.chunk + 1, 0}
	}
	return p
}

// previous returns the position before one, which may be the one after the last entry.
func (l *list) previous(p position) position {
	if p.entry--; p.entry >= 0 {
		return p
	}
	if p.chunk == 0 {
		return position{-1, 0}
	}
	return position{p.chunk - 1, len(l.chunks[p.chunk-1]) - 1}
}

// insert adds an entry that is not in the list.
func (l *list) insert(e entry) {
	at := l.seek(func(other entry) bool { return other.compare(e.sort, e.key) < 0 })
	switch {
	case l.empty():
		l.chunks = [][]entry{{e}}
		return
	case at.chunk == len(l.chunks): // after all
		at = position{len(l.chunks) - 1, len(l.chunks[len(l.chunks)-1])}
	}
	c := slices.Insert(l.chunks[at.chunk], at.entry, e)
	if len(c) <= chunk {
		l.chunks[at.chunk] = c
		return
	}
	half := len(c) / 2
	l.chunks[at.chunk] = slices.Clone(c[:half]) // leaves the second half its memory
	l.chunks = slices.Insert(l.chunks, at.chunk+1, slices.Clone(c[half:]))
}

func (l *list) remove(e entry) {
	at := l.seek(func(other entry) bool { return other.compare(e.sort, e.key) < 0 })
	c := l.chunks[at.chunk]
	if c = slices.Delete(c, at.entry, at.entry+1); len(c) > 0 {
		l.chunks[at.chunk] = c
	} else {
		l.chunks = slices.Delete(l.chunks, at.chunk, at.chunk+1)
	}
}
