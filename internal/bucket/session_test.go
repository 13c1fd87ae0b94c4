package bucket

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

const sessionLength = 300 // seconds

// A sessionLedger judges a session quota of a bucket by its tokens. It knows of each shard when its session ends, and what a session has
// given altogether.
type sessionLedger struct {
	capacity int64
	ends     map[int]int64 // of the sessions of shards, 0 for none
	total    int64         // tokens of all shards, as they have to be
	counted  int64
	given    map[int64]int64 // by the end of the session: what is taken, less what was given back
	charged  map[int64]int64 // the part of it that no one asked for
}

// sessionProgram is a program of clients of one bucket with a session quota beside a limit that refills.
type sessionProgram struct {
	*rapid.T
	config  Config
	now     int64
	clocks  []int64
	shards  map[int]*item
	judge   sessionLedger
	leases  []lease
	setBack int
	opened  int
	over    int // settlements after their session
}

// TestSessions runs programs of clients whose clocks differ by seconds. One clock may be so far ahead that its stamps
// are set back. The clients take, correct in later sessions, gather, split, merge and reset manually, from images
// that may be old. No token of a session is minted or lost, and all consumption is counted. A write to all shards
// finds them in one session.
func TestSessions(t *testing.T) {
	setBack, opened, over := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1, 50_000).Draw(t, "capacity")
		p := sessionProgram{
			T: t, now: 1_792_879_200_000,
			config: Config{Lead: 10_000, Freshness: 1000, Params: []Params{
				{Name: "quota", Capacity: capacity, RefillPeriod: 1000, Session: sessionLength},
				{Name: "rpm", Capacity: 60_000, RefillAmount: 60_000, RefillPeriod: 60_000},
			}},
			shards: map[int]*item{0: {}},
			judge:  sessionLedger{capacity: capacity, ends: map[int]int64{}, given: map[int64]int64{}, charged: map[int64]int64{}},
		}
		for range 3 {
			p.clocks = append(p.clocks, rapid.Int64Range(-2000, 2000).Draw(t, "clock"))
		}
		ahead := rapid.IntRange(0, 3).Draw(t, "far ahead") == 0
		if ahead {
			p.clocks[0] = rapid.Int64Range(12_000, 70_000).Draw(t, "clock")
		}
		p.create()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p.now += rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, 60_000), rapid.Int64Range(0, 400_000)).Draw(t, "elapsed")
			rapid.SampledFrom([]func(){p.take, p.take, p.take, p.correct, p.correct, p.gather, p.split, p.merge, p.reset}).Draw(t, "step")()
			p.check(ahead)
		}
		setBack, opened, over = setBack+p.setBack, opened+p.opened, over+p.over
	})
	if opened == 0 || !testing.Short() && (setBack == 0 || over == 0) { // in a few programs, chance leaves some out
		t.Errorf("%d stamps were set back, %d sessions opened, and %d leases settled after theirs", setBack, opened, over)
	}
}

func (p *sessionProgram) clock() int64 { return p.now + rapid.SampledFrom(p.clocks).Draw(p.T, "by") }

func (p *sessionProgram) numbers() (all []int) {
	for n := range 8 {
		if p.shards[n] != nil {
			all = append(all, n)
		}
	}
	return all
}

func (p *sessionProgram) states() (states []*State) {
	for _, n := range p.numbers() {
		states = append(states, p.shards[n].image())
	}
	return states
}

// create makes the bucket by a first request, which perhaps takes nothing of the quota.
func (p *sessionProgram) create() {
	amount := rapid.Int64Range(0, p.judge.capacity).Draw(p.T, "amount")
	var plan Plan
	plan.Decide(nil, &p.config, &Demand{Amounts: []Amount{{Limit: "quota", Tokens: amount}}}, p.clock())
	p.shards[0].apply(&plan)
	p.judge.total, p.judge.counted = p.judge.capacity-amount, amount
	if amount > 0 {
		p.opens(0, plan.Now, amount, 0)
	}
}

// opens notes that a session begins on a shard.
func (p *sessionProgram) opens(n int, since, taken, charged int64) {
	p.opened++
	p.judge.ends[n] = since + sessionLength*1000
	p.judge.given[p.judge.ends[n]] += taken
	p.judge.charged[p.judge.ends[n]] += charged
}

