package bucket

import (
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/calendar"
)

// item is a stored bucket: it applies plans under the conditions that the schema states for their steps.
type item struct{ state *State }

// apply reports whether the conditions of a plan hold, and if so does what it says.
func (it *item) apply(p *Plan) bool {
	if p.Kind == Create {
		if it.state != nil {
			return false
		}
		created := p.Item
		created.Limits = slices.Clone(created.Limits)
		it.state = &created
		return true
	}
	if it.state == nil || !p.Writes() {
		return false
	}
	next := *it.state
	next.Limits = slices.Clone(it.state.Limits)
	switch {
	case p.Kind == Spend && next.ValidUntil > 0 && next.ValidUntil <= p.At:
		return false
	case p.Kind == Advance && next.ValidUntil > 0 && next.ValidUntil != p.ValidUntil:
		return false
	case p.Kind == Spend && (next.RefilledAt < p.RefilledAt || next.ExpiresAt > 0 && next.ExpiresAt <= seconds(p.Now)):
		return false
	case next.Generation() != 0 && next.Generation() != p.Generation:
		return false
	case p.Kind == Advance && next.RefilledAt != p.RefilledAt:
		return false
	case p.Kind == Advance:
		next.RefilledAt = p.Now
	}
	for _, s := range p.Steps {
		l, v := next.find(s.Limit), s.Values
		switch s.Kind {
		case Put, Remove:
			if !next.put(&s) {
				return false
			}
			continue
		case Period:
			if it.state.ValidUntil != v[0] {
				return false
			}
			continue
		case Persist:
			next.ExpiresAt = 0
			continue
		case Expire:
			if it.state.ExpiresAt != v[0] {
				return false
			}
			next.ExpiresAt = v[1]
			continue
		case Resize:
			if int64(next.Shards) != v[0] {
				return false
			}
			next.Shards = int(v[1])
			continue
		case Admit:
			if it.state.Disabled {
				return false
			}
			continue
		case Disown, Release: // beside the end of the limit
			continue
		case Unmoved:
			if it.state.RefilledAt != v[0] {
				return false
			}
			continue
		case Seed:
			if l != nil {
				return false
			}
			next.Limits = append(next.Limits, Limit{Name: s.Limit, Tokens: v[0], Consumed: v[1]})
			continue
		}
		if l == nil {
			return false
		}
		before := it.state.find(s.Limit) // conditions see the item as it was
		holds := true
		switch s.Kind {
		case Take:
			holds = before.Tokens >= v[0]
			l.Tokens, l.Consumed = l.Tokens-v[0], l.Consumed+v[0]
		case Borrow:
			holds = before.Tokens >= v[1] && int64(it.state.Shards) == v[2]
			l.Tokens, l.Consumed = l.Tokens-v[0], l.Consumed+v[0]
		case Below:
			holds = before.Tokens <= v[0]
		case Place:
			holds = before.Tokens >= v[0]
			l.Tokens, l.Consumed = v[1], l.Consumed+v[2]
		case Charge:
			l.Tokens, l.Consumed = l.Tokens-v[0], l.Consumed+v[0]
		case Owe:
			holds = int64(it.state.Shards) == v[1]
			l.Tokens, l.Consumed = l.Tokens-v[0], l.Consumed+v[0]
		case Refund:
			holds = before.Tokens <= v[1] && before.Capacity == v[2] && int64(it.state.Shards) == v[3]
			l.Tokens, l.Consumed = l.Tokens-v[0], l.Consumed+v[0]
		case Credit:
			holds = before.Tokens <= v[0]
			l.Tokens += v[1]
		case Cover:
			holds = before.Tokens >= v[0]
		case Fill:
			holds = before.Tokens >= v[0]
			l.Tokens = v[1]
		case Count:
			l.Consumed += v[0]
		case Ascribe:
			l.SetFromChildren(l.FromChildren() + v[0])
		case Contain:
			l.SetFromNarrower(l.FromNarrower() + v[0])
		case Renew:
			l.Tokens = v[0]
		case Regard:
			l.Consumed += v[0]
		case Same:
			holds = before.Life == v[0]
		case Drop:
			next.Limits = slices.DeleteFunc(next.Limits, func(l Limit) bool { return l.Name == s.Limit })
		}
		if !holds {
			return false
		}
	}
	for i := range next.Limits {
		l := &next.Limits[i]
		l.Change(func(r *Rare) {
			var err error
			if r.Windows != nil {
				if r.Windows, err = calendar.DecodeWindows(r.Windows.Compact(), next.Zone()); err != nil {
					panic(err)
				}
			}
			if r.Times != nil {
				if r.Times, err = r.Times.In(next.Zone()); err != nil {
					panic(err)
				}
			}
		})
	}
	it.state = &next
	return true
}

