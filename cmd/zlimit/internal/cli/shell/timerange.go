package shell

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// A TimeRange is the range of time that the flags of a command give.
type TimeRange struct{ since, from, to string }

// RangeHelp explains the flags.
const RangeHelp = `A range begins at --from, or --since some time ago, and ends before --to.
A TIME is now, today, yesterday, tomorrow, a month such as 2026-03, a date such
as 2026-03-01, or a time such as 2026-03-01T15:04. A day and a month stand for
the moment at which they begin. All of them are in UTC, as windows are; other
zones are for RFC 3339, such as 2026-03-01T15:04:05+01:00. An AGE is a number of
weeks, days, hours, minutes and seconds, such as 2w, 36h or 1d12h30m.`

// Flags adds the flags to a command.
func (r *TimeRange) Flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.since, "since", "", "`AGE` at which the range begins, such as 24h or 7d")
	cmd.Flags().StringVar(&r.from, "from", "", "`TIME` at which the range begins")
	cmd.Flags().StringVar(&r.to, "to", "", "`TIME` that the range ends before")
}

// Parse returns the range as seen at a time; an end that is not given is zero.
func (r *TimeRange) Parse(cmd *cobra.Command, now time.Time) (from, to time.Time, err error) {
	given := cmd.Flags().Changed
	if given("since") && given("from") {
		return from, to, Usagef("%s: --since excludes --from", CommandName(cmd))
	}
	if given("since") {
		age, ok := ParseAge(r.since)
		if !ok {
			return from, to, Usagef("%s: --since %q: must be an age such as 24h, 7d, 2w or 1d12h", CommandName(cmd), r.since)
		}
		from = now.Add(-age).UTC()
	}
	for _, end := range []struct {
		flag, text string
		at         *time.Time
	}{{"from", r.from, &from}, {"to", r.to, &to}} {
		if !given(end.flag) {
			continue
		}
		at, ok := ParseMoment(end.text, now)
		if !ok {
			return from, to, Usagef("%s: --%s %q: must be now, today, yesterday, tomorrow, a month such as 2026-03, a date such as"+
				" 2026-03-01, or a time such as 2026-03-01T15:04 or 2026-03-01T15:04:05+01:00", CommandName(cmd), end.flag, end.text)
		}
		*end.at = at
	}
	if !from.IsZero() && !to.IsZero() && !from.Before(to) {
		return from, to, Usagef("%s: the range ends at %s, and does not begin before", CommandName(cmd), FormatMoment(to))
	}
	return from, to, nil
}

// ParseEnd parses when something ends: a TIME, or an AGE from a time on. A flag has the text.
func ParseEnd(flag, text string, now time.Time) (time.Time, error) {
	if age, ok := ParseAge(text); ok {
		return now.Add(age).UTC(), nil
	}
	if at, ok := ParseMoment(text, now); ok {
		return at, nil
	}
	return time.Time{}, Usagef("--%s %q: must be a time such as 2026-03-01, 2026-03-01T15:04 or 2026-03-01T15:04:05+01:00, or a duration such as 36h or 2d", flag, text)
}

// momentForms are the forms of a TIME. Those without a zone are in UTC.
var momentForms = []string{"2006-01", time.DateOnly, "2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339, "2006-01-02T15:04Z07:00"}

// ParseMoment parses a TIME; false for any other text.
func ParseMoment(text string, now time.Time) (time.Time, bool) {
	today := now.UTC().Truncate(24 * time.Hour)
	switch text {
	case "now":
		return now.UTC(), true
	case "today":
		return today, true
	case "yesterday":
		return today.AddDate(0, 0, -1), true
	case "tomorrow":
		return today.AddDate(0, 0, 1), true
	}
	for _, form := range momentForms {
		if t, err := time.Parse(form, text); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// ageUnits are the units of an AGE, in the order in which they are given.
var ageUnits = []struct {
	name   byte
	length time.Duration
}{{'w', 7 * 24 * time.Hour}, {'d', 24 * time.Hour}, {'h', time.Hour}, {'m', time.Minute}, {'s', time.Second}}

// maxAge is the greatest number of one unit of an AGE.
const maxAge = 9999

// ParseAge parses an AGE; false for any other text.
func ParseAge(text string) (age time.Duration, ok bool) {
	for _, unit := range ageUnits {
		digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
		if digits == 0 || digits == len(text) || text[digits] != unit.name {
			continue
		}
		n, err := strconv.Atoi(text[:digits])
		if err != nil || n > maxAge {
			return 0, false
		}
		age += time.Duration(n) * unit.length
		text = text[digits+1:]
	}
	return age, text == "" && age > 0
}

// FormatMoment returns a time in the shortest form that a TIME is read in, to the second.
func FormatMoment(t time.Time) string {
	t = t.UTC()
	switch {
	case t.Second() != 0:
		return t.Format("2006-01-02T15:04:05")
	case t.Hour() != 0 || t.Minute() != 0:
		return t.Format("2006-01-02T15:04")
	default:
		return t.Format(time.DateOnly)
	}
}
