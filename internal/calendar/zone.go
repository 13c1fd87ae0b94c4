package calendar

import (
	"fmt"
	"sync"
	"time"
)

// zones are the zones that were loaded, by name. There are some hundreds.
var zones sync.Map

// CheckZone returns the rule that the name of a time zone breaks, "" for none.
func CheckZone(name string) (rule string) {
	if _, found := zones.Load(name); found {
		return ""
	}
	if name == "" || name == "Local" {
		return "must be a name of the IANA database, such as UTC or Europe/Berlin"
	}
	z, err := time.LoadLocation(name)
	if err != nil {
		return "is not known to this machine; programs can bring all zones along by importing time/tzdata"
	}
	zones.Store(name, z)
	return ""
}

// load returns the zone of a name of the IANA database.
func load(name string) (*time.Location, error) {
	if rule := CheckZone(name); rule != "" {
		return nil, fmt.Errorf("time zone %q %s", name, rule)
	}
	z, _ := zones.Load(name)
	return z.(*time.Location), nil
}

// longestOffset is more than any zone ever differed from UTC.
const longestOffset = 16 * 60 * 60

// reaches returns the first instant, in epoch seconds, at which the clocks of a zone show a local time or a later one.
// A skipped time is reached at the change, and a time shown twice is reached once. Local time is in seconds from the
// beginning of 1970, as the clocks show it.
func reaches(zone *time.Location, local int64) int64 {
	for at := time.Unix(local-longestOffset, 0).In(zone); ; {
		_, offset := at.Zone()
		start, end := at.ZoneBounds()
		instant := local - int64(offset)
		// Package time has zones with rules end each leap year a day early: that end is not after the last day.
		if end.IsZero() || instant < end.Unix() || !end.After(at) && shown(zone, instant) == local {
			if !start.IsZero() {
				instant = max(instant, start.Unix())
			}
			return instant
		}
		at = end
	}
}

// offsetEnds returns the first instant after another one from which on a zone may have another offset; the zero time for none. Package time
// has zones with rules end each leap year a day early: the end that it returns on the last day of one is past.
func offsetEnds(at time.Time) time.Time {
	for day := at; ; day = day.Add(24 * time.Hour) {
		if _, end := day.ZoneBounds(); end.IsZero() || end.After(at) {
			return end
		}
	}
}

// Midnight returns the instant at which a day begins in a zone, when quotas of that day begin: the first one at which its clocks show
// midnight or later. The day may be out of range, as in [time.Date].
func Midnight(zone *time.Location, year int, month time.Month, day int) time.Time {
	return time.Unix(reaches(zone, time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()), 0).UTC()
}

// Zone returns the zone of a name of the IANA database.
func Zone(name string) (*time.Location, error) { return load(name) }

// shown returns the local time that the clocks of a zone show at an instant in epoch seconds.
func shown(zone *time.Location, instant int64) int64 {
	_, offset := time.Unix(instant, 0).In(zone).Zone()
	return instant + int64(offset)
}