// put sets or removes a field.
func (s *State) put(step *Step) bool {
	v, text := step.Values[0], step.Text
	switch step.Field {
	case Zone:
		s.Change(func(n *Notes) { n.Zone = text })
		return true
	case SharedTimes, SharedWindows:
		s.Change(func(n *Notes) { n.Inherits = false })
		return true
	case ValidUntil:
		s.ValidUntil = v
		return true
	case ExpiresAt:
		s.ExpiresAt = v
		return true
	case Crossed, BypassUntil, Generation:
		s.Change(func(n *Notes) {
			*map[Field]*int64{Crossed: &n.Crossed, BypassUntil: &n.Bypass, Generation: &n.Generation}[step.Field] = v
		})
		return true
	}
	l := s.find(step.Limit)
	if l == nil { // it was dropped before
		return step.Kind == Remove
	}
	switch step.Field {
	case Capacity:
		l.Capacity = v
	case RefillAmount:
		l.RefillAmount = v
	case RefillPeriod:
		l.RefillPeriod = v
	case LifeNumber:
		l.Life = v
	case Times:
		l.Change(func(r *Rare) { r.Times = nil })
		if text != "" {
			l.SetResetTimes(text)
		}
	case Windows:
		l.Change(func(r *Rare) { r.Windows = nil })
		if text != "" {
			l.SetWindowTexts(text)
		}
	default:
		l.Change(func(r *Rare) {
			*map[Field]*int64{
				Session: &r.Session, Since: &r.Since, Applied: &r.Applied, Rolled: &r.Rolled, Began: &r.Began, Turned: &r.Turned, Carry: &r.Carry, Carried: &r.Carried, GrantedTokens: &r.Granted, GrantedUntil: &r.Until, GrantedLacking: &r.Lacking,
				SoftUntil: &r.Soft, Shade: &r.Shade, Refusals: &r.Refusals, Known: &r.Known,
			}[step.Field] = v
		})
	}
	return true
}

// image returns a copy of the item.
func (it *item) image() *State {
	if it.state == nil {
		return nil
	}
	image := *it.state
	image.Limits = slices.Clone(it.state.Limits)
	return &image
}

// ideal is the ideal bucket of one limit, in exact rationals.
type ideal struct {
	Params
	balance  *big.Rat
	over     *big.Rat // what the item may have beyond the balance, by refunds that were judged before at
	at       int64
	consumed int64
	children int64 // part of consumed
	narrower int64 // another one
	worst    int64 // how long before at a write was judged, milliseconds
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// refill brings the bucket up to a time.
func (b *ideal) refill(now int64) {
	if now <= b.at {
		return
	}
	b.balance.Add(b.balance, b.flow(b.at, now))
	b.clamp()
	b.at = now
}

// flow returns what flows in between two times, not rounded.
func (b *ideal) flow(from, to int64) *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(to-from), big.NewInt(b.RefillAmount)), big.NewInt(b.RefillPeriod))
}

// judge brings the bucket up to the time by which a write was judged, if that is later. An earlier write cuts the item off at the
// capacity as of its own time.
func (b *ideal) judge(at int64) {
	high := b.high()
	if b.at < at {
		high.Add(high, b.flow(b.at, at))
	}
	b.refill(at)
	b.exceed(high, at)
}

// high returns the most that the item may have.
func (b *ideal) high() *big.Rat {
	high := new(big.Rat).Set(b.balance)
	if b.over != nil {
		high.Add(high, b.over)
	}
	return high
}

