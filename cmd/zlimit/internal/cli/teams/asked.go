package teams

import (
	"regexp"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An asked budget is one as a flag has it. A part that the flag does not say is as in a new budget.
type asked struct {
	zlimit.Limit
	says map[part]bool
}

// A part of a budget is kept where a flag does not say it.
type part string

const (
	partPeriod  part = "period"
	partZone    part = "zone"
	partCarry   part = "carry"
	partWindows part = "windows"
	partFloors  part = "floors"
	partMode    part = "mode"
)

// of returns the part of a budget as text.
func (p part) of(budget *zlimit.Limit) string {
	switch p {
	case partPeriod:
		bare := *budget
		bare.Windows, bare.Floors, bare.Carry, bare.Mode = "", "", 0, ""
		return show.Refill(bare)
	case partZone:
		return budget.Zone
	case partCarry:
		return show.Amount(grammar.Money, budget.Carry)
	case partWindows:
		return budget.Windows
	case partFloors:
		return budget.Floors
	default:
		return string(budget.Mode)
	}
}

// The words that remove a part of a stored budget, beside carry 0.
const (
	noWindows = " when none"
	noFloors  = " floors none"
	noMode    = " enforced"
)

// parseBudget parses a budget: DOLLARS, DOLLARS/PERIOD, or all that a limit named usd may have behind its name, and a word that removes a
// part. It returns nil for an empty text.
func parseBudget(flag, text string) (*asked, error) {
	if text == "" {
		return nil, nil
	}
	a := asked{says: map[part]bool{}}
	rate, rest, windowed := strings.Cut(a.cut(text), " ")
	dollars, period, ok := strings.Cut(rate, "/")
	if a.says[partPeriod] = ok; !ok {
		period = "month"
	}
	a.says[partZone] = strings.Contains(period, "@") || period == "cron"
	if period == "day" || period == "week" || period == "month" {
		zone := "UTC"
		if m := windowZone.FindStringSubmatch(rest); m != nil {
			zone, a.says[partZone] = m[1], true
		}
		period += "@" + zone
	}
	rate = dollars + "/" + period
	if windowed {
		rate += " " + rest
	}
	l, err := shell.ParseLimit(grammar.Money + "=" + rate)
	if err != nil {
		return nil, shell.Usagef("%s %q: must be DOLLARS/PERIOD, such as 200/month or 200/month@Europe/Berlin: %v", flag, text, rule(err))
	}
	a.Limit = l
	for said, there := range map[part]bool{partCarry: l.Carry != 0, partWindows: l.Windows != "", partFloors: l.Floors != "", partMode: l.Mode != ""} {
		a.says[said] = a.says[said] || there
	}
	return &a, nil
}

// windowZone is the zone of a window.
var windowZone = regexp.MustCompile(`^when\s*"[^"]*"\s*@\s*(\S+)`)

// noCarry is what a budget says that carries nothing: the amount is zero in any form, with or without a dollar sign.
var noCarry = regexp.MustCompile(` carry \$?0+(\.0+)?( [^"]*)?$`)

// cut returns a budget without the words that remove a part, which it notes as said.
func (a *asked) cut(text string) string {
	text, a.says[partMode] = strings.CutSuffix(text, noMode)
	for word, of := range map[string]part{noWindows: partWindows, noFloors: partFloors} {
		before, after, found := strings.Cut(text, word)
		if a.says[of] = found && (after == "" || after[0] == ' '); a.says[of] {
			text = before + after
		}
	}
	at := noCarry.FindStringSubmatchIndex(text)
	if a.says[partCarry] = at != nil; at == nil {
		return text
	}
	rest := ""
	if at[4] >= 0 {
		rest = text[at[4]:]
	}
	return text[:at[0]] + rest
}

// rule returns the rule in the error of a limit, without the text of the limit.
func rule(err error) string {
	_, rule, _ := strings.Cut(err.Error(), `": `)
	return rule
}

// over returns the budget that a level with limits gets, and the parts that are kept of the stored one. The zone is kept of any limit: those
// of a level have one zone.
func (a *asked) over(limits []zlimit.Limit) (budget zlimit.Limit, kept []part) {
	budget = a.Limit
	keep := func(p part, differs bool, set func()) {
		if a.says[p] || !differs {
			return
		}
		if set(); p == partZone { // which stands first, as in a text
			kept = slices.Insert(kept, 0, p)
			return
		}
		kept = append(kept, p)
	}
	if at := slices.IndexFunc(limits, isBudget); at >= 0 {
		stored := &limits[at]
		times := timesOf(stored)
		keep(partPeriod, times != timesOf(&budget), func() { keepPeriod(&budget, stored) })
		if cycle := cycleOf(stored); !a.says[partZone] && cycle != "" && cycle == cycleOf(&budget) {
			budget.Resets = stored.Resets // its day and hour are in the zone
		}
		keep(partCarry, stored.Carry != budget.Carry, func() { budget.Carry = stored.Carry })
		keep(partWindows, stored.Windows != budget.Windows, func() { budget.Windows = stored.Windows })
		keep(partFloors, stored.Floors != budget.Floors, func() { budget.Floors = stored.Floors })
		keep(partMode, stored.Mode != budget.Mode, func() { budget.Mode = stored.Mode })
	}
	if budget.Resets == "" && budget.Windows == "" {
		budget.Zone = ""
		return budget, kept
	}
	if at := slices.IndexFunc(limits, func(l zlimit.Limit) bool { return l.Zone != "" }); at >= 0 && !slices.Contains(kept, partPeriod) {
		keep(partZone, limits[at].Zone != budget.Zone, func() { budget.Zone = limits[at].Zone })
	}
	return budget, kept
}

// times are what decides when a budget gets tokens.
type times struct {
	resets, zone    string
	session, period int64
}

func timesOf(l *zlimit.Limit) times {
	return times{l.Resets, l.Zone, int64(l.Session), int64(l.RefillPeriod)}
}

// keepPeriod gives a budget of an amount alone the period of the stored one, and its refill where that is not the amount.
func keepPeriod(budget, stored *zlimit.Limit) {
	budget.Resets, budget.Zone, budget.Session, budget.RefillPeriod = stored.Resets, stored.Zone, stored.Session, stored.RefillPeriod
	if budget.RefillAmount = stored.RefillAmount; stored.RefillAmount == stored.Capacity {
		budget.RefillAmount = budget.Capacity
	}
}

// cycleOf returns day, week or month for a quota that resets once in it, "" for another limit.
func cycleOf(l *zlimit.Limit) string {
	_, period, _ := strings.Cut(l.String(), "/")
	cycle, _, found := strings.Cut(period, "@")
	if !found || strings.Contains(cycle, " ") {
		return ""
	}
	return cycle
}

func hasBudget(limits []zlimit.Limit) bool { return slices.ContainsFunc(limits, isBudget) }

func isBudget(l zlimit.Limit) bool { return l.Name == grammar.Money }
