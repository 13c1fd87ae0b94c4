package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestParseLimit(t *testing.T) {
	const day = 24 * time.Hour
	for _, test := range []struct {
		text  string
		want  zlimit.Limit
		short string // as it is written
	}{
		{"rpm=300/min", zlimit.Limit{Name: "rpm", Capacity: 300, RefillAmount: 300, RefillPeriod: time.Minute}, "rpm=300/min"},
		{"rpm=300/minute", zlimit.PerMinute("rpm", 300), "rpm=300/min"},
		{"rpm=60/m", zlimit.PerMinute("rpm", 60), "rpm=60/min"},
		{"rpm=60/minutes", zlimit.PerMinute("rpm", 60), "rpm=60/min"},
		{"tpm=400_000:1_000/m", zlimit.PerMinute("tpm", 1000, zlimit.Burst(400000)), "tpm=400000:1000/min"},
		{"a=1/s", zlimit.PerSecond("a", 1), "a=1/s"},
		{"a=1/sec", zlimit.PerSecond("a", 1), "a=1/s"},
		{"a=1/second", zlimit.PerSecond("a", 1), "a=1/s"},
		{"a=1/h", zlimit.PerHour("a", 1), "a=1/h"},
		{"a=1/hour", zlimit.PerHour("a", 1), "a=1/h"},
		{"a=1/d", zlimit.PerDay("a", 1), "a=1/d"},
		{"a=1/day", zlimit.PerDay("a", 1), "a=1/d"},
		{"tpm=10000:4000/30s", zlimit.Limit{Name: "tpm", Capacity: 10000, RefillAmount: 4000, RefillPeriod: 30 * time.Second}, "tpm=10000:4000/30s"},
		{"tpm=4000:10000/2m0s", zlimit.Limit{Name: "tpm", Capacity: 4000, RefillAmount: 10000, RefillPeriod: 2 * time.Minute}, "tpm=4000:10000/2m"},
		{" tpm = 5 : 5 / 1ms ", zlimit.Limit{Name: "tpm", Capacity: 5, RefillAmount: 5, RefillPeriod: time.Millisecond}, "tpm=5/1ms"},
		{"a.b-c_d=7/2d", zlimit.Limit{Name: "a.b-c_d", Capacity: 7, RefillAmount: 7, RefillPeriod: 2 * day}, "a.b-c_d=7/2d"},
		{"a=9223372036854775/1.5s", zlimit.Limit{Name: "a", Capacity: 9223372036854775, RefillAmount: 9223372036854775, RefillPeriod: 1500 * time.Millisecond}, "a=9223372036854775/1.5s"},
	} {
		got, err := shell.ParseLimit(test.text)
		if err != nil {
			t.Errorf("parseLimit(%q): %v", test.text, err)
			continue
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("parseLimit(%q) (-want +got):\n%s", test.text, diff)
		}
		if short := got.String(); short != test.short {
			t.Errorf("%v.String() = %q, want %q", got, short, test.short)
		}
		if again, err := shell.ParseLimit(got.String()); err != nil || again != got {
			t.Errorf("parseLimit(%q) = %v, %v, want what it is the text of", got.String(), again, err)
		}
	}
}

func TestParseLimitRejects(t *testing.T) {
	const form = "must be NAME=CAPACITY[:REFILL]/PERIOD"
	const tokens = "must be a whole number from 1 to 9223372036854775"
	const period = "must be s, min, h, d, w, never, a duration"
	for text, rule := range map[string]string{
		"":                                 form,
		"rpm":                              form,
		"rpm=300":                          form,
		"=300/min":                         form,
		"rpm/min=3":                        form,
		"rpm=/min":                         `capacity "" ` + tokens,
		"rpm=0/min":                        `capacity "0" ` + tokens,
		"rpm=-3/min":                       tokens,
		"rpm=+3/min":                       tokens,
		"rpm=1e3/min":                      tokens,
		"rpm=1.5/min":                      tokens,
		"rpm=_1000/min":                    tokens,
		"rpm=1_000_/min":                   tokens,
		"rpm=1__000/min":                   tokens,
		"rpm=9223372036854776/s":           tokens,
		"rpm=99999999999999999999999999/s": tokens,
		"rpm=3:/min":                       `refill "" ` + tokens,
		"rpm=3:0/min":                      `refill "0" ` + tokens,
		"rpm=3:4:5/min":                    `refill "4:5" ` + tokens,
		"rpm=3/":                           `period "" ` + period,
		"rpm=3/month":                      "must be day, week or month with a time zone",
		"rpm=3/60":                         period,
		"rpm=3/0s":                         period,
		"rpm=3/-1s":                        period,
		"rpm=3/1us":                        period,
		"rpm=3/1.0001ms":                   period,
		"rpm=3/min/s":                      period,
	} {
		_, err := shell.ParseLimit(text)
		if err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("parseLimit(%q) = %v, want an error that says %q", text, err, rule)
		}
	}
}

func TestParseAmounts(t *testing.T) {
	got, err := shell.ParseAmounts("consume", []string{"rpm=1", "tpm = 1500", "zero=0"})
	if diff := cmp.Diff(zlimit.Amounts{"rpm": 1, "tpm": 1500, "zero": 0}, got); err != nil || diff != "" {
		t.Errorf("parseAmounts = %v (-want +got):\n%s", err, diff)
	}
	for text, rule := range map[string]string{
		"rpm":    "must be NAME=N",
		"=1":     "must be NAME=N",
		"rpm=":   "must be a whole number",
		"rpm=-1": "must be a whole number from 0",
		"a=1":    "a is given twice",
	} {
		_, err := shell.ParseAmounts("consume", []string{"a=1", text})
		if err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("parseAmounts(%q) = %v, want an error that says %q", text, err, rule)
		}
	}
}

// FuzzParseLimit: the SDK takes each accepted limit, except its name. Such a limit also survives being written in
// both forms.
func FuzzParseLimit(f *testing.F) {
	for _, seed := range []string{"rpm=300/min", "tpm=10000:4000/30s", "a=1/d", " a = 1 : 2 / 1h30m ", "a=1/2562047h47m16.854s", "=/", "a=3/-1s"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := shell.ParseLimit(text)
		if err != nil {
			return
		}
		if l.Name == "" || l.Capacity < 1 || l.Capacity > shell.MaxTokens || l.RefillAmount < 1 || l.RefillAmount > shell.MaxTokens ||
			l.RefillPeriod <= 0 || l.RefillPeriod%time.Millisecond != 0 {
			t.Fatalf("parseLimit(%q) = %+v, which is no limit", text, l)
		}
		if again, err := shell.ParseLimit(l.String()); err != nil || again != l {
			t.Errorf("parseLimit(%q) = %v, %v, want %v", l, again, err, l)
		}
	})
}
