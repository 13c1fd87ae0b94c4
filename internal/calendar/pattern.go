package calendar

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A field is one of the five parts of a pattern.
type field struct {
	name        string
	tag         byte // before it in the compact form
	least, most int
	words       []string // for its values from least on
}

// fields are the parts of a pattern in their order. Day 7 of a week is Sunday, as day 0 is.
var fields = [...]field{
	{"minute", 'm', 0, 59, nil},
	{"hour", 'h', 0, 23, nil},
	{"day of month", 'D', 1, 31, nil},
	{"month", 'M', 1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{"day of week", 'w', 0, 7, strings.Fields("sun mon tue wed thu fri sat")},
}

// The numbers of the fields.
const (
	minute = iota
	hour
	dayOfMonth
	month
	dayOfWeek
)

// A pattern is a set of minutes of the calendar, in the language of cron: minute, hour, day of month, month, day of week.
type pattern struct {
	texts [len(fields)]string // with numbers in place of words
	sets  [len(fields)]uint64 // bit n is value n
}

// parsePattern parses five fields with white space between them.
func parsePattern(text string) (p pattern, err error) {
	parts := strings.Fields(text)
	if len(parts) != len(fields) {
		return p, fmt.Errorf("%q must have the five fields minute, hour, day of month, month and day of week", text)
	}
	for i, part := range parts {
		if err := p.set(i, part); err != nil {
			return p, fmt.Errorf("%q: %w", text, err)
		}
	}
	return p, nil
}

// set parses a field.
func (p *pattern) set(i int, text string) error {
	var terms []string
	for term := range strings.SplitSeq(strings.ToLower(text), ",") {
		set, numbers, err := fields[i].parse(term)
		if err != nil {
			return fmt.Errorf("%s %q %w", fields[i].name, text, err)
		}
		p.sets[i] |= set
		terms = append(terms, numbers)
	}
	p.texts[i] = strings.Join(terms, ",")
	if i == dayOfWeek { // Sunday is both 0 and 7
		p.sets[i] = (p.sets[i] | p.sets[i]>>7) & (1<<7 - 1)
	}
	return nil
}

// parse parses a term of a field: *, a value or a range, perhaps with a step. A step after a single value goes on up to
// the largest one. The returned text has numbers in place of words, and 7 for a Sunday that stands alone.
func (f *field) parse(term string) (set uint64, numbers string, err error) {
	span, step, hasStep := strings.Cut(term, "/")
	first, last := f.least, f.most
	if numbers = span; span != "*" {
		from, to, isRange := strings.Cut(span, "-")
		if first, err = f.value(from); err != nil {
			return 0, "", err
		}
		last, numbers = first, strconv.Itoa(first)
		if isRange {
			if last, err = f.value(to); err != nil {
				return 0, "", err
			}
			numbers += "-" + strconv.Itoa(last)
		}
		switch {
		case last < first:
			return 0, "", fmt.Errorf("has a range that ends before it begins: %s", span)
		case first == last && hasStep:
			last = f.most
		case f.tag == 'w' && numbers == "0":
			numbers = "7"
		}
	}
	every := 1
	if hasStep {
		if every, err = f.number(step); err != nil || every == 0 {
			return 0, "", fmt.Errorf("has a step that is not a number from 1 up: %s", term)
		}
		numbers += "/" + strconv.Itoa(every)
	}
	for v := first; v <= last; v += every {
		set |= 1 << v
	}
	return set, numbers, nil
}

// value parses a value, as a number or a word.
func (f *field) value(text string) (int, error) {
	if at := slices.Index(f.words, text); at >= 0 {
		return f.least + at, nil
	}
	n, err := f.number(text)
	if err != nil || n < f.least || n > f.most {
		words := ""
		if len(f.words) > 0 {
			words = fmt.Sprintf(", or from %s to %s", f.words[0], f.words[len(f.words)-1])
		}
		return 0, fmt.Errorf("has %q, which is not from %d to %d%s", text, f.least, f.most, words)
	}
	return n, nil
}

// number parses decimal digits.
func (f *field) number(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 8)
	return int(n), err
}

// check reports a pattern that matches no minute, or every minute. The latter never begins.
func (p *pattern) check() error {
	_, ok := p.begins(0)
	switch all := p.texts == [len(fields)]string{"*", "*", "*", "*", "*"}; {
	case !ok && all:
		return fmt.Errorf("%q is of every minute, and never begins", p)
	case !ok:
		return fmt.Errorf("%q never begins", p)
	default:
		return nil
	}
}

