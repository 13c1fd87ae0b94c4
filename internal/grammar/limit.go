// Package grammar is what limits and names look like as text: for the SDK, the command, and files of limits alike.
package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxTokens is the largest number of tokens: its millitokens fit an int64.
const MaxTokens = math.MaxInt64 / 1000

// A Limit is a token bucket as text has it: NAME=CAPACITY[:REFILL]/PERIOD, such as tpm=400_000/min or tpm=10000:4000/30s. It holds CAPACITY
// tokens, and REFILL of them flow in per PERIOD; without REFILL as many as it holds. A quota is NAME=AMOUNT/TIMES, such as
// tokens=1M/month@Europe/Berlin, and resets at these times. One for sessions is NAME=AMOUNT/session:LENGTH, such as tokens=2M/session:5h. A
// prepaid limit, which never refills, is NAME=AMOUNT/never. Windows may follow, in which other parameters hold: rpm=60/min when "* 9-17 * *
// 1-5"@Europe/Berlin x2. Floors of priorities follow: rpm=60/min floors batch=20, or batch=20+5 with a guaranteed share. At the end stands
// soft or shadow, for a limit that refuses nothing: rpm=60/min shadow. Slots are NAME=NUMBER slots/TERM, such as workers=20 slots/30s.
// Limits in money count nano-dollars, and have amounts in dollars: usd=25/month@UTC, or budget=$2.50/h for another name than [Money].
type Limit = LimitOf[string]

// A LimitOf is a limit whose mode has a type. It has the fields of a limit of the SDK, in their order, so that a conversion makes the one of
// the other.
type LimitOf[M ~string] struct {
	Name         string
	Capacity     int64 // tokens
	RefillAmount int64 // tokens per period; 0 for a quota
	RefillPeriod time.Duration
	Resets       string        // of a quota: patterns of cron, with semicolons between them
	Zone         string        // the IANA name of the zone of times and windows
	Windows      string        // patterns of cron with other parameters, for the minutes that match; semicolons between them
	Floors       string        // of priorities: PRIORITY=PERCENT of the capacity, with spaces between them
	Term         time.Duration // of slots, whose number is Capacity, and which have nothing else
	Session      time.Duration // length of the sessions of a session quota; 0 for another limit
	Carry        int64         // most of what is left that a quota carries into its next period, tokens; 0 for nothing
	Mode         M             // [Soft] or [Shadow], or "" for a limit that refuses requests
}

// WithMode returns a limit whose mode is of another type.
func WithMode[N, M ~string](l LimitOf[M]) LimitOf[N] {
	return LimitOf[N]{
		Name: l.Name, Capacity: l.Capacity, RefillAmount: l.RefillAmount, RefillPeriod: l.RefillPeriod, Resets: l.Resets, Zone: l.Zone,
		Windows: l.Windows, Floors: l.Floors, Term: l.Term, Session: l.Session, Carry: l.Carry, Mode: N(l.Mode),
	}
}

// ParseLimit parses a limit. White space around its parts is left out. It does not check the name.
func ParseLimit(text string) (Limit, error) {
	name, rate, ok := Cut(text, "=")
	if ok && name != "" && strings.Contains(rate, "slot") && !strings.Contains(rate, "/") {
		return Limit{}, errors.New("slots must be NAME=NUMBER slots/TERM, such as workers=20 slots/30s")
	}
	if !ok || name == "" || !strings.Contains(rate, "/") {
		return Limit{}, errors.New("must be NAME=CAPACITY[:REFILL]/PERIOD, such as tpm=400000/min")
	}
	return ParseRate(name, rate)
}

// ParseRate parses what follows the name of a limit: CAPACITY[:REFILL]/PERIOD, AMOUNT/TIMES for a quota, or NUMBER slots/TERM. Amounts of
// the limit [Money] are dollars, and so are those after a dollar sign.
func ParseRate(name, text string) (Limit, error) {
	l, err := parseRateOf(name, text)
	l.Name = name
	return l, err
}

