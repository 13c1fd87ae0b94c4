package bucket

import "sync/atomic"

// A Shape has what the images of an item share while its limits keep their names and parameters. What follows from these is computed once,
// instead of for each request. It is safe for concurrent use.
type Shape struct {
	units   int                    // the index of [WriteUnits] among the limits; negative if there is none
	plain   bool                   // no limit has rare parts
	matches atomic.Pointer[Config] // the config that the limits were last found to match
}

// NewShape returns the shape of items with limits of these names in this order. They are plain if none of them ever has rare parts.
func NewShape(names []string, plain bool) *Shape {
	s := &Shape{units: -1, plain: plain}
	for i, name := range names {
		if name == WriteUnits {
			s.units = i
		}
	}
	return s
}

// IsLike reports whether a limit has the parameters and the life of another limit of the same name.
func (l *Limit) IsLike(other *Limit) bool {
	if l.Capacity != other.Capacity || l.RefillAmount != other.RefillAmount || l.RefillPeriod != other.RefillPeriod || l.Life != other.Life {
		return false
	}
	if l.Rare == other.Rare {
		return true
	}
	is, was := l.rare(), other.rare()
	return is.Times == was.Times && is.Windows == was.Windows && is.Session == was.Session && is.Carry == was.Carry && l.Mode() == other.Mode()
}

// EvenShape returns the shape of an image if lives follow from it: all limits refill evenly, and have no grants that end. Otherwise it
// returns nil.
func (s *State) EvenShape() *Shape {
	if s.Shape == nil || !s.Shape.plain || s.ValidUntil != 0 {
		return nil
	}
	return s.Shape
}

// isPlain reports whether an item is known to have only token buckets that refill evenly, and no notes.
func (s *State) isPlain() bool {
	return s.Shape != nil && s.Shape.plain && s.Notes == nil && s.ValidUntil == 0 && !s.Changed
}

// isPlain reports whether a demand only takes the amounts of one request of the entity itself, without a wait.
func (d *Demand) isPlain() bool {
	if d.beside != nil || d.Unchecked || d.Settles || d.Wait > 0 || d.Priority != "" {
		return false
	}
	for i := range d.Amounts {
		if a := &d.Amounts[i]; a.Tokens < 0 || a.FromChildren != 0 || a.FromNarrower != 0 {
			return false
		}
	}
	return true
}

// spendPlain is [Plan.spend] with a fresh stamp, for a plain item and a plain demand. It plans the same steps, without checks for what
// neither has. It returns false if the stamp must move, or if the general case must decide.
func (p *Plan) spendPlain(s *State, c *Config, d *Demand, now int64) bool {
	p.reset(Spend, s, sub(now, c.Freshness), now)
	p.At = s.validAt(now)
	p.Steps = append(p.Steps, Step{Kind: Admit})
	for i := range s.Limits {
		l := &s.Limits[i]
		if i == s.Shape.units {
			p.one(Charge, l.Name, oneWrite)
			continue
		}
		switch amount := Of(d.Amounts, l.Name); {
		case amount == 0:
		case amount > l.Tokens, amount > l.Capacity: // beyond the capacity, a full limit suffices
			return false
		default:
			p.one(Take, l.Name, amount)
		}
	}
	return s.ExpiresAt == 0 || s.ExpiresAt > seconds(p.Now)
}

// one plans a step with one value.
func (p *Plan) one(kind StepKind, limit string, value int64) {
	p.Steps = append(p.Steps, Step{Kind: kind, Limit: limit, Values: [5]int64{value}})
}
