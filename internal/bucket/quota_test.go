package bucket

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// timesOf returns times in a zone.
func timesOf(t check.TB, patterns, zone string) *calendar.Times {
	return check.Call(calendar.Parse(patterns, zone)).Must(t, "calendar.Parse()")
}

// A ledger judges a quota of a bucket by its tokens alone. For each shard it holds the latest stamp that the item of the
// shard, or one that it came from, ever had. The tokens of a shard are its share when a write moves that stamp past an edge.
type ledger struct {
	times   *calendar.Times
	latest  map[int]int64
	total   int64 // tokens of all shards, as they have to be
	counted int64
}

// moves notes that a write moves the stamp of a shard, and returns the period that it is in then.
func (j *ledger) moves(shard int, before *State, to int64) (period int64) {
	if j.times.Between(j.latest[shard], to) {
		j.total += before.share("quota", before.find("quota").Capacity) - before.find("quota").Tokens
	}
	j.latest[shard] = max(j.latest[shard], to)
	return j.times.Next(j.latest[shard])
}

// A lease is what was taken of a shard in one period.
type lease struct {
	shard  int
	amount int64
	lives  []Life
	period int64
}

// quotaProgram is a program of clients of one bucket with a quota beside a limit that refills.
type quotaProgram struct {
	*rapid.T
	config  Config
	now     int64
	clocks  []int64 // how far ahead those of the clients are
	shards  map[int]*item
	judge   ledger
	leases  []lease
	setBack int
}

// TestQuotas runs programs of clients whose clocks differ by seconds. One clock may be so far ahead that its stamps
// are set back. The clients take, correct in later periods, gather, split and merge, from images that may be old. No
// token of a period is minted or lost, and all consumption is counted.
func TestQuotas(t *testing.T) {
	setBack, later := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		times := timesOf(t, rapid.SampledFrom([]string{"*/7 * * * *", "30 * * * *", "0 2,3 * * *"}).Draw(t, "times"),
			rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "Australia/Lord_Howe"}).Draw(t, "zone"))
		p := quotaProgram{
			T: t, now: 1_792_879_200_000, // the evening before clocks go back in Berlin
			config: Config{Lead: 10_000, Freshness: 1000, Params: []Params{
				{Name: "quota", Capacity: rapid.Int64Range(1, 50_000).Draw(t, "capacity"), RefillPeriod: 1000, Times: times},
				{Name: "rpm", Capacity: 60_000, RefillAmount: 60_000, RefillPeriod: 60_000},
			}},
			shards: map[int]*item{0: {}},
			judge:  ledger{times: times, latest: map[int]int64{}},
		}
		for range 3 {
			p.clocks = append(p.clocks, rapid.Int64Range(-2000, 2000).Draw(t, "clock"))
		}
		if rapid.Bool().Draw(t, "far ahead") {
			p.clocks[0] = rapid.Int64Range(12_000, 70_000).Draw(t, "clock")
		}
		p.take()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p.now += rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, 120_000), rapid.Int64Range(0, 3_600_000)).Draw(t, "elapsed")
			rapid.SampledFrom([]func(){p.take, p.take, p.correct, p.correct, p.gather, p.split, p.merge}).Draw(t, "step")()
			p.check()
		}
		setBack += p.setBack
		later += len(p.leases)
	})
	if setBack == 0 || later == 0 {
		t.Errorf("%d stamps were set back, and %d leases held over", setBack, later)
	}
}

// clock returns the time by the clock of some client.
func (p *quotaProgram) clock() int64 { return p.now + rapid.SampledFrom(p.clocks).Draw(p.T, "by") }

// shard returns some shard.
func (p *quotaProgram) shard() int {
	var all []int
	for n := range 8 {
		if p.shards[n] != nil {
			all = append(all, n)
		}
	}
	return rapid.SampledFrom(all).Draw(p.T, "shard")
}

// apply writes a plan to a shard, and returns the period of the quota after it. It returns false where a condition of the
// write does not hold.
func (p *quotaProgram) apply(shard int, plan *Plan, taken, counted int64) (period int64, ok bool) {
	before := p.shards[shard].image()
	if !p.shards[shard].apply(plan) {
		return 0, false
	}
	if before == nil {
		p.judge.total, p.judge.latest[0] = p.config.Params[0].Capacity-taken, plan.Now
		p.judge.counted += counted
		return p.judge.times.Next(plan.Now), true
	}
	to := before.RefilledAt
	if plan.Kind == Advance {
		to = plan.Now
	}
	if to < before.RefilledAt {
		p.setBack++
	}
	period = p.judge.moves(shard, before, to)
	p.judge.total -= taken
	p.judge.counted += counted
	return period, true
}

