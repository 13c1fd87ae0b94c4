package scale

import (
	"math"
	"time"
)

// A Ceiling is the most that may be admitted of an entity: an ideal bucket.
type Ceiling struct {
	Capacity float64
	Rate     float64 // tokens per second
}

// A witness compares the answers of callers with ideal buckets. It knows when a call began and when it was answered, and nothing of items
// and stamps.
type witness struct {
	ceilings map[string]*admissions
	exact    bool // stamps are never left alone beside a full limit
}

// admissions has the admissions of an entity beside its ceiling.
type admissions struct {
	Ceiling
	all []admission
}

func newWitness(ceilings map[string]Ceiling, exact bool) *witness {
	w := &witness{map[string]*admissions{}, exact}
	for entity, c := range ceilings {
		w.ceilings[entity] = &admissions{Ceiling: c}
	}
	return w
}

// admitted notes an admission of an entity, unless it has no ceiling.
func (w *witness) admitted(entity string, a admission) {
	if b := w.ceilings[entity]; b != nil {
		b.all = append(b.all, a)
	}
}

// sum returns the tokens that were admitted beyond the ceilings and what they spare, rounded up. It also returns the least that an ideal
// bucket had left, as a part of its capacity.
func (w *witness) sum() (over int64, left float64) {
	left = 1
	for _, b := range w.ceilings {
		most := b.burst(b.all)
		over += b.beyond(most, w.exact)
		left = min(left, 1-most/b.Capacity)
	}
	return over, left
}

// beyond returns by how many tokens, rounded up, a burst exceeds the capacity and what may be admitted on top of it.
func (c Ceiling) beyond(burst float64, exact bool) int64 {
	return int64(max(0, math.Ceil(burst-c.Capacity-c.spare(exact))))
}

// clockTick is the resolution of the clock of a bucket: a reading is up to that much before the time.
const clockTick = time.Millisecond

// spare returns what may be admitted beyond an ideal bucket: what flows in within the default of [zlimit.WithFreshness] and within the
// resolution of clocks, and a thousandth of a token, the unit of balances. Exact limits have no freshness.
func (c Ceiling) spare(exact bool) float64 {
	spare := c.Rate*clockTick.Seconds() + 1e-3
	if !exact {
		spare += min(c.Capacity/100, c.Rate)
	}
	return spare
}
