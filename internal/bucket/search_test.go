package bucket

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
)

// soughtWindows raise and lower a limit in parts of hours, days, weeks, months and years.
var soughtWindows = []string{
	"0-29 * * * * x2", "*/20 * * * * x0.5", "*/2 * * * * x3", "* 9-17 * * 1-5 x2", "* 22-23,0-3 * * * x0.3", "0-14 2 * * * x3", "* * 1-7 * * x0.5",
	"* * 29 2 * x2", "* * * 6-8 * x0.1", "* 0-5 * * * to 20:; * 12 * * * x0.5", "0-44 6 * * * to 3:; 30-59 * * * * to 15:", "* * 29 * 1 x2",
}

// soughtZones set their clocks at different times of the year, or never.
var soughtZones = []string{"UTC", "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kolkata"}

// A sought is a request of one or more buckets, whose wait is sought.
type sought struct {
	asked []Asked
	now   int64
	text  []string
}

// drawSought draws a request: each bucket has limits of any kind, and is new, or in use with grants and debts, or split.
func drawSought(t *testing.T, random *rand.Rand) *sought {
	r := &sought{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() + random.Int64N(4*365*24*3_600_000)}
	zone := soughtZones[random.IntN(len(soughtZones))]
	for range 1 + random.IntN(2) {
		c := &Config{}
		for i := range 1 + random.IntN(2) {
			c.Params = append(c.Params, r.drawLimit(t, random, string(rune('a'+i)), zone).Divide()...)
		}
		d := &Demand{Priority: []string{"", "low", "high"}[random.IntN(3)]}
		for _, p := range c.Params {
			if !IsPart(p.Name) && (len(d.Amounts) == 0 || random.IntN(3) > 0) {
				d.Amounts = append(d.Amounts, Amount{Limit: p.Name, Tokens: (1 + random.Int64N(16)) * 1000})
			}
		}
		r.asked = append(r.asked, Asked{c, r.drawShards(random, c), d})
		r.text = append(r.text, fmt.Sprint(d.Priority, d.Amounts))
	}
	return r
}

// drawLimit draws a limit of about ten tokens.
func (r *sought) drawLimit(t *testing.T, random *rand.Rand, name, zone string) Params {
	p := Params{Name: name, Capacity: 10_000, RefillPeriod: 1000}
	kind := random.IntN(8)
	switch kind {
	case 0, 1, 2:
		p.RefillAmount, p.RefillPeriod = 1000*(1+random.Int64N(10)), []int64{60_000, 3_600_000, 86_400_000, 1000 * (1 + random.Int64N(9000))}[random.IntN(4)]
	case 3, 4:
		patterns := []string{"0 0 * * *", "30 2 * * *", "0 0 1 * *", "0 0 29 2 *", "15 * * * *", "0 0 * * 1", "0 6 1,15 * *", "0 8 * * 1-5"}
		p.Times = timesOf(t, patterns[random.IntN(len(patterns))], zone)
		if random.IntN(3) == 0 {
			p.Carry = 1000 * (1 + random.Int64N(30))
		}
	case 5, 6:
		p.Session = []int64{300, 7 * 3600, 90 * 86_400}[random.IntN(3)]
	case 7:
		p.Session = Endless
	}
	if p.Carry == 0 && random.IntN(3) > 0 {
		p.Windows = check.Call(calendar.ParseWindows(soughtWindows[random.IntN(len(soughtWindows))], zone)).Must(t, "calendar.ParseWindows()")
	}
	if random.IntN(3) == 0 {
		p.Floors = []Floors{"low=20", "low=50 high=10", "low=20+30", "high=0+50"}[random.IntN(4)]
		if p.Carry > 0 && strings.Contains(string(p.Floors), "+") {
			p.Floors = ""
		}
	}
	r.text = append(r.text, fmt.Sprintf("%s: %d in %d, times %v, session %d, carry %d, windows %v, floors %q, zone %s", name, p.RefillAmount, p.RefillPeriod, p.Times, p.Session,
		p.Carry, p.Windows, p.Floors, zone))
	return p
}

