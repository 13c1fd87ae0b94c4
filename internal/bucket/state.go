package bucket

import "slices"

// WriteUnits is the reserved limit of every bucket that counts the physical writes of its item. DynamoDB serves 1,000
// writes per second and key. The limit is never divided among shards and never shown to users.
const WriteUnits = "wcu"

// WriteCapacity is the capacity of [WriteUnits], in millitokens.
const WriteCapacity = 1000_000

// writeUnits are the parameters of [WriteUnits].
var writeUnits = Params{Name: WriteUnits, Capacity: WriteCapacity, RefillAmount: WriteCapacity, RefillPeriod: 1000}

// oneWrite is what a physical write consumes of [WriteUnits], in millitokens.
const oneWrite = 1000

// A State is what a bucket item holds.
type State struct {
	Limits     []Limit
	RefilledAt int64 // last refill of every limit, epoch milliseconds
	ExpiresAt  int64 // epoch seconds; 0 for never
	Shard      int   // number of this shard, from 0
	Shards     int   // shards of the bucket; 0 and 1 both mean that it is whole
}

// find returns the limit of that name, nil when there is none.
func (s *State) find(name string) *Limit {
	if i := slices.IndexFunc(s.Limits, func(l Limit) bool { return l.Name == name }); i >= 0 {
		return &s.Limits[i]
	}
	return nil
}

// share returns what the item's shard owns of the total of one limit.
func (s *State) share(limit string, total int64) int64 {
	if limit == WriteUnits {
		return total
	}
	return Share(total, s.Shard, s.Shards)
}

// sharded reports whether the item is one of several. Such items do not expire: one that went before the others would
// be created again as the whole bucket.
func (s *State) sharded() bool { return s.Shards > 1 }

// Pressed reports whether the item has been written more often than its key can bear: [WriteUnits] fall short even after
// a refill up to now.
func (s *State) Pressed(now int64) bool { return s.Writable(now) < 0 }

// Writable returns what there is of [WriteUnits] after a refill up to now, in millitokens; all of it in an item that does
// not count them.
func (s *State) Writable(now int64) int64 {
	l := s.find(WriteUnits)
	if l == nil {
		return WriteCapacity
	}
	return min(add(l.Tokens, s.refill(l, max(now, s.RefilledAt))), WriteCapacity)
}

// refill returns what flows into a limit from the item's refill stamp up to now, at the parameters that the item has.
func (s *State) refill(l *Limit, now int64) int64 {
	return Refill(s.RefilledAt, now, s.share(l.Name, l.RefillAmount), l.RefillPeriod)
}

// A Config says what a bucket is to be: the limits that are configured, without [WriteUnits], and how the item is kept.
type Config struct {
	Params    []Params
	Partial   bool  // other limits that the item has stay as they are
	Freshness int64 // δ: how old the refill stamp may be for a write that leaves it alone, milliseconds
	Lifetime  int64 // an unused bucket expires after that many times the time it takes to fill; 0 for never
}

// maxFreshness bounds DefaultFreshness, in milliseconds.
const maxFreshness = 1000

// DefaultFreshness returns one hundredth of the shortest time in which one of the limits fills up, at most a second, in
// milliseconds. What may be admitted beyond the ideal is at most the refill of that time.
func DefaultFreshness(params []Params) int64 {
	freshness := int64(maxFreshness)
	for i := range params {
		freshness = min(freshness, params[i].timeToFill(params[i].Capacity)/100)
	}
	return freshness
}

// timeToFill returns the milliseconds in which that many millitokens flow in, rounded up.
func (p *Params) timeToFill(tokens int64) int64 {
	return timeToRefill(0, uint64(tokens), p.RefillAmount, p.RefillPeriod)
}

// of returns the parameters of a limit that an item has or is to have, nil when it is to have none of that name.
func (c *Config) of(name string) *Params {
	if name == WriteUnits {
		return &writeUnits
	}
	for i := range c.Params {
		if c.Params[i].Name == name {
			return &c.Params[i]
		}
	}
	return nil
}

// Matches reports whether an item has the configured limits, so that nothing needs to bring it in line.
func (c *Config) Matches(s *State) bool {
	configured := 0
	for i := range s.Limits {
		switch p := c.of(s.Limits[i].Name); {
		case p == nil && !c.Partial:
			return false
		case p != nil && !s.Limits[i].has(p):
			return false
		case p != nil:
			configured++
		}
	}
	return configured == len(c.Params)+1 && (c.Lifetime > 0 && !s.sharded()) == (s.ExpiresAt > 0)
}

func (l *Limit) has(p *Params) bool {
	return l.Capacity == p.Capacity && l.RefillAmount == p.RefillAmount && l.RefillPeriod == p.RefillPeriod
}

// An Amount is what a write takes of one limit, in millitokens; negative to give back.
type Amount struct {
	Limit  string
	Tokens int64
}

// A Demand is what one write is to take. Limits that it does not name are neither asked nor charged.
type Demand struct {
	Amounts   []Amount // each limit at most once, all of them configured
	Unchecked bool     // taken whether it is there or not, down into debt
}

// of returns what the write takes of a limit, and whether that much must be there. Every write takes one unit of
// [WriteUnits], there or not: a bucket that is not split goes on, and the table itself throttles it.
func (d *Demand) of(limit string) (tokens int64, checked bool) {
	if limit == WriteUnits {
		return oneWrite, false
	}
	for i := range d.Amounts {
		if d.Amounts[i].Limit == limit {
			return d.Amounts[i].Tokens, !d.Unchecked && d.Amounts[i].Tokens > 0
		}
	}
	return 0, false
}

// Empty reports whether a demand takes and gives nothing.
func (d *Demand) Empty() bool {
	return !slices.ContainsFunc(d.Amounts, func(a Amount) bool { return a.Tokens != 0 })
}

// Returns reports whether a demand takes nothing.
func (d *Demand) Returns() bool {
	return !slices.ContainsFunc(d.Amounts, func(a Amount) bool { return a.Tokens > 0 })
}