// take takes some of a shard, whose image may be older than a take of another client.
func (p *quotaProgram) take() {
	n, now := p.shard(), p.clock()
	amount := rapid.Int64Range(1, 20_000).Draw(p.T, "amount")
	image := p.shards[n].image()
	d := Demand{Amounts: []Amount{{Limit: "quota", Tokens: amount}, {Limit: "rpm"}}}
	if image != nil && rapid.Bool().Draw(p.T, "stale") {
		p.takeFrom(n, &Demand{Amounts: []Amount{{Limit: "quota", Tokens: 1}}}, p.shards[n].image(), p.clock())
		p.now += rapid.Int64Range(0, 600_000).Draw(p.T, "elapsed")
	}
	p.takeFrom(n, &d, image, now)
}

func (p *quotaProgram) takeFrom(n int, d *Demand, image *State, now int64) {
	var plan Plan
	if plan.Decide(image, &p.config, d, now); image != nil && rapid.Bool().Draw(p.T, "unseen") {
		plan.SpendUnseen(image, &p.config, d, now)
	}
	amount := d.Amounts[0].Tokens
	if plan.Kind == Reject && image != nil {
		before := *p.shards[n].state
		has := before.find("quota").Tokens
		if before.renews(before.find("quota"), nil, now) {
			has = before.share("quota", p.config.Params[0].Capacity)
		}
		if same := fmt.Sprint(*image) == fmt.Sprint(before); same && has >= amount {
			p.Fatalf("%d are rejected of %d", amount, has)
		}
		return
	}
	if period, ok := p.apply(n, &plan, amount, amount); ok {
		s := p.shards[n].state
		p.leases = append(p.leases, lease{n, amount, s.Lives(nil), period})
	}
}

// correct gives back some of what was taken, or takes more without a check, perhaps in a later period.
func (p *quotaProgram) correct() {
	if len(p.leases) == 0 {
		return
	}
	at := rapid.IntRange(0, len(p.leases)-1).Draw(p.T, "lease")
	l := &p.leases[at]
	n := l.shard
	for p.shards[n] == nil {
		n = Origin(n)
	}
	amount := rapid.OneOf(rapid.Int64Range(-l.amount, 0), rapid.Int64Range(1, 30_000)).Draw(p.T, "correction")
	image, now, seen := p.shards[n].image(), p.clock(), p.judge.latest[n]
	if rapid.Bool().Draw(p.T, "stale") {
		p.takeFrom(n, &Demand{Amounts: []Amount{{Limit: "quota", Tokens: 1}}}, p.shards[n].image(), p.clock())
		l = &p.leases[at]
	}
	d := Demand{Unchecked: true}
	d.GiveBack([]Amount{{Limit: "quota", Tokens: amount}}, l.lives, image)
	config := image.Own()
	config.Lead, config.Freshness = p.config.Lead, p.config.Freshness
	var plan Plan
	plan.Decide(image, config, &d, now)
	before := p.shards[n].image()
	to := before.RefilledAt
	if plan.Kind == Advance {
		to = plan.Now
	}
	taken := amount
	if period := p.judge.times.Next(max(p.judge.latest[n], to)); amount < 0 && period != l.period {
		taken = 0
	}
	if plan.Overflows {
		if plan.Kind == Advance {
			seen = max(seen, plan.Now)
		}
		if p.judge.times.Next(seen) != l.period {
			p.Fatal("what is given back of a period that is over is to find room")
		}
		return // the other shards would get it
	}
	if _, ok := p.apply(n, &plan, taken, amount); ok && amount < 0 {
		l.amount += amount
	}
}

// gather takes of all shards together.
func (p *quotaProgram) gather() {
	var states []*State
	var numbers []int
	for n := range 8 {
		if p.shards[n] != nil && p.shards[n].state != nil {
			states, numbers = append(states, p.shards[n].image()), append(numbers, n)
		}
	}
	amount := rapid.Int64Range(1, p.config.Params[0].Capacity).Draw(p.T, "amount")
	now := p.clock()
	parts, ok := p.config.Gather(states, &Demand{Amounts: []Amount{{Limit: "quota", Tokens: amount}}}, rapid.Bool().Draw(p.T, "even"), now)
	if !ok {
		return
	}
	for i := range parts {
		n := numbers[parts[i].At]
		before := p.shards[n].image()
		lives := parts[i].Plan.Lives(before, before.Lives(nil))
		taken := Of(parts[i].Amounts, "quota")
		period, ok := p.apply(n, &parts[i].Plan, taken, taken)
		if !ok {
			p.Fatalf("part %+v does not hold", parts[i])
		}
		if taken > 0 {
			p.leases = append(p.leases, lease{n, taken, lives, period})
		}
	}
}

