package bucket

import (
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/calendar"
)

var timelinePrograms = flag.Int("timeline.programs", 0, "how many programs TestTimelinePrograms runs; 0 for a few")

// A timeline is one limit of a bucket as it has to be. It walks from event to event of time, in exact numbers, and knows no formula of the
// package: an edge is a minute that its pattern matches.
type timeline struct {
	Params
	at         int64    // up to which it has walked, epoch milliseconds
	balance    *big.Rat // millitokens
	granted    int64    // millitokens beyond the capacity
	until      int64    // when that ends; 0 for the end of the period
	left       *big.Rat // of the period before, beside what was granted; nil after a period of another kind
	leftRounds int64    // the rounds of that
	carried    int64    // of that into the present period, millitokens beyond the capacity
	lone       *big.Rat // what the limit has at most without what is granted
	since      int64    // when the session began; 0 while none is open
	period     int      // changes whenever what a lease took is of a former balance
	life       int      // changes with a manual reset
	rounds     int64    // how many rates it has refilled at since it reset: each rounds to a millitoken
}

// every are patterns of edges, by the minutes of an hour between them.
var every = map[int]string{7: "*/7 * * * *", 10: "*/10 * * * *", 60: "0 * * * *"}

// isEdge reports whether a quota with times resets at the beginning of a minute.
func isEdge(times *calendar.Times, minute int64) bool {
	if times == nil {
		return false
	}
	for gap, pattern := range every {
		if times.String() == pattern {
			return minute%60%int64(gap) == 0
		}
	}
	panic("times of no pattern: " + times.String())
}

func (l *timeline) cap() int64 { return l.Capacity + l.carried + l.granted }

// edges returns the first edge of times after an instant, and not after another one; 0 for none.
func edges(times *calendar.Times, after, until int64) int64 {
	for minute := after/60_000 + 1; minute*60_000 <= until; minute++ {
		if isEdge(times, minute) {
			return minute * 60_000
		}
	}
	return 0
}

// renew resets a quota.
func (l *timeline) renew() {
	rest := l.goesAlong()
	if l.left = nil; l.kind() == 1 {
		l.left = new(big.Rat).Sub(l.balance, rat(rest))
	}
	if l.granted, l.period = rest, l.period+1; l.granted == 0 {
		l.until = 0
	}
	if l.leftRounds = l.rounds; l.granted == 0 {
		l.rounds = 0
	}
	l.begin()
}

// begin has a period begin, with what is carried of the one before.
func (l *timeline) begin() {
	if l.carried = 0; l.left != nil && l.left.Sign() > 0 && l.kind() == 1 {
		left := new(big.Int).Quo(l.left.Num(), l.left.Denom()).Int64()
		l.carried = min(left, l.Carry)
	}
	if l.Carry > 0 && l.left != nil {
		l.rounds = max(l.rounds, l.leftRounds)
	}
	l.since, l.balance, l.lone = 0, rat(l.cap()), rat(l.Capacity+l.carried)
}

// beyond returns what is left of a grant: what the limit has beyond what it would have without.
func (l *timeline) beyond(balance *big.Rat) *big.Rat {
	rest := new(big.Rat).Sub(balance, l.lone)
	if rest.Sign() < 0 {
		return rat(0)
	}
	if granted := rat(l.granted); rest.Cmp(granted) > 0 {
		return granted
	}
	return rest
}

// clone returns a copy.
func (l *timeline) clone() *timeline {
	other := *l
	if other.balance = new(big.Rat).Set(l.balance); l.lone != nil {
		other.lone = new(big.Rat).Set(l.lone)
	}
	return &other
}

// goesAlong returns what of a grant goes along into the next period: what is left of the balance, at most the grant.
func (l *timeline) goesAlong() int64 {
	if l.until <= l.at {
		return 0
	}
	left := new(big.Int).Quo(l.balance.Num(), l.balance.Denom()).Int64()
	return min(l.granted, max(left, 0))
}