// apply writes a plan to a shard that takes so much of the quota, a part of which no one asked for, or gives it back. It returns false
// where a condition of the write does not hold.
func (p *sessionProgram) apply(n int, plan *Plan, taken, charged, counted, since int64) bool {
	before := p.shards[n].image()
	if !p.shards[n].apply(plan) {
		return false
	}
	to := before.RefilledAt
	if plan.Kind == Advance {
		to = plan.Now
	}
	if to < before.RefilledAt {
		p.setBack++
	}
	if p.judge.ends[n] <= to {
		p.judge.total += before.share("quota", p.judge.capacity) - before.find("quota").Tokens
		p.judge.ends[n] = 0
	}
	p.judge.total -= taken
	p.judge.counted += counted
	switch {
	case p.judge.ends[n] == 0 && since > 0:
		p.opens(n, since, taken, charged)
	case p.judge.ends[n] == 0 && taken > 0:
		p.opens(n, to, taken, charged)
	case p.judge.ends[n] > 0:
		p.judge.given[p.judge.ends[n]] += taken
		p.judge.charged[p.judge.ends[n]] += charged
	}
	return true
}

// take takes some of a shard, whose image may be older than a take of another client. Shards open a session together.
func (p *sessionProgram) take() {
	n := rapid.SampledFrom(p.numbers()).Draw(p.T, "shard")
	image, now := p.shards[n].image(), p.clock()
	if rapid.Bool().Draw(p.T, "stale") {
		p.takeFrom(n, 1, p.shards[n].image(), p.clock())
		p.now += rapid.Int64Range(0, 400_000).Draw(p.T, "elapsed")
	}
	p.takeFrom(n, rapid.Int64Range(1, 20_000).Draw(p.T, "amount"), image, now)
}

func (p *sessionProgram) takeFrom(n int, amount int64, image *State, now int64) {
	d := Demand{Amounts: []Amount{{Limit: "quota", Tokens: amount}, {Limit: "rpm"}}}
	if image.Count() > 1 && p.config.Opens([]*State{image}, &d, now) {
		return // of gather
	}
	var plan Plan
	if plan.Decide(image, &p.config, &d, now); rapid.Bool().Draw(p.T, "unseen") {
		plan.SpendUnseen(image, &p.config, &d, now)
	}
	if plan.Kind == Reject {
		has := image.find("quota").Tokens
		if image.find("quota").ends() <= now {
			has = image.share("quota", p.judge.capacity)
		}
		if has >= amount {
			p.Fatalf("%d are rejected of %d", amount, has)
		}
		return
	}
	if p.apply(n, &plan, amount, 0, amount, 0) {
		p.leases = append(p.leases, lease{n, amount, p.shards[n].state.Lives(nil), p.judge.ends[n]})
	}
}

// correct gives back some of what was taken, or takes more without a check, perhaps in a later session.
func (p *sessionProgram) correct() {
	if len(p.leases) == 0 {
		return
	}
	l := &p.leases[rapid.IntRange(0, len(p.leases)-1).Draw(p.T, "lease")]
	n := l.shard
	for p.shards[n] == nil {
		n = Origin(n)
	}
	amount := rapid.OneOf(rapid.Int64Range(-l.amount, 0), rapid.Int64Range(1, 30_000)).Draw(p.T, "correction")
	image, now := p.shards[n].image(), p.clock()
	d := Demand{Unchecked: true, Settles: true}
	d.GiveBack([]Amount{{Limit: "quota", Tokens: amount}}, l.lives, image)
	config := image.Own()
	config.Lead, config.Freshness = p.config.Lead, p.config.Freshness
	if image.Count() > 1 && config.Opens([]*State{image}, &d, now) {
		p.spread(n, &d, now)
		return
	}
	var plan Plan
	if plan.Decide(image, config, &d, now); plan.Overflows {
		return // the other shards would get it
	}
	to, taken := image.RefilledAt, amount
	if plan.Kind == Advance {
		to = plan.Now
	}
	isLive := p.judge.ends[n] > to && p.judge.ends[n] == l.period && image.find("quota").Life == l.lives[slices.IndexFunc(l.lives, func(x Life) bool { return x.Limit == "quota" })].Number
	if amount < 0 && !isLive {
		taken = 0
		p.over++
	}
	if p.apply(n, &plan, taken, max(taken, 0), amount, 0) && amount < 0 {
		l.amount += amount
	}
}

// spread charges all shards, which open a session together.
func (p *sessionProgram) spread(home int, d *Demand, now int64) {
	numbers, states := p.numbers(), p.states()
	parts, ok := Spread(func(s *State) *Config {
		config := s.Own()
		config.Lead, config.Freshness = p.config.Lead, p.config.Freshness
		return config
	}, states, slices.Index(numbers, home), d, now)
	if !ok {
		p.Fatal("a charge is not written")
	}
	for i := range parts {
		n := numbers[parts[i].At]
		taken := Of(parts[i].Amounts, "quota")
		if !p.apply(n, &parts[i].Plan, taken, taken, taken, opening(&parts[i].Plan)) {
			p.Fatalf("part %+v does not hold", parts[i])
		}
	}
	p.inOneSession(len(parts))
}

