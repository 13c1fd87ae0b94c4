package zlimit_test

import (
	"encoding/json"
	"errors"
	"flag"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/zlimit"
)

func TestLimitText(t *testing.T) {
	for text, want := range map[string]zlimit.Limit{
		"rpm=60/min":         zlimit.PerMinute("rpm", 60),
		"tpm=10000:4000/30s": {Name: "tpm", Capacity: 10_000, RefillAmount: 4_000, RefillPeriod: 30 * time.Second},
		"a=1/1ms":            {Name: "a", Capacity: 1, RefillAmount: 1, RefillPeriod: time.Millisecond},
		"rpd=5:3/d":          zlimit.PerDay("rpd", 3, zlimit.Burst(5)),

		"tokens=1000000/month@Europe/Berlin": zlimit.Monthly("tokens", 1_000_000, "Europe/Berlin"),
		"tokens=5/week@UTC":                  zlimit.Weekly("tokens", 5, "UTC"),
		"tokens=5/day@America/New_York":      zlimit.Daily("tokens", 5, "America/New_York"),
		`tokens=5/cron "0 8,20 * * 1-5"@UTC`: zlimit.Cron("tokens", 5, "0 8,20 * * 1-5", "UTC"),
	} {
		var got zlimit.Limit
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("UnmarshalText(%q) = %v, %v, want %v", text, got, err, want)
		}
		if back, err := got.MarshalText(); err != nil || string(back) != text || got.String() != text {
			t.Errorf("MarshalText() = %q, %v, and String() = %q, want %q", back, err, got, text)
		}
	}
	var asFlag zlimit.Limit
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.TextVar(&asFlag, "limit", zlimit.PerDay("a", 1), "")
	if err := flags.Parse([]string{"-limit", "rpm=60/m"}); err != nil || asFlag != zlimit.PerMinute("rpm", 60) {
		t.Errorf("a flag = %v, %v", asFlag, err)
	}
	for text, field := range map[string]string{
		"":           "limit",
		"rpm=60":     "limit",
		"rpm=60/mo":  "limit",
		"wcu=60/m":   "limit name",
		"a b=60/min": "limit name",
		"a=1/month":  "limit",
	} {
		kept := zlimit.PerDay("kept", 1)
		if err := kept.UnmarshalText([]byte(text)); invalid(err).Field != field || kept != zlimit.PerDay("kept", 1) {
			t.Errorf("UnmarshalText(%q) = %v, %v, want a ValidationError of %s", text, kept, err, field)
		}
	}
	for _, bad := range []zlimit.Limit{{}, {Name: "a", Capacity: 0, RefillAmount: 1, RefillPeriod: time.Second}, {Name: "a", Capacity: 1, RefillAmount: 1, RefillPeriod: time.Microsecond}, {Name: "a", Capacity: 1, RefillAmount: -1, RefillPeriod: time.Second}} {
		if text, err := bad.MarshalText(); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("MarshalText() of %+v = %q, %v, want a ValidationError", bad, text, err)
		}
	}
}

func TestLimitAsJSON(t *testing.T) {
	for text, want := range map[string]zlimit.Limit{
		`{"name":"rpm","capacity":60,"refill_amount":60,"refill_period_seconds":60}`:     zlimit.PerMinute("rpm", 60),
		`{"name":"tpm","capacity":10,"refill_amount":4,"refill_period_seconds":1.5}`:     {Name: "tpm", Capacity: 10, RefillAmount: 4, RefillPeriod: 1500 * time.Millisecond},
		`{"name":"a","capacity":1,"refill_amount":1,"refill_period_seconds":0.001}`:      {Name: "a", Capacity: 1, RefillAmount: 1, RefillPeriod: time.Millisecond},
		`{"name":"a","capacity":1,"refill_amount":1,"refill_period_seconds":9000000000}`: {Name: "a", Capacity: 1, RefillAmount: 1, RefillPeriod: 9_000_000_000 * time.Second},

		`{"name":"tokens","capacity":5,"resets":"0 0 1 * *","zone":"Europe/Berlin"}`: zlimit.Monthly("tokens", 5, "Europe/Berlin"),
	} {
		var got zlimit.Limit
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("Unmarshal(%s) = %v, %v, want %v", text, got, err, want)
		}
		if back, err := json.Marshal(got); err != nil || string(back) != text {
			t.Errorf("Marshal() = %s, %v, want %s", back, err, text)
		}
	}
	var limits []zlimit.Limit
	err := json.Unmarshal([]byte(`["rpm=60/m", {"name":"tpm","capacity":5,"refill_period_seconds":60}, null]`), &limits)
	if diff := cmp.Diff([]zlimit.Limit{zlimit.PerMinute("rpm", 60), zlimit.PerMinute("tpm", 5), {}}, limits); err != nil || diff != "" {
		t.Errorf("Unmarshal() of a list = %v (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{
		`"rpm=60"`, `5`, `{}`, `{"name":"a","capacity":1}`, `{"name":"a","capacity":1,"refill_period_seconds":0}`,
		`{"name":"a","capacity":1,"refill_period_seconds":0.0001}`, `{"name":"a","capacity":1,"refill_period_seconds":1e99}`,
		`{"name":"a","capacity":1.5,"refill_period_seconds":1}`, `{"name":"a","capacity":1,"refil_amount":2,"refill_period_seconds":1}`,
		`{"name":"a","capacity":1,"refill_period_seconds":"x"}`,
	} {
		kept := zlimit.PerDay("kept", 1)
		if err := json.Unmarshal([]byte(text), &kept); !errors.As(err, new(*zlimit.ValidationError)) || kept != zlimit.PerDay("kept", 1) {
			t.Errorf("Unmarshal(%s) = %v, %v, want a ValidationError", text, kept, err)
		}
	}
}
