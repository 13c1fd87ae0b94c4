package scale

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Scenario is cases that are shown in one table.
type Scenario struct {
	Name, Title string
	Text        string // the load, and the figures to look at
	Metrics     []Metric
	Cases       []Case
	Plot        func(f *Figures, s *Scenario) []Chart
}

// A Case is a load and the table that it runs against.
type Case struct {
	Label  string
	Group  string // of which the tally is shown; "" for all requests
	Load   Load
	Params Params
	Rate   float64 // requests a second of one bucket, where it matters for usage
}

// Name returns the name of a case of a scenario in the figures.
func (s *Scenario) caseName(c *Case) string { return s.Name + ": " + c.Label }

// roomy are limits that nothing here exhausts.
var roomy = []zlimit.Limit{zlimit.PerMinute("rpm", 6_000_000)}

// ceilingOf returns the ideal bucket of a limit.
func ceilingOf(l zlimit.Limit) Ceiling {
	return Ceiling{float64(l.Capacity), float64(l.RefillAmount) / l.RefillPeriod.Seconds()}
}

// Scenarios returns what `make scale` runs.
func Scenarios() []Scenario {
	return []Scenario{
		fleets(), deployments(), hotKeys(), settlements(), rejections(), skewed(), families(), floods(), fullHours(), millions(), restarts(), outages(),
		midnights(), herds(), switches(), queues(), contests(),
	}
}

// anyOf returns a function that draws one of n entities.
func anyOf(n int) func(*rand.Rand, time.Duration) string {
	return func(r *rand.Rand, _ time.Duration) string { return entityOf(r.IntN(n)) }
}

// fleets are buckets of several rates in fleets of several sizes.
func fleets() Scenario {
	s := Scenario{
		Name: "fleet", Title: "What a request costs in a fleet",
		Text: "Requests go to any process, as behind a load balancer. Rates are per bucket, and a process serves enough buckets to " +
			"receive at least one request a second. Limits are read again once a minute: one process reads the limits of an entity for " +
			"all, and each process reads the limits of the resource and of the system. The price includes these reads. In the two " +
			"measured minutes, processes of the larger fleets use most buckets only once, so old stamps are rarer than in a longer run.",
		Metrics: []Metric{writesPerRequest, readsPerRequest, failedPart, dollars, p99, over},
		Plot:    plotFleets,
	}
	for _, rate := range fleetRates {
		for _, processes := range fleetSizes {
			s.Cases = append(s.Cases, fleetCase(processes, rate))
		}
	}
	return s
}

// fleetCase is a fleet that asks for buckets at a rate each. A process of a deployment serves many buckets, and reads
// the limits of the resource and of the system once a minute at little cost. Here it gets a request a second at least.
func fleetCase(processes int, rate float64) Case {
	const settle, measured, requests = time.Minute, 2 * time.Minute, 30_000
	total := max(float64(processes), requests/measured.Seconds())
	buckets := int(math.Ceil(total / rate))
	limit := zlimit.PerMinute("rpm", int64(max(100, rate*60*3)))
	ceilings := map[string]Ceiling{}
	for i := range buckets {
		ceilings[entityOf(i)] = ceilingOf(limit)
	}
	return Case{
		Label: fleetLabel(processes, rate),
		Load: Load{
			Processes: processes, Rate: rate * float64(buckets), Entity: anyOf(buckets), Known: buckets, Limits: []zlimit.Limit{limit},
			For: settle + measured, Settle: settle, Ceilings: ceilings,
		},
		Params: Default(),
		Rate:   rate,
	}
}

// deployments are fleets of several sizes with their usage. Requests of a bucket come as often as in the whole
// deployment, from as many processes. There are fewer buckets and each process gets fewer requests, so its reads for
// all of them count more.
func deployments() Scenario {
	s := Scenario{
		Name: "deployment", Title: "What a deployment pays",
		Text: "This is the cost of requests and of their usage. An aggregator writes an hour once per bucket and batch, and adds it to " +
			"the day and the month when it ends. The cost of usage is computed for batches of 10 s and of 60 s. Storage, backups, the " +
			"stream and Lambda are not included, and add less than a tenth.",
		Metrics: []Metric{writesPerRequest, readsPerRequest, dollars, usageDollars(10), usageDollars(60), totalDollars(60)},
	}
	for _, d := range []struct {
		rate, entities float64
		processes      int
	}{{100, 1000, 3}, {10_000, 100_000, 100}, {100_000, 1_000_000, 1000}, {1_000_000, 1_000_000, 5000}} {
		c := fleetCase(d.processes, d.rate/d.entities)
		c.Label = fmt.Sprintf("%s/s for %s entities, %s processes", whole(d.rate), whole(d.entities), whole(float64(d.processes)))
		s.Cases = append(s.Cases, c)
	}
	return s
}