// walk goes on to a time.
func (l *timeline) walk(to int64) {
	for l.at < to {
		next := to
		if edge := edges(l.Times, l.at, to); edge > 0 {
			next = min(next, edge)
		}
		if l.since > 0 && l.Session != Endless {
			next = min(next, l.since+l.Session*1000)
		}
		if l.granted > 0 && l.until > l.at {
			next = min(next, l.until)
		}
		if l.kind() == 0 {
			l.rounds = max(l.rounds, 1)
			flow := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(next-l.at), big.NewInt(l.RefillAmount)), big.NewInt(l.RefillPeriod))
			if l.balance.Add(l.balance, flow); l.balance.Cmp(rat(l.cap())) > 0 {
				l.balance = rat(l.cap())
			}
			if l.granted > 0 {
				if l.lone.Add(l.lone, flow); l.lone.Cmp(rat(l.Capacity)) > 0 { // it carries nothing
					l.lone = rat(l.Capacity)
				}
			}
		}
		l.at = next
		if l.granted > 0 && l.until > 0 && l.until <= l.at {
			l.balance.Sub(l.balance, l.beyond(l.balance))
			l.granted, l.until, l.rounds = 0, 0, 2*l.rounds
		}
		if edges(l.Times, l.at-1, l.at) > 0 || l.since > 0 && l.since+l.Session*1000 <= l.at {
			l.renew()
		}
	}
}

// kind distinguishes limits that refill, quotas and session quotas.
func (p *Params) kind() int {
	switch {
	case p.Session > 0:
		return 2
	case p.Times != nil:
		return 1
	default:
		return 0
	}
}

// becomes gives the limit other parameters at the time that it has walked to, where the write before was at another time.
func (l *timeline) becomes(p Params, before int64) {
	if l.rounds > 0 {
		l.rounds++
	}
	was, whole := l.Params, l.Session > 0 && l.since == 0 || edges(l.Times, before, l.at) > 0
	l.Params = p
	prepaid := p.Session == Endless && was.Session == 0 // which goes on with what the limit has
	if was.kind() != p.kind() {
		l.period++
		l.left, l.carried = nil, 0
	}
	l.carried = min(l.carried, p.Carry)
	if l.until == 0 && !p.isQuota() {
		l.granted = 0
	}
	switch {
	case whole: // nobody has taken of it since: the period begins with the new amount
		l.begin()
	case p.Session > 0 && !prepaid && (l.since == 0 || l.since+p.Session*1000 <= l.at), edges(p.Times, before, l.at) > 0 && !was.Times.Equal(p.Times):
		if l.renew(); was.kind() != p.kind() {
			l.left = nil
			l.begin()
		}
	case l.balance.Cmp(rat(l.cap())) > 0:
		l.balance = rat(l.cap())
	}
	if p.Session == 0 {
		l.since = 0
	}
	if prepaid {
		l.since = l.at
	}
	if l.granted > 0 && l.lone.Cmp(rat(l.Capacity+l.carried)) > 0 {
		l.lone = rat(l.Capacity + l.carried)
	}
}

// A claim is what one request took of a limit.
type claim struct {
	limit        *timeline
	amount       int64
	period, life int
	until        int64    // when the grant ends that the limit had
	own          *big.Rat // what was taken of what the limit would have without
}

// back returns what of an amount that comes back is not of a grant that has ended.
func (c *claim) back(amount int64) *big.Rat {
	if c.until == 0 || c.until == c.limit.until && c.limit.granted > 0 || rat(amount).Cmp(c.own) < 0 {
		return rat(amount)
	}
	return c.own
}

// isLive reports whether what was taken is given back to the balance.
func (c *claim) isLive() bool { return c.period == c.limit.period && c.life == c.limit.life }

// A timelineProgram is a program of processes with a bucket of one item.
type timelineProgram struct {
	*rand.Rand
	t       *testing.T
	now     int64
	clocks  []int64
	images  []*State
	known   [][]Life
	item    item
	config  Config
	limits  map[string]*timeline
	leases  []timelineLease
	names   []string
	log     []string
	counts  *timelineCounts
	started int
	latest  int64 // reading of the last take on credit: all later ones are as late, others are those of TestExact
}