// String returns the five fields.
func (p *pattern) String() string { return strings.Join(p.texts[:], " ") }

// compact returns the fields with a tag before each. Fields of all values are left out.
func (p *pattern) compact() string {
	var b strings.Builder
	for i, text := range p.texts {
		if text != "*" {
			b.WriteByte(fields[i].tag)
			b.WriteString(text)
		}
	}
	return b.String()
}

// expand returns the five fields of the compact form of a pattern.
func expand(compact string) (string, error) {
	texts := [len(fields)]string{"*", "*", "*", "*", "*"}
	last := -1
	for rest := compact; rest != ""; {
		i := slices.IndexFunc(fields[:], func(f field) bool { return f.tag == rest[0] })
		if i <= last {
			return "", fmt.Errorf("%q is no pattern in the compact form", compact)
		}
		end := 1 + strings.IndexFunc(rest[1:], func(c rune) bool { return !strings.ContainsRune("0123456789*,-/", c) })
		if end == 0 {
			end = len(rest)
		}
		texts[i], rest, last = rest[1:end], rest[end:], i
	}
	return strings.Join(texts[:], " "), nil
}

// searchDays is the number of days in which a pattern begins, if ever. Two leap days on one day of the week are at most
// 40 years apart.
const searchDays = 41 * 366

// begins returns the first matching minute after a minute that does not match, from one on. Minutes are in local time, counted from the
// beginning of 1970 as if no clock were ever changed.
func (p *pattern) begins(from int64) (at int64, ok bool) {
	day, first := floorDiv(from, minutesOfDay), floorMod(from, minutesOfDay)
	for end := day + searchDays; day < end; day, first = day+1, 0 {
		date := time.Unix(day*secondsOfDay, 0).UTC()
		if p.sets[month]>>uint(date.Month())&1 == 0 {
			day += int64(time.Date(date.Year(), date.Month()+1, 1, 0, 0, 0, 0, time.UTC).Sub(date)/(24*time.Hour)) - 1
			continue
		}
		if !p.isOn(date) {
			continue
		}
		if m, ok := p.beginsOn(date, first); ok {
			return day*minutesOfDay + m, true
		}
	}
	return 0, false
}

const (
	minutesOfDay = 24 * 60
	secondsOfDay = 24 * 60 * 60
)

// beginsOn is begins for the minutes of one day that the pattern is of, from one on.
func (p *pattern) beginsOn(date time.Time, from int64) (at int64, ok bool) {
	for hours := p.sets[hour] >> (from / 60) << (from / 60); hours != 0; hours &= hours - 1 {
		h := int64(bits.TrailingZeros64(hours))
		starts := p.sets[minute] &^ (p.sets[minute] << 1)
		if p.sets[minute]&1 != 0 && p.endsHourBefore(date, h) {
			starts &^= 1
		}
		if past := from - 60*h; past > 0 {
			starts = starts >> past << past
		}
		if starts != 0 {
			return 60*h + int64(bits.TrailingZeros64(starts)), true
		}
	}
	return 0, false
}

// endsHourBefore reports whether the minute before an hour of a day is of the pattern.
func (p *pattern) endsHourBefore(date time.Time, h int64) bool {
	if p.sets[minute]>>59&1 == 0 {
		return false
	}
	if h > 0 {
		return p.sets[hour]>>(h-1)&1 != 0
	}
	yesterday := date.AddDate(0, 0, -1)
	return p.sets[hour]>>23&1 != 0 && p.sets[month]>>uint(yesterday.Month())&1 != 0 && p.isOn(yesterday)
}

// isOn reports whether the pattern is of a day, whose month it is of. Either of two restricted fields suffices, and both
// are asked where one of them begins with *.
func (p *pattern) isOn(date time.Time) bool {
	ofMonth := p.sets[dayOfMonth]>>uint(date.Day())&1 != 0
	ofWeek := p.sets[dayOfWeek]>>uint(date.Weekday())&1 != 0
	if p.isOfBoth() {
		return ofMonth && ofWeek
	}
	return ofMonth || ofWeek
}

func floorDiv(a, b int64) int64 { return (a - floorMod(a, b)) / b }

func floorMod(a, b int64) int64 { return (a%b + b) % b }
