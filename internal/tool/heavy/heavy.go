// Package heavy counts the heaviest of many keys in bounded memory, by the algorithm Space-Saving (Metwally, Agrawal and El Abbadi, 2005).
package heavy

import (
	"cmp"
	"container/heap"
	"slices"
)

// A Counter counts up to a number of keys. A further key takes the place of the lightest one, and inherits its count as its error. So
// each key that has more than a capacity-th part of all counts is among them. It is not safe for concurrent use.
type Counter[K comparable] struct {
	capacity int
	total    int64
	entries  lightest[K]
	known    map[K]*entry[K]
}

// An entry is a key with its count.
type entry[K comparable] struct {
	key          K
	count, error int64
	place        int // in the heap
}

// A Count is the count of one key: at most Count, and at least Count less Error.
type Count[K comparable] struct {
	Key   K
	Count int64
	Error int64
}

// New returns a counter of up to a number of keys, which is positive.
func New[K comparable](capacity int) *Counter[K] {
	return &Counter[K]{capacity: capacity, known: map[K]*entry[K]{}}
}

// Add counts a key a number of times.
func (c *Counter[K]) Add(key K, n int64) {
	c.total += n
	if e := c.known[key]; e != nil {
		e.count += n
		heap.Fix(&c.entries, e.place)
		return
	}
	if len(c.entries) < c.capacity {
		e := &entry[K]{key: key, count: n}
		c.known[key] = e
		heap.Push(&c.entries, e)
		return
	}
	e := c.entries[0]
	delete(c.known, e.key)
	e.key, e.error = key, e.count
	e.count += n
	c.known[key] = e
	heap.Fix(&c.entries, 0)
}

// Merge adds the counts of another counter, which may have displaced keys that this one has: their counts and errors grow by the most
// that the other one may have counted them.
func (c *Counter[K]) Merge(other *Counter[K]) {
	if len(other.entries) == other.capacity {
		for _, e := range c.entries {
			if other.known[e.key] == nil {
				e.count += other.entries[0].count
				e.error += other.entries[0].count
			}
		}
		heap.Init(&c.entries)
	}
	total := c.total + other.total
	for _, e := range other.entries {
		c.Add(e.key, e.count)
		c.known[e.key].error += e.error
	}
	c.total = total
}

// Total returns the sum of all counts.
func (c *Counter[K]) Total() int64 { return c.total }

// Top returns the heaviest keys, the heaviest first, and the most that any other key may have been counted.
func (c *Counter[K]) Top(n int) (top []Count[K], others int64) {
	all := slices.Clone(c.entries)
	slices.SortStableFunc(all, func(a, b *entry[K]) int { return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.error, b.error)) })
	if len(all) == c.capacity {
		others = all[len(all)-1].count
	}
	if n < len(all) {
		others = max(others, all[n].count)
		all = all[:n]
	}
	for _, e := range all {
		top = append(top, Count[K]{e.key, e.count, e.error})
	}
	return top, others
}

// lightest is a heap with the lightest entry first.
type lightest[K comparable] []*entry[K]

func (h lightest[K]) Len() int           { return len(h) }
func (h lightest[K]) Less(i, j int) bool { return h[i].count < h[j].count }
func (h lightest[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements [heap.Interface].
func (h *lightest[K]) Push(x any) {
	e := x.(*entry[K])
	e.place = len(*h)
	*h = append(*h, e)
}

// Pop implements [heap.Interface].
func (h *lightest[K]) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}