// split splits a shard.
func (p *quotaProgram) split() {
	n := p.shard()
	s := p.shards[n].image()
	if s == nil || s.Count() == 4 {
		return
	}
	var plan Plan
	plan.Split(s)
	created := plan.Item
	created.Limits = append([]Limit(nil), created.Limits...)
	if _, ok := p.apply(n, &plan, 0, 0); ok {
		p.shards[created.Shard] = &item{&created}
		p.judge.latest[created.Shard] = p.judge.latest[n]
	}
}

// merge merges a shard with its sibling, both of which cross the edges that one of them has crossed.
func (p *quotaProgram) merge() {
	n := p.shard()
	if p.shards[n].state == nil {
		return
	}
	low, high := Sibling(n, p.shards[n].state.Count())
	if p.shards[low] == nil || p.shards[high] == nil || low == high {
		return
	}
	s, other := p.shards[low].image(), p.shards[high].image()
	if !s.MergesWith(other) {
		return
	}
	var plan Plan
	plan.Merge(s, other, p.now)
	at := max(plan.Now, p.judge.latest[low], p.judge.latest[high])
	p.judge.moves(high, other, at)
	p.judge.moves(low, s, at)
	if _, ok := p.apply(low, &plan, 0, 0); !ok {
		p.Fatal("a merge does not hold for the shards that it was planned from")
	}
	p.judge.counted -= other.find("quota").Consumed // of the item that is deleted
	delete(p.shards, high)
}

// check compares the shards with the ledger.
func (p *quotaProgram) check() {
	total, counted := int64(0), int64(0)
	for n, it := range p.shards {
		if it.state == nil {
			return
		}
		l := it.state.find("quota")
		total, counted = total+l.Tokens, counted+l.Consumed
		if next := p.judge.times.Next(p.judge.latest[n]); it.state.ValidUntil != next {
			p.Fatalf("shard %d is valid until %d, want %d", n, it.state.ValidUntil, next)
		}
	}
	if total != p.judge.total || counted != p.judge.counted {
		p.Fatalf("the shards have %d and count %d, want %d and %d", total, counted, p.judge.total, p.judge.counted)
	}
}

// TestRefundMeetsAnEdge gives back by a write that leaves the stamp alone, and was planned before another client, whose clock is
// ahead, crossed the edge.
func TestRefundMeetsAnEdge(t *testing.T) {
	times := timesOf(t, "*/7 * * * *", "UTC")
	const edge = 420_000
	c := Config{Freshness: 1000, Params: []Params{{Name: "quota", Capacity: 10_000, RefillPeriod: 1000, Times: times}}}
	it := item{}
	var create, refund, other Plan
	create.Create(&c, &Demand{Amounts: []Amount{{Limit: "quota", Tokens: 5000}}}, 0, 1, edge-500)
	it.apply(&create)
	image := it.image()
	d := Demand{Unchecked: true}
	d.GiveBack([]Amount{{Limit: "quota", Tokens: -3000}}, image.Lives(nil), image)
	refund.Decide(image, &c, &d, edge-100)
	other.Decide(image, &c, &Demand{Amounts: []Amount{{Limit: "quota", Tokens: 4000}}}, edge+50)
	if refund.Kind != Spend || other.Kind != Advance || !it.apply(&other) || it.apply(&refund) {
		t.Fatalf("%v after %v leaves %+v", refund.Kind, other.Kind, it.state)
	}
	d.GiveBack([]Amount{{Limit: "quota", Tokens: -3000}}, image.Lives(nil), it.state)
	refund.Decide(it.state, &c, &d, edge-100)
	if l := it.state.find("quota"); refund.Kind != Spend || !it.apply(&refund) || l.Tokens != 6000 || it.state.find("quota").Consumed != 6000 {
		t.Errorf("%+v leaves %+v", refund, it.state)
	}
}

