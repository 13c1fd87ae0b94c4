package bucket

import "time"

// DefaultLifetime is the default of [Config.Lifetime] for buckets that expire.
const DefaultLifetime = 7

// Params returns the parameters of the limits of an item, but for [WriteUnits].
func (s *State) Params() (params []Params) {
	for _, l := range s.Limits {
		if l.Name != WriteUnits {
			params = append(params, Params{
				Name: l.Name, Capacity: l.Capacity, RefillAmount: l.RefillAmount, RefillPeriod: l.RefillPeriod,
			})
		}
	}
	return params
}

// Joins reports whether two items came from one split, the lower one first, have not split since, and have the same
// limits, so that their tokens may be added up. Shards that were siblings before both of them split are not any more.
func (s *State) Joins(other *State) bool {
	low, high := Sibling(s.Shard, s.Count())
	c := Config{Params: s.Params()}
	return s.Count() > 1 && s.Shards == other.Shards && s.Shard == low && other.Shard == high && c.Matches(other)
}

// When a shard is quiet.
const (
	quietTime   = 10 * time.Second // least time over which the rate of writes is measured
	quietWrites = 100              // writes per second
)

// IsQuiet reports whether a shard may be joined with its sibling, by the number of times that its item was written over a
// time: less than a hundred times a second, measured over ten seconds or more.
func IsQuiet(writes int64, over time.Duration) bool {
	return over >= quietTime && writes*1000 < quietWrites*over.Milliseconds()
}