var (
	fleetRates = []float64{0.1, 1, 10, 100}
	fleetSizes = []int{1, 10, 100, 1000}
)

func fleetLabel(processes int, rate float64) string {
	return fmt.Sprintf("%d processes, %v/s", processes, rate)
}

// hotKeys are one bucket that gets more requests than its key can serve.
func hotKeys() Scenario {
	s := Scenario{
		Name: "hot", Title: "A flash crowd on one key",
		Text: "One bucket, whose limit admits everything, goes from no load to the full rate immediately. A key sustains 1,000 writes a " +
			"second, so the bucket must split.",
		Metrics: []Metric{admitted, unavailable, writesPerRequest, failedPart, shards, p99, over},
		Plot:    plotOverTime("admitted per second", func(t *Tally) float64 { return float64(t.Admitted) }),
	}
	for _, c := range []struct {
		processes int
		rate      float64
	}{{1, 1500}, {100, 1500}, {1000, 1500}, {1000, 3000}, {1000, 30_000}} {
		p := Default()
		if c.rate > 10_000 {
			p.TableWrites, p.TableReads, p.Partitions = 0, 0, 256
		}
		s.Cases = append(s.Cases, Case{
			Label:  fmt.Sprintf("%d processes, %v/s", c.processes, c.rate),
			Load:   Load{Processes: c.processes, Rate: c.rate, For: 30 * time.Second, Limits: roomy, Ceilings: map[string]Ceiling{"hot": ceilingOf(roomy[0])}},
			Params: p,
		})
	}
	return s
}

// settlements are one hot bucket of tokens, whose requests settle what they have used.
func settlements() Scenario {
	s := Scenario{
		Name: "settle", Title: "Leases of one hot key are settled",
		Text: "100 processes take 100 tokens from one bucket 1,500 times a second, and report two seconds later how many of them were " +
			"used. The write of a settlement is additional to the write of the request. *Unsettled* are leases whose `Commit` failed, " +
			"relative to all admitted leases.",
		Metrics: []Metric{admitted, rejected, unavailable, unsettled, writesPerRequest, readsPerRequest, failedPart, shards, p99},
	}
	for _, c := range []struct {
		limit  int64
		actual int64
	}{{60_000_000, 60}, {6_000_000, 60}, {3_000_000, 100}, {3_000_000, 150}, {1_200_000, 150}} {
		l := zlimit.PerMinute("tpm", c.limit)
		p := Default()
		p.TableWrites, p.TableReads = 0, 0
		s.Cases = append(s.Cases, Case{
			Label: fmt.Sprintf("%s tokens a minute, %d used", whole(float64(c.limit)), c.actual),
			Load: Load{
				Processes: 100, Rate: 1500, For: 60 * time.Second, Settle: 40 * time.Second, Limits: []zlimit.Limit{l}, Amount: 100,
				Actual: c.actual, Takes: 2 * time.Second,
			},
			Params: p,
		})
	}
	return s
}

