package bucket

import (
	"errors"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// A grantLedger is a limit with grants that goes from event to event: minutes of windows, ends of grants, edges of quotas. It is one
// bucket whatever its shards are, in exact numbers.
type grantLedger struct {
	p         *Params
	balance   *big.Rat
	granted   int64
	until     int64
	lone      *big.Rat // the most that it has without what is granted
	since     int64    // of a session
	at        int64
	stretches int64
	ended     int64 // of grants: items of a divided bucket may lose as much, each of what is above its share
	edges     int   // that a grant went along
}

func (g *grantLedger) ends() int64 {
	if g.since == 0 {
		return 0
	}
	return g.since + g.p.Session*1000
}

// edge returns the first edge after a time, or one that is later than another time.
func (g *grantLedger) edge(after, to int64) int64 {
	if g.p.Times != nil {
		return g.p.Times.Next(after)
	}
	if end := g.ends(); end > after {
		return end
	}
	return to + 1
}

func (g *grantLedger) clamp() {
	capacity := g.p.rule().capacityAt(g.at)
	if most := rat(capacity + g.granted); g.balance.Cmp(most) > 0 {
		g.balance = most
	}
	if g.granted > 0 && g.lone.Cmp(rat(capacity)) > 0 {
		g.lone = rat(capacity)
	}
}

// advance goes to a time. At each event the window changes first, then a grant ends, and then a quota resets.
func (g *grantLedger) advance(to int64) {
	for g.at < to {
		next := min(to, g.edge(g.at, to))
		if g.p.Windows != nil {
			next = min(next, (g.at/60_000+1)*60_000)
		}
		if g.until > g.at {
			next = min(next, g.until)
		}
		now, _, _ := g.p.rule().at(g.at)
		in := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(next-g.at), big.NewInt(now.refill)), big.NewInt(now.period))
		g.balance.Add(g.balance, in)
		if g.granted > 0 {
			g.lone.Add(g.lone, in)
		}
		g.clamp()
		resets := g.edge(g.at, to) == next
		g.at = next
		g.stretches++
		g.clamp()
		if g.until != 0 && g.until <= next {
			g.ended += g.granted
			g.balance.Sub(g.balance, g.rest())
			g.granted, g.until = 0, 0
		}
		if !resets {
			continue
		}
		left := int64(0)
		if g.until != 0 && g.balance.Sign() > 0 {
			left = min(g.granted, new(big.Int).Div(g.balance.Num(), g.balance.Denom()).Int64())
		}
		if g.granted = left; left == 0 {
			g.until = 0
		} else {
			g.edges++
		}
		g.since = 0
		g.balance, g.lone = rat(g.p.rule().capacityAt(next)+left), rat(g.p.rule().capacityAt(next))
	}
}

// rest returns what is left of a grant: what the limit has beyond what it would have without.
func (g *grantLedger) rest() *big.Rat {
	rest := rat(0)
	if g.granted > 0 && g.balance.Cmp(g.lone) > 0 {
		rest.Sub(g.balance, g.lone)
	}
	if granted := rat(g.granted); rest.Cmp(granted) > 0 {
		rest = granted
	}
	return rest
}

func (g *grantLedger) clone() *grantLedger {
	other := *g
	other.balance = new(big.Rat).Set(g.balance)
	if g.lone != nil {
		other.lone = new(big.Rat).Set(g.lone)
	}
	return &other
}

// granting is a program of clients and operators of one bucket.
type granting struct {
	*rapid.T
	config Config
	shards tree
	images map[int]*State // that a client remembers
	ledger grantLedger
	now    int64
	alone  bool // the bucket is never split
	leases []restoredLease
	steps  int64
}

