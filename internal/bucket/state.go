package bucket

import (
	"slices"
)

// WriteUnits is the reserved limit of every bucket that counts the physical writes of its item. DynamoDB serves 1,000
// writes per second and key. The limit is never shared out among shards and never shown to users.
const WriteUnits = "wcu"

// WriteCapacity is the capacity of [WriteUnits], in millitokens.
const WriteCapacity = 1000_000

// writeUnits are the parameters of [WriteUnits].
var writeUnits = Params{Name: WriteUnits, Capacity: WriteCapacity, RefillAmount: WriteCapacity, RefillPeriod: 1000}

// oneWrite is the consumption of [WriteUnits] by a physical write, in millitokens.
const oneWrite = 1000

// A State is the content of a bucket item.
type State struct {
	Limits     []Limit
	RefilledAt int64  // last refill of every limit, epoch milliseconds
	ExpiresAt  int64  // epoch seconds; 0 for never
	ValidUntil int64  // when the next quota resets or window changes, epoch milliseconds: until then a write may leave the stamp alone; 0 for always
	Shard      int    // number of this shard, from 0
	Shards     int    // shards of the bucket; 0 and 1 both mean that it is whole
	Notes      *Notes // the parts that few items have; nil for none. Images share it, and it never changes
	Shape      *Shape // of the limits, if the reader of the item knows it; nil for a state that is not an image
	Stands     bool   // the stamp is not set back, however far it is ahead: this process has done so recently
	Disabled   bool   // requests are rejected
	Changed    bool   // another program has changed limits: balances may be above their capacities until the next write with a refill
}

// Notes has the parts of an item that few items have. The zero value is that of all other items.
type Notes struct {
	Slots      []Slots // of the whole bucket: shard 0 alone has them
	Crossed    int64   // up to when quotas have been reset, if the stamp was set back since; else 0, epoch milliseconds
	Zone       string  // of all times and windows; "" if there are none
	Ahead      int64   // how far the refill stamp was ahead of the clock of this process when the item was seen, milliseconds
	Generation int64   // the time of an operator's last immediate change, epoch milliseconds; 0 for never
	Moved      int64   // generation of the entity's parent, by the copy in the item; 0 for none
	Bypass     int64   // until when requests may rely on being only counted, epoch milliseconds; 0 if limits apply
	Inherits   bool    // limits share the times or windows of the item
}

// noNotes are the [Notes] of items that have none.
var noNotes Notes

// notes returns the notes of an item, which must not be changed: see [State.Change].
func (s *State) notes() *Notes {
	if s.Notes == nil {
		return &noNotes
	}
	return s.Notes
}

// Equal reports whether two notes are equal.
func (n *Notes) Equal(other *Notes) bool {
	if n == nil || other == nil {
		return n == other
	}
	return slices.Equal(n.Slots, other.Slots) && n.Crossed == other.Crossed && n.Zone == other.Zone && n.Ahead == other.Ahead &&
		n.Generation == other.Generation && n.Moved == other.Moved && n.Bypass == other.Bypass && n.Inherits == other.Inherits
}

// Change changes the notes of an item, but not of its copies.
func (s *State) Change(change func(*Notes)) {
	next := *s.notes()
	if change(&next); next.Equal(&noNotes) {
		s.Notes = nil
		return
	}
	s.Notes = &next
}

// Slots returns [Notes.Slots].
func (s *State) Slots() []Slots { return s.notes().Slots }

// Zone returns [Notes.Zone].
func (s *State) Zone() string { return s.notes().Zone }

// Crossed returns [Notes.Crossed].
func (s *State) Crossed() int64 { return s.notes().Crossed }

// Ahead returns [Notes.Ahead].
func (s *State) Ahead() int64 { return s.notes().Ahead }

// Generation returns [Notes.Generation].
func (s *State) Generation() int64 { return s.notes().Generation }

// Moved returns [Notes.Moved].
func (s *State) Moved() int64 { return s.notes().Moved }

// Bypass returns [Notes.Bypass].
func (s *State) Bypass() int64 { return s.notes().Bypass }

// Inherits returns [Notes.Inherits].
func (s *State) Inherits() bool { return s.notes().Inherits }

// effectiveNow returns the time by which an item is evaluated at a time. If the stamp is ahead, time continues from the stamp. So all
// processes that see it follow the clock furthest ahead, whose process does not get the whole refill. The refill of the lead is added once.
func (s *State) effectiveNow(now int64) int64 { return add(now, s.Ahead()) }

