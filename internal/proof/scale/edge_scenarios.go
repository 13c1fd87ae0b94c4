package scale

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// inSpan is a metric of a span.
func inSpan(i int, head string, of func(*Spent) string) Metric {
	return Metric{head, func(f *Figure) string {
		if i >= len(f.Spans) {
			return "–"
		}
		return of(f.Spans[i])
	}}
}

// Figures of a span.
var (
	offeredIn   = func(s *Spent) string { return whole(float64(s.Offered) / s.Seconds) }
	writesIn    = func(s *Spent) string { return whole(s.Writes) }
	throttledIn = func(s *Spent) string { return whole(s.Throttled) }
	failedIn    = func(s *Spent) string { return percent(float64(s.failures()) / float64(max(s.Offered, 1))) }
	lostIn      = func(s *Spent) string { return percent(s.Failed) }
	p99In       = func(s *Spent) string { return whole(s.P99) }
)

// inTurn returns a function that cycles through n entities, in a shuffled order.
func inTurn(n int) func(*rand.Rand, time.Duration) string {
	at := 0
	return func(*rand.Rand, time.Duration) string {
		at = (at + 7919) % n // a prime: it meets each
		return entityOf(at)
	}
}

// midnights are quotas of a day and of a month, which reset at the same time.
func midnights() Scenario {
	s := Scenario{
		Name: "midnight", Title: "Midnight for a million budgets",
		Text: "Each bucket has a daily and a monthly budget, in one time zone. 1,000 processes receive 20,000 requests a second, each for " +
			"the next bucket, or 800 a second in the case of a single bucket. At that rate a million buckets enter the new periods " +
			"within 50 seconds. Buckets are independent, so the first tenth of them shows what each of those seconds costs. The table " +
			"compares the second before the end of the month with the second after it. *Crossed* are items that a single write has " +
			"brought into both new periods.",
		Metrics: []Metric{
			inSpan(0, "writes, second before", writesIn), inSpan(1, "first second after", writesIn),
			inSpan(0, "failed conditions, before", lostIn), inSpan(1, "after", lostIn), inSpan(1, "throttled calls", throttledIn),
			unavailable, inSpan(0, "99th percentile before, ms", p99In), inSpan(1, "after", p99In),
			{"crossed by one write", func(f *Figure) string { return crossedBy(f, 0) }},
			{"by more", func(f *Figure) string { return crossedBy(f, 1) }},
		},
	}
	s.Cases = []Case{
		midnightCase("100,000 buckets, any process", 100_000, 1000, 20_000, 9*time.Second),
		midnightCase("100,000 buckets, always the same process", 100_000, 1000, 20_000, 9*time.Second),
		midnightCase("1,000 buckets, any process", 1000, 1000, 20_000, 6*time.Second),
		midnightCase("one bucket, any process", 1, 1000, 800, 10*time.Second),
	}
	s.Cases[1].Load.Sticky = true
	return s
}

func crossedBy(f *Figure, i int) string {
	if i >= len(f.Crossed) {
		return "0"
	}
	return whole(float64(f.Crossed[i]))
}

// midnightCase asks for budgets from three seconds before midnight on.
func midnightCase(label string, buckets, processes int, rate float64, d time.Duration) Case {
	const before = 3 * time.Second
	return Case{
		Label: label,
		Load: Load{
			Processes: processes, Rate: rate, For: d, Known: buckets, Entity: inTurn(buckets), Midnight: before,
			Limits: []zlimit.Limit{zlimit.Daily("day", 1_000_000, "UTC"), zlimit.Monthly("month", 20_000_000, "UTC")},
			Spans:  []Span{{before - time.Second, before}, {before, before + time.Second}},
		},
		Params: Default(),
	}
}

// herds are requests that were refused before an edge, and come again at the reported time.
func herds() Scenario {
	s := Scenario{
		Name: "herd", Title: "Callers come back at the reported time",
		Text: "A daily budget is used up, and all callers are rejected in the last minute before midnight. They retry at the reported " +
			"time. Either each caller has its own bucket, or all share one. The rows with many buckets have a fifth of 200,000 callers, " +
			"on a fifth of a warm table and of the quota of an account. With all 200,000, the same share failed. The table counts " +
			"writes and throttles of the first second. `RetryAfter` reports midnight, and callers may add a random time. " +
			"`SpreadRetryAfter` adds up to a minute.",
		Metrics: []Metric{
			inSpan(0, "offered in the first second", offeredIn), inSpan(0, "writes", writesIn), inSpan(0, "throttled calls", throttledIn),
			inSpan(1, "failed", failedIn), inSpan(1, "failed conditions", lostIn), inSpan(1, "99th percentile, ms", p99In), over,
		},
	}
	for _, spread := range []time.Duration{0, time.Second, 10 * time.Second, asTold} {
		c := herdCase(40_000, 40_000, 200, spread)
		c.Params.Partitions, c.Params.TableWrites, c.Params.TableReads = 13, 8000, 8000
		s.Cases = append(s.Cases, c, herdCase(20_000, 1, 1000, spread))
	}
	return s
}