// opening returns when a session begins that a plan opens, 0 for none.
func opening(plan *Plan) (since int64) {
	for _, step := range plan.Steps {
		if step.Kind == Put && step.Field == Since {
			since = step.Values[0]
		}
	}
	return since
}

// inOneSession checks that all shards are in one session.
func (p *sessionProgram) inOneSession(parts int) {
	numbers, since := p.numbers(), p.shards[0].state.find("quota").Since()
	for _, n := range numbers {
		if l := p.shards[n].state.find("quota"); parts < len(numbers) || l.Since() == 0 || l.Since() != since && p.clocks[0] < 10_000 {
			p.Fatalf("%d parts of %d shards; shard %d is in the session of %d, shard 0 in that of %d", parts, len(numbers), n, l.Since(), since)
		}
	}
}

// gather takes of all shards together, which are in one session then.
func (p *sessionProgram) gather() {
	numbers, states := p.numbers(), p.states()
	amount, now := rapid.Int64Range(1, p.judge.capacity).Draw(p.T, "amount"), p.clock()
	d := Demand{Amounts: []Amount{{Limit: "quota", Tokens: amount}}}
	opens := p.config.Opens(states, &d, now)
	parts, ok := p.config.Gather(states, &d, rapid.Bool().Draw(p.T, "even"), now)
	if !ok {
		return
	}
	for i := range parts {
		n := numbers[parts[i].At]
		before := p.shards[n].image()
		lives := parts[i].Plan.Lives(before, before.Lives(nil))
		taken := Of(parts[i].Amounts, "quota")
		if !p.apply(n, &parts[i].Plan, taken, 0, taken, opening(&parts[i].Plan)) {
			p.Fatalf("part %+v does not hold", parts[i])
		}
		if taken > 0 {
			p.leases = append(p.leases, lease{n, taken, lives, p.judge.ends[n]})
		}
	}
	if opens {
		p.inOneSession(len(parts))
	}
}

// split splits a shard.
func (p *sessionProgram) split() {
	n := rapid.SampledFrom(p.numbers()).Draw(p.T, "shard")
	s := p.shards[n].image()
	if s.Count() == 4 {
		return
	}
	var plan Plan
	plan.Split(s)
	created := plan.Item
	created.Limits = slices.Clone(created.Limits)
	if p.apply(n, &plan, 0, 0, 0, 0) {
		p.shards[created.Shard] = &item{&created}
		p.judge.ends[created.Shard] = p.judge.ends[n]
	}
}

// merge merges a shard with its sibling in the same session.
func (p *sessionProgram) merge() {
	n := rapid.SampledFrom(p.numbers()).Draw(p.T, "shard")
	low, high := Sibling(n, p.shards[n].state.Count())
	if p.shards[low] == nil || p.shards[high] == nil || low == high {
		return
	}
	s, other := p.shards[low].image(), p.shards[high].image()
	if !s.MergesWith(other) {
		return
	}
	if p.judge.ends[low] != p.judge.ends[high] {
		p.Fatalf("shards merge whose sessions end at %d and %d", p.judge.ends[low], p.judge.ends[high])
	}
	var plan Plan
	if plan.Merge(s, other, p.now); p.judge.ends[high] <= plan.Now {
		p.judge.total += other.share("quota", p.judge.capacity) - other.find("quota").Tokens
	}
	if !p.apply(low, &plan, 0, 0, 0, 0) {
		p.Fatal("a merge does not hold for the shards that it was planned from")
	}
	p.judge.counted -= other.find("quota").Consumed // of the item that is deleted
	delete(p.shards, high)
}

// reset resets the quota manually, which ends the session on all shards.
func (p *sessionProgram) reset() {
	numbers, states := p.numbers(), p.states()
	parts, _, err := p.config.Change(states, &ManualChange{Full: []string{"quota"}}, rapid.Bool().Draw(p.T, "even"), 7, p.clock())
	if err != nil || len(parts) != len(numbers) {
		p.Fatalf("%d parts, %v", len(parts), err)
	}
	p.judge.total = p.judge.capacity
	for i, n := range numbers {
		if p.judge.ends[n] = 0; !p.shards[n].apply(&parts[i].Plan) {
			p.Fatal("a reset does not hold for the shards that it was planned from")
		}
		if l := p.shards[n].state.find("quota"); l.Since() != 0 || p.shards[n].state.RefilledAt != p.shards[0].state.RefilledAt {
			p.Fatalf("shard %d is in the session of %d after a reset", n, l.Since())
		}
	}
	p.judge.given, p.judge.charged = map[int64]int64{}, map[int64]int64{}
}

