package blocking

import (
	"errors"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Close settles a lease that is still open, and leaves a committed or rolled back one alone. It is for a defer right
// after [RateLimiter.Acquire]:
//
//	lease, err := limiter.Acquire(request)
//	if err != nil {
//		return err
//	}
//	defer lease.Close()
//
// Close commits the recorded amounts, even if the function returns early or panics. A limiter cannot know how much of
// the work was done by then, and never gives back what may have been used. Code that wants its tokens back after a
// failure calls [Lease.Rollback] first, or is a function for [RateLimiter.Do].
//
// Close retries a failed commit or rollback if possible. It costs and fails like [Lease.Commit].
func (le *Lease) Close() error {
	// A lease whose rollback has begun takes no commit, nor does a settled one.
	for _, settle := range []func() error{le.Commit, le.Rollback} {
		if err := settle(); !errors.Is(err, zlimit.ErrLeaseClosed) {
			return err
		}
	}
	return nil
}
