package calendar

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// windowsOfTests are windows that hold over midnight, on few days, for single minutes, and before or within one another.
var windowsOfTests = []string{
	"* 9-17 * * mon-fri x2", "*/2 * * * * x0.5", "* 22-23,0-5 * * * to 20:10/30s; * * * * 6,7 x3", "30-44 2 * * * x0.1; * 1-3 * * * x4",
	"* * 29-31 * * x2; * 0-12 * * 1 x3; 0 0 * * * x4", "* * * * * x0.1", "* * * 3,10 * x7; 59 23 * * * x2", "5 4 29 2 * x2",
}

// TestStretches walks through weeks from 1970 to 2040 in steps of half a minute, also through changes of clocks. It
// compares the stretch of each instant with the window of the minute shown by a clock.
func TestStretches(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, zone := range zonesOfTests {
		for round := range 16 {
			w := check.Call(ParseWindows(windowsOfTests[random.IntN(len(windowsOfTests))], zone)).Must(t, "ParseWindows()")
			start := random.Int64N(70*365*secondsOfDay) / 60 * 60
			if _, end := time.Unix(start, 0).In(w.zone).ZoneBounds(); round%2 == 0 && !end.IsZero() && end.Year() < 2040 {
				start = end.Unix()/60*60 - random.Int64N(3*minutesOfDay)*60
			}
			was, changed := w.byMinutes(start), int64(math.MinInt64)
			for now := start + 30; now < start+5*secondsOfDay; now += 30 {
				is := w.byMinutes(now)
				if is != was {
					if next := w.Next(now*1000 - 1); next != now*1000 {
						t.Fatalf("%v in %s: Next(%v) = %v, want %v", w, zone, time.Unix(now-1, 0).UTC(), time.UnixMilli(next).UTC(), time.Unix(now, 0).UTC())
					}
					was, changed = is, now*1000
				}
				if random.IntN(2000) > 0 {
					continue
				}
				w.near[0].Store(nil)
				w.near[1].Store(nil)
				c, from, to := w.At(now*1000 + random.Int64N(1000))
				if want := w.change(is); c != want && (c == nil || want == nil || *c != *want) || to <= now*1000 || from > now*1000 ||
					changed > math.MinInt64 && from != changed || changed == math.MinInt64 && from > start*1000 {
					t.Fatalf("%v in %s at %v: %v from %v to %v, want %v from %v", w, zone, time.Unix(now, 0).UTC(), c, time.UnixMilli(from).UTC(),
						time.UnixMilli(to).UTC(), want, time.UnixMilli(changed).UTC())
				}
			}
		}
	}
}

// byMinutes returns which window holds at an instant, in epoch seconds, by a look at each field.
func (w *Windows) byMinutes(now int64) int {
	_, offset := time.Unix(now, 0).In(w.zone).Zone()
	date := time.Unix(floorDiv(now+int64(offset), 60)*60, 0).UTC()
	for i := range w.patterns {
		p := &w.patterns[i]
		if p.sets[minute]>>uint(date.Minute())&1 != 0 && p.sets[hour]>>uint(date.Hour())&1 != 0 && p.sets[month]>>uint(date.Month())&1 != 0 && p.isOn(date) {
			return i
		}
	}
	return -1
}

func (w *Windows) change(i int) *Change {
	if i < 0 {
		return nil
	}
	return &w.changes[i]
}

// TestWindowForms reads windows as people write them and as zae-limiter 0.17 stores them.
func TestWindowForms(t *testing.T) {
	for _, test := range []struct{ text, compact, canonical string }{
		{"* 9-17 * * MON-FRI x0.5; * 18-23,0-8 * * * to 20:10/30s", "1h9-17w1-5s500;h18-23,0-8c20a10p30", "* 9-17 * * 1-5 x0.5; * 18-23,0-8 * * * to 20:10/30s"},
		{"*/2 * * * * x.5", "", ""},
		{"* * * * * x0.1", "1s100", "* * * * * x0.1"},
		{"0 * * * * x1000 ;1 * * * * x0.001", "1m0s1000000;m1s1", "0 * * * * x1000; 1 * * * * x0.001"},
		{"* 1 * * * to 20", "1h1c20a20", "* 1 * * * to 20"},
		{"* 1 * * * to 20:", "1h1c20", "* 1 * * * to 20:"},
		{"* 1 * * * to :7", "1h1a7", "* 1 * * * to :7"},
		{"* 1 * * * to 2_000/min", "1h1c2000a2000p60", "* 1 * * * to 2000/60s"},
		{"* 1 * * * to /90s", "1h1p90", "* 1 * * * to :/90s"},
	} {
		w, err := ParseWindows(test.text, "UTC")
		if test.compact == "" {
			if err == nil {
				t.Errorf("ParseWindows(%q) = %v", test.text, w)
			}
			continue
		}
		if err != nil || w.Compact() != test.compact || w.String() != test.canonical {
			t.Errorf("ParseWindows(%q) = %q, %v, %v, want %q", test.text, w.Compact(), w, err, test.compact)
			continue
		}
		for _, again := range []func() (*Windows, error){
			func() (*Windows, error) { return DecodeWindows(test.compact, "UTC") },
			func() (*Windows, error) { return ParseWindows(test.canonical, "UTC") },
		} {
			if other, err := again(); err != nil || other != w {
				t.Errorf("%q read back = %v, %v", test.text, other, err)
			}
		}
	}
}