// exceed bounds the item by a balance, and by the capacity at a time at which that was requested.
func (b *ideal) exceed(high *big.Rat, at int64) {
	most := rat(b.Capacity)
	if at < b.at {
		most.Add(most, b.flow(at, b.at))
	}
	if high.Cmp(most) > 0 {
		high = most
	}
	b.over = new(big.Rat).Sub(high, b.balance)
	b.worst = max(b.worst, b.at-at)
}

// settle takes an amount by a write that was judged at a time, or gives it back.
func (b *ideal) settle(amount, at int64) {
	high := b.high()
	b.consume(amount)
	b.exceed(high.Sub(high, rat(amount)), at)
}

func (b *ideal) clamp() {
	if capacity := rat(b.Capacity); b.balance.Cmp(capacity) > 0 {
		b.balance = capacity
	}
}

func (b *ideal) consume(amount int64) {
	b.balance.Sub(b.balance, rat(amount))
	b.clamp()
	b.consumed += amount
}

func drawConfig(t *rapid.T, names []string) Config {
	c := Config{ExpiryFactor: rapid.SampledFrom([]int64{0, 7}).Draw(t, "factor")}
	for _, name := range names {
		c.Params = append(c.Params, Params{
			Name:         name,
			Capacity:     rapid.OneOf(rapid.Int64Range(1, 200), rapid.Int64Range(1000, 1_000_000_000_000_000)).Draw(t, "capacity"),
			RefillAmount: rapid.OneOf(rapid.Int64Range(1, 5000), rapid.Int64Range(1000, 1_000_000_000_000_000)).Draw(t, "refill"),
			RefillPeriod: rapid.SampledFrom([]int64{1, 7, 1000, 60_000, 86_400_000}).Draw(t, "period"),
		})
	}
	return c
}

func drawDemand(t *rapid.T, c *Config) Demand {
	d := Demand{Unchecked: rapid.Bool().Draw(t, "unchecked")}
	for _, p := range c.Params {
		if !rapid.Bool().Draw(t, "asks "+p.Name) {
			continue
		}
		least := int64(0)
		if d.Unchecked {
			least = -p.Capacity
		}
		amount := rapid.OneOf(rapid.Int64Range(max(least, -20), min(p.Capacity, 20)), rapid.Int64Range(least, p.Capacity)).
			Draw(t, "amount of "+p.Name)
		d.Amounts = append(d.Amounts, Amount{
			p.Name, amount, rapid.Int64Range(-20, 20).Draw(t, "part of children"), rapid.Int64Range(-20, 20).Draw(t, "part of narrower resources"), 0,
		})
	}
	return d
}

// A client decides from an image that may be old, by a clock of its own.
type client struct {
	image *State
	skew  int64
}

// TestExact runs clients with stale images and skewed clocks on one item, with δ = 0. It compares the item with ideal
// buckets that see the same writes in the same order, each at the latest time by which a write of the limit was judged. The item has never
// a millitoken more or less (I1, I2). A refund that was judged before that time may leave it with what flows in between the two beyond
// the capacity, and the next write as of that time cuts it off. What was counted is what was consumed (I9), and the refill stamp never
// moves back (I6).
func TestExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t, []string{"rpm", "tpm", "rpd"}[:rapid.IntRange(1, 3).Draw(t, "limits")])
		clients := make([]client, rapid.IntRange(1, 3).Draw(t, "clients"))
		for i := range clients {
			clients[i].skew = rapid.Int64Range(-2000, 2000).Draw(t, "skew")
		}
		now := int64(1_700_000_000_000)
		stored := &item{}
		buckets := map[string]*ideal{}
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			now += rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, 100_000), rapid.Int64Range(-3000, 0)).Draw(t, "elapsed")
			by := &clients[rapid.IntRange(0, len(clients)-1).Draw(t, "client")]
			if rapid.Bool().Draw(t, "looks") {
				by.image = stored.image()
			}
			d := drawDemand(t, &c)
			var plan Plan
			plan.Decide(by.image, &c, &d, now+by.skew)
			before := stored.image()
			applied := stored.apply(&plan)
			if current := reflect.DeepEqual(by.image, before); current && plan.Kind == Reject {
				checkRejection(t, before, buckets, &c, &d, now+by.skew)
			} else if current && !applied {
				t.Fatalf("the %v made from the item itself fails on it: %+v", plan.Kind, plan.Steps)
			}
			if by.image == nil || before != nil && by.image.RefilledAt != before.RefilledAt || !applied {
				by.image = stored.image() // what a failed or a successful write returns
			}
			if !applied {
				continue
			}
			by.image = stored.image()
			if before != nil && stored.state.RefilledAt < before.RefilledAt {
				t.Fatalf("the refill stamp moved back from %d to %d", before.RefilledAt, stored.state.RefilledAt)
			}
			for _, p := range c.Params {
				if buckets[p.Name] == nil {
					buckets[p.Name] = &ideal{Params: p, balance: rat(p.Capacity), at: stored.state.RefilledAt}
				}
				compare(t, stored.state, buckets[p.Name], &plan, &d, nil, now+by.skew)
			}
		}
	})
}