// effectiveNow is [State.effectiveNow] for the shards of a bucket.
func effectiveNow(shards []*State, now int64) int64 {
	ahead := int64(0)
	for _, s := range shards {
		ahead = max(ahead, s.Ahead())
	}
	return add(now, ahead)
}

// find returns the limit of that name, nil if there is none.
func (s *State) find(name string) *Limit {
	for i := range s.Limits {
		if l := &s.Limits[i]; l.Name == name {
			return l
		}
	}
	return nil
}

// share returns the shard's part of the total of one limit.
func (s *State) share(limit string, total int64) int64 {
	if limit == WriteUnits {
		return total
	}
	return Share(total, s.Shard, s.Shards)
}

// Count returns the number of shards of the bucket, at least 1.
func (s *State) Count() int { return max(s.Shards, 1) }

// Writes returns a number that every physical write of the item raises.
func (s *State) Writes() int64 {
	if l := s.writeUnits(); l != nil {
		return l.Consumed
	}
	return 0
}

// writeUnits returns the limit [WriteUnits], nil if the item does not count them.
func (s *State) writeUnits() *Limit {
	if s.Shape != nil && s.Shape.units >= 0 {
		return &s.Limits[s.Shape.units]
	}
	return s.find(WriteUnits)
}

// sharded reports whether the item is one of several. Such items do not expire: if one expired before the others, it would be created again
// as the whole bucket.
func (s *State) sharded() bool { return s.Shards > 1 }

// Pressed reports whether the item has been written more often than its key sustains: [WriteUnits] fall short even after a refill up to
// now.
func (s *State) Pressed(now int64) bool {
	l := s.writeUnits()
	return l != nil && s.owes(l, now)
}

// Writable returns the balance of [WriteUnits] after a refill up to now, in millitokens. An item that does not count
// them has all of them.
func (s *State) Writable(now int64) int64 {
	l := s.writeUnits()
	if l == nil {
		return WriteCapacity
	}
	return s.Available(l, now)
}

// InDebt reports whether a limit is in debt at a time, and rejects requests because of it.
func (s *State) InDebt(now int64) bool {
	for i := range s.Limits {
		if l := &s.Limits[i]; s.owes(l, now) && l.Name != WriteUnits && l.Mode() == Enforced {
			return true
		}
	}
	return false
}

// owes reports whether a limit is in debt after a refill up to a time. Refill never creates a debt.
func (s *State) owes(l *Limit, now int64) bool { return l.Tokens < 0 && s.Available(l, now) < 0 }

// Available returns the balance of one limit after a refill up to now, in millitokens; negative in debt.
func (s *State) Available(l *Limit, now int64) int64 {
	return s.chain(l, s.RefilledAt, now, 0).of(l.Tokens)
}

// full reports whether a limit is full after a refill from one time up to another.
func (s *State) full(l *Limit, from, to int64) bool {
	return s.chain(l, from, to, 0).of(l.Tokens) >= s.capacity(l.Name, l.rule(), to)
}

// A Config is the desired state of a bucket: the configured limits, without [WriteUnits], and how the item is kept.
type Config struct {
	Params       []Params
	Slots        []SlotParams
	Partial      bool  // other limits of the item stay as they are, except full ones beyond maxOthers
	Freshness    int64 // δ: how old the refill stamp may be for a write that leaves it alone, milliseconds
	ExpiryFactor int64 // an unused bucket expires after that many times the time it takes to fill; 0 for never
	Lead         int64 // how far a refill stamp may be ahead of the time before it is set back, milliseconds; 0 for any
	Mixed        bool  // other clients write the buckets, and take tokens without a refill, however old the stamp is
	Bypass       bool  // requests are only counted, and taken from no balance
	MarkUntil    int64 // until when items may state that they, or a limit, reject nothing, epoch milliseconds; 0 if the config allows no such stamp
}

// MaxLimits is the number of limits that an item may have besides [WriteUnits]. The conditions and updates of all of them must fit into one
// DynamoDB expression.
const MaxLimits = 24

// maxOthers is the number of limits outside a partial config that an item keeps once they are full.
const maxOthers = 8

// maxDrops is the number of limits that one write removes from an item. Another version of this program may have added more limits than one
// expression can name.
const maxDrops = 12

// Equal reports whether two configs have the same effect on every item.
func (c *Config) Equal(other *Config) bool {
	return c == other || slices.Equal(c.Params, other.Params) && slices.Equal(c.Slots, other.Slots) && c.Partial == other.Partial &&
		c.Freshness == other.Freshness && c.ExpiryFactor == other.ExpiryFactor && c.Lead == other.Lead &&
		c.Mixed == other.Mixed && c.Bypass == other.Bypass
}

