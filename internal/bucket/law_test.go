package bucket

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// lawWindows are windows of minutes, hours and days, within one another and after one another.
var lawWindows = []string{
	"*/2 * * * * x0.5", "* 9-17 * * 1-5 x2", "30-44 * * * * x0.333; 10-50 * * * * x3", "* 22-23,0-5 * * * to 20:10/30s", "* * * * * x0.1",
	"*/7 * * * * x0.001; */5 * * * * x10", "0-29 * * * * to :7; * 3 * * * to 5:/7s",
}

// windowed draws a limit with windows, small enough for a chain over hours to matter.
func windowed(t check.TB, random *rand.Rand) Params {
	zones := []string{"UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca"}
	w, err := calendar.ParseWindows(lawWindows[random.IntN(len(lawWindows))], zones[random.IntN(len(zones))])
	check.Fatal(t, "calendar.ParseWindows()", err)
	return Params{
		Name: "a", Capacity: 1 + random.Int64N(1<<(1+random.IntN(18))), RefillAmount: 1 + random.Int64N(1<<(1+random.IntN(18))),
		RefillPeriod: []int64{1000, 7777, 60_000, 3_600_000}[random.IntN(4)], Windows: w,
	}
}

// instant draws a time of some years.
func instant(random *rand.Rand) int64 { return 1_760_000_000_000 + random.Int64N(90_000_000_000) }

// naive walks a balance from one time to another, minute by minute, in exact numbers. It returns the number of stretches, too.
func naive(p *Params, tokens, from, to int64, shard, shards int) (*big.Rat, int64) {
	share := func(n int64) *big.Rat { return rat(Share(n, shard, shards)) }
	x, stretches := rat(tokens), int64(1)
	last, _, _ := p.Windows.At(from)
	cut := func(at int64) (refill, period int64) {
		c, _, _ := p.Windows.At(at)
		capacity, refill, period := p.Capacity, p.RefillAmount, p.RefillPeriod
		if c != nil {
			capacity, refill, period = c.Of(capacity, refill, period)
		}
		if c != last {
			last = c
			stretches++
		}
		if most := share(capacity); x.Cmp(most) > 0 {
			x = most
		}
		return refill, period
	}
	for at := from; at < to; {
		refill, period := cut(at)
		next := min(to, (at/30_000+1)*30_000)
		in := share(refill)
		x = new(big.Rat).Add(x, in.Mul(in, big.NewRat(next-at, period)))
		cut(next - 1)
		at = next
	}
	cut(to)
	return x, stretches
}

// TestLaw compares chains with a walk in exact numbers: the difference is less than one millitoken for each stretch.
func TestLaw(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 1500 {
		p := windowed(t, random)
		from := instant(random)
		to := from + random.Int64N(1<<(10+random.IntN(15)))
		if random.IntN(4) == 0 {
			to = max(from, to/60_000*60_000)
		}
		shards := 1 << random.IntN(3)
		shard := random.IntN(shards)
		s := State{RefilledAt: from, Shard: shard, Shards: shards}
		most := s.capacity(p.Name, p.rule(), from)
		tokens := []int64{most, most - random.Int64N(4*most+1)}[random.IntN(2)]
		l := Limit{Name: p.Name, Tokens: tokens, Capacity: p.Capacity, RefillAmount: p.RefillAmount, RefillPeriod: p.RefillPeriod, Rare: &Rare{Windows: p.Windows}}
		got := s.chain(&l, from, to, 0).of(tokens)
		if whole := s.chain(&l, from, to, math.MaxUint64).of(tokens); whole != got {
			t.Fatalf("%d where the chain is cut short, and %d where it is not", got, whole)
		}
		want, stretches := naive(&p, tokens, from, to, shard, shards)
		difference := new(big.Rat).Sub(rat(got), want)
		if difference.Abs(difference).Cmp(rat(stretches)) >= 0 {
			t.Fatalf("%d, want %s over %d stretches", got, want.FloatString(3), stretches)
		}
	}
}

