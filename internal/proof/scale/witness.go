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

// A witness compares the answers of callers with ideal buckets. It sees admissions when they are reported, and grants no refill for the
// time that reporting takes. It does not know items and stamps.
type witness struct {
	ceilings map[string]*ideal
}

// An ideal bucket is refilled exactly.
type ideal struct {
	Ceiling
	level, lowest float64
	at            time.Time
}

func newWitness(ceilings map[string]Ceiling) *witness {
	w := &witness{map[string]*ideal{}}
	for entity, c := range ceilings {
		w.ceilings[entity] = &ideal{Ceiling: c, level: c.Capacity, lowest: c.Capacity}
	}
	return w
}

// admitted takes the admitted amounts of an entity.
func (w *witness) admitted(entity string, tokens float64, now time.Time) {
	b := w.ceilings[entity]
	if b == nil {
		return
	}
	if !b.at.IsZero() {
		b.level = min(b.Capacity, b.level+b.Rate*now.Sub(b.at).Seconds())
	}
	b.at = now
	b.level -= tokens
	b.lowest = min(b.lowest, b.level)
}

// over returns the tokens that were admitted beyond the ceilings and the refill of the freshness.
func (w *witness) over() (tokens int64) {
	for _, b := range w.ceilings {
		tokens += int64(max(0, math.Ceil(-b.lowest-b.freshness())))
	}
	return tokens
}

// freshness returns what flows in within the default of [zlimit.WithFreshness].
func (b *ideal) freshness() float64 { return min(b.Capacity/100, b.Rate) }

// left returns the least that an ideal bucket had left, as a part of its capacity.
func (w *witness) left() float64 {
	least := 1.0
	for _, b := range w.ceilings {
		least = min(least, b.lowest/b.Capacity)
	}
	return least
}
