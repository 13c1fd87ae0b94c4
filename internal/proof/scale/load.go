package scale

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// resource is that of all requests.
const resource = "model"

// A Load is a fleet and the requests that come to it. Requests come at random times, independent of each other.
type Load struct {
	Processes int
	Rate      float64       // requests a second of the whole fleet
	For       time.Duration // in which requests come
	Settle    time.Duration // at the beginning, which is not measured
	Ramp      bool          // the rate grows from nothing; Rate is that of the end
	Known     int           // entities that have buckets before, see [entityOf]

	// Entity returns the entity of a request, by the time since the beginning. Where it is nil, all are for "hot".
	Entity func(r *rand.Rand, since time.Duration) string
	// Sticky sends all requests of an entity to the same process; otherwise they go to any.
	Sticky bool
	Amount int64 // of a request; 0 for 1
	// Actual is what an admitted request has used after Takes, by which its lease is settled; 0 for leases that are not.
	Actual int64
	Takes  time.Duration
	// Midnight is how long the load begins before the first midnight of a month in UTC; 0 for any time.
	Midnight time.Duration
	// Spent is what each known bucket has used of its limits before; 0 for 1.
	Spent int64
	// Wait is how long a request waits at the most; 0 for requests that do not.
	Wait time.Duration
	// Returns makes a refused request come again at the reported time, or up to Spread later, or [asTold].
	Returns bool
	Spread  time.Duration
	// Spans are parts of the time that are measured by themselves.
	Spans []Span
	// Switch is when an operator disables the resource; 0 for never.
	Switch time.Duration
	// Halfway makes the operator's first call end when half of the known buckets are marked.
	Halfway bool

	Limits   []zlimit.Limit // of the system
	Ceilings map[string]Ceiling
	Parents  map[string]string // of entities that cascade; they are created before
	Policy   zlimit.FailurePolicy
	Options  []zlimit.Option
	Exact    bool // limiters have WithFreshness(0)
	// Prepare is called with a limiter of its own before the beginning.
	Prepare func(ctx context.Context, l *zlimit.RateLimiter) error
	// Starting makes all processes start when the load begins, rather than one after another before it.
	Starting bool
	// Contest is the time of a round trip, where requests are held against the ideal bucket of Ceiling; 0 where they are not.
	Contest time.Duration
	Ceiling Ceiling
	// Halves makes the bucket of "hot" two shards from the beginning.
	Halves bool
	// Hour is what goes on beside the requests; nil for nothing.
	Hour *FullHour
	// Group names the group of an entity, which is measured by itself; nil for one group.
	Group func(entity string) string
}

// A Tally counts what became of requests.
type Tally struct {
	Offered     int `json:"offered"`
	Admitted    int `json:"admitted"`
	Rejected    int `json:"rejected"`
	Refused     int `json:"refused,omitempty"`   // by an operator
	Unavailable int `json:"unavailable"`         // failed in an outage, or by a throttle
	Degraded    int `json:"degraded,omitempty"`  // admitted uncounted
	Contended   int `json:"contended,omitempty"` // gave up after lost races
	Other       int `json:"other,omitempty"`
	Slow        int `json:"slow,omitempty"`      // slower than slow, with any outcome
	Unsettled   int `json:"unsettled,omitempty"` // leases whose settlement failed
}

// slow is the time of requests that wait for something.
const slow = 200 * time.Millisecond

// An Outcome is the result of a load.
type Outcome struct {
	Tally
	Groups   map[string]*Tally
	Seconds  float64 // that were measured
	Used     Used    // in that time, and until all calls had ended
	P50, P99 time.Duration
	Longest  time.Duration
	Over     int64         // tokens admitted beyond the ceilings
	Left     float64       // the least that a ceiling had left, as a part of its capacity
	Shards   int           // of "hot" at the end
	Back     time.Duration // after the end of the outage: when the last request came that was not counted
	Started  int           // processes that started
	Starts   time.Duration
	Series   []Tally // of each tenth of the time
	Usage    *Usage  // where there is an Hour
	Spans    []*Spent
	Queue    *Queue
	Contest  *Contest
	Walk     *Walk
	Crossed  [2]int // items whose period ended, that one write has brought into the next, or several
	Errors   map[string]int
}

