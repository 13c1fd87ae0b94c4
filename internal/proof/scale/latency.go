package scale

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Contest is what came of the requests of several processes for one limit, beside an ideal bucket that sees each request when it comes.
type Contest struct {
	Offered, Admitted, Allowed int     // requests; allowed are those that the ideal bucket admits
	Refused                    int     // requests
	P50, P99                   float64 // round trips; for a caller that waits, beyond the wait in the ideal bucket
	Writes                     float64 // a request: of failed conditions too
	Reads                      float64 // a request: read units
	Failed                     float64 // part of the writes whose condition failed
	Least, Most                int     // admitted requests of a process
	Late                       float64 // round trips by which a request took longer than it may wait, 0 for callers that do not
	Over                       int     // requests that were admitted beyond the capacity and the refill of some interval
}

// A contest measures a [Contest].
type contest struct {
	Ceiling
	exact     bool
	wait      time.Duration
	level     float64
	at        time.Duration
	requests  []time.Duration // by how much requests took longer than in the ideal bucket
	admitted  []int           // measured ones of each process
	admission []admission
	returned  []givenBack
	late      time.Duration
	sum       Contest
}

// A givenBack is a number of tokens that were given back at a time.
type givenBack struct {
	at     time.Time
	tokens float64
}

// contested is a request of a contest.
type contested struct {
	process   int
	came, due time.Duration
	measured  bool
}

func newContest(c Ceiling, processes int, wait time.Duration, exact bool) *contest {
	return &contest{Ceiling: c, wait: wait, exact: exact, level: c.Capacity, admitted: make([]int, processes)}
}

// come adds a request to the ideal bucket. A caller that waits gets its token if it flows in in time.
func (c *contest) come(process int, now time.Duration, measured bool) *contested {
	c.level = min(c.Capacity, c.level+c.Rate*(now-c.at).Seconds())
	c.at = now
	r := &contested{process, now, now, measured}
	missing := time.Duration(max(0, 1-c.level) / c.Rate * float64(time.Second))
	allowed := missing <= c.wait
	if r.due += min(missing, c.wait); allowed {
		c.level--
	}
	if measured {
		c.sum.Offered++
		if allowed {
			c.sum.Allowed++
		}
	}
	return r
}

// end counts a request that has ended.
func (c *contest) end(r *contested, now time.Duration, err error) {
	if err == nil {
		c.admission = append(c.admission, admission{r.came, now, 1})
	}
	if !r.measured {
		return
	}
	switch {
	case err == nil:
		c.sum.Admitted++
		c.admitted[r.process]++
		c.requests = append(c.requests, now-r.due)
	case errors.As(err, new(*zlimit.ExceededError)):
		c.sum.Refused++
		c.requests = append(c.requests, now-r.came)
	}
	if c.wait > 0 {
		c.late = max(c.late, now-r.came-c.wait)
	}
}

// result sums a contest up that began at a time, given the time of a round trip and what was used of the table.
func (c *contest) result(began time.Time, trip time.Duration, used Used) *Contest {
	s := &c.sum
	slices.Sort(c.requests)
	trips := func(d time.Duration) float64 { return rounded(max(0, d.Seconds()/trip.Seconds()), 2) }
	if n := len(c.requests); n > 0 {
		s.P50, s.P99 = trips(c.requests[n/2]), trips(c.requests[n*99/100])
	}
	s.Late = trips(c.late)
	s.Writes = rounded(used.WriteUnits/float64(max(s.Offered, 1)), 3)
	s.Reads = rounded(used.ReadUnits/float64(max(s.Offered, 1)), 3)
	s.Failed = rounded(float64(used.Failed)/float64(max(used.Writes, 1)), 3)
	s.Least, s.Most = slices.Min(c.admitted), slices.Max(c.admitted)
	s.Over = c.over(began)
	return s
}

// watch notes what a change of an item gives back to the limit of the contest.
func (c *contest) watch(old, next expr.Item, now time.Time) {
	if tokens := c.consumed(old) - c.consumed(next); tokens > 0 && next != nil {
		c.returned = append(c.returned, givenBack{now, tokens})
	}
}

// consumed returns what was taken from the limit of the contest according to an item.
func (c *contest) consumed(item expr.Item) float64 {
	state, err := layout.ReadState(item)
	if err != nil { // it is no bucket
		return 0
	}
	for i := range state.Limits {
		if l := &state.Limits[i]; float64(l.Capacity) == c.Capacity*1000 {
			return float64(l.Consumed) / 1000
		}
	}
	return 0
}

// over returns the most requests by which an interval has more admissions than an ideal bucket, whenever in its interval each of them was
// admitted. A caller that takes a token too late gives it back, so tokens that are given back within the interval are there for others. A
// caller that waits has its token up to the end of its wait later.
func (c *contest) over(began time.Time) int {
	all := c.admission
	for _, r := range c.returned {
		at := r.at.Sub(began)
		all = append(all, admission{at, at, -r.tokens})
	}
	return int(c.beyond(c.burst(all), c.exact))
}

