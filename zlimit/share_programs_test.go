package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A shareLedger stands before a store, and adds up the parts of one limit over the shards of one bucket, before and after every write. A write
// makes no tokens: all parts together have what they had, with what flowed in, less what it counts. It loses none either, except what a part or
// its share can hold no more, and what a part has that ends. A debt ends with no part.
type shareLedger struct {
	store.Store
	clock *clock
	ns    string

	mu        sync.Mutex
	meanwhile func() // happens before one of the next writes
	after     int    // so many of them
	resets    bool
	wasReset  bool // what was taken before is counted when it is given back, and no more
	wrong     error
	log       []string
}

// Write does a write.
func (w *shareLedger) Write(ctx context.Context, write store.Write) (result store.Result, err error) {
	w.watch(func() { result, err = w.Store.Write(ctx, write) })
	return result, err
}

// Transact does a transaction.
func (w *shareLedger) Transact(ctx context.Context, writes []store.Write) (results []store.Result, err error) {
	w.watch(func() { results, err = w.Store.Transact(ctx, writes) })
	return results, err
}

// interrupt calls a function before one of the next writes.
func (w *shareLedger) interrupt(after int, meanwhile func()) { w.after, w.meanwhile = after, meanwhile }

// watch compares the bucket before and after a write.
func (w *shareLedger) watch(do func()) {
	if meanwhile := w.meanwhile; meanwhile != nil {
		if w.after--; w.after < 0 {
			w.meanwhile = nil
			meanwhile()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.shards()
	do()
	after := w.shards()
	if err := w.judge(before, after); err != nil && w.wrong == nil {
		w.wrong = fmt.Errorf("%w\nbefore %s\nafter %s", err, partsText(before), partsText(after))
	}
}

// shards returns the bucket.
func (w *shareLedger) shards() []*bucket.State {
	states, err := shardsIn(context.Background(), w.Store, w.ns, "key-1")
	if err != nil && w.wrong == nil {
		w.wrong = err
	}
	return states
}

// partsText describes a bucket.
func partsText(shards []*bucket.State) string {
	var b strings.Builder
	for _, s := range shards {
		fmt.Fprintf(&b, "\n  shard %d of %d at %d:", s.Shard, s.Shards, s.RefilledAt)
		for _, l := range s.Limits {
			if l.Name != bucket.WriteUnits {
				fmt.Fprintf(&b, " %s has %d of %d, %d per %d ms, counts %d;", l.Name, l.Tokens, l.Capacity, l.RefillAmount, l.RefillPeriod, l.Consumed)
			}
		}
	}
	return b.String()
}

// holds returns what a shard can hold of a part.
func holds(s *bucket.State, l *bucket.Limit) int64 {
	return bucket.Share(l.Capacity, s.Shard, s.Shards)
}

// partAt returns what a shard has of a part at a time.
func partAt(s *bucket.State, l *bucket.Limit, at int64) int64 {
	flows := bucket.Refill(s.RefilledAt, at, bucket.Share(l.RefillAmount, s.Shard, s.Shards), l.RefillPeriod)
	return min(l.Tokens+flows, holds(s, l))
}

// parts yields the parts of the limit that a shard has.
func parts(s *bucket.State, yield func(*bucket.Limit)) {
	for i := range s.Limits {
		if s.Limits[i].Name != bucket.WriteUnits {
			yield(&s.Limits[i])
		}
	}
}

// partOf returns a part of a shard, nil for none.
func partOf(s *bucket.State, name string) (found *bucket.Limit) {
	parts(s, func(l *bucket.Limit) {
		if l.Name == name {
			found = l
		}
	})
	return found
}

// judge returns what is wrong with a write.
func (w *shareLedger) judge(before, after []*bucket.State) error {
	changed, resized := 0, len(before) != len(after)
	for i, s := range after {
		if !resized && partsText(before[i:i+1]) != partsText(after[i:i+1]) {
			changed++
		}
		resized = resized || before[i].Shards != s.Shards
	}
	if !resized && changed == 0 {
		return nil
	}
	now := int64(0) // of the write: what flows into a full shard later is not lost to it yet
	if resized {
		others := func(of []*bucket.State) func(*bucket.State) bool {
			return func(s *bucket.State) bool {
				return slices.ContainsFunc(of, func(o *bucket.State) bool {
					return o.Shard == s.Shard && partsText([]*bucket.State{o}) == partsText([]*bucket.State{s})
				})
			}
		}
		same := others(before)
		before, after = slices.DeleteFunc(slices.Clone(before), others(after)), slices.DeleteFunc(slices.Clone(after), same)
	}
	for _, s := range after {
		now = max(now, s.RefilledAt)
	}
	had, has, counts, most, slack := int64(0), int64(0), int64(0), int64(0), int64(0)
	spills, surplus := int64(0), int64(0) // what may be lost, and what may be had beyond that
	for i, s := range after {
		at := now
		if changed == 1 {
			at = s.RefilledAt
		}
		parts(s, func(l *bucket.Limit) {
			has += partAt(s, l, at)
			most += holds(s, l)
			slack += 2
			if resized {
				return
			}
			was := partOf(before[i], l.Name)
			if was == nil {
				counts += l.Consumed
				return
			}
			counts += l.Consumed - was.Consumed
			spills += max(0, partAt(before[i], was, at)-min(0, l.Consumed-was.Consumed)-holds(s, l))
			if changed == 1 && before[i].RefilledAt == s.RefilledAt && partAt(s, l, at+time.Second.Milliseconds()) == holds(s, l) {
				spills += max(0, was.Tokens+was.Consumed-l.Consumed-l.Tokens) // it was full by the reading of the write, which left the stamp
			}
		})
		if !resized {
			parts(before[i], func(l *bucket.Limit) {
				had += partAt(before[i], l, at)
				if changed > 1 { // what a full shard can hold no more may find room in another one
					flows := bucket.Refill(before[i].RefilledAt, at, bucket.Share(l.RefillAmount, before[i].Shard, before[i].Shards), l.RefillPeriod)
					surplus += max(0, l.Tokens+flows-holds(before[i], l))
				}
				if partOf(s, l.Name) == nil {
					spills += max(0, partAt(before[i], l, at))
				}
			})
		}
	}
	switch {
	case len(before) == 0:
		had = most
		parts(after[0], func(l *bucket.Limit) { counts += l.Consumed })
	case resized:
		for _, s := range before {
			parts(s, func(l *bucket.Limit) {
				had += partAt(s, l, now)
				slack++
				if partAt(s, l, now) == holds(s, l) { // what it cannot hold belongs to the others from a second after the stamp
					spills += bucket.Refill(0, time.Second.Milliseconds(), l.RefillAmount, l.RefillPeriod)
				}
			})
		}
	}
	if w.wasReset {
		spills += max(0, -counts)
	}
	switch want := had - counts; {
	case len(after) == 0:
		return nil
	case w.resets:
		if has != most {
			return fmt.Errorf("a reset leaves %d of %d", has, most)
		}
	case has > want+slack+surplus:
		return fmt.Errorf("a write makes %d millitokens: all parts have %d, had %d, and it counts %d", has-want, has, had, counts)
	case has < want-slack-spills && (changed < 2 || counts >= 0):
		return fmt.Errorf("a write loses %d millitokens: all parts have %d, had %d, it counts %d, and %d may be lost", want-has, has, had, counts, spills)
	}
	return nil
}

// A shareFleet is processes that share a limit with guaranteed shares.
type shareFleet struct {
	t        *rapid.T
	ledger   *shareLedger
	limiters []*zlimit.RateLimiter
	limit    zlimit.Limit // as stored
	exact    bool         // all processes know the stored limit
	leases   []*zlimit.Lease
}

// draws a limit with shares.
func drawShares(t *rapid.T) zlimit.Limit {
	limit := zlimit.Limit{
		Name: "rpd", Capacity: rapid.SampledFrom([]int64{100, 100, 60}).Draw(t, "capacity"), RefillAmount: 100,
		RefillPeriod: rapid.SampledFrom([]time.Duration{24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute}).Draw(t, "period"),
	}
	switch rapid.IntRange(0, 5).Draw(t, "shares") {
	case 0:
	case 1:
		limit = limit.Share("bulk", 10)
	case 2:
		limit = limit.Share("batch", 20).Share("bulk", 30)
	case 3:
		limit = limit.Share("batch", 5)
	default:
		limit = limit.Share("batch", 20)
	}
	return limit
}

// request draws a request.
func (f *shareFleet) request() zlimit.Request {
	return as(rapid.SampledFrom([]string{"", "batch", "batch", "bulk"}).Draw(f.t, "priority"), zlimit.Amounts{"rpd": rapid.Int64Range(0, 30).Draw(f.t, "amount")})
}

// guaranteed returns what of the limit is guaranteed to priorities, and the rest of it.
func (f *shareFleet) guaranteed() (parts map[string]int64, rest int64) {
	parts, rest = map[string]int64{}, f.limit.Capacity*zlimit.Millis
	for _, share := range strings.Fields(f.limit.Floors) {
		of, percent, _ := strings.Cut(share, "=0+")
		var n int64
		if _, err := fmt.Sscan(percent, &n); err != nil {
			f.t.Fatalf("%q: %v", f.limit.Floors, err)
		}
		parts[of] = f.limit.Capacity * n * zlimit.Millis / 100
		rest -= parts[of]
	}
	return parts, rest
}

// finish gives everything back and lets all fill up. Each part is then there, and no more.
func (f *shareFleet) finish() {
	for _, lease := range f.leases {
		check.Fatal(f.t, "Rollback()", lease.Rollback(context.Background()))
	}
	all, rest := f.guaranteed()
	all[""] = rest
	for range 2 { // a new share begins empty, in a bucket in use
		f.ledger.clock.sleep(100 * 24 * time.Hour)
		for _, l := range f.limiters {
			lease, err := l.Acquire(context.Background(), as("", zlimit.Amounts{"rpd": 1}))
			if err == nil {
				err = lease.Rollback(context.Background())
			}
			if err != nil {
				f.t.Fatalf("in the end: %v%s", err, partsText(f.ledger.shards()))
			}
		}
	}
	for _, priority := range slices.Sorted(maps.Keys(all)) {
		n := all[priority] / zlimit.Millis
		if _, err := f.limiters[0].Acquire(context.Background(), as(priority, zlimit.Amounts{"rpd": n})); err != nil {
			f.t.Fatalf("%s\nin the end, %d for %q of %s: %v%s", strings.Join(f.ledger.log, "\n"), n, priority, f.limit, err, partsText(f.ledger.shards()))
		}
	}
	if f.ledger.wrong != nil {
		f.t.Fatal(f.ledger.wrong)
	}
}

// fits reports whether a request has to be admitted, and may be: by its own part of the limit as stored, or by the rest of it. Beside a shard
// in debt another one may admit it, and need not.
func (f *shareFleet) fits(priority string, asked int64) (must, may bool) {
	guaranteed, rest := f.guaranteed()
	asked *= zlimit.Millis
	now, shards := f.ledger.clock.now().UnixMilli(), f.ledger.shards()
	if len(shards) == 0 || asked == 0 {
		fits := asked <= max(rest, guaranteed[priority])
		return fits, fits
	}
	var sums, positive [2]int64 // of the rest, and of the own part
	for _, s := range shards {
		var has [2]int64
		parts(s, func(l *bucket.Limit) {
			_, of, isPart := strings.Cut(l.Name, "/")
			there := partAt(s, l, now)
			switch capacity, stays := guaranteed[of]; {
			case !isPart:
				has[0] += min(there, bucket.Share(rest, s.Shard, s.Shards))
			case !stays:
				has[0] += min(there, 0)
			case of == priority:
				has[1] += min(there, bucket.Share(capacity, s.Shard, s.Shards))
			}
		})
		for i := range has {
			sums[i] += has[i]
			positive[i] += max(has[i], 0)
		}
	}
	return max(sums[0], sums[1]) >= asked, max(positive[0], positive[1]) >= asked
}

// ownPart returns what a shard has of the part of a priority now, 0 for none that lasts.
func (f *shareFleet) ownPart(s *bucket.State, priority string) int64 {
	all, _ := f.guaranteed()
	l := partOf(s, "rpd/"+priority)
	if l == nil {
		return 0
	}
	return min(partAt(s, l, f.ledger.clock.now().UnixMilli()), all[priority])
}

// take takes what one or two requests ask.
func (f *shareFleet) take(l *zlimit.RateLimiter, judged bool) string {
	r, before := f.request(), f.ledger.shards()
	asked := r.Consume.(zlimit.Amounts)["rpd"]
	together := rapid.IntRange(0, 4).Draw(f.t, "together") == 0
	if together {
		asked *= 2
	}
	must, may := f.fits(r.Priority, asked)
	var err error
	if together {
		var all *zlimit.Leases
		if all, err = l.AcquireAll(context.Background(), []zlimit.Request{r, r}); err == nil {
			f.leases = append(f.leases, all.Of(0), all.Of(1))
		}
	} else {
		var lease *zlimit.Lease
		if lease, err = l.Acquire(context.Background(), r); err == nil {
			f.leases = append(f.leases, lease)
		}
	}
	after := f.ledger.shards()
	what := fmt.Sprintf("%d for %q of %s, together %v: %v", asked, r.Priority, f.limit, together, err)
	switch {
	case err != nil && !errors.As(err, new(*zlimit.ExceededError)):
		f.t.Fatal(strings.Join(f.ledger.log, "\n") + "\n" + what)
	case judged && (err == nil && !may || err != nil && must):
		f.t.Fatalf("%s, and it fits: %v\nbefore %s\nafter %s", what, may, partsText(before), partsText(after))
	case judged && asked > 0 && err == nil && len(before) == 1 && len(after) == 1 && asked*zlimit.Millis <= f.ownPart(before[0], r.Priority):
		if was, is := partOf(before[0], "rpd"), partOf(after[0], "rpd"); is.Consumed > was.Consumed {
			f.t.Fatalf("%s, and takes of the rest\nbefore %s\nafter %s", what, partsText(before), partsText(after))
		}
	case judged && asked > 0 && err == nil && r.Priority == "" && len(before) == 1 && len(after) == 1:
		if was, is := partOf(before[0], "rpd"), partOf(after[0], "rpd"); is.Consumed != was.Consumed+asked*zlimit.Millis {
			f.t.Fatalf("%s, and does not take of the rest\nbefore %s\nafter %s", what, partsText(before), partsText(after))
		}
	}
	return what
}

// step does one thing.
func (f *shareFleet) step(judged bool) string {
	t, ctx := f.t, context.Background()
	l := f.limiters[rapid.IntRange(0, len(f.limiters)-1).Draw(t, "process")]
	switch op := rapid.IntRange(0, 13).Draw(t, "operation"); {
	case op < 5:
		return f.take(l, judged)
	case op < 9 && len(f.leases) > 0:
		i := rapid.IntRange(0, len(f.leases)-1).Draw(t, "lease")
		lease := f.leases[i]
		had := lease.Consumed()["rpd"]
		if op == 8 {
			return fmt.Sprint("more: ", lease.Consume(ctx, zlimit.Amounts{"rpd": rapid.Int64Range(0, 20).Draw(t, "more")}))
		}
		f.leases = slices.Delete(f.leases, i, i+1)
		if op == 5 {
			check.Fatal(f.t, "Rollback()", lease.Rollback(ctx))
			return fmt.Sprintf("rollback of %d", had)
		}
		by := rapid.Int64Range(-had, 60).Draw(t, "correction")
		check.Fatal(f.t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"rpd": by}), lease.Commit(ctx)))
		return fmt.Sprintf("%d is corrected by %d", had, by)
	case op == 9:
		limit := drawShares(t)
		setSystem(t, l, limit)
		f.limit = limit
		return "set " + limit.String()
	case op == 10:
		return fmt.Sprint("split: ", resizeEach(ctx, l, f.ledger.Store, func(ctx context.Context, l *zlimit.RateLimiter, s *bucket.State) error {
			if s.Shards > 2 {
				return nil
			}
			return splitShard(ctx, l, s)
		}))
	case op == 11:
		return fmt.Sprint("merge: ", resizeEach(ctx, l, f.ledger.Store, mergeShard))
	case op == 12 && judged:
		d := rapid.SampledFrom([]time.Duration{0, time.Millisecond, 10 * time.Second, time.Hour, 30 * time.Hour}).Draw(t, "later")
		f.ledger.clock.sleep(d)
		return "later by " + d.String()
	default:
		if rapid.IntRange(0, 3).Draw(t, "reset") > 0 || !judged {
			return "nothing"
		}
		f.ledger.resets, f.ledger.wasReset = true, true
		defer func() { f.ledger.resets = false }()
		_, err := l.Limits.Reset(ctx, zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4"})
		return fmt.Sprint("reset: ", err)
	}
}

