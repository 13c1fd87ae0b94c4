package bucket

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// restoring is a program of clients with old images, among whom an operator resets limits.
type restoring struct {
	*rapid.T
	config Config
	shards tree
	images [2]map[int]*State // as clients last saw them, by number of the shard
	by     int               // the client whose turn it is
	whole  map[string]*ideal
	leases []restoredLease
	now    int64
	born   bool // limits have lives
	merged bool // what a shard counted is gone with it
}

type restoredLease struct {
	shard  int
	amount Amount
	lives  []Life
	over   bool // the limit was reset since
}

// TestManual runs programs of takes, refunds, splits, merges, resets and top-ups, by images that may be old. Beside them stand ideal
// buckets that are whole: what a lease took before a reset comes back to none. The shards never have more than those, and after a reset
// just as much as the capacity. What was counted is what was taken and not given back.
func TestManual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := restoring{T: t, config: Config{Freshness: 1000}, now: 1 << 40, images: [2]map[int]*State{{}, {}}, whole: map[string]*ideal{}, born: rapid.Bool().Draw(t, "lives")}
		for _, name := range []string{"rpm", "tpm"} {
			params := Params{
				Name: name, Capacity: rapid.Int64Range(100_000, 1<<40).Draw(t, "capacity"),
				RefillAmount: rapid.Int64Range(1_000, 10_000).Draw(t, "refill"), RefillPeriod: rapid.Int64Range(100_000, 1_000_000).Draw(t, "period"),
			}
			p.config.Params = append(p.config.Params, params)
			p.whole[name] = &ideal{Params: params, balance: rat(params.Capacity), at: p.now}
		}
		count := 1 << rapid.IntRange(0, 2).Draw(t, "shards")
		for i := range count {
			var plan Plan
			d := Demand{}
			if p.born {
				d.Life = int64(100 + i)
			}
			plan.Create(&p.config, &d, i, count, p.now)
			p.shards = append(p.shards, &item{})
			p.shards[i].apply(&plan)
		}
		steps := []func(){p.take, p.take, p.refund, p.refund, p.split, p.merge, p.reset, p.topUp}
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			if rapid.IntRange(0, 4).Draw(t, "waits") == 0 {
				p.now += rapid.OneOf(rapid.Int64Range(1, 500), rapid.Int64Range(0, 2*p.config.Params[0].rule().slowest(p.config.Params[0].Capacity)/int64(count))).Draw(t, "time")
			}
			p.now = p.latest() // splits, merges and resets make stamps a millisecond later
			for _, b := range p.whole {
				b.refill(p.now)
			}
			p.by = rapid.IntRange(0, 1).Draw(t, "client")
			steps[rapid.IntRange(0, len(steps)-1).Draw(t, "step")]()
			p.check()
		}
	})
}

// image returns an image of a shard, which may be old.
func (p *restoring) image(it *item) *State {
	known := p.images[p.by][it.state.Shard]
	if known == nil || rapid.IntRange(0, 2).Draw(p.T, "looks") > 0 {
		known = it.image()
		p.images[p.by][it.state.Shard] = known
	}
	return known
}

func (p *restoring) any() *item {
	return p.shards[rapid.IntRange(0, len(p.shards)-1).Draw(p.T, "shard")]
}

func (p *restoring) limit() string {
	return p.config.Params[rapid.IntRange(0, 1).Draw(p.T, "limit")].Name
}

func (p *restoring) take() {
	it, name := p.any(), p.limit()
	image := p.image(it)
	most := max(1, Share(p.config.of(name).Capacity, image.Shard, image.Count()))
	amount := Amount{Limit: name, Tokens: rapid.OneOf(rapid.Int64Range(1, most), rapid.Just(most)).Draw(p.T, "amount")}
	d := Demand{Amounts: []Amount{amount}, Unchecked: rapid.IntRange(0, 3).Draw(p.T, "unchecked") == 0}
	var plan Plan
	if plan.Decide(image, &p.config, &d, p.now); !it.apply(&plan) {
		return
	}
	p.images[p.by][it.state.Shard] = it.image()
	p.whole[name].consume(amount.Tokens)
	p.leases = append(p.leases, restoredLease{it.state.Shard, amount, it.image().Lives(nil), false})
}

