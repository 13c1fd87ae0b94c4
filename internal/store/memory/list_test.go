package memory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zlimit/zlimit-go/internal/store"
)

// TestList compares a list with a sorted slice, as both grow to some chunks and shrink to nothing.
func TestList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var l list
	var want []entry
	before := func(e entry) func(entry) bool {
		return func(other entry) bool { return other.compare(e.sort, e.key) < 0 }
	}
	most := 0
	for _, target := range []int{5 * chunk, chunk, 3 * chunk, 0} {
		for len(want) != target {
			grow := len(want) < target
			if random.IntN(4) == 0 && len(want) > 0 {
				grow = !grow
			}
			if grow {
				k := store.Key{PK: fmt.Sprint(random.IntN(3)), SK: fmt.Sprint(random.IntN(100_000))}
				e := entry{fmt.Sprint(random.IntN(500)), &record{key: k}}
				i, known := slices.BinarySearchFunc(want, e, func(a, b entry) int { return a.compare(b.sort, b.key) })
				if !known {
					want = slices.Insert(want, i, e)
					l.insert(e)
				}
			} else {
				i := random.IntN(len(want))
				l.remove(want[i])
				want = slices.Delete(want, i, i+1)
			}
			most = max(most, len(l.chunks))
			if got := len(l.chunks) == 0; got != l.empty() || got != (len(want) == 0) {
				t.Fatalf("empty() = %t with %d entries in %d chunks", l.empty(), len(want), len(l.chunks))
			}
			if len(want)%100 > 0 {
				continue
			}
			for _, c := range l.chunks {
				if len(c) == 0 || len(c) > chunk {
					t.Fatalf("a chunk of %d entries", len(c))
				}
			}
			if got := slices.Concat(l.chunks...); !slices.Equal(got, want) {
				t.Fatalf("the list has %d entries, want %d, or in another order", len(got), len(want))
			}
			at, i := l.seek(func(entry) bool { return false }), 0
			for e, ok := l.at(at); ok; e, ok = l.at(at) {
				if e != want[i] {
					t.Fatalf("entry %d from the front = %v, want %v", i, e, want[i])
				}
				if s := l.seek(before(e)); s != at {
					t.Fatalf("seek of the entry at %v = %v", at, s)
				}
				at, i = l.next(at), i+1
			}
			for e, ok := l.at(l.previous(at)); ok; e, ok = l.at(l.previous(at)) {
				at, i = l.previous(at), i-1
				if e != want[i] {
					t.Fatalf("entry %d from the back = %v, want %v", i, e, want[i])
				}
			}
			if i != 0 {
				t.Fatalf("%d entries were not passed on the way back", i)
			}
		}
	}
	if most < 4 {
		t.Errorf("the list had %d chunks at most, want some", most)
	}
}