// compare applies a write that was judged at a time to the ideal bucket of a limit, and compares the item with it.
func compare(t *rapid.T, s *State, b *ideal, plan *Plan, d *Demand, asks []*Demand, now int64) {
	amount, checked := d.of(b.Name)
	at := s.RefilledAt
	if plan.OnCredit {
		at = now
	}
	touched := plan.Kind != Spend || amount != 0 // nothing else of the limit is looked at
	if touched && plan.OnCredit {                // each request of a shared write takes its own amount when it came
		for _, one := range asks {
			own, _ := one.of(b.Name)
			b.judge(min(one.At, at))
			b.settle(own, min(one.At, at))
			amount -= own
		}
	}
	if touched {
		b.judge(at)
	}
	if reach := new(big.Rat).Add(b.high(), b.flow(at, at+d.Wait)); checked && reach.Cmp(rat(amount-1)) <= 0 {
		t.Fatalf("%s admitted %d with %v within the wait", b.Name, amount, reach.FloatString(3))
	}
	if touched {
		b.settle(amount, at)
	}
	l := s.find(b.Name)
	has := rat(add(l.Tokens, Refill(s.RefilledAt, b.at, b.RefillAmount, b.RefillPeriod)))
	if low, high := new(big.Rat).Sub(b.balance, rat(1)), new(big.Rat).Add(b.high(), rat(1)); touched && (has.Cmp(low) <= 0 || has.Cmp(high) >= 0) {
		t.Fatalf("after a %v at %d, %s has %v by %d, the ideal bucket %v and at most %v", plan.Kind, at, b.Name, has.FloatString(0), b.at,
			b.balance.FloatString(3), b.high().FloatString(3))
	}
	if slack := b.flow(0, b.worst); b.over.Cmp(slack) > 0 {
		t.Fatalf("%s may have %v beyond the ideal bucket, more than flows in during %d ms", b.Name, b.over.FloatString(3), b.worst)
	}
	children, narrower := d.parts(b.Name)
	b.children += children
	b.narrower += narrower
	if l.Consumed != b.consumed || l.FromChildren() != b.children || l.FromNarrower() != b.narrower {
		t.Fatalf("%s counts %d, %d of children, %d of narrower resources; consumed were %d, %d, %d",
			b.Name, l.Consumed, l.FromChildren(), l.FromNarrower(), b.consumed, b.children, b.narrower)
	}
}

// checkRejection checks that a rejection made on what is stored was due: some limit is short, except the millitoken that
// rounding may cost.
func checkRejection(t *rapid.T, s *State, buckets map[string]*ideal, c *Config, d *Demand, now int64) {
	for _, a := range d.Amounts {
		balance := rat(c.of(a.Limit).Capacity)
		if s != nil {
			b := ideal{Params: *c.of(a.Limit), balance: new(big.Rat).Set(buckets[a.Limit].balance), at: buckets[a.Limit].at}
			now = max(now, s.RefilledAt)
			if b.refill(now); now < b.at { // it is reported at that time
				b.balance.Sub(b.balance, b.flow(now, b.at))
			}
			balance = b.balance.Add(b.balance, b.flow(now, now+d.Wait))
		}
		if a.Tokens > 0 && balance.Cmp(rat(a.Tokens+1)) < 0 {
			return
		}
	}
	t.Fatalf("rejected %v though every limit has as much", d.Amounts)
}

