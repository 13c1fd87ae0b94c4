package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// farAhead is by how much a refill stamp is ahead of a clock that may set it back.
const farAhead = 5 * time.Second

// A witness stands before a store and compares every physical write of a bucket item with the ideal bucket in exact
// rationals. Two things alone change the balance: what flowed in since the last write, and what the write counts as
// consumed (I1, I2, I9). Refill stamps go forward only, except those that no clock should have written (I6). Balances
// are within the share of the item, and splits and merges neither mint nor lose (I7). It knows items, and nothing of
// how the limiter decides.
type witness struct {
	store.Store
	mu     sync.Mutex
	ideals map[store.Key]map[string]*big.Rat // balance of each limit of each item at its refill stamp
	over   map[store.Key]map[string]int64    // what was counted of each limit before its last manual reset, and not given back since
	ledger map[string]zlimit.Amounts         // what the items of each entity ever counted of each limit, millitokens
	wrong  []error
}

func newWitness(s store.Store) *witness {
	return &witness{Store: s, ideals: map[store.Key]map[string]*big.Rat{}, over: map[store.Key]map[string]int64{}, ledger: map[string]zlimit.Amounts{}}
}

// counted returns the consumption of a limit that all items of an entity have counted, deleted items included, in
// tokens.
func (w *witness) counted(entity, limit string) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return float64(w.ledger[entity][limit]) / zlimit.Millis
}

// enter notes what an item counts more than before.
func (w *witness) enter(entity, limit string, counted int64) {
	if w.ledger[entity] == nil {
		w.ledger[entity] = zlimit.Amounts{}
	}
	w.ledger[entity][limit] += counted
}

// verdict returns the first thing that was wrong.
func (w *witness) verdict() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrong) == 0 {
		return nil
	}
	return w.wrong[0]
}

// Partitioned makes buckets split on every store.
func (w *witness) Partitioned() bool { return true }

// Write does a write and looks at what it did.
func (w *witness) Write(ctx context.Context, write store.Write) (result store.Result, err error) {
	w.watch([]store.Key{write.Key}, func() bool {
		result, err = w.Store.Write(ctx, write)
		return err == nil && result.Applied
	})
	return result, err
}

// Transact does a transaction and looks at what it did.
func (w *witness) Transact(ctx context.Context, writes []store.Write) (results []store.Result, err error) {
	keys := make([]store.Key, len(writes))
	for i := range writes {
		keys[i] = writes[i].Key
	}
	w.watch(keys, func() bool {
		results, err = w.Store.Transact(ctx, writes)
		return err == nil && results[0].Applied
	})
	return results, err
}

// Delete deletes items, which the next of their keys do not follow.
func (w *witness) Delete(ctx context.Context, keys []store.Key) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Store.Delete(ctx, keys)
}

