package grammar

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestParseLimit(t *testing.T) {
	for text, want := range map[string]Limit{
		"rpm=60/m":              {Name: "rpm", Capacity: 60, RefillAmount: 60, RefillPeriod: time.Minute},
		"rpm=60/min":            {Name: "rpm", Capacity: 60, RefillAmount: 60, RefillPeriod: time.Minute},
		"rpm=60/minutes":        {Name: "rpm", Capacity: 60, RefillAmount: 60, RefillPeriod: time.Minute},
		"a=1/s":                 {Name: "a", Capacity: 1, RefillAmount: 1, RefillPeriod: time.Second},
		"a=1/seconds":           {Name: "a", Capacity: 1, RefillAmount: 1, RefillPeriod: time.Second},
		"a=1/hours":             {Name: "a", Capacity: 1, RefillAmount: 1, RefillPeriod: time.Hour},
		"a=1/days":              {Name: "a", Capacity: 1, RefillAmount: 1, RefillPeriod: 24 * time.Hour},
		"tpm=10_000:4_000/30s":  {Name: "tpm", Capacity: 10_000, RefillAmount: 4_000, RefillPeriod: 30 * time.Second},
		"\ttpm = 5 : 6 / 1ms\n": {Name: "tpm", Capacity: 5, RefillAmount: 6, RefillPeriod: time.Millisecond},
		"a=9223372036854775/2m": {Name: "a", Capacity: MaxTokens, RefillAmount: MaxTokens, RefillPeriod: 2 * time.Minute},
		"a=1/week":              {Name: "a", Capacity: 1, RefillAmount: 1, RefillPeriod: 7 * 24 * time.Hour},
		"a=1/w":                 {Name: "a", Capacity: 1, RefillAmount: 1, RefillPeriod: 7 * 24 * time.Hour},
		"a=1/2d":                {Name: "a", Capacity: 1, RefillAmount: 1, RefillPeriod: 48 * time.Hour},
		"a=1/2w":                {Name: "a", Capacity: 1, RefillAmount: 1, RefillPeriod: 14 * 24 * time.Hour},
		"a=007/1h0m":            {Name: "a", Capacity: 7, RefillAmount: 7, RefillPeriod: time.Hour},
		"a=10k:2M/h":            {Name: "a", Capacity: 10_000, RefillAmount: 2_000_000, RefillPeriod: time.Hour},
		"a=1G/s":                {Name: "a", Capacity: 1_000_000_000, RefillAmount: 1_000_000_000, RefillPeriod: time.Second},

		"a=5/day@UTC":                           {Name: "a", Capacity: 5, Resets: "0 0 * * *", Zone: "UTC"},
		"a=5/day@Etc/GMT+5T08:30":               {Name: "a", Capacity: 5, Resets: "30 8 * * *", Zone: "Etc/GMT+5"},
		"a=5/week@Asia/Tokyo":                   {Name: "a", Capacity: 5, Resets: "0 0 * * 1", Zone: "Asia/Tokyo"},
		"a=5/week@UTC:sunT23:59":                {Name: "a", Capacity: 5, Resets: "59 23 * * 7", Zone: "UTC"},
		" a = 1M / month@Europe/Berlin ":        {Name: "a", Capacity: 1_000_000, Resets: "0 0 1 * *", Zone: "Europe/Berlin"},
		"a=5/month@UTC:15":                      {Name: "a", Capacity: 5, Resets: "0 0 15 * *", Zone: "UTC"},
		"a=5/month@UTC:29T06:00":                {Name: "a", Capacity: 5, Resets: "0 6 29 1,3-12 *; 0 6 28 2 *", Zone: "UTC"},
		"a=5/month@UTC:31":                      {Name: "a", Capacity: 5, Resets: "0 0 31 1,3,5,7,8,10,12 *; 0 0 30 4,6,9,11 *; 0 0 28 2 *", Zone: "UTC"},
		`a=5/cron "0 8 * * MON-fri"@Asia/Tokyo`: {Name: "a", Capacity: 5, Resets: "0 8 * * 1-5", Zone: "Asia/Tokyo"},
		`a=5/cron "0 */6 * * *;30 1 1 1 *"@UTC`: {Name: "a", Capacity: 5, Resets: "0 */6 * * *; 30 1 1 1 *", Zone: "UTC"},
	} {
		got, err := ParseLimit(text)
		if err != nil || got != want {
			t.Errorf("ParseLimit(%q) = %+v, %v, want %+v", text, got, err, want)
		}
		if again, err := ParseLimit(got.String()); err != nil || again != got {
			t.Errorf("ParseLimit(%q) = %+v, %v, want what it is the text of", got, again, err)
		}
	}
	for text, rule := range map[string]string{
		"":                            "must be NAME=CAPACITY[:REFILL]/PERIOD",
		"60/m":                        "must be NAME=",
		"=60/m":                       "must be NAME=",
		"rpm=60":                      "must be NAME=",
		"a=/m":                        `capacity "" must be a whole number from 1`,
		"a=0/m":                       `capacity "0"`,
		"a=-1/m":                      `capacity "-1"`,
		"a=1.5/m":                     `capacity "1.5"`,
		"a=_1/m":                      `capacity "_1"`,
		"a=1_/m":                      `capacity "1_"`,
		"a=1__0/m":                    `capacity "1__0"`,
		"a=9223372036854776/m":        "to 9223372036854775",
		"a=99999999999999999999":      "must be NAME=",
		"a=99999999999999999999999/m": "to 9223372036854775",
		"a=1:/m":                      `refill ""`,
		"a=1:2:3/m":                   `refill "2:3"`,
		"a=1/":                        `period ""`,
		"a=1/month":                   `period "month" must be day, week or month with a time zone, such as month@Europe/Berlin`,
		"a=1:2/month@UTC":             "a quota has no refill",
		"a=1/month@":                  `period "month@" must be day, week or month`,
		"a=1/year@UTC":                `period "year@UTC" must be day, week or month`,
		"a=1/month@UTC:0":             `day "0" must be from 1 to 31`,
		"a=1/month@UTC:32":            `day "32" must be from 1 to 31`,
		"a=1/month@UTC:mon":           `day "mon" must be from 1 to 31`,
		"a=1/week@UTC:8":              `day "8" must be from mon to sun`,
		"a=1/day@UTC:1":               `day "1": a day has no days`,
		"a=1/day@UTCT24:00":           `hour "24" has "24", which is not from 0 to 23`,
		"a=1/day@Europe/Bonn":         `time zone "Europe/Bonn" is not known`,
		`a=1/cron "0 0 * *"@UTC`:      "must have the five fields",
		`a=1/cron 0 0 * * *@UTC`:      "must be day, week or month",
		"a=1/cron":                    "must be day, week or month",
		"a=1kk/s":                     `capacity "1kk"`,
		"a=k/s":                       `capacity "k"`,
		"a=0M/s":                      `capacity "0M"`,
		"a=9223372036854775k/s":       `capacity "9223372036854775k"`,
		"a=1/0s":                      "period",
		"a=1/-1s":                     "period",
		"a=1/0d":                      "period",
		"a=1/-2d":                     "period",
		"a=1/+2w":                     "period",
		"a=1/1.5d":                    "period",
		"a=1/2147483647w":             "period",
		"a=1/1us":                     "whole milliseconds",
	} {
		if l, err := ParseLimit(text); err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("ParseLimit(%q) = %+v, %v, want an error that says %q", text, l, err, rule)
		}
	}
}

