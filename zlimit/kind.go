package zlimit

import (
	"fmt"
	"strconv"
	"time"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/grammar"
)

// A limitKind says how tokens of a limit come back.
type limitKind uint8

const (
	kindRefill  limitKind = iota // evenly, an amount per period
	kindQuota                    // all, at the times of Resets
	kindSession                  // all, when a session ends
	kindSlots                    // when their holders return them
)

func (l *Limit) kind() limitKind {
	switch {
	case l.Term != 0:
		return kindSlots
	case l.Session != 0:
		return kindSession
	case l.Resets != "":
		return kindQuota
	default:
		return kindRefill
	}
}

// excluded returns the first field that the limit has and its kind has not, with its value and the reason; "" for none. A session of a wrong
// length is no session.
func (l *Limit) excluded() (field, value, reason string) {
	ofQuota := [...]string{kindQuota: "must be 0 for a quota, which resets at the times of Resets", kindSession: "must be 0 for a session quota"}
	if l.isPrepaid() {
		ofQuota[kindSession] = "must be 0 for a prepaid limit, to which only top-ups add"
	}
	switch kind := l.kind(); {
	case kind != kindQuota && l.Carry > 0:
		return "carry", amountText(l.Name, l.Carry), "is for quotas, which have Resets"
	case kind == kindSlots && (l.RefillAmount != 0 || l.RefillPeriod != 0 || l.Resets != "" || l.Session != 0):
		return "term", l.Term.String(), "is for slots alone, which have neither a refill nor resets nor a session"
	case kind == kindSlots:
		for _, other := range [...][2]string{{"zone", l.Zone}, {"windows", l.Windows}, {"floors", l.Floors}, {"mode", string(l.Mode)}} {
			if other[1] != "" {
				return other[0], other[1], "must be empty for slots, which have Term"
			}
		}
	case kind == kindSession && grammar.CheckSession(l.Session) != "":
		return "session", l.Session.String(), grammar.CheckSession(l.Session)
	case kind == kindSession && l.Resets != "":
		return "resets", l.Resets, "must be empty for a session quota, which resets when its session ends"
	case kind != kindRefill && l.RefillAmount != 0:
		return "refill amount", amountText(l.Name, l.RefillAmount), ofQuota[kind]
	case kind != kindRefill && l.RefillPeriod != 0:
		return "refill period", l.RefillPeriod.String(), ofQuota[kind]
	case kind != kindQuota && l.Zone != "" && l.Windows == "":
		return "zone", l.Zone, "is for quotas, which have Resets, and for limits with windows"
	}
	return "", "", ""
}

const (
	// Slots have a term between these. A shorter one needs clocks that agree better than replies show.
	minTerm = time.Second
	maxTerm = 24 * time.Hour
	// maxSlots bounds the slots of a limit. Far fewer can be held with one write a term for each process.
	maxSlots = 1_000_000_000
)

// required returns the first field that a limit of its kind must have, and that breaks a rule, with its value and the rule; "" for none. A
// period must be a multiple of unit.
func (l *Limit) required(unit time.Duration) (field, value, rule string) {
	switch l.kind() {
	case kindSlots:
		if l.Term < minTerm || l.Term > maxTerm || l.Term%time.Second != 0 {
			return "term", l.Term.String(), fmt.Sprintf("must be whole seconds, from %v to %v", minTerm, maxTerm)
		}
		if l.Capacity > maxSlots {
			return "capacity", strconv.FormatInt(l.Capacity, 10), fmt.Sprintf("must be from 1 to %d slots", int64(maxSlots))
		}
	case kindQuota:
		if _, err := calendar.Parse(l.Resets, l.Zone); err != nil && calendar.CheckZone(l.Zone) == "" {
			return "resets", l.Resets, err.Error()
		}
		return "zone", l.Zone, calendar.CheckZone(l.Zone)
	case kindRefill:
		switch {
		case l.RefillAmount == 0 && l.RefillPeriod == 0:
			return "session", l.Session.String(), grammar.CheckSession(l.Session) + ", where the limit has no refill"
		case tokensRule(l.Name, l.RefillAmount, 1) != "":
			return "refill amount", amountText(l.Name, l.RefillAmount), tokensRule(l.Name, l.RefillAmount, 1)
		case l.RefillPeriod < unit || l.RefillPeriod%unit != 0:
			return "refill period", l.RefillPeriod.String(), fmt.Sprintf("must be a positive multiple of %v", unit)
		}
	case kindSession: // whose length is checked before
	}
	return "", "", ""
}
