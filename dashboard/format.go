package dashboard

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/recent"
)

const nanoDollars = 1e9

// isMoney reports whether amounts of a limit are billionths of a dollar: a limit of the name usd is always in money.
func isMoney(limit string) bool { return limit == "usd" }

// amount writes an amount of a limit in few characters: $38.20, 1,420, 42k, 1.5M.
func amount(limit string, tokens float64) string {
	if !isMoney(limit) {
		return count(tokens)
	}
	return dollars(tokens / nanoDollars)
}

func dollars(d float64) string {
	switch {
	case d < 0:
		return "−" + dollars(-d)
	case d >= 1e6:
		return "$" + short(d/1e6) + "M"
	case d >= 100 || d == math.Trunc(d):
		return "$" + grouped(int64(math.Round(d)))
	case d < 0.01:
		return "< $0.01"
	default:
		return "$" + strconv.FormatFloat(d, 'f', 2, 64)
	}
}

// axisAmount is an amount that is round.
func axisAmount(limit string, tokens float64) string {
	if d := tokens / nanoDollars; isMoney(limit) && d >= 10_000 && d < 1e6 {
		return "$" + short(d/1000) + "k"
	}
	return amount(limit, tokens)
}

func count(n float64) string {
	switch {
	case n < 0:
		return "−" + count(-n)
	case n >= 999.5e6:
		return short(n/1e9) + "G"
	case n >= 999.5e3:
		return short(n/1e6) + "M"
	case n >= 10e3:
		return strconv.FormatFloat(n/1e3, 'f', 0, 64) + "k"
	default:
		return grouped(int64(math.Round(n)))
	}
}

func short(n float64) string {
	if n >= 100 {
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 1, 64), ".0")
}

// aSecond writes how many there are in a second.
func aSecond(n float64) string {
	if n < 9.95 {
		return short(n)
	}
	return grouped(int64(n + 0.5))
}

func grouped(n int64) string { return strings.Replace(humanize.Comma(n), "-", "−", 1) }

func percent(part float64) string {
	switch {
	case part > 0 && part < 0.001:
		return "< 0.1 %"
	case part < 0.0995:
		return strings.TrimSuffix(strconv.FormatFloat(100*part, 'f', 1, 64), ".0") + " %"
	default:
		return strconv.FormatFloat(100*part, 'f', 0, 64) + " %"
	}
}

// signedPercent writes a change.
func signedPercent(part float64) string {
	text := strconv.FormatFloat(math.Abs(100*part), 'f', 0, 64)
	switch {
	case text == "0":
		return "±0 %"
	case part < 0:
		return "−" + text + " %"
	default:
		return "+" + text + " %"
	}
}

// span writes a duration in its largest unit or two.
func span(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + " µs"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return short(d.Seconds()) + " s"
	case d < 100*time.Second:
		return short(math.Round(d.Seconds())) + " s"
	case d < 100*time.Minute:
		return short(math.Round(d.Minutes())) + " min"
	case d < 48*time.Hour:
		return plural(int64(math.Round(d.Hours())), "hour")
	default:
		return plural(int64(math.Round(d.Hours()/24)), "day")
	}
}

// plural writes a number of things, with a verb after it if there is one: "1 entity is", "3 entities are".
func plural(n int64, words string) string {
	if n == 1 {
		return "1 " + words
	}
	noun, verb, _ := strings.Cut(words, " ")
	irregular := map[string]string{"person": "people", "is": " are", "was": " were", "has": " have", "waits": " wait", "begins": " begin"}
	return grouped(n) + " " + english.PluralWord(0, noun, irregular[noun]) + irregular[verb]
}

// moreThan writes a number of things that was not counted to its end.
func moreThan(more bool, text string) string {
	if more {
		return "More than " + text
	}
	return text
}

// moment writes a time as people in a zone say it, as short as it stays clear beside now.
func moment(t, now time.Time, zone *time.Location) string {
	t, now = t.In(zone), now.In(zone)
	switch {
	case t.IsZero():
		return "–"
	case t.YearDay() == now.YearDay() && t.Year() == now.Year():
		if t.Sub(now).Abs() < 10*time.Minute {
			return t.Format("15:04:05")
		}
		return t.Format("15:04")
	case t.Year() == now.Year() || t.Sub(now).Abs() < 90*24*time.Hour:
		return t.Format("2 Jan, 15:04")
	default:
		return t.Format("2 Jan 2006")
	}
}

