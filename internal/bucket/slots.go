package bucket

import (
	"slices"
	"strings"
)

// Slots are an item's counters of a limit on concurrent holders: free slots and held slots. A holder that stops renewing loses its slots.
// Time is divided into epochs of one term each. A held slot counts by the parity of the last epoch in which its holder wrote. When an epoch
// begins, the counter of its parity has the holders that last renewed two epochs before. It is set to zero, and those slots become free.
//
// Free + Even + Odd is always Capacity. A counter may be below zero for an epoch: if the reply to a write that moves slots is lost, they
// are moved twice.
type Slots struct {
	Name     string
	Free     int64 // not held; negative after the number was lowered
	Even     int64 // slots whose holders last renewed in an even epoch
	Odd      int64 // and in an odd one
	Capacity int64 // slots there are
	Epoch    int64 // the latest epoch that the item knows; it only rises
	Term     int64 // length of an epoch, milliseconds
	Fence    int64 // fencing number of the last slots that were taken
	Enrolled int64 // when these counters began, epoch milliseconds; an item that was created again has another value

	// Free slots that are kept for a waiting process; see [Slots.KeptAt].
	Claimed      int64 // slots; 0 for none
	Claimant     int64 // a number of the process
	ClaimedUntil int64 // until when they are kept, epoch milliseconds
}

// KeptAt returns the free slots that are kept at a time for another, waiting process.
func (s *Slots) KeptAt(now int64) int64 {
	if now >= s.ClaimedUntil {
		return 0
	}
	return s.Claimed
}

// IsClaimed reports whether slots are kept for a process at a time.
func (s *Slots) IsClaimed(now int64) bool { return s.ClaimedUntil > now }

// IsClaimedBy reports whether slots are kept for a process at a time, given its number.
func (s *Slots) IsClaimedBy(claimant, now int64) bool {
	return s.Claimant == claimant && s.IsClaimed(now)
}

// Slot is one slot as an amount. Other amounts are in millitokens.
const Slot = 1000

// IsEmpty reports whether no limits are configured.
func (c *Config) IsEmpty() bool { return len(c.Params) == 0 && len(c.Slots) == 0 }

// SlotParams are the parameters of slots.
type SlotParams struct {
	Name  string
	Slots int64 // slots there are, positive
	Term  int64 // length of an epoch, milliseconds, positive
}

const (
	// earlyTermPart is the part of a term by which a holder gives up early. The clocks of two processes must not differ by more.
	earlyTermPart = 5
	// slotLifeTerms is the number of terms by which an item outlives a write of its slots. A holder is lost within two terms of its last
	// write, by its own clock.
	slotLifeTerms = 4
)

// SlotClockError bounds the error of a clock, as a part of a term. The clocks of two processes then differ by at most earlyTermPart.
const SlotClockError = 2 * earlyTermPart

// outlives returns the least time for which an item is kept after a write, in milliseconds.
func (s *Slots) outlives() int64 { return mul(max(s.Term, 0), slotLifeTerms) }

func (p *SlotParams) outlives() int64 { return mul(p.Term, slotLifeTerms) }

// mul returns the product of two numbers that are not negative, saturated.
func mul(a, b int64) int64 {
	if a > maxDuration/b {
		return maxDuration
	}
	return a * b
}

// maxDuration is longer than everything that is measured here, and can be added to a time.
const maxDuration = 1 << 60

// FindSlots returns the slots of a limit, nil if the item has none.
func (s *State) FindSlots(name string) *Slots {
	slots := s.Slots()
	for i := range slots {
		if slots[i].Name == name {
			return &slots[i]
		}
	}
	return nil
}

// FindSlots returns the parameters of the slots of a limit, nil if none are configured.
func (c *Config) FindSlots(name string) *SlotParams {
	for i := range c.Slots {
		if c.Slots[i].Name == name {
			return &c.Slots[i]
		}
	}
	return nil
}

// SlotsUntil returns the time of expiry, in epoch seconds, for an item with these slots after a write at a time, in epoch milliseconds. It
// returns false if the present time of expiry suffices, or if the item does not expire.
func (s *State) SlotsUntil(now int64) (expiry int64, prolongs bool) {
	if s.ExpiresAt <= 0 {
		return 0, false
	}
	least := int64(0)
	for i := range s.Slots() {
		least = max(least, s.Slots()[i].outlives())
	}
	if expiry = min(seconds(add(now, least))+1, maxExpiry); s.ExpiresAt >= expiry-least/(slotLifeTerms*1000) {
		return 0, false // at most once a term
	}
	return expiry, true
}