// TestWindows reads limits with windows, and writes them in the shortest form.
func TestWindows(t *testing.T) {
	for text, want := range map[string]Limit{
		`rpm=60/min when "* 9-17 * * 1-5" x2`:                          {Name: "rpm", Capacity: 60, RefillAmount: 60, RefillPeriod: time.Minute, Zone: "UTC", Windows: "* 9-17 * * 1-5 x2"},
		`rpm=60/min when "* 9-17 * * 1-5"@Europe/Berlin x0.5`:          {Name: "rpm", Capacity: 60, RefillAmount: 60, RefillPeriod: time.Minute, Zone: "Europe/Berlin", Windows: "* 9-17 * * 1-5 x0.5"},
		`rpm=60:5/s when "0 * * * *" x2 when "* * * * 7" to 20:10/30s`: {Name: "rpm", Capacity: 60, RefillAmount: 5, RefillPeriod: time.Second, Zone: "UTC", Windows: "0 * * * * x2; * * * * 7 to 20:10/30s"},
		`a=5/day@Asia/Tokyo when "* * 1 * *" x3`:                       {Name: "a", Capacity: 5, Resets: "0 0 * * *", Zone: "Asia/Tokyo", Windows: "* * 1 * * x3"},
	} {
		if l, err := ParseLimit(text); err != nil || l != want || l.String() != text {
			t.Errorf("ParseLimit(%q) = %+v (%s), %v, want %+v", text, l, l, err, want)
		}
	}
	for text, rule := range map[string]string{
		`a=1/s when "0 * 9-17 * * 1-5" x2`:           "must have the five fields",
		`a=1/s when "* 9-17 * * 1-5"@Europe/Bonn x2`: `time zone "Europe/Bonn" is not known`,
		`a=1/s when "* * 30 2 *" x2`:                 "is of no minute",
		`a=1/s when "* * * * *" x0`:                  "from 0.001 to 1000",
		`a=1/s when * * * * * x2`:                    "must be when",
		`a=1/s when "* * * * *"`:                     "must be when",
		`a=1/day@UTC when "* * * * *"@Asia/Tokyo x2`: "must be that of the whole limit, UTC",
	} {
		if l, err := ParseLimit(text); err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("ParseLimit(%q) = %+v, %v, want an error that says %q", text, l, err, rule)
		}
	}
}

