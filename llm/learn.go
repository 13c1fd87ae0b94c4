package llm

import (
	"context"
	"math"
	"math/bits"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// learnEvery is the time for which facts learned of a resource hold in a process.
const learnEvery = 5 * time.Second

// longestWait is the longest wait that a response is believed to ask for.
const longestWait = time.Hour

// A learner remembers when something was last learned of a resource. Its zero value has learned nothing.
type learner struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// due reports whether something may be learned of a resource, and then counts it as learned.
func (l *learner) due(resource string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.last[resource]; ok && now.Sub(last) < learnEvery && now.Sub(last) >= 0 {
		return false
	}
	if l.last == nil || len(l.last) == 10_000 { // which are more resources than have limits
		l.last = map[string]time.Time{}
	}
	l.last[resource] = now
	return true
}

// learnTimeout bounds the calls of the store for learning, except the write that settles it.
const learnTimeout = 5 * time.Second

// learn brings the bucket of the account down to the figures in a response, behind the caller. A failure is logged.
func (t *Transport) learn(ctx context.Context, resource string, r *http.Response, delay time.Duration) {
	if t.config.account == "" {
		return
	}
	now := t.config.clock()
	told := t.told(r, delay, now)
	if len(told) == 0 || !t.learner.due(resource, now) {
		return
	}
	end := t.behind.begin()
	go func() {
		defer end()
		ctx, cancel := context.WithTimeout(ctx, learnTimeout)
		defer cancel()
		if err := t.lower(ctx, resource, told); err != nil {
			t.unlearned.Warn(ctx, t.config.logger, "llm: the limits that a provider reports were not learned", err, "account", t.config.account, "resource", resource)
		}
	}()
}

// A claim is a provider's statement about a limit: what is left of it, or that nothing is left before a wait ends.
type claim struct {
	left []figure
	wait time.Duration
}

// rest returns the claimed rest of a limit; false if the claim says nothing of limits of its period.
func (c *claim) rest(l zlimit.Limit) (rest int64, ok bool) {
	if c.wait > 0 {
		return -refill(l, c.wait), true
	}
	for _, f := range c.left {
		if f.bounds(l) && (!ok || f.left < rest) {
			rest, ok = f.left, true
		}
	}
	return rest, ok
}

// told returns the claims of a response about the limits, by their names.
func (t *Transport) told(r *http.Response, delay time.Duration, now time.Time) map[string]claim {
	told, empty := map[string]claim{}, false
	figures := figuresOf(r.Header, now)
	reset := time.Duration(0)
	for _, c := range t.config.charges {
		left := figures[c.weights.kind()]
		if len(left) == 0 {
			continue
		}
		told[c.limit] = claim{left: left}
		for _, f := range left {
			if f.left == 0 {
				empty, reset = true, max(reset, f.reset)
			}
		}
	}
	if r.StatusCode != http.StatusTooManyRequests { // not 529 either: an overload of Anthropic says nothing of limits
		return told
	}
	wait := max(delay, retryAfter(r.Header, now))
	if wait <= 0 {
		wait = reset
	}
	if wait = min(wait, longestWait); wait <= 0 {
		return told
	}
	for _, c := range t.config.charges {
		said := told[c.limit]
		used := slices.ContainsFunc(said.left, func(f figure) bool { return f.left == 0 })
		if c.weights.kind() != "" && (!empty || used) { // those that are used up, or all of them
			told[c.limit] = claim{wait: wait}
		}
	}
	return told
}

// lower charges the excess of an account's bucket over a provider's figure.
func (t *Transport) lower(ctx context.Context, resource string, told map[string]claim) error {
	statuses, err := t.limiter.Available(ctx, zlimit.AvailableQuery{Entity: t.config.account, Resource: resource})
	if err != nil {
		return err
	}
	nothing, excess := zlimit.Amounts{}, zlimit.Amounts{}
	for _, s := range statuses {
		claim, ok := told[s.Limit.Name]
		if !ok {
			continue
		}
		rest, ok := claim.rest(s.Limit)
		if over := s.Available - rest; ok && over > 0 {
			nothing[s.Limit.Name], excess[s.Limit.Name] = 0, min(over, maxAmount)
		}
	}
	if len(excess) == 0 {
		return nil
	}
	lease, err := t.limiter.Acquire(ctx, zlimit.Request{Entity: t.config.account, Resource: resource, Consume: nothing})
	if err != nil {
		return err
	}
	if err := lease.Adjust(excess); err != nil {
		return err
	}
	return lease.Commit(ctx)
}

// refill returns how many whole tokens flow into a limit in a time, of a quota none.
func refill(l zlimit.Limit, d time.Duration) int64 {
	if l.RefillAmount == 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(l.RefillAmount), uint64(d))
	if high >= uint64(l.RefillPeriod) {
		return maxAmount
	}
	n, _ := bits.Div64(high, low, uint64(l.RefillPeriod))
	return int64(min(n, maxAmount))
}

// kind returns the providers' name for the limit of the weights; "" for a limit unknown to them.
func (w Weights) kind() string {
	if max(w.Request, w.Input, w.CacheRead, w.CacheWrite, w.Output) != 1 {
		return ""
	}
	switch tokens := max(w.Input, w.CacheRead, w.CacheWrite, w.Output); {
	case w.Request == 1 && tokens == 0:
		return "requests"
	case w.Request == 1:
		return ""
	case w.Input == 1 && w.Output == 1:
		return "tokens"
	case w.Input == 1:
		return "input-tokens"
	case w.Output == 1:
		return "output-tokens"
	default:
		return ""
	}
}

// retryAfter returns how long a response asks to wait; 0 when it does not. Azure and others have names of their own for it.
func retryAfter(h http.Header, now time.Time) time.Duration {
	for _, name := range [...]string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if ms, err := strconv.ParseFloat(h.Get(name), 64); err == nil && ms > 0 {
			return time.Duration(math.Ceil(min(ms, 1e9))) * time.Millisecond
		}
	}
	for _, name := range [...]string{"Retry-After", "X-Retry-After", "X-Ratelimit-Retry-After", "Ratelimit-Retry-After", "X-Ratelimit-Reset-After"} {
		value := strings.TrimSpace(h.Get(name))
		if s, err := strconv.ParseFloat(value, 64); err == nil && s > 0 && s < 1e9 {
			return time.Duration(math.Ceil(min(s, 1e6)*1000)) * time.Millisecond
		}
		if d := resetIn(value, now); d > 0 {
			return d
		}
	}
	return 0
}
