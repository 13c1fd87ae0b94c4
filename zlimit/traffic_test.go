package zlimit_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// trafficEnv makes the test binary a process of TestHistories: it holds a traffic as JSON.
const trafficEnv = "ZLIMIT_TEST_TRAFFIC"

// traffic is what one process does to the buckets of a history.
type traffic struct {
	binary    string        // of the tests of this package, in another version; "" for this one
	complaint *bytes.Buffer // takes what the process complains of; nil for the standard error

	DSN        string
	Seed       uint64
	Skew       time.Duration // of its clock
	Coalesce   bool          // its goroutines share writes early
	Each       bool          // or not at all
	Splits     bool          // buckets, on a store that has no hot keys as well
	Exact      bool          // every write moves the stamp
	TTL        time.Duration // for which limits are remembered; 0 for the default
	Killed     time.Duration // after which the process is killed, and no one knows what it did; 0 for never
	Goroutines int
	Rounds     int // bursts, with pauses in which buckets fill up
	Asks       int // of each goroutine in a round
}

// round is the grid of time on which bursts begin, so that those of several processes meet, and rest the shortest pause
// before one.
const (
	round = 400 * time.Millisecond
	rest  = 250 * time.Millisecond
)

// The buckets of a history.
var (
	historyLimits = map[string][]zlimit.Limit{
		"bursty": {zlimit.PerSecond("rpm", 400, zlimit.Burst(60))}, // fills up between two bursts
		"mixed":  {zlimit.PerSecond("rpm", 300, zlimit.Burst(60)), zlimit.PerSecond("tpm", 9000, zlimit.Burst(2000))},
		"family": {zlimit.PerSecond("rpm", 200, zlimit.Burst(60))},
		"steady": {zlimit.PerDay("rpm", 80_000)}, // is split
	}
	historyChildren = []string{"child-0", "child-1", "child-2"}
	historyChild    = []zlimit.Limit{zlimit.PerSecond("rpm", 150, zlimit.Burst(30))}
)

// patient returns options for processes on a busy machine, where an engine may take seconds for a call.
func patient() []zlimit.Option {
	return []zlimit.Option{zlimit.WithCallTimeout(time.Minute), zlimit.WithHooks(hooks.Limiter{SettleLimit: time.Minute})}
}