// TestIdle compares a bucket that does not exist with an old bucket of which nothing was taken.
func TestIdle(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 400 {
		p := windowed(t, random)
		at := instant(random)
		l := Limit{Name: p.Name, Capacity: p.Capacity, RefillAmount: p.RefillAmount, RefillPeriod: p.RefillPeriod, Rare: &Rare{Windows: p.Windows}}
		long := p.rule().slowest(2 * p.rule().most())
		if long > 30*24*3_600_000 {
			continue // too slow
		}
		var s State
		if idle, is := s.idle(&p, at), s.chain(&l, at-long, at, math.MaxUint64).of(0); idle != is {
			t.Fatalf("%d, want %d", idle, is)
		}
	}
}

// In TestWindowsOfClients, clients with slightly different clocks and old images take and give back across windows. Admissions
// never exceed those of a bucket with a refill at every write.
func TestWindowsOfClients(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 400 {
		p := windowed(t, random)
		c := Config{Params: []Params{p}, Freshness: []int64{0, 2000}[random.IntN(2)]}
		now := instant(random)
		var it item
		var stale *State
		model := rat(nothingTaken.idle(&p, now))
		slack, stamp := int64(1), now
		p.rule().each(func(r rule) { slack = max(slack, 2+Refill(0, c.Freshness, r.refill, r.period)) })
		for range 40 {
			now += random.Int64N(1 << (1 + random.IntN(20)))
			if random.IntN(2) == 0 { // about the beginning of a minute
				now = max(stamp, (now+30_000)/60_000*60_000+random.Int64N(4000)-2000)
			}
			image := it.image()
			if random.IntN(2) == 0 && stale != nil {
				image = stale
			}
			d := Demand{Amounts: []Amount{{Limit: "a", Tokens: 1 + random.Int64N(p.Capacity)}}}
			gives := image != nil && random.IntN(4) == 0
			if gives {
				d.Amounts[0].Tokens = -d.Amounts[0].Tokens
			}
			var plan Plan
			plan.Decide(image, &c, &d, now)
			stale = it.image()
			if !plan.Writes() || !it.apply(&plan) {
				continue
			}
			to := max(now, stamp)
			lifted, stretches := naiveFrom(&p, model, stamp, to)
			slack += stretches
			model = new(big.Rat).Sub(lifted, rat(d.Amounts[0].Tokens))
			if gives {
				if most := rat(p.rule().capacityAt(to)); model.Cmp(most) > 0 {
					model = most
				}
			}
			stamp = to
			if model.Cmp(rat(-slack)) < 0 {
				t.Fatalf("took %d where an ideal bucket is left with %s", d.Amounts[0].Tokens, model.FloatString(3))
			}
			had := it.state.chain(it.state.find("a"), it.state.RefilledAt, now, 0).of(it.state.find("a").Tokens)
			if over := new(big.Rat).Sub(rat(had), model); over.Cmp(rat(slack)) > 0 {
				t.Fatalf("the item has %d, and an ideal bucket %s", had, model.FloatString(3))
			}
		}
	}
}

// naiveFrom is naive for a balance in exact numbers.
func naiveFrom(p *Params, tokens *big.Rat, from, to int64) (*big.Rat, int64) {
	floor := new(big.Int).Quo(tokens.Num(), tokens.Denom()).Int64()
	x, stretches := naive(p, floor, from, to, 0, 1)
	rest := new(big.Rat).Sub(tokens, rat(floor))
	most := rat(p.rule().capacityAt(to))
	if x = x.Add(x, rest); x.Cmp(most) > 0 {
		x = most
	}
	return x, stretches
}