// rejections are one bucket that is exhausted.
func rejections() Scenario {
	s := Scenario{
		Name: "rejections", Title: "Rejections of one bucket",
		Text: "Processes request more from one bucket than its limit allows, under the failure policy `PolicyAllow`. There are 1,000 " +
			"processes unless the row says otherwise. Degraded requests were admitted uncounted. With the limit of 600 a minute, " +
			"requests wait for the proof of their rejection while reads of the key are throttled, and their times show that wait. At " +
			"100,000 a second, processes do not know in the first quarter of a second that the key is throttled. A few hundred requests " +
			"then wait for longer than the decision timeout, and are admitted uncounted. Later there are none. The limit of 5,000 a " +
			"second is more than one key can sustain. While its bucket splits, requests wait for throttled writes. Some tokens are " +
			"refilled during each call, so no view of all shards proves that they are exhausted: two shards that fall short reject a " +
			"request. Admitted requests include those that were answered after the end.",
		Metrics: []Metric{admitted, rejected, degraded, unavailable, writesPerRequest, readsPerRequest, dollars, p99, over},
	}
	for _, c := range []struct {
		rate      float64
		limit     zlimit.Limit
		name      string
		time      time.Duration
		processes int
	}{
		{1000, zlimit.PerMinute("rpm", 600), "600 a minute", 20 * time.Second, 1000},
		{10_000, zlimit.PerMinute("rpm", 600), "600 a minute", 20 * time.Second, 1000},
		{100_000, zlimit.PerMinute("rpm", 600), "600 a minute", 10 * time.Second, 1000},
		{30_000, zlimit.PerSecond("rps", 5000), "5,000 a second", 20 * time.Second, 1000},
		{600, zlimit.PerSecond("rps", 200), "200 a second, 2 processes", 30 * time.Second, 2},
		{600, zlimit.PerSecond("rps", 200), "200 a second, 10 processes", 30 * time.Second, 10},
		{600, zlimit.PerSecond("rps", 200), "200 a second, 100 processes", 30 * time.Second, 100},
	} {
		p := Default()
		p.TableWrites, p.TableReads = 0, 0
		s.Cases = append(s.Cases, Case{
			Label: fmt.Sprintf("%v/s, limit %s", c.rate, c.name),
			Load: Load{
				Processes: c.processes, Rate: c.rate, For: c.time, Limits: []zlimit.Limit{c.limit}, Policy: zlimit.PolicyAllow,
				Ceilings: map[string]Ceiling{"hot": ceilingOf(c.limit)},
			},
			Params: p,
		})
	}
	return s
}

// skewed are entities some of which get many more requests than others.
func skewed() Scenario {
	s := Scenario{
		Name: "zipf", Title: "Many keys, some of them hot",
		Text: "100 processes receive 5,000 requests a second for 10,000 entities by Zipf's law with an exponent of 1.1: the first entity " +
			"receives a seventh of them. Requests for an entity go to any process, or always to the same one.",
		Metrics: []Metric{admitted, unavailable, writesPerRequest, readsPerRequest, dollars, p99},
	}
	for _, sticky := range []bool{false, true} {
		label := "any process"
		if sticky {
			label = "always the same process"
		}
		zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 3)), 1.1, 1, 9999)
		s.Cases = append(s.Cases, Case{
			Label: label,
			Load: Load{
				Processes: 100, Rate: 5000, For: 50 * time.Second, Settle: 20 * time.Second, Limits: roomy, Sticky: sticky,
				Entity: func(*rand.Rand, time.Duration) string { return "entity-" + strconv.FormatUint(zipf.Uint64(), 10) },
			},
			Params: Default(),
		})
	}
	return s
}

// families are children of one parent.
func families() Scenario {
	const children = 10_000
	parents := map[string]string{}
	for i := range children {
		parents[entityOf(i)] = "hot"
	}
	return Scenario{
		Name: "parent", Title: "A parent of 10,000 children",
		Text:    "100 processes receive 3,000 requests a second for 10,000 children of one parent. The parent is charged with each of them.",
		Metrics: []Metric{admitted, unavailable, writesPerRequest, readsPerRequest, dollars, shards, p99, over},
		Cases: []Case{{
			Label: "3,000/s",
			Load: Load{
				Processes: 100, Rate: 3000, For: 40 * time.Second, Settle: 10 * time.Second, Limits: roomy, Entity: anyOf(children),
				Parents: parents, Ceilings: map[string]Ceiling{"hot": ceilingOf(roomy[0])},
			},
			Params: Default(),
		}},
	}
}

// floods are new keys beside known ones.
func floods() Scenario {
	s := Scenario{
		Name: "flood", Title: "A flood of new keys",
		Text: "1,000 known entities receive 1,000 requests a second. From the tenth second on, 100,000 new entities with ascending IDs " +
			"appear within a minute, as from a caller that uses a new name for each request. In the columns *before*, each creation " +
			"wrote three indexes, two of which have one key for all entities. AWS does not document which writes a throttled index " +
			"delays. In variant A it delays those that touch the index. In variant B it delays, for a second, all writes to the " +
			"partition of the table that has the throttled write.",
		Metrics: []Metric{admitted, unavailable, writesPerRequest, dollars, p99},
	}
	for _, pressure := range []Pressure{PressureOnTouching, PressureOnPartition} {
		for _, group := range []string{"known", "new"} {
			p := Default()
			p.Pressure = pressure
			var next int
			s.Cases = append(s.Cases, Case{
				Label: fmt.Sprintf("variant %c, %s keys", 'A'+rune(pressure), group),
				Group: group,
				Load: Load{
					Processes: 100, Rate: 1000 + 100_000/60, For: 80 * time.Second, Settle: 20 * time.Second, Limits: roomy,
					Entity: func(r *rand.Rand, since time.Duration) string {
						if since > 20*time.Second && r.IntN(8) < 5 {
							next++
							return fmt.Sprintf("new-%09d", next)
						}
						return entityOf(r.IntN(1000))
					},
					Group: knownOrNew,
				},
				Params: p,
			})
		}
	}
	return s
}