// run does the traffic and prints the acts, one JSON object each; it returns the exit code.
func (tr *traffic) run() int {
	ctx := context.Background()
	s, err := zlimit.OpenStore(ctx, tr.DSN)
	var acts []act
	if err == nil {
		acts, err = tr.drive(ctx, s)
	}
	out := json.NewEncoder(os.Stdout)
	for _, a := range acts {
		err = errors.Join(err, out.Encode(a))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// drive does the traffic on a store, and returns the acts.
func (tr *traffic) drive(ctx context.Context, s zlimit.Store) (acts []act, err error) {
	clock := func() time.Time { return time.Now().Add(tr.Skew) }
	var mu sync.Mutex
	notes := zlimit.WithObserver(func(_ context.Context, e zlimit.Event) {
		if e.Kind == zlimit.EventShards && e.Shards < 0 {
			mu.Lock()
			acts = append(acts, act{Deed: merged, Entity: e.Entity, From: time.Now().UnixMicro(), To: time.Now().UnixMicro()})
			mu.Unlock()
		}
	})
	opts := append(patient(), zlimit.WithClock(clock), zlimit.WithTuning(zlimit.Tuning{BucketTTL: -1}), notes)
	if tr.Coalesce {
		opts = append(opts, zlimit.WithCoalescing())
	}
	if tr.Each {
		opts = append(opts, zlimit.WithoutCoalescing())
	}
	if tr.Exact {
		opts = append(opts, zlimit.WithFreshness(0))
	}
	if tr.TTL > 0 {
		opts = append(opts, zlimit.WithConfigTTL(tr.TTL))
	}
	if tr.Splits {
		s = zlimit.StoreOn(partitioned{store.Of(s)})
	}
	l, err := zlimit.New(ctx, s, opts...)
	if err != nil {
		return nil, err
	}
	customers := make([]*customer, tr.Goroutines)
	var group sync.WaitGroup
	for i := range customers {
		customers[i] = &customer{limiter: l, random: rand.New(rand.NewPCG(tr.Seed, uint64(i)))}
		group.Go(func() {
			for range tr.Rounds {
				time.Sleep(time.Until(time.Now().Add(rest).Truncate(round).Add(round)))
				for range tr.Asks {
					customers[i].ask(ctx)
				}
			}
		})
	}
	group.Wait()
	errs := []error{l.Close()}
	for _, c := range customers {
		errs = append(errs, c.wrong)
		acts = append(acts, c.acts...)
	}
	return acts, errors.Join(errs...)
}

// A customer is one goroutine of a process, and remembers what it did.
type customer struct {
	limiter *zlimit.RateLimiter
	random  *rand.Rand
	leases  []*held
	acts    []act
	wrong   error
}

// ask acquires something, and settles a lease that it has or not.
func (c *customer) ask(ctx context.Context) {
	entity := append([]string{"bursty", "bursty", "mixed", "steady"}, historyChildren...)[c.random.IntN(7)]
	consume := zlimit.Amounts{"rpm": c.random.Int64N(3) + 1}
	switch entity {
	case "bursty":
		consume["rpm"] = c.random.Int64N(20) + 1
	case "mixed":
		consume["tpm"] = c.random.Int64N(1000)
	case "steady":
		consume["rpm"] = c.random.Int64N(40) + 1
	}
	var lease *zlimit.Lease
	err := c.do(entity, took, consume, func() (err error) {
		lease, err = c.limiter.Acquire(ctx, zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: consume})
		return err
	})
	if err == nil && entity != "bursty" {
		c.leases = append(c.leases, &held{Lease: lease, entity: entity})
	}
	if len(c.leases) > 1 {
		c.settle(ctx, c.leases[0])
		c.leases = c.leases[1:]
	}
}

// settle does one of the things that a lease is for.
func (c *customer) settle(ctx context.Context, lease *held) {
	consumed := lease.Consumed()
	part := zlimit.Amounts{}
	for limit, n := range consumed {
		part[limit] = c.random.Int64N(n + 1)
	}
	switch c.random.IntN(6) {
	case 0:
		_ = c.do(lease.entity, gave, consumed, func() error { return lease.Rollback(ctx) })
	case 1:
		_ = c.do(lease.entity, gave, part, func() error { return errors.Join(lease.Release(part), lease.Commit(ctx)) })
	case 2:
		_ = c.do(lease.entity, forced, part, func() error { return errors.Join(lease.Adjust(part), lease.Commit(ctx)) })
	case 3:
		_ = c.do(lease.entity, took, part, func() error { return lease.Consume(ctx, part) })
	}
}

// do makes a call and remembers it: of the entity, and where it cascades of the parent.
func (c *customer) do(entity string, d operation, amounts zlimit.Amounts, call func() error) error {
	a := act{Deed: d, Entity: entity, Amounts: amounts, From: time.Now().UnixMicro()}
	err := call()
	a.To = time.Now().UnixMicro()
	switch {
	case d == took && errors.As(err, new(*zlimit.ExceededError)):
		a.Deed = refused
	case err != nil:
		c.wrong = errors.Join(c.wrong, err)
	}
	a.Chain = strings.HasPrefix(entity, "child")
	c.acts = append(c.acts, a)
	if a.Chain {
		a.Entity = "family"
		c.acts = append(c.acts, a)
	}
	return err
}

// TestHistories runs several processes, whose clocks run, on a table or a file at once. They make bursts on buckets
// that filled up in between, and corrections and rollbacks. They use children of one parent, and a bucket that is
// split meanwhile. Every other process shares writes among its goroutines. What they say that they did is checked
// over every interval, and against what the items count in the end (I1, I2, I7, I9).
func TestHistories(t *testing.T) {
	t.Parallel() // its processes wait more than they compute
	for name, skews := range map[string][]time.Duration{
		"clocks agree":    {0, 0, 0, 0},
		"clocks disagree": {0, 40 * time.Millisecond, -40 * time.Millisecond, 15 * time.Millisecond},
	} {
		t.Run(name+"/file", func(t *testing.T) {
			if skews[1] != 0 && !soak.Runs() {
				t.Skip("in the long form; a file has one machine, with one clock")
			}
			testHistory(t, "sqlite:"+filepath.Join(t.TempDir(), "zlimit.db"), lanesOf(skews))
		})
		t.Run(name+"/dynamodb", func(t *testing.T) {
			if skews[1] == 0 && !soak.Runs() {
				t.Skip("in the long form; clocks that disagree are harder")
			}
			testHistory(t, newDSN(t), lanesOf(skews))
		})
	}
}

// A lane is a place where one process follows another.
type lane []traffic

// lanesOf returns a lane of one process for each skew.
func lanesOf(skews []time.Duration) (lanes []lane) {
	for _, skew := range skews {
		lanes = append(lanes, lane{{Skew: skew, Rounds: soak.Pick(2, 6)}})
	}
	return lanes
}

// testHistory runs the lanes side by side on a table or a file, and checks what their processes say that they did.
func testHistory(t *testing.T, dsn string, lanes []lane) {
	l := openHistory(t, dsn)
	created := l.Now().UnixMilli()
	l.SetClock(func() time.Time { return time.UnixMilli(created) })
	most := zlimit.Request{Entity: "steady", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 78_000}} // so that it is never full again
	acquire(t, l, most)
	l.Engine().Quiesce() // what goes on in the background reads the clock
	l.SetClock(time.Now)

	h := &history{memory: l.RejectionCache(), acts: []act{{Deed: took, Entity: most.Entity, Amounts: zlimit.Amounts{"rpm": 78_000}, From: created * 1000, To: created * 1000}}}
	var first, last time.Duration // of the clocks
	rounds := 0
	for _, lane := range lanes {
		sum := 0
		for _, tr := range lane {
			first, last = min(first, tr.Skew), max(last, tr.Skew)
			sum += tr.Rounds
		}
		rounds = max(rounds, sum)
	}
	h.skew = last - first
	var mu sync.Mutex
	var group sync.WaitGroup
	for i, lane := range lanes {
		group.Go(func() {
			for j, tr := range lane {
				tr.DSN, tr.Seed, tr.Coalesce, tr.Each, tr.Goroutines, tr.Asks = dsn, uint64(i+100*j), i%2 == 1, i%4 == 2, 12, 6
				acts, err := observe(&tr)
				check.Error(t, "observe()", err)
				mu.Lock()
				h.acts = append(h.acts, acts...)
				mu.Unlock()
			}
		})
	}
	shards := 1
	if l.Calls().Partitioned() {
		for range 3 {
			time.Sleep(time.Duration(rounds) * round / 4)
			splitBucket(t, l, "steady")
		}
		shards = len(storedShards(t, l, "steady"))
	}
	group.Wait()
	checkHistory(t, l, h, created, shards)
}

