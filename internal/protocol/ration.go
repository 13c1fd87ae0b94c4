package protocol

import (
	"math"
	"slices"
	"sync"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// All processes see the refill of a used-up bucket, and few requests get it. If each request tried to take it, nearly each would cost a
// failed write. So a process rations what it asks for, as long as its last image may reject requests from memory. A request may ask for:
//
//   - the process's own part of the refill since the image, see [traffic.share];
//   - less what earlier requests of the process, not decided yet, are about to take.
//
// Other processes have taken the rest, or the next image shows it. Rationing delays little: no more than the refill within the age of a
// rejection from memory. Demands that are large compared with the bucket are rationed only if they wait. For callers that wait, the refill
// is room in the queue of tokens. Without rationing, a process whose clock is a few milliseconds ahead would get all of it.

// isRationed reports whether a process rations what an image of a shard shows.
func (tk *levelTaker) isRationed(l *level, s *shard, i *image, now int64) bool {
	return (s.traffic.isUsedUp() || tk.isStrained(l.bucket)) && tk.items.isRecent(s, i, now) && l.limits.Config.InLine(&i.State, now)
}

// isRationed reports whether callers share what has flowed in since an image with other processes.
func (t *shardTake) isRationed(i *image) bool {
	return t.tk.isRationed(t.level, t.s, i, t.at) && (t.demand.Waits() || t.areSmall(i, t.at))
}

// ration makes the plan again from this process's part of what has flowed in since an image, see [traffic.share]. Others have taken the
// rest, or it shows once the image is too old. What is rationed is a trickle.
func (t *shardTake) ration(i *image) {
	t.rationed = true
	t.asOf = t.s.traffic.rationedAt(i, t.at, t.demand.Waits())
	if t.planAsOf(i); t.plan.Kind != bucket.Reject || t.tk.isTrickleOf(t.level, i, t.asOf) {
		return
	}
	t.asOf = t.at
	t.planAsOf(i)
}

// outOfRation returns the shortage of a request that finds nothing left of its process's ration; nil for one that is to be decided by the
// store.
func (tk *levelTaker) outOfRation(l *level) error {
	if short := tk.place(l, false).short; short != nil {
		return short
	}
	return nil
}

// areOutOfRation returns for each level whether its bucket has nothing left of the process's ration, and whether one has not.
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

// isTrickleOf reports whether a shard, as it was read, has only a trickle of what a level lacks at a time, within the age of a rejection
// from memory.
func (tk *levelTaker) isTrickleOf(l *level, i *image, asOf int64) bool {
	age := tk.options.RejectionAge.Milliseconds()
	return l.limits.Config.IsTrickle([]*bucket.State{&i.State}, &i.State, &l.demand, asOf, i.askedAt, age)
}

// rationedAt returns the time at which an image is judged by a process that counts on its part of what has flowed in since. Processes
// whose parts differ a little would otherwise fall into step, and the first one would get all. So the time until the part has flowed
// in is random for each image, between none and twice its length.
//
// Without a wait, a request takes its part immediately if that time is over when the tokens have flowed in. The bucket may be full soon,
// and refuse what flows in. A queue of tokens refuses nothing, so callers that wait can come later: by the random time after the tokens
// have flowed in, and by more if their process has taken more recently, see [tookWeight]. Then small differences of clocks do not decide
// who gets the tokens.
//
// If writes of the process fail, the parts of all processes are more than the whole. So the time is longer by the square root of how many writes
// are charged for one that is done. Without the root, a process that fails more often than others would fall behind them.
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

// tookWeight is the weight of a process's part of the recent writes in the delay of its callers that wait, relative to the time until
// tokens flow in. A process that comes too late each time takes nothing, so its delay becomes the shortest. Of 4, 8 and 16, 8 left the
// least difference between four processes whose clocks are up to half a second apart.
const tookWeight = 8

// A pendingTakes has the amounts that requests of this process are about to take. Where one of them does not get its own, others have taken
// them, or there were none. So a request that comes later counts on what they leave. It is safe for concurrent use.
type pendingTakes struct {
	mu       sync.Mutex
	requests int
	amounts  []bucket.Amount
}

// begins notes that a request is to be decided that asks for amounts.
func (u *pendingTakes) begins(amounts []bucket.Amount) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests++
	for _, a := range amounts {
		u.add(a.Limit, a.Tokens)
	}
}

// ends notes that it is decided.
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

// less returns an image without what is under way.
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