// Enrol returns new slots of which some are already held, by a number of takers. Their fencing numbers are greater than the numbers of any
// earlier slots, as long as fewer than a thousand are taken in a millisecond.
func (p *SlotParams) Enrol(held, takers, now int64) Slots {
	s := Slots{Name: p.Name, Capacity: p.Slots, Free: p.Slots - held, Epoch: now / p.Term, Term: p.Term, Fence: mul(now, 1000), Enrolled: now}
	if held > 0 {
		s.Fence += takers
	}
	*s.counter(s.Epoch) = held
	return s
}

// Holders returns the number of callers among which the slots of a demand are divided.
func (d *Demand) Holders() int64 { return max(d.rest().takers, 1) }

// Slots returns the slots that the write takes in addition to the amounts, nil for none.
func (d *Demand) Slots() []Amount { return d.rest().slots }

// TakingSlots returns the demand with other slots, nil for none.
func (d *Demand) TakingSlots(slots []Amount) Demand {
	next := *d
	if len(slots) > 0 || len(d.Slots()) > 0 {
		rest := *d.rest()
		rest.slots = slots
		next.beside = &rest
	}
	return next
}

// SlotsAlone returns the demand for only the slots.
func (d *Demand) SlotsAlone() Demand {
	return Demand{Life: d.Life, beside: &beside{slots: d.Slots(), takers: d.rest().takers, each: d.rest().each}}
}

// SlotsOfEach returns the slots of each request of the caller, which have a fencing number each.
func (d *Demand) SlotsOfEach() [][]Amount {
	if each := d.rest().each; each != nil {
		return each
	}
	return [][]Amount{d.Slots()}
}

// prolongs reports whether an item must be kept longer for the slots of a demand.
func (d *Demand) prolongs(s *State, now int64) bool {
	if len(d.Slots()) == 0 {
		return false
	}
	_, prolongs := s.SlotsUntil(now)
	return prolongs
}

// holdSlots plans to take the slots of a demand in the present epoch of the item. It returns false if too few are free, not counting slots
// that are kept for another process.
func (p *Plan) holdSlots(s *State, d *Demand, now int64) bool {
	for i := range d.Slots() {
		of := s.FindSlots(d.Slots()[i].Limit)
		if of == nil || of.Free-of.KeptAt(now) < d.Slots()[i].Tokens {
			return false
		}
		p.step(HoldSlots, of.Name, d.Slots()[i].Tokens, of.Epoch, d.Holders(), of.Enrolled, d.Slots()[i].Tokens+of.KeptAt(now))
	}
	return true
}

// EnrolSlots adds slots to a new item, at a time by the clock of slots. The demand immediately holds some of them. It returns false if
// there are too few.
func (p *Plan) EnrolSlots(c *Config, d *Demand, now int64) bool {
	for i := range d.Slots() {
		of := c.FindSlots(d.Slots()[i].Limit)
		if of == nil || d.Slots()[i].Tokens > of.Slots {
			return false
		}
		p.Item.Change(func(n *Notes) { n.Slots = append(n.Slots, of.Enrol(d.Slots()[i].Tokens, d.Holders(), now)) })
	}
	return true
}

// CoversSlots reports whether the requested slots are free at a time in the items of a bucket. It includes slots that the next write frees.
func (c *Config) CoversSlots(shards []*State, asked []Amount, now int64) bool {
	for i := range asked {
		p := c.FindSlots(asked[i].Limit)
		if p == nil || asked[i].Tokens > p.freeIn(shards, now) {
			return false
		}
	}
	return true
}

// freeIn returns the number of free slots in the items of a bucket at a time, given the configured number of slots.
func (p *SlotParams) freeIn(shards []*State, now int64) int64 {
	free := p.Slots
	for _, s := range shards {
		if of := s.FindSlots(p.Name); of != nil {
			free = of.FreeAt(now) + p.Slots - of.Capacity
		}
	}
	return free
}

// keptIn returns the number of slots in the items of a bucket that are kept at a time for a waiting process.
func (p *SlotParams) keptIn(shards []*State, now int64) (kept int64) {
	for _, s := range shards {
		if of := s.FindSlots(p.Name); of != nil {
			kept = of.KeptAt(now)
		}
	}
	return kept
}

// KeepSlots makes a status of slots show that more of them are kept for a waiting caller.
func (s *Status) KeepSlots(slots int64) {
	s.Kept += mul(slots, Slot)
	if s.Requested > 0 && s.Requested > s.Available-s.Kept {
		s.Short, s.Wait = true, max(s.Wait, slotRetry)
	}
}