type timelineLease struct {
	claims []claim
	lives  []Life
}

// timelineCounts counts what programs have come to.
type timelineCounts struct {
	programs, writes, lost, rejected, renewed, changed, settled, granted, carried, together, credit, late int
}

// TestTimelinePrograms runs programs of processes whose clocks are equal, behind or ahead, and whose images may be old. The bucket has up
// to three session quotas, quotas and limits that refill. Their length, times and kind change while leases are open, and operators grant
// and reset. After each write, each limit has what a walk through time says, and no request is rejected that it has the tokens for.
func TestTimelinePrograms(t *testing.T) {
	programs := *timelinePrograms
	if programs == 0 {
		programs = 3000
		if testing.Short() {
			programs = 400
		}
	}
	var counts timelineCounts
	for seed := range programs {
		p := timelineProgram{Rand: rand.New(rand.NewPCG(uint64(seed), 39)), t: t, now: 1_792_879_200_000, limits: map[string]*timeline{}, counts: &counts}
		p.now += p.Int64N(3_600_000)
		for range 1 + p.IntN(3) {
			p.clocks = append(p.clocks, []int64{0, 0, 0, -1, -500, 700}[p.IntN(6)])
			p.images, p.known = append(p.images, nil), append(p.known, nil)
		}
		p.config.ExpiryFactor = []int64{0, 7}[p.IntN(2)]
		p.names = []string{"a", "b", "c"}[:1+p.IntN(3)]
		p.configure()
		for range 10 + p.IntN(40) {
			p.elapse()
			switch k := p.IntN(20); {
			case k < 10:
				p.take()
			case k < 14:
				p.settle()
			case k < 16:
				p.configure()
			case k == 16:
				p.byHand(&ManualChange{Full: []string{p.config.Params[p.IntN(len(p.config.Params))].Name}})
			case k == 17:
				p.grant()
			default:
				p.write(&Demand{Life: int64(p.started) + 1}, nil, &p.config, func(int64) {})
			}
			if t.Failed() {
				t.Fatalf("program %d:\n%s", seed, strings.Join(p.log[max(0, len(p.log)-25):], "\n"))
			}
		}
		counts.programs++
	}
	t.Logf("%+v", counts)
	if counts.renewed == 0 || counts.changed == 0 || counts.settled == 0 || counts.granted == 0 || counts.carried == 0 || counts.lost == 0 || counts.together == 0 || counts.credit == 0 || counts.late == 0 {
		t.Errorf("chance leaves something out: %+v", counts)
	}
}

func (p *timelineProgram) say(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf("%d ", p.now%10_000_000)+fmt.Sprintf(format, args...))
}

// elapse lets time pass: not at all, a little, or to about an edge or the end of a session.
func (p *timelineProgram) elapse() {
	switch p.IntN(6) {
	case 0, 1:
	case 2:
		p.now += p.Int64N(4)
	case 3:
		p.now += p.Int64N(60_000)
	case 4:
		p.now += p.Int64N(900_000)
	default:
		for _, name := range p.names {
			if l := p.limits[name]; l != nil && l.since > 0 && l.Session != Endless && p.IntN(2) == 0 {
				p.now = max(p.now, l.since+l.Session*1000-1+p.Int64N(3))
				return
			}
		}
		p.now = (p.now/60_000+1)*60_000 - 1 + p.Int64N(3)
	}
}

