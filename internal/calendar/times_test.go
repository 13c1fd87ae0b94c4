package calendar

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// zonesOfTests change their clocks in every way of the database. Some do at midnight, by half an hour, about Ramadan,
// or by a whole day, and one has offsets in seconds.
var zonesOfTests = strings.Fields("UTC Europe/Berlin America/New_York Africa/Cairo America/Havana Australia/Lord_Howe " +
	"Africa/Casablanca Pacific/Apia Africa/Monrovia Asia/Kathmandu America/Sao_Paulo")

// patternsOfTests have hours that clocks skip or show twice, ranges over midnight, and days of few months or years.
var patternsOfTests = []string{
	"0 0 * * *", "30 2 * * *", "0 0 1 * *", "0 0 * * 1", "15 1 31 * *", "* 9-17 * * mon-fri", "*/7 * * * *", "0 0 13 * 5",
	"59 23 * * *; 0 0 * * *", "* 22-23,0-5 * * *", "0 3 */2 * 1", "0 0 29 2 *", "30 0 * * sun", "* * 1-15 * *", "0 * * * *",
	"0 0 31 1,3,5,7,8,10,12 *; 0 0 30 4,6,9,11 *; 0 0 28 2 *",
}

// TestNext walks minute by minute through weeks from 1970 to 2040, among them those in which clocks are changed. A minute
// of local time is reached once clocks show it or a later one for the first time.
func TestNext(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	changes := 0
	for _, zone := range zonesOfTests {
		for round := range 40 {
			text := patternsOfTests[random.IntN(len(patternsOfTests))]
			times := check.Call(Parse(text, zone)).Must(t, "Parse()")
			start := random.Int64N(70*365*secondsOfDay) / 60 * 60
			if _, end := time.Unix(start, 0).In(times.zone).ZoneBounds(); round%2 == 0 && !end.IsZero() && end.Year() < 2040 {
				start = end.Unix()/60*60 - random.Int64N(3*minutesOfDay)*60
				changes++
			}
			walk(t, times, start, start+9*secondsOfDay)
		}
	}
	if changes < 100 {
		t.Errorf("only %d of the weeks change clocks", changes)
	}
}

// walk compares Next with what clocks show every half minute, which is when one of local time begins.
func walk(t *testing.T, times *Times, from, to int64) {
	t.Helper()
	var at []int64
	latest := shown(times.zone, from) / 60 // that was shown
	for now := from + 30; now <= to; now += 30 {
		begins := false
		for m := latest + 1; m <= floorDiv(shown(times.zone, now), 60); m++ {
			for i := range times.patterns {
				begins = begins || times.patterns[i].has(m) && !times.patterns[i].has(m-1)
			}
			latest = m
		}
		if begins {
			at = append(at, now*1000)
		}
	}
	next := from * 1000
	for _, want := range at {
		fresh := &Times{patterns: times.patterns, zone: times.zone}
		if got := fresh.Next(next); got != want || times.Next(next) != want || times.Next(want-1) != want {
			t.Fatalf("%v in %s after %v: %v, want %v", times, times.place, time.UnixMilli(next).In(times.zone),
				time.UnixMilli(got).In(times.zone), time.UnixMilli(want).In(times.zone))
		}
		next = want
	}
	if got := times.Next(next); got <= to*1000 {
		t.Fatalf("%v in %s after %v: %v, want none up to %v", times, times.place, time.UnixMilli(next), time.UnixMilli(got), time.Unix(to, 0))
	}
}

// TestClockChanges covers a reset in a skipped hour, and in one shown twice.
func TestClockChanges(t *testing.T) {
	for _, test := range []struct{ pattern, zone, after, next string }{
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"}, // 02:00 becomes 03:00
		{"30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"}, // 03:00 becomes 02:00
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"0 0 * * *", "Africa/Cairo", "2026-04-23T12:00:00Z", "2026-04-23T22:00:00Z"}, // 00:00 becomes 01:00
		{"0 0 * * *", "Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-30T10:00:00Z"}, // without the 30th of December
		{"0 0 * * *", "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"0 0 29 2 *", "UTC", "2097-01-01T00:00:00Z", "2104-02-29T00:00:00Z"},
	} {
		times := check.Call(Parse(test.pattern, test.zone)).Must(t, "Parse()")
		after := check.Call(time.Parse(time.RFC3339, test.after)).Must(t, "time.Parse()")
		next := time.UnixMilli(times.Next(after.UnixMilli())).UTC().Format(time.RFC3339)
		if next != test.next {
			t.Errorf("%s in %s after %s: %s, want %s", test.pattern, test.zone, test.after, next, test.next)
		}
	}
}

