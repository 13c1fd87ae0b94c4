package zlimit

import (
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
)

// A Window is a length of time over which usage is summed up. Windows follow one another without gaps, and begin on the
// hour, at midnight, or on the first of the month, in UTC.
type Window string

// The windows.
const (
	WindowHourly  Window = "hourly"
	WindowDaily   Window = "daily"
	WindowMonthly Window = "monthly"
)

// ParseWindow returns the window of a name.
func ParseWindow(name string) (Window, error) {
	w := Window(name)
	return w, w.validate()
}

func (w Window) validate() error {
	switch w {
	case WindowHourly, WindowDaily, WindowMonthly:
		return nil
	default:
		return &ValidationError{Field: "window", Value: string(w), Reason: "must be hourly, daily or monthly"}
	}
}

// Start returns the start of the window that a time is in, in UTC.
func (w Window) Start(t time.Time) time.Time {
	year, month, day := t.UTC().Date()
	hour := 0
	switch w {
	case WindowMonthly:
		day = 1
	case WindowDaily:
	default:
		hour = t.UTC().Hour()
	}
	return time.Date(year, month, day, hour, 0, 0, 0, time.UTC)
}

// End returns the end of the window that a time is in, in UTC: the start of the next one.
func (w Window) End(t time.Time) time.Time {
	start := w.Start(t)
	switch w {
	case WindowMonthly:
		return start.AddDate(0, 1, 0)
	case WindowDaily:
		return start.AddDate(0, 0, 1)
	default:
		return start.Add(time.Hour)
	}
}

func (w Window) key(start time.Time) string { return layout.WindowKey(string(w), start) }

// parseWindowKey returns the window of a key and its start; false when it is none.
func parseWindowKey(key string) (w Window, start time.Time, ok bool) {
	for _, w := range []Window{WindowHourly, WindowDaily, WindowMonthly} {
		if start, err := time.Parse(layout.WindowFormat(string(w)), key); err == nil && w.key(w.Start(start)) == key {
			return w, start, true
		}
	}
	return "", time.Time{}, false
}