// TestGrants runs programs of takes, refunds, splits, merges, gathers, grants and resets, by images that may be old. A limit refills or is a
// quota, with windows or without. One item has just what the ledger has. Items of a divided bucket never have more together, and less only
// where what is left of a grant went along an edge.
func TestGrants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := granting{T: t, now: 1_792_879_200_000 + rapid.Int64Range(0, 1e9).Draw(t, "start"), images: map[int]*State{}}
		p.draw()
		p.shards = fullShards(&p.config, 1, p.now)
		params := &p.config.Params[0]
		p.ledger = grantLedger{p: params, balance: rat(nothingTaken.idle(params, p.now)), at: p.now}
		p.alone = params.Session > 0 || rapid.Bool().Draw(t, "alone")
		steps := map[string]func(){"take": p.take, "take of all": p.gather, "refund": p.refund, "grant": p.grant, "reset": p.reset, "wait": p.waits}
		if !p.alone {
			steps["split"], steps["merge"] = p.split, p.merge
		}
		names := []string{"take", "take", "take of all", "refund", "grant", "grant", "wait"}
		for name := range steps {
			names = append(names, name)
		}
		slices.Sort(names)
		for range rapid.IntRange(10, 50).Draw(t, "steps") {
			p.steps++
			if rapid.IntRange(0, 2).Draw(t, "waits") == 0 {
				p.now += rapid.OneOf(rapid.Int64Range(1, 2000), rapid.Int64Range(0, 400_000), rapid.Int64Range(0, 9_000_000)).Draw(t, "time")
				if until := p.ledger.until; until > p.now && until < p.now+10_000_000 && rapid.Bool().Draw(t, "to the end of the grant") {
					p.now = until + rapid.Int64Range(-1, 1).Draw(t, "about")
				}
			}
			p.now = p.latest()
			p.ledger.advance(p.now)
			p.follow("time")
			name := rapid.SampledFrom(names).Draw(t, "step")
			steps[name]()
			p.now = p.latest()
			p.ledger.advance(p.now)
			p.follow(name)
		}
	})
}

// In TestGrantsGoAlong, the quota of a bucket of two items resets during a grant, and at its end. What is left of the grant is there then,
// and gone at its end.
func TestGrantsGoAlong(t *testing.T) {
	const hour = 3_600_000
	now := int64(1_792_879_200_000)
	c := Config{Params: []Params{{Name: "a", Capacity: 1000, RefillPeriod: 1000, Times: timesOf(t, "0 * * * *", "UTC")}}}
	shards := fullShards(&c, 2, now)
	parts, _, err := c.Change(shards.images(), &ManualChange{Gifts: []Amount{{Limit: "a", Tokens: 500}}, Until: now + 2*hour}, true, 7, now)
	check.Fatal(t, "Change()", err)
	take := func(amount int64, parts []Part) {
		t.Helper()
		for i := range parts {
			if !shards[parts[i].At].apply(&parts[i].Plan) {
				t.Fatalf("%d: part %d does not apply: %+v", amount, i, parts[i].Plan)
			}
		}
	}
	take(0, parts)
	for _, step := range []struct{ amount, left int64 }{{1200, 300}, {500, 800}, {100, 900}} {
		parts, ok := c.Gather(shards.images(), &Demand{Amounts: []Amount{{Limit: "a", Tokens: step.amount}}}, true, now)
		if !ok {
			t.Fatalf("%d are not there", step.amount)
		}
		take(step.amount, parts)
		if has := (view{&c, shards.images(), now}).whole(&c.Params[0]).available(); has != step.left {
			t.Errorf("%d are left, want %d", has, step.left)
		}
		now += hour
	}
	for _, it := range shards {
		if l := it.state.find("a"); l.Granted() != 0 || l.Until() != 0 {
			t.Errorf("a grant that is over is noted: %+v", l.Rare)
		}
	}
}

// In TestGrantEndsAfterAWindow, a grant ends in one of two items, after a window has cut off what both have. What it cut off does not come
// back as what the item with the grant has room for.
func TestGrantEndsAfterAWindow(t *testing.T) {
	w := check.Call(calendar.ParseWindows("30-44 * * * * x0.333", "UTC")).Must(t, "calendar.ParseWindows()")
	now := int64(1_792_879_200_000)
	c := Config{Params: []Params{{Name: "a", Capacity: 1000, RefillPeriod: 1000, Times: timesOf(t, "0 * * * *", "UTC"), Windows: w}}}
	shards := fullShards(&c, 2, now)
	until := now + 50*60_000
	parts, _, err := c.Change(shards.images(), &ManualChange{Gifts: []Amount{{Limit: "a", Tokens: 1}}, Until: until}, false, 7, now)
	check.Fatal(t, "Change()", err)
	for i := range parts {
		if !shards[i].apply(&parts[i].Plan) {
			t.Fatalf("part %d of the grant does not apply", i)
		}
	}
	for _, test := range []struct{ at, want int64 }{{now, 1001}, {now + 40*60_000, 334}, {until - 1, 334}, {until, 333}, {until + 60_000, 333}} {
		if has := (view{&c, shards.images(), test.at}).whole(&c.Params[0]).available(); has != test.want {
			t.Errorf("%d min later the items have %d, want %d", (test.at-now)/60_000, has, test.want)
		}
	}
}