// TestFloors reads limits with floors of priorities, and writes them in the order of the priorities.
func TestFloors(t *testing.T) {
	for text, want := range map[string]string{
		"rpm=60/min floors batch=20":                             "rpm=60/min floors batch=20",
		"rpm=60/min floors  crawl=50%  batch=020 ":               "rpm=60/min floors batch=20 crawl=50",
		`a=5/day@Asia/Tokyo when "* * 1 * *" x3 floors low-1=99`: `a=5/day@Asia/Tokyo when "* * 1 * *" x3 floors low-1=99`,
	} {
		l, err := ParseLimit(text)
		if again, _ := ParseLimit(l.String()); err != nil || l.String() != want || again != l {
			t.Errorf("ParseLimit(%q) = %v, %v, want %s", text, l, err, want)
		}
	}
	for text, rule := range map[string]string{
		"a=5/day@UTC shadow floors b=10":   "stands last",
		"a=5/min soft shadow":              "one of soft and shadow",
		`a=5/min soft when "* * * * *" x2`: "stands last",
		"a=1/s floors batch":               "a whole percent of the capacity from 1 to 99",
		"a=1/s floors batch=0":             "from 1 to 99",
		"a=1/s floors batch=100":           "from 1 to 99",
		"a=1/s floors batch=2.5":           "from 1 to 99",
		"a=1/s floors =20":                 "must be PRIORITY=PERCENT",
		"a=1/s floors 1st=20":              "must start with a letter",
		"a=1/s floors batch=20 batch=30%":  "has another floor before",
	} {
		if l, err := ParseLimit(text); err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("ParseLimit(%q) = %+v, %v, want an error that says %q", text, l, err, rule)
		}
	}
}

// FuzzParseLimit writes each accepted limit in a form with the same meaning.
func FuzzParseLimit(f *testing.F) {
	for _, seed := range []string{"rpm=300/m", "tpm=10_000:4000/30s", "a=1/d", " a = 1 : 2 / 1h30m ", "a=1/2562047h47m16.854s", "=/", "a=3/-1s", `a=1/s when "* 9 * * *" x2`, "a=1/s floors b=2 a=1%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLimit(text)
		if err != nil {
			return
		}
		if l.Windows != "" && l.Zone == "" || l.Name == "" || l.Capacity < 1 || l.Capacity > MaxTokens || l.RefillAmount < 1 || l.RefillAmount > MaxTokens || l.RefillPeriod < time.Millisecond {
			t.Fatalf("ParseLimit(%q) = %+v, which is no limit", text, l)
		}
		if again, err := ParseLimit(l.String()); err != nil || again != l {
			t.Errorf("ParseLimit(%q) = %+v, %v, want %+v", l, again, err, l)
		}
	})
}

