package scale

import (
	"hash/fnv"
	"slices"
	"strings"
	"time"
)

// A budget is what may be used of something in a second. A call is served while anything is left, and may leave a debt: its
// cost is known when it is done.
type budget struct {
	units float64
	at    time.Time
}

// refill adds what flowed in up to now, at most burst.
func (b *budget) refill(now time.Time, rate float64, burst time.Duration) {
	most := rate * burst.Seconds()
	if b.at.IsZero() {
		b.units = most
	} else {
		b.units = min(b.units+rate*now.Sub(b.at).Seconds(), most)
	}
	b.at = now
}

// A position is a place in the order in which a table or an index keeps its items. The order is by the hash of the
// partition key, and in an index by the sort key.
type position struct {
	hash uint64
	sort string
}

func at(pk, sk string) position {
	h := fnv.New64a()
	_, _ = h.Write([]byte(pk)) // never fails
	mixed := h.Sum64()         // the last bytes of a key hardly reach the high bits
	mixed ^= mixed >> 33
	mixed *= 0xff51afd7ed558ccd
	mixed ^= mixed >> 33
	return position{mixed, sk}
}

func (p position) compare(q position) int {
	switch {
	case p.hash < q.hash:
		return -1
	case p.hash > q.hash:
		return 1
	default:
		return strings.Compare(p.sort, q.sort)
	}
}

// A partition is a range of positions that are served together.
type partition struct {
	from          position
	writes, reads budget
	held          time.Time // until when an index holds its writes back

	hotSince, hotLast time.Time  // of the throttles that come one after another
	seen              []position // some of those that were asked for while it was hot
	count             int
}

// A space is a table or an index, split into partitions.
type space struct {
	name       string
	partitions []*partition // in the order of their positions
	written    budget       // of the whole table or index
	read       budget
	splits     int
}

func newSpace(name string, partitions int) *space {
	s := &space{name: name}
	step := ^uint64(0)/uint64(partitions) + 1
	for i := range partitions {
		s.partitions = append(s.partitions, &partition{from: position{hash: uint64(i) * step}})
	}
	return s
}

// find returns the index of the partition of a position.
func (s *space) find(p position) int {
	i, found := slices.BinarySearchFunc(s.partitions, p, func(part *partition, p position) int { return part.from.compare(p) })
	if !found {
		i--
	}
	return i
}

// heat notes that a partition throttles a position. A partition that did so long enough is split at the middle of its
// load.
func (s *space) heat(i int, p position, now time.Time, after time.Duration) {
	const gap, sample = 10 * time.Second, 256
	part := s.partitions[i]
	if now.Sub(part.hotLast) > gap {
		part.hotSince, part.seen, part.count = now, nil, 0
	}
	part.hotLast = now
	if part.count++; len(part.seen) < sample {
		part.seen = append(part.seen, p)
	} else if part.count%16 == 0 {
		part.seen[part.count/16%sample] = p
	}
	if now.Sub(part.hotSince) < after {
		return
	}
	slices.SortFunc(part.seen, position.compare)
	part.hotSince = now
	middle := len(part.seen) / 2
	for middle < len(part.seen) && part.seen[middle] == part.seen[0] {
		middle++
	}
	if middle == len(part.seen) {
		return // a single key
	}
	s.partitions = slices.Insert(s.partitions, i+1, &partition{from: part.seen[middle], writes: part.writes, reads: part.reads})
	s.splits++
}