// drawShards draws the items of a bucket, none for a new one: requests took of them, and an operator granted something.
func (r *sought) drawShards(random *rand.Rand, c *Config) (shards []*State) {
	n := []int{0, 1, 1, 1, 2}[random.IntN(5)]
	began := r.now - random.Int64N(1<<(10+random.IntN(24)))
	for i := range n {
		var plan Plan
		plan.Create(c, &Demand{}, i, n, began)
		made := item{}
		made.apply(&plan)
		shards = append(shards, made.state)
	}
	for range random.IntN(4) {
		if began += random.Int64N(r.now - began + 1); n == 0 {
			break
		}
		at := random.IntN(n)
		it := item{shards[at]}
		d := &Demand{Unchecked: random.IntN(4) == 0}
		for _, p := range c.Params {
			d.Amounts = append(d.Amounts, Amount{Limit: p.Name, Tokens: 1000 * random.Int64N(10)})
		}
		var plan Plan
		if plan.Decide(it.image(), c, d, began); plan.Writes() {
			it.apply(&plan)
		}
		r.text = append(r.text, fmt.Sprintf("shard %d is charged %v %d before: %v", at, d.Amounts, r.now-began, plan.Kind))
	}
	if n > 0 && random.IntN(3) == 0 {
		by := &ManualChange{Gifts: []Amount{{Limit: c.Params[0].Name, Tokens: 4000}}}
		if random.IntN(2) == 0 {
			by.Until = r.now + random.Int64N(1<<(20+random.IntN(12)))
		}
		parts, _, err := c.Change(shards, by, true, 7, r.now)
		for i := range parts {
			it := item{shards[parts[i].At]}
			it.apply(&parts[i].Plan)
		}
		r.text = append(r.text, fmt.Sprintf("granted until %d: %v", by.Until-r.now, err))
	}
	return shards
}

// wait returns the wait that is reported for the request.
func (r *sought) wait() (longest int64) {
	for _, a := range r.asked {
		for _, s := range a.Config.Statuses(nil, a.Shards, a.Demand, r.now) {
			longest = max(longest, s.Wait)
		}
	}
	wait, _ := TogetherAfter(r.asked, r.now, longest)
	return wait
}

// steps returns how many steps the searches for the wait take.
func (r *sought) steps() (steps int) {
	longest := int64(0)
	for _, a := range r.asked {
		v := viewOf(a.Config, a.Shards, r.now)
		tracks, _ := v.tracks(nil, 0, a.Demand.asked(), 0)
		for i := range tracks {
			if p := tracks[i].p; !IsPart(p.Name) && !p.mayAdmit(a.Demand, v.now) {
				return 0
			}
			tracks[i].limit, tracks[i].alone = 0, true
			tracks[i].begin()
			s := newSearch(tracks[i:i+1], 1, 0)
			longest = max(longest, s.first())
			steps += s.steps
		}
	}
	if longest < Never-1 {
		s := jointly(nil, r.asked, r.now, longest)
		s.first()
		steps += s.steps
	}
	return steps
}

// fits reports whether all buckets admit the request after a time, as they decide it themselves.
func (r *sought) fits(after int64) bool {
	for _, a := range r.asked {
		at := r.now + after
		if len(a.Shards) > 1 {
			if !a.Config.Covers(a.Shards, a.Demand, at) {
				return false
			}
			continue
		}
		var s *State
		if len(a.Shards) == 1 {
			s = (&item{a.Shards[0]}).image()
		}
		var plan Plan
		if plan.Decide(s, a.Config, a.Demand.Through(a.Config, a.Shards, at), at); !plan.Writes() {
			return false
		}
	}
	return true
}

// edge returns the time until the next event of a limit after another one, Never for none.
func (r *sought) edge(after int64) int64 {
	next := int64(Never)
	for _, a := range r.asked {
		for i := range a.Config.Params {
			p := &a.Config.Params[i]
			if p.Windows != nil {
				next = min(next, p.Windows.Next(r.now+after))
			}
			if p.isQuota() {
				next = min(next, p.renewsAfter(a.Shards, r.now+after))
			}
			for _, s := range a.Shards {
				if l := s.find(p.Name); l != nil && l.Until() > r.now+after {
					next = min(next, l.Until())
				}
			}
		}
	}
	return sub(next, r.now)
}

