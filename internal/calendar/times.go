// Package calendar computes when quotas reset, and when other parameters of limits apply. These are the same times of
// days, weeks, months or years, as clocks of a zone show them. It is pure: the caller passes the time, in epoch
// milliseconds.
package calendar

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"
)

// Never is later than every instant.
const Never = math.MaxInt64

// Times are instants of the calendar: those at which one of their patterns begins. A pattern begins with a matching
// minute after one that does not match. Where clocks change, a skipped minute is at the change, and a minute shown
// twice is once. Times are never changed, and safe for concurrent use.
type Times struct {
	patterns []pattern
	zone     *time.Location
	text     string // of the patterns, compact
	cron     string // of the patterns, in the language of cron
	place    string // name of the zone

	last atomic.Pointer[interval] // that was asked for; nil at first
}

// An interval is between two instants of Times that follow each other: the first is of it, and the second is not.
type interval struct{ from, to int64 }

// Parse returns the times of patterns in the language of cron, with semicolons between them, in a zone of the IANA database. It
// returns the same times again where it can, so that they compare quickly.
func Parse(patterns, zone string) (*Times, error) {
	var texts []string
	for text := range strings.SplitSeq(patterns, ";") {
		texts = append(texts, strings.TrimSpace(text))
	}
	return parse(texts, zone)
}

// compactVersion is the beginning of the compact form.
const compactVersion = "1"

// IsLater reports whether times or windows are in a later version of the compact form than [Decode] and [DecodeWindows] know.
func IsLater(compact string) bool {
	digits := len(compact) - len(strings.TrimLeft(compact, "0123456789"))
	return digits > 0 && compact[0] != '0' && compact[:digits] != compactVersion
}

// Decode returns the times that items hold, see [Times.Compact], as [Parse] does.
func Decode(compact, zone string) (*Times, error) {
	key := [2]string{compact, zone}
	if t := decoded.get(key); t != nil {
		return t, nil
	}
	body, ok := strings.CutPrefix(compact, compactVersion)
	if !ok || body != "" && body[0] >= '0' && body[0] <= '9' {
		return nil, fmt.Errorf("times %q are not in version %s of the compact form", compact, compactVersion)
	}
	var texts []string
	for text := range strings.SplitSeq(body, ";") {
		expanded, err := expand(text)
		if err != nil {
			return nil, err
		}
		texts = append(texts, expanded)
	}
	return parse(texts, zone)
}

// maxPatterns bounds the patterns of one limit.
const maxPatterns = 16

func parse(texts []string, zone string) (*Times, error) {
	if len(texts) > maxPatterns {
		return nil, fmt.Errorf("must be at most %d patterns, and not %d", maxPatterns, len(texts))
	}
	place, err := load(zone)
	if err != nil {
		return nil, err
	}
	t := &Times{zone: place, place: zone}
	var compact, cron []string
	for _, text := range texts {
		p, err := parsePattern(text)
		if err == nil {
			err = p.check()
		}
		if err != nil {
			return nil, err
		}
		t.patterns = append(t.patterns, p)
		compact, cron = append(compact, p.compact()), append(cron, p.String())
	}
	t.text, t.cron = compactVersion+strings.Join(compact, ";"), strings.Join(cron, "; ")
	return decoded.keep([2]string{t.text, t.place}, t), nil
}

// Compact returns the patterns in the form of items: a version, and for each pattern its fields with a letter before
// them. An example is 1m0h0D1, midnight on the first day of each month.
func (t *Times) Compact() string { return t.text }

// Zone returns the name of the zone.
func (t *Times) Zone() string { return t.place }

// String returns the patterns in the language of cron, with semicolons between them.
func (t *Times) String() string { return t.cron }

// Equal reports whether two times, which may be nil, are of the same patterns in the same zone.
func (t *Times) Equal(other *Times) bool {
	return t == other || t != nil && other != nil && t.text == other.text && t.place == other.place
}

// Between reports whether one of the times is after an instant, and not after another one.
func (t *Times) Between(after, until int64) bool { return until > after && t.Next(after) <= until }

// Bounds of the instants that clocks show in four digits of a year, in epoch milliseconds.
const (
	firstInstant = -62_135_596_800_000
	lastInstant  = 253_402_300_799_999
)

// Next returns the first of the times after an instant, or Never.
func (t *Times) Next(after int64) int64 {
	if last := t.last.Load(); last != nil && last.from <= after && after < last.to {
		return last.to
	}
	if after > lastInstant {
		return Never
	}
	next := int64(Never)
	for i := range t.patterns {
		next = min(next, t.patterns[i].next(t.zone, max(after, firstInstant)))
	}
	t.last.Store(&interval{after, next})
	return next
}

// Last returns the last of the times that is not after an instant, and false if none is in the 50 years before it.
func (t *Times) Last(until int64) (at int64, ok bool) {
	for back := int64(2 * 60 * 1000); back < 50*366*secondsOfDay*1000; back *= 2 {
		for next := t.Next(until - back); next <= until; next = t.Next(next) {
			at, ok = next, true
		}
		if ok {
			return at, true
		}
	}
	return 0, false
}

// next is [Times.Next] for one pattern.
func (p *pattern) next(zone *time.Location, after int64) int64 {
	for minute := floorDiv(shown(zone, floorDiv(after, 1000)), 60); ; {
		begins, ok := p.begins(minute + 1)
		if !ok {
			return Never
		}
		if at := reaches(zone, begins*60) * 1000; at > after {
			return at
		}
		minute = begins
	}
}

// Unplaced returns the times of items, for a zone that is not known yet. They are for [Times.Compact] and [Times.In]
// alone.
func Unplaced(compact string) *Times { return &Times{text: compact} }

// In returns the times in a zone, see [Decode].
func (t *Times) In(zone string) (*Times, error) { return Decode(t.text, zone) }
