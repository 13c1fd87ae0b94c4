package blocking

import (
	"context"
	"iter"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// DefaultTimeout is how long a call takes at most, [Open] and [New] included, unless [RateLimiter.Within] says
// something else. It is the last resort. A store that does not answer is an outage earlier, after
// [zlimit.WithCallTimeout], and follows the failure policy. The default leaves room for creating a table.
const DefaultTimeout = time.Minute

const defaultTimeout = callTimeout(DefaultTimeout)

// Wrap returns the facade of an existing limiter, so that code with and without contexts shares it. Closing either
// closes both.
func Wrap(core *zlimit.RateLimiter) *RateLimiter { return newRateLimiter(core, defaultTimeout) }

// Within returns the same limiter with another timeout, which holds for its services and leases, too. A timeout of
// 0 is none, for work without a known end such as [NamespaceService.Purge]. Closing either closes both. It does no I/O,
// and stands in for the deadline of a context:
//
//	lease, err := limiter.Within(50 * time.Millisecond).Acquire(request)
//
// A call that does not end in time returns [context.DeadlineExceeded], as it would with a context. Its write may have
// happened. [Lease.Commit] and [Lease.Rollback] are finished in any case, within 5 seconds.
func (l *RateLimiter) Within(d time.Duration) *RateLimiter {
	return newRateLimiter(l.core, callTimeout(d))
}

// A callTimeout is how long a call takes at most; 0 or less is no bound.
type callTimeout time.Duration

// context returns the context of a call that begins now.
func (t callTimeout) context() (context.Context, context.CancelFunc) {
	if t <= 0 {
		return context.Background(), func() {}
	}
	return context.WithTimeout(context.Background(), time.Duration(t))
}

// collect returns the elements of a list, none if it ends with an error.
func collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for element, err := range list {
		if err != nil {
			return nil, err
		}
		all = append(all, element)
	}
	return all, nil
}
