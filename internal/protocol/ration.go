package protocol

import (
	"math"
	"slices"
	"sync"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// All processes see the refill of a used-up bucket, and few requests get it. If each request tried to take it, nearly each would cost a
// failed write. So a process rations its requests, as long as its last image may reject requests from memory. A request may take:
//
//   - the process's own part of the refill since the image, see [traffic.share];
//   - less what earlier undecided requests of the process are about to take.
//
// Other processes have taken the rest, or the next image will show it. Rationing delays no more than the refill within the age of a
// rejection from memory. Demands that are large compared with the bucket are rationed only if they wait. For waiting callers, the refill is
// room in the queue. Without rationing, a process whose clock is a few milliseconds ahead would get all of it.

// isRationed reports whether this process rations its requests for a shard, given the image of it.
func (tk *levelTaker) isRationed(l *level, s *shard, i *image, now int64) bool {
	return (s.traffic.isUsedUp() || tk.isStrained(l.bucket)) && tk.items.isRecent(s, i, now) && l.limits.Config.InLine(&i.State, now)
}

// isRationed reports whether the callers count only the ration of this process in the refill since an image.
func (t *shardTake) isRationed(i *image) bool {
	return t.tk.isRationed(t.level, t.s, i, t.at) && (t.demand.Waits() || t.areSmall(i, t.at))
}

// ration makes the plan again, with only this process's part of the refill since an image, see [traffic.share]. Others have taken the rest,
// or a read shows it once the image is too old. If the refill is more than a trickle, it is not rationed.
func (t *shardTake) ration(i *image) {
	t.rationed = true
	t.asOf = t.s.traffic.rationedAt(i, t.at, t.demand.Waits())
	if t.planAsOf(i); t.plan.Kind != bucket.Reject || t.tk.isTrickleOf(t.level, i, t.asOf) {
		return
	}
	t.asOf = t.at
	t.planAsOf(i)
}

// outOfRation returns a shortage if the ration of the process has nothing left for a request, and nil if the store is to decide.
func (tk *levelTaker) outOfRation(l *level) error {
	if short := tk.place(l, false).short; short != nil {
		return short
	}
	return nil
}

// areOutOfRation returns the error of [levelTaker.outOfRation] for each level, and whether there is one.
func (tk *levelTaker) areOutOfRation(levels []level) (errs []error, short bool) {
	for i := range levels {
		if err := tk.outOfRation(&levels[i]); err != nil {
			if errs == nil {
				errs = make([]error, len(levels))
			}
			errs[i], short = err, true
		}
	}
	return errs, short
}

// isTrickleOf reports whether a shard, in an image, has only a trickle of the limits that a level is short of: no more than the refill
// within the age of a rejection from memory.
func (tk *levelTaker) isTrickleOf(l *level, i *image, asOf int64) bool {
	age := tk.options.RejectionAge.Milliseconds()
	return l.limits.Config.IsTrickle([]*bucket.State{&i.State}, &i.State, &l.demand, asOf, i.askedAt, age)
}

// rationedAt returns an earlier time at which to evaluate an image, so that only this process's part of the refill since the image counts.
// If processes with similar parts evaluated at the same moments, the first one would get everything. So the time until the part has been
// refilled is multiplied by a random factor between 0 and 2 for each image.
//
// A request that does not wait takes its part as soon as that time has passed, since the bucket may soon be full and lose refill. A queue
// loses no refill. So waiting callers add the random time after the refill, and add more if their process has taken much recently, see
// [tookWeight]. So small differences between clocks do not decide which process gets the tokens.
//
// If writes of the process fail, the parts of all processes add up to more than the whole. So the time is multiplied by the square root of
// the writes charged per applied write. Without the root, a process that fails more often than others would fall behind them.
func (t *traffic) rationedAt(i *image, now int64, waits bool) int64 {
	share, took := t.share()
	if share == 1 {
		return now
	}
	elapsed := float64(now - i.askedAt)
	draw := float64(uint64(i.askedAt^i.Writes())*0x9e3779b97f4a7c15>>40+1) / (1 << 23) // above 0, up to 2
	if waits {
		return i.askedAt + int64(elapsed/(1+draw*(1/share+tookWeight*took)))
	}
	return i.askedAt + int64(min(elapsed, elapsed*share/(draw*math.Sqrt(t.cost()))))
}

// tookWeight is how much a process's share of the recent writes adds to the delay of its waiting callers, relative to the time until tokens
// are refilled. A process that always comes too late takes nothing, so its delay becomes the shortest. Of 4, 8 and 16, the weight 8 left
// the smallest difference between four processes whose clocks are up to half a second apart.
const tookWeight = 8

// A pendingTakes has the amounts that requests of this process are about to take. A later request counts only on what they leave: even if
// one of them fails, others have taken the tokens, or there were none. It is safe for concurrent use.
type pendingTakes struct {
	mu       sync.Mutex
	requests int
	amounts  []bucket.Amount
}

// begins adds the amounts of a request that is about to be decided.
func (u *pendingTakes) begins(amounts []bucket.Amount) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests++
	for _, a := range amounts {
		u.add(a.Limit, a.Tokens)
	}
}

// ends removes them after the request was decided.
func (u *pendingTakes) ends(amounts []bucket.Amount) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.requests--; u.requests == 0 {
		u.amounts = u.amounts[:0]
	}
	for _, a := range amounts {
		u.add(a.Limit, -a.Tokens)
	}
}

func (u *pendingTakes) add(limit string, tokens int64) {
	at := slices.IndexFunc(u.amounts, func(a bucket.Amount) bool { return a.Limit == limit })
	switch {
	case at >= 0:
		u.amounts[at].Tokens += tokens
	case u.requests > 0:
		u.amounts = append(u.amounts, bucket.Amount{Limit: limit, Tokens: tokens})
	}
}

// any reports whether requests are under way.
func (u *pendingTakes) any() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.requests > 0
}

// less returns an image less the amounts under way.
func (u *pendingTakes) less(i *image) *image {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.requests == 0 {
		return i
	}
	less := *i
	less.State = i.Less(u.amounts)
	return &less
}
