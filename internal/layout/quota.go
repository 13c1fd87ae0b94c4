package layout

import (
	"cmp"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/store"
)

// defaultZone is the zone of times whose item says none.
const defaultZone = "UTC"

// noTimes stands for a refilling limit beside limits that share their times.
const noTimes = "-"

// validUntilAttribute is the attribute that tells an item with the time 0 from one without a time.
const validUntilAttribute = "vu"

// disabledAttribute is the attribute whose presence has requests of a bucket refused.
const disabledAttribute = "disabled"

// place makes the times of quotas, and the windows, those of the zone that the item names. A limit without any of its own has
// those that the limits share. Times that this program cannot read are an error.
func (it *Bucket) place() (err error) {
	for i := range it.Limits {
		l := &it.Limits[i]
		if err := it.placeWindows(l); err != nil {
			return err
		}
		text := l.ResetTimes()
		if text == "" && l.Name != bucket.WriteUnits {
			text = it.SharedTimes
		}
		if l.Times = nil; text == "" || text == noTimes {
			continue
		}
		if l.Times, err = ReadTimes(text, it.Zone); err != nil {
			return &store.ItemError{Key: it.Key.Key(), Attribute: "b_" + l.Name + "_rsched", Err: err}
		}
	}
	return nil
}

// placeWindows is place for the windows of a limit.
func (it *Bucket) placeWindows(l *bucket.Limit) (err error) {
	text := l.WindowTexts()
	if text == "" && l.Name != bucket.WriteUnits {
		text = it.SharedWindows
	}
	if l.Windows = nil; text == "" || text == noTimes {
		return nil
	}
	if l.Windows, err = ReadWindows(text, it.Zone); err != nil {
		return &store.ItemError{Key: it.Key.Key(), Attribute: "b_" + l.Name + "_sched", Err: err}
	}
	return nil
}

// ReadTimes returns the times of a quota in an item, in the zone named there.
func ReadTimes(compact, zone string) (*calendar.Times, error) {
	return calendar.Decode(compact, cmp.Or(zone, defaultZone))
}

// ReadWindows returns the windows of a limit that an item holds, with the zone that it names.
func ReadWindows(compact, zone string) (*calendar.Windows, error) {
	return calendar.DecodeWindows(compact, cmp.Or(zone, defaultZone))
}

// isTimed reports whether one of the limits is a quota, of whatever kind, or has windows. Every program notes then until when the item is valid.
func (it *Bucket) isTimed() bool {
	for i := range it.Limits {
		if l := &it.Limits[i]; l.Times != nil || l.Windows != nil || l.Session > 0 {
			return true
		}
	}
	return false
}
