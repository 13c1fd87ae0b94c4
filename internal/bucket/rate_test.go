package bucket

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestBusy pins the rate above which a shard is split, and the time over which the rate is measured.
func TestBusy(t *testing.T) {
	for _, test := range []struct {
		units float64
		over  time.Duration
		want  bool
	}{
		{600, time.Second, false},
		{600.1, time.Second, true},
		{6000, 10 * time.Second, false},
		{6001, 10 * time.Second, true},
		{900, 1500 * time.Millisecond, false},
		{901, 1500 * time.Millisecond, true},
		{1e6, 999 * time.Millisecond, false},
		{0, time.Hour, false},
	} {
		if got := IsBusy(test.units, test.over); got != test.want {
			t.Errorf("IsBusy(%v, %v) = %v, want %v", test.units, test.over, got, test.want)
		}
	}
}

// TestThePageSaysBusyUnits compares the threshold with the page about shards.
func TestThePageSaysBusyUnits(t *testing.T) {
	page := check.Call(os.ReadFile("../../docs/design/shards.md")).Must(t, "os.ReadFile()")
	if want := fmt.Sprintf("more than %d write units a second", busyUnits); !bytes.Contains(page, []byte(want)) {
		t.Errorf("docs/design/shards.md must say: a shard splits when it takes %s", want)
	}
}

// TestQuiet pins the rate below which a shard may be merged, and the time over which the rate is measured.
func TestQuiet(t *testing.T) {
	for _, test := range []struct {
		writes int64
		over   time.Duration
		want   bool
	}{
		{999, 10 * time.Second, true},
		{1000, 10 * time.Second, false},
		{1499, 15 * time.Second, true},
		{1500, 15 * time.Second, false},
		{0, 9999 * time.Millisecond, false},
		{0, time.Hour, true},
	} {
		if got := IsQuiet(test.writes, test.over); got != test.want {
			t.Errorf("IsQuiet(%d, %v) = %v, want %v", test.writes, test.over, got, test.want)
		}
	}
}
