package ledger_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

func replay(t *testing.T, l zlimit.Limit, hours []float64, from, now time.Time) *ledger.Replay {
	t.Helper()
	return check.Call(ledger.ReplayHours(l, hours, from, now)).Must(t, "ReplayHours()")
}

// TestReplay covers an hour that does not fit, and one that the burst saves.
func TestReplay(t *testing.T) {
	from := time.Date(2026, time.March, 1, 22, 0, 0, 0, time.UTC)
	per := zlimit.PerHour("tpm", 100)
	now := from.Add(24 * time.Hour)
	r := replay(t, per, []float64{200, 101, 50, 0, 300}, from, now)
	if r.Hours != 4 || r.Over != 2 || r.Refused != 1+100 || r.Worst != 1.5 || !r.WorstAt.Equal(from.Add(4*time.Hour)) || r.Fits[1] != 100 || r.Beyond[1] != 1 {
		t.Errorf("ReplayHours() = %+v, want 1 and 100 refused", r)
	}
	day := zlimit.Daily("tpm", 100, "UTC")
	r = replay(t, day, []float64{80, 30, 90, 20}, from, now) // the third hour begins a day
	if r.Over != 2 || r.Refused != 10+10 {
		t.Errorf("ReplayHours() = %+v, want 10 refused on each day", r)
	}
	half := zlimit.Cron("tpm", 100, "0 0 * * *; 0 12 * * *", "Europe/Berlin")
	r = replay(t, half, []float64{80, 30, 90, 20}, from.Add(-13*time.Hour), now) // the third hour begins at noon in Berlin
	if r.Over != 2 || r.Refused != 10+10 {
		t.Errorf("ReplayHours() = %+v, want 10 refused in each half of a day", r)
	}
	if r = replay(t, per, []float64{100, 130}, from, from.Add(75*time.Minute)); r.Over != 1 || r.Refused != 130-125 {
		t.Errorf("ReplayHours() = %+v, want 5 refused in a quarter of an hour under way", r)
	}
}

// TestReplayOfWindows replays windows, and resets within an hour.
func TestReplayOfWindows(t *testing.T) {
	from := time.Date(2026, time.March, 1, 20, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		limit       string
		hours, fits []float64
	}{
		{`a=10/h when "* 22-23 * * *" x3`, []float64{20, 20, 20, 20, 20, 20, 20}, []float64{20, 10, 20, 20, 20, 10, 10}},
		{`a=10/h when "* 22 * * *" to 10:40/30m`, []float64{20, 20, 90, 20, 20}, []float64{20, 10, 80, 10, 10}},
		{`a=10/h when "30-59 * * * *" x3`, []float64{30, 30, 0, 30}, []float64{30, 20, 0, 30}},                   // 10 + 5 + 15, 5 + 15, and a half of 30 is lost
		{`a=100/day@UTC when "* 22 * * *" x0.5`, []float64{20, 20, 60, 60, 80}, []float64{20, 20, 50, 0, 80}},    // cuts what is left
		{`a=100/day@UTC when "* 21 * * *" x0.5`, []float64{20, 60, 20, 0, 200}, []float64{20, 50, 0, 0, 100}},    // which stays so until the reset
		{`a=100/day@UTC when "* 22-23,0 * * *" x3`, []float64{50, 60, 60, 0, 400}, []float64{50, 50, 0, 0, 300}}, // more holds from the reset on
		{`a=100/day@UTC when "30-59 20 * * *" x0.5`, []float64{70, 40}, []float64{70, 30}},                       // 50 before the window, and 20 in it
		{`a=10/cron "30 21 * * *"@UTC`, []float64{8, 12, 6}, []float64{8, 12, 0}},                                // 2 before the reset, and 10 behind it
		{`a=10/cron "30 21 * * *"@UTC carry 5`, []float64{8, 1, 20}, []float64{8, 1, 11}},
		{`a=10/cron "0 20 * * *"@UTC carry 5`, []float64{20, 0}, []float64{10, 0}}, // nothing is carried from before
		{`a=10/never`, []float64{6, -4, 6, 6}, []float64{6, -4, 6, 2}},
	} {
		var l zlimit.Limit
		check.Fatal(t, "UnmarshalText()", l.UnmarshalText([]byte(test.limit)))
		r := replay(t, l, test.hours, from, from.Add(1000*time.Hour))
		if !slices.Equal(r.Fits, test.fits) {
			t.Errorf("%s with %v: fit %v, want %v", test.limit, test.hours, r.Fits, test.fits)
		}
	}
}