// named writes the name of an entity or resource as it was given; text from elsewhere is escaped in [zlimit.Name].
func named(name string) string {
	if text, ok := zlimit.OriginalName(name); ok {
		return text
	}
	return name
}

// limitName is the name of a limit with the period of a quota: "usd a day".
func limitName(l *zlimit.Limit) string {
	return strings.TrimSpace(titled(l.Name) + " " + period(l))
}

// titled is the name of a limit above a column.
func titled(limit string) string {
	if isMoney(limit) {
		return "USD"
	}
	return limit
}

// per is the period of a quota in few characters: "/month".
func per(l *zlimit.Limit) string {
	if word, ok := strings.CutPrefix(period(l), "a "); ok && word != "period" {
		return "/" + word
	}
	return ""
}

func period(l *zlimit.Limit) string {
	fields := strings.Fields(l.Resets)
	switch {
	case len(fields) == 0:
		return ""
	case strings.Contains(l.Resets, ";") || len(fields) != 5:
		return "a period"
	case fields[2] == "*" && fields[4] == "*" && !strings.Contains(fields[1], "*"):
		return "a day"
	case fields[2] == "*" && fields[3] == "*" && fields[4] != "*":
		return "a week"
	case fields[2] != "*" && fields[3] == "*":
		return "a month"
	default:
		return "a period"
	}
}

// limitText writes what a limit allows: "400k a minute", "$8,000 a month, UTC", "20 at a time".
func limitText(l *zlimit.Limit) string {
	text := amount(l.Name, float64(l.Capacity))
	switch {
	case l.Term > 0:
		return text + " at a time"
	case l.Resets != "":
		text += " " + cmp.Or(period(l), "a period") + ", " + l.Zone
		if l.Carry > 0 {
			text += ", carries up to " + amount(l.Name, float64(l.Carry))
		}
		return text
	case isPrepaid(l):
		return text + ", prepaid"
	case l.Session > 0:
		return text + " a session of " + span(l.Session)
	}
	rate := amount(l.Name, float64(l.RefillAmount)) + " " + each(l.RefillPeriod)
	if l.RefillAmount != l.Capacity {
		return rate + ", up to " + text
	}
	return rate
}

func each(d time.Duration) string {
	named := map[time.Duration]string{time.Second: "a second", time.Minute: "a minute", time.Hour: "an hour", 24 * time.Hour: "a day"}
	return cmp.Or(named[d], "in "+span(d))
}

// limitChange writes how a limit differs: "400k → 500k a minute".
func limitChange(was, is *zlimit.Limit) string {
	simple := func(l *zlimit.Limit) bool {
		return l.Resets == "" && l.Session == 0 && (l.Term > 0 || l.RefillAmount == l.Capacity)
	}
	same := *was
	same.Capacity, same.RefillAmount = is.Capacity, is.RefillAmount
	if same == *is && (simple(was) && simple(is) || is.Resets != "") {
		return amount(was.Name, float64(was.Capacity)) + " → " + limitText(is)
	}
	if is.Mode != was.Mode && is.Mode != zlimit.ModeEnforced {
		return limitText(was) + " → " + limitText(is) + ", " + string(is.Mode)
	}
	return limitText(was) + " → " + limitText(is)
}

// limitNamed returns the limit of a name, nil if there is none.
func limitNamed(limits []zlimit.Limit, name string) *zlimit.Limit {
	for i := range limits {
		if limits[i].Name == name {
			return &limits[i]
		}
	}
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func zoneOf(l *zlimit.Limit) *time.Location {
	if zone, err := time.LoadLocation(l.Zone); err == nil && l.Zone != "" {
		return zone
	}
	return time.UTC
}

// whose names a limit, with its entity if that is a parent.
func whose(st *zlimit.Status, id string) string {
	if st.Entity == id {
		return limitName(&st.Limit)
	}
	return limitName(&st.Limit) + " of " + named(st.Entity)
}

// leftOf is what a limit that refuses has, or owes.
func leftOf(c *recent.Cause) string {
	left := amount(c.Limit, math.Abs(float64(c.Status.Available)))
	if !isMoney(c.Limit) {
		left += " tokens"
	}
	return left
}
