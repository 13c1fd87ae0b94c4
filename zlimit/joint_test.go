package zlimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestWaitForSeveralLimits, windows and grants of limits end before another limit has enough. The reported time is the first one at
// which all have enough, by TimeUntil and by the rejection: a request is refused a millisecond before it, and admitted then.
func TestWaitForSeveralLimits(t *testing.T) {
	ctx := context.Background()
	parse := func(text string) (l zlimit.Limit) {
		check.Fatal(t, "UnmarshalText()", l.UnmarshalText([]byte(text)))
		return l
	}
	for name, test := range map[string]struct {
		limits []string
		use    zlimit.Amounts
		ask    zlimit.Amounts
		grant  time.Duration // of a, by 10 tokens; 0 for none
		want   time.Duration // at 12:20
		pay    bool          // a top-up is needed
	}{
		"a window ends": {
			limits: []string{`a=1:1/min when "0-29 * * * *" to 50:50/min`, `c=10/cron "0,45 * * * *"@UTC`},
			use:    zlimit.Amounts{"a": 1, "c": 10}, ask: zlimit.Amounts{"a": 10, "c": 10}, want: 40*time.Minute + 10800*time.Millisecond,
		},
		"windows take turns": {
			limits: []string{`a=1:1/min when "0-29 * * * *" to 50:50/min`, `c=1:1/min when "30-59 * * * *" to 50:50/min`},
			use:    zlimit.Amounts{"a": 1, "c": 1}, ask: zlimit.Amounts{"a": 10, "c": 10}, want: zlimit.Never,
		},
		"a window that never holds": {
			limits: []string{`a=10:3/6h when "*/2 * * * *" to 5:10/30s when "*/2 * * * *" to 500:10/30s`},
			use:    zlimit.Amounts{"a": 5}, ask: zlimit.Amounts{"a": 8}, want: zlimit.Never,
		},
		"a grant ends": {
			limits: []string{"a=10/h", "c=10/day@UTC"}, grant: time.Hour,
			use: zlimit.Amounts{"c": 10}, ask: zlimit.Amounts{"a": 15, "c": 10}, want: zlimit.Never,
		},
		"a reset is in no window of the other limit": {
			limits: []string{`a=10:5/min when "* 22-23,0-3 * * *" x2`, `c=10/day@UTCT06:00 when "*/20 * * * *" x2`},
			use:    zlimit.Amounts{"a": 1}, ask: zlimit.Amounts{"a": 14, "c": 14}, want: zlimit.Never,
		},
		"half an hour brings too little": {
			limits: []string{`a=10:4/h when "0-29 * * * *" x2`},
			use:    zlimit.Amounts{"a": 1}, ask: zlimit.Amounts{"a": 14}, want: zlimit.Never,
		},
		"a prepaid limit is cut off before the other one has enough": {
			limits: []string{`a=10/never when "30-59 * * * *" x0.5`, "c=1/h"},
			use:    zlimit.Amounts{"c": 1, "a": 1}, ask: zlimit.Amounts{"a": 9, "c": 1}, want: zlimit.Never, pay: true,
		},
		"a prepaid limit is used up": {
			limits: []string{`a=10/never when "*/2 * * * *" x0.5`, "c=5/h"},
			use:    zlimit.Amounts{"a": 4}, ask: zlimit.Amounts{"a": 9, "c": 1}, want: zlimit.Never, pay: true,
		},
		"nothing is carried of a new bucket": {
			limits: []string{"a=10/day@UTC carry 5", "c=1/h"},
			ask:    zlimit.Amounts{"a": 12}, want: zlimit.Never,
		},
		"one day is carried": {
			limits: []string{"a=10/day@UTC carry 5", "c=1/h"},
			use:    zlimit.Amounts{"c": 1}, ask: zlimit.Amounts{"a": 12}, want: 11*time.Hour + 40*time.Minute,
		},
		"limits without windows": {
			limits: []string{"a=10/h", "c=10/day@UTC"},
			use:    zlimit.Amounts{"a": 10, "c": 10}, ask: zlimit.Amounts{"a": 10, "c": 1}, want: 11*time.Hour + 40*time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			forEachStore(t, func(t *testing.T, s zlimit.Store) {
				c := newClock()
				l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithFreshness(0), zlimit.WithRejectionCache(0))
				var limits []zlimit.Limit
				for _, text := range test.limits {
					limits = append(limits, parse(text))
				}
				setSystem(t, l, limits...)
				c.sleep(20 * time.Minute)
				if test.grant > 0 {
					request := zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"a": 10}, Until: c.now().Add(test.grant)}
					if _, err := l.Limits.TopUp(ctx, request); err != nil {
						t.Fatalf("Limits.TopUp() = %v", err)
					}
				}
				if test.use != nil {
					acquire(t, l, ask(test.use))
				}
				e := reject(t, l, ask(test.ask))
				until, _ := l.TimeUntil(ctx, ask(test.ask))
				if got := e.RetryAfter(); got != test.want || until != test.want {
					t.Fatalf("RetryAfter() = %v, TimeUntil() = %v, want %v", got, until, test.want)
				}
				if test.want == zlimit.Never {
					if e.Possible() != test.pay || e.NeedsTopUp() != test.pay || e.RetryAfterHeader() != "" {
						t.Errorf("possible: %t, needs a top-up: %t, header %q: %v", e.Possible(), e.NeedsTopUp(), e.RetryAfterHeader(), e)
					}
					return
				}
				c.sleep(test.want - time.Millisecond)
				reject(t, l, ask(test.ask))
				c.sleep(time.Millisecond)
				acquire(t, l, ask(test.ask))
			})
		})
	}
}
