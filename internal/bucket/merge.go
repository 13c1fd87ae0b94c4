package bucket

import "math"

// DefaultExpiryFactor is the default of [Config.ExpiryFactor] for buckets that expire.
const DefaultExpiryFactor = 7

// Params returns the parameters of the limits of an item, except [WriteUnits].
func (s *State) Params() (params []Params) {
	for _, l := range s.Limits {
		if l.Name != WriteUnits {
			params = append(params, l.params())
		}
	}
	return params
}

// Own returns the config that leaves an item unchanged: its limits, and the expiry factor.
func (s *State) Own() *Config {
	return &Config{Params: s.Params(), ExpiryFactor: s.expiryFactor(), Bypass: s.Bypass() != 0}
}

// expiryFactor returns the [Config.ExpiryFactor] that set the time of expiry, 0 for an item that does not expire. It is at least 1, and
// follows from the refill stamp that was written with the time. The time of expiry is rounded to a second. If the limits fill up in less
// than a second, the factor is imprecise.
func (s *State) expiryFactor() int64 {
	if s.ExpiresAt <= 0 {
		return 0
	}
	expiry := itemExpiry{config: &Config{ExpiryFactor: 1}, now: s.RefilledAt}
	for i := range s.Limits {
		p := s.Limits[i].params()
		expiry.cover(&p, s.Limits[i].Tokens, 0, s.Limits[i].Since())
	}
	if expiry.fill == 0 || expiry.until > 0 || len(s.Slots()) > 0 { // a quota or slots may have set the time
		return DefaultExpiryFactor
	}
	// The exact time is in the second before the time of expiry: at most half of one from the middle.
	kept := sub(min(s.ExpiresAt, maxExpiry)*1000-500, s.RefilledAt)
	if kept <= expiry.fill/2 || kept > math.MaxInt64/4 {
		return 1
	}
	return max(1, (2*kept+expiry.fill-1)/(2*expiry.fill))
}

// MergesWith reports whether the tokens of two items may be added up. The lower one comes first. Both items must come from one split, must
// not have split since, and must have the same limits. No other client may have taken their tokens or changed their limits.
func (s *State) MergesWith(other *State) bool {
	low, high := Sibling(s.Shard, s.Count())
	c := Config{Params: s.Params(), Bypass: s.Bypass() != 0}
	for i := range s.Limits {
		if l := &s.Limits[i]; !s.isSessionOf(l, other, other.find(l.Name)) || !l.isGrantOf(other.find(l.Name)) {
			return false
		}
	}
	return s.Count() > 1 && !s.Changed && !other.Changed && s.Shards == other.Shards && s.Shard == low && other.Shard == high && c.Matches(other) &&
		(!s.noted() || !s.taken()) && (!other.noted() || !other.taken())
}
