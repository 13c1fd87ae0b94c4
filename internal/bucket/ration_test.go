package bucket

import (
	"math/rand/v2"
	"testing"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// rationed draws a quota with windows.
func rationed(t *testing.T, random *rand.Rand) Params {
	t.Helper()
	p := windowed(t, random)
	patterns := []string{"*/7 * * * *", "0 * * * *", "30 2,9 * * *", "0 0 * * *"}
	p.RefillAmount, p.RefillPeriod = 0, 1000
	p.Times = timesOf(t, patterns[random.IntN(len(patterns))], p.Windows.Zone())
	return p
}

// naiveQuota walks a balance of a shard minute by minute: at each one the window changes first, and then the quota resets.
func naiveQuota(s *State, p *Params, tokens, from, to int64) int64 {
	most := func(at int64) int64 { return s.capacity(p.Name, p.rule(), at) }
	tokens = min(tokens, most(from))
	for at := (from/60_000 + 1) * 60_000; at <= to; at += 60_000 {
		if tokens = min(tokens, most(at)); p.Times.Between(at-1, at) {
			tokens = most(at)
		}
	}
	return tokens
}

// TestQuotasInWindows compares the chain of a quota with a walk minute by minute.
func TestQuotasInWindows(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	resets, cut := 0, 0
	for range 1500 {
		p := rationed(t, random)
		from := instant(random)
		to := from + random.Int64N(1<<(12+random.IntN(16)))
		if random.IntN(4) == 0 {
			to = max(from, to/60_000*60_000)
		}
		shards := 1 << random.IntN(3)
		s := State{RefilledAt: from, Shard: random.IntN(shards), Shards: shards}
		most := s.capacity(p.Name, p.rule(), from)
		l := Limit{Name: p.Name, Tokens: most - random.Int64N(2*most+1), Capacity: p.Capacity, RefillPeriod: 1000, Rare: &Rare{Times: p.Times, Windows: p.Windows}}
		ch := s.chain(&l, from, to, 0)
		if got, want := ch.of(l.Tokens), naiveQuota(&s, &p, l.Tokens, from, to); got != want || ch.renewed != p.Times.Between(from, to) {
			t.Fatalf("%d of %+v from %d to %d makes %d, want %d", l.Tokens, p, from, to, got, want)
		} else if ch.renewed {
			resets++
		} else if got < l.Tokens {
			cut++
		}
	}
	if resets < 100 || cut < 20 {
		t.Errorf("%d quotas were reset, and %d cut off", resets, cut)
	}
}

// TestWaitsOfQuotasInWindows takes what a status reports to be there after a wait: it is, and was not at any time the quota reset
// before. One shard of a bucket may have crossed an edge that the others have not.
func TestWaitsOfQuotasInWindows(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	waits := 0
	for range 400 {
		p := rationed(t, random)
		c := Config{Params: []Params{p}}
		now := instant(random)
		shards := make([]*State, 1+random.IntN(2))
		for i := range shards {
			var plan Plan
			plan.Create(&c, &Demand{}, i, len(shards), now+int64(i)*random.Int64N(5000))
			s := plan.Item
			s.Limits = []Limit{s.Limits[0], s.Limits[1]}
			s.Limits[0].Tokens -= random.Int64N(2 * p.Capacity)
			shards[i] = &s
		}
		d := Demand{Amounts: []Amount{{Limit: "a", Tokens: 1 + random.Int64N(p.rule().most())}}}
		status := c.Statuses(nil, shards, &d, now)[0]
		if status.Wait == 0 || status.Wait == Never {
			continue
		}
		waits++
		has := func(at int64) bool { return (view{&c, shards, at}).available(&c.Params[0], &d) >= d.Amounts[0].Tokens }
		edges := 0
		for at := p.Times.Next(now); at < now+status.Wait && edges < maxStretches; at = p.Times.Next(at) {
			if edges++; has(at) {
				t.Fatalf("%d of %+v are there before %d ms: after %d", d.Amounts[0].Tokens, p, status.Wait, at-now)
			}
		}
		if !has(now+status.Wait) && edges < maxStretches-1 {
			t.Fatalf("%d of %+v are not there after %d ms", d.Amounts[0].Tokens, p, status.Wait)
		}
	}
	if waits < 80 {
		t.Errorf("%d waits", waits)
	}
}

// TestQuotaOfLongerMonths waits for a window that begins when the quota resets.
func TestQuotaOfLongerMonths(t *testing.T) {
	w := check.Call(calendar.ParseWindows("* * 1 * * x1.5", "UTC")).Must(t, "calendar.ParseWindows()")
	c := Config{Params: []Params{{Name: "a", Capacity: 100_000, RefillPeriod: 1000, Times: timesOf(t, "0 0 * * *", "UTC"), Windows: w}}}
	const first = 1_796_083_200_000 // 1 December 2026
	var plan Plan
	plan.Create(&c, &Demand{}, 0, 1, first-3_600_000)
	d := Demand{Amounts: []Amount{{Limit: "a", Tokens: 120_000}}}
	if got := c.Statuses(nil, []*State{&plan.Item}, &d, first-3_600_000)[0].Wait; got != 3_600_000 {
		t.Errorf("the wait is %d ms, want an hour", got)
	}
}