// fullHours are many entities that are used at the beginning of an hour, beside requests.
func fullHours() Scenario {
	s := Scenario{
		Name: "hour", Title: "A full hour",
		Text: "250,000 entities, or a million, are used once each in the first minute of an hour, and four processes sum their usage. " +
			"Each new snapshot is a new entry in the index of its resource, which accepts a thousand of them a second. Meanwhile there " +
			"are 100 requests a second for known buckets, and as many for new ones. *Slow* are requests that took longer than 200 ms. " +
			"Figures of usage are per change: its write units, and its throttled writes. At best, the index accepts all entries in 250 " +
			"seconds, or in 1,000. With a million entities, the earlier code ran out of 10 GB of memory.",
		Metrics: []Metric{
			of("known", "known buckets failed", failed), of("known", "slow", slowPart), of("new", "new buckets failed", failed), of("new", "slow", slowPart),
			counted, usageUnits, usageThrottled,
		},
	}
	for _, entities := range []int{250_000, 1_000_000} {
		for _, pressure := range []Pressure{PressureOnTouching, PressureOnPartition} {
			c := fullHour(entities, pressure)
			if entities == 1_000_000 {
				c.Label += ", a million"
			}
			s.Cases = append(s.Cases, c)
		}
	}
	return s
}

// fullHour is a full hour of that many entities.
func fullHour(entities int, pressure Pressure) Case {
	p := Default()
	p.Pressure = pressure
	var next int
	return Case{
		Label: fmt.Sprintf("variant %c", 'A'+rune(pressure)),
		Load: Load{
			Processes: 100, Rate: 200, For: time.Duration(max(entities/1000, 60)) * time.Second, Limits: roomy, Known: 1000,
			Hour: &FullHour{Entities: entities, Aggregators: 4, Longest: 3 * time.Hour},
			Entity: func(r *rand.Rand, _ time.Duration) string {
				if r.IntN(2) == 0 {
					next++
					return fmt.Sprintf("new-%09d", next)
				}
				return entityOf(r.IntN(1000))
			},
			Group: knownOrNew,
		},
		Params: p,
	}
}

// knownOrNew is the group of an entity: new ones are named so.
func knownOrNew(entity string) string {
	if strings.HasPrefix(entity, "new-") {
		return "new"
	}
	return "known"
}

// millions are rates that grow until something breaks, and one below them all.
func millions() Scenario {
	const entities, processes, million = 200_000, 5000, 1_000_000
	fresh := Default()
	fresh.Partitions = 4
	warm := Default()
	warm.TableWrites, warm.TableReads, warm.Partitions = 0, 0, 2048
	known := Load{
		Processes: processes, Limits: roomy, Entity: anyOf(entities), Known: entities, Sticky: true, Ramp: true, For: 10 * time.Second,
		Options: []zlimit.Option{zlimit.WithTuning(zlimit.Tuning{CacheSize: 1000})},
	}
	strangers := known
	strangers.Known, strangers.Processes = 0, 1000
	var next int
	strangers.Entity = func(*rand.Rand, time.Duration) string {
		next++
		return fmt.Sprintf("new-%09d", next)
	}
	at := func(l Load, rate float64, ramp bool) Load {
		l.Rate, l.Ramp = rate, ramp
		return l
	}
	return Scenario{
		Name: "million", Title: "Up to a million requests a second",
		Text: "5,000 processes serve 200,000 known entities, each of which always uses the same process. The rate grows from zero within " +
			"ten seconds. *Breaks at* is the rate in the first sixth of a second in which more than a hundredth of the requests failed. " +
			"A table that was never warmed up has four partitions. A warm table has 64, and the default quota of an account is 40,000 " +
			"writes a second. In further cases the quota is raised, and the table is warmed up to 2,048 partitions. Then a million " +
			"requests a second arrive for ten seconds. If each request is for a new entity, as in a flood, its creation writes an " +
			"index.",
		Metrics: []Metric{offered, admitted, unavailable, breaksAt, brokenBy, writesPerRequest, p99},
		Plot:    plotOverTime("admitted per second", func(t *Tally) float64 { return float64(t.Admitted) }),
		Cases: []Case{
			{Label: "new entities, 20,000/s", Load: at(strangers, 20_000, true), Params: Default()},
			{Label: "a new table, 20,000/s", Load: at(known, 20_000, true), Params: fresh},
			{Label: "a warm table, 100,000/s", Load: at(known, 100_000, true), Params: Default()},
			{Label: "made for it, 1,000,000/s", Load: at(known, million, false), Params: warm},
		},
	}
}