func parseRateOf(name, text string) (Limit, error) {
	text, mode := cutMode(text)
	if words := strings.Fields(text); slices.Contains(words, Soft) || slices.Contains(words, Shadow) {
		return Limit{}, errors.New("one of soft and shadow stands last, behind windows and floors")
	}
	text, floors, floored := cutFloors(text)
	text, windows := cutWindows(text)
	if l, err, ok := parseSlots(text); ok {
		if err == nil && (floored || len(windows) > 0 || mode != "") {
			err = errors.New("slots have neither windows nor floors, and are neither soft nor shadow")
		}
		return l, err
	}
	l, err := parseRate(name, text)
	if err == nil && len(windows) > 0 {
		err = l.setWindows(windows)
	}
	if err == nil && floored {
		l.Floors, err = ParseFloors(floors)
	}
	l.Mode = mode
	return l, err
}

// parseSlots parses slots: NUMBER slots/TERM. It returns false for another limit.
func parseSlots(text string) (l Limit, err error, ok bool) {
	number, term, _ := Cut(text, "/")
	number, isSlots := strings.CutSuffix(number, " slots")
	if !isSlots {
		if number, isSlots = strings.CutSuffix(number, " slot"); !isSlots {
			return l, nil, false
		}
	}
	if l.Capacity, err = ParseTokens(strings.TrimSpace(number), 1); err != nil {
		return l, fmt.Errorf("slots %w", err), true
	}
	if l.Term, err = ParsePeriod(term); err != nil {
		return l, fmt.Errorf("term: %w", err), true
	}
	return l, nil, true
}

// parseRate is ParseRate for a limit without windows.
func parseRate(name, text string) (Limit, error) {
	var l Limit
	amounts, period, ok := Cut(text, "/")
	if !ok {
		return l, errors.New("must be CAPACITY[:REFILL]/PERIOD, such as 400000/min")
	}
	capacity, refill, hasRefill := Cut(amounts, ":")
	var err error
	if l.Capacity, err = ParseAmount(name, capacity, 1); err != nil {
		return l, fmt.Errorf("capacity %w", err)
	}
	period, carry, carries := cutCarry(period)
	if carries {
		if l.Carry, err = ParseAmount(name, carry, 1); err != nil {
			return l, fmt.Errorf("carry %w", err)
		}
	}
	if isQuota(period) {
		if hasRefill {
			return l, errQuotaRefill
		}
		return l, l.setTimes(period)
	}
	if carries {
		return l, errCarry
	}
	if period == neverForm {
		if hasRefill {
			return l, errors.New("a prepaid limit has no refill: write AMOUNT/never, not CAPACITY:REFILL")
		}
		l.Session = MaxSession
		return l, nil
	}
	if length, ok := strings.CutPrefix(period, sessionForm); ok {
		if hasRefill {
			return l, errQuotaRefill
		}
		l.Session, err = ParseSession(length)
		return l, err
	}
	l.RefillAmount = l.Capacity
	if hasRefill {
		if l.RefillAmount, err = ParseAmount(name, refill, 1); err != nil {
			return l, fmt.Errorf("refill %w", err)
		}
	}
	l.RefillPeriod, err = ParsePeriod(period)
	return l, err
}

// Rate returns the text after the name, in the shortest form that ParseRate reads.
func (l LimitOf[M]) Rate() string {
	if l.Term != 0 {
		return strconv.FormatInt(l.Capacity, 10) + " slots/" + FormatPeriod(l.Term)
	}
	return FormatAmount(l.Name, l.Capacity) + l.refill() + l.windows() + l.floors() + l.mode()
}

// refill returns what follows the capacity: when what flows in, or the times at which all is there again.
func (l *LimitOf[M]) refill() string {
	switch {
	case l.Resets != "":
		return "/" + l.times() + l.carry()
	case l.Session == MaxSession:
		return "/" + neverForm
	case l.Session > 0:
		return "/" + sessionForm + FormatPeriod(l.Session)
	case l.RefillAmount != l.Capacity:
		return ":" + FormatAmount(l.Name, l.RefillAmount) + "/" + FormatPeriod(l.RefillPeriod)
	default:
		return "/" + FormatPeriod(l.RefillPeriod)
	}
}

// String returns the limit in the shortest form that ParseLimit reads.
func (l LimitOf[M]) String() string { return l.Name + "=" + l.Rate() }

