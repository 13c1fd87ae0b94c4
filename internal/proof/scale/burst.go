package scale

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// An admission is tokens that were taken at some time within an interval: from when the request came to when its caller learned of it.
// A number below zero is of tokens that were given back.
type admission struct {
	from, to time.Duration
	tokens   float64
}

// burst returns the most that any interval has of admissions beyond the refill of the interval. An admission counts if its whole interval
// is within. So the burst is what an ideal bucket has to hold, if each admission took place at the time that is best for the bucket.
//
// One pass over the ends of intervals, in the order of time, suffices: of each, the best begin is that with the most tokens from there on and
// the least refill, and a tree keeps it.
func (c Ceiling) burst(all []admission) (most float64) {
	starts := make([]time.Duration, len(all))
	for i := range all {
		starts[i] = all[i].from
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	ended := slices.Clone(all)
	slices.SortFunc(ended, func(a, b admission) int { // what is given back at a time is there for others at that time
		return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.tokens, b.tokens))
	})
	tree := newStretches(len(starts))
	for _, a := range ended {
		i, _ := slices.BinarySearch(starts, a.from)
		tree.add(i, a.tokens, c.Rate*a.from.Seconds())
		most = max(most, tree.best()-c.Rate*a.to.Seconds())
	}
	return most
}

// stretches are a binary tree whose leaves are places in a row. Each has a sum and a head start.
type stretches struct {
	leaves int
	nodes  []stretch // the children of node i are 2i and 2i+1, and its root is 1
}

// A stretch is the sum of the places of a node, and the most of the sums from one of the places to the last one, with the head start of
// that place.
type stretch struct{ sum, best float64 }

func newStretches(places int) *stretches {
	s := &stretches{leaves: 1}
	for s.leaves < places {
		s.leaves *= 2
	}
	s.nodes = make([]stretch, 2*s.leaves)
	for i := range s.nodes {
		s.nodes[i].best = math.Inf(-1) // a place to which nothing was added is no beginning
	}
	return s
}

// add adds to the sum of a place, and says what its head start is.
func (s *stretches) add(place int, sum, start float64) {
	i := s.leaves + place
	s.nodes[i].sum += sum
	s.nodes[i].best = s.nodes[i].sum + start
	for i /= 2; i > 0; i /= 2 {
		left, right := s.nodes[2*i], s.nodes[2*i+1]
		s.nodes[i] = stretch{left.sum + right.sum, max(left.best+right.sum, right.best)}
	}
}

// best returns the most of the sums from a place to the last one, with the head start of the place.
func (s *stretches) best() float64 { return s.nodes[1].best }