// The axes of the grid.
var (
	tripTimes    = []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond, 100 * time.Millisecond}
	contestants  = []int{1, 2, 3, 6, 10, 50}
	loads        = []float64{0.5, 1, 2, 10}
	contestKinds = []string{"one limit", "two limits", "a parent", "a split bucket"}
	contestModes = []string{"Acquire", "Wait"}
)

// longestWait is what a caller of the grid waits at most.
const longestWait = 500 * time.Millisecond

// latencies are processes far from their table that contend for one limit.
func contests() Scenario {
	s := Scenario{
		Name: "latency", Title: "A limit that several processes use up, by the time of a round trip",
		Text: "1 to 50 processes request a limit of 50 a second with a capacity of 10, at 0.5 to 10 times that rate, and replies take 1 " +
			"to 100 ms. The limit is on its own, next to a limit that is always full, the limit of a parent of 20 children, or 100 a " +
			"second in a bucket of two shards. Callers request once, or wait up to half a second. Each cell has the median and the " +
			"worst of the 30 combinations of processes and round trips. Times are in round trips. For callers that wait, they are the " +
			"time beyond the wait in an ideal bucket, which sees all requests on arrival. *Least* is the process with the fewest " +
			"admissions, relative to the mean. *Used* is the number of admissions, relative to the ideal bucket. *Refused* is the " +
			"number of rejections that the ideal bucket does not make, relative to all requests.",
	}
	for _, mode := range contestModes {
		for _, kind := range contestKinds {
			for _, load := range loads {
				for _, processes := range contestants {
					for _, trip := range tripTimes {
						s.Cases = append(s.Cases, contestCase(mode, kind, load, processes, trip))
					}
				}
			}
		}
	}
	return s
}

func contestLabel(mode, kind string, load float64, processes int, trip time.Duration) string {
	return fmt.Sprintf("%s, %s, %v times, %d processes, %v", mode, kind, load, processes, trip)
}

// contestCase is one cell of the grid.
func contestCase(mode, kind string, load float64, processes int, trip time.Duration) Case {
	const settle, children = 2 * time.Second, 20
	limit := zlimit.Limit{Name: "rps", Capacity: 10, RefillAmount: 50, RefillPeriod: time.Second}
	l := Load{Processes: processes, Settle: settle, For: settle + 20*time.Second, Limits: []zlimit.Limit{limit}, Contest: trip}
	switch kind {
	case "two limits":
		l.Limits = append(l.Limits, zlimit.PerMinute("roomy", 6_000_000))
	case "a parent":
		l.Limits, l.Entity, l.Parents = []zlimit.Limit{zlimit.PerMinute("rps", 6_000_000)}, anyOf(children), map[string]string{}
		for i := range children {
			l.Parents[entityOf(i)] = "hot"
		}
		l.Prepare = func(ctx context.Context, r *zlimit.RateLimiter) error {
			return r.Limits.Set(ctx, zlimit.Level{Entity: "hot", Resource: resource}, zlimit.Config{Limits: []zlimit.Limit{limit}})
		}
	case "a split bucket":
		limit.Capacity, limit.RefillAmount = 20, 100
		l.Limits[0], l.Halves, l.For = limit, true, settle+7*time.Second // before shards with so few writes are merged
	}
	if mode == "Wait" {
		l.Wait = longestWait
	}
	if (load < 2 || processes > 10) && !l.Halves {
		l.For = settle + 2*(l.For-settle)
	}
	l.Rate = load * float64(limit.RefillAmount)
	l.Ceiling = ceilingOf(limit)
	p := Default()
	p.Median, p.Tail, p.Lost = trip, trip*6/5, 0
	return Case{Label: contestLabel(mode, kind, load, processes, trip), Load: l, Params: p}
}

// halve gives the bucket of an entity, which exists, two shards.
func (f *fleet) halve(ctx context.Context, entity string) error {
	k, state, err := f.bucketOf(ctx, entity)
	if err != nil {
		return err
	}
	state.Shards = 2
	for i := range state.Limits {
		if l := &state.Limits[i]; l.RefillAmount > 0 {
			l.Tokens = l.Capacity / 2
		}
	}
	for shard := range state.Shards {
		k.Shard, state.Shard = shard, shard
		item := k.Item(&state, layout.Lineage{})
		if _, err := f.table.items.Write(ctx, store.Write{Kind: store.Put, Key: item.Key.Key(), Item: item.Encode()}); err != nil {
			return err
		}
	}
	return nil
}

// entityIn returns the entity of a request, which is "hot" where the load has no other.
func (f *fleet) entityIn(r *rand.Rand, since time.Duration) string {
	if f.Entity == nil {
		return "hot"
	}
	return f.Entity(r, since)
}