// TestIntervals runs clients with stale images and late writes on one item, with δ > 0. It adds up what was admitted
// between any two times. That is at most the capacity, the refill of the time between, and the refill of δ (I1). The
// time of an admission is the writer's clock reading, or the stamp that the write met if that is later.
func TestIntervals(t *testing.T) {
	type admission struct{ at, amount int64 }
	rapid.Check(t, func(t *rapid.T) {
		p := Params{
			Name:         "rpm",
			Capacity:     rapid.Int64Range(1, 100).Draw(t, "capacity") * 1000,
			RefillAmount: rapid.Int64Range(1, 100).Draw(t, "refill") * 1000,
			RefillPeriod: rapid.SampledFrom([]int64{1000, 60_000}).Draw(t, "period"),
		}
		c := Config{Params: []Params{p}, Freshness: rapid.Int64Range(0, 2000).Draw(t, "freshness")}
		images := make([]*State, rapid.IntRange(1, 3).Draw(t, "clients"))
		type held struct {
			plan Plan
			admission
		}
		var late []held
		var admitted []admission
		now := int64(1_700_000_000_000)
		stored := &item{}
		deliver := func(h held) {
			if stored.apply(&h.plan) {
				h.at = max(h.at, stored.state.RefilledAt)
				admitted = append(admitted, h.admission)
			}
		}
		for range rapid.IntRange(1, 80).Draw(t, "operations") {
			now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 500), rapid.Int64Range(0, 70_000)).Draw(t, "elapsed")
			for len(late) > 0 && rapid.Bool().Draw(t, "arrives") {
				i := rapid.IntRange(0, len(late)-1).Draw(t, "which")
				deliver(late[i])
				late = slices.Delete(late, i, i+1)
			}
			by := rapid.IntRange(0, len(images)-1).Draw(t, "client")
			if rapid.Bool().Draw(t, "looks") {
				images[by] = stored.image()
			}
			amount := rapid.Int64Range(1, p.Capacity/1000).Draw(t, "amount") * 1000
			h := held{admission: admission{now, amount}}
			h.plan.Decide(images[by], &c, &Demand{Amounts: []Amount{{Limit: "rpm", Tokens: amount}}}, now)
			h.plan.Steps = slices.Clone(h.plan.Steps)
			h.plan.Item.Limits = slices.Clone(h.plan.Item.Limits)
			if rapid.IntRange(0, 3).Draw(t, "delay") == 0 {
				late = append(late, h)
				continue
			}
			deliver(h)
			images[by] = stored.image()
		}
		slices.SortStableFunc(admitted, func(a, b admission) int { return int(a.at - b.at) })
		for i := range admitted {
			sum := int64(0)
			for _, a := range admitted[i:] {
				sum += a.amount
				elapsed := a.at - admitted[i].at + c.Freshness
				allowed := p.Capacity + 1 + Refill(0, elapsed, p.RefillAmount, p.RefillPeriod) + 1
				if sum > allowed {
					t.Fatalf("between %d and %d %d were admitted, at most %d may be", admitted[i].at, a.at, sum, allowed)
				}
			}
		}
	})
}

