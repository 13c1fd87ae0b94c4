package show

import (
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Statuses writes where limits stand, in view of a request or as they are. Entities are named if there are several:
// a request is charged to parents too. The function writes the capacity of a limit without what is beyond it.
func (p *Page) Statuses(statuses zlimit.Statuses, requested bool, capacity func(*zlimit.Status) string) {
	several := slices.ContainsFunc(statuses, func(s zlimit.Status) bool { return s.Entity != statuses[0].Entity })
	wider := slices.ContainsFunc(statuses, func(s zlimit.Status) bool { return s.Wider > 0 })
	header := []string{"limit", "available>", "capacity>", "refill>"}
	if wider {
		header = slices.Insert(header, 0, "resource")
	}
	if several {
		header = slices.Insert(header, 0, "entity")
	}
	held := slices.ContainsFunc(statuses, func(s zlimit.Status) bool { return s.Limit.Term > 0 })
	if held {
		header = append(header, "held>")
	}
	queue := slices.ContainsFunc(statuses, func(s zlimit.Status) bool { return s.Queue > 0 })
	if queue {
		header = append(header, "queue>")
	}
	if requested {
		header = append(header, "requested>", "wait>")
	}
	var rows [][]string
	for _, s := range statuses {
		row := []string{s.Limit.Name, Amount(s.Limit.Name, s.Available), capacity(&s) + Beyond(s), Refill(s.Limit) + foreseen(s)}
		if wider {
			row = slices.Insert(row, 0, s.Resource)
		}
		if several {
			row = slices.Insert(row, 0, s.Entity)
		}
		if held {
			row = append(row, Held(s))
		}
		if queue {
			row = append(row, Queue(s.Queue))
		}
		if requested {
			wait := ""
			switch {
			case s.Foreseen:
				wait = "foreseen"
			case s.NeedsTopUp():
				wait = "top-up"
			case !s.Possible():
				wait = "never"
			case s.Exceeded:
				wait = Brief(s.RetryAfter)
			}
			row = append(row, Amount(s.Limit.Name, s.Requested), wait)
		}
		rows = append(rows, row)
	}
	p.Table(header, rows)
}

// Held returns how many slots of a limit are held, "" for one of tokens.
func Held(s zlimit.Status) string {
	if s.Limit.Term == 0 {
		return ""
	}
	return Grouped(s.Held())
}

// Queue returns the length of a queue, "" for none.
func Queue(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return Brief(d)
}

// Beyond returns what a limit may hold beyond its capacity: what was carried into its period, and what was granted, and until when; "" for
// nothing.
func Beyond(s zlimit.Status) string {
	carried := ""
	if s.Carried > 0 {
		carried = " + " + Amount(s.Limit.Name, s.Carried) + " carried"
	}
	switch {
	case s.Granted == 0:
		return carried
	case s.GrantEnds.IsZero():
		return carried + " + " + Amount(s.Limit.Name, s.Granted)
	default:
		return carried + " + " + Amount(s.Limit.Name, s.Granted) + " until " + s.GrantEnds.Format("2006-01-02T15:04Z")
	}
}

// foreseen returns how many requests a shadow limit would have refused, "" for none.
func foreseen(s zlimit.Status) string {
	if s.Refusals == 0 {
		return ""
	}
	return " (" + Counted(int(s.Refusals), "refusal") + " foreseen)"
}

// Refill returns the refill of a limit, as CAPACITY:REFILL/PERIOD has it after the colon, or the times when a quota resets. Windows,
// floors and the mode follow. Of slots it is the term, and of a session quota session:LENGTH.
func Refill(l zlimit.Limit) string {
	if l.Resets != "" || l.Session != 0 {
		return Times(l)
	}
	if l.Term != 0 {
		return "slots/" + grammar.FormatPeriod(l.Term)
	}
	return Amount(l.Name, l.RefillAmount) + "/" + grammar.FormatPeriod(l.RefillPeriod) + exceptions(l)
}

// exceptions returns the windows and floors of a limit as text has them after the period, "" without any.
func exceptions(l zlimit.Limit) string {
	text := l.String()
	for _, word := range []string{" when ", " floors ", " soft", " shadow"} { // in the order in which they may stand
		if at := strings.Index(text, word); at >= 0 {
			return text[at:]
		}
	}
	return ""
}

// PlainRefill is [Refill] without groups of digits, for programs.
func PlainRefill(l zlimit.Limit) string {
	if l.Resets != "" || l.Session != 0 {
		return Times(l)
	}
	if l.Term != 0 {
		return "slots/" + grammar.FormatPeriod(l.Term)
	}
	return grammar.FormatAmount(l.Name, l.RefillAmount) + "/" + grammar.FormatPeriod(l.RefillPeriod) + exceptions(l)
}

// Times returns when a quota resets, as AMOUNT/TIMES has it after the slash, with its windows.
func Times(l zlimit.Limit) string {
	_, times, _ := strings.Cut(l.String(), "/")
	return times
}

// Limits writes limits as they are configured.
func (p *Page) Limits(limits []zlimit.Limit) {
	var rows [][]string
	for _, limit := range limits {
		rows = append(rows, []string{limit.Name, Amount(limit.Name, limit.Capacity), Refill(limit)})
	}
	p.Table([]string{"limit", "capacity>", "refill>"}, rows)
}