// restarts are processes that all start at the same time.
func restarts() Scenario {
	return Scenario{
		Name: "restart", Title: "10,000 processes start together",
		Text:    "Each process opens a limiter, and then 2,000 requests a second arrive for 1,000 entities.",
		Metrics: []Metric{started, startTime, admitted, unavailable, p99},
		Cases: []Case{{
			Label: "10,000 processes",
			Load: Load{
				Processes: 10_000, Rate: 2000, For: 5 * time.Second, Limits: roomy, Entity: anyOf(1000), Starting: true,
				Options: []zlimit.Option{zlimit.WithTuning(zlimit.Tuning{CacheSize: 1000})},
			},
			Params: Default(),
		}},
	}
}

// outages are parts of the table that do not answer, or are slow.
func outages() Scenario {
	s := Scenario{
		Name: "outage", Title: "A part of the table does not answer",
		Text: "100 processes receive 1,000 requests a second for 1,000 entities, and a quarter of the table is silent for ten seconds. In " +
			"other rows, 1,000 processes receive 10,000 requests a second for 10,000 entities under `PolicyAllow`, and a quarter of the " +
			"table is silent, or each call takes 1.5 s. In the last row the whole table is silent for ten minutes, at 1,000 requests a " +
			"second. *The rest* are the requests for entities whose keys answer. *Slow* are requests that took longer than 200 ms. In a " +
			"brown-out no request is decided in time. The policy then decides all of them immediately, except for two a second in each " +
			"process, which are tried.",
		Metrics: []Metric{
			admitted, degraded, unavailable, of("rest", "the rest: not counted", uncounted), of("rest", "slow", slowPart), p99, returned, back,
		},
		Plot: plotOverTime("admitted per second", func(t *Tally) float64 { return float64(t.Admitted) }),
	}
	for _, c := range []struct {
		label     string
		processes int
		outage    Outage
		policy    zlimit.FailurePolicy
	}{
		{"ten seconds", 100, Outage{Part: 0.25}, zlimit.PolicyInherit},
		{"ten seconds, 1,000 processes", 1000, Outage{Part: 0.25}, zlimit.PolicyAllow},
		{"a brown-out of ten seconds, 1,000 processes", 1000, Outage{Part: 1, Slow: 1500 * time.Millisecond}, zlimit.PolicyAllow},
		{"all of it for ten minutes, 1,000 processes", 1000, Outage{Part: 1, To: 10*time.Minute + outageFrom}, zlimit.PolicyAllow},
	} {
		each := 10.0
		if c.outage.To > 0 {
			each = 1
		}
		s.Cases = append(s.Cases, outageCase(c.label, c.processes, each, c.outage, c.policy))
	}
	return s
}

// outageFrom is when an outage begins, since the table was made: the processes have started, and had requests for ten seconds.
const outageFrom = 30 * time.Second

// outageCase is an outage of ten seconds, or of the time that it says. Each process gets each requests a second.
func outageCase(label string, processes int, each float64, outage Outage, policy zlimit.FailurePolicy) Case {
	p := Default()
	outage.From = cmp.Or(outage.From, outageFrom)
	outage.To = max(outage.To, outage.From+10*time.Second)
	p.Outage, p.Lost = outage, 0 // a lost reply is no outage, and its request is not counted either
	entities := 10 * processes
	return Case{
		Label: label,
		Load: Load{
			Processes: processes, Rate: each * float64(processes), For: outage.To + 20*time.Second, Settle: 5 * time.Second, Limits: roomy,
			Entity: anyOf(entities), Known: entities, Policy: policy, Group: outage.groupOf,
		},
		Params: p,
	}
}

// groupOf returns the group of an entity: its keys answer, or some are silent.
func (o *Outage) groupOf(entity string) string {
	if o.hits("/ENTITY#"+entity) || o.hits("/BUCKET#"+entity+"#"+resource+"#0") {
		return "silent"
	}
	return "rest"
}