// TestWaitIsMinimal holds retry-after against the decision: after it the demand is admitted, a millisecond before it is
// not (I11 for demands above capacity).
func TestWaitIsMinimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t, []string{"rpm", "tpm"})
		now := int64(1_700_000_000_000)
		s := &State{RefilledAt: now - rapid.Int64Range(-5000, 5000).Draw(t, "age")}
		for _, p := range append(slices.Clone(c.Params), writeUnits) {
			s.Limits = append(s.Limits, Limit{
				Name: p.Name, Capacity: p.Capacity, RefillAmount: p.RefillAmount, RefillPeriod: p.RefillPeriod,
				Tokens: rapid.Int64Range(-p.Capacity, p.Capacity).Draw(t, "tokens"),
			})
		}
		if c.ExpiryFactor > 0 {
			s.ExpiresAt = maxExpiry
		}
		d := Demand{}
		for _, p := range c.Params {
			d.Amounts = append(d.Amounts, Amount{Limit: p.Name, Tokens: rapid.Int64Range(1, p.Capacity+p.Capacity/4).Draw(t, "amount")})
		}
		wait, possible := int64(0), true
		for _, status := range c.Statuses(nil, []*State{s}, &d, now) {
			possible = possible && status.Wait != Never
			wait = max(wait, status.Wait)
		}
		kindAfter := func(ms int64) Kind {
			var plan Plan
			plan.Decide(s, &c, &d, now+ms)
			return plan.Kind
		}
		if !possible {
			if kind := kindAfter(1 << 60); kind != Reject {
				t.Fatalf("a demand above capacity ends in %v after all time, want reject", kind)
			}
			return
		}
		if wait > 1<<60 {
			t.Skip("longer than the test can wait")
		}
		if kind := kindAfter(wait); kind == Reject {
			t.Fatalf("after the wait of %d ms it is rejected", wait)
		}
		if wait > 0 {
			if kind := kindAfter(wait - 1); kind != Reject {
				t.Fatalf("a millisecond before the wait of %d ms it ends in %v, want reject", wait, kind)
			}
		}
	})
}

// TestTimelines follows single buckets through their lives.
func TestTimelines(t *testing.T) {
	type step struct {
		at      int64 // milliseconds
		consume int64 // tokens
		ok      bool
		left    int64 // millitokens
	}
	perMinute := Params{Name: "rpm", Capacity: 100_000, RefillAmount: 100_000, RefillPeriod: 60_000}
	perDay := Params{Name: "rpm", Capacity: 1000, RefillAmount: 1000, RefillPeriod: 86_400_000}
	for _, test := range []struct {
		name   string
		params Params
		steps  []step
	}{
		{"an idle minute is not handed out on top of a full bucket", perMinute, []step{
			{0, 0, true, 100_000}, {60_000, 100, true, 0}, {60_000, 1, false, 0}, {60_600, 1, true, 0}, {60_600, 1, false, 0},
		}},
		{"a limit of one per day polled every second refills in a day", perDay, func() (s []step) {
			s = append(s, step{0, 1, true, 0})
			for at := int64(1000); at < 86_400_000; at += 1_000_000 {
				s = append(s, step{at, 1, false, 0})
			}
			return append(s, step{86_400_000, 1, true, 0})
		}()},
		{"a clock that jumps back neither refills nor loses", perMinute, []step{
			{60_000, 100, true, 0}, {30_000, 1, false, 0}, {60_599, 1, false, 0}, {60_600, 1, true, 0},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := Config{Params: []Params{test.params}}
			stored := &item{}
			for i, s := range test.steps {
				d := Demand{Amounts: []Amount{{Limit: "rpm", Tokens: s.consume * 1000}}}
				var plan Plan
				plan.Decide(stored.image(), &c, &d, s.at)
				ok := stored.apply(&plan)
				left := stored.state.Available(stored.state.find("rpm"), s.at)
				if ok != s.ok || s.ok && left != s.left {
					t.Fatalf("step %d: consume(%d) at %d = %v with %d left, want %v with %d", i, s.consume, s.at, ok, left, s.ok, s.left)
				}
			}
		})
	}
}

func ExamplePlan_Decide() {
	c := Config{Params: []Params{{Name: "rpm", Capacity: 100_000, RefillAmount: 100_000, RefillPeriod: 60_000}}}
	var plan Plan
	plan.Decide(nil, &c, &Demand{Amounts: []Amount{{Limit: "rpm", Tokens: 30_000}}}, 0)
	fmt.Println(plan.Kind, plan.Item.find("rpm").Tokens)
	// Output: create 70000
}
