package cli

import (
	"math"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestNumbersAsPeopleReadThem(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", -1000: "-1,000", -999: "-999", 21766807: "21,766,807",
		math.MaxInt64: "9,223,372,036,854,775,807", math.MinInt64: "-9,223,372,036,854,775,808",
	} {
		if got := show.Grouped(n); got != want {
			t.Errorf("grouped(%d) = %q, want %q", n, got, want)
		}
	}
	for q, want := range map[zlimit.Quantity]string{
		0: "0", 1500: "1.5", -500: "-0.5", -1: "-0.001", 1_234_567_890: "1,234,567.89", -1_000_000: "-1,000", math.MinInt64: "-9,223,372,036,854,775.808",
	} {
		if got := show.GroupedTokens(q); got != want {
			t.Errorf("groupedTokens(%s) = %q, want %q", q, got, want)
		}
	}
	for f, want := range map[float64]string{0: "0.0", -0.01: "0.0", 0.05: "0.1", -1234.56: "-1,234.6", 190000: "190,000.0"} {
		if got := show.Decimal(f); got != want {
			t.Errorf("decimal(%v) = %q, want %q", f, got, want)
		}
	}
	for _, test := range []struct {
		part, whole int64
		want        string
	}{
		{0, 0, ""}, {0, 3, "0.0 %"}, {1, 3, "33.3 %"}, {2, 3, "66.6 %"}, {3, 3, "100.0 %"}, {math.MaxInt64, math.MaxInt64, "100.0 %"},
	} {
		if got := show.Percent(test.part, test.whole); got != test.want {
			t.Errorf("percent(%d, %d) = %q, want %q", test.part, test.whole, got, test.want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s", 1: "1ms", time.Millisecond: "1ms", 999*time.Millisecond + 1: "1s", 1234 * time.Millisecond: "1.3s",
		59*time.Second + 950*time.Millisecond: "1m0s", 61*time.Second + 1: "1m2s", math.MaxInt64: "2562047h47m16.854775807s",
	} {
		if got := show.Brief(d); got != want {
			t.Errorf("brief(%d) = %q, want %q", d, got, want)
		}
	}
}

func TestTableAlignsItsColumns(t *testing.T) {
	p := &show.Page{}
	p.Table([]string{"key", "count>", "note"}, [][]string{{"ä", "1,000", "x"}, {"long", "7", ""}})
	want := "key   count  note\nä     1,000  x\nlong      7\n"
	if got := p.String(); got != want {
		t.Errorf("table:\n%swant:\n%s", got, want)
	}
}