// configure changes the limits.
func (p *timelineProgram) configure() {
	p.config.Params = nil
	for _, name := range p.names {
		if len(p.config.Params) > 0 && p.IntN(8) == 0 {
			continue
		}
		params := Params{Name: name, Capacity: []int64{10, 1000, 1000, 7777}[p.IntN(4)], RefillPeriod: 1000}
		switch p.IntN(4) {
		case 0:
			params.RefillAmount, params.RefillPeriod = 1+p.Int64N(50), []int64{7, 1000, 60_000}[p.IntN(3)]
		case 1:
			gaps := []int{7, 10, 60}
			params.Times = timesOf(p.t, every[gaps[p.IntN(3)]], "UTC")
			params.Carry = []int64{0, 1, params.Capacity / 2, params.Capacity, 3*params.Capacity + 1}[p.IntN(5)]
		default:
			params.Session = []int64{1, 60, 300, 3600, Endless}[p.IntN(5)]
		}
		p.config.Params = append(p.config.Params, params)
	}
	var texts []string
	for _, q := range p.config.Params {
		texts = append(texts, fmt.Sprintf("%s=%d:%d/%d session %d times %v carry %d", q.Name, q.Capacity, q.RefillAmount, q.RefillPeriod, q.Session, q.Times, q.Carry))
	}
	p.say("limits %s", strings.Join(texts, ", "))
}

// take takes of some limits.
func (p *timelineProgram) take() {
	var amounts []Amount
	for _, params := range p.config.Params {
		if p.IntN(3) > 0 {
			amounts = append(amounts, Amount{Limit: params.Name, Tokens: 1 + p.Int64N(params.Capacity)>>p.IntN(8)})
		}
	}
	d := &Demand{Amounts: amounts, Life: int64(p.started) + 1}
	p.write(d, amounts, &p.config, func(int64) {
		lease := timelineLease{lives: p.item.state.Lives(nil)}
		for _, a := range amounts {
			l := p.limits[a.Limit]
			lease.claims = append(lease.claims, p.charge(l, a.Tokens))
		}
		p.leases = append(p.leases, lease)
	})
}

// charge takes an amount of a limit, which begins a session where none is open.
func (p *timelineProgram) charge(l *timeline, amount int64) claim {
	if l.Session > 0 && l.since == 0 {
		l.since = l.at
	}
	c := claim{limit: l, amount: amount, period: l.period, life: l.life}
	l.balance.Sub(l.balance, rat(amount))
	if l.granted > 0 && l.until > 0 {
		c.until, c.own = l.until, new(big.Rat).Sub(l.lone, l.balance)
		if c.own.Sign() < 0 {
			c.own = rat(0)
		}
	}
	return c
}

// settle corrects what a request took.
func (p *timelineProgram) settle() {
	if len(p.leases) == 0 || p.item.state == nil {
		return
	}
	at := p.IntN(len(p.leases))
	lease := p.leases[at]
	p.say("settles %+v of %+v", lease.claims, lease.lives)
	var amounts []Amount
	for i := range lease.claims {
		c := &lease.claims[i]
		amounts = append(amounts, Amount{Limit: c.limit.Name, Tokens: []int64{-c.amount, -c.amount / 2, c.amount}[p.IntN(3)]})
	}
	amounts = slices.DeleteFunc(amounts, func(a Amount) bool { return a.Tokens == 0 })
	p.leases = slices.Delete(p.leases, at, at+1)
	process := p.IntN(len(p.clocks))
	for p.images[process] = p.item.image(); ; p.images[process] = p.item.image() {
		image := p.images[process]
		var d Demand
		if d.GiveBack(amounts, lease.lives, image); d.Empty() {
			return
		}
		d.Unchecked, d.Settles = true, true
		own := image.Own()
		if p.writeBy(process, &d, nil, own, func(int64) {
			for i := range lease.claims {
				c := &lease.claims[i]
				l, amount := p.limits[c.limit.Name], Of(amounts, c.limit.Name)
				switch {
				case l != c.limit && amount < 0, l == nil: // it was started again
				case amount > 0:
					p.charge(l, amount)
				case amount < 0 && c.isLive():
					back := c.back(-amount)
					if back.Cmp(rat(l.rounds)) > 0 && Of(d.Amounts, l.Name) == 0 {
						p.t.Errorf("%d of %s is not given back", amount, l.Name)
					}
					if l.balance.Add(l.balance, back); l.balance.Cmp(rat(l.cap())) > 0 {
						l.balance = rat(l.cap())
					}
					p.counts.settled++
					if c.until != 0 && c.until != l.until {
						p.counts.late++
						l.rounds++
					}
				}
			}
		}) {
			return
		}
	}
}