// Has reports whether a limit of that name is configured.
func (c *Config) Has(name string) bool {
	for i := range c.Params {
		if c.Params[i].Name == name {
			return !IsPart(name)
		}
	}
	return false
}

// IsShadow reports whether a limit of that name is configured as a shadow.
func (c *Config) IsShadow(name string) bool {
	return slices.ContainsFunc(c.Params, func(p Params) bool { return p.Name == name && p.Mode == Shadow })
}

// maxFreshness bounds DefaultFreshness, in milliseconds.
const maxFreshness = 1000

// DefaultFreshness returns one hundredth of the shortest time in which one of the limits fills up, at most a second, in milliseconds. The
// excess over an ideal bucket is at most the refill within that time.
func DefaultFreshness(params []Params) int64 {
	freshness := int64(maxFreshness)
	for i := range params {
		if !params[i].isQuota() {
			params[i].rule().each(func(r rule) {
				freshness = min(freshness, timeToRefill(0, uint64(r.capacity), r.refill, r.period)/100)
			})
		}
	}
	return freshness
}

// of returns the parameters for a limit of the item or of the config, nil if the config has none of that name.
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

// near is [Config.of], given the probable index of the parameters. Items and configs usually have the same order.
func (c *Config) near(place int, name string) *Params {
	if place < len(c.Params) && c.Params[place].Name == name {
		return &c.Params[place]
	}
	return c.of(name)
}

// InLine reports whether an item is as configured at a time: it has the configured limits, and a refill stamp that is no further ahead than
// the config allows, and other clients have taken nothing since that stamp. The next advance changes an item that is not in line.
func (c *Config) InLine(s *State, now int64) bool {
	return c.Matches(s) && !s.Inherits() && !c.Leads(s, now) && (!c.mixed(s) || !s.taken())
}

// Leads reports whether to set back the refill stamp of an item: it is so far ahead of the time that no correct clock has written it.
func (c *Config) Leads(s *State, now int64) bool {
	return c.Lead > 0 && !s.Stands && s.RefilledAt > add(now, c.Lead)
}

// since returns the time from which an item is refilled: its refill stamp, or the time itself if the stamp leads.
func (c *Config) since(s *State, now int64) int64 {
	if c.Leads(s, now) {
		return now
	}
	return s.RefilledAt
}

// Matches reports whether an item has the configured limits, so that nothing needs to bring it in line.
func (c *Config) Matches(s *State) bool {
	if s.Shape == nil {
		return c.matchesLimits(s) && c.matchesItem(s)
	}
	if s.Shape.matches.Load() != c {
		if !c.matchesLimits(s) {
			return false
		}
		s.Shape.matches.Store(c)
	}
	return c.matchesItem(s)
}

// matchesItem is [Config.Matches] for the notes of the item besides its limits.
func (c *Config) matchesItem(s *State) bool {
	return c.Bypass == (s.Bypass() != 0) && (c.ExpiryFactor > 0 && !s.sharded()) == (s.ExpiresAt > 0)
}

// matchesLimits is [Config.Matches] for the limits.
func (c *Config) matchesLimits(s *State) bool {
	configured := 0
	for i := range s.Limits {
		switch p := c.near(configured, s.Limits[i].Name); {
		case p == nil && !c.Partial:
			return false
		case p == nil:
		case !s.Limits[i].has(p):
			return false
		default:
			configured++
		}
	}
	return configured == len(c.Params)+1
}

func (l *Limit) params() Params {
	return Params{
		Name: l.Name, Capacity: l.Capacity, RefillAmount: l.RefillAmount, RefillPeriod: l.RefillPeriod,
		Times: l.Times(), Windows: l.Windows(), Session: l.Session(), Carry: l.Carry(), Mode: l.Mode(),
	}
}

func (l *Limit) has(p *Params) bool {
	if l.Capacity != p.Capacity || l.RefillAmount != p.RefillAmount || l.RefillPeriod != p.RefillPeriod {
		return false
	}
	if l.Rare == nil {
		return p.Session == 0 && p.Carry == 0 && p.Mode == Enforced && p.Times == nil && p.Windows == nil
	}
	rare := l.Rare
	return l.Mode() == p.Mode && rare.Session == p.Session && rare.Carry == p.Carry && rare.Times.Equal(p.Times) && rare.Windows.Equal(p.Windows)
}
