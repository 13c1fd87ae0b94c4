package store

import "time"

// A Clock is a store whose replies tell the time. Stores without one are on the machine of their callers, whose clock is
// theirs.
type Clock interface {
	// Offset returns what to add to [time.Now] for the time by the store's clock: the least correction that agrees with
	// the replies, and so 0 where the two clocks may be the same. It is false until a reply has told the time. It is
	// quick, and safe for concurrent use.
	Offset() (offset time.Duration, known bool)
}