// refund gives back what a lease took, or a part of it.
func (p *restoring) refund() {
	if len(p.leases) == 0 {
		return
	}
	at := rapid.IntRange(0, len(p.leases)-1).Draw(p.T, "lease")
	lease := &p.leases[at]
	of := lease.shard
	var it *item
	for {
		if i := slices.IndexFunc(p.shards, func(o *item) bool { return o.state.Shard == of }); i >= 0 {
			it = p.shards[i]
			break
		}
		of = Origin(of)
	}
	image := p.image(it)
	back := Amount{Limit: lease.amount.Limit, Tokens: -rapid.OneOf(rapid.Int64Range(1, lease.amount.Tokens), rapid.Just(lease.amount.Tokens)).Draw(p.T, "back")}
	d := Demand{Unchecked: true, Settles: true}
	d.GiveBack([]Amount{back}, lease.lives, image)
	if d.Empty() { // the life of another shard, which was merged
		p.leases = slices.Delete(p.leases, at, at+1)
		if !p.born || !p.merged {
			p.Fatalf("%+v is given back to nothing: %+v", lease, image)
		}
		return
	}
	var plan Plan
	if plan.Decide(image, &p.config, &d, p.now); !it.apply(&plan) {
		return
	}
	p.images[p.by][it.state.Shard] = it.image()
	b := p.whole[back.Limit]
	b.consumed += back.Tokens
	if !lease.over {
		b.consumed -= back.Tokens // which consume counts
		b.consume(back.Tokens)
	}
	if lease.amount.Tokens += back.Tokens; lease.amount.Tokens == 0 {
		p.leases = slices.Delete(p.leases, at, at+1)
	}
}

func (p *restoring) split() {
	it := p.any()
	if created := p.shards.split(it, p.image(it)); created != nil {
		delete(p.images[p.by], created.Shard)
	}
}

func (p *restoring) merge() {
	it := p.any()
	lower, higher := p.shards.siblings(it)
	if it.state.Count() == 1 || lower < 0 || higher < 0 {
		return
	}
	a, b := p.image(p.shards[lower]), p.image(p.shards[higher])
	if !a.MergesWith(b) {
		return
	}
	seen := p.shards[higher].state
	same := seen.RefilledAt == b.RefilledAt && seen.Generation() == b.Generation() && slices.EqualFunc(seen.Limits, b.Limits, func(x, y Limit) bool { return x.Tokens == y.Tokens })
	var plan Plan
	if plan.Merge(a, b, p.now); same && p.shards[lower].apply(&plan) {
		p.shards, p.merged = slices.Delete(p.shards, higher, higher+1), true
	}
}

// reset resets a limit, or both. Of the other one the bucket has what it had before, where the reset was exact.
func (p *restoring) reset() {
	names := [][]string{{"rpm"}, {"tpm"}, {"rpm", "tpm"}}[rapid.IntRange(0, 2).Draw(p.T, "limits")]
	exact := rapid.Bool().Draw(p.T, "exact")
	images := make([]*State, len(p.shards))
	for i, it := range p.shards {
		images[i] = p.image(it)
	}
	before := map[string]int64{}
	for i := range p.config.Params {
		before[p.config.Params[i].Name] = (view{&p.config, p.shards.images(), p.latest()}).whole(&p.config.Params[i]).available()
	}
	parts, changes, err := p.config.Change(images, &ManualChange{Full: names}, exact, 7, p.now)
	if err != nil || len(parts) != len(images) || len(changes) != len(names) {
		p.Fatalf("%d parts, %d changes, %v", len(parts), len(changes), err)
	}
	next := make(tree, len(p.shards)) // of the transaction: all or none
	for i, it := range p.shards {
		next[i] = &item{it.image()}
		if !next[i].apply(&parts[i].Plan) {
			return
		}
	}
	p.shards = next
	for _, c := range changes {
		b := p.whole[c.Limit]
		b.refill(p.latest())
		b.balance = rat(b.Capacity)
		if c.After != b.Capacity {
			p.Fatalf("%+v, of %d", c, b.Capacity)
		}
		for i := range p.leases {
			p.leases[i].over = p.leases[i].over || p.leases[i].amount.Limit == c.Limit
		}
	}
	for i := range p.config.Params {
		params := &p.config.Params[i]
		has := (view{&p.config, p.shards.images(), p.latest()}).whole(params).available()
		switch full := slices.Contains(names, params.Name); {
		case full && has != params.Capacity:
			p.Fatalf("%s has %d of %d after a reset", params.Name, has, params.Capacity)
		case !full && exact && len(p.shards) > 1 && has < before[params.Name]-int64(len(p.shards))*(2+params.RefillAmount/params.RefillPeriod):
			p.Fatalf("%s has %d after a reset of the other limit, and had %d", params.Name, has, before[params.Name])
		}
	}
}