func TestEncodeName(t *testing.T) {
	reserved := func(name string) bool { return name == "PK" || name == "_default_" }
	for text, want := range map[string]string{
		"":           "",
		"alice":      "alice",
		"01-ai/yi":   "01-ai/yi",
		"auth0|5f7c": "auth0|5f7c",
		"+49 30":     "+49%2030",
		"100%":       "100%25",
		"%41":        "%2541",
		"a#b":        "a%23b",
		"é":          "%C3%A9",
		"\x00\xff":   "%00%FF",
		"PK":         "%50K",
		"_default_":  "%5Fdefault_",
		"PKs":        "PKs",
	} {
		got := EncodeName(text, reserved)
		if got != want {
			t.Errorf("EncodeName(%q) = %q, want %q", text, got, want)
		}
		if back, ok := DecodeName(got, reserved); !ok || back != text {
			t.Errorf("DecodeName(%q) = %q, %t, want %q", got, back, ok, text)
		}
	}
	for _, name := range []string{"%", "%4", "50%", "%41", "%c3", "%zz", "a%20b%2", "PK", "a b", "a%2fb"} {
		if text, ok := DecodeName(name, reserved); ok {
			t.Errorf("DecodeName(%q) = %q, want none, since no text has that name", name, text)
		}
	}
	long := strings.Repeat("ab é", 100)
	name, want := EncodeName(long, reserved), strings.Repeat("ab%20%C3%A9", 17)+"ab%~efe5483a689b03b5"
	if !strings.HasPrefix(name, want) || len(name) > MaxName {
		t.Errorf("EncodeName(%q) = %q, want it to begin with %q", long, name, want)
	}
	if back, ok := DecodeName(name, reserved); ok {
		t.Errorf("DecodeName(%q) = %q, want none", name, back)
	}
	if a, b := EncodeName(long+"x", reserved), EncodeName(long+"y", reserved); a == b {
		t.Errorf("two long texts have the name %q", a)
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", time.Nanosecond: "0.000000001", 1894 * time.Millisecond: "1.894", time.Minute: "60", -1500 * time.Millisecond: "-1.5",
		math.MaxInt64: "9223372036.854775807", math.MinInt64: "-9223372036.854775808",
	} {
		if got := Seconds(d); got.String() != want {
			t.Errorf("Seconds(%v) = %v, want %v", d, got, want)
		}
	}
}

// TestMoney reads limits in dollars, and writes those that are named usd in dollars.
func TestMoney(t *testing.T) {
	for text, want := range map[string]struct {
		capacity, refill int64
		shortest         string
	}{
		"usd=25/month@UTC":              {25 * Nanos, 0, "usd=25/month@UTC"},
		"usd=2.5:0.000000001/h":         {25 * Nanos / 10, 1, "usd=2.5:0.000000001/h"},
		"usd=$1_000.50/day":             {1000*Nanos + Nanos/2, 1000*Nanos + Nanos/2, "usd=1000.5/d"},
		"usd=9k/week@UTC":               {9000 * Nanos, 0, "usd=9000/week@UTC"},
		"usd=9223372/month@UTC":         {9_223_372 * Nanos, 0, "usd=9223372/month@UTC"},
		"usd=9223372.036854775/d":       {MaxTokens, MaxTokens, "usd=9223372.036854775/d"},
		"budget=$0.1/session:5h":        {Nanos / 10, 0, "budget=100000000/session:5h"},
		"usd=20 slots/30s":              {20, 0, "usd=20 slots/30s"},
		`usd=5/min when "0 * * * *" x2`: {5 * Nanos, 5 * Nanos, `usd=5/min when "0 * * * *" x2`},
	} {
		l, err := ParseLimit(text)
		if err != nil || l.Capacity != want.capacity || l.RefillAmount != want.refill || l.String() != want.shortest {
			t.Errorf("ParseLimit(%q) = %+v (%s), %v", text, l, l, err)
		}
		if again, err := ParseLimit(l.String()); err != nil || again != l {
			t.Errorf("ParseLimit(%q) = %+v, %v, want %+v", l, again, err, l)
		}
	}
	for _, text := range []string{
		"usd=0/d", "usd=/d", "usd=$/d", "usd=.5/d", "usd=1./d", "usd=1.0000000001/d", "usd=1.-5/d", "usd=1.+5/d", "usd=-1/d", "usd=1.5k/d", "usd=1k.5/d", "usd=$$1/d",
		"usd=9223373/d", "usd=9223372.036854776/d", "budget=1.5/d", "budget=$0/d", "usd=1_.5/d",
	} {
		if l, err := ParseLimit(text); err == nil {
			t.Errorf("ParseLimit(%q) = %+v, want an error", text, l)
		}
	}
	for n, want := range map[int64]string{0: "0", 1: "0.000000001", -Nanos / 2: "-0.5", -3 * Nanos: "-3"} {
		if got := FormatAmount(Money, n); got != want {
			t.Errorf("FormatAmount(%d) = %s, want %s", n, got, want)
		}
	}
}