// TestWaitsAcrossWindows takes what a status reports to be there after a wait: it is, and it is not a millisecond
// before.
func TestWaitsAcrossWindows(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 1500 {
		p := windowed(t, random)
		c := Config{Params: []Params{p}}
		now := instant(random)
		var plan Plan
		plan.Create(&c, &Demand{}, 0, 1, now)
		s := plan.Item
		s.Limits[0].Tokens = nothingTaken.idle(&p, now) - random.Int64N(2*p.Capacity)
		d := Demand{Amounts: []Amount{{Limit: "a", Tokens: 1 + random.Int64N(p.rule().most())}}}
		status := c.Statuses(nil, []*State{&s}, &d, now)[0]
		if status.Wait == 0 || status.Wait >= Never-1 {
			continue
		}
		if at := now + status.Wait; s.Available(&s.Limits[0], at) < d.Amounts[0].Tokens {
			if _, _, end := p.Windows.At(now); end == Never || status.Wait < 60_000 {
				t.Fatalf("%d are not there after %d ms", d.Amounts[0].Tokens, status.Wait)
			}
			continue // it was to come again then
		}
		if s.Available(&s.Limits[0], now+status.Wait-1) >= d.Amounts[0].Tokens {
			t.Fatalf("%d are there after less than %d ms", d.Amounts[0].Tokens, status.Wait)
		}
	}
}

// closing is a bucket of 60 a minute, and of twice as many before a time at which its window closes. It was made full half a
// second before.
func closing(t *testing.T) (c Config, it item, at int64) {
	t.Helper()
	w := check.Call(calendar.ParseWindows("* 9-16 * * * x2", "UTC")).Must(t, "calendar.ParseWindows()")
	c = Config{Freshness: 2000, Params: []Params{{Name: "a", Capacity: 60_000, RefillAmount: 60_000, RefillPeriod: 60_000, Windows: w}}}
	at = 1_793_034_000_000 // 17:00
	var plan Plan
	plan.Decide(nil, &c, &Demand{}, at-500)
	if !it.apply(&plan) || it.state.find("a").Tokens != 120_000 {
		t.Fatalf("the item is %+v", it.state)
	}
	return c, it, at
}

// TestTakesEndWithWindows takes right after a window has closed, while the stamp is fresh: what is above the capacity then is gone.
func TestTakesEndWithWindows(t *testing.T) {
	c, it, at := closing(t)
	if it.state.ValidUntil != at {
		t.Fatalf("the item is valid until %d, want %d", it.state.ValidUntil, at)
	}
	image := it.image()
	for _, amount := range []int64{100_000, 10_000} {
		d := Demand{Amounts: []Amount{{Limit: "a", Tokens: amount}}}
		var plan Plan
		plan.SpendUnseen(image, &c, &d, at+100)
		if plan.Writes() && it.apply(&plan) {
			t.Errorf("%d are taken unseen of a window that is over", amount)
		}
		plan.Decide(image, &c, &d, at+100)
		if applied := plan.Writes() && it.apply(&plan); applied != (amount < 60_000) {
			t.Errorf("%d are taken of 60000: %t", amount, applied)
		}
	}
	if got := it.state.find("a").Tokens; got != 50_000 {
		t.Errorf("%d are left, want 50000", got)
	}
}

// TestRefundsEndWithWindows gives tokens back by a plan from before a window closed, which arrives once another client has written
// the item. The plan has more room than there is, and must not hold.
func TestRefundsEndWithWindows(t *testing.T) {
	c, it, at := closing(t)
	take := Demand{Amounts: []Amount{{Limit: "a", Tokens: 20_000}}}
	var plan, late Plan
	plan.Decide(it.image(), &c, &take, at-400)
	if !it.apply(&plan) {
		t.Fatal("nothing is taken")
	}
	late.Decide(it.image(), &c, &Demand{Amounts: []Amount{{Limit: "a", Tokens: -20_000}}, Settles: true, Unchecked: true}, at-1)
	if late.Kind != Spend {
		t.Fatalf("the refund is to %v, want spend", late.Kind)
	}
	plan.Decide(it.image(), &c, &Demand{}, at)
	if !it.apply(&plan) || it.state.find("a").Tokens != 60_000 {
		t.Fatalf("the item is %+v", it.state)
	}
	if it.apply(&late) || it.state.find("a").Tokens > 60_000 {
		t.Errorf("the refund leaves %d of 60000", it.state.find("a").Tokens)
	}
}