// herdCase returns a case in which callers are refused in the minute before midnight, and wait until they may ask
// again.
func herdCase(callers, buckets, processes int, spread time.Duration) Case {
	const before, quota = time.Minute, 1_000_000
	ceilings := map[string]Ceiling{}
	for i := range buckets {
		ceilings[entityOf(i)] = Ceiling{Capacity: quota}
	}
	label := fmt.Sprintf("%s callers of %s buckets", whole(float64(callers)), whole(float64(buckets)))
	switch {
	case spread == asTold:
		label += ", `SpreadRetryAfter`"
	case spread > 0:
		label += fmt.Sprintf(", spread over %v", spread)
	}
	return Case{
		Label: label,
		Load: Load{
			Processes: processes, Rate: float64(callers) / (before - time.Second).Seconds(), For: before - time.Second,
			Known: buckets, Entity: inTurn(buckets), Midnight: before, Spent: quota, Returns: true, Spread: spread,
			Limits: []zlimit.Limit{zlimit.Daily("day", quota, "UTC")}, Ceilings: ceilings,
			Spans: []Span{{before, before + time.Second}, {before, before + 2*time.Minute}},
		},
		Params: Default(),
	}
}

// switches are operators who disable a resource.
func switches() Scenario {
	of := func(text func(*Walk) string) func(*Figure) string {
		return func(f *Figure) string {
			if f.Walk == nil {
				return "–"
			}
			return text(f.Walk)
		}
	}
	s := Scenario{
		Name: "switch", Title: "A kill switch for a resource of a million entities",
		Text: "100 processes receive 500 requests a second for 100,000 buckets. After ten seconds an operator disables their resource. " +
			"Processes that read the limits again start to reject within a minute (`WithConfigTTL`). A walk over the buckets makes them " +
			"reject sooner, bucket by bucket, and informs other programs. It scans the table in 16 segments. In the second row the walk " +
			"stops halfway, and a second walk continues: it reads all buckets, and stamps those that have no stamp yet. Units include " +
			"the units of the requests. 64 concurrent stamps would read the level more often than its key can serve, so there are 16. " +
			"*Left open* are buckets that still serve requests at the end. A walk of a million buckets was run once. It took 686 " +
			"seconds, 1.02 write units and 5.75 read units per bucket, and left none open. The last request was admitted after 38.7 " +
			"seconds.",
		Metrics: []Metric{
			{"last admitted after, s", of(func(w *Walk) string { return fmt.Sprintf("%.1f", w.Last) })},
			{"walk, s", of(func(w *Walk) string { return whole(w.Seconds) })},
			{"write units a bucket", of(func(w *Walk) string { return fmt.Sprintf("%.2f", w.Writes/float64(w.Buckets)) })},
			{"read units a bucket", of(func(w *Walk) string { return fmt.Sprintf("%.2f", w.Reads/float64(w.Buckets)) })},
			{"left open", of(func(w *Walk) string { return fmt.Sprint(w.Missed) })},
			unavailable,
		},
	}
	for _, halfway := range []bool{false, true} {
		s.Cases = append(s.Cases, switchCase(100_000, 100, 500, halfway))
	}
	return s
}

func switchCase(buckets, processes int, rate float64, halfway bool) Case {
	label := whole(float64(buckets)) + " buckets"
	if halfway {
		label += ", interrupted halfway"
	}
	return Case{
		Label: label,
		Load: Load{
			Processes: processes, Rate: rate, For: 100 * time.Second, Known: buckets, Entity: anyOf(buckets), Limits: roomy,
			Switch: 10 * time.Second, Halfway: halfway,
		},
		Params: Default(),
	}
}

// queues are requests that wait in one line.
func queues() Scenario {
	of := func(value func(*Queue) float64) func(*Figure) string {
		return func(f *Figure) string {
			if f.Queue == nil {
				return "–"
			}
			return fmt.Sprintf("%.2f", value(f.Queue))
		}
	}
	return Scenario{
		Name: "queue", Title: "30,000 waiters a second on one key",
		Text: "30,000 callers a second call 1,000 processes for ten seconds, and wait up to a minute for a limit of one entity. The ideal " +
			"bucket serves them in the order of their arrival. The key sustains 1,000 writes a second, so the callers of a process " +
			"share writes, and the bucket splits until its shards have queues of a second. Until then the key is throttled: callers of " +
			"the first three seconds wait up to two seconds for the write of their process. Later callers have a separate column. Each " +
			"shard has its own queue, and callers take the better of two shards by the last images of their process, so the queues have " +
			"nearly the same length. *Passed by* is how much sooner a later caller was served. These times are 99th percentiles.",
		Metrics: []Metric{
			admitted, unavailable, writesPerRequest, shards,
			{"wait, s", of(func(q *Queue) float64 { return q.Wait })},
			{"ideal", of(func(q *Queue) float64 { return q.Ideal })},
			{"later than ideal", of(func(q *Queue) float64 { return q.Late })},
			{"the same after 3 s", of(func(q *Queue) float64 { return q.Warm })},
			{"passed by, s", of(func(q *Queue) float64 { return q.Passed })},
			{"the last one, later than ideal", of(func(q *Queue) float64 { return q.Last })},
			over,
		},
		Cases: []Case{queueCase(30_000, 20_000, 10*time.Second), queueCase(30_000, 29_000, 10*time.Second)},
	}
}

func queueCase(rate float64, limit int64, d time.Duration) Case {
	p := Default()
	p.TableWrites, p.TableReads = 0, 0
	l := zlimit.PerSecond("rps", limit)
	return Case{
		Label: fmt.Sprintf("limit %s a second", whole(float64(limit))),
		Load: Load{
			Processes: 1000, Rate: rate, For: d, Limits: []zlimit.Limit{l}, Wait: time.Minute,
			Ceilings: map[string]Ceiling{"hot": ceilingOf(l)},
		},
		Params: p,
	}
}
