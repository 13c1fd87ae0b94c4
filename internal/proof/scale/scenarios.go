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
		Text: "Requests go to any process, as behind a load balancer. Rates are per bucket; a process serves enough buckets to get at least " +
			"one request a second. Limits are read again once a minute: an entity's by one process for all, and the limits of the resource " +
			"and of the system by each process. The price includes these reads. In the two measured minutes, processes of the larger fleets " +
			"meet most buckets once, so old stamps are rarer than in a longer run.",
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
		Text: "Requests, and the sums of their usage. An aggregator writes the hour once for each bucket and batch, and adds it to day and " +
			"month when it ends: computed for batches of 10 s and of 60 s. Storage, backups, the stream and Lambda come on top, and are " +
			"less than a tenth.",
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
		Text: "One bucket, whose limit admits everything, from no load to the full rate immediately. A key takes 1,000 writes a second, so " +
			"the bucket has to split.",
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
		Text: "100 processes ask one bucket 1,500 times a second for 100 tokens, and report after two seconds what was used of them. The " +
			"write of a settlement comes on top of the request's. *Unsettled* are leases whose `Commit` failed, of those that were " +
			"admitted.",
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
		Text: "Processes ask one bucket for more than its limit, under the failure policy `PolicyAllow`; 1,000 of them unless the row says " +
			"otherwise. Degraded requests were admitted uncounted. The requests of 600 a minute wait for the proof of their rejection while " +
			"reads of the key are throttled. Their times show that wait. In the first quarter of a second of 100,000 a second, a process " +
			"does not know yet that the key is throttled. Some hundred requests wait for longer than the decision timeout then, and are " +
			"admitted uncounted. Later there are none. The limit of 5,000 a second is more than one key can take. While its bucket splits, " +
			"requests wait for throttled writes. Some tokens flow in during each call, so no view of all shards proves them exhausted: two " +
			"shards that fall short reject a request. Requests that were answered after the end are in the admitted ones.",
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
		Text: "100 processes, 5,000 requests a second for 10,000 entities by Zipf's law with an exponent of 1.1: the first of them " +
			"takes a seventh. Requests of an entity go to any process, or always to the same one.",
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
		Text:    "100 processes, 3,000 requests a second for 10,000 children of one parent, which is charged with each of them.",
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
		Text: "1,000 known entities get 1,000 requests a second. From the tenth second on, 100,000 new ones appear within a minute, with " +
			"ascending ids. A caller with a new name for each request causes that. In the column before, each creation wrote three indexes, " +
			"two of which have one key for all. AWS does not say which writes a full index holds back: in variant A those that touch it, in " +
			"variant B for a second all writes of a partition of the table. That is the partition of such a write.",
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
		Text: "250,000 entities, or a million, are used in the first minute of an hour, once each, and four processes sum up their usage. " +
			"Each snapshot that begins is a new entry in the index of its resource, which takes a thousand of them a second. Meanwhile come " +
			"100 requests a second for known buckets, and as many for new ones. *Slow* are requests that took longer than 200 ms. Figures " +
			"of usage are for each change: its write units, and the writes that were throttled. An index takes all of it in 250 seconds at " +
			"best, or in 1,000. With a million, the earlier code ran out of 10 GB of memory.",
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
		Text: "5,000 processes and 200,000 known entities, each of which goes to the same process; the rate grows from nothing within ten " +
			"seconds. What breaks first is the rate of the sixth of a second in which a hundredth of the requests failed. A table that was " +
			"never warmed up has four partitions. A warm one has 64, and the quota of an account, 40,000 writes a second. The quota was " +
			"raised, and the table warmed up to 2,048 partitions. Then a million requests a second come for ten seconds. If each request is " +
			"for a new entity, as in a flood, its creation writes an index.",
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
		Text:    "Each opens a limiter, and then 2,000 requests a second come for 1,000 entities.",
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
		Text: "1,000 requests a second for 1,000 entities come to 100 processes, and for ten seconds a quarter of the table is silent. Or " +
			"10,000 come for 10,000 entities to 1,000 processes under `PolicyAllow`. Then a quarter of the table is silent, or each call " +
			"takes 1.5 s. In the last row all is silent for ten minutes, and 1,000 requests come a second. *The rest* are the requests for " +
			"entities whose keys answer. *Slow* are requests that took longer than 200 ms. In a brown-out no request is decided in time. " +
			"The policy then decides all of them immediately, except for two a second in each process, which are tried.",
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
