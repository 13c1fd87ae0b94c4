// Package virtual lets limiters run in virtual time, for replays and demos.
package virtual

import (
	"sync/atomic"
	"time"
)

// CallTimeout bounds a call of a store in virtual time, so that a busy or sleeping machine is no outage.
const CallTimeout = time.Minute

// A Clock shows the time of the wall until it is set. It is safe for concurrent use.
type Clock struct{ at atomic.Pointer[time.Time] }

// Set sets the time.
func (c *Clock) Set(t time.Time) { c.at.Store(&t) }

// Now returns a clock with the time that was set, or else the wall's.
func (c *Clock) Now(wall func() time.Time) func() time.Time {
	return func() time.Time {
		if t := c.at.Load(); t != nil {
			return *t
		}
		return wall()
	}
}