// grant makes an operator grant tokens.
func (p *timelineProgram) grant() {
	params := p.config.Params[p.IntN(len(p.config.Params))]
	by := &ManualChange{Gifts: []Amount{{Limit: params.Name, Tokens: 1 + p.Int64N(2*params.Capacity)}}}
	if p.IntN(2) == 0 {
		by.Until = p.now + 1000 + p.Int64N(1_000_000)
	}
	p.byHand(by)
}

// byHand makes an operator change the bucket.
func (p *timelineProgram) byHand(by *ManualChange) {
	if p.item.state == nil {
		return
	}
	process := p.IntN(len(p.clocks))
	parts, _, err := p.config.Change([]*State{p.item.image()}, by, false, int64(p.started)+1, max(p.now+p.clocks[process], p.latest))
	p.say("process %d by hand %+v: %v", process, *by, err)
	if err != nil || len(parts) == 0 {
		return
	}
	plan := &parts[0].Plan
	before := p.item.state.RefilledAt
	if !p.item.apply(plan) {
		p.t.Errorf("a change by hand does not hold")
		return
	}
	p.advance(before, &p.config)
	for _, name := range by.Full {
		l := p.limits[name]
		l.life++
		l.since, l.granted, l.until, l.carried = 0, 0, 0, 0
		l.balance = rat(l.Capacity)
	}
	for _, gift := range by.Gifts {
		l := p.limits[gift.Limit]
		if l.Session == Endless && l.since == 0 {
			l.since = l.at
		}
		if by.Until != 0 || l.isQuota() {
			own := l.balance
			if l.granted > 0 {
				own = new(big.Rat).Sub(own, l.beyond(own))
			}
			if own.Sign() < 0 {
				own = rat(0)
			}
			l.lone, l.granted, l.until = new(big.Rat).Set(own), l.granted+gift.Tokens, by.Until
			l.balance.Add(l.balance, rat(gift.Tokens))
			p.counts.granted++
		} else if l.balance.Add(l.balance, rat(gift.Tokens)); l.balance.Cmp(rat(l.cap())) > 0 {
			l.balance = rat(l.cap())
		}
	}
	p.compare()
}

// write makes a process write a demand, perhaps by an image that is old.
func (p *timelineProgram) write(d *Demand, amounts []Amount, c *Config, done func(at int64)) {
	process := p.IntN(len(p.clocks))
	if p.IntN(3) == 0 {
		p.images[process] = p.item.image()
	}
	for !p.writeBy(process, d, amounts, c, done) {
		p.images[process] = p.item.image()
	}
}

// writeBy makes a process decide a demand, and write it if it is to be written. It returns false if the write did not hold.
func (p *timelineProgram) writeBy(process int, d *Demand, amounts []Amount, c *Config, done func(at int64)) bool {
	now, image := max(p.now+p.clocks[process], p.latest), p.images[process]
	var plan Plan
	plan.Decide(image, c, d, now)
	if image != nil && p.IntN(3) == 0 && !d.Unchecked && len(amounts) > 0 {
		plan.SpendUnseen(image, c, d, now)
	}
	p.say("process %d at %d: %v counting %v, planned as %v, stamp %d", process, now%10_000_000, d.Amounts, d.rest().counted, plan.Kind, plan.Now%10_000_000)
	if !plan.Writes() {
		if image != nil && !reflect.DeepEqual(image, p.item.state) {
			return false
		}
		p.counts.rejected++
		p.rejected(amounts, c, now)
		return true
	}
	before := int64(0)
	if p.item.state != nil {
		before = p.item.state.RefilledAt
	}
	if !p.item.apply(&plan) {
		p.counts.lost++
		p.say("which does not hold")
		return false
	}
	if p.images[process] = p.item.image(); plan.Kind == Spend && plan.RefilledAt < now && !plan.OnCredit {
		p.t.Errorf("a write without a refill is planned for an old stamp")
	}
	p.counts.writes++
	p.say("steps %v", plan.Steps)
	p.advance(before, c)
	if plan.OnCredit {
		p.latest = now
		for _, a := range d.Amounts {
			if l := p.limits[a.Limit]; l != nil && l.kind() == 0 && a.Tokens != 0 {
				l.walk(now)
			}
		}
		p.counts.credit++
	}
	for _, a := range amounts {
		if l := p.limits[a.Limit]; rat(a.Tokens).Cmp(new(big.Rat).Add(l.balance, rat(l.rounds))) > 0 {
			p.t.Errorf("%d of %s are taken, of which there are %s", a.Tokens, a.Limit, l.balance.FloatString(3))
		}
	}
	done(p.item.state.RefilledAt)
	p.compare()
	return true
}