// In TestSplitBesideARefund, a lease gives back a token between the image and the write of a split, during a grant. The split does not
// apply, since its halves of the grant would leave the token to the limit at the end.
func TestSplitBesideARefund(t *testing.T) {
	now := int64(1_792_879_200_000)
	c := Config{Params: []Params{{Name: "a", Capacity: 1000, RefillPeriod: 1000, Times: timesOf(t, "0 * * * *", "UTC")}}}
	shards := fullShards(&c, 1, now)
	it := shards[0]
	decide := func(image *State, d Demand) {
		t.Helper()
		var plan Plan
		plan.Decide(image, &c, &d, now)
		if !it.apply(&plan) {
			t.Fatalf("a %v does not apply", plan.Kind)
		}
	}
	decide(it.image(), Demand{Amounts: []Amount{{Limit: "a", Tokens: 1}}})
	lives := it.image().Lives(nil)
	parts, _, err := c.Change(shards.images(), &ManualChange{Gifts: []Amount{{Limit: "a", Tokens: 2}}, Until: now + 1000}, true, 7, now)
	if err != nil || !it.apply(&parts[0].Plan) {
		t.Fatalf("the grant does not apply: %v", err)
	}
	decide(it.image(), Demand{Amounts: []Amount{{Limit: "a", Tokens: 1}}})
	old := it.image()
	back := Demand{Unchecked: true, Settles: true}
	back.GiveBack([]Amount{{Limit: "a", Tokens: -1}}, lives, it.image())
	decide(it.image(), back)
	var plan Plan
	if plan.Split(old); it.apply(&plan) {
		t.Fatal("a split by an image before the refund applies")
	}
	plan.Split(it.image())
	created := plan.Item
	if !it.apply(&plan) {
		t.Fatal("a split by the last image does not apply")
	}
	if has := (view{&c, []*State{it.image(), &created}, now + 1000}).whole(&c.Params[0]).available(); has != 999 {
		t.Errorf("at the end of the grant %d are left, want 999", has)
	}
}

func (p *granting) draw() {
	params := Params{Name: "a", Capacity: rapid.Int64Range(1000, 1_000_000).Draw(p.T, "capacity"), RefillPeriod: 1000}
	if rapid.IntRange(0, 2).Draw(p.T, "windows") == 0 {
		w := check.Call(calendar.ParseWindows(lawWindows[rapid.IntRange(0, 2).Draw(p.T, "of")], "UTC")).Must(p, "calendar.ParseWindows()")
		params.Windows = w
	}
	switch rapid.IntRange(0, 3).Draw(p.T, "kind") {
	case 0, 1:
		times, err := calendar.Parse(rapid.SampledFrom([]string{"*/7 * * * *", "0 * * * *"}).Draw(p.T, "times"), "UTC")
		check.Fatal(p, "calendar.Parse()", err)
		params.Times = times
	case 2:
		params.RefillAmount, params.RefillPeriod = rapid.Int64Range(1, 1000).Draw(p.T, "refill"), 60_000
	default:
		params.Session, params.Windows = sessionLength, nil
	}
	p.config = Config{Params: []Params{params}, ExpiryFactor: 7}
}

func (p *granting) latest() int64 {
	latest := p.now
	for _, it := range p.shards {
		latest = max(latest, it.state.RefilledAt)
	}
	return latest
}

func (p *granting) has() int64 {
	return (view{&p.config, p.shards.images(), p.now}).whole(p.ledger.p).available()
}

// slack bounds the roundings of what flows in: a millitoken of each stretch, shard and step.
func (p *granting) slack() *big.Rat {
	if p.ledger.p.isQuota() {
		return rat(0)
	}
	return rat((p.ledger.stretches+p.steps)*8*int64(len(p.shards)) + 1)
}