// topUp adds to a limit. The bucket has that much more, up to the capacity. Of the other limit it has what it had, where the top-up was exact.
func (p *restoring) topUp() {
	gift := Amount{Limit: p.limit(), Tokens: rapid.OneOf(rapid.Int64Range(1, 200_000), rapid.Int64Range(1, 1<<41)).Draw(p.T, "gift")}
	exact := rapid.Bool().Draw(p.T, "exact")
	images, before, fresh := make([]*State, len(p.shards)), map[string]standing{}, true
	for i, it := range p.shards {
		images[i] = p.image(it)
		fresh = fresh && reflect.DeepEqual(images[i], it.image())
	}
	for i := range p.config.Params {
		before[p.config.Params[i].Name] = (view{&p.config, p.shards.images(), p.latest()}).whole(&p.config.Params[i])
	}
	parts, changes, err := p.config.Change(images, &ManualChange{Gifts: []Amount{gift}}, exact, 7, p.now)
	if err != nil || len(parts) != len(images) || len(changes) != 1 {
		p.Fatalf("%d parts, %d changes, %v", len(parts), len(changes), err)
	}
	next := make(tree, len(p.shards))
	for i, it := range p.shards {
		next[i] = &item{it.image()}
		if !next[i].apply(&parts[i].Plan) {
			return
		}
	}
	p.shards = next
	b := p.whole[gift.Limit]
	b.refill(p.latest())
	added := changes[0].After - changes[0].Before // a full image of a shard gets nothing, though requests have taken of it since
	if added < 0 || added > gift.Tokens {
		p.Fatalf("%+v, of %d", changes[0], gift.Tokens)
	}
	b.balance.Add(b.balance, rat(added))
	b.clamp()
	for i := range p.config.Params {
		params := &p.config.Params[i]
		was := before[params.Name]
		least, slack := was.balance, int64(len(p.shards))*(2+params.RefillAmount/params.RefillPeriod)
		if exact {
			least = was.available()
		}
		if params.Name == gift.Limit {
			least = min(least+added, params.Capacity)
		}
		if has := (view{&p.config, p.shards.images(), p.latest()}).whole(params).available(); fresh && has < least-slack {
			p.Fatalf("%s has %d after %d of %s were added, want %d", params.Name, has, gift.Tokens, gift.Limit, least)
		}
	}
}

// latest returns the latest stamp, or the present where that is later.
func (p *restoring) latest() int64 {
	latest := p.now
	for _, it := range p.shards {
		latest = max(latest, it.state.RefilledAt)
	}
	return latest
}

// check compares the shards with the ideal buckets.
func (p *restoring) check() {
	for i := range p.config.Params {
		params := &p.config.Params[i]
		b, at := p.whole[params.Name], p.latest()
		b.refill(at)
		has := (view{&p.config, p.shards.images(), at}).whole(params).available()
		if excess := rat(has - 9000); excess.Cmp(b.balance) > 0 { // rounding, a millitoken of each shard and step; and the refill of δ of each step
			p.Fatalf("the shards have %d of %s, the ideal bucket %v", has, params.Name, b.balance)
		}
		counted := int64(0)
		for _, it := range p.shards {
			counted += it.state.find(params.Name).Consumed
		}
		if !p.merged && counted != b.consumed {
			p.Fatalf("%d of %s are counted, want %d", counted, params.Name, b.consumed)
		}
	}
}

