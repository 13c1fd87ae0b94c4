package layout

import (
	"cmp"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// defaultZone is the zone of times whose item says none.
const defaultZone = "UTC"

// noTimes stands for a refilling limit beside limits that share their times.
const noTimes = "-"

// place sets the zone of the times of quotas, and of the windows, to the zone that the item names. A limit without any of its own has
// the ones that the limits share. Times that this program cannot read are an error.
func (it *Bucket) place() (err error) {
	for i := range it.Limits {
		l := &it.Limits[i]
		times, windows := it.textOf(l, l.ResetTimes(), it.SharedTimes), it.textOf(l, l.WindowTexts(), it.SharedWindows)
		if l.Rare == nil && times == "" && windows == "" {
			continue
		}
		var attribute expr.Path
		l.Change(func(r *bucket.Rare) {
			r.Times, r.Windows = nil, nil
			if windows != "" {
				attribute = AttrBucketLimitWindowTexts
				r.Windows, err = ReadWindows(windows, it.Zone)
			}
			if times != "" && err == nil {
				attribute = AttrBucketLimitResetTimes
				r.Times, err = ReadTimes(times, it.Zone)
			}
		})
		if err != nil {
			return &store.ItemError{Key: it.Key.Key(), Attribute: attribute.Name(l.Name), Err: err}
		}
	}
	return nil
}

// textOf returns the text of the times or windows of a limit: its own or, without any, the shared one; "" for none.
func (it *Bucket) textOf(l *bucket.Limit, own, shared string) string {
	if own == "" && l.Name != bucket.WriteUnits {
		own = shared
	}
	if own == noTimes {
		return ""
	}
	return own
}

// later are the limits of a program whose schedules have a form unknown to this one.
var later = Feature{Name: "later schedule", Since: "0.18.0"}

// refuseLater returns a [*RefusedError] where times or windows are in a later version of the compact form, and takes them away.
func (it *Bucket) refuseLater() error {
	var refused []Refusal
	for _, shared := range []struct {
		attribute string
		text      *string
	}{{AttrBucketSharedTimes, &it.SharedTimes}, {AttrBucketSharedWindows, &it.SharedWindows}} {
		if calendar.IsLater(*shared.text) {
			refused, *shared.text = append(refused, Refusal{&later, shared.attribute}), ""
		}
	}
	for i := range it.Limits {
		l := &it.Limits[i]
		if calendar.IsLater(l.ResetTimes()) {
			refused = append(refused, Refusal{&later, AttrBucketLimitResetTimes.Name(l.Name)})
			l.Change(func(r *bucket.Rare) { r.Times = nil })
		}
		if calendar.IsLater(l.WindowTexts()) {
			refused = append(refused, Refusal{&later, AttrBucketLimitWindowTexts.Name(l.Name)})
			l.Change(func(r *bucket.Rare) { r.Windows = nil })
		}
	}
	if refused == nil {
		return nil
	}
	return &RefusedError{Key: it.Key.Key(), Refused: refused}
}

// ReadTimes returns the times of a quota in an item, in the zone named there.
func ReadTimes(compact, zone string) (*calendar.Times, error) {
	return calendar.Decode(compact, cmp.Or(zone, defaultZone))
}

// ReadWindows returns the windows of a limit in an item, with the zone that it names.
func ReadWindows(compact, zone string) (*calendar.Windows, error) {
	return calendar.DecodeWindows(compact, cmp.Or(zone, defaultZone))
}

// isTimed reports whether one of the limits is a quota of any kind, or has windows. Every program notes then until when
// the item is valid.
func (it *Bucket) isTimed() bool {
	for i := range it.Limits {
		if l := &it.Limits[i]; l.Times() != nil || l.Windows() != nil || l.Session() > 0 {
			return true
		}
	}
	return false
}