// follow compares the bucket with the ledger. Items of a divided bucket have less where a part of a grant was left on one of them alone.
func (p *granting) follow(step string) {
	has, whole := rat(p.has()), (view{&p.config, p.shards.images(), p.now}).granted(p.ledger.p).grant
	over := new(big.Rat).Sub(has, p.ledger.balance)
	if over.Cmp(p.slack()) > 0 || whole.Granted > p.ledger.granted || whole.Granted > 0 && whole.Until != p.ledger.until {
		p.Fatalf("after a %s at %d the items have %v, of which %+v are granted; the ledger has %v, %d and %d", step, p.now, has, whole, p.ledger.balance, p.ledger.granted, p.ledger.until)
	}
	if p.alone && (over.Neg(over).Cmp(p.slack()) > 0 || whole.Granted < p.ledger.granted) {
		p.Fatalf("after a %s at %d the item has %v, of which %+v are granted; the ledger has %v, %d and %d", step, p.now, has, whole, p.ledger.balance, p.ledger.granted, p.ledger.until)
	}
	for _, it := range p.shards {
		l := it.state.find("a")
		if l.Until() == 0 && l.Granted() != 0 && !l.isQuota() || l.Until() != 0 && (it.state.ValidUntil == 0 || it.state.ValidUntil > l.Until()) {
			p.Fatalf("the item notes no end of a grant: %+v, %+v", l, it.state)
		}
		if expiry := it.state.ExpiresAt; expiry != 0 && expiry < l.Until()/1000 {
			p.Fatalf("the item expires at %d, before the end of a grant: %+v", expiry, l)
		}
	}
	if !p.alone {
		lost := p.ledger.granted - whole.Granted + p.ledger.ended
		if short := new(big.Rat).Sub(p.ledger.balance, has); p.ledger.p.isQuota() && p.ledger.p.Windows == nil && short.Cmp(rat(lost)) > 0 {
			p.Fatalf("after a %s at %d the items have %v, and %d lost of a grant; the ledger has %v", step, p.now, has, lost, p.ledger.balance)
		}
		p.ledger.balance, p.ledger.granted = has, whole.Granted
		p.ledger.lone = new(big.Rat).Set(has)
		for _, s := range p.shards.images() {
			one := p.config.standing(s, p.ledger.p, p.now, p.now, 0)
			p.ledger.lone.Sub(p.ledger.lone, rat(p.config.potOf(s, p.ledger.p, one.balance, p.now).rest))
		}
		if whole.Granted == 0 {
			p.ledger.until = 0
		}
	}
}

func (p *granting) any() *item {
	return p.shards[rapid.IntRange(0, len(p.shards)-1).Draw(p.T, "shard")]
}

// image returns an image of a shard, which may be old.
func (p *granting) image(it *item) *State {
	known := p.images[it.state.Shard]
	if known == nil || rapid.IntRange(0, 2).Draw(p.T, "looks") > 0 {
		known = it.image()
		p.images[it.state.Shard] = known
	}
	return known
}

func (p *granting) took(it *item, amount int64, at int64) {
	p.now = p.latest() // a write that opens a session may have the next stamp
	p.ledger.advance(p.now)
	p.ledger.balance.Sub(p.ledger.balance, rat(amount))
	if p.ledger.p.Session > 0 && p.ledger.since == 0 {
		p.ledger.since = at
	}
	p.leases = append(p.leases, restoredLease{it.state.Shard, Amount{Limit: "a", Tokens: amount}, it.image().Lives(nil), false})
}

func (p *granting) take() {
	it := p.any()
	image := p.image(it)
	fresh := image.RefilledAt == it.state.RefilledAt && slices.Equal(image.Limits, it.state.Limits)
	most := 1 + Share(p.ledger.p.rule().most(), image.Shard, image.Count()) + image.find("a").Granted()
	d := Demand{Amounts: []Amount{{Limit: "a", Tokens: rapid.Int64Range(1, most).Draw(p.T, "amount")}}}
	amount := d.Amounts[0].Tokens
	d.Unchecked = p.alone && rapid.IntRange(0, 9).Draw(p.T, "unchecked") == 0 // debts of a divided bucket are spread
	var plan Plan
	plan.Decide(image, &p.config, &d, p.now)
	next := p.ledger.clone()
	next.advance(p.now + 1) // a write that opens a session may have the next stamp
	if p.alone && fresh && !d.Unchecked && p.ledger.p.isQuota() && (plan.Kind == Reject) != (p.ledger.balance.Cmp(rat(amount)) < 0) && (plan.Kind == Reject) != (next.balance.Cmp(rat(amount)) < 0) {
		p.Fatalf("a take of %d is a %v, and the ledger has %v", amount, plan.Kind, p.ledger.balance)
	}
	if it.apply(&plan) {
		p.took(it, amount, plan.Now)
	}
}