// TestRestoresAreApart plans two resets from one image, within a millisecond. The second fails: a lease in between would have the life that
// it writes, too.
func TestRestoresAreApart(t *testing.T) {
	c := Config{Params: []Params{{Name: "rpm", Capacity: 100_000, RefillAmount: 1000, RefillPeriod: 60_000}}}
	shards := fullShards(&c, 1, 1<<40)
	first, _, _ := c.Change(shards.images(), &ManualChange{Full: []string{"rpm"}}, true, 7, 1<<40)
	second, _, _ := c.Change(shards.images(), &ManualChange{Full: []string{"rpm"}}, true, 7, 1<<40)
	if !shards[0].apply(&first[0].Plan) || shards[0].apply(&second[0].Plan) {
		t.Errorf("of two resets from one image, not just the first applies: %+v", shards[0].state)
	}
}

// TestManualWithOtherParameters changes buckets manually whose items have yet to take on the limits of now, which are larger, smaller, faster
// or slower. The bucket has what the change reports then.
func TestManualWithOtherParameters(t *testing.T) {
	added := 0
	rapid.Check(t, func(t *rapid.T) {
		params := func(name string) Params {
			return Params{
				Name: name, Capacity: rapid.Int64Range(100_000, 2_000_000).Draw(t, "capacity"),
				RefillAmount: rapid.Int64Range(1_000, 10_000).Draw(t, "refill"), RefillPeriod: rapid.Int64Range(100_000, 1_000_000).Draw(t, "period"),
			}
		}
		old := Config{Freshness: 1000, Params: []Params{params("rpm"), params("tpm")}, Mixed: rapid.Bool().Draw(t, "mixed")}
		now := int64(1 << 40)
		shards := fullShards(&old, 1<<rapid.IntRange(0, 2).Draw(t, "shards"), now)
		for _, it := range shards {
			now += rapid.Int64Range(0, 5000).Draw(t, "elapsed")
			amount := Amount{Limit: "rpm", Tokens: rapid.Int64Range(1, 3_000_000).Draw(t, "amount")}
			var plan Plan
			if plan.Decide(it.image(), &old, &Demand{Amounts: []Amount{amount}, Unchecked: true}, now); !it.apply(&plan) {
				t.Fatalf("%+v does not hold", plan)
			}
		}
		now += rapid.Int64Range(0, 500_000).Draw(t, "elapsed")
		c := Config{Freshness: 1000, Params: []Params{params("rpm"), params("tpm")}, Mixed: old.Mixed}
		by := ManualChange{Gifts: []Amount{{Limit: "rpm", Tokens: rapid.Int64Range(1, 3_000_000).Draw(t, "gift")}}}
		if rapid.IntRange(0, 3).Draw(t, "resets") == 0 {
			by.Full = []string{"tpm"}
		}
		parts, changes, err := c.Change(shards.images(), &by, rapid.Bool().Draw(t, "even"), 7, now)
		if err != nil || parts == nil {
			t.Fatalf("no change: %v", err)
		}
		latest := now
		for i, it := range shards {
			if !it.apply(&parts[i].Plan) {
				t.Fatalf("%+v does not hold", parts[i].Plan)
			}
			latest = max(latest, it.state.RefilledAt)
		}
		for _, change := range changes {
			p := c.of(change.Limit)
			slack := int64(len(shards)) * (2 + p.RefillAmount/p.RefillPeriod)
			if has := (view{&c, shards.images(), latest}).whole(p).available(); has > change.After+slack || has < change.After-slack {
				t.Fatalf("%s has %d, and the change tells %+v", change.Limit, has, change)
			}
			if change.After > change.Before && change.After > old.of(change.Limit).Capacity {
				added++
			}
		}
	})
	if added == 0 {
		t.Error("nothing was added above the former capacity")
	}
}