// TestCompact holds the compact form to what zae-limiter 0.17 stores.
func TestCompact(t *testing.T) {
	for _, test := range []struct{ patterns, compact, canonical string }{
		{"0 0 * * *", "1m0h0", "0 0 * * *"},
		{"0 0 * * SUN", "1m0h0w7", "0 0 * * 7"},
		{"0 0 * * 0,6", "1m0h0w7,6", "0 0 * * 7,6"},
		{"* 9-17 * * MON-FRI", "1h9-17w1-5", "* 9-17 * * 1-5"},
		{"0 0 1 jan,JUL sun-thu", "1m0h0D1M1,7w0-4", "0 0 1 1,7 0-4"},
		{"*/15 1/2 * * *;5 4 3 2 *", "1m*/15h1/2;m5h4D3M2", "*/15 1/2 * * *; 5 4 3 2 *"},
	} {
		times := check.Call(Parse(test.patterns, "UTC")).Must(t, "Parse()")
		again, err := Decode(test.compact, "UTC")
		if err != nil || times.Compact() != test.compact || !again.Equal(times) || again.String() != test.canonical {
			t.Errorf("%q: %q, want %q; read back %v, %v", test.patterns, times.Compact(), test.compact, again, err)
		}
		if twice, err := Decode(test.compact, "UTC"); err != nil || twice != again {
			t.Errorf("Decode(%q) again = %p, %v, want the same %p", test.compact, twice, err, again)
		}
		if elsewhere, err := Decode(test.compact, "Asia/Tokyo"); err != nil || elsewhere.Equal(again) {
			t.Errorf("Decode(%q) in another zone = %v, %v", test.compact, elsewhere, err)
		}
	}
}

// TestRefused reads what are no times.
func TestRefused(t *testing.T) {
	for text, reason := range map[string]string{
		"* * * * *":           `"* * * * *" is of every minute, and never begins`,
		"0 0 30 2 *":          `"0 0 30 2 *" never begins`,
		"0 0 0 * * *":         "must have the five fields",
		"0 0 * *":             "must have the five fields",
		"60 0 * * *":          `minute "60" has "60", which is not from 0 to 59`,
		"0 0 L * *":           `day of month "L" has "l", which is not from 1 to 31`,
		"0 0 * * 5#2":         `day of week "5#2" has "5#2", which is not from 0 to 7, or from sun to sat`,
		"0 0 * * fri-mon":     "has a range that ends before it begins",
		"0 0 * */0 *":         "has a step that is not a number from 1 up",
		"0 0 */-1 * *":        "has a step that is not a number from 1 up",
		"+1 0 * * *":          "is not from 0 to 59",
		"0, 0 * * *":          `has "", which is not from 0 to 59`,
		"@daily":              "must have the five fields",
		"CRON_TZ=UTC 0 0 * *": "is not from 0 to 59",
	} {
		if times, err := Parse(text, "UTC"); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("Parse(%q) = %v, %v, want: %s", text, times, err, reason)
		}
	}
	for _, zone := range []string{"", "Local", "Europe/Bonn", "../etc/passwd", "UTC+1"} {
		if _, err := Parse("0 0 * * *", zone); err == nil || !strings.Contains(err.Error(), "time zone") {
			t.Errorf("Parse() in zone %q: %v", zone, err)
		}
	}
	for _, compact := range []string{"", "m0h0", "2m0h0", "10m0", "1h0m0", "1m0m0", "1m0h0s500", "1x", "1", "1m0h0;", "1m0h0 "} {
		if times, err := Decode(compact, "UTC"); err == nil {
			t.Errorf("Decode(%q) = %v", compact, times)
		}
	}
}

// TestFarAway asks for times beyond those that clocks show.
func TestFarAway(t *testing.T) {
	times := check.Call(Parse("0 0 * * *", "Europe/Berlin")).Must(t, "Parse()")
	if next := times.Next(Never - 1); next != Never {
		t.Errorf("Next() at the end of all time = %d", next)
	}
	if next := times.Next(-Never - 1); next > firstInstant+2*secondsOfDay*1000 {
		t.Errorf("Next() at the beginning of all time = %d", next)
	}
	if times.Between(5, 5) || times.Between(6, 5) || !times.Between(0, Never) {
		t.Error("Between() of nothing, or not of everything")
	}
}

// TestCacheIsBounded decodes more times than are kept.
func TestCacheIsBounded(t *testing.T) {
	c := cache[Times]{entries: map[[2]string]*Times{}}
	for i := range 3 * maxDecoded {
		c.keep([2]string{"", string(rune('a' + i))}, &Times{})
	}
	if len(c.entries) > maxDecoded {
		t.Errorf("%d entries are kept", len(c.entries))
	}
}

func BenchmarkNext(b *testing.B) {
	times := check.Call(Parse("0 0 1 * *", "Europe/Berlin")).Must(b, "Parse()")
	b.Run("same", func(b *testing.B) {
		for b.Loop() {
			times.Next(1_795_455_983_804)
		}
	})
	b.Run("other", func(b *testing.B) {
		for i := int64(0); b.Loop(); i++ {
			times.Next(i % 2 * 1_795_455_983_804)
		}
	})
}

// TestYearsOfRules goes through the ends of years in which the database has rules for zones, and no list of changes. Package time ends such
// leap years a day early.
func TestYearsOfRules(t *testing.T) {
	for _, zone := range append(zonesOfTests, "Pacific/Auckland") {
		times := check.Call(Parse("0 0 * * *", zone)).Must(t, "Parse()")
		for _, year := range []int{2037, 2038, 2040, 2044, 2071, 2096, 2100} {
			walk(t, times, time.Date(year, 12, 29, 3, 0, 0, 0, time.UTC).Unix(), time.Date(year+1, 1, 3, 3, 0, 0, 0, time.UTC).Unix())
		}
	}
}