// TestMergeKeepsMarks merges a shard with one that has crossed an edge by a stamp that was set back since.
func TestMergeKeepsMarks(t *testing.T) {
	times := timesOf(t, "*/7 * * * *", "UTC")
	const edge = 420_000
	shard := func(n int, tokens, crossed int64) *State {
		return &State{
			Shard: n, Shards: 2, RefilledAt: edge - 9000, Notes: &Notes{Crossed: crossed, Zone: "UTC"}, ValidUntil: times.Next(max(edge-9000, crossed)),
			Limits: []Limit{{Name: "quota", Tokens: tokens, Capacity: 10_000, RefillPeriod: 1000, Rare: &Rare{Times: times}}},
		}
	}
	for _, test := range []struct {
		name      string
		low, high *State
		tokens    int64
	}{
		{"the higher one has crossed", shard(0, 100, 0), shard(1, 30, edge+3000), 5030},
		{"the lower one has crossed", shard(0, 100, edge+3000), shard(1, 30, 0), 5100},
		{"both have crossed", shard(0, 100, edge+3000), shard(1, 30, edge+5000), 130},
		{"none has crossed", shard(0, 100, 0), shard(1, 30, 0), 130},
	} {
		var merge, later Plan
		merge.Merge(test.low, test.high, edge+10_000)
		crossed := max(test.low.Crossed(), test.high.Crossed()) > 0
		it := item{test.low}
		if !it.apply(&merge) || it.state.find("quota").Tokens != test.tokens {
			t.Fatalf("%s: %+v, want %d tokens", test.name, it.state, test.tokens)
		}
		later.Decide(it.state, &Config{Params: it.state.Params()}, &Demand{}, edge+100)
		want := int64(10_000)
		if crossed {
			want = test.tokens
		}
		if later.Kind == Advance {
			it.apply(&later)
		}
		if got := it.state.find("quota").Tokens; got != want || it.state.period(it.state.find("quota")) != 2*edge {
			t.Errorf("%s: %d tokens after the edge, want %d", test.name, got, want)
		}
	}
}

// TestWaitsForQuotas checks when a quota has enough: at its next edge, wherever the tokens are.
func TestWaitsForQuotas(t *testing.T) {
	times := timesOf(t, "0 0 1 * *", "Europe/Berlin")
	const now, edge = 1_795_455_983_804, 1_796_079_600_000 // on 23 November 2026, and 1 December 00:00
	c := Config{Params: []Params{{Name: "quota", Capacity: 10_000, RefillPeriod: 1000, Times: times}}}
	shard := func(n int, stamp, tokens int64) *State {
		return &State{
			Shard: n, Shards: 2, RefilledAt: stamp, ValidUntil: times.Next(stamp), Notes: &Notes{Zone: "Europe/Berlin"},
			Limits: []Limit{{Name: "quota", Tokens: tokens, Capacity: 10_000, RefillPeriod: 1000, Rare: &Rare{Times: times}}},
		}
	}
	for _, test := range []struct {
		name            string
		shards          []*State
		amount, at      int64
		available, wait int64
	}{
		{"enough in both", []*State{shard(0, now, 3000), shard(1, now, 4000)}, 7000, now, 7000, 0},
		{"at the edge", []*State{shard(0, now, 3000), shard(1, now, 4000)}, 7001, now, 7000, edge - now},
		{"all of it", []*State{shard(0, now, -3000), shard(1, now, 0)}, 10_000, now, -3000, edge - now},
		{"more than ever", []*State{shard(0, now, 0), shard(1, now, 0)}, 10_001, now, 0, Never},
		{"past the edge", []*State{shard(0, now, -3000), shard(1, now, 0)}, 10_000, edge, 10_000, 0},
		{"one past the edge", []*State{shard(0, edge, 1000), shard(1, now, 0)}, 6000, edge - 5, 1000, 5},
		{"a month later", []*State{shard(0, edge, 1000), shard(1, now, 0)}, 6001, edge - 5, 1000, times.Next(edge) - edge + 5},
		{"no bucket", nil, 10_000, now, 10_000, 0},
	} {
		d := Demand{Amounts: []Amount{{Limit: "quota", Tokens: test.amount}}}
		got := c.Statuses(nil, test.shards, &d, test.at)[0]
		if got.Available != test.available || got.Wait != test.wait {
			t.Errorf("%s: %d available, wait %d, want %d and %d", test.name, got.Available, got.Wait, test.available, test.wait)
		}
		if covers := c.Covers(test.shards, &d, test.at); covers != (test.wait == 0) {
			t.Errorf("%s: Covers() = %t", test.name, covers)
		}
	}
}