// TestReplayRefusesTheLeast compares the replay of hours with minutes, however the use of an hour is spread over its minutes: at least as much
// is refused.
func TestReplayRefusesTheLeast(t *testing.T) {
	from := time.Date(2026, time.March, 1, 20, 0, 0, 0, time.UTC)
	windows := []struct {
		text  string
		holds func(hour, minute int) bool
		times int64 // thousandths
	}{
		{"", func(_, _ int) bool { return false }, 1000},
		{` when "* 22-23 * * *" x3`, func(hour, _ int) bool { return hour >= 22 }, 3000},
		{` when "10-39 * * * *" x0.5`, func(_, minute int) bool { return minute >= 10 && minute < 40 }, 500},
		{` when "30-44 21 * * *" x2`, func(hour, minute int) bool { return hour == 21 && minute >= 30 && minute < 45 }, 2000},
	}
	kinds := []struct {
		text   string
		refill float64 // of a capacity in a minute
		reset  int     // minutes
		carry  float64
	}{{"12/h", 1 / 60.0, 0, 0}, {"12/never", 0, 0, 0}, {`12/cron "0 * * * *"@UTC`, 0, 60, 0}, {`12/cron "*/20 * * * *"@UTC`, 0, 20, 0}, {`12/cron "*/45 * * * *"@UTC carry 9`, 0, 45, 9}}
	rapid.Check(t, func(t *rapid.T) {
		window, kind := rapid.SampledFrom(windows).Draw(t, "window"), rapid.SampledFrom(kinds).Draw(t, "kind")
		if kind.carry > 0 { // which has no windows
			window = windows[0]
		}
		var l zlimit.Limit
		check.Fatal(t, "UnmarshalText()", l.UnmarshalText([]byte("a="+kind.text+window.text)))
		hours := make([]float64, 5)
		refused, left, carried := 0.0, math.Inf(1), 0.0
		for m := range 60 * len(hours) {
			at := from.Add(time.Duration(m) * time.Minute)
			capacity := 12.0
			if window.holds(at.Hour(), at.Minute()) {
				capacity = 12 * float64(window.times) / 1000
			}
			if m > 0 && kind.reset > 0 && at.Minute()%kind.reset == 0 {
				carried = min(left, kind.carry)
				left = capacity + carried
			}
			left = min(left, capacity+carried)
			used := float64(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, 5}).Draw(t, "used"))
			hours[m/60] += used
			fits := min(used, left)
			refused += used - fits
			left += kind.refill*capacity - fits
		}
		r, err := ledger.ReplayHours(l, hours, from, from.Add(24*time.Hour))
		if err != nil || r.Refused > refused+1e-6 {
			t.Fatalf("%s with %v: ReplayHours() refuses %v, %v, want at most %v", &l, hours, r.Refused, err, refused)
		}
	})
}

// TestReplayOfOtherLimits replays limits that hours say nothing of.
func TestReplayOfOtherLimits(t *testing.T) {
	now := time.Date(2026, time.March, 1, 20, 0, 0, 0, time.UTC)
	for field, l := range map[string]zlimit.Limit{
		"ledger session": zlimit.Session("a", 5, time.Hour),
		"ledger term":    zlimit.Slots("a", 5),
		"ledger resets":  {Name: "a", Capacity: 5, Resets: "never", Zone: "UTC"},
		"ledger windows": {Name: "a", Capacity: 5, RefillAmount: 5, RefillPeriod: time.Hour, Windows: "at night x2", Zone: "UTC"},
	} {
		r, err := ledger.ReplayHours(l, []float64{1}, now, now.Add(time.Hour))
		if invalid, ok := errors.AsType[*zlimit.ValidationError](err); !ok || invalid.Field != field || r != nil {
			t.Errorf("ReplayHours() = %v, %v, want an error of %s", r, err, field)
		}
	}
}
