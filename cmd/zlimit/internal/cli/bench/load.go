package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A load is the traffic of a benchmark. All of it is bounded.
type load struct {
	keys        int
	skew        float64 // exponent of Zipf's law; 0 asks for all keys alike
	concurrency int
	rate        int   // requests per second; 0 for as many as come back
	cost        int64 // of a request: tokens, or billionths of a dollar
	duration    time.Duration
	resource    string
	limit       zlimit.Limit
	seed        uint64
}

func (b *load) validate() error {
	if b.cost < 1 || b.cost > b.limit.Capacity {
		name := b.limit.Name
		return shell.Usagef("bench: --cost %s must be from %s to %s",
			grammar.FormatAmount(name, b.cost), grammar.FormatAmount(name, 1), grammar.FormatAmount(name, b.limit.Capacity))
	}
	within := func(flag string, n, least, most int64) error {
		if n < least || n > most {
			return shell.Usagef("bench: --%s %d must be from %d to %d", flag, n, least, most)
		}
		return nil
	}
	err := cmp.Or(
		within("keys", int64(b.keys), 1, 100_000), within("concurrency", int64(b.concurrency), 1, 1024),
		within("rate", int64(b.rate), 0, 100_000),
	)
	switch {
	case err != nil:
		return err
	case b.duration < time.Second || b.duration > time.Hour:
		return shell.Usagef("bench: --duration %v must be from 1s to 1h", b.duration)
	case math.IsNaN(b.skew) || b.skew < 0 || b.skew > 5:
		return shell.Usagef("bench: --skew %v must be from 0 to 5", b.skew)
	default:
		return nil
	}
}

// A tally is what came of requests.
type tally struct {
	latency histogram
	results map[zlimit.Result]int64
	late    int64 // requests that began more than a tenth of a second after their time
}

// meter are the calls of the store, as an observer sees them. It is safe for concurrent use.
type meter struct {
	mu          sync.Mutex
	calls       map[string]int64 // by operation
	failed      map[string]int64 // by why
	throttles   map[string]int64 // by reason
	read, write float64          // units
}

func (c *meter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls, c.failed, c.throttles = map[string]int64{}, map[string]int64{}, map[string]int64{}
	c.read, c.write = 0, 0
}

func (c *meter) observe(_ context.Context, e zlimit.Event) {
	if e.Kind != zlimit.EventStore {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[e.Operation]++
	c.read += e.ReadUnits
	c.write += e.WriteUnits
	var failed *store.Error
	switch {
	case e.Err == nil:
	case errors.As(e.Err, &failed) && failed.Throttled:
		for _, t := range failed.Throttles {
			c.throttles[cmp.Or(t.Reason, "no reason given")]++
		}
		if len(failed.Throttles) == 0 {
			c.throttles["no reason given"]++
		}
	default:
		c.failed[string(zlimit.ResultOf(e.Err))]++
	}
}

// keyPicker draws keys by Zipf's law.
type keyPicker struct {
	names      []string
	cumulative []float64 // nil where all keys are alike
}

func newKeyPicker(keys int, skew float64) *keyPicker {
	p := &keyPicker{}
	sum := 0.0
	for i := range keys {
		p.names = append(p.names, fmt.Sprintf("bench-%05d", i))
		if skew > 0 {
			sum += math.Pow(float64(i+1), -skew)
			p.cumulative = append(p.cumulative, sum)
		}
	}
	return p
}

func (p *keyPicker) draw(random *rand.Rand) string {
	if p.cumulative == nil {
		return p.names[random.IntN(len(p.names))]
	}
	at := random.Float64() * p.cumulative[len(p.cumulative)-1]
	return p.names[min(sort.SearchFloat64s(p.cumulative, at), len(p.names)-1)]
}

// run generates the load until its time ends or the context does. It calls progress about every second with the result so far, from one
// goroutine at a time.
func (b *load) run(
	ctx context.Context, l *zlimit.RateLimiter, now func() time.Time, progress func(elapsed time.Duration, admitted, others int64),
) (*tally, time.Duration) {
	picker := newKeyPicker(b.keys, b.skew)
	all := &tally{results: map[zlimit.Result]int64{}}
	start := now()
	var mu sync.Mutex
	next, lastTold := 0, start
	// begin returns the time at which the next request is due; false when there is none.
	begin := func() (time.Time, bool) {
		mu.Lock()
		defer mu.Unlock()
		due := now()
		if b.rate > 0 {
			due = start.Add(time.Duration(float64(next) / float64(b.rate) * float64(time.Second)))
		}
		next++
		return due, due.Sub(start) < b.duration && ctx.Err() == nil
	}
	count := func(latency, late time.Duration, result zlimit.Result) {
		mu.Lock()
		defer mu.Unlock()
		all.latency.add(latency)
		all.results[result]++
		if late > 100*time.Millisecond {
			all.late++
		}
		if at := now(); at.Sub(lastTold) >= time.Second {
			lastTold = at
			progress(at.Sub(start), all.results[zlimit.ResultOK], all.latency.count-all.results[zlimit.ResultOK])
		}
	}
	var workers sync.WaitGroup
	for worker := range b.concurrency {
		random := rand.New(rand.NewPCG(b.seed, uint64(worker)))
		workers.Go(func() {
			for {
				due, more := begin()
				if !more || !sleepUntil(ctx, now, due) {
					return
				}
				began := now()
				result := b.ask(ctx, l, picker.draw(random))
				if result == zlimit.ResultCanceled && ctx.Err() != nil {
					return
				}
				count(now().Sub(due), began.Sub(due), result)
			}
		})
	}
	workers.Wait()
	return all, now().Sub(start)
}

// sleepUntil waits for a time; false when the context ended before.
func sleepUntil(ctx context.Context, now func() time.Time, due time.Time) bool {
	pause := due.Sub(now())
	if pause <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ask makes one request, and settles its lease.
func (b *load) ask(ctx context.Context, l *zlimit.RateLimiter, entity string) zlimit.Result {
	lease, err := l.Acquire(ctx, zlimit.Request{
		Entity: entity, Resource: b.resource, Consume: zlimit.Amounts{b.limit.Name: b.cost}, Limits: []zlimit.Limit{b.limit},
		OnUnavailable: zlimit.PolicyBlock,
	})
	if err == nil {
		err = lease.Commit(ctx)
	}
	return zlimit.ResultOf(err)
}

// byName returns counts as text, the largest first.
func byName[K ~string](counts map[K]int64) string {
	var names []K
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b K) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	var parts []string
	for _, name := range names {
		parts = append(parts, string(name)+" "+show.Grouped(counts[name]))
	}
	return strings.Join(parts, ", ")
}