// watch compares the buckets among keys before and after a call.
func (w *witness) watch(keys []store.Key, do func() (applied bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, err := w.look(keys)
	applied := do()
	after, afterErr := w.look(keys)
	if err := errors.Join(err, afterErr); err != nil {
		w.wrong = append(w.wrong, err)
		return
	}
	if err := w.judge(before, after, applied); err != nil {
		w.wrong = append(w.wrong, fmt.Errorf("%w\nbefore%s\nafter%s", err, describe(before), describe(after)))
	}
}

// look reads the buckets among keys; nil for those that are not there.
func (w *witness) look(keys []store.Key) (map[layout.BucketKey]*layout.Bucket, error) {
	found := map[layout.BucketKey]*layout.Bucket{}
	for _, key := range keys {
		k, ok := layout.ParseBucketKey(key)
		if !ok {
			continue
		}
		items, err := w.Read(context.Background(), []store.Key{key}, true)
		if err != nil {
			return nil, err
		}
		found[k] = nil
		if items[0] != nil {
			item, err := layout.DecodeBucket(items[0])
			if err != nil {
				return nil, err
			}
			found[k] = &item
		}
	}
	return found, nil
}

// describe returns buckets as text that is the same in every run: a shrinking program has to fail in the same way twice.
func describe(items map[layout.BucketKey]*layout.Bucket) string {
	var lines []string
	for k, item := range items {
		line := fmt.Sprintf("\n  %s/%s shard %d: ", k.Entity, k.Resource, k.Shard)
		if item == nil {
			lines = append(lines, line+"not there")
			continue
		}
		line += fmt.Sprintf("of %d, refilled at %d", max(item.ShardCount, 1), item.RefilledAt)
		for _, l := range item.Limits {
			line += fmt.Sprintf("; %s has %d of %d, %d per %d ms, counts %d", l.Name, l.Tokens, l.Capacity, l.RefillAmount, l.RefillPeriod, l.Consumed)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// judge returns what is wrong with a change.
func (w *witness) judge(before, after map[layout.BucketKey]*layout.Bucket, applied bool) error {
	together := map[layout.BucketKey][]layout.BucketKey{} // shards that one transaction updates, by the first shard
	for k, old := range before {
		next := after[k]
		switch {
		case !applied:
			if fmt.Sprint(old) != fmt.Sprint(next) {
				return errors.New("a write that was not applied changed an item (I3)")
			}
		case old == nil && next == nil:
		case old == nil && next.ShardCount > 1:
			if err := w.judgeSplit(before, after, k); err != nil {
				return err
			}
		case old == nil:
			ideals := map[string]*big.Rat{}
			for _, l := range next.Limits {
				if l.Tokens != min(l.Capacity-l.Consumed, l.Capacity) {
					return fmt.Errorf("a new bucket has %d of %s", l.Tokens, l.Name)
				}
				ideals[l.Name] = rational(l.Tokens)
				w.enter(k.Entity, l.Name, l.Consumed)
			}
			w.ideals[k.Key()] = ideals
		case next == nil:
			delete(w.ideals, k.Key())
		case next.ShardCount == old.ShardCount && len(before) > 1:
			first := k
			first.Shard = 0
			together[first] = append(together[first], k)
		case next.ShardCount == old.ShardCount:
			if err := w.judgeUpdate(k, old, next); err != nil {
				return fmt.Errorf("shard %d: %w", k.Shard, err)
			}
		case next.ShardCount < old.ShardCount:
			if err := w.judgeMerge(before, after, k); err != nil {
				return err
			}
		}
	}
	for _, keys := range together {
		if len(keys) == 1 {
			if err := w.judgeUpdate(keys[0], before[keys[0]], after[keys[0]]); err != nil {
				return fmt.Errorf("shard %d: %w", keys[0].Shard, err)
			}
		} else if err := w.judgeTogether(keys, before, after); err != nil {
			return err
		}
	}
	return nil
}

// judgeTogether compares shards that one transaction updates with their ideal buckets. Tokens may have moved among the
// shards. So may refill since the latest stamp of all, where a full shard could not hold it. Where limits change with
// it, refill comes by the old ones, below the lower of both capacities.
func (w *witness) judgeTogether(keys []layout.BucketKey, before, after map[layout.BucketKey]*layout.Bucket) error {
	latest, end := int64(0), int64(0)
	for _, k := range keys {
		if err := judgeStamp(before[k], after[k]); err != nil {
			return err
		}
		end = max(end, after[k].RefilledAt)
		latest = max(latest, min(before[k].RefilledAt, after[k].RefilledAt))
	}
	names := map[string]bool{}
	for _, k := range keys {
		for _, l := range after[k].Limits {
			names[l.Name] = l.Name != bucket.WriteUnits
		}
	}
	for name, counts := range names {
		if !counts {
			continue
		}
		tokens, least, most, capacity := new(big.Rat), new(big.Rat), new(big.Rat), int64(0)
		due := new(big.Rat) // refill of shards whose stamp is not the latest, for which the others leave room
		for _, k := range keys {
			old, next := before[k], after[k]
			was, l := find(old, name), find(next, name)
			if l == nil { // a settlement leaves limits as they are, and shards may differ in them
				continue
			}
			if was == nil { // a new limit starts full
				was = &bucket.Limit{Capacity: l.Capacity, RefillAmount: l.RefillAmount, RefillPeriod: l.RefillPeriod}
				w.ideals[k.Key()][name] = rational(shareOf(k, next, l))
			}
			w.enter(k.Entity, l.Name, l.Consumed-was.Consumed)
			share := shareOf(k, next, l)
			isReset, returned := w.resets(k, old, next, l)
			if isReset && l.Tokens != share {
				return fmt.Errorf("shard %d has %d of %s after a reset, want %d", k.Shard, l.Tokens, l.Name, share)
			}
			if isReset {
				w.ideals[k.Key()][name] = rational(share)
				for _, sum := range []*big.Rat{tokens, least, most} {
					sum.Add(sum, rational(share))
				}
				capacity += share
				continue
			}
			if l.Tokens > was.Tokens {
				returned = 0
			}
			w.over[k.Key()][name] -= returned
			consumed := rational(l.Consumed - was.Consumed + returned)
			if l.Tokens > share {
				return fmt.Errorf("shard %d has %d of %s, more than its share of %d", k.Shard, l.Tokens, l.Name, share)
			}
			ideal := w.ideals[k.Key()][name]
			kept := new(big.Rat).Add(ideal, flow(k, old, was, min(latest, next.RefilledAt)))
			atMost(kept, min(shareOf(k, old, was), share))
			kept.Add(kept, flow(k, old, was, next.RefilledAt)).Sub(kept, flow(k, old, was, min(latest, next.RefilledAt)))
			most.Add(most, kept).Sub(most, consumed)
			alone := new(big.Rat).Set(kept)
			atMost(alone, min(shareOf(k, old, was), share))
			least.Add(least, alone).Sub(least, consumed)
			tokens.Add(tokens, rational(l.Tokens))
			capacity += share
			due.Add(due, flow(k, next, l, end))
			w.ideals[k.Key()][name] = rational(l.Tokens)
		}
		atMost(most, capacity)
		if full := new(big.Rat).Sub(rational(capacity), due); least.Cmp(full) > 0 {
			least.Set(full)
		}
		slack := rational(int64(len(keys)))
		if tokens.Cmp(most.Add(most, slack)) > 0 || tokens.Cmp(least.Sub(least, slack)) < 0 {
			return fmt.Errorf("%d shards have %s of %s together, want from %s to %s",
				len(keys), tokens.FloatString(0), name, least.FloatString(3), most.FloatString(3))
		}
	}
	for _, k := range keys {
		if was, l := find(before[k], bucket.WriteUnits), find(after[k], bucket.WriteUnits); was != nil && l != nil {
			w.ideals[k.Key()][bucket.WriteUnits] = rational(l.Tokens)
		}
	}
	return nil
}

// resets reports whether a write resets a limit of an item manually, and how many tokens it gives back, where the balance shows it.
// After a reset, tokens of the former period that are given back are only counted.
func (w *witness) resets(k layout.BucketKey, old, next *layout.Bucket, l *bucket.Limit) (isReset bool, returned int64) {
	lifeOf := func(item *layout.Bucket) int64 {
		for _, life := range item.Lives {
			if life.Name == l.Name {
				return life.Number
			}
		}
		return 0
	}
	over := w.over[k.Key()]
	if over == nil {
		over = map[string]int64{}
		w.over[k.Key()] = over
	}
	was := find(old, l.Name)
	if was == nil {
		return false, 0
	}
	if lifeOf(next)-lifeOf(old) == 1<<33 {
		over[l.Name] = was.Consumed
		return true, 0
	}
	if back := was.Consumed - l.Consumed; back > 0 && over[l.Name] >= back {
		return false, back
	}
	return false, 0
}

// judgeStamp returns an error for a refill stamp that went back, unless it was far ahead.
func judgeStamp(old, next *layout.Bucket) error {
	if back := old.RefilledAt - next.RefilledAt; 0 < back && back <= farAhead.Milliseconds() {
		return fmt.Errorf("the refill stamp went back from %d to %d (I6)", old.RefilledAt, next.RefilledAt)
	}
	return nil
}

// judgeUpdate holds one item against its ideal buckets.
func (w *witness) judgeUpdate(k layout.BucketKey, old, next *layout.Bucket) error {
	if err := judgeStamp(old, next); err != nil {
		return err
	}
	ideals := w.ideals[k.Key()]
	for _, l := range next.Limits {
		was := find(old, l.Name)
		if was == nil {
			ideals[l.Name] = rational(l.Tokens)
			w.enter(k.Entity, l.Name, l.Consumed)
			share := shareOf(k, next, &l)
			if bucket.IsPart(l.Name) && find(old, bucket.LimitOf(l.Name)) != nil { // the limit had its tokens so far
				share = 0
			}
			if l.Tokens != min(share-l.Consumed, share) {
				return fmt.Errorf("%s starts with %d of %d", l.Name, l.Tokens, share)
			}
			continue
		}
		w.enter(k.Entity, l.Name, l.Consumed-was.Consumed)
		isReset, returned := w.resets(k, old, next, &l)
		if isReset {
			if share := shareOf(k, next, &l); l.Tokens != share || l.Consumed != was.Consumed {
				return fmt.Errorf("%s has %d after a reset and counts %d, want %d and %d", l.Name, l.Tokens, l.Consumed, share, was.Consumed)
			}
			ideals[l.Name] = rational(l.Tokens)
			continue
		}
		var err error
		for _, counted := range slices.Compact([]int64{0, returned}) {
			ideal := new(big.Rat).Add(ideals[l.Name], flow(k, old, was, next.RefilledAt))
			atMost(ideal, min(shareOf(k, old, was), shareOf(k, next, &l)))
			ideal.Sub(ideal, rational(l.Consumed-was.Consumed+counted))
			atMost(ideal, shareOf(k, next, &l))
			if err = near(&l, ideal); err == nil {
				ideals[l.Name] = ideal
				w.over[k.Key()][l.Name] -= counted
				break
			}
		}
		if err != nil && isPlaced(k, old, next, was, &l, ideals[l.Name]) {
			ideals[l.Name], err = rational(l.Tokens), nil
		}
		if err != nil {
			return err
		}
		if l.Tokens > shareOf(k, next, &l) {
			return fmt.Errorf("%s has %d, more than its share of %d", l.Name, l.Tokens, shareOf(k, next, &l))
		}
		if was.Capacity != l.Capacity || was.RefillAmount != l.RefillAmount || was.RefillPeriod != l.RefillPeriod {
			ideals[l.Name] = rational(l.Tokens) // a change of rate drops the fraction of a millitoken
		}
	}
	return nil
}

// isPlaced reports whether a write took from a limit that had been full since the stamp, or filled it by a refund, and left the stamp
// alone. The item does not note when that was: what had flowed in by then shows in the balance, and is no more than flows in within a
// second.
func isPlaced(k layout.BucketKey, old, next *layout.Bucket, was, is *bucket.Limit, level *big.Rat) bool {
	took := is.Consumed - was.Consumed
	if next.RefilledAt != old.RefilledAt || took == 0 {
		return false
	}
	share := shareOf(k, next, is)
	flowed := rational(share - max(took, 0) - is.Tokens)
	full := new(big.Rat).Add(level, rational(max(-took, 0)))
	full.Add(full, flowed)
	most := flow(k, old, was, old.RefilledAt+time.Second.Milliseconds())
	return flowed.Cmp(most.Add(most, rational(1))) < 0 && full.Add(full, rational(1)).Cmp(rational(share)) > 0
}

// judgeSplit checks that a shard and its origin have together what the origin had, refilled.
func (w *witness) judgeSplit(before, after map[layout.BucketKey]*layout.Bucket, created layout.BucketKey) error {
	from := created
	from.Shard = bucket.Origin(created.Shard)
	old, next, shard := before[from], after[from], after[created]
	if old == nil || next == nil || next.ShardCount != 2*old.ShardCount || shard.ShardCount != next.ShardCount {
		return fmt.Errorf("shard %d came from nowhere", created.Shard)
	}
	w.ideals[created.Key()] = map[string]*big.Rat{}
	for _, l := range next.Limits {
		was, other := find(old, l.Name), find(shard, l.Name)
		if l.Name == bucket.WriteUnits {
			w.ideals[from.Key()][l.Name], w.ideals[created.Key()][l.Name] = rational(l.Tokens), rational(other.Tokens)
			continue
		}
		refilled := min(was.Tokens+bucket.Refill(old.RefilledAt, next.RefilledAt, refillOf(from, old, was), was.RefillPeriod), shareOf(from, old, was))
		if l.Tokens+other.Tokens != refilled || l.Consumed != was.Consumed || other.Consumed != 0 {
			return fmt.Errorf("%s was %d, refilled, and is %d and %d after the split", l.Name, refilled, l.Tokens, other.Tokens)
		}
		if shareOf(from, next, &l)+shareOf(created, shard, other) != shareOf(from, old, was) || l.Tokens > shareOf(from, next, &l) || other.Tokens > shareOf(created, shard, other) {
			return fmt.Errorf("%s has %d and %d after the split, more than the shares", l.Name, l.Tokens, other.Tokens)
		}
		w.ideals[from.Key()][l.Name], w.ideals[created.Key()][l.Name] = rational(l.Tokens), rational(other.Tokens)
	}
	return nil
}

// judgeMerge checks that a merged shard has the tokens of both shards, and their refill. Each refills below its own share until the merge, or
// until a second after the later stamp if that is earlier. From then on both refill together.
func (w *witness) judgeMerge(before, after map[layout.BucketKey]*layout.Bucket, k layout.BucketKey) error {
	gone := k
	gone.Shard += int(after[k].ShardCount)
	old, next, was := before[k], after[k], before[gone]
	if was == nil || after[gone] != nil || 2*next.ShardCount != old.ShardCount || was.ShardCount != old.ShardCount {
		return fmt.Errorf("shard %d grew without another one", k.Shard)
	}
	latest := max(old.RefilledAt, was.RefilledAt)
	flow := func(k layout.BucketKey, item *layout.Bucket, l *bucket.Limit, from, to int64) int64 {
		return bucket.Refill(from, to, refillOf(k, item, l), l.RefillPeriod)
	}
	for _, l := range next.Limits {
		w.ideals[k.Key()][l.Name] = rational(l.Tokens)
		a, b := find(old, l.Name), find(was, l.Name)
		apartUntil := func(at int64) int64 { // the balance at the stamp of the merged shard
			mine := min(a.Tokens+flow(k, old, a, old.RefilledAt, at), shareOf(k, old, a))
			its := min(b.Tokens+flow(gone, was, b, was.RefilledAt, at), shareOf(gone, was, b))
			return mine + its - flow(k, next, &l, next.RefilledAt, at)
		}
		least, most := apartUntil(max(latest+1000, next.RefilledAt)), apartUntil(next.RefilledAt)
		if l.Name != bucket.WriteUnits && (l.Tokens < least-1 || l.Tokens > most+1 || l.Consumed != a.Consumed) { // rates are rounded down
			return fmt.Errorf("%s is %d after the merge and counts %d, want %d to %d and %d", l.Name, l.Tokens, l.Consumed, least, most, a.Consumed)
		}
	}
	return nil
}

func find(item *layout.Bucket, limit string) *bucket.Limit {
	for i := range item.Limits {
		if item.Limits[i].Name == limit {
			return &item.Limits[i]
		}
	}
	return nil
}

func rational(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// shareOf returns what an item may hold of a limit.
func shareOf(k layout.BucketKey, item *layout.Bucket, l *bucket.Limit) int64 {
	if l.Name == bucket.WriteUnits {
		return l.Capacity
	}
	return bucket.Share(l.Capacity, k.Shard, int(item.ShardCount))
}

// refillOf returns what flows into an item per period.
func refillOf(k layout.BucketKey, item *layout.Bucket, l *bucket.Limit) int64 {
	if l.Name == bucket.WriteUnits {
		return l.RefillAmount
	}
	return bucket.Share(l.RefillAmount, k.Shard, int(item.ShardCount))
}

// flow returns what flows into a limit of an item up to a time, exactly: nothing to a stamp that was set back.
func flow(k layout.BucketKey, item *layout.Bucket, l *bucket.Limit, until int64) *big.Rat {
	until = max(until, item.RefilledAt)
	amount := new(big.Int).Mul(big.NewInt(until-item.RefilledAt), big.NewInt(refillOf(k, item, l)))
	return new(big.Rat).SetFrac(amount, big.NewInt(l.RefillPeriod))
}

// atMost lowers a balance to a bound.
func atMost(balance *big.Rat, bound int64) {
	if b := rational(bound); balance.Cmp(b) > 0 {
		balance.Set(b)
	}
}

// near returns an error when a balance is off by a millitoken or more.
func near(l *bucket.Limit, ideal *big.Rat) error {
	if off := new(big.Rat).Sub(rational(l.Tokens), ideal); off.Abs(off).Cmp(rational(1)) >= 0 {
		return fmt.Errorf("%s has %d, the ideal bucket %s", l.Name, l.Tokens, ideal.FloatString(3))
	}
	return nil
}

// A flaky store is one client's way to a store: it loses requests and replies, and ends with the process.
type flaky struct {
	store.Store
	mu     sync.Mutex
	faults []fault // for the next calls that write, one each
	dead   bool
}

// add adds faults for the next calls that have none.
func (f *flaky) add(faults ...fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, faults...)
}

// ended reports whether the process has ended.
func (f *flaky) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// clear reports whether the process has not ended, and no fault is to come.
func (f *flaky) clear() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.dead && !slices.ContainsFunc(f.faults, func(next fault) bool { return next != none })
}

// errEnded is the error of calls of a process that has ended. It does not pass, as an outage does: nobody waits for it.
var errEnded = errors.New("the process has ended")

// A fault is what happens to a write.
type fault uint8

const (
	none      fault = iota
	throttled       // nothing is done, and the client knows
	lostReply       // done, and the client does not know
	endAfter        // done, and the process ends
	endFirst        // the process ends
)

var errLost = errors.New("lost")

// hit returns the fault of a write.
func (f *flaky) hit() (do bool, err func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := none
	if len(f.faults) > 0 {
		next, f.faults = f.faults[0], f.faults[1:]
	}
	if f.dead {
		return false, func() error { return errEnded }
	}
	switch next {
	case throttled:
		return false, func() error { return &store.Error{Op: "write", Unavailable: true, Err: errLost} }
	case lostReply:
		return true, func() error { return &store.Error{Op: "write", Unavailable: true, Unknown: true, Err: errLost} }
	case endAfter, endFirst:
		f.dead = true
		return next == endAfter, func() error { return &store.Error{Op: "write", Unavailable: true, Unknown: true, Err: errLost} }
	default:
		return true, nil
	}
}

// Write does a write, or not.
func (f *flaky) Write(ctx context.Context, w store.Write) (store.Result, error) {
	do, fail := f.hit()
	var result store.Result
	var err error
	if do {
		result, err = f.Store.Write(ctx, w)
	}
	if fail != nil {
		return store.Result{}, fail()
	}
	return result, err
}

// Transact does a transaction, or not.
func (f *flaky) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	do, fail := f.hit()
	var results []store.Result
	var err error
	if do {
		results, err = f.Store.Transact(ctx, writes)
	}
	if fail != nil {
		return nil, fail()
	}
	return results, err
}

// Read reads, unless the process has ended.
func (f *flaky) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	if f.ended() {
		return nil, errEnded
	}
	return f.Store.Read(ctx, keys, consistent)
}