// A grid has the contests by the names of their cases.
type grid map[string]*Contest

const gridHead = "case\toffered\tadmitted\tallowed\trefused\tp50\tp99\twrites\treads\tfailed\tleast\tmost\tlate\tover"

// readGrid returns the grid of a file, an empty one if there is no file.
func readGrid(file string) (grid, error) {
	g := grid{}
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return g, nil
	}
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
		name, rest, _ := strings.Cut(line, "\t")
		var c Contest
		if _, err := fmt.Sscan(rest, &c.Offered, &c.Admitted, &c.Allowed, &c.Refused, &c.P50, &c.P99, &c.Writes, &c.Reads, &c.Failed, &c.Least,
			&c.Most, &c.Late, &c.Over); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", file, line, err)
		}
		g[name] = &c
	}
	return g, nil
}

// write writes the cells in the order of their cases.
func (g grid) write(file string, s *Scenario) error {
	var b strings.Builder
	b.WriteString(gridHead + "\n")
	for i := range s.Cases {
		name := s.caseName(&s.Cases[i])
		c := g[name]
		if c == nil {
			continue
		}
		fmt.Fprintf(&b, "%s\t%d\t%d\t%d\t%d\t%v\t%v\t%v\t%v\t%v\t%d\t%d\t%v\t%d\n", name, c.Offered, c.Admitted, c.Allowed, c.Refused, c.P50, c.P99,
			c.Writes, c.Reads, c.Failed, c.Least, c.Most, c.Late, c.Over)
	}
	return os.WriteFile(file, []byte(b.String()), 0o600)
}

// least returns the admissions of the process with the fewest, as a part of the mean.
func (c *Contest) least(processes int) float64 {
	return float64(c.Least*processes) / float64(max(c.Admitted, 1))
}

// used returns the admissions as a part of the ideal bucket's.
func (c *Contest) used() float64 { return float64(c.Admitted) / float64(max(c.Allowed, 1)) }

// refusedMore returns the requests that are rejected beyond the ideal bucket's rejections, as a part of all.
func (c *Contest) refusedMore() float64 {
	return float64(c.Refused-(c.Offered-c.Allowed)) / float64(max(c.Offered, 1))
}

// failures returns the requests that ended otherwise than by an admission or a rejection.
func (c *Contest) failures() int { return c.Offered - c.Admitted - c.Refused }

// table returns the grid as the page shows it: a row for each mode, kind and load.
func (g grid) table(s *Scenario) string {
	columns := []struct {
		head  string
		worst func(...float64) float64
		of    func(c *Contest, processes int) float64
		text  func(float64) string
	}{
		{"median time", most, func(c *Contest, _ int) float64 { return c.P50 }, trips},
		{"99th percentile", most, func(c *Contest, _ int) float64 { return c.P99 }, trips},
		{"writes a request", most, func(c *Contest, _ int) float64 { return c.Writes }, hundredths},
		{"read units a request", most, func(c *Contest, _ int) float64 { return c.Reads }, hundredths},
		{"failed conditions", most, func(c *Contest, _ int) float64 { return c.Failed }, percent},
		{"least", least, (*Contest).least, hundredths},
		{"used", least, func(c *Contest, _ int) float64 { return c.used() }, percent},
		{"refused more", most, func(c *Contest, _ int) float64 { return c.refusedMore() }, signedPercent},
		{"beyond `MaxWait`", most, func(c *Contest, _ int) float64 { return c.Late }, trips},
		{"over-admitted", most, func(c *Contest, _ int) float64 { return float64(c.Over) }, trips},
		{"failed", most, func(c *Contest, _ int) float64 { return float64(c.failures()) }, trips},
	}
	var b strings.Builder
	b.WriteString("| |")
	for _, col := range columns {
		fmt.Fprintf(&b, " %s |", col.head)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, mode := range contestModes {
		for _, kind := range contestKinds {
			for _, load := range loads {
				fmt.Fprintf(&b, "| `%s`, %s, %v times |", mode, kind, load)
				for _, col := range columns {
					var values []float64
					for _, processes := range contestants {
						for _, trip := range tripTimes {
							if c := g[s.Name+": "+contestLabel(mode, kind, load, processes, trip)]; c != nil {
								values = append(values, col.of(c, processes))
							}
						}
					}
					if len(values) < len(contestants)*len(tripTimes) {
						b.WriteString(" – |")
						continue
					}
					slices.Sort(values)
					fmt.Fprintf(&b, " %s, %s |", col.text(values[len(values)/2]), col.text(col.worst(values...)))
				}
				b.WriteString("\n")
			}
		}
	}
	return b.String()
}

func most(values ...float64) float64  { return slices.Max(values) }
func least(values ...float64) float64 { return slices.Min(values) }

func trips(x float64) string      { return fmt.Sprint(rounded(x, 1)) }
func hundredths(x float64) string { return fmt.Sprintf("%.2f", x) }

func signedPercent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