// openHistory returns a limiter on a store that has the buckets' limits.
func openHistory(t *testing.T, dsn string) *zlimit.RateLimiter {
	ctx := context.Background()
	l := check.Call(zlimit.Open(ctx, dsn, append(patient(), zlimit.WithTuning(zlimit.Tuning{BucketTTL: -1}))...)).Must(t, "zlimit.Open()")
	t.Cleanup(func() { check.Error(t, "Close()", l.Close()) })
	storeHistory(t, l)
	return l
}

// storeHistory stores the buckets' limits.
func storeHistory(t *testing.T, l *zlimit.RateLimiter) {
	t.Helper()
	putEntity(t, l, "family", "")
	for _, child := range historyChildren {
		putEntity(t, l, child, "family")
		setLimits(t, l, zlimit.Level{Entity: child, Resource: "gpt-4"}, historyChild...)
	}
	for entity, limits := range historyLimits {
		setLimits(t, l, zlimit.Level{Entity: entity, Resource: "gpt-4"}, limits...)
	}
}

// observe runs a process and returns what it did.
func observe(tr *traffic) ([]act, error) {
	job, err := json.Marshal(tr)
	if err != nil {
		return nil, err
	}
	process := exec.Command(cmp.Or(tr.binary, os.Args[0]), "-test.run=^$")
	process.Env = append(os.Environ(), trafficEnv+"="+string(job))
	process.Stderr = os.Stderr
	if tr.complaint != nil {
		process.Stderr = tr.complaint
	}
	var out bytes.Buffer
	process.Stdout = &out
	if err := process.Start(); err != nil {
		return nil, err
	}
	if tr.Killed > 0 {
		time.Sleep(tr.Killed)
		if err := process.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return nil, err
		}
		_ = process.Wait() // it was killed
		return nil, nil
	}
	if err := process.Wait(); err != nil {
		return nil, fmt.Errorf("process: %w", err)
	}
	var acts []act
	for line := range bytes.Lines(out.Bytes()) {
		var a act
		if err := json.Unmarshal(line, &a); err != nil {
			return nil, err
		}
		acts = append(acts, a)
	}
	return acts, nil
}

// checkHistory holds a history against the limits and the items that it left. The split bucket has that many shards,
// unless some were merged on a slow machine. A merged shard takes its count with it. Others may have been split since.
func checkHistory(t *testing.T, l *zlimit.RateLimiter, h *history, created int64, shards int) {
	t.Helper()
	limits := map[string][]zlimit.Limit{}
	for entity, of := range historyLimits {
		limits[entity] = of
	}
	for _, child := range historyChildren {
		limits[child] = historyChild
	}
	for entity, of := range limits {
		items := storedShards(t, l, entity)
		merged := entity == "steady" && (len(items) < shards || slices.ContainsFunc(h.of(entity), func(a act) bool { return a.Deed == merged }))
		for i := range of {
			delta := l.FreshnessOf(of)
			errs := []error{h.overAdmitted(entity, &of[i], delta, max(shards, len(items)))}
			if !merged {
				errs = append(errs, h.miscounted(entity, &of[i], items))
			}
			if entity == "steady" {
				b := &ledger{of[i], created, h.net(entity, of[i].Name), 2 * shards}
				errs = append(errs, b.unbalanced(items))
			}
			check.Error(t, "the check of "+entity, errors.Join(errs...))
		}
		if len(items) == 1 {
			check.Error(t, "wronglyRefused()", h.wronglyRefused(entity, of...))
		}
	}
	for _, entity := range []string{"bursty", "mixed", "steady", "family"} {
		counts := map[operation]int{}
		for _, a := range h.of(entity) {
			counts[a.Deed]++
		}
		t.Logf("%s: %d admitted, %d forced, %d returned, %d refused", entity, counts[took], counts[forced], counts[gave], counts[refused])
		if counts[took] == 0 || counts[refused] == 0 && entity == "steady" && soak.Runs() {
			t.Errorf("the history of %s says nothing: %d admitted, %d refused", entity, counts[took], counts[refused])
		}
	}
}