// gather takes of all shards together.
func (p *granting) gather() {
	if p.ledger.p.Session > 0 {
		p.take()
		return
	}
	has := p.has()
	if has <= 0 {
		return
	}
	d := Demand{Amounts: []Amount{{Limit: "a", Tokens: rapid.OneOf(rapid.Int64Range(1, has), rapid.Just(has)).Draw(p.T, "amount")}}}
	next := p.ledger.clone()
	next.advance(p.now + 1) // a write may have the next stamp, at which a grant ends
	if !p.shards.gather(p.T, &p.config, &d, rapid.Bool().Draw(p.T, "even"), p.now) {
		if next.balance.Cmp(rat(d.Amounts[0].Tokens)) >= 0 {
			p.Fatalf("%d are not there, of %d", d.Amounts[0].Tokens, has)
		}
		return
	}
	p.ledger.balance.Sub(p.ledger.balance, rat(d.Amounts[0].Tokens))
}

// refund gives back what a lease took, if that was in this period.
func (p *granting) refund() {
	if len(p.leases) == 0 {
		return
	}
	at := rapid.IntRange(0, len(p.leases)-1).Draw(p.T, "lease")
	lease := p.leases[at]
	p.leases = slices.Delete(p.leases, at, at+1)
	i := slices.IndexFunc(p.shards, func(o *item) bool { return o.state.Shard == lease.shard })
	if i < 0 {
		return
	}
	image := p.image(p.shards[i])
	d := Demand{Unchecked: true, Settles: true}
	d.GiveBack([]Amount{lease.amount.negated()}, lease.lives, image)
	var plan Plan
	plan.Decide(image, &p.config, &d, p.now)
	if !p.alone && plan.Overflows || !p.shards[i].apply(&plan) || len(d.Amounts) == 0 {
		return // the other shards would get it
	}
	if edge := p.ledger.edge(p.shards[i].state.Lives(nil)[0].Period-1, p.now); p.ledger.p.Times != nil && lease.lives[0].Period < edge {
		return // the write crossed the edge, and only counts
	}
	back := lease.amount.Tokens
	if life := lease.lives[0]; life.Until != 0 && (life.Until != p.ledger.until || p.ledger.granted == 0) {
		back = min(back, life.Kept)
	}
	p.ledger.balance.Add(p.ledger.balance, rat(back))
	p.ledger.clamp()
	if plan.Kind == Advance && p.alone { // there is room up to what a window has left
		if most := rat(image.chain(image.find("a"), image.RefilledAt, plan.Now, 0).ceiling); p.ledger.balance.Cmp(most) > 0 {
			p.ledger.balance = most
		}
	}
}

func (p *granting) split() {
	it := p.any()
	if created := p.shards.split(it, p.image(it)); created != nil {
		delete(p.images, created.Shard)
	}
}

func (p *granting) merge() {
	it := p.any()
	lower, higher := p.shards.siblings(it)
	if it.state.Count() == 1 || lower < 0 || higher < 0 {
		return
	}
	a, b := p.image(p.shards[lower]), p.shards[higher].image()
	if !a.MergesWith(b) {
		return
	}
	// The ledger has judged each item alone. Of a grant that has ended since, or crossed an edge, the whole may have another part left.
	if l, since := a.find("a"), min(a.RefilledAt, b.RefilledAt); l.Until() != 0 && (l.Until() <= p.now || p.ledger.edge(since, p.now) <= p.now) {
		return
	}
	var plan Plan
	if plan.Merge(a, b, p.now); p.shards[lower].apply(&plan) {
		p.shards = slices.Delete(p.shards, higher, higher+1)
		delete(p.images, b.Shard)
	}
}

// all applies what an operator does to all shards, or to none.
func (p *granting) all(parts []Part) bool {
	next := make(tree, len(p.shards))
	for i, it := range p.shards {
		if next[i] = (&item{it.image()}); !next[i].apply(&parts[i].Plan) {
			return false
		}
	}
	p.shards = next
	return true
}

