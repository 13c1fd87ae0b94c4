package bucket

import (
	"math/rand/v2"
	"testing"

	"github.com/zlimit/zlimit-go/internal/calendar"
)

// TestNever covers amounts that no window ever admits, and amounts that one admits, at the latest after a year.
func TestNever(t *testing.T) {
	const now = 1_767_225_600_000 // 2026-01-01, a Thursday
	for _, test := range []struct {
		name            string
		capacity        int64 // tokens, of which as many flow in per hour
		windows, resets string
		session         int64
		tokens          int64
		never           bool
	}{
		{"an hour lets in what flows in by then", 100, "* 9 * * * x10", "", 0, 1000, false}, // 1,000 an hour
		{"half an hour is too short", 100, "0-29 9 * * * x10", "", 0, 1000, true},
		{"half an hour lets in less", 100, "0-29 9 * * * x10", "", 0, 590, false},
		{"a day lets in all", 100, "* * * * 6 to 2000:", "", 0, 2000, false},
		{"a day is too short", 100, "* * * * 6 to 9000:", "", 0, 9000, true},
		{"a month is not", 100, "* * * 6 * to 9000:", "", 0, 9000, false},
		{"a window cuts off what flows in", 1000, "0-39 * * * * x0.1", "", 0, 900, true},
		{"a window on Sundays alone does not", 1000, "0-39 * * * 0 x0.1", "", 0, 900, false},
		{"one window after another", 100, "* 9 * * * to 400:; * 10 * * * to 400:", "", 0, 250, false},
		{"a quota is full again outside of the window", 100, "* 9-17 * * * x2", "0 0 * * *", 0, 200, true},
		{"a quota is full again within the window", 100, "* 0-5 * * * x2", "0 0 * * *", 0, 200, false},
		{"a quota is full again on a day of the window", 100, "* * * * 6 x2", "0 0 1 * *", 0, 200, false},
		{"a quota is less when it is full again", 100, "* 0-5 * * * x0.5", "0 0 * * *", 0, 80, true},
		{"a session begins in a window", 100, "* 9-17 * * * x2", "", 3600, 200, false},
	} {
		p := Params{Name: "a", Capacity: test.capacity * 1000, RefillAmount: test.capacity * 1000, RefillPeriod: 3_600_000, Session: test.session}
		if test.resets != "" || test.session > 0 {
			p.RefillAmount, p.RefillPeriod = 0, 1000
		}
		if test.resets != "" {
			p.Times = timesOf(t, test.resets, "UTC")
		}
		var err error
		if p.Windows, err = calendar.ParseWindows(test.windows, "UTC"); err != nil {
			t.Fatalf("calendar.ParseWindows() = %v", err)
		}
		c := Config{Params: []Params{p}}
		var plan Plan
		plan.Create(&c, &Demand{}, 0, 1, now)
		s := plan.Item
		d := Demand{Amounts: []Amount{{Limit: "a", Tokens: test.tokens * 1000}}}
		for name, shards := range map[string][]*State{"a bucket that is there": {&s}, "a new one": nil} {
			status := c.Statuses(nil, shards, &d, now)[0]
			if got := status.Wait == Never; got != test.never {
				t.Errorf("%s: %s waits %d ms, want never: %t", test.name, name, status.Wait, test.never)
			}
			if test.never || shards == nil || status.Wait == 0 {
				continue
			}
			if at := now + status.Wait; s.Available(&s.Limits[0], at) < d.Amounts[0].Tokens || s.Available(&s.Limits[0], at-1) >= d.Amounts[0].Tokens {
				t.Errorf("%s: the tokens are not there after %d ms, or were before", test.name, status.Wait)
			}
		}
	}
}

// TestNeverIsNever draws windows at random. What is never admitted is not admitted at the beginning or the end of any stretch
// of years.
func TestNeverIsNever(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	nevers := 0
	for range 600 {
		p := windowed(t, random)
		now := instant(random)
		tokens := 1 + random.Int64N(p.rule().most())
		c, d := Config{Params: []Params{p}}, Demand{Amounts: []Amount{{Limit: "a", Tokens: tokens}}}
		if !p.mayAdmit(&d, now) || c.Statuses(nil, nil, &d, now)[0].Wait != Never {
			continue
		}
		nevers++
		balance := nothingTaken.idle(&p, now)
		for range 5 * maxStretches {
			is, _, end := p.rule().at(now)
			if balance = min(raised(min(balance, is.capacity), flow(now, end-1, is.refill, is.period)), is.capacity); balance >= tokens {
				t.Fatalf("%d are there by %d: %v", tokens, end, p)
			}
			if end == Never {
				break
			}
			now, balance = end, raised(balance, flow(end-1, end, is.refill, is.period))
		}
	}
	if nevers < 5 {
		t.Errorf("%d cases", nevers)
	}
}
