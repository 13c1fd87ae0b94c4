package store

import "time"

// A Clock is a store whose replies carry the time. A store that is no Clock is on the machine of its callers, and shares
// their clock.
type Clock interface {
	// Offset returns what to add to [time.Now] for the time by the store's clock. It is the least correction that agrees
	// with the replies, and so 0 where the two clocks may be the same. The result known is false until enough replies have
	// shown the time. Offset is quick, and safe for concurrent use.
	Offset() (offset time.Duration, known bool)
	// Bounds returns the least and the most of what to add to [time.Now], by all replies. It is false as long as Offset is. It is quick, and
	// safe for concurrent use.
	Bounds() (least, most time.Duration, known bool)
}
