package ledger_test

import (
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

// TestReplay covers an hour that does not fit, and one that the burst saves.
func TestReplay(t *testing.T) {
	from := time.Date(2026, time.March, 1, 22, 0, 0, 0, time.UTC)
	per := zlimit.PerHour("tpm", 100)
	now := from.Add(24 * time.Hour)
	r := ledger.ReplayHours(per, []float64{200, 101, 50, 0, 300}, from, now)
	if r.Hours != 4 || r.Over != 2 || r.Refused != 1+100 || r.Worst != 1.5 || !r.WorstAt.Equal(from.Add(4*time.Hour)) || r.Fits[1] != 100 || r.Beyond[1] != 1 {
		t.Errorf("ReplayHours() = %+v, want 1 and 100 refused", r)
	}
	day := zlimit.Daily("tpm", 100, "UTC")
	r = ledger.ReplayHours(day, []float64{80, 30, 90, 20}, from, now) // the third hour begins a day
	if r.Over != 2 || r.Refused != 10+10 {
		t.Errorf("ReplayHours() = %+v, want 10 refused on each day", r)
	}
	half := zlimit.Cron("tpm", 100, "0 0 * * *; 0 12 * * *", "Europe/Berlin")
	r = ledger.ReplayHours(half, []float64{80, 30, 90, 20}, from.Add(-13*time.Hour), now) // the third hour begins at noon in Berlin
	if r.Over != 2 || r.Refused != 10+10 {
		t.Errorf("ReplayHours() = %+v, want 10 refused in each half of a day", r)
	}
	if r = ledger.ReplayHours(per, []float64{100, 130}, from, from.Add(75*time.Minute)); r.Over != 1 || r.Refused != 130-125 {
		t.Errorf("ReplayHours() = %+v, want 5 refused in a quarter of an hour under way", r)
	}
}