// TestQuotasChange configures other times, another capacity and other kinds of limit.
func TestQuotasChange(t *testing.T) {
	const now, edge = 1_795_455_983_804, 1_796_079_600_000
	berlin, tokyo := timesOf(t, "0 0 1 * *", "Europe/Berlin"), timesOf(t, "0 0 * * *", "Asia/Tokyo")
	quota := func(capacity int64, times *calendar.Times) Params {
		return Params{Name: "quota", Capacity: capacity, RefillPeriod: 1000, Times: times}
	}
	drip := Params{Name: "quota", Capacity: 10_000, RefillAmount: 10_000, RefillPeriod: 60_000}
	for _, test := range []struct {
		name   string
		from   Params
		to     Params
		at     int64
		tokens int64 // of 6000
		until  int64
	}{
		{"raised", quota(10_000, berlin), quota(20_000, berlin), now, 6000, edge},
		{"raised at the edge", quota(10_000, berlin), quota(20_000, berlin), edge, 20_000, berlin.Next(edge)},
		{"lowered", quota(10_000, berlin), quota(5000, berlin), now, 5000, edge},
		{"lowered at the edge", quota(10_000, berlin), quota(5000, berlin), edge, 5000, berlin.Next(edge)},
		{"other times", quota(10_000, berlin), quota(10_000, tokyo), now, 6000, tokyo.Next(now)},
		{"other times after the former edge", quota(10_000, berlin), quota(10_000, tokyo), edge, 10_000, tokyo.Next(edge)},
		{"a quota from now on", drip, quota(10_000, berlin), now, 6000, edge},
		{"no quota from now on", quota(10_000, berlin), drip, now, 6000, 0},
	} {
		s := &State{RefilledAt: now, Shards: 1, Limits: []Limit{
			{Name: "quota", Tokens: 6000, Capacity: test.from.Capacity, RefillAmount: test.from.RefillAmount, RefillPeriod: test.from.RefillPeriod, Rare: &Rare{Times: test.from.Times}},
			{Name: WriteUnits, Tokens: WriteCapacity, Capacity: WriteCapacity, RefillAmount: WriteCapacity, RefillPeriod: 1000},
		}}
		if test.from.Times != nil {
			s.ValidUntil, s.Notes = edge, &Notes{Zone: test.from.Times.Zone()}
		}
		var plan Plan
		plan.Align(s, &Config{Params: []Params{test.to}}, test.at)
		it := item{s}
		if !it.apply(&plan) {
			t.Fatalf("%s: %+v does not hold", test.name, plan)
		}
		l := it.state.find("quota")
		if l.Tokens != test.tokens || !l.has(&test.to) || it.state.ValidUntil != test.until {
			t.Errorf("%s: %d tokens of %+v until %d, want %d of %+v until %d",
				test.name, l.Tokens, l.params(), it.state.ValidUntil, test.tokens, test.to, test.until)
		}
	}
}

// TestQuotasExpire keeps a bucket until its quota resets, and clocks that are behind see that too.
func TestQuotasExpire(t *testing.T) {
	const now, edge = 1_795_455_983_804, 1_796_079_600_000
	c := Config{ExpiryFactor: 7, Lead: 10_000, Params: []Params{
		{Name: "quota", Capacity: 10_000, RefillPeriod: 1000, Times: timesOf(t, "0 0 1 * *", "Europe/Berlin")},
		{Name: "rpm", Capacity: 60_000, RefillAmount: 60_000, RefillPeriod: 60_000},
	}}
	var plan Plan
	plan.Create(&c, &Demand{Amounts: []Amount{{Limit: "quota", Tokens: 1}}}, 0, 1, now)
	if want := int64(edge+10_000)/1000 + 1; plan.Item.ExpiresAt != want {
		t.Errorf("the bucket expires at %d, want %d", plan.Item.ExpiresAt, want)
	}
	plan.Item.Limits = plan.Item.Limits[1:]
	if life := plan.Item.Own().ExpiryFactor; life < 1000 {
		t.Errorf("without the quota the lifetime would be %d", life)
	}
	plan.Create(&c, &Demand{}, 0, 1, now)
	if life := plan.Item.Own().ExpiryFactor; life != DefaultExpiryFactor {
		t.Errorf("the lifetime of an item with a quota is %d, want %d", life, DefaultExpiryFactor)
	}
	if δ := DefaultFreshness(c.Params[:1]); δ != maxFreshness {
		t.Errorf("DefaultFreshness() of a quota = %d", δ)
	}
	if far := (&Config{Params: c.Params[:1]}).Room(nil, &Demand{Amounts: []Amount{{Limit: "quota", Tokens: 1}}}, now, math.MaxInt32); far != 10_000 {
		t.Errorf("Room() = %d", far)
	}
}
