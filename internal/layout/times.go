package layout

import "time"

// TimeFormat is the form of times in items: whole seconds in UTC.
const TimeFormat = "2006-01-02T15:04:05Z"

// FormatTime returns a time as items have it.
func FormatTime(t time.Time) string { return t.UTC().Format(TimeFormat) }

// ParseTime returns the time that an item has. It is in whole seconds, or in items of other programs with a fraction
// and in another zone. A text that is no time is the zero time.
func ParseTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// seconds returns the epoch second that a time in epoch milliseconds is in.
func seconds(millis int64) int64 {
	n := millis / 1000
	if millis%1000 < 0 {
		n--
	}
	return n
}