// TestWindowsRefused reads what are no windows.
func TestWindowsRefused(t *testing.T) {
	for text, reason := range map[string]string{
		"0 * 9-17 * * 1-5 x2":                "must have the five fields",
		"* 9-17 * * x2":                      "must have the five fields",
		"* * 30 2 * x2":                      `"* * 30 2 *" is of no minute`,
		"* 9-17 * * 1-5":                     "must be a pattern and what holds then",
		"* 9-17 * * 1-5 x0":                  "from 0.001 to 1000",
		"* 9-17 * * 1-5 x-1":                 "from 0.001 to 1000",
		"* 9-17 * * 1-5 x1000.001":           "from 0.001 to 1000",
		"* 9-17 * * 1-5 x0.0001":             "at most three digits",
		"* 9-17 * * 1-5 x2 x3":               "from 0.001 to 1000",
		"* 9-17 * * 1-5 to 0":                "must be a whole number of tokens from 1",
		"* 9-17 * * 1-5 to":                  "must be a multiplier such as x2",
		"* 9-17 * * 1-5 to 1000000000000001": "must be a whole number of tokens from 1",
		"* 9-17 * * 1-5 to 5/1.5s":           "whole seconds",
		"* 9-17 * * 1-5 to :":                "changes nothing",
		"":                                   "must be a pattern",
		"* 24 * * * x2":                      "which is not from 0 to 23",
	} {
		if w, err := ParseWindows(text, "UTC"); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("ParseWindows(%q) = %v, %v, want: %s", text, w, err, reason)
		}
	}
	if w, err := ParseWindows("* 1 * * * x2", "Europe/Bonn"); err == nil || !strings.Contains(err.Error(), "time zone") {
		t.Errorf("ParseWindows() in no zone = %v, %v", w, err)
	}
	for _, compact := range []string{"", "1", "1h9-17", "2h9s5", "10h9s5", "1h9s", "1h9s0", "1h9s1000001", "1h9s5c5", "1h9c0", "1h9c5a", "1w1h9s5", "1h9a5c5", "1h9s5;", "1h9s-5", "1h9s5x"} {
		if w, err := DecodeWindows(compact, "UTC"); err == nil {
			t.Errorf("DecodeWindows(%q) = %v", compact, w)
		}
	}
}

// TestChangesOfParameters multiplies and replaces parameters.
func TestChangesOfParameters(t *testing.T) {
	for _, test := range []struct {
		change                   Change
		capacity, refill, period int64
	}{
		{Change{Scale: 500}, 100_500, 3, 60_000},
		{Change{Scale: 1}, 201, 1, 60_000},
		{Change{Capacity: 20}, 20_000, 7, 60_000},
		{Change{Refill: 10, Period: 30}, 201_000, 10_000, 30_000},
		{Change{Scale: 2000}, 402_000, 14, 60_000},
	} {
		if c, r, p := test.change.Of(201_000, 7, 60_000); c != test.capacity || r != test.refill || p != test.period {
			t.Errorf("%v: %d, %d, %d, want %d, %d, %d", test.change, c, r, p, test.capacity, test.refill, test.period)
		}
		if _, r, _ := test.change.Of(201_000, 0, 60_000); r != 0 {
			t.Errorf("%v gives a limit without refill %d", test.change, r)
		}
	}
	if c := (Change{Scale: maxScale}); c.Fits(math.MaxInt64/1000, 1) || !c.Fits(1000, 1000) {
		t.Error("Fits() of what does not fit, or not of what does")
	}
	if scaled(math.MaxInt64, maxScale) != math.MaxInt64 {
		t.Error("a multiple does not saturate")
	}
}

// TestLastTime compares the last time up to an instant with the first one after another.
func TestLastTime(t *testing.T) {
	for _, text := range patternsOfTests {
		times := check.Call(Parse(text, "Europe/Berlin")).Must(t, "Parse()")
		next := times.Next(1_795_455_983_804)
		for _, until := range []int64{next, next + 1, times.Next(next) - 1} {
			if last, ok := times.Last(until); !ok || last != next {
				t.Errorf("%v: Last(%d) = %d, %t, want %d", times, until, last, ok, next)
			}
		}
	}
}

func BenchmarkWindows(b *testing.B) {
	w := check.Call(ParseWindows("* 9-17 * * 1-5 x2", "Europe/Berlin")).Must(b, "ParseWindows()")
	b.Run("same", func(b *testing.B) {
		for b.Loop() {
			w.At(1_795_455_983_804)
		}
	})
	b.Run("other", func(b *testing.B) {
		for i := int64(0); b.Loop(); i++ {
			w.At(1_795_455_983_804 + i%3*86_400_000)
		}
	})
}

// TestWindowsAtTheEndOfLeapYears finds windows on a day on which package time takes a time that is past for the next change of clocks.
func TestWindowsAtTheEndOfLeapYears(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Pacific/Auckland"} {
		in := check.Call(time.LoadLocation(zone)).Must(t, "time.LoadLocation()")
		w := check.Call(ParseWindows("* 9-17 * * * x2", zone)).Must(t, "ParseWindows()")
		for _, year := range []int{2040, 2044, 2096} {
			for hour := range 48 {
				at := time.Date(year, 12, 31, hour, 30, 0, 0, in)
				change, from, to := w.At(at.UnixMilli())
				if holds := at.Hour() >= 9 && at.Hour() <= 17; (change != nil) != holds {
					t.Errorf("%v is in a window: %t", at, change != nil)
				}
				if from > at.UnixMilli() || to <= at.UnixMilli() || to-from > 16*3_600_000 {
					t.Errorf("%v is in a stretch from %d to %d", at, from, to)
				}
			}
		}
	}
}