// check compares the shards with the ledger.
func (p *sessionProgram) check(ahead bool) {
	total, counted := int64(0), int64(0)
	for n, it := range p.shards {
		l := it.state.find("quota")
		total, counted = total+l.Tokens, counted+l.Consumed
		if want := max(p.judge.ends[n], closed); l.ends() != p.judge.ends[n] || it.state.ValidUntil != want {
			p.Fatalf("the session of shard %d ends at %d, valid until %d; want %d", n, l.ends(), it.state.ValidUntil, p.judge.ends[n])
		}
	}
	if total != p.judge.total || counted != p.judge.counted {
		p.Fatalf("the shards have %d and count %d, want %d and %d", total, counted, p.judge.total, p.judge.counted)
	}
	for end, given := range p.judge.given {
		if !ahead && given-p.judge.charged[end] > p.judge.capacity {
			p.Fatalf("the session that ends at %d has given %d of %d, and was charged %d", end, given, p.judge.capacity, p.judge.charged[end])
		}
	}
}

// TestSessionsOfOthers meets a shard on which another program has begun a session that it opened by another shard. What is there follows
// from what was counted since, and the next write takes part in the session.
func TestSessionsOfOthers(t *testing.T) {
	const since = 1 << 40
	c := Config{Params: []Params{{Name: "quota", Capacity: 100_000, RefillPeriod: 1000, Session: sessionLength}}}
	it := &item{&State{
		Limits: []Limit{
			{
				Name: "quota", Tokens: 7000, Consumed: 5000, Capacity: 100_000, RefillPeriod: 1000,
				Rare: &Rare{Session: sessionLength, Since: since, Applied: since - 900_000, Rolled: 3000},
			},
			wcu(WriteCapacity, 0),
		},
		RefilledAt: since - 800_000, Shard: 1, Shards: 2, Changed: true,
	}}
	if got := it.state.Available(&it.state.Limits[0], since+1000); got != 48_000 {
		t.Errorf("%d are there, want the half of 100,000 without the 2,000 that were counted since", got)
	}
	for _, test := range []struct{ amount, left int64 }{{48_001, -1}, {8000, 40_000}} {
		d := Demand{Amounts: []Amount{{Limit: "quota", Tokens: test.amount}}}
		var plan Plan
		if plan.Decide(it.image(), &c, &d, since+1000); test.left < 0 {
			if plan.Kind != Reject {
				t.Errorf("a demand of %d is planned as %v", test.amount, plan.Kind)
			}
			continue
		}
		if c.Opens([]*State{it.image()}, &d, since+1000) || !it.apply(&plan) {
			t.Fatalf("%+v does not hold", plan)
		}
		if l := it.state.find("quota"); l.Tokens != test.left || l.Since() != since || l.Applied() != since || it.state.ValidUntil != l.ends() {
			t.Errorf("it is %+v, valid until %d", l, it.state.ValidUntil)
		}
	}
	other := it.image()
	other.Shard = 0
	other.Limits[0].SetApplied(since - 1)
	if it.state.MergesWith(other) || other.MergesWith(it.state) {
		t.Error("shards merge of which one has yet to take part in the session")
	}
}

// TestOneShardPaysForASession takes of two shards what one of them has, and opens a session: it is open on both then.
func TestOneShardPaysForASession(t *testing.T) {
	const now = 1 << 40
	c := Config{Params: []Params{{Name: "quota", Capacity: 100_000, RefillPeriod: 1000, Session: sessionLength}}}
	items := make([]*item, 2)
	for n := range items {
		items[n] = &item{&State{
			Limits: []Limit{
				{Name: "quota", Tokens: 50_000, Capacity: 100_000, RefillPeriod: 1000, Rare: &Rare{Session: sessionLength}},
				wcu(WriteCapacity, 0),
			},
			RefilledAt: now - 1000, ValidUntil: 1, Shard: n, Shards: 2,
		}}
	}
	d := Demand{Amounts: []Amount{{Limit: "quota", Tokens: 1}}}
	parts, ok := c.Gather([]*State{items[0].image(), items[1].image()}, &d, false, now)
	if !ok {
		t.Fatal("the shards do not give one token of 100,000")
	}
	paid := 0
	for i := range parts {
		paid += min(len(parts[i].Amounts), 1)
		if !items[parts[i].At].apply(&parts[i].Plan) {
			t.Errorf("%+v does not hold", parts[i].Plan)
		}
	}
	for n, it := range items {
		if since := it.state.Limits[0].Since(); since != now {
			t.Errorf("the session of shard %d began at %d, want %d", n, since, int64(now))
		}
	}
	if paid != 1 {
		t.Errorf("%d shards paid, want one", paid)
	}
}