// free returns the number of free slots of each limit in the demands.
func (c *Config) free(shards []*State, demands []*Demand, now int64) (free []Amount) {
	if !slices.ContainsFunc(demands, func(d *Demand) bool { return len(d.Slots()) > 0 }) {
		return nil
	}
	for i := range c.Slots {
		there := c.Slots[i].Slots
		for _, s := range shards {
			if of := s.FindSlots(c.Slots[i].Name); of != nil {
				there = of.Free - of.KeptAt(now)
			}
		}
		free = append(free, Amount{Limit: c.Slots[i].Name, Tokens: there})
	}
	return free
}

// GiveSlotsBack adds the release of slots to a plan, given the epoch in which their holder last renewed.
func (p *Plan) GiveSlotsBack(limit string, slots, epoch, enrolled int64) {
	p.step(GiveSlots, limit, slots, epoch, enrolled)
}

// counter returns the counter of an epoch.
func (s *Slots) counter(epoch int64) *int64 {
	if epoch%2 == 0 {
		return &s.Even
	}
	return &s.Odd
}

// Opens returns the epoch that must be begun at a time, false if the item already has the present epoch. After a pause of more than an
// epoch, both counters belong to lost holders. The older one is emptied first, and then the other one, since a counter below zero is
// balanced by the newer one. The same order applies if no slot was held as last seen: a late beat may have moved one since.
func (s *Slots) Opens(now int64) (epoch int64, ok bool) {
	own := now / s.Term
	switch {
	case own <= s.Epoch:
		return 0, false
	case own == s.Epoch+1:
		return own, true
	default:
		return own - 1 - (own-1-s.Epoch+1)%2, true
	}
}

// Strays reports whether the item's epoch is too far ahead of a time: no clock that is accurate enough for slots has begun it.
func (s *Slots) Strays(now int64) bool { return mul(s.Epoch, s.Term) > add(now, s.Term/earlyTermPart) }

// Ends returns when a holder that last renewed in an epoch is lost, in epoch milliseconds by its own clock. The epoch that frees its slots
// begins later, by the clock of any process.
func (s *Slots) Ends(epoch int64) int64 { return mul(epoch+2, s.Term) - s.Term/earlyTermPart }

// Lapsed reports whether the slots of a holder have become free, given the epoch in which it last wrote, and when its counters began.
func (s *Slots) Lapsed(epoch, enrolled int64) bool {
	return s.Enrolled != enrolled || s.Epoch >= epoch+2
}

// FreeAt returns the free slots at a time. It includes slots that the next write frees, and excludes slots that are kept for another
// process.
func (s *Slots) FreeAt(now int64) int64 {
	if s.Term <= 0 {
		return s.Free
	}
	free, own := s.Free-s.KeptAt(now), now/s.Term
	if own > s.Epoch {
		free += *s.counter(s.Epoch + 1)
	}
	if own > s.Epoch+1 {
		free += *s.counter(s.Epoch)
	}
	return free
}

// Fits reports whether slots are as configured.
func (s *Slots) Fits(p *SlotParams) bool { return s.Capacity == p.Slots && s.Term == p.Term }

// ChangesTerm reports whether the term may change, since no slot is held.
func (s *Slots) ChangesTerm() bool { return s.Even == 0 && s.Odd == 0 }

// slotRetry is the reported wait for slots, in milliseconds. No process knows when a holder will be done.
const slotRetry = 1000

// SlotStatuses appends the statuses of a bucket's slots at a time, given the slots of a request. The statuses are then sorted by name. The
// shards are as in [Config.Statuses].
func (c *Config) SlotStatuses(to []Status, shards []*State, asked []Amount, now int64) []Status {
	if len(c.Slots) == 0 {
		return to
	}
	for i := range c.Slots {
		p := &c.Slots[i]
		free, kept, amount := p.freeIn(shards, now), p.keptIn(shards, now), Of(asked, p.Name)
		s := Status{
			Params: Params{Name: p.Name, Capacity: mul(p.Slots, Slot), RefillPeriod: 1}, Term: p.Term,
			Available: signedMul(free+kept, Slot), Kept: mul(kept, Slot), Requested: mul(amount, Slot), Short: amount > 0 && amount > free,
		}
		switch {
		case amount > p.Slots:
			s.Wait = Never
		case s.Short:
			s.Wait = slotRetry
		}
		to = append(to, s)
	}
	slices.SortStableFunc(to, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return to
}

// signedMul is mul of a number that may be negative.
func signedMul(a, b int64) int64 {
	if a < 0 {
		return -mul(-a, b)
	}
	return mul(a, b)
}