// admittedBefore returns a time before another one at which the request is admitted: at an event, just before it, or at a random time.
func (r *sought) admittedBefore(random *rand.Rand, end int64, events int) (at int64, ok bool) {
	looks := []int64{end - 1}
	for at := r.edge(0); at < end && events > 0; at, events = r.edge(at), events-1 {
		looks = append(looks, at-1, at)
	}
	for range 20 {
		at := r.edge(random.Int64N(end))
		looks = append(looks, random.Int64N(end), at, at-1)
	}
	for _, at := range looks {
		if at >= 0 && at < end && r.fits(at) {
			return at, true
		}
	}
	return 0, false
}

// TestSearch draws requests of all kinds of limits. A request is admitted after the reported wait, and at no time before. If that is Never, it
// is admitted at no event of years.
func TestSearch(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 9))
	waits, nevers, long := 0, 0, 0
	var counts []int
	for n := range soak.Pick(2500, 60_000) {
		r := drawSought(t, random)
		if r.fits(0) {
			continue
		}
		wait := r.wait()
		counts = append(counts, r.steps())
		end := wait
		if wait == Never {
			end = 3 * 366 * 24 * 3_600_000
			nevers++
		} else if waits++; wait > 7*24*3_600_000 {
			long++
		}
		if at, ok := r.admittedBefore(random, end, 60); ok {
			t.Fatalf("program %d at %d: admitted after %d, reported %d\n%s", n, r.now, at, wait, strings.Join(r.text, "\n"))
		}
		if wait != Never && !r.fits(wait) {
			t.Fatalf("program %d at %d: not admitted after %d, as reported\n%s", n, r.now, wait, strings.Join(r.text, "\n"))
		}
	}
	if waits < 300 || nevers < 200 || long < 20 {
		t.Errorf("%d waits, %d of them long, and %d that never end", waits, long, nevers)
	}
	slices.Sort(counts)
	middle, most := counts[len(counts)/2], counts[len(counts)*95/100]
	if t.Logf("half of the searches have at most %d steps, and all but a twentieth %d", middle, most); middle > 10 || most > 1000 {
		t.Errorf("half of the searches have at most %d steps, and all but a twentieth %d; want 10 and 1000", middle, most)
	}
}

// TestSearchOfUnevenShards waits for a limit of two shards, of which one is empty. A window cuts off what both have together above its
// capacity, and not what one has above its part.
func TestSearchOfUnevenShards(t *testing.T) {
	now := time.Date(2026, 4, 24, 16, 30, 0, 0, time.UTC).UnixMilli()
	w := check.Call(calendar.ParseWindows("0 * * * * x0.5", "UTC")).Must(t, "calendar.ParseWindows()")
	for _, test := range []struct {
		refill int64 // 0 for a quota, with a limit beside it that has enough after an hour
		asks   []int64
	}{{1000, []int64{6000, 5500}}, {4000, []int64{6000, 7000}}, {0, []int64{4000, 2000}}} {
		c := &Config{Params: []Params{{Name: "a", Capacity: 10_000, RefillAmount: test.refill, RefillPeriod: 3_600_000, Windows: w}}}
		if test.refill == 0 {
			c.Params[0].Times = timesOf(t, "0 0 * * *", "UTC")
			c.Params = append(c.Params, Params{Name: "b", Capacity: 1000, RefillAmount: 1000, RefillPeriod: 3_600_000})
		}
		var shards []*State
		for i := range 2 {
			var plan Plan
			plan.Create(c, &Demand{}, i, 2, now)
			made := item{}
			made.apply(&plan)
			if made.state.Limits[0].Tokens = int64(1-i) * 5000; test.refill == 0 {
				made.state.Limits[1].Tokens = 0
			}
			shards = append(shards, made.state)
		}
		for _, tokens := range test.asks {
			d := &Demand{Amounts: []Amount{{Limit: "a", Tokens: tokens}}}
			if test.refill == 0 {
				d.Amounts = append(d.Amounts, Amount{Limit: "b", Tokens: 1000})
			}
			r := &sought{asked: []Asked{{Config: c, Shards: shards, Demand: d}}, now: now}
			wait, random := r.wait(), rand.New(rand.NewPCG(7, 9))
			end := min(wait, 30*24*3_600_000)
			if at, ok := r.admittedBefore(random, end, 100); ok || wait != Never && !r.fits(wait) {
				t.Errorf("%d of a limit with a refill of %d: reported %d, admitted before: %t after %d", tokens, test.refill, wait, ok, at)
			}
		}
	}
}