// TestProgramsOfShares runs random programs of several processes on a limit whose guaranteed shares change. They take alone and together,
// correct and give back, split and merge; some of it happens just before a write of another process. Each write is held against a ledger, and
// each answer against the items where all know the limits. In the end all is full again.
func TestProgramsOfShares(t *testing.T) {
	drawTheSame(t, 100)
	rapid.Check(t, func(t *rapid.T) {
		memory := check.Call(zlimit.Memory()).Must(t, "zlimit.Memory()")
		defer memory.Close()
		ledger := &shareLedger{Store: store.Of(memory), clock: newClock()}
		f := &shareFleet{t: t, ledger: ledger, exact: rapid.Bool().Draw(t, "exact")}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "random"), 0))
		opts := []zlimit.Option{
			zlimit.WithHooks(hooks.Limiter{Random: func(n int) int { return random.IntN(n) }}),
			zlimit.WithSetup(), zlimit.WithListing(false), zlimit.WithClock(ledger.clock.now), zlimit.WithFreshness(0), zlimit.WithRejectionCache(0),
		}
		if f.exact {
			opts = append(opts, zlimit.WithConfigTTL(0))
		}
		for range rapid.IntRange(1, 3).Draw(t, "processes") {
			l := check.Call(zlimit.New(context.Background(), zlimit.StoreOn(ledger), opts...)).Must(t, "zlimit.New()")
			defer l.Close()
			f.limiters = append(f.limiters, l)
		}
		ledger.ns = f.limiters[0].NS()
		f.limit = drawShares(t)
		setSystem(t, f.limiters[0], f.limit)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			ledger.clock.sleep(time.Millisecond) // limits that were read before are read again
			interrupts := rapid.IntRange(0, 2).Draw(t, "interrupts") == 0
			if interrupts {
				ledger.interrupt(rapid.IntRange(0, 2).Draw(t, "after"), func() { ledger.log = append(ledger.log, "  meanwhile "+f.step(false)) })
			}
			what := f.step(f.exact && !interrupts)
			ledger.meanwhile = nil
			ledger.log = append(ledger.log, what)
			if ledger.wrong != nil {
				t.Fatalf("%s\n%v", strings.Join(ledger.log, "\n"), ledger.wrong)
			}
		}
		f.finish()
	})
}
