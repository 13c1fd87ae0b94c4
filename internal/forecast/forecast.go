// Package forecast estimates when an amount is used up, from what was consumed on each day before.
package forecast

import (
	"math"
	"time"
)

const (
	week = 7
	// minPattern is the number of days from which on weekdays may have rates of their own: two weeks to learn from and one to test on.
	minPattern = 3 * week
	// pays is the part of the error of a flat rate that a pattern may have at most.
	pays = 0.9
	// longest bounds a forecast.
	longest = 10 * 365
)

// A Rate is how much is consumed on each weekday.
type Rate struct {
	days      [week]float64
	patterned bool
}

// Flat returns a rate that is the same on all days.
func Flat(perDay float64) Rate {
	var r Rate
	for i := range r.days {
		r.days[i] = perDay
	}
	return r
}

// Fit returns the rate that follows from days in a row, the last of which is of a weekday. It is the average of the last seven days, and
// with a part of its own for each weekday if that would have estimated the last week better.
func Fit(days []float64, last time.Weekday) Rate {
	for len(days) > 0 && days[0] == 0 { // before the first use
		days = days[1:]
	}
	if len(days) < minPattern {
		return flat(days)
	}
	known, test := days[:len(days)-week], days[len(days)-week:]
	if misses(patterned(known, last), test, last) > pays*misses(flat(known), test, last) {
		return flat(days)
	}
	return patterned(days, last)
}

func flat(days []float64) Rate {
	recent := days[max(0, len(days)-week):]
	if len(recent) == 0 {
		return Rate{}
	}
	return Flat(sum(recent) / float64(len(recent)))
}

// patterned returns the level of the last week, divided among weekdays as in all weeks.
func patterned(days []float64, last time.Weekday) Rate {
	whole := days[len(days)%week:]
	all := sum(whole)
	if all <= 0 {
		return flat(days)
	}
	r := Rate{patterned: true}
	level := sum(days[len(days)-week:])
	for i, n := range whole {
		r.days[weekday(last, i-len(whole)+1)] += n / all * level
	}
	return r
}

// misses returns by how much a rate misses a week that ends on a weekday, added up over its days.
func misses(r Rate, week []float64, last time.Weekday) (sum float64) {
	for i, n := range week {
		sum += math.Abs(r.days[weekday(last, i-len(week)+1)] - n)
	}
	return sum
}

// weekday returns the weekday some days later.
func weekday(from time.Weekday, later int) time.Weekday {
	return time.Weekday(((int(from)+later)%week + week) % week)
}

func sum(days []float64) (sum float64) {
	for _, n := range days {
		sum += n
	}
	return sum
}

// Patterned reports whether weekdays have rates of their own.
func (r Rate) Patterned() bool { return r.patterned }

// On returns how much is consumed on a weekday.
func (r Rate) On(d time.Weekday) float64 { return r.days[d] }

// PerDay returns the average over a week.
func (r Rate) PerDay() float64 { return sum(r.days[:]) / week }

// A Ceiling is the most that can be left at a time, and when another ceiling follows; the zero time for none. What is above it is lost.
type Ceiling func(at time.Time) (most float64, until time.Time)

// maxStretches is how many ceilings a forecast goes through at most.
const maxStretches = 10_000

// UsedUp returns when nothing is left of an amount: it is consumed, or lost to a ceiling, which may be nil. It returns the zero time and false
// if that is not before a time, or within ten years. Days are in UTC.
func (r Rate) UsedUp(now time.Time, amount float64, before time.Time, ceiling Ceiling) (time.Time, bool) {
	at := now.UTC()
	last := at.AddDate(0, 0, longest)
	if !before.IsZero() && before.Before(last) {
		last = before
	}
	for stretches := 0; amount <= 0 || at.Before(last); stretches++ {
		next := time.Date(at.Year(), at.Month(), at.Day()+1, 0, 0, 0, 0, time.UTC)
		if ceiling != nil && stretches < maxStretches {
			most, until := ceiling(at)
			if amount = min(amount, most); until.After(at) && until.Before(next) {
				next = until.UTC()
			}
		}
		if amount <= 0 {
			return at, true
		}
		perDay := r.days[at.Weekday()]
		if spent := perDay * next.Sub(at).Hours() / 24; spent >= amount {
			end := at.Add(time.Duration(amount / perDay * 24 * float64(time.Hour))).Truncate(time.Second)
			if !end.Before(last) {
				return time.Time{}, false
			}
			return end, true
		} else if spent > 0 {
			amount -= spent
		}
		at = next
	}
	return time.Time{}, false
}