// rejected checks that a limit has too little at a time.
func (p *timelineProgram) rejected(amounts []Amount, c *Config, now int64) {
	now = max(now, p.item.state.RefilledAt)
	for _, a := range amounts {
		had := p.limits[a.Limit]
		if had == nil {
			if a.Tokens > c.of(a.Limit).Capacity {
				return
			}
			continue
		}
		l := had.clone()
		before := l.at
		if l.walk(now); !l.has(c.of(a.Limit)) {
			l.becomes(*c.of(a.Limit), before)
		}
		if rat(a.Tokens+l.rounds).Cmp(l.balance) > 0 {
			return
		}
	}
	p.t.Errorf("a request is rejected for which there is enough")
}

func (l *timeline) has(p *Params) bool {
	return l.Capacity == p.Capacity && l.RefillAmount == p.RefillAmount && l.RefillPeriod == p.RefillPeriod && l.Session == p.Session && l.Carry == p.Carry && l.Times.Equal(p.Times)
}

// advance moves the limits to the stamp of the item, and gives them the parameters that a write leaves.
func (p *timelineProgram) advance(before int64, c *Config) {
	at := p.item.state.RefilledAt
	sessions := 0
	for name, l := range p.limits {
		periods := l.period
		l.walk(at)
		if params := c.of(name); params == nil {
			delete(p.limits, name)
		} else if !l.has(params) {
			l.becomes(*params, before)
			p.counts.changed++
		}
		if l.period != periods {
			p.counts.renewed++
		}
		if l.Session > 0 {
			sessions++
		}
	}
	if sessions > 1 {
		p.counts.together++
	}
	for _, params := range c.Params {
		if p.limits[params.Name] == nil {
			p.started++
			p.limits[params.Name] = &timeline{Params: params, at: at, balance: rat(params.Capacity), life: 1_000_000 * p.started}
		}
	}
}

// compare compares the item with the limits.
func (p *timelineProgram) compare() {
	for name, l := range p.limits {
		is := p.item.state.find(name)
		difference := new(big.Rat).Sub(rat(is.Tokens), l.balance)
		if l.kind() == 0 {
			difference.Add(difference, rat(Refill(p.item.state.RefilledAt, l.at, l.RefillAmount, l.RefillPeriod)))
		}
		if difference.Abs(difference).Cmp(rat(l.rounds)) > 0 {
			p.t.Errorf("%s has %d, want %s", name, is.Tokens, l.balance.FloatString(3))
		}
		if max(is.Carried()-l.carried, l.carried-is.Carried()) > l.rounds {
			p.t.Errorf("%s has carried %d, want %d", name, is.Carried(), l.carried)
		}
		if l.carried > 0 {
			p.counts.carried++
		}
		if is.Since() != l.since {
			p.t.Errorf("the session of %s began at %d, want %d", name, is.Since()%10_000_000, l.since%10_000_000)
		}
		if g := is.grant(); max(g.at(l.at)-l.granted, l.granted-g.at(l.at)) > l.rounds || l.granted > 0 && g.at(l.at) > 0 && g.Until != l.until {
			p.t.Errorf("%s is granted %+v, want %d until %d", name, g, l.granted, l.until)
		}
	}
}