// TestSearchOfSessionsOfShards waits for the first of two shards whose session ends.
func TestSearchOfSessionsOfShards(t *testing.T) {
	const now, minute = 1_777_000_000_000, 60_000
	c := &Config{Params: []Params{{Name: "a", Capacity: 10_000, RefillPeriod: 1000, Session: 3600}}}
	var shards []*State
	for i := range 2 {
		var plan Plan
		plan.Create(c, &Demand{Amounts: []Amount{{Limit: "a", Tokens: 5000}}}, i, 2, now-int64(10+40*i)*minute)
		made := item{}
		made.apply(&plan)
		shards = append(shards, made.state)
	}
	for tokens, want := range map[int64]int64{1000: 10 * minute, 5000: 10 * minute, 5001: 50 * minute, 10_000: 50 * minute} {
		r := &sought{asked: []Asked{{Config: c, Shards: shards, Demand: &Demand{Amounts: []Amount{{Limit: "a", Tokens: tokens}}}}}, now: now}
		if wait := r.wait(); wait != want || !r.fits(wait) || r.fits(wait-1) {
			t.Errorf("the wait for %d is %d, want %d", tokens, wait, want)
		}
	}
}

// TestStepsOfSearches counts the steps until a search ends that finds a wait far ahead, or none.
func TestStepsOfSearches(t *testing.T) {
	const hour, day = int64(3_600_000), int64(86_400_000)
	now := time.Date(2026, 4, 24, 16, 0, 0, 0, time.UTC).UnixMilli()
	refills := func(name string, capacity, refill, period int64, windows, zone string) Params {
		p := Params{Name: name, Capacity: capacity * 1000, RefillAmount: refill * 1000, RefillPeriod: period}
		if windows != "" {
			p.Windows = check.Call(calendar.ParseWindows(windows, zone)).Must(t, "calendar.ParseWindows()")
		}
		return p
	}
	resets := func(name, times, windows, zone string) Params {
		p := refills(name, 10, 0, 1000, windows, zone)
		p.Times = timesOf(t, times, zone)
		return p
	}
	session := func(name string, seconds int64, windows string) Params {
		p := refills(name, 10, 0, 1000, windows, "UTC")
		p.Session = seconds
		return p
	}
	carries := resets("a", "0 0 1 * *", "", "UTC")
	carries.Carry = 5000
	parts := session("a", 300, "30-59 * * * * to 15:")
	parts.Floors = "low=20+30"
	cut := session("a", Endless, "30-59 * * * * x0.5")
	cut.Windows = check.Call(calendar.ParseWindows("30-59 * * * * x0.5", "Europe/Berlin")).Must(t, "calendar.ParseWindows()")
	for name, test := range map[string]struct {
		limits []Params
		asks   []int64 // tokens of each limit
		taken  int64   // of each limit before, -1 for a new bucket
		want   int64
		most   int // steps
	}{
		"half an hour brings a token too few":      {[]Params{refills("a", 10, 4, hour, "0-29 * * * * x2", "UTC")}, []int64{14}, 0, Never, 10},
		"so it does where clocks are set":          {[]Params{refills("a", 10, 4, hour, "0-29 * * * * x2", "Europe/Berlin")}, []int64{14}, 0, Never, 50},
		"a day brings a token too few":             {[]Params{refills("a", 10, 9, day, "0-29 * * * * x3", "UTC")}, []int64{11}, 0, Never, 500},
		"a month later half of it is there":        {[]Params{resets("a", "0 0 1 * *", "* * 1-7 * * x0.5", "UTC")}, []int64{9}, -1, Never, 20},
		"it is less when it is full again":         {[]Params{resets("a", "15 * * * *", "0-29 * * * * x0.1", "UTC")}, []int64{2}, 0, Never, 10},
		"nothing is carried of a new bucket":       {[]Params{carries}, []int64{11}, -1, Never, 30},
		"one period is carried":                    {[]Params{carries}, []int64{11}, 0, 6*day + 8*hour, 100},
		"prepaid":                                  {[]Params{session("a", Endless, "* 5 * * * x2")}, []int64{10}, 1, Never, 1},
		"prepaid, with another limit":              {[]Params{session("a", Endless, "*/2 * * * * x0.5"), refills("b", 5, 1, hour, "", "")}, []int64{9, 1}, 5, Never, 20},
		"prepaid, cut off before another one":      {[]Params{cut, refills("b", 1, 1, hour, "", "")}, []int64{9, 1}, 1, Never, 10},
		"a part in a window":                       {parts.Divide(), []int64{14}, 0, hour / 2, 10},
		"windows never meet":                       {[]Params{refills("a", 10, 5, 60_000, "* 22 * * * x2", "UTC"), refills("b", 10, 5, 60_000, "* 6 * * * x2", "UTC")}, []int64{14, 14}, 0, Never, 50},
		"a reset is in none of the windows":        {[]Params{refills("a", 10, 5, 60_000, "* 22-23,0-3 * * * x2", "UTC"), resets("b", "0 6 * * *", "*/20 * * * * x2", "UTC")}, []int64{14, 14}, 0, Never, 300},
		"a session opens in none of the windows":   {[]Params{session("a", 7*3600, "* 9-17 * * * x2"), resets("b", "0 0 1,15 * *", "0-29 * * * * x3", "UTC")}, []int64{15, 14}, -1, Never, 4000},
		"a leap day":                               {[]Params{resets("a", "0 0 29 2 *", "", "UTC")}, []int64{8}, 5, 675*day + 8*hour, 3},
		"a window on a leap day":                   {[]Params{resets("a", "0 0 * * *", "* * 29 2 * x2", "Europe/Berlin")}, []int64{20}, 0, 675*day + 7*hour, 60},
		"months of refill in windows of minutes":   {[]Params{refills("a", 1000, 5, day, "*/2 * * * * x3", "UTC")}, []int64{900}, 1000, 0, 600},
		"years of refill in windows of hours":      {[]Params{refills("a", 1000, 1, day, "0-29 * * * * x3", "Europe/Berlin")}, []int64{900}, 1000, 0, 600},
		"a session of months":                      {[]Params{session("a", 90*86_400, "")}, []int64{8}, 5, 90 * day, 3},
		"a year's quota and a window in summer":    {[]Params{resets("a", "0 0 1 1 *", "", "UTC"), refills("b", 10, 5, hour, "* * * 6-8 * x2", "UTC")}, []int64{8, 15}, 5, 0, 60},
		"a quota of working days in working hours": {[]Params{resets("a", "0 8 * * 1-5", "* 9-17 * * 1-5 x2", "America/New_York")}, []int64{15}, 0, Never, 100},
	} {
		c := &Config{Params: test.limits}
		d, took := &Demand{Priority: "low"}, &Demand{}
		for i, tokens := range test.asks {
			d.Amounts = append(d.Amounts, Amount{Limit: c.Params[i].Name, Tokens: tokens * 1000})
			took.Amounts = append(took.Amounts, Amount{Limit: c.Params[i].Name, Tokens: test.taken * 1000})
		}
		r := &sought{asked: []Asked{{Config: c, Demand: d}}, now: now}
		if test.taken >= 0 {
			var plan Plan
			if plan.Create(c, took, 0, 1, now); !plan.Writes() {
				t.Fatalf("%s: nothing is taken", name)
			}
			made := item{}
			made.apply(&plan)
			r.asked[0].Shards = []*State{made.state}
		}
		wait := r.wait()
		if steps := r.steps(); steps > test.most {
			t.Errorf("%s: %d steps, want %d at most", name, steps, test.most)
		} else {
			t.Logf("%s: %d steps", name, steps)
		}
		if test.want == 0 { // checked by the buckets alone
			if wait == Never || !r.fits(wait) || r.fits(wait-1) {
				t.Errorf("%s: the wait is %d", name, wait)
			}
		} else if wait != test.want {
			t.Errorf("%s: the wait is %d, want %d", name, wait, test.want)
		}
	}
}