// A fleet is a load that runs.
type fleet struct {
	*Load
	table    *Table
	limiters []*zlimit.RateLimiter
	random   *rand.Rand
	began    time.Time

	mu        sync.Mutex
	outcome   Outcome
	witness   *witness
	latencies latencies
	line      *line
	contest   *contest
	spans     []spanOf
	turnedOff time.Time
	requests  sync.WaitGroup
}

// parts is the number of parts of an outcome's series.
const parts = 60

// latencyClass returns the class of a latency: each is a twentieth longer than the one before.
func latencyClass(d time.Duration) int {
	return max(0, min(511, int(math.Log(max(float64(d.Microseconds()), 1))/math.Log(1.05))))
}

// latencies are counts of latencies, by latencyClass.
type latencies [512]int

func (l *latencies) add(d time.Duration) { l[latencyClass(d)]++ }

// percentile returns the latency that a part of them did not exceed.
func (l *latencies) percentile(part float64) time.Duration {
	all, seen := 0, 0
	for _, n := range l {
		all += n
	}
	for class, n := range l {
		if seen += n; n > 0 && float64(seen) >= part*float64(all) {
			return latencyOf(class)
		}
	}
	return 0
}

func latencyOf(class int) time.Duration {
	return time.Duration(math.Pow(1.05, float64(class)+0.5)) * time.Microsecond
}

// Run runs a load against a table. It has to be called inside a synctest bubble.
func (l *Load) Run(p Params) (*Outcome, error) {
	ctx := context.Background()
	edge := midnight(time.Now())
	if l.Midnight > 0 {
		time.Sleep(time.Until(edge.Add(-l.Midnight - time.Minute))) // in which the processes start
	}
	table, err := NewTable(p)
	if err != nil {
		return nil, err
	}
	f := &fleet{Load: l, table: table, random: rand.New(rand.NewPCG(p.Seed, 2)), witness: newWitness(l.Ceilings, l.Exact)}
	for _, s := range l.Spans {
		f.spans = append(f.spans, spanOf{Span: s})
	}
	switch {
	case l.Contest > 0:
		f.contest = newContest(l.Ceiling, l.Processes, l.Wait, l.Exact)
		table.watch = f.contest.watch
	case l.Wait > 0:
		c := ceilingOf(l.Limits[0])
		f.line = &line{Ceiling: c, level: c.Capacity}
	}
	f.outcome.Groups, f.outcome.Errors = map[string]*Tally{}, map[string]int{}
	if err := f.prepare(ctx); err != nil {
		return nil, err
	}
	defer f.close()
	if err := f.start(ctx); err != nil {
		return nil, err
	}
	var beside *hour
	if l.Hour != nil {
		beside = &hour{FullHour: *l.Hour, fleet: f}
		if err := beside.begin(ctx); err != nil {
			return nil, fmt.Errorf("begin the hour: %w", err)
		}
	}
	if l.Midnight > 0 {
		time.Sleep(time.Until(edge.Add(-l.Midnight)))
	}
	f.began = time.Now()
	f.watch(&f.requests)
	if l.Switch > 0 {
		f.requests.Go(func() { err = f.turnOff(ctx) })
	}
	before := f.offer(ctx)
	f.requests.Wait()
	if err != nil {
		return nil, fmt.Errorf("turn off: %w", err)
	}
	if f.outcome.Walk != nil {
		if f.outcome.Walk.Missed, err = f.missed(ctx); err != nil {
			return nil, err
		}
	}
	if beside != nil {
		if f.outcome.Usage, err = beside.finish(); err != nil {
			return nil, fmt.Errorf("aggregate: %w", err)
		}
	}
	f.finish(ctx, before)
	return &f.outcome, nil
}

// limiter returns a new process.
func (f *fleet) limiter(ctx context.Context, options ...zlimit.Option) (*zlimit.RateLimiter, error) {
	options = append([]zlimit.Option{
		zlimit.WithPrincipal("scale"), zlimit.WithCallTimeout(2 * time.Second), zlimit.WithTuning(zlimit.Tuning{CacheSize: 20_000}),
	}, options...)
	if f.Exact {
		options = append(options, zlimit.WithFreshness(0))
	}
	return zlimit.New(ctx, store.NewHandle(f.table.Client(), false), append(options, f.Options...)...)
}

