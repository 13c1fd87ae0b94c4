package zlimit

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

func TestWindows(t *testing.T) {
	for _, test := range []struct {
		window          Window
		at              string
		key, start, end string
	}{
		{WindowHourly, "2026-03-01T12:34:56.789Z", "2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z", "2026-03-01T13:00:00Z"},
		{WindowHourly, "2026-03-01T00:30:00+05:45", "2026-02-28T18:00:00Z", "2026-02-28T18:00:00Z", "2026-02-28T19:00:00Z"},
		{WindowDaily, "2028-02-28T23:59:59Z", "2028-02-28", "2028-02-28T00:00:00Z", "2028-02-29T00:00:00Z"},
		{WindowDaily, "2026-12-31T23:00:00-02:00", "2027-01-01", "2027-01-01T00:00:00Z", "2027-01-02T00:00:00Z"},
		{WindowMonthly, "2026-12-31T23:59:59Z", "2026-12", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{WindowMonthly, "2026-02-01T00:00:00Z", "2026-02", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
	} {
		at := check.Call(time.Parse(time.RFC3339, test.at)).Must(t, "time.Parse()")
		start, end := test.window.Start(at), test.window.End(at)
		if got := test.window.key(start); got != test.key || start.Format(time.RFC3339) != test.start || end.Format(time.RFC3339) != test.end {
			t.Errorf("%s window of %s = %s from %v to %v, want %s from %s to %s", test.window, test.at, got, start, end, test.key, test.start, test.end)
		}
	}
}

// TestWindowKeys shows that keys lead back to their windows, and are in the order of time, whatever their lengths.
func TestWindowKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (Window, time.Time) {
			w := rapid.SampledFrom([]Window{WindowHourly, WindowDaily, WindowMonthly}).Draw(t, label)
			return w, w.Start(time.Unix(rapid.Int64Range(-60e9, 250e9).Draw(t, label+" at"), 0))
		}
		v, first := draw("one")
		w, second := draw("other")
		if got, start, ok := parseWindowKey(v.key(first)); !ok || got != v || !start.Equal(first) {
			t.Fatalf("parseWindowKey(%s) = %s, %v, %t, want %s, %v", v.key(first), got, start, ok, v, first)
		}
		if first.Before(second) && v.key(first) >= w.key(second) {
			t.Fatalf("%s is not before %s", v.key(first), w.key(second))
		}
		if end := v.End(first); v.Start(end.Add(-1)) != first || v.Start(end) != end {
			t.Fatalf("the %s window of %v ends at %v", v, first, end)
		}
	})
}

func TestQuantities(t *testing.T) {
	for q, want := range map[Quantity]struct {
		text   string
		tokens int64
	}{
		0: {"0", 0}, 1: {"0.001", 0}, 499: {"0.499", 0}, 500: {"0.5", 1}, -1: {"-0.001", 0}, -499: {"-0.499", 0}, -500: {"-0.5", -1},
		1500: {"1.5", 2}, 12_340: {"12.34", 12}, -12_340: {"-12.34", -12}, 1_000_000: {"1000", 1000},
		math.MaxInt64: {"9223372036854775.807", 9223372036854776}, math.MinInt64: {"-9223372036854775.808", -9223372036854776},
	} {
		if q.String() != want.text || q.Tokens() != want.tokens {
			t.Errorf("Quantity(%d) = %s, %d tokens, want %s, %d", int64(q), q, q.Tokens(), want.text, want.tokens)
		}
		text, err := json.Marshal(q)
		if err != nil || string(text) != want.text {
			t.Errorf("Marshal(%s) = %s, %v", q, text, err)
		}
		back := Quantity(7)
		if err := json.Unmarshal(text, &back); err != nil || back != q {
			t.Errorf("Unmarshal(%s) = %d, %v, want %d", text, int64(back), err, int64(q))
		}
	}
	for _, text := range []string{`"1"`, "1e3", "1.2345", "9223372036854775.808", "null", "-0", "1.50", "{}"} {
		var q Quantity
		if err := json.Unmarshal([]byte(text), &q); err == nil {
			t.Errorf("Unmarshal(%s) = %s, want an error", text, q)
		}
	}
	for _, test := range [][3]Quantity{
		{1, 2, 3}, {math.MaxInt64, 1, math.MaxInt64}, {math.MinInt64, -1, math.MinInt64}, {math.MaxInt64, math.MinInt64, -1},
	} {
		if got := test[0].plus(test[1]); got != test[2] {
			t.Errorf("%d.plus(%d) = %d, want %d", test[0], test[1], got, test[2])
		}
	}
}