// Cut splits a text at the first separator, without the white space around the parts.
func Cut(text, separator string) (before, after string, found bool) {
	before, after, found = strings.Cut(text, separator)
	return strings.TrimSpace(before), strings.TrimSpace(after), found
}

// periods are the names of periods. The first of each length is the one that is written.
var periods = []struct {
	length time.Duration
	names  []string
}{
	{time.Second, []string{"s", "sec", "second", "seconds"}},
	{time.Minute, []string{"min", "m", "minute", "minutes"}},
	{time.Hour, []string{"h", "hour", "hours"}},
	{24 * time.Hour, []string{"d", "day", "days"}},
	{7 * 24 * time.Hour, []string{"w", "week", "weeks"}},
}

// longPeriods are the names of periods that may follow a number, beside the units of Go durations.
var longPeriods = map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour}

// cutLong splits a text such as 2d into its number and the length of its period.
func cutLong(text string) (n int64, length time.Duration, ok bool) {
	if text == "" {
		return 0, 0, false
	}
	length, ok = longPeriods[text[len(text)-1:]]
	n, err := strconv.ParseInt(text[:len(text)-1], 10, 32)
	return n, length, ok && err == nil && n > 0 && text[0] != '+' && time.Duration(n) <= math.MaxInt64/length
}

// ParsePeriod parses the name of a period, a number of days or weeks such as 2d, or a Go duration of whole milliseconds.
func ParsePeriod(text string) (time.Duration, error) {
	for _, p := range periods {
		for _, name := range p.names {
			if name == text {
				return p.length, nil
			}
		}
	}
	if n, length, ok := cutLong(text); ok {
		return time.Duration(n) * length, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d%time.Millisecond != 0 {
		return 0, fmt.Errorf("period %q must be s, min, h, d, w, never, a duration of whole milliseconds such as 90s, 1h30m or 2d, or one of a calendar such as month@UTC", text)
	}
	return d, nil
}

// FormatPeriod returns a period in the shortest form that ParsePeriod reads.
func FormatPeriod(d time.Duration) string {
	for _, p := range periods {
		if p.length == d {
			return p.names[0]
		}
	}
	if d > 0 && d%(24*time.Hour) == 0 {
		return strconv.FormatInt(int64(d/(24*time.Hour)), 10) + "d"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Seconds returns a duration as a JSON number of seconds, exact to the nanosecond.
func Seconds(d time.Duration) json.Number {
	sign, n := "", uint64(d)
	if d < 0 {
		sign, n = "-", -n
	}
	text := fmt.Sprintf("%s%d.%09d", sign, n/uint64(time.Second), n%uint64(time.Second))
	return json.Number(strings.TrimSuffix(strings.TrimRight(text, "0"), "."))
}

// multiples are the letters that may follow a number of tokens.
var multiples = map[byte]int64{'k': 1000, 'M': 1_000_000, 'G': 1_000_000_000}

// ParseTokens parses a number of tokens in decimal digits: 10_000, or 10k. The digits may be in groups. A letter may
// stand for the last three, six or nine of them.
func ParseTokens(text string, least int64) (int64, error) {
	if text != "" && multiples[text[len(text)-1]] > 0 {
		times := multiples[text[len(text)-1]]
		n, err := ParseTokens(text[:len(text)-1], 0)
		if err != nil || n > MaxTokens/times || n*times < least || multiples[text[max(len(text)-2, 0)]] > 0 {
			return 0, notTokens(text, least)
		}
		return n * times, nil
	}
	var n int64
	grouping := true // no "_" may come next
	for i := range len(text) {
		switch c := text[i]; {
		case c == '_' && !grouping:
			grouping = true
		case isDigit(c) && n <= MaxTokens/10:
			n = n*10 + int64(c-'0')
			grouping = false
		default:
			return 0, notTokens(text, least)
		}
	}
	if grouping || n < least || n > MaxTokens {
		return 0, notTokens(text, least)
	}
	return n, nil
}

func notTokens(text string, least int64) error {
	return fmt.Errorf("%q must be a whole number from %d to %d", text, least, int64(MaxTokens))
}