// prepare sets the limits.
func (f *fleet) prepare(ctx context.Context) error {
	l, err := f.limiter(ctx, zlimit.WithSetup())
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if err = l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: f.Limits, OnUnavailable: f.Policy}); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	created := map[string]bool{}
	for child, parent := range f.Parents {
		if !created[parent] {
			created[parent] = true
			_, err = l.Entities.Create(ctx, zlimit.Entity{ID: parent})
		}
		if err == nil {
			_, err = l.Entities.Create(ctx, zlimit.Entity{ID: child, ParentID: parent, Cascade: true})
		}
		if err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	if f.Prepare != nil {
		if err := f.Prepare(ctx, l); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	if f.Known > 0 {
		if err := f.know(ctx, l); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	if f.Halves {
		if _, err = l.Acquire(ctx, f.ask("hot", 1)); err == nil {
			err = f.halve(ctx, "hot")
		}
		if err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	time.Sleep(10 * time.Second) // budgets have reset
	return l.Close()
}

// entityOf returns the name of an entity.
func entityOf(n int) string { return "entity-" + strconv.Itoa(n) }

// know gives entities buckets like that of the first of them, at no charge.
func (f *fleet) know(ctx context.Context, l *zlimit.RateLimiter) error {
	request := f.ask(entityOf(0), max(f.Spent, 1))
	if _, err := l.Acquire(ctx, request); err != nil {
		return err
	}
	k, state, err := f.bucketOf(ctx, entityOf(0))
	for i := 1; i < f.Known && err == nil; i++ {
		k.Entity = entityOf(i)
		item := k.Item(&state, layout.Lineage{})
		_, err = f.table.items.Write(ctx, store.Write{Kind: store.Put, Key: item.Key.Key(), Item: item.Encode()})
		f.table.keys = append(f.table.keys, item.Key.Key())
	}
	return err
}

// bucketOf returns the key and the state of the bucket of an entity.
func (f *fleet) bucketOf(ctx context.Context, entity string) (k layout.BucketKey, state bucket.State, err error) {
	ns := layout.NamespaceKey{Name: zlimit.DefaultNamespace}
	items, err := f.table.items.Read(ctx, []store.Key{ns.Key()}, true)
	if err != nil {
		return k, state, err
	}
	found, err := layout.DecodeNamespace(items[0])
	if err != nil {
		return k, state, err
	}
	k = layout.BucketKey{NS: found.ID, Entity: entity, Resource: resource}
	if items, err = f.table.items.Read(ctx, []store.Key{k.Key()}, true); err != nil {
		return k, state, err
	}
	state, err = layout.ReadState(items[0])
	return k, state, err
}

// start starts the processes: side by side, or 200 a second.
func (f *fleet) start(ctx context.Context) error {
	started := make([]*zlimit.RateLimiter, f.Processes)
	errs := make([]error, f.Processes)
	var all sync.WaitGroup
	began := time.Now()
	for i := range started {
		all.Go(func() { started[i], errs[i] = f.limiter(ctx) })
		if !f.Starting {
			time.Sleep(5 * time.Millisecond)
		}
	}
	all.Wait()
	f.outcome.Starts = time.Since(began)
	for i, l := range started {
		if errs[i] == nil {
			f.limiters = append(f.limiters, l)
		}
	}
	f.outcome.Started = len(f.limiters)
	if !f.Starting {
		return errors.Join(errs...)
	}
	return nil
}

func (f *fleet) close() {
	for _, l := range f.limiters {
		_ = l.Close() // its store is not its own
	}
}

// offer makes the requests, and returns the usage before they were measured.
func (f *fleet) offer(ctx context.Context) (before Used) {
	measured := f.Settle == 0
	if measured {
		before = f.table.Used()
	}
	for since := f.next(0); since < f.For.Seconds() && len(f.limiters) > 0; since = f.next(since) {
		due := time.Duration(since * float64(time.Second))
		if wait := due - time.Since(f.began); wait > 0 {
			time.Sleep(wait.Truncate(100*time.Microsecond) + 100*time.Microsecond) // several come together if there are many
		}
		if !measured && due >= f.Settle {
			measured = true
			before = f.table.Used()
		}
		entity := f.entityIn(f.random, due)
		process := f.random.IntN(len(f.limiters))
		if f.Sticky {
			h := fnv.New32a()
			_, _ = h.Write([]byte(entity)) // never fails
			process = int(h.Sum32() % uint32(len(f.limiters)))
		}
		counts := measured
		var w *waiter
		if f.line != nil {
			w = f.line.come(time.Since(f.began), float64(max(f.Amount, 1)))
		}
		var c *contested
		if f.contest != nil {
			f.mu.Lock()
			c = f.contest.come(process, time.Since(f.began), counts)
			f.mu.Unlock()
		}
		f.requests.Go(func() {
			for again := true; again; {
				err := f.request(ctx, f.limiters[process], entity, counts, w)
				if c != nil {
					f.mu.Lock()
					f.contest.end(c, time.Since(f.began), err)
					f.mu.Unlock()
				}
				var rest time.Duration
				if rest, again = f.again(err); again {
					time.Sleep(rest)
				}
			}
		})
	}
	return before
}

// next returns when the request comes after one that came at a time, in seconds.
func (f *fleet) next(since float64) float64 {
	gap := f.random.ExpFloat64() / f.Rate
	if f.Ramp {
		return math.Sqrt(since*since + 2*f.For.Seconds()*gap) // the rate is the part of Rate that the time is of For
	}
	return since + gap
}

// ask returns a request for that many tokens of each limit.
func (f *fleet) ask(entity string, amount int64) zlimit.Request {
	amounts := zlimit.Amounts{}
	for i := range f.Limits {
		amounts[f.Limits[i].Name] = amount
	}
	return zlimit.Request{Entity: entity, Resource: resource, Consume: amounts}
}

// request makes one request, and notes what became of it. It returns its error.
func (f *fleet) request(ctx context.Context, l *zlimit.RateLimiter, entity string, measured bool, w *waiter) (err error) {
	began := time.Now()
	amount := max(f.Amount, 1)
	var lease *zlimit.Lease
	if f.Wait > 0 {
		lease, err = l.Wait(ctx, f.ask(entity, amount), zlimit.MaxWait(f.Wait))
	} else {
		lease, err = l.Acquire(ctx, f.ask(entity, amount))
	}
	f.requests.Go(func() { f.settle(ctx, lease, entity, measured) })
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && !lease.Degraded() {
		for at := entity; at != ""; at = f.Parents[at] {
			f.witness.admitted(at, f.admission(began, now, amount))
		}
	}
	if err == nil && w != nil {
		w.served = now.Sub(f.began)
	}
	if err == nil && !f.turnedOff.IsZero() && f.outcome.Walk != nil {
		f.outcome.Walk.Last = rounded(now.Sub(f.turnedOff).Seconds(), 1)
	}
	f.outcome.Longest = max(f.outcome.Longest, now.Sub(began))
	if !measured {
		return err
	}
	if f.outcome.Series == nil {
		f.outcome.Series = make([]Tally, parts)
	}
	part := int(float64(began.Sub(f.began)-f.Settle) / float64(f.For-f.Settle) * parts)
	tallies := []*Tally{&f.outcome.Tally, &f.outcome.Series[max(0, min(part, parts-1))]}
	if f.Group != nil {
		name := f.Group(entity)
		if f.outcome.Groups[name] == nil {
			f.outcome.Groups[name] = &Tally{}
		}
		tallies = append(tallies, f.outcome.Groups[name])
	}
	if since := began.Sub(f.table.made) - f.table.Outage.To; since >= 0 && f.table.Outage.To > 0 && isUncounted(lease, err) {
		f.outcome.Back = max(f.outcome.Back, since)
	}
	for _, t := range tallies {
		t.count(lease, err)
		if now.Sub(began) > slow {
			t.Slow++
		}
	}
	if err != nil {
		if !errors.As(err, new(*zlimit.ExceededError)) && !errors.Is(err, zlimit.ErrDisabled) {
			f.outcome.Errors[err.Error()]++
		}
	}
	f.latencies.add(now.Sub(began))
	for i := range f.spans {
		if s, since := &f.spans[i], began.Sub(f.began); since >= s.From && since < s.To {
			s.count(lease, err)
			s.latencies.add(now.Sub(began))
		}
	}
	return err
}

// admission returns the admission of a call. A caller that waits takes its tokens early, and is admitted when the wait ends.
func (f *fleet) admission(began, answered time.Time, amount int64) admission {
	if f.Wait > 0 {
		began = answered
	}
	return admission{began.Sub(f.began), answered.Sub(f.began), float64(amount)}
}

// settle commits what the request of a lease has used; the lease may be nil.
func (f *fleet) settle(ctx context.Context, lease *zlimit.Lease, entity string, measured bool) {
	if lease == nil || f.Actual == 0 {
		return
	}
	time.Sleep(f.Takes)
	err := lease.Adjust(f.ask(entity, f.Actual-max(f.Amount, 1)).Consume)
	if err == nil {
		err = lease.Commit(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && measured {
		f.outcome.Unsettled++
		f.outcome.Errors["settle: "+err.Error()]++
	}
}

// isUncounted reports whether the failure policy decided about a request.
func isUncounted(lease *zlimit.Lease, err error) bool {
	return err == nil && lease.Degraded() || errors.As(err, new(*zlimit.UnavailableError))
}

// count counts one request.
func (t *Tally) count(lease *zlimit.Lease, err error) {
	t.Offered++
	switch {
	case err == nil && lease.Degraded():
		t.Degraded++
	case err == nil:
		t.Admitted++
	case errors.As(err, new(*zlimit.ExceededError)):
		t.Rejected++
	case errors.As(err, new(*zlimit.UnavailableError)):
		t.Unavailable++
	case errors.Is(err, zlimit.ErrDisabled):
		t.Refused++
	case errors.Is(err, zlimit.ErrContended):
		t.Contended++
	default:
		t.Other++
	}
}

// finish sums up.
func (f *fleet) finish(ctx context.Context, before Used) {
	o := &f.outcome
	o.Seconds = (f.For - f.Settle).Seconds()
	o.Used = f.table.Used().since(before)
	o.Over, o.Left = f.witness.sum()
	o.Shards = f.shards(ctx, "hot")
	for i := range f.spans {
		s := &f.spans[i]
		s.P99 = rounded(s.latencies.percentile(0.99).Seconds()*1000, 1)
		o.Spans = append(o.Spans, &s.Spent)
	}
	if f.line != nil {
		o.Queue = f.line.sum()
	}
	if f.contest != nil {
		o.Contest = f.contest.result(f.began, f.Contest, o.Used)
	}
	o.Crossed = f.table.crossings()
	o.P50, o.P99 = f.latencies.percentile(0.5), f.latencies.percentile(0.99)
}

// since returns the usage since another look.
func (u Used) since(before Used) Used {
	u.Calls -= before.Calls
	u.Writes -= before.Writes
	u.Failed -= before.Failed
	u.Transactions -= before.Transactions
	u.WriteUnits -= before.WriteUnits
	u.ReadUnits -= before.ReadUnits
	u.IndexUnits -= before.IndexUnits
	u.Conflicts -= before.Conflicts
	u.Lost -= before.Lost
	u.Snapshots.Units -= before.Snapshots.Units
	u.Snapshots.Throttled -= before.Snapshots.Throttled
	u.Snapshots.Failed -= before.Snapshots.Failed
	u.Snapshots.Begun -= before.Snapshots.Begun
	for reason, n := range before.Throttled {
		u.Throttled[reason] -= n
	}
	return u
}

// shards returns the number of shards of the bucket of an entity, 0 if there is none.
func (f *fleet) shards(ctx context.Context, entity string) (shards int) {
	if len(f.limiters) == 0 {
		return 0
	}
	for b, err := range f.limiters[0].Entities.Buckets(ctx, entity) {
		if err == nil {
			shards = max(shards, b.Shards)
		}
	}
	return shards
}
