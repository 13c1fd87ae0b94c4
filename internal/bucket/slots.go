package bucket

import (
	"slices"
	"strings"
)

// Slots are an item's counters of a limit that bounds the holders at work: free slots, and held ones. A holder that
// stops renewing loses its slots. Time is cut into epochs of the length of a term. A held slot counts by the parity of
// the last epoch in which its holder wrote. When an epoch begins, the counter of its parity is of holders who last
// renewed two epochs before. It is set to nothing, and those slots are free.
//
// Free + Even + Odd is Capacity, always. A counter may be below zero for an epoch: after a write that moved slots and
// lost its reply, they are moved twice.
type Slots struct {
	Name     string
	Free     int64 // not held; negative after the number was lowered
	Even     int64 // slots whose holders last renewed in an even epoch
	Odd      int64 // and in an odd one
	Capacity int64 // slots there are
	Epoch    int64 // the present one as far as the item knows; it only rises
	Term     int64 // length of an epoch, milliseconds
	Fence    int64 // fencing number of the last slots that were taken
	Enrolled int64 // when these counters began, epoch milliseconds: an item that was deleted and created again has others

	// Free slots that are kept for a process which waits for them; see [Slots.KeptAt].
	Claimed      int64 // slots; 0 for none
	Claimant     int64 // a number of the process
	ClaimedUntil int64 // until when they are kept, epoch milliseconds
}

// KeptAt returns the free slots that are kept at a time for another process, which waits for them.
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

// Slot is one slot as an amount, which is in millitokens otherwise.
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
	// earlyTermPart is the part of a term by which a holder gives up early: the clocks of two processes differ by as much at most.
	earlyTermPart = 5
	// slotLifeTerms is how many terms an item outlives a write of its slots. A holder is lost within two terms of its last one, by its clock.
	slotLifeTerms = 4
)

// SlotClockError is the part of a term that a clock may be wrong by: the clocks of two processes then differ by earlyTermPart at most.
const SlotClockError = 2 * earlyTermPart

// outlives returns how long an item is kept at least after a write, in milliseconds.
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

// FindSlots returns the slots of a limit, nil when the item has none.
func (s *State) FindSlots(name string) *Slots {
	slots := s.Slots()
	for i := range slots {
		if slots[i].Name == name {
			return &slots[i]
		}
	}
	return nil
}

// FindSlots returns the parameters of the slots of a limit, nil when none are configured.
func (c *Config) FindSlots(name string) *SlotParams {
	for i := range c.Slots {
		if c.Slots[i].Name == name {
			return &c.Slots[i]
		}
	}
	return nil
}

// SlotsUntil returns the time of expiry, in epoch seconds, for an item with these slots after a write at a time, in
// epoch milliseconds. It returns false where the present one will do, or the item does not expire.
func (s *State) SlotsUntil(now int64) (expiry int64, prolongs bool) {
	if s.ExpiresAt <= 0 {
		return 0, false
	}
	least := int64(0)
	for i := range s.Slots() {
		least = max(least, s.Slots()[i].outlives())
	}
	if expiry = min(seconds(add(now, least))+1, maxExpiry); s.ExpiresAt >= expiry-least/(slotLifeTerms*1000) {
		return 0, false // not more than once a term
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

// Holders returns among how many callers the slots of a demand are divided.
func (d *Demand) Holders() int64 { return max(d.rest().takers, 1) }

// Slots returns what the write takes of slots beside the amounts, in slots; nil for none.
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

// SlotsAlone returns the demand for the slots, and nothing else.
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

// prolongs reports whether an item has to be kept for longer for the slots of a demand.
func (d *Demand) prolongs(s *State, now int64) bool {
	if len(d.Slots()) == 0 {
		return false
	}
	_, prolongs := s.SlotsUntil(now)
	return prolongs
}

// holdSlots plans to take the slots of a demand in the present epoch of the item. It returns false if fewer are free, except slots that are
// kept for another process.
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

// EnrolSlots gives a new item its slots. The demand immediately holds some of them, at a time by the clock of slots. It returns false
// where there are fewer.
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

// CoversSlots reports whether the requested slots are free at a time in the items of a bucket. It counts those that the next write
// frees.
func (c *Config) CoversSlots(shards []*State, asked []Amount, now int64) bool {
	for i := range asked {
		p := c.FindSlots(asked[i].Limit)
		if p == nil || asked[i].Tokens > p.freeIn(shards, now) {
			return false
		}
	}
	return true
}

// freeIn returns how many slots are free in the items of a bucket at a time, with the configured number of them.
func (p *SlotParams) freeIn(shards []*State, now int64) int64 {
	free := p.Slots
	for _, s := range shards {
		if of := s.FindSlots(p.Name); of != nil {
			free = of.FreeAt(now) + p.Slots - of.Capacity
		}
	}
	return free
}

// keptIn returns how many slots are kept in the items of a bucket at a time for a process that waits for them.
func (p *SlotParams) keptIn(shards []*State, now int64) (kept int64) {
	for _, s := range shards {
		if of := s.FindSlots(p.Name); of != nil {
			kept = of.KeptAt(now)
		}
	}
	return kept
}

// KeepSlots makes a status of slots keep more of them for a caller that waits.
func (s *Status) KeepSlots(slots int64) {
	s.Kept += mul(slots, Slot)
	if s.Requested > 0 && s.Requested > s.Available-s.Kept {
		s.Short, s.Wait = true, max(s.Wait, slotRetry)
	}
}

// free returns how many slots are free of each limit that demands ask for.
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

// GiveSlotsBack plans to give slots back beside what the plan writes, whose holder last renewed in an epoch.
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

// Opens returns the epoch that is to be begun at a time, false where the present one is known to the item. After a
// pause of more than an epoch both counters are of lost holders. The older one is set to nothing first, and the other
// one after that: a counter below zero has its part in the newer one. So it is also where no slot is held as last seen: a
// late beat may have moved one since.
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

// Strays reports whether the item's epoch is too far ahead of a time: no clock as right as slots need has begun it.
func (s *Slots) Strays(now int64) bool { return mul(s.Epoch, s.Term) > add(now, s.Term/earlyTermPart) }

// Ends returns when a holder is lost that last renewed in an epoch, in epoch milliseconds by its own clock. By its
// clock, a process begins the epoch that frees the slots later than that.
func (s *Slots) Ends(epoch int64) int64 { return mul(epoch+2, s.Term) - s.Term/earlyTermPart }

// Lapsed reports whether the slots of a holder are free by now. The holder last wrote in an epoch, and the counters
// began at a time.
func (s *Slots) Lapsed(epoch, enrolled int64) bool {
	return s.Enrolled != enrolled || s.Epoch >= epoch+2
}

// FreeAt returns the free slots at a time, including those that the next write frees, and without those kept for another process.
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

// ChangesTerm reports whether the term may change now: no slot is held.
func (s *Slots) ChangesTerm() bool { return s.Even == 0 && s.Odd == 0 }

// slotRetry is the reported wait for slots, in milliseconds: no process knows when a holder is done.
const slotRetry = 1000

// SlotStatuses appends the statuses of a bucket's slots at a time, given the slots asked by a request. The statuses are
// then in the order of the names. The shards are as in [Config.Statuses].
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
