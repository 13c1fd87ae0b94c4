package provision

import (
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// LimitOf returns the limit that a text says, with the types of the SDK.
func LimitOf(l grammar.Limit) zlimit.Limit {
	return zlimit.Limit{
		Name: l.Name, Capacity: l.Capacity, RefillAmount: l.Refill, RefillPeriod: l.Period, Resets: l.Resets, Zone: l.Zone,
		Windows: l.Windows, Floors: l.Floors, Term: l.Term, Session: l.Session, Carry: l.Carry, Mode: zlimit.LimitMode(l.Mode),
	}
}

// textOf is the reverse of LimitOf.
func textOf(l zlimit.Limit) grammar.Limit {
	return grammar.Limit{
		Name: l.Name, Capacity: l.Capacity, Refill: l.RefillAmount, Period: l.RefillPeriod, Resets: l.Resets, Zone: l.Zone,
		Windows: l.Windows, Floors: l.Floors, Term: l.Term, Session: l.Session, Carry: l.Carry, Mode: string(l.Mode),
	}
}