func (p *granting) grant() {
	by := ManualChange{Gifts: []Amount{{Limit: "a", Tokens: rapid.Int64Range(1, 1_000_000).Draw(p.T, "gift")}}}
	gift := by.Gifts[0].Tokens
	if p.ledger.until != 0 && rapid.IntRange(0, 3).Draw(p.T, "same end") > 0 {
		by.Until = p.ledger.until
	} else if rapid.Bool().Draw(p.T, "with an end") {
		by.Until = p.now + rapid.OneOf(rapid.Int64Range(1000, 600_000), rapid.Int64Range(1000, 20_000_000)).Draw(p.T, "end")
	}
	images, stale := make([]*State, len(p.shards)), false
	for i, it := range p.shards {
		if images[i] = p.image(it); by.Until != 0 { // what others take meanwhile counts as taken after the grant
			images[i] = it.image()
		}
		stale = stale || images[i].RefilledAt != it.state.RefilledAt || !slices.Equal(images[i].Limits, it.state.Limits)
	}
	raises := by.Until != 0 || p.ledger.p.isQuota()
	parts, changes, err := p.config.Change(images, &by, rapid.Bool().Draw(p.T, "even"), 7, p.now)
	stamp := p.now
	for _, it := range p.shards {
		stamp = max(stamp, it.state.RefilledAt+1)
	}
	then := p.ledger.clone()
	then.advance(stamp)
	refused := raises && (by.Until != 0 && by.Until <= stamp || then.granted > 0 && then.until != by.Until || by.Until == 0 && then.p.Session > 0 && then.ends() <= stamp)
	if errors.As(err, new(*EndError)) != refused && !stale {
		p.Fatalf("%+v beside %d until %d: %v", by, p.ledger.granted, p.ledger.until, err)
	}
	if err != nil || !p.all(parts) {
		return
	}
	added := gift
	if !raises {
		added = changes[0].After - changes[0].Before
	}
	p.now = p.latest()
	p.ledger.advance(p.now)
	if raises {
		p.ledger.lone = new(big.Rat).Sub(p.ledger.balance, p.ledger.rest())
		if p.ledger.lone.Sign() < 0 {
			p.ledger.lone = rat(0)
		}
	}
	if p.ledger.balance.Add(p.ledger.balance, rat(added)); raises {
		p.ledger.granted, p.ledger.until = p.ledger.granted+gift, by.Until
	}
	p.ledger.clamp()
	if want := changes[0].After - changes[0].Before; raises && want != gift {
		p.Fatalf("%d of %d are added", want, gift)
	}
}

func (p *granting) reset() {
	images := make([]*State, len(p.shards))
	for i, it := range p.shards {
		images[i] = p.image(it)
	}
	parts, changes, err := p.config.Change(images, &ManualChange{Full: []string{"a"}}, rapid.Bool().Draw(p.T, "even"), 7, p.now)
	check.Fatal(p, "Change()", err)
	if !p.all(parts) {
		return
	}
	p.now = p.latest()
	p.ledger.advance(p.now)
	p.ledger.balance, p.ledger.granted, p.ledger.until, p.ledger.since = rat(changes[0].After), 0, 0, 0
	p.leases = nil
}

// waits takes what a status reports to be there after a wait: it is there then, and not before.
func (p *granting) waits() {
	most := p.ledger.p.rule().most() + p.ledger.granted
	d := Demand{Amounts: []Amount{{Limit: "a", Tokens: rapid.Int64Range(1, most+most/8).Draw(p.T, "amount")}}}
	s := p.config.Statuses(nil, p.shards.images(), &d, p.now)[0]
	if !p.alone || s.Wait == 0 {
		return
	}
	amount := rat(d.Amounts[0].Tokens)
	later := p.ledger.clone()
	if s.Wait == Never {
		later.advance(p.now + 20_000_000)
		if rest := new(big.Rat).Sub(later.balance, p.slack()); rest.Cmp(amount) >= 0 {
			p.Fatalf("%v are never there, and after some hours there are %v", amount, later.balance)
		}
		return
	}
	if s.Wait > 50_000_000 { // a wait over too many windows is to come again
		return
	}
	if later.advance(p.now + s.Wait - 1); !p.ledger.p.isQuota() && new(big.Rat).Sub(later.balance, p.slack()).Cmp(amount) >= 0 {
		p.Fatalf("%v are there before %d ms: %v", amount, s.Wait, later.balance)
	}
	if later.advance(p.now + s.Wait); new(big.Rat).Add(later.balance, p.slack()).Cmp(amount) < 0 {
		p.Fatalf("%v are not there after %d ms: %v, of %+v", amount, s.Wait, later.balance, s)
	}
}
